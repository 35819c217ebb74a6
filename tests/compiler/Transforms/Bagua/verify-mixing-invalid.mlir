// RUN: bagua-opt %s --bagua-verify-mixing --split-input-file --verify-diagnostics
// B150: mixing that never reaches the average, in some world of 2 to 8 ranks.

!bucket = tensor<?xf32, #bagua.bucket>

// Even offsets keep even and odd ranks apart.
#even = #bagua.topology<offsets = [-2, 2], weights = [1/4, 1/4]>
bagua.algorithm @negative_two_camps {
  bagua.on after_update(%w: !bucket) {
    %x = bagua.neighbor_exchange %w on #even
    // expected-error@+1 {{'bagua.mix' op expects a topology that connects all ranks: with 2 ranks, rank 0 never hears of rank 1; use offsets without a common divisor with the number of ranks, such as 1}}
    %y = bagua.mix %w, %x on #even
    bagua.update weight = %y
  }
}

// -----

// Nodes are kept apart as ranks are.
#even = #bagua.topology<offsets = [-2, 2], weights = [1/4, 1/4]>
bagua.algorithm @negative_two_camps_of_nodes {
  bagua.on after_update(%w: tensor<?xf32, #bagua.bucket>) {
    %x = bagua.neighbor_exchange %w on #even over @cross
    // expected-error@+1 {{with 2 ranks, rank 0 never hears of rank 1}}
    %y = bagua.mix %w, %x on #even over @cross
    bagua.update weight = %y
  }
}

// -----

// Right in most worlds: with 3 ranks, three away is oneself; with 2 it is the other.
#three = #bagua.topology<offsets = [3], weights = [1/2]>
bagua.algorithm @negative_world_of_three {
  bagua.on after_update(%w: tensor<?xf32, #bagua.bucket>) {
    %x = bagua.neighbor_exchange %w on #three
    // expected-error@+1 {{with 3 ranks, rank 0 never hears of rank 1}}
    %y = bagua.mix %w, %x on #three
    bagua.update weight = %y
  }
}

// -----

// Another round than that of the exchange: other peers than the values are of.
bagua.algorithm @negative_other_round {
  bagua.on after_update(%w: tensor<?xf32, #bagua.bucket>) {
    %s = bagua.step
    %one = arith.constant 1 : index
    %next = arith.addi %s, %one : index
    // expected-note@+1 {{exchanged here}}
    %x = bagua.neighbor_exchange %w on #bagua.round_robin at %next
    // expected-error@+1 {{'bagua.mix' op expects the round of the exchange that it mixes: the same `at`}}
    %y = bagua.mix %w, %x on #bagua.round_robin at %s
    bagua.update weight = %y
  }
}

// -----

// Fine: every shipped topology, and a directed ring.
#directed = #bagua.topology<offsets = [1], weights = [1/2]>
bagua.algorithm @accepted {
  bagua.on after_update(%w: tensor<?xf32, #bagua.bucket>) {
    %a = bagua.neighbor_exchange %w on #directed
    %b = bagua.mix %w, %a on #directed
    %c = bagua.neighbor_exchange %b on #bagua.exponential
    %d = bagua.mix %b, %c on #bagua.exponential
    %e = bagua.neighbor_exchange %d on #bagua.one_peer_exponential
    %f = bagua.mix %d, %e on #bagua.one_peer_exponential
    %g = bagua.neighbor_exchange %f on #bagua.torus<columns = 3>
    %h = bagua.mix %f, %g on #bagua.torus<columns = 3>
    %i = bagua.neighbor_exchange %h on #bagua.round_robin
    %j = bagua.mix %h, %i on #bagua.round_robin
    %k = bagua.neighbor_exchange %j on #bagua.shift_one
    %l = bagua.mix %j, %k on #bagua.shift_one
    %m = bagua.neighbor_exchange %l on #bagua.pairing<seed = 3>
    %n = bagua.mix %l, %m on #bagua.pairing<seed = 3>
    bagua.update weight = %n
  }
}
