// Checked i64 and f64 arithmetic over arith and math ops.
#include "bagua/compiler/ScalarEvaluator.h"

#include "bagua/Status.h"
#include "bagua/dialect/Scalars.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/TypeSwitch.h"

#include <algorithm>
#include <limits>
#include <optional>

using namespace mlir;

namespace bagua::compiler {
namespace {

using Integer = std::optional<int64_t>; ///< Nothing: overflow, or division by zero.

Integer floorDiv(int64_t a, int64_t b) {
  if (b == 0 || (a == std::numeric_limits<int64_t>::min() && b == -1))
    return {};
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

Integer ceilDiv(int64_t a, int64_t b) {
  if (b == 0 || (a == std::numeric_limits<int64_t>::min() && b == -1))
    return {};
  return a / b + (a % b != 0 && (a < 0) == (b < 0));
}

Integer remainder(int64_t a, int64_t b) {
  if (b == 0)
    return {};
  return b == -1 ? 0 : a % b;
}

/// Unsigned operations are for values that are never negative: else they would mean something that
/// a reader of the algorithm would not expect.
Integer unsignedOnly(int64_t a, int64_t b, Integer result) {
  return a < 0 || b < 0 ? Integer() : result;
}

Integer compare(arith::CmpIPredicate predicate, int64_t a, int64_t b) {
  auto ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
  switch (predicate) {
  case arith::CmpIPredicate::eq:
    return a == b;
  case arith::CmpIPredicate::ne:
    return a != b;
  case arith::CmpIPredicate::slt:
    return a < b;
  case arith::CmpIPredicate::sle:
    return a <= b;
  case arith::CmpIPredicate::sgt:
    return a > b;
  case arith::CmpIPredicate::sge:
    return a >= b;
  case arith::CmpIPredicate::ult:
    return ua < ub;
  case arith::CmpIPredicate::ule:
    return ua <= ub;
  case arith::CmpIPredicate::ugt:
    return ua > ub;
  case arith::CmpIPredicate::uge:
    return ua >= ub;
  }
  return {};
}

template <typename F> Integer checked(F builtin, int64_t a, int64_t b) {
  int64_t result = 0;
  if (builtin(a, b, &result))
    return {};
  return result;
}

/// Integer operations that use both operands.
Integer binary(Operation *op, int64_t a, int64_t b) {
  return llvm::TypeSwitch<Operation *, Integer>(op)
      .Case([&](arith::AddIOp) {
        return checked([](auto x, auto y, auto *r) { return __builtin_add_overflow(x, y, r); }, a,
                       b);
      })
      .Case([&](arith::SubIOp) {
        return checked([](auto x, auto y, auto *r) { return __builtin_sub_overflow(x, y, r); }, a,
                       b);
      })
      .Case([&](arith::MulIOp) {
        return checked([](auto x, auto y, auto *r) { return __builtin_mul_overflow(x, y, r); }, a,
                       b);
      })
      .Case([&](arith::FloorDivSIOp) { return floorDiv(a, b); })
      .Case([&](arith::CeilDivSIOp) { return ceilDiv(a, b); })
      .Case([&](arith::RemSIOp) { return remainder(a, b); })
      .Case([&](arith::DivUIOp) { return unsignedOnly(a, b, floorDiv(a, b)); })
      .Case([&](arith::CeilDivUIOp) { return unsignedOnly(a, b, ceilDiv(a, b)); })
      .Case([&](arith::RemUIOp) { return unsignedOnly(a, b, remainder(a, b)); })
      .Case([&](arith::MinSIOp) { return Integer(std::min(a, b)); })
      .Case([&](arith::MaxSIOp) { return Integer(std::max(a, b)); })
      .Case([&](arith::MinUIOp) { return unsignedOnly(a, b, std::min(a, b)); })
      .Case([&](arith::MaxUIOp) { return unsignedOnly(a, b, std::max(a, b)); })
      .Case([&](arith::XOrIOp) { return Integer(a ^ b); })
      .Case([&](arith::CmpIOp cmp) { return compare(cmp.getPredicate(), a, b); })
      .Default([](Operation *) { return Integer(); });
}

double binaryReal(Operation *op, double a, double b) {
  return llvm::TypeSwitch<Operation *, double>(op)
      .Case([&](arith::AddFOp) { return a + b; })
      .Case([&](arith::SubFOp) { return a - b; })
      .Case([&](arith::MulFOp) { return a * b; })
      .Default([&](Operation *) { return a / b; });
}

} // namespace

double powInt(double base, int64_t exponent) {
  uint64_t left =
      exponent < 0 ? 0 - static_cast<uint64_t>(exponent) : static_cast<uint64_t>(exponent);
  double result = 1.0;
  for (double square = base; left != 0; left >>= 1, square *= square)
    if (left & 1)
      result *= square;
  return exponent < 0 ? 1.0 / result : result;
}

bool ScalarEvaluator::isArithmetic(Operation *op) { return ir::isScalarArithmetic(op); }

LogicalResult ScalarEvaluator::evaluate(Operation *op) {
  if (!isArithmetic(op))
    return op->emitOpError("is no arithmetic that the interpreters know");
  Value result = op->getResult(0);
  if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
    if (auto integer = dyn_cast<IntegerAttr>(constant.getValue())) {
      bool isBool = integer.getType().isInteger(1);
      bind(result, isBool ? integer.getValue().getZExtValue() : integer.getValue().getSExtValue());
    } else if (auto real = dyn_cast<FloatAttr>(constant.getValue())) {
      bind(result, Scalar::ofReal(real.getValueAsDouble()));
    } else {
      return op->emitOpError("is no number");
    }
    return success();
  }

  for (Value operand : op->getOperands())
    if (failed(expectKnown(operand)))
      return failure();
  auto at = [&](unsigned i) { return scalar(op->getOperand(i)); };
  if (isa<arith::SelectOp>(op)) {
    Scalar condition = at(0);
    bind(result, condition.fault ? condition : at(condition.integer != 0 ? 1 : 2));
    return success();
  }
  Scalar a = at(0);
  if (isa<arith::AndIOp, arith::OrIOp>(op)) {
    bool isAnd = isa<arith::AndIOp>(op);
    if (!a.fault && (a.integer != 0) == isAnd) { // Else decided by `a` alone.
      Scalar b = at(1);
      bind(result, b.fault ? b : Scalar::of(b.integer != 0));
    } else {
      bind(result, a.fault ? a : Scalar::of(a.integer != 0));
    }
    return success();
  }
  for (unsigned i = 0; i < op->getNumOperands(); ++i)
    if (at(i).fault) {
      bind(result, at(i));
      return success();
    }
  if (isa<arith::IndexCastOp, arith::IndexCastUIOp, arith::ExtUIOp>(op)) {
    bind(result, a);
  } else if (isa<arith::SIToFPOp>(op)) {
    bind(result, Scalar::ofReal(a.toReal()));
  } else if (isa<arith::NegFOp>(op)) {
    bind(result, Scalar::ofReal(-a.real));
  } else if (isa<math::FPowIOp>(op)) {
    bind(result, Scalar::ofReal(powInt(a.real, at(1).integer)));
  } else if (a.isFloat) {
    bind(result, Scalar::ofReal(binaryReal(op, a.real, at(1).real)));
  } else {
    Integer value = binary(op, a.integer, at(1).integer);
    Scalar faulty;
    faulty.fault = op;
    bind(result, value ? Scalar::of(*value) : faulty);
  }
  return success();
}

const Scalar &ScalarEvaluator::scalar(Value value) const {
  auto found = values_.find(value);
  BAGUA_CHECK(found != values_.end());
  return found->second;
}

LogicalResult ScalarEvaluator::expectKnown(Value value) const {
  if (values_.contains(value))
    return success();
  Operation *op = value.getDefiningOp();
  if (!op)
    return emitError(value.getLoc(), "expects a number that is known before the data are");
  return op->emitOpError(
      "is no arithmetic that a schedule can do where a number or a condition is wanted: see "
      "\"Expressions\" in dialect/SPEC.md for what it can");
}

LogicalResult ScalarEvaluator::report(Operation *fault) const {
  if (!ir::isDivision(fault) || scalar(fault->getOperand(1)).integer != 0)
    return fault->emitOpError("overflows or has a negative operand");
  Operation *divisor = fault->getOperand(1).getDefiningOp();
  auto parameter = divisor ? divisor->getAttrOfType<FlatSymbolRefAttr>("parameter") : nullptr;
  InFlightDiagnostic diagnostic = fault->emitOpError("divides by ");
  if (parameter)
    return diagnostic << "parameter '" << parameter.getValue() << "', which is 0";
  return diagnostic << "zero";
}

FailureOr<int64_t> ScalarEvaluator::tryInteger(Value value) const {
  if (failed(expectKnown(value)))
    return failure();
  const Scalar &found = scalar(value);
  if (found.fault)
    return report(found.fault);
  return found.integer;
}

FailureOr<double> ScalarEvaluator::tryReal(Value value) const {
  if (failed(expectKnown(value)))
    return failure();
  const Scalar &found = scalar(value);
  if (found.fault)
    return report(found.fault);
  return found.toReal();
}

int64_t ScalarEvaluator::integer(Value value) {
  FailureOr<int64_t> result = tryInteger(value);
  hasFault_ |= failed(result);
  return succeeded(result) ? *result : 0;
}

double ScalarEvaluator::real(Value value) {
  FailureOr<double> result = tryReal(value);
  hasFault_ |= failed(result);
  return succeeded(result) ? *result : 0.0;
}

} // namespace bagua::compiler
