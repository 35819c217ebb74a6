// RUN: bagua-opt %s --split-input-file --verify-diagnostics
// A refusal for every constraint of async programs.

// schedule_c6
chunk.schedule @s grain 1 accepts [f32] {
  chunk.declare_state @m bucket = 0.0 on_resize mean
  chunk.program @p on gradient {
    %z = arith.constant 0 : index
    // expected-note@+1 {{used here as well}}
    %m = chunk.state @m
    chunk.cost rounds %z wire_bytes %z
  }
  chunk.program @q on async every(8 steps) staleness(1) {
    %z = arith.constant 0 : index
    // expected-error@+1 {{expects a state that an async program shares with no other, got @m}}
    %m = chunk.state @m
    chunk.cost rounds %z wire_bytes %z
  }
}

// -----

// program_c4
chunk.schedule @s grain 1 accepts [f32] {
  // expected-error@+1 {{expects no every, after or staleness: they belong to async programs}}
  chunk.program @p on gradient every(8 steps) staleness(1) {
    %z = arith.constant 0 : index
    chunk.cost rounds %z wire_bytes %z
  }
}

// -----

// program_c4
chunk.schedule @s grain 1 accepts [f32] {
  // expected-error@+1 {{expects every, its unit and staleness of an async program}}
  chunk.program @p on async {
    %z = arith.constant 0 : index
    chunk.cost rounds %z wire_bytes %z
  }
}

// -----

// program_c5
chunk.schedule @s grain 1 accepts [f32] {
  // expected-error@+1 {{expects every of at least 1, got 0}}
  chunk.program @p on async every(0 steps) staleness(1) {
    %z = arith.constant 0 : index
    chunk.cost rounds %z wire_bytes %z
  }
}

// -----

// program_c5
chunk.schedule @s grain 1 accepts [f32] {
  // expected-error@+1 {{expects after of at least 0, got -1}}
  chunk.program @p on async every(1 ms) after(-1) staleness(1) {
    %z = arith.constant 0 : index
    chunk.cost rounds %z wire_bytes %z
  }
}

// -----

// program_c5
chunk.schedule @s grain 1 accepts [f32] {
  // expected-error@+1 {{expects every to be an index parameter that is not per_step, got @n}}
  chunk.program @p on async every(@n steps) staleness(1) {
    %z = arith.constant 0 : index
    chunk.cost rounds %z wire_bytes %z
  }
}

// -----

// program_c5
chunk.schedule @s grain 1 accepts [f32] {
  chunk.declare_parameter @n = 1.0 : f64
  // expected-error@+1 {{expects every to be an index parameter that is not per_step, got @n}}
  chunk.program @p on async every(@n steps) staleness(1) {
    %z = arith.constant 0 : index
    chunk.cost rounds %z wire_bytes %z
  }
}

// -----

// program_c5
chunk.schedule @s grain 1 accepts [f32] {
  chunk.declare_parameter @n = 1 : index per_step
  // expected-error@+1 {{expects after to be an index parameter that is not per_step, got @n}}
  chunk.program @p on async every(8 steps) after(@n) staleness(1) {
    %z = arith.constant 0 : index
    chunk.cost rounds %z wire_bytes %z
  }
}

// -----

// program_c5
chunk.schedule @s grain 1 accepts [f32] {
  chunk.declare_parameter @n = 0 : index
  // expected-error@+1 {{expects every of at least 1, got 0 by default}}
  chunk.program @p on async every(@n steps) staleness(1) {
    %z = arith.constant 0 : index
    chunk.cost rounds %z wire_bytes %z
  }
}

// -----

// program_c5
chunk.schedule @s grain 1 accepts [f32] {
  chunk.declare_parameter @x = 1.0 : f64 per_step
  chunk.program @p on async every(8 steps) staleness(1) {
    %z = arith.constant 0 : index
    // expected-error@+1 {{expects a parameter that is not per_step in an async program, got @x: in one round, ranks may be at different steps}}
    %x = chunk.parameter @x : f64
    chunk.cost rounds %z wire_bytes %z
  }
}

// -----

// program_c6
chunk.schedule @s grain 1 accepts [f32] {
  // expected-error@+1 {{B160: expects a staleness in 1 … 2^31 - 1, got 0}}
  chunk.program @p on async every(8 steps) staleness(0) {
    %z = arith.constant 0 : index
    chunk.cost rounds %z wire_bytes %z
  }
}

// -----

// program_c7
chunk.schedule @s grain 1 accepts [f32] {
  chunk.program @p on async every(8 steps) staleness(1) {
    %z = arith.constant 0 : index
    // expected-error@+1 {{is not allowed in an async program: it belongs to a step of the job}}
    %g = chunk.job gradient
    chunk.cost rounds %z wire_bytes %z
  }
}

// -----

// program_c7
chunk.schedule @s grain 1 accepts [f32] {
  chunk.program @p on async every(8 steps) staleness(1) {
    %z = arith.constant 0 : index
    chunk.forall %r {
      // expected-error@+1 {{is not allowed in an async program: it belongs to a step of the job}}
      chunk.wait before_update
    }
    chunk.cost rounds %z wire_bytes %z
  }
}

// -----

// program_c7
chunk.schedule @s grain 1 accepts [f32] {
  chunk.program @p on async every(8 steps) staleness(1) {
    %z = arith.constant 0 : index
    chunk.forall %r {
      // expected-error@+1 {{is not allowed in an async program: it belongs to a step of the job}}
      chunk.if_finite {
      }
    }
    chunk.cost rounds %z wire_bytes %z
  }
}
