// RUN: bagua-opt %s --bagua-expand-via | FileCheck %s
// The codec is on both ways, and one's own shard passes through it: encode before all_gather.

#mm = #bagua.minmax<bits = 8, block = 2048>
!bucket = tensor<?xf32, #bagua.bucket>

// CHECK: #[[$MM:.*]] = #bagua.minmax<bits = 8, block = 2048>
// CHECK-LABEL: bagua.algorithm @mean
//       CHECK:   bagua.on gradient(%[[G:.*]]:
//       CHECK:     %[[N:.*]] = bagua.world
//       CHECK:     %[[ONE:.*]] = arith.constant 1 : index
//       CHECK:     %[[MANY:.*]] = arith.cmpi ugt, %[[N]], %[[ONE]] : index
//       CHECK:     %[[MEAN:.*]] = scf.if %[[MANY]] -> (tensor<?xf32, #bagua.bucket>) {
//  CHECK-NEXT:       %[[PARTS:.*]] = bagua.split %[[G]] over @world
//  CHECK-NEXT:       %[[CODED:.*]] = bagua.encode %[[PARTS]] : {{.*}} with #[[$MM]]
//  CHECK-NEXT:       %[[GOT:.*]] = bagua.all_to_all %[[CODED]] : {{.*}} over @world
//  CHECK-NEXT:       %[[VALUES:.*]] = bagua.decode %[[GOT]]
//  CHECK-NEXT:       %[[MINE:.*]] = bagua.reduce mean %[[VALUES]]
//  CHECK-NEXT:       %[[Q:.*]] = bagua.encode %[[MINE]] : {{.*}} with #[[$MM]]
//  CHECK-NEXT:       %[[ALL:.*]] = bagua.all_gather %[[Q]] : {{.*}} over @world
//  CHECK-NEXT:       %[[DECODED:.*]] = bagua.decode %[[ALL]]
//  CHECK-NEXT:       %[[OUT:.*]] = bagua.concat %[[DECODED]]
//  CHECK-NEXT:       scf.yield %[[OUT]]
//  CHECK-NEXT:     } else {
//  CHECK-NEXT:       scf.yield %[[G]]
//  CHECK-NEXT:     }
//       CHECK:     bagua.update gradient = %[[MEAN]]
bagua.algorithm @mean {
  bagua.on gradient(%g: !bucket) {
    %mean = bagua.all_reduce mean %g via #mm
    bagua.update gradient = %mean
  }
}

// The group may be written out; the kind is kept; without via nothing happens.
// CHECK-LABEL: bagua.algorithm @sum
//       CHECK:   %[[SUM:.*]] = bagua.all_reduce sum %{{[^ ]*$}}
//       CHECK:   scf.if
//       CHECK:     bagua.split %[[SUM]] over @world
//       CHECK:     bagua.reduce sum
//   CHECK-NOT: bagua.all_reduce
bagua.algorithm @sum {
  bagua.on gradient(%g: !bucket) {
    %sum = bagua.all_reduce sum %g
    %again = bagua.all_reduce sum %sum over @world via #mm
    bagua.update gradient = %again
  }
}
