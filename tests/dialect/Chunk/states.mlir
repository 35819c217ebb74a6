// RUN: bagua-opt %s --verify-roundtrip | FileCheck %s
// Memory from step to step, work that only finite steps do, peers of the step, and code of maps.
// CHECK-LABEL: chunk.schedule @states
chunk.schedule @states grain 4 accepts [f32] {
  // CHECK-NEXT: chunk.declare_state @m bucket = 0.000000e+00 on_resize mean
  chunk.declare_state @m bucket = 0.0 on_resize mean
  // CHECK-NEXT: chunk.declare_state @e shard = 5.000000e-01 on_resize repartition
  chunk.declare_state @e shard = 0.5 on_resize repartition
  // CHECK-NEXT: chunk.declare_state @s scalar = 1.000000e+00 on_resize mean
  chunk.declare_state @s scalar = 1.0 on_resize mean
  // CHECK-NEXT: chunk.declare_state @replicas neighbors(2) = weight on_resize zero
  chunk.declare_state @replicas neighbors(2) = weight on_resize zero
  // CHECK-NEXT: chunk.declare_state @anchor bucket = weight on_resize zero
  chunk.declare_state @anchor bucket = weight on_resize zero
  chunk.program @gradient on gradient {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %len = chunk.length
    %size = chunk.element_bytes
    %bytes = arith.muli %len, %size : index
    %seed = chunk.bucket
    %t = chunk.step
    %g = chunk.job gradient
    // CHECK: %[[M:.*]] = chunk.state @m
    %m = chunk.state @m
    // CHECK: %[[NEXT:.*]] = chunk.state @m next
    %next = chunk.state @m next
    %in = chunk.slots %c1, %bytes
    chunk.forall %r {
      %x = chunk.range %g[%c0, %bytes]
      // CHECK: chunk.peer pairing(%{{.*}}, %{{.*}})
      %p = chunk.peer pairing(%seed, %t)
      // CHECK: chunk.peer round_robin(%{{.*}})
      %q = chunk.peer round_robin(%t)
      // CHECK: chunk.peer shift_one(%{{.*}})
      %s = chunk.peer shift_one(%t)
      // CHECK: chunk.move %{{.*}} to pairing(%{{.*}}, %{{.*}}) into %{{.*}}[%{{.*}}]
      chunk.move %x to pairing(%seed, %t) into %in[%c0]
      // CHECK: chunk.wait before_update
      chunk.wait before_update
      // CHECK-NEXT: chunk.if_finite {
      chunk.if_finite {
        %old = chunk.range %m[%c0, %bytes]
        %new = chunk.range %next[%c0, %bytes]
        // CHECK: chunk.launch "map" with {broadcast = array<i64: 0>, code = array<i64: 1, 2, 3, 4>, constants = array<f64: 5.000000e-01>, inputs = 1 : i64, outputs = array<i64: 1>, scalars = 0 : i64}
        chunk.launch "map" with {code = array<i64: 1, 2, 3, 4>, constants = array<f64: 0.5>, outputs = array<i64: 1>, inputs = 1, scalars = 0, broadcast = array<i64: 0>} count %len
          ins(%old : !chunk.range) outs(%new : !chunk.range)
        // CHECK: chunk.publish @m
        chunk.publish @m
      }
    }
    chunk.cost rounds %c0 wire_bytes %c0
  }
}
