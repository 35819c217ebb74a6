// Handles of the sched dialect and the enums of the schedule file.
#ifndef BAGUA_DIALECT_SCHED_SCHEDTYPES
#define BAGUA_DIALECT_SCHED_SCHEDTYPES

include "bagua/dialect/Sched/SchedDialect.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"

class Sched_Type<string name, string typeMnemonic> : TypeDef<Sched_Dialect, name> {
  let mnemonic = typeMnemonic;
}

def Sched_Buffer : Sched_Type<"Buffer", "buffer"> {
  let summary = "Memory of this rank: the job's, or scratch of the program";
}
def Sched_Slots : Sched_Type<"Slots", "slots"> {
  let summary = "A pool of landing slots, each for one received message";
}
def Sched_Events : Sched_Type<"Events", "events"> {
  let summary = "An array of one-shot events";
}
def Sched_Range : Sched_Type<"Range", "range"> {
  let summary = "One byte range of a buffer or of a received message";
}
def Sched_Ranges : Sched_Type<"Ranges", "ranges"> {
  let summary = "An ordered list of byte ranges";
}
def Sched_Event : Sched_Type<"Event", "event"> {
  let summary = "One event";
}
def Sched_EventList : Sched_Type<"EventList", "event_list"> {
  let summary = "A list of events";
}

// Values are those of the schedule file.
class Sched_Enum<string name, string text, list<I32EnumCase> cases> : I32Enum<name, text, cases> {
  let cppNamespace = "::bagua::ir::sched";
}
def Sched_TriggerEnum : Sched_Enum<"Trigger", "point of the step that starts a program", [
  I32EnumCase<"Gradient", 0, "gradient">, I32EnumCase<"BeforeForward", 1, "before_forward">,
  I32EnumCase<"AfterUpdate", 2, "after_update">, I32EnumCase<"Async", 3, "async">]>;
def Sched_IntervalUnitEnum : Sched_Enum<"IntervalUnit", "what the interval between rounds is counted in", [
  I32EnumCase<"Steps", 0, "steps">, I32EnumCase<"Milliseconds", 1, "ms">]>;
def Sched_RoleEnum : Sched_Enum<"Role", "which of the job's buffers", [
  I32EnumCase<"Gradient", 0, "gradient">, I32EnumCase<"Weight", 1, "weight">]>;
def Sched_GateEnum : Sched_Enum<"Gate", "point of the step at which the job lets a program go on", [
  I32EnumCase<"BeforeUpdate", 0, "before_update">]>;
def Sched_QueueEnum : Sched_Enum<"Queue", "queue that issues a step", [
  I32EnumCase<"Cpu", 0, "cpu">, I32EnumCase<"Net", 1, "net">]>;
def Sched_StateDomainEnum : Sched_Enum<"StateDomain", "what a state has elements for", [
  I32EnumCase<"Bucket", 0, "bucket">, I32EnumCase<"Shard", 1, "shard">, I32EnumCase<"Scalar", 2, "scalar">,
  I32EnumCase<"Neighbors", 3, "neighbors">]>;
def Sched_OnResizeEnum : Sched_Enum<"OnResize", "what becomes of a state when the world changes", [
  I32EnumCase<"Mean", 0, "mean">, I32EnumCase<"Zero", 1, "zero">, I32EnumCase<"Repartition", 2, "repartition">]>;

def Sched_Trigger : EnumAttr<Sched_Dialect, Sched_TriggerEnum, "trigger">;
def Sched_IntervalUnit : EnumAttr<Sched_Dialect, Sched_IntervalUnitEnum, "interval_unit">;
def Sched_Role : EnumAttr<Sched_Dialect, Sched_RoleEnum, "role">;
def Sched_Gate : EnumAttr<Sched_Dialect, Sched_GateEnum, "gate">;
def Sched_Queue : EnumAttr<Sched_Dialect, Sched_QueueEnum, "queue">;
def Sched_StateDomain : EnumAttr<Sched_Dialect, Sched_StateDomainEnum, "state_domain">;
def Sched_OnResize : EnumAttr<Sched_Dialect, Sched_OnResizeEnum, "on_resize">;

#endif
