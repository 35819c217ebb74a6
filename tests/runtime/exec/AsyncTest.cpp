// The async program of a schedule, in a binding of its own: rounds beside steps.
#include "Oracle.h"
#include "RankThreads.h"
#include "SampleSchedules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace bagua::rt::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr size_t kLength = 1000;

std::byte *bytesOf(std::vector<float> &values) {
  return reinterpret_cast<std::byte *>(values.data());
}

Bucket bucketOf(std::vector<float> *gradient, std::vector<float> *weight, bool async) {
  Bucket bucket{"b", kLength, fb::DType::F32};
  bucket.gradient = gradient ? bytesOf(*gradient) : nullptr;
  bucket.weight = weight ? bytesOf(*weight) : nullptr;
  bucket.async = async;
  return bucket;
}

std::unique_ptr<Binding> bindOrDie(Rank &self, const std::shared_ptr<const Schedule> &schedule,
                                   const Bucket &bucket, int64_t interval, int64_t warmup) {
  Binding::Options options;
  options.parameters = {{"interval", interval}, {"warmup", warmup}};
  auto binding = Binding::create(self.engine, schedule, bucket, options);
  EXPECT_TRUE(binding.ok()) << binding.status();
  BAGUA_CHECK(binding.ok());
  return *std::move(binding);
}

float roundsOf(Binding &binding) {
  float rounds = -1;
  EXPECT_EQ(binding.readState(0, std::as_writable_bytes(std::span(&rounds, 1))), absl::OkStatus());
  return rounds;
}

class AsyncTest : public ::testing::TestWithParam<Connection> {};

// Ranks begin round k at steps 2k + rank and add its result some steps later. A mean moves nothing
// into or out of the sum of the weights: that is of the steps alone, to the last bit, with these
// numbers.
TEST_P(AsyncTest, RoundsMeetAtDifferentStepsAndLoseNothing) {
  constexpr int kWorld = 4, kRounds = 4;
  auto schedule = loadOrDie(asyncAverageSchedule());
  std::vector<std::vector<float>> weights(kWorld, std::vector<float>(kLength));
  std::vector<int> steps(kWorld);
  runRanks(GetParam(), kWorld, {}, [&](Rank &self) {
    std::vector<float> snapshot(kLength), &weight = weights[static_cast<size_t>(self.rank)];
    auto binding = bindOrDie(self, schedule, bucketOf(nullptr, &snapshot, true), 2, 0);
    bool runs = false;
    for (int step = 0, round = 0; round < kRounds || runs; ++step) {
      for (size_t i = 0; i < kLength; ++i)
        weight[i] += static_cast<float>(self.rank + 1) + static_cast<float>(i % 5);
      steps[static_cast<size_t>(self.rank)] = step + 1;
      if (runs && step % 3 == self.rank % 3) {
        ASSERT_EQ(waitFor(*binding), absl::OkStatus());
        runs = false;
        for (size_t i = 0; i < kLength; ++i)
          weight[i] += snapshot[i];
        EXPECT_EQ(roundsOf(*binding), static_cast<float>(round));
      }
      if (!runs && round < kRounds && step >= 2 * round + self.rank) {
        snapshot = weight;
        ASSERT_EQ(binding->start(fb::Event::Async, round++), absl::OkStatus());
        runs = true;
      }
    }
    EXPECT_EQ(binding->statistics().runs, 4u);
    EXPECT_EQ(binding->statistics().bytesWire, 4u * (kWorld - 1) * kLength * 4);
  });
  EXPECT_NE(steps.front(), steps.back()) << "else the test says less";
  for (size_t i = 0; i < kLength; ++i) {
    float sum = 0, expected = 0;
    for (size_t rank = 0; rank < kWorld; ++rank) {
      sum += weights[rank][i];
      expected += static_cast<float>(steps[rank]) * static_cast<float>(rank + 1 + i % 5);
    }
    ASSERT_EQ(sum, expected) << "element " << i;
    EXPECT_NE(weights[0][i], static_cast<float>(steps[0]) * static_cast<float>(1 + i % 5));
  }
}

TEST_P(AsyncTest, TheSnapshotBecomesTheDifference) {
  constexpr int kWorld = 4;
  auto schedule = loadOrDie(asyncAverageSchedule());
  Inputs<float> inputs;
  for (int rank = 0; rank < kWorld; ++rank)
    inputs.push_back(numbers<float>(static_cast<uint64_t>(rank), kLength));
  runRanks(GetParam(), kWorld, {}, [&](Rank &self) {
    std::vector<float> snapshot = inputs[static_cast<size_t>(self.rank)];
    auto binding = bindOrDie(self, schedule, bucketOf(nullptr, &snapshot, true), 2, 0);
    ASSERT_EQ(binding->start(fb::Event::Async, 0), absl::OkStatus());
    ASSERT_EQ(waitFor(*binding), absl::OkStatus());
    for (size_t i = 0; i < kLength; ++i) {
      float sum = 0;
      for (const auto &values : inputs)
        sum += values[i];
      ASSERT_EQ(snapshot[i], sum / kWorld - inputs[static_cast<size_t>(self.rank)][i]) << i;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Connections, AsyncTest, ::testing::ValuesIn(connections()),
                         [](const auto &info) { return info.param.name; });

// A round goes on while steps are taken, and each binding keeps its own program and states.
TEST(AsyncBindingTest, RunsBesideTheOtherPrograms) {
  constexpr int kWarmup = 3;
  auto schedule = loadOrDie(asyncAverageSchedule(fb::IntervalUnit::Steps, 2, true));
  runRanks(connection("View"), 2, {}, [&](Rank &self) {
    std::vector<float> gradient(kLength), snapshot(kLength, static_cast<float>(self.rank));
    auto steps = bindOrDie(self, schedule, bucketOf(&gradient, nullptr, false), 5, kWarmup);
    auto rounds = bindOrDie(self, schedule, bucketOf(nullptr, &snapshot, true), 5, kWarmup);
    EXPECT_TRUE(steps->states().empty());
    ASSERT_EQ(rounds->states().size(), 1u);
    EXPECT_EQ(rounds->states()[0].name, "rounds");
    ASSERT_TRUE(rounds->interval().ok());
    EXPECT_EQ(rounds->interval()->every, 5);
    EXPECT_EQ(rounds->interval()->after, kWarmup);
    EXPECT_EQ(steps->interval().status().code(), absl::StatusCode::kFailedPrecondition);

    // Each ignores the other's programs.
    ASSERT_EQ(steps->start(fb::Event::Async, 0), absl::OkStatus());
    ASSERT_EQ(rounds->start(fb::Event::Gradient, 0), absl::OkStatus());
    ASSERT_EQ(waitFor(*steps), absl::OkStatus());
    ASSERT_EQ(waitFor(*rounds), absl::OkStatus());
    EXPECT_EQ(steps->statistics().runs + rounds->statistics().runs, 0u);

    // Rank 1 joins the round after five steps only: rank 0 goes on meanwhile.
    if (self.rank == 0)
      ASSERT_EQ(rounds->start(fb::Event::Async, 0), absl::OkStatus());
    for (int step = 0; step < 5; ++step) {
      gradient.assign(kLength, static_cast<float>(4 * self.rank + step));
      ASSERT_EQ(steps->start(fb::Event::Gradient, step), absl::OkStatus());
      ASSERT_EQ(waitFor(*steps), absl::OkStatus());
      float mean = static_cast<float>(step + (step < kWarmup ? 2 : 4 * self.rank));
      EXPECT_EQ(gradient, std::vector<float>(kLength, mean)) << "step " << step;
      EXPECT_EQ(steps->communicates(fb::Event::Gradient, step), step < kWarmup);
      if (self.rank == 0 && step < kWarmup - 1) { // Rank 1 cannot be past step 2 yet.
        EXPECT_EQ(roundsOf(*rounds), 0) << "what no round has published";
        float other = 7;
        Status written = rounds->writeState(0, std::as_bytes(std::span(&other, 1)));
        EXPECT_EQ(written.code(), absl::StatusCode::kFailedPrecondition);
        EXPECT_THAT(std::string(written.message()),
                    HasSubstr("state 'rounds' written while program async of round 0 runs"));
        EXPECT_FALSE(*rounds->wait(0ns));
      }
    }
    EXPECT_TRUE(rounds->communicates(fb::Event::Async, 99));
    if (self.rank == 1)
      ASSERT_EQ(rounds->start(fb::Event::Async, 0), absl::OkStatus());
    Status again = rounds->start(fb::Event::Async, 1);
    EXPECT_THAT(std::string(again.message()),
                HasSubstr("program async of round 1 started before program async of round 0"));
    ASSERT_EQ(waitFor(*rounds), absl::OkStatus());
    EXPECT_EQ(snapshot, std::vector<float>(kLength, self.rank == 0 ? 0.5f : -0.5f));
    EXPECT_EQ(roundsOf(*rounds), 1);
    EXPECT_EQ(rounds->statistics().bytesWire, kLength * 4);
    EXPECT_EQ(steps->statistics().bytesWire, kWarmup * kLength * 4);
  });
}

TEST(AsyncBindingTest, AWorldOfOneSendsNothing) {
  auto schedule = loadOrDie(asyncAverageSchedule(fb::IntervalUnit::Steps, 2, true));
  runRanks(connection("View"), 1, {}, [&](Rank &self) {
    std::vector<float> gradient(kLength), snapshot(kLength, 3);
    auto steps = bindOrDie(self, schedule, bucketOf(&gradient, nullptr, false), 5, 9);
    auto rounds = bindOrDie(self, schedule, bucketOf(nullptr, &snapshot, true), 5, 9);
    EXPECT_FALSE(steps->communicates(fb::Event::Gradient, 0));
    EXPECT_FALSE(rounds->communicates(fb::Event::Async, 0));
  });
}

TEST(AsyncBindingTest, NegativeBind) {
  auto with = loadOrDie(asyncAverageSchedule()), without = loadOrDie(gradientAllReduceSchedule());
  runRanks(connection("View"), 2, {}, [&](Rank &self) {
    std::vector<float> weight(kLength);
    auto refused = [&](const std::shared_ptr<const Schedule> &schedule, const Bucket &bucket,
                       std::vector<Binding::Parameter> parameters) {
      Binding::Options options;
      options.parameters = std::move(parameters);
      auto binding = Binding::create(self.engine, schedule, bucket, options);
      return binding.ok() ? "" : std::string(binding.status().message());
    };
    EXPECT_THAT(refused(without, bucketOf(&weight, nullptr, true), {}),
                HasSubstr("bucket 'b': schedule 'gradient_allreduce' has no async program"));
    EXPECT_THAT(refused(with, bucketOf(nullptr, nullptr, true), {}),
                HasSubstr("program async of schedule 'async_average' needs the bucket's weight"));
    EXPECT_THAT(refused(with, bucketOf(nullptr, &weight, true), {{"interval", int64_t{0}}}),
                HasSubstr("parameter 'interval' of schedule 'async_average' expects an index of at "
                          "least 1, got 0"));
    // Not fatal: what follows is another call on all ranks.
    EXPECT_THAT(refused(with, bucketOf(nullptr, &weight, true), {{"warmup", int64_t{-1}}}),
                HasSubstr("parameter 'warmup' of schedule 'async_average' expects an index of at "
                          "least 0, got -1"));
    EXPECT_EQ(refused(with, bucketOf(nullptr, nullptr, false), {}), "");
    EXPECT_THAT(refused(with, bucketOf(nullptr, &weight, self.rank == 1), {}),
                AllOf(HasSubstr("async"), HasSubstr("true"), HasSubstr("false")));
  });
}

TEST(AsyncBindingTest, AMissingPeerIsNamedWithTheRound) {
  auto schedule = loadOrDie(asyncAverageSchedule());
  RankOptions options;
  options.stepTimeout = 300ms;
  runRanks(connection("View"), 2, options, [&](Rank &self) {
    std::vector<float> snapshot(kLength);
    auto rounds = bindOrDie(self, schedule, bucketOf(nullptr, &snapshot, true), 2, 0);
    Status status;
    if (self.rank == 0) {
      ASSERT_EQ(rounds->start(fb::Event::Async, 17), absl::OkStatus());
      status = waitFor(*rounds);
    } else {
      while ((status = rounds->start(fb::Event::Gradient, 0)).ok())
        std::this_thread::sleep_for(1ms);
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("rank 1"), HasSubstr("bucket 'b', program async, round 17")));
  });
}

} // namespace
} // namespace bagua::rt::testing
