// Puts the bodies of functions in the place of their calls, those of the prelude too: what follows
// sees handlers only.
#include "bagua/compiler/Passes.h"
#include "bagua/dialect/Bagua/BaguaOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Transforms/Inliner.h"
#include "mlir/Transforms/InliningUtils.h"

using namespace mlir;

namespace bagua::compiler {

#define GEN_PASS_DEF_INLINEFUNCTIONS
#include "bagua/compiler/Passes.h.inc"

namespace {

constexpr const char *kPrelude =
#include "bagua/compiler/Prelude.inc"
    ;

/// Everything may be inlined: functions hold what handlers hold, and end with one return.
struct HandlerInliner final : InlinerInterface {
  using InlinerInterface::InlinerInterface;
  bool isLegalToInline(Operation *, Operation *, bool) const override { return true; }
  bool isLegalToInline(Region *, Region *, bool, IRMapping &) const override { return true; }
  bool isLegalToInline(Operation *, Region *, bool, IRMapping &) const override { return true; }
  bool allowSingleBlockOptimization(
      llvm::iterator_range<Region::iterator> /*inlinedBlocks*/) const override {
    return true;
  }
  void handleTerminator(Operation *op, ValueRange results) const override {
    for (auto [result, value] : llvm::zip(results, op->getOperands()))
      result.replaceAllUsesWith(value);
  }
};

/// The calls of one module.
class CallInliner {
public:
  explicit CallInliner(ModuleOp module) : module_(module) {}

  LogicalResult run() {
    for (auto function : module_.getOps<func::FuncOp>())
      if (failed(verify(function)))
        return failure();
    for (auto algorithm : module_.getOps<ir::AlgorithmOp>()) {
      SmallVector<ir::CallOp> calls;
      algorithm.walk([&](ir::CallOp call) { calls.push_back(call); });
      for (ir::CallOp call : calls)
        if (failed(inlineOne(call, {})))
          return failure();
    }
    for (auto function : llvm::make_early_inc_range(module_.getOps<func::FuncOp>()))
      function.erase();
    return success();
  }

private:
  ModuleOp module_;
  OwningOpRef<ModuleOp> prelude_; ///< Null until a name is looked up in it.

  static LogicalResult verify(func::FuncOp function) {
    if (!function.isPrivate())
      return function.emitOpError("expects to be private: only handlers of this file call it; "
                                  "write `func.func private`");
    if (function.isExternal())
      return function.emitOpError("expects a body");
    if (!function.getBody().hasOneBlock())
      return function.emitOpError("expects one block: use scf.if, not branches");
    return success();
  }

  func::FuncOp functionNamed(StringRef name) {
    if (auto own = module_.lookupSymbol<func::FuncOp>(name))
      return own;
    if (!prelude_)
      prelude_ =
          parseSourceString<ModuleOp>(kPrelude, ParserConfig(module_.getContext()), "prelude.mlir");
    return prelude_ ? prelude_->lookupSymbol<func::FuncOp>(name) : func::FuncOp();
  }

  /// `callers`: the functions whose bodies `call` came from.
  LogicalResult inlineOne(ir::CallOp call, SmallVector<StringRef> callers) {
    func::FuncOp function = functionNamed(call.getCallee());
    if (!function)
      return call.emitOpError() << "calls @" << call.getCallee()
                                << ", which neither this file nor the prelude defines";
    if (llvm::is_contained(callers, function.getSymName()))
      return call.emitOpError() << "expects functions that do not call themselves, got @"
                                << call.getCallee() << " called from @" << callers.back();
    FunctionType type = function.getFunctionType();
    auto got = FunctionType::get(module_.getContext(), call.getInputs().getTypes(),
                                 call.getOutputs().getTypes());
    if (got != type)
      return call.emitOpError() << "expects the type of @" << call.getCallee() << ", " << type
                                << ", got " << got;
    callers.push_back(function.getSymName());
    Operation *after = call->getNextNode(); // What is inlined stands between.
    HandlerInliner inliner(module_.getContext());
    if (failed(inlineRegion(inliner, InlinerConfig().getCloneCallback(), &function.getBody(), call,
                            call.getInputs(), call.getOutputs(), call.getLoc(),
                            /*shouldCloneInlinedRegion=*/true)))
      return call.emitOpError("cannot be inlined");
    SmallVector<ir::CallOp> inner;
    for (Operation *op = call->getNextNode(); op != after; op = op->getNextNode())
      op->walk([&](ir::CallOp nested) { inner.push_back(nested); });
    call.erase();
    for (ir::CallOp nested : inner)
      if (failed(inlineOne(nested, callers)))
        return failure();
    return success();
  }
};

struct InlineFunctions final : impl::InlineFunctionsBase<InlineFunctions> {
  using InlineFunctionsBase::InlineFunctionsBase;
  void runOnOperation() override {
    if (failed(CallInliner(getOperation()).run()))
      signalPassFailure();
  }
};

} // namespace
} // namespace bagua::compiler
