// RUN: bagua-opt %s --verify-roundtrip | FileCheck %s
// The step is a number like the others to this level; what it may decide is the next level's matter.
// CHECK-LABEL: chunk.schedule @leaves
chunk.schedule @leaves grain 1 accepts [f32] {
  chunk.program @gradient on gradient {
    // CHECK: chunk.step
    %t = chunk.step
    // CHECK: chunk.bucket
    %k = chunk.bucket
    %c0 = arith.constant 0 : index
    chunk.cost rounds %c0 wire_bytes %c0
  }
}
