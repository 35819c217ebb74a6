// Passes on and from the chunk dialect.
#ifndef BAGUA_COMPILER_CHUNKPASSES
#define BAGUA_COMPILER_CHUNKPASSES

include "mlir/Pass/PassBase.td"

def ChunkToSched : Pass<"chunk-to-sched", "::mlir::ModuleOp"> {
  let summary = "Turns what all ranks do into what one rank does";
  let description = [{
    Each `chunk.move` becomes a send and a receive on a channel of its own, each launch waits for the
    messages it reads and for the sends whose bytes it overwrites, slots are released after their last
    reader. SPEC.md, "From chunk to sched", has the rules and why they can neither race nor deadlock.

    Before:
    ```mlir
    chunk.forall %r {
      chunk.move %x to rotate(%one) into %in[%zero]
      chunk.launch "copy" count %len ins(%v : !chunk.range) outs(%y : !chunk.range)
    }
    ```
    After:
    ```mlir
    sched.recv %in[%zero] bytes %bytes from %left channel 0 signals %arrived[%zero]
    sched.send %g[%zero, %bytes] to %right channel 0
    %e = sched.event %arrived[%zero]
    sched.launch "copy" {} count %len ins(…) outs(…) after(%e : !sched.event)
    sched.release %in[%zero] on cpu after(%e : !sched.event)
    ```
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::bagua::ir::sched::SchedDialect"];
  let statistics = [Statistic<"numWaits", "waits", "Number of events and event lists waited for">];
}

#endif // BAGUA_COMPILER_CHUNKPASSES
