// The contract every transport obeys (tests/conformance runs one suite over all of them).
#pragma once

#include "bagua/Status.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace bagua::rt {

/// One futex word that a rank sleeps on. Anyone may ring; one thread at a time waits.
/// The word may lie in memory shared between processes (window transport) or be private.
class Doorbell {
public:
  virtual ~Doorbell() = default;
  virtual void ring() = 0;
  /// Value to pass to wait(); read it before the last poll that found nothing.
  virtual uint32_t value() const = 0;
  /// Returns when the word differs from `seen`, or after `timeout`. Up to 50 sched_yield, then futex.
  virtual void wait(uint32_t seen, std::chrono::nanoseconds timeout) = 0;
};

/// Memory whose bytes peers on this host may read in place. Freed with the last reference; mappings
/// outlive the transport.
struct Memory {
  std::shared_ptr<void> owner;
  std::span<std::byte> bytes; ///< 64-byte aligned.
};

/// Messages of one Channel arrive in the order sent. Keyed by (binding, channel, peer, direction);
/// both sides open it with the same key. Owned by the transport, valid until it is destroyed or closeBinding().
class Channel;

/// Caller-owned; must stay in place until the operation has ended (sent / released / failed).
struct SendOp {
  const std::byte *data = nullptr;
  size_t bytes = 0; ///< > 0
  bool sent = false; ///< Set inside poll() or send(): the source range may be overwritten.
  uint64_t transportState[4] = {};
};

/// `view` is valid from `arrived` until release(): the landing slot, or the sender's own memory.
struct RecvOp {
  std::byte *landing = nullptr; ///< bytes of room, from landing memory reserved at bind
  size_t bytes = 0;             ///< > 0; a message of another size is an error naming both sizes
  bool arrived = false;
  const std::byte *view = nullptr;
  uint64_t transportState[4] = {};
};

/// Moves bytes between ranks. Every call is non-blocking (but those that say so) and made by one
/// thread at a time; nothing allocates or logs after openChannel, except on failure.
class Transport {
public:
  virtual ~Transport() = default;

  virtual const char *name() const = 0;

  /// Memory from which send() needs no copy. May be called at any time before shutdown.
  virtual StatusOr<Memory> allocate(size_t bytes) = 0;

  /// True if recv() may need RecvOp::landing (then bind reserves it); false if views always are the
  /// sender's memory.
  virtual bool needsLanding(int peer) const = 0;

  /// Opens this rank's two ends (send to and receive from `peer`). `bytesMax`: the largest message
  /// ever sent over it (staging is reserved here when sources do not come from allocate()).
  /// `sendsMax`, `recvsMax`: operations in flight at once.
  virtual StatusOr<Channel *> openChannel(uint64_t binding, uint32_t channel, int peer,
                                          size_t bytesMax, uint32_t sendsMax, uint32_t recvsMax) = 0;
  /// Channels of `binding` are gone; only legal when none has an operation in flight.
  virtual void closeBinding(uint64_t binding) = 0;

  virtual Status send(Channel &channel, SendOp &op) = 0;
  virtual Status recv(Channel &channel, RecvOp &op) = 0;
  /// Ends the view of an arrived receive; the sender's `sent` follows.
  virtual Status release(Channel &channel, RecvOp &op) = 0;

  /// Completes what can be completed. True if anything changed. The first error is permanent.
  virtual StatusOr<bool> poll() = 0;

  /// Fails every pending and later operation with `reason`; never blocks. Pending ops are forgotten:
  /// their memory may be reused once abort() has returned.
  virtual void abort(const Status &reason) = 0;
};

} // namespace bagua::rt
