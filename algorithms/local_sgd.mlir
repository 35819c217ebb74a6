// Local SGD: every rank trains alone; after each `interval`-th step, weights are averaged.
// Stich, Local SGD Converges Fast and Communicates Little, arXiv 1805.09767, algorithm 1.

bagua.algorithm @local_sgd(%interval: index = 8) {
  bagua.on after_update(%w: tensor<?xf32, #bagua.bucket>) {
    %step = bagua.step
    %one = arith.constant 1 : index
    %zero = arith.constant 0 : index
    %done = arith.addi %step, %one : index
    %rest = arith.remsi %done, %interval : index
    %due = arith.cmpi eq, %rest, %zero : index
    scf.if %due {
      %mean = bagua.all_reduce mean %w
      bagua.update weight = %mean
    }
  }
}
