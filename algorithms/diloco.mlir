// DiLoCo: ranks train alone for many steps; the mean of what they moved is the gradient of an outer SGD
// with Nesterov momentum.
// Douillard et al., DiLoCo: Distributed Low-Communication Training of Language Models, arXiv 2311.08105,
// algorithm 1.

bagua.algorithm @diloco(%interval: index = 500, %outer_lr: f64 = 0.7, %momentum: f64 = 0.9) {
  bagua.state @anchor : bucket = weight
  bagua.state @b : bucket = 0.0
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
      %b = bagua.read @b
      %moved = bagua.map %x - %w
      %delta = bagua.all_reduce mean %moved
      %b1 = bagua.map %momentum * %b + %delta
      %x1 = bagua.map %x - %outer_lr * (%delta + %momentum * %b1)
      bagua.update @b = %b1
      bagua.update @anchor = %x1
      bagua.update weight = %x1
    }
  }
}
