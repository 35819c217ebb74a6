// hierarchical_bytegrad as its `via` is short for.
#minmax8 = #bagua.minmax<bits = 8, block = 2048>
!shard = tensor<?xf32, #bagua.shard<@node>>
!packed = !bagua.packed<#minmax8, !shard>

bagua.algorithm @hierarchical_bytegrad {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %world = bagua.world
    %one = arith.constant 1 : index
    %many = arith.cmpi ugt, %world, %one : index
    scf.if %many {
      %parts = bagua.split %g over @node
      %got = bagua.all_to_all %parts : !bagua.per<@node, !shard> over @node
      %mine = bagua.reduce sum %got : !bagua.per<@node, !shard, own>
      %nodes = bagua.nodes
      %several = arith.cmpi ugt, %nodes, %one : index
      %sum = scf.if %several -> !shard {
        %q = bagua.encode %mine : !shard with #minmax8
        %all = bagua.all_gather %q : !packed over @cross
        %values = bagua.decode %all : !bagua.per<@cross, !packed, own>
        %reduced = bagua.reduce sum %values : !bagua.per<@cross, !shard, own>
        scf.yield %reduced : !shard
      } else {
        scf.yield %mine : !shard
      }
      %part = bagua.map %sum / %world : !shard
      %all = bagua.all_gather %part : !shard over @node
      %mean = bagua.concat %all : !bagua.per<@node, !shard>
      bagua.update gradient = %mean
    }
  }
}
