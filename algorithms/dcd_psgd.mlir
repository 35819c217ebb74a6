// DCD-PSGD: what the weights moved by travels in a few random bits, whose mean is what was meant; each rank
// keeps replicas of its neighbours' weights, which all ranks move by the same decoded bytes.
// Tang et al., Communication Compression for Decentralized Training, arXiv 1803.06443, algorithm 1.
//
// Replicas start as this rank's weights: all ranks start equal.

#qsgd = #bagua.qsgd<levels = 7, block = 512>
#ring = #bagua.topology<offsets = [-1, 1], weights = [1/3, 1/3]>
!bucket = tensor<?xf32, #bagua.bucket>
!packed = !bagua.packed<#qsgd, !bucket>
!near = !bagua.per<#ring, !bucket>

bagua.algorithm @dcd_psgd(%seed: index = 0) {
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
      %q = bagua.encode %z with #qsgd
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
