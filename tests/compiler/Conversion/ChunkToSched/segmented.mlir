// RUN: bagua-opt %s --chunk-to-sched | FileCheck %s
// The direct all-reduce in five segments, with slots for two of them: a segment's receives wait until the one
// before the last has been read. Part numbers count shards of all segments.
// CHECK: sched.program @gradient
// CHECK-NOT: sched.recv
// CHECK: sched.for %{{.*}} = %{{.*}} to %c5 {
// CHECK: sched.recv %{{.*}} channel 0
// CHECK: sched.send %{{.*}} channel 0
// CHECK: sched.launch "reduce_sum"
// CHECK: sched.release
// CHECK: sched.recv %{{.*}} channel 1
chunk.schedule @segmented grain 1 accepts [f32, f64] {
  chunk.program @gradient on gradient {
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %two = arith.constant 2 : index
    %five = arith.constant 5 : index
    %n = chunk.world
    %len = chunk.length
    %eb = chunk.element_bytes
    %g = chunk.job gradient
    %segment_max = arith.ceildivsi %len, %five : index
    %max = arith.ceildivsi %segment_max, %n : index
    %slot_bytes = arith.muli %max, %eb : index
    %slots = arith.muli %n, %two : index
    %in = chunk.slots %slots, %slot_bytes
    %in2 = chunk.slots %slots, %slot_bytes
    chunk.for %q = %zero to %five {
      chunk.forall %r {
        %q_l = arith.muli %q, %len : index
        %q_b = arith.floordivsi %q_l, %five : index
        %q_x = arith.addi %q, %one : index
        %q_xl = arith.muli %q_x, %len : index
        %q_e = arith.floordivsi %q_xl, %five : index
        %q_count = arith.subi %q_e, %q_b : index
        %half = arith.remsi %q, %two : index
        %first_slot = arith.muli %half, %n : index
        %first_part = arith.muli %q, %n : index
        %r_l = arith.muli %r, %q_count : index
        %r_b = arith.floordivsi %r_l, %n : index
        %r_x = arith.addi %r, %one : index
        %r_xl = arith.muli %r_x, %q_count : index
        %r_e = arith.floordivsi %r_xl, %n : index
        %r_count = arith.subi %r_e, %r_b : index
        %r_at = arith.addi %q_b, %r_b : index
        %r_offset = arith.muli %r_at, %eb : index
        %r_bytes = arith.muli %r_count, %eb : index
        %r_part = arith.addi %first_part, %r : index
        %r_slot = arith.addi %first_slot, %r : index
        %own = chunk.range %g[%r_offset, %r_bytes] part(%r_part)
        chunk.for %k = %one to %n {
          %sum = arith.addi %r, %k : index
          %t = arith.remsi %sum, %n : index
          %t_l = arith.muli %t, %q_count : index
          %t_b = arith.floordivsi %t_l, %n : index
          %t_x = arith.addi %t, %one : index
          %t_xl = arith.muli %t_x, %q_count : index
          %t_e = arith.floordivsi %t_xl, %n : index
          %t_count = arith.subi %t_e, %t_b : index
          %t_at = arith.addi %q_b, %t_b : index
          %t_offset = arith.muli %t_at, %eb : index
          %t_bytes = arith.muli %t_count, %eb : index
          %t_part = arith.addi %first_part, %t : index
          %x = chunk.range %g[%t_offset, %t_bytes] part(%t_part)
          chunk.move %x to rotate(%k) into %in[%r_slot]
        }
        %all = chunk.gather %p = %zero to %n {
          %mine = arith.cmpi eq, %p, %r : index
          %other = arith.cmpi ne, %p, %r : index
          %p_slot = arith.addi %first_slot, %p : index
          %v = chunk.view %in[%p_slot][%zero, %r_bytes]
          chunk.yield %own when %mine, %v when %other
        }
        chunk.launch "reduce_sum" count %r_count ins(%all : !chunk.ranges) outs(%own : !chunk.range)
        chunk.for %k = %one to %n {
          chunk.move %own to rotate(%k) into %in2[%r_slot]
        }
        chunk.for %p = %zero to %n {
          %mine = arith.cmpi eq, %p, %r : index
          chunk.if %mine {} else {
            %p_l = arith.muli %p, %q_count : index
            %p_b = arith.floordivsi %p_l, %n : index
            %p_x = arith.addi %p, %one : index
            %p_xl = arith.muli %p_x, %q_count : index
            %p_e = arith.floordivsi %p_xl, %n : index
            %p_count = arith.subi %p_e, %p_b : index
            %p_at = arith.addi %q_b, %p_b : index
            %p_offset = arith.muli %p_at, %eb : index
            %p_bytes = arith.muli %p_count, %eb : index
            %p_slot = arith.addi %first_slot, %p : index
            %p_part = arith.addi %first_part, %p : index
            %v = chunk.view %in2[%p_slot][%zero, %p_bytes]
            %y = chunk.range %g[%p_offset, %p_bytes] part(%p_part)
            chunk.launch "copy" count %p_count ins(%v : !chunk.range) outs(%y : !chunk.range)
          }
        }
      }
    }
    chunk.cost rounds %zero wire_bytes %zero
  }
}
