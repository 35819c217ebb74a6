// Decentralized SGD on a ring: each rank averages its weights with those of its two neighbours, while
// forward and backward run on the old ones. No rank ever waits for all others.
// Lian et al., Can Decentralized Algorithms Outperform Centralized Algorithms?, arXiv 1705.09056;
// BAGUA, arXiv 2107.01499, section 4 ("D_FP_S").
//
// The self weight is 1 - 1/3 - 1/3. In a world of two both neighbours are the same rank: it sends once
// and weighs 2/3.

#ring = #bagua.topology<offsets = [-1, 1], weights = [1/3, 1/3]>

bagua.algorithm @decentralized {
  bagua.on before_forward(%w: tensor<?xf32, #bagua.bucket>) {
    %n = bagua.neighbor_exchange %w on #ring
    %x = bagua.mix %w, %n on #ring
    bagua.update weight = %x at before_update
  }
}
