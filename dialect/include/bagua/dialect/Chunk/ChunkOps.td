// The ops of the chunk dialect. SPEC.md, "chunk", has their meaning and numbered constraints.
#ifndef BAGUA_DIALECT_CHUNK_CHUNKOPS_TD
#define BAGUA_DIALECT_CHUNK_CHUNKOPS_TD

include "bagua/dialect/Chunk/ChunkDialect.td"
include "mlir/IR/BuiltinAttributeInterfaces.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

// A bare enum attribute prints its own leading space: hence the `` before each in the formats.
class Chunk_Op<string mnemonic, list<Trait> traits = []> : Op<Chunk_Dialect, mnemonic, traits>;

// An op whose result type is always the same: builders need not be told.
class Chunk_ResultOp<string mnemonic, list<Trait> traits>
    : Chunk_Op<mnemonic, !listconcat(traits, [DeclareOpInterfaceMethods<InferTypeOpInterface>])>;

// ---- Structure ---------------------------------------------------------------------------------

def Chunk_ScheduleOp : Chunk_Op<"schedule", [
    IsolatedFromAbove, SymbolTable, Symbol, SingleBlock, NoTerminator, NoRegionArguments,
    HasParent<"::mlir::ModuleOp">]> {
  let summary = "An algorithm: its parameters and programs, and what they apply to";
  let description = [{
    `grain`: shards are cut at multiples of so many elements. `accepts`: element types of buckets.

    - C1: `grain` is at least 1.  C2: `accepts` lists f32 and f64, at least one, none twice.
    - C3: the body holds parameters, states and programs only.  C4: no two programs start on one event.
    - C5: one program at most writes a state.  C6: an async program shares no state with another.

    ```mlir
    chunk.schedule @bytegrad grain 2048 accepts [f32] { chunk.program @gradient on gradient { … } }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, ConfinedAttr<I64Attr, [IntPositive]>:$grain,
                       TypeArrayAttr:$dtypes, UnitAttr:$owns_update);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    $sym_name `grain` $grain `accepts` $dtypes (`owns_update` $owns_update^)?
    attr-dict-with-keyword $body
  }];
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let skipDefaultBuilders = 1;
  let builders = [OpBuilder<(ins "::llvm::StringRef":$name, "int64_t":$grain,
                                 "::llvm::ArrayRef<::mlir::Type>":$dtypes, CArg<"bool", "false">:$ownsUpdate)>];
}

def Chunk_DeclareParameterOp : Chunk_Op<"declare_parameter", [Symbol, HasParent<"ScheduleOp">]> {
  let summary = "Declares a parameter of the algorithm and its default";
  let description = [{
    - C1: the default is an index or an f64.

    ```mlir
    chunk.declare_parameter @warmup = 100 : index per_step
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypedAttrInterface:$default_value, UnitAttr:$per_step);
  let assemblyFormat = "$sym_name `=` $default_value (`per_step` $per_step^)? attr-dict";
  let hasVerifier = 1;
}

def Chunk_DeclareStateOp : Chunk_Op<"declare_state", [Symbol, HasParent<"ScheduleOp">]> {
  let summary = "Declares memory that lasts from step to step, one for each bucket";
  let description = [{
    Elements are of the bucket's type: as many as the bucket has, as this rank's shard has, one, or so many
    buckets end to end. Without `initial` they start as the job's weight.

    - C1: a number of buckets in 1 … 16 with `neighbors`, and only there.  C2: the initial value is finite.
    - C3: `repartition` is for shards, `mean` for buckets and scalars.
    - C4: the weight is an initial value for `bucket` and `neighbors`.

    ```mlir
    chunk.declare_state @momentum bucket = 0.0 on_resize mean
    chunk.declare_state @replicas neighbors(2) = weight on_resize zero
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, Chunk_StateDomainAttr:$domain, OptionalAttr<I64Attr>:$buckets,
                       OptionalAttr<F64Attr>:$initial, Chunk_OnResizeAttr:$on_resize);
  let assemblyFormat = [{
    $sym_name `` $domain (`(` $buckets^ `)`)? `=` custom<InitialValue>($initial) `on_resize` `` $on_resize attr-dict
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// Buckets end to end: 1 but for `neighbors`.
    int64_t copies() { return getBuckets().value_or(1); }
  }];
}

def Chunk_ProgramOp : Chunk_Op<"program", [
    IsolatedFromAbove, Symbol, SingleBlock, NoTerminator, NoRegionArguments, HasParent<"ScheduleOp">]> {
  let summary = "What all ranks do when an event of a training step happens to a bucket";
  let description = [{
    Holds declarations (`job`, `scratch`, `slots`), size arithmetic, `forall`s with the work, and the cost. On
    `async`, it is one round: `chunk.job weight` is a snapshot when it starts and what is to be added to the weight
    when it ends; `chunk.step` is the round's number.

    - C1: the body holds exactly one `chunk.cost`.
    - C4: `async` programs, and only they, have `every`, its unit and `staleness`.  C5: `every` is at least 1 and
      `after` at least 0, numbers or index parameters that are not per_step; nor are others of the program.
    - C6 (B160): `staleness` is at least 1.  C7: an async program has no gradient, gate or `if_finite`.

    ```mlir
    chunk.program @gradient on gradient {
      %n = chunk.world
      %g = chunk.job gradient
      …
      chunk.forall %r { … }
      chunk.cost rounds %rounds wire_bytes %bytes
    }
    chunk.program @async on async every(@interval steps) after(100) staleness(2) { … }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, Chunk_EventAttr:$event, OptionalAttr<AnyAttr>:$every,
                       OptionalAttr<Chunk_IntervalUnitAttr>:$every_unit, OptionalAttr<AnyAttr>:$after,
                       OptionalAttr<I64Attr>:$staleness);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    $sym_name `on` `` $event custom<Rounds>($every, $every_unit, $after, $staleness) attr-dict-with-keyword $body
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{ bool isAsync() { return getEvent() == Event::Async; } }];
  let skipDefaultBuilders = 1;
  let builders = [OpBuilder<(ins "::llvm::StringRef":$name, "::bagua::ir::chunk::Event":$event)>];
}

def Chunk_ForallOp : Chunk_Op<"forall", [
    SingleBlock, NoTerminator, RecursiveMemoryEffects, ParentOneOf<["ProgramOp", "ForOp", "IfOp"]>]> {
  let summary = "Every rank executes the body, all in lockstep";
  let description = [{
    `%r` is the rank. - C1: the body has one argument, an index.  C2: it is not inside another `forall`.
  }];
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let skipDefaultBuilders = 1;
  let builders = [OpBuilder<(ins)>];
  let extraClassDeclaration = [{ ::mlir::BlockArgument getRank() { return getBody().getArgument(0); } }];
}

def Chunk_ForOp : Chunk_Op<"for", [SingleBlock, NoTerminator, RecursiveMemoryEffects]> {
  let summary = "Executes the body for each value in [lower, upper)";
  let description = [{
    - C1: the body has one argument, an index.
    - C2 (checked when lowering and interpreting): bounds are the same on all ranks if the body moves.

    ```mlir
    chunk.for %k = %one to %n { … }
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
  }];
}

def Chunk_IfOp : Chunk_Op<"if", [NoTerminator, NoRegionArguments, RecursiveMemoryEffects]> {
  let summary = "Executes one of two bodies";
  let description = [{
    - C1: `then` has one block, `otherwise` at most one.
    - C2 (checked when lowering and interpreting): the condition is the same on all ranks if a body moves.

    ```mlir
    chunk.if %many { … } else { … }
    ```
  }];
  let arguments = (ins I1:$condition);
  let regions = (region SizedRegion<1>:$then, MaxSizedRegion<1>:$otherwise);
  let hasCustomAssemblyFormat = 1;
  let skipDefaultBuilders = 1;
  let builders = [OpBuilder<(ins "::mlir::Value":$condition, CArg<"bool", "false">:$withElse)>];
}

def Chunk_IfFiniteOp : Chunk_Op<"if_finite", [
    SingleBlock, NoTerminator, NoRegionArguments, RecursiveMemoryEffects]> {
  let summary = "Executes the body only in steps whose gradients are finite on all ranks";
  let description = [{
    - C1: inside a `forall`.  C2: no move, wait or other `if_finite` inside.
    - C3 (checked when lowering and interpreting): after a `chunk.wait before_update`, which tells.

    ```mlir
    chunk.wait before_update
    chunk.if_finite { chunk.launch … chunk.publish @momentum }
    ```
  }];
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "attr-dict-with-keyword $body";
  let hasRegionVerifier = 1;
  let hasVerifier = 1;
  let skipDefaultBuilders = 1;
  let builders = [OpBuilder<(ins)>];
}

def Chunk_CostOp : Chunk_Op<"cost", [HasParent<"ProgramOp">]> {
  let summary = "Communication rounds, and payload bytes that rank `chunk.rank` sends";
  let arguments = (ins Index:$rounds, Index:$wire_bytes);
  let assemblyFormat = "`rounds` $rounds `wire_bytes` $wire_bytes attr-dict";
}

// ---- Numbers -----------------------------------------------------------------------------------

class Chunk_NumberOp<string mnemonic, string text, list<Trait> traits = []>
    : Chunk_ResultOp<mnemonic, !listconcat([Pure], traits)> {
  let summary = text;
  let results = (outs Index:$result);
  let assemblyFormat = "attr-dict";
}

def Chunk_WorldOp : Chunk_NumberOp<"world", "Number of ranks">;
def Chunk_LocalSizeOp : Chunk_NumberOp<"local_size", "Ranks of a node">;
def Chunk_NodesOp : Chunk_NumberOp<"nodes", "Number of nodes">;
def Chunk_LengthOp : Chunk_NumberOp<"length", "Elements in the bucket">;
def Chunk_ElementBytesOp : Chunk_NumberOp<"element_bytes", "Bytes of one element as stored">;
def Chunk_BucketOp : Chunk_NumberOp<"bucket", "Number of the bucket among those of the job">;
def Chunk_StepOp : Chunk_NumberOp<"step", "Number of the training step: not known when a schedule is bound">;
def Chunk_ParameterOp : Chunk_Op<"parameter", [Pure, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "Value of a declared parameter";
  let description = [{
    - C1: `parameter` names a parameter of the enclosing schedule.  C2: the result has the declared type.

    ```mlir
    %w = chunk.parameter @warmup : index
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$parameter);
  let results = (outs AnyTypeOf<[Index, F64]>:$result);
  let assemblyFormat = "$parameter attr-dict `:` type($result)";
}
def Chunk_RankOp : Chunk_NumberOp<"rank", "The rank, outside of `forall`", [HasParent<"ProgramOp">]> {
  let description = [{
    For sizes that differ between ranks and for `chunk.cost`. Equal to the `%r` of every `forall`.
  }];
}

def Chunk_LocalRankOp : Chunk_NumberOp<"local_rank", "The rank's place in its node", [HasParent<"ProgramOp">]>;
def Chunk_NodeOp : Chunk_NumberOp<"node", "The number of the rank's node", [HasParent<"ProgramOp">]>;

def Chunk_PeerOp : Chunk_ResultOp<"peer", [Pure]> {
  let summary = "The rank to which a peer map takes the executing rank";
  let description = [{
    Equal to the rank itself where an involution leaves it without a partner.

    - C1: two arguments for `pairing`, one for the other maps.

    ```mlir
    %p = chunk.peer pairing(%seed, %step)
    ```
  }];
  let arguments = (ins Chunk_PeerMapAttr:$map, Variadic<Index>:$arguments);
  let results = (outs Index:$result);
  let assemblyFormat = "`` $map `(` $arguments `)` attr-dict";
  let hasVerifier = 1;
}

// ---- Storage -----------------------------------------------------------------------------------

def Chunk_JobOp : Chunk_ResultOp<"job", [Pure, HasParent<"ProgramOp">]> {
  let summary = "The bucket's gradients or weights: length * element_bytes bytes";
  let arguments = (ins Chunk_RoleAttr:$role);
  let results = (outs Chunk_BufferType:$result);
  let assemblyFormat = "`` $role attr-dict";
}

def Chunk_ScratchOp : Chunk_ResultOp<"scratch", [
    MemoryEffects<[MemAlloc<DefaultResource>]>, HasParent<"ProgramOp">]> {
  let summary = "A buffer of the program's own, undefined at its start";
  let arguments = (ins Index:$bytes);
  let results = (outs Chunk_BufferType:$result);
  let assemblyFormat = "$bytes attr-dict";
}

def Chunk_StateOp : Chunk_ResultOp<"state", [
    Pure, HasParent<"ProgramOp">, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "A state's committed value, or the memory of its next one";
  let description = [{
    Without `next`: what was committed when the program started, read only. With it: undefined at the program's
    start, and the committed value of later programs once `chunk.publish` was executed.

    - C1: `state` names a state of the enclosing schedule.
    - C2 (checked when lowering and interpreting): nothing writes a committed value.

    ```mlir
    %m = chunk.state @momentum
    %new = chunk.state @momentum next
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$state, UnitAttr:$next);
  let results = (outs Chunk_BufferType:$result);
  let assemblyFormat = "$state (`next` $next^)? attr-dict";
}

def Chunk_SlotsOp : Chunk_ResultOp<"slots", [
    MemoryEffects<[MemAlloc<DefaultResource>]>, HasParent<"ProgramOp">]> {
  let summary = "Declares `count` landing slots of at most `bytes` each on every rank";
  let description = [{
    A slot holds one message. Messages live in generations: see SPEC.md, "Life of a message".
  }];
  let arguments = (ins Index:$count, Index:$bytes);
  let results = (outs Chunk_SlotsType:$result);
  let assemblyFormat = "$count `,` $bytes attr-dict";
}

def Chunk_RangeOp : Chunk_ResultOp<"range", [Pure]> {
  let summary = "Bytes [offset, offset + bytes) of the rank's buffer";
  let description = [{
    Bounds are checked where the range is used. `part(%i)` promises that of one buffer, ranges with unequal part
    numbers do not overlap (shard numbers, as a rule): the lowering then waits for one transfer, not for
    all. The interpreter checks the promise. Parts `of` another group are numbered apart: what they say of
    each other is nothing.

    - C2: `of` only with a part.

    ```mlir
    %x = chunk.range %g[%begin, %bytes] part(%i)
    %y = chunk.range %g[%other, %size] part(%l) of node
    ```
  }];
  let arguments = (ins Chunk_BufferType:$buffer, Index:$offset, Index:$bytes, Optional<Index>:$part,
                       DefaultValuedAttr<Chunk_GroupAttr, "::bagua::ir::chunk::Group::World">:$group);
  let results = (outs Chunk_RangeType:$result);
  let assemblyFormat = [{
    $buffer `[` $offset `,` $bytes `]` (`part` `(` $part^ `)`)? (`of` `` $group^)? attr-dict
  }];
  let hasVerifier = 1;
  let builders = [OpBuilder<(ins "::mlir::Value":$buffer, "::mlir::Value":$offset, "::mlir::Value":$bytes), [{
    build($_builder, $_state, buffer, offset, bytes, ::mlir::Value());
  }]>, OpBuilder<(ins "::mlir::Value":$buffer, "::mlir::Value":$offset, "::mlir::Value":$bytes,
                      "::mlir::Value":$part), [{
    build($_builder, $_state, buffer, offset, bytes, part, ::bagua::ir::chunk::Group::World);
  }]>];
}

def Chunk_ViewOp : Chunk_ResultOp<"view", [Pure]> {
  let summary = "Bytes [offset, offset + bytes) of the message in slot `index` of the rank's pool";
  let description = [{
    ```mlir
    %v = chunk.view %in[%p][%zero, %bytes]
    ```
  }];
  let arguments = (ins Chunk_SlotsType:$slots, Index:$index, Index:$offset, Index:$bytes);
  let results = (outs Chunk_RangeType:$result);
  let assemblyFormat = "$slots `[` $index `]` `` `[` $offset `,` $bytes `]` attr-dict";
}

def Chunk_GatherOp : Chunk_Op<"gather", [SingleBlockImplicitTerminator<"YieldOp">, RecursiveMemoryEffects]> {
  let summary = "The ranges that the body yields for each value in [lower, upper), in order";
  let description = [{
    - C1: the body has one argument, an index.  C2: it holds only ops without effects.

    ```mlir
    %xs = chunk.gather %p = %zero to %n {
      %own = arith.cmpi eq, %p, %r : index
      %other = arith.cmpi ne, %p, %r : index
      %a = chunk.range %g[%begin, %bytes] part(%r)
      %b = chunk.view %in[%p][%zero, %bytes]
      chunk.yield %a when %own, %b when %other
    }
    ```
  }];
  let arguments = (ins Index:$lower, Index:$upper);
  let regions = (region SizedRegion<1>:$body);
  let results = (outs Chunk_RangesType:$result);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let skipDefaultBuilders = 1;
  let builders = [OpBuilder<(ins "::mlir::Value":$lower, "::mlir::Value":$upper)>];
  let extraClassDeclaration = [{
    ::mlir::BlockArgument getVariable() { return getBody().getArgument(0); }
    YieldOp getYield();
  }];
}

def Chunk_YieldOp : Chunk_Op<"yield", [
    Pure, Terminator, HasParent<"GatherOp">, AttrSizedOperandSegments]> {
  let summary = "The ranges for one value of the variable; those whose condition is false are left out";
  let description = [{
    - C1: there is at least one range.  C2: all ranges have a condition, or none has.
  }];
  let arguments = (ins Variadic<Chunk_RangeType>:$ranges, Variadic<I1>:$conditions);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let builders = [OpBuilder<(ins), [{ build($_builder, $_state, ::mlir::ValueRange(), ::mlir::ValueRange()); }]>];
}

// ---- Work --------------------------------------------------------------------------------------

def Chunk_MoveOp : Chunk_Op<"move"> {
  let summary = "Every rank sends `source` to a peer, where it lands in a slot";
  let description = [{
    Rank r sends to `map(arguments)`. With n ranks, modulo meaning the remainder in [0, n):

    | map | from r to |
    | --- | --- |
    | `rotate(k)` | (r + k) mod n |
    | `round_robin(t)` | (t - r) mod n |
    | `shift_one(t)` | m = n div 2, h = n - m: r < m: m + (t + r) mod h; else (r - m - t) mod h if below m, or r |
    | `pairing(s, t)` | its partner in the random matching of seed s and round t |
    | `node_rotate(k)` | the rank of its node with local rank (l + k) mod the node's size, l its own |
    | `cross_rotate(k)` | the rank of its local rank on node (d + k) mod the number of nodes, d its own |

    `slot` is evaluated by the sender and names the slot at the target. A transfer of 0 bytes is no transfer; one to
    oneself neither, but an error of the maps that rotate. Nothing may write the source until the last launch that reads the
    message has run: a peer on the same host reads the sender's memory.

    - C1: inside a `forall`.  C6: two arguments for `pairing`, one for the other maps.

    ```mlir
    chunk.move %x to rotate(%k) into %in[%r]
    ```
  }];
  let arguments = (ins Chunk_RangeType:$source, Chunk_PeerMapAttr:$map, Variadic<Index>:$arguments,
                       Chunk_SlotsType:$slots, Index:$slot);
  let assemblyFormat = "$source `to` `` $map `(` $arguments `)` `into` $slots `[` $slot `]` attr-dict";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// Of the maps that rotate: how far.
    ::mlir::Value getArgument() { return getArguments().front(); }
    /// Of the maps that rotate: within which group; none for the others.
    ::std::optional<Group> getRotated() { return rotatedBy(getMap()); }
  }];
}

def Chunk_LaunchOp : Chunk_Op<"launch", [AttrSizedOperandSegments]> {
  let summary = "Runs a kernel of the kernels library on every rank";
  let description = [{
    Operand order and which output may be an input: bagua/kernels/Kernels.h. A launch of 0 elements does
    nothing.

    - C1: inside a `forall`.  C2: there is an output.  C4: the name is not empty.
    - C3: `constants` are 64-bit integers, or the code of a map or codec: `array<i64>`, `array<f64>`, dictionaries of
      such.

    ```mlir
    chunk.launch "minmax_encode" with {bits = 8, block = 2048} count %length
      ins(%x : !chunk.range) outs(%y : !chunk.range) scalars(%a : f64)
    ```
  }];
  let arguments = (ins StrAttr:$kernel, OptionalAttr<DictionaryAttr>:$constants, Index:$count,
                       Variadic<AnyTypeOf<[Chunk_RangeType, Chunk_RangesType]>>:$inputs,
                       Variadic<AnyTypeOf<[Chunk_RangeType, Chunk_RangesType]>>:$outputs,
                       Variadic<AnyTypeOf<[Index, F64]>>:$scalars);
  let assemblyFormat = [{
    $kernel (`with` $constants^)? `count` $count (`ins` `(` $inputs^ `:` type($inputs) `)`)?
    (`outs` `(` $outputs^ `:` type($outputs) `)`)? (`scalars` `(` $scalars^ `:` type($scalars) `)`)? attr-dict
  }];
  let hasVerifier = 1;
}

def Chunk_WaitOp : Chunk_Op<"wait"> {
  let summary = "What follows starts after the job has opened the gate";
  let description = "- C1: inside a `forall`.";
  let arguments = (ins Chunk_GateAttr:$gate);
  let assemblyFormat = "`` $gate attr-dict";
  let hasVerifier = 1;
}

def Chunk_PublishOp : Chunk_Op<"publish", [DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "Commits a state: programs that start later find `next`";
  let description = [{
    - C1: inside a `forall`.  C2: `state` names a state of the enclosing schedule.
    - C3 (checked when lowering and interpreting): no path publishes a state twice, and no launch writes `next` after
      it.

    ```mlir
    chunk.publish @momentum
    ```
  }];
  let arguments = (ins FlatSymbolRefAttr:$state);
  let assemblyFormat = "$state attr-dict";
  let hasVerifier = 1;
}

#endif
