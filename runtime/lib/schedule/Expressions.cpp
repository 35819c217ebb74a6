// Facts and values of expressions; the meaning of every ExprOp is here.
#include "Expressions.h"

#include "absl/strings/str_cat.h"

#include <algorithm>
#include <limits>

namespace bagua::rt {
namespace {

using fb::ExprOp;

Status poolError(const fb::ScheduleT &schedule, size_t node, absl::string_view rule,
                 absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(
      "schedule '", schedule.name, "': expression %", node, " (",
      fb::EnumNameExprOp(schedule.expressions[node]->op), "): ", what, " [", rule, "]"));
}

enum class Type : uint8_t { None, Int, Float, Same };

struct Signature {
  unsigned operands;
  Type operandTypes[3];
  Type result;
};

Signature signatureOf(ExprOp op) {
  switch (op) {
  case ExprOp::ConstInt:
  case ExprOp::World:
  case ExprOp::Rank:
  case ExprOp::LocalRank:
  case ExprOp::LocalSize:
  case ExprOp::Nodes:
  case ExprOp::Length:
  case ExprOp::ElementBytes:
  case ExprOp::Step:
  case ExprOp::Loop:
  case ExprOp::Bucket:
    return {0, {}, Type::Int};
  case ExprOp::ConstFloat:
    return {0, {}, Type::Float};
  case ExprOp::Parameter:
    return {0, {}, Type::Same};
  case ExprOp::Add:
  case ExprOp::Sub:
  case ExprOp::Mul:
  case ExprOp::FloorDiv:
  case ExprOp::CeilDiv:
  case ExprOp::Mod:
  case ExprOp::Min:
  case ExprOp::Max:
  case ExprOp::Eq:
  case ExprOp::Ne:
  case ExprOp::Lt:
  case ExprOp::Le:
  case ExprOp::And:
  case ExprOp::Or:
  case ExprOp::Pairing:
    return {2, {Type::Int, Type::Int}, Type::Int};
  case ExprOp::Not:
    return {1, {Type::Int}, Type::Int};
  case ExprOp::Select:
    return {3, {Type::Int, Type::Same, Type::Same}, Type::Same};
  case ExprOp::ToFloat:
    return {1, {Type::Int}, Type::Float};
  case ExprOp::FAdd:
  case ExprOp::FSub:
  case ExprOp::FMul:
  case ExprOp::FDiv:
    return {2, {Type::Float, Type::Float}, Type::Float};
  case ExprOp::FPowInt:
    return {2, {Type::Float, Type::Int}, Type::Float};
  }
  return {0, {}, Type::None};
}

bool floorDiv(int64_t a, int64_t b, int64_t &result) {
  if (b == 0 || (a == std::numeric_limits<int64_t>::min() && b == -1))
    return false;
  result = a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
  return true;
}

bool ceilDiv(int64_t a, int64_t b, int64_t &result) {
  if (b == 0 || (a == std::numeric_limits<int64_t>::min() && b == -1))
    return false;
  result = a / b + (a % b != 0 && (a < 0) == (b < 0) ? 1 : 0);
  return true;
}

/// Squarings in a fixed order: the same bits everywhere, which pow() does not promise.
double powInt(double base, int64_t exponent) {
  uint64_t left =
      exponent < 0 ? 0 - static_cast<uint64_t>(exponent) : static_cast<uint64_t>(exponent);
  double result = 1.0;
  for (double square = base; left != 0; left >>= 1, square *= square)
    if (left & 1)
      result *= square;
  return exponent < 0 ? 1.0 / result : result;
}

/// The finalizer of SplitMix64 (Steele, Lea, Flood 2014) after its increment.
uint64_t mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

/// One node, given a context that knows leaves and operands. Select, And and Or evaluate only what
/// they need, so that an operand may be meaningless where it is not chosen.
template <typename Context> bool compute(Context &context, uint32_t node, ExprValue &out) {
  const fb::ExprT &expr = *context.schedule().expressions[node];
  ExprValue a, b;
  auto operands = [&] { return context.operand(expr.a, a) && context.operand(expr.b, b); };
  auto checked = [&](bool ok) {
    return ok || context.fail(node, absl::StrCat("overflow or division by zero on ", a.asInt,
                                                 " and ", b.asInt));
  };
  switch (expr.op) {
  case ExprOp::ConstInt:
    out.asInt = expr.value;
    return true;
  case ExprOp::ConstFloat:
    out.asFloat = expr.real;
    return true;
  case ExprOp::World:
    out.asInt = context.bind().world;
    return true;
  case ExprOp::Rank:
    out.asInt = context.bind().rank;
    return true;
  case ExprOp::LocalRank:
    out.asInt = context.bind().localRank;
    return true;
  case ExprOp::LocalSize:
    out.asInt = context.bind().localSize;
    return true;
  case ExprOp::Nodes:
    out.asInt = context.bind().nodes;
    return true;
  case ExprOp::Length:
    out.asInt = context.bind().length;
    return true;
  case ExprOp::ElementBytes:
    out.asInt = elementBytes(context.bind().dtype);
    return true;
  case ExprOp::Step:
    return context.step(out.asInt) || context.fail(node, "the step is not known at bind");
  case ExprOp::Parameter:
    return context.parameter(static_cast<uint32_t>(expr.value), out) ||
           context.fail(node, "a per-step parameter is not known at bind");
  case ExprOp::Loop:
    return context.loop(static_cast<uint32_t>(expr.value), out.asInt) ||
           context.fail(node, "loop variable is not in scope");
  case ExprOp::Add:
    return operands() && checked(!__builtin_add_overflow(a.asInt, b.asInt, &out.asInt));
  case ExprOp::Sub:
    return operands() && checked(!__builtin_sub_overflow(a.asInt, b.asInt, &out.asInt));
  case ExprOp::Mul:
    return operands() && checked(!__builtin_mul_overflow(a.asInt, b.asInt, &out.asInt));
  case ExprOp::FloorDiv:
    return operands() && checked(floorDiv(a.asInt, b.asInt, out.asInt));
  case ExprOp::CeilDiv:
    return operands() && checked(ceilDiv(a.asInt, b.asInt, out.asInt));
  case ExprOp::Mod: {
    if (!operands() || !checked(b.asInt != 0))
      return false;
    out.asInt = b.asInt == -1 ? 0 : a.asInt % b.asInt;
    if (out.asInt != 0 && (out.asInt < 0) != (b.asInt < 0))
      out.asInt += b.asInt;
    return true;
  }
  case ExprOp::Min:
    if (!operands())
      return false;
    out.asInt = std::min(a.asInt, b.asInt);
    return true;
  case ExprOp::Max:
    if (!operands())
      return false;
    out.asInt = std::max(a.asInt, b.asInt);
    return true;
  case ExprOp::Eq:
    if (!operands())
      return false;
    out.asInt = a.asInt == b.asInt;
    return true;
  case ExprOp::Ne:
    if (!operands())
      return false;
    out.asInt = a.asInt != b.asInt;
    return true;
  case ExprOp::Lt:
    if (!operands())
      return false;
    out.asInt = a.asInt < b.asInt;
    return true;
  case ExprOp::Le:
    if (!operands())
      return false;
    out.asInt = a.asInt <= b.asInt;
    return true;
  case ExprOp::And:
    if (!context.operand(expr.a, a))
      return false;
    if (a.asInt != 0 && !context.operand(expr.b, b))
      return false;
    out.asInt = a.asInt != 0 && b.asInt != 0;
    return true;
  case ExprOp::Or:
    if (!context.operand(expr.a, a))
      return false;
    if (a.asInt == 0 && !context.operand(expr.b, b))
      return false;
    out.asInt = a.asInt != 0 || b.asInt != 0;
    return true;
  case ExprOp::Not:
    if (!context.operand(expr.a, a))
      return false;
    out.asInt = a.asInt == 0;
    return true;
  case ExprOp::Select:
    return context.operand(expr.a, a) && context.operand(a.asInt != 0 ? expr.b : expr.c, out);
  case ExprOp::ToFloat:
    if (!context.operand(expr.a, a))
      return false;
    out.asFloat = static_cast<double>(a.asInt);
    return true;
  case ExprOp::FAdd:
    if (!operands())
      return false;
    out.asFloat = a.asFloat + b.asFloat;
    return true;
  case ExprOp::FSub:
    if (!operands())
      return false;
    out.asFloat = a.asFloat - b.asFloat;
    return true;
  case ExprOp::FMul:
    if (!operands())
      return false;
    out.asFloat = a.asFloat * b.asFloat;
    return true;
  case ExprOp::FDiv:
    if (!operands())
      return false;
    out.asFloat = a.asFloat / b.asFloat; // IEEE: x / 0 is infinite or NaN, as in the algorithm.
    return true;
  case ExprOp::FPowInt:
    if (!operands())
      return false;
    out.asFloat = powInt(a.asFloat, b.asInt);
    return true;
  case ExprOp::Bucket:
    out.asInt = context.bind().bucket;
    return true;
  case ExprOp::Pairing:
    if (!operands())
      return false;
    out.asInt = pairingPartner(a.asInt, b.asInt, context.bind().world, context.bind().rank);
    return true;
  }
  return context.fail(node, "unknown operation");
}

ExprValue boundParameter(const fb::ParameterT &parameter, size_t index,
                         const std::vector<int64_t> &ints, const std::vector<double> &floats) {
  ExprValue value;
  value.asInt = index < ints.size() ? ints[index] : parameter.default_int;
  value.asFloat = index < floats.size() ? floats[index] : parameter.default_float;
  return value;
}

/// Evaluates at step time without allocating, unless it fails.
class StepEvaluator {
public:
  StepEvaluator(const fb::ScheduleT &schedule, const StepExpr &expr, const BindValues &bind,
                const StepValues &step)
      : schedule_(schedule), expr_(expr), bind_(bind), step_(step) {}

  bool operand(uint32_t node, ExprValue &value) { return compute(*this, node, value); }
  bool loop(uint32_t id, int64_t &value) const {
    for (const auto &[loopId, loopValue] : expr_.loops)
      if (loopId == id) {
        value = loopValue;
        return true;
      }
    return false;
  }
  bool step(int64_t &value) const {
    value = step_.step;
    return true;
  }
  bool parameter(uint32_t index, ExprValue &value) const {
    const fb::ParameterT &parameter = *schedule_.parameters[index];
    value = parameter.per_step
                ? boundParameter(parameter, index, step_.intParameters, step_.floatParameters)
                : boundParameter(parameter, index, bind_.intParameters, bind_.floatParameters);
    return true;
  }
  const fb::ScheduleT &schedule() const { return schedule_; }
  const BindValues &bind() const { return bind_; }
  bool fail(uint32_t node, absl::string_view what) {
    if (status_.ok())
      status_ = absl::InvalidArgumentError(
          absl::StrCat("schedule '", schedule_.name, "': expression %", node, " (",
                       fb::EnumNameExprOp(schedule_.expressions[node]->op), "), step ", step_.step,
                       ", rank ", bind_.rank, ": ", what));
    return false;
  }
  const Status &status() const { return status_; }

private:
  const fb::ScheduleT &schedule_;
  const StepExpr &expr_;
  const BindValues &bind_;
  const StepValues &step_;
  Status status_;
};

bool isFloatNode(const fb::ScheduleT &schedule, uint32_t node) {
  for (;;) {
    const fb::ExprT &expr = *schedule.expressions[node];
    if (expr.op == ExprOp::Parameter)
      return schedule.parameters[static_cast<size_t>(expr.value)]->is_float;
    if (expr.op != ExprOp::Select)
      return signatureOf(expr.op).result == Type::Float;
    node = expr.b; // Smaller than `node`: ends.
  }
}

} // namespace

int64_t pairingPartner(int64_t seed, int64_t round, int64_t world, int64_t rank) {
  // Follows places through the shuffle instead of keeping the permutation: no memory.
  auto swapWith = [&](int64_t i) {
    uint64_t hash = mix64(mix64(mix64(static_cast<uint64_t>(seed)) ^ static_cast<uint64_t>(round)) ^
                          static_cast<uint64_t>(i));
    return static_cast<int64_t>(
        static_cast<unsigned __int128>(hash) * static_cast<uint64_t>(i + 1) >> 64);
  };
  auto follow = [](int64_t &place, int64_t i, int64_t j) {
    if (place == i)
      place = j;
    else if (place == j)
      place = i;
  };
  int64_t place = rank;
  for (int64_t i = world - 1; i > 0; --i)
    follow(place, i, swapWith(i));
  if ((place ^ 1) >= world)
    return rank;
  place ^= 1;
  for (int64_t i = 1; i < world; ++i)
    follow(place, i, swapWith(i));
  return place;
}

unsigned operandCount(fb::ExprOp op) { return signatureOf(op).operands; }

int64_t leastOfParameter(const fb::ScheduleT &schedule, size_t parameter) {
  const auto &pool = schedule.expressions;
  auto isIt = [&](uint32_t node) {
    return pool[node]->op == ExprOp::Parameter &&
           pool[node]->value == static_cast<int64_t>(parameter);
  };
  auto isNumber = [&](uint32_t node) { return pool[node]->op == ExprOp::ConstInt; };
  int64_t least = 0;
  for (const auto &program : schedule.programs)
    if (program->every != kNone && isIt(program->every))
      least = 1;
  for (const auto &expr : pool)
    switch (expr->op) {
    case ExprOp::Eq:
    case ExprOp::Ne:
    case ExprOp::Le:
      if ((isIt(expr->a) && isNumber(expr->b)) || (isIt(expr->b) && isNumber(expr->a)))
        return 0;
      break;
    case ExprOp::Lt: // < 0 is a part of what compares as unsigned numbers.
      if ((isIt(expr->a) && isNumber(expr->b) && pool[expr->b]->value != 0) ||
          (isIt(expr->b) && isNumber(expr->a)))
        return 0;
      break;
    case ExprOp::FloorDiv:
    case ExprOp::CeilDiv:
    case ExprOp::Mod: { // Of a remainder, by the magnitude: max(p, 0 - p).
      const fb::ExprT &divisor = *pool[expr->b];
      if (isIt(expr->b) || (divisor.op == ExprOp::Max && (isIt(divisor.a) || isIt(divisor.b))))
        least = 1;
      break;
    }
    default:
      break;
    }
  return least;
}

StatusOr<PoolFacts> poolFacts(const fb::ScheduleT &schedule) {
  PoolFacts facts;
  facts.nodes.reserve(schedule.expressions.size());
  std::vector<uint32_t> loops;
  for (size_t node = 0; node < schedule.expressions.size(); ++node) {
    const fb::ExprT &expr = *schedule.expressions[node];
    Signature signature = signatureOf(expr.op);
    ExprFacts fact;
    if (signature.result == Type::None)
      return absl::InvalidArgumentError(absl::StrCat("schedule '", schedule.name, "': expression %",
                                                     node, ": unknown operation ",
                                                     static_cast<int>(expr.op), " [S01]"));
    uint32_t operands[3] = {expr.a, expr.b, expr.c};
    loops.clear();
    for (unsigned i = 0; i < signature.operands; ++i) {
      if (operands[i] >= node) // schedule_S08
        return poolError(
            schedule, node, "S08",
            absl::StrCat("operand ", i, " is %", operands[i], ", expected an earlier expression"));
      const ExprFacts &operand = facts.nodes[operands[i]];
      if (signature.operandTypes[i] != Type::Same &&
          operand.isFloat != (signature.operandTypes[i] == Type::Float)) // schedule_S09
        return poolError(schedule, node, "S09",
                         absl::StrCat("operand ", i, " is ", operand.isFloat ? "f64" : "i64",
                                      ", expected ", operand.isFloat ? "i64" : "f64"));
      fact.isStep |= operand.isStep;
      fact.depth = std::max(fact.depth, operand.depth + 1);
      fact.treeSize = std::min(fact.treeSize + operand.treeSize, 1u << 30);
      auto operandLoops = facts.loopsOf(operands[i]);
      loops.insert(loops.end(), operandLoops.begin(), operandLoops.end());
    }
    fact.isFloat = signature.result == Type::Float;
    if (expr.op == ExprOp::Select) {
      if (facts.nodes[expr.b].isFloat != facts.nodes[expr.c].isFloat) // schedule_S09
        return poolError(schedule, node, "S09", "operands 1 and 2 differ in type");
      fact.isFloat = facts.nodes[expr.b].isFloat;
    } else if (expr.op == ExprOp::Parameter) {
      if (expr.value < 0 || static_cast<uint64_t>(expr.value) >= schedule.parameters.size())
        return poolError(schedule, node, "S11", // schedule_S11
                         absl::StrCat("parameter ", expr.value, ", expected below ",
                                      schedule.parameters.size()));
      const fb::ParameterT &parameter = *schedule.parameters[static_cast<size_t>(expr.value)];
      fact.isFloat = parameter.is_float;
      fact.isStep = parameter.per_step;
    } else if (expr.op == ExprOp::Step) {
      fact.isStep = true;
    } else if (expr.op == ExprOp::Loop) {
      if (expr.value < 0 || expr.value >= int64_t{kNone})
        return poolError(schedule, node, "S15", // schedule_S15
                         absl::StrCat("loop variable ", expr.value, " is not an id"));
      loops.push_back(static_cast<uint32_t>(expr.value));
    }
    std::sort(loops.begin(), loops.end());
    loops.erase(std::unique(loops.begin(), loops.end()), loops.end());
    if (loops.size() > kMaxLoopsInScope) // schedule_S10
      return poolError(schedule, node, "S10",
                       absl::StrCat("uses ", loops.size(), " loop variables, expected at most ",
                                    kMaxLoopsInScope));
    if (fact.depth > kMaxExpressionDepth) // schedule_S10
      return poolError(schedule, node, "S10",
                       absl::StrCat("is deeper than ", kMaxExpressionDepth, " operands"));
    if (fact.isStep && fact.treeSize > kMaxStepExpressionSize) // schedule_S10
      return poolError(schedule, node, "S10",
                       absl::StrCat("is evaluated at each step and visits more than ",
                                    kMaxStepExpressionSize, " nodes"));
    fact.loopBegin = static_cast<uint32_t>(facts.loops.size());
    fact.loopCount = static_cast<uint8_t>(loops.size());
    facts.loops.insert(facts.loops.end(), loops.begin(), loops.end());
    facts.nodes.push_back(fact);
  }
  return facts;
}

BindEvaluator::BindEvaluator(const fb::ScheduleT &schedule, const PoolFacts &facts,
                             const BindValues &values)
    : schedule_(schedule), facts_(facts), values_(values), memo_(schedule.expressions.size()) {
  loops_.reserve(kMaxLoopsInScope);
}

bool BindEvaluator::fail(uint32_t node, absl::string_view what) {
  if (status_.ok())
    status_ = absl::InvalidArgumentError(
        absl::StrCat("expression %", node, " (",
                     fb::EnumNameExprOp(schedule_.expressions[node]->op), "): ", what));
  return false;
}

bool BindEvaluator::loop(uint32_t id, int64_t &value) const {
  for (const Loop &loop : loops_)
    if (loop.id == id) {
      value = loop.value;
      return true;
    }
  return false;
}

bool BindEvaluator::parameter(uint32_t index, ExprValue &value) const {
  const fb::ParameterT &parameter = *schedule_.parameters[index];
  if (parameter.per_step)
    return false;
  value = boundParameter(parameter, index, values_.intParameters, values_.floatParameters);
  return true;
}

bool BindEvaluator::evaluate(uint32_t node, ExprValue &value) {
  if (!status_.ok())
    return false;
  Memo &memo = memo_[node];
  bool fresh = memo.version != 0;
  for (uint32_t id : facts_.loopsOf(node)) {
    if (!fresh)
      break;
    for (const Loop &loop : loops_)
      if (loop.id == id)
        fresh = loop.version <= memo.version;
  }
  if (!fresh) {
    if (evaluationsLeft_ == 0) {
      status_ = absl::ResourceExhaustedError("too many expressions to evaluate");
      return false;
    }
    --evaluationsLeft_;
    if (!compute(*this, node, memo.value))
      return false;
    memo.version = version_;
  }
  value = memo.value;
  return true;
}

bool BindEvaluator::freeze(uint32_t node, StepExpr &expr) {
  const ExprFacts &fact = facts_.nodes[node];
  expr = StepExpr();
  if (fact.isStep) {
    expr.isConstant = false;
    expr.node = node;
    for (uint32_t id : facts_.loopsOf(node)) {
      int64_t value = 0;
      if (!loop(id, value))
        return fail(node, "loop variable is not in scope");
      expr.loops.emplace_back(id, value);
    }
    return true;
  }
  ExprValue value;
  if (!evaluate(node, value))
    return false;
  expr.intValue = value.asInt;
  expr.floatValue = fact.isFloat ? value.asFloat : static_cast<double>(value.asInt);
  return true;
}

StatusOr<int64_t> evaluateInt(const Schedule &schedule, const StepExpr &expr,
                              const BindValues &bind, const StepValues &step) {
  if (expr.isConstant)
    return expr.intValue;
  StepEvaluator evaluator(schedule.ir(), expr, bind, step);
  ExprValue value;
  if (!evaluator.operand(expr.node, value))
    return evaluator.status();
  return value.asInt;
}

StatusOr<double> evaluateFloat(const Schedule &schedule, const StepExpr &expr,
                               const BindValues &bind, const StepValues &step) {
  if (expr.isConstant)
    return expr.floatValue;
  StepEvaluator evaluator(schedule.ir(), expr, bind, step);
  ExprValue value;
  if (!evaluator.operand(expr.node, value))
    return evaluator.status();
  return isFloatNode(schedule.ir(), expr.node) ? value.asFloat : static_cast<double>(value.asInt);
}

} // namespace bagua::rt
