// Groups over the TCP store. The ranks are threads here, so that sanitizers see both ends; dying
// processes are in tests/multiprocess.
#include "Net.h"
#include "Protocol.h"
#include "RankGroup.h"
#include "StoreServer.h"
#include "bagua/Bootstrap.h"
#include "bagua/Group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <latch>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace bagua::rt {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;

std::string message(const Status &status) { return std::string(status.message()); }

Group::Options optionsFor(int rank, int world, const std::string &store) {
  Group::Options options;
  options.rank = rank;
  options.world = world;
  options.store = store;
  options.bootstrapTimeout = options.stepTimeout = 20s;
  options.liveness = {.heartbeat = 20ms, .warnFrozen = 5s, .warnWaiting = 10s};
  return options;
}

std::string freshStore() { return "127.0.0.1:" + std::to_string(test::freePort()); }

using Adjust = std::function<void(Group::Options &)>;

template <typename Body>
void run(
    int world, Body body, Adjust adjust = [](Group::Options &) {},
    std::string store = freshStore()) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank)
    threads.emplace_back([=] {
      Group::Options options = optionsFor(rank, world, store);
      adjust(options);
      auto group = Group::create(options);
      ASSERT_TRUE(group.ok()) << group.status();
      body(rank, **group);
    });
  for (std::thread &thread : threads)
    thread.join();
}

TEST(RemoteGroupTest, GathersInRankOrder) {
  for (int world : {2, 5})
    run(world, [&](int rank, Group &group) {
      EXPECT_EQ(group.rank(), rank);
      EXPECT_EQ(group.world(), world);
      EXPECT_EQ(group.nodes(), 1);
      EXPECT_EQ(group.localSize(), world);
      EXPECT_EQ(group.peer(rank).localRank, rank);
      EXPECT_EQ(group.peer(0).pid, ::getpid());
      EXPECT_EQ(group.peer(0).address, "127.0.0.1");
      for (int round = 0; round < 50; ++round) {
        auto values = group.allGather("round", std::to_string(rank * 100 + round));
        ASSERT_TRUE(values.ok()) << values.status();
        for (int other = 0; other < world; ++other)
          EXPECT_EQ((*values)[other], std::to_string(other * 100 + round));
      }
      group.leave();
      EXPECT_EQ(group.allGather("late", "").status().code(), absl::StatusCode::kFailedPrecondition);
    });
}

TEST(RemoteGroupTest, StoreSetsGetsAndCounts) {
  std::string large(3 << 20, 'x');
  run(3, [&](int rank, Group &group) {
    Store &store = group.store();
    if (rank == 1)
      EXPECT_TRUE(store.set("key", large).ok());
    EXPECT_EQ(store.get("key", 5s).value(), large);
    EXPECT_TRUE(store.add("count", 2).ok());
    ASSERT_TRUE(group.allGather("added", "").ok());
    EXPECT_EQ(store.get("count", 1s).value(), "6");
    EXPECT_EQ(store.set("key", "other").code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(store.add("key", 1).status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(store.get("absent", 10ms).status().code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_EQ(store.set("", "").code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(store.set("big", std::string((16 << 20) + 1, 'x')).code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(store.set("huge", std::string(64 << 20, 'x')).code(),
              absl::StatusCode::kInvalidArgument);
    ASSERT_TRUE(group.allGather("done", "").ok());
    if (rank == 2)
      EXPECT_TRUE(store.erase("ke").ok());
    ASSERT_TRUE(group.allGather("erased", "").ok());
    EXPECT_EQ(store.get("key", 10ms).status().code(), absl::StatusCode::kDeadlineExceeded);
    group.leave();
  });
}

TEST(RemoteGroupTest, B44AgreementNamesTheFirstDifference) {
  run(3, [](int rank, Group &group) {
    EXPECT_TRUE(group.agree("same", R"({"a": 1})").ok());
    std::string plan = rank == 1
                           ? R"({"parameters": [{"name": "a"}, {"name": "c"}, {"name": "b"}]})"
                           : R"({"parameters": [{"name": "a"}, {"name": "b"}, {"name": "c"}]})";
    Status status = group.agree("the bucket plan", plan);
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
    EXPECT_EQ(message(status),
              "ranks disagree on the bucket plan, first at parameters[1].name: rank 0 "
              "has \"b\", rank 1 has \"c\"");
    group.leave();
  });
}

TEST(RemoteGroupTest, OneVerdictForAll) {
  std::vector<Status> verdicts(4);
  run(4, [&](int rank, Group &group) {
    std::atomic<int> calls{0};
    group.onVerdict([&](const Status &) { ++calls; });
    if (rank != 0)
      EXPECT_EQ(group.condemn(absl::InternalError("reason " + std::to_string(rank))),
                group.verdict());
    EXPECT_FALSE(group.allGather("never", "").ok());
    EXPECT_TRUE(group.hasVerdict());
    verdicts[rank] = group.verdict();
    EXPECT_EQ(group.store().get("x", 1s).status(), verdicts[rank]);
    group.leave();
    EXPECT_EQ(calls, 1);
  });
  for (const Status &verdict : verdicts)
    EXPECT_EQ(verdict, verdicts[0]);
  EXPECT_THAT(message(verdicts[0]), HasSubstr("reason "));
}

TEST(RemoteGroupTest, ABlockedGetEndsWithTheVerdict) {
  run(2, [](int rank, Group &group) {
    if (rank == 0) {
      EXPECT_EQ(group.store().get("never", 15s).status().code(), absl::StatusCode::kInternal);
    } else {
      (void)group.condemn(absl::InternalError("broken"));
    }
    group.leave();
  });
}

TEST(RemoteGroupTest, DestructionWithoutGoodbyeIsDeath) {
  for (int dying : {0, 2}) {
    std::vector<std::string> texts(3);
    run(3, [&](int rank, Group &group) {
      group.setPhase("program gradient, bucket " + std::to_string(rank));
      ASSERT_TRUE(group.allGather("phases", "").ok());
      std::this_thread::sleep_for(100ms); // Phases travel with heartbeats.
      ASSERT_TRUE(group.allGather("known", "").ok());
      if (rank == dying)
        return;
      Status status = group.allGather("plan", "").status();
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
      texts[rank] = message(status);
      group.leave();
    });
    EXPECT_THAT(texts[1], AllOf(HasSubstr("rank " + std::to_string(dying) + " (host "),
                                HasSubstr("pid " + std::to_string(::getpid())), HasSubstr("died"),
                                HasSubstr("program gradient, bucket " + std::to_string(dying))));
    EXPECT_EQ(texts[1], texts[dying == 0 ? 2 : 0]);
  }
}

TEST(RemoteGroupTest, LeavingAPeerThatWaitsIsAVerdict) {
  run(3, [](int rank, Group &group) {
    if (rank == 2)
      return group.leave();
    if (rank == 1) { // On the data path, where the store only knows the phase.
      group.setPhase("program gradient, bucket 3", true);
      while (!group.hasVerdict())
        std::this_thread::sleep_for(1ms);
    } else {
      (void)group.allGather("plan", "");
    }
    EXPECT_EQ(group.verdict().code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(message(group.verdict()), AllOf(HasSubstr("rank 2"), HasSubstr("left while")));
    group.leave();
  });
}

TEST(RemoteGroupTest, LeavingPeersThatWaitInAProgramIsAVerdictAfterAWhile) {
  run(
      3,
      [](int rank, Group &group) {
        ASSERT_TRUE(group.allGather("x", "").ok());
        if (rank == 0)
          return group.leave();
        group.setPhase("program gradient, bucket 3", true);
        while (!group.hasVerdict())
          std::this_thread::sleep_for(1ms);
        EXPECT_EQ(group.verdict().code(), absl::StatusCode::kUnavailable);
        EXPECT_THAT(message(group.verdict()),
                    AllOf(HasSubstr("rank 0"), HasSubstr("left while ranks 1, 2 waited in program "
                                                         "gradient, bucket 3")));
        group.leave();
      },
      [](Group::Options &options) { options.liveness.warnWaiting = 300ms; });
}

TEST(RemoteGroupTest, GoodbyesInAnyOrderAreQuiet) {
  for (int first : {0, 1})
    run(2, [&](int rank, Group &group) {
      ASSERT_TRUE(group.allGather("x", "").ok());
      if (rank != first)
        std::this_thread::sleep_for(300ms);
      EXPECT_TRUE(group.verdict().ok()) << group.verdict();
      group.leave();
      EXPECT_TRUE(group.verdict().ok()) << group.verdict();
    });
}

TEST(RemoteGroupTest, B46AWaitForARankInUserCodeEndsAtTheStepTimeout) {
  auto adjust = [](Group::Options &options) {
    options.stepTimeout = 400ms;
    options.liveness.warnWaiting = 100ms;
  };
  std::vector<std::string> texts(3);
  testing::internal::CaptureStderr();
  run(
      3,
      [&](int rank, Group &group) {
        group.setPhase(rank == 1 ? "saving a checkpoint" : "program gradient, bucket 3", rank != 1);
        while (!group.hasVerdict())
          std::this_thread::sleep_for(1ms);
        EXPECT_EQ(group.verdict().code(), absl::StatusCode::kDeadlineExceeded);
        texts[rank] = message(group.verdict());
        group.leave();
      },
      adjust);
  EXPECT_THAT(texts[0],
              AllOf(HasSubstr("rank 1 did not answer within"),
                    HasSubstr("ranks 0, 2 waited in program gradient, bucket 3"),
                    HasSubstr("in user code for"), HasSubstr("last phase: saving a checkpoint")));
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_EQ(texts[0], texts[2]);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("ranks 0, 2 waiting for"), HasSubstr("missing: rank 1")));
}

TEST(RemoteGroupTest, B46APauseOfAnyRankSuspendsTheTimeout) {
  auto adjust = [](Group::Options &options) { options.stepTimeout = 300ms; };
  run(
      2,
      [&](int rank, Group &group) {
        if (rank == 1) {
          group.pauseTimeout(1);
          EXPECT_TRUE(group.timeoutPaused());
          std::this_thread::sleep_for(900ms); // Longer than the timeout, in user code.
          group.pauseTimeout(-1);
        }
        EXPECT_TRUE(group.allGather("checkpoint", "").ok());
        EXPECT_TRUE(group.allGather("again", "").ok());
        EXPECT_FALSE(group.timeoutPaused());
        group.leave();
      },
      adjust);
}

TEST(RemoteGroupTest, B64AbsentRanksAreNamedOnEveryRank) {
  std::string store = freshStore();
  std::vector<std::thread> threads;
  for (int rank : {0, 2, 3})
    threads.emplace_back([=] {
      Group::Options options = optionsFor(rank, 4, store);
      options.bootstrapTimeout = 400ms;
      Status status = Group::create(options).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
      EXPECT_THAT(message(status), AllOf(HasSubstr("rank 1 of 4 did not join within 400 ms"),
                                         HasSubstr("BAGUA_BOOTSTRAP_TIMEOUT_MS")));
    });
  for (std::thread &thread : threads)
    thread.join();
}

TEST(RemoteGroupTest, B64WithoutRankZeroTheOthersSaySo) {
  Group::Options options = optionsFor(1, 2, freshStore());
  options.bootstrapTimeout = 200ms;
  Status status = Group::create(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(message(status),
              AllOf(HasSubstr(options.store), HasSubstr("Connection refused"),
                    HasSubstr("rank 0, which hosts it, did not arrive"), HasSubstr("within 200 ms"),
                    HasSubstr("BAGUA_BOOTSTRAP_TIMEOUT_MS")));
}

TEST(RemoteGroupTest, AGroupFollowsAnotherAtOneAddress) {
  std::string store = freshStore();
  run(
      3,
      [&](int rank, Group &first) {
        EXPECT_TRUE(first.store().set("key" + std::to_string(rank), "old").ok());
        EXPECT_TRUE(first.allGather("x", "").ok());
        first.leave();
        for (int round = 0; round < 3; ++round) {
          auto next = Group::create(optionsFor(rank, 3, store));
          ASSERT_TRUE(next.ok()) << next.status();
          EXPECT_TRUE((*next)->store().set("key" + std::to_string(rank), "new").ok());
          EXPECT_TRUE((*next)->allGather("x", "").ok());
          (*next)->leave();
        }
      },
      [](Group::Options &) {}, store);
}

TEST(RemoteGroupTest, AStoreThatEndsBeforeItLetsARankInIsTriedAgain) {
  std::string store = freshStore();
  auto address = *net::parseHostPort(store, "test");
  auto dying = net::listenOn(address.port, true);
  ASSERT_TRUE(dying.ok()) << dying.status();
  std::thread late([&] {
    auto group = Group::create(optionsFor(1, 2, store));
    ASSERT_TRUE(group.ok()) << group.status();
    EXPECT_TRUE((*group)->allGather("x", "").ok());
    (*group)->leave();
  });
  pollfd entry{dying->get(), POLLIN, 0};
  ASSERT_EQ(::poll(&entry, 1, 10'000), 1);
  {
    net::Descriptor connection(::accept(dying->get(), nullptr, nullptr));
    ASSERT_EQ(::send(connection.get(), wire::kBanner.data(), wire::kBanner.size(), 0), 8);
    wire::FrameHeader hello;
    ASSERT_EQ(::recv(connection.get(), &hello, sizeof hello, MSG_WAITALL),
              static_cast<ssize_t>(sizeof hello));
    dying->reset();
  }
  auto group = Group::create(optionsFor(0, 2, store));
  EXPECT_TRUE(group.ok()) << group.status();
  if (group.ok()) {
    EXPECT_TRUE((*group)->allGather("x", "").ok());
    (*group)->leave();
  }
  late.join();
}

TEST(RemoteGroupTest, PlacesOfOneHostMayRepeatWhereItPlaysSeveral) {
  run(
      5,
      [](int rank, Group &group) {
        EXPECT_EQ(group.peer(rank).localRank, rank % 2);
        EXPECT_EQ(group.localSize(), 2);
        group.leave();
      },
      [](Group::Options &options) {
        options.localRank = options.rank % 2;
        options.localSize = 2;
      });
}

TEST(RemoteGroupTest, negative_ranks_of_one_host_contradict_each_other) {
  struct Case {
    std::vector<int> localRanks, localSizes;
    const char *message;
  };
  for (const Case &one :
       {Case{{0, 1, 1}, {3, 3, 3}, "of one host both have local rank 1 of local size 3"},
        Case{{0, 0, 1}, {-1, -1, -1}, "of one host both have local rank 0"},
        Case{{0, 0, 0}, {2, 2, 2}, "of one host both have local rank 0 of local size 2"},
        Case{{0, 0, 1}, {1, 2, 2}, "says 1, rank 1 (host "}}) {
    std::string store = freshStore();
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 3; ++rank)
      threads.emplace_back([&, rank] {
        Group::Options options = optionsFor(rank, 3, store);
        options.localRank = one.localRanks[static_cast<size_t>(rank)];
        options.localSize = one.localSizes[static_cast<size_t>(rank)];
        Status status = Group::create(options).status();
        EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
        EXPECT_THAT(message(status), AllOf(HasSubstr(one.message), HasSubstr(" (host ")));
      });
    for (std::thread &thread : threads)
      thread.join();
  }
}

TEST(RemoteGroupTest, RanksWaitInDifferentExchanges) {
  run(
      2,
      [](int rank, Group &group) {
        Status status = group.allGather(rank == 0 ? "bind b0" : "bind b1", "").status();
        EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
        EXPECT_THAT(message(status),
                    AllOf(HasSubstr("rank 0 in 'bind b0'"), HasSubstr("rank 1 in 'bind b1'")));
        group.leave();
      },
      [](Group::Options &options) { options.liveness.warnFrozen = 300ms; });
}

TEST(RemoteGroupTest, ListenStoreIsAdopted) {
  StatusOr<std::string> address = listenStore("");
  ASSERT_TRUE(address.ok()) << address.status();
  run(
      3,
      [](int, Group &group) {
        EXPECT_TRUE(group.allGather("x", "").ok());
        group.leave();
      },
      [](Group::Options &options) {
        if (options.rank == 0) // The others knock before anyone answers.
          std::this_thread::sleep_for(100ms);
      },
      *address);
}

TEST(RemoteGroupTest, ListenStoreAdvertisesTheRouteNotTheHostName) {
  EXPECT_THAT(listenStore("127.0.0.1").value(), testing::StartsWith("127.0.0.1:"));
  EXPECT_THAT(listenStore("localhost").value(), testing::StartsWith("127.0.0.1:"));
  EXPECT_FALSE(listenStore("no.such.host.invalid").ok());
}

TEST(RemoteGroupTest, ALauncherHostsTheStore) {
  auto server = StoreServer::start({.world = 2, .job = "job 1"});
  ASSERT_TRUE(server.ok()) << server.status();
  std::string store = "127.0.0.1:" + std::to_string((*server)->port());
  ::setenv("BAGUA_STORE", store.c_str(), 1);
  ::setenv("BAGUA_STORE_HOST", "launcher", 1);
  ::setenv("BAGUA_JOB", "job 1", 1);
  std::barrier both(2);
  run(
      2,
      [&](int rank, Group &group) {
        EXPECT_TRUE(group.allGather("x", "").ok());
        both.arrive_and_wait();
        if (rank == 0)
          server->reset();
        while (!group.hasVerdict())
          std::this_thread::sleep_for(1ms);
        EXPECT_EQ(group.verdict().code(), absl::StatusCode::kUnavailable);
        EXPECT_THAT(message(group.verdict()), HasSubstr("the launcher"));
        group.leave();
      },
      [](Group::Options &) {}, store);
  ::unsetenv("BAGUA_STORE");
  ::unsetenv("BAGUA_STORE_HOST");
  ::unsetenv("BAGUA_JOB");
}

TEST(RemoteGroupTest, ALauncherTellsOfARankThatEndedBeforeItJoined) {
  auto server = StoreServer::start({.world = 2});
  ASSERT_TRUE(server.ok());
  std::string store = "127.0.0.1:" + std::to_string((*server)->port());
  ::setenv("BAGUA_STORE", store.c_str(), 1);
  ::setenv("BAGUA_STORE_HOST", "launcher", 1);
  (*server)->rankEnded(1, "exited with code 3");
  Status status = Group::create(optionsFor(0, 2, store)).status();
  ::unsetenv("BAGUA_STORE");
  ::unsetenv("BAGUA_STORE_HOST");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(message(status), HasSubstr("rank 1 exited with code 3 before it joined"));
}

// ---- Refusals ----

TEST(RemoteGroupTest, B52_negative_a_port_in_use_names_its_holder) {
  auto holder = net::listenOn(0, true);
  ASSERT_TRUE(holder.ok());
  std::string port = std::to_string(net::localEndpoint(holder->get()).port());
  Status status = Group::create(optionsFor(0, 2, "127.0.0.1:" + port)).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(message(status), AllOf(HasSubstr("port " + port),
                                     HasSubstr("in use by pid " + std::to_string(::getpid()))));
}

TEST(RemoteGroupTest, negative_something_else_listens) {
  auto holder = net::listenOn(0, true);
  ASSERT_TRUE(holder.ok());
  std::string store = "127.0.0.1:" + std::to_string(net::localEndpoint(holder->get()).port());
  std::thread stranger([&] {
    pollfd waiting{holder->get(), POLLIN, 0};
    ASSERT_EQ(::poll(&waiting, 1, 10'000), 1);
    net::Descriptor connection(::accept(holder->get(), nullptr, nullptr));
    std::string text = "HTTP/1.1 400 Bad Request\r\n";
    EXPECT_GT(::send(connection.get(), text.data(), text.size(), MSG_NOSIGNAL), 0);
    char byte;
    (void)!::recv(connection.get(), &byte, 1, 0); // Until the rank hangs up.
  });
  Status status = Group::create(optionsFor(1, 2, store)).status();
  stranger.join();
  EXPECT_THAT(message(status), HasSubstr("does not speak the store's protocol"));
}

TEST(RemoteGroupTest, negative_joining_twice_or_into_another_world) {
  std::string store = freshStore();
  std::latch joined(2), tried(1);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      auto group = Group::create(optionsFor(rank, 2, store));
      ASSERT_TRUE(group.ok()) << group.status();
      joined.count_down();
      tried.wait();
      EXPECT_TRUE((*group)->allGather("still fine", "").ok());
      (*group)->leave();
    });
  joined.wait();
  Status twice = Group::create(optionsFor(1, 2, store)).status();
  EXPECT_EQ(twice.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(message(twice), HasSubstr("rank 1 joined twice: first host"));
  Status world = Group::create(optionsFor(2, 3, store)).status();
  EXPECT_EQ(world.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(message(world), AllOf(HasSubstr("rank 2"), HasSubstr("says 3, the group has 2")));
  ::setenv("BAGUA_JOB", "other", 1);
  Status job = Group::create(optionsFor(1, 2, store)).status();
  ::unsetenv("BAGUA_JOB");
  EXPECT_THAT(message(job), HasSubstr("the store belongs to another job"));
  tried.count_down();
  for (std::thread &thread : threads)
    thread.join();
}

TEST(RemoteGroupTest, negative_joining_twice_within_a_named_job_ends_it_for_all) {
  ::setenv("BAGUA_JOB", "job 2", 1);
  std::string store = freshStore();
  std::vector<std::thread> threads;
  std::vector<Status> statuses(3);
  for (int i = 0; i < 3;
       ++i) // Ranks 0, 1, 1 of 3: rank 2 never comes, and nobody waits 20 s for it.
    threads.emplace_back(
        [&, i] { statuses[i] = Group::create(optionsFor(std::min(i, 1), 3, store)).status(); });
  for (std::thread &thread : threads)
    thread.join();
  ::unsetenv("BAGUA_JOB");
  for (const Status &status : statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
    EXPECT_THAT(message(status), HasSubstr("rank 1 joined twice"));
  }
}

/// Sends `bytes` to the store and waits until it hangs up.
void knock(const std::string &store, const std::string &bytes) {
  auto address = net::parseHostPort(store, "test");
  auto endpoints = net::resolve(*address);
  auto socket = net::connectTo(endpoints->front(), 5s);
  ASSERT_TRUE(socket.ok()) << socket.status();
  (void)!::send(socket->get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  ::shutdown(socket->get(), SHUT_WR);
  char buffer[256];
  pollfd waiting{socket->get(), POLLIN, 0};
  do {
    ASSERT_EQ(::poll(&waiting, 1, 5'000), 1) << "the store did not hang up";
  } while (::recv(socket->get(), buffer, sizeof(buffer), 0) > 0);
}

TEST(RemoteGroupTest, negative_strangers_do_no_harm) {
  std::string store = freshStore();
  run(
      2,
      [&](int rank, Group &group) {
        ASSERT_TRUE(group.allGather("x", "").ok());
        if (rank == 1) {
          knock(store, "GET / HTTP/1.1\r\nHost: store\r\n\r\n");
          knock(store, "");
          knock(store, std::string(100'000, '\0'));
          wire::FrameHeader header;
          header.type = static_cast<uint32_t>(wire::Type::kHello);
          header.bytes = 0xffffffffu;
          std::string huge(reinterpret_cast<char *>(&header), sizeof(header));
          knock(store, huge);
          // A hello cut at every length, and one with a text that claims to be longer than the
          // frame.
          std::string hello = wire::Writer()
                                  .number(wire::kVersion)
                                  .text("")
                                  .number(2)
                                  .number(0)
                                  .frame(wire::Type::kHello);
          for (size_t length = 1; length < hello.size(); length += 3)
            knock(store, hello.substr(0, length));
          knock(
              store,
              wire::Writer().number(wire::kVersion).number(0x7fffffffu).frame(wire::Type::kHello));
          knock(store, wire::Writer().number(7u).frame(wire::Type::kHello)); // Another version.
          knock(store,
                wire::Writer().text("key").text("value").frame(wire::Type::kSet, 1)); // No hello.
          uint64_t seed = 88172645463325252u;
          for (int round = 0; round < 200; ++round) {
            std::string noise;
            for (int i = 0; i < 64; ++i) {
              seed ^= seed << 13;
              seed ^= seed >> 7;
              seed ^= seed << 17;
              noise += static_cast<char>(seed);
            }
            wire::FrameHeader good;
            good.bytes = 64;
            good.type = round % 16;
            knock(store, std::string(reinterpret_cast<char *>(&good), sizeof(good)) + noise);
          }
        }
        EXPECT_TRUE(group.allGather("y", "").ok()) << group.verdict();
        EXPECT_TRUE(group.verdict().ok());
        group.leave();
      },
      [](Group::Options &) {}, store);
}

TEST(RemoteGroupTest, negative_the_store_outlives_a_lack_of_descriptors) {
  auto server = StoreServer::start({.world = 1});
  ASSERT_TRUE(server.ok());
  auto endpoints = net::resolve({"127.0.0.1", (*server)->port()});
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  std::vector<net::Descriptor> sockets;
  for (int i = 0; i < 8; ++i)
    sockets.push_back(*net::connectTo(endpoints->front(), 5s));
  // The highest descriptor so far is the limit: the store can accept no more.
  rlimit low = before;
  low.rlim_cur = static_cast<rlim_t>(sockets.back().get());
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  sockets.front().reset(); // One for the next connection's own end, if the store has not taken it.
  auto late = net::connectTo(endpoints->front(), 5s);
  std::this_thread::sleep_for(300ms);
  sockets.clear();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  // Served again, in time.
  knock("127.0.0.1:" + std::to_string((*server)->port()), "nonsense of no use to anyone");
}

TEST(RemoteGroupTest, negative_arguments) {
  auto codeOf = [](Group::Options options) { return Group::create(options).status().code(); };
  EXPECT_EQ(codeOf(optionsFor(0, 2, "")), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(codeOf(optionsFor(0, 2, "nocolon")), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(codeOf(optionsFor(0, 2, "host:99999")), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(codeOf(optionsFor(0, 2, "127.0.0.1:0")), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(codeOf(optionsFor(2, 2, "127.0.0.1:1")), absl::StatusCode::kInvalidArgument);
  Group::Options options = optionsFor(0, 1, "");
  options.stepTimeout = -1s;
  EXPECT_EQ(codeOf(options), absl::StatusCode::kInvalidArgument);
}

TEST(RemoteGroupTest, AWorldOfOneNeedsNothing) {
  auto group = Group::create(optionsFor(0, 1, ""));
  ASSERT_TRUE(group.ok()) << group.status();
  EXPECT_EQ((*group)->source(), "explicit arguments");
  EXPECT_EQ((*group)->allGather("x", "1").value(), std::vector<std::string>{"1"});
  (*group)->leave();
}

TEST(RemoteGroupTest, B60AForkedChildCannotUseTheGroup) {
  run(2, [](int rank, Group &group) {
    ASSERT_TRUE(group.allGather("x", "").ok());
    if (rank == 0) {
      pid_t child = ::fork();
      if (child == 0) {
        bool refused = group.hasVerdict() &&
                       group.verdict().code() == absl::StatusCode::kFailedPrecondition &&
                       !group.store().set("k", "v").ok() && !group.allGather("y", "").ok();
        group.leave();
        ::_exit(refused ? 0 : 1);
      }
      int status = 0;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      EXPECT_EQ(status, 0);
    }
    EXPECT_TRUE(group.allGather("y", "").ok()) << group.verdict();
    group.leave();
  });
}

} // namespace
} // namespace bagua::rt
