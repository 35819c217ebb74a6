// RUN: bagua-opt %s | FileCheck %s
// RUN: bagua-opt %s | bagua-opt | FileCheck %s
// RUN: bagua-opt %s --mlir-print-op-generic | bagua-opt | FileCheck %s
// RUN: bagua-opt %s --emit=chunk | FileCheck %s --check-prefix=CHUNK
// RUN: bagua-opt %s --explain | FileCheck %s --check-prefix=EXPLAIN

// A codec is named like a built-in one: it may stand before its definition, in types, functions and aliases.
// CHECK: #absmax4 = #bagua.codec<@absmax4>
#absmax4 = #bagua.codec<@absmax4>
!bucket = tensor<?xf32, #bagua.bucket>
!packed = !bagua.packed<#absmax4, !bucket>

// CHECK-LABEL: bagua.codec @absmax4 block(512) header(f32) code(i4) {
// CHECK-NEXT:    stats(%x) { max abs(%x) }
// CHECK-NEXT:    encode(%x, %h) { %x / %h * 7.0 }
// CHECK-NEXT:    decode(%q, %h) { %q / 7.0 * %h }
// CHECK-NEXT:  }
bagua.codec @absmax4 block(512) header(f32) code(i4) {
  stats(%x) { max abs(%x) }
  headers(%m) { %m }
  encode(%value, %most) { (%value / %most) * 7.0 }
  decode(%q, %h) { %q / 7.0 * %h }
}

// CHECK-LABEL: bagua.codec @all block(8) header(f32, f32, f32, f32) code(u16) attributes {note = "x"} {
// CHECK-NEXT:    stats(%x) { sum 1.0, min %x, max -%x * %x }
// CHECK-NEXT:    headers(%s0, %s1, %s2) { %s0, %s1, %s2, min(%s0, fma(%s1, %s2, 2.5)) }
// CHECK-NEXT:    encode(%x, %h0, %h1, %h2, %h3) { select(%x < %h3 or %h0 == 0.0, rint(%x), sqrt(%h1)) }
// CHECK-NEXT:    decode(%q, %h0, %h1, %h2, %h3) { %q - (%h2 - %h3) }
// CHECK-NEXT:  }
bagua.codec @all block(8) header(f32, f32, f32, f32) code(u16) attributes {note = "x"} {
  stats(%x) { sum 1, min %x, max (-%x) * %x }
  headers(%n, %lo, %y) { %n, %lo, %y, min(%n, fma(%lo, %y, 2.5)) }
  encode(%x, %a, %b, %c, %d) { select(%d > %x or %a == 0.0, rint(%x), sqrt(%b)) }
  decode(%q, %a, %b, %c, %d) { %q - (%c - %d) }
}

// Its block counts for the grain; constants of launches are its code.
// CHUNK-LABEL: chunk.schedule @mine grain 512 accepts [f32]
// CHUNK: chunk.launch "codec_encode"{{.*}}block = 512 : i64, code_bits = 4 : i64{{.*}}signed_codes = 1 : i64
// CHUNK: chunk.launch "codec_decode_reduce_mean"{{.*}}block = 512 : i64
// CHUNK-NOT: bagua.codec

// EXPLAIN: algorithm mine: grain 512 elements, buckets of f32
// EXPLAIN: P(x) = ceil(x/512)*4 + ceil(4*x/8)
func.func private @seen(%q: !packed) -> !bucket {
  %d = bagua.decode %q : !packed
  return %d : !bucket
}
bagua.algorithm @mine {
  bagua.state @e : bucket = 0.0
  bagua.on gradient(%g: !bucket) {
    %e = bagua.read @e
    %c = bagua.map %g + %e
    // CHECK: bagua.encode %{{.*}} with #absmax4
    %q = bagua.encode %c with #absmax4
    %d = bagua.call @seen(%q) : (!packed) -> !bucket
    %lost = bagua.map %c - %d
    bagua.update @e = %lost
    %all = bagua.all_gather %q : !packed over @world
    %values = bagua.decode %all : !bagua.per<@world, !packed>
    %mean = bagua.reduce mean %values : !bagua.per<@world, !bucket>
    bagua.update gradient = %mean
  }
}
