// Who takes part: ranks, hosts, the store, liveness and the verdict.
#pragma once

#include "bagua/Store.h"
#include "bagua/Transport.h"

#include <functional>
#include <optional>

namespace bagua::rt {

struct PeerInfo {
  int rank = 0, localRank = 0, node = 0;
  int localSize = -1; ///< As its launcher says; -1: it does not.
  std::string host;
  int64_t pid = 0;
  std::string hostKey; ///< Boot id + network namespace: equal means windows can be shared.
  std::string address; ///< IP address that this peer advertises to others.
};

/// One rank's membership. Thread-safe. Destroying it without leave() looks like death to the peers.
class Group {
public:
  /// When silence is reported. Shortened by tests only.
  struct Liveness {
    std::chrono::milliseconds heartbeat{250};
    std::chrono::milliseconds warnFrozen{2'000};   ///< No heartbeat for so long: a warning.
    std::chrono::milliseconds warnWaiting{10'000}; ///< A wait for ranks in user code: a warning.
  };
  struct Options {
    int rank = -1, world = -1, localRank = -1, localSize = -1; ///< -1: from the environment.
    std::string store;                                         ///< "host:port" or empty.
    std::shared_ptr<Store>
        localStore; ///< Set: ranks are threads of one process, no sockets, no monitor.
    std::chrono::milliseconds bootstrapTimeout{0}, stepTimeout{0}; ///< 0: environment or default.
    Liveness liveness;
  };
  static StatusOr<std::unique_ptr<Group>> create(const Options &options);
  virtual ~Group() = default;

  virtual int rank() const = 0;
  virtual int world() const = 0;
  virtual const PeerInfo &peer(int rank) const = 0; ///< Also of oneself.
  virtual int localSize() const = 0;
  virtual int nodes() const = 0;
  virtual const std::string &source() const = 0;
  virtual std::chrono::milliseconds stepTimeout() const = 0;
  virtual std::chrono::milliseconds bootstrapTimeout() const = 0;
  virtual Store &store() = 0;

  /// Everyone's `value`, by rank. Collective; `what` is unique per call and the same on all ranks.
  /// On a timeout the error names the ranks that did not answer and their last known phase.
  virtual StatusOr<std::vector<std::string>> allGather(std::string_view what,
                                                       std::string_view value) = 0;
  /// Compares JSON texts; kAborted names the first differing path, ranks and values.
  virtual Status agree(std::string_view what, std::string_view json) = 0;

  /// OK, or the group's first verdict (the same on every rank). Lock-free: polled on the data path.
  virtual Status verdict() const = 0;
  virtual bool hasVerdict() const = 0;
  /// Proposes a verdict; the first at the store wins. Returns the winner (or `reason` if the store
  /// is out of reach).
  virtual Status condemn(const Status &reason) = 0;
  /// Called once when a verdict is known: from the monitor thread, or from the thread in condemn()
  /// (of a local group: from the thread that found out); at once if it is known already. Must
  /// neither block nor call this group, except verdict(). Set before any program starts.
  virtual void onVerdict(std::function<void(const Status &)> callback) = 0;

  /// What this rank is doing ("program gradient, bucket 3, step 7"), sent with the heartbeat; at
  /// most 240 bytes are kept. `waiting`: this rank needs others to go on. A wait whose text does
  /// not change is reported after 10 s with the ranks that do not wait (they are in user code), and
  /// ends in a verdict at the step timeout. Lock-free; the same text again changes nothing.
  virtual void setPhase(std::string_view phase, bool waiting = false) = 0;
  virtual std::string
  describePeer(int rank) const = 0; ///< "rank 2 (host a, pid 17, in user code for 3.1 s)"
  /// How many ranks have left. Lock-free.
  virtual int departures() const = 0;
  /// "rank 2 (host a, pid 17) has left (said goodbye)"; empty while `rank` is in the group. Also of
  /// a rank whose process has ended after the store's host left: nobody can have heard its goodbye.
  virtual std::string departure(int rank) const = 0;
  virtual void pauseTimeout(int delta) = 0;
  virtual bool timeoutPaused() const = 0; ///< By any rank.

  /// Says goodbye, so that a later disappearance is no death. Collective only in spirit: never
  /// blocks long.
  virtual void leave() = 0;
};

} // namespace bagua::rt
