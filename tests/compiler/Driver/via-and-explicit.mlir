// bytegrad as it ships, with via, and as the graph that an expert writes: the same schedule, byte for byte, once
// source lines are left out.
// RUN: bagua-opt %algorithms/bytegrad.mlir --emit=schedule --strip-locations -o %t.via
// RUN: bagua-opt %S/../Conversion/BaguaToChunk/Inputs/bytegrad-explicit.mlir --emit=schedule --strip-locations -o %t.explicit
// RUN: cmp %t.via %t.explicit

// So with shards, across the nodes.
// RUN: bagua-opt %algorithms/hierarchical_bytegrad.mlir --emit=schedule --strip-locations -o %t.across
// RUN: bagua-opt %S/../Conversion/BaguaToChunk/Inputs/hierarchical-bytegrad-explicit.mlir --emit=schedule --strip-locations -o %t.across.explicit
// RUN: cmp %t.across %t.across.explicit

// Not by being empty.
// RUN: bagua-opt %algorithms/gradient_allreduce.mlir --emit=schedule --strip-locations -o %t.other
// RUN: not cmp %t.via %t.other
// RUN: grep -c minmax_decode_reduce_mean %t.via

// What is lost at both ends is remembered: doublesqueeze as it ships, and written out.
// RUN: bagua-opt %algorithms/doublesqueeze.mlir --emit=schedule --strip-locations -o %t.remember
// RUN: bagua-opt %S/Inputs/doublesqueeze-explicit.mlir --emit=schedule --strip-locations -o %t.written
// RUN: cmp %t.remember %t.written
// RUN: grep -c sign_decode_reduce_mean %t.remember
