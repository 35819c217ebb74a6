// Groups whose ranks are threads of one process.
#include "bagua/Group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace bagua::rt {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// Runs `body(rank, group)` on one thread per rank; the group is destroyed before run() returns.
template <typename Body>
void run(int world, std::chrono::milliseconds timeout, Body body,
         std::shared_ptr<Store> store = makeLocalStore()) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank)
    threads.emplace_back([=] {
      Group::Options options;
      options.rank = rank;
      options.world = world;
      options.localStore = store;
      options.bootstrapTimeout = options.stepTimeout = timeout;
      auto group = Group::create(options);
      ASSERT_TRUE(group.ok()) << group.status();
      body(rank, **group);
    });
  for (std::thread &thread : threads)
    thread.join();
}

std::string message(const Status &status) { return std::string(status.message()); }

TEST(LocalGroupTest, GathersInRankOrder) {
  for (int world : {1, 2, 5})
    run(world, 10s, [&](int rank, Group &group) {
      for (int round = 0; round < 20; ++round) {
        auto values = group.allGather("round", std::to_string(rank * 100 + round));
        ASSERT_TRUE(values.ok()) << values.status();
        for (int other = 0; other < world; ++other)
          EXPECT_EQ((*values)[other], std::to_string(other * 100 + round));
      }
      EXPECT_EQ(group.peer(rank).localRank, rank);
      EXPECT_EQ(group.nodes(), 1);
      group.leave();
    });
}

TEST(LocalGroupTest, StoreSetsGetsAndCounts) {
  run(3, 10s, [](int rank, Group &group) {
    if (rank == 1)
      EXPECT_TRUE(group.store().set("key", "value").ok());
    EXPECT_EQ(group.store().get("key", 5s).value(), "value");
    EXPECT_TRUE(group.store().add("count", 2).ok());
    ASSERT_TRUE(group.allGather("added", "").ok());
    EXPECT_EQ(group.store().add("count", 0).value(), 6);
    EXPECT_EQ(group.store().set("key", "other").code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(group.store().get("absent", 10ms).status().code(),
              absl::StatusCode::kDeadlineExceeded);
    group.leave();
  });
}

TEST(LocalGroupTest, B43AgreementNamesTheFirstDifference) {
  run(4, 10s, [](int rank, Group &group) {
    EXPECT_TRUE(group.agree("same", R"({"a": [1, 2]})").ok());
    EXPECT_TRUE(group.agree("spelling", rank == 2 ? R"({"a":[1,2]})" : R"({"a": [1, 2]})").ok());
    std::string plan = R"({"buckets": [{"name": "b0", "length": 7}, {"name": "b1", "length": )" +
                       std::to_string(rank >= 2 ? 409598 : 409600) + "}]}";
    Status status = group.agree("the bucket plan", plan);
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
    EXPECT_EQ(message(status),
              "ranks disagree on the bucket plan, first at buckets[1] ('b1').length: rank 0 has "
              "409600, rank 2 has 409598 (ranks 2, 3 differ from rank 0)");
    EXPECT_FALSE(group.hasVerdict());
    group.leave();
  });
}

TEST(LocalGroupTest, OneVerdictForAll) {
  run(4, 10s, [](int rank, Group &group) {
    Status called;
    group.onVerdict([&](const Status &verdict) { called = verdict; });
    if (rank % 2 == 1)
      (void)group.condemn(absl::InternalError("reason " + std::to_string(rank)));
    EXPECT_FALSE(group.allGather("never", "").ok());
    EXPECT_TRUE(group.hasVerdict());
    EXPECT_EQ(group.verdict(), called);
    EXPECT_THAT(message(called), testing::AnyOf("reason 1", "reason 3"));
    EXPECT_EQ(group.store().set("late", "").code(), absl::StatusCode::kInternal);
    group.leave();
  });
}

TEST(LocalGroupTest, B64AbsentRanksAreNamedWithTheirPhase) {
  run(3, 300ms, [](int rank, Group &group) {
    Status status;
    if (rank == 1) {
      group.setPhase("building the model");
      while (!group.hasVerdict())
        std::this_thread::yield();
      status = group.verdict();
    } else {
      status = group.allGather("plan", "").status();
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(message(status), HasSubstr("rank 1 did not answer in exchange 'plan'"));
    EXPECT_THAT(message(status), HasSubstr("in user code"));
    EXPECT_THAT(message(status), HasSubstr("building the model"));
    group.leave();
  });
}

TEST(LocalGroupTest, LeavingAPeerThatWaitsIsAVerdict) {
  run(3, 10s, [](int rank, Group &group) {
    if (rank == 2)
      return group.leave();
    Status status = group.allGather("plan", "").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(message(status), HasSubstr("rank 2"));
    EXPECT_THAT(message(status), HasSubstr("left while"));
    group.leave();
  });
}

TEST(LocalGroupTest, DestructionWithoutGoodbyeIsDeath) {
  run(3, 10s, [](int rank, Group &group) {
    group.setPhase("program gradient, bucket " + std::to_string(rank), true);
    if (rank == 1)
      return;
    Status status = group.allGather("plan", "").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(message(status), HasSubstr("rank 1"));
    EXPECT_THAT(message(status), HasSubstr("died"));
    EXPECT_THAT(message(status), HasSubstr("program gradient, bucket 1"));
    group.leave();
  });
}

TEST(LocalGroupTest, PausesAreSeenByAll) {
  run(2, 10s, [](int rank, Group &group) {
    if (rank == 0)
      group.pauseTimeout(1);
    ASSERT_TRUE(group.allGather("paused", "").ok());
    EXPECT_TRUE(group.timeoutPaused());
    ASSERT_TRUE(group.allGather("seen", "").ok());
    if (rank == 0)
      group.pauseTimeout(-1);
    ASSERT_TRUE(group.allGather("resumed", "").ok());
    EXPECT_FALSE(group.timeoutPaused());
    group.leave();
  });
}

TEST(LocalGroupTest, RanksThatDoNotJoinAreNamed) {
  Group::Options options;
  options.rank = 1;
  options.world = 4;
  options.localStore = makeLocalStore();
  options.bootstrapTimeout = 50ms;
  Status status = Group::create(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(message(status), HasSubstr("ranks 0, 2, 3 of 4 did not join within 50 ms"));
}

TEST(LocalGroupTest, AGroupFollowsAnotherOnOneStore) {
  auto store = makeLocalStore();
  for (int round = 0; round < 3; ++round)
    run(
        2 + round, 10s,
        [](int, Group &group) {
          EXPECT_TRUE(group.allGather("x", "").ok());
          group.leave();
        },
        store);
}

TEST(LocalGroupTest, negative_ranks_with_one_local_rank) {
  auto store = makeLocalStore();
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] {
      Group::Options options;
      options.localStore = store;
      options.rank = rank;
      options.world = 2;
      options.localRank = 0;
      options.localSize = 2;
      Status status = Group::create(options).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
      EXPECT_THAT(message(status), AllOf(HasSubstr("rank 0 (host "), HasSubstr("rank 1 (host "),
                                         HasSubstr("both have local rank 0 of local size 2")));
    });
  for (std::thread &thread : threads)
    thread.join();
}

TEST(LocalGroupTest, negative_ranks_outside_the_world) {
  Group::Options options;
  options.localStore = makeLocalStore();
  for (auto [rank, world] : {std::pair{-1, 2}, {2, 2}, {0, 0}, {0, -1}}) {
    options.rank = rank;
    options.world = world;
    EXPECT_EQ(Group::create(options).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

} // namespace
} // namespace bagua::rt
