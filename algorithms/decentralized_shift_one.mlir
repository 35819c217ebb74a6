// Decentralized SGD with one partner: each round the upper half of the ranks moves on by one against the
// lower half, and partners average their weights while forward and backward run on the old ones.
// BAGUA, arXiv 2107.01499, section 4 ("D_FP_S"); the pairing is the reference system's `shift_one`. In
// odd worlds one rank of the upper half rests.

#pairs = #bagua.shift_one

bagua.algorithm @decentralized_shift_one(%interval: index = 1) {
  bagua.on before_forward(%w: tensor<?xf32, #bagua.bucket>) {
    %step = bagua.step
    %rest = arith.remsi %step, %interval : index
    %round = arith.floordivsi %step, %interval : index
    %zero = arith.constant 0 : index
    %due = arith.cmpi eq, %rest, %zero : index
    scf.if %due {
      %n = bagua.neighbor_exchange %w on #pairs at %round
      %x = bagua.mix %w, %n on #pairs at %round
      bagua.update weight = %x at before_update
    }
  }
}
