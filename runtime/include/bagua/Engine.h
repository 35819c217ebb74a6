// Drives everything that communicates in one rank: bindings, broadcasts, deadlines, verdicts.
#pragma once

#include "bagua/Clock.h"
#include "bagua/Group.h"
#include "bagua/Trace.h"
#include "bagua/Transport.h"

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace bagua::rt {

class Task;
class Workers;

/// One per rank. Whoever holds the *role* drives: a caller blocked in wait(), else the progress
/// thread. All calls to the transport are made under the role, so it sees one thread at a time.
/// Thread-safe. After the first error everything returns that error, and the group has been told.
/// `group` and `transport` must outlive it.
class Engine {
public:
  struct Options {
    int threads = 0;               ///< For kernels; 0: BAGUA_THREADS, else cores / local ranks.
    bool progressThread = true;    ///< Off: nothing moves but inside wait() and poll().
    size_t traceEvents = SIZE_MAX; ///< SIZE_MAX: BAGUA_TRACE_EVENTS, else 65536. 0: no trace.
    std::shared_ptr<const Clock> clock; ///< Null: the steady clock.
  };
  static StatusOr<std::unique_ptr<Engine>> create(Group &group, Transport &transport,
                                                  std::shared_ptr<Doorbell> doorbell,
                                                  const Options &options);
  ~Engine();
  Engine(const Engine &) = delete;
  Engine &operator=(const Engine &) = delete;

  /// Hands an idle task over. Tasks begin in the order of these calls. No allocation, no lock.
  void post(Task &task);
  /// True when `task` is done, or, with `untilGate`, can get no further before a gate opens; false
  /// when `slice` has passed. Drives if nobody else does, but for a slice of 0 beside a progress
  /// thread.
  bool wait(Task &task, std::chrono::nanoseconds slice, bool untilGate = false);
  /// Makes a sleeping driver look again.
  void ring() { doorbell_->ring(); }
  /// Runs `function` while nobody drives.
  Status exclusively(const std::function<Status()> &function);
  /// One pass, unless somebody else drives. True if anything happened. For drivers of tests.
  bool poll();

  /// Ends the progress thread; programs that still run fail, here and elsewhere, but for those that
  /// wait for a gate: they fail here, and a peer that needs them sees this rank leave. Later calls
  /// drive themselves. Nobody else may be inside a call.
  void stop();

  /// Fails everything with `reason`, here and (through the group's verdict) elsewhere. Any thread.
  void abort(const Status &reason);
  /// OK, or the first error.
  Status status() const;
  bool failed() const { return failed_.load(std::memory_order_acquire); }

  Group &group() { return group_; }
  Transport &transport() { return transport_; }
  Trace &trace() { return trace_; }
  Workers &workers() { return *workers_; }
  const Clock &clock() const { return *clock_; }
  /// Room for one more running task. At bind.
  void reserveTask();
  void releaseTask();

  /// Compares `json` on all ranks, and that all of them are making this very call ("bind", "barrier
  /// 'x'"); a difference is reported under `key`. Collective, in one order on all ranks; `number`
  /// tells later exchanges of the call apart.
  Status agree(std::string_view call, std::string_view key, std::string_view json,
               uint64_t *number = nullptr);
  /// Root's bytes to all ranks. Collective; blocks. Spans and bytes are counted apart from payload.
  Status broadcast(std::byte *data, size_t bytes, int root);
  uint64_t broadcastBytes() const { return broadcastBytes_.load(std::memory_order_relaxed); }

private:
  class Role;
  Engine(Group &group, Transport &transport, std::shared_ptr<Doorbell> doorbell,
         const Options &options);

  bool pollHoldingRole();
  bool takePosted();
  void finish(Task &task, Status result);
  void failHoldingRole(Status reason);
  void condemnHoldingRole(const Status &reason);
  void idle(uint32_t seen, std::chrono::nanoseconds timeoutMax);
  void checkDeadlines();
  Status departureStatus(const Task &task, int64_t now);
  void progressLoop();
  void releaseRole(std::unique_lock<std::mutex> &lock);

  Group &group_;
  Transport &transport_;
  std::shared_ptr<Doorbell> doorbell_;
  std::shared_ptr<const Clock> clock_;
  Trace trace_;
  std::unique_ptr<Workers> workers_;

  std::atomic<Task *> posted_{nullptr}; ///< Newest first.
  std::atomic<uint64_t> collectives_{0};
  std::atomic<uint64_t> broadcastBytes_{0};
  std::mutex broadcastMutex_; ///< One broadcast at a time.
  bool broadcastOpen_ = false;
  Channel *broadcastNext_ = nullptr, *broadcastPrevious_ = nullptr;

  // Of whoever holds the role.
  std::vector<Task *> running_; ///< In the order they began.
  size_t taskRoom_ = 0;
  int64_t nowNs_ = 0;
  int64_t pausedNs_ = 0, deadlineCheckNs_ = 0;
  std::map<int, int64_t> departures_; ///< By rank: when a task that waits for it saw it gone.
  bool phaseIsWaiting_ = false;

  // The role. Callers announce themselves in callers_ before they ask, so that the progress thread
  // gives way.
  std::mutex roleMutex_;
  std::condition_variable callersWake_, progressWake_;
  bool roleTaken_ = false;      ///< Guarded by roleMutex_, as the next three.
  bool progressParked_ = false; ///< It sleeps until told.
  uint64_t callerTurns_ = 0;    ///< Times that a caller has taken the role.
  bool stopping_ = false;
  std::atomic<int> callers_{0};
  std::atomic<bool> stop_{false};

  std::atomic<bool> failed_{false}, abortRequested_{false};
  mutable std::mutex statusMutex_;
  Status status_, abortReason_; ///< Guarded by statusMutex_.

  std::thread progress_;
};

} // namespace bagua::rt
