// RUN: bagua-opt %s --split-input-file --verify-diagnostics
// One case for each refusal; names are labels of SPEC.md, "chunk".

// schedule_c1
// expected-error@+1 {{attribute 'grain' failed to satisfy constraint: 64-bit signless integer attribute whose value is positive}}
"chunk.schedule"() <{sym_name = "s", grain = 0 : i64, dtypes = [f32]}> ({
^bb0:
}) : () -> ()

// -----

// schedule_c2_none
// expected-error@+1 {{expects at least one element type}}
chunk.schedule @s grain 1 accepts [] {
  chunk.declare_parameter @x = 1 : index
}

// -----

// schedule_c2_type
// expected-error@+1 {{expects element types f32 and f64, got 'f16'}}
chunk.schedule @s grain 1 accepts [f16] {
  chunk.declare_parameter @x = 1 : index
}

// -----

// schedule_c2_twice
// expected-error@+1 {{expects each element type once, got 'f32' twice}}
chunk.schedule @s grain 1 accepts [f32, f32] {
  chunk.declare_parameter @x = 1 : index
}

// -----

// schedule_c3
chunk.schedule @s grain 1 accepts [f32] {
  // expected-error@+1 {{expects only parameters, states and programs in a schedule}}
  %x = arith.constant 0 : index
}

// -----

// schedule_c4
chunk.schedule @s grain 1 accepts [f32] {
  chunk.program @p on gradient {
    %z = arith.constant 0 : index
    chunk.cost rounds %z wire_bytes %z
  }
  // expected-error@+1 {{expects one program for each event, got a second one on gradient}}
  chunk.program @q on gradient {
    %z = arith.constant 0 : index
    chunk.cost rounds %z wire_bytes %z
  }
}

// -----

// declare_parameter_c1
chunk.schedule @s grain 1 accepts [f32] {
  // expected-error@+1 {{expects a default of type index or f64, got 'i32'}}
  chunk.declare_parameter @x = 1 : i32
}

// -----

// declare_parameter_c2
chunk.schedule @s grain 1 accepts [f32] {
  // expected-error@+1 {{expects an index of at least 0 by default, got -1}}
  chunk.declare_parameter @x = -1 : index
}

// -----

// declare_parameter_c2
chunk.schedule @s grain 1 accepts [f32] {
  // expected-error@+1 {{expects an index of at most 2^53 by default, got 9007199254740993}}
  chunk.declare_parameter @x = 9007199254740993 : index
}

// -----

// program_c1_none
chunk.schedule @s grain 1 accepts [f32] {
  // expected-error@+1 {{expects exactly one chunk.cost, got 0}}
  chunk.program @p on gradient {
    %z = arith.constant 0 : index
  }
}

// -----

// program_c1_two
chunk.schedule @s grain 1 accepts [f32] {
  // expected-error@+1 {{expects exactly one chunk.cost, got 2}}
  chunk.program @p on gradient {
    %z = arith.constant 0 : index
    chunk.cost rounds %z wire_bytes %z
    chunk.cost rounds %z wire_bytes %z
  }
}

// -----

// parameter_c1
chunk.schedule @s grain 1 accepts [f32] {
  chunk.program @p on gradient {
    // expected-error@+1 {{expects a parameter of the schedule, got @x}}
    %x = chunk.parameter @x : index
    %z = arith.constant 0 : index
    chunk.cost rounds %z wire_bytes %z
  }
}

// -----

// parameter_c2
chunk.schedule @s grain 1 accepts [f32] {
  chunk.declare_parameter @x = 1.0 : f64
  chunk.program @p on gradient {
    // expected-error@+1 {{expects the declared type 'f64', got 'index'}}
    %x = chunk.parameter @x : index
    %z = arith.constant 0 : index
    chunk.cost rounds %z wire_bytes %z
  }
}

// -----

// forall_c1
chunk.schedule @s grain 1 accepts [f32] {
  chunk.program @p on gradient {
    // expected-error@+1 {{expects a body with one argument of type index, got 0 arguments}}
    "chunk.forall"() ({
      %x = chunk.world
    }) : () -> ()
    %z = arith.constant 0 : index
    chunk.cost rounds %z wire_bytes %z
  }
}

// -----

// forall_c2
chunk.schedule @s grain 1 accepts [f32] {
  chunk.program @p on gradient {
    chunk.forall %r {
      %one = arith.constant 1 : index
      chunk.for %k = %one to %one {
        // expected-error@+1 {{expects not to be inside another chunk.forall}}
        chunk.forall %q {}
      }
    }
    %z = arith.constant 0 : index
    chunk.cost rounds %z wire_bytes %z
  }
}

// -----

// for_c1
chunk.schedule @s grain 1 accepts [f32] {
  chunk.program @p on gradient {
    %one = arith.constant 1 : index
    // expected-error@+1 {{expects a body with one argument of type index, got 2 arguments}}
    "chunk.for"(%one, %one) ({
    ^bb0(%a: index, %b: index):
      %x = chunk.world
    }) : (index, index) -> ()
    %z = arith.constant 0 : index
    chunk.cost rounds %z wire_bytes %z
  }
}

// -----

// if_c1
chunk.schedule @s grain 1 accepts [f32] {
  chunk.program @p on gradient {
    %yes = arith.constant true
    // expected-error@+1 {{region #0 ('then') failed to verify constraint: region with 1 blocks}}
    "chunk.if"(%yes) ({}, {}) : (i1) -> ()
    %z = arith.constant 0 : index
    chunk.cost rounds %z wire_bytes %z
  }
}

// -----

// rank_c1
chunk.schedule @s grain 1 accepts [f32] {
  chunk.program @p on gradient {
    chunk.forall %r {
      // expected-error@+1 {{expects parent op 'chunk.program'}}
      %x = chunk.rank
    }
    %z = arith.constant 0 : index
    chunk.cost rounds %z wire_bytes %z
  }
}

// -----

// slots_in_program
chunk.schedule @s grain 1 accepts [f32] {
  chunk.program @p on gradient {
    %one = arith.constant 1 : index
    chunk.forall %r {
      // expected-error@+1 {{expects parent op 'chunk.program'}}
      %x = chunk.slots %one, %one
    }
    %z = arith.constant 0 : index
    chunk.cost rounds %z wire_bytes %z
  }
}

// -----

// gather_c1
chunk.schedule @s grain 1 accepts [f32] {
  chunk.program @p on gradient {
    %one = arith.constant 1 : index
    %g = chunk.job gradient
    %x = chunk.range %g[%one, %one]
    // expected-error@+1 {{expects a body with one argument of type index, got 0 arguments}}
    %l = "chunk.gather"(%one, %one) ({
      chunk.yield %x
    }) : (index, index) -> !chunk.ranges
    %z = arith.constant 0 : index
    chunk.cost rounds %z wire_bytes %z
  }
}

// -----

// gather_c2
chunk.schedule @s grain 1 accepts [f32] {
  chunk.program @p on gradient {
    %one = arith.constant 1 : index
    %g = chunk.job gradient
    chunk.forall %r {
      // expected-error@+1 {{expects a body without effects, got chunk.wait}}
      %l = chunk.gather %p = %one to %one {
        %x = chunk.range %g[%one, %one]
        chunk.wait before_update
        chunk.yield %x
      }
    }
    %z = arith.constant 0 : index
    chunk.cost rounds %z wire_bytes %z
  }
}

// -----

// yield_c1
chunk.schedule @s grain 1 accepts [f32] {
  chunk.program @p on gradient {
    %one = arith.constant 1 : index
    %l = chunk.gather %p = %one to %one {
      // expected-error@+1 {{expects at least one range}}
      chunk.yield
    }
    %z = arith.constant 0 : index
    chunk.cost rounds %z wire_bytes %z
  }
}

// -----

// yield_c2
chunk.schedule @s grain 1 accepts [f32] {
  chunk.program @p on gradient {
    %one = arith.constant 1 : index
    %yes = arith.constant true
    %g = chunk.job gradient
    %x = chunk.range %g[%one, %one]
    %l = chunk.gather %p = %one to %one {
      // expected-error@+1 {{expects a condition for each of 2 ranges or none, got 1}}
      "chunk.yield"(%x, %x, %yes) <{operandSegmentSizes = array<i32: 2, 1>}> : (!chunk.range, !chunk.range, i1) -> ()
    }
    %z = arith.constant 0 : index
    chunk.cost rounds %z wire_bytes %z
  }
}

// -----

// move_c1
chunk.schedule @s grain 1 accepts [f32] {
  chunk.program @p on gradient {
    %one = arith.constant 1 : index
    %g = chunk.job gradient
    %in = chunk.slots %one, %one
    %x = chunk.range %g[%one, %one]
    // expected-error@+1 {{expects to be inside a chunk.forall}}
    chunk.move %x to rotate(%one) into %in[%one]
    %z = arith.constant 0 : index
    chunk.cost rounds %z wire_bytes %z
  }
}

// -----

// launch_c1
chunk.schedule @s grain 1 accepts [f32] {
  chunk.program @p on gradient {
    %one = arith.constant 1 : index
    %g = chunk.job gradient
    %x = chunk.range %g[%one, %one]
    // expected-error@+1 {{expects to be inside a chunk.forall}}
    chunk.launch "copy" count %one ins(%x : !chunk.range) outs(%x : !chunk.range)
    %z = arith.constant 0 : index
    chunk.cost rounds %z wire_bytes %z
  }
}

// -----

// launch_c2
chunk.schedule @s grain 1 accepts [f32] {
  chunk.program @p on gradient {
    %one = arith.constant 1 : index
    %g = chunk.job gradient
    %x = chunk.range %g[%one, %one]
    chunk.forall %r {
      // expected-error@+1 {{expects at least one output}}
      chunk.launch "copy" count %one ins(%x : !chunk.range)
    }
    %z = arith.constant 0 : index
    chunk.cost rounds %z wire_bytes %z
  }
}

// -----

// launch_c3
chunk.schedule @s grain 1 accepts [f32] {
  chunk.program @p on gradient {
    %one = arith.constant 1 : index
    %g = chunk.job gradient
    %x = chunk.range %g[%one, %one]
    chunk.forall %r {
      // expected-error@+1 {{expects constant 'bits' to be a 64-bit integer or a map's code, got 8 : i32}}
      chunk.launch "copy" with {bits = 8 : i32} count %one ins(%x : !chunk.range) outs(%x : !chunk.range)
    }
    %z = arith.constant 0 : index
    chunk.cost rounds %z wire_bytes %z
  }
}

// -----

// launch_c4
chunk.schedule @s grain 1 accepts [f32] {
  chunk.program @p on gradient {
    %one = arith.constant 1 : index
    %g = chunk.job gradient
    %x = chunk.range %g[%one, %one]
    chunk.forall %r {
      // expected-error@+1 {{expects a kernel's name, got an empty one}}
      chunk.launch "" count %one ins(%x : !chunk.range) outs(%x : !chunk.range)
    }
    %z = arith.constant 0 : index
    chunk.cost rounds %z wire_bytes %z
  }
}

// -----

// wait_c1
chunk.schedule @s grain 1 accepts [f32] {
  chunk.program @p on gradient {
    // expected-error@+1 {{expects to be inside a chunk.forall}}
    chunk.wait before_update
    %z = arith.constant 0 : index
    chunk.cost rounds %z wire_bytes %z
  }
}

// -----

// schedule_c5
chunk.schedule @s grain 1 accepts [f32] {
  chunk.declare_state @m bucket = 0.0 on_resize mean
  // expected-note@+1 {{this one does}}
  chunk.program @p on gradient {
    %z = arith.constant 0 : index
    %m = chunk.state @m next
    chunk.cost rounds %z wire_bytes %z
  }
  chunk.program @q on after_update {
    %z = arith.constant 0 : index
    %reads = chunk.state @m
    // expected-error@+1 {{expects a state that no other program writes, got @m}}
    %m = chunk.state @m next
    chunk.cost rounds %z wire_bytes %z
  }
}

// -----

// declare_state_c1_none
chunk.schedule @s grain 1 accepts [f32] {
  // expected-error@+1 {{expects a number of buckets for a state of domain neighbors, got none}}
  chunk.declare_state @m neighbors = 0.0 on_resize zero
}

// -----

// declare_state_c1_range
chunk.schedule @s grain 1 accepts [f32] {
  // expected-error@+1 {{expects 1 to 16 buckets for a state of domain neighbors, got 0}}
  chunk.declare_state @m neighbors(0) = 0.0 on_resize zero
}

// -----

// declare_state_c1_domain
chunk.schedule @s grain 1 accepts [f32] {
  // expected-error@+1 {{expects no number of buckets for a state of domain shard, got 2}}
  chunk.declare_state @m shard(2) = 0.0 on_resize zero
}

// -----

// declare_state_c2
chunk.schedule @s grain 1 accepts [f32] {
  // expected-error@+1 {{expects a finite initial value, got 0x7FF8000000000000}}
  chunk.declare_state @m bucket = 0x7FF8000000000000 on_resize zero
}

// -----

// declare_state_c3_repartition
chunk.schedule @s grain 1 accepts [f32] {
  // expected-error@+1 {{expects mean or zero on resize of a state of domain scalar, got repartition}}
  chunk.declare_state @m scalar = 0.0 on_resize repartition
}

// -----

// declare_state_c3_shard
chunk.schedule @s grain 1 accepts [f32] {
  // expected-error@+1 {{expects repartition or zero on resize of a state of domain shard, got mean}}
  chunk.declare_state @m shard = 0.0 on_resize mean
}

// -----

// declare_state_c3_neighbors
chunk.schedule @s grain 1 accepts [f32] {
  // expected-error@+1 {{expects zero on resize of a state of domain neighbors, got mean}}
  chunk.declare_state @m neighbors(1) = weight on_resize mean
}

// -----

// declare_state_c4
chunk.schedule @s grain 1 accepts [f32] {
  // expected-error@+1 {{expects a number as the initial value of a state of domain shard, got weight}}
  chunk.declare_state @m shard = weight on_resize zero
}

// -----

// state_c1
chunk.schedule @s grain 1 accepts [f32] {
  chunk.program @p on gradient {
    %z = arith.constant 0 : index
    // expected-error@+1 {{'chunk.state' op expects a state of the schedule, got @p}}
    %m = chunk.state @p
    chunk.cost rounds %z wire_bytes %z
  }
}

// -----

// publish_c1
chunk.schedule @s grain 1 accepts [f32] {
  chunk.declare_state @m bucket = 0.0 on_resize mean
  chunk.program @p on gradient {
    %z = arith.constant 0 : index
    // expected-error@+1 {{expects to be inside a chunk.forall}}
    chunk.publish @m
    chunk.cost rounds %z wire_bytes %z
  }
}

// -----

// publish_c2
chunk.schedule @s grain 1 accepts [f32] {
  chunk.program @p on gradient {
    %z = arith.constant 0 : index
    chunk.forall %r {
      // expected-error@+1 {{'chunk.publish' op expects a state of the schedule, got @m}}
      chunk.publish @m
    }
    chunk.cost rounds %z wire_bytes %z
  }
}

// -----

// if_finite_c1
chunk.schedule @s grain 1 accepts [f32] {
  chunk.program @p on gradient {
    %z = arith.constant 0 : index
    // expected-error@+1 {{expects to be inside a chunk.forall}}
    chunk.if_finite {
    }
    chunk.cost rounds %z wire_bytes %z
  }
}

// -----

// if_finite_c2
chunk.schedule @s grain 1 accepts [f32] {
  chunk.program @p on gradient {
    %z = arith.constant 0 : index
    chunk.forall %r {
      chunk.if_finite {
        // expected-error@+1 {{'chunk.wait' op expects not to be inside chunk.if_finite}}
        chunk.wait before_update
      }
    }
    chunk.cost rounds %z wire_bytes %z
  }
}

// -----

// peer_c1
chunk.schedule @s grain 1 accepts [f32] {
  chunk.program @p on gradient {
    %z = arith.constant 0 : index
    // expected-error@+1 {{expects 2 arguments of the peer map pairing, got 1}}
    %p = chunk.peer pairing(%z)
    chunk.cost rounds %z wire_bytes %z
  }
}

// -----

// move_c6
chunk.schedule @s grain 1 accepts [f32] {
  chunk.program @p on gradient {
    %z = arith.constant 0 : index
    %g = chunk.job gradient
    %in = chunk.slots %z, %z
    chunk.forall %r {
      %x = chunk.range %g[%z, %z]
      // expected-error@+1 {{expects 1 argument of the peer map rotate, got 2}}
      chunk.move %x to rotate(%z, %z) into %in[%z]
    }
    chunk.cost rounds %z wire_bytes %z
  }
}

// -----

// launch_c3_nested
chunk.schedule @s grain 1 accepts [f32] {
  chunk.program @p on gradient {
    %z = arith.constant 0 : index
    %g = chunk.job gradient
    chunk.forall %r {
      %x = chunk.range %g[%z, %z]
      // expected-error@+1 {{expects constant 'encode' to be a 64-bit integer or a map's code}}
      chunk.launch "codec_encode" with {encode = {code = {deep = 1}}} count %z ins(%x : !chunk.range) outs(%x : !chunk.range)
    }
    chunk.cost rounds %z wire_bytes %z
  }
}

// -----

// range_c2
chunk.schedule @s grain 1 accepts [f32] {
  chunk.program @p on gradient {
    %zero = arith.constant 0 : index
    %g = chunk.job gradient
    // expected-error@+1 {{expects a part where it says of which group, got none: of cross}}
    %x = chunk.range %g[%zero, %zero] of cross
    chunk.cost rounds %zero wire_bytes %zero
  }
}
