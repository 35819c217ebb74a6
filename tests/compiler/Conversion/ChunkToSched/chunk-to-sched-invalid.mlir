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
