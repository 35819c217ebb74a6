// Written out: packed parts within a node, packed shards across, of a codec that draws where it decodes too; the
// residual of what travelled is added again.
#randk = #bagua.randk<k = 8, block = 16, scaled = false>
#sign = #bagua.sign<block = 8>
!bucket = tensor<?xf32, #bagua.bucket>
!shard = tensor<?xf32, #bagua.shard<@node>>
!signs = !bagua.packed<#sign, !shard>
!some = !bagua.packed<#randk, !shard>
bagua.algorithm @groups_explicit(%seed: index = 9) {
  bagua.on gradient(%g: !bucket) {
    %world = bagua.world
    %one = arith.constant 1 : index
    %many = arith.cmpi ugt, %world, %one : index
    %new = scf.if %many -> !bucket {
      %parts = bagua.split %g over @node
      %q = bagua.encode %parts : !bagua.per<@node, !shard> with #sign
      %got = bagua.all_to_all %q : !bagua.per<@node, !signs> over @node
      %values = bagua.decode %got : !bagua.per<@node, !signs, own>
      %mine = bagua.reduce sum %values : !bagua.per<@node, !shard, own>
      %p = bagua.encode %mine : !shard with #randk
      %sent = bagua.decode %p : !some
      %lost = bagua.map %mine - %sent : !shard
      %of_all = bagua.all_gather %p : !some over @cross
      %decoded = bagua.decode %of_all : !bagua.per<@cross, !some, own>
      %sum = bagua.reduce sum %decoded : !bagua.per<@cross, !shard, own>
      %kept = bagua.map %sum + %lost : !shard
      %all = bagua.all_gather %kept : !shard over @node
      %whole = bagua.concat %all : !bagua.per<@node, !shard>
      scf.yield %whole : !bucket
    } else {
      scf.yield %g : !bucket
    }
    bagua.update gradient = %new
  }
}
