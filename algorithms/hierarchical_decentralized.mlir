// Decentralized SGD between nodes: ranks of a node average their weights, and each node mixes its average with
// those of the two neighbouring nodes of a ring, while forward and backward run on the old ones.
// BAGUA, arXiv 2107.01499, section 4 ("D_FP_S" with hierarchical communications, H): within a node everyone is
// a neighbour.
//
// The ranks of a node share out the bucket: each moves its shard of the average to the neighbouring nodes. On one
// node it is decentralized_all, with one rank on each node decentralized.

#ring = #bagua.topology<offsets = [-1, 1], weights = [1/3, 1/3]>
!shard = tensor<?xf32, #bagua.shard<@node>>
!heard = !bagua.per<#ring over @cross, !shard, own>

bagua.algorithm @hierarchical_decentralized {
  bagua.on before_forward(%w: tensor<?xf32, #bagua.bucket>) {
    %mine = bagua.reduce_scatter mean %w over @node
    %n = bagua.neighbor_exchange %mine : !shard on #ring over @cross
    %x = bagua.mix %mine, %n : !shard, !heard on #ring over @cross
    %all = bagua.all_gather %x : !shard over @node
    %next = bagua.concat %all : !bagua.per<@node, !shard>
    bagua.update weight = %next at before_update
  }
}
