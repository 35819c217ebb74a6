// Stochastic gradient push: weights and a push-sum weight travel along a directed graph, and the model is
// their quotient.
// Assran et al., Stochastic Gradient Push for Distributed Deep Learning, arXiv 1811.10792, algorithm 1, on its
// one-peer exponential graph.

#peer = #bagua.one_peer_exponential
!scalar = tensor<?xf32, #bagua.scalar>

bagua.algorithm @sgp {
  bagua.state @x : bucket = weight
  bagua.state @y : scalar = 1.0
  bagua.on after_update(%u: tensor<?xf32, #bagua.bucket>) {
    %world = bagua.world
    %one = arith.constant 1 : index
    %many = arith.cmpi ugt, %world, %one : index
    scf.if %many {
      %x = bagua.read @x
      %y = bagua.read @y : !scalar
      %half = bagua.map %x + (%u - %x / %y)
      %xn = bagua.neighbor_exchange %half on #peer
      %x1 = bagua.mix %half, %xn on #peer
      %yn = bagua.neighbor_exchange %y : !scalar on #peer
      %y1 = bagua.mix %y, %yn : !scalar, !bagua.per<#peer, !scalar> on #peer
      %z = bagua.map %x1 / %y1
      bagua.update @x = %x1
      bagua.update @y = %y1 : !scalar
      bagua.update weight = %z
    }
  }
}
