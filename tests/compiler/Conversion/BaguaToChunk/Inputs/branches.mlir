// Branches within branches, shards and scalars out of them, different work in each.
!bucket = tensor<?xf32, #bagua.bucket>
!shard = tensor<?xf32, #bagua.shard<@world>>
bagua.algorithm @branches {
  bagua.on gradient(%g: !bucket) {
    %n = bagua.world
    %two = arith.constant 2 : index
    %four = arith.constant 4 : index
    %even_rest = arith.remui %n, %two : index
    %zero = arith.constant 0 : index
    %even = arith.cmpi eq, %even_rest, %zero : index
    %mine, %bound = scf.if %even -> (!shard, index) {
      %s = bagua.reduce_scatter sum %g over @world
      scf.yield %s, %four : !shard, index
    } else {
      %m = bagua.reduce_scatter mean %g over @world
      %smaller = arith.divui %four, %two : index
      scf.yield %m, %smaller : !shard, index
    }
    %big = arith.cmpi ugt, %n, %bound : index
    %out = scf.if %big -> (!bucket) {
      %all = bagua.all_gather %mine : !shard over @world
      %joined = bagua.concat %all : !bagua.per<@world, !shard>
      %inner = scf.if %even -> (!bucket) {
        %more = bagua.all_reduce mean %joined
        scf.yield %more : !bucket
      } else {
        scf.yield %joined : !bucket
      }
      scf.yield %inner : !bucket
    } else {
      scf.yield %g : !bucket
    }
    bagua.update gradient = %out
  }
}
