// Scalars that are known before the data are: the arithmetic that all levels share, and what
// parameters may be. SPEC.md, "Scalars" and "Expressions".
#pragma once

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

namespace bagua::ir {

/// What interpreters and schedule files compute with.
inline bool isScalarArithmetic(mlir::Operation *op) {
  using namespace mlir;
  if (isa<arith::AndIOp, arith::OrIOp, arith::XOrIOp>(op)) // Of conditions, not of bits.
    return op->getResult(0).getType().isInteger(1);
  return isa<arith::ConstantOp, arith::AddIOp, arith::SubIOp, arith::MulIOp, arith::FloorDivSIOp,
             arith::CeilDivSIOp, arith::RemSIOp, arith::DivUIOp, arith::RemUIOp, arith::CeilDivUIOp,
             arith::MinSIOp, arith::MaxSIOp, arith::MinUIOp, arith::MaxUIOp, arith::CmpIOp,
             arith::SelectOp, arith::IndexCastOp, arith::IndexCastUIOp, arith::ExtUIOp,
             arith::SIToFPOp, arith::AddFOp, arith::SubFOp, arith::MulFOp, arith::DivFOp,
             arith::NegFOp, math::FPowIOp>(op);
}

/// i32 and i64 appear in casts and as the exponent of math.fpowi.
inline bool isScalarType(mlir::Type type) {
  return llvm::isa<mlir::IndexType, mlir::Float64Type>(type) || type.isInteger(1) ||
         type.isInteger(64) || type.isInteger(32);
}

/// P1: the largest index parameter: beyond, an f64 skips integers.
inline constexpr int64_t kIndexParameterMax = int64_t{1} << 53;

inline bool isDivision(mlir::Operation *op) {
  using namespace mlir;
  return isa<arith::FloorDivSIOp, arith::CeilDivSIOp, arith::RemSIOp, arith::DivUIOp,
             arith::CeilDivUIOp, arith::RemUIOp>(op);
}

/// P1: what an index parameter, of which `value` is one use, is at least: 1 if something is divided
/// by it, else 0. A comparison with a constant may guard the division: then 0 too.
inline int64_t leastOfParameter(mlir::Value value) {
  using namespace mlir;
  int64_t least = 0;
  for (OpOperand &use : value.getUses()) {
    Operation *op = use.getOwner();
    if (isDivision(op))
      least = std::max<int64_t>(least, use.getOperandNumber());
    else if (isa<arith::CmpIOp>(op) &&
             op->getOperand(1 - use.getOperandNumber()).getDefiningOp<arith::ConstantOp>())
      return 0;
  }
  return least;
}

} // namespace bagua::ir
