// D2: decentralized SGD that undoes the difference between the ranks' data: what mixing moved in the last
// step is added before the next mixing.
// Tang et al., D2: Decentralized Training over Decentralized Data, arXiv 1803.07068, algorithm 1.
//
// The paper's 2 x_t - x_(t-1) - lr g_t + lr g_(t-1) is u_t + (x_t - u_(t-1)), where u_t = x_t - lr g_t is what the
// optimizer makes of x_t; @d is the second term. The mixing matrix needs eigenvalues above -1/3, so the
// own weight is 1/2.

#ring = #bagua.topology<offsets = [-1, 1], weights = [1/4, 1/4]>

bagua.algorithm @d2 {
  bagua.state @d : bucket = 0.0 on_resize zero
  bagua.on after_update(%u: tensor<?xf32, #bagua.bucket>) {
    %world = bagua.world
    %one = arith.constant 1 : index
    %many = arith.cmpi ugt, %world, %one : index
    scf.if %many {
      %d = bagua.read @d
      %z = bagua.map %u + %d
      %n = bagua.neighbor_exchange %z on #ring
      %x = bagua.mix %z, %n on #ring
      %moved = bagua.map %x - %u
      bagua.update @d = %moved
      bagua.update weight = %x
    }
  }
}
