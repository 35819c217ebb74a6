// Ranks on different hosts, as network namespaces: addresses, deaths without a shared kernel's
// help, lost links.
#include "RankGroup.h"
#include "StoreServer.h"
#include "bagua/Bootstrap.h"
#include "bagua/Group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <iostream>
#include <sched.h>
#include <thread>
#include <unistd.h>

namespace bagua::rt {
namespace {

using namespace std::chrono_literals;
using test::exitCodeFor;
using test::RankContext;
using test::RankGroup;
using test::spawn;
using testing::AllOf;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

bool shell(const std::string &command) {
  return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
}

/// Two hosts "0" and "1", 10.77.0.1 and 10.77.0.2, with a link between them and, as a lure, an
/// interface docker0 with one address on both (B56).
class Hosts {
public:
  Hosts() {
    std::string a = name(0), b = name(1);
    ready_ = shell("ip netns add " + a) && shell("ip netns add " + b) &&
             shell("ip -n " + a + " link add eth0 type veth peer name eth0 netns " + b);
    for (int host : {0, 1}) {
      std::string ip = "ip -n " + name(host) + " ";
      ready_ = ready_ &&
               shell(ip + "addr add 10.77.0." + std::to_string(host + 1) + "/24 dev eth0") &&
               shell(ip + "link set eth0 up") && shell(ip + "link set lo up");
      shell(ip + "link add docker0 type dummy"); // Not every kernel has it.
      shell(ip + "addr add 172.17.0.1/16 dev docker0");
      shell(ip + "link set docker0 up");
    }
  }
  ~Hosts() {
    for (int host : {0, 1})
      shell("ip netns del " + name(host));
  }
  bool ready() const { return ready_; }
  static std::string name(int host) {
    return "bagua-test-" + std::to_string(::getpid()) + "-" + std::to_string(host);
  }
  void cut() { EXPECT_TRUE(shell("ip -n " + name(1) + " link set eth0 down")); }

private:
  bool ready_ = false;
};

void enter(const std::string &host) {
  int descriptor = ::open(("/run/netns/" + host).c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0 || ::setns(descriptor, CLONE_NEWNET) != 0) {
    std::perror(host.c_str());
    std::exit(1);
  }
  ::close(descriptor);
}

class HostsTest : public testing::Test {
protected:
  void SetUp() override {
    if (::geteuid() != 0)
      GTEST_SKIP() << "network namespaces need root";
    hosts_ = std::make_unique<Hosts>();
    if (!hosts_->ready())
      GTEST_SKIP() << "this machine gives no network namespaces";
  }
  test::SpawnOptions options(std::map<std::string, std::string> arguments) {
    arguments["hosts"] = Hosts::name(0).substr(0, Hosts::name(0).size() - 1);
    return {.worldSize = 4, .arguments = std::move(arguments), .store = "10.77.0.1:4000"};
  }
  std::unique_ptr<Hosts> hosts_;
};

/// Ranks 0 and 2 are on host 0, ranks 1 and 3 on host 1.
BAGUA_RANK_PROGRAM(across_hosts) {
  enter(context.argument("hosts") + std::to_string(context.rank() % 2));
  Group::Options options;
  options.rank = context.rank();
  options.world = context.world();
  options.store = context.store();
  if (context.argument("launcher") == "yes") {
    // On the store's own host by the loopback interface.
    options.store = context.rank() % 2 == 0 ? "127.0.0.1:4000" : "10.77.0.1:4000";
    ::setenv("BAGUA_STORE", options.store.c_str(), 1);
    ::setenv("BAGUA_STORE_HOST", "launcher", 1);
  }
  options.bootstrapTimeout = 15s;
  options.stepTimeout = std::chrono::milliseconds(std::stol(context.argument("step", "15000")));
  options.liveness.warnFrozen = 700ms;
  auto group = Group::create(options);
  if (!group.ok())
    return exitCodeFor(group.status());
  for (int rank = 0; rank < context.world(); ++rank) {
    const PeerInfo &peer = (*group)->peer(rank);
    std::cout << "rank " << rank << " at " << peer.address << " node " << peer.node
              << " local rank " << peer.localRank << std::endl;
  }
  std::cout << (*group)->nodes() << " nodes, local size " << (*group)->localSize() << std::endl;
  if (::fork() == 0) // A worker: must not keep the connection alive.
    for (;;)
      ::pause();
  (*group)->setPhase("program gradient, bucket " + std::to_string(context.rank()), true);
  context.ready();
  if (context.argument("until") != "verdict")
    context.hear();
  while (context.argument("until") == "verdict" && !(*group)->hasVerdict())
    std::this_thread::sleep_for(1ms);
  Status verdict = (*group)->verdict();
  context.ready("verdict");
  std::cout << "verdict: " << verdict.message() << std::endl;
  (*group)->leave();
  return exitCodeFor(verdict);
}

TEST_F(HostsTest, B55B56_RanksAdvertiseTheAddressOfTheRouteToTheStore) {
  RankGroup ranks = spawn("across_hosts", options({}));
  ranks.waitReady();
  ranks.tellAll("go");
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(ranks.exitCode(rank), 0) << ranks.log(rank);
    EXPECT_THAT(ranks.log(rank), AllOf(HasSubstr("rank 0 at 10.77.0.1 node 0 local rank 0\n"),
                                       HasSubstr("rank 1 at 10.77.0.2 node 1 local rank 0\n"),
                                       HasSubstr("rank 2 at 10.77.0.1 node 0 local rank 1\n"),
                                       HasSubstr("rank 3 at 10.77.0.2 node 1 local rank 1\n"),
                                       HasSubstr("2 nodes, local size 2\n")));
  }
}

TEST_F(HostsTest, B55_LoopbackAddressesOfTheStoresHostAreReplaced) {
  StatusOr<std::unique_ptr<StoreServer>> server = absl::InternalError("not started");
  std::thread launcher([&] { // Its threads stay in the namespace that it was started in.
    enter(Hosts::name(0));
    server = StoreServer::start({.port = 4000, .loopbackOnly = false, .world = 4});
  });
  launcher.join();
  ASSERT_TRUE(server.ok()) << server.status();
  RankGroup ranks = spawn("across_hosts", options({{"launcher", "yes"}}));
  ranks.waitReady();
  ranks.tellAll("go");
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(ranks.exitCode(rank), 0) << ranks.log(rank);
    EXPECT_THAT(ranks.log(rank),
                AllOf(HasSubstr("rank 0 at 10.77.0.1 "), HasSubstr("rank 1 at 10.77.0.2 "),
                      HasSubstr("rank 2 at 10.77.0.1 ")));
  }
}

TEST_F(HostsTest, B40B60_ADeathOnAnotherHostIsKnownWithinTwoSeconds) {
  for (int dying : {0, 3}) {
    RankGroup ranks = spawn("across_hosts", options({{"until", "verdict"}}));
    ranks.waitReady();
    std::this_thread::sleep_for(500ms); // Phases travel with heartbeats.
    Clock::time_point killed = Clock::now();
    ranks.kill(dying, SIGKILL);
    for (int rank = 0; rank < 4; ++rank)
      if (rank != dying)
        ranks.waitReady(rank, "verdict");
    EXPECT_LT(Clock::now() - killed, 2s);
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == dying)
        continue;
      EXPECT_EQ(ranks.exitCode(rank), exitCodeFor(absl::StatusCode::kUnavailable))
          << ranks.log(rank);
      EXPECT_THAT(ranks.log(rank),
                  AllOf(HasSubstr("verdict: rank " + std::to_string(dying) + " (host "),
                        HasSubstr("program gradient, bucket " + std::to_string(dying))));
    }
  }
}

TEST_F(HostsTest, ALostLinkIsWarnedOfThenFatalOnBothSides) {
  RankGroup ranks = spawn("across_hosts", options({{"until", "verdict"}, {"step", "2500"}}));
  ranks.waitReady();
  hosts_->cut();
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(ranks.exitCode(rank), exitCodeFor(absl::StatusCode::kDeadlineExceeded))
        << ranks.log(rank);
    EXPECT_THAT(ranks.log(rank), HasSubstr("frozen"));
  }
  EXPECT_THAT(ranks.log(0), HasSubstr("looks frozen"));
  EXPECT_THAT(ranks.log(1), AllOf(HasSubstr("looks frozen"), HasSubstr("verdict: rank 0 (host ")));
}

TEST_F(HostsTest, B55_ListenStoreGivesAnAddressThatTheOtherHostReaches) {
  std::thread([&] {
    enter(Hosts::name(0));
    EXPECT_THAT(listenStore("10.77.0.2").value(), testing::StartsWith("10.77.0.1:"));
    EXPECT_THAT(listenStore("10.77.0.1").value(), testing::StartsWith("10.77.0.1:"));
    EXPECT_FALSE(listenStore("10.99.0.1").ok()); // No route.
  }).join();
}

} // namespace
} // namespace bagua::rt
