// RUN: bagua-opt %s --bagua-specialize-world-one --bagua-to-chunk --canonicalize --cse | FileCheck %s
// A round leaves in the job's buffer what is to be added to the weight.

!bucket = tensor<?xf32, #bagua.bucket>

// States commit at the round's end: there is no gate, and no step that may not be finite.
// CHECK-LABEL: chunk.schedule @states
//       CHECK: chunk.declare_parameter @interval = 8 : index
//       CHECK: chunk.program @async on async every(@interval steps) after(100) staleness(2) {
//       CHECK:   %[[W:.*]] = chunk.job weight
//       CHECK:   %[[ALL:.*]] = chunk.range %[[W]]
//       CHECK:   chunk.launch "map" {{.*}} outs(%[[ALL]] : !chunk.range)
//   CHECK-NOT:   chunk.wait
//   CHECK-NOT:   chunk.if_finite
//       CHECK:   chunk.publish @last
//   CHECK-NOT:   chunk.launch
bagua.algorithm @states(%interval: index = 8) {
  bagua.state @last : bucket = weight
  bagua.on async every(%interval steps) after(100) staleness(2) (%w: !bucket) {
    %last = bagua.read @last
    bagua.update @last = %w
    %d = bagua.map %last - %w
    bagua.update weight += %d
  }
}

// Where nothing is added, -0 is: the weight stays as it is, zeros of either sign too.
// CHECK-LABEL: chunk.schedule @sometimes
//       CHECK:   %[[W:.*]] = chunk.job weight
//       CHECK:   %[[FIRST:.*]] = arith.cmpi eq
//       CHECK:   chunk.if %[[FIRST]] {
//       CHECK:     chunk.launch "map"
//       CHECK:   chunk.if %{{.*}} {
//       CHECK:     %[[ALL:.*]] = chunk.range %[[W]]
//       CHECK:     chunk.launch "map" with {broadcast = array<i64>, code = array<i64: 2, 0, 0, 0>, constants = array<f64: -0.000000e+00>, inputs = 0 : i64, outputs = array<i64: 0>, scalars = 0 : i64} count %{{.*}} outs(%[[ALL]] : !chunk.range)
bagua.algorithm @sometimes {
  bagua.on async every(8 steps) staleness(1) (%w: !bucket) {
    %round = bagua.step
    %zero = arith.constant 0 : index
    %first = arith.cmpi eq, %round, %zero : index
    scf.if %first {
      %d = bagua.map %w * 0.5
      bagua.update weight += %d
    }
  }
}

// In a world of one rank there are no rounds: nothing is lowered for it.
// CHECK-LABEL: chunk.schedule @coded
//   CHECK-NOT:   chunk.if
//       CHECK:   chunk.launch "minmax_encode"
//   CHECK-NOT:   chunk.if
//       CHECK:   chunk.cost
bagua.algorithm @coded {
  bagua.on async every(8 steps) staleness(1) (%w: !bucket) {
    %q = bagua.encode %w with #bagua.minmax<bits = 8, block = 2048>
    %x = bagua.decode %q : !bagua.packed<#bagua.minmax<bits = 8, block = 2048>, !bucket>
    %d = bagua.map %x - %w
    bagua.update weight += %d
  }
}
