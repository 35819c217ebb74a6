// RUN: bagua-opt %s --emit=schedule -o %t.bsched
// RUN: bagua-schedule check --world-max 3 %t.bsched
// RUN: bagua-interpret %s --level=bagua --world 3 --length 100 --steps 4 --output %t.bagua
// RUN: bagua-interpret %s --level=sched --world 3 --length 100 --steps 4 --output %t.sched
// RUN: cmp %t.bagua %t.sched

// Each op of SPEC.md, "Scalars", is taken, and means the same at the first and the last level.

bagua.algorithm @scalars(%k: index = 3, %lr: f64 = 0.5) {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %n = bagua.world
    %step = bagua.step
    %one = arith.constant 1 : index
    %two = arith.constant 2 : index
    %true = arith.constant true
    %half = arith.constant 0.5 : f64
    %sum = arith.addi %step, %k : index
    %less = arith.subi %sum, %one : index
    %product = arith.muli %less, %two : index
    %floor = arith.floordivsi %product, %k : index
    %ceil = arith.ceildivsi %product, %k : index
    %rest = arith.remsi %product, %k : index
    %divided = arith.divui %n, %two : index
    %roof = arith.ceildivui %n, %two : index
    %mod = arith.remui %n, %two : index
    %least = arith.minui %divided, %roof : index
    %turn = arith.remui %step, %k : index
    %round = arith.divui %sum, %k : index
    %later = arith.minui %turn, %round : index
    %most = arith.maxui %least, %mod : index
    %more = arith.maxui %most, %later : index
    %low = arith.minsi %floor, %ceil : index
    %high = arith.maxsi %low, %more : index
    %even = arith.cmpi eq, %rest, %one : index
    %odd = arith.xori %even, %true : i1
    %many = arith.cmpi ugt, %n, %one : index
    %both = arith.andi %odd, %many : i1
    %either = arith.ori %both, %even : i1
    %chosen = arith.select %either, %high, %one : index
    %long = arith.index_cast %chosen : index to i64
    %real = arith.sitofp %long : i64 to f64
    %short = arith.index_castui %chosen : index to i32
    %back = arith.index_castui %short : i32 to index
    %wide = arith.extui %either : i1 to i64
    %bit = arith.sitofp %wide : i64 to f64
    %same = bagua.to_f64 %back
    %a = arith.addf %real, %same : f64
    %b = arith.subf %a, %half : f64
    %c = arith.mulf %b, %lr : f64
    %d = arith.divf %c, %real : f64
    %e = arith.negf %d : f64
    %f = bagua.power %half, %step
    %h = arith.addf %e, %bit : f64
    scf.if %many {
      %mean = bagua.all_reduce mean %g
      %x = bagua.map %mean * %h + %f
      bagua.update gradient = %x
    }
  }
}
