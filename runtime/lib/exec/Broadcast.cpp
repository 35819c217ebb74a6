// A pipelined chain: each link carries the message once, however many ranks there are.
#include "Broadcast.h"

#include "absl/strings/str_cat.h"

#include <algorithm>
#include <cstring>

namespace bagua::rt {

Broadcast::Broadcast(std::byte *data, size_t bytes, int root, int rank, int world, uint64_t number,
                     Channel &previous, Channel &next, bool needsLanding, Trace &trace)
    : data_(data), bytes_(bytes), root_(root), rank_(rank), world_(world), number_(number),
      previous_(previous), next_(next), pieces_((bytes + kPieceBytes - 1) / kPieceBytes),
      spanName_(trace.name({"broadcast", "", "", ""})),
      waitName_(trace.name({"wait", "", "broadcast", ""})) {
  int position = (rank - root + world) % world;
  if (position == 0)
    posted_ = received_ = pieces_;
  if (position + 1 < world)
    sends_ = pieces_;
  if (position != 0 && needsLanding)
    landing_ = std::make_unique<std::byte[]>(kWindow * kPieceBytes);
}

Status Broadcast::begin(PollContext &context) {
  startNs_ = context.nowNs;
  return absl::OkStatus();
}

StatusOr<bool> Broadcast::advance(PollContext &context) {
  bool any = false;
  for (bool changed = true; changed; any = any || changed) {
    changed = false;
    while (posted_ != pieces_ && posted_ - received_ < kWindow) {
      RecvOp &op = recvOps_[posted_ % kWindow];
      op = {};
      op.bytes = pieceBytes(posted_);
      if (landing_)
        op.landing = landing_.get() + posted_ % kWindow * kPieceBytes;
      ++posted_;
      BAGUA_TRY(context.transport.recv(previous_, op));
      changed = true;
    }
    while (received_ != posted_ && recvOps_[received_ % kWindow].arrived) {
      RecvOp &op = recvOps_[received_ % kWindow];
      std::memcpy(data_ + received_ * kPieceBytes, op.view, op.bytes);
      BAGUA_TRY(context.transport.release(previous_, op));
      ++received_;
      changed = true;
    }
    // In order: a piece's send operation is used again only when it and all before it have been
    // sent.
    while (issued_ != sends_ && issued_ != received_ && issued_ - sent_ < kWindow) {
      SendOp &op = sendOps_[issued_ % kWindow];
      op = {};
      op.data = data_ + issued_ * kPieceBytes;
      op.bytes = pieceBytes(issued_);
      ++issued_;
      BAGUA_TRY(context.transport.send(next_, op));
      bytesSent_ += op.bytes;
      changed = true;
    }
    while (sent_ != issued_ && sendOps_[sent_ % kWindow].sent) {
      ++sent_;
      changed = true;
    }
  }
  return any;
}

void Broadcast::end(PollContext &context, const Status &) {
  context.trace.record(
      {startNs_, context.nowNs, -1, bytes_, spanName_, root_, Trace::Track::Program});
}

std::string Broadcast::describe() const {
  return absl::StrCat("broadcast ", number_, " of ", bytes_, " bytes from rank ", root_);
}

PeerWait Broadcast::peerWait() const {
  PeerWait wait;
  if (received_ != pieces_)
    wait.all.push_back((rank_ + world_ - 1) % world_);
  if (sent_ != sends_)
    wait.all.push_back((rank_ + 1) % world_);
  if (!wait.all.empty())
    wait.ranks.push_back(wait.all.front());
  wait.place = describe();
  return wait;
}

} // namespace bagua::rt
