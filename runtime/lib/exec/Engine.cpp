// The poll loop, and who drives it.
#include "bagua/Engine.h"

#include "Broadcast.h"
#include "Task.h"
#include "Workers.h"
#include "bagua/Bootstrap.h"
#include "bagua/Log.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <pthread.h>
#include <sched.h>

namespace bagua::rt {
namespace {

using std::chrono::milliseconds, std::chrono::nanoseconds;

/// Longest sleep while something runs: deadlines are checked so often.
constexpr nanoseconds kTick = milliseconds(100);
/// Longest sleep while nothing runs. A ring ends it.
constexpr nanoseconds kIdleTick = std::chrono::seconds(10);
/// How long the progress thread leaves the role to callers that come back at once. A hand-over
/// costs two context switches; waits that follow each other closely should not pay them.
constexpr nanoseconds kLinger = std::chrono::microseconds(500);
constexpr int64_t kTraceEventsDefault = 65536;
/// What a peer sent before it left may still be on its way for so long.
constexpr nanoseconds kFarewell = std::chrono::seconds(1);

int availableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0)
    return std::max(1, CPU_COUNT(&set));
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

} // namespace

/// Holds the role as a caller, until destroyed.
class Engine::Role {
public:
  /// Waits for the role until `deadline`, or until `done`.
  template <typename Done>
  Role(Engine &engine, std::chrono::steady_clock::time_point deadline, Done done)
      : engine_(engine) {
    engine_.callers_.fetch_add(1, std::memory_order_seq_cst);
    std::unique_lock lock(engine_.roleMutex_);
    if (engine_.roleTaken_)
      engine_.doorbell_->ring(); // Its holder may sleep.
    // No wait_until with time_point::max(): it overflows in some libraries.
    while (engine_.roleTaken_ && !done()) {
      if (deadline == std::chrono::steady_clock::time_point::max())
        engine_.callersWake_.wait(lock);
      else if (engine_.callersWake_.wait_until(lock, deadline) == std::cv_status::timeout)
        break;
    }
    held_ = !engine_.roleTaken_ && !done();
    if (held_) {
      engine_.roleTaken_ = true;
      ++engine_.callerTurns_;
    }
  }
  ~Role() {
    std::unique_lock lock(engine_.roleMutex_);
    engine_.callers_.fetch_sub(1, std::memory_order_seq_cst);
    if (held_)
      engine_.releaseRole(lock);
    else if (engine_.progressParked_ && !engine_.roleTaken_)
      engine_.progressWake_.notify_one();
  }
  Role(const Role &) = delete;
  Role &operator=(const Role &) = delete;
  bool held() const { return held_; }

private:
  Engine &engine_;
  bool held_ = false;
};

Engine::Engine(Group &group, Transport &transport, std::shared_ptr<Doorbell> doorbell,
               const Options &options)
    : group_(group), transport_(transport), doorbell_(std::move(doorbell)),
      clock_(options.clock ? options.clock : std::make_shared<SteadyClock>()),
      trace_(options.traceEvents) {
  workers_ = Workers::create(options.threads, doorbell_);
  nowNs_ = deadlineCheckNs_ = clock_->nowNs();
}

StatusOr<std::unique_ptr<Engine>> Engine::create(Group &group, Transport &transport,
                                                 std::shared_ptr<Doorbell> doorbell,
                                                 const Options &options) {
  Options resolved = options;
  if (resolved.threads <= 0) {
    int share = std::max(1, availableCores() / std::max(1, group.localSize()));
    BAGUA_ASSIGN(int64_t threads, environmentNumber("BAGUA_THREADS", share));
    resolved.threads = static_cast<int>(threads);
  }
  if (resolved.traceEvents == SIZE_MAX) {
    BAGUA_ASSIGN(int64_t events, environmentNumber("BAGUA_TRACE_EVENTS", kTraceEventsDefault));
    resolved.traceEvents = static_cast<size_t>(events);
  }
  std::unique_ptr<Engine> engine(new Engine(group, transport, doorbell, resolved));
  engine->reserveTask(); // For broadcasts.
  // The callback may come after the engine has gone: it holds the doorbell only.
  group.onVerdict([doorbell](const Status &) { doorbell->ring(); });
  if (resolved.progressThread)
    engine->progress_ = std::thread([engine = engine.get()] { engine->progressLoop(); });
  return engine;
}

Engine::~Engine() { stop(); }

void Engine::stop() {
  {
    std::lock_guard lock(roleMutex_);
    stopping_ = true;
    stop_.store(true);
  }
  doorbell_->ring();
  progressWake_.notify_all();
  if (progress_.joinable())
    progress_.join();
  takePosted();
  if (running_.empty())
    return;
  auto needed = std::find_if(running_.begin(), running_.end(),
                             [](const Task *task) { return !task->waitsForJob(); });
  if (needed != running_.end())
    condemnHoldingRole(absl::UnavailableError(absl::StrCat(
        group_.describePeer(group_.rank()), " shut down in ", (*needed)->peerWait().place)));
  else // A step that the job left open, as after a last forward: who needs it sees us leave.
    failHoldingRole(absl::FailedPreconditionError(
        absl::StrCat("rank ", group_.rank(), " shut down before the end of ",
                     running_.front()->peerWait().place)));
}

void Engine::reserveTask() {
  ++taskRoom_;
  running_.reserve(taskRoom_);
}

void Engine::releaseTask() { --taskRoom_; }

void Engine::post(Task &task) {
  task.state_.store(Task::State::Posted, std::memory_order_relaxed);
  Task *head = posted_.load(std::memory_order_relaxed);
  do {
    task.next_ = head;
  } while (!posted_.compare_exchange_weak(head, &task, std::memory_order_release,
                                          std::memory_order_relaxed));
  doorbell_->ring();
}

bool Engine::wait(Task &task, nanoseconds slice, bool untilGate) {
  auto done = [&] { return task.state() == Task::State::Done || (untilGate && task.atGate()); };
  if (done())
    return true;
  if (slice <= nanoseconds::zero() && progress_.joinable())
    return false; // Only a look: the progress thread need not give way.
  auto deadline = std::chrono::steady_clock::now() + slice;
  Role role(*this, deadline, done);
  if (!role.held())
    return done();
  Trace::Span span = task.waitSpan(clock_->nowNs());
  bool ended = false;
  for (;;) {
    uint32_t seen = doorbell_->value();
    bool progressed = pollHoldingRole();
    ended = done();
    auto left = deadline - std::chrono::steady_clock::now();
    if (ended || left <= nanoseconds::zero())
      break;
    if (!progressed)
      idle(seen, std::chrono::duration_cast<nanoseconds>(left));
  }
  span.endNs = clock_->nowNs();
  trace_.record(span);
  return ended;
}

Status Engine::exclusively(const std::function<Status()> &function) {
  Role role(*this, std::chrono::steady_clock::time_point::max(), [] { return false; });
  return function();
}

bool Engine::poll() {
  Role role(*this, std::chrono::steady_clock::now(), [] { return false; });
  if (!role.held())
    return false;
  bool progressed = pollHoldingRole();
  if (!progressed)
    checkDeadlines();
  return progressed;
}

void Engine::abort(const Status &reason) {
  {
    std::lock_guard lock(statusMutex_);
    if (!abortRequested_.load(std::memory_order_relaxed))
      abortReason_ = reason.ok() ? absl::AbortedError("aborted") : reason;
    abortRequested_.store(true, std::memory_order_release);
  }
  doorbell_->ring();
}

Status Engine::status() const {
  std::lock_guard lock(statusMutex_);
  return status_;
}

/// Takes over what was posted, oldest first.
bool Engine::takePosted() {
  Task *newest = posted_.exchange(nullptr, std::memory_order_acquire);
  if (newest == nullptr)
    return false;
  Task *oldest = nullptr;
  while (newest != nullptr) {
    Task *next = newest->next_;
    newest->next_ = oldest;
    oldest = newest;
    newest = next;
  }
  for (; oldest != nullptr; oldest = oldest->next_) {
    BAGUA_CHECK(running_.size() < running_.capacity());
    oldest->state_.store(Task::State::Running, std::memory_order_relaxed);
    oldest->progressNs_ = nowNs_;
    oldest->pausedAtProgressNs_ = pausedNs_;
    running_.push_back(oldest);
  }
  return true;
}

/// The task leaves the engine: its owner may free it at once.
void Engine::finish(Task &task, Status result) {
  task.result_ = std::move(result);
  task.state_.store(Task::State::Done, std::memory_order_release);
}

bool Engine::pollHoldingRole() {
  nowNs_ = clock_->nowNs();
  PollContext context{transport_, *workers_, trace_, *clock_, nowNs_};
  size_t begun = running_.size();
  bool progressed = takePosted();
  if (failed()) {
    if (!running_.empty())
      failHoldingRole(status());
    return progressed;
  }
  if (group_.hasVerdict()) [[unlikely]] {
    failHoldingRole(group_.verdict());
    return true;
  }
  if (abortRequested_.load(std::memory_order_acquire)) [[unlikely]] {
    Status reason;
    {
      std::lock_guard lock(statusMutex_);
      reason = abortReason_;
    }
    condemnHoldingRole(reason);
    return true;
  }
  for (size_t i = begun; i < running_.size(); ++i) {
    Status begunStatus = running_[i]->begin(context);
    if (!begunStatus.ok()) [[unlikely]] {
      condemnHoldingRole(begunStatus);
      return true;
    }
  }
  StatusOr<bool> moved = transport_.poll();
  if (!moved.ok()) [[unlikely]] {
    condemnHoldingRole(moved.status());
    return true;
  }
  progressed = progressed || *moved;

  size_t kept = 0;
  bool othersWait = false;
  for (size_t i = 0; i < running_.size(); ++i) {
    Task &task = *running_[i];
    bool wasAtGate = task.atGate();
    StatusOr<bool> advanced = task.advance(context);
    othersWait = othersWait || (!wasAtGate && task.atGate());
    if (!advanced.ok()) [[unlikely]] {
      // Close the gap first: those before `i` that have finished are gone.
      running_.erase(running_.begin() + static_cast<ptrdiff_t>(kept),
                     running_.begin() + static_cast<ptrdiff_t>(i));
      condemnHoldingRole(advanced.status());
      return true;
    }
    if (*advanced) {
      progressed = true;
      task.progressNs_ = context.nowNs;
      task.pausedAtProgressNs_ = pausedNs_;
    }
    if (task.finished()) {
      task.end(context, absl::OkStatus());
      finish(task, absl::OkStatus());
      othersWait = true;
    } else {
      running_[kept++] = &task;
    }
  }
  running_.resize(kept);
  nowNs_ = context.nowNs;
  if (progressed && phaseIsWaiting_) [[unlikely]] {
    phaseIsWaiting_ = false;
    group_.setPhase(running_.empty() ? "in user code" : running_.front()->describe());
  }
  if (othersWait && callers_.load(std::memory_order_acquire) > 1) {
    std::lock_guard lock(roleMutex_);
    callersWake_.notify_all();
  }
  return progressed;
}

/// Tells the group, then fails with whatever it decided.
void Engine::condemnHoldingRole(const Status &reason) {
  logger("engine")->debug("rank {} condemns the group: {}", group_.rank(), reason.ToString());
  failHoldingRole(group_.condemn(reason));
}

void Engine::failHoldingRole(Status reason) {
  if (!failed()) {
    std::lock_guard lock(statusMutex_);
    status_ = reason.ok() ? absl::InternalError("failed without a reason") : reason;
    failed_.store(true, std::memory_order_release);
  }
  Status first = status();
  transport_.abort(first);
  PollContext context{transport_, *workers_, trace_, *clock_, clock_->nowNs()};
  for (Task *task : running_) {
    // The verdict says what happened to the group; this, what it meant here.
    std::string place = task->peerWait().place;
    Status result = first;
    if (first.message().find(place) == absl::string_view::npos)
      result = Status(first.code(),
                      absl::StrCat(first.message(), "; rank ", group_.rank(), " was in ", place));
    task->cancel();
    task->end(context, result);
    finish(*task, std::move(result));
  }
  running_.clear();
  std::lock_guard lock(roleMutex_);
  callersWake_.notify_all();
}

void Engine::idle(uint32_t seen, nanoseconds timeoutMax) {
  doorbell_->wait(seen, std::min(timeoutMax, running_.empty() ? kIdleTick : kTick));
  if (!running_.empty())
    checkDeadlines();
}

/// An error if `task` waits for a rank that has left: nothing more comes from there.
Status Engine::departureStatus(const Task &task, int64_t now) {
  PeerWait wait = task.peerWait();
  for (int rank : wait.all) {
    std::string departure = group_.departure(rank);
    if (departure.empty())
      continue;
    int64_t seen = departures_.try_emplace(rank, now).first->second;
    if (now - std::max(seen, task.progressNs_) >= kFarewell.count())
      return absl::UnavailableError(
          absl::StrCat(departure, " while rank ", group_.rank(), " waited for it in ", wait.place));
  }
  return absl::OkStatus();
}

/// Called when a pass has found nothing to do.
void Engine::checkDeadlines() {
  int64_t now = clock_->nowNs();
  int64_t sinceCheck = now - deadlineCheckNs_;
  deadlineCheckNs_ = now;
  bool paused = group_.timeoutPaused();
  if (paused)
    pausedNs_ += sinceCheck;
  for (Task *task : running_) {
    if (!task->waitsForPeer())
      continue;
    int64_t waited = now - task->progressNs_ - (pausedNs_ - task->pausedAtProgressNs_);
    // From here on the monitor counts too, and warns.
    if (waited >= kTick.count() && !phaseIsWaiting_) {
      phaseIsWaiting_ = true;
      group_.setPhase(task->peerWait().place, true);
    }
    // A step that the job has left open hurts nobody until somebody waits for it.
    if (group_.departures() > 0 && (!task->waitsForJob() || callers_.load() > 0))
      if (Status left = departureStatus(*task, now); !left.ok())
        return condemnHoldingRole(left);
    if (paused)
      continue;
    if (waited >= nanoseconds(group_.stepTimeout()).count()) {
      PeerWait wait = task->peerWait();
      std::string peers = absl::StrJoin(wait.ranks, ", ", [&](std::string *out, int rank) {
        absl::StrAppend(out, group_.describePeer(rank));
      });
      condemnHoldingRole(absl::DeadlineExceededError(
          absl::StrCat("rank ", group_.rank(), " has waited ", waited / 1'000'000, " ms for ",
                       peers, " in ", wait.place)));
      return;
    }
  }
}

void Engine::releaseRole(std::unique_lock<std::mutex> &) {
  roleTaken_ = false;
  if (callers_.load(std::memory_order_acquire) > 0)
    callersWake_.notify_all();
  else if (progressParked_)
    progressWake_.notify_one();
}

void Engine::progressLoop() {
  ::pthread_setname_np(::pthread_self(), "bagua-progress");
  std::unique_lock lock(roleMutex_);
  while (!stopping_) {
    auto vacant = [&] { return !roleTaken_ && callers_.load() == 0; };
    if (!vacant()) {
      progressParked_ = true;
      progressWake_.wait(lock, [&] { return stopping_ || vacant(); });
      progressParked_ = false;
    }
    // A caller that has just left often comes back at once.
    uint64_t turns = callerTurns_;
    if (turns != 0)
      progressWake_.wait_for(lock, kLinger, [&] { return stopping_; });
    if (stopping_ || !vacant() || turns != callerTurns_)
      continue;
    roleTaken_ = true;
    lock.unlock();
    while (callers_.load() == 0 && !stop_.load()) {
      uint32_t seen = doorbell_->value();
      bool progressed = pollHoldingRole();
      // Read the callers again after the doorbell's value: a ring between is not lost.
      if (!progressed && callers_.load() == 0 && !stop_.load())
        idle(seen, kIdleTick);
    }
    lock.lock();
    releaseRole(lock);
  }
}

Status Engine::agree(std::string_view call, std::string_view key, std::string_view json,
                     uint64_t *number) {
  uint64_t sequence = collectives_.fetch_add(1, std::memory_order_relaxed);
  if (number != nullptr)
    *number = sequence;
  BAGUA_TRY(status());
  if (group_.world() == 1)
    return absl::OkStatus();
  auto quoted = [](std::string_view text) {
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  return group_.agree(
      absl::StrCat("collective/", sequence),
      absl::StrCat("{\"call\":", quoted(call), ",", quoted(key), ":", std::string(json), "}"));
}

Status Engine::broadcast(std::byte *data, size_t bytes, int root) {
  if (root < 0 || root >= group_.world())
    return absl::InvalidArgumentError(
        absl::StrCat("broadcast expects a root in [0, ", group_.world(), "), got ", root));
  std::lock_guard lock(broadcastMutex_);
  BAGUA_TRY(status());
  if (group_.world() == 1)
    return absl::OkStatus();
  uint64_t number = 0;
  BAGUA_TRY(agree("broadcast", "broadcast",
                  absl::StrCat("{\"root\":", root, ",\"bytes\":", bytes, "}"), &number));
  if (bytes == 0)
    return absl::OkStatus();
  int rank = group_.rank(), world = group_.world();
  std::unique_ptr<Broadcast> task;
  BAGUA_TRY(exclusively([&]() -> Status {
    BAGUA_TRY(status());
    if (!broadcastOpen_) {
      BAGUA_ASSIGN(broadcastNext_, Broadcast::open(transport_, (rank + 1) % world));
      broadcastPrevious_ = broadcastNext_;
      if (world > 2) {
        BAGUA_ASSIGN(broadcastPrevious_, Broadcast::open(transport_, (rank + world - 1) % world));
      }
      broadcastOpen_ = true;
    }
    return absl::OkStatus();
  }));
  task = std::make_unique<Broadcast>(data, bytes, root, rank, world, number, *broadcastPrevious_,
                                     *broadcastNext_,
                                     transport_.needsLanding((rank + world - 1) % world), trace_);
  post(*task);
  while (!wait(*task, kTick)) {
  }
  broadcastBytes_.fetch_add(task->bytesSent(), std::memory_order_relaxed);
  return task->result();
}

} // namespace bagua::rt
