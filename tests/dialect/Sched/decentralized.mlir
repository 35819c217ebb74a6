// RUN: bagua-opt %s --verify-roundtrip | FileCheck %s
// Mixing with the two neighbours of a ring as one rank's program. With two ranks both neighbours are one peer
// of weight 2/3; alone there is nothing to do. The weights are replaced only when the job opens the gate.
// CHECK: sched.schedule @decentralized grain 1 accepts [f32, f64]
// CHECK: sched.wait_gate before_update on cpu
sched.schedule @decentralized grain 1 accepts [f32, f64] {
  sched.program @before_forward on before_forward {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c3 = arith.constant 3 : index
    %n = sched.world
    %r = sched.rank
    %len = sched.length
    %eb = sched.element_bytes
    %bytes = arith.muli %len, %eb : index
    %w = sched.job "w" weight
    %mixed = sched.scratch "mixed" bytes %bytes
    %in = sched.slots "in" count %c2 bytes %bytes
    %sent = sched.events "sent" count %c2
    %got = sched.events "got" count %c2
    %gate = sched.events "gate" count %c1
    %many = arith.cmpi ugt, %n, %c1 : index
    %three_or_more = arith.cmpi ugt, %n, %c2 : index
    %n_less = arith.subi %n, %c1 : index
    %to_left = arith.addi %r, %n_less : index
    %left = arith.remsi %to_left, %n : index
    %to_right = arith.addi %r, %c1 : index
    %right = arith.remsi %to_right, %n : index
    %one_third = arith.constant 0.33333333333333331 : f64
    %two_thirds = arith.constant 0.66666666666666663 : f64
    sched.if %many {
      sched.send %w[%c0, %bytes] to %left channel 0 signals %sent[%c0]
      sched.recv %in[%c0] bytes %bytes from %right channel 0 signals %got[%c0]
      %x0 = sched.range %w[%c0, %bytes]
      %x1 = sched.view %in[%c0][%c0, %bytes]
      %y = sched.range %mixed[%c0, %bytes]
      %g0 = sched.event %got[%c0]
      %g1 = sched.event %got[%c1]
      %s0 = sched.event %sent[%c0]
      %s1 = sched.event %sent[%c1]
      sched.if %three_or_more {
        sched.send %w[%c0, %bytes] to %right channel 1 signals %sent[%c1]
        sched.recv %in[%c1] bytes %bytes from %left channel 1 signals %got[%c1]
        %x2 = sched.view %in[%c1][%c0, %bytes]
        sched.launch "mix" {} count %len ins(%x0, %x2, %x1 : !sched.range, !sched.range, !sched.range) outs(%y : !sched.range) scalars(%one_third, %one_third : f64, f64) after(%g0, %g1 : !sched.event, !sched.event)
        sched.release %in[%c0] on cpu
        sched.release %in[%c1] on cpu
        sched.wait_gate before_update on cpu
        sched.launch "copy" {} count %len ins(%y : !sched.range) outs(%x0 : !sched.range) after(%s0, %s1 : !sched.event, !sched.event)
      } else {
        sched.launch "mix" {} count %len ins(%x0, %x1 : !sched.range, !sched.range) outs(%y : !sched.range) scalars(%two_thirds : f64) after(%g0 : !sched.event)
        sched.release %in[%c0] on cpu
        sched.wait_gate before_update on cpu
        sched.launch "copy" {} count %len ins(%y : !sched.range) outs(%x0 : !sched.range) after(%s0 : !sched.event)
      }
    }
    %less = arith.subi %n, %c1 : index
    %peers = arith.minsi %less, %c2 : index
    %rounds = arith.minsi %less, %c1 : index
    %wire = arith.muli %peers, %bytes : index
    sched.cost rounds %rounds wire_bytes %wire
  }
}
