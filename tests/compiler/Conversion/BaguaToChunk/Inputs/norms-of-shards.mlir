// Shards may be empty: their norm is 0, and travels.
!bucket = tensor<?xf32, #bagua.bucket>
!shard = tensor<?xf32, #bagua.shard<@world>>
!scalar = tensor<?xf32, #bagua.scalar>

bagua.algorithm @norms_of_shards {
  bagua.on gradient(%g: !bucket) {
    %n = bagua.world
    %one = arith.constant 1 : index
    %many = arith.cmpi ugt, %n, %one : index
    scf.if %many {
      %mine = bagua.reduce_scatter mean %g over @world
      %norm = bagua.norm %mine : !shard
      %dot = bagua.dot %mine, %mine : !shard
      %sum = bagua.map %norm + %dot : !scalar
      %all = bagua.all_reduce sum %sum : !scalar
      %parts = bagua.all_gather %mine : !shard over @world
      %mean = bagua.concat %parts : !bagua.per<@world, !shard>
      %d = bagua.map %mean / (%all + 1.0)
      bagua.update gradient = %d
    }
  }
}
