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
