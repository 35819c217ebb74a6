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
// RUN: not bagua-opt %t.mlir --emit=bagua 2>&1 | FileCheck %s --check-prefix=EMPTY
// RUN: not bagua-interpret %t.mlir 2>&1 | FileCheck %s --check-prefix=EMPTY
// EMPTY: {{^}}{{[^ ]+}}.mlir: error: expects one bagua.algorithm in the file, got none

// RUN: not bagua-opt %t.mlir --explain 2>&1 | FileCheck %s --check-prefix=NOTHING
// NOTHING: {{^}}{{[^ ]+}}.mlir: error: expects an algorithm (bagua.algorithm) to explain

// RUN: cat %algorithms/bytegrad.mlir %algorithms/gradient_allreduce.mlir > %t.mlir
// RUN: not bagua-opt %t.mlir --emit=schedule -o %t.bsched 2>&1 | FileCheck %s --check-prefix=TWO
// RUN: not test -e %t.bsched
// RUN: not bagua-opt %t.mlir --emit=bagua 2>&1 | FileCheck %s --check-prefix=TWO
// RUN: not bagua-interpret %t.mlir --level=sched 2>&1 | FileCheck %s --check-prefix=TWO
// TWO: .mlir:[[# %u, ]]:1: error: expects one bagua.algorithm in the file, got a second: give it a file of its own
// TWO-NEXT: bagua.algorithm @gradient_allreduce
// TWO: note: the first is here
// TWO-NEXT: bagua.algorithm @bytegrad

// RUN: bagua-opt %algorithms/bytegrad.mlir --emit=schedule -o %t.good.bsched
// RUN: not bagua-opt %t.good.bsched --emit=chunk 2>&1 | FileCheck %s --check-prefix=COMPILED
// RUN: not bagua-opt %t.good.bsched 2>&1 | FileCheck %s --check-prefix=COMPILED
// RUN: not bagua-interpret %t.good.bsched 2>&1 | FileCheck %s --check-prefix=COMPILED
// COMPILED: .bsched:1:1: error: expects an algorithm (.mlir), got a schedule file (.bsched)
// COMPILED-NOT: BAGUASCH

// RUN: head -c 3000 /dev/urandom > %t.mlir
// RUN: not bagua-opt %t.mlir --emit=schedule 2>&1 | FileCheck %s --check-prefix=NOISE
// NOISE: error:

// RUN: not bagua-opt %algorithms/bytegrad.mlir --emit=schedule --explain 2>&1 | FileCheck %s --check-prefix=BOTH
// BOTH: --emit and --explain exclude each other

// RUN: not bagua-opt %algorithms/bytegrad.mlir --emit=assembly 2>&1 | FileCheck %s --check-prefix=LEVEL
// LEVEL: --emit option: expects one of bagua, chunk, sched, schedule, got 'assembly'
// RUN: not bagua-opt %algorithms/bytegrad.mlir --explain --dtype=f16 2>&1 | FileCheck %s --check-prefix=DTYPE
// DTYPE: --dtype option: expects one of f32, f64, got 'f16'
// RUN: not bagua-interpret %algorithms/bytegrad.mlir --level=assembly 2>&1 | FileCheck %s --check-prefix=INTERPRET
// INTERPRET: --level: assembly not in {bagua,chunk,sched}

// RUN: not bagua-opt %algorithms/bytegrad.mlir --explain --world 0 2>&1 | FileCheck %s --check-prefix=WORLD
// WORLD: {{^}}{{[^ ]+}}.mlir: error: expects --world in 1..65536, got 0

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
// CHECK: errors.mlir:[[# @LINE + 5]]:10: error: 'bagua.encode' op expects its result to reach a bagua.update
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

// RUN: not bagua-opt /dev/zero --emit=schedule 2>&1 | FileCheck %s --check-prefix=ENDLESS
// RUN: not bagua-opt /dev/zero 2>&1 | FileCheck %s --check-prefix=ENDLESS
// RUN: not bagua-opt - < /dev/zero 2>&1 | FileCheck %s --check-prefix=ENDLESS
// RUN: not bagua-interpret /dev/zero 2>&1 | FileCheck %s --check-prefix=ENDLESS
// ENDLESS: : expects a source of at most 64 MiB, got more

// --help shows what is ours, --help-hidden the rest as well.
// RUN: bagua-opt --help | FileCheck %s --check-prefix=HELP
// HELP: --help-hidden: all of mlir-opt
// HELP: bagua options:
// HELP-NOT: --mlir-
// HELP: --bagua-verify-uses
// HELP: --emit=
// HELP: --explain
// HELP-NOT: --mlir-
// RUN: bagua-opt --help-hidden | FileCheck %s --check-prefix=HIDDEN
// HIDDEN: --mlir-print-ir-after-all
