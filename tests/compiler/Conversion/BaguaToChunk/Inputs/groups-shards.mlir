// Shards of one group, reduced over the other: with a codec that draws where it encodes, and numbers that are exchanged.
#qsgd = #bagua.qsgd<levels = 7, block = 16>
!bucket = tensor<?xf32, #bagua.bucket>
!shard = tensor<?xf32, #bagua.shard<@cross>>
!scalar = tensor<?xf32, #bagua.scalar>
bagua.algorithm @groups_shards(%seed: index = 5) {
  bagua.on gradient(%g: !bucket) {
    %world = bagua.world
    %one = arith.constant 1 : index
    %many = arith.cmpi ugt, %world, %one : index
    scf.if %many {
      %mine = bagua.reduce_scatter sum %g over @cross
      %sum = bagua.all_reduce mean %mine : !shard over @node via #qsgd
      %norm = bagua.norm %mine : !shard
      %norms = bagua.all_reduce sum %norm : !scalar over @node
      %scaled = bagua.map %sum / (1.0 + %norms) : !shard
      %all = bagua.all_gather %scaled : !shard over @cross
      %new = bagua.concat %all : !bagua.per<@cross, !shard>
      bagua.update gradient = %new
    }
  }
}
