// Root's bytes to all ranks, along the chain root, root + 1, …, in pieces that follow each other.
#pragma once

#include "Task.h"

#include <algorithm>
#include <array>
#include <memory>

namespace bagua::rt {

class Broadcast final : public Task {
public:
  static constexpr uint64_t kBinding = 0; ///< Bindings count from 1.
  static constexpr size_t kPieceBytes = size_t{256} << 10;
  static constexpr uint32_t kWindow = 4; ///< Pieces in flight.

  /// Opens the channel with a neighbour of the ring.
  static StatusOr<Channel *> open(Transport &transport, int peer) {
    return transport.openChannel(kBinding, 0, peer, kPieceBytes, kWindow, kWindow);
  }

  Broadcast(std::byte *data, size_t bytes, int root, int rank, int world, uint64_t number,
            Channel &previous, Channel &next, bool needsLanding, Trace &trace);
  uint64_t bytesSent() const { return bytesSent_; }

protected:
  Status begin(PollContext &context) override;
  StatusOr<bool> advance(PollContext &context) override;
  bool finished() const override { return received_ == pieces_ && sent_ == sends_; }
  void cancel() override {}
  void end(PollContext &context, const Status &result) override;
  PeerWait peerWait() const override;
  bool waitsForPeer() const override { return true; }
  std::string describe() const override;
  Trace::Span waitSpan(int64_t startNs) const override {
    return {startNs, 0, -1, 0, waitName_, -1, Trace::Track::Job};
  }

private:
  size_t pieceBytes(uint64_t piece) const {
    return std::min(kPieceBytes, bytes_ - piece * kPieceBytes);
  }

  std::byte *data_;
  size_t bytes_;
  int root_, rank_, world_;
  uint64_t number_;
  Channel &previous_, &next_;
  uint64_t pieces_;                    ///< Of the message.
  uint64_t posted_ = 0, received_ = 0; ///< Receives; a root has all of them from the start.
  uint64_t sends_ = 0;                 ///< Pieces to forward: all or none.
  uint64_t issued_ = 0, sent_ = 0;
  uint64_t bytesSent_ = 0;
  std::array<RecvOp, kWindow> recvOps_;
  std::array<SendOp, kWindow> sendOps_;
  std::unique_ptr<std::byte[]> landing_;
  int64_t startNs_ = 0;
  uint32_t spanName_, waitName_;
};

} // namespace bagua::rt
