// Evaluates the index arithmetic that all three levels share, one op at a time, with checked i64.
#pragma once

#include "mlir/IR/Operation.h"
#include "llvm/ADT/DenseMap.h"

#include <cstdint>

namespace bagua::compiler {

/// An i64 (index, i1 as 0 or 1, i64) or an f64.
struct Scalar {
  bool isFloat = false;
  int64_t integer = 0;
  double real = 0;
  /// Not null: no value, because this op overflowed or divided by zero.
  mlir::Operation *fault = nullptr;

  static Scalar of(int64_t value) { return {false, value, 0, nullptr}; }
  static Scalar ofReal(double value) { return {true, 0, value, nullptr}; }
  double toReal() const { return isFloat ? real : static_cast<double>(integer); }
};

/// Squarings in a fixed order, as in the runtime: pow() does not promise the same bits everywhere.
double powInt(double base, int64_t exponent);

/// Values by SSA value. Interpreters bind what their own ops yield (world, rank, loop variables),
/// then call evaluate() for each arith op as they come to it; a loop simply overwrites.
///
/// An overflow or a division by zero is an error where its value is used, not where it is computed:
/// `select`, `andi` and `ori` use only what they need, as in the schedule file.
class ScalarEvaluator {
public:
  void bind(mlir::Value value, Scalar scalar) { values_[value] = scalar; }
  void bind(mlir::Value value, int64_t integer) { values_[value] = Scalar::of(integer); }

  /// True if evaluate() knows this op (the list is in SPEC.md, "Expressions").
  static bool isArithmetic(mlir::Operation *op);

  /// Binds the op's result. Fails, with a diagnostic, for an op that isArithmetic() does not list.
  mlir::LogicalResult evaluate(mlir::Operation *op);

  /// The value of an operand that was evaluated or bound before (our bug if not). Emits an error if
  /// computing it overflowed or divided by zero.
  mlir::FailureOr<int64_t> tryInteger(mlir::Value value) const;
  mlir::FailureOr<double> tryReal(mlir::Value value) const; ///< Integers convert.

  /// The same for callers that check hasFault() now and then: emits the error, yields 0 and marks
  /// the whole evaluation as wrong.
  int64_t integer(mlir::Value value);
  double real(mlir::Value value);
  bool hasFault() const { return hasFault_; }

  const Scalar &scalar(mlir::Value value) const;
  /// Emits an error at what `value` comes from unless it has been evaluated.
  mlir::LogicalResult expectKnown(mlir::Value value) const;
  bool isBound(mlir::Value value) const { return values_.contains(value); }

private:
  /// Says what went wrong at the op. Fails.
  mlir::LogicalResult report(mlir::Operation *fault) const;

  llvm::DenseMap<mlir::Value, Scalar> values_;
  bool hasFault_ = false;
};

} // namespace bagua::compiler
