// Rounds by the clock, of shards and folds, whose update is computed in the job's buffer, and one that is the
// snapshot itself.
!bucket = tensor<?xf32, #bagua.bucket>

bagua.algorithm @async_in_pieces(%interval: index = 100, %warmup: index = 1) {
  bagua.on async every(%interval ms) after(%warmup) staleness(2) (%w: !bucket) {
    %mine = bagua.reduce_scatter sum %w over @world
    %norm = bagua.norm %mine : tensor<?xf32, #bagua.shard<@world>>
    %all = bagua.all_reduce sum %norm : tensor<?xf32, #bagua.scalar>
    %parts = bagua.all_gather %mine : tensor<?xf32, #bagua.shard<@world>> over @world
    %sum = bagua.concat %parts : !bagua.per<@world, tensor<?xf32, #bagua.shard<@world>>>
    %round = bagua.step
    %c2 = arith.constant 2 : index
    %early = arith.cmpi ult, %round, %c2 : index
    scf.if %early {
      %d = bagua.map (0.25 * %sum - %w) / (%all + 1.0)
      bagua.update weight += %d
    } else {
      bagua.update weight += %w
    }
  }
}
