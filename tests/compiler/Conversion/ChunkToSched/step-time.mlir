// RUN: bagua-opt %s --chunk-to-sched | FileCheck %s
// A state's next value is written and sent like any buffer; its commit stands behind its writers on their queue.
// Conditions of the step become guards, the same one for both ends of a transfer and for the launch that reads it.

// CHECK-LABEL: sched.schedule @momentum grain 1 accepts [f32, f64] {
chunk.schedule @momentum grain 1 accepts [f32, f64] {
  // CHECK: sched.declare_state @m bucket = 5.000000e-01 on_resize mean
  chunk.declare_state @m bucket = 0.5 on_resize mean
  chunk.program @p on gradient {
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %n = chunk.world
    %len = chunk.length
    %eb = chunk.element_bytes
    %bytes = arith.muli %len, %eb : index
    %many = arith.cmpi sgt, %n, %one : index
    %sent = arith.select %many, %bytes, %zero : index
    %g = chunk.job gradient
    // CHECK: %[[OLD:.*]] = sched.state "@m" @m
    %m = chunk.state @m
    // CHECK: %[[NEXT:.*]] = sched.state "@m.next" @m next
    %next = chunk.state @m next
    %again = chunk.state @m next
    // CHECK-NOT: sched.state
    %in = chunk.slots %one, %bytes
    chunk.forall %r {
      %x = chunk.range %g[%zero, %bytes]
      %old = chunk.range %m[%zero, %bytes]
      %new = chunk.range %next[%zero, %bytes]
      %same = chunk.range %again[%zero, %bytes]
      %v = chunk.view %in[%zero][%zero, %bytes]
      // CHECK: sched.launch "map" {{.*}} signals %[[DONE:.*]][%c0]
      chunk.launch "map" with {code = array<i64: 0, 0, 0, 0, 0, 1, 0, 0, 2, 0, 0, 0, 5, 2, 0, 0, 3, 3, 1, 0>, constants = array<f64: 0.5>, outputs = array<i64: 4>, inputs = 2}
        count %len ins(%old, %x : !chunk.range, !chunk.range) outs(%new : !chunk.range)
      chunk.if %many {
        // CHECK: %[[E:.*]] = sched.event %[[DONE]][%c0]
        // CHECK: sched.send %[[NEXT]]{{.*}} after(%[[E]] : !sched.event)
        chunk.move %same to rotate(%one) into %in[%zero]
        chunk.launch "reduce_mean" count %len ins(%new, %v : !chunk.range, !chunk.range) outs(%x : !chunk.range)
      } else {
        chunk.launch "copy" count %len ins(%new : !chunk.range) outs(%x : !chunk.range)
      }
      // CHECK: sched.wait_gate before_update on cpu
      chunk.wait before_update
      chunk.if_finite {
        // CHECK: sched.publish @m if_finite
        chunk.publish @m
      }
    }
    chunk.cost rounds %one wire_bytes %sent
  }
}

// CHECK-LABEL: sched.schedule @pairs grain 1 accepts [f32] {
chunk.schedule @pairs grain 1 accepts [f32] {
  chunk.program @p on before_forward {
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %two = arith.constant 2 : index
    %seed = arith.constant 7 : index
    %half = arith.constant 0.5 : f64
    %len = chunk.length
    %eb = chunk.element_bytes
    %bytes = arith.muli %len, %eb : index
    %t = chunk.step
    %rest = arith.remsi %t, %two : index
    %every = arith.cmpi eq, %rest, %zero : index
    %rank = chunk.rank
    %mine = chunk.peer pairing(%seed, %t)
    %active = arith.cmpi ne, %mine, %rank : index
    %both = arith.andi %every, %active : i1
    %sent = arith.select %both, %bytes, %zero : index
    // CHECK: %[[EVERY:.*]] = arith.cmpi eq, %{{.*}}, %c0 : index
    // CHECK: %[[PEER:.*]] = sched.pairing %c7, %{{.*}}
    // CHECK: %[[ACTIVE:.*]] = arith.cmpi ne, %[[PEER]], %{{.*}} : index
    // CHECK: %[[GUARD:.*]] = arith.andi %[[EVERY]], %[[ACTIVE]] : i1
    %w = chunk.job weight
    %s = chunk.scratch %bytes
    %in = chunk.slots %one, %bytes
    // CHECK: sched.recv %{{.*}}[%c0] bytes %{{.*}} from %[[PEER]] channel 0 signals %{{.*}}[%c0] guard %[[GUARD]]
    chunk.forall %r {
      %x = chunk.range %w[%zero, %bytes]
      %y = chunk.range %s[%zero, %bytes]
      %v = chunk.view %in[%zero][%zero, %bytes]
      chunk.if %every {
        // CHECK: sched.send %{{.*}} to %[[PEER]] channel 0 signals %{{.*}}[%c0] guard %[[GUARD]]
        chunk.move %x to pairing(%seed, %t) into %in[%zero]
        %p = chunk.peer pairing(%seed, %t)
        %idle = arith.cmpi eq, %p, %r : index
        chunk.if %idle {
          // CHECK: sched.launch "copy" {{.*}} guard %[[IDLE:[a-z0-9_]+]]{{$}}
          chunk.launch "copy" count %len ins(%x : !chunk.range) outs(%y : !chunk.range)
        } else {
          // CHECK: sched.launch "mix" {{.*}} guard %[[GUARD]]{{$}}
          chunk.launch "mix" count %len ins(%x, %v : !chunk.range, !chunk.range) outs(%y : !chunk.range) scalars(%half : f64)
        }
        // CHECK: sched.release %{{.*}}[%c0] on cpu after(%{{.*}} : !sched.event) guard %[[GUARD]]
        // CHECK: sched.wait_gate before_update on cpu guard %[[EVERY]]
        chunk.wait before_update
        chunk.if_finite {
          // CHECK: sched.launch "copy" {{.*}} guard %[[EVERY]] if_finite
          chunk.launch "copy" count %len ins(%y : !chunk.range) outs(%x : !chunk.range)
        }
      }
    }
    // CHECK: sched.cost
    chunk.cost rounds %one wire_bytes %sent
  }
}
