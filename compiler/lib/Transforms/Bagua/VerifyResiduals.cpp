// Error feedback must keep what the codec lost of the value that travelled, or it feeds back noise.
#include "bagua/compiler/Passes.h"
#include "bagua/dialect/Bagua/BaguaMap.h"
#include "bagua/dialect/Bagua/BaguaOps.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace bagua::compiler {

#define GEN_PASS_DEF_VERIFYRESIDUALS
#include "bagua/compiler/Passes.h.inc"

namespace {

struct OwnEncoding {
  ir::EncodeOp op; ///< Null if there is none.
  Value encoded;
};

/// What an operand of a map was decoded from, whole or shard by shard, if that is this rank's own
/// encoding and nothing else.
OwnEncoding ownEncodingOf(Value value) {
  auto concat = value.getDefiningOp<ir::ConcatOp>();
  auto decode = (concat ? concat.getInput() : value).getDefiningOp<ir::DecodeOp>();
  auto encode = decode ? decode.getInput().getDefiningOp<ir::EncodeOp>() : ir::EncodeOp();
  if (!encode)
    return {};
  auto split = encode.getInput().getDefiningOp<ir::SplitOp>();
  if (concat && !split)
    return {};
  return {encode, concat ? split.getInput() : encode.getInput()};
}

/// `map` is the difference of two values: these.
std::optional<std::pair<Value, Value>> differenceOf(ir::MapOp map) {
  ArrayRef<int64_t> code = map.getCode();
  if (code.size() != 3 * ir::kMapStride)
    return std::nullopt;
  ArrayRef<int64_t> last = code.take_back(ir::kMapStride);
  if (static_cast<ir::MapCode>(last[0]) != ir::MapCode::Sub)
    return std::nullopt;
  Value operands[2];
  for (size_t i = 0; i < 2; ++i) {
    ArrayRef<int64_t> load =
        code.slice(static_cast<size_t>(last[1 + i]) * ir::kMapStride, ir::kMapStride);
    if (static_cast<ir::MapCode>(load[0]) != ir::MapCode::Input)
      return std::nullopt;
    operands[i] = map.getValues()[load[1]];
  }
  return std::pair(operands[0], operands[1]);
}

/// One value, or computed twice the same way.
bool isSame(Value a, Value b) {
  Operation *first = a.getDefiningOp(), *second = b.getDefiningOp();
  return a == b || (isa_and_nonnull<ir::MapOp>(first) && isa_and_nonnull<ir::MapOp>(second) &&
                    OperationEquivalence::isEquivalentTo(first, second,
                                                         OperationEquivalence::IgnoreLocations));
}

struct VerifyResiduals final : impl::VerifyResidualsBase<VerifyResiduals> {
  using VerifyResidualsBase::VerifyResidualsBase;

  void runOnOperation() override {
    markAllAnalysesPreserved();
    WalkResult result = getOperation().walk([](ir::UpdateOp update) {
      return update.getState() && failed(verify(update)) ? WalkResult::interrupt()
                                                         : WalkResult::advance();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }

private:
  static LogicalResult verify(ir::UpdateOp update) {
    SmallVector<Value> open{update.getValue()};
    while (!open.empty()) { // Through the branches that the state's value comes from.
      Value value = open.pop_back_val();
      if (auto branch = value.getDefiningOp<scf::IfOp>()) {
        unsigned index = cast<OpResult>(value).getResultNumber();
        for (Block *block : {branch.thenBlock(), branch.elseBlock()})
          open.push_back(block->getTerminator()->getOperand(index));
      } else if (auto map = value.getDefiningOp<ir::MapOp>()) {
        if (failed(verify(update, map)))
          return failure();
      }
    }
    return success();
  }

  static LogicalResult verify(ir::UpdateOp update, ir::MapOp map) {
    auto operands = differenceOf(map);
    if (!operands)
      return success();
    auto [kept, decoded] = *operands;
    auto [encode, encoded] = ownEncodingOf(decoded);
    if (!encode || isSame(encoded, kept) || !isFedBack(update, encoded))
      return success();
    InFlightDiagnostic diagnostic =
        map.emitOpError("expects a residual of the value that was encoded: c - decode(encode(c)); "
                        "subtract from that value");
    diagnostic.attachNote(encode.getLoc()) << "encodes another value than the one subtracted from";
    return diagnostic;
  }

  /// The state feeds what is encoded, so the difference is meant as error feedback.
  static bool isFedBack(ir::UpdateOp update, Value encoded) {
    SmallVector<Value> open{encoded};
    llvm::SmallDenseSet<Value> seen;
    while (!open.empty()) {
      Value value = open.pop_back_val();
      Operation *op = value.getDefiningOp();
      if (!op || !seen.insert(value).second)
        continue;
      if (auto read = dyn_cast<ir::ReadOp>(op)) {
        if (read.getStateAttr() == update.getStateAttr())
          return true;
      } else if (auto branch = dyn_cast<scf::IfOp>(op)) {
        unsigned index = cast<OpResult>(value).getResultNumber();
        for (Block *block : {branch.thenBlock(), branch.elseBlock()})
          open.push_back(block->getTerminator()->getOperand(index));
      } else if (isa<ir::MapOp>(op)) {
        llvm::append_range(open, op->getOperands());
      }
    }
    return false;
  }
};

} // namespace
} // namespace bagua::compiler
