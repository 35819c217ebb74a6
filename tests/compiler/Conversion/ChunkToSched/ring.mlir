// RUN: bagua-opt %s --chunk-to-sched | FileCheck %s
// A ring: sums travel once around, then the results. Two slots are used in turn, so receives wait for their
// slot, and stay behind the step that frees it. A step sends what the step before has summed: its wait is one
// event, not all earlier ones.
// CHECK: sched.for %[[S:.*]] = %c0 to
// CHECK:   sched.recv %{{.*}}[%{{.*}}] bytes %{{.*}} from %{{.*}} channel 0 signals
// CHECK:   %[[BEFORE:.*]] = sched.event %[[SUMMED:.*]][%{{.*}}] when
// CHECK:   sched.send %{{.*}} channel 0 after(%[[BEFORE]] : !sched.event) signals
// CHECK:   sched.launch "reduce_sum" {{.*}} signals %[[SUMMED]][%[[S]]]
// CHECK:   sched.release
chunk.schedule @ring grain 1 accepts [f32, f64] {
  chunk.program @gradient on gradient {
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %two = arith.constant 2 : index
    %n = chunk.world
    %len = chunk.length
    %eb = chunk.element_bytes
    %g = chunk.job gradient
    %max = arith.ceildivsi %len, %n : index
    %slot_bytes = arith.muli %max, %eb : index
    %last = arith.subi %n, %one : index
    %in = chunk.slots %two, %slot_bytes
    %in2 = chunk.slots %two, %slot_bytes
    chunk.forall %r {
      %r_n = arith.addi %r, %n : index
      chunk.for %s = %zero to %last {
        %slot = arith.remsi %s, %two : index
        %t_n = arith.subi %r_n, %s : index
        %t = arith.remsi %t_n, %n : index
        %t_l = arith.muli %t, %len : index
        %t_b = arith.floordivsi %t_l, %n : index
        %t_x = arith.addi %t, %one : index
        %t_xl = arith.muli %t_x, %len : index
        %t_e = arith.floordivsi %t_xl, %n : index
        %t_count = arith.subi %t_e, %t_b : index
        %t_offset = arith.muli %t_b, %eb : index
        %t_bytes = arith.muli %t_count, %eb : index
        %u_n = arith.subi %t_n, %one : index
        %u = arith.remsi %u_n, %n : index
        %u_l = arith.muli %u, %len : index
        %u_b = arith.floordivsi %u_l, %n : index
        %u_x = arith.addi %u, %one : index
        %u_xl = arith.muli %u_x, %len : index
        %u_e = arith.floordivsi %u_xl, %n : index
        %u_count = arith.subi %u_e, %u_b : index
        %u_offset = arith.muli %u_b, %eb : index
        %u_bytes = arith.muli %u_count, %eb : index
        %x = chunk.range %g[%t_offset, %t_bytes] part(%t)
        %y = chunk.range %g[%u_offset, %u_bytes] part(%u)
        chunk.move %x to rotate(%one) into %in[%slot]
        %v = chunk.view %in[%slot][%zero, %u_bytes]
        chunk.launch "reduce_sum" count %u_count ins(%v, %y : !chunk.range, !chunk.range) outs(%y : !chunk.range)
      }
      chunk.for %s = %zero to %last {
        %slot = arith.remsi %s, %two : index
        %r_next = arith.addi %r_n, %one : index
        %t_n = arith.subi %r_next, %s : index
        %t = arith.remsi %t_n, %n : index
        %t_l = arith.muli %t, %len : index
        %t_b = arith.floordivsi %t_l, %n : index
        %t_x = arith.addi %t, %one : index
        %t_xl = arith.muli %t_x, %len : index
        %t_e = arith.floordivsi %t_xl, %n : index
        %t_count = arith.subi %t_e, %t_b : index
        %t_offset = arith.muli %t_b, %eb : index
        %t_bytes = arith.muli %t_count, %eb : index
        %u_n = arith.subi %r_n, %s : index
        %u = arith.remsi %u_n, %n : index
        %u_l = arith.muli %u, %len : index
        %u_b = arith.floordivsi %u_l, %n : index
        %u_x = arith.addi %u, %one : index
        %u_xl = arith.muli %u_x, %len : index
        %u_e = arith.floordivsi %u_xl, %n : index
        %u_count = arith.subi %u_e, %u_b : index
        %u_offset = arith.muli %u_b, %eb : index
        %u_bytes = arith.muli %u_count, %eb : index
        %x = chunk.range %g[%t_offset, %t_bytes] part(%t)
        %y = chunk.range %g[%u_offset, %u_bytes] part(%u)
        chunk.move %x to rotate(%one) into %in2[%slot]
        %v = chunk.view %in2[%slot][%zero, %u_bytes]
        chunk.launch "copy" count %u_count ins(%v : !chunk.range) outs(%y : !chunk.range)
      }
    }
    // Everything is sent twice but for the shard that ends at this rank's left, and the one that it owns.
    %rank = chunk.rank
    %w1_i = arith.addi %rank, %one : index
    %w1 = arith.remsi %w1_i, %n : index
    %p_l = arith.muli %w1, %len : index
    %p_b = arith.floordivsi %p_l, %n : index
    %p_x = arith.addi %w1, %one : index
    %p_xl = arith.muli %p_x, %len : index
    %p_e = arith.floordivsi %p_xl, %n : index
    %p_count = arith.subi %p_e, %p_b : index
    %p_offset = arith.muli %p_b, %eb : index
    %p_bytes = arith.muli %p_count, %eb : index
    %w2_i = arith.addi %rank, %two : index
    %w2 = arith.remsi %w2_i, %n : index
    %q_l = arith.muli %w2, %len : index
    %q_b = arith.floordivsi %q_l, %n : index
    %q_x = arith.addi %w2, %one : index
    %q_xl = arith.muli %q_x, %len : index
    %q_e = arith.floordivsi %q_xl, %n : index
    %q_count = arith.subi %q_e, %q_b : index
    %q_offset = arith.muli %q_b, %eb : index
    %q_bytes = arith.muli %q_count, %eb : index
    %len_bytes = arith.muli %len, %eb : index
    %twice = arith.muli %len_bytes, %two : index
    %less = arith.subi %twice, %p_bytes : index
    %all = arith.subi %less, %q_bytes : index
    %rounds = arith.muli %last, %two : index
    chunk.cost rounds %rounds wire_bytes %all
  }
}
