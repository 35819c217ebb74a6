// RUN: bagua-opt %s --bagua-specialize-world-one | FileCheck %s

#mm = #bagua.minmax<bits = 8, block = 2048>
!packed = !bagua.packed<#mm, tensor<?xf32, #bagua.bucket>>

// Alone, the bucket itself is the result; what communicates stays, on plain values.
// CHECK-LABEL: bagua.algorithm @two_bodies
//       CHECK:   %[[MANY:.*]] = arith.cmpi ugt
//       CHECK:   scf.if %[[MANY]] {
//       CHECK:     %[[Q:.*]] = bagua.encode %[[G:.*]] with
//       CHECK:     %[[ALL:.*]] = bagua.all_gather %[[Q]] : !bagua.packed
//       CHECK:     bagua.decode %[[ALL]]
//       CHECK:     bagua.update gradient
//       CHECK:   } else {
//   CHECK-NOT:     bagua.encode
//   CHECK-NOT:     bagua.decode
//       CHECK:     %[[PLAIN:.*]] = bagua.all_gather %[[G]] over @world
//       CHECK:     bagua.reduce mean %[[PLAIN]] : !bagua.per<@world, tensor<?xf32, #bagua.bucket>>
//       CHECK:     bagua.update gradient
bagua.algorithm @two_bodies {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %q = bagua.encode %g with #mm
    %all = bagua.all_gather %q : !packed over @world
    %d = bagua.decode %all : !bagua.per<@world, !packed>
    %m = bagua.reduce mean %d : !bagua.per<@world, tensor<?xf32, #bagua.bucket>>
    bagua.update gradient = %m
  }
}

// Who asks for company is left as written.
// CHECK-LABEL: bagua.algorithm @asks_for_peers
//       CHECK:   scf.if
//   CHECK-NOT:   scf.if
//       CHECK:   bagua.encode
bagua.algorithm @asks_for_peers {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %n = bagua.world
    %one = arith.constant 1 : index
    %many = arith.cmpi ugt, %n, %one : index
    scf.if %many {
      %q = bagua.encode %g with #mm
      %d = bagua.decode %q : !packed
      bagua.update gradient = %d
    }
  }
}

// Nor does a handler change that encodes nothing.
// CHECK-LABEL: bagua.algorithm @plain
//   CHECK-NOT:   scf.if
bagua.algorithm @plain {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %m = bagua.all_reduce mean %g
    bagua.update gradient = %m
  }
}
