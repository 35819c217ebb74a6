// Post-local SGD: gradients are averaged for `warmup` steps, then every rank trains alone, and weights are
// averaged after each `interval`-th step.
// Lin et al., Don't Use Large Mini-Batches, Use Local SGD, arXiv 1808.07217, section 3.

!bucket = tensor<?xf32, #bagua.bucket>

bagua.algorithm @post_local_sgd(%warmup: index = 1000, %interval: index = 8) {
  bagua.on gradient(%g: !bucket) {
    %step = bagua.step
    %warm = arith.cmpi ult, %step, %warmup : index
    scf.if %warm {
      %mean = bagua.all_reduce mean %g
      bagua.update gradient = %mean
    }
  }
  bagua.on after_update(%w: !bucket) {
    %step = bagua.step
    %one = arith.constant 1 : index
    %zero = arith.constant 0 : index
    %done = arith.addi %step, %one : index
    %rest = arith.remsi %done, %interval : index
    %last = arith.cmpi eq, %rest, %zero : index
    %local = arith.cmpi uge, %step, %warmup : index
    %due = arith.andi %last, %local : i1
    scf.if %due {
      %mean = bagua.all_reduce mean %w
      bagua.update weight = %mean
    }
  }
}
