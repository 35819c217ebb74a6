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

/// One futex word that a rank sleeps on. Anyone may ring; one thread at a time reads the value and
/// waits. The word may lie in memory shared between processes (window transport) or be private. The
/// loop of a driver: seen = value(); if poll() found nothing, wait(seen, …). Whatever happened
/// before a ring() is seen by that poll(), or wait(seen) returns at once.
class Doorbell {
public:
  /// A source of events that do not ring by themselves, and needs a call before the waiter sleeps:
  /// UCX arms its descriptor.
  class SleepHook {
  public:
    virtual ~SleepHook() = default;
    /// Called by the waiting thread in each wait(), which then does not yield by itself. False:
    /// poll again, do not sleep yet.
    virtual bool beforeSleep() = 0;
  };

  virtual ~Doorbell() = default;
  virtual void ring() = 0;
  /// Value to pass to wait(); read it before the last poll that found nothing.
  virtual uint32_t value() const = 0;
  /// Returns when the word differs from `seen`, or after `timeout`, or early (so poll again). Up to
  /// 50 sched_yield or 100 µs, then futex.
  virtual void wait(uint32_t seen, std::chrono::nanoseconds timeout) = 0;
  /// One hook at most; nullptr removes it. By the thread that waits. It must outlive its use.
  virtual void setSleepHook(SleepHook *hook) = 0;
};

/// A doorbell in private memory (loopback, tests, UCX alone).
std::shared_ptr<Doorbell> makeDoorbell();
/// A doorbell whose word lies in a shared page of its own, so that peers of the window transport
/// ring it.
StatusOr<std::shared_ptr<Doorbell>> makeSharedDoorbell();

/// Memory whose bytes peers on this host may read in place. Freed with the last reference; mappings
/// outlive the transport.
struct Memory {
  std::shared_ptr<void> owner;
  std::span<std::byte> bytes; ///< 64-byte aligned.
};

/// Messages of one Channel arrive in the order sent. Keyed by (binding, channel, peer, direction);
/// both sides open it with the same key. Owned by the transport, valid until it is destroyed or
/// closeBinding().
class Channel;

/// Caller-owned; must stay in place until the operation has ended (sent / released / failed).
struct SendOp {
  const std::byte *data = nullptr;
  size_t bytes = 0;  ///< > 0
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
                                          size_t bytesMax, uint32_t sendsMax,
                                          uint32_t recvsMax) = 0;
  /// Channels of `binding` are gone; only legal when none has an operation in flight.
  virtual void closeBinding(uint64_t binding) = 0;

  virtual Status send(Channel &channel, SendOp &op) = 0;
  virtual Status recv(Channel &channel, RecvOp &op) = 0;
  /// Ends the view of an arrived receive; the sender's `sent` follows.
  virtual Status release(Channel &channel, RecvOp &op) = 0;

  /// Completes what can be completed. True if anything changed. The first error is permanent.
  virtual StatusOr<bool> poll() = 0;

  /// Fails every pending and later operation with `reason`; never blocks. Pending ops are
  /// forgotten: their memory may be reused once abort() has returned.
  virtual void abort(const Status &reason) = 0;
};

} // namespace bagua::rt
