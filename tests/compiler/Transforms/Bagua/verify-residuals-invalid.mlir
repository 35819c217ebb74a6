// RUN: bagua-opt %s --bagua-verify-residuals --split-input-file --verify-diagnostics
// R1: the residual is of the value that was encoded.

#mm = #bagua.minmax<bits = 8, block = 512>
!packed = !bagua.packed<#mm, tensor<?xf32, #bagua.bucket>>

bagua.algorithm @negative_residual_of_gradient {
  bagua.state @e : bucket = 0.0
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %e = bagua.read @e
    %c = bagua.map %g + %e
    // expected-note@+1 {{encodes another value than the one subtracted from}}
    %q = bagua.encode %c with #mm
    %d = bagua.decode %q : !packed
    // expected-error@+1 {{'bagua.map' op expects a residual of the value that was encoded: c - decode(encode(c)); subtract from that value}}
    %r = bagua.map %g - %d
    bagua.update @e = %r
    bagua.update gradient = %d
  }
}

// -----

// In a branch, which yields the state's new value.
#mm = #bagua.minmax<bits = 8, block = 512>
bagua.algorithm @negative_residual_in_branch {
  bagua.state @e : bucket = 0.0
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %e = bagua.read @e
    %n = bagua.world
    %one = arith.constant 1 : index
    %many = arith.cmpi ugt, %n, %one : index
    %new = scf.if %many -> tensor<?xf32, #bagua.bucket> {
      %c = bagua.map %g + %e
      // expected-note@+1 {{encodes another value}}
      %q = bagua.encode %c with #mm
      %d = bagua.decode %q : !bagua.packed<#mm, tensor<?xf32, #bagua.bucket>>
      // expected-error@+1 {{expects a residual of the value that was encoded}}
      %r = bagua.map %e - %d
      scf.yield %r : tensor<?xf32, #bagua.bucket>
    } else {
      scf.yield %e : tensor<?xf32, #bagua.bucket>
    }
    bagua.update @e = %new
  }
}

// -----

// Fine: the value itself, or one computed the same way; differences that are no error feedback.
#mm = #bagua.minmax<bits = 8, block = 512>
!packed = !bagua.packed<#mm, tensor<?xf32, #bagua.bucket>>
bagua.algorithm @accepted {
  bagua.state @e : bucket = 0.0
  bagua.state @f : bucket = 0.0
  bagua.state @old : bucket = 0.0
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %e = bagua.read @e
    %f = bagua.read @f
    %old = bagua.read @old
    %c = bagua.map %g + %e
    %q = bagua.encode %c with #mm
    %d = bagua.decode %q : !packed
    %r = bagua.map %c - %d
    bagua.update @e = %r
    %c1 = bagua.map %g + %f
    %q1 = bagua.encode %c1 with #mm
    %d1 = bagua.decode %q1 : !packed
    %c2 = bagua.map %g + %f
    %r1 = bagua.map %c2 - %d1
    bagua.update @f = %r1
    %change = bagua.map %g - %d
    bagua.update @old = %change
    %out = bagua.map %d + %old
    bagua.update gradient = %out
  }
}

// -----

// Encoded shard by shard it is the same value, and the same law.
#mm = #bagua.minmax<bits = 8, block = 512>
!bucket = tensor<?xf32, #bagua.bucket>
!shard = tensor<?xf32, #bagua.shard<@world>>
bagua.algorithm @negative_shards {
  bagua.state @e : bucket = 0.0
  bagua.on gradient(%g: !bucket) {
    %e = bagua.read @e
    %c = bagua.map %g + %e
    %parts = bagua.split %c over @world
    // expected-note@+1 {{encodes another value than the one subtracted from}}
    %q = bagua.encode %parts : !bagua.per<@world, !shard> with #mm
    %kept = bagua.decode %q : !bagua.per<@world, !bagua.packed<#mm, !shard>>
    %d = bagua.concat %kept : !bagua.per<@world, !shard>
    // expected-error@+1 {{expects a residual of the value that was encoded: c - decode(encode(c)); subtract from that value}}
    %r = bagua.map %g - %d
    bagua.update @e = %r
    bagua.update gradient = %d
  }
}
