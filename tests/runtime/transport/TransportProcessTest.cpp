// Transports between real processes: exchange, death of a peer, forked children, network
// namespaces.
#include "HostsGroup.h"
#include "RankGroup.h"
#include "bagua/Transports.h"

#include "absl/strings/str_cat.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace bagua::rt {
namespace {

using namespace std::chrono_literals;
using bagua::test::exitCodeFor;
using bagua::test::freePort;
using bagua::test::RankContext;
using bagua::test::RankGroup;
using bagua::test::spawn;
using bagua::test::SpawnOptions;
using testing::ContainsRegex;
using testing::HasSubstr;

struct Member {
  std::unique_ptr<Group> group;
  std::shared_ptr<Doorbell> doorbell;
  std::unique_ptr<Transport> transport;
  ~Member() {
    transport.reset();
    if (group)
      group->leave();
  }
};

StatusOr<std::unique_ptr<Group>> join(const RankContext &context) {
  Group::Options options;
  options.rank = context.rank();
  options.world = context.world();
  options.store = context.store();
  options.bootstrapTimeout = 20s;
  options.stepTimeout = 20s;
  BAGUA_ASSIGN(std::unique_ptr<Group> group, Group::create(options));
  int hosts = std::stoi(context.argument("hosts", "1"));
  if (hosts == 1)
    return group;
  std::vector<int> placed;
  for (int r = 0; r < context.world(); ++r)
    placed.push_back(r % hosts);
  return std::make_unique<test::HostsGroup>(std::move(group), placed);
}

StatusOr<std::unique_ptr<Member>> joinWithTransport(const RankContext &context) {
  auto member = std::make_unique<Member>();
  BAGUA_ASSIGN(member->group, join(context));
  BAGUA_ASSIGN(member->doorbell, makeSharedDoorbell());
  // What the engine does: a verdict wakes whoever waits.
  member->group->onVerdict([doorbell = member->doorbell](const Status &) { doorbell->ring(); });
  BAGUA_ASSIGN(member->transport,
               makeTransport(context.argument("transport"), *member->group, member->doorbell));
  return member;
}

constexpr size_t kBytes = 600'007;

/// One message to and from everyone; contents depend on `round`.
class AllToAll {
public:
  AllToAll(const RankContext &context, Member &member)
      : rank_(context.rank()), world_(context.world()), member_(member) {}
  Status open() {
    for (int p = 0; p < world_; ++p) {
      if (p == rank_)
        continue;
      auto peer = std::make_unique<Peer>();
      peer->rank = p;
      BAGUA_ASSIGN(peer->channel, member_.transport->openChannel(1, 0, p, kBytes, 1, 1));
      BAGUA_ASSIGN(peer->source, member_.transport->allocate(kBytes));
      peer->landing.resize(kBytes);
      peers_.push_back(std::move(peer));
    }
    return absl::OkStatus();
  }
  Status run(int round) {
    size_t bytes = round % 2 ? kBytes : 700;
    for (auto &peer : peers_) {
      std::memset(peer->source.bytes.data(), value(rank_, peer->rank, round), bytes);
      peer->send = {.data = peer->source.bytes.data(), .bytes = bytes};
      peer->recv = {.landing = peer->landing.data(), .bytes = bytes};
      peer->released = false;
      BAGUA_TRY(member_.transport->send(*peer->channel, peer->send));
      BAGUA_TRY(member_.transport->recv(*peer->channel, peer->recv));
    }
    while (true) {
      uint32_t seen = member_.doorbell->value();
      if (member_.group->hasVerdict()) {
        member_.transport->abort(member_.group->verdict());
        return member_.transport->poll().status();
      }
      BAGUA_ASSIGN(bool changed, member_.transport->poll());
      bool all = true;
      for (auto &peer : peers_) {
        if (peer->recv.arrived) {
          for (size_t i : {size_t{0}, bytes / 2, bytes - 1})
            if (peer->recv.view[i] != static_cast<std::byte>(value(peer->rank, rank_, round)))
              return absl::InternalError(
                  absl::StrCat("round ", round, ": wrong byte ", i, " from rank ", peer->rank));
          BAGUA_TRY(member_.transport->release(*peer->channel, peer->recv));
          peer->released = true;
        }
        all = all && peer->released && peer->send.sent;
      }
      if (all)
        return absl::OkStatus();
      if (!changed)
        member_.doorbell->wait(seen, 5s);
    }
  }

private:
  struct Peer {
    int rank;
    Channel *channel;
    Memory source;
    std::vector<std::byte> landing;
    SendOp send;
    RecvOp recv;
    bool released;
  };
  static uint8_t value(int source, int target, int round) {
    return static_cast<uint8_t>(source * 31 + target * 7 + round);
  }
  int rank_, world_;
  Member &member_;
  std::vector<std::unique_ptr<Peer>> peers_;
};

BAGUA_RANK_PROGRAM(exchange) {
  // Into a network namespace of its own, before any thread exists.
  if (std::string name = context.argument("namespaces"); !name.empty()) {
    int space =
        ::open(absl::StrCat("/run/netns/", name, context.rank()).c_str(), O_RDONLY | O_CLOEXEC);
    if (space < 0 || ::setns(space, CLONE_NEWNET) != 0 || ::unshare(CLONE_NEWNS) != 0)
      return 1;
    ::close(space);
    // UCX looks for devices in /sys, which shows the namespace it was mounted in.
    if (::mount("none", "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0 ||
        ::mount("sysfs", "/sys", "sysfs", 0, nullptr) != 0)
      return 1;
  }
  auto member = joinWithTransport(context);
  if (!member.ok())
    return exitCodeFor(member.status());
  std::cout << "transport " << (*member)->transport->name() << std::endl;
  AllToAll exchange(context, **member);
  if (Status status = exchange.open(); !status.ok())
    return exitCodeFor(status);
  if (context.argument("fork") == "yes") {
    // A data-loader worker that ends with its own copy of everything.
    StatusOr<Memory> memory = (*member)->transport->allocate(100'000);
    if (!memory.ok())
      return exitCodeFor(memory.status());
    std::memset(memory->bytes.data(), 5, 100'000);
    pid_t child = ::fork();
    if (child == 0) {
      memory->owner.reset();
      (*member)->transport.reset();
      ::_exit(0);
    }
    int status = -1;
    if (::waitpid(child, &status, 0) != child || status != 0)
      return 2;
    for (std::byte b : memory->bytes)
      if (b != std::byte{5})
        return 3;
  }
  for (int round = 0; round < 30; ++round)
    if (Status status = exchange.run(round); !status.ok())
      return exitCodeFor(status);
  // Nobody ends while others still exchange: a store that is gone cannot tell an end from a death.
  return exitCodeFor((*member)->group->allGather("done", "").status());
}

BAGUA_RANK_PROGRAM(exchange_forever) {
  auto member = joinWithTransport(context);
  if (!member.ok())
    return exitCodeFor(member.status());
  AllToAll exchange(context, **member);
  Status status = exchange.open();
  for (int round = 0; status.ok(); ++round) {
    status = exchange.run(round);
    if (round == 5)
      context.ready();
  }
  // A survivor that ends first is lost to the other, too: the transport only hints, the group's
  // verdict says who died.
  for (int i = 0; i < 500 && !(*member)->group->hasVerdict(); ++i)
    std::this_thread::sleep_for(10ms);
  std::cout << "ended with " << status << ", verdict " << (*member)->group->verdict() << std::endl;
  return exitCodeFor((*member)->group->verdict());
}

/// Rank 1 dies between joining and making its transport.
BAGUA_RANK_PROGRAM(dies_before_transport) {
  if (context.rank() == 1) {
    auto group = join(context);
    std::_Exit(group.ok() ? 0 : 1);
  }
  auto member = joinWithTransport(context);
  std::cout << "ended with " << member.status() << std::endl;
  return exitCodeFor(member.status());
}

struct Kind {
  const char *name, *transport, *hosts, *expected;
};
void PrintTo(const Kind &kind, std::ostream *out) { *out << kind.name; }

class TransportProcessTest : public testing::TestWithParam<Kind> {
protected:
  static SpawnOptions options(int world) {
    SpawnOptions options;
    options.worldSize = world;
    options.deadline = 60s;
    options.arguments = {{"transport", GetParam().transport}, {"hosts", GetParam().hosts}};
    return options;
  }
};

TEST_P(TransportProcessTest, EveryoneExchangesWithEveryone) {
  RankGroup ranks = spawn("exchange", options(4));
  for (int r = 0; r < 4; ++r) {
    EXPECT_EQ(ranks.exitCode(r), 0) << ranks.log(r);
    EXPECT_THAT(ranks.log(r), HasSubstr(absl::StrCat("transport ", GetParam().expected)));
  }
  std::ifstream sockets("/proc/net/unix");
  for (std::string line; std::getline(sockets, line);)
    for (int r = 0; r < 4; ++r)
      EXPECT_THAT(line, testing::Not(HasSubstr(absl::StrCat("@bagua-", ranks.pid(r), "-"))));
}

TEST_P(TransportProcessTest, ForkedChildrenHarmNobody) {
  SpawnOptions with = options(2);
  with.arguments["fork"] = "yes";
  RankGroup ranks = spawn("exchange", with);
  for (int r = 0; r < 2; ++r)
    EXPECT_EQ(ranks.exitCode(r), 0) << ranks.log(r);
}

TEST_P(TransportProcessTest, SurvivorsOfAKillEndWithTheRankThatDied) {
  RankGroup ranks = spawn("exchange_forever", options(3));
  ranks.waitReady();
  ranks.kill(1, SIGKILL);
  for (int r : {0, 2}) {
    EXPECT_EQ(ranks.exitCode(r), exitCodeFor(absl::StatusCode::kUnavailable)) << ranks.log(r);
    EXPECT_THAT(ranks.log(r),
                ContainsRegex("verdict UNAVAILABLE: rank 1 [(]host [^ ]+, pid [0-9]+[)] "));
  }
}

TEST_P(TransportProcessTest, DeathDuringSetUpIsNamed) {
  RankGroup ranks = spawn("dies_before_transport", options(3));
  for (int r : {0, 2}) {
    EXPECT_EQ(ranks.exitCode(r), exitCodeFor(absl::StatusCode::kUnavailable)) << ranks.log(r);
    EXPECT_THAT(ranks.log(r), HasSubstr("rank 1"));
  }
}

INSTANTIATE_TEST_SUITE_P(All, TransportProcessTest,
                         testing::Values(Kind{"Window", "window", "1", "window"},
                                         Kind{"Ucx", "ucx", "1", "ucx"},
                                         Kind{"AutoTwoHosts", "auto", "2", "auto"}),
                         [](const auto &info) { return info.param.name; });

/// Two network namespaces with a cable between them: 10.211.x.1 and .2.
class Namespaces {
public:
  Namespaces()
      : name_(absl::StrCat("bagua", ::getpid(), "-")),
        net_(absl::StrCat("10.211.", ::getpid() % 250, ".")) {
    usable_ = run("ip netns add " + name_ + "0") && run("ip netns add " + name_ + "1") &&
              run(absl::StrCat("ip link add bgv0 netns ", name_,
                               "0 type veth peer name bgv0 netns ", name_, "1"));
    for (int i = 0; usable_ && i < 2; ++i) {
      std::string ip = absl::StrCat("ip -n ", name_, i, " ");
      usable_ = run(absl::StrCat(ip, "addr add ", net_, i + 1, "/24 dev bgv0")) &&
                run(ip + "link set bgv0 up") && run(ip + "link set lo up");
    }
    // The kernel notices a carrier late, and UCX takes only running devices.
    auto deadline = std::chrono::steady_clock::now() + 10s;
    for (int i = 0; usable_ && i < 2; ++i)
      while (!run(absl::StrCat("ip -n ", name_, i, " link show bgv0 | grep -q 'state UP'"))) {
        usable_ = std::chrono::steady_clock::now() < deadline;
        if (!usable_)
          break;
      }
  }
  ~Namespaces() {
    for (int i = 0; i < 2; ++i)
      run(absl::StrCat("ip netns del ", name_, i));
  }
  bool usable() const { return usable_; }
  const std::string &name() const { return name_; }
  std::string address(int i) const { return absl::StrCat(net_, i + 1); }

private:
  static bool run(const std::string &command) {
    return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
  }
  std::string name_, net_;
  bool usable_;
};

TEST(TransportNamespaceTest, AutoUsesTheNetworkBetweenNamespaces) {
  Namespaces namespaces;
  if (!namespaces.usable())
    GTEST_SKIP() << "needs root and ip(8), to make network namespaces with a working cable";
  SpawnOptions options;
  options.worldSize = 2;
  options.deadline = 60s;
  options.store = absl::StrCat(namespaces.address(0), ":", freePort());
  options.arguments = {{"transport", "auto"}, {"namespaces", namespaces.name()}};
  RankGroup ranks = spawn("exchange", options);
  for (int r = 0; r < 2; ++r) {
    EXPECT_EQ(ranks.exitCode(r), 0) << ranks.log(r);
    EXPECT_THAT(ranks.log(r), HasSubstr("transport auto"));
  }
}

} // namespace
} // namespace bagua::rt
