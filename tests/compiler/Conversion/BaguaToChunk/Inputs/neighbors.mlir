// Offsets far apart, of unequal weights, that coincide in many small worlds; at once, after the update.
#far = #bagua.topology<offsets = [-2, 1, 3, 6], weights = [1/7, 2/7, 1/5, 1/10]>
bagua.algorithm @neighbors {
  bagua.on after_update(%w: tensor<?xf32, #bagua.bucket>) {
    %n = bagua.neighbor_exchange %w on #far
    %x = bagua.mix %w, %n on #far
    bagua.update weight = %x
  }
}
