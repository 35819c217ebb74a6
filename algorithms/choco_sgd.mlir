// CHOCO-SGD: ranks gossip towards estimates of each other's weights, and what travels is the compressed
// difference between weights and their estimate. Any codec converges, with gamma small enough.
// Koloskova, Stich, Jaggi, Decentralized Stochastic Optimization and Gossip Algorithms with Compressed
// Communication, arXiv 1902.00340, algorithm 2.
//
// Estimates start as this rank's weights: all ranks start equal.

#sign = #bagua.sign<block = 256>
#ring = #bagua.topology<offsets = [-1, 1], weights = [1/3, 1/3]>
!bucket = tensor<?xf32, #bagua.bucket>
!packed = !bagua.packed<#sign, !bucket>
!near = !bagua.per<#ring, !bucket>

bagua.algorithm @choco_sgd(%gamma: f64 = 0.5) {
  bagua.state @x : bucket = weight on_resize zero // As @n: neighbours know each other's @x.
  bagua.state @n : per<#ring> = weight
  bagua.on after_update(%u: !bucket) {
    %world = bagua.world
    %one = arith.constant 1 : index
    %many = arith.cmpi ugt, %world, %one : index
    scf.if %many {
      %x = bagua.read @x
      %c = bagua.map %u - %x
      %q = bagua.encode %c with #sign
      %d = bagua.decode %q : !packed
      %x1 = bagua.map %x + %d
      bagua.update @x = %x1
      %got = bagua.neighbor_exchange %q : !packed on #ring
      %dn = bagua.decode %got : !bagua.per<#ring, !packed>
      %n = bagua.read @n : !near
      %n1 = bagua.map %n + %dn : !near
      bagua.update @n = %n1 : !near
      %y = bagua.mix %x1, %n1 on #ring
      %w = bagua.map %u + %gamma * (%y - %x1)
      bagua.update weight = %w
    }
  }
}
