// The expression pool of a schedule: static facts about its nodes, and their evaluation.
#pragma once

#include "bagua/Expand.h"

#include "absl/strings/string_view.h"

namespace bagua::rt {

/// An expression may name so many loop variables: as many as can be in scope.
inline constexpr size_t kMaxLoopsInScope = 17;
/// Deepest chain of operands: evaluation recurses.
inline constexpr uint32_t kMaxExpressionDepth = 512;
/// Nodes visited by one evaluation at step time, which keeps no table of results.
inline constexpr uint32_t kMaxStepExpressionSize = 65536;

/// What can be said of a node without values.
struct ExprFacts {
  bool isFloat = false;
  bool isStep = false; ///< Uses Step or a per-step parameter.
  uint8_t loopCount = 0;
  uint32_t loopBegin = 0; ///< Into PoolFacts::loops.
  uint32_t depth = 1;
  uint32_t treeSize = 1; ///< Nodes visited by an evaluation without a table of results; saturates.
};

struct PoolFacts {
  std::vector<ExprFacts> nodes;
  std::vector<uint32_t> loops; ///< Ids of the loop variables of each node, sorted.
  std::span<const uint32_t> loopsOf(uint32_t node) const {
    return std::span(loops).subspan(nodes[node].loopBegin, nodes[node].loopCount);
  }
};

/// Facts of every node; errors where an operand, a type or a limit is wrong. `pool` and
/// `parameters` need no earlier check but for null entries.
StatusOr<PoolFacts> poolFacts(const fb::ScheduleT &schedule);

/// Operands that `op` uses: the first 0 to 3 of a, b, c.
unsigned operandCount(fb::ExprOp op);

struct ExprValue {
  int64_t asInt = 0;
  double asFloat = 0;
};

/// Evaluates nodes of a validated pool at bind time, remembering results until a loop variable that
/// they use changes. After the first error every call fails.
class BindEvaluator {
public:
  BindEvaluator(const fb::ScheduleT &schedule, const PoolFacts &facts, const BindValues &values);

  /// False on an error, see status().
  bool evaluate(uint32_t node, ExprValue &value);
  bool evaluateInt(uint32_t node, int64_t &value) {
    ExprValue result;
    if (!evaluate(node, result))
      return false;
    value = result.asInt;
    return true;
  }
  const Status &status() const { return status_; }

  void pushLoop(uint32_t id) { loops_.push_back({id, 0, 0}); }
  void setLoop(int64_t value) {
    loops_.back().value = value;
    loops_.back().version = ++version_;
  }
  void popLoop() { loops_.pop_back(); }

  /// Value if it is known at bind, else the node with its loop variables.
  bool freeze(uint32_t node, StepExpr &expr);

  // For the shared evaluation code.
  bool operand(uint32_t node, ExprValue &value) { return evaluate(node, value); }
  bool loop(uint32_t id, int64_t &value) const;
  bool step(int64_t &) const { return false; }
  const fb::ScheduleT &schedule() const { return schedule_; }
  const BindValues &bind() const { return values_; }
  bool parameter(uint32_t index, ExprValue &value) const;
  bool fail(uint32_t node, absl::string_view what);

private:
  struct Loop {
    uint32_t id;
    int64_t value;
    uint64_t version;
  };
  struct Memo {
    uint64_t version = 0; ///< 0: never evaluated.
    ExprValue value;
  };

  const fb::ScheduleT &schedule_;
  const PoolFacts &facts_;
  const BindValues &values_;
  std::vector<Loop> loops_;
  std::vector<Memo> memo_;
  uint64_t version_ = 1;
  size_t evaluationsLeft_ = size_t{1} << 24; ///< A damaged file must not keep us busy.
  Status status_;
};

} // namespace bagua::rt
