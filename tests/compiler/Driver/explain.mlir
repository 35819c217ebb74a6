// Formulas and figures of the shipped algorithms; the figures come from the programs themselves.
// RUN: bagua-opt %algorithms/gradient_allreduce.mlir --explain --world 4 --length 1000 | FileCheck %s --check-prefix=EXACT
// EXACT: algorithm gradient_allreduce: grain 1 element, buckets of f32, f64
// EXACT: on gradient
// EXACT: rounds                 2 if n > 1, else 0
// EXACT: wire bytes of rank r   B(L) + (n - 2)*B(S_r)
// EXACT: wire bytes, all ranks  2*(n - 1)*B(L)
// EXACT: at n = 4, L = 1000, f32:
// EXACT: rounds 2, wire bytes of a rank 6000, all ranks 24000
// EXACT: wire bytes per element and rank 6.000 (an element has 4)

// RUN: bagua-opt %algorithms/gradient_allreduce.mlir --explain --world 2 --length 1001 --dtype f64 | FileCheck %s --check-prefix=DOUBLE
// DOUBLE: at n = 2, L = 1001, f64:
// DOUBLE: rounds 2, wire bytes of a rank 8008, all ranks 16016

// RUN: bagua-opt %algorithms/bytegrad.mlir --explain --world 4 --length 16384 | FileCheck %s --check-prefix=BYTES
// BYTES: algorithm bytegrad: grain 2048 elements, buckets of f32
// BYTES: wire bytes of rank r   P(L) + (n - 2)*P(S_r)
// BYTES: wire bytes, all ranks  2*(n - 1)*P(L)
// BYTES: P(x) = ceil(x/2048)*8 + x
// BYTES: rounds 2, wire bytes of a rank 24672, all ranks 98688
// BYTES: bytes touched 13.{{[0-9]+}}
// BYTES: {{^}}fused (line:column of the algorithm)
// BYTES-NEXT: {{[0-9]+:[0-9]+}}  EncodeAllShards: encodes every shard in one pass over the bucket
// BYTES-NEXT: DecodeReduce: decodes and folds in one pass over the received bytes
// BYTES-NEXT: DecodeIntoBucket: decodes every shard straight into the job's bucket
// BYTES-NEXT: {{^}}not fused (line:column of the algorithm)
// BYTES-NEXT: DecodeReduceEncode: writes the fold to memory and reads it again: no kernel does all three

// RUN: bagua-opt %algorithms/async_model_average.mlir --explain --world 4 --length 1000 | FileCheck %s --check-prefix=TIMED
// TIMED: on gradient
// TIMED: on async, a round every sync_interval_ms (500) ms after warmup_steps (0) steps, added at the latest 4 steps later; figures are of a round
// TIMED: rounds                 2 if n > 1, else 0
// TIMED: at n = 4, L = 1000, f32:
// TIMED: rounds 2, wire bytes of a rank 6000, all ranks 24000

// RUN: bagua-opt %algorithms/ad_psgd.mlir --explain --world 4 --length 1000 | FileCheck %s --check-prefix=COUNTED
// COUNTED: on async, a round every interval (1) steps, added 2 steps later; figures are of a round
// COUNTED: at n = 4, L = 1000, f32, mean of rounds 0 to 999:
// COUNTED: rounds 1, wire bytes of a rank 4000, all ranks 16000

// Not an algorithm that --explain takes, for it leaves results unused; the lowering takes it, and remarks.
// RUN: bagua-opt %S/../Conversion/BaguaToChunk/Inputs/original-needed.mlir --bagua-to-chunk --remarks-filter-missed=BaguaToChunk -o /dev/null 2>&1 | FileCheck %s --check-prefix=NEEDED
// NEEDED: original-needed.mlir:4:13: remark: [Missed] ComputeInPlace | Category:BaguaToChunk | Remark="the job's buffer is read later, at 5:12"

// RUN: bagua-opt %algorithms/bytegrad.mlir --explain --dtype f64 | FileCheck %s --check-prefix=REFUSED
// REFUSED: (no figures: the algorithm does not take buckets of this type)

// RUN: bagua-opt %algorithms/decentralized.mlir --explain --world 3 --length 10 | FileCheck %s --check-prefix=RING
// RING: on before_forward
// RING: rounds                 1 if n > 1, else 0
// RING: wire bytes of rank r   2*B(L)
// RING: wire bytes, all ranks  2*n*B(L)
// RING: for n > 2; in smaller worlds neighbours coincide and send once
// RING: rounds 1, wire bytes of a rank 80, all ranks 240

// RUN: bagua-opt %algorithms/decentralized.mlir --explain --world 2 --length 10 | FileCheck %s --check-prefix=PAIR
// PAIR: rounds 1, wire bytes of a rank 40, all ranks 80

// RUN: bagua-opt %algorithms/decentralized.mlir --explain --world 1 --length 0 | FileCheck %s --check-prefix=ALONE
// ALONE: rounds 0, wire bytes of a rank 0, all ranks 0

// Node by node: within nodes plain, between them packed.
// RUN: bagua-opt %algorithms/hierarchical_bytegrad.mlir --explain --world 8 --nodes 2 --length 10000 | FileCheck %s --check-prefix=NODES
// NODES: rounds                 2 if s > 1, and 1 if k > 1
// NODES: wire bytes of rank r   B(L) + (s - 2)*B(N_r) + (k - 1)*P(N_r)
// NODES: wire bytes, all ranks  2*(s - 1)*k*B(L) + (k - 1)*k*P(L)
// NODES: s: ranks of a node, k: nodes
// NODES: at n = 8, k = 2, L = 10000, f32:
// NODES: rounds 3, wire bytes of a rank 58440 to 74720, all ranks 500080

// A ring of nodes.
// RUN: bagua-opt %algorithms/hierarchical_decentralized.mlir --explain --world 8 --nodes 4 --length 10000 | FileCheck %s --check-prefix=NODERING
// NODERING: rounds                 2 if s > 1, and 1 if k > 1
// NODERING: wire bytes of rank r   B(L) + (s - 2)*B(N_r) + 2*B(N_r)
// NODERING: wire bytes, all ranks  2*(s - 1)*k*B(L) + 2*k*B(L)
// NODERING: for k > 2; in smaller groups neighbours coincide and send once
// NODERING: rounds 3, wire bytes of a rank 80000, all ranks 640000

// RUN: bagua-opt %S/../../algorithms/Inputs/groups_neighbors.mlir --explain | FileCheck %s --check-prefix=BITS
// BITS: and to each of ceil(log2 k) neighbours what is exchanged

// Conditions on nodes are no conditions of what moves between nodes only; on the world there may be more to it.
// RUN: bagua-opt %S/../Conversion/BaguaToChunk/Inputs/groups-buckets.mlir --explain --world 8 --nodes 2 | FileCheck %s --check-prefix=BOTH
// BOTH: wire bytes of rank r   (k - 1)*P(L) + (s - 1)*B(L)
// BOTH: where every branch with communication is taken

// RUN: not bagua-opt %algorithms/hierarchical_bytegrad.mlir --explain --world 8 --nodes 3 2>&1 | FileCheck %s --check-prefix=UNEVEN
// UNEVEN: error: expects --nodes that divide the 8 ranks, got 3

// Two codecs have two names; what stands in a branch is said to.
// RUN: bagua-opt %s --explain | FileCheck %s
// CHECK: wire bytes of rank r   P1(L) + (n - 2)*P1(S_r) + P2(L) + (n - 2)*P2(S_r)
// CHECK: where every branch with communication is taken
// CHECK: P1(x) = ceil(x/16)*8 + x
// CHECK: P2(x) = ceil(x/32)*8 + ceil(4*x/8)
bagua.algorithm @two {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %s = bagua.step
    %ten = arith.constant 10 : index
    %late = arith.cmpi ugt, %s, %ten : index
    scf.if %late {
      %a = bagua.all_reduce mean %g via #bagua.minmax<bits = 8, block = 16>
      %b = bagua.all_reduce mean %a via #bagua.minmax<bits = 4, block = 32>
      bagua.update gradient = %b
    }
  }
}
