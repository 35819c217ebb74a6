// Proves that every rank takes the same branches, so that communication meets its peer.
#include "bagua/compiler/Passes.h"
#include "bagua/dialect/Bagua/BaguaOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace bagua::compiler {

#define GEN_PASS_DEF_VERIFYUNIFORMITY
#include "bagua/compiler/Passes.h.inc"

namespace {

struct VerifyUniformity final : impl::VerifyUniformityBase<VerifyUniformity> {
  using VerifyUniformityBase::VerifyUniformityBase;

  void runOnOperation() override {
    causes_.clear();
    for (auto on : getOperation().getBody().getOps<ir::OnOp>())
      if (failed(visit(on.getBody().front())))
        return signalPassFailure();
    markAllAnalysesPreserved();
  }

private:
  /// Values that may differ between ranks, each with the op that makes them so.
  DenseMap<Value, Operation *> causes_;

  LogicalResult visit(Block &block) {
    for (Operation &op : block) {
      if (auto branch = dyn_cast<scf::IfOp>(op)) {
        if (failed(visit(branch)))
          return failure();
        continue;
      }
      bool uniform =
          isa<ir::WorldOp, ir::LocalSizeOp, ir::NodesOp, ir::StepOp, ir::ToF64Op, ir::PowerOp>(
              op) ||
          isa_and_nonnull<arith::ArithDialect>(op.getDialect());
      if (failed(verifyShared(op)))
        return failure();
      Operation *cause = uniform ? causeAmong(op.getOperands()) : &op;
      if (cause)
        for (Value result : op.getResults())
          causes_[result] = cause;
    }
    return success();
  }

  LogicalResult verify(Operation *op, Value value, StringRef what) {
    Operation *cause = value ? causes_.lookup(value) : nullptr;
    if (!cause)
      return success();
    InFlightDiagnostic diagnostic =
        op->emitOpError() << "expects " << what
                          << " that is the same on all ranks, from bagua.world, bagua.local_size, "
                             "bagua.nodes, bagua.step, parameters and constants";
    diagnostic.attachNote(cause->getLoc()) << "got one that depends on " << cause->getName();
    return diagnostic;
  }

  LogicalResult verifyShared(Operation &op) {
    if (auto exchange = dyn_cast<ir::NeighborExchangeOp>(op))
      return verify(&op, exchange.getRound(), "a round");
    if (auto mix = dyn_cast<ir::MixOp>(op))
      return verify(&op, mix.getRound(), "a round");
    if (auto random = dyn_cast<ir::RandomOp>(op); random && random.getDraw() == ir::Draw::Shared)
      return verify(&op, random.getSeed(), "a seed");
    return success();
  }

  LogicalResult visit(scf::IfOp branch) {
    if (failed(verify(branch, branch.getCondition(), "a condition")))
      return failure();
    for (Region *region : branch.getRegions())
      if (!region->empty() && failed(visit(region->front())))
        return failure();
    for (OpResult result : branch.getResults())
      for (Block *block : {branch.thenBlock(), branch.elseBlock()})
        if (Operation *cause =
                causes_.lookup(block->getTerminator()->getOperand(result.getResultNumber())))
          causes_[result] = cause;
    return success();
  }

  Operation *causeAmong(ValueRange values) const {
    for (Value value : values)
      if (Operation *cause = causes_.lookup(value))
        return cause;
    return nullptr;
  }
};

} // namespace
} // namespace bagua::compiler
