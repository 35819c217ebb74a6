// What a schedule cannot compute is an error at its line, whatever is asked for; what is gated by the step compiles.

// RUN: split-file %s %t
// RUN: not bagua-opt %t/float.mlir --emit=schedule -o %t.bsched 2>&1 | FileCheck %s --check-prefix=FLOAT
// RUN: not bagua-opt %t/float.mlir --explain --world 4 --length 100 2>&1 | FileCheck %s --check-prefix=FLOAT
// FLOAT: float.mlir:6:10: error: 'arith.cmpf' op
// RUN: not bagua-opt %t/shift.mlir --explain --world 4 --length 100 2>&1 | FileCheck %s --check-prefix=SHIFT
// SHIFT: shift.mlir:6:10: error: 'arith.shli' op

// RUN: bagua-opt %t/gated.mlir --emit=schedule -o %t.bsched
// RUN: bagua-schedule check %t.bsched

//--- float.mlir
!bucket = tensor<?xf32, #bagua.bucket>
bagua.algorithm @float(%tau: f64 = 0.5) {
  bagua.on gradient(%g: !bucket) {
    %z = arith.constant 0.1 : f64

    %c = arith.cmpf ogt, %tau, %z : f64
    scf.if %c {
      %m = bagua.all_reduce mean %g
      bagua.update gradient = %m
    }
  }
}

//--- shift.mlir
!bucket = tensor<?xf32, #bagua.bucket>
bagua.algorithm @shift(%interval: index = 2) {
  bagua.on gradient(%g: !bucket) {
    %z = arith.constant 1 : index

    %s = arith.shli %interval, %z : index
    %c = arith.cmpi ugt, %s, %z : index
    scf.if %c {
      %m = bagua.all_reduce mean %g
      bagua.update gradient = %m
    }
  }
}

//--- gated.mlir
!bucket = tensor<?xf32, #bagua.bucket>
#exponential = #bagua.exponential
bagua.algorithm @gated(%interval: index = 4) {
  bagua.on after_update(%w: !bucket) {
    %step = bagua.step
    %rest = arith.remsi %step, %interval : index
    %zero = arith.constant 0 : index
    %due = arith.cmpi eq, %rest, %zero : index
    scf.if %due {
      %n = bagua.neighbor_exchange %w on #exponential
      %x = bagua.mix %w, %n on #exponential
      bagua.update weight = %x
    }
  }
}
