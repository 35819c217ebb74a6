// RUN: bagua-opt %s --verify-roundtrip | FileCheck %s
// The step is a number like the others to this level; what it may decide is the next level's matter.
// CHECK-LABEL: chunk.schedule @leaves
chunk.schedule @leaves grain 1 accepts [f32] {
  chunk.program @gradient on gradient {
    // CHECK: chunk.step
    %t = chunk.step
    // CHECK: chunk.bucket
    %k = chunk.bucket
    // CHECK: chunk.local_size
    %s = chunk.local_size
    // CHECK: chunk.nodes
    %n = chunk.nodes
    // CHECK: chunk.local_rank
    %l = chunk.local_rank
    // CHECK: chunk.node
    %d = chunk.node
    // CHECK: chunk.peer cross_rotate(%{{.*}})
    %p = chunk.peer cross_rotate(%t)
    // CHECK: %[[G:.*]] = chunk.job gradient
    %g = chunk.job gradient
    // CHECK: chunk.range %[[G]][%{{.*}}, %{{.*}}] part(%{{.*}}) of node
    %x = chunk.range %g[%l, %s] part(%l) of node
    // CHECK: chunk.range %[[G]][%{{.*}}, %{{.*}}] part(%{{[a-z0-9]*}}){{$}}
    %y = chunk.range %g[%l, %s] part(%l) of world
    %c0 = arith.constant 0 : index
    chunk.cost rounds %c0 wire_bytes %c0
  }
}
