// DeepSqueeze: weights travel compressed between neighbours, with a memory of what was lost; no replicas.
// Tang et al., DeepSqueeze: Decentralization Meets Error-Compensated Compression, arXiv 1907.07346,
// algorithm 1.

#minmax4 = #bagua.minmax<bits = 4, block = 512>
#ring = #bagua.topology<offsets = [-1, 1], weights = [1/3, 1/3]>
!bucket = tensor<?xf32, #bagua.bucket>
!packed = !bagua.packed<#minmax4, !bucket>

bagua.algorithm @deepsqueeze(%eta: f64 = 0.5) {
  bagua.state @e : bucket = 0.0
  bagua.on after_update(%u: !bucket) {
    %world = bagua.world
    %one = arith.constant 1 : index
    %many = arith.cmpi ugt, %world, %one : index
    scf.if %many {
      %e = bagua.read @e
      %v = bagua.map %u + %e
      %q = bagua.encode %v with #minmax4
      %d = bagua.decode %q : !packed
      %lost = bagua.map %v - %d
      bagua.update @e = %lost
      %got = bagua.neighbor_exchange %q : !packed on #ring
      %dn = bagua.decode %got : !bagua.per<#ring, !packed>
      %y = bagua.mix %d, %dn on #ring
      %w = bagua.map %u + %eta * (%y - %d)
      bagua.update weight = %w
    }
  }
}
