// The chunk dialect: who moves which bytes, for all ranks at once. Base definitions and enums.
#ifndef BAGUA_DIALECT_CHUNK_CHUNKDIALECT_TD
#define BAGUA_DIALECT_CHUNK_CHUNKDIALECT_TD

include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"

def Chunk_Dialect : Dialect {
  let name = "chunk";
  let cppNamespace = "::bagua::ir::chunk";
  let summary = "Transfers and kernel launches of all ranks, in lockstep";
  let description = [{
    A program is read as if all ranks executed it together, one op after the other. One `chunk.move` is
    the send and the receive of every rank, so both ends match by construction; the number of ranks
    stays symbolic. Sizes and indices are `arith` expressions on `index`.
  }];
  let useDefaultTypePrinterParser = 1;
  let useDefaultAttributePrinterParser = 1;
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}

class Chunk_Type<string name, string typeMnemonic, string text> : TypeDef<Chunk_Dialect, name> {
  let mnemonic = typeMnemonic;
  let summary = text;
}

def Chunk_BufferType : Chunk_Type<"Buffer", "buffer", "Bytes that every rank has, one copy each">;
def Chunk_SlotsType : Chunk_Type<"Slots", "slots", "Landing slots, one pool on every rank">;
def Chunk_RangeType : Chunk_Type<"Range", "range", "Some bytes of a buffer, or of a message in a slot">;
def Chunk_RangesType : Chunk_Type<"Ranges", "ranges", "A list of ranges">;

class Chunk_Enum<string name, string text, list<I32EnumCase> cases> : I32Enum<name, text, cases> {
  let cppNamespace = "::bagua::ir::chunk";
}

def Chunk_Event : Chunk_Enum<"Event", "When a program starts", [
    I32EnumCase<"Gradient", 0, "gradient">,
    I32EnumCase<"BeforeForward", 1, "before_forward">,
    I32EnumCase<"AfterUpdate", 2, "after_update">,
    I32EnumCase<"Async", 3, "async">]>;
def Chunk_EventAttr : EnumAttr<Chunk_Dialect, Chunk_Event, "event">;

def Chunk_IntervalUnit : Chunk_Enum<"IntervalUnit", "What the interval between rounds is counted in", [
    I32EnumCase<"Steps", 0, "steps">,
    I32EnumCase<"Milliseconds", 1, "ms">]>;
def Chunk_IntervalUnitAttr : EnumAttr<Chunk_Dialect, Chunk_IntervalUnit, "interval_unit">;

def Chunk_Role : Chunk_Enum<"Role", "Which of the job's buffers", [
    I32EnumCase<"Gradient", 0, "gradient">,
    I32EnumCase<"Weight", 1, "weight">]>;
def Chunk_RoleAttr : EnumAttr<Chunk_Dialect, Chunk_Role, "role">;

def Chunk_Gate : Chunk_Enum<"Gate", "A point of the step at which the job lets a program go on", [
    I32EnumCase<"BeforeUpdate", 0, "before_update">]>;
def Chunk_GateAttr : EnumAttr<Chunk_Dialect, Chunk_Gate, "gate">;

// The ranks that count their shards together. Numbered as the groups of the bagua level.
def Chunk_Group : Chunk_Enum<"Group", "Which ranks: all, those of a node, those of one local rank", [
    I32EnumCase<"World", 0, "world">,
    I32EnumCase<"Node", 1, "node">,
    I32EnumCase<"Cross", 2, "cross">]>;
def Chunk_GroupAttr : EnumAttr<Chunk_Dialect, Chunk_Group, "group">;

// rotate(k): from rank r to rank (r + k) mod n; its inverse is rotate(-k). node_rotate and cross_rotate are the
// same within a group. The others are involutions: each is its own inverse, and a rank whose peer is itself has
// none.
def Chunk_PeerMap : Chunk_Enum<"PeerMap", "A one-to-one map of ranks, whose inverse is known", [
    I32EnumCase<"Rotate", 0, "rotate">,
    I32EnumCase<"RoundRobin", 1, "round_robin">,
    I32EnumCase<"ShiftOne", 2, "shift_one">,
    I32EnumCase<"Pairing", 3, "pairing">,
    I32EnumCase<"NodeRotate", 4, "node_rotate">,
    I32EnumCase<"CrossRotate", 5, "cross_rotate">]>;
def Chunk_PeerMapAttr : EnumAttr<Chunk_Dialect, Chunk_PeerMap, "peers">;

def Chunk_StateDomain : Chunk_Enum<"StateDomain", "What a state has elements for", [
    I32EnumCase<"Bucket", 0, "bucket">,
    I32EnumCase<"Shard", 1, "shard">,
    I32EnumCase<"Scalar", 2, "scalar">,
    I32EnumCase<"Neighbors", 3, "neighbors">]>;
def Chunk_StateDomainAttr : EnumAttr<Chunk_Dialect, Chunk_StateDomain, "state_domain">;

def Chunk_OnResize : Chunk_Enum<"OnResize", "What becomes of a state when the world changes", [
    I32EnumCase<"Mean", 0, "mean">,
    I32EnumCase<"Zero", 1, "zero">,
    I32EnumCase<"Repartition", 2, "repartition">]>;
def Chunk_OnResizeAttr : EnumAttr<Chunk_Dialect, Chunk_OnResize, "on_resize">;

#endif
