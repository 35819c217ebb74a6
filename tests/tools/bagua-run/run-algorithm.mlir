// bagua-run compiles an algorithm, runs it on processes, and prints what the interpreter prints.

// RUN: bagua-interpret %s --level=bagua --world 3 --length 1234 | grep '^[0-9]' | cut -c1-40 > %t.expected
// RUN: bagua-run -n 3 %s --length 1234 | grep '^[0-9]' | cut -c1-40 > %t.got
// RUN: diff %t.expected %t.got

// One rank's gradient is not finite: no rank moves its weights, before the update or after it.
// RUN: bagua-interpret %algorithms/decentralized.mlir --level=bagua --world 3 --length 1200 --fill edge --seed 8 > %t.decentralized
// RUN: grep 'step 0, not finite' %t.decentralized
// RUN: grep '^[0-9]' %t.decentralized | head -n 3 | cut -c1-40 > %t.expected
// RUN: bagua-run -n 3 %algorithms/decentralized.mlir --length 1200 --fill edge --seed 8 > %t.decentralized
// RUN: grep 'step 0, not finite' %t.decentralized
// RUN: grep '^[0-9]' %t.decentralized | cut -c1-40 > %t.got
// RUN: diff %t.expected %t.got
// RUN: bagua-interpret %algorithms/choco_sgd.mlir --level=bagua --world 3 --length 1200 --fill edge --seed 8 > %t.choco_sgd
// RUN: grep 'step 0, not finite' %t.choco_sgd
// RUN: grep '^[0-9]' %t.choco_sgd | head -n 3 | cut -c1-40 > %t.expected
// RUN: bagua-run -n 3 %algorithms/choco_sgd.mlir --length 1200 --fill edge --seed 8 > %t.choco_sgd
// RUN: grep 'step 0, not finite' %t.choco_sgd
// RUN: grep '^[0-9]' %t.choco_sgd | cut -c1-40 > %t.got
// RUN: diff %t.expected %t.got

// Several steps of an algorithm with states and parameters, with an optimizer between them.
// RUN: bagua-interpret %algorithms/ef21.mlir --world 3 --length 1234 --steps 4 --sgd 0.1 | grep '^[0-9s]' | head -n 16 | cut -c1-40 > %t.expected
// RUN: bagua-run -n 3 %algorithms/ef21.mlir --length 1234 --steps 4 --sgd 0.1 | grep '^[0-9s]' | cut -c1-40 > %t.got
// RUN: diff %t.expected %t.got
// RUN: bagua-interpret %algorithms/choco_sgd.mlir --world 3 --length 1234 --steps 3 --sgd 0.1 | grep '^[0-9s]' | head -n 12 | cut -c1-40 > %t.expected
// RUN: bagua-run -n 3 %algorithms/choco_sgd.mlir --length 1234 --steps 3 --sgd 0.1 | grep '^[0-9s]' | cut -c1-40 > %t.got
// RUN: diff %t.expected %t.got
// RUN: bagua-interpret %algorithms/qadam.mlir --world 2 --length 777 --step 5 --steps 3 --parameter warmup=6 --parameter lr=0.25 | grep '^[0-9s]' | head -n 9 | cut -c1-40 > %t.expected
// RUN: bagua-run -n 2 %algorithms/qadam.mlir --length 777 --step 5 --steps 3 --parameter warmup=6 --parameter lr=0.25 | grep '^[0-9s]' | cut -c1-40 > %t.got
// RUN: diff %t.expected %t.got
// RUN: not bagua-run -n 2 %algorithms/qadam.mlir --parameter warmup=1.5 2>&1 | FileCheck %s --check-prefix=INTEGER
// INTEGER: expects --parameter warmup=INTEGER, got warmup=1.5
// RUN: not bagua-run -n 2 %algorithms/qadam.mlir --parameter warm=1 2>&1 | FileCheck %s --check-prefix=NAME
// NAME: --parameter warm=1: schedule 'qadam' has no parameter of that name

// RUN: echo 'bagua.algorithm @x {' > %t.bad.mlir
// RUN: not bagua-run -n 2 %t.bad.mlir 2>&1 | FileCheck %s --check-prefix=BAD
// BAD: .bad.mlir:1:21: error:
// BAD-NOT: rank

// A wrong option is told before anything is compiled.
// RUN: not bagua-run -n 2 %t.bad.mlir --length=x 2>&1 | FileCheck %s --check-prefix=OPTION
// OPTION: --length
// OPTION-NOT: error:

bagua.algorithm @mean {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %mean = bagua.all_reduce mean %g via #bagua.minmax<bits = 8, block = 512>
    bagua.update gradient = %mean
  }
}
