// RUN: bagua-opt %s | bagua-opt | FileCheck %s

// CHECK-LABEL: chunk.schedule @timed
chunk.schedule @timed grain 1 accepts [f32] {
  chunk.declare_parameter @interval = 500 : index
  chunk.declare_parameter @warmup = 0 : index
  // CHECK: chunk.program @async on async every(@interval ms) after(@warmup) staleness(4) {
  chunk.program @async on async every(@interval ms) after(@warmup) staleness(4) {
    %w = chunk.job weight
    %z = arith.constant 0 : index
    chunk.cost rounds %z wire_bytes %z
  }
}

// CHECK-LABEL: chunk.schedule @counted
chunk.schedule @counted grain 1 accepts [f32] {
  // CHECK: chunk.program @async on async every(8 steps) staleness(1) attributes {note = "kept"} {
  chunk.program @async on async every(8 steps) staleness(1) attributes {note = "kept"} {
    %w = chunk.job weight
    %z = arith.constant 0 : index
    chunk.cost rounds %z wire_bytes %z
  }
  // CHECK: chunk.program @gradient on gradient {
  chunk.program @gradient on gradient {
    %z = arith.constant 0 : index
    chunk.cost rounds %z wire_bytes %z
  }
}

// CHECK-LABEL: chunk.schedule @numbers
chunk.schedule @numbers grain 1 accepts [f32] {
  // CHECK: chunk.program @async on async every(8 steps) after(100) staleness(2) {
  chunk.program @async on async every(8 steps) after(100) staleness(2) {
    %w = chunk.job weight
    %z = arith.constant 0 : index
    chunk.cost rounds %z wire_bytes %z
  }
}
