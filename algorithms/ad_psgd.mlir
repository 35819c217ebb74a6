// AD-PSGD: every rank trains alone; beside that, in each round, ranks meet in random pairs, and both move half
// the way to each other: (x - w) / 2 is added to a rank's weights two steps after it went to meet its partner, who
// may be two steps behind, and nobody else is waited for. In odd worlds one rank rests.
// Lian, Zhang, Zhang, Liu: Asynchronous Decentralized Parallel Stochastic Gradient Descent, arXiv 1710.06952,
// algorithm 1.

#pairs = #bagua.pairing<seed = 1710>

bagua.algorithm @ad_psgd(%interval: index = 1) {
  bagua.on async every(%interval steps) staleness(2) (%w: tensor<?xf32, #bagua.bucket>) {
    %n = bagua.neighbor_exchange %w on #pairs
    %x = bagua.mix %w, %n on #pairs
    %d = bagua.map %x - %w
    bagua.update weight += %d
  }
}
