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

// What the codec loses is remembered: of the whole bucket at the worker, of its shard at the owner.
// CHECK-LABEL: bagua.algorithm @remember
//       CHECK:   bagua.on gradient(%[[G:.*]]:
//       CHECK:     scf.if
//  CHECK-NEXT:       %[[EW:.*]] = bagua.read @ew
//  CHECK-NEXT:       %[[C:.*]] = bagua.map %[[G]] + %[[EW]]
//  CHECK-NEXT:       %[[PARTS:.*]] = bagua.split %[[C]] over @world
//  CHECK-NEXT:       %[[Q:.*]] = bagua.encode %[[PARTS]]
//  CHECK-NEXT:       %[[KEPT:.*]] = bagua.decode %[[Q]]
//  CHECK-NEXT:       %[[D:.*]] = bagua.concat %[[KEPT]]
//  CHECK-NEXT:       %[[LOST:.*]] = bagua.map %[[C]] - %[[D]]
//  CHECK-NEXT:       bagua.update @ew = %[[LOST]]
//  CHECK-NEXT:       %[[GOT:.*]] = bagua.all_to_all %[[Q]]
//  CHECK-NEXT:       %[[VALUES:.*]] = bagua.decode %[[GOT]]
//  CHECK-NEXT:       %[[SUM:.*]] = bagua.reduce sum %[[VALUES]]
//  CHECK-NEXT:       %[[ES:.*]] = bagua.read @es : tensor<?xf32, #bagua.shard<@world>>
//  CHECK-NEXT:       %[[S:.*]] = bagua.map %[[SUM]] + %[[ES]] : tensor<?xf32, #bagua.shard<@world>>
//  CHECK-NEXT:       %[[P:.*]] = bagua.encode %[[S]]
//  CHECK-NEXT:       %[[DS:.*]] = bagua.decode %[[P]]
//  CHECK-NEXT:       %[[LOSTS:.*]] = bagua.map %[[S]] - %[[DS]] : tensor<?xf32, #bagua.shard<@world>>
//  CHECK-NEXT:       bagua.update @es = %[[LOSTS]]
//  CHECK-NEXT:       bagua.all_gather %[[P]]
//   CHECK-NOT:   bagua.all_reduce
bagua.algorithm @remember {
  bagua.state @ew : bucket = 0.0
  bagua.state @es : shard<@world> = 0.0
  bagua.on gradient(%g: !bucket) {
    %sum = bagua.all_reduce sum %g via #mm remember @ew, @es
    bagua.update gradient = %sum
  }
}

// The worker alone.
// CHECK-LABEL: bagua.algorithm @remember_worker
//       CHECK:   bagua.update @e = %{{.*}}
//   CHECK-NOT:   bagua.read
bagua.algorithm @remember_worker {
  bagua.state @e : bucket = 0.0
  bagua.on gradient(%g: !bucket) {
    %mean = bagua.all_reduce mean %g via #mm remember @e
    bagua.update gradient = %mean
  }
}

// Over a group, too: in a group of one nothing is lost, and the state stays.
// CHECK-LABEL: bagua.algorithm @remember_across
//       CHECK:   %[[K:.*]] = bagua.nodes
//       CHECK:   %[[MANY:.*]] = arith.cmpi ugt, %[[K]]
//       CHECK:   scf.if %[[MANY]]
//  CHECK-NEXT:     bagua.read @e
//       CHECK:     bagua.split %{{.*}} over @cross
//       CHECK:     bagua.update @e =
//       CHECK:     bagua.all_to_all %{{.*}} over @cross
//       CHECK:   } else {
bagua.algorithm @remember_across {
  bagua.state @e : bucket = 0.0
  bagua.on gradient(%g: !bucket) {
    %mean = bagua.all_reduce mean %g over @cross via #mm remember @e
    bagua.update gradient = %mean
  }
}

// A shard of the node is not cut again across the nodes: whoever has it on another node sends all of it.
// CHECK-LABEL: bagua.algorithm @across
//       CHECK:   %[[MINE:.*]] = bagua.reduce_scatter sum %{{.*}} over @node
//       CHECK:   %[[K:.*]] = bagua.nodes
//       CHECK:   %[[MANY:.*]] = arith.cmpi ugt, %[[K]], %{{.*}} : index
//       CHECK:   %[[SUM:.*]] = scf.if %[[MANY]] -> (tensor<?xf32, #bagua.shard<@node>>) {
//  CHECK-NEXT:     %[[Q:.*]] = bagua.encode %[[MINE]] : {{.*}} with #[[$MM]]
//  CHECK-NEXT:     %[[ALL:.*]] = bagua.all_gather %[[Q]] : {{.*}} over @cross
//  CHECK-NEXT:     %[[VALUES:.*]] = bagua.decode %[[ALL]]
//  CHECK-NEXT:     %[[REDUCED:.*]] = bagua.reduce sum %[[VALUES]]
//  CHECK-NEXT:     scf.yield %[[REDUCED]]
//  CHECK-NEXT:   } else {
//  CHECK-NEXT:     scf.yield %[[MINE]]
// Within the node, its size decides.
//       CHECK:   %[[S:.*]] = bagua.local_size
//       CHECK:   arith.cmpi ugt, %[[S]]
//       CHECK:   bagua.split %{{.*}} over @node
bagua.algorithm @across {
  bagua.on gradient(%g: !bucket) {
    %mine = bagua.reduce_scatter sum %g over @node
    %sum = bagua.all_reduce sum %mine : tensor<?xf32, #bagua.shard<@node>> over @cross via #mm
    %all = bagua.all_gather %sum : tensor<?xf32, #bagua.shard<@node>> over @node
    %whole = bagua.concat %all : !bagua.per<@node, tensor<?xf32, #bagua.shard<@node>>>
    %again = bagua.all_reduce mean %whole over @node via #mm
    bagua.update gradient = %again
  }
}
