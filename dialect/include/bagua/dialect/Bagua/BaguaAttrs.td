// Domains, codecs, topologies and the enumerations of the `bagua` dialect.
#ifndef BAGUA_ATTRS
#define BAGUA_ATTRS

include "bagua/dialect/Bagua/BaguaDialect.td"
include "bagua/dialect/Bagua/BaguaInterfaces.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/TensorEncoding.td"

class Bagua_Attr<string name, string attrMnemonic, list<Trait> traits = []>
    : AttrDef<Bagua_Dialect, name, traits> {
  let mnemonic = attrMnemonic;
}

// ---- Domains ----

def Bagua_BucketAttr : Bagua_Attr<"Bucket", "bucket",
    [DeclareAttrInterfaceMethods<VerifiableTensorEncoding>]> {
  let summary = "Domain of a tensor over the whole bucket";
}

def Bagua_ShardAttr : Bagua_Attr<"Shard", "shard",
    [DeclareAttrInterfaceMethods<VerifiableTensorEncoding>]> {
  let summary = "Domain of a tensor over one rank's shard of the bucket";
  let parameters = (ins "::mlir::FlatSymbolRefAttr":$group);
  let assemblyFormat = "`<` $group `>`";
  let genVerifyDecl = 1;
}

def Bagua_ScalarAttr : Bagua_Attr<"Scalar", "scalar",
    [DeclareAttrInterfaceMethods<VerifiableTensorEncoding>]> {
  let summary = "Domain of a tensor of one element";
}

// ---- Codecs ----

def Bagua_MinMaxAttr : Bagua_Attr<"MinMax", "minmax",
    [DeclareAttrInterfaceMethods<Bagua_CodecAttrInterface>]> {
  let summary = "Uniform quantization between each block's minimum and maximum";
  let description = [{
    `bits` in 2..8 per element; `block` elements (a multiple of 8, 8..65536) share 8 header bytes.

    Example: `#bagua.minmax<bits = 8, block = 2048>`
  }];
  let parameters = (ins "int64_t":$bits, "int64_t":$block);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

// ---- Topologies ----

class Bagua_Topology<string name, string attrMnemonic> : Bagua_Attr<name, attrMnemonic,
    [DeclareAttrInterfaceMethods<Bagua_TopologyAttrInterface>]>;
class Bagua_PairTopology<string name, string attrMnemonic> : Bagua_Attr<name, attrMnemonic,
    [DeclareAttrInterfaceMethods<Bagua_TopologyAttrInterface, ["period"]>]>;

def Bagua_TopologyAttr : Bagua_Topology<"Topology", "topology"> {
  let summary = "Neighbours at fixed rank offsets, and their weights";
  let description = [{
    Rank r hears from ranks (r + offset) mod n. Weights are exact rationals in (0, 1]; the self weight is
    1 - sum, which must not be negative.

    Example: `#bagua.topology<offsets = [-1, 1], weights = [1/3, 1/3]>`
  }];
  let parameters = (ins ArrayRefParameter<"int64_t">:$offsets,
                        ArrayRefParameter<"int64_t">:$numerators,
                        ArrayRefParameter<"int64_t">:$denominators);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// Least common multiple of the denominators.
    int64_t getCommonDenominator() const;
    /// Weights as numerators over getCommonDenominator().
    ::llvm::SmallVector<int64_t> getCommonNumerators() const;
  }];
}

def Bagua_ExponentialAttr : Bagua_Topology<"Exponential", "exponential"> {
  let summary = "Neighbours at offsets 1, 2, 4, … below the world's size, equal weights";
  let description = [{
    K = ceil(log2 n) entries, at most 16; entry k hears rank (r + 2^k) mod n with weight 1 / (K + 1).
  }];
}

def Bagua_OnePeerExponentialAttr : Bagua_PairTopology<"OnePeerExponential", "one_peer_exponential"> {
  let summary = "One neighbour a round, at offsets 1, 2, 4, … in turn; directed";
  let description = [{
    In round t rank r sends to (r + 2^(t mod ceil(log2 n))) mod n, weight 1/2; exponents are at most 15.
  }];
}

def Bagua_TorusAttr : Bagua_Topology<"Torus", "torus"> {
  let summary = "Neighbours at offsets -1, 1, -columns, columns, weights 1/5";
  let description = [{ Example: `#bagua.torus<columns = 4>` }];
  let parameters = (ins "int64_t":$columns);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

def Bagua_RoundRobinAttr : Bagua_PairTopology<"RoundRobin", "round_robin"> {
  let summary = "Everyone meets everyone: in round t rank r and rank (t - r) mod n, weight 1/2";
}

def Bagua_ShiftOneAttr : Bagua_PairTopology<"ShiftOne", "shift_one"> {
  let summary = "Ranks of the lower half meet those of the upper half in turn, weight 1/2";
}

def Bagua_PairingAttr : Bagua_Attr<"Pairing", "pairing",
    [DeclareAttrInterfaceMethods<Bagua_TopologyAttrInterface, ["period", "pairingSeed"]>]> {
  let summary = "A random perfect matching for each round, weight 1/2; one rank of an odd world is idle";
  let description = [{ Example: `#bagua.pairing<seed = 7>` }];
  let parameters = (ins "int64_t":$seed);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

def Bagua_OverAttr : Bagua_Attr<"Over", "over",
    [DeclareAttrInterfaceMethods<Bagua_TopologyAttrInterface, ["period", "getGroup", "amongAll"]>]> {
  let summary = "A topology among the ranks of a group: `on #topology over @cross` is short for it";
  let description = [{ Example: `#bagua.over<@cross, #bagua.exponential>` }];
  let parameters = (ins "::mlir::FlatSymbolRefAttr":$over,
                        "::bagua::ir::TopologyAttrInterface":$topology);
  let assemblyFormat = "`<` $over `,` $topology `>`";
  let genVerifyDecl = 1;
}

// ---- Enumerations ----

class Bagua_EnumAttr<EnumAttrInfo info, string name> : EnumAttr<Bagua_Dialect, info, name> {
  let assemblyFormat = "$value"; // Prints a space first: hence the `` before enums in op formats.
}
class Bagua_Enum<string name, string summary, list<I32EnumAttrCase> cases>
    : I32EnumAttr<name, summary, cases> {
  let cppNamespace = "::bagua::ir";
  let genSpecializedAttr = 0;
}

def Bagua_ReduceKind : Bagua_Enum<"ReduceKind", "how a reduction combines", [
    I32EnumAttrCase<"Sum", 0, "sum">, I32EnumAttrCase<"Mean", 1, "mean">]>;
def Bagua_ReduceKindAttr : Bagua_EnumAttr<Bagua_ReduceKind, "reduce_kind">;

def Bagua_Event : Bagua_Enum<"Event", "point of the step at which a handler starts", [
    I32EnumAttrCase<"Gradient", 0, "gradient">,
    I32EnumAttrCase<"BeforeForward", 1, "before_forward">,
    I32EnumAttrCase<"AfterUpdate", 2, "after_update">,
    I32EnumAttrCase<"Async", 3, "async">]>;
def Bagua_EventAttr : Bagua_EnumAttr<Bagua_Event, "event">;

def Bagua_IntervalUnit : Bagua_Enum<"IntervalUnit", "what the interval between rounds is counted in", [
    I32EnumAttrCase<"Steps", 0, "steps">, I32EnumAttrCase<"Milliseconds", 1, "ms">]>;
def Bagua_IntervalUnitAttr : Bagua_EnumAttr<Bagua_IntervalUnit, "interval_unit">;

def Bagua_Role : Bagua_Enum<"Role", "one of the job's buffers, or a state", [
    I32EnumAttrCase<"Gradient", 0, "gradient">, I32EnumAttrCase<"Weight", 1, "weight">,
    I32EnumAttrCase<"State", 2, "state">]>;
def Bagua_RoleAttr : Bagua_EnumAttr<Bagua_Role, "role">;

def Bagua_Gate : Bagua_Enum<"Gate", "point of the step that a handler waits for", [
    I32EnumAttrCase<"BeforeUpdate", 0, "before_update">]>;
def Bagua_GateAttr : Bagua_EnumAttr<Bagua_Gate, "gate">;

def Bagua_OnResize : Bagua_Enum<"OnResize", "what becomes of a state when the world changes", [
    I32EnumAttrCase<"Mean", 0, "mean">, I32EnumAttrCase<"Zero", 1, "zero">,
    I32EnumAttrCase<"Repartition", 2, "repartition">]>;
def Bagua_OnResizeAttr : Bagua_EnumAttr<Bagua_OnResize, "on_resize">;

def Bagua_Draw : Bagua_Enum<"Draw", "whose random numbers are equal", [
    I32EnumAttrCase<"Shared", 0, "shared">, I32EnumAttrCase<"PerRank", 1, "per_rank">]>;
def Bagua_DrawAttr : Bagua_EnumAttr<Bagua_Draw, "draw">;

include "bagua/dialect/Bagua/BaguaCodecs.td"

#endif // BAGUA_ATTRS
