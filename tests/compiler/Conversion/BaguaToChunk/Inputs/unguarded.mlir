// The collective written out, without a branch for a world of one: every op is the identity there.
!shard = tensor<?xf32, #bagua.shard<@world>>
bagua.algorithm @unguarded {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %mine = bagua.reduce_scatter mean %g over @world
    %all = bagua.all_gather %mine : !shard over @world
    %out = bagua.concat %all : !bagua.per<@world, !shard>
    bagua.update gradient = %out
  }
}
