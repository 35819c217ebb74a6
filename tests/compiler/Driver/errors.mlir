// Whatever is wrong with the input or the options: exit status 1 and one clear message, no output file.

// RUN: not bagua-opt %t.none --emit=schedule 2>&1 | FileCheck %s --check-prefix=NOFILE
// NOFILE: cannot open input file '{{.*}}.none': No such file or directory

// RUN: echo 'bagua.algorithm @x {' > %t.mlir
// RUN: not bagua-opt %t.mlir --emit=schedule -o %t.bsched 2>&1 | FileCheck %s --check-prefix=OPEN
// RUN: not test -e %t.bsched
// OPEN: .mlir:1:21: error:

// RUN: echo 'bagua.algorithm @x { bagua.on gradient(%%g: tensor<?xf32, #bagua.bucket>) { bagua.fly } }' > %t.mlir
// RUN: not bagua-opt %t.mlir --emit=chunk 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// UNKNOWN: .mlir:1:{{[0-9]+}}: error: {{.*}}bagua.fly

// RUN: echo '' > %t.mlir
// RUN: not bagua-opt %t.mlir --emit=schedule -o %t.bsched 2>&1 | FileCheck %s --check-prefix=EMPTY
// RUN: not test -e %t.bsched
// EMPTY: error: {{.*}}schedule

// RUN: not bagua-opt %t.mlir --explain 2>&1 | FileCheck %s --check-prefix=NOTHING
// NOTHING: error: expects an algorithm (bagua.algorithm) to explain

// RUN: cat %algorithms/bytegrad.mlir %algorithms/gradient_allreduce.mlir > %t.mlir
// RUN: not bagua-opt %t.mlir --emit=schedule -o %t.bsched 2>&1 | FileCheck %s --check-prefix=TWO
// RUN: not test -e %t.bsched
// TWO: error: {{.*}}schedule

// RUN: head -c 3000 /dev/urandom > %t.mlir
// RUN: not bagua-opt %t.mlir --emit=schedule 2>&1 | FileCheck %s --check-prefix=NOISE
// NOISE: error:

// RUN: not bagua-opt %algorithms/bytegrad.mlir --emit=schedule --explain 2>&1 | FileCheck %s --check-prefix=BOTH
// BOTH: --emit and --explain exclude each other

// RUN: not bagua-opt %algorithms/bytegrad.mlir --emit=assembly 2>&1 | FileCheck %s --check-prefix=LEVEL
// LEVEL: assembly

// RUN: not bagua-opt %algorithms/bytegrad.mlir --explain --world 0 2>&1 | FileCheck %s --check-prefix=WORLD
// WORLD: error: expects --world in 1..65536, got 0

// RUN: not bagua-opt %algorithms/bytegrad.mlir --explain --length=-1 2>&1 | FileCheck %s --check-prefix=LENGTH
// LENGTH: error: expects --length in 0..2^40, got -1

// RUN: not bagua-opt %algorithms/bytegrad.mlir --emit=schedule -o %t.none/x.bsched 2>&1 | FileCheck %s --check-prefix=NOFOLDER
// NOFOLDER: cannot open output file '{{.*}}x.bsched': No such file or directory

// The parser recurses: depth has a limit. Comments, strings and arrows are no brackets.
// RUN: %python -c 'print("!x = " + "tuple<" * 100000)' > %t.mlir
// RUN: not bagua-opt %t.mlir --emit=schedule 2>&1 | FileCheck %s --check-prefix=DEEP
// RUN: not bagua-opt %t.mlir 2>&1 | FileCheck %s --check-prefix=DEEP
// DEEP: .mlir:1:{{[0-9]+}}: error: brackets nest deeper than 256 levels
// RUN: %python -c 'print("// " + "<" * 1000); print("#x = \"" + "(" * 1000 + "\""); print("!x = () -> " * 200 + "()")' > %t.mlir
// RUN: not bagua-opt %t.mlir --emit=chunk 2>&1 | FileCheck %s --check-prefix=SHALLOW
// SHALLOW-NOT: brackets nest

// Checks run before lowering, whatever level is asked for.
// RUN: not bagua-opt %s --emit=bagua 2>&1 | FileCheck %s
// CHECK: errors.mlir:[[# @LINE + 5]]:10: error: 'bagua.encode' op expects to stand under a condition that implies `world > 1`
// CHECK: %q = bagua.encode
#mm = #bagua.minmax<bits = 8, block = 512>
bagua.algorithm @unguarded {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %q = bagua.encode %g with #mm
  }
}

// RUN: sed 's/^#mm.*//; s/%%q = .*/%%q = bagua.all_reduce mean %%g/' %s > %t.mlir
// RUN: not bagua-opt %t.mlir --emit=schedule -o %t.unused 2>&1 | FileCheck %s --check-prefix=UNUSED
// RUN: not test -e %t.unused
// UNUSED: error: 'bagua.all_reduce' op expects its result to reach a bagua.update
