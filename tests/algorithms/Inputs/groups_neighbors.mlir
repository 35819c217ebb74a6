// Topologies among the ranks of a group: buckets, numbers, shards and packed shards, states of neighbours, and a
// topology that turns.
#ring = #bagua.topology<offsets = [-1, 1], weights = [1/3, 1/4]>
#graph = #bagua.exponential
#turns = #bagua.one_peer_exponential
#mm = #bagua.minmax<bits = 8, block = 32>
!bucket = tensor<?xf32, #bagua.bucket>
!scalar = tensor<?xf32, #bagua.scalar>
!shard = tensor<?xf32, #bagua.shard<@node>>
!part = tensor<?xf32, #bagua.shard<@cross>>
!packed = !bagua.packed<#mm, !shard>
bagua.algorithm @groups_neighbors {
  bagua.state @near : per<#ring over @cross> = weight
  bagua.on gradient(%g: !bucket) {
    %k = bagua.nodes
    %one = arith.constant 1 : index
    %many = arith.cmpi ugt, %k, %one : index
    scf.if %many {
      %mine = bagua.reduce_scatter mean %g over @node
      %q = bagua.encode %mine : !shard with #mm
      %heard = bagua.neighbor_exchange %q : !packed on #graph over @cross
      %values = bagua.decode %heard : !bagua.per<#graph over @cross, !packed, own>
      %x = bagua.mix %mine, %values : !shard, !bagua.per<#graph over @cross, !shard, own> on #graph over @cross
      %all = bagua.all_gather %x : !shard over @node
      %new = bagua.concat %all : !bagua.per<@node, !shard>
      bagua.update gradient = %new
    }
  }
  bagua.on before_forward(%w: !bucket) {
    %near = bagua.read @near : !bagua.per<#ring over @cross, !bucket>
    %mixed = bagua.mix %w, %near on #ring over @cross
    %heard = bagua.neighbor_exchange %w on #ring over @cross
    bagua.update @near = %heard : !bagua.per<#ring over @cross, !bucket>
    bagua.update weight = %mixed at before_update
  }
  bagua.on after_update(%w: !bucket) {
    %world = bagua.world
    %one = arith.constant 1 : index
    %many = arith.cmpi ugt, %world, %one : index
    scf.if %many {
      %n = bagua.neighbor_exchange %w on #turns over @node
      %x = bagua.mix %w, %n on #turns over @node
      %norm = bagua.norm %w
      %norms = bagua.neighbor_exchange %norm : !scalar on #graph over @cross
      %usual = bagua.mix %norm, %norms : !scalar, !bagua.per<#graph over @cross, !scalar> on #graph over @cross
      %share = bagua.reduce_scatter sum %x over @cross
      %shares = bagua.neighbor_exchange %share : !part on #ring over @node
      %near = bagua.mix %share, %shares : !part, !bagua.per<#ring over @node, !part, own> on #ring over @node
      %parts = bagua.all_gather %near : !part over @cross
      %sum = bagua.concat %parts : !bagua.per<@cross, !part>
      %y = bagua.map %x + 0.001 * %sum / (1.0 + %usual)
      bagua.update weight = %y
    }
  }
}
