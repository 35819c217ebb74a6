// What an expert writes for all_reduce mean via min-max.
#mm = #bagua.minmax<bits = 8, block = 2048>
!bucket = tensor<?xf32, #bagua.bucket>
!shard = tensor<?xf32, #bagua.shard<@world>>
bagua.algorithm @bytegrad {
  bagua.on gradient(%g: !bucket) {
    %n = bagua.world
    %one = arith.constant 1 : index
    %many = arith.cmpi ugt, %n, %one : index
    %mean = scf.if %many -> (!bucket) {
      %parts = bagua.split %g over @world
      %coded = bagua.encode %parts : !bagua.per<@world, !shard> with #mm
      %got = bagua.all_to_all %coded : !bagua.per<@world, !bagua.packed<#mm, !shard>> over @world
      %values = bagua.decode %got : !bagua.per<@world, !bagua.packed<#mm, !shard>, own>
      %mine = bagua.reduce mean %values : !bagua.per<@world, !shard, own>
      %q = bagua.encode %mine : !shard with #mm
      %all = bagua.all_gather %q : !bagua.packed<#mm, !shard> over @world
      %decoded = bagua.decode %all : !bagua.per<@world, !bagua.packed<#mm, !shard>>
      %out = bagua.concat %decoded : !bagua.per<@world, !shard>
      scf.yield %out : !bucket
    } else {
      scf.yield %g : !bucket
    }
    bagua.update gradient = %mean
  }
}
