// Proves that a codec touches nothing in a world of one rank, where training must be as without us.
#include "bagua/compiler/Conditions.h"
#include "bagua/compiler/Passes.h"
#include "bagua/dialect/Bagua/BaguaOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;

namespace bagua::compiler {

#define GEN_PASS_DEF_VERIFYWORLDONE
#include "bagua/compiler/Passes.h.inc"

namespace {

bool holds(arith::CmpIPredicate predicate, int64_t a, int64_t b) {
  using Predicate =
      arith::CmpIPredicate; // World sizes and what they are compared with are not negative.
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

struct VerifyWorldOne final : impl::VerifyWorldOneBase<VerifyWorldOne> {
  using VerifyWorldOneBase::VerifyWorldOneBase;

  void runOnOperation() override {
    markAllAnalysesPreserved();
    WalkResult result = getOperation().walk([](ir::EncodeOp encode) {
      if (hasPeers(encode))
        return WalkResult::advance();
      encode.emitOpError(
          "expects to stand under a condition that implies `world > 1`: alone, an algorithm equals "
          "plain training");
      return WalkResult::interrupt();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }
};

} // namespace

bool hasPeers(Operation *op) {
  for (Region *region = op->getParentRegion(); region; region = region->getParentRegion())
    if (auto branch = dyn_cast<scf::IfOp>(region->getParentOp()))
      if (impliesMany(branch.getCondition(), region == &branch.getThenRegion()))
        return true;
  return false;
}

bool impliesMany(Value condition, bool holdsTrue) {
  Operation *op = condition.getDefiningOp();
  if (auto compare = dyn_cast_or_null<arith::CmpIOp>(op)) {
    Value left = compare.getLhs(), right = compare.getRhs();
    bool worldLeft = left.getDefiningOp<ir::WorldOp>() != nullptr;
    if (!worldLeft && !right.getDefiningOp<ir::WorldOp>())
      return false;
    std::optional<int64_t> constant = getConstantIntValue(worldLeft ? right : left);
    if (!constant || *constant < 0)
      return false;
    // A world has at least one rank: what does not hold for one holds for two or more only.
    int64_t a = worldLeft ? 1 : *constant, b = worldLeft ? *constant : 1;
    return holds(compare.getPredicate(), a, b) != holdsTrue;
  }
  if (holdsTrue && isa_and_nonnull<arith::AndIOp>(op))
    return impliesMany(op->getOperand(0), true) || impliesMany(op->getOperand(1), true);
  if (!holdsTrue && isa_and_nonnull<arith::OrIOp>(op))
    return impliesMany(op->getOperand(0), false) || impliesMany(op->getOperand(1), false);
  return false;
}

} // namespace bagua::compiler
