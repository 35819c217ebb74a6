// Proves that a trainer that waits for a timed round waits for nobody who waits for it.
#include "bagua/compiler/Passes.h"
#include "bagua/dialect/Bagua/BaguaOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;

namespace bagua::compiler {

#define GEN_PASS_DEF_VERIFYSTALENESS
#include "bagua/compiler/Passes.h.inc"

namespace {

struct VerifyStaleness final : impl::VerifyStalenessBase<VerifyStaleness> {
  using VerifyStalenessBase::VerifyStalenessBase;

  void runOnOperation() override {
    markAllAnalysesPreserved();
    async_ = {};
    for (auto on : getOperation().getBody().getOps<ir::OnOp>())
      if (on.getEveryUnit() == ir::IntervalUnit::Milliseconds)
        async_ = on;
    if (!async_) // Rounds that count steps begin at the same boundaries on all ranks.
      return;
    for (auto on : getOperation().getBody().getOps<ir::OnOp>())
      if (!on.isAsync() && failed(verify(on)))
        return signalPassFailure();
  }

private:
  ir::OnOp async_;

  LogicalResult verify(ir::OnOp on) {
    if (on.getEvent() == ir::Event::AfterUpdate)
      return refuse(on, "of after_update runs only once all ranks agree that the step is finite",
                    "change the weight in the async handler");
    WalkResult result = on.walk([&](Operation *op) -> WalkResult {
      auto update = dyn_cast<ir::UpdateOp>(op);
      auto reduce = dyn_cast<ir::AllReduceOp>(op);
      if ((update && (update.getState() || update.getGate())) || (reduce && reduce.getWorker()))
        return refuse(op, "is stored only once all ranks agree that the step is finite",
                      "leave it to the async handler");
      bool communicates = isa<ir::AllReduceOp, ir::ReduceScatterOp, ir::AllToAllOp, ir::AllGatherOp,
                              ir::NeighborExchangeOp>(op);
      if (!communicates || endsBeforeRounds(op))
        return success();
      std::string fix = "do it in the first steps only, under `step < %n` with `after(%n)`";
      return refuse(op, "waits for peers in a step", fix);
    });
    return failure(result.wasInterrupted());
  }

  LogicalResult refuse(Operation *op, StringRef what, StringRef fix) {
    InFlightDiagnostic diagnostic = op->emitOpError()
                                    << "B160: " << what
                                    << ", in which a rank that has not begun a timed round would "
                                       "wait for one that waits for that round: "
                                    << fix << "; or count steps: `every(%n steps)`";
    diagnostic.attachNote(async_.getLoc()) << "the timed rounds";
    return diagnostic;
  }

  /// `op` stands under a condition that holds only in steps before the first round.
  bool endsBeforeRounds(Operation *op) {
    for (Region *region = op->getParentRegion(); region; region = region->getParentRegion())
      if (auto branch = dyn_cast<scf::IfOp>(region->getParentOp()))
        if (impliesBefore(branch.getCondition(), region == &branch.getThenRegion()))
          return true;
    return false;
  }

  bool isAfter(Value value) {
    if (async_.getAfter())
      return value == async_.getAfter();
    return async_.getAfterNumber() && getConstantIntValue(value) == *async_.getAfterNumber();
  }

  /// That `condition` is `holdsTrue` says that the step is below `after`.
  bool impliesBefore(Value condition, bool holdsTrue) {
    using Predicate = arith::CmpIPredicate;
    Operation *op = condition.getDefiningOp();
    if (auto compare = dyn_cast_or_null<arith::CmpIOp>(op)) {
      Predicate predicate = compare.getPredicate();
      Value left = compare.getLhs(), right = compare.getRhs();
      if (left.getDefiningOp<ir::StepOp>() && isAfter(right)) // step < after, !(step >= after)
        return holdsTrue ? predicate == Predicate::slt || predicate == Predicate::ult
                         : predicate == Predicate::sge || predicate == Predicate::uge;
      if (right.getDefiningOp<ir::StepOp>() && isAfter(left)) // after > step, !(after <= step)
        return holdsTrue ? predicate == Predicate::sgt || predicate == Predicate::ugt
                         : predicate == Predicate::sle || predicate == Predicate::ule;
      return false;
    }
    if (holdsTrue && isa_and_nonnull<arith::AndIOp>(op))
      return impliesBefore(op->getOperand(0), true) || impliesBefore(op->getOperand(1), true);
    if (!holdsTrue && isa_and_nonnull<arith::OrIOp>(op))
      return impliesBefore(op->getOperand(0), false) || impliesBefore(op->getOperand(1), false);
    return false;
  }
};

} // namespace
} // namespace bagua::compiler
