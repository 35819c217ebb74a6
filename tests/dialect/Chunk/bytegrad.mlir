// RUN: bagua-opt %s --verify-roundtrip | FileCheck %s
// Average of gradients through an 8-bit min-max codec. Blocks are not split between shards, so the packed
// bytes of a shard are a range of the packed bucket: block b of it starts at byte b * (2048 + 8).
// CHECK: chunk.schedule @bytegrad grain 2048 accepts [f32] {
// CHECK-LABEL: chunk.program @gradient on gradient
//       CHECK:   chunk.launch "minmax_encode" with {bits = 8 : i64, block = 2048 : i64} count
chunk.schedule @bytegrad grain 2048 accepts [f32] {
  chunk.program @gradient on gradient {
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %two = arith.constant 2 : index
    %grain = arith.constant 2048 : index
    %header = arith.constant 8 : index
    %n = chunk.world
    %len = chunk.length
    %eb = chunk.element_bytes
    %g = chunk.job gradient
    %many = arith.cmpi ugt, %n, %one : index
    %blocks = arith.ceildivsi %len, %grain : index
    // The largest shard: ceil(blocks / n) blocks.
    %max_blocks = arith.ceildivsi %blocks, %n : index
    %max_elements = arith.muli %max_blocks, %grain : index
    %max_headers = arith.muli %max_blocks, %header : index
    %max_packed = arith.addi %max_elements, %max_headers : index
    %max_bytes = arith.muli %max_elements, %eb : index
    %all_headers = arith.muli %blocks, %header : index
    %all_packed = arith.addi %len, %all_headers : index
    %len_bytes = arith.muli %len, %eb : index
    %packed = chunk.scratch %all_packed
    %mean = chunk.scratch %max_bytes
    %packed_mean = chunk.scratch %max_packed
    %in = chunk.slots %n, %max_packed
    %in2 = chunk.slots %n, %max_packed
    chunk.if %many {
      chunk.forall %r {
        %r_blocks = arith.muli %r, %blocks : index
        %r_block = arith.floordivsi %r_blocks, %n : index
        %r_raw = arith.muli %r_block, %grain : index
        %r_begin = arith.minsi %r_raw, %len : index
        %r_next = arith.addi %r, %one : index
        %r_next_blocks = arith.muli %r_next, %blocks : index
        %r_next_block = arith.floordivsi %r_next_blocks, %n : index
        %r_next_raw = arith.muli %r_next_block, %grain : index
        %r_end = arith.minsi %r_next_raw, %len : index
        %r_count = arith.subi %r_end, %r_begin : index
        %r_offset = arith.muli %r_begin, %eb : index
        %r_bytes = arith.muli %r_count, %eb : index
        %r_headers = arith.muli %r_block, %header : index
        %r_q_offset = arith.addi %r_begin, %r_headers : index
        %r_heads = arith.ceildivsi %r_count, %grain : index
        %r_head_bytes = arith.muli %r_heads, %header : index
        %r_q_bytes = arith.addi %r_count, %r_head_bytes : index
        %bucket = chunk.range %g[%zero, %len_bytes]
        %whole = chunk.range %packed[%zero, %all_packed]
        chunk.launch "minmax_encode" with {bits = 8, block = 2048} count %len
          ins(%bucket : !chunk.range) outs(%whole : !chunk.range)
        chunk.for %k = %one to %n {
          %sum = arith.addi %r, %k : index
          %t = arith.remsi %sum, %n : index
          %t_blocks = arith.muli %t, %blocks : index
          %t_block = arith.floordivsi %t_blocks, %n : index
          %t_raw = arith.muli %t_block, %grain : index
          %t_begin = arith.minsi %t_raw, %len : index
          %t_next = arith.addi %t, %one : index
          %t_next_blocks = arith.muli %t_next, %blocks : index
          %t_next_block = arith.floordivsi %t_next_blocks, %n : index
          %t_next_raw = arith.muli %t_next_block, %grain : index
          %t_end = arith.minsi %t_next_raw, %len : index
          %t_count = arith.subi %t_end, %t_begin : index
          %t_headers = arith.muli %t_block, %header : index
          %t_q_offset = arith.addi %t_begin, %t_headers : index
          %t_heads = arith.ceildivsi %t_count, %grain : index
          %t_head_bytes = arith.muli %t_heads, %header : index
          %t_q_bytes = arith.addi %t_count, %t_head_bytes : index
          %x = chunk.range %packed[%t_q_offset, %t_q_bytes] part(%t)
          chunk.move %x to rotate(%k) into %in[%r]
        }
        %own = chunk.range %packed[%r_q_offset, %r_q_bytes] part(%r)
        %all = chunk.gather %p = %zero to %n {
          %is_own = arith.cmpi eq, %p, %r : index
          %other = arith.cmpi ne, %p, %r : index
          %v = chunk.view %in[%p][%zero, %r_q_bytes]
          chunk.yield %own when %is_own, %v when %other
        }
        %m = chunk.range %mean[%zero, %r_bytes]
        chunk.launch "minmax_decode_reduce_mean" with {bits = 8, block = 2048} count %r_count
          ins(%all : !chunk.ranges) outs(%m : !chunk.range)
        %q = chunk.range %packed_mean[%zero, %r_q_bytes]
        chunk.launch "minmax_encode" with {bits = 8, block = 2048} count %r_count
          ins(%m : !chunk.range) outs(%q : !chunk.range)
        chunk.for %k = %one to %n {
          chunk.move %q to rotate(%k) into %in2[%r]
        }
        chunk.for %p = %zero to %n {
          %p_blocks = arith.muli %p, %blocks : index
          %p_block = arith.floordivsi %p_blocks, %n : index
          %p_raw = arith.muli %p_block, %grain : index
          %p_begin = arith.minsi %p_raw, %len : index
          %p_next = arith.addi %p, %one : index
          %p_next_blocks = arith.muli %p_next, %blocks : index
          %p_next_block = arith.floordivsi %p_next_blocks, %n : index
          %p_next_raw = arith.muli %p_next_block, %grain : index
          %p_end = arith.minsi %p_next_raw, %len : index
          %p_count = arith.subi %p_end, %p_begin : index
          %p_offset = arith.muli %p_begin, %eb : index
          %p_bytes = arith.muli %p_count, %eb : index
          %p_headers = arith.muli %p_block, %header : index
          %p_q_offset = arith.addi %p_begin, %p_headers : index
          %p_heads = arith.ceildivsi %p_count, %grain : index
          %p_head_bytes = arith.muli %p_heads, %header : index
          %p_q_bytes = arith.addi %p_count, %p_head_bytes : index
          %y = chunk.range %g[%p_offset, %p_bytes] part(%p)
          %is_own = arith.cmpi eq, %p, %r : index
          chunk.if %is_own {
            chunk.launch "minmax_decode" with {bits = 8, block = 2048} count %p_count
              ins(%q : !chunk.range) outs(%y : !chunk.range)
          } else {
            %v = chunk.view %in2[%p][%zero, %p_q_bytes]
            chunk.launch "minmax_decode" with {bits = 8, block = 2048} count %p_count
              ins(%v : !chunk.range) outs(%y : !chunk.range)
          }
        }
      }
    }
    %rank = chunk.rank
    %c_blocks = arith.muli %rank, %blocks : index
    %c_block = arith.floordivsi %c_blocks, %n : index
    %c_raw = arith.muli %c_block, %grain : index
    %c_begin = arith.minsi %c_raw, %len : index
    %c_next = arith.addi %rank, %one : index
    %c_next_blocks = arith.muli %c_next, %blocks : index
    %c_next_block = arith.floordivsi %c_next_blocks, %n : index
    %c_next_raw = arith.muli %c_next_block, %grain : index
    %c_end = arith.minsi %c_next_raw, %len : index
    %c_count = arith.subi %c_end, %c_begin : index
    %c_headers = arith.muli %c_block, %header : index
    %c_q_offset = arith.addi %c_begin, %c_headers : index
    %c_heads = arith.ceildivsi %c_count, %grain : index
    %c_head_bytes = arith.muli %c_heads, %header : index
    %c_q_bytes = arith.addi %c_count, %c_head_bytes : index
    %n_2 = arith.subi %n, %two : index
    %repeated = arith.muli %n_2, %c_q_bytes : index
    %bytes = arith.addi %all_packed, %repeated : index
    %wire = arith.select %many, %bytes, %zero : index
    %rounds = arith.select %many, %two, %zero : index
    chunk.cost rounds %rounds wire_bytes %wire
  }
}
