// Proves that what a handler computes reaches the job: a forgotten update trains silently without
// it.
#include "bagua/compiler/Passes.h"
#include "bagua/dialect/Bagua/BaguaOps.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/SmallPtrSet.h"

using namespace mlir;

namespace bagua::compiler {

#define GEN_PASS_DEF_VERIFYUSES
#include "bagua/compiler/Passes.h.inc"

namespace {

/// Scalars decide and scale, and may be left over; anything else is data.
bool isData(Value value) { return !value.getType().isIntOrIndexOrFloat(); }

struct VerifyUses final : impl::VerifyUsesBase<VerifyUses> {
  using VerifyUsesBase::VerifyUsesBase;

  void runOnOperation() override {
    markAllAnalysesPreserved();
    for (auto on : getOperation().getBody().getOps<ir::OnOp>())
      if (failed(verify(on)))
        signalPassFailure();
  }

private:
  static LogicalResult verify(ir::OnOp on) {
    SmallVector<Value> open;
    on.walk([&](ir::UpdateOp update) { llvm::append_range(open, update->getOperands()); });
    bool updates = !open.empty();
    llvm::SmallPtrSet<Value, 32> used = reachedFrom(std::move(open));
    bool complete = true;
    on.walk<WalkOrder::PreOrder>([&](Operation *op) {
      for (OpResult result : op->getResults())
        if (endsUnused(result, used)) {
          report(result, on);
          complete = false;
        }
    });
    if (!updates && complete)
      return on.emitOpError(
          "expects at least one bagua.update, got none: the handler has no effect");
    return success(complete);
  }

  /// Every value that one of `open` is computed from.
  static llvm::SmallPtrSet<Value, 32> reachedFrom(SmallVector<Value> open) {
    llvm::SmallPtrSet<Value, 32> reached;
    while (!open.empty()) {
      auto result = dyn_cast<OpResult>(open.pop_back_val());
      if (!result || !reached.insert(result).second)
        continue;
      if (auto branch = dyn_cast<scf::IfOp>(result.getOwner()))
        for (Block *block : {branch.thenBlock(), branch.elseBlock()})
          open.push_back(block->getTerminator()->getOperand(result.getResultNumber()));
      else
        llvm::append_range(open, result.getOwner()->getOperands());
    }
    return reached;
  }

  /// Whether `value` is unused data at the end of its chain, where the update is missing.
  static bool endsUnused(Value value, const llvm::SmallPtrSet<Value, 32> &used) {
    return isData(value) && !used.contains(value) &&
           llvm::none_of(value.getUsers(), [](Operation *user) {
             return isa<scf::YieldOp>(user) || llvm::any_of(user->getResults(), isData);
           });
  }

  static void report(OpResult result, ir::OnOp on) {
    Operation *op = result.getOwner();
    InFlightDiagnostic diagnostic = op->emitOpError("expects its result ");
    if (op->getNumResults() > 1)
      diagnostic << "#" << result.getResultNumber() << " ";
    diagnostic
        << "to reach a bagua.update, directly or through other ops, got one that nothing uses";
    if (result.getType() != on.getBucket().getType())
      return;
    bool isGradient = on.getEvent() == ir::Event::Gradient;
    bool waits = on.getEvent() == ir::Event::BeforeForward;
    diagnostic << ": write `bagua.update " << (isGradient ? "gradient" : "weight")
               << (on.isAsync() ? " += %result" : " = %result")
               << (waits ? " at before_update`" : "`");
  }
};

} // namespace
} // namespace bagua::compiler
