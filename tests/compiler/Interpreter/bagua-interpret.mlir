// One algorithm interpreted at each level: the same results and bytes.
// RUN: bagua-interpret %algorithms/bytegrad.mlir --level=bagua --world 3 --length 5000 --fill edge --output %t.bagua > %t.bagua.txt
// RUN: bagua-interpret %algorithms/bytegrad.mlir --level=chunk --world 3 --length 5000 --fill edge --output %t.chunk > %t.chunk.txt
// RUN: bagua-interpret %algorithms/bytegrad.mlir --level=sched --world 3 --length 5000 --fill edge --output %t.sched > %t.sched.txt
// RUN: cmp %t.bagua %t.chunk
// RUN: cmp %t.bagua %t.sched
// RUN: FileCheck %s --check-prefix=TABLE --input-file %t.bagua.txt -DLEVEL=bagua
// RUN: FileCheck %s --check-prefix=TABLE --input-file %t.chunk.txt -DLEVEL=chunk
// RUN: FileCheck %s --check-prefix=TABLE --input-file %t.sched.txt -DLEVEL=sched
//      TABLE: level [[LEVEL]], world 3, length 5000, f32
// TABLE-NEXT: step 0, not finite
// TABLE-NEXT: rank gradient weight wire bytes
// TABLE-NEXT: 0 [[HASH:[0-9a-f]+]] {{[0-9a-f]+}} 7080
// TABLE-NEXT: 1 [[HASH]] {{[0-9a-f]+}} 7080
// TABLE-NEXT: 2 [[HASH]] {{[0-9a-f]+}} 5936

// On three nodes of one rank nothing is summed within a node; on one node of three, nothing between nodes.
// RUN: bagua-interpret %algorithms/hierarchical_bytegrad.mlir --world 3 --nodes 3 --length 5000 | FileCheck %s --check-prefix=NODES
// RUN: bagua-interpret %algorithms/hierarchical_bytegrad.mlir --world 3 --nodes 1 --length 5000 | FileCheck %s --check-prefix=NODE
// NODES: 0 {{[0-9a-f]+}} {{[0-9a-f]+}} 10048
// NODE: 0 {{[0-9a-f]+}} {{[0-9a-f]+}} 2{{[0-9]+}}
// RUN: not bagua-interpret %algorithms/hierarchical_bytegrad.mlir --world 3 --nodes 2 2>&1 | FileCheck %s --check-prefix=UNEVEN
// UNEVEN: --nodes 2: expects a divisor of the 3 ranks

// In another order of the queues, and with copies.
// RUN: bagua-interpret %algorithms/bytegrad.mlir --level=sched --world 3 --length 5000 --fill edge --order 7 --copy --output %t.order
// RUN: cmp %t.bagua %t.order

// What it wrote is what it reads: one more step equals one step from those inputs, whoever runs it.
// RUN: bagua-interpret %algorithms/bytegrad.mlir --level=bagua --world 3 --length 5000 --input %t.bagua --output %t.again
// RUN: bagua-interpret %algorithms/bytegrad.mlir --level=sched --world 3 --length 5000 --input %t.sched --output %t.again.sched
// RUN: cmp %t.again %t.again.sched

// A module of a lower level is interpreted as it is written.
// RUN: bagua-opt %algorithms/decentralized.mlir --emit=sched -o %t.mlir
// RUN: bagua-interpret %t.mlir --level=sched --world 2 --length 9 --dtype f64 --log | FileCheck %s --check-prefix=LOG
// LOG: rank 0: sends 72 bytes to rank 1
// LOG: passes the gate
// LOG: level sched, world 2, length 9, f64
// LOG-NEXT: step 0
// LOG-NEXT: rank  gradient

// Several steps: the job's own optimizer moves the weights, which the next step mixes.
// RUN: bagua-interpret %algorithms/decentralized.mlir --level=bagua --world 3 --length 9 --steps 3 --sgd 0.1 --output %t.steps | FileCheck %s --check-prefix=STEPS
// RUN: bagua-interpret %algorithms/decentralized.mlir --level=chunk --world 3 --length 9 --steps 3 --sgd 0.1 --output %t.steps.chunk
// RUN: cmp %t.steps %t.steps.chunk
// RUN: %python -c 'import sys; assert len(open(sys.argv[1], "rb").read()) == 3 * 2 * 3 * 9 * 4' %t.steps
// STEPS: step 0
// STEPS: 0 {{[0-9a-f]+}} [[FIRST:[0-9a-f]+]] 72
// STEPS: step 1
// STEPS-NOT: [[FIRST]]
// STEPS: step 2

// Errors say what was expected.
// RUN: not bagua-interpret %t.mlir --level=chunk 2>&1 | FileCheck %s --check-prefix=LOWER
// LOWER: expects a module of level chunk or above it
// RUN: not bagua-interpret %algorithms/bytegrad.mlir --level=sched --dtype f64 2>&1 | FileCheck %s --check-prefix=DTYPE
// DTYPE: error: {{.*}} element type that it accepts, got f64
// RUN: not bagua-interpret %algorithms/bytegrad.mlir --level=sched --parameter k=1 2>&1 | FileCheck %s --check-prefix=PARAMETER
// PARAMETER: has no parameter 'k'
// RUN: not bagua-interpret %algorithms/bytegrad.mlir --parameter k 2>&1 | FileCheck %s --check-prefix=NUMBER
// NUMBER: expects --parameter NAME=NUMBER, got k
// RUN: not bagua-interpret %algorithms/bytegrad.mlir --world 3 --length 4000 --input %t.bagua 2>&1 | FileCheck %s --check-prefix=SIZE
// SIZE: expects 96000 bytes (gradients, then weights, of 3 ranks), got more
// RUN: not bagua-interpret %algorithms/bytegrad.mlir --world 1000 --length 4000000000 2>&1 | FileCheck %s --check-prefix=MEMORY
// MEMORY: need more memory than interpreting is worth
// RUN: not bagua-interpret %algorithms/bytegrad.mlir --level=schedule 2>&1 | FileCheck %s --check-prefix=LEVEL
// LEVEL: --level: schedule not in {bagua,chunk,sched}
// RUN: not bagua-interpret %t.none 2>&1 | FileCheck %s --check-prefix=NONE
// NONE: No such file or directory
// RUN: not bagua-interpret %s 2>&1 | FileCheck %s --check-prefix=EMPTY
// EMPTY: error: expects one bagua.algorithm in the file, got none

// An algorithm with a codec that takes f32 only is refused for f64 at every level.
// RUN: not bagua-interpret %algorithms/bytegrad.mlir --level=bagua --dtype f64 2>&1 | FileCheck %s --check-prefix=CODEC
// RUN: not bagua-interpret %algorithms/bytegrad.mlir --level=bagua --dtype f64 --world 1 2>&1 | FileCheck %s --check-prefix=CODEC
// CODEC: error: {{.*}}expects a bucket of f32, got f64: #bagua.minmax<bits = 8, block = 2048> takes f32 only

// Parameters are of their type, at every level: an index is no fraction and not negative, nor 0 where something is divided by it.
// RUN: not bagua-interpret %algorithms/local_sgd.mlir --level=bagua --parameter interval=1.5 2>&1 | FileCheck %s --check-prefix=FRACTION
// RUN: not bagua-interpret %algorithms/local_sgd.mlir --level=chunk --parameter interval=1.5 2>&1 | FileCheck %s --check-prefix=FRACTION
// RUN: not bagua-interpret %algorithms/local_sgd.mlir --level=sched --parameter interval=1.5 2>&1 | FileCheck %s --check-prefix=FRACTION
// FRACTION: expects parameter 'interval' to be an index, an integer from 1 to 2^53, got 1.5
// RUN: not bagua-interpret %algorithms/local_sgd.mlir --level=bagua --parameter interval=0 2>&1 | FileCheck %s --check-prefix=ZERO
// RUN: not bagua-interpret %algorithms/local_sgd.mlir --level=chunk --parameter interval=0 2>&1 | FileCheck %s --check-prefix=ZERO
// RUN: not bagua-interpret %algorithms/local_sgd.mlir --level=sched --parameter interval=0 2>&1 | FileCheck %s --check-prefix=ZERO
// ZERO: expects parameter 'interval' to be an index, an integer from 1 to 2^53, got 0
// RUN: not bagua-interpret %algorithms/async_model_average.mlir --level=sched --parameter sync_interval_ms=0 2>&1 | FileCheck %s --check-prefix=EVERY
// EVERY: expects parameter 'sync_interval_ms' to be an index, an integer from 1
// RUN: not bagua-interpret %algorithms/onebit_adam.mlir --level=bagua --parameter warmup=-1 2>&1 | FileCheck %s --check-prefix=NEGATIVE
// RUN: not bagua-interpret %algorithms/onebit_adam.mlir --level=sched --parameter warmup=-1 2>&1 | FileCheck %s --check-prefix=NEGATIVE
// NEGATIVE: expects parameter 'warmup' to be an index, an integer from 0 to 2^53, got -1
// RUN: not bagua-interpret %algorithms/local_sgd.mlir --parameter interval=2x 2>&1 | FileCheck %s --check-prefix=GARBAGE
// GARBAGE: expects --parameter NAME=NUMBER, got interval=2x
