// Writes out collectives: all_reduce via a codec as a pass, the plain ones for the lowering.
#include "bagua/compiler/ExpandCollectives.h"
#include "bagua/compiler/Passes.h"
#include "bagua/dialect/Bagua/BaguaMap.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace bagua::compiler {

#define GEN_PASS_DEF_EXPANDVIA
#include "bagua/compiler/Passes.h.inc"

namespace {

/// The map `a` op `b`, over the type of `a`.
Value elementwise(OpBuilder &builder, Location loc, ir::MapCode op, Value a, Value b) {
  SmallVector<int64_t> code;
  for (auto [what, first, second] :
       {std::tuple(ir::MapCode::Input, 0, 0), {ir::MapCode::Input, 1, 0}, {op, 0, 1}})
    llvm::append_values(code, static_cast<int64_t>(what), first, second, 0);
  return ir::MapOp::create(builder, loc, a.getType(), ValueRange{a, b}, ValueRange{}, code,
                           ArrayRef<double>{});
}

/// `value` and what `state` remembers; `value` if there is none.
Value withMemory(OpBuilder &builder, Location loc, Value value, FlatSymbolRefAttr state) {
  if (!state)
    return value;
  Value memory = ir::ReadOp::create(builder, loc, value.getType(), state);
  return elementwise(builder, loc, ir::MapCode::Add, value, memory);
}

/// Remembers in `state` what the codec has lost: `sent` is what others see of `value`.
void remember(OpBuilder &builder, Location loc, FlatSymbolRefAttr state, Value value, Value sent) {
  Value lost = elementwise(builder, loc, ir::MapCode::Sub, value, sent);
  ir::UpdateOp::create(builder, loc, ir::Role::State, state, /*add=*/false, lost, ir::GateAttr());
}

/// This rank's shard of the reduction of `input`; what a codec loses is remembered in `worker`.
Value reduceShard(OpBuilder &builder, Location loc, ir::ReduceKind kind, Value input,
                  FlatSymbolRefAttr group, ir::CodecAttrInterface codec,
                  FlatSymbolRefAttr worker = {}) {
  Value sent = withMemory(builder, loc, input, worker);
  Value parts = ir::SplitOp::create(builder, loc, sent, group);
  if (codec)
    parts = ir::EncodeOp::create(builder, loc, parts, codec);
  if (worker) {
    Value decoded = ir::DecodeOp::create(builder, loc, parts);
    remember(builder, loc, worker, sent, ir::ConcatOp::create(builder, loc, decoded));
  }
  parts = ir::AllToAllOp::create(builder, loc, parts, group);
  if (codec)
    parts = ir::DecodeOp::create(builder, loc, parts);
  return ir::ReduceOp::create(builder, loc, kind, parts);
}

/// The bucket made of every rank's `shard`; what a codec loses is remembered in `server`.
Value gatherBucket(OpBuilder &builder, Location loc, Value shard, FlatSymbolRefAttr group,
                   ir::CodecAttrInterface codec, FlatSymbolRefAttr server = {}) {
  Value sent = withMemory(builder, loc, shard, server), packed = sent;
  if (codec) // One's own shard passes through the codec too: replicas stay equal.
    packed = ir::EncodeOp::create(builder, loc, sent, codec);
  if (server)
    remember(builder, loc, server, sent, ir::DecodeOp::create(builder, loc, packed));
  Value all = ir::AllGatherOp::create(builder, loc, packed, group);
  if (codec)
    all = ir::DecodeOp::create(builder, loc, all);
  return ir::ConcatOp::create(builder, loc, all);
}

/// Ranks of `group`.
Value groupSize(OpBuilder &builder, Location loc, ir::Group group) {
  switch (group) {
  case ir::Group::World:
    return ir::WorldOp::create(builder, loc);
  case ir::Group::Node:
    return ir::LocalSizeOp::create(builder, loc);
  case ir::Group::Cross:
    return ir::NodesOp::create(builder, loc);
  }
  llvm_unreachable("all groups");
}

/// The reduction of what every rank has for the same elements: nothing is shared out.
Value gatherAndReduce(OpBuilder &builder, Location loc, ir::ReduceKind kind, Value input,
                      FlatSymbolRefAttr group, ir::CodecAttrInterface codec) {
  if (codec)
    input = ir::EncodeOp::create(builder, loc, input, codec);
  Value all = ir::AllGatherOp::create(builder, loc, input, group);
  if (codec)
    all = ir::DecodeOp::create(builder, loc, all);
  return ir::ReduceOp::create(builder, loc, kind, all);
}

struct ExpandVia final : impl::ExpandViaBase<ExpandVia> {
  using ExpandViaBase::ExpandViaBase;
  void runOnOperation() override {
    SmallVector<ir::AllReduceOp> reductions;
    getOperation()->walk([&](ir::AllReduceOp op) {
      if (op.getCodec())
        reductions.push_back(op);
    });
    if (reductions.empty())
      return markAllAnalysesPreserved();
    for (ir::AllReduceOp op : reductions) {
      expandAllReduce(op);
      ++numExpanded;
    }
  }
};

} // namespace

void expandAllReduce(ir::AllReduceOp op) {
  OpBuilder builder(op);
  Location loc = op.getLoc();
  Value input = op.getInput();
  FlatSymbolRefAttr group = ir::groupAttr(op.getContext(), op.getReductionGroup());
  ir::CodecAttrInterface codec = op.getCodec().value_or(nullptr);
  bool isBucket = ir::isBucket(input.getType());
  if (!isBucket && !codec) { // Of a group of one, reduce is the identity.
    Value reduced = gatherAndReduce(builder, loc, op.getKind(), input, group, codec);
    op.getResult().replaceAllUsesWith(reduced);
    op.erase();
    return;
  }
  Value size = groupSize(builder, loc, op.getReductionGroup());
  Value one = arith::ConstantIndexOp::create(builder, loc, 1);
  Value many = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::ugt, size, one);
  auto branch = scf::IfOp::create(
      builder, loc, many,
      [&](OpBuilder &inner, Location) {
        if (!isBucket) {
          scf::YieldOp::create(inner, loc,
                               gatherAndReduce(inner, loc, op.getKind(), input, group, codec));
          return;
        }
        Value shard =
            reduceShard(inner, loc, op.getKind(), input, group, codec, op.getWorkerAttr());
        scf::YieldOp::create(inner, loc,
                             gatherBucket(inner, loc, shard, group, codec, op.getServerAttr()));
      },
      [&](OpBuilder &inner, Location) { scf::YieldOp::create(inner, loc, input); });
  op.getResult().replaceAllUsesWith(branch.getResult(0));
  op.erase();
}

void expandReduceScatter(ir::ReduceScatterOp op) {
  OpBuilder builder(op);
  Value shard = reduceShard(builder, op.getLoc(), op.getKind(), op.getInput(), op.getGroupAttr(),
                            /*codec=*/nullptr);
  op.getResult().replaceAllUsesWith(shard);
  op.erase();
}

} // namespace bagua::compiler
