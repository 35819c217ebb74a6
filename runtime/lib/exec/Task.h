// What the engine polls: a run of a program, or a broadcast.
#pragma once

#include "bagua/Trace.h"
#include "bagua/Transport.h"

#include "Workers.h"

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace bagua::rt {

class Clock;

/// What a driver lends its tasks for one pass.
struct PollContext {
  Transport &transport;
  Workers &workers;
  Trace &trace;
  const Clock &clock;
  int64_t nowNs = 0; ///< Refreshed by whoever spends time.
};

/// Whom a task waits for, for people to read.
struct PeerWait {
  std::vector<int> ranks; ///< Empty: it waits for no peer.
  std::vector<int> all;   ///< Also those that only have to take a message.
  std::string place;      ///< "bucket 'b0', program gradient, step 7, bytegrad.mlir:12:5".
};

/// Posted by one thread, then owned by whoever drives the engine until it is done.
class Task {
public:
  enum class State : uint8_t { Idle, Posted, Running, Done };
  virtual ~Task() = default;

  State state() const { return state_.load(std::memory_order_acquire); }
  /// Meaningful once Done.
  const Status &result() const { return result_; }
  /// Whether it can get no further before the job has opened a gate.
  bool atGate() const { return atGate_.load(std::memory_order_acquire); }
  /// Back to Idle, by the thread that saw Done.
  void rearm() { state_.store(State::Idle, std::memory_order_release); }

protected:
  friend class Engine;
  // All by the driver.
  virtual Status begin(PollContext &context) = 0;
  /// True if anything happened. An error fails the whole engine, and with it the group.
  virtual StatusOr<bool> advance(PollContext &context) = 0;
  virtual bool finished() const = 0;
  /// The transport has been aborted: touch no memory of the job any more.
  virtual void cancel() = 0;
  /// Called after the last advance(), before the task becomes Done.
  virtual void end(PollContext &context, const Status &result) = 0;
  /// Slow; for errors and warnings.
  virtual PeerWait peerWait() const = 0;
  /// Cheap: some operation with a peer is in flight.
  virtual bool waitsForPeer() const = 0;
  /// It cannot finish before the job has done something more (opened a gate), whatever peers do.
  virtual bool waitsForJob() const { return false; }
  /// "program gradient, bucket 'b0', step 7".
  virtual std::string describe() const = 0;
  /// The span of a caller's wait for this task; `endNs` is filled in.
  virtual Trace::Span waitSpan(int64_t startNs) const = 0;

  std::atomic<bool> atGate_{false}; ///< Set by advance(), cleared by who starts it.

private:
  std::atomic<State> state_{State::Idle};
  Status result_;
  Task *next_ = nullptr;           ///< In the engine's list of posted tasks.
  int64_t progressNs_ = 0;         ///< When it last got on.
  int64_t pausedAtProgressNs_ = 0; ///< The engine's pausedNs_ then.
};

} // namespace bagua::rt
