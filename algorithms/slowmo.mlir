// SlowMo: local SGD whose averages are steps of a slow outer momentum.
// Wang et al., SlowMo: Improving Communication-Efficient Distributed SGD with Slow Momentum, arXiv
// 1910.00643, algorithm 1.
//
// @u is the paper's u times the learning rate, the same thing while that is constant.

bagua.algorithm @slowmo(%interval: index = 12, %beta: f64 = 0.7, %alpha: f64 = 1.0) {
  bagua.state @anchor : bucket = weight
  bagua.state @u : bucket = 0.0
  bagua.on after_update(%w: tensor<?xf32, #bagua.bucket>) {
    %world = bagua.world
    %step = bagua.step
    %one = arith.constant 1 : index
    %zero = arith.constant 0 : index
    %done = arith.addi %step, %one : index
    %rest = arith.remsi %done, %interval : index
    %last = arith.cmpi eq, %rest, %zero : index
    %many = arith.cmpi ugt, %world, %one : index
    %due = arith.andi %last, %many : i1
    scf.if %due {
      %x = bagua.read @anchor
      %u = bagua.read @u
      %mean = bagua.all_reduce mean %w
      %u1 = bagua.map %beta * %u + (%x - %mean)
      %x1 = bagua.map %x - %alpha * %u1
      bagua.update @u = %u1
      bagua.update @anchor = %x1
      bagua.update weight = %x1
    }
  }
}
