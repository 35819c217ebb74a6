// What channels of every transport have in common: their key, their limits, and checks of
// arguments.
#pragma once

#include "bagua/Transport.h"

#include <compare>
#include <string>

namespace bagua::rt {

/// One directed stream of messages, before a peer is added. `opening` counts how often this rank
/// opened the same binding, channel and peer: the n-th opening here talks to the n-th opening
/// there, so a key may be used again although the other side has not closed its old channel yet.
struct ChannelKey {
  uint64_t binding = 0;
  uint32_t channel = 0;
  uint32_t opening = 0;
  auto operator<=>(const ChannelKey &) const = default;
};

struct ChannelLimits {
  size_t bytesMax = 0;
  uint32_t sendsMax = 0, recvsMax = 0;
};

/// Base of each transport's channel.
class Channel {
public:
  Channel(Transport &transport, const ChannelKey &key, int peer, const ChannelLimits &limits)
      : transport(transport), key(key), peer(peer), limits(limits) {}
  virtual ~Channel() = default;
  Channel(const Channel &) = delete;
  Channel &operator=(const Channel &) = delete;

  Transport &transport; ///< The one that opened it.
  const ChannelKey key;
  const int peer;
  const ChannelLimits limits;
};

/// Zeroed memory of this process, for transports that copy anyway.
StatusOr<Memory> allocatePrivate(size_t bytes);

/// "channel 3 of binding 7 with rank 1".
std::string describe(const Channel &channel);
Status checkOpen(int rank, int world, int peer);
Status checkSend(const Channel &channel, const SendOp &op, uint32_t inFlight);
Status checkRecv(const Channel &channel, const RecvOp &op, uint32_t inFlight, bool needsLanding);
/// The message's and the receive's sizes differ.
Status sizeMismatch(const Channel &channel, size_t messageBytes, size_t receiveBytes);

} // namespace bagua::rt
