// The operations of the `bagua` dialect. Constraints C1.. are those of dialect/SPEC.md.
#ifndef BAGUA_OPS
#define BAGUA_OPS

include "bagua/dialect/Bagua/BaguaTypes.td"
include "mlir/IR/BuiltinAttributeInterfaces.td"
include "mlir/IR/OpAsmInterface.td"
include "mlir/IR/RegionKindInterface.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

class Bagua_Op<string opMnemonic, list<Trait> traits = []> : Op<Bagua_Dialect, opMnemonic, traits>;

def Bagua_CommResource : Resource<"::bagua::ir::CommResource">;
def Bagua_StateResource : Resource<"::bagua::ir::StateResource">;
def Bagua_JobResource : Resource<"::bagua::ir::JobResource">;
// Not Pure: dropping or duplicating a communication on one rank hangs the others.
def Bagua_Communicates : MemoryEffects<[MemRead<Bagua_CommResource>, MemWrite<Bagua_CommResource>]>;

// ---- Structure ---------------------------------------------------------------------------------

def Bagua_AlgorithmOp : Bagua_Op<"algorithm", [
    Symbol, SymbolTable, IsolatedFromAbove, SingleBlock, NoTerminator,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames"]>]> {
  let summary = "A communication algorithm: its parameters, states, and handlers of the events of a step";
  let description = [{
    Every rank runs the handlers on each of its buckets. Parameters are the same on all ranks; one that is
    `per_step` may be set before each step, the others when a bucket is bound.
    - C1: the body holds `bagua.state` and `bagua.on` only, at least one handler.  C2: at most one per event.
    - C3: the least common multiple of all codec blocks is at most 2^24.
    - C4: `reassoc` is not supported yet.
    - C5: parameters are of type index or f64, with a finite default of that type and different names.
    - C6: with `owns_update`, the handler of `gradient` updates the weight; the job then leaves it alone.
    - C7: each state is read, and updated unless it begins as the weight.

    Example:
    ```mlir
    bagua.algorithm @gradient_allreduce {
      bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
        %mean = bagua.all_reduce mean %g
        bagua.update gradient = %mean
      }
    }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, OptionalAttr<StrArrayAttr>:$parameter_names,
                       OptionalAttr<ArrayAttr>:$parameter_defaults,
                       OptionalAttr<DenseBoolArrayAttr>:$parameter_per_step, UnitAttr:$owns_update);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    struct Parameter {
      ::llvm::StringRef name;
      ::mlir::TypedAttr initial; ///< IntegerAttr of index, or FloatAttr of f64.
      bool perStep = false;
      ::mlir::BlockArgument value;
    };
    ::llvm::SmallVector<Parameter> getParameters();
    /// The parameter that `value` is; nothing if it is none.
    std::optional<Parameter> getParameter(::mlir::Value value);
  }];
}

def Bagua_CodecOp : Bagua_Op<"codec", [Symbol, HasParent<"::mlir::ModuleOp">]> {
  let summary = "A codec: what each block's headers, its codes, and the decoded elements are";
  let description = [{
    `#bagua.codec<@name>` names it wherever a codec is wanted. Expressions are those of `bagua.map`, in f32 and
    without scalars. `stats` gives values of an element, each reduced over the block by max, min or sum;
    `headers` makes the headers of these, and may be left out where they are the headers; `encode` the code
    of an element, which is then rounded to the nearest integer, saturated, and 0 for a NaN; `decode` the
    element of a code.
    - C1: the block is a multiple of 8 in 8..65536.  C2: 1 to 4 headers, each f32.
    - C3: codes are i1..i16, signed, or u1..u16.
    - C4: 1 to 16 stats, each with its reduction.
    - C5: `stats` is of one element, `headers` of the stats, `encode` and `decode` of an element or a code and
      the headers; there is a value for each header, and one of `encode` and `decode`.
    - C6: numbers where numbers, and conditions where conditions are wanted; all values are numbers.
    - C7: at most 240 instructions in `encode` and `decode`, 256 elsewhere, 256 constants each, all finite.
    - C8: in the generic form, `program` is what a launch of the codec's kernels carries.

    Example:
    ```mlir
    bagua.codec @absmax4 block(512) header(f32) code(i4) {
      stats(%x) { max abs(%x) }
      encode(%x, %h) { %x / %h * 7.0 }
      decode(%q, %h) { %q / 7.0 * %h }
    }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, DictionaryAttr:$program);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
}

def Bagua_StateOp : Bagua_Op<"state", [Symbol, HasParent<"AlgorithmOp">]> {
  let summary = "A value that an algorithm keeps from step to step, one for each bucket";
  let description = [{
    Begins as `initial` in every element, or, `= weight`, as the job's weight when the bucket is bound.
    - C1: over the bucket, a shard, a scalar, or one bucket per neighbour.  C2: the initial value is finite.
    - C3: `= weight` only over the bucket or neighbours.  C4: `mean` over the bucket or a scalar, `repartition`
      over a shard; `zero` everywhere.

    Examples: `bagua.state @m : bucket = 0.0`, `bagua.state @e : shard<@world> = 0.0 on_resize zero`,
    `bagua.state @replicas : per<#ring> = weight`
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypeAttr:$type, F64Attr:$initial, UnitAttr:$initial_weight,
                       Bagua_OnResizeAttr:$on_resize);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
}

def Bagua_OnOp : Bagua_Op<"on", [HasParent<"AlgorithmOp">, SingleBlock, NoTerminator, AttrSizedOperandSegments]> {
  let summary = "Handles one event of the training step, or runs beside the steps";
  let description = [{
    The argument is the job's bucket when the event fires: the gradient for `gradient`, the weight for
    `before_forward` and `after_update`. A second argument of `gradient` is the weight.

    `async` handles no point of a step: it runs beside the training, as rounds 0, 1, 2, …, each on a snapshot of
    the weight, and what it makes of it is added to the weight later. `every` and `after` are a parameter that is
    not `per_step`, or a number.
    - C1: one argument, over the bucket; `gradient` may have two.
    - C2: the body holds ops of `bagua` and scalar `arith`, and `scf.if`.
    - C3: on each path a role, or a state, is updated at most once.
    - C4: `gradient` updates the gradient, or, where the algorithm owns the update, the weight `at
      before_update`; `before_forward` updates the weight `at before_update`; `after_update` updates the weight
      at once; `async` adds to the weight (`+=`), and only it. Each may update states.
    - C5: `async`, and only it, has `every` with a unit, and `staleness`.  C6: `every` is at least 1 and `after` at
      least 0, numbers or parameters that are not `per_step`.  C7 (B160): `staleness` is at least 1.
    - C8: what `async` uses is no parameter that is `per_step`: ranks are at different steps.  C9: nor a state that
      another handler uses.

    Examples:
    ```mlir
    bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) { … }
    bagua.on async every(%interval ms) after(%warmup) staleness(4) (%w: tensor<?xf32, #bagua.bucket>) { … }
    ```
  }];
  let arguments = (ins Bagua_EventAttr:$event, Optional<Index>:$every, OptionalAttr<I64Attr>:$every_number,
                       OptionalAttr<Bagua_IntervalUnitAttr>:$every_unit, Optional<Index>:$after,
                       OptionalAttr<I64Attr>:$after_number, OptionalAttr<I64Attr>:$staleness);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    ::mlir::BlockArgument getBucket() { return getBody().getArgument(0); }
    /// The weight that a handler of `gradient` may have besides; null if it has none.
    ::mlir::BlockArgument getWeight() {
      return getBody().getNumArguments() > 1 ? getBody().getArgument(1) : ::mlir::BlockArgument();
    }
    bool isAsync() { return getEvent() == Event::Async; }
  }];
}

// Emits an error unless the op stands inside a `bagua.on`, or in a function, for handlers to call.
def Bagua_InHandler : NativeOpTrait<"InHandler"> {
  let cppNamespace = "::bagua::ir";
}

class Bagua_HandlerOp<string opMnemonic, list<Trait> traits = []>
    : Bagua_Op<opMnemonic, !listconcat([Bagua_InHandler], traits)>;

// ---- Where and when ----------------------------------------------------------------------------

def Bagua_WorldOp : Bagua_HandlerOp<"world", [Pure]> {
  let summary = "Number of ranks; the same on every rank";
  let description = [{ Example: `%n = bagua.world` }];
  let results = (outs Index:$result);
  let assemblyFormat = "attr-dict";
}

def Bagua_NodesOp : Bagua_HandlerOp<"nodes", [Pure]> {
  let summary = "Number of nodes, which is the size of the group `@cross`; the same on every rank";
  let description = [{ Example: `%k = bagua.nodes` }];
  let results = (outs Index:$result);
  let assemblyFormat = "attr-dict";
}

def Bagua_LocalSizeOp : Bagua_HandlerOp<"local_size", [Pure]> {
  let summary = "Ranks of a node, which is the size of the group `@node`; the same on every rank";
  let description = [{ Example: `%s = bagua.local_size` }];
  let results = (outs Index:$result);
  let assemblyFormat = "attr-dict";
}

def Bagua_RankOp : Bagua_HandlerOp<"rank", [Pure]> {
  let summary = "This rank, in [0, world); differs between ranks";
  let description = [{ Example: `%r = bagua.rank` }];
  let results = (outs Index:$result);
  let assemblyFormat = "attr-dict";
}

def Bagua_StepOp : Bagua_HandlerOp<"step", [Pure]> {
  let summary = "Number of the training step, from 0; the same on every rank";
  let description = [{
    In an `async` handler: the number of the round.

    Example: `%s = bagua.step`
  }];
  let results = (outs Index:$result);
  let assemblyFormat = "attr-dict";
}

def Bagua_ToF64Op : Bagua_HandlerOp<"to_f64", [Pure]> {
  let summary = "An index as f64";
  let description = [{ Example: `%x = bagua.to_f64 %step` }];
  let arguments = (ins Index:$input);
  let results = (outs F64:$result);
  let assemblyFormat = "$input attr-dict";
}

def Bagua_PowerOp : Bagua_HandlerOp<"power", [Pure]> {
  let summary = "An f64 to an integer power, by repeated squaring";
  let description = [{ Example: `%x = bagua.power %beta, %step` }];
  let arguments = (ins F64:$base, Index:$exponent);
  let results = (outs F64:$result);
  let assemblyFormat = "$base `,` $exponent attr-dict";
}

def Bagua_CallOp : Bagua_HandlerOp<"call"> {
  let summary = "Calls a private function of the file, or of the prelude";
  let description = [{
    `--bagua-inline-functions` puts the function's body in its place. Until then the name may be one that no
    symbol of the file has.

    Example: `%m1 = bagua.call @momentum(%m, %g, %beta) : (!bucket, !bucket, f64) -> !bucket`
  }];
  let arguments = (ins FlatSymbolRefAttr:$callee, Variadic<AnyType>:$inputs);
  let results = (outs Variadic<AnyType>:$outputs);
  let assemblyFormat = "$callee `(` $inputs `)` attr-dict custom<CallType>(type($inputs), type($outputs))";
}

// ---- Communication -----------------------------------------------------------------------------
// A type follows the operand it belongs to; left out, it is tensor<?xf32, #bagua.bucket>. It does not stand
// at the end, where MLIR would take it for the type of an attribute before it.

def Bagua_AllReduceOp : Bagua_HandlerOp<"all_reduce", [
    InferTypeOpAdaptor, DeclareOpInterfaceMethods<MemoryEffectsOpInterface>,
    DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "Every rank gets the sum or mean of all ranks' buckets";
  let description = [{
    Elementwise left fold by rank; `mean` then divides once by the group's size. A group of one: the identity.
    With `via`, the codec is applied to what travels: `--bagua-expand-via` writes out the graph. A scalar, and a
    shard of `@node` over `@cross` or the other way round, is gathered and reduced on every rank.

    With `remember @worker, @server`, what the codec loses is fed back: the worker sends x + @worker and keeps in
    @worker what the codec lost of it; with @server, so does each shard's owner with the reduced shard.
    - C1: `input` is over the bucket, a scalar without `via`, or over such a shard.
    - C2: `group` names a group; `world` if left out.  C3: the codec exists.
    - C4: `remember` only with `via`, of the bucket.
    - C5: the states exist; @worker is over the bucket, @server over the shard of `@world`, the group then.

    Examples:
    ```mlir
    %m = bagua.all_reduce mean %g
    %q = bagua.all_reduce mean %g via #bagua.minmax<bits = 8, block = 2048>
    %d = bagua.all_reduce mean %g via #bagua.sign<block = 4096> remember @lost, @lost_of_shard
    %t = bagua.all_reduce sum %s : tensor<?xf32, #bagua.shard<@node>> over @cross
    ```
  }];
  let arguments = (ins Bagua_ReduceKindAttr:$kind, Bagua_PlainTensor:$input,
                       OptionalAttr<FlatSymbolRefAttr>:$group,
                       OptionalAttr<Bagua_CodecAttrInterface>:$codec,
                       OptionalAttr<FlatSymbolRefAttr>:$worker, OptionalAttr<FlatSymbolRefAttr>:$server);
  let results = (outs Bagua_PlainTensor:$result);
  let assemblyFormat = [{
    custom<ReduceKind>($kind) $input `` custom<BucketType>(type($input)) (`over` $group^)? (`via` $codec^)?
    (`remember` $worker^ (`,` $server^)?)? attr-dict
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    Group getReductionGroup() { return getGroup() ? *groupNamed(*getGroup()) : Group::World; }
  }];
}

def Bagua_ReduceScatterOp : Bagua_HandlerOp<"reduce_scatter", [InferTypeOpAdaptor, Bagua_Communicates]> {
  let summary = "Reduces over a group; each rank keeps its shard";
  let description = [{
    Short for split, all_to_all, reduce.
    - C1: `input` is over the bucket.  C2: `group` names a group.

    Example: `%s = bagua.reduce_scatter sum %g over @world`
  }];
  let arguments = (ins Bagua_ReduceKindAttr:$kind, Bagua_PlainTensor:$input, FlatSymbolRefAttr:$group);
  let results = (outs Bagua_PlainTensor:$result);
  let assemblyFormat = "custom<ReduceKind>($kind) $input `` custom<BucketType>(type($input)) `over` $group attr-dict";
  let hasVerifier = 1;
}

def Bagua_AllToAllOp : Bagua_HandlerOp<"all_to_all", [InferTypeOpAdaptor, Bagua_Communicates]> {
  let summary = "Element i goes to rank i; element i of the result came from rank i";
  let description = [{
    One's own element stays. Elements over everyone's shards become elements over one's own, and the
    other way round.
    - C1: `input` is `!bagua.per<group, T>` with T over a shard of `group`, plain or packed.
    - C2: `group` names a group.

    Example: `%got = bagua.all_to_all %parts : !bagua.per<@world, tensor<?xf32, #bagua.shard<@world>>> over @world`
  }];
  let arguments = (ins Bagua_AnyPer:$input, FlatSymbolRefAttr:$group);
  let results = (outs Bagua_AnyPer:$result);
  let assemblyFormat = "$input `:` type($input) `over` $group attr-dict";
}

def Bagua_AllGatherOp : Bagua_HandlerOp<"all_gather", [InferTypeOpAdaptor, Bagua_Communicates]> {
  let summary = "Everyone's value on every rank; element i came from rank i";
  let description = [{
    Gathered over `@cross`, shards of `@node` are all over this rank's own, and the other way round.
    - C1: `input` is over the bucket, a shard of `group` or such a shard, plain or packed, or a scalar.
    - C2: `group` names a group.

    Example: `%all = bagua.all_gather %mine : tensor<?xf32, #bagua.shard<@world>> over @world`
  }];
  let arguments = (ins Bagua_AnyValue:$input, FlatSymbolRefAttr:$group);
  let results = (outs Bagua_AnyPer:$result);
  let assemblyFormat = "$input `` custom<BucketType>(type($input)) `over` $group attr-dict";
}

def Bagua_NeighborExchangeOp : Bagua_HandlerOp<"neighbor_exchange", [
    InferTypeOpAdaptor, Bagua_Communicates]> {
  let summary = "The values of this rank's neighbours";
  let description = [{
    Element j of the result is the value of the rank that entry j of the topology hears, in this round: that of
    the step, or `at` another number that all ranks share. A neighbour that occurs twice sends once; oneself
    sends nothing. `over` a group, the topology is one of its ranks.
    - C1: `input` is over the bucket, or over a shard that the topology's group has in common, plain or packed, or a
      scalar.
    - C2: `at` only with a topology that changes from round to round.

    Example: `%x = bagua.neighbor_exchange %w on #bagua.topology<offsets = [-1, 1], weights = [1/3, 1/3]>`
  }];
  let arguments = (ins Bagua_AnyValue:$input, Bagua_TopologyAttrInterface:$topology, Optional<Index>:$round);
  let results = (outs Bagua_AnyPer:$result);
  let assemblyFormat = "$input `` custom<BucketType>(type($input)) `on` custom<Topology>($topology) (`at` $round^)? attr-dict";
  let hasVerifier = 1;
}

// ---- Data --------------------------------------------------------------------------------------

def Bagua_SplitOp : Bagua_HandlerOp<"split", [Pure, InferTypeOpAdaptor]> {
  let summary = "Cuts a bucket into the shards of a group";
  let description = [{
    Element i of the result is over shard i.
    - C1: `input` is over the bucket.  C2: `group` names a group.

    Example: `%parts = bagua.split %g over @world`
  }];
  let arguments = (ins Bagua_PlainTensor:$input, FlatSymbolRefAttr:$group);
  let results = (outs Bagua_AnyPer:$result);
  let assemblyFormat = "$input `` custom<BucketType>(type($input)) `over` $group attr-dict";
  let hasVerifier = 1;
}

def Bagua_ConcatOp : Bagua_HandlerOp<"concat", [Pure, InferTypeOpAdaptor]> {
  let summary = "Puts the shards of a group together again";
  let description = [{
    - C1: `input` is `!bagua.per<group, T>`, T plain over a shard of `group`, not `own`.

    Example: `%out = bagua.concat %all : !bagua.per<@world, tensor<?xf32, #bagua.shard<@world>>>`
  }];
  let arguments = (ins Bagua_AnyPer:$input);
  let results = (outs Bagua_PlainTensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($input)";
}

def Bagua_EncodeOp : Bagua_HandlerOp<"encode", [
    Pure, InferTypeOpAdaptor, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "Packs a value, or each value per peer, with a codec";
  let description = [{
    - C1: `input` is plain, or holds plain elements.  C2: the codec exists.

    Example: `%q = bagua.encode %g with #bagua.minmax<bits = 8, block = 2048>`
  }];
  let arguments = (ins Bagua_AnyValue:$input, Bagua_CodecAttrInterface:$codec);
  let results = (outs Bagua_AnyValue:$result);
  let assemblyFormat = "$input `` custom<BucketType>(type($input)) `with` $codec attr-dict";
}

def Bagua_DecodeOp : Bagua_HandlerOp<"decode", [Pure, InferTypeOpAdaptor]> {
  let summary = "Unpacks a value, or each value per peer";
  let description = [{
    - C1: `input` is packed, or holds packed elements.

    Example: `%x = bagua.decode %q : !bagua.packed<#mm, tensor<?xf32, #bagua.bucket>>`
  }];
  let arguments = (ins Bagua_AnyValue:$input);
  let results = (outs Bagua_AnyValue:$result);
  let assemblyFormat = "$input attr-dict custom<ValueType>(type($input))";
}

def Bagua_ReduceOp : Bagua_HandlerOp<"reduce", [Pure, InferTypeOpAdaptor]> {
  let summary = "Folds one value per rank into one";
  let description = [{
    Left fold by rank, in the bucket's compute type; `mean` then divides once by the number of ranks.
    - C1: `input` is `!bagua.per<group, T>` with T plain.
    - C2: T is over the bucket, or over one's own shard (`own`): elements have one length.

    Example: `%mine = bagua.reduce mean %got : !bagua.per<@world, tensor<?xf32, #bagua.shard<@world>>, own>`
  }];
  let arguments = (ins Bagua_ReduceKindAttr:$kind, Bagua_AnyPer:$input);
  let results = (outs Bagua_PlainTensor:$result);
  let assemblyFormat = "custom<ReduceKind>($kind) $input attr-dict `:` type($input)";
}

def Bagua_MixOp : Bagua_HandlerOp<"mix", [Pure, InferTypeOpAdaptor]> {
  let summary = "Moves a value towards those of the neighbours";
  let description = [{
    w + sum of a_j (x_j - w), the sum a left fold in the topology's order, after adding up the weights of
    equal neighbours at the first of them and dropping oneself, in exact rationals. No neighbour: w. The round,
    where the topology has rounds, is that of the exchange.
    - C1: `value` is plain.  C2: `neighbors` is `!bagua.per<topology, type of value>` and its
      topology is the op's.  C3: `at` only with a topology that changes from round to round.

    Example: `%x = bagua.mix %w, %n on #bagua.topology<offsets = [-1, 1], weights = [1/3, 1/3]>`
  }];
  let arguments = (ins Bagua_PlainTensor:$value, Bagua_AnyPer:$neighbors,
                       Bagua_TopologyAttrInterface:$topology, Optional<Index>:$round);
  let results = (outs Bagua_PlainTensor:$result);
  let assemblyFormat = [{
    $value `,` $neighbors `` custom<MixTypes>(type($value), type($neighbors), $topology) (`at` $round^)? attr-dict
  }];
  let hasVerifier = 1;
}

def Bagua_MapOp : Bagua_HandlerOp<"map", [Pure, AttrSizedOperandSegments]> {
  let summary = "Computes each element from the elements at its place";
  let description = [{
    An infix expression over values of one domain, scalars of either kind, which stand for every element, and
    numbers. Where a value has one element per neighbour, buckets stand for each of them. Arithmetic is in the
    bucket's compute type. Operators, from the loosest: `or`, `and`, `not`, `< <= > >= ==`, `+ -`, `* /`, unary
    `-`. Functions: sqrt abs sign rint floor, min max, fma, select.
    - C1: at least one value that is no f64 or index.  C2: the values are over one domain, which is the result's.
    - C3: numbers where numbers, and conditions where conditions are wanted; the result is a number.
    - C4: at most 256 instructions, 32 values, 64 scalars, 256 constants, all finite.
    - C5: `code` is four numbers for each instruction, operands are earlier instructions, operands exist.

    In the generic form, `code` is the bytecode of SPEC.md, "Map bytecode", and its last value the result.

    Example: `%c = bagua.map %beta * %m + (1.0 - %beta) * %g`
  }];
  let arguments = (ins Variadic<Bagua_AnyValue>:$values, Variadic<AnyTypeOf<[F64, Index]>>:$scalars,
                       DenseI64ArrayAttr:$code, DenseF64ArrayAttr:$constants);
  let results = (outs Bagua_AnyValue:$result);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
}

def Bagua_DotOp : Bagua_HandlerOp<"dot", [Pure, SameTypeOperands, InferTypeOpAdaptor]> {
  let summary = "Sum of the products of the elements, of this rank's bucket or shard";
  let description = [{
    In the order of the kernel `dot`.
    - C1: the operands are over the bucket or a shard.

    Example: `%d = bagua.dot %a, %b`
  }];
  let arguments = (ins Bagua_PlainTensor:$lhs, Bagua_PlainTensor:$rhs);
  let results = (outs Bagua_PlainTensor:$result);
  let assemblyFormat = "$lhs `,` $rhs `` custom<BucketType>(type($lhs)) attr-dict";
  let hasVerifier = 1;
}

def Bagua_NormOp : Bagua_HandlerOp<"norm", [Pure, InferTypeOpAdaptor]> {
  let summary = "Euclidean norm of this rank's bucket or shard";
  let description = [{
    In the order of the kernel `norm`.
    - C1: the operand is over the bucket or a shard.

    Example: `%d = bagua.norm %a`
  }];
  let arguments = (ins Bagua_PlainTensor:$input);
  let results = (outs Bagua_PlainTensor:$result);
  let assemblyFormat = "$input `` custom<BucketType>(type($input)) attr-dict";
  let hasVerifier = 1;
}

def Bagua_RandomOp : Bagua_HandlerOp<"random", [Pure]> {
  let summary = "A bucket of random numbers, uniform in [0, 1)";
  let description = [{
    Number i is drawn from (seed, step, rank, bucket, op, i): `shared` leaves the rank out. The op's number is
    its place among the ops of the algorithm that draw.
    - C1: the result is over the bucket.

    Example: `%x = bagua.random uniform seed %s per_rank`
  }];
  let arguments = (ins Index:$seed, Bagua_DrawAttr:$draw);
  let results = (outs Bagua_PlainTensor:$result);
  let assemblyFormat = "`uniform` `seed` $seed custom<Draw>($draw) `` custom<BucketType>(type($result)) attr-dict";
  let hasVerifier = 1;
}

// ---- States and the job -------------------------------------------------------------------------

def Bagua_ReadOp : Bagua_HandlerOp<"read", [
    MemoryEffects<[MemRead<Bagua_StateResource>]>, DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "The value of a state";
  let description = [{
    What this handler has updated it to before, else what the last step left.
    - C1: the state exists.  C2: the type is the state's.

    Examples: `%m = bagua.read @m`, `%e = bagua.read @e : tensor<?xf32, #bagua.shard<@world>>`
  }];
  let arguments = (ins FlatSymbolRefAttr:$state);
  let results = (outs Bagua_AnyValue:$result);
  let assemblyFormat = "$state `` custom<BucketType>(type($result)) attr-dict";
}

def Bagua_UpdateOp : Bagua_HandlerOp<"update", [
    MemoryEffects<[MemWrite<Bagua_JobResource>, MemWrite<Bagua_StateResource>]>,
    DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "Replaces the job's gradient or weight, or a state; or adds to the weight";
  let description = [{
    With `at`, the value is computed now and stored when the step reaches that point. A state takes its new
    value at the end of a step that is finite. With `+=`, in an `async` handler, the value is added to the weight as
    it is at a later boundary between two steps.
    - C1: `value` is over the bucket; of a state, of the state's type.
    - C2: the state exists, and only it is named.  C3: no `at` with a state.  C4: `+=` of the weight only, without
      `at`.

    Examples: `bagua.update gradient = %mean`, `bagua.update weight = %x at before_update`, `bagua.update @m = %x`,
    `bagua.update weight += %d`
  }];
  let arguments = (ins Bagua_RoleAttr:$role, OptionalAttr<FlatSymbolRefAttr>:$state, UnitAttr:$add,
                       Bagua_AnyValue:$value, OptionalAttr<Bagua_GateAttr>:$gate);
  let assemblyFormat = [{
    custom<UpdateTarget>($role, $state) custom<Assignment>($add) $value `` custom<BucketType>(type($value))
    (`at` `` $gate^)? attr-dict
  }];
  let hasVerifier = 1;
}

#endif // BAGUA_OPS
