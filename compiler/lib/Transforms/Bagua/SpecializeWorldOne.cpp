// Takes the codecs out of a world of one rank: alone, they are the identity (SPEC.md, W1).
#include "bagua/compiler/Conditions.h"
#include "bagua/compiler/Passes.h"
#include "bagua/dialect/Bagua/BaguaOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;

namespace bagua::compiler {

#define GEN_PASS_DEF_SPECIALIZEWORLDONE
#include "bagua/compiler/Passes.h.inc"

namespace {

bool holds(arith::CmpIPredicate predicate, int64_t a, int64_t b) {
  using Predicate =
      arith::CmpIPredicate; // Sizes of groups and what they are compared with are not negative.
  switch (predicate) {
  case Predicate::eq:
    return a == b;
  case Predicate::ne:
    return a != b;
  case Predicate::slt:
  case Predicate::ult:
    return a < b;
  case Predicate::sle:
  case Predicate::ule:
    return a <= b;
  case Predicate::sgt:
  case Predicate::ugt:
    return a > b;
  case Predicate::sge:
  case Predicate::uge:
    return a >= b;
  }
  return false;
}

struct SpecializeWorldOne final : impl::SpecializeWorldOneBase<SpecializeWorldOne> {
  using SpecializeWorldOneBase::SpecializeWorldOneBase;

  void runOnOperation() override {
    SmallVector<ir::OnOp> handlers;
    for (auto on : getOperation().getBody().getOps<ir::OnOp>()) {
      if (on.isAsync()) // Does not run there.
        continue;
      WalkResult result = on.walk([](ir::EncodeOp encode) {
        return hasPeers(encode) ? WalkResult::advance() : WalkResult::interrupt();
      });
      if (result.wasInterrupted())
        handlers.push_back(on);
    }
    if (handlers.empty())
      return markAllAnalysesPreserved();
    for (ir::OnOp on : handlers)
      specialize(on);
  }

private:
  /// Puts the handler's body under `world > 1`, and a copy without codecs beside it.
  static void specialize(ir::OnOp on) {
    Location loc = on.getLoc();
    Block &body = on.getBody().front();
    SmallVector<Operation *> ops;
    for (Operation &op : body)
      ops.push_back(&op);
    OpBuilder builder = OpBuilder::atBlockBegin(&body);
    Value world = ir::WorldOp::create(builder, loc);
    Value one = arith::ConstantIndexOp::create(builder, loc, 1);
    Value many = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::ugt, world, one);
    auto branch = scf::IfOp::create(builder, loc, many, /*withElseRegion=*/true);
    for (Operation *op : ops)
      op->moveBefore(branch.thenYield());

    IRMapping mapping;
    builder.setInsertionPoint(branch.elseYield());
    for (Operation *op : ops)
      builder.clone(*op, mapping);
    AttrTypeReplacer plain;
    plain.addReplacement([](ir::PackedType packed) -> Type { return packed.getElement(); });
    SmallVector<Operation *> codecs;
    branch.getElseRegion().walk([&](Operation *op) {
      if (isa<ir::EncodeOp, ir::DecodeOp>(op))
        codecs.push_back(op);
      for (Value result : op->getResults())
        result.setType(plain.replace(result.getType()));
    });
    for (Operation *op : codecs) {
      op->getResult(0).replaceAllUsesWith(op->getOperand(0));
      op->erase();
    }
  }
};

} // namespace

bool hasPeers(Operation *op, ir::Group group) {
  using ir::Group;
  for (Region *region = op->getParentRegion(); region; region = region->getParentRegion())
    if (auto branch = dyn_cast<scf::IfOp>(region->getParentOp())) {
      bool taken = region == &branch.getThenRegion();
      for (Group of : {Group::World, Group::Node, Group::Cross})
        if ((group == Group::World || group == of) && impliesMany(branch.getCondition(), taken, of))
          return true;
    }
  return false;
}

static bool isSize(Value value, ir::Group group) {
  Operation *op = value.getDefiningOp();
  switch (group) {
  case ir::Group::World:
    return isa_and_nonnull<ir::WorldOp>(op);
  case ir::Group::Node:
    return isa_and_nonnull<ir::LocalSizeOp>(op);
  case ir::Group::Cross:
    return isa_and_nonnull<ir::NodesOp>(op);
  }
  llvm_unreachable("all groups");
}

bool impliesMany(Value condition, bool holdsTrue, ir::Group group) {
  Operation *op = condition.getDefiningOp();
  if (auto compare = dyn_cast_or_null<arith::CmpIOp>(op)) {
    Value left = compare.getLhs(), right = compare.getRhs();
    bool sizeLeft = isSize(left, group);
    if (!sizeLeft && !isSize(right, group))
      return false;
    std::optional<int64_t> constant = getConstantIntValue(sizeLeft ? right : left);
    if (!constant || *constant < 0)
      return false;
    // A group has at least one rank: what does not hold for one holds for two or more only.
    int64_t a = sizeLeft ? 1 : *constant, b = sizeLeft ? *constant : 1;
    return holds(compare.getPredicate(), a, b) != holdsTrue;
  }
  bool joins = holdsTrue ? isa_and_nonnull<arith::AndIOp>(op) : isa_and_nonnull<arith::OrIOp>(op);
  return joins && (impliesMany(op->getOperand(0), holdsTrue, group) ||
                   impliesMany(op->getOperand(1), holdsTrue, group));
}

} // namespace bagua::compiler
