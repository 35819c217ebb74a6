// RUN: bagua-opt %s --bagua-inline-functions --bagua-verify-residuals --split-input-file --verify-diagnostics
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

// -----

// The same difference, written as a sum, behind other arithmetic, and of maps of maps.
#mm = #bagua.minmax<bits = 8, block = 512>
!packed = !bagua.packed<#mm, tensor<?xf32, #bagua.bucket>>
bagua.algorithm @negative_sum_of_negative {
  bagua.state @e : bucket = 0.0
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %e = bagua.read @e
    %c = bagua.map %g + %e
    // expected-note@+1 {{encodes another value than the one subtracted from}}
    %q = bagua.encode %c with #mm
    %d = bagua.decode %q : !packed
    %n = bagua.map -%d
    // expected-error@+1 {{expects a residual of the value that was encoded: c - decode(encode(c)); subtract from that value}}
    %r = bagua.map %n + %g
    bagua.update @e = %r
    bagua.update gradient = %d
  }
}

// -----

#mm = #bagua.minmax<bits = 8, block = 512>
!packed = !bagua.packed<#mm, tensor<?xf32, #bagua.bucket>>
bagua.algorithm @negative_times_minus_one(%decay: f64 = 0.9) {
  bagua.state @e : bucket = 0.0
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %e = bagua.read @e
    %c = bagua.map %g + %e
    // expected-note@+1 {{encodes another value than the one subtracted from}}
    %q = bagua.encode %c with #mm
    %d = bagua.decode %q : !packed
    %minus = arith.constant -1.0 : f64
    // expected-error@+1 {{expects a residual of the value that was encoded}}
    %r = bagua.map max(-1.0, min(1.0, %decay * (%g + %minus * %d)))
    bagua.update @e = %r
    bagua.update gradient = %d
  }
}

// -----

#mm = #bagua.minmax<bits = 8, block = 512>
!packed = !bagua.packed<#mm, tensor<?xf32, #bagua.bucket>>
bagua.algorithm @negative_fma(%lr: f64 = 0.1) {
  bagua.state @e : bucket = 0.0
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %e = bagua.read @e
    %c = bagua.map %g + %e / %lr
    // expected-note@+1 {{encodes another value than the one subtracted from}}
    %q = bagua.encode %c with #mm
    %d = bagua.decode %q : !packed
    // expected-error@+1 {{expects a residual of the value that was encoded}}
    %r = bagua.map fma(-%d, %lr, %lr * %g)
    bagua.update @e = %r
    bagua.update gradient = %d
  }
}

// -----

#mm = #bagua.minmax<bits = 8, block = 512>
!packed = !bagua.packed<#mm, tensor<?xf32, #bagua.bucket>>
bagua.algorithm @negative_opposite {
  bagua.state @e : bucket = 0.0
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %e = bagua.read @e
    %c = bagua.map %g + %e
    // expected-note@+1 {{fed back into what is encoded here}}
    %q = bagua.encode %c with #mm
    %d = bagua.decode %q : !packed
    // expected-error@+1 {{expects a residual of the sign with which it is fed back, c - decode(encode(c)) where c adds the state, got the opposite: swap what is subtracted from what}}
    %r = bagua.map %d - %g - %e
    bagua.update @e = %r
    bagua.update gradient = %d
  }
}

// -----

#mm = #bagua.minmax<bits = 8, block = 512>
!packed = !bagua.packed<#mm, tensor<?xf32, #bagua.bucket>>
bagua.algorithm @negative_sum {
  bagua.state @e : bucket = 0.0
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %e = bagua.read @e
    %c = bagua.map %g + %e
    // expected-note@+1 {{encoded here}}
    %q = bagua.encode %c with #mm
    %d = bagua.decode %q : !packed
    // expected-error@+1 {{expects a residual, c - decode(encode(c)), got a sum: subtract what was decoded}}
    %r = bagua.map %c + %d
    bagua.update @e = %r
    bagua.update gradient = %d
  }
}

// -----

// On one way through two branches of one condition: the others are right.
#mm = #bagua.minmax<bits = 8, block = 512>
!bucket = tensor<?xf32, #bagua.bucket>
bagua.algorithm @negative_one_way(%warmup: index = 3) {
  bagua.state @e : bucket = 0.0
  bagua.on gradient(%g: !bucket) {
    %e = bagua.read @e
    %step = bagua.step
    %warm = arith.cmpi ult, %step, %warmup : index
    %c = scf.if %warm -> !bucket {
      %x = bagua.map %g + %e
      scf.yield %x : !bucket
    } else {
      %x = bagua.map %g + 0.5 * %e
      scf.yield %x : !bucket
    }
    // expected-note@+1 {{encodes another value}}
    %q = bagua.encode %c with #mm
    %d = bagua.decode %q : !bagua.packed<#mm, !bucket>
    scf.if %warm {
      %r = bagua.map %g + %e - %d
      bagua.update @e = %r
    } else {
      // expected-error@+1 {{expects a residual of the value that was encoded}}
      %r = bagua.map %g - %d
      bagua.update @e = %r
    }
    bagua.update gradient = %d
  }
}

// -----

// In functions, of which one subtracts.
#mm = #bagua.minmax<bits = 8, block = 512>
!bucket = tensor<?xf32, #bagua.bucket>
!packed = !bagua.packed<#mm, !bucket>
func.func private @lost(%x: !bucket, %d: !bucket) -> !bucket {
  // expected-error@+1 {{expects a residual of the value that was encoded}}
  %r = bagua.map %x - %d
  return %r : !bucket
}
func.func private @sent(%x: !bucket) -> !packed {
  // expected-note@+1 {{encodes another value}}
  %q = bagua.encode %x with #mm
  return %q : !packed
}
bagua.algorithm @negative_in_function {
  bagua.state @e : bucket = 0.0
  bagua.on gradient(%g: !bucket) {
    %e = bagua.read @e
    %c = bagua.map %g + %e
    %q = bagua.call @sent(%c) : (!bucket) -> !packed
    %d = bagua.decode %q : !packed
    %r = bagua.call @lost(%g, %d) : (!bucket, !bucket) -> !bucket
    bagua.update @e = %r
    bagua.update gradient = %d
  }
}

// -----

// Fine, in whatever order: the residual itself, shrunk, kept beside what the state was, or subtracted;
// and states that follow a value. EControl (arXiv 2311.05645) keeps a part of the error for later.
#mm = #bagua.minmax<bits = 8, block = 512>
!bucket = tensor<?xf32, #bagua.bucket>
!packed = !bagua.packed<#mm, !bucket>
bagua.algorithm @accepted_as_written(%eta: f64 = 0.5, %lr: f64 = 0.1) {
  bagua.state @a : bucket = 0.0
  bagua.state @b : bucket = 0.0
  bagua.state @c : bucket = 0.0
  bagua.state @h : bucket = 0.0
  bagua.on gradient(%g: !bucket) {
    %a = bagua.read @a
    %xa = bagua.map %g + %a / %lr
    %qa = bagua.encode %xa with #mm
    %da = bagua.decode %qa : !packed
    %ra = bagua.map max(-1.0, 0.9 * (%a - %lr * (%da - %g)))
    bagua.update @a = %ra
    %b = bagua.read @b
    %xb = bagua.map %g - %b
    %qb = bagua.encode %xb with #mm
    %db = bagua.decode %qb : !packed
    %rb = bagua.map -%g + %b + %db
    bagua.update @b = %rb
    %c = bagua.read @c
    %h = bagua.read @h
    %xc = bagua.map %eta * %c + %g - %h
    %qc = bagua.encode %xc with #mm
    %dc = bagua.decode %qc : !packed
    %rc = bagua.map %c + %g - %h - %dc
    bagua.update @c = %rc
    %moved = bagua.map %h + %dc
    bagua.update @h = %moved
    %out = bagua.map %da + %db + %dc
    bagua.update gradient = %out
  }
}
