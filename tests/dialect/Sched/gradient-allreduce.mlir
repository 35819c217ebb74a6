// RUN: bagua-opt %s --verify-roundtrip | FileCheck %s
// Averaging of gradients as one rank's program: shards go to their owners, who average in rank order and
// send the mean to all. A shard of g is overwritten only after the send that reads it has ended.
// CHECK: sched.schedule @gradient_allreduce grain 1 accepts [f32, f64]
// CHECK: sched.launch "reduce_mean"
sched.schedule @gradient_allreduce grain 1 accepts [f32, f64] {
  sched.program @gradient on gradient {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %n = sched.world
    %r = sched.rank
    %len = sched.length
    %eb = sched.element_bytes
    %grain = arith.constant 1 : index
    %grains = arith.ceildivsi %len, %grain : index
    %grains_max = arith.ceildivsi %grains, %n : index
    %count_max = arith.muli %grains_max, %grain : index
    %bytes_max = arith.muli %count_max, %eb : index
    %g = sched.job "g" gradient
    %in = sched.slots "in" count %n bytes %bytes_max
    %back = sched.slots "back" count %n bytes %bytes_max
    %sent = sched.events "sent" count %n
    %got = sched.events "got" count %n
    %reduced = sched.events "reduced" count %c1
    %got_back = sched.events "got_back" count %n
    %own_begin_grains = arith.muli %r, %grains : index
    %own_begin_grain = arith.floordivsi %own_begin_grains, %n : index
    %own_begin_at = arith.muli %own_begin_grain, %grain : index
    %own_begin = arith.minsi %len, %own_begin_at : index
    %own_next = arith.addi %r, %c1 : index
    %own_end_grains = arith.muli %own_next, %grains : index
    %own_end_grain = arith.floordivsi %own_end_grains, %n : index
    %own_end_at = arith.muli %own_end_grain, %grain : index
    %own_end = arith.minsi %len, %own_end_at : index
    %own_count = arith.subi %own_end, %own_begin : index
    %own_bytes = arith.muli %own_count, %eb : index
    %own_offset = arith.muli %own_begin, %eb : index
    %many = arith.cmpi ugt, %n, %c1 : index
    sched.if %many {
      sched.for %k = %c1 to %n {
        %to = arith.addi %r, %k : index
        %peer = arith.remsi %to, %n : index
        %p_begin_grains = arith.muli %peer, %grains : index
        %p_begin_grain = arith.floordivsi %p_begin_grains, %n : index
        %p_begin_at = arith.muli %p_begin_grain, %grain : index
        %p_begin = arith.minsi %len, %p_begin_at : index
        %p_next = arith.addi %peer, %c1 : index
        %p_end_grains = arith.muli %p_next, %grains : index
        %p_end_grain = arith.floordivsi %p_end_grains, %n : index
        %p_end_at = arith.muli %p_end_grain, %grain : index
        %p_end = arith.minsi %len, %p_end_at : index
        %p_count = arith.subi %p_end, %p_begin : index
        %p_bytes = arith.muli %p_count, %eb : index
        %p_offset = arith.muli %p_begin, %eb : index
        sched.send %g[%p_offset, %p_bytes] to %peer channel 0 signals %sent[%k]
      }
      sched.for %k = %c1 to %n {
        %from = arith.addi %r, %n : index
        %back_k = arith.subi %from, %k : index
        %peer_1 = arith.remsi %back_k, %n : index
        sched.recv %in[%peer_1] bytes %own_bytes from %peer_1 channel 0 signals %got[%peer_1]
      }
      %parts = sched.gather %p = %c0 to %n {
        %is_own = arith.cmpi eq, %p, %r : index
        %is_other = arith.cmpi ne, %p, %r : index
        %a = sched.range %g[%own_offset, %own_bytes] when %is_own
        %b = sched.view %in[%p][%c0, %own_bytes] when %is_other
        sched.yield %a, %b : !sched.range, !sched.range
      } : !sched.ranges
      %all_got = sched.gather %p = %c0 to %n {
        %is_other = arith.cmpi ne, %p, %r : index
        %a_1 = sched.event %got[%p] when %is_other
        sched.yield %a_1 : !sched.event
      } : !sched.event_list
      %mean = sched.range %g[%own_offset, %own_bytes]
      sched.launch "reduce_mean" {} count %own_count ins(%parts : !sched.ranges) outs(%mean : !sched.range) after(%all_got : !sched.event_list) signals %reduced[%c0]
      sched.for %k = %c1 to %n {
        %from_1 = arith.addi %r, %n : index
        %back_k_1 = arith.subi %from_1, %k : index
        %peer_2 = arith.remsi %back_k_1, %n : index
        sched.release %in[%peer_2] on cpu
      }
      %done = sched.event %reduced[%c0]
      sched.for %k = %c1 to %n {
        %to_1 = arith.addi %r, %k : index
        %peer_3 = arith.remsi %to_1, %n : index
        sched.send %g[%own_offset, %own_bytes] to %peer_3 channel 1 after(%done : !sched.event)
      }
      sched.for %k = %c1 to %n {
        %from_2 = arith.addi %r, %n : index
        %back_k_2 = arith.subi %from_2, %k : index
        %peer_4 = arith.remsi %back_k_2, %n : index
        %p_begin_grains_1 = arith.muli %peer_4, %grains : index
        %p_begin_grain_1 = arith.floordivsi %p_begin_grains_1, %n : index
        %p_begin_at_1 = arith.muli %p_begin_grain_1, %grain : index
        %p_begin_1 = arith.minsi %len, %p_begin_at_1 : index
        %p_next_1 = arith.addi %peer_4, %c1 : index
        %p_end_grains_1 = arith.muli %p_next_1, %grains : index
        %p_end_grain_1 = arith.floordivsi %p_end_grains_1, %n : index
        %p_end_at_1 = arith.muli %p_end_grain_1, %grain : index
        %p_end_1 = arith.minsi %len, %p_end_at_1 : index
        %p_count_1 = arith.subi %p_end_1, %p_begin_1 : index
        %p_bytes_1 = arith.muli %p_count_1, %eb : index
        sched.recv %back[%peer_4] bytes %p_bytes_1 from %peer_4 channel 1 signals %got_back[%peer_4]
      }
      sched.for %k = %c1 to %n {
        %from_3 = arith.addi %r, %n : index
        %back_k_3 = arith.subi %from_3, %k : index
        %peer_5 = arith.remsi %back_k_3, %n : index
        %p_begin_grains_2 = arith.muli %peer_5, %grains : index
        %p_begin_grain_2 = arith.floordivsi %p_begin_grains_2, %n : index
        %p_begin_at_2 = arith.muli %p_begin_grain_2, %grain : index
        %p_begin_2 = arith.minsi %len, %p_begin_at_2 : index
        %p_next_2 = arith.addi %peer_5, %c1 : index
        %p_end_grains_2 = arith.muli %p_next_2, %grains : index
        %p_end_grain_2 = arith.floordivsi %p_end_grains_2, %n : index
        %p_end_at_2 = arith.muli %p_end_grain_2, %grain : index
        %p_end_2 = arith.minsi %len, %p_end_at_2 : index
        %p_count_2 = arith.subi %p_end_2, %p_begin_2 : index
        %p_bytes_2 = arith.muli %p_count_2, %eb : index
        %p_at = arith.muli %p_begin_2, %eb : index
        %p_size = arith.muli %p_count_2, %eb : index
        %v = sched.view %back[%peer_5][%c0, %p_bytes_2]
        %w = sched.range %g[%p_at, %p_size]
        %arrived = sched.event %got_back[%peer_5]
        %n_minus_k = arith.subi %n, %k : index
        %free = sched.event %sent[%n_minus_k]
        sched.launch "copy" {} count %p_count_2 ins(%v : !sched.range) outs(%w : !sched.range) after(%arrived, %free : !sched.event, !sched.event)
        sched.release %back[%peer_5] on cpu
      }
    }
    %len_bytes = arith.muli %len, %eb : index
    %others = arith.subi %n, %c2 : index
    %again = arith.muli %others, %own_bytes : index
    %wire = arith.addi %again, %len_bytes : index
    %rounds_many = arith.constant 2 : index
    %rounds = arith.select %many, %rounds_many, %c0 : index
    %bytes = arith.select %many, %wire, %c0 : index
    sched.cost rounds %rounds wire_bytes %bytes
  }
}
