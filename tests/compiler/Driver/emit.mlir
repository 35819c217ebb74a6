// --emit stops at each level; input may start at any.
// RUN: bagua-opt %s --emit=bagua | FileCheck %s --check-prefix=BAGUA
// RUN: bagua-opt %s --emit=chunk | FileCheck %s --check-prefix=CHUNK
// RUN: bagua-opt %s --emit=chunk | bagua-opt --emit=sched | FileCheck %s --check-prefix=SCHED
// RUN: bagua-opt %s --emit=sched | FileCheck %s --check-prefix=SCHED
// BAGUA: bagua.algorithm @example
// BAGUA: bagua.all_to_all
// CHUNK-NOT: bagua.
// CHUNK: chunk.schedule @example grain 64 accepts [f32]
// CHUNK: chunk.move
// SCHED-NOT: chunk.
// SCHED: sched.schedule @example grain 64 accepts [f32]
// SCHED: sched.send

// A schedule has one name, whatever the folder and however often it is written, and holds no path.
// RUN: rm -rf %t && mkdir -p %t/a %t/b
// RUN: cp %s %t/a/example.mlir && cp %s %t/b/example.mlir
// RUN: bagua-opt %t/a/example.mlir --emit=schedule -o %t/a.bsched
// RUN: bagua-opt %t/a/example.mlir --emit=schedule -o %t/again.bsched
// RUN: bagua-opt %t/b/example.mlir --emit=schedule > %t/b.bsched
// RUN: cmp %t/a.bsched %t/again.bsched
// RUN: cmp %t/a.bsched %t/b.bsched
// RUN: grep -c example.mlir %t/a.bsched
// RUN: not grep -c "/example.mlir" %t/a.bsched

// A schedule of another source file differs in its locations only.
// RUN: cp %s %t/b/other.mlir
// RUN: bagua-opt %t/b/other.mlir --emit=schedule -o %t/other.bsched
// RUN: not cmp %t/a.bsched %t/other.bsched
// RUN: bagua-opt %t/a/example.mlir --emit=schedule --strip-locations -o %t/a-stripped.bsched
// RUN: bagua-opt %t/b/other.mlir --emit=schedule --strip-locations -o %t/other-stripped.bsched
// RUN: cmp %t/a-stripped.bsched %t/other-stripped.bsched

bagua.algorithm @example {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %mean = bagua.all_reduce mean %g via #bagua.minmax<bits = 8, block = 64>
    bagua.update gradient = %mean
  }
}
