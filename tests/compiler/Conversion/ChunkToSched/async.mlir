// RUN: bagua-opt %s --chunk-to-sched | FileCheck %s
// An async program is lowered like the others; when its rounds begin and end stays as it is.

// CHECK-LABEL: sched.schedule @counted
//       CHECK: sched.declare_parameter @interval = 8 : index
//       CHECK: sched.program @async on async every(@interval steps) after(100) staleness(2) attributes {note = "kept"} {
//       CHECK:   %[[W:.*]] = sched.job "weight" weight
//       CHECK:   sched.launch "copy"
chunk.schedule @counted grain 1 accepts [f32] {
  chunk.declare_parameter @interval = 8 : index
  chunk.program @async on async every(@interval steps) after(100) staleness(2) attributes {note = "kept"} {
    %zero = arith.constant 0 : index
    %len = chunk.length
    %eb = chunk.element_bytes
    %bytes = arith.muli %len, %eb : index
    %w = chunk.job weight
    %s = chunk.scratch %bytes
    chunk.forall %r {
      %x = chunk.range %w[%zero, %bytes]
      %y = chunk.range %s[%zero, %bytes]
      chunk.launch "copy" count %len ins(%x : !chunk.range) outs(%y : !chunk.range)
    }
    chunk.cost rounds %zero wire_bytes %zero
  }
}

// CHECK: sched.program @async on async every(500 ms) staleness(4) {
chunk.schedule @timed grain 1 accepts [f32] {
  chunk.program @async on async every(500 ms) staleness(4) {
    %zero = arith.constant 0 : index
    chunk.cost rounds %zero wire_bytes %zero
  }
}
