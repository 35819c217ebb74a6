// Ops of the sched dialect. Constraints are numbered as in the spec; "bind time" and "step time" too.
#ifndef BAGUA_DIALECT_SCHED_SCHEDOPS
#define BAGUA_DIALECT_SCHED_SCHEDOPS

include "bagua/dialect/Sched/SchedInterfaces.td"
include "mlir/IR/BuiltinAttributeInterfaces.td"
include "mlir/IR/OpAsmInterface.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

class Sched_Op<string opMnemonic, list<Trait> traits = []> : Op<Sched_Dialect, opMnemonic, traits>;

defvar InProgram = ParentOneOf<["ProgramOp", "ForOp", "IfOp", "GatherOp"]>;
defvar AmongSteps = ParentOneOf<["ProgramOp", "ForOp", "IfOp"]>;
defvar TopOfProgram = HasParent<"ProgramOp">;

// ---- Structure -----------------------------------------------------------------------------------

def Sched_ScheduleOp : Sched_Op<"schedule", [
    IsolatedFromAbove, SymbolTable, Symbol, SingleBlock, NoTerminator, NoRegionArguments,
    HasParent<"::mlir::ModuleOp">]> {
  let summary = "Everything that one schedule file holds";
  let description = [{
    - C1: `grain` is at least 1.  C2: `accepts` lists f32 and f64, at least one, none twice.
    - C3: the body holds parameters, states and programs only.  C4: no two programs start on one event.
    - C5: one program at most writes a state.  C6: an async program shares no state with another.

    ```mlir
    sched.schedule @bytegrad grain 2048 accepts [f32] { … }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, I64Attr:$grain, TypeArrayAttr:$dtypes,
                   UnitAttr:$owns_update);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    $sym_name `grain` $grain `accepts` $dtypes (`owns_update` $owns_update^)?
    attr-dict-with-keyword $body
  }];
  let hasRegionVerifier = 1;
  let hasVerifier = 1;
}

def Sched_DeclareParameterOp : Sched_Op<"declare_parameter", [Symbol, HasParent<"ScheduleOp">]> {
  let summary = "Declares a parameter of the algorithm and its default";
  let description = [{
    - C1: the default is an index or an f64.

    ```mlir
    sched.declare_parameter @warmup = 100 : index per_step
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypedAttrInterface:$default_value, UnitAttr:$per_step);
  let assemblyFormat = "$sym_name `=` $default_value (`per_step` $per_step^)? attr-dict";
  let hasVerifier = 1;
}

def Sched_DeclareStateOp : Sched_Op<"declare_state", [Symbol, HasParent<"ScheduleOp">]> {
  let summary = "Declares memory that lasts from step to step, one for each bucket";
  let description = [{
    - C1: a number of buckets in 1 … 16 with `neighbors`, and only there.  C2: the initial value is finite.
    - C3: `repartition` is for shards, `mean` for buckets and scalars.
    - C4: the weight is an initial value for `bucket` and `neighbors`.

    ```mlir
    sched.declare_state @momentum bucket = 0.0 on_resize mean
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, Sched_StateDomain:$domain, OptionalAttr<I64Attr>:$buckets,
                       OptionalAttr<F64Attr>:$initial, Sched_OnResize:$on_resize);
  let assemblyFormat = [{
    $sym_name `` $domain (`(` $buckets^ `)`)? `=` custom<InitialValue>($initial) `on_resize` `` $on_resize attr-dict
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// Buckets end to end: 1 but for `neighbors`.
    int64_t copies() { return getBuckets().value_or(1); }
  }];
}

def Sched_ProgramOp : Sched_Op<"program", [
    IsolatedFromAbove, Symbol, SingleBlock, NoRegionArguments, HasParent<"ScheduleOp">]> {
  let summary = "What one rank does for one bucket when a point of the step is reached";
  let description = [{
    - C1: ends with `sched.cost`.  C2: every op is of this dialect or arithmetic that the file can say
      (spec, "Expressions").
    - C3: sizes, bounds, conditions of `sched.if`, offsets, counts, slot and event indices and `when` are bind
      time: they do not use `sched.step` or a per-step parameter.
    - C4: names of buffers, slots and events are unique.  C5: at most one job buffer per role, and of a state at
      most one committed and one next buffer.
    - C6: a kernel writes to buffers, never to a received message: that may be the sender's own memory.  C7: nor to
      the committed value of a state.
    - C8: `async` programs, and only they, have `every`, its unit and `staleness`.  C9: `every` is at least 1 and
      `after` at least 0, numbers or index parameters that are not per_step; nor are others of the program.
    - C10 (B160): `staleness` is at least 1.  C11: an async program has no gradient, gate or `if_finite`.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, Sched_Trigger:$trigger, OptionalAttr<AnyAttr>:$every,
                       OptionalAttr<Sched_IntervalUnit>:$every_unit, OptionalAttr<AnyAttr>:$after,
                       OptionalAttr<I64Attr>:$staleness);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    $sym_name `on` `` $trigger custom<Rounds>($every, $every_unit, $after, $staleness) attr-dict-with-keyword $body
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{ bool isAsync() { return getTrigger() == Trigger::Async; } }];
}

def Sched_CostOp : Sched_Op<"cost", [Terminator, TopOfProgram]> {
  let summary = "Rounds and payload bytes sent by this rank, as formulas";
  let arguments = (ins Index:$rounds, Index:$wire_bytes);
  let assemblyFormat = "`rounds` $rounds `wire_bytes` $wire_bytes attr-dict";
}

def Sched_ForOp : Sched_Op<"for", [AmongSteps, SingleBlock, NoTerminator,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames"]>]> {
  let summary = "Repeats its steps for each value in [lower, upper), bounds of bind time";
  let description = [{
    - C1: one loop variable, of type index.

    ```mlir
    sched.for %k = %one to %n { … }
    ```
  }];
  let arguments = (ins Index:$lower, Index:$upper);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let skipDefaultBuilders = 1;
  let builders = [OpBuilder<(ins "::mlir::Value":$lower, "::mlir::Value":$upper)>];
  let extraClassDeclaration = [{
    ::mlir::BlockArgument getVariable() { return getBody().getArgument(0); }
    ::mlir::Block *getBlock() { return &getBody().front(); }
  }];
}

def Sched_IfOp : Sched_Op<"if", [AmongSteps, SingleBlock, NoTerminator, NoRegionArguments]> {
  let summary = "Steps under a bind-time condition";
  let description = [{
    ```mlir
    sched.if %many { … } else { … }
    ```
  }];
  let arguments = (ins I1:$condition);
  let regions = (region SizedRegion<1>:$then_region, MaxSizedRegion<1>:$else_region);
  let assemblyFormat = "$condition $then_region (`else` $else_region^)? attr-dict";
  let skipDefaultBuilders = 1;
  let builders = [OpBuilder<(ins "::mlir::Value":$condition, CArg<"bool", "false">:$withElse)>];
  let extraClassDeclaration = [{
    ::mlir::Block *getThenBlock() { return &getThenRegion().front(); }
    ::mlir::Block *getElseBlock() { return getElseRegion().empty() ? nullptr : &getElseRegion().front(); }
  }];
}

// ---- Leaves of expressions -----------------------------------------------------------------------

class Sched_LeafOp<string opMnemonic, string text> : Sched_Op<opMnemonic, [
    Pure, InProgram, DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>]> {
  let summary = text;
  let results = (outs Index:$result);
  let assemblyFormat = "attr-dict";
  let extraClassDefinition = [{
    void $cppClass::getAsmResultNames(::mlir::OpAsmSetValueNameFn setName) {
      setName(getResult(), "}] # opMnemonic # [{");
    }
  }];
}
def Sched_WorldOp : Sched_LeafOp<"world", "Number of ranks">;
def Sched_RankOp : Sched_LeafOp<"rank", "This rank">;
def Sched_LocalRankOp : Sched_LeafOp<"local_rank", "This rank within its node">;
def Sched_LocalSizeOp : Sched_LeafOp<"local_size", "Ranks on this node">;
def Sched_NodesOp : Sched_LeafOp<"nodes", "Number of nodes">;
def Sched_LengthOp : Sched_LeafOp<"length", "Elements in the bucket">;
def Sched_ElementBytesOp : Sched_LeafOp<"element_bytes", "Bytes per bucket element">;
def Sched_BucketOp : Sched_LeafOp<"bucket", "Number of the bucket among those of the job">;
def Sched_StepOp : Sched_LeafOp<"step", "Number of the step: the only leaf of step time but per-step parameters">;

def Sched_ParameterOp : Sched_Op<"parameter", [
    Pure, InProgram, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "Value of a declared parameter";
  let description = [{
    - C1: `parameter` names a parameter of the enclosing schedule.  C2: of the declared type.

    ```mlir
    %w = sched.parameter @warmup : index
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$parameter);
  let results = (outs AnyTypeOf<[Index, F64]>:$result);
  let assemblyFormat = "$parameter attr-dict `:` type($result)";
}

def Sched_PairingOp : Sched_Op<"pairing", [Pure, InProgram]> {
  let summary = "This rank's partner in the random matching of a seed and a round; itself if it has none";
  let description = [{
    ```mlir
    %p = sched.pairing %seed, %round
    ```
  }];
  let arguments = (ins Index:$seed, Index:$round);
  let results = (outs Index:$result);
  let assemblyFormat = "$seed `,` $round attr-dict";
}

// ---- Storage -------------------------------------------------------------------------------------

// Declarations are not Pure: two scratch buffers of one size are two buffers.
class Sched_StorageOp<string opMnemonic, list<Trait> traits = []> : Sched_Op<opMnemonic, !listconcat([
    TopOfProgram, DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>], traits)> {
  let extraClassDefinition = [{
    void $cppClass::getAsmResultNames(::mlir::OpAsmSetValueNameFn setName) {
      setName((*this)->getResult(0), getName());
    }
  }];
}

def Sched_JobOp : Sched_StorageOp<"job"> {
  let summary = "The job's gradient or weight bucket: length * element_bytes bytes";
  let arguments = (ins StrAttr:$name, Sched_Role:$role);
  let results = (outs Res<Sched_Buffer, "", [MemAlloc]>:$buffer);
  let assemblyFormat = "$name `` $role attr-dict";
}

def Sched_ScratchOp : Sched_StorageOp<"scratch"> {
  let summary = "Memory of the program, undefined at its start";
  let arguments = (ins StrAttr:$name, Index:$bytes);
  let results = (outs Res<Sched_Buffer, "", [MemAlloc]>:$buffer);
  let assemblyFormat = "$name `bytes` $bytes attr-dict";
}

def Sched_StateOp : Sched_StorageOp<"state", [DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "A state's committed value, or the memory of its next one, undefined at the program's start";
  let description = [{
    - C1: `state` names a state of the enclosing schedule.

    ```mlir
    %m = sched.state "momentum" @momentum
    %new = sched.state "momentum.next" @momentum next
    ```
  }];
  let arguments = (ins StrAttr:$name, FlatSymbolRefAttr:$state, UnitAttr:$next);
  let results = (outs Res<Sched_Buffer, "", [MemAlloc]>:$buffer);
  let assemblyFormat = "$name $state (`next` $next^)? attr-dict";
}

def Sched_SlotsOp : Sched_StorageOp<"slots"> {
  let summary = "`count` landing slots of at most `bytes` each";
  let description = [{
    A slot holds one message from its arrival to its release; a receive into a slot that is not free waits.

    ```mlir
    %in = sched.slots "in" count %n bytes %b
    ```
  }];
  let arguments = (ins StrAttr:$name, Index:$count, Index:$bytes);
  let results = (outs Res<Sched_Slots, "", [MemAlloc]>:$slots);
  let assemblyFormat = "$name `count` $count `bytes` $bytes attr-dict";
}

def Sched_EventsOp : Sched_StorageOp<"events"> {
  let summary = "`count` one-shot events, unset when the program starts";
  let arguments = (ins StrAttr:$name, Index:$count);
  let results = (outs Res<Sched_Events, "", [MemAlloc]>:$events);
  let assemblyFormat = "$name `count` $count attr-dict";
}

// ---- References ----------------------------------------------------------------------------------

def Sched_RangeOp : Sched_Op<"range", [Pure, InProgram]> {
  let summary = "Bytes of a buffer; left out of its list where `when` is false";
  let description = [{
    ```mlir
    %x = sched.range %g[%offset, %bytes] when %own
    ```
  }];
  let arguments = (ins Sched_Buffer:$buffer, Index:$offset, Index:$bytes, Optional<I1>:$when);
  let results = (outs Sched_Range:$range);
  let assemblyFormat = "$buffer `[` $offset `,` $bytes `]` (`when` $when^)? attr-dict";
}

def Sched_ViewOp : Sched_Op<"view", [Pure, InProgram]> {
  let summary = "Bytes of the message in a slot; left out of its list where `when` is false";
  let description = [{
    ```mlir
    %x = sched.view %in[%slot][%offset, %bytes] when %other
    ```
  }];
  let arguments = (ins Sched_Slots:$slots, Index:$slot, Index:$offset, Index:$bytes, Optional<I1>:$when);
  let results = (outs Sched_Range:$range);
  let assemblyFormat = "$slots `[` $slot `]` `` `[` $offset `,` $bytes `]` (`when` $when^)? attr-dict";
}

def Sched_EventOp : Sched_Op<"event", [Pure, InProgram]> {
  let summary = "One event to wait for; left out where `when` is false";
  let arguments = (ins Sched_Events:$events, Index:$index, Optional<I1>:$when);
  let results = (outs Sched_Event:$event);
  let assemblyFormat = "$events `[` $index `]` (`when` $when^)? attr-dict";
}

def Sched_GatherOp : Sched_Op<"gather", [Pure, AmongSteps, SingleBlockImplicitTerminator<"YieldOp">,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames"]>]> {
  let summary = "The references yielded for each value of a variable, in order";
  let description = [{
    - C1: the result is a list of what is yielded: ranges or events.  C2: yields at least one.
    - C3: one loop variable, of type index.

    ```mlir
    %xs = sched.gather %p = %zero to %n {
      …
      %own = sched.range %g[%offset, %bytes] when %mine
      %got = sched.view %in[%p][%zero, %bytes] when %other
      sched.yield %own, %got : !sched.range, !sched.range
    } : !sched.ranges
    ```
  }];
  let arguments = (ins Index:$lower, Index:$upper);
  let results = (outs AnyTypeOf<[Sched_Ranges, Sched_EventList]>:$list);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let skipDefaultBuilders = 1;
  let builders = [OpBuilder<(ins "::mlir::Type":$list, "::mlir::Value":$lower, "::mlir::Value":$upper)>];
  let extraClassDeclaration = [{
    ::mlir::BlockArgument getVariable() { return getBody().getArgument(0); }
    ::mlir::Block *getBlock() { return &getBody().front(); }
  }];
}

def Sched_YieldOp : Sched_Op<"yield", [Pure, Terminator, HasParent<"GatherOp">]> {
  let summary = "Ends a gather";
  let arguments = (ins Variadic<AnyTypeOf<[Sched_Range, Sched_Event]>>:$references);
  let assemblyFormat = "attr-dict ($references^ `:` type($references))?";
  let builders = [OpBuilder<(ins), [{}]>];
}

// ---- Steps ---------------------------------------------------------------------------------------

// Every step ends in: (`after` `(` events `)`)? (`signals` event)? (`guard` condition)? (`if_finite`)?
class Sched_StepOpBase<string opMnemonic, list<Trait> traits = []> : Sched_Op<opMnemonic, !listconcat([
    AmongSteps, AttrSizedOperandSegments, Sched_StepInterface], traits)> {
  dag syncOperands = (ins Variadic<AnyTypeOf<[Sched_Event, Sched_EventList]>>:$after,
                      Optional<Sched_Events>:$signal, Optional<Index>:$signal_index, Optional<I1>:$guard,
                      UnitAttr:$if_finite);
  string syncFormat = [{
    (`after` `(` $after^ `:` type($after) `)`)? (`signals` $signal^ `[` $signal_index `]`)?
    (`guard` $guard^)? (`if_finite` $if_finite^)? attr-dict
  }];
  let hasVerifier = 1;
}
class Sched_FixedQueueOp<string opMnemonic, string queue, list<Trait> traits = []>
    : Sched_StepOpBase<opMnemonic, traits> {
  let extraClassDeclaration = "::bagua::ir::sched::Queue getStepQueue() { return ::bagua::ir::sched::Queue::" # queue # "; }";
}
class Sched_AnyQueueOp<string opMnemonic> : Sched_StepOpBase<opMnemonic> {
  let extraClassDeclaration = "::bagua::ir::sched::Queue getStepQueue() { return getQueue(); }";
}

def Sched_SendOp : Sched_FixedQueueOp<"send", "Net"> {
  let summary = "Sends bytes to a peer; ends when they may be overwritten";
  let description = [{
    Messages of one source, target and channel arrive in the order sent. Zero bytes: no transfer, the event is
    set at once.
    - C1: the channel is not negative.  C2: `signal` comes with an index.

    ```mlir
    sched.send %g[%offset, %bytes] to %peer channel 0 after(%ready : !sched.event) signals %sent[%k]
    ```
  }];
  let arguments = !con((ins Sched_Buffer:$buffer, Index:$offset, Index:$bytes, Index:$peer,
                        I32Attr:$channel), syncOperands);
  let assemblyFormat = "$buffer `[` $offset `,` $bytes `]` `to` $peer `channel` $channel" # syncFormat;
}

def Sched_RecvOp : Sched_FixedQueueOp<"recv", "Net"> {
  let summary = "Receives a message of `bytes` into a free slot; ends on arrival";
  let description = [{
    - C1: the channel is not negative.  C2: `signal` comes with an index.

    ```mlir
    sched.recv %in[%slot] bytes %bytes from %peer channel 0 signals %arrived[%k]
    ```
  }];
  let arguments = !con((ins Sched_Slots:$slots, Index:$slot, Index:$bytes, Index:$peer, I32Attr:$channel),
                       syncOperands);
  let assemblyFormat = "$slots `[` $slot `]` `bytes` $bytes `from` $peer `channel` $channel" # syncFormat;
}

def Sched_ReleaseOp : Sched_AnyQueueOp<"release"> {
  let summary = "Frees a slot and ends the view of its message; the sender's send ends";
  let description = [{
    - C1: `signal` comes with an index.

    ```mlir
    sched.release %in[%slot] on cpu after(%read : !sched.event)
    ```
  }];
  let arguments = !con((ins Sched_Slots:$slots, Index:$slot, Sched_Queue:$queue), syncOperands);
  let assemblyFormat = "$slots `[` $slot `]` `on` `` $queue" # syncFormat;
}

def Sched_LaunchOp : Sched_FixedQueueOp<"launch", "Cpu"> {
  let summary = "Runs a kernel of the kernels library on `count` elements";
  let description = [{
    Operand order and aliasing are the kernel's (Kernels.h). Zero elements: no launch, the event is set at once.
    - C1: kernel attributes are i64, or the code of a map or codec: `array<i64>`, `array<f64>`, dictionaries of such.
    - C2: `signal` comes with an index.  C3: has an output.

    ```mlir
    sched.launch "minmax_encode" {bits = 8, block = 2048} count %length ins(%x : !sched.range)
      outs(%q : !sched.range) after(%ready : !sched.event) signals %encoded[%zero]
    ```
  }];
  let arguments = !con((ins StrAttr:$kernel, DictionaryAttr:$kernel_attributes, Index:$count,
                        Variadic<AnyTypeOf<[Sched_Range, Sched_Ranges]>>:$inputs,
                        Variadic<AnyTypeOf<[Sched_Range, Sched_Ranges]>>:$outputs,
                        Variadic<AnyTypeOf<[Index, F64]>>:$scalars), syncOperands);
  let assemblyFormat = [{
    $kernel $kernel_attributes `count` $count (`ins` `(` $inputs^ `:` type($inputs) `)`)?
    (`outs` `(` $outputs^ `:` type($outputs) `)`)? (`scalars` `(` $scalars^ `:` type($scalars) `)`)?
  }] # syncFormat;
}

def Sched_WaitGateOp : Sched_AnyQueueOp<"wait_gate"> {
  let summary = "Ends when the job opens the gate";
  let description = [{
    - C1: `signal` comes with an index.

    ```mlir
    sched.wait_gate before_update on cpu signals %gate[%zero]
    ```
  }];
  let arguments = !con((ins Sched_Gate:$gate, Sched_Queue:$queue), syncOperands);
  let assemblyFormat = "`` $gate `on` `` $queue" # syncFormat;
}

def Sched_PublishOp : Sched_FixedQueueOp<"publish", "Cpu",
    [DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "Commits a state: programs that start later find its next value";
  let description = [{
    - C1: `signal` comes with an index.  C2: `state` names a state of the enclosing schedule.

    ```mlir
    sched.publish @momentum if_finite
    ```
  }];
  let arguments = !con((ins FlatSymbolRefAttr:$state), syncOperands);
  let assemblyFormat = "$state" # syncFormat;
}

#endif
