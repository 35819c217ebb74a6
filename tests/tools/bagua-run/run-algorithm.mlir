// bagua-run compiles an algorithm, runs it on processes, and prints what the interpreter prints.

// RUN: bagua-interpret %s --level=bagua --world 3 --length 1234 | grep '^[0-9]' | cut -c1-40 > %t.expected
// RUN: bagua-run -n 3 %s --length 1234 | grep '^[0-9]' | cut -c1-40 > %t.got
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
