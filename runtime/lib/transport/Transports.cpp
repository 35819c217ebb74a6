// Transports by name, and the one that picks per peer.
#include "bagua/Transports.h"

#include "Channel.h"
#include "bagua/Ucx.h"
#include "bagua/Window.h"

#include "absl/strings/str_cat.h"

#include <vector>

namespace bagua::rt {
namespace {

/// Windows between ranks of one host, UCX between hosts. Channels belong to the inner transports.
class HostTransport final : public Transport {
public:
  HostTransport(std::unique_ptr<Transport> window, std::unique_ptr<Transport> ucx,
                std::vector<bool> local)
      : window_(std::move(window)), ucx_(std::move(ucx)), local_(std::move(local)) {}

  const char *name() const override { return "auto"; }
  StatusOr<Memory> allocate(size_t bytes) override { return window_->allocate(bytes); }
  bool needsLanding(int peer) const override { return of(peer).needsLanding(peer); }
  StatusOr<Channel *> openChannel(uint64_t binding, uint32_t channel, int peer, size_t bytesMax,
                                  uint32_t sendsMax, uint32_t recvsMax) override {
    BAGUA_TRY(error_);
    return of(peer).openChannel(binding, channel, peer, bytesMax, sendsMax, recvsMax);
  }
  void closeBinding(uint64_t binding) override {
    window_->closeBinding(binding);
    ucx_->closeBinding(binding);
  }
  Status send(Channel &channel, SendOp &op) override { return channel.transport.send(channel, op); }
  Status recv(Channel &channel, RecvOp &op) override { return channel.transport.recv(channel, op); }
  Status release(Channel &channel, RecvOp &op) override {
    return channel.transport.release(channel, op);
  }
  StatusOr<bool> poll() override {
    BAGUA_TRY(error_);
    StatusOr<bool> near = window_->poll(), far = near.ok() ? ucx_->poll() : StatusOr<bool>(false);
    if (near.ok() && far.ok())
      return *near || *far;
    abort(near.ok() ? far.status() : near.status());
    return error_;
  }
  void abort(const Status &reason) override {
    if (!error_.ok())
      return;
    error_ = reason.ok() ? absl::AbortedError("the transport was aborted") : reason;
    window_->abort(error_);
    ucx_->abort(error_);
  }

private:
  Transport &of(int peer) const {
    bool local =
        peer < 0 || static_cast<size_t>(peer) >= local_.size() || local_[static_cast<size_t>(peer)];
    return local ? *window_ : *ucx_;
  }

  std::unique_ptr<Transport> window_, ucx_;
  std::vector<bool> local_; ///< By rank.
  Status error_;
};

StatusOr<std::unique_ptr<Transport>> makeAutoTransport(Group &group,
                                                       std::shared_ptr<Doorbell> doorbell) {
  std::vector<bool> local;
  bool oneHost = true;
  for (int r = 0; r < group.world(); ++r) {
    local.push_back(group.peer(r).hostKey == group.peer(group.rank()).hostKey);
    oneHost = oneHost && local.back();
  }
  WindowOptions options;
  options.localPeersOnly = true;
  // Whether all ranks are on one host looks the same from each of them, so all take the same path.
  if (oneHost)
    return makeWindowTransport(group, std::move(doorbell), options);
  BAGUA_ASSIGN(std::unique_ptr<Transport> window, makeWindowTransport(group, doorbell, options));
  BAGUA_ASSIGN(std::unique_ptr<Transport> ucx, makeUcxTransport(group, std::move(doorbell)));
  return std::make_unique<HostTransport>(std::move(window), std::move(ucx), std::move(local));
}

} // namespace

StatusOr<std::unique_ptr<Transport>> makeTransport(std::string_view name, Group &group,
                                                   std::shared_ptr<Doorbell> doorbell) {
  if (name.empty() || name == "auto")
    return makeAutoTransport(group, std::move(doorbell));
  if (name == "window")
    return makeWindowTransport(group, std::move(doorbell), WindowOptions{});
  if (name == "ucx")
    return makeUcxTransport(group, std::move(doorbell));
  return absl::InvalidArgumentError(absl::StrCat("no transport is called \"", std::string(name),
                                                 "\"; there are auto, window and ucx"));
}

#if !defined(BAGUA_HAS_UCX)
StatusOr<std::unique_ptr<Transport>> makeUcxTransport(Group &, std::shared_ptr<Doorbell>) {
  return absl::UnimplementedError(
      "this build has no UCX transport (BAGUA_ENABLE_UCX=OFF), so ranks must be on one host");
}
#endif

} // namespace bagua::rt
