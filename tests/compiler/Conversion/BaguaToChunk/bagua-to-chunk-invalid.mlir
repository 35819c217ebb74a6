// RUN: bagua-opt %s --bagua-to-chunk --split-input-file --verify-diagnostics
// What the language can say and the lowering cannot do yet: refused at the op, with what is supported.

// Packed bytes that arrived are not sent on.
#mm = #bagua.minmax<bits = 8, block = 512>
!shard = tensor<?xf32, #bagua.shard<@world>>
bagua.algorithm @negative_forward_received {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %parts = bagua.split %g over @world
    %coded = bagua.encode %parts : !bagua.per<@world, !shard> with #mm
    %got = bagua.all_to_all %coded : !bagua.per<@world, !bagua.packed<#mm, !shard>> over @world
    // expected-error@+1 {{'bagua.all_to_all' op of elements that were received is not supported: expects a split value, or one encoded or decoded here}}
    %back = bagua.all_to_all %got : !bagua.per<@world, !bagua.packed<#mm, !shard>, own> over @world
  }
}

// -----

// A branch may yield scalars, buckets and shards.
#mm = #bagua.minmax<bits = 8, block = 512>
!packed = !bagua.packed<#mm, tensor<?xf32, #bagua.bucket>>
bagua.algorithm @negative_yield_packed {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %n = bagua.world
    %one = arith.constant 1 : index
    %many = arith.cmpi ugt, %n, %one : index
    %q = bagua.encode %g with #mm
    // expected-error@+1 {{'scf.if' op yields '!bagua.packed<#bagua.minmax<bits = 8, block = 512>, tensor<?xf32, #bagua.bucket>>': expects scalars, buckets and shards}}
    %x = scf.if %many -> (!packed) {
      scf.yield %q : !packed
    } else {
      %again = bagua.encode %g with #mm
      scf.yield %again : !packed
    }
  }
}

// -----

// A codec is known before its bytes are placed, wherever it is named.
// expected-error@+1 {{expects a codec of the file, got @nope}}
func.func private @negative_unknown_codec(%q: !bagua.packed<#bagua.codec<@nope>, tensor<?xf32, #bagua.bucket>>) {
  return
}
