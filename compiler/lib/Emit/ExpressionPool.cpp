// Constant folding, sharing and signs of schedule expressions.
#include "ExpressionPool.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace bagua::compiler {
namespace {

using fb::ExprOp;

/// False on overflow or division by zero: then the node stays, and is an error where it is used.
bool evaluate(ExprOp op, int64_t a, int64_t b, int64_t &r) {
  bool divides = b != 0 && !(a == std::numeric_limits<int64_t>::min() && b == -1);
  switch (op) {
  case ExprOp::Add:
    return !__builtin_add_overflow(a, b, &r);
  case ExprOp::Sub:
    return !__builtin_sub_overflow(a, b, &r);
  case ExprOp::Mul:
    return !__builtin_mul_overflow(a, b, &r);
  case ExprOp::FloorDiv:
    if (divides)
      r = a / b - (a % b != 0 && (a < 0) != (b < 0));
    return divides;
  case ExprOp::CeilDiv:
    if (divides)
      r = a / b + (a % b != 0 && (a < 0) == (b < 0));
    return divides;
  case ExprOp::Mod:
    if (divides)
      r = a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0);
    return divides;
  case ExprOp::Min:
    r = std::min(a, b);
    return true;
  case ExprOp::Max:
    r = std::max(a, b);
    return true;
  case ExprOp::Eq:
    r = a == b;
    return true;
  case ExprOp::Ne:
    r = a != b;
    return true;
  case ExprOp::Lt:
    r = a < b;
    return true;
  case ExprOp::Le:
    r = a <= b;
    return true;
  default:
    return false;
  }
}

bool isCondition(const fb::ExprT &expr) {
  switch (expr.op) {
  case ExprOp::Eq:
  case ExprOp::Ne:
  case ExprOp::Lt:
  case ExprOp::Le:
  case ExprOp::And:
  case ExprOp::Or:
  case ExprOp::Not:
    return true;
  default:
    return expr.op == ExprOp::ConstInt && (expr.value == 0 || expr.value == 1);
  }
}

} // namespace

ExpressionPool::Node ExpressionPool::constant(int64_t value) {
  return intern(ExprOp::ConstInt, 0, 0, 0, value, 0);
}

ExpressionPool::Node ExpressionPool::constant(double value) {
  return intern(ExprOp::ConstFloat, 0, 0, 0, 0, value);
}

ExpressionPool::Node ExpressionPool::loop(unsigned depth, Node lower, Node upper) {
  auto [entry, isNew] = loops_.try_emplace({depth, lower, upper}, 0);
  if (isNew) {
    auto node = static_cast<Node>(nodes_.size());
    nodes_.push_back(std::make_unique<fb::ExprT>());
    nodes_.back()->op = ExprOp::Loop;
    nodes_.back()->value = static_cast<int64_t>(loops_.size()) - 1;
    facts_.push_back({isNonNegative(lower), lower, upper});
    entry->second = node;
  }
  return entry->second;
}

ExpressionPool::Node ExpressionPool::intern(ExprOp op, Node a, Node b, Node c, int64_t value,
                                            double real) {
  auto [entry, isNew] = known_.try_emplace({op, a, b, c, value, std::bit_cast<uint64_t>(real)},
                                           static_cast<Node>(nodes_.size()));
  if (isNew) {
    auto expr = std::make_unique<fb::ExprT>();
    expr->op = op;
    expr->a = a;
    expr->b = b;
    expr->c = c;
    expr->value = value;
    expr->real = real;
    bool nonNegative = deriveNonNegative(*expr);
    nodes_.push_back(std::move(expr));
    facts_.push_back({nonNegative, 0, 0});
  }
  return entry->second;
}

ExpressionPool::Node ExpressionPool::make(ExprOp op, Node a, Node b, Node c) {
  Node result = 0;
  if (fold(op, a, b, c, result))
    return result;
  return intern(op, a, b, c, 0, 0);
}

bool ExpressionPool::fold(ExprOp op, Node a, Node b, Node c, Node &result) {
  auto yield = [&](Node node) {
    result = node;
    return true;
  };
  bool aIsConstant = at(a).op == ExprOp::ConstInt, bIsConstant = at(b).op == ExprOp::ConstInt;
  switch (op) {
  case ExprOp::Select:
    return aIsConstant ? yield(at(a).value != 0 ? b : c) : b == c && yield(b);
  case ExprOp::And: // The right operand is not evaluated where the left one decides.
    if (aIsConstant)
      return at(a).value == 0 ? yield(constant(int64_t{0})) : isCondition(at(b)) && yield(b);
    return bIsConstant && at(b).value != 0 && isCondition(at(a)) && yield(a);
  case ExprOp::Or:
    if (aIsConstant)
      return at(a).value != 0 ? yield(constant(int64_t{1})) : isCondition(at(b)) && yield(b);
    return bIsConstant && at(b).value == 0 && isCondition(at(a)) && yield(a);
  case ExprOp::Not:
    return aIsConstant && yield(constant(int64_t{at(a).value == 0}));
  case ExprOp::ToFloat:
    return aIsConstant && yield(constant(static_cast<double>(at(a).value)));
  case ExprOp::FAdd:
  case ExprOp::FSub:
  case ExprOp::FMul:
  case ExprOp::FDiv: {
    if (at(a).op != ExprOp::ConstFloat || at(b).op != ExprOp::ConstFloat)
      return false;
    double x = at(a).real, y = at(b).real;
    return yield(constant(op == ExprOp::FAdd   ? x + y
                          : op == ExprOp::FSub ? x - y
                          : op == ExprOp::FMul ? x * y
                                               : x / y));
  }
  case ExprOp::FPowInt:
    return false;
  default:
    break;
  }
  int64_t value = 0;
  if (aIsConstant && bIsConstant && evaluate(op, at(a).value, at(b).value, value))
    return yield(constant(value));
  switch (op) {
  case ExprOp::Add:
    return isConstant(b, 0) ? yield(a) : isConstant(a, 0) && yield(b);
  case ExprOp::Sub:
    return isConstant(b, 0) && yield(a);
  case ExprOp::Mul:
    return isConstant(b, 1) ? yield(a) : isConstant(a, 1) && yield(b);
  case ExprOp::FloorDiv:
  case ExprOp::CeilDiv:
    return isConstant(b, 1) && yield(a);
  case ExprOp::Min:
  case ExprOp::Max:
    return a == b && yield(a);
  default:
    return false;
  }
}

bool ExpressionPool::deriveNonNegative(const fb::ExprT &e) const {
  switch (e.op) {
  case ExprOp::ConstInt:
    return e.value >= 0;
  case ExprOp::World:
  case ExprOp::Rank:
  case ExprOp::LocalRank:
  case ExprOp::LocalSize:
  case ExprOp::Nodes:
  case ExprOp::Length:
  case ExprOp::ElementBytes:
  case ExprOp::Step:
  case ExprOp::Bucket:
  case ExprOp::Parameter: // P1, if it is an index.
  case ExprOp::Pairing:
  case ExprOp::Eq:
  case ExprOp::Ne:
  case ExprOp::Lt:
  case ExprOp::Le:
  case ExprOp::And:
  case ExprOp::Or:
  case ExprOp::Not:
    return true;
  case ExprOp::Add:
  case ExprOp::Mul:
  case ExprOp::FloorDiv:
  case ExprOp::CeilDiv:
  case ExprOp::Min:
    return isNonNegative(e.a) && isNonNegative(e.b);
  case ExprOp::Max:
    return isNonNegative(e.a) || isNonNegative(e.b);
  case ExprOp::Mod: // Takes the divisor's sign.
    return isNonNegative(e.b);
  case ExprOp::Sub:
    return isAtMost(e.b, e.a, 0);
  case ExprOp::Select:
    return isNonNegative(e.b) && isNonNegative(e.c);
  default:
    return false;
  }
}

/// True if `small` <= `large` follows from their shapes, as for `(r + n - k) mod n`, k < n.
bool ExpressionPool::isAtMost(Node small, Node large, unsigned depth) const {
  constexpr unsigned kDepthMax = 4;
  if (small == large)
    return true;
  if (depth == kDepthMax)
    return false;
  const fb::ExprT &s = at(small), &l = at(large);
  if (s.op == ExprOp::ConstInt) {
    if (l.op == ExprOp::ConstInt)
      return s.value <= l.value;
    bool positive = l.op == ExprOp::World || l.op == ExprOp::LocalSize || l.op == ExprOp::Nodes ||
                    l.op == ExprOp::ElementBytes;
    if (s.value <= 0 ? isNonNegative(large) : s.value == 1 && positive)
      return true;
    if (l.op == ExprOp::Loop)
      return isAtMost(small, facts_[large].lower, depth + 1);
  }
  if (l.op == ExprOp::Add && ((isNonNegative(l.b) && isAtMost(small, l.a, depth + 1)) ||
                              (isNonNegative(l.a) && isAtMost(small, l.b, depth + 1))))
    return true;
  if (l.op == ExprOp::Max && (isAtMost(small, l.a, depth + 1) || isAtMost(small, l.b, depth + 1)))
    return true;
  switch (s.op) {
  case ExprOp::Min:
    return isAtMost(s.a, large, depth + 1) || isAtMost(s.b, large, depth + 1);
  case ExprOp::Loop: // Has a value only inside its loop: below the upper bound.
    return isAtMost(facts_[small].upper, large, depth + 1);
  case ExprOp::Mod:
    return isNonNegative(s.b) && isAtMost(s.b, large, depth + 1);
  case ExprOp::Rank:
    return l.op == ExprOp::World;
  default:
    return false;
  }
}

} // namespace bagua::compiler
