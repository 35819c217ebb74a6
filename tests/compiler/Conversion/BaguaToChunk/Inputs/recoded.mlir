// Received values are decoded and coded anew, and go back to where they came from; one is used twice.
#a = #bagua.minmax<bits = 8, block = 16>
#b = #bagua.minmax<bits = 4, block = 32>
!bucket = tensor<?xf32, #bagua.bucket>
!shard = tensor<?xf32, #bagua.shard<@world>>
bagua.algorithm @recoded {
  bagua.on gradient(%g: !bucket) {
    %n = bagua.world
    %one = arith.constant 1 : index
    %many = arith.cmpi ugt, %n, %one : index
    scf.if %many {
      %parts = bagua.split %g over @world
      %coded = bagua.encode %parts : !bagua.per<@world, !shard> with #a
      %got = bagua.all_to_all %coded : !bagua.per<@world, !bagua.packed<#a, !shard>> over @world
      %values = bagua.decode %got : !bagua.per<@world, !bagua.packed<#a, !shard>, own>
      %mean = bagua.reduce mean %values : !bagua.per<@world, !shard, own>
      %sum = bagua.reduce sum %values : !bagua.per<@world, !shard, own>
      %again = bagua.encode %values : !bagua.per<@world, !shard, own> with #b
      %back = bagua.all_to_all %again : !bagua.per<@world, !bagua.packed<#b, !shard>, own> over @world
      %mine = bagua.decode %back : !bagua.per<@world, !bagua.packed<#b, !shard>>
      %twice = bagua.concat %mine : !bagua.per<@world, !shard>
      %third = bagua.encode %mine : !bagua.per<@world, !shard> with #a
      %far = bagua.all_to_all %third : !bagua.per<@world, !bagua.packed<#a, !shard>> over @world
      %farther = bagua.decode %far : !bagua.per<@world, !bagua.packed<#a, !shard>, own>
      %total = bagua.reduce sum %farther : !bagua.per<@world, !shard, own>
      %all = bagua.all_gather %total : !shard over @world
      %out = bagua.concat %all : !bagua.per<@world, !shard>
      %last = bagua.all_reduce sum %twice
      bagua.update gradient = %out
    }
  }
}
