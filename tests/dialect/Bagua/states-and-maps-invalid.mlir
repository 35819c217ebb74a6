// RUN: bagua-opt %s --split-input-file --verify-diagnostics
// Refusals of parameters, states, maps, scalars and topologies, labelled with their number in SPEC.md.

// algorithm_C5
// expected-error@+1 {{expects a parameter of type index or f64, got 'f32'}}
bagua.algorithm @negative_parameter_type(%x: f32 = 1.0) {
}

// -----

// algorithm_C5
// expected-error@+1 {{expects a decimal number}}
bagua.algorithm @negative_parameter_hexadecimal(%x: f64 = 0x7FF8000000000000) {
}

// -----

// algorithm_C5
// expected-error@+1 {{'bagua.algorithm' op expects a name, a default and a time for each of 1 parameters, got 0, 0 and 0}}
"bagua.algorithm"() <{sym_name = "negative_parameter_nameless"}> ({
^bb0(%x: index):
  "bagua.on"() <{event = #bagua<event gradient>}> ({
  ^bb0(%g: tensor<?xf32, #bagua.bucket>):
  }) : () -> ()
}) : () -> ()

// -----

// algorithm_C6
// expected-error@+1 {{'bagua.algorithm' op owns the update: expects `bagua.update weight = %x at before_update` in the handler of gradient, got none}}
bagua.algorithm @negative_owns_update_without_weight attributes {owns_update} {
  bagua.on after_update(%w: tensor<?xf32, #bagua.bucket>) {
    bagua.update weight = %w
  }
}

// -----

// algorithm_C7
bagua.algorithm @negative_state_unread {
  // expected-error@+1 {{'bagua.state' op is never read: expects a `bagua.read @m`; or leave the state out}}
  bagua.state @m : bucket = 0.0
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    bagua.update @m = %g
  }
}

// -----

// algorithm_C7
bagua.algorithm @negative_state_not_updated {
  // expected-error@+1 {{'bagua.state' op is never updated: expects a `bagua.update @m = …`; or use a constant instead}}
  bagua.state @m : bucket = 0.0
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %m = bagua.read @m
    bagua.update gradient = %m
  }
}

// -----

// on_C3
bagua.algorithm @negative_state_updated_twice {
  bagua.state @m : bucket = 0.0
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %m = bagua.read @m
    // expected-note@+1 {{first here}}
    bagua.update @m = %g
    // expected-error@+1 {{'bagua.update' op replaces state @m twice on one path}}
    bagua.update @m = %m
  }
}

// -----

// on_C4
bagua.algorithm @negative_owned_gradient attributes {owns_update} {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>, %w: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{'bagua.update' op of the gradient is not allowed in a handler of gradient of an algorithm that owns the update: no optimizer of the job reads it; expects weight, `at before_update`}}
    bagua.update gradient = %g
    bagua.update weight = %w at before_update
  }
}

// -----

// on_C4
bagua.algorithm @negative_weight_not_owned {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>, %w: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{expects gradient; or let the algorithm own the update: `attributes {owns_update}`}}
    bagua.update weight = %w at before_update
  }
}

// -----

// on_C1
bagua.algorithm @negative_weight_argument {
  // expected-error@+1 {{'bagua.on' op expects one argument over the bucket, got}}
  bagua.on after_update(%w: tensor<?xf32, #bagua.bucket>, %g: tensor<?xf32, #bagua.bucket>) {
  }
}

// -----

// state_C1
bagua.algorithm @negative_state_domain {
  // expected-error@+1 {{expects bucket, scalar, shard<@world> or per<#topology>, got 'element'}}
  bagua.state @m : element = 0.0
}

// -----

// state_C1
bagua.algorithm @negative_state_per_group {
  // expected-error@+1 {{'bagua.state' op expects a type over the bucket, a shard, a scalar or one bucket per neighbour, got}}
  bagua.state @m : per<@world> = 0.0
}

// -----

// state_C1
bagua.algorithm @negative_state_pairing {
  // expected-error@+1 {{'bagua.state' op expects neighbours that are the same in every round, got #bagua.pairing<seed = 7>: keep a state over the bucket, or take #bagua.topology, #bagua.torus or #bagua.exponential}}
  bagua.state @m : per<#bagua.pairing<seed = 7>> = weight
}

// -----

// state_C1
bagua.algorithm @negative_state_shift_one {
  // expected-error@+1 {{expects neighbours that are the same in every round, got}}
  bagua.state @m : per<#bagua.shift_one> = weight
}

// -----

// state_C1
bagua.algorithm @negative_state_round_robin {
  // expected-error@+1 {{expects neighbours that are the same in every round, got}}
  bagua.state @m : per<#bagua.round_robin> = weight
}

// -----

// state_C1
bagua.algorithm @negative_state_one_peer {
  // expected-error@+1 {{expects neighbours that are the same in every round, got}}
  bagua.state @m : per<#bagua.one_peer_exponential> = weight
}

// -----

// state_C1
bagua.algorithm @negative_state_turns_of_a_node {
  // expected-error@+1 {{expects neighbours that are the same in every round, got}}
  bagua.state @m : per<#bagua.one_peer_exponential over @node> = weight
}

// -----

// state_C2
bagua.algorithm @negative_state_infinite {
  // expected-error@+1 {{'bagua.state' op expects a finite initial value}}
  "bagua.state"() <{sym_name = "m", type = tensor<?xf32, #bagua.bucket>, initial = 0x7FF0000000000000 : f64, on_resize = #bagua<on_resize zero>}> : () -> ()
}

// -----

// state_C3
bagua.algorithm @negative_state_shard_of_weight {
  // expected-error@+1 {{'bagua.state' op expects a state over the bucket or neighbours to begin as the weight, got}}
  bagua.state @m : shard<@world> = weight
}

// -----

// state_C4
bagua.algorithm @negative_state_mean_of_shards {
  // expected-error@+1 {{'bagua.state' op expects on_resize repartition or zero, got mean}}
  bagua.state @m : shard<@world> = 0.0 on_resize mean
}

// -----

// state_C4
bagua.algorithm @negative_state_repartition {
  // expected-error@+1 {{'bagua.state' op expects on_resize zero, got repartition}}
  bagua.state @m : per<#bagua.exponential> = 0.0 on_resize repartition
}

// -----

// state_C5
bagua.algorithm @negative_state_shard_of_a_node {
  // expected-error@+1 {{'bagua.state' op expects a shard of @world, got one of @node: states are laid out again by ranks of the world on a resize}}
  bagua.state @m : shard<@node> = 0.0
}

// -----

// read_C1
bagua.algorithm @negative_read_unknown {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{'bagua.read' op expects a state of the algorithm, got @m: declare `bagua.state @m : bucket = 0.0`}}
    %m = bagua.read @m
  }
}

// -----

// read_C1
func.func private @negative_read_in_function() {
  // expected-error@+1 {{'bagua.read' op expects to stand in a handler: a function takes states as arguments and returns their new values}}
  %m = bagua.read @m
  return
}

// -----

// read_C2
bagua.algorithm @negative_read_type {
  bagua.state @e : shard<@world> = 0.0
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{'bagua.read' op expects the type of the state, 'tensor<?xf32, #bagua.shard<@world>>', got 'tensor<?xf32, #bagua.bucket>': write it after a colon}}
    %e = bagua.read @e
    bagua.update @e = %e
  }
}

// -----

// update_C1
bagua.algorithm @negative_update_type {
  bagua.state @e : shard<@world> = 0.0
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %e = bagua.read @e : tensor<?xf32, #bagua.shard<@world>>
    // expected-error@+1 {{'bagua.update' op expects a value of the type of the state, 'tensor<?xf32, #bagua.shard<@world>>', got 'tensor<?xf32, #bagua.bucket>'}}
    bagua.update @e = %g
  }
}

// -----

// update_C2
bagua.algorithm @negative_update_unknown {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{'bagua.update' op expects a state of the algorithm, got @m}}
    bagua.update @m = %g
  }
}

// -----

// update_C2
bagua.algorithm @negative_update_target {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{expects gradient, weight or a state (@name), got 'momentum'}}
    bagua.update momentum = %g
  }
}

// -----

// update_C2
bagua.algorithm @negative_update_nameless {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{'bagua.update' op expects the name of a state where, and only where, the role is state}}
    "bagua.update"(%g) <{role = #bagua<role state>}> : (tensor<?xf32, #bagua.bucket>) -> ()
  }
}

// -----

// update_C3
bagua.algorithm @negative_update_state_at {
  bagua.state @m : bucket = 0.0
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %m = bagua.read @m
    // expected-error@+1 {{'bagua.update' op of a state expects no `at`: it takes its new value at the end of the step}}
    bagua.update @m = %g at before_update
  }
}

// -----

// map_C1
bagua.algorithm @negative_map_of_numbers(%a: f64 = 1.0) {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{'bagua.map' op expects at least one value over a bucket, a shard or neighbours, or a scalar of dot, norm or a state, got numbers only: use arith}}
    %x = bagua.map %a + 1.0
  }
}

// -----

// map_C2
bagua.algorithm @negative_map_domains {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %s = bagua.reduce_scatter sum %g over @world
    // expected-error@+1 {{'bagua.map' op expects values of one domain, that of the result, 'tensor<?xf32, #bagua.bucket>', got 'tensor<?xf32, #bagua.shard<@world>>'}}
    %x = bagua.map %g + %s
  }
}

// -----

// map_C2: shards of two groups are two domains.
bagua.algorithm @negative_map_shards_of_two_groups {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %s = bagua.reduce_scatter sum %g over @node
    %t = bagua.reduce_scatter sum %g over @world
    // expected-error@+1 {{'bagua.map' op expects values of one domain, that of the result, 'tensor<?xf32, #bagua.shard<@node>>', got 'tensor<?xf32, #bagua.shard<@world>>'}}
    %x = bagua.map %s + %t : tensor<?xf32, #bagua.shard<@node>>
  }
}

// -----

// map_C2
bagua.algorithm @negative_map_scalar_as_bucket {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %s = bagua.norm %g
    // expected-error@+1 {{'bagua.map' op expects a value over the domain of the result, 'tensor<?xf32, #bagua.bucket>', got none}}
    %x = bagua.map %s + 1.0
  }
}

// -----

// map_C2
bagua.algorithm @negative_map_packed {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %q = bagua.encode %g with #bagua.minmax<bits = 8, block = 512>
    // expected-error@+1 {{expects a value over the domain of the result, 'tensor<?xf32, #bagua.bucket>', a scalar, an f64 or an index, got '!bagua.packed<#bagua.minmax<bits = 8, block = 512>, tensor<?xf32, #bagua.bucket>>': bagua.decode makes values of it}}
    %x = bagua.map %g + %q
  }
}

// -----

// map_C3
bagua.algorithm @negative_map_condition {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{'bagua.map' op expects an expression that is a number, got a condition: use select}}
    %x = bagua.map %g < 1.0
  }
}

// -----

// map_C3
bagua.algorithm @negative_map_condition_as_number {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{'bagua.map' op expects a number as operand 1 of `+`, got a condition: select(condition, 1.0, 0.0) is a number}}
    %x = bagua.map (%g < 1.0) + %g
  }
}

// -----

// map_C3
bagua.algorithm @negative_map_number_as_condition {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{'bagua.map' op expects a condition as operand 1 of `select`, got a number: compare it, as with `> 0.0`}}
    %x = bagua.map select(%g, %g, %g)
  }
}

// -----

// map_C4
bagua.algorithm @negative_map_not_finite {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{'bagua.map' op expects finite constants}}
    %x = bagua.map %g * 1.0e999
  }
}

// -----

// map_C5
bagua.algorithm @negative_map_code {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{'bagua.map' op expects code of 4 numbers for each instruction, at least one, got 3}}
    %x = "bagua.map"(%g) <{code = array<i64: 0, 0, 0>, constants = array<f64>, operandSegmentSizes = array<i32: 1, 0>}> : (tensor<?xf32, #bagua.bucket>) -> tensor<?xf32, #bagua.bucket>
  }
}

// -----

// map_C5
bagua.algorithm @negative_map_operand {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{'bagua.map' op instruction 1 expects operand 2 in 0..0, got 1}}
    %x = "bagua.map"(%g) <{code = array<i64: 0, 0, 0, 0, 3, 0, 1, 0>, constants = array<f64>, operandSegmentSizes = array<i32: 1, 0>}> : (tensor<?xf32, #bagua.bucket>) -> tensor<?xf32, #bagua.bucket>
  }
}

// -----

// map_C5
bagua.algorithm @negative_map_instruction {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{'bagua.map' op instruction 0 expects a code in 0..23, got 24}}
    %x = "bagua.map"(%g) <{code = array<i64: 24, 0, 0, 0>, constants = array<f64>, operandSegmentSizes = array<i32: 1, 0>}> : (tensor<?xf32, #bagua.bucket>) -> tensor<?xf32, #bagua.bucket>
  }
}

// -----

bagua.algorithm @negative_map_function {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{expects a value, a number or one of the functions sqrt, abs, sign, min, max, fma, rint, floor and select, got 'exp'}}
    %x = bagua.map exp(%g)
  }
}

// -----

bagua.algorithm @negative_map_arity {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{expects 2 operands of min, got 1}}
    %x = bagua.map min(%g)
  }
}

// -----

// dot_C1
bagua.algorithm @negative_dot_of_scalars {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %s = bagua.norm %g
    // expected-error@+1 {{'bagua.dot' op expects operands over the bucket or a shard, got 'tensor<?xf32, #bagua.scalar>'}}
    %x = bagua.dot %s, %s : tensor<?xf32, #bagua.scalar>
  }
}

// -----

// norm_C1
bagua.algorithm @negative_norm_of_scalar {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %s = bagua.norm %g
    // expected-error@+1 {{'bagua.norm' op expects operands over the bucket or a shard, got 'tensor<?xf32, #bagua.scalar>'}}
    %x = bagua.norm %s : tensor<?xf32, #bagua.scalar>
  }
}

// -----

// random_C1
bagua.algorithm @negative_random_shard {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %s = bagua.step
    // expected-error@+1 {{'bagua.random' op expects the result over the bucket, got 'tensor<?xf32, #bagua.shard<@world>>'}}
    %x = bagua.random uniform seed %s shared : tensor<?xf32, #bagua.shard<@world>>
  }
}

// -----

// neighbor_exchange_C2
bagua.algorithm @negative_exchange_round {
  bagua.on after_update(%w: tensor<?xf32, #bagua.bucket>) {
    %s = bagua.step
    // expected-error@+1 {{'bagua.neighbor_exchange' op expects no `at`: #bagua.exponential is the same in every round}}
    %x = bagua.neighbor_exchange %w on #bagua.exponential at %s
  }
}

// -----

// mix_C3
bagua.algorithm @negative_mix_round {
  bagua.on after_update(%w: tensor<?xf32, #bagua.bucket>) {
    %s = bagua.step
    %x = bagua.neighbor_exchange %w on #bagua.exponential
    // expected-error@+1 {{'bagua.mix' op expects no `at`: #bagua.exponential is the same in every round}}
    %y = bagua.mix %w, %x on #bagua.exponential at %s
  }
}

// -----

// all_reduce_C1
bagua.algorithm @negative_all_reduce_scalar_via {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %s = bagua.norm %g
    // expected-error@+1 {{'bagua.all_reduce' op expects the input over the bucket, got 'tensor<?xf32, #bagua.scalar>'}}
    %x = bagua.all_reduce sum %s : tensor<?xf32, #bagua.scalar> via #bagua.minmax<bits = 8, block = 512>
  }
}

// -----

// torus_C1
// expected-error@+1 {{expects columns in 2..65536, got 1}}
#negative_torus = #bagua.torus<columns = 1>

// -----

// pairing_C1
// expected-error@+1 {{expects a seed of at least 0, got -1}}
#negative_pairing = #bagua.pairing<seed = -1>

// -----

// packed_C1
// expected-error@+1 {{expects a tensor over a bucket or a shard inside packed, got 'tensor<?xf32, #bagua.scalar>'}}
!negative_packed_scalar = !bagua.packed<#bagua.minmax<bits = 8, block = 512>, tensor<?xf32, #bagua.scalar>>

// -----

// all_reduce_C4
bagua.algorithm @negative_remember_without_via {
  bagua.state @e : bucket = 0.0
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{expects `via` before `remember`: without a codec nothing is lost}}
    %m = bagua.all_reduce mean %g remember @e
    bagua.update gradient = %m
  }
}

// -----

!bucket = tensor<?xf32, #bagua.bucket>

bagua.algorithm @negative_remember_of_shard {
  bagua.state @e : bucket = 0.0
  bagua.on gradient(%g: !bucket) {
    %s = bagua.reduce_scatter sum %g over @node
    // expected-error@+1 {{expects to `remember` of the bucket, got 'tensor<?xf32, #bagua.shard<@node>>'}}
    %t = bagua.all_reduce sum %s : tensor<?xf32, #bagua.shard<@node>> over @cross via #bagua.f16 remember @e
    %all = bagua.all_gather %t : tensor<?xf32, #bagua.shard<@node>> over @node
    %m = bagua.concat %all : !bagua.per<@node, tensor<?xf32, #bagua.shard<@node>>>
    bagua.update gradient = %m
  }
}

// -----

!bucket = tensor<?xf32, #bagua.bucket>

// States of shards are of the world (state_C5): who owns a shard of @node has no place for what is lost.
bagua.algorithm @negative_remember_server_over_node {
  bagua.state @e : bucket = 0.0
  bagua.state @s : shard<@world> = 0.0
  bagua.on gradient(%g: !bucket) {
    // expected-error@+1 {{expects no state of the shard's owner over @node, got @s: states of shards are of @world}}
    %m = bagua.all_reduce mean %g over @node via #bagua.f16 remember @e, @s
    bagua.update gradient = %m
  }
}

// -----

// all_reduce_C5
bagua.algorithm @negative_remember_unknown {
  bagua.state @e : bucket = 0.0
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{expects a state of the algorithm, got @f: declare `bagua.state @f : bucket = 0.0`}}
    %m = bagua.all_reduce mean %g via #bagua.f16 remember @e, @f
    bagua.update gradient = %m
  }
}

// -----

// all_reduce_C5
bagua.algorithm @negative_remember_worker_type {
  bagua.state @e : shard<@world> = 0.0
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{expects @e of type 'tensor<?xf32, #bagua.bucket>', got 'tensor<?xf32, #bagua.shard<@world>>'}}
    %m = bagua.all_reduce mean %g via #bagua.f16 remember @e
    bagua.update gradient = %m
  }
}

// -----

// all_reduce_C5
bagua.algorithm @negative_remember_server_type {
  bagua.state @e : bucket = 0.0
  bagua.state @s : bucket = 0.0
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{expects @s of type 'tensor<?xf32, #bagua.shard<@world>>', got 'tensor<?xf32, #bagua.bucket>'}}
    %m = bagua.all_reduce mean %g via #bagua.f16 remember @e, @s
    bagua.update gradient = %m
  }
}

// -----

// all_reduce_C5: in the generic form a server may stand alone.
bagua.algorithm @negative_remember_server_alone {
  bagua.state @s : shard<@world> = 0.0
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{expects a state of the worker beside @s}}
    %m = "bagua.all_reduce"(%g) <{codec = #bagua.f16, kind = #bagua<reduce_kind mean>, server = @s}> : (tensor<?xf32, #bagua.bucket>) -> tensor<?xf32, #bagua.bucket>
    bagua.update gradient = %m
  }
}

// -----

// on_C3: what remembers updates.
bagua.algorithm @negative_remember_twice {
  bagua.state @e : bucket = 0.0
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-note@+1 {{first here}}
    %n = bagua.all_reduce mean %g via #bagua.f16 remember @e
    // expected-error@+1 {{replaces state @e twice on one path}}
    %m = bagua.all_reduce mean %n via #bagua.f16 remember @e
    bagua.update gradient = %m
  }
}

// -----

// on_C3
bagua.algorithm @negative_remember_and_update {
  bagua.state @e : bucket = 0.0
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-note@+1 {{first here}}
    bagua.update @e = %g
    // expected-error@+1 {{replaces state @e twice on one path}}
    %m = bagua.all_reduce mean %g via #bagua.f16 remember @e
    bagua.update gradient = %m
  }
}
