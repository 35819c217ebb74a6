// What a round may do, at once: draw random numbers by the round's number, keep states, meet another partner in each
// round, add something in some rounds only; beside gradients that are averaged in every step.
#qsgd = #bagua.qsgd<levels = 7, block = 64>
#pairs = #bagua.round_robin

!bucket = tensor<?xf32, #bagua.bucket>
!packed = !bagua.packed<#qsgd, !bucket>

bagua.algorithm @async_everything(%interval: index = 3, %seed: index = 5) {
  bagua.state @lost : bucket = 0.0
  bagua.state @first : bucket = weight
  bagua.state @rounds : scalar = 0.0
  bagua.on gradient(%g: !bucket) {
    %mean = bagua.all_reduce mean %g
    bagua.update gradient = %mean
  }
  bagua.on async every(%interval steps) after(3) staleness(1) (%w: !bucket) {
    %one = bagua.read @rounds : tensor<?xf32, #bagua.scalar>
    %next = bagua.map %one + 1.0 : tensor<?xf32, #bagua.scalar>
    bagua.update @rounds = %next : tensor<?xf32, #bagua.scalar>
    %e = bagua.read @lost
    %c = bagua.map %w + %e
    %q = bagua.encode %c with #qsgd
    %sent = bagua.decode %q : !packed
    %kept = bagua.map %c - %sent
    bagua.update @lost = %kept
    %heard = bagua.neighbor_exchange %q : !packed on #pairs
    %values = bagua.decode %heard : !bagua.per<#pairs, !packed>
    %x = bagua.mix %sent, %values on #pairs
    %round = bagua.step
    %c2 = arith.constant 2 : index
    %c1 = arith.constant 1 : index
    %odd = arith.remsi %round, %c2 : index
    %moves = arith.cmpi ne, %odd, %c1 : index
    scf.if %moves {
      %noise = bagua.random uniform seed %seed per_rank
      %first = bagua.read @first
      %d = bagua.map (%x - %sent) + 0.01 * %noise * (%first - %w)
      bagua.update weight += %d
    } else {
      %noise = bagua.random uniform seed %seed shared
      bagua.update @first = %noise
    }
  }
}
