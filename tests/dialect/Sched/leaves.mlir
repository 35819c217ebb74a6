// RUN: bagua-opt %s --verify-roundtrip | FileCheck %s
// Every number that a program may start from. Sizes are of bind time, the step is not.
// CHECK-LABEL: sched.schedule @leaves
sched.schedule @leaves grain 1 accepts [f32] {
  sched.program @gradient on gradient {
    // CHECK: %[[RANK:.*]] = sched.local_rank
    %r = sched.local_rank
    // CHECK: %[[SIZE:.*]] = sched.local_size
    %s = sched.local_size
    // CHECK: %[[NODES:.*]] = sched.nodes
    %n = sched.nodes
    // CHECK: %[[STEP:.*]] = sched.step
    %t = sched.step
    // CHECK: %[[BUCKET:.*]] = sched.bucket
    %k = sched.bucket
    // CHECK: sched.pairing %[[BUCKET]], %[[STEP]]
    %p = sched.pairing %k, %t
    %a = arith.addi %r, %s : index
    %b = arith.addi %a, %n : index
    %c0 = arith.constant 0 : index
    // CHECK: sched.scratch "scratch" bytes
    %buffer = sched.scratch "scratch" bytes %b
    sched.cost rounds %c0 wire_bytes %c0
  }
}
