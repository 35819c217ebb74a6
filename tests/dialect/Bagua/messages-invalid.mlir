// RUN: bagua-opt %s --split-input-file --verify-diagnostics

// What is easily written otherwise than it is meant: the message says how it is written.

// expected-error@+1 {{expects weights as exact fractions: 3/10 for 0.3, or 1}}
#negative_decimal = #bagua.topology<offsets = [-1, 1], weights = [0.3, 0.3]>

// -----

// expected-error@+1 {{expects `>` after the weights: a topology is offsets and weights. It is directed where offsets do not come in pairs, -k and k}}
#negative_directed = #bagua.topology<offsets = [1, 2], weights = [1/2, 1/4], directed>

// -----

// expected-error@+1 {{expects #bagua.topology<offsets = [-1, 1], weights = [1/3, 1/3]>, with numbers of your own}}
#negative_neighbors = #bagua.topology<neighbors = [1, 2]>

// -----

// expected-error@+1 {{expects #bagua.sign<block = 256>, with numbers of your own}}
#negative_no_block = #bagua.sign

// -----

// expected-error@+1 {{expects #bagua.topk<k = 64, block = 4096>, with numbers of your own}}
#negative_fraction = #bagua.topk<k = 0.01>

// -----

// expected-error@+1 {{expects #bagua.topk<k = 64, block = 4096>, with numbers of your own}}
#negative_half = #bagua.topk<k = 8>

// -----

// expected-error@+1 {{is no attribute of bagua, 'powersgd': there are codecs (identity, f16, bf16, minmax, minmax_reference, sign, ternary, qsgd, topk, randk, codec), topologies (topology, exponential, torus, one_peer_exponential, round_robin, shift_one, pairing), domains (bucket, shard, scalar); a file defines codecs of its own with bagua.codec}}
#negative_unknown = #bagua.powersgd<rank = 4>

// -----

bagua.algorithm @negative_op {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{is no op of bagua: did you mean bagua.all_reduce? There are algorithm, all_gather}}
    %m = bagua.allreduce mean %g
    bagua.update gradient = %m
  }
}

// -----

bagua.algorithm @negative_no_unit {
  // expected-error@+1 {{expects the unit of the interval, steps or ms: `every(2 steps)` or `every(200 ms)`}}
  bagua.on async every(2) staleness(2) (%w: tensor<?xf32, #bagua.bucket>) {
  }
}

// -----

#ring = #bagua.topology<offsets = [-1, 1], weights = [1/3, 1/3]>
bagua.algorithm @negative_neighbors_in_map {
  bagua.on after_update(%w: tensor<?xf32, #bagua.bucket>) {
    %n = bagua.neighbor_exchange %w on #ring
    // expected-error@+1 {{expects a value over the domain of the result, 'tensor<?xf32, #bagua.bucket>', a scalar, an f64 or an index, got '!bagua.per<}}
    %m = bagua.map (%w + %n) / 3.0
    bagua.update weight = %m
  }
}

// -----

#ring = #bagua.topology<offsets = [-1, 1], weights = [1/3, 1/3]>
!bucket = tensor<?xf32, #bagua.bucket>
bagua.algorithm @negative_update_to_neighbors {
  bagua.on after_update(%w: !bucket) {
    %n = bagua.neighbor_exchange %w on #ring
    %m = bagua.map %n + %w : !bagua.per<#ring, !bucket>
    // expected-error@+1 {{expects the value over the bucket, got '!bagua.per<#bagua.topology<offsets = [-1, 1], weights = [1/3, 1/3]>, tensor<?xf32, #bagua.bucket>>': bagua.mix makes one bucket of a rank's and its neighbours'}}
    bagua.update weight = %m : !bagua.per<#ring, !bucket>
  }
}

// -----

#ring = #bagua.topology<offsets = [-1, 1], weights = [1/3, 1/3]>
!bucket = tensor<?xf32, #bagua.bucket>
bagua.algorithm @negative_reduce_neighbors {
  bagua.on after_update(%w: !bucket) {
    %n = bagua.neighbor_exchange %w on #ring
    // expected-error@+1 {{: bagua.mix averages a rank's value and its neighbours'}}
    %m = bagua.reduce mean %n : !bagua.per<#ring, !bucket>
    bagua.update weight = %m
  }
}

// -----

bagua.algorithm @negative_packed {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %q = bagua.encode %g with #bagua.sign<block = 256>
    // expected-error@+1 {{: bagua.decode makes values of it}}
    %m = bagua.map 0.5 * %q
    bagua.update gradient = %m
  }
}

// -----

bagua.algorithm @negative_f32(%x: f64 = 1.0) {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %c = arith.constant 0.5 : f32
    // expected-error@+1 {{, got 'f32': scalars are f64, rounded once where they enter a map}}
    %m = bagua.map %c * %g
    bagua.update gradient = %m
  }
}
