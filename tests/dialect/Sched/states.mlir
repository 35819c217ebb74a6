// RUN: bagua-opt %s --verify-roundtrip | FileCheck %s
// Memory from step to step, steps that only finite steps take, guards and costs of the step.
// CHECK-LABEL: sched.schedule @states
sched.schedule @states grain 4 accepts [f32] {
  // CHECK-NEXT: sched.declare_state @m bucket = 0.000000e+00 on_resize mean
  sched.declare_state @m bucket = 0.0 on_resize mean
  // CHECK-NEXT: sched.declare_state @e shard = 5.000000e-01 on_resize repartition
  sched.declare_state @e shard = 0.5 on_resize repartition
  // CHECK-NEXT: sched.declare_state @replicas neighbors(2) = weight on_resize zero
  sched.declare_state @replicas neighbors(2) = weight on_resize zero
  sched.program @gradient on gradient {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %len = sched.length
    %size = sched.element_bytes
    %bytes = arith.muli %len, %size : index
    %rank = sched.rank
    %t = sched.step
    %p = sched.pairing %c1, %t
    %active = arith.cmpi ne, %p, %rank : index
    // CHECK: sched.state "m" @m
    %m = sched.state "m" @m
    // CHECK: sched.state "m.next" @m next
    %next = sched.state "m.next" @m next
    %in = sched.slots "in" count %c1 bytes %bytes
    %arrived = sched.events "arrived" count %c1
    // CHECK: sched.send {{.*}} guard %
    sched.send %m[%c0, %bytes] to %p channel 0 guard %active
    sched.recv %in[%c0] bytes %bytes from %p channel 0 signals %arrived[%c0] guard %active
    %e = sched.event %arrived[%c0]
    sched.wait_gate before_update on cpu after(%e : !sched.event)
    %x = sched.range %m[%c0, %bytes]
    %y = sched.range %next[%c0, %bytes]
    // CHECK: sched.launch "map" {code = array<i64: 2, 0, 0, 0, 0, 0, 0, 0, 5, 1, 0, 0>, {{.*}}} count {{.*}} guard %{{.*}} if_finite
    sched.launch "map" {code = array<i64: 2, 0, 0, 0, 0, 0, 0, 0, 5, 1, 0, 0>, constants = array<f64: 0.5>, outputs = array<i64: 2>, inputs = 1} count %len
      ins(%x : !sched.range) outs(%y : !sched.range) guard %active if_finite
    sched.release %in[%c0] on cpu guard %active
    // CHECK: sched.publish @m if_finite
    sched.publish @m if_finite
    %moved = arith.select %active, %bytes, %c0 : index
    // CHECK: sched.cost rounds
    sched.cost rounds %c1 wire_bytes %moved
  }
}
