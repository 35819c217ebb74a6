// RUN: bagua-opt %s --chunk-to-sched --split-input-file --verify-diagnostics
// What no single op shows; names are labels of SPEC.md, "chunk".

// program_c2
chunk.schedule @s grain 1 accepts [f32] {
  chunk.program @p on gradient {
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %two = arith.constant 2 : index
    %n = chunk.world
    %len = chunk.length
    %eb = chunk.element_bytes
    %bytes = arith.muli %len, %eb : index
    %g = chunk.job gradient
    %s = chunk.scratch %bytes
    %in = chunk.slots %n, %bytes
    chunk.forall %r {
      %x = chunk.range %g[%zero, %bytes]
      %y = chunk.range %s[%zero, %bytes]
      %v = chunk.view %in[%zero][%zero, %bytes]
      %yes = arith.constant true
      // expected-error@+1 {{expects chunk ops and arithmetic in a chunk program}}
      %i = scf.if %yes -> index { scf.yield %one : index } else { scf.yield %two : index }
    }
    chunk.cost rounds %zero wire_bytes %zero
  }
}

// -----

// program_c3
chunk.schedule @s grain 1 accepts [f32] {
  chunk.program @p on gradient {
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %two = arith.constant 2 : index
    %n = chunk.world
    %len = chunk.length
    %eb = chunk.element_bytes
    %bytes = arith.muli %len, %eb : index
    %g = chunk.job gradient
    %s = chunk.scratch %bytes
    %in = chunk.slots %n, %bytes
    chunk.forall %r {
      %x = chunk.range %g[%zero, %bytes]
      %y = chunk.range %s[%zero, %bytes]
      %v = chunk.view %in[%zero][%zero, %bytes]
      %yes = arith.constant true
      %z = arith.select %yes, %x, %y : !chunk.range
      // expected-error@+1 {{expects ranges, buffers and slots straight from the ops that make them, got another value of type '!chunk.range'}}
      chunk.launch "copy" count %len ins(%z : !chunk.range) outs(%y : !chunk.range)
    }
    chunk.cost rounds %zero wire_bytes %zero
  }
}

// -----

// move_c2
chunk.schedule @s grain 1 accepts [f32] {
  chunk.program @p on gradient {
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %two = arith.constant 2 : index
    %n = chunk.world
    %len = chunk.length
    %eb = chunk.element_bytes
    %bytes = arith.muli %len, %eb : index
    %g = chunk.job gradient
    %s = chunk.scratch %bytes
    %in = chunk.slots %n, %bytes
    chunk.forall %r {
      %x = chunk.range %g[%zero, %bytes]
      %y = chunk.range %s[%zero, %bytes]
      %v = chunk.view %in[%zero][%zero, %bytes]
      chunk.move %x to rotate(%one) into %in[%zero]
      // expected-error@+1 {{expects a range of a buffer, got a view of a received message: copy it to a buffer first}}
      chunk.move %v to rotate(%one) into %in[%one]
    }
    chunk.cost rounds %zero wire_bytes %zero
  }
}

// -----

// move_c3
chunk.schedule @s grain 1 accepts [f32] {
  chunk.program @p on gradient {
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %two = arith.constant 2 : index
    %n = chunk.world
    %len = chunk.length
    %eb = chunk.element_bytes
    %bytes = arith.muli %len, %eb : index
    %g = chunk.job gradient
    %s = chunk.scratch %bytes
    %in = chunk.slots %n, %bytes
    chunk.forall %r {
      %x = chunk.range %g[%zero, %bytes]
      %y = chunk.range %s[%zero, %bytes]
      %v = chunk.view %in[%zero][%zero, %bytes]
      // expected-error@+1 {{expects an argument of the peer map that is the same on all ranks, got one that depends on the rank}}
      chunk.move %x to rotate(%r) into %in[%zero]
    }
    chunk.cost rounds %zero wire_bytes %zero
  }
}

// -----

// for_c2
chunk.schedule @s grain 1 accepts [f32] {
  chunk.program @p on gradient {
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %two = arith.constant 2 : index
    %n = chunk.world
    %len = chunk.length
    %eb = chunk.element_bytes
    %bytes = arith.muli %len, %eb : index
    %g = chunk.job gradient
    %s = chunk.scratch %bytes
    %in = chunk.slots %n, %bytes
    chunk.forall %r {
      %x = chunk.range %g[%zero, %bytes]
      %y = chunk.range %s[%zero, %bytes]
      %v = chunk.view %in[%zero][%zero, %bytes]
      // expected-error@+1 {{expects a bound that is the same on all ranks, got one that depends on the rank}}
      chunk.for %k = %one to %r {
        // expected-note@+1 {{a move is executed under it}}
        chunk.move %x to rotate(%k) into %in[%zero]
      }
    }
    chunk.cost rounds %zero wire_bytes %zero
  }
}

// -----

// if_c2
chunk.schedule @s grain 1 accepts [f32] {
  chunk.program @p on gradient {
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %two = arith.constant 2 : index
    %n = chunk.world
    %len = chunk.length
    %eb = chunk.element_bytes
    %bytes = arith.muli %len, %eb : index
    %g = chunk.job gradient
    %s = chunk.scratch %bytes
    %in = chunk.slots %n, %bytes
    chunk.forall %r {
      %x = chunk.range %g[%zero, %bytes]
      %y = chunk.range %s[%zero, %bytes]
      %v = chunk.view %in[%zero][%zero, %bytes]
      %first = arith.cmpi eq, %r, %zero : index
      // expected-error@+1 {{expects a condition that is the same on all ranks, got one that depends on the rank}}
      chunk.if %first {
        // expected-note@+1 {{a move is executed under it}}
        chunk.move %x to rotate(%one) into %in[%zero]
      }
    }
    chunk.cost rounds %zero wire_bytes %zero
  }
}

// -----

// for_c3
chunk.schedule @s grain 1 accepts [f32] {
  chunk.program @p on gradient {
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %two = arith.constant 2 : index
    %n = chunk.world
    %len = chunk.length
    %eb = chunk.element_bytes
    %bytes = arith.muli %len, %eb : index
    %g = chunk.job gradient
    %s = chunk.scratch %bytes
    %in = chunk.slots %n, %bytes
    chunk.forall %r {
      %x = chunk.range %g[%zero, %bytes]
      %y = chunk.range %s[%zero, %bytes]
      %v = chunk.view %in[%zero][%zero, %bytes]
      chunk.for %i = %zero to %n {
        // expected-error@+1 {{expects bounds that do not depend on the variable of an outer loop, as each iteration has an event}}
        chunk.for %j = %zero to %i {
          chunk.launch "copy" count %len ins(%x : !chunk.range) outs(%y : !chunk.range)
        }
      }
    }
    chunk.cost rounds %zero wire_bytes %zero
  }
}

// -----

// launch_c5
chunk.schedule @s grain 1 accepts [f32] {
  chunk.program @p on gradient {
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %two = arith.constant 2 : index
    %n = chunk.world
    %len = chunk.length
    %eb = chunk.element_bytes
    %bytes = arith.muli %len, %eb : index
    %g = chunk.job gradient
    %s = chunk.scratch %bytes
    %in = chunk.slots %n, %bytes
    chunk.forall %r {
      %x = chunk.range %g[%zero, %bytes]
      %y = chunk.range %s[%zero, %bytes]
      %v = chunk.view %in[%zero][%zero, %bytes]
      chunk.move %x to rotate(%one) into %in[%zero]
      // expected-error@+1 {{expects outputs in buffers, got a view of a received message}}
      chunk.launch "copy" count %len ins(%x : !chunk.range) outs(%v : !chunk.range)
    }
    chunk.cost rounds %zero wire_bytes %zero
  }
}

// -----

// launch_c6_same_op
chunk.schedule @s grain 1 accepts [f32] {
  chunk.program @p on gradient {
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %two = arith.constant 2 : index
    %n = chunk.world
    %len = chunk.length
    %eb = chunk.element_bytes
    %bytes = arith.muli %len, %eb : index
    %g = chunk.job gradient
    %s = chunk.scratch %bytes
    %in = chunk.slots %n, %bytes
    chunk.forall %r {
      %x = chunk.range %g[%zero, %bytes]
      %y = chunk.range %s[%zero, %bytes]
      %v = chunk.view %in[%zero][%zero, %bytes]
      // expected-note@+1 {{sent here}}
      chunk.move %x to rotate(%one) into %in[%zero]
      // expected-note@+2 {{read until here}}
      // expected-error@+1 {{expects that nobody reads any more what it overwrites, got bytes that an earlier move sends and whose message is read later}}
      chunk.launch "copy" count %len ins(%v : !chunk.range) outs(%x : !chunk.range)
    }
    chunk.cost rounds %zero wire_bytes %zero
  }
}

// -----

// launch_c6_earlier
chunk.schedule @s grain 1 accepts [f32] {
  chunk.program @p on gradient {
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %two = arith.constant 2 : index
    %n = chunk.world
    %len = chunk.length
    %eb = chunk.element_bytes
    %bytes = arith.muli %len, %eb : index
    %g = chunk.job gradient
    %s = chunk.scratch %bytes
    %in = chunk.slots %n, %bytes
    chunk.forall %r {
      %x = chunk.range %g[%zero, %bytes]
      %y = chunk.range %s[%zero, %bytes]
      %v = chunk.view %in[%zero][%zero, %bytes]
      // expected-note@+1 {{sent here}}
      chunk.move %x to rotate(%one) into %in[%zero]
      // expected-error@+1 {{expects that nobody reads any more what it overwrites}}
      chunk.launch "copy" count %len ins(%y : !chunk.range) outs(%x : !chunk.range)
      // expected-note@+1 {{read until here}}
      chunk.launch "copy" count %len ins(%v : !chunk.range) outs(%y : !chunk.range)
    }
    chunk.cost rounds %zero wire_bytes %zero
  }
}

// -----

// slots_c1
chunk.schedule @s grain 1 accepts [f32] {
  chunk.program @p on gradient {
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %two = arith.constant 2 : index
    %n = chunk.world
    %len = chunk.length
    %eb = chunk.element_bytes
    %bytes = arith.muli %len, %eb : index
    %g = chunk.job gradient
    %s = chunk.scratch %bytes
    %in = chunk.slots %n, %bytes
    chunk.forall %r {
      %x = chunk.range %g[%zero, %bytes]
      %y = chunk.range %s[%zero, %bytes]
      %v = chunk.view %in[%zero][%zero, %bytes]
      chunk.move %x to rotate(%one) into %in[%zero]
      // expected-note@+1 {{read here}}
      chunk.launch "copy" count %len ins(%v : !chunk.range) outs(%y : !chunk.range)
      // expected-error@+1 {{expects a pool that has not been read, got one that an earlier launch reads: its messages would never end}}
      chunk.move %x to rotate(%one) into %in[%one]
    }
    chunk.cost rounds %zero wire_bytes %zero
  }
}

// -----

// slots_c2
chunk.schedule @s grain 1 accepts [f32] {
  chunk.program @p on gradient {
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %two = arith.constant 2 : index
    %n = chunk.world
    %len = chunk.length
    %eb = chunk.element_bytes
    %bytes = arith.muli %len, %eb : index
    %g = chunk.job gradient
    %s = chunk.scratch %bytes
    %in = chunk.slots %n, %bytes // expected-note {{the pool}}
    chunk.forall %r {
      %x = chunk.range %g[%zero, %bytes]
      %y = chunk.range %s[%zero, %bytes]
      %v = chunk.view %in[%zero][%zero, %bytes]
      // expected-error@+1 {{expects a pool of its own for what moves and is read in each iteration, got one that is used outside too}}
      chunk.for %i = %zero to %two {
        chunk.move %x to rotate(%one) into %in[%i]
        chunk.launch "copy" count %len ins(%v : !chunk.range) outs(%y : !chunk.range)
      }
      chunk.launch "copy" count %len ins(%v : !chunk.range) outs(%y : !chunk.range)
    }
    chunk.cost rounds %zero wire_bytes %zero
  }
}

// -----

// slots_c3
chunk.schedule @s grain 1 accepts [f32] {
  chunk.program @p on gradient {
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %two = arith.constant 2 : index
    %n = chunk.world
    %len = chunk.length
    %eb = chunk.element_bytes
    %bytes = arith.muli %len, %eb : index
    %g = chunk.job gradient
    %s = chunk.scratch %bytes
    %in = chunk.slots %n, %bytes
    chunk.forall %r {
      %x = chunk.range %g[%zero, %bytes]
      %y = chunk.range %s[%zero, %bytes]
      %v = chunk.view %in[%zero][%zero, %bytes]
      // expected-error@+1 {{expects a pool into which something moves, got one without messages}}
      chunk.launch "copy" count %len ins(%v : !chunk.range) outs(%y : !chunk.range)
    }
    chunk.cost rounds %zero wire_bytes %zero
  }
}

// -----

// state_c2
chunk.schedule @s grain 1 accepts [f32] {
  chunk.declare_state @m bucket = 0.0 on_resize mean
  chunk.program @p on gradient {
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %n = chunk.world
    %len = chunk.length
    %eb = chunk.element_bytes
    %bytes = arith.muli %len, %eb : index
    %g = chunk.job gradient
    %m = chunk.state @m
    %next = chunk.state @m next
    %in = chunk.slots %one, %bytes
    %t = chunk.step
    chunk.forall %r {
      %x = chunk.range %g[%zero, %bytes]
      %old = chunk.range %m[%zero, %bytes]
      %new = chunk.range %next[%zero, %bytes]
      // expected-error@+1 {{expects outputs that may be written, got the committed value of @m}}
      chunk.launch "copy" count %len ins(%x : !chunk.range) outs(%old : !chunk.range)
    }
    chunk.cost rounds %zero wire_bytes %zero
  }
}

// -----

// publish_c3_twice
chunk.schedule @s grain 1 accepts [f32] {
  chunk.declare_state @m bucket = 0.0 on_resize mean
  chunk.program @p on gradient {
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %n = chunk.world
    %len = chunk.length
    %eb = chunk.element_bytes
    %bytes = arith.muli %len, %eb : index
    %g = chunk.job gradient
    %m = chunk.state @m
    %next = chunk.state @m next
    %in = chunk.slots %one, %bytes
    %t = chunk.step
    chunk.forall %r {
      %x = chunk.range %g[%zero, %bytes]
      %old = chunk.range %m[%zero, %bytes]
      %new = chunk.range %next[%zero, %bytes]
      chunk.launch "copy" count %len ins(%x : !chunk.range) outs(%new : !chunk.range)
      // expected-note@+1 {{committed here}}
      chunk.publish @m
      %yes = arith.cmpi sgt, %len, %one : index
      chunk.if %yes {
        // expected-error@+1 {{expects to commit a state once, got @m twice}}
        chunk.publish @m
      }
    }
    chunk.cost rounds %zero wire_bytes %zero
  }
}

// -----

// publish_c3_loop
chunk.schedule @s grain 1 accepts [f32] {
  chunk.declare_state @m bucket = 0.0 on_resize mean
  chunk.program @p on gradient {
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %n = chunk.world
    %len = chunk.length
    %eb = chunk.element_bytes
    %bytes = arith.muli %len, %eb : index
    %g = chunk.job gradient
    %m = chunk.state @m
    %next = chunk.state @m next
    %in = chunk.slots %one, %bytes
    %t = chunk.step
    chunk.forall %r {
      %x = chunk.range %g[%zero, %bytes]
      %old = chunk.range %m[%zero, %bytes]
      %new = chunk.range %next[%zero, %bytes]
      chunk.for %k = %zero to %n {
        // expected-error@+1 {{expects to commit a state once, got a loop around it}}
        chunk.publish @m
      }
    }
    chunk.cost rounds %zero wire_bytes %zero
  }
}

// -----

// publish_c3_written_later
chunk.schedule @s grain 1 accepts [f32] {
  chunk.declare_state @m bucket = 0.0 on_resize mean
  chunk.program @p on gradient {
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %n = chunk.world
    %len = chunk.length
    %eb = chunk.element_bytes
    %bytes = arith.muli %len, %eb : index
    %g = chunk.job gradient
    %m = chunk.state @m
    %next = chunk.state @m next
    %in = chunk.slots %one, %bytes
    %t = chunk.step
    chunk.forall %r {
      %x = chunk.range %g[%zero, %bytes]
      %old = chunk.range %m[%zero, %bytes]
      %new = chunk.range %next[%zero, %bytes]
      chunk.launch "copy" count %len ins(%x : !chunk.range) outs(%new : !chunk.range)
      // expected-note@+1 {{committed here}}
      chunk.publish @m
      // expected-error@+1 {{expects the next value of @m to be complete when it is committed}}
      chunk.launch "copy" count %len ins(%x : !chunk.range) outs(%new : !chunk.range)
    }
    chunk.cost rounds %zero wire_bytes %zero
  }
}

// -----

// if_finite_c3
chunk.schedule @s grain 1 accepts [f32] {
  chunk.declare_state @m bucket = 0.0 on_resize mean
  chunk.program @p on gradient {
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %n = chunk.world
    %len = chunk.length
    %eb = chunk.element_bytes
    %bytes = arith.muli %len, %eb : index
    %g = chunk.job gradient
    %m = chunk.state @m
    %next = chunk.state @m next
    %in = chunk.slots %one, %bytes
    %t = chunk.step
    chunk.forall %r {
      %x = chunk.range %g[%zero, %bytes]
      %old = chunk.range %m[%zero, %bytes]
      %new = chunk.range %next[%zero, %bytes]
      %yes = arith.cmpi sgt, %len, %one : index
      chunk.if %yes {
        chunk.wait before_update
      }
      // expected-error@+1 {{expects a chunk.wait before_update before it: only behind the gate is it known whether a step is finite}}
      chunk.if_finite {
        chunk.publish @m
      }
    }
    chunk.cost rounds %zero wire_bytes %zero
  }
}

// -----

// publish_c4
chunk.schedule @s grain 1 accepts [f32] {
  chunk.declare_state @m bucket = 0.0 on_resize mean
  chunk.program @p on gradient {
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %n = chunk.world
    %len = chunk.length
    %eb = chunk.element_bytes
    %bytes = arith.muli %len, %eb : index
    %g = chunk.job gradient
    %m = chunk.state @m
    %next = chunk.state @m next
    %in = chunk.slots %one, %bytes
    %t = chunk.step
    chunk.forall %r {
      %x = chunk.range %g[%zero, %bytes]
      %old = chunk.range %m[%zero, %bytes]
      %new = chunk.range %next[%zero, %bytes]
      chunk.launch "copy" count %len ins(%x : !chunk.range) outs(%x : !chunk.range)
      // expected-error@+1 {{expects a launch before it that writes the next value of @m}}
      chunk.publish @m
    }
    chunk.cost rounds %zero wire_bytes %zero
  }
}

// -----

// move_c3_pairing
chunk.schedule @s grain 1 accepts [f32] {
  chunk.declare_state @m bucket = 0.0 on_resize mean
  chunk.program @p on gradient {
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %n = chunk.world
    %len = chunk.length
    %eb = chunk.element_bytes
    %bytes = arith.muli %len, %eb : index
    %g = chunk.job gradient
    %m = chunk.state @m
    %next = chunk.state @m next
    %in = chunk.slots %one, %bytes
    %t = chunk.step
    chunk.forall %r {
      %x = chunk.range %g[%zero, %bytes]
      %old = chunk.range %m[%zero, %bytes]
      %new = chunk.range %next[%zero, %bytes]
      // expected-error@+1 {{expects an argument of the peer map that is the same on all ranks}}
      chunk.move %x to pairing(%r, %t) into %in[%zero]
    }
    chunk.cost rounds %zero wire_bytes %zero
  }
}

// -----

// peer_c2
chunk.schedule @s grain 1 accepts [f32] {
  chunk.declare_state @m bucket = 0.0 on_resize mean
  chunk.program @p on gradient {
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %n = chunk.world
    %len = chunk.length
    %eb = chunk.element_bytes
    %bytes = arith.muli %len, %eb : index
    %g = chunk.job gradient
    %m = chunk.state @m
    %next = chunk.state @m next
    %in = chunk.slots %one, %bytes
    %t = chunk.step
    chunk.forall %r {
      %x = chunk.range %g[%zero, %bytes]
      %old = chunk.range %m[%zero, %bytes]
      %new = chunk.range %next[%zero, %bytes]
      // expected-error@+1 {{expects the partner of this rank where a receiver computes what its sender does}}
      %p = chunk.peer pairing(%one, %t)
      %part = arith.muli %p, %eb : index
      %y = chunk.range %g[%zero, %part]
      chunk.move %y to pairing(%zero, %t) into %in[%zero]
    }
    chunk.cost rounds %zero wire_bytes %zero
  }
}

// -----

// if_c2_peer
chunk.schedule @s grain 1 accepts [f32] {
  chunk.declare_state @m bucket = 0.0 on_resize mean
  chunk.program @p on gradient {
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %n = chunk.world
    %len = chunk.length
    %eb = chunk.element_bytes
    %bytes = arith.muli %len, %eb : index
    %g = chunk.job gradient
    %m = chunk.state @m
    %next = chunk.state @m next
    %in = chunk.slots %one, %bytes
    %t = chunk.step
    chunk.forall %r {
      %x = chunk.range %g[%zero, %bytes]
      %old = chunk.range %m[%zero, %bytes]
      %new = chunk.range %next[%zero, %bytes]
      %p = chunk.peer round_robin(%t)
      %active = arith.cmpi ne, %p, %r : index
      // expected-error@+1 {{expects a condition that is the same on all ranks}}
      chunk.if %active {
        // expected-note@+1 {{a move is executed under it}}
        chunk.move %x to round_robin(%t) into %in[%zero]
      }
    }
    chunk.cost rounds %zero wire_bytes %zero
  }
}
