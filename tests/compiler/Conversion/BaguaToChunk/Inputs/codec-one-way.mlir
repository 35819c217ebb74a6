// Packed to the owner of the shard, plain back; then the other way round, in other blocks.
#a = #bagua.minmax<bits = 4, block = 48>
#b = #bagua.minmax<bits = 7, block = 32>
!bucket = tensor<?xf32, #bagua.bucket>
!shard = tensor<?xf32, #bagua.shard<@world>>
bagua.algorithm @codec_one_way {
  bagua.on gradient(%g: !bucket) {
    %n = bagua.world
    %one = arith.constant 1 : index
    %many = arith.cmpi ugt, %n, %one : index
    scf.if %many {
      %parts = bagua.split %g over @world
      %coded = bagua.encode %parts : !bagua.per<@world, !shard> with #a
      %got = bagua.all_to_all %coded : !bagua.per<@world, !bagua.packed<#a, !shard>> over @world
      %values = bagua.decode %got : !bagua.per<@world, !bagua.packed<#a, !shard>, own>
      %mine = bagua.reduce mean %values : !bagua.per<@world, !shard, own>
      %all = bagua.all_gather %mine : !shard over @world
      %mean = bagua.concat %all : !bagua.per<@world, !shard>

      %s = bagua.reduce_scatter sum %mean over @world
      %q = bagua.encode %s : !shard with #b
      %every = bagua.all_gather %q : !bagua.packed<#b, !shard> over @world
      %decoded = bagua.decode %every : !bagua.per<@world, !bagua.packed<#b, !shard>>
      %sum = bagua.concat %decoded : !bagua.per<@world, !shard>
      bagua.update gradient = %sum
    }
  }
}
