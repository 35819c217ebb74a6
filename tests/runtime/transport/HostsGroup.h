// A group whose ranks pretend to be on several hosts.
#pragma once

#include "bagua/Group.h"

#include <algorithm>
#include <vector>

namespace bagua::rt::test {

/// Passes everything on to `group`; rank r is on host hosts[r], a node for itself, which gives
/// local ranks in order of ranks.
class HostsGroup final : public Group {
public:
  HostsGroup(std::unique_ptr<Group> group, const std::vector<int> &hosts)
      : group_(std::move(group)) {
    std::vector<int> nodes; // By number: its host.
    for (int r = 0; r < group_->world(); ++r) {
      PeerInfo peer = group_->peer(r);
      int host = hosts[static_cast<size_t>(r)];
      peer.host = "host" + std::to_string(host);
      peer.hostKey += "/" + peer.host;
      auto known = std::find(nodes.begin(), nodes.end(), host);
      peer.node = static_cast<int>(known - nodes.begin());
      if (known == nodes.end())
        nodes.push_back(host);
      peer.localRank = static_cast<int>(std::count(hosts.begin(), hosts.begin() + r, host));
      peers_.push_back(peer);
    }
    nodes_ = static_cast<int>(nodes.size());
    localSize_ = static_cast<int>(
        std::count(hosts.begin(), hosts.end(), hosts[static_cast<size_t>(group_->rank())]));
  }
  int rank() const override { return group_->rank(); }
  int world() const override { return group_->world(); }
  const PeerInfo &peer(int rank) const override { return peers_.at(static_cast<size_t>(rank)); }
  int localSize() const override { return localSize_; }
  int nodes() const override { return nodes_; }
  const std::string &source() const override { return group_->source(); }
  std::chrono::milliseconds stepTimeout() const override { return group_->stepTimeout(); }
  std::chrono::milliseconds bootstrapTimeout() const override { return group_->bootstrapTimeout(); }
  Store &store() override { return group_->store(); }
  StatusOr<std::vector<std::string>> allGather(std::string_view what,
                                               std::string_view value) override {
    if (observe)
      observe(std::string(what), std::string(value));
    return group_->allGather(what, value);
  }
  Status agree(std::string_view what, std::string_view json) override {
    return group_->agree(what, json);
  }
  Status verdict() const override { return group_->verdict(); }
  bool hasVerdict() const override { return group_->hasVerdict(); }
  Status condemn(const Status &reason) override { return group_->condemn(reason); }
  void onVerdict(std::function<void(const Status &)> callback) override {
    group_->onVerdict(std::move(callback));
  }
  void setPhase(std::string_view phase, bool waiting) override { group_->setPhase(phase, waiting); }
  std::string describePeer(int rank) const override { return group_->describePeer(rank); }
  int departures() const override { return group_->departures(); }
  std::string departure(int rank) const override { return group_->departure(rank); }
  void pauseTimeout(int delta) override { group_->pauseTimeout(delta); }
  bool timeoutPaused() const override { return group_->timeoutPaused(); }
  void leave() override { group_->leave(); }

  std::function<void(const std::string &what, const std::string &value)>
      observe; ///< Sees what is gathered.

private:
  std::unique_ptr<Group> group_;
  std::vector<PeerInfo> peers_;
  int nodes_ = 1, localSize_ = 1;
};

} // namespace bagua::rt::test
