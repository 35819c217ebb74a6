// Averages gradients node by node, exactly.
// BAGUA, arXiv 2107.01499, "hierarchical communications" (H).
//
// The ranks of a node share out the bucket and add up their shards; ranks of different nodes that own the same
// shard exchange sums; then each node puts the bucket together. So a rank sends 1/s of a bucket to each other
// node, s being the ranks of a node, where gradient_allreduce sends as much to each rank of it. Sums travel, and
// the one division comes last.

!shard = tensor<?xf32, #bagua.shard<@node>>

bagua.algorithm @hierarchical_allreduce {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %world = bagua.world
    %one = arith.constant 1 : index
    %many = arith.cmpi ugt, %world, %one : index
    scf.if %many {
      %mine = bagua.reduce_scatter sum %g over @node
      %sum = bagua.all_reduce sum %mine : !shard over @cross
      %part = bagua.map %sum / %world : !shard
      %all = bagua.all_gather %part : !shard over @node
      %mean = bagua.concat %all : !bagua.per<@node, !shard>
      bagua.update gradient = %mean
    }
  }
}
