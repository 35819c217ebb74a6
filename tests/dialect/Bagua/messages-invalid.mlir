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

// -----

bagua.algorithm @negative_minus_operand(%x: f64 = 1.0) {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %e = bagua.map 0.5 * %g
    // expected-error@+1 {{`%g-` is read as one name: write spaces around `-`}}
    %m = bagua.map %g-%e
  }
}

// -----

bagua.algorithm @negative_minus_in_parentheses {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %e = bagua.map 0.5 * %g
    // expected-error@+1 {{`%g-` is read as one name: write spaces around `-`}}
    %m = bagua.map (%g-%e)*2.0
  }
}

// -----

bagua.algorithm @negative_minus_number {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %e = bagua.map 0.5 * %g
    // expected-error@+1 {{`%e-1.0` is read as one name: write spaces around `-`}}
    %m = bagua.map %g + %e-1.0
  }
}

// -----

bagua.algorithm @negative_minus_before_space {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %e = bagua.map 0.5 * %g
    // expected-error@+1 {{`%g-` is read as one name: write spaces around `-`}}
    %m = bagua.map min(%g- %e, 1.0)
  }
}

// -----

bagua.algorithm @negative_point_in_name {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{`%g.` is read as one name: write spaces around `.`}}
    %m = bagua.map %g. * 2.0
  }
}

// -----

// Declared, it is a name.
bagua.algorithm @minus_in_name {
  bagua.on gradient(%g-e: tensor<?xf32, #bagua.bucket>) {
    %m = bagua.map %g-e - 1.0
    bagua.update gradient = %m
  }
}

// -----

bagua.codec @negative_minus block(64) header(f32, f32) code(u6) {
  stats(%x) { min %x, max %x }
  headers(%lo, %hi) { %lo, (%hi - %lo) / 63.0 }
  // expected-error@+1 {{`%x-` is read as one name: write spaces around `-`}}
  encode(%x, %lo, %step) { (%x-%lo)/%step }
  decode(%q, %lo, %step) { %lo + %q * %step }
}

// -----

bagua.codec @negative_minus_name block(64) header(f32, f32) code(u6) {
  stats(%x) { min %x, max %x }
  // expected-error@+1 {{`%hi-1.0` is read as one name: write spaces around `-`}}
  headers(%lo, %hi) { %lo, %hi-1.0 }
  encode(%x, %lo, %step) { (%x - %lo) / %step }
  decode(%q, %lo, %step) { %lo + %q * %step }
}

// -----

bagua.algorithm @negative_caret {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{expressions have no `^`: multiply, a * a; there are + - * /, < <= > >= ==, and or not, and the functions sqrt, abs, sign, min, max, fma, rint, floor and select}}
    %m = bagua.map %g ^ 2
  }
}

// -----

bagua.algorithm @negative_stars {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{expressions have no `**`: multiply, a * a}}
    %m = bagua.map %g**2.0
  }
}

// -----

bagua.algorithm @negative_remainder {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{expressions have no operator `%`: write a - b * floor(a / b)}}
    %m = bagua.map %g % 2.0
  }
}

// -----

bagua.algorithm @negative_ternary {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{expressions have no `?`: write select(condition, a, b)}}
    %m = bagua.map %g > 0.0 ? 1.0 : 0.0
  }
}

// -----

bagua.algorithm @negative_and {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{expressions have no `&`: write `and`}}
    %m = bagua.map select(%g > 0.0 && %g < 1.0, 1.0, 0.0)
  }
}

// -----

bagua.algorithm @negative_unequal {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{expressions have no `!=`: write not a == b, or select(a == b, y, x) with the arms swapped}}
    %m = bagua.map select(%g != 0.0, %g, 1.0)
  }
}

// -----

bagua.algorithm @negative_exponent {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{expects a number with a digit before its point: write 1.0e-3}}
    %m = bagua.map %g * 1e-3
  }
}

// -----

bagua.algorithm @negative_exponent_first {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{write 1.0e-3}}
    %m = bagua.map 1e-3*%g
  }
}

// -----

bagua.algorithm @negative_point_first {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{expects a number with a digit before its point: write 0.5}}
    %m = bagua.map %g *.5
  }
}

// -----

bagua.algorithm @negative_symbol(%lr: f64 = 0.1) {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{expects values: `bagua.read @lr` gives that of a state, and a parameter is %lr}}
    %m = bagua.map %g * @lr
  }
}

// -----

bagua.algorithm @negative_chain {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{expects one comparison, they do not chain: write a < b and b < c}}
    %m = bagua.map -1.0 < %g < 1.0
  }
}

// -----

bagua.algorithm @negative_no_operator {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{expects `)` or an operator; there are + - * /,}}
    %m = bagua.map (2.0 %g) + 1.0
  }
}

// -----

bagua.algorithm @negative_scalars_only {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %n = bagua.norm %g
    // expected-error@+1 {{got none: the result is over the bucket unless the map says `: T`, T being its type}}
    %m = bagua.map min(1.0, 1.0/%n)
    bagua.update gradient = %g
  }
}

// -----

bagua.algorithm @negative_average {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{expects sum or mean, got 'avg'}}
    %m = bagua.all_reduce avg %g
  }
}

// -----

bagua.algorithm @negative_no_kind {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{expects sum or mean, got none}}
    %m = bagua.all_reduce %g
  }
}

// -----

bagua.algorithm @negative_random(%seed: index = 1) {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{expects shared, the same numbers on all ranks, or per_rank after the seed}}
    %u = bagua.random uniform seed %seed
    bagua.update gradient = %u
  }
}

// -----

bagua.algorithm @negative_decode {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %q = bagua.encode %g with #bagua.f16
    // expected-error@+1 {{expects `: T` at its end, T being the operand's type, as !bagua.packed<#codec, T> of encode}}
    %d = bagua.decode %q
  }
}

// -----

bagua.algorithm @negative_state_value {
  // expected-error@+1 {{expects the state's initial value: `= 0.0`, or `= weight` for the job's weights}}
  bagua.state @e : bucket
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
  }
}

// -----

// expected-error@+1 {{expects the parameter's value if the job gives none: %lr: f64 = 0.1, then per_step}}
bagua.algorithm @negative_parameter_value(%lr: f64) {
}

// -----

// expected-error@+1 {{expects the parameter's value if the job gives none: %n: index = 1, then per_step}}
bagua.algorithm @negative_per_step_first(%n: index per_step = 2) {
}

// -----

// expected-error@+1 {{expects the parameter's type and value: %lr: f64 = 0.1, or %lr: index = 1}}
bagua.algorithm @negative_parameter_type(%lr = 0.1) {
}

// -----

// expected-error@+1 {{expects a parameter of type index or f64, got 'float'}}
bagua.algorithm @negative_float(%lr: float = 0.1) {
}

// -----

// expected-error@+1 {{expects an integer as the value of %n: index}}
bagua.algorithm @negative_index_value(%n: index = 0.5) {
}

// -----

bagua.algorithm @negative_typed_operand {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{expects nothing after `: T`, which is the type of the whole expression}}
    %m = bagua.map %g : tensor<?xf32, #bagua.bucket> * 2.0
  }
}

// -----

func.func private @f(%x: tensor<?xf32, #bagua.bucket>) -> tensor<?xf32, #bagua.bucket> {
  return %x : tensor<?xf32, #bagua.bucket>
}
bagua.algorithm @negative_call_type {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{expects the function's type, `: (!bucket, f64) -> !bucket`, got 'tensor<?xf32, #bagua.bucket>'}}
    %m = bagua.call @f(%g) : tensor<?xf32, #bagua.bucket>
  }
}

// -----

bagua.algorithm @negative_norm_type {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) { // expected-note {{prior use here}}
    // expected-error@+2 {{expects different type than prior uses}}
    // expected-note@+1 {{an op takes values over the bucket unless it says `: T`, T being the operand's type}}
    %n = bagua.norm %g : tensor<?xf32, #bagua.scalar>
  }
}

// -----

bagua.algorithm @negative_reduce_scalar {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %n = bagua.norm %g // expected-note {{prior use here}}
    // expected-error@+2 {{expects different type than prior uses}}
    // expected-note@+1 {{an op takes values over the bucket unless it says `: T`, T being the operand's type}}
    %s = bagua.all_reduce sum %n
  }
}

// -----

bagua.algorithm @negative_leaf {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{expects a value, a number or one of the functions sqrt,}}
    %m = bagua.map %g * (+ 1.0)
  }
}

// -----

// Comments, numbers, lines and ops after an expression are none of the slips.
bagua.algorithm @all_is_well(%a: f64 = 1.0e-3) {
  bagua.state @e : bucket = 0.0
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %s = bagua.read @e
    %m = bagua.map %a * %g + %s %k = bagua.map select(not %g == 0.0 and %g <= 1.0 or %g >= 2., // a ^ b, @e, 1e-3
        1.0e+3, 1.e3 - -%g) + 2 * sqrt(abs(%m)) bagua.update @e = %k
    bagua.update gradient = %m
  }
}

// -----

bagua.algorithm @negative_side_by_side {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{expects the end of the map, `: T` or an operator; there are + - * /,}}
    %m = bagua.map 2.0 %g
    bagua.update gradient = %m
  }
}

// -----

bagua.algorithm @negative_parenthesis {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{expects the end of the map, `: T` or an operator}}
    %m = bagua.map 2.0 * %g)
    bagua.update gradient = %m
  }
}

// -----

bagua.algorithm @negative_semicolon {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{expressions have no `;`: an op ends where its line does}}
    %m = bagua.map 2.0 * %g;
    bagua.update gradient = %m
  }
}

// -----

bagua.codec @negative_side_by_side block(64) header(f32) code(u6) {
  // expected-error@+1 {{expects `,`, `}` or an operator}}
  stats(%x) { max 2.0 %x }
  encode(%x, %m) { %x }
  decode(%q, %m) { %q }
}
