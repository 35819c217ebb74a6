// RUN: bagua-opt %s | FileCheck %s
// RUN: bagua-opt %s | bagua-opt | FileCheck %s
// Every built-in codec, its parameters in any order; defaults are left out.

// CHECK-LABEL: bagua.algorithm @codecs
bagua.algorithm @codecs {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // CHECK: via #bagua.identity
    %a = bagua.all_reduce mean %g via #bagua.identity
    // CHECK: via #bagua.f16
    %b = bagua.all_reduce mean %a via #bagua.f16
    // CHECK: via #bagua.bf16
    %c = bagua.all_reduce mean %b via #bagua.bf16
    // CHECK: via #bagua.minmax_reference<block = 1024>
    %d = bagua.all_reduce mean %c via #bagua.minmax_reference<block = 1024>
    // CHECK: via #bagua.sign<block = 4096>
    %e = bagua.all_reduce mean %d via #bagua.sign<block = 4096>
    // CHECK: via #bagua.topk<k = 3, block = 64>
    %f = bagua.all_reduce mean %e via #bagua.topk<block = 64, k = 3>
    bagua.update gradient = %f
  }
}

// CHECK: bagua.types = [
// CHECK-SAME: !bagua.packed<#bagua.qsgd<levels = 7, block = 512>, tensor<?xf32, #bagua.bucket>>
// CHECK-SAME: !bagua.packed<#bagua.qsgd<levels = 127, block = 64, norm = l2>, tensor<?xf32, #bagua.bucket>>
// CHECK-SAME: !bagua.packed<#bagua.ternary<block = 8>, tensor<?xf32, #bagua.bucket>>
// CHECK-SAME: !bagua.packed<#bagua.randk<k = 16, block = 1024>, tensor<?xf32, #bagua.bucket>>
// CHECK-SAME: !bagua.packed<#bagua.randk<k = 16, block = 4096, scaled = false>, tensor<?xf32, #bagua.bucket>>
module attributes {bagua.types = [
  !bagua.packed<#bagua.qsgd<levels = 7, norm = max, block = 512>, tensor<?xf32, #bagua.bucket>>,
  !bagua.packed<#bagua.qsgd<norm = l2, levels = 127, block = 64>, tensor<?xf32, #bagua.bucket>>,
  !bagua.packed<#bagua.ternary<block = 8>, tensor<?xf32, #bagua.bucket>>,
  !bagua.packed<#bagua.randk<k = 16, block = 1024, scaled = true>, tensor<?xf32, #bagua.bucket>>,
  !bagua.packed<#bagua.randk<k = 16, block = 4096, scaled = false>, tensor<?xf32, #bagua.bucket>>
]} {}
