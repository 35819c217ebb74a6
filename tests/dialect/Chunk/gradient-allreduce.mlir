// RUN: bagua-opt %s --verify-roundtrip | FileCheck %s
// Average of gradients: reduce-scatter and all-gather, every pair of ranks directly.
// CHECK: chunk.schedule @gradient_allreduce grain 1 accepts [f32, f64] {
// CHECK-LABEL: chunk.program @gradient on gradient
//       CHECK:   chunk.for %[[K:.*]] = %{{.*}} to %{{.*}} {
//       CHECK:     chunk.move %{{.*}} to rotate(%[[K]]) into %{{.*}}[%{{.*}}]
//       CHECK:   chunk.gather %{{.*}} = %{{.*}} to %{{.*}} {
//       CHECK:     chunk.yield %{{.*}} when %{{.*}}, %{{.*}} when %{{.*}}
//       CHECK:   chunk.launch "reduce_mean" count %{{.*}} ins(%{{.*}} : !chunk.ranges) outs(%{{.*}} : !chunk.range)
//       CHECK: chunk.cost rounds %{{.*}} wire_bytes %{{.*}}
chunk.schedule @gradient_allreduce grain 1 accepts [f32, f64] {
  chunk.program @gradient on gradient {
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %two = arith.constant 2 : index
    %n = chunk.world
    %len = chunk.length
    %eb = chunk.element_bytes
    %g = chunk.job gradient
    %many = arith.cmpi ugt, %n, %one : index
    // The largest shard.
    %max = arith.ceildivsi %len, %n : index
    %slot_bytes = arith.muli %max, %eb : index
    %in = chunk.slots %n, %slot_bytes
    %in2 = chunk.slots %n, %slot_bytes
    chunk.if %many {
      chunk.forall %r {
        // Own shard: elements [r*len/n, (r+1)*len/n).
        %r_len = arith.muli %r, %len : index
        %r_begin = arith.floordivsi %r_len, %n : index
        %r_next = arith.addi %r, %one : index
        %r_next_len = arith.muli %r_next, %len : index
        %r_end = arith.floordivsi %r_next_len, %n : index
        %r_count = arith.subi %r_end, %r_begin : index
        %r_offset = arith.muli %r_begin, %eb : index
        %r_bytes = arith.muli %r_count, %eb : index
        %own = chunk.range %g[%r_offset, %r_bytes] part(%r)
        chunk.for %k = %one to %n {
          %sum = arith.addi %r, %k : index
          %t = arith.remsi %sum, %n : index
          %t_len = arith.muli %t, %len : index
          %t_begin = arith.floordivsi %t_len, %n : index
          %t_next = arith.addi %t, %one : index
          %t_next_len = arith.muli %t_next, %len : index
          %t_end = arith.floordivsi %t_next_len, %n : index
          %t_count = arith.subi %t_end, %t_begin : index
          %t_offset = arith.muli %t_begin, %eb : index
          %t_bytes = arith.muli %t_count, %eb : index
          %x = chunk.range %g[%t_offset, %t_bytes] part(%t)
          chunk.move %x to rotate(%k) into %in[%r]
        }
        %all = chunk.gather %p = %zero to %n {
          %mine = arith.cmpi eq, %p, %r : index
          %other = arith.cmpi ne, %p, %r : index
          %v = chunk.view %in[%p][%zero, %r_bytes]
          chunk.yield %own when %mine, %v when %other
        }
        chunk.launch "reduce_mean" count %r_count ins(%all : !chunk.ranges) outs(%own : !chunk.range)
        chunk.for %k = %one to %n {
          chunk.move %own to rotate(%k) into %in2[%r]
        }
        chunk.for %p = %zero to %n {
          %other = arith.cmpi ne, %p, %r : index
          chunk.if %other {
            %p_len = arith.muli %p, %len : index
            %p_begin = arith.floordivsi %p_len, %n : index
            %p_next = arith.addi %p, %one : index
            %p_next_len = arith.muli %p_next, %len : index
            %p_end = arith.floordivsi %p_next_len, %n : index
            %p_count = arith.subi %p_end, %p_begin : index
            %p_offset = arith.muli %p_begin, %eb : index
            %p_bytes = arith.muli %p_count, %eb : index
            %v = chunk.view %in2[%p][%zero, %p_bytes]
            %y = chunk.range %g[%p_offset, %p_bytes] part(%p)
            chunk.launch "copy" count %p_count ins(%v : !chunk.range) outs(%y : !chunk.range)
          }
        }
      }
    }
    // len + (n - 2) * shard bytes, if there is anybody to send to.
    %rank = chunk.rank
    %c_len = arith.muli %rank, %len : index
    %c_begin = arith.floordivsi %c_len, %n : index
    %c_next = arith.addi %rank, %one : index
    %c_next_len = arith.muli %c_next, %len : index
    %c_end = arith.floordivsi %c_next_len, %n : index
    %c_count = arith.subi %c_end, %c_begin : index
    %n_2 = arith.subi %n, %two : index
    %repeated = arith.muli %n_2, %c_count : index
    %elements = arith.addi %len, %repeated : index
    %bytes = arith.muli %elements, %eb : index
    %wire = arith.select %many, %bytes, %zero : index
    %rounds = arith.select %many, %two, %zero : index
    chunk.cost rounds %rounds wire_bytes %wire
  }
}
