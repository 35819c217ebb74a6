// Evaluates the index arithmetic that all three levels share, one op at a time, with checked i64.
#pragma once

#include "mlir/IR/Operation.h"
#include "llvm/ADT/DenseMap.h"

#include <cstdint>

namespace bagua::compiler {

/// An i64 (index, i1 as 0 or 1, i64) or an f64 (also f32, held exactly).
struct Scalar {
  bool isFloat = false;
  int64_t integer = 0;
  double real = 0;

  static Scalar of(int64_t value) { return {false, value, 0}; }
  static Scalar ofReal(double value) { return {true, 0, value}; }
  double toReal() const { return isFloat ? real : static_cast<double>(integer); }
};

/// Values by SSA value. Interpreters bind what their own ops yield (world, rank, loop variables),
/// then call evaluate() for each arith op as they come to it; a loop simply overwrites.
class ScalarEvaluator {
public:
  void bind(mlir::Value value, Scalar scalar) { values_[value] = scalar; }
  void bind(mlir::Value value, int64_t integer) { values_[value] = Scalar::of(integer); }

  /// True if evaluate() knows this op (the list is in SPEC.md, "Expressions").
  static bool isArithmetic(mlir::Operation *op);

  /// Binds the op's result. Error: overflow, division by zero, an op that isArithmetic() does not
  /// list.
  mlir::LogicalResult evaluate(mlir::Operation *op);

  /// An operand that was evaluated or bound before (our bug if not).
  int64_t integer(mlir::Value value) const;
  double real(mlir::Value value) const; ///< Integers convert.
  const Scalar &scalar(mlir::Value value) const;
  bool isBound(mlir::Value value) const { return values_.contains(value); }

private:
  llvm::DenseMap<mlir::Value, Scalar> values_;
};

} // namespace bagua::compiler
