// Unsigned arithmetic on what is never negative: parameters (P1), the step, the world, and results of these.
#pairs = #bagua.pairing<seed = 7>
!b = tensor<?xf32, #bagua.bucket>
bagua.algorithm @unsigned_interval(%interval: index = 2, %warmup: index = 1 per_step) {
  bagua.on after_update(%w: !b) {
    %step = bagua.step
    %world = bagua.world
    %zero = arith.constant 0 : index
    %sum = arith.addi %step, %warmup : index
    %product = arith.muli %interval, %world : index
    %rest = arith.remui %sum, %interval : index
    %round = arith.ceildivui %sum, %interval : index
    %turn = arith.divui %product, %interval : index
    %shift = arith.maxui %turn, %warmup : index
    %at = arith.addi %round, %shift : index
    %due = arith.cmpi eq, %rest, %zero : index
    scf.if %due {
      %n = bagua.neighbor_exchange %w on #pairs at %at
      %x = bagua.mix %w, %n on #pairs at %at
      bagua.update weight = %x
    }
  }
}
