// ByteGrad between nodes only: within a node gradients travel as they are, between nodes in 8 bits per element.
// BAGUA, arXiv 2107.01499, C_LP_S with hierarchical communications (H); the codec is that of bytegrad.mlir.
//
// As in hierarchical_allreduce, but each node's sums are encoded once, before they leave it. One's own node's
// sums pass through the codec too, so all nodes add up the same numbers. On one node nothing is encoded.

#minmax8 = #bagua.minmax<bits = 8, block = 2048>
!shard = tensor<?xf32, #bagua.shard<@node>>

bagua.algorithm @hierarchical_bytegrad {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %world = bagua.world
    %one = arith.constant 1 : index
    %many = arith.cmpi ugt, %world, %one : index
    scf.if %many {
      %mine = bagua.reduce_scatter sum %g over @node
      %sum = bagua.all_reduce sum %mine : !shard over @cross via #minmax8
      %part = bagua.map %sum / %world : !shard
      %all = bagua.all_gather %part : !shard over @node
      %mean = bagua.concat %all : !bagua.per<@node, !shard>
      bagua.update gradient = %mean
    }
  }
}
