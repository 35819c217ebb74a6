// One rank of a group of processes: the connection to the store and the monitor thread.
#include "Fork.h"
#include "GroupBase.h"
#include "Host.h"
#include "Net.h"
#include "Protocol.h"
#include "Session.h"
#include "StoreServer.h"
#include "Text.h"
#include "bagua/Bootstrap.h"
#include "bagua/Log.h"

#include <asio.hpp>

#include <condition_variable>
#include <csignal>
#include <deque>
#include <map>
#include <poll.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

namespace bagua::rt {
namespace {

using asio::ip::tcp;
using std::chrono::milliseconds;
using wire::Type;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kTimeoutDefault{300'000};
constexpr milliseconds kConnectTimeout{2'000}; ///< One attempt.
constexpr milliseconds kRetryPause{20};
constexpr milliseconds kControlTimeout{
    1'000};                               ///< Goodbye, proposals: short, the store may be gone.
constexpr milliseconds kJoinSlack{3'000}; ///< The store decides about absentees before we do.
constexpr size_t kHeartbeatBacklogMax = 64;

double secondsOf(milliseconds duration) { return std::chrono::duration<double>(duration).count(); }

int millisecondsUntil(Clock::time_point deadline) {
  auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 3'600'000));
}

/// What the store said when everyone had joined.
struct Roster {
  int hostRank = -1; ///< Who hosts the store; -1: the launcher.
  std::string host, hostKey;
  int64_t pid = 0;
  std::vector<PeerInfo> peers;
  std::vector<uint64_t> pidNamespaces, startTimes;
};

StatusOr<Roster> parseWelcome(std::string_view body) {
  wire::Reader reader(body);
  Roster roster;
  roster.hostRank = reader.number<int32_t>();
  roster.host = reader.text();
  roster.hostKey = reader.text();
  roster.pid = reader.number<int64_t>();
  int32_t world = reader.number<int32_t>();
  for (int32_t rank = 0; rank < world && reader.ok(); ++rank) {
    PeerInfo peer;
    peer.rank = rank;
    peer.localRank = reader.number<int32_t>();
    peer.node = reader.number<int32_t>();
    peer.host = reader.text();
    peer.pid = reader.number<int64_t>();
    peer.hostKey = reader.text();
    peer.address = reader.text();
    roster.pidNamespaces.push_back(reader.number<uint64_t>());
    roster.startTimes.push_back(reader.number<uint64_t>());
    roster.peers.push_back(std::move(peer));
  }
  if (!reader.done())
    return absl::InternalError("the store sent a malformed welcome");
  return roster;
}

/// Blocking reads and writes of the time before the monitor runs.
class Handshake {
public:
  Handshake(int descriptor, Clock::time_point deadline)
      : descriptor_(descriptor), deadline_(deadline) {}

  /// kUnavailable: the connection is closed; kDeadlineExceeded: time is up.
  Status read(void *target, size_t bytes) {
    auto *at = static_cast<char *>(target);
    while (bytes > 0) {
      ssize_t got = ::recv(descriptor_, at, bytes, 0);
      if (got > 0) {
        at += got;
        bytes -= static_cast<size_t>(got);
      } else if (got < 0 && errno == EAGAIN) {
        BAGUA_TRY(await(POLLIN));
      } else if (got == 0 || errno != EINTR) {
        return absl::UnavailableError("the connection closed");
      }
    }
    return absl::OkStatus();
  }
  Status write(std::string_view bytes) {
    while (!bytes.empty()) {
      ssize_t sent = ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent > 0)
        bytes.remove_prefix(static_cast<size_t>(sent));
      else if (sent < 0 && errno == EAGAIN)
        BAGUA_TRY(await(POLLOUT));
      else if (sent < 0 && errno != EINTR)
        return absl::UnavailableError("the connection closed");
    }
    return absl::OkStatus();
  }

private:
  Status await(short events) {
    pollfd entry{descriptor_, events, 0};
    int left = millisecondsUntil(deadline_);
    if (left == 0 || ::poll(&entry, 1, left) == 0)
      return absl::DeadlineExceededError("no answer");
    return absl::OkStatus();
  }
  int descriptor_;
  Clock::time_point deadline_;
};

/// Blocks every signal in the threads that are started meanwhile: signals are the application's.
class SignalsBlocked {
public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

private:
  sigset_t before_;
};

class RemoteGroup final : public GroupBase {
public:
  RemoteGroup(const Launch &launch, const Group::Options &options, milliseconds bootstrapTimeout,
              milliseconds stepTimeout)
      : launch_(launch), liveness_(options.liveness), bootstrapTimeout_(bootstrapTimeout),
        stepTimeout_(stepTimeout), impl_(std::make_unique<Impl>(*this)) {}

  ~RemoteGroup() override {
    if (fork_.inChild()) {
      (void)impl_.release(); // Threads, locks and sockets in there are the parent's.
      return;
    }
    stop();
  }

  Status join();

  int rank() const override { return launch_.rank; }
  int world() const override { return launch_.world; }
  const PeerInfo &peer(int rank) const override {
    BAGUA_CHECK(rank >= 0 && rank < world());
    return impl_->roster.peers[rank];
  }
  int localSize() const override { return localSize_; }
  int nodes() const override { return nodes_; }
  const std::string &source() const override { return launch_.source; }
  milliseconds stepTimeout() const override { return stepTimeout_; }
  milliseconds bootstrapTimeout() const override { return bootstrapTimeout_; }
  Store &store() override { return impl_->view; }

  Status verdict() const override {
    if (fork_.inChild())
      return forked();
    return GroupBase::verdict();
  }
  bool hasVerdict() const override { return GroupBase::hasVerdict() || fork_.inChild(); }
  void onVerdict(std::function<void(const Status &)> callback) override {
    if (!fork_.inChild())
      GroupBase::onVerdict(std::move(callback));
  }

  StatusOr<std::vector<std::string>> allGather(std::string_view what,
                                               std::string_view value) override {
    // No timeout of ours: the store ends the wait with a verdict that everyone gets.
    BAGUA_ASSIGN(std::string body,
                 call(Type::kGather, wire::Writer().text(what).text(value), std::nullopt));
    wire::Reader reader(body);
    std::vector<std::string> values;
    for (int rank = 0; rank < world(); ++rank)
      values.emplace_back(reader.text());
    if (!reader.done())
      return absl::InternalError("the store sent a malformed exchange");
    return values;
  }

  Status condemn(const Status &reason) override {
    if (reason.ok() || hasVerdict())
      return verdict();
    // The verdict comes over the same connection before the reply.
    (void)call(Type::kPropose, wire::Writer().status(reason), kControlTimeout);
    if (!hasVerdict())
      deliver(reason);
    return verdict();
  }

  void setPhase(std::string_view phase, bool waiting) override {
    if (!fork_.inChild())
      impl_->phase.set(phase, waiting);
  }

  std::string describePeer(int rank) const override {
    if (rank < 0 || rank >= world() || fork_.inChild())
      return cat("rank ", rank);
    StatusOr<std::string> text = const_cast<RemoteGroup *>(this)->call(
        Type::kDescribe, wire::Writer().number(static_cast<int32_t>(rank)), kControlTimeout);
    return text.ok() ? *text : impl_->identify(rank);
  }

  int departures() const override { return impl_->departures.load(std::memory_order_acquire); }
  std::string departure(int rank) const override {
    if (fork_.inChild())
      return "";
    switch (impl_->presences[static_cast<size_t>(rank)].load(std::memory_order_acquire)) {
    case Presence::Here:
      if (!hasEndedUnheard(rank))
        return "";
      departed(rank, Presence::Ended);
      break;
    case Presence::SaidGoodbye:
      return cat(impl_->identify(rank), kSaidGoodbye);
    case Presence::Ended:
      break;
    }
    return cat(impl_->identify(rank), " has left (its process ended, after ", impl_->identifyHost(),
               ", which hosted the store, said goodbye)");
  }

  void pauseTimeout(int delta) override {
    if (fork_.inChild())
      return;
    impl_->ownPauses += delta;
    (void)call(Type::kPause, wire::Writer().number(static_cast<int32_t>(delta)), kControlTimeout);
  }
  bool timeoutPaused() const override {
    return impl_->groupPauses.load(std::memory_order_relaxed) > 0 ||
           impl_->ownPauses.load(std::memory_order_relaxed) > 0;
  }

  void leave() override {
    if (fork_.inChild() || left_.exchange(true))
      return;
    if (!hasVerdict())
      (void)call(Type::kGoodbye, wire::Writer(), kControlTimeout);
    stop();
  }

private:
  struct Pending {
    bool done = false;
    Status status;
    std::string value;
  };

  /// The group's view of the store.
  class View final : public Store {
  public:
    explicit View(RemoteGroup &group) : group_(group) {}
    Status set(std::string_view key, std::string_view value) override {
      return group_.call(Type::kSet, wire::Writer().text(key).text(value), group_.stepTimeout_)
          .status();
    }
    StatusOr<std::string> get(std::string_view key, milliseconds timeout) override {
      StatusOr<std::string> value = group_.call(Type::kGet, wire::Writer().text(key), timeout);
      if (absl::IsDeadlineExceeded(value.status()) && !group_.hasVerdict())
        return absl::DeadlineExceededError(
            cat("nobody set the store's key '", key, "' within ", timeout.count(), " ms"));
      return value;
    }
    StatusOr<int64_t> add(std::string_view key, int64_t delta) override {
      BAGUA_ASSIGN(std::string sum, group_.call(Type::kAdd, wire::Writer().text(key).number(delta),
                                                group_.stepTimeout_));
      std::optional<int64_t> value = parseInteger(sum);
      if (!value)
        return absl::InternalError("the store sent a malformed counter");
      return *value;
    }
    Status erase(std::string_view prefix) override {
      return group_.call(Type::kErase, wire::Writer().text(prefix), group_.stepTimeout_).status();
    }

  private:
    RemoteGroup &group_;
  };

  enum class Presence : uint8_t { Here, SaidGoodbye, Ended };

  /// What a forked child must neither use nor destroy.
  struct Impl {
    explicit Impl(RemoteGroup &group) : view(group), socket(io), timer(io) {}
    View view;
    Roster roster;
    Phase phase;
    std::atomic<int> groupPauses{0}, ownPauses{0}, departures{0};
    std::vector<std::atomic<Presence>> presences; ///< By rank; written by the monitor thread.
    std::unique_ptr<StoreServer> server;          ///< Rank 0 without a launcher's store.
    std::thread thread;

    std::mutex mutex;
    std::condition_variable changed;
    std::map<uint64_t, std::shared_ptr<Pending>> pending; // guarded by mutex
    uint64_t lastRequest = 0;                             // guarded by mutex
    bool running = false;                                 // guarded by mutex
    Status gone; ///< Guarded by mutex: why there is no store any more, without a verdict.

    // The monitor thread's own, once it runs.
    asio::io_context io{1};
    tcp::socket socket;
    asio::steady_timer timer;
    std::vector<std::unique_ptr<asio::posix::stream_descriptor>> watched;
    std::vector<bool> ended; ///< By rank: its process is gone.
    std::deque<std::string> out;
    size_t outOffset = 0;
    bool writing = false, connected = false, warnedFrozen = false;
    wire::FrameHeader header;
    std::string body;
    std::string hostPhase;
    double silence = 0.0;
    Clock::time_point lastTick;

    std::string identify(int rank) const {
      const PeerInfo &peer = roster.peers[rank];
      return cat("rank ", rank, " (host ", peer.host, ", pid ", peer.pid, ")");
    }
    std::string identifyHost() const {
      return roster.hostRank >= 0
                 ? identify(roster.hostRank)
                 : cat("the launcher (host ", roster.host, ", pid ", roster.pid, ")");
    }
  };

  Status forked() const {
    return absl::FailedPreconditionError(cat("this process is a forked child of rank ",
                                             launch_.rank,
                                             "; only the rank itself can communicate"));
  }

  Status checkDescriptors(int localPeers, int clients) const;
  StatusOr<net::Descriptor> connect(Clock::time_point deadline);
  Status greet(int descriptor, Clock::time_point deadline, const Status &objection, bool &joined);
  StatusOr<std::string> call(Type type, const wire::Writer &body,
                             std::optional<milliseconds> timeout);
  void stop();

  // On the monitor thread.
  void run();
  void read();
  void handle(Type type, uint64_t request, std::string_view body);
  void send(std::string frame);
  void write();
  void tick();
  void scheduleTick();
  bool canWatch(const PeerInfo &peer) const;
  void watchPeers();
  void peerEnded(int rank);
  bool hasEndedUnheard(int rank) const;
  bool isHere(int rank) const {
    return impl_->presences[static_cast<size_t>(rank)].load() == Presence::Here;
  }
  void departed(int rank, Presence how) const;
  void disconnected();
  void decide(const Status &verdict);
  void finish(const Status &gone);

  Launch launch_;
  Group::Liveness liveness_;
  milliseconds bootstrapTimeout_, stepTimeout_;
  ForkGuard fork_;
  std::atomic<bool> left_{false};
  int localSize_ = 1, nodes_ = 1;
  std::unique_ptr<Impl> impl_;
};

// ---- Joining, on the caller's thread ----

StatusOr<net::Descriptor> RemoteGroup::connect(Clock::time_point deadline) {
  BAGUA_ASSIGN(net::HostPort address, net::parseHostPort(launch_.store, "the store's address"));
  std::string last = "nothing was tried";
  milliseconds pause{20};
  for (bool first = true;; first = false) {
    std::vector<net::Endpoint> endpoints;
    StatusOr<std::vector<net::Endpoint>> resolved = net::resolve(address);
    if (resolved.ok())
      endpoints = *std::move(resolved);
    else
      last = std::string(resolved.status().message());
    if (impl_->server && !first) // The host's own name may lead nowhere from the host itself.
      if (auto loopback = net::resolve({"127.0.0.1", address.port}); loopback.ok())
        endpoints.insert(endpoints.end(), loopback->begin(), loopback->end());
    for (const net::Endpoint &endpoint : endpoints) {
      int left = millisecondsUntil(deadline);
      if (left == 0)
        break;
      StatusOr<net::Descriptor> socket =
          net::connectTo(endpoint, std::min(kConnectTimeout, milliseconds(left)));
      if (absl::IsResourceExhausted(socket.status()))
        return socket.status();
      if (!socket.ok()) {
        last = std::string(socket.status().message());
        continue;
      }
      std::string banner(wire::kBanner.size(), '\0');
      Handshake handshake(socket->get(), deadline);
      Status got = handshake.read(banner.data(), banner.size());
      if (got.ok() && banner == wire::kBanner)
        return socket;
      last = got.ok() ? "what listens there does not speak the store's protocol"
                      : std::string("it accepts connections but ") +
                            (absl::IsDeadlineExceeded(got) ? "says nothing" : "closes them");
      if (got.ok())
        return absl::FailedPreconditionError(cat("no store at ", launch_.store, ": ", last));
    }
    if (millisecondsUntil(deadline) == 0)
      return absl::DeadlineExceededError(
          cat("rank ", launch_.rank, " found no store at ", launch_.store, " within ",
              secondsText(secondsOf(bootstrapTimeout_)), " (", last, "; ", kTimeToJoin, "): ",
              launch_.hostsStore ? "rank 0, which hosts it, did not arrive or is out of reach"
                                 : "the launcher that hosts it is out of reach"));
    std::this_thread::sleep_for(std::min(pause, milliseconds(millisecondsUntil(deadline))));
    pause = std::min(pause * 2, milliseconds(200));
  }
}

/// Says hello and waits for the others. `objection`: why this rank cannot go on, for all to hear.
/// `joined` once the store has let it in.
Status RemoteGroup::greet(int descriptor, Clock::time_point deadline, const Status &objection,
                          bool &joined) {
  wire::Writer hello;
  hello.number(wire::kVersion).text(launch_.job);
  hello.number(static_cast<int32_t>(launch_.world)).number(static_cast<int32_t>(launch_.rank));
  hello.number(static_cast<int32_t>(launch_.localRank));
  hello.number(static_cast<int32_t>(launch_.localSize)).text(hostName());
  hello.number(static_cast<int64_t>(::getpid())).text(hostKey());
  hello.text(net::localEndpoint(descriptor).ip());
  hello.number(pidNamespace()).number(processStartTime(::getpid()));
  hello.number(secondsOf(stepTimeout_)).number(secondsOf(bootstrapTimeout_));
  hello.number(secondsOf(liveness_.warnFrozen)).number(secondsOf(liveness_.warnWaiting));
  Handshake handshake(descriptor, deadline + kJoinSlack);
  Status status = handshake.write(hello.frame(Type::kHello));
  for (;;) {
    wire::FrameHeader header;
    if (status.ok())
      status = handshake.read(&header, sizeof(header));
    std::string body;
    if (status.ok()) {
      if (header.magic != wire::kMagic || header.bytes > wire::kReplyBytesMax)
        return absl::InternalError(
            cat("the store at ", launch_.store, " sent a malformed message"));
      body.resize(header.bytes);
      status = handshake.read(body.data(), body.size());
    }
    if (absl::IsDeadlineExceeded(status))
      return absl::DeadlineExceededError(
          cat("the store at ", launch_.store, " did not let rank ", launch_.rank, " in within ",
              secondsText(secondsOf(bootstrapTimeout_)), ": its host looks frozen; ", kTimeToJoin));
    if (!status.ok())
      return absl::UnavailableError(cat(launch_.hostsStore ? "rank 0" : "the launcher",
                                        ", which hosts the store at ", launch_.store,
                                        ", went away before the group was complete"));
    switch (static_cast<Type>(header.type)) {
    case Type::kWelcome: {
      BAGUA_ASSIGN(impl_->roster, parseWelcome(body));
      return absl::OkStatus();
    }
    case Type::kRefused:
    case Type::kVerdict: {
      Status refused = wire::Reader(body).status();
      return refused.ok() ? absl::InternalError("the store refused without a reason") : refused;
    }
    case Type::kJoined:
      joined = true;
      if (!objection.ok())
        status = handshake.write(wire::Writer().status(objection).frame(Type::kPropose, 1));
      continue;
    default: // Pauses and goodbyes of a group that is not complete yet: nothing to us.
      continue;
    }
  }
}

Status RemoteGroup::join() {
  Clock::time_point deadline = Clock::now() + bootstrapTimeout_;
  if (launch_.hostsStore && launch_.rank == 0) {
    BAGUA_ASSIGN(net::HostPort address, net::parseHostPort(launch_.store, "the store's address"));
    if (address.port == 0)
      return absl::InvalidArgumentError(cat("the store's address ", launch_.store,
                                            " needs a port: ", launch_.world,
                                            " ranks cannot find one that is chosen freely"));
    impl_->server = StoreServer::adopt(launch_.store, address.port);
    if (!impl_->server) {
      StoreServer::Options options;
      options.port = address.port;
      options.loopbackOnly = address.host == "localhost" || address.host == "127.0.0.1";
      options.tick = std::clamp(liveness_.heartbeat / 2, milliseconds(10), milliseconds(100));
      SignalsBlocked blocked;
      BAGUA_ASSIGN(impl_->server, StoreServer::start(options));
    }
    impl_->server->configure(launch_.world, launch_.job, 0);
  }
  bool servesStore = impl_->server != nullptr;
  Status shortage =
      checkDescriptors(std::max(launch_.localSize - 1, 0), servesStore ? launch_.world : 0);
  net::Descriptor socket;
  for (bool joined = false; !joined;) {
    BAGUA_ASSIGN(socket, connect(deadline));
    Status greeted = greet(socket.get(), deadline, shortage, joined);
    // The store of a former group at this address may have been about to end.
    if (!joined && absl::IsUnavailable(greeted)) {
      std::this_thread::sleep_for(kRetryPause);
      continue;
    }
    BAGUA_TRY(std::move(greeted));
  }
  BAGUA_TRY(shortage);
  if (static_cast<int>(impl_->roster.peers.size()) != launch_.world)
    return absl::InternalError("the store's welcome is for another world");
  const std::string &here = impl_->roster.peers[launch_.rank].hostKey;
  int sameHost = 0;
  for (const PeerInfo &peer : impl_->roster.peers) {
    sameHost += peer.hostKey == here;
    nodes_ = std::max(nodes_, peer.node + 1);
  }
  localSize_ = launch_.localSize > 0 ? launch_.localSize : sameHost;
  setLogPrefix(cat("rank ", launch_.rank));

  asio::error_code error;
  impl_->socket.assign(net::localEndpoint(socket.get()).family() == AF_INET6 ? tcp::v6()
                                                                             : tcp::v4(),
                       socket.get(), error);
  if (error)
    return absl::InternalError(cat("cannot watch the store's connection: ", error.message()));
  socket.release();
  impl_->connected = true;
  impl_->running = true;
  impl_->ended.assign(static_cast<size_t>(launch_.world), false);
  impl_->presences = std::vector<std::atomic<Presence>>(static_cast<size_t>(launch_.world));
  // Where the peers are is known only now.
  shortage = checkDescriptors(sameHost - 1, 0);
  {
    SignalsBlocked blocked;
    impl_->thread = std::thread([this] { run(); });
  }
  return shortage.ok() ? shortage : condemn(shortage);
}

/// An error if this process has too few file descriptors left for `localPeers` and `clients`.
Status RemoteGroup::checkDescriptors(int localPeers, int clients) const {
  // A process handle and three shared files of each peer; what transports need for themselves.
  constexpr int kPerPeer = 4, kOwn = 8;
  int needed = kOwn + kPerPeer * localPeers + clients;
  DescriptorUse use = descriptorUse();
  if (use.open + needed <= use.limit)
    return absl::OkStatus();
  return absl::ResourceExhaustedError(cat("rank ", launch_.rank, " (host ", hostName(), ", pid ",
                                          ::getpid(), ") has too few file descriptors: it needs ",
                                          needed, " more for a group of ", launch_.world,
                                          " ranks; ", use.open, " are open and `ulimit -n` is ",
                                          use.limit, ": raise it to at least ", use.open + needed));
}

// ---- Requests, on any thread ----

StatusOr<std::string> RemoteGroup::call(Type type, const wire::Writer &body,
                                        std::optional<milliseconds> timeout) {
  if (fork_.inChild())
    return forked();
  BAGUA_TRY(verdict());
  auto pending = std::make_shared<Pending>();
  std::unique_lock lock(impl_->mutex);
  if (!impl_->running)
    return absl::FailedPreconditionError(cat("rank ", launch_.rank, " has left its group"));
  if (!impl_->gone.ok())
    return unshared(impl_->gone);
  if (std::this_thread::get_id() == impl_->thread.get_id())
    return absl::FailedPreconditionError("the monitor thread cannot ask the store");
  uint64_t request = ++impl_->lastRequest;
  impl_->pending[request] = pending;
  std::string frame = body.frame(type, request);
  if (frame.size() > wire::kFrameBytesMax) {
    impl_->pending.erase(request);
    return absl::InvalidArgumentError(
        cat("a message of ", frame.size(), " bytes is too large for the store"));
  }
  asio::post(impl_->io, [this, frame = std::move(frame)]() mutable { send(std::move(frame)); });
  auto done = [&] { return pending->done || !impl_->running; };
  bool inTime = true;
  if (timeout)
    inTime = impl_->changed.wait_for(lock, *timeout, done);
  else
    impl_->changed.wait(lock, done);
  impl_->pending.erase(request);
  if (pending->done) {
    BAGUA_TRY(std::move(pending->status));
    return std::move(pending->value);
  }
  if (inTime)
    return absl::FailedPreconditionError(cat("rank ", launch_.rank, " has left its group"));
  if (type == Type::kGet)
    asio::post(impl_->io,
               [this, request] { send(wire::Writer().number(request).frame(Type::kCancel)); });
  return absl::DeadlineExceededError(
      cat("the store at ", launch_.store, " did not answer within ", timeout->count(), " ms"));
}

void RemoteGroup::stop() {
  {
    std::lock_guard lock(impl_->mutex);
    impl_->running = false;
    impl_->changed.notify_all();
  }
  if (impl_->thread.joinable()) {
    impl_->io.stop();
    impl_->thread.join();
  }
  if (impl_->socket.is_open()) {
    forgetInChildren(impl_->socket.native_handle());
    asio::error_code ignored;
    impl_->socket.close(ignored);
  }
  if (impl_->server)
    StoreServer::retire(std::move(impl_->server));
}

// ---- The monitor thread ----

void RemoteGroup::run() {
  pthread_setname_np(pthread_self(), "bagua-monitor");
  try {
    impl_->lastTick = Clock::now();
    watchPeers();
    read();
    scheduleTick();
    impl_->io.run();
  } catch (const std::exception &error) {
    decide(absl::InternalError(cat("rank ", launch_.rank, "'s monitor ended: ", error.what())));
  }
  for (const auto &descriptor : impl_->watched)
    if (descriptor->is_open())
      forgetInChildren(descriptor->native_handle());
  impl_->watched.clear();
}

/// Whether the peer is another process, which is seen from here under its id.
bool RemoteGroup::canWatch(const PeerInfo &peer) const {
  return peer.rank != launch_.rank && peer.hostKey == hostKey() && peer.pid != ::getpid() &&
         impl_->roster.pidNamespaces[static_cast<size_t>(peer.rank)] == pidNamespace();
}

/// After the store's host has left, when a goodbye reaches nobody: whether a rank that seems to be
/// here has ended, even if the monitor thread has not come to notice it.
bool RemoteGroup::hasEndedUnheard(int rank) const {
  int host = impl_->roster.hostRank;
  if (host < 0 || isHere(host))
    return false;
  auto index = static_cast<size_t>(rank);
  const PeerInfo &peer = impl_->roster.peers[index];
  return canWatch(peer) && processHasEnded(peer.pid, impl_->roster.startTimes[index]);
}

void RemoteGroup::watchPeers() {
  for (const PeerInfo &peer : impl_->roster.peers) {
    int rank = peer.rank;
    if (!canWatch(peer))
      continue;
    net::Descriptor pidfd(static_cast<int>(::syscall(SYS_pidfd_open, peer.pid, 0)));
    // Without one, or with another process behind the id, the store's connection tells of a death.
    if (!pidfd || processStartTime(peer.pid) != impl_->roster.startTimes[rank])
      continue;
    auto watched = std::make_unique<asio::posix::stream_descriptor>(impl_->io);
    asio::error_code error;
    watched->assign(pidfd.get(), error);
    if (error)
      continue;
    pidfd.release();
    watched->async_wait(asio::posix::stream_descriptor::wait_read,
                        [this, rank](asio::error_code error) {
                          if (!error)
                            peerEnded(rank);
                        });
    impl_->watched.push_back(std::move(watched));
  }
}

void RemoteGroup::peerEnded(int rank) {
  impl_->ended[static_cast<size_t>(rank)] = true;
  if (!isHere(rank) || hasVerdict())
    return;
  if (rank == impl_->roster.hostRank)
    return; // Its connection closes as well; what it sent before its end is read first.
  if (impl_->connected)
    send(wire::Writer().number(static_cast<int32_t>(rank)).frame(Type::kReportDead));
  else // The store's host has left: a goodbye would have reached nobody.
    departed(rank, Presence::Ended);
}

void RemoteGroup::departed(int rank, Presence how) const {
  Presence here = Presence::Here;
  if (impl_->presences[static_cast<size_t>(rank)].compare_exchange_strong(here, how))
    impl_->departures.fetch_add(1, std::memory_order_release);
}

void RemoteGroup::read() {
  asio::async_read(
      impl_->socket, asio::buffer(&impl_->header, sizeof(impl_->header)),
      [this](asio::error_code error, size_t) {
        const wire::FrameHeader &header = impl_->header;
        if (error || header.magic != wire::kMagic || header.bytes > wire::kReplyBytesMax)
          return disconnected();
        impl_->body.resize(header.bytes);
        asio::async_read(
            impl_->socket, asio::buffer(impl_->body), [this](asio::error_code error, size_t) {
              if (error)
                return disconnected();
              handle(static_cast<Type>(impl_->header.type), impl_->header.request, impl_->body);
              read();
            });
      });
}

void RemoteGroup::handle(Type type, uint64_t request, std::string_view body) {
  impl_->silence = 0.0;
  impl_->warnedFrozen = false;
  wire::Reader reader(body);
  switch (type) {
  case Type::kReply: {
    Status status = reader.status();
    std::string_view value = reader.text();
    if (!reader.done())
      status = absl::InternalError("the store sent a malformed reply");
    std::lock_guard lock(impl_->mutex);
    auto found = impl_->pending.find(request);
    if (found == impl_->pending.end())
      return; // Nobody waits any more.
    found->second->status = std::move(status);
    found->second->value = value;
    found->second->done = true;
    impl_->changed.notify_all();
    return;
  }
  case Type::kVerdict: {
    Status verdict = reader.status();
    if (!verdict.ok())
      decide(verdict);
    return;
  }
  case Type::kPong:
    return;
  case Type::kHostPhase:
    impl_->hostPhase = reader.text();
    return;
  case Type::kPauses:
    impl_->groupPauses = reader.number<int32_t>();
    return;
  case Type::kLeft: {
    int32_t rank = reader.number<int32_t>();
    if (reader.done() && rank >= 0 && rank < launch_.world)
      departed(rank, Presence::SaidGoodbye);
    return;
  }
  default:
    return;
  }
}

void RemoteGroup::send(std::string frame) {
  if (!impl_->connected)
    return;
  impl_->out.push_back(std::move(frame));
  if (!impl_->writing)
    write();
}

void RemoteGroup::write() {
  while (!impl_->out.empty()) {
    std::string &frame = impl_->out.front();
    ssize_t sent = ::send(impl_->socket.native_handle(), frame.data() + impl_->outOffset,
                          frame.size() - impl_->outOffset, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EAGAIN)
        break;
      return; // The read side reports the loss.
    }
    impl_->outOffset += static_cast<size_t>(sent);
    if (impl_->outOffset < frame.size())
      break;
    impl_->out.pop_front();
    impl_->outOffset = 0;
  }
  impl_->writing = !impl_->out.empty();
  if (impl_->writing)
    impl_->socket.async_wait(tcp::socket::wait_write, [this](asio::error_code error) {
      if (!error && impl_->connected)
        write();
    });
}

void RemoteGroup::scheduleTick() {
  impl_->timer.expires_after(liveness_.heartbeat);
  impl_->timer.async_wait([this](asio::error_code error) {
    if (error)
      return;
    tick();
    scheduleTick();
  });
}

void RemoteGroup::tick() {
  Clock::time_point now = Clock::now();
  double seconds = std::chrono::duration<double>(now - impl_->lastTick).count();
  impl_->lastTick = now;
  if (!impl_->connected || hasVerdict())
    return;
  if (impl_->out.size() < kHeartbeatBacklogMax) {
    Activity activity = impl_->phase.read();
    send(wire::Writer()
             .number(activity.changes)
             .number(static_cast<uint8_t>(activity.waiting))
             .number(activity.seconds)
             .text(activity.phase)
             .frame(Type::kHeartbeat));
  }
  if (impl_->roster.hostRank == launch_.rank)
    return;
  // Time in which this process was stopped itself is nobody's fault.
  impl_->silence += std::min(seconds, 3 * secondsOf(liveness_.heartbeat));
  if (impl_->silence >= secondsOf(liveness_.warnFrozen) && !impl_->warnedFrozen) {
    impl_->warnedFrozen = true;
    logger("bootstrap")
        ->warn("{}, which hosts the store, has not answered for {}: it looks frozen",
               impl_->identifyHost(), secondsText(impl_->silence));
  }
  if (impl_->silence >= secondsOf(stepTimeout_)) {
    Status reason = absl::DeadlineExceededError(
        cat(impl_->identifyHost(),
            ", which hosts the store, is frozen: it did not answer within "
            "the step timeout of ",
            secondsText(secondsOf(stepTimeout_)),
            impl_->hostPhase.empty() ? "" : "; its last phase: ", impl_->hostPhase));
    send(wire::Writer().status(reason).frame(Type::kPropose)); // Should it ever wake up.
    decide(reason);
  }
}

void RemoteGroup::disconnected() {
  impl_->connected = false;
  int host = impl_->roster.hostRank;
  if (host >= 0 && !isHere(host)) {
    for (int rank = 0; rank < launch_.world; ++rank)
      if (impl_->ended[static_cast<size_t>(rank)]) // The report of it may have been lost.
        departed(rank, Presence::Ended);
    finish(absl::UnavailableError(
        cat(impl_->identifyHost(), ", which hosted the store, said goodbye and has ended")));
    return;
  }
  std::string phase = impl_->hostPhase.empty() ? "user code" : impl_->hostPhase;
  decide(absl::UnavailableError(
      cat(impl_->identifyHost(), " died (the connection to the store that it hosted closed)",
          host >= 0 ? "; its last phase: " : "", host >= 0 ? phase : "")));
}

void RemoteGroup::decide(const Status &verdict) {
  if (!left_)
    deliver(verdict);
  finish(verdict);
}

void RemoteGroup::finish(const Status &gone) {
  std::lock_guard lock(impl_->mutex);
  if (impl_->gone.ok())
    impl_->gone = unshared(gone);
  for (auto &[request, pending] : impl_->pending) {
    if (pending->done)
      continue;
    pending->status = unshared(gone);
    pending->done = true;
  }
  impl_->changed.notify_all();
}

} // namespace

StatusOr<std::unique_ptr<Group>> createRemoteGroup(const Group::Options &options) {
  LaunchRequest request{options.rank, options.world, options.localRank, options.localSize,
                        options.store};
  const Environment environment = processEnvironment();
  BAGUA_TRY(checkEnvironment(environment));
  BAGUA_ASSIGN(Launch launch, resolveLaunch(request, environment));
  BAGUA_ASSIGN(milliseconds bootstrap,
               timeoutOr(options.bootstrapTimeout, "BAGUA_BOOTSTRAP_TIMEOUT_MS", kTimeoutDefault));
  BAGUA_ASSIGN(milliseconds step,
               timeoutOr(options.stepTimeout, "BAGUA_STEP_TIMEOUT_MS", kTimeoutDefault));
  const Group::Liveness &liveness = options.liveness;
  if (liveness.heartbeat.count() <= 0 || liveness.warnFrozen.count() <= 0 ||
      liveness.warnWaiting.count() <= 0)
    return absl::InvalidArgumentError("the times of Group::Liveness are positive");
  if (launch.rank == 0) {
    logger("bootstrap")->info("world {} from {}", launch.world, launch.source);
    for (const std::string &note : launch.notes)
      logger("bootstrap")->warn("{}", note);
  }
  if (launch.world == 1) { // Nobody to talk to: no store, no monitor.
    Group::Options alone = options;
    alone.rank = 0;
    alone.world = 1;
    alone.localStore = makeLocalStore();
    return createLocalGroup(alone, launch.source);
  }
  try {
    auto group = std::make_unique<RemoteGroup>(launch, options, bootstrap, step);
    BAGUA_TRY(group->join());
    return std::unique_ptr<Group>(std::move(group));
  } catch (const std::system_error &error) { // From asio.
    if (error.code().value() != EMFILE && error.code().value() != ENFILE)
      return absl::InternalError(cat("rank ", launch.rank, " cannot join: ", error.what()));
    return absl::ResourceExhaustedError(cat("rank ", launch.rank,
                                            " has too few file descriptors to join: ", error.what(),
                                            " (`ulimit -n` is ", descriptorUse().limit, ")"));
  }
}

} // namespace bagua::rt
