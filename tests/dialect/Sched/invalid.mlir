// RUN: bagua-opt %s --split-input-file --verify-diagnostics

// @schedule_c1
// expected-error@+1 {{'sched.schedule' op expects a grain of at least 1, got 0}}
sched.schedule @negative_grain grain 0 accepts [f32] {
}

// -----

// @schedule_c2
// expected-error@+1 {{'sched.schedule' op expects at least one element type}}
sched.schedule @negative_accepts_nothing grain 1 accepts [] {
}

// -----

// @schedule_c2
// expected-error@+1 {{'sched.schedule' op expects element types f32 and f64, got 'i32'}}
sched.schedule @negative_accepts_i32 grain 1 accepts [f32, i32] {
}

// -----

// @schedule_c2
// expected-error@+1 {{'sched.schedule' op expects each element type once, got 'f32' twice}}
sched.schedule @negative_accepts_twice grain 1 accepts [f32, f32] {
}

// -----

// @schedule_c3
sched.schedule @negative_body grain 1 accepts [f32] {
  // expected-error@+1 {{'arith.constant' op expects only parameters, states and programs in a schedule}}
  %c0 = arith.constant 0 : index
}

// -----

// @schedule_c4
sched.schedule @negative_two_programs grain 1 accepts [f32] {
  sched.program @a on gradient {
    %c0 = arith.constant 0 : index
    sched.cost rounds %c0 wire_bytes %c0
  }
  // expected-error@+1 {{'sched.program' op expects one program for each event, got a second one on gradient}}
  sched.program @b on gradient {
    %c0 = arith.constant 0 : index
    sched.cost rounds %c0 wire_bytes %c0
  }
}

// -----

sched.schedule @negative_same_name grain 1 accepts [f32] {
  // expected-note@+1 {{see existing symbol definition here}}
  sched.declare_parameter @p = 1 : index
  // expected-error@+1 {{redefinition of symbol named 'p'}}
  sched.declare_parameter @p = 1.0 : f64
}

// -----

// @declare_parameter_c1
sched.schedule @negative_parameter_type grain 1 accepts [f32] {
  // expected-error@+1 {{'sched.declare_parameter' op expects a default of type index or f64, got 'f32'}}
  sched.declare_parameter @beta = 0.9 : f32
}

// -----

// @parameter_c1
sched.schedule @negative_unknown_parameter grain 1 accepts [f32] {
  sched.program @p on gradient {
    // expected-error@+1 {{'sched.parameter' op expects a parameter of the schedule, got @warmup}}
    %p = sched.parameter @warmup : index
    sched.cost rounds %p wire_bytes %p
  }
}

// -----

// @parameter_c2
sched.schedule @negative_parameter_of_other_type grain 1 accepts [f32] {
  sched.declare_parameter @beta = 0.9 : f64
  sched.program @p on gradient {
    // expected-error@+1 {{'sched.parameter' op expects the declared type 'f64', got 'index'}}
    %p = sched.parameter @beta : index
    sched.cost rounds %p wire_bytes %p
  }
}

// -----

// @program_c1: the only other terminator belongs in gathers.
sched.schedule @negative_no_cost grain 1 accepts [f32] {
  // expected-error@+1 {{'sched.program' op expects a non-empty block}}
  sched.program @p on gradient {
  }
}

// -----

// @program_c1
sched.schedule @negative_ends_otherwise grain 1 accepts [f32] {
  sched.program @p on gradient {
    // expected-error@+1 {{block with no terminator}}
    %c0 = arith.constant 0 : index
  }
}

// -----

// @program_c2
sched.schedule @negative_foreign_op grain 1 accepts [f32] {
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    // expected-error@+1 {{'arith.shli' op expects ops of the sched dialect and arithmetic that a schedule file can say}}
    %x = arith.shli %c0, %c0 : index
    sched.cost rounds %c0 wire_bytes %c0
  }
}

// -----

// @program_c2
sched.schedule @negative_bitwise grain 1 accepts [f32] {
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    // expected-error@+1 {{'arith.andi' op expects ops of the sched dialect and arithmetic that a schedule file can say}}
    %x = arith.andi %c0, %c0 : index
    sched.cost rounds %c0 wire_bytes %c0
  }
}

// -----

// @program_c2
sched.schedule @negative_f32_arithmetic grain 1 accepts [f32] {
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    // expected-error@+1 {{'arith.constant' op expects index, i1, i32, i64 or f64 in a program, got 'f32'}}
    %x = arith.constant 1.0 : f32
    sched.cost rounds %c0 wire_bytes %c0
  }
}

// -----

// @program_c3
sched.schedule @negative_size_of_step_time grain 1 accepts [f32] {
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    %s = sched.step
    %twice = arith.addi %s, %s : index
    // expected-error@+1 {{'sched.scratch' op expects its size to be known at bind time, got one that depends on the step}}
    %q = sched.scratch "q" bytes %twice
    sched.cost rounds %c0 wire_bytes %c0
  }
}

// -----

// @program_c3
sched.schedule @negative_count_of_step_time grain 1 accepts [f32] {
  sched.declare_parameter @k = 1 : index per_step
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    %k = sched.parameter @k : index
    // expected-error@+1 {{'sched.slots' op expects its count to be known at bind time, got one that depends on the step}}
    %in = sched.slots "in" count %k bytes %c0
    sched.cost rounds %c0 wire_bytes %c0
  }
}

// -----

// @program_c3
sched.schedule @negative_slot_size_of_step_time grain 1 accepts [f32] {
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    %s = sched.step
    // expected-error@+1 {{'sched.slots' op expects its size to be known at bind time}}
    %in = sched.slots "in" count %c0 bytes %s
    sched.cost rounds %c0 wire_bytes %c0
  }
}

// -----

// @program_c3
sched.schedule @negative_event_count_of_step_time grain 1 accepts [f32] {
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    %s = sched.step
    // expected-error@+1 {{'sched.events' op expects its count to be known at bind time}}
    %e = sched.events "e" count %s
    sched.cost rounds %c0 wire_bytes %c0
  }
}

// -----

// @program_c3
sched.schedule @negative_bound_of_step_time grain 1 accepts [f32] {
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    %s = sched.step
    // expected-error@+1 {{'sched.for' op expects its bound to be known at bind time}}
    sched.for %i = %c0 to %s {
    }
    sched.cost rounds %c0 wire_bytes %c0
  }
}

// -----

// @program_c3
sched.schedule @negative_condition_of_step_time grain 1 accepts [f32] {
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    %s = sched.step
    %first = arith.cmpi eq, %s, %c0 : index
    // expected-error@+1 {{'sched.if' op expects its condition to be known at bind time}}
    sched.if %first {
    }
    sched.cost rounds %c0 wire_bytes %c0
  }
}

// -----

// @program_c3
sched.schedule @negative_gather_bound_of_step_time grain 1 accepts [f32] {
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    %s = sched.step
    %g = sched.job "g" gradient
    // expected-error@+1 {{'sched.gather' op expects its bound to be known at bind time}}
    %xs = sched.gather %i = %c0 to %s {
      %x = sched.range %g[%c0, %c0]
      sched.yield %x : !sched.range
    } : !sched.ranges
    sched.cost rounds %c0 wire_bytes %c0
  }
}

// -----

// @program_c3
sched.schedule @negative_offset_of_step_time grain 1 accepts [f32] {
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    %s = sched.step
    %g = sched.job "g" gradient
    // expected-error@+1 {{'sched.range' op expects its offset to be known at bind time}}
    %x = sched.range %g[%s, %c0]
    sched.cost rounds %c0 wire_bytes %c0
  }
}

// -----

// @program_c3
sched.schedule @negative_when_of_step_time grain 1 accepts [f32] {
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    %s = sched.step
    %first = arith.cmpi eq, %s, %c0 : index
    %g = sched.job "g" gradient
    // expected-error@+1 {{'sched.range' op expects its 'when' to be known at bind time}}
    %x = sched.range %g[%c0, %c0] when %first
    sched.cost rounds %c0 wire_bytes %c0
  }
}

// -----

// @program_c3
sched.schedule @negative_slot_of_step_time grain 1 accepts [f32] {
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    %s = sched.step
    %in = sched.slots "in" count %c0 bytes %c0
    // expected-error@+1 {{'sched.view' op expects its slot to be known at bind time}}
    %x = sched.view %in[%s][%c0, %c0]
    sched.cost rounds %c0 wire_bytes %c0
  }
}

// -----

// @program_c3
sched.schedule @negative_event_of_step_time grain 1 accepts [f32] {
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    %s = sched.step
    %e = sched.events "e" count %c0
    // expected-error@+1 {{'sched.event' op expects its event index to be known at bind time}}
    %x = sched.event %e[%s]
    sched.cost rounds %c0 wire_bytes %c0
  }
}

// -----

// @program_c3: the peer may depend on the step, the size may not.
sched.schedule @negative_send_of_step_time grain 1 accepts [f32] {
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    %s = sched.step
    %g = sched.job "g" gradient
    sched.send %g[%c0, %c0] to %s channel 0
    // expected-error@+1 {{'sched.send' op expects its size to be known at bind time}}
    sched.send %g[%c0, %s] to %c0 channel 0
    sched.cost rounds %c0 wire_bytes %c0
  }
}

// -----

// @program_c3
sched.schedule @negative_recv_of_step_time grain 1 accepts [f32] {
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    %s = sched.step
    %in = sched.slots "in" count %c0 bytes %c0
    sched.recv %in[%c0] bytes %c0 from %s channel 0
    // expected-error@+1 {{'sched.recv' op expects its slot to be known at bind time}}
    sched.recv %in[%s] bytes %c0 from %c0 channel 0
    sched.cost rounds %c0 wire_bytes %c0
  }
}

// -----

// @program_c3
sched.schedule @negative_release_of_step_time grain 1 accepts [f32] {
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    %s = sched.step
    %in = sched.slots "in" count %c0 bytes %c0
    // expected-error@+1 {{'sched.release' op expects its slot to be known at bind time}}
    sched.release %in[%s] on cpu
    sched.cost rounds %c0 wire_bytes %c0
  }
}

// -----

// @program_c3: scalars and guards may depend on the step, the count may not.
sched.schedule @negative_launch_of_step_time grain 1 accepts [f32] {
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    %s = sched.step
    %first = arith.cmpi eq, %s, %c0 : index
    %g = sched.job "g" gradient
    %x = sched.range %g[%c0, %c0]
    sched.launch "mix" {} count %c0 ins(%x, %x : !sched.range, !sched.range) outs(%x : !sched.range) scalars(%s : index) guard %first
    // expected-error@+1 {{'sched.launch' op expects its count to be known at bind time}}
    sched.launch "copy" {} count %s ins(%x : !sched.range) outs(%x : !sched.range)
    sched.cost rounds %c0 wire_bytes %c0
  }
}

// -----

// @program_c3
sched.schedule @negative_signal_of_step_time grain 1 accepts [f32] {
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    %s = sched.step
    %e = sched.events "e" count %c0
    // expected-error@+1 {{'sched.wait_gate' op expects its event index to be known at bind time}}
    sched.wait_gate before_update on cpu signals %e[%s]
    sched.cost rounds %c0 wire_bytes %c0
  }
}

// -----

// @program_c4: one space of names for buffers, slots and events.
sched.schedule @negative_name_twice grain 1 accepts [f32] {
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    // expected-note@+1 {{the first one}}
    %a = sched.scratch "x" bytes %c0
    // expected-error@+1 {{'sched.events' op expects a unique name, got a second 'x'}}
    %b = sched.events "x" count %c0
    sched.cost rounds %c0 wire_bytes %c0
  }
}

// -----

// @program_c4
sched.schedule @negative_no_name grain 1 accepts [f32] {
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    // expected-error@+1 {{'sched.scratch' op expects a name}}
    %a = sched.scratch "" bytes %c0
    sched.cost rounds %c0 wire_bytes %c0
  }
}

// -----

// @program_c5
sched.schedule @negative_role_twice grain 1 accepts [f32] {
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    %a = sched.job "a" weight
    // expected-error@+1 {{'sched.job' op expects one buffer for each role, got a second one for weight}}
    %b = sched.job "b" weight
    sched.cost rounds %c0 wire_bytes %c0
  }
}

// -----

// @program_c6
sched.schedule @negative_writes_view grain 1 accepts [f32] {
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    %g = sched.job "g" gradient
    %in = sched.slots "in" count %c0 bytes %c0
    %x = sched.range %g[%c0, %c0]
    %v = sched.view %in[%c0][%c0, %c0]
    // expected-error@+1 {{'sched.launch' op expects outputs in buffers, got a view of a received message}}
    sched.launch "copy" {} count %c0 ins(%x : !sched.range) outs(%v : !sched.range)
    sched.cost rounds %c0 wire_bytes %c0
  }
}

// -----

// @program_c6
sched.schedule @negative_writes_views grain 1 accepts [f32] {
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    %g = sched.job "g" gradient
    %in = sched.slots "in" count %c0 bytes %c0
    %x = sched.range %g[%c0, %c0]
    %vs = sched.gather %i = %c0 to %c0 {
      %v = sched.view %in[%i][%c0, %c0]
      sched.yield %v : !sched.range
    } : !sched.ranges
    // expected-error@+1 {{'sched.launch' op expects outputs in buffers, got a view of a received message}}
    sched.launch "copy" {} count %c0 ins(%x : !sched.range) outs(%vs : !sched.ranges)
    sched.cost rounds %c0 wire_bytes %c0
  }
}

// -----

// Declarations stand at the top of a program.
sched.schedule @negative_declaration_in_loop grain 1 accepts [f32] {
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    sched.for %i = %c0 to %c0 {
      // expected-error@+1 {{'sched.scratch' op expects parent op 'sched.program'}}
      %q = sched.scratch "q" bytes %i
    }
    sched.cost rounds %c0 wire_bytes %c0
  }
}

// -----

// Gathers do not stand in one another.
sched.schedule @negative_gather_in_gather grain 1 accepts [f32] {
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    %e = sched.events "e" count %c0
    %xs = sched.gather %i = %c0 to %c0 {
      // expected-error@+1 {{'sched.gather' op expects parent op to be one of 'sched.program, sched.for, sched.if'}}
      %ys = sched.gather %j = %c0 to %c0 {
        %y = sched.event %e[%j]
        sched.yield %y : !sched.event
      } : !sched.event_list
      %x = sched.event %e[%i]
      sched.yield %x : !sched.event
    } : !sched.event_list
    sched.cost rounds %c0 wire_bytes %c0
  }
}

// -----

// Steps stand in no gather.
sched.schedule @negative_step_in_gather grain 1 accepts [f32] {
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    %e = sched.events "e" count %c0
    %xs = sched.gather %i = %c0 to %c0 {
      // expected-error@+1 {{'sched.wait_gate' op expects parent op to be one of 'sched.program, sched.for, sched.if'}}
      sched.wait_gate before_update on cpu
      %x = sched.event %e[%i]
      sched.yield %x : !sched.event
    } : !sched.event_list
    sched.cost rounds %c0 wire_bytes %c0
  }
}

// -----

// A loop variable is seen in its loop only.
sched.schedule @negative_variable_out_of_scope grain 1 accepts [f32] {
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    sched.for %i = %c0 to %c0 {
      %j = arith.addi %i, %i : index
    }
    // expected-error@+1 {{use of undeclared SSA value name}}
    sched.cost rounds %c0 wire_bytes %j
  }
}

// -----

// A program sees nothing from outside.
%outside = arith.constant 0 : index
sched.schedule @negative_from_outside grain 1 accepts [f32] {
  // expected-note@+1 {{required by region isolation constraints}}
  sched.program @p on gradient {
    // expected-error@+1 {{'sched.cost' op using value defined outside the region}}
    sched.cost rounds %outside wire_bytes %outside
  }
}

// -----

// @gather_c1
sched.schedule @negative_gather_of_both grain 1 accepts [f32] {
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    %g = sched.job "g" gradient
    %e = sched.events "e" count %c0
    %xs = sched.gather %i = %c0 to %c0 {
      %x = sched.range %g[%c0, %c0]
      %y = sched.event %e[%i]
      // expected-error@+1 {{'sched.yield' op expects ranges in a list of ranges, got '!sched.event'}}
      sched.yield %x, %y : !sched.range, !sched.event
    } : !sched.ranges
    sched.cost rounds %c0 wire_bytes %c0
  }
}

// -----

// @gather_c1
sched.schedule @negative_gather_of_ranges_as_events grain 1 accepts [f32] {
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    %g = sched.job "g" gradient
    %xs = sched.gather %i = %c0 to %c0 {
      %x = sched.range %g[%c0, %c0]
      // expected-error@+1 {{'sched.yield' op expects events in a list of events, got '!sched.range'}}
      sched.yield %x : !sched.range
    } : !sched.event_list
    sched.cost rounds %c0 wire_bytes %c0
  }
}

// -----

// @gather_c2
sched.schedule @negative_gather_of_nothing grain 1 accepts [f32] {
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    %xs = sched.gather %i = %c0 to %c0 {
      // expected-error@+1 {{'sched.yield' op expects at least one reference}}
      sched.yield
    } : !sched.event_list
    sched.cost rounds %c0 wire_bytes %c0
  }
}

// -----

// @for_c1
sched.schedule @negative_loop_of_two_variables grain 1 accepts [f32] {
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    // expected-error@+1 {{'sched.for' op expects one loop variable of type index}}
    "sched.for"(%c0, %c0) ({
    ^bb0(%i: index, %j: index):
    }) : (index, index) -> ()
    sched.cost rounds %c0 wire_bytes %c0
  }
}

// -----

// @gather_c3
sched.schedule @negative_gather_without_variable grain 1 accepts [f32] {
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    %e = sched.events "e" count %c0
    // expected-error@+1 {{'sched.gather' op expects one loop variable of type index}}
    %xs = "sched.gather"(%c0, %c0) ({
      %x = sched.event %e[%c0]
      sched.yield %x : !sched.event
    }) : (index, index) -> !sched.event_list
    sched.cost rounds %c0 wire_bytes %c0
  }
}

// -----

// @send_c1
sched.schedule @negative_send_channel grain 1 accepts [f32] {
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    %g = sched.job "g" gradient
    // expected-error@+1 {{'sched.send' op expects a channel of at least 0, got -1}}
    sched.send %g[%c0, %c0] to %c0 channel -1
    sched.cost rounds %c0 wire_bytes %c0
  }
}

// -----

// @send_c2
sched.schedule @negative_send_signal grain 1 accepts [f32] {
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    %g = sched.job "g" gradient
    %e = sched.events "e" count %c0
    // expected-error@+1 {{'sched.send' op expects an index with the event array that it signals, got none}}
    "sched.send"(%g, %c0, %c0, %c0, %e) {channel = 0 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 1, 0, 0>}
      : (!sched.buffer, index, index, index, !sched.events) -> ()
    sched.cost rounds %c0 wire_bytes %c0
  }
}

// -----

// @recv_c1
sched.schedule @negative_recv_channel grain 1 accepts [f32] {
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    %in = sched.slots "in" count %c0 bytes %c0
    // expected-error@+1 {{'sched.recv' op expects a channel of at least 0, got -7}}
    sched.recv %in[%c0] bytes %c0 from %c0 channel -7
    sched.cost rounds %c0 wire_bytes %c0
  }
}

// -----

// @recv_c2
sched.schedule @negative_recv_signal grain 1 accepts [f32] {
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    %in = sched.slots "in" count %c0 bytes %c0
    // expected-error@+1 {{'sched.recv' op expects an index with the event array that it signals, got an index without an array}}
    "sched.recv"(%in, %c0, %c0, %c0, %c0) {channel = 0 : i32, operandSegmentSizes = array<i32: 1, 1, 1, 1, 0, 0, 1, 0>}
      : (!sched.slots, index, index, index, index) -> ()
    sched.cost rounds %c0 wire_bytes %c0
  }
}

// -----

// @release_c1
sched.schedule @negative_release_signal grain 1 accepts [f32] {
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    %in = sched.slots "in" count %c0 bytes %c0
    // expected-error@+1 {{'sched.release' op expects an index with the event array that it signals, got an index without an array}}
    "sched.release"(%in, %c0, %c0) {queue = #sched<queue cpu>, operandSegmentSizes = array<i32: 1, 1, 0, 0, 1, 0>}
      : (!sched.slots, index, index) -> ()
    sched.cost rounds %c0 wire_bytes %c0
  }
}

// -----

// @launch_c1
sched.schedule @negative_kernel_attribute grain 1 accepts [f32] {
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    %g = sched.job "g" gradient
    %x = sched.range %g[%c0, %c0]
    // expected-error@+1 {{'sched.launch' op expects an i64 or a map's code for kernel attribute 'bits', got "eight"}}
    sched.launch "minmax_encode" {bits = "eight"} count %c0 ins(%x : !sched.range) outs(%x : !sched.range)
    sched.cost rounds %c0 wire_bytes %c0
  }
}

// -----

// @launch_c1
sched.schedule @negative_kernel_attribute_width grain 1 accepts [f32] {
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    %g = sched.job "g" gradient
    %x = sched.range %g[%c0, %c0]
    // expected-error@+1 {{'sched.launch' op expects an i64 or a map's code for kernel attribute 'bits', got 8 : i32}}
    sched.launch "minmax_encode" {bits = 8 : i32} count %c0 ins(%x : !sched.range) outs(%x : !sched.range)
    sched.cost rounds %c0 wire_bytes %c0
  }
}

// -----

// @launch_c2
sched.schedule @negative_launch_signal grain 1 accepts [f32] {
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    %g = sched.job "g" gradient
    %e = sched.events "e" count %c0
    %x = sched.range %g[%c0, %c0]
    // expected-error@+1 {{'sched.launch' op expects an index with the event array that it signals, got none}}
    "sched.launch"(%c0, %x, %x, %e) {kernel = "copy", kernel_attributes = {}, operandSegmentSizes = array<i32: 1, 1, 1, 0, 0, 1, 0, 0>}
      : (index, !sched.range, !sched.range, !sched.events) -> ()
    sched.cost rounds %c0 wire_bytes %c0
  }
}

// -----

// @launch_c3
sched.schedule @negative_launch_without_output grain 1 accepts [f32] {
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    %g = sched.job "g" gradient
    %x = sched.range %g[%c0, %c0]
    // expected-error@+1 {{'sched.launch' op expects at least one output}}
    sched.launch "copy" {} count %c0 ins(%x : !sched.range)
    sched.cost rounds %c0 wire_bytes %c0
  }
}

// -----

// @wait_gate_c1
sched.schedule @negative_wait_gate_signal grain 1 accepts [f32] {
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    // expected-error@+1 {{'sched.wait_gate' op expects an index with the event array that it signals, got an index without an array}}
    "sched.wait_gate"(%c0) {gate = #sched<gate before_update>, queue = #sched<queue cpu>, operandSegmentSizes = array<i32: 0, 0, 1, 0>}
      : (index) -> ()
    sched.cost rounds %c0 wire_bytes %c0
  }
}

// -----

// expected-error@+1 {{'sched.step' op expects parent op to be one of}}
%s = sched.step

// -----

// @schedule_c5
sched.schedule @negative_two_writers grain 1 accepts [f32] {
  sched.declare_state @m bucket = 0.0 on_resize mean
  // expected-note@+1 {{this one does}}
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    %a = sched.state "a" @m next
    sched.cost rounds %c0 wire_bytes %c0
  }
  sched.program @q on after_update {
    %c0 = arith.constant 0 : index
    %reads = sched.state "reads" @m
    // expected-error@+1 {{'sched.state' op expects a state that no other program writes, got @m}}
    %b = sched.state "b" @m next
    sched.cost rounds %c0 wire_bytes %c0
  }
}

// -----

// @declare_state_c1
sched.schedule @negative_neighbors_without_a_number grain 1 accepts [f32] {
  // expected-error@+1 {{expects a number of buckets for a state of domain neighbors, got none}}
  sched.declare_state @m neighbors = 0.0 on_resize zero
}

// -----

// @declare_state_c1
sched.schedule @negative_many_neighbors grain 1 accepts [f32] {
  // expected-error@+1 {{expects 1 to 16 buckets for a state of domain neighbors, got 17}}
  sched.declare_state @m neighbors(17) = 0.0 on_resize zero
}

// -----

// @declare_state_c1
sched.schedule @negative_number_of_buckets grain 1 accepts [f32] {
  // expected-error@+1 {{expects no number of buckets for a state of domain bucket, got 2}}
  sched.declare_state @m bucket(2) = 0.0 on_resize zero
}

// -----

// @declare_state_c2
sched.schedule @negative_infinite_state grain 1 accepts [f32] {
  // expected-error@+1 {{expects a finite initial value, got 0x7FF0000000000000}}
  sched.declare_state @m bucket = 0x7FF0000000000000 on_resize zero
}

// -----

// @declare_state_c3
sched.schedule @negative_repartitioned_bucket grain 1 accepts [f32] {
  // expected-error@+1 {{expects mean or zero on resize of a state of domain bucket, got repartition}}
  sched.declare_state @m bucket = 0.0 on_resize repartition
}

// -----

// @declare_state_c3
sched.schedule @negative_mean_of_shards grain 1 accepts [f32] {
  // expected-error@+1 {{expects repartition or zero on resize of a state of domain shard, got mean}}
  sched.declare_state @m shard = 0.0 on_resize mean
}

// -----

// @declare_state_c3
sched.schedule @negative_mean_of_neighbors grain 1 accepts [f32] {
  // expected-error@+1 {{expects zero on resize of a state of domain neighbors, got mean}}
  sched.declare_state @m neighbors(2) = 0.0 on_resize mean
}

// -----

// @declare_state_c4
sched.schedule @negative_scalar_from_the_weight grain 1 accepts [f32] {
  // expected-error@+1 {{expects a number as the initial value of a state of domain scalar, got weight}}
  sched.declare_state @m scalar = weight on_resize zero
}

// -----

// @state_c1
sched.schedule @negative_unknown_state grain 1 accepts [f32] {
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    // expected-error@+1 {{'sched.state' op expects a state of the schedule, got @m}}
    %a = sched.state "a" @m
    sched.cost rounds %c0 wire_bytes %c0
  }
}

// -----

// @publish_c2
sched.schedule @negative_publish_unknown_state grain 1 accepts [f32] {
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    // expected-error@+1 {{'sched.publish' op expects a state of the schedule, got @m}}
    sched.publish @m
    sched.cost rounds %c0 wire_bytes %c0
  }
}

// -----

// @publish_c1
sched.schedule @negative_publish_signals_without_an_index grain 1 accepts [f32] {
  sched.declare_state @m bucket = 0.0 on_resize mean
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %e = sched.events "e" count %c1
    // expected-error@+1 {{'sched.publish' op expects an index with the event array that it signals, got none}}
    "sched.publish"(%e) <{operandSegmentSizes = array<i32: 0, 1, 0, 0>, state = @m}> : (!sched.events) -> ()
    sched.cost rounds %c0 wire_bytes %c0
  }
}

// -----

// @program_c5
sched.schedule @negative_two_buffers_of_a_state grain 1 accepts [f32] {
  sched.declare_state @m bucket = 0.0 on_resize mean
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    %a = sched.state "a" @m next
    %b = sched.state "b" @m
    // expected-error@+1 {{'sched.state' op expects one next buffer of a state, got a second one of @m}}
    %c = sched.state "c" @m next
    sched.cost rounds %c0 wire_bytes %c0
  }
}

// -----

// @program_c7
sched.schedule @negative_write_committed grain 1 accepts [f32] {
  sched.declare_state @m bucket = 0.0 on_resize mean
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    %n = sched.length
    %bytes = sched.element_bytes
    %g = sched.job "g" gradient
    %m = sched.state "m" @m
    %x = sched.range %g[%c0, %bytes]
    %y = sched.range %m[%c0, %bytes]
    // expected-error@+1 {{expects outputs in buffers that may be written, got the committed value of a state}}
    sched.launch "copy" {} count %n ins(%x : !sched.range) outs(%y : !sched.range)
    sched.cost rounds %c0 wire_bytes %c0
  }
}

// -----

// @step_c1
sched.schedule @negative_send_if_finite grain 1 accepts [f32] {
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %g = sched.job "g" gradient
    // expected-error@+1 {{'sched.send' op expects 'if_finite' on launches and publishes only}}
    sched.send %g[%c0, %c1] to %c1 channel 0 if_finite
    sched.cost rounds %c0 wire_bytes %c0
  }
}
