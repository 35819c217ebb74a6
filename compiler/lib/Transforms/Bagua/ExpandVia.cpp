// Writes out collectives: all_reduce via a codec as a pass, the plain ones for the lowering.
#include "bagua/compiler/ExpandCollectives.h"
#include "bagua/compiler/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace bagua::compiler {

#define GEN_PASS_DEF_EXPANDVIA
#include "bagua/compiler/Passes.h.inc"

namespace {

/// This rank's shard of the reduction of `input`.
Value reduceShard(OpBuilder &builder, Location loc, ir::ReduceKind kind, Value input,
                  FlatSymbolRefAttr group, ir::CodecAttrInterface codec) {
  Value parts = ir::SplitOp::create(builder, loc, input, group);
  if (codec)
    parts = ir::EncodeOp::create(builder, loc, parts, codec);
  parts = ir::AllToAllOp::create(builder, loc, parts, group);
  if (codec)
    parts = ir::DecodeOp::create(builder, loc, parts);
  return ir::ReduceOp::create(builder, loc, kind, parts);
}

/// The bucket made of every rank's `shard`.
Value gatherBucket(OpBuilder &builder, Location loc, Value shard, FlatSymbolRefAttr group,
                   ir::CodecAttrInterface codec) {
  if (codec) // One's own shard passes through the codec too: replicas stay equal.
    shard = ir::EncodeOp::create(builder, loc, shard, codec);
  Value all = ir::AllGatherOp::create(builder, loc, shard, group);
  if (codec)
    all = ir::DecodeOp::create(builder, loc, all);
  return ir::ConcatOp::create(builder, loc, all);
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
  FlatSymbolRefAttr group = op.getGroupAttr();
  if (!group)
    group = FlatSymbolRefAttr::get(op.getContext(), ir::kWorldGroup);
  if (ir::isScalar(input.getType())) { // Nothing to share out.
    Value all = ir::AllGatherOp::create(builder, loc, input, group);
    Value reduced = ir::ReduceOp::create(builder, loc, op.getKind(), all);
    op.getResult().replaceAllUsesWith(reduced);
    op.erase();
    return;
  }
  ir::CodecAttrInterface codec = op.getCodec().value_or(nullptr);
  Value world = ir::WorldOp::create(builder, loc);
  Value one = arith::ConstantIndexOp::create(builder, loc, 1);
  Value many = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::ugt, world, one);
  auto branch = scf::IfOp::create(
      builder, loc, many,
      [&](OpBuilder &inner, Location) {
        Value shard = reduceShard(inner, loc, op.getKind(), input, group, codec);
        scf::YieldOp::create(inner, loc, gatherBucket(inner, loc, shard, group, codec));
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
