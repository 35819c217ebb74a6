// RUN: bagua-opt %s --split-input-file --verify-diagnostics
// A refusal for every constraint of async programs.

// @schedule_c6
sched.schedule @s grain 1 accepts [f32] {
  sched.declare_state @m bucket = 0.0 on_resize mean
  sched.program @p on gradient {
    %z = arith.constant 0 : index
    // expected-note@+1 {{used here as well}}
    %m = sched.state "m" @m
    sched.cost rounds %z wire_bytes %z
  }
  sched.program @q on async every(8 steps) staleness(1) {
    %z = arith.constant 0 : index
    // expected-error@+1 {{expects a state that an async program shares with no other, got @m}}
    %m = sched.state "m" @m
    sched.cost rounds %z wire_bytes %z
  }
}

// -----

// @program_c8
sched.schedule @s grain 1 accepts [f32] {
  // expected-error@+1 {{expects no every, after or staleness: they belong to async programs}}
  sched.program @p on gradient every(8 steps) staleness(1) {
    %z = arith.constant 0 : index
    sched.cost rounds %z wire_bytes %z
  }
}

// -----

// @program_c8
sched.schedule @s grain 1 accepts [f32] {
  // expected-error@+1 {{expects every, its unit and staleness of an async program}}
  sched.program @p on async {
    %z = arith.constant 0 : index
    sched.cost rounds %z wire_bytes %z
  }
}

// -----

// @program_c9
sched.schedule @s grain 1 accepts [f32] {
  // expected-error@+1 {{expects every of at least 1, got 0}}
  sched.program @p on async every(0 steps) staleness(1) {
    %z = arith.constant 0 : index
    sched.cost rounds %z wire_bytes %z
  }
}

// -----

// @program_c9
sched.schedule @s grain 1 accepts [f32] {
  // expected-error@+1 {{expects after of at least 0, got -1}}
  sched.program @p on async every(1 ms) after(-1) staleness(1) {
    %z = arith.constant 0 : index
    sched.cost rounds %z wire_bytes %z
  }
}

// -----

// @program_c9
sched.schedule @s grain 1 accepts [f32] {
  // expected-error@+1 {{expects every to be an index parameter that is not per_step, got @n}}
  sched.program @p on async every(@n steps) staleness(1) {
    %z = arith.constant 0 : index
    sched.cost rounds %z wire_bytes %z
  }
}

// -----

// @program_c9
sched.schedule @s grain 1 accepts [f32] {
  sched.declare_parameter @n = 1.0 : f64
  // expected-error@+1 {{expects every to be an index parameter that is not per_step, got @n}}
  sched.program @p on async every(@n steps) staleness(1) {
    %z = arith.constant 0 : index
    sched.cost rounds %z wire_bytes %z
  }
}

// -----

// @program_c9
sched.schedule @s grain 1 accepts [f32] {
  sched.declare_parameter @n = 1 : index per_step
  // expected-error@+1 {{expects after to be an index parameter that is not per_step, got @n}}
  sched.program @p on async every(8 steps) after(@n) staleness(1) {
    %z = arith.constant 0 : index
    sched.cost rounds %z wire_bytes %z
  }
}

// -----

// @program_c9
sched.schedule @s grain 1 accepts [f32] {
  sched.declare_parameter @n = 0 : index
  // expected-error@+1 {{expects every of at least 1, got 0 by default}}
  sched.program @p on async every(@n steps) staleness(1) {
    %z = arith.constant 0 : index
    sched.cost rounds %z wire_bytes %z
  }
}

// -----

// @program_c9
sched.schedule @s grain 1 accepts [f32] {
  sched.declare_parameter @x = 1.0 : f64 per_step
  sched.program @p on async every(8 steps) staleness(1) {
    %z = arith.constant 0 : index
    // expected-error@+1 {{expects a parameter that is not per_step in an async program, got @x: in one round, ranks may be at different steps}}
    %x = sched.parameter @x : f64
    sched.cost rounds %z wire_bytes %z
  }
}

// -----

// @program_c10
sched.schedule @s grain 1 accepts [f32] {
  // expected-error@+1 {{B160: expects a staleness in 1 … 2^31 - 1, got 0}}
  sched.program @p on async every(8 steps) staleness(0) {
    %z = arith.constant 0 : index
    sched.cost rounds %z wire_bytes %z
  }
}

// -----

// @program_c11
sched.schedule @s grain 1 accepts [f32] {
  sched.program @p on async every(8 steps) staleness(1) {
    %z = arith.constant 0 : index
    // expected-error@+1 {{is not allowed in an async program: it belongs to a step of the job}}
    %g = sched.job "g" gradient
    sched.cost rounds %z wire_bytes %z
  }
}

// -----

// @program_c11
sched.schedule @s grain 1 accepts [f32] {
  sched.program @p on async every(8 steps) staleness(1) {
    %z = arith.constant 0 : index
    // expected-error@+1 {{is not allowed in an async program: it belongs to a step of the job}}
    sched.wait_gate before_update on cpu
    sched.cost rounds %z wire_bytes %z
  }
}

// -----

// @program_c11
sched.schedule @s grain 1 accepts [f32] {
  sched.declare_state @m bucket = 0.0 on_resize mean
  sched.program @p on async every(8 steps) staleness(1) {
    %z = arith.constant 0 : index
    // expected-error@+1 {{is not allowed in an async program: it belongs to a step of the job}}
    sched.publish @m if_finite
    sched.cost rounds %z wire_bytes %z
  }
}
