// Cycles and reachability of the graph of instants.
#include "HappensBefore.h"

#include "bagua/Status.h"

#include <algorithm>

namespace bagua::compiler {

HappensBefore::Adjacency HappensBefore::adjacency(bool incoming) const {
  Adjacency result;
  result.first.assign(nodes_ + 1, 0);
  for (const Edge &edge : edges_)
    ++result.first[(incoming ? edge.after : edge.before) + 1];
  for (size_t i = 0; i < nodes_; ++i)
    result.first[i + 1] += result.first[i];
  result.edges.resize(edges_.size());
  std::vector<uint32_t> next(result.first.begin(), result.first.end() - 1);
  for (uint32_t i = 0; i < edges_.size(); ++i)
    result.edges[next[incoming ? edges_[i].after : edges_[i].before]++] = i;
  return result;
}

std::vector<uint32_t> HappensBefore::topologicalOrder(const Adjacency &outgoing) const {
  std::vector<uint32_t> waitingFor(nodes_, 0);
  for (const Edge &edge : edges_)
    ++waitingFor[edge.after];
  std::vector<uint32_t> order;
  order.reserve(nodes_);
  for (uint32_t node = 0; node < nodes_; ++node)
    if (waitingFor[node] == 0)
      order.push_back(node);
  for (size_t i = 0; i < order.size(); ++i)
    for (uint32_t e = outgoing.first[order[i]]; e < outgoing.first[order[i] + 1]; ++e) {
      uint32_t after = edges_[outgoing.edges[e]].after;
      if (--waitingFor[after] == 0)
        order.push_back(after);
    }
  return order;
}

std::vector<HappensBefore::Edge> HappensBefore::findCycle() const {
  std::vector<uint32_t> order = topologicalOrder(adjacency(false));
  if (order.size() == nodes_)
    return {};
  std::vector<bool> isFree(nodes_, false);
  for (uint32_t node : order)
    isFree[node] = true;
  // Every node left waits for another one that is left: walking back must meet itself.
  Adjacency incoming = adjacency(true);
  uint32_t node =
      static_cast<uint32_t>(std::find(isFree.begin(), isFree.end(), false) - isFree.begin());
  std::vector<uint32_t> seenAt(nodes_, UINT32_MAX);
  std::vector<Edge> path;
  while (seenAt[node] == UINT32_MAX) {
    seenAt[node] = static_cast<uint32_t>(path.size());
    for (uint32_t e = incoming.first[node]; e < incoming.first[node + 1]; ++e) {
      const Edge &edge = edges_[incoming.edges[e]];
      if (!isFree[edge.before]) {
        path.push_back(edge);
        node = edge.before;
        break;
      }
    }
  }
  path.erase(path.begin(), path.begin() + seenAt[node]);
  std::reverse(path.begin(), path.end());
  return path;
}

void HappensBefore::computeReach() {
  BAGUA_CHECK(nodes_ <= kReachNodesMax);
  Adjacency outgoing = adjacency(false);
  std::vector<uint32_t> order = topologicalOrder(outgoing);
  BAGUA_CHECK(order.size() == nodes_);
  words_ = (nodes_ + 63) / 64;
  reach_.assign(nodes_ * words_, 0);
  for (size_t i = order.size(); i-- > 0;) {
    uint64_t *own = &reach_[order[i] * words_];
    for (uint32_t e = outgoing.first[order[i]]; e < outgoing.first[order[i] + 1]; ++e) {
      uint32_t after = edges_[outgoing.edges[e]].after;
      const uint64_t *others = &reach_[after * words_];
      for (size_t w = 0; w < words_; ++w)
        own[w] |= others[w];
      own[after / 64] |= uint64_t{1} << (after % 64);
    }
  }
}

} // namespace bagua::compiler
