// What all steps of a program have in common.
#ifndef BAGUA_DIALECT_SCHED_SCHEDINTERFACES
#define BAGUA_DIALECT_SCHED_SCHEDINTERFACES

include "bagua/dialect/Sched/SchedTypes.td"
include "mlir/IR/OpBase.td"

def Sched_StepInterface : OpInterface<"StepInterface"> {
  let cppNamespace = "::bagua::ir::sched";
  let description = [{
    A step is issued by its queue, in program order, once the events of `after` are set; it sets one event
    when it has ended. A guard that is 0 skips the action; the event is set all the same.
  }];
  let methods = [
    InterfaceMethod<"Queue that issues the step", "::bagua::ir::sched::Queue", "getStepQueue">,
    InterfaceMethod<"Events waited for", "::mlir::OperandRange", "getAfter">,
    InterfaceMethod<"Array of the event that is set at the end, or null",
                    "::mlir::TypedValue<::bagua::ir::sched::EventsType>", "getSignal">,
    InterfaceMethod<"Its index, or null", "::mlir::TypedValue<::mlir::IndexType>", "getSignalIndex">,
    InterfaceMethod<"Step-time condition, or null", "::mlir::TypedValue<::mlir::IntegerType>", "getGuard">,
    InterfaceMethod<"Skipped in steps whose gradients are not finite", "bool", "getIfFinite">,
  ];
}

#endif
