// Executes one plan: two in-order queues, event words, slots, transfers in flight.
#pragma once

#include "Task.h"
#include "bind/Plan.h"

#include "absl/strings/string_view.h"

namespace bagua::rt {

/// Everything is reserved by the constructor; a run allocates only when it fails. Not thread-safe
/// but for openGate().
class ProgramRun {
public:
  /// `states` must outlive it.
  ProgramRun(Plan plan, Workers &workers, States &states);
  ~ProgramRun();
  ProgramRun(const ProgramRun &) = delete;
  ProgramRun &operator=(const ProgramRun &) = delete;

  /// By the thread that starts the program, before the driver sees it.
  void arm(const StepValues &values) {
    values_ = &values;
    step_ = values.step;
    gatesOpen_.store(0, std::memory_order_relaxed);
    queues_[0] = queues_[1] = {}; // So that peerWait() speaks of this run, should it never begin.
  }
  /// Computes the step's guards, peers and scalars. `values` of arm() must still be there.
  Status begin(PollContext &context);
  /// Issues and completes what it can, but at most about one kernel piece. True if anything
  /// happened.
  StatusOr<bool> advance(PollContext &context);
  bool finished() const { return finished_; }
  void cancel();

  /// False if it was open already. Any thread.
  bool openGate(fb::Gate gate, bool finite) {
    uint32_t bit = gateBit(gate), bits = finite ? bit | bit << kFiniteShift : bit;
    uint32_t before = gatesOpen_.load(std::memory_order_relaxed);
    do {
      if (before & bit)
        return false;
    } while (!gatesOpen_.compare_exchange_weak(before, before | bits, std::memory_order_acq_rel,
                                               std::memory_order_relaxed));
    return true;
  }
  /// Whether the last advance() left the program before a shut gate, with everything that stands
  /// before it on its queue done.
  bool standsAtGate() const { return standsAtGate_; }

  /// Some gate of the program is still shut.
  bool waitsForJob() const {
    return (plan_.gatesUsed & ~gatesOpen_.load(std::memory_order_acquire)) != 0;
  }
  bool waitsForPeer() const { return !inFlight_.empty(); }
  PeerWait peerWait() const;
  const Plan &plan() const { return plan_; }
  /// Payload given to send by the current or last run.
  uint64_t bytesSent() const { return bytesSent_; }

private:
  struct Slot {
    enum class State : uint8_t { Free, Receiving, Full } state = State::Free;
    uint32_t transfer = 0; ///< The receive that holds it.
  };
  struct Queue {
    uint32_t next = 0;      ///< Step.
    uint32_t waitsLeft = 0; ///< Waits of that step are set up to here, see ready().
    bool fresh = true;      ///< waitsLeft does not belong to `next` yet.
  };
  enum class Issue : uint8_t { Done, Blocked, Yield };

  bool isSet(uint32_t event) const { return events_[event] == epoch_; }
  void set(uint32_t event) {
    if (event != kNone)
      events_[event] = epoch_;
  }
  static constexpr uint32_t kFiniteShift = 16;
  static constexpr uint32_t gateBit(fb::Gate gate) {
    return uint32_t{1} << static_cast<uint32_t>(gate);
  }
  bool isOpen(fb::Gate gate) const {
    return (gatesOpen_.load(std::memory_order_acquire) & gateBit(gate)) != 0;
  }
  bool isFinite(fb::Gate gate) const {
    return (gatesOpen_.load(std::memory_order_acquire) & gateBit(gate) << kFiniteShift) != 0;
  }
  bool ready(Queue &queue, const Plan::Step &step);
  StatusOr<bool> runQueue(fb::Queue which, PollContext &context, bool &yielded);
  StatusOr<Issue> issue(const Plan::Step &step, PollContext &context);
  StatusOr<Issue> issueTransfer(const Plan::Step &step, PollContext &context);
  StatusOr<Issue> issueLaunch(const Plan::Step &step, PollContext &context);
  Status release(const Plan::Step &step, PollContext &context);
  bool complete(PollContext &context);
  void finishTransfer(uint32_t transfer, PollContext &context);
  Status slotError(uint32_t location, uint32_t slot, absl::string_view what) const;
  Status stuck() const;
  bool cpuStandsAtGate() const;

  Plan plan_;
  Workers &workers_;
  States &states_;
  uint64_t statesVersion_ = 0; ///< That the plan's pointers are of.
  Workers::Job *job_;
  std::vector<uint32_t> events_; ///< Set if equal to epoch_.
  uint32_t epoch_ = 0;
  std::vector<Slot> slots_;
  uint32_t slotsHeld_ = 0;
  std::vector<SendOp> sends_; ///< By transfer, as the next three.
  std::vector<RecvOp> recvs_;
  std::vector<Channel *> ends_;
  std::vector<int32_t> peers_;
  std::vector<int64_t> issuedNs_;
  std::vector<uint32_t> inFlight_;    ///< Transfers; room for all.
  std::vector<uint32_t> gateSignals_; ///< Events of gates issued on the net queue and still shut.
  Queue queues_[2];
  const StepValues *values_ = nullptr;
  int64_t step_ = 0;
  /// Bit per gate that is open; shifted by kFiniteShift, bit per gate opened for a finite step.
  std::atomic<uint32_t> gatesOpen_{0};
  bool standsAtGate_ = false;
  bool launching_ = false;
  bool finished_ = false;
  int64_t launchNs_ = 0;
  uint64_t bytesSent_ = 0;
  uint64_t budget_ = 0; ///< Kernel bytes left in this advance().
};

} // namespace bagua::rt
