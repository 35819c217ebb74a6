// Low-precision decentralized SGD on a ring: weights' differences travel in 8 bits, and each rank keeps
// replicas of its neighbours' weights and of its own, which all ranks move by the same decoded bytes.
// BAGUA, arXiv 2107.01499, section 4 ("D_LP_S"); Tang et al., Communication Compression for Decentralized
// Training, arXiv 1803.06443, algorithm 1 (DCD-PSGD).
//
// Replicas start as this rank's weights: all ranks start equal.

#minmax8 = #bagua.minmax<bits = 8, block = 2048>
#ring = #bagua.topology<offsets = [-1, 1], weights = [1/3, 1/3]>
!bucket = tensor<?xf32, #bagua.bucket>
!packed = !bagua.packed<#minmax8, !bucket>
!near = !bagua.per<#ring, !bucket>

bagua.algorithm @low_precision_decentralized {
  bagua.state @x : bucket = weight on_resize zero // As @n: neighbours know each other's @x.
  bagua.state @n : per<#ring> = weight
  bagua.on after_update(%u: !bucket) {
    %world = bagua.world
    %one = arith.constant 1 : index
    %many = arith.cmpi ugt, %world, %one : index
    scf.if %many {
      %x = bagua.read @x
      %n = bagua.read @n : !near
      %y = bagua.mix %x, %n on #ring
      %z = bagua.map (%u - %x) + (%y - %x)
      %q = bagua.encode %z with #minmax8
      %d = bagua.decode %q : !packed
      %x1 = bagua.map %x + %d
      %got = bagua.neighbor_exchange %q : !packed on #ring
      %dn = bagua.decode %got : !bagua.per<#ring, !packed>
      %n1 = bagua.map %n + %dn : !near
      bagua.update @x = %x1
      bagua.update @n = %n1 : !near
      bagua.update weight = %x1
    }
  }
}
