// The sched dialect: what one rank does, written once for every world, rank and bucket length.
#ifndef BAGUA_DIALECT_SCHED_SCHEDDIALECT
#define BAGUA_DIALECT_SCHED_SCHEDDIALECT

include "mlir/IR/OpBase.td"

def Sched_Dialect : Dialect {
  let name = "sched";
  let cppNamespace = "::bagua::ir::sched";
  let summary = "Per-rank programs: queues, events, slots, transfers, kernel launches";
  let description = [{
    Mirrors the schedule file (runtime/lib/schedule/schedule.fbs) one to one. Index expressions are SSA
    values of `arith` on `index`, `i1` and `f64`; they are i64 with overflow as an error.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::math::MathDialect"];
  let useDefaultTypePrinterParser = 1;
  let useDefaultAttributePrinterParser = 1;
}

#endif
