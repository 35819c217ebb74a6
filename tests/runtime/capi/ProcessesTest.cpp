// Real processes over the C interface: the three algorithms over windows, and ranks that die or
// stall in the middle of a bucket.
#include "Oracle.h"
#include "RankGroup.h"
#include "SampleSchedules.h"
#include "bagua/bagua.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <unistd.h>

namespace bagua::rt::testing {
namespace {

using namespace std::chrono_literals;
using bagua::test::RankContext;
using bagua::test::RankGroup;
using bagua::test::spawn;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kFailed = 9; ///< Exit code of a rank whose checks failed; else the bagua_code.

bagua_init_options optionsOf(const RankContext &rank, const std::string &transport) {
  bagua_init_options options = bagua::Context::environment();
  options.rank = rank.rank();
  options.world = rank.world();
  options.store = rank.store().c_str();
  options.transport = transport.c_str();
  options.step_timeout_ms = std::atoi(rank.argument("timeout_ms", "15000").c_str());
  options.bootstrap_timeout_ms = 15'000;
  return options;
}

/// Of f32.
bagua_bucket bucketOf(const char *name, int64_t length, void *gradient, void *weight) {
  bagua_bucket bucket = {};
  bucket.struct_size = sizeof bucket;
  bucket.name = name;
  bucket.length = length;
  bucket.gradient = gradient;
  bucket.weight = weight;
  return bucket;
}

bagua::Schedule parse(const fb::ScheduleT &schedule) {
  StatusOr<std::vector<uint8_t>> bytes = serialize(schedule);
  BAGUA_CHECK(bytes.ok());
  return bagua::Schedule::parse(bytes->data(), bytes->size());
}

template <typename Body> int guarded(Body body) {
  try {
    return body();
  } catch (const bagua::Error &error) {
    std::printf("error %d: %s\n", error.code(), error.what());
    std::fflush(stdout);
    return error.code();
  }
}

/// Every algorithm at several lengths, in transport memory and in private memory.
BAGUA_RANK_PROGRAM(all_algorithms) {
  return guarded([&] {
    std::string transport = context.argument("transport", "window");
    bagua::Context self(optionsOf(context, transport));
    int world = context.world();
    auto rank = static_cast<size_t>(context.rank());
    bagua::Schedule schedules[] = {parse(gradientAllReduceSchedule()), parse(bytegradSchedule()),
                                   parse(decentralizedSchedule())};
    int number = 0;
    for (int64_t length : {0, 1, 31, 2049, 100'003}) {
      for (size_t algorithm = 0; algorithm < 3; ++algorithm) {
        bool weight = algorithm == 2;
        Inputs<float> inputs;
        for (int other = 0; other < world; ++other)
          inputs.push_back(
              numbers<float>(static_cast<uint64_t>(other + number), static_cast<size_t>(length)));
        std::vector<float> expected = algorithm == 0   ? meanOf(inputs)
                                      : algorithm == 1 ? bytegradOf(inputs, 8, 2048)
                                                       : ringMixOf(inputs, rank);
        bagua::Memory memory;
        std::vector<float> plain(static_cast<size_t>(length));
        float *data = plain.data();
        if (number % 2 == 0) {
          memory = self.allocate(static_cast<size_t>(length) * sizeof(float) + 1);
          data = memory.as<float>();
        }
        std::copy(inputs[rank].begin(), inputs[rank].end(), data);
        std::string name = "bucket " + std::to_string(number++);
        bagua_bucket bucket =
            bucketOf(name.c_str(), length, weight ? nullptr : data, weight ? data : nullptr);
        bagua::Binding binding = self.bind(schedules[algorithm], bucket);
        bagua_event event = weight ? BAGUA_BEFORE_FORWARD : BAGUA_GRADIENT;
        binding.start(event, 0);
        binding.openGate(BAGUA_BEFORE_UPDATE);
        binding.wait();
        if (!std::equal(expected.begin(), expected.end(), data)) {
          std::printf("wrong result: algorithm %zu, length %lld\n", algorithm,
                      static_cast<long long>(length));
          return kFailed;
        }
        if (static_cast<int64_t>(binding.statistics().bytes_wire) !=
            schedules[algorithm].wireBytes(event, world, context.rank(), length, BAGUA_F32))
          return kFailed;
      }
    }
    return 0;
  });
}

/// Steps for ever; rank 1 stops before its start in step 5 and tells the test.
BAGUA_RANK_PROGRAM(steps_for_ever) {
  return guarded([&]() -> int {
    bagua::Context self(optionsOf(context, "window"));
    bagua::Schedule schedule = parse(bytegradSchedule());
    std::vector<float> gradient(1'000'003, 1.0f);
    bagua_bucket bucket = bucketOf("layer1", 1'000'003, gradient.data(), nullptr);
    bagua::Binding binding = self.bind(schedule, bucket);
    for (int64_t step = 0;; ++step) {
      if (step == 5 && context.rank() == 1) {
        context.ready("stopped");
        (void)context.hear();
        ::pause();
      }
      binding.start(BAGUA_GRADIENT, step);
      if (step == 5)
        context.ready("waiting");
      binding.wait();
    }
  });
}

/// Rank 1 does two steps more than the others, which say goodbye and end in order.
BAGUA_RANK_PROGRAM(one_goes_on) {
  return guarded([&] {
    bagua::Context self(optionsOf(context, context.argument("transport")));
    std::vector<float> weight(1000, 1.0f);
    bagua_bucket bucket = bucketOf("layer1", 1000, nullptr, weight.data());
    bagua::Binding binding = self.bind(parse(decentralizedSchedule()), bucket);
    for (int64_t step = 0; step < (context.rank() == 1 ? 5 : 3); ++step) {
      if (step == 3) {
        context.ready("alone");
        (void)context.hear();
      }
      binding.start(BAGUA_BEFORE_FORWARD, step);
      binding.openGate(BAGUA_BEFORE_UPDATE);
      binding.wait();
    }
    if (context.rank() != 1) {
      context.ready("finished");
      (void)context.hear();
    }
    return 0;
  });
}

/// One rank binds a bucket of another length.
BAGUA_RANK_PROGRAM(other_length) {
  return guarded([&] {
    bagua::Context self(optionsOf(context, "window"));
    std::vector<float> gradient(100);
    bagua_bucket bucket =
        bucketOf("layer1", context.rank() == 2 ? 99 : 100, gradient.data(), nullptr);
    self.bind(parse(gradientAllReduceSchedule()), bucket);
    return 0;
  });
}

TEST(ProcessesTest, AlgorithmsOverWindowsGiveTheOraclesBits) {
  for (int world : {1, 2, 4}) {
    RankGroup ranks = spawn("all_algorithms", {.worldSize = world, .deadline = 60s});
    for (int rank = 0; rank < world; ++rank)
      EXPECT_EQ(ranks.exitCode(rank), 0) << "rank " << rank << ":\n" << ranks.log(rank);
  }
}

TEST(ProcessesTest, AlgorithmsOverUcxGiveTheOraclesBits) {
  RankGroup ranks = spawn("all_algorithms",
                          {.worldSize = 3, .deadline = 60s, .arguments = {{"transport", "ucx"}}});
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_EQ(ranks.exitCode(rank), 0) << "rank " << rank << ":\n" << ranks.log(rank);
}

TEST(ProcessesTest, B40_SurvivorsOfAKillInABucketNameRankBucketStepAndLine) {
  RankGroup ranks = spawn("steps_for_ever", {.worldSize = 3, .deadline = 30s});
  ranks.waitReady(1, "stopped");
  ranks.waitReady(0, "waiting");
  ranks.waitReady(2, "waiting");
  auto killed = std::chrono::steady_clock::now();
  ranks.kill(1, SIGKILL);
  for (int rank : {0, 2}) {
    EXPECT_EQ(ranks.exitCode(rank), BAGUA_PEER_LOST) << ranks.log(rank);
    EXPECT_THAT(ranks.log(rank), AllOf(HasSubstr("rank 1 (host "), HasSubstr("bucket 'layer1'"),
                                       HasSubstr("step 5"), HasSubstr("bytegrad.mlir:")));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - killed, 2s);
}

TEST(ProcessesTest, B42_AFrozenRankIsAnErrorAtTheStepTimeout) {
  RankGroup ranks = spawn("steps_for_ever",
                          {.worldSize = 3, .deadline = 40s, .arguments = {{"timeout_ms", "3000"}}});
  ranks.waitReady(1, "stopped");
  ranks.waitReady(0, "waiting");
  ranks.waitReady(2, "waiting");
  ranks.kill(1, SIGSTOP);
  for (int rank : {0, 2}) {
    EXPECT_EQ(ranks.exitCode(rank), BAGUA_TIMEOUT) << ranks.log(rank);
    EXPECT_THAT(ranks.log(rank), AllOf(HasSubstr("rank 1 (host "), HasSubstr("bucket 'layer1'"),
                                       HasSubstr("step 5")));
  }
  ranks.kill(1, SIGKILL);
}

TEST(ProcessesTest, RanksThatHaveLeftAreNamedAtOnceAndAreNotDead) {
  for (const char *transport : {"window", "ucx"})
    for (const std::vector<int> &order : {std::vector{0, 2}, {2, 0}, {2}, {0}}) {
      RankGroup ranks =
          spawn("one_goes_on",
                {.worldSize = 3, .deadline = 60s, .arguments = {{"transport", transport}}});
      ranks.waitReady(1, "alone");
      std::string told = std::string(transport) + ", ended:";
      for (int rank : {0, 2})
        ranks.waitReady(rank, "finished");
      for (int rank : order) {
        ranks.tell(rank, "end");
        EXPECT_EQ(ranks.exitCode(rank), 0) << ranks.log(rank);
        told += " " + std::to_string(rank);
      }
      auto begin = std::chrono::steady_clock::now();
      ranks.tell(1, "go on");
      EXPECT_EQ(ranks.exitCode(1), BAGUA_PEER_LOST) << told << "\n" << ranks.log(1);
      EXPECT_LT(std::chrono::steady_clock::now() - begin, 2s) << told << "\n" << ranks.log(1);
      EXPECT_THAT(ranks.log(1), AllOf(HasSubstr(") has left ("), Not(HasSubstr("died")))) << told;
    }
}

TEST(ProcessesTest, B43_AnotherLengthOnOneRankIsAnErrorOnAll) {
  RankGroup ranks = spawn("other_length", {.worldSize = 3, .deadline = 30s});
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(ranks.exitCode(rank), BAGUA_MISMATCH) << ranks.log(rank);
    EXPECT_THAT(ranks.log(rank),
                AllOf(HasSubstr("bucket.length"), HasSubstr("rank 2"), HasSubstr("99")));
  }
}

} // namespace
} // namespace bagua::rt::testing
