// Parameters and states of a schedule: syntax and constraints that chunk and sched have in common.
#pragma once

#include "bagua/dialect/Scalars.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"

#include <type_traits>

namespace bagua::ir {

/// `weight`, which is the absence of a number, or an f64.
inline mlir::ParseResult parseInitialValue(mlir::OpAsmParser &parser, mlir::FloatAttr &initial) {
  if (mlir::succeeded(parser.parseOptionalKeyword("weight")))
    return mlir::success();
  return parser.parseAttribute(initial, parser.getBuilder().getF64Type());
}

inline void printInitialValue(mlir::OpAsmPrinter &printer, mlir::Operation *,
                              mlir::FloatAttr initial) {
  if (initial)
    printer.printAttributeWithoutType(initial);
  else
    printer << "weight";
}

template <typename DeclareParameterOp>
mlir::LogicalResult verifyDeclaredParameter(DeclareParameterOp op) {
  mlir::Type type = op.getDefaultValue().getType();
  if (!llvm::isa<mlir::IndexType, mlir::Float64Type>(type)) // declare_parameter_C1
    return op.emitOpError("expects a default of type index or f64, got ") << type;
  auto index = llvm::dyn_cast<mlir::IntegerAttr>(op.getDefaultValue());
  if (index && index.getInt() < 0) // declare_parameter_C2
    return op.emitOpError("expects an index of at least 0 by default, got ") << index.getInt();
  if (index && index.getInt() > kIndexParameterMax) // declare_parameter_C2
    return op.emitOpError("expects an index of at most 2^53 by default, got ") << index.getInt();
  return mlir::success();
}

template <typename ScheduleOp, typename DeclareParameterOp, typename ParameterOp>
mlir::LogicalResult verifyParameterUse(ParameterOp op, mlir::SymbolTableCollection &symbols) {
  auto schedule = op->template getParentOfType<ScheduleOp>();
  auto declaration =
      schedule
          ? symbols.template lookupSymbolIn<DeclareParameterOp>(schedule, op.getParameterAttr())
          : nullptr;
  if (!declaration) // parameter_C1
    return op.emitOpError("expects a parameter of the schedule, got ") << op.getParameterAttr();
  mlir::Type expected = declaration.getDefaultValue().getType();
  if (expected != op.getResult().getType()) // parameter_C2
    return op.emitOpError("expects the declared type ")
           << expected << ", got " << op.getResult().getType();
  return mlir::success();
}

template <typename DeclareStateOp> mlir::LogicalResult verifyDeclaredState(DeclareStateOp op) {
  using Domain = std::remove_cvref_t<decltype(op.getDomain())>;
  using Resize = std::remove_cvref_t<decltype(op.getOnResize())>;
  Domain domain = op.getDomain();
  auto refuse = [&](llvm::StringRef expected) {
    return op.emitOpError("expects ")
           << expected << " a state of domain " << stringifyStateDomain(domain) << ", got ";
  };
  bool counted = domain == Domain::Neighbors;
  if (counted && (op.copies() < 1 || op.copies() > 16)) // declare_state_C1
    return refuse("1 to 16 buckets for") << op.copies();
  if (counted && !op.getBuckets())
    return refuse("a number of buckets for") << "none";
  if (!counted && op.getBuckets())
    return refuse("no number of buckets for") << op.copies();
  if (op.getInitial() && !op.getInitial()->isFinite()) // declare_state_C2
    return op.emitOpError("expects a finite initial value, got ") << op.getInitialAttr();
  Resize resize = op.getOnResize();
  if (resize == Resize::Repartition && domain != Domain::Shard) // declare_state_C3
    return refuse("mean or zero on resize of") << "repartition";
  if (resize == Resize::Mean && (domain == Domain::Shard || domain == Domain::Neighbors))
    return refuse(domain == Domain::Shard ? "repartition or zero on resize of"
                                          : "zero on resize of")
           << "mean";
  if (!op.getInitial() && (domain == Domain::Shard || domain == Domain::Scalar)) // declare_state_C4
    return refuse("a number as the initial value of") << "weight";
  return mlir::success();
}

template <typename ScheduleOp, typename DeclareStateOp, typename Op>
mlir::LogicalResult verifyStateUse(Op op, mlir::SymbolTableCollection &symbols) {
  auto schedule = op->template getParentOfType<ScheduleOp>();
  if (schedule && symbols.template lookupSymbolIn<DeclareStateOp>(schedule, op.getStateAttr()))
    return mlir::success();
  return op.emitOpError("expects a state of the schedule, got ") << op.getStateAttr();
}

} // namespace bagua::ir
