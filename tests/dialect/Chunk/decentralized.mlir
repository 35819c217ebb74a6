// RUN: bagua-opt %s --verify-roundtrip | FileCheck %s
// Weights mixed with those of ranks r-1 and r+1, a third each. With two ranks the neighbours are one
// (weight 2/3), with one rank there is none.
// CHECK: chunk.schedule @decentralized grain 1 accepts [f32, f64] {
// CHECK-LABEL: chunk.program @before_forward on before_forward
//       CHECK:   chunk.launch "mix" count %{{.*}} ins(%{{.*}}, %{{.*}}, %{{.*}} : !chunk.range, !chunk.range, !chunk.range) outs(%{{.*}} : !chunk.range) scalars(%{{.*}}, %{{.*}} : f64, f64)
//       CHECK:   chunk.wait before_update
chunk.schedule @decentralized grain 1 accepts [f32, f64] {
  chunk.program @before_forward on before_forward {
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %two = arith.constant 2 : index
    %one_third = arith.constant 0.33333333333333331 : f64
    %two_thirds = arith.constant 0.66666666666666663 : f64
    %n = chunk.world
    %len = chunk.length
    %eb = chunk.element_bytes
    %w = chunk.job weight
    %bytes = arith.muli %len, %eb : index
    %mixed = chunk.scratch %bytes
    %in = chunk.slots %two, %bytes
    %many = arith.cmpi ugt, %n, %one : index
    %distinct = arith.cmpi ugt, %n, %two : index
    %back = arith.subi %n, %one : index
    chunk.if %many {
      chunk.forall %r {
        %x = chunk.range %w[%zero, %bytes]
        %y = chunk.range %mixed[%zero, %bytes]
        // Slot 0: from rank r-1. Slot 1: from rank r+1.
        chunk.move %x to rotate(%one) into %in[%zero]
        %left = chunk.view %in[%zero][%zero, %bytes]
        chunk.if %distinct {
          chunk.move %x to rotate(%back) into %in[%one]
          %right = chunk.view %in[%one][%zero, %bytes]
          chunk.launch "mix" count %len ins(%x, %left, %right : !chunk.range, !chunk.range, !chunk.range)
            outs(%y : !chunk.range) scalars(%one_third, %one_third : f64, f64)
        } else {
          chunk.launch "mix" count %len ins(%x, %left : !chunk.range, !chunk.range)
            outs(%y : !chunk.range) scalars(%two_thirds : f64)
        }
        chunk.wait before_update
        chunk.launch "copy" count %len ins(%y : !chunk.range) outs(%x : !chunk.range)
      }
    }
    %neighbours = arith.minsi %back, %two : index
    %wire = arith.muli %neighbours, %bytes : index
    %rounds = arith.select %many, %one, %zero : index
    chunk.cost rounds %rounds wire_bytes %wire
  }
}
