// RUN: bagua-opt %s --split-input-file --verify-diagnostics
// A refusal for every constraint of async handlers, labelled with its number in SPEC.md.

bagua.algorithm @negative_on_every_missing {
  // expected-error@+1 {{expects how often rounds begin: `every(%n steps)` or `every(%t ms)`, %n and %t parameters or numbers}}
  bagua.on async staleness(1) (%w: tensor<?xf32, #bagua.bucket>) {
  }
}

// -----

bagua.algorithm @negative_on_every_unit {
  // expected-error@+1 {{expects steps or ms, got 'seconds'}}
  bagua.on async every(8 seconds) staleness(1) (%w: tensor<?xf32, #bagua.bucket>) {
  }
}

// -----

bagua.algorithm @negative_on_every_nothing {
  // expected-error@+1 {{expects a parameter of the algorithm or a number}}
  bagua.on async every(steps) staleness(1) (%w: tensor<?xf32, #bagua.bucket>) {
  }
}

// -----

// on_C1
bagua.algorithm @negative_on_async_two_arguments {
  // expected-error@+1 {{'bagua.on' op expects one argument over the bucket, got}}
  bagua.on async every(8 steps) staleness(1) (%w: tensor<?xf32, #bagua.bucket>, %g: tensor<?xf32, #bagua.bucket>) {
  }
}

// -----

// algorithm_C2
bagua.algorithm @negative_algorithm_async_twice {
  // expected-note@+1 {{first here}}
  bagua.on async every(8 steps) staleness(1) (%w: tensor<?xf32, #bagua.bucket>) {
  }
  // expected-error@+1 {{'bagua.on' op handles async again}}
  bagua.on async every(100 ms) staleness(1) (%w: tensor<?xf32, #bagua.bucket>) {
  }
}

// -----

// on_C4
bagua.algorithm @negative_on_async_gradient {
  bagua.on async every(8 steps) staleness(1) (%w: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{'bagua.update' op of the gradient is not allowed in a handler of async: expects weight}}
    bagua.update gradient = %w
  }
}

// -----

// on_C4
bagua.algorithm @negative_on_async_replaces {
  bagua.on async every(8 steps) staleness(1) (%w: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{'bagua.update' op in a handler of async expects `weight += %d`: the trainer has moved the weight since the round began; give the difference to the snapshot}}
    bagua.update weight = %w
  }
}

// -----

// on_C4
bagua.algorithm @negative_on_adds_elsewhere {
  bagua.on after_update(%w: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{'bagua.update' op in a handler of after_update expects `weight = %x`: only async rounds add to the weight}}
    bagua.update weight += %w
  }
}

// -----

// on_C3
bagua.algorithm @negative_on_async_twice_on_one_path {
  bagua.on async every(8 steps) staleness(1) (%w: tensor<?xf32, #bagua.bucket>) {
    // expected-note@+1 {{first here}}
    bagua.update weight += %w
    // expected-error@+1 {{'bagua.update' op replaces the weight twice on one path}}
    bagua.update weight += %w
  }
}

// -----

// update_C4
bagua.algorithm @negative_update_adds_to_gradient {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{'bagua.update' op expects `+=` for the weight only, without `at`: it is added between two steps}}
    bagua.update gradient += %g
  }
}

// -----

// update_C4
bagua.algorithm @negative_update_adds_to_state {
  bagua.state @m : bucket = 0.0
  bagua.on async every(8 steps) staleness(1) (%w: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{'bagua.update' op expects `+=` for the weight only, without `at`: read the state, and update it to the sum}}
    bagua.update @m += %w
  }
}

// -----

// update_C4
bagua.algorithm @negative_update_adds_at_gate {
  bagua.on async every(8 steps) staleness(1) (%w: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{'bagua.update' op expects `+=` for the weight only, without `at`: it is added between two steps}}
    bagua.update weight += %w at before_update
  }
}

// -----

// on_C5
bagua.algorithm @negative_on_interval_of_gradient {
  // expected-error@+1 {{'bagua.on' op of gradient expects no every, after or staleness: they belong to async}}
  "bagua.on"() <{event = #bagua<event gradient>, staleness = 1 : i64, operandSegmentSizes = array<i32: 0, 0>}> ({
  ^bb0(%g: tensor<?xf32, #bagua.bucket>):
    %n = "bagua.world"() : () -> index
  }) : () -> ()
}

// -----

// on_C5
bagua.algorithm @negative_on_async_without_unit {
  // expected-error@+1 {{'bagua.on' op of async expects one interval and its unit, one `after` at most, and staleness}}
  "bagua.on"() <{event = #bagua<event async>, every_number = 1 : i64, staleness = 1 : i64, operandSegmentSizes = array<i32: 0, 0>}> ({
  ^bb0(%w: tensor<?xf32, #bagua.bucket>):
    %n = "bagua.world"() : () -> index
  }) : () -> ()
}

// -----

// on_C6
bagua.algorithm @negative_on_every_zero {
  // expected-error@+1 {{'bagua.on' op expects every of at least 1, got 0}}
  bagua.on async every(0 steps) staleness(1) (%w: tensor<?xf32, #bagua.bucket>) {
  }
}

// -----

// on_C6
bagua.algorithm @negative_on_every_zero_by_default(%n: index = 0) {
  // expected-error@+1 {{'bagua.on' op expects every of at least 1, got 0 by default}}
  bagua.on async every(%n steps) staleness(1) (%w: tensor<?xf32, #bagua.bucket>) {
  }
}

// -----

// on_C6
bagua.algorithm @negative_on_after_negative {
  // expected-error@+1 {{'bagua.on' op expects after of at least 0, got -1}}
  bagua.on async every(1 steps) after(-1) staleness(1) (%w: tensor<?xf32, #bagua.bucket>) {
  }
}

// -----

// on_C6
bagua.algorithm @negative_on_every_per_step(%n: index = 8 per_step) {
  // expected-error@+1 {{'bagua.on' op expects a parameter that is not per_step for every, got %n: rounds are set up when a bucket is bound}}
  bagua.on async every(%n steps) staleness(1) (%w: tensor<?xf32, #bagua.bucket>) {
  }
}

// -----

// on_C7
bagua.algorithm @negative_on_staleness_missing {
  // expected-error@+1 {{B160: expects `staleness(S)`: so many steps after a round began, the trainer waits for what it brings}}
  bagua.on async every(8 steps) (%w: tensor<?xf32, #bagua.bucket>) {
  }
}

// -----

// on_C7
bagua.algorithm @negative_on_staleness_zero {
  // expected-error@+1 {{'bagua.on' op B160: expects a staleness of at least 1, got 0: what a round brings is added at a later step at the earliest}}
  bagua.on async every(8 steps) staleness(0) (%w: tensor<?xf32, #bagua.bucket>) {
  }
}

// -----

// on_C7
bagua.algorithm @negative_on_staleness_huge {
  // expected-error@+1 {{'bagua.on' op B160: expects a staleness below 2^31, got 2147483648}}
  bagua.on async every(8 steps) staleness(2147483648) (%w: tensor<?xf32, #bagua.bucket>) {
  }
}

// -----

// on_C8
bagua.algorithm @negative_on_async_per_step(%scale: f64 = 0.5 per_step) {
  bagua.on async every(8 steps) staleness(1) (%w: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{'bagua.map' op expects parameters that are not per_step in an async handler, got %scale: in one round, ranks may be at different steps}}
    %d = bagua.map %scale * %w
    bagua.update weight += %d
  }
}

// -----

// on_C9: a state that all_reduce remembers in is used, too.
bagua.algorithm @negative_on_async_remembers {
  bagua.state @e : bucket = 0.0
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-note@+1 {{used here as well}}
    %m = bagua.all_reduce mean %g via #bagua.f16 remember @e
    bagua.update gradient = %m
  }
  bagua.on async every(8 steps) staleness(1) (%w: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{'bagua.all_reduce' op expects a state that only the async handler uses, got @e}}
    %m = bagua.all_reduce mean %w via #bagua.f16 remember @e
    bagua.update weight += %m
  }
}

// -----

// on_C9
bagua.algorithm @negative_on_async_state_of_another {
  bagua.state @m : bucket = 0.0
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-note@+1 {{used here as well}}
    bagua.update @m = %g
  }
  bagua.on async every(8 steps) staleness(1) (%w: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{'bagua.read' op expects a state that only the async handler uses, got @m: rounds run beside the steps; give each handler a state of its own}}
    %m = bagua.read @m
    bagua.update weight += %m
  }
}
