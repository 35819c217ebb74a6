// RUN: bagua-opt %s --bagua-expand-via --bagua-to-chunk --canonicalize --cse --split-input-file | FileCheck %s

// Exact: the mean is folded in the gradient's own buffer, shard by shard, and everyone's shards are copied
// beside it. Without via, codecs or a guard in the source, a world of one does nothing.
// CHECK-LABEL: chunk.schedule @exact grain 1 accepts [f32, f64]
//       CHECK:   chunk.program @gradient on gradient
//       CHECK:     %[[N:.*]] = chunk.world
//       CHECK:     %[[G:.*]] = chunk.job gradient
//   CHECK-NOT:     chunk.scratch
//       CHECK:     %[[IN:.*]] = chunk.slots %[[N]]
//       CHECK:     %[[ALL:.*]] = chunk.slots %[[N]]
//       CHECK:     chunk.forall %[[R:.*]] {
//       CHECK:       chunk.if
//       CHECK:         chunk.for %[[K:.*]] = %{{.*}} to %[[N]] {
//       CHECK:           %[[PART:.*]] = chunk.range %[[G]][{{.*}}] part(%{{.*}})
//       CHECK:           chunk.move %[[PART]] to rotate(%[[K]]) into %[[IN]][%[[R]]]
//       CHECK:         %[[INPUTS:.*]] = chunk.gather
//       CHECK:           chunk.range %[[G]]
//       CHECK:           chunk.view %[[IN]]
//       CHECK:         %[[MINE:.*]] = chunk.range %[[G]][{{.*}}] part(%[[R]])
//       CHECK:         chunk.launch "reduce_mean" count %{{.*}} ins(%[[INPUTS]] : !chunk.ranges) outs(%[[MINE]] : !chunk.range)
//       CHECK:         chunk.move %[[MINE]] to rotate(%{{.*}}) into %[[ALL]][%[[R]]]
//       CHECK:         chunk.view %[[ALL]]
//       CHECK:         chunk.launch "copy"
//   CHECK-NOT:         chunk.launch
bagua.algorithm @exact {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %mean = bagua.all_reduce mean %g
    bagua.update gradient = %mean
  }
}

// -----

// Packed: one encode for all shards, decode and fold in one launch, decode straight into the gradient.
// CHECK-LABEL: chunk.schedule @packed grain 512 accepts [f32]
//       CHECK:     %[[G:.*]] = chunk.job gradient
//       CHECK:     %[[Q:.*]] = chunk.scratch
//       CHECK:     %[[MINE:.*]] = chunk.scratch
//       CHECK:     %[[Q2:.*]] = chunk.scratch
//   CHECK-NOT:     chunk.scratch
//       CHECK:       %[[WHOLE:.*]] = chunk.range %[[G]]
//       CHECK:       %[[CODED:.*]] = chunk.range %[[Q]]
//       CHECK:       chunk.launch "minmax_encode" with {bits = 4 : i64, block = 512 : i64} {{.*}} ins(%[[WHOLE]] : {{.*}}) outs(%[[CODED]] : {{.*}})
//       CHECK:       chunk.move
//       CHECK:       chunk.launch "minmax_decode_reduce_mean"
//       CHECK:       chunk.launch "minmax_encode"
//       CHECK:       chunk.move
//       CHECK:       %[[OWN:.*]] = chunk.range %[[G]][{{.*}}] part
//       CHECK:       chunk.launch "minmax_decode" {{.*}} outs(%[[OWN]] : !chunk.range)
//       CHECK:       chunk.for
//       CHECK:         %[[OTHER:.*]] = chunk.range %[[G]][{{.*}}] part
//       CHECK:         chunk.launch "minmax_decode" {{.*}} outs(%[[OTHER]] : !chunk.range)
//   CHECK-NOT:       chunk.launch
bagua.algorithm @packed {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %mean = bagua.all_reduce mean %g via #bagua.minmax<bits = 4, block = 512>
    bagua.update gradient = %mean
  }
}

// -----

// Neighbours: one launch for each number of distinct neighbours; nothing at all in a world of one. The mixed
// weights wait in scratch, since neighbours still read the old ones.
// CHECK-LABEL: chunk.schedule @ring grain 1 accepts [f32, f64]
//       CHECK:     %[[W:.*]] = chunk.job weight
//       CHECK:     %[[X:.*]] = chunk.scratch
//       CHECK:     chunk.forall
//       CHECK:       chunk.if
//       CHECK:         chunk.move
//       CHECK:       chunk.if
//       CHECK:         chunk.move
//       CHECK:       chunk.if
//       CHECK:         chunk.launch "mix" {{.*}} scalars(%{{.*}}, %{{.*}} : f64, f64)
//       CHECK:       chunk.if
//       CHECK:         chunk.launch "mix" {{.*}} scalars(%{{[^,]*}} : f64)
//       CHECK:       chunk.wait before_update
//  CHECK-NEXT:       chunk.if
//  CHECK-NEXT:         chunk.if_finite
//       CHECK:           chunk.launch "copy"
//   CHECK-NOT:     chunk.launch
bagua.algorithm @ring {
  bagua.on before_forward(%w: tensor<?xf32, #bagua.bucket>) {
    %n = bagua.neighbor_exchange %w on #bagua.topology<offsets = [-1, 1], weights = [1/3, 1/3]>
    %x = bagua.mix %w, %n on #bagua.topology<offsets = [-1, 1], weights = [1/3, 1/3]>
    bagua.update weight = %x at before_update
  }
}

// -----

// The grain is the least common multiple of all blocks; a codec that takes f32 only decides for all.
// CHECK-LABEL: chunk.schedule @grain grain 48 accepts [f32]
// CHECK: chunk.program @gradient on gradient
// CHECK: chunk.program @before_forward on before_forward
bagua.algorithm @grain {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %a = bagua.all_reduce mean %g via #bagua.minmax<bits = 8, block = 16>
    %b = bagua.all_reduce mean %a via #bagua.minmax<bits = 8, block = 24>
    bagua.update gradient = %b
  }
  bagua.on before_forward(%w: tensor<?xf32, #bagua.bucket>) {
    bagua.update weight = %w at before_update
  }
}

// -----

// Within the node, and across the nodes: parts of the gradient are counted by the node, moves rotate in the groups.
// CHECK-LABEL: chunk.schedule @by_node grain 1 accepts [f32, f64]
//       CHECK:   %[[S:.*]] = chunk.local_size
//       CHECK:   %[[IN:.*]] = chunk.slots %[[S]]
//       CHECK:   %[[L:.*]] = chunk.local_rank
//       CHECK:   %[[K:.*]] = chunk.nodes
//       CHECK:   %[[ACROSS:.*]] = chunk.slots %[[K]]
//       CHECK:   %[[D:.*]] = chunk.node
//       CHECK:   chunk.for %[[H:.*]] = %{{.*}} to %[[S]] {
//       CHECK:     %[[PART:.*]] = chunk.range %{{.*}}[{{.*}}] part(%{{.*}}) of node
//       CHECK:     chunk.move %[[PART]] to node_rotate(%[[H]]) into %[[IN]][%[[L]]]
//       CHECK:   chunk.gather %{{.*}} = %{{.*}} to %[[S]]
//       CHECK:   chunk.for %[[J:.*]] = %{{.*}} to %[[K]] {
//       CHECK:     chunk.move %{{.*}} to cross_rotate(%[[J]]) into %[[ACROSS]][%[[D]]]
//       CHECK:   chunk.gather %{{.*}} = %{{.*}} to %[[K]]
!shard = tensor<?xf32, #bagua.shard<@node>>
bagua.algorithm @by_node {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %mine = bagua.reduce_scatter sum %g over @node
    %sum = bagua.all_reduce sum %mine : !shard over @cross
    %all = bagua.all_gather %sum : !shard over @node
    %new = bagua.concat %all : !bagua.per<@node, !shard>
    bagua.update gradient = %new
  }
}
