// RUN: bagua-opt %s | bagua-opt | FileCheck %s
// Async handlers, in each form of their interval.

!bucket = tensor<?xf32, #bagua.bucket>

// CHECK-LABEL: bagua.algorithm @timed(%interval: index = 500, %warmup: index = 0)
bagua.algorithm @timed(%interval: index = 500, %warmup: index = 0) {
  // CHECK: bagua.on async every(%interval ms) after(%warmup) staleness(4) (%[[W:.*]]: tensor<?xf32, #bagua.bucket>) {
  bagua.on async every(%interval ms) after(%warmup) staleness(4) (%w: !bucket) {
    // CHECK: %[[D:.*]] = bagua.map
    %mean = bagua.all_reduce mean %w
    %d = bagua.map %mean - %w
    // CHECK: bagua.update weight += %[[D]]{{$}}
    bagua.update weight += %d : !bucket
  }
}

// A number instead, no warm-up; states of its own.
// CHECK-LABEL: bagua.algorithm @counted
bagua.algorithm @counted {
  bagua.state @last : bucket = weight
  // CHECK: bagua.on async every(8 steps) staleness(1) (%{{.*}}: tensor<?xf32, #bagua.bucket>) {
  bagua.on async every(8 steps) staleness(1) (%w: !bucket) {
    %last = bagua.read @last
    %d = bagua.map %last - %w
    bagua.update weight += %d
    bagua.update @last = %w
  }
}

// CHECK-LABEL: bagua.algorithm @numbers
bagua.algorithm @numbers {
  // CHECK: bagua.on async every(8 steps) after(100) staleness(2) (%{{.*}}: tensor<?xf32, #bagua.bucket>) attributes {note = "kept"} {
  bagua.on async every(8 steps) after(100) staleness(2) (%w: !bucket) attributes {note = "kept"} {
    bagua.update weight += %w
  }
}
