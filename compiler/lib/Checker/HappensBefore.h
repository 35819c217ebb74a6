// A graph of instants (a step is issued, a step is done) of all ranks, ordered by "cannot happen
// before".
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace bagua::compiler {

/// Why one instant comes after another.
enum class Order : uint8_t {
  Runs,    ///< A step is done after it was issued.
  Queue,   ///< Queues issue in order.
  Event,   ///< A wait.
  Arrival, ///< A message arrives after it was sent.
  Fifo,    ///< Messages of a channel arrive in order.
  Release, ///< A send is done when its receiver has released the message.
  Credit,  ///< A receive is issued when its slot is free.
};

class HappensBefore {
public:
  explicit HappensBefore(size_t nodes) : nodes_(nodes) {}

  void add(uint32_t before, uint32_t after, Order order) {
    edges_.push_back({before, after, order});
  }

  struct Edge {
    uint32_t before, after;
    Order order;
  };
  /// Empty if the graph is acyclic; else the edges of one cycle, each beginning where the one
  /// before ended.
  std::vector<Edge> findCycle() const;

  /// Computes who reaches whom; the graph must be acyclic and have at most kReachNodesMax nodes.
  void computeReach();
  bool before(uint32_t a, uint32_t b) const { return reach_[a * words_ + b / 64] >> (b % 64) & 1; }
  static constexpr size_t kReachNodesMax = 16384;

private:
  /// Indices of the edges that leave (or enter) each node, node after node.
  struct Adjacency {
    std::vector<uint32_t> first, edges;
  };
  Adjacency adjacency(bool incoming) const;
  /// Nodes in an order that respects the edges; shorter than the graph if it has cycles.
  std::vector<uint32_t> topologicalOrder(const Adjacency &outgoing) const;

  size_t nodes_, words_ = 0;
  std::vector<Edge> edges_;
  std::vector<uint64_t> reach_;
};

} // namespace bagua::compiler
