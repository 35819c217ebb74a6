// Builds the expression pool of a schedule: folds constants, shares equal nodes, keeps the order in
// which nodes were first asked for.
#pragma once

#include "bagua/Schedule.h"

#include <compare>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

namespace bagua::compiler {

class ExpressionPool {
public:
  using Node = uint32_t;

  Node constant(int64_t value);
  Node constant(double value);
  Node leaf(fb::ExprOp op) { return intern(op, 0, 0, 0, 0, 0); }
  Node parameter(uint32_t index) { return intern(fb::ExprOp::Parameter, 0, 0, 0, index, 0); }
  /// The variable of a loop over [lower, upper). Loops of one depth and equal bounds share an id,
  /// so that their bodies share expressions; `depth` tells loops inside one another apart.
  Node loop(unsigned depth, Node lower, Node upper);
  uint32_t loopId(Node loop) const { return static_cast<uint32_t>(at(loop).value); }

  /// An integer or float operation of one, two or three operands.
  Node make(fb::ExprOp op, Node a, Node b = 0, Node c = 0);

  /// Known never to be negative where it has a value, whatever the world, rank and length.
  bool isNonNegative(Node node) const { return facts_[node].nonNegative; }

  std::vector<std::unique_ptr<fb::ExprT>> take() { return std::move(nodes_); }

private:
  struct Facts {
    bool nonNegative = false;
    Node lower = 0, upper = 0; ///< Loop.
  };
  using Key = std::tuple<fb::ExprOp, Node, Node, Node, int64_t, uint64_t>;

  const fb::ExprT &at(Node node) const { return *nodes_[node]; }
  Node intern(fb::ExprOp op, Node a, Node b, Node c, int64_t value, double real);
  bool isConstant(Node node, int64_t value) const {
    return at(node).op == fb::ExprOp::ConstInt && at(node).value == value;
  }
  bool fold(fb::ExprOp op, Node a, Node b, Node c, Node &result);
  bool deriveNonNegative(const fb::ExprT &expr) const;
  bool isAtMost(Node small, Node large, unsigned depth) const;

  std::vector<std::unique_ptr<fb::ExprT>> nodes_;
  std::vector<Facts> facts_;
  std::map<Key, Node> known_;
  std::map<std::tuple<unsigned, Node, Node>, Node> loops_;
};

} // namespace bagua::compiler
