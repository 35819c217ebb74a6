// Decentralized SGD among all ranks: each step starts from the mean of all weights, which travel while
// forward and backward run on the old ones.
// BAGUA, arXiv 2107.01499, section 4 ("D_FP_S" where everyone is a neighbour).

bagua.algorithm @decentralized_all(%interval: index = 1) {
  bagua.on before_forward(%w: tensor<?xf32, #bagua.bucket>) {
    %step = bagua.step
    %rest = arith.remsi %step, %interval : index
    %zero = arith.constant 0 : index
    %due = arith.cmpi eq, %rest, %zero : index
    scf.if %due {
      %mean = bagua.all_reduce mean %w
      bagua.update weight = %mean at before_update
    }
  }
}
