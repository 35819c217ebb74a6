// doublesqueeze as the graph that an expert writes.

#sign = #bagua.sign<block = 256>
!bucket = tensor<?xf32, #bagua.bucket>
!shard = tensor<?xf32, #bagua.shard<@world>>
!parts = !bagua.per<@world, !bagua.packed<#sign, !shard>>
!mine = !bagua.per<@world, !bagua.packed<#sign, !shard>, own>

bagua.algorithm @doublesqueeze {
  bagua.state @ew : bucket = 0.0 on_resize mean
  bagua.state @es : shard<@world> = 0.0 on_resize repartition
  bagua.on gradient(%g: !bucket) {
    %world = bagua.world
    %one = arith.constant 1 : index
    %many = arith.cmpi ugt, %world, %one : index
    scf.if %many {
      %ew = bagua.read @ew
      %c = bagua.map %g + %ew
      %split = bagua.split %c over @world
      %q = bagua.encode %split : !bagua.per<@world, !shard> with #sign
      %kept = bagua.decode %q : !parts
      %d = bagua.concat %kept : !bagua.per<@world, !shard>
      %lost = bagua.map %c - %d
      bagua.update @ew = %lost
      %got = bagua.all_to_all %q : !parts over @world
      %values = bagua.decode %got : !mine
      %mean = bagua.reduce mean %values : !bagua.per<@world, !shard, own>
      %es = bagua.read @es : !shard
      %s = bagua.map %mean + %es : !shard
      %p = bagua.encode %s : !shard with #sign
      %ds = bagua.decode %p : !bagua.packed<#sign, !shard>
      %lost2 = bagua.map %s - %ds : !shard
      bagua.update @es = %lost2 : !shard
      %all = bagua.all_gather %p : !bagua.packed<#sign, !shard> over @world
      %parts = bagua.decode %all : !parts
      %result = bagua.concat %parts : !bagua.per<@world, !shard>
      bagua.update gradient = %result
    }
  }
}
