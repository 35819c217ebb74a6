// The group's store over TCP: lives in rank 0 or in the launcher.
#include "StoreServer.h"
#include "Fork.h"
#include "GroupBase.h"
#include "Host.h"
#include "Net.h"
#include "Protocol.h"
#include "Session.h"
#include "Text.h"
#include "bagua/Bootstrap.h"
#include "bagua/Log.h"

#include <asio.hpp>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <unistd.h>

namespace bagua::rt {
namespace {

using asio::ip::tcp;
using wire::Type;
using Clock = std::chrono::steady_clock;

constexpr size_t kStrangersMax = 65536;                ///< Connections that have not joined.
constexpr std::chrono::milliseconds kAcceptPause{100}; ///< When descriptors have run out.
constexpr double kHelloSeconds = 10.0;                 ///< Their patience.
constexpr int kRefusalsLoggedMax = 8;
constexpr int kWorldMax = 1 << 16;
constexpr int32_t kPauseStepMax = 1 << 20;

/// Text from outside that will stand in messages.
std::string printable(std::string_view text) {
  std::string result(text.substr(0, 256));
  for (char &c : result)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      c = '?';
  return result;
}

struct Hello {
  uint32_t version = 0;
  std::string job;
  int world = 0;
  PeerInfo info;
  uint64_t pidNamespace = 0, startTime = 0;
  Session::Limits limits;
};

std::optional<Hello> parseHello(std::string_view body) {
  wire::Reader reader(body);
  Hello hello;
  hello.version = reader.number<uint32_t>();
  if (hello.version != wire::kVersion)
    return reader.ok() ? std::optional(hello) : std::nullopt; // The rest may look different.
  hello.job = printable(reader.text());
  hello.world = reader.number<int32_t>();
  hello.info.rank = reader.number<int32_t>();
  hello.info.localRank = reader.number<int32_t>();
  hello.info.localSize = reader.number<int32_t>();
  hello.info.host = printable(reader.text());
  hello.info.pid = reader.number<int64_t>();
  hello.info.hostKey = printable(reader.text());
  hello.info.address = printable(reader.text());
  hello.pidNamespace = reader.number<uint64_t>();
  hello.startTime = reader.number<uint64_t>();
  for (double *limit : {&hello.limits.stepTimeout, &hello.limits.bootstrapTimeout,
                        &hello.limits.warnFrozen, &hello.limits.warnWaiting}) {
    *limit = reader.number<double>();
    if (!(*limit > 0.0)) // Also NaN.
      return std::nullopt;
  }
  return reader.done() ? std::optional(std::move(hello)) : std::nullopt;
}

} // namespace

struct StoreServer::Impl {
  struct Connection : std::enable_shared_from_this<Connection> {
    explicit Connection(asio::io_context &io) : socket(io) {}
    tcp::socket socket;
    net::Endpoint local, peer; ///< Both ends as this side sees them.
    wire::FrameHeader header;
    std::string body;
    std::deque<std::string> out;
    size_t outOffset = 0; ///< Of the front frame: sent already.
    bool writing = false, closeAfterWrite = false, closed = false;
    double age = 0.0;
    std::optional<Hello> hello; ///< Parked or joined.
    int rank = -1;              ///< Joined: its rank.
    bool left = false;
  };
  using ConnectionPtr = std::shared_ptr<Connection>;
  struct Waiter {
    ConnectionPtr connection;
    uint64_t request;
  };

  explicit Impl(const Options &chosen)
      : options(chosen), acceptor(io), timer(io), acceptTimer(io), work(asio::make_work_guard(io)) {
  }

  Options options;
  asio::io_context io{1};
  tcp::acceptor acceptor;
  asio::steady_timer timer, acceptTimer;
  asio::executor_work_guard<asio::io_context::executor_type> work;
  std::thread thread;
  std::mutex retirement;
  bool retired = false; ///< Guarded by retirement: goes on only for clients that are still there.
  bool idle = false;    ///< Guarded by retirement: none are, the thread ends.
  uint16_t port = 0;
  std::atomic<int> culprit{-1};
  ForkGuard fork;

  // The server thread's own.
  std::set<ConnectionPtr> connections;
  std::unique_ptr<Session> session;
  std::vector<ConnectionPtr> members; ///< By rank; of the session.
  std::vector<ConnectionPtr> parked;  ///< Said hello too early.
  std::multimap<std::string, Waiter, std::less<>> gets;
  std::map<Gather *, std::pair<std::shared_ptr<Gather>, std::vector<Waiter>>> gathers;
  bool welcomed = false, verdictSent = false;
  /// Verdicts of sessions that were over before these ranks came: they must hear of it, not wait
  /// for peers who have given up.
  std::map<int, Status> verdicts;
  std::set<int> informed; ///< Ranks that came late, but heard the session's verdict.
  bool warnedExhausted = false;
  int refusals = 0;
  /// Processes that are gone, by rank, and whether a tick has passed. What they said before their
  /// end (a goodbye, a verdict) may still be on its way, so their connection's own end is waited
  /// for a little.
  std::map<int, std::pair<std::string, bool>> suspects;
  std::vector<std::pair<int, std::string>> ended; ///< Says the launcher: in order, rank and how.
  Clock::time_point lastTick = Clock::now();

  // ---- Connections ----

  void accept() {
    acceptor.async_wait(tcp::acceptor::wait_read, [this](asio::error_code error) {
      if (error)
        return;
      for (;;) {
        // Not asio's accept: it has no close-on-exec.
        net::Descriptor accepted(
            ::accept4(acceptor.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (accepted)
          admit(std::move(accepted));
        else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
          return acceptLater(); // The connection stays in the backlog: to ask at once would spin.
        else if (errno != ECONNABORTED && errno != EINTR)
          break;
      }
      accept();
    });
  }

  void acceptLater() {
    if (!std::exchange(warnedExhausted, true))
      logger("bootstrap")
          ->warn("the store cannot accept connections now: {}", std::strerror(errno));
    acceptTimer.expires_after(kAcceptPause);
    acceptTimer.async_wait([this](asio::error_code error) {
      if (!error)
        accept();
    });
  }

  void admit(net::Descriptor accepted) {
    size_t strangers = 0;
    for (const ConnectionPtr &connection : connections)
      strangers += connection->rank < 0;
    if (strangers >= kStrangersMax)
      return; // Closed by its destructor.
    int on = 1;
    ::setsockopt(accepted.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    auto connection = std::make_shared<Connection>(io);
    connection->local = net::localEndpoint(accepted.get());
    connection->peer = net::peerEndpoint(accepted.get());
    asio::error_code error;
    int family = connection->local.family();
    connection->socket.assign(family == AF_INET6 ? tcp::v6() : tcp::v4(), accepted.get(), error);
    if (error)
      return;
    accepted.release();
    connections.insert(connection);
    send(connection, std::string(wire::kBanner));
    read(connection);
  }

  void read(const ConnectionPtr &connection) {
    asio::async_read(
        connection->socket, asio::buffer(&connection->header, sizeof(connection->header)),
        [this, connection](asio::error_code error, size_t) {
          if (error)
            return lost(connection, error.message());
          const wire::FrameHeader &header = connection->header;
          size_t limit = connection->rank >= 0 ? wire::kFrameBytesMax : wire::kHelloBytesMax;
          if (header.magic != wire::kMagic || header.bytes > limit)
            return lost(connection, "it does not speak the store's protocol");
          connection->body.resize(header.bytes);
          asio::async_read(connection->socket, asio::buffer(connection->body),
                           [this, connection](asio::error_code error, size_t) {
                             if (error)
                               return lost(connection, error.message());
                             if (!handle(connection))
                               return lost(connection, "it sent a malformed message");
                             if (!connection->closed)
                               read(connection);
                           });
        });
  }

  void send(const ConnectionPtr &connection, std::string frame) {
    if (connection->closed || connection->closeAfterWrite)
      return;
    connection->out.push_back(std::move(frame));
    if (!connection->writing)
      write(connection);
  }

  void write(const ConnectionPtr &connection) {
    // The first try at once: a verdict must have left this process before anyone here acts on it.
    while (!connection->out.empty()) {
      std::string &frame = connection->out.front();
      ssize_t sent =
          ::send(connection->socket.native_handle(), frame.data() + connection->outOffset,
                 frame.size() - connection->outOffset, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0) {
        if (errno == EAGAIN || errno == EWOULDBLOCK)
          break;
        return; // The read side reports the loss.
      }
      connection->outOffset += static_cast<size_t>(sent);
      if (connection->outOffset < frame.size())
        break;
      connection->out.pop_front();
      connection->outOffset = 0;
    }
    connection->writing = !connection->out.empty();
    if (!connection->writing) {
      if (connection->closeAfterWrite)
        ::shutdown(connection->socket.native_handle(), SHUT_WR);
      return;
    }
    connection->socket.async_wait(tcp::socket::wait_write,
                                  [this, connection](asio::error_code error) {
                                    if (!error && !connection->closed)
                                      write(connection);
                                  });
  }

  void reply(const Waiter &waiter, const Status &status, std::string_view value) {
    send(waiter.connection,
         wire::Writer().status(status).text(value).frame(Type::kReply, waiter.request));
  }

  /// The rank in this process comes last: on a verdict it may exit before the others have theirs.
  void broadcast(const std::string &frame) {
    for (bool own : {false, true})
      for (size_t rank = 0; rank < members.size(); ++rank)
        if (members[rank] && (static_cast<int>(rank) == options.hostRank) == own)
          send(members[rank], frame);
  }

  void close(const ConnectionPtr &connection) {
    if (connection->closed)
      return;
    connection->closed = true;
    forgetInChildren(connection->socket.native_handle());
    asio::error_code ignored;
    connection->socket.close(ignored);
    connections.erase(connection);
    std::erase(parked, connection);
    std::erase_if(gets, [&](const auto &entry) { return entry.second.connection == connection; });
  }

  void lost(const ConnectionPtr &connection, const std::string &why) {
    if (connection->closed)
      return;
    int rank = connection->rank;
    close(connection);
    if (rank < 0) {
      logger("bootstrap")
          ->debug("store: a connection from {} ended before it joined: {}", connection->peer.ip(),
                  why);
      return;
    }
    members[rank] = nullptr;
    auto suspect = suspects.find(rank);
    if (!connection->left)
      session->dead(rank, suspect == suspects.end() ? "its connection to the store closed"
                                                    : suspect->second.first);
    suspects.erase(rank);
    settle();
  }

  // ---- Messages ----

  /// False if the message is malformed.
  bool handle(const ConnectionPtr &connection) {
    auto type = static_cast<Type>(connection->header.type);
    if (connection->rank < 0) {
      if (connection->hello || connection->closeAfterWrite)
        return true; // Parked or refused: nothing it says counts.
      if (type != Type::kHello)
        return false;
      std::optional<Hello> hello = parseHello(connection->body);
      if (!hello)
        return false;
      connection->hello = std::move(hello);
      consider(connection);
      settle();
      return true;
    }
    bool understood = handleMember(connection, type);
    settle();
    return understood;
  }

  bool handleMember(const ConnectionPtr &connection, Type type) {
    wire::Reader reader(connection->body);
    Waiter waiter{connection, connection->header.request};
    int rank = connection->rank;
    switch (type) {
    case Type::kHeartbeat: {
      Activity activity;
      activity.changes = reader.number<uint64_t>();
      activity.waiting = reader.number<uint8_t>() != 0;
      activity.seconds = reader.number<double>();
      activity.phase = reader.text().substr(0, Phase::kBytesMax);
      if (!reader.done())
        return false;
      bool changed = activity.changes != session->member(rank).activity.changes;
      session->heartbeat(rank, std::move(activity));
      send(connection, wire::Writer().frame(Type::kPong));
      // When this process dies nobody else can tell what it did last: all know it, and the same.
      if (rank == options.hostRank && changed)
        broadcast(
            wire::Writer().text(session->member(rank).activity.phase).frame(Type::kHostPhase));
      return true;
    }
    case Type::kSet: {
      std::string_view key = reader.text(), value = reader.text();
      if (!reader.done())
        return false;
      Status status = session->table().set(key, value);
      reply(waiter, status, "");
      if (status.ok())
        answerGets(key);
      return true;
    }
    case Type::kGet: {
      std::string_view key = reader.text();
      if (!reader.done())
        return false;
      if (const std::string *value = session->table().find(key))
        reply(waiter, absl::OkStatus(), *value);
      else
        gets.emplace(std::string(key), waiter);
      return true;
    }
    case Type::kCancel: {
      uint64_t request = reader.number<uint64_t>();
      std::erase_if(gets, [&](const auto &entry) {
        return entry.second.connection == connection && entry.second.request == request;
      });
      return reader.done();
    }
    case Type::kAdd: {
      std::string_view key = reader.text();
      int64_t delta = reader.number<int64_t>();
      if (!reader.done())
        return false;
      StatusOr<int64_t> sum = session->table().add(key, delta);
      reply(waiter, sum.status(), sum.ok() ? std::to_string(*sum) : "");
      if (sum.ok())
        answerGets(key);
      return true;
    }
    case Type::kErase: {
      std::string_view prefix = reader.text();
      if (!reader.done())
        return false;
      session->table().erase(prefix);
      reply(waiter, absl::OkStatus(), "");
      return true;
    }
    case Type::kGather: {
      std::string_view what = reader.text(), value = reader.text();
      if (!reader.done())
        return false;
      gather(waiter, what, value);
      return true;
    }
    case Type::kPause: {
      int32_t delta = reader.number<int32_t>();
      if (!reader.done() || delta < -kPauseStepMax || delta > kPauseStepMax)
        return false;
      session->pause(rank, delta);
      reply(waiter, absl::OkStatus(), "");
      return true;
    }
    case Type::kPropose: {
      Status reason = reader.status();
      if (!reader.done())
        return false;
      session->condemn(reason);
      settle(); // The verdict goes to all before the proposer can act on it.
      reply(waiter, absl::OkStatus(), "");
      return true;
    }
    case Type::kReportDead: {
      int32_t other = reader.number<int32_t>();
      if (!reader.done() || other < 0 || other >= session->world())
        return false;
      suspects.try_emplace(other, "its process ended", false);
      return true;
    }
    case Type::kDescribe: {
      int32_t other = reader.number<int32_t>();
      if (!reader.done())
        return false;
      reply(waiter, absl::OkStatus(), session->describe(other));
      return true;
    }
    case Type::kGoodbye:
      connection->left = true;
      session->leave(rank);
      broadcast(wire::Writer().number(static_cast<int32_t>(rank)).frame(Type::kLeft));
      reply(waiter, absl::OkStatus(), "");
      return reader.done();
    default:
      return false;
    }
  }

  void answerGets(std::string_view key) {
    const std::string *value = session->table().find(key);
    auto [begin, end] = gets.equal_range(key);
    for (auto it = begin; it != end; ++it)
      reply(it->second, absl::OkStatus(), *value);
    gets.erase(begin, end);
  }

  void gather(const Waiter &waiter, std::string_view what, std::string_view value) {
    StatusOr<std::shared_ptr<Gather>> entered =
        session->contribute(what, waiter.connection->rank, value);
    if (!entered.ok())
      return reply(waiter, entered.status(), "");
    Gather *key = entered->get();
    auto &[kept, waiters] = gathers[key];
    kept = *entered;
    waiters.push_back(waiter);
    if (!kept->complete())
      return;
    size_t total = 0;
    wire::Writer values;
    for (const std::optional<std::string> &one : kept->values)
      total += one->size() + sizeof(uint32_t);
    Status status;
    if (total > wire::kReplyBytesMax - wire::kFrameBytesMax)
      status = absl::ResourceExhaustedError(
          cat("exchange '", what, "' has ", total, " bytes in all, too many for the store"));
    else
      for (const std::optional<std::string> &one : kept->values)
        values.text(*one);
    std::string body = values.frame(Type::kReply).substr(sizeof(wire::FrameHeader));
    for (const Waiter &one : waiters)
      reply(one, status, body);
    gathers.erase(key);
  }

  // ---- Joining ----

  void refuse(const ConnectionPtr &connection, const Status &reason) {
    // A stranger must not fill the log.
    auto level = ++refusals <= kRefusalsLoggedMax ? spdlog::level::warn : spdlog::level::debug;
    logger("bootstrap")
        ->log(level, "store: refused a connection from {}: {}", connection->peer.ip(),
              std::string(reason.message()));
    send(connection, wire::Writer().status(reason).frame(Type::kRefused));
    connection->closeAfterWrite = true;
    if (!connection->writing)
      ::shutdown(connection->socket.native_handle(), SHUT_WR);
  }

  /// Lets a client in, parks it for the next session, or refuses it.
  void consider(const ConnectionPtr &connection) {
    const Hello &hello = *connection->hello;
    if (hello.version != wire::kVersion)
      return refuse(connection, absl::AbortedError(cat("the store speaks version ", wire::kVersion,
                                                       " of its protocol, this rank version ",
                                                       hello.version, ": two builds of Bagua")));
    if (options.world <= 0) {
      parked.push_back(connection);
      return;
    }
    std::string who = cat("rank ", hello.info.rank, " of ", hello.world, " (host ", hello.info.host,
                          ", pid ", hello.info.pid, ")");
    if (hello.job != options.job)
      return refuse(connection, absl::AbortedError(
                                    cat("the store belongs to another job: it serves '",
                                        options.job, "', ", who, " belongs to '", hello.job, "'")));
    if (session && session->over())
      endSession();
    if (auto missed = verdicts.find(hello.info.rank); missed != verdicts.end()) {
      Status verdict = missed->second;
      verdicts.erase(missed);
      return refuse(connection, verdict);
    }
    if (!session) {
      session = std::make_unique<Session>(options.world, options.job);
      members.assign(static_cast<size_t>(options.world), nullptr);
      welcomed = verdictSent = false;
    }
    int rank = hello.info.rank;
    bool inWorld = hello.world == options.world && rank >= 0 && rank < options.world;
    if (inWorld && session->member(rank).joined &&
        (session->member(rank).left || session->member(rank).dead)) {
      parked.push_back(connection);
      return;
    }
    if (session->hasVerdict()) {
      informed.insert(rank);
      return refuse(connection, session->verdict());
    }
    Status joined = session->join(hello.world, hello.info, hello.limits);
    if (!joined.ok()) {
      session->noteRefusal(cat(who, " from ", connection->peer.ip(), ": ",
                               std::string_view(joined.message().data(), joined.message().size())));
      // Surely of this job, then: nobody need wait for a timeout.
      if (!options.job.empty())
        session->condemn(joined);
      return refuse(connection, joined);
    }
    connection->rank = rank;
    members[rank] = connection;
    logger("bootstrap")->debug("store: rank {} has joined from {}", rank, connection->peer.ip());
    if (serves())
      send(connection, wire::Writer().frame(Type::kJoined));
    missEnded();
  }

  /// Not left over from a former group.
  bool serves() {
    std::lock_guard lock(retirement);
    return !retired;
  }

  void missEnded() {
    for (const auto &[rank, how] : ended)
      if (session && !session->complete())
        session->neverJoins(rank, how);
  }

  void endSession() {
    for (int rank = 0; session->hasVerdict() && rank < session->world(); ++rank)
      if (!session->member(rank).joined && !informed.contains(rank))
        verdicts.emplace(rank, session->verdict());
    informed.clear();
    for (const ConnectionPtr &member : members)
      if (member)
        close(member);
    session.reset();
    members.clear();
    suspects.clear();
    gets.clear();
    gathers.clear();
  }

  /// A rank on the store's own host came over the loopback interface: the others reach it at the
  /// address at which they reach the store.
  void advertise(std::vector<PeerInfo> &peers) const {
    std::string outside;
    for (const ConnectionPtr &member : members)
      if (member && !member->local.loopback() && !member->peer.loopback()) {
        outside = member->local.ip();
        if (member->peer.ip() != outside)
          break;
      }
    if (outside.empty())
      return;
    std::string here = hostKey();
    for (PeerInfo &peer : peers)
      if (peer.hostKey == here && (peer.address.starts_with("127.") || peer.address == "::1"))
        peer.address = outside;
  }

  void welcome() {
    if (Status placed = session->settle(); !placed.ok()) {
      session->condemn(placed);
      return;
    }
    std::vector<PeerInfo> peers;
    for (int rank = 0; rank < session->world(); ++rank)
      peers.push_back(session->member(rank).info);
    advertise(peers);
    wire::Writer writer;
    writer.number(static_cast<int32_t>(options.hostRank));
    writer.text(hostName()).text(hostKey());
    writer.number(static_cast<int64_t>(::getpid()));
    writer.number(static_cast<int32_t>(peers.size()));
    for (int rank = 0; rank < session->world(); ++rank) {
      const PeerInfo &peer = peers[rank];
      const Hello &hello = *members[rank]->hello;
      writer.number(static_cast<int32_t>(peer.localRank)).number(static_cast<int32_t>(peer.node));
      writer.text(peer.host).number(peer.pid).text(peer.hostKey).text(peer.address);
      writer.number(hello.pidNamespace).number(hello.startTime);
    }
    broadcast(writer.frame(Type::kWelcome));
    welcomed = true;
  }

  int pausesSent = 0;

  /// After every change: tells the ranks what they must know.
  void settle() {
    if (!session)
      return;
    if (culprit < 0)
      culprit = session->culprit();
    if (session->complete() && !welcomed && !session->hasVerdict())
      welcome();
    if (session->hasVerdict() && !verdictSent) {
      verdictSent = true;
      broadcast(wire::Writer().status(session->verdict()).frame(Type::kVerdict));
      gets.clear();
      gathers.clear();
    }
    if (session->pauses() != pausesSent) {
      pausesSent = session->pauses();
      broadcast(wire::Writer().number(static_cast<int32_t>(pausesSent)).frame(Type::kPauses));
    }
    if (session->over() && !parked.empty()) {
      std::vector<ConnectionPtr> again = std::move(parked);
      parked.clear();
      for (const ConnectionPtr &connection : again)
        if (!connection->closed)
          consider(connection);
      settle();
    }
  }

  // ---- Time ----

  void schedule() {
    timer.expires_after(options.tick);
    timer.async_wait([this](asio::error_code error) {
      if (error)
        return;
      Clock::time_point now = Clock::now();
      double seconds = std::chrono::duration<double>(now - lastTick).count();
      lastTick = now;
      // Time in which this process was stopped is nobody's fault.
      tick(std::min(seconds, 5 * std::chrono::duration<double>(options.tick).count()));
      schedule();
    });
  }

  void tick(double seconds) {
    std::vector<ConnectionPtr> tired;
    for (const ConnectionPtr &connection : connections)
      if (connection->rank < 0 && (!connection->hello || connection->closeAfterWrite) &&
          (connection->age += seconds) > kHelloSeconds)
        tired.push_back(connection);
    for (const ConnectionPtr &connection : tired)
      lost(connection, "it said nothing");
    if (session) {
      for (auto it = suspects.begin(); it != suspects.end();) {
        auto &[how, waited] = it->second;
        if (std::exchange(waited, true)) {
          session->dead(it->first, how);
          it = suspects.erase(it);
        } else {
          ++it;
        }
      }
      std::vector<std::string> warnings;
      session->tick(seconds, warnings);
      for (const std::string &warning : warnings)
        logger("bootstrap")->warn("{}", warning);
      settle();
    }
    std::lock_guard lock(retirement);
    if (!retired)
      return;
    if (session && session->over())
      endSession();
    if (!session && verdicts.empty()) { // Nobody is here, nobody is missed.
      idle = true;
      io.stop();
    }
  }

  void run() {
    try {
      accept();
      schedule();
      io.run();
    } catch (const std::exception &error) {
      logger("bootstrap")->error("the store ends: {}", error.what());
    }
    for (const ConnectionPtr &connection : std::set<ConnectionPtr>(connections))
      close(connection);
    forgetInChildren(acceptor.native_handle());
    asio::error_code ignored;
    acceptor.close(ignored);
  }
};

StatusOr<std::unique_ptr<StoreServer>> StoreServer::start(const Options &options) {
  if (options.world > kWorldMax)
    return absl::InvalidArgumentError(cat("a world of ", options.world, " ranks is too large"));
  BAGUA_ASSIGN(net::Descriptor listener, net::listenOn(options.port, options.loopbackOnly));
  auto impl = std::make_unique<Impl>(options);
  net::Endpoint local = net::localEndpoint(listener.get());
  impl->port = local.port();
  asio::error_code error;
  impl->acceptor.assign(local.family() == AF_INET6 ? tcp::v6() : tcp::v4(), listener.get(), error);
  if (error)
    return absl::InternalError(cat("cannot watch the store's socket: ", error.message()));
  listener.release();
  Impl *running = impl.get();
  impl->thread = std::thread([running] { running->run(); });
  return std::unique_ptr<StoreServer>(new StoreServer(std::move(impl)));
}

StoreServer::StoreServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

StoreServer::~StoreServer() {
  if (!impl_)
    return;
  if (impl_->fork.inChild()) { // The thread is the parent's; nothing here may be touched.
    (void)impl_.release();
    return;
  }
  impl_->io.stop();
  impl_->thread.join();
}

uint16_t StoreServer::port() const { return impl_->port; }

void StoreServer::configure(int world, const std::string &job, int hostRank) {
  asio::post(impl_->io, [impl = impl_.get(), world, job, hostRank] {
    impl->options.world = world;
    impl->options.job = job;
    impl->options.hostRank = hostRank;
    // Those that came to the former group's store.
    if (impl->session && !impl->session->complete())
      impl->broadcast(wire::Writer().frame(Type::kJoined));
    std::vector<Impl::ConnectionPtr> again = std::move(impl->parked);
    impl->parked.clear();
    for (const Impl::ConnectionPtr &connection : again)
      if (!connection->closed)
        impl->consider(connection);
    impl->settle();
  });
}

void StoreServer::rankEnded(int rank, const std::string &how) {
  asio::post(impl_->io, [impl = impl_.get(), rank, how] {
    if (rank < 0 || rank >= impl->options.world)
      return;
    impl->ended.emplace_back(rank, how);
    if (impl->session && impl->session->member(rank).joined)
      impl->suspects[rank] = {how, false};
    impl->missEnded();
    impl->settle();
  });
}

int StoreServer::culprit() const { return impl_->culprit; }

void StoreServer::condemn(const Status &reason) {
  asio::post(impl_->io, [impl = impl_.get(), reason = unshared(reason)] {
    if (!impl->session)
      return;
    impl->session->condemn(reason);
    impl->settle();
  });
}

/// Servers that outlive their group, and those of listenStore() that wait for theirs.
struct StoreServer::Registry {
  std::mutex mutex;
  std::vector<std::unique_ptr<StoreServer>> retired;             // guarded by mutex
  std::map<std::string, std::unique_ptr<StoreServer>> byAddress; // guarded by mutex
  ForkGuard fork;
};

/// Never destroyed; its servers end at exit, before anything they use is gone.
StoreServer::Registry &StoreServer::registry() {
  static Registry *instance = [] {
    auto *made = new Registry;
    std::atexit([] {
      Registry &all = registry();
      if (all.fork.inChild())
        return;
      std::lock_guard lock(all.mutex);
      all.retired.clear();
      all.byAddress.clear();
    });
    return made;
  }();
  return *instance;
}

void StoreServer::park(const std::string &address, std::unique_ptr<StoreServer> server) {
  Registry &all = registry();
  std::lock_guard lock(all.mutex);
  all.byAddress[address] = std::move(server);
}

void StoreServer::retire(std::unique_ptr<StoreServer> server) {
  Registry &all = registry();
  if (all.fork.inChild() || server->impl_->fork.inChild()) {
    (void)server.release();
    return;
  }
  std::lock_guard lock(all.mutex);
  {
    std::lock_guard retirement(server->impl_->retirement);
    server->impl_->retired = true;
  }
  std::erase_if(all.retired, [](const auto &one) {
    std::lock_guard retirement(one->impl_->retirement);
    return one->impl_->idle;
  });
  all.retired.push_back(std::move(server));
}

std::unique_ptr<StoreServer> StoreServer::adopt(const std::string &address, uint16_t port) {
  Registry &all = registry();
  std::lock_guard lock(all.mutex);
  for (auto it = all.retired.begin(); it != all.retired.end(); ++it) {
    if ((*it)->port() != port)
      continue;
    std::unique_ptr<StoreServer> server = std::move(*it);
    all.retired.erase(it);
    std::lock_guard retirement(server->impl_->retirement);
    if (server->impl_->idle)
      break; // Its port is free as soon as it is destroyed.
    server->impl_->retired = false;
    return server;
  }
  auto found = all.byAddress.find(address);
  if (found == all.byAddress.end())
    return nullptr;
  std::unique_ptr<StoreServer> server = std::move(found->second);
  all.byAddress.erase(found);
  return server;
}

StatusOr<std::string> listenStore(const std::string &towards) {
  std::string host = "127.0.0.1";
  bool loopback = true;
  if (!towards.empty() && towards != "localhost") {
    BAGUA_ASSIGN(std::vector<net::Endpoint> endpoints, net::resolve({towards, 0}));
    const net::Endpoint &first = endpoints.front();
    if (net::isLocalAddress(first)) {
      // The others reach this host by the same name, even where it resolves to loopback here.
      host = towards;
      loopback = first.loopback() && first.ip() == towards;
    } else {
      BAGUA_ASSIGN(host, net::sourceAddressTowards(first));
      loopback = false;
    }
  }
  StoreServer::Options options;
  options.loopbackOnly = loopback;
  BAGUA_ASSIGN(std::unique_ptr<StoreServer> server, StoreServer::start(options));
  std::string address = net::HostPort{host, server->port()}.text();
  StoreServer::park(address, std::move(server));
  return address;
}

} // namespace bagua::rt
