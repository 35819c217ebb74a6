// What was decoded travels decoded: the wire carries what the types say.
#mm = #bagua.minmax<bits = 8, block = 16>
!bucket = tensor<?xf32, #bagua.bucket>
!shard = tensor<?xf32, #bagua.shard<@world>>
bagua.algorithm @decoded_travels_plain {
  bagua.on gradient(%g: !bucket) {
    %n = bagua.world
    %one = arith.constant 1 : index
    %many = arith.cmpi ugt, %n, %one : index
    scf.if %many {
      %q = bagua.encode %g with #mm
      %x = bagua.decode %q : !bagua.packed<#mm, !bucket>
      %parts = bagua.split %x over @world
      %got = bagua.all_to_all %parts : !bagua.per<@world, !shard> over @world
      %mine = bagua.reduce sum %got : !bagua.per<@world, !shard, own>
      %c = bagua.encode %mine : !shard with #mm
      %d = bagua.decode %c : !bagua.packed<#mm, !shard>
      %all = bagua.all_gather %d : !shard over @world
      %out = bagua.concat %all : !bagua.per<@world, !shard>
      %near = bagua.neighbor_exchange %x on #bagua.topology<offsets = [1], weights = [1/2]>
      bagua.update gradient = %out
    }
  }
}
