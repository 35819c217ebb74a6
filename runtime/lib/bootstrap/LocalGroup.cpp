// Ranks as threads of one process: no sockets, no monitor thread.
#include "GroupBase.h"
#include "Host.h"
#include "Session.h"
#include "Text.h"

#include <condition_variable>
#include <set>
#include <unistd.h>

namespace bagua::rt {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kTimeoutDefault{300'000};

class LocalGroup;

/// What the ranks of one generation share.
struct Shared {
  std::mutex mutex;
  std::condition_variable changed;
  Session session;               // guarded by mutex
  Status placed;                 // guarded by mutex; of settle()
  std::set<LocalGroup *> groups; // guarded by mutex
  std::atomic<int> pauses{0}, departures{0};

  explicit Shared(int world) : session(world, "") {}
};

/// The store outlives its sessions: a group may end and another begin on it.
class LocalStore final : public Store {
public:
  Status set(std::string_view key, std::string_view value) override {
    std::lock_guard lock(mutex_);
    BAGUA_TRY(table_.set(key, value));
    changed_.notify_all();
    return absl::OkStatus();
  }
  StatusOr<std::string> get(std::string_view key, milliseconds timeout) override {
    return wait(key, timeout, nullptr);
  }
  StatusOr<int64_t> add(std::string_view key, int64_t delta) override {
    std::lock_guard lock(mutex_);
    auto sum = table_.add(key, delta);
    changed_.notify_all();
    return sum;
  }
  Status erase(std::string_view prefix) override {
    std::lock_guard lock(mutex_);
    table_.erase(prefix);
    return absl::OkStatus();
  }

  StatusOr<std::string> wait(std::string_view key, milliseconds timeout, const Group *group) {
    std::unique_lock lock(mutex_);
    const std::string *value = nullptr;
    bool done = changed_.wait_until(lock, Clock::now() + timeout, [&] {
      return (value = table_.find(key)) != nullptr || (group && group->hasVerdict());
    });
    if (value)
      return *value;
    if (done)
      return group->verdict();
    return absl::DeadlineExceededError(
        cat("nobody set the store's key '", key, "' within ", timeout.count(), " ms"));
  }
  void wake() {
    std::lock_guard lock(mutex_);
    changed_.notify_all();
  }

  /// The generation that rank may still join.
  StatusOr<std::shared_ptr<Shared>> generation(int world) {
    std::lock_guard lock(mutex_);
    if (shared_) {
      std::shared_ptr<Shared> last = shared_; // Outlives the lock on its mutex.
      std::lock_guard sessionLock(last->mutex);
      if (last->session.over())
        shared_.reset();
    }
    if (!shared_)
      shared_ = std::make_shared<Shared>(world);
    return shared_;
  }

private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Table table_;                    // guarded by mutex_
  std::shared_ptr<Shared> shared_; // guarded by mutex_
};

/// The group's view of the store: a blocked get ends with the verdict.
class GroupStore final : public Store {
public:
  GroupStore(LocalStore &store, const Group &group) : store_(store), group_(group) {}
  Status set(std::string_view key, std::string_view value) override {
    BAGUA_TRY(group_.verdict());
    return store_.set(key, value);
  }
  StatusOr<std::string> get(std::string_view key, milliseconds timeout) override {
    return store_.wait(key, timeout, &group_);
  }
  StatusOr<int64_t> add(std::string_view key, int64_t delta) override {
    BAGUA_TRY(group_.verdict());
    return store_.add(key, delta);
  }
  Status erase(std::string_view prefix) override {
    BAGUA_TRY(group_.verdict());
    return store_.erase(prefix);
  }

private:
  LocalStore &store_;
  const Group &group_;
};

class LocalGroup final : public GroupBase {
public:
  LocalGroup(std::shared_ptr<LocalStore> store, std::shared_ptr<Shared> shared, int rank, int world,
             std::string source, milliseconds bootstrapTimeout, milliseconds stepTimeout)
      : store_(std::move(store)), view_(*store_, *this), shared_(std::move(shared)), rank_(rank),
        world_(world), source_(std::move(source)), bootstrapTimeout_(bootstrapTimeout),
        stepTimeout_(stepTimeout) {}

  ~LocalGroup() override {
    if (!left_)
      end([&](Session &session) { session.dead(rank_, "destroyed without a goodbye"); });
    std::lock_guard lock(shared_->mutex);
    shared_->groups.erase(this);
  }

  Status join(const PeerInfo &info, const Session::Limits &limits) {
    {
      std::unique_lock lock(shared_->mutex);
      Status joined = shared_->session.join(world_, info, limits);
      if (!joined.ok()) {
        left_ = true;
        return joined;
      }
      shared_->groups.insert(this);
      if (shared_->session.complete()) {
        shared_->placed = shared_->session.settle();
        shared_->session.condemn(shared_->placed);
        shared_->changed.notify_all();
      }
      bool done = shared_->changed.wait_until(lock, Clock::now() + bootstrapTimeout_, [&] {
        return shared_->session.complete() || shared_->session.hasVerdict();
      });
      if (!done) {
        std::vector<std::string> warnings;
        shared_->session.tick(limits.bootstrapTimeout * 2, warnings);
      }
      if (shared_->session.complete() && shared_->placed.ok()) {
        for (int rank = 0; rank < world_; ++rank)
          peers_.push_back(shared_->session.member(rank).info);
        return absl::OkStatus();
      }
    }
    spread();
    return verdict();
  }

  int rank() const override { return rank_; }
  int world() const override { return world_; }
  const PeerInfo &peer(int rank) const override { return peers_[rank]; }
  int localSize() const override { return world_; }
  int nodes() const override { return 1; }
  const std::string &source() const override { return source_; }
  milliseconds stepTimeout() const override { return stepTimeout_; }
  milliseconds bootstrapTimeout() const override { return bootstrapTimeout_; }
  Store &store() override { return view_; }

  StatusOr<std::vector<std::string>> allGather(std::string_view what,
                                               std::string_view value) override {
    BAGUA_TRY(usable());
    bool condemned = false;
    std::vector<std::string> values;
    {
      std::unique_lock lock(shared_->mutex);
      BAGUA_ASSIGN(std::shared_ptr<Gather> gather, shared_->session.contribute(what, rank_, value));
      shared_->changed.notify_all();
      Clock::time_point start = Clock::now();
      for (;;) {
        bool done = shared_->changed.wait_until(lock, start + stepTimeout_, [&] {
          return gather->complete() || shared_->session.hasVerdict();
        });
        if (done)
          break;
        if (timeoutPaused()) {
          start = Clock::now();
          continue;
        }
        refresh();
        shared_->session.condemn(shared_->session.absent(
            what, *gather, std::chrono::duration<double>(stepTimeout_).count()));
        break;
      }
      condemned = !gather->complete();
      if (!condemned)
        for (const auto &one : gather->values)
          values.push_back(*one);
    }
    if (condemned || hasVerdict())
      spread();
    if (condemned)
      return verdict();
    return values;
  }

  Status condemn(const Status &reason) override {
    if (!reason.ok())
      end([&](Session &session) { session.condemn(reason); });
    return verdict();
  }

  void setPhase(std::string_view phase, bool waiting) override { phase_.set(phase, waiting); }

  std::string describePeer(int rank) const override {
    std::lock_guard lock(shared_->mutex);
    refresh();
    return shared_->session.describe(rank);
  }

  int departures() const override { return shared_->departures.load(std::memory_order_relaxed); }
  std::string departure(int rank) const override {
    std::lock_guard lock(shared_->mutex);
    return shared_->session.departure(rank);
  }

  void pauseTimeout(int delta) override {
    std::lock_guard lock(shared_->mutex);
    shared_->session.pause(rank_, delta);
    shared_->pauses = shared_->session.pauses();
  }
  bool timeoutPaused() const override { return shared_->pauses.load() > 0; }

  void leave() override {
    if (!left_.exchange(true))
      end([&](Session &session) { session.leave(rank_); });
  }

private:
  Status usable() const {
    BAGUA_TRY(verdict());
    if (left_)
      return absl::FailedPreconditionError(cat("rank ", rank_, " has left its group"));
    return absl::OkStatus();
  }

  /// Copies every rank's phase into the session. Under the lock.
  void refresh() const {
    for (LocalGroup *group : shared_->groups)
      shared_->session.heartbeat(group->rank_, group->phase_.read());
  }

  template <typename Change> void end(Change change) {
    {
      std::lock_guard lock(shared_->mutex);
      refresh();
      change(shared_->session);
      shared_->pauses = shared_->session.pauses();
      shared_->departures = shared_->session.departures();
      shared_->changed.notify_all();
    }
    spread();
  }

  /// Gives the session's verdict to every group of this process.
  void spread() {
    std::unique_lock lock(shared_->mutex);
    if (!shared_->session.hasVerdict())
      return;
    Status verdict = unshared(shared_->session.verdict());
    // Under the lock, so that none of them is destroyed meanwhile; callbacks must not block.
    for (LocalGroup *group : shared_->groups)
      group->deliver(verdict);
    shared_->changed.notify_all();
    lock.unlock();
    deliver(verdict);
    store_->wake();
  }

  std::shared_ptr<LocalStore> store_;
  GroupStore view_;
  std::shared_ptr<Shared> shared_;
  const int rank_, world_;
  const std::string source_;
  const milliseconds bootstrapTimeout_, stepTimeout_;
  std::vector<PeerInfo> peers_;
  Phase phase_;
  std::atomic<bool> left_{false};
};

} // namespace

std::shared_ptr<Store> makeLocalStore() { return std::make_shared<LocalStore>(); }

StatusOr<std::unique_ptr<Group>> createLocalGroup(const Group::Options &options,
                                                  const std::string &source) {
  auto store = std::dynamic_pointer_cast<LocalStore>(options.localStore);
  if (!store)
    return absl::InvalidArgumentError("a group of threads needs a store of makeLocalStore()");
  if (options.world < 1 || options.rank < 0 || options.rank >= options.world)
    return absl::InvalidArgumentError(cat("a group of threads needs 0 <= rank < world, got rank ",
                                          options.rank, ", world ", options.world));
  BAGUA_ASSIGN(milliseconds bootstrap,
               timeoutOr(options.bootstrapTimeout, "BAGUA_BOOTSTRAP_TIMEOUT_MS", kTimeoutDefault));
  BAGUA_ASSIGN(milliseconds step,
               timeoutOr(options.stepTimeout, "BAGUA_STEP_TIMEOUT_MS", kTimeoutDefault));
  BAGUA_ASSIGN(std::shared_ptr<Shared> shared, store->generation(options.world));
  PeerInfo info;
  info.rank = options.rank;
  info.localRank = options.localRank >= 0 ? options.localRank : options.rank;
  info.localSize = options.localSize;
  info.host = hostName();
  info.pid = ::getpid();
  info.hostKey = hostKey();
  info.address = "127.0.0.1";
  Session::Limits limits;
  limits.stepTimeout = std::chrono::duration<double>(step).count();
  limits.bootstrapTimeout = std::chrono::duration<double>(bootstrap).count();
  auto group = std::make_unique<LocalGroup>(std::move(store), std::move(shared), options.rank,
                                            options.world, source, bootstrap, step);
  BAGUA_TRY(group->join(info, limits));
  return std::unique_ptr<Group>(std::move(group));
}

} // namespace bagua::rt
