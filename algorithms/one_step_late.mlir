// One step late: the optimizer gets the mean gradient of the step before, which travelled while this
// step computed. Nobody waits for the network.
// Li et al., Pipe-SGD: A Decentralized Pipelined SGD Framework for Distributed Deep Net Training, arXiv
// 1811.03619, algorithm 1 with K = 2.
//
// The first step's gradient is zero.

bagua.algorithm @one_step_late {
  bagua.state @late : bucket = 0.0 on_resize mean
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %world = bagua.world
    %one = arith.constant 1 : index
    %many = arith.cmpi ugt, %world, %one : index
    scf.if %many {
      %late = bagua.read @late
      bagua.update gradient = %late
      %mean = bagua.all_reduce mean %g
      bagua.update @late = %mean
    }
  }
}
