// RUN: bagua-opt %s | bagua-opt | FileCheck %s

// CHECK-LABEL: sched.schedule @timed
sched.schedule @timed grain 1 accepts [f32] {
  sched.declare_parameter @interval = 500 : index
  sched.declare_parameter @warmup = 0 : index
  // CHECK: sched.program @async on async every(@interval ms) after(@warmup) staleness(4) {
  sched.program @async on async every(@interval ms) after(@warmup) staleness(4) {
    %w = sched.job "w" weight
    %z = arith.constant 0 : index
    sched.cost rounds %z wire_bytes %z
  }
}

// CHECK-LABEL: sched.schedule @counted
sched.schedule @counted grain 1 accepts [f32] {
  // CHECK: sched.program @async on async every(8 steps) staleness(1) attributes {note = "kept"} {
  sched.program @async on async every(8 steps) staleness(1) attributes {note = "kept"} {
    %w = sched.job "w" weight
    %z = arith.constant 0 : index
    sched.cost rounds %z wire_bytes %z
  }
  // CHECK: sched.program @gradient on gradient {
  sched.program @gradient on gradient {
    %z = arith.constant 0 : index
    sched.cost rounds %z wire_bytes %z
  }
}

// CHECK-LABEL: sched.schedule @numbers
sched.schedule @numbers grain 1 accepts [f32] {
  // CHECK: sched.program @async on async every(8 steps) after(100) staleness(2) {
  sched.program @async on async every(8 steps) after(100) staleness(2) {
    %w = sched.job "w" weight
    %z = arith.constant 0 : index
    sched.cost rounds %z wire_bytes %z
  }
}
