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
def Bagua_JobResource : Resource<"::bagua::ir::JobResource">;
// Not Pure: dropping or duplicating a communication on one rank hangs the others.
def Bagua_Communicates : MemoryEffects<[MemRead<Bagua_CommResource>, MemWrite<Bagua_CommResource>]>;

// ---- Structure ---------------------------------------------------------------------------------

def Bagua_AlgorithmOp : Bagua_Op<"algorithm", [
    Symbol, IsolatedFromAbove, SingleBlock, NoTerminator, NoRegionArguments]> {
  let summary = "A communication algorithm: handlers of the events of a training step";
  let description = [{
    Every rank runs the handlers on each of its buckets.
    - C1: the body holds `bagua.on` only, at least one.  C2: at most one handler per event.
    - C3: the least common multiple of all codec blocks is at most 2^24.
    - C4: `owns_update` and `reassoc` are not supported yet.

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
  let arguments = (ins SymbolNameAttr:$sym_name);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$sym_name attr-dict-with-keyword $body";
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
}

def Bagua_OnOp : Bagua_Op<"on", [HasParent<"AlgorithmOp">, SingleBlock, NoTerminator]> {
  let summary = "Handles one event of the training step";
  let description = [{
    The argument is the job's bucket when the event fires: the gradient for `gradient`, the weight for
    `before_forward` and `after_update`.
    - C1: one argument, over the bucket.
    - C2: the body holds ops of `bagua` and scalar `arith`, and `scf.if`.
    - C3: on each path a role is updated at most once.
    - C4: `gradient` updates the gradient; `before_forward` updates the weight `at before_update`;
      `after_update` updates the weight at once.

    Example:
    ```mlir
    bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) { … }
    ```
  }];
  let arguments = (ins Bagua_EventAttr:$event);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    ::mlir::BlockArgument getBucket() { return getBody().getArgument(0); }
  }];
}

// Emits an error unless the op stands inside a `bagua.on`.
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

def Bagua_RankOp : Bagua_HandlerOp<"rank", [Pure]> {
  let summary = "This rank, in [0, world); differs between ranks";
  let description = [{ Example: `%r = bagua.rank` }];
  let results = (outs Index:$result);
  let assemblyFormat = "attr-dict";
}

def Bagua_StepOp : Bagua_HandlerOp<"step", [Pure]> {
  let summary = "Number of the training step, from 0; the same on every rank";
  let description = [{ Example: `%s = bagua.step` }];
  let results = (outs Index:$result);
  let assemblyFormat = "attr-dict";
}

// ---- Communication -----------------------------------------------------------------------------
// A type follows the operand it belongs to; left out, it is tensor<?xf32, #bagua.bucket>. It does not stand
// at the end, where MLIR would take it for the type of an attribute before it.

def Bagua_AllReduceOp : Bagua_HandlerOp<"all_reduce", [InferTypeOpAdaptor, Bagua_Communicates]> {
  let summary = "Every rank gets the sum or mean of all ranks' buckets";
  let description = [{
    Elementwise left fold by rank; `mean` then divides once by the world size. World 1: the identity.
    With `via`, the codec is applied to what travels: `--bagua-expand-via` writes out the graph.
    - C1: `input` is over the bucket.  C2: `group` names a group; `world` if left out.

    Examples:
    ```mlir
    %m = bagua.all_reduce mean %g
    %q = bagua.all_reduce mean %g via #bagua.minmax<bits = 8, block = 2048>
    ```
  }];
  let arguments = (ins Bagua_ReduceKindAttr:$kind, Bagua_PlainTensor:$input,
                       OptionalAttr<FlatSymbolRefAttr>:$group,
                       OptionalAttr<Bagua_CodecAttrInterface>:$codec);
  let results = (outs Bagua_PlainTensor:$result);
  let assemblyFormat = [{
    `` $kind $input `` custom<BucketType>(type($input)) (`over` $group^)? (`via` $codec^)? attr-dict
  }];
  let hasVerifier = 1;
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
  let assemblyFormat = "`` $kind $input `` custom<BucketType>(type($input)) `over` $group attr-dict";
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
    - C1: `input` is over the bucket or a shard of `group`, plain or packed.  C2: `group` names a group.

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
    Element j of the result is the value of rank (r + offset j) mod n. A neighbour that occurs twice sends
    once; oneself sends nothing.
    - C1: `input` is over the bucket, plain or packed.

    Example: `%x = bagua.neighbor_exchange %w on #bagua.topology<offsets = [-1, 1], weights = [1/3, 1/3]>`
  }];
  let arguments = (ins Bagua_AnyValue:$input, Bagua_TopologyAttr:$topology);
  let results = (outs Bagua_AnyPer:$result);
  let assemblyFormat = "$input `` custom<BucketType>(type($input)) `on` $topology attr-dict";
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

def Bagua_EncodeOp : Bagua_HandlerOp<"encode", [Pure, InferTypeOpAdaptor]> {
  let summary = "Packs a value, or each value per peer, with a codec";
  let description = [{
    - C1: `input` is plain, or holds plain elements.

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
  let assemblyFormat = "$input attr-dict `:` type($input)";
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
  let assemblyFormat = "`` $kind $input attr-dict `:` type($input)";
}

def Bagua_MixOp : Bagua_HandlerOp<"mix", [Pure, InferTypeOpAdaptor]> {
  let summary = "Moves a value towards those of the neighbours";
  let description = [{
    w + sum of a_j (x_j - w), the sum a left fold in the topology's order, after adding up the weights of
    equal neighbours at the first of them and dropping oneself, in exact rationals. No neighbour: w.
    - C1: `value` is over the bucket.  C2: `neighbors` is `!bagua.per<topology, type of value>` and its
      topology is the op's.

    Example: `%x = bagua.mix %w, %n on #bagua.topology<offsets = [-1, 1], weights = [1/3, 1/3]>`
  }];
  let arguments = (ins Bagua_PlainTensor:$value, Bagua_AnyPer:$neighbors, Bagua_TopologyAttr:$topology);
  let results = (outs Bagua_PlainTensor:$result);
  let assemblyFormat = [{
    $value `,` $neighbors `` custom<MixTypes>(type($value), type($neighbors), $topology) attr-dict
  }];
  let hasVerifier = 1;
}

def Bagua_UpdateOp : Bagua_HandlerOp<"update", [MemoryEffects<[MemWrite<Bagua_JobResource>]>]> {
  let summary = "Replaces the job's gradient or weight";
  let description = [{
    With `at`, the value is computed now and stored when the step reaches that point.
    - C1: `value` is over the bucket.

    Examples: `bagua.update gradient = %mean`, `bagua.update weight = %x at before_update`
  }];
  let arguments = (ins Bagua_RoleAttr:$role, Bagua_PlainTensor:$value, OptionalAttr<Bagua_GateAttr>:$gate);
  let assemblyFormat = "`` $role `=` $value `` custom<BucketType>(type($value)) (`at` `` $gate^)? attr-dict";
  let hasVerifier = 1;
}

#endif // BAGUA_OPS
