// The engine: who drives, what runs together, and how everything ends.
#include "Oracle.h"
#include "RankThreads.h"
#include "SampleSchedules.h"
#include "ScheduleBuilder.h"
#include "bagua/Expand.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <cstring>
#include <thread>

namespace bagua::rt::testing {
namespace {

using namespace std::chrono_literals;
using S = ScheduleBuilder;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

std::string message(const Status &status) { return std::string(status.message()); }

std::byte *bytesOf(std::vector<float> &values) {
  return reinterpret_cast<std::byte *>(values.data());
}

Bucket gradientBucket(const std::string &name, std::vector<float> &values) {
  return {name, static_cast<int64_t>(values.size()), fb::DType::F32, bytesOf(values), nullptr};
}

std::unique_ptr<Binding> bindOrDie(Rank &self, const std::shared_ptr<const Schedule> &schedule,
                                   const Bucket &bucket) {
  auto binding = Binding::create(self.engine, schedule, bucket, {});
  EXPECT_TRUE(binding.ok()) << binding.status();
  BAGUA_CHECK(binding.ok());
  return *std::move(binding);
}

/// The first error of a rank's wait.
Status failureOf(Binding &binding) {
  for (;;) {
    StatusOr<bool> done = binding.wait(100ms);
    if (!done.ok())
      return done.status();
    if (*done)
      return absl::OkStatus();
  }
}

/// The first error of a start or of its wait: the others may have failed before.
Status failureOf(Binding &binding, int64_t step) {
  BAGUA_TRY(binding.start(fb::Event::Gradient, step));
  return failureOf(binding);
}

class EngineTest : public ::testing::TestWithParam<Connection> {};

TEST_P(EngineTest, SeveralBindingsRunTogetherAndFinishInAnyOrder) {
  constexpr int kWorld = 3, kSteps = 3;
  constexpr size_t kBuckets = 7;
  auto allReduce = loadOrDie(gradientAllReduceSchedule());
  auto bytegrad = loadOrDie(bytegradSchedule(8, 64));
  auto length = [](size_t bucket) { return size_t{1} << (3 * bucket + 1); };
  runRanks(GetParam(), kWorld, {}, [&](Rank &self) {
    std::vector<std::vector<float>> values(kBuckets);
    std::vector<std::unique_ptr<Binding>> bindings;
    for (size_t i = 0; i < kBuckets; ++i) {
      values[i].resize(length(i));
      bindings.push_back(bindOrDie(self, i % 2 ? bytegrad : allReduce,
                                   gradientBucket("bucket " + std::to_string(i), values[i])));
    }
    for (int step = 0; step < kSteps; ++step) {
      std::vector<Inputs<float>> inputs(kBuckets);
      for (size_t i = 0; i < kBuckets; ++i) {
        for (int rank = 0; rank < kWorld; ++rank)
          inputs[i].push_back(
              numbers<float>(static_cast<uint64_t>(step * 100 + rank * 10) + i, length(i)));
        values[i] = inputs[i][static_cast<size_t>(self.rank)];
        ASSERT_EQ(bindings[i]->start(fb::Event::Gradient, step), absl::OkStatus());
      }
      for (size_t n = 0; n < kBuckets; ++n) {
        size_t i = step % 2 ? n : kBuckets - 1 - n;
        ASSERT_EQ(waitFor(*bindings[i]), absl::OkStatus());
        EXPECT_EQ(values[i], i % 2 ? bytegradOf(inputs[i], 8, 64) : meanOf(inputs[i]))
            << "bucket " << i;
      }
    }
  });
}

TEST_P(EngineTest, BroadcastGivesRootsBytesToAll) {
  for (int world : {1, 2, 3, 5})
    runRanks(GetParam(), world, {}, [&](Rank &self) {
      uint64_t number = 0;
      for (size_t bytes :
           {size_t{0}, size_t{1}, size_t{262'144}, size_t{262'145}, size_t{3'000'001}})
        for (int root = 0; root < world; ++root) {
          ++number;
          std::vector<uint8_t> data(bytes), expected(bytes);
          for (size_t i = 0; i < bytes; ++i)
            expected[i] = static_cast<uint8_t>((i * 31 + i / 4099) ^ number);
          if (self.rank == root)
            data = expected;
          ASSERT_EQ(self.engine.broadcast(reinterpret_cast<std::byte *>(data.data()), bytes, root),
                    absl::OkStatus());
          ASSERT_TRUE(data == expected)
              << "world " << world << ", " << bytes << " bytes from " << root;
        }
      EXPECT_EQ(self.engine.broadcast(nullptr, 0, world).code(),
                absl::StatusCode::kInvalidArgument);
    });
}

TEST_P(EngineTest, AbortReachesEveryWaitOfEveryRank) {
  auto schedule = loadOrDie(gradientAllReduceSchedule());
  std::vector<std::vector<float>> values(3, std::vector<float>(100'000, 1.0f));
  std::barrier<> ended(3);
  runRanks(GetParam(), 3, {}, [&](Rank &self) {
    auto binding =
        bindOrDie(self, schedule, gradientBucket("b7", values[static_cast<size_t>(self.rank)]));
    Status status;
    if (self.rank == 2) {
      self.engine.abort(absl::ResourceExhaustedError("rank 2 gives up"));
      while (!self.engine.failed())
        std::this_thread::yield();
      status = binding->start(fb::Event::Gradient, 17);
    } else {
      status = failureOf(*binding, 17);
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(message(status),
                AllOf(HasSubstr("rank 2 gives up"), HasSubstr("b7"), HasSubstr("17")));
    // It stays.
    EXPECT_EQ(binding->start(fb::Event::Gradient, 18).code(), status.code());
    EXPECT_EQ(self.engine.status().code(), status.code());
    EXPECT_EQ(self.engine.broadcast(nullptr, 1, 0).code(), status.code());
    ended.arrive_and_wait(); // Peers may read a bucket until they have noticed.
  });
}

INSTANTIATE_TEST_SUITE_P(Connections, EngineTest, ::testing::ValuesIn(connections()),
                         [](const auto &info) { return info.param.name; });

TEST(EngineDriverTest, ProgressThreadFinishesWhatNobodyWaitsFor) {
  auto schedule = loadOrDie(gradientAllReduceSchedule());
  runRanks(connection("View"), 3, {}, [&](Rank &self) {
    for (int round = 0; round < 20; ++round) {
      std::vector<float> values(1000, static_cast<float>(self.rank));
      auto binding = bindOrDie(self, schedule, gradientBucket("b", values));
      ASSERT_EQ(binding->start(fb::Event::Gradient, round), absl::OkStatus());
      while (binding->statistics().runs == 0)
        std::this_thread::yield();
      ASSERT_EQ(waitFor(*binding), absl::OkStatus());
      EXPECT_EQ(values, std::vector<float>(1000, 1.0f));
    }
  });
}

TEST(EngineDriverTest, NothingMovesWithoutAProgressThreadUntilSomebodyWaits) {
  auto schedule = loadOrDie(decentralizedSchedule());
  RankOptions options;
  options.engine.progressThread = false;
  runRanks(connection("View"), 1, options, [&](Rank &self) {
    std::vector<float> values(10);
    auto binding = bindOrDie(self, schedule, {"b", 10, fb::DType::F32, nullptr, bytesOf(values)});
    ASSERT_EQ(binding->start(fb::Event::BeforeForward, 0), absl::OkStatus());
    EXPECT_EQ(binding->statistics().runs, 0u);
    EXPECT_TRUE(self.engine.poll());
    EXPECT_EQ(binding->statistics().runs, 1u);
    EXPECT_FALSE(self.engine.poll());
    EXPECT_EQ(waitFor(*binding), absl::OkStatus());
  });
}

TEST(EngineDriverTest, ManyThreadsMayWaitAtOnce) {
  constexpr int kThreads = 4, kSteps = 30;
  auto schedule = loadOrDie(gradientAllReduceSchedule());
  runRanks(connection("View"), 2, {}, [&](Rank &self) {
    std::vector<std::vector<float>> values(kThreads);
    std::vector<std::unique_ptr<Binding>> bindings;
    for (int i = 0; i < kThreads; ++i) {
      values[i].assign(static_cast<size_t>(100 * (i + 1)), 0.0f);
      bindings.push_back(bindOrDie(self, schedule, gradientBucket(std::to_string(i), values[i])));
    }
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i)
      threads.emplace_back([&, i] {
        for (int step = 0; step < kSteps; ++step) {
          std::fill(values[i].begin(), values[i].end(), static_cast<float>(self.rank * 2 + step));
          ASSERT_EQ(bindings[i]->start(fb::Event::Gradient, step), absl::OkStatus());
          ASSERT_EQ(waitFor(*bindings[i]), absl::OkStatus());
          ASSERT_EQ(values[i], std::vector<float>(values[i].size(), static_cast<float>(1 + step)));
        }
      });
    for (std::thread &thread : threads)
      thread.join();
  });
}

TEST(EngineDriverTest, HelpersShareLargeLaunches) {
  constexpr size_t kLength = 1'000'003;
  RankOptions options;
  options.engine.threads = 4;
  auto schedule = loadOrDie(bytegradSchedule());
  Inputs<float> inputs;
  for (int rank = 0; rank < 2; ++rank)
    inputs.push_back(numbers<float>(static_cast<uint64_t>(rank), kLength));
  std::vector<float> expected = bytegradOf(inputs, 8, 2048);
  runRanks(connection("View"), 2, options, [&](Rank &self) {
    for (int step = 0; step < 5; ++step) {
      std::vector<float> values = inputs[static_cast<size_t>(self.rank)];
      auto binding = bindOrDie(self, schedule, gradientBucket("b", values));
      ASSERT_EQ(binding->start(fb::Event::Gradient, step), absl::OkStatus());
      ASSERT_EQ(waitFor(*binding), absl::OkStatus());
      ASSERT_TRUE(values == expected);
    }
  });
}

TEST(EngineGateTest, AProgramStopsAtItsGateUntilItOpens) {
  auto schedule = loadOrDie(decentralizedSchedule());
  runRanks(connection("Copy"), 2, {}, [&](Rank &self) {
    std::vector<float> values(100, static_cast<float>(self.rank * 3));
    auto binding = bindOrDie(self, schedule, {"b", 100, fb::DType::F32, nullptr, bytesOf(values)});
    EXPECT_EQ(binding->openGate(fb::Gate::BeforeUpdate).code(),
              absl::StatusCode::kFailedPrecondition);
    ASSERT_EQ(binding->start(fb::Event::BeforeForward, 0), absl::OkStatus());
    StatusOr<bool> done = binding->wait(20ms);
    ASSERT_TRUE(done.ok());
    EXPECT_FALSE(*done);
    EXPECT_EQ(values,
              std::vector<float>(100, static_cast<float>(self.rank * 3))); // Read, not replaced.
    ASSERT_EQ(binding->openGate(fb::Gate::BeforeUpdate), absl::OkStatus());
    EXPECT_EQ(binding->openGate(fb::Gate::BeforeUpdate).code(),
              absl::StatusCode::kFailedPrecondition);
    ASSERT_EQ(waitFor(*binding), absl::OkStatus());
    EXPECT_EQ(values, std::vector<float>(100, self.rank == 0 ? 2.0f : 1.0f));
  });
}

TEST(EngineGateTest, AGateThatNoProgramHasIsNoError) {
  auto schedule = loadOrDie(gradientAllReduceSchedule());
  runRanks(connection("View"), 1, {}, [&](Rank &self) {
    std::vector<float> values(10);
    auto binding = bindOrDie(self, schedule, gradientBucket("b", values));
    EXPECT_EQ(binding->openGate(fb::Gate::BeforeUpdate), absl::OkStatus());
  });
}

TEST(EngineStartTest, NegativeASecondStartBeforeTheWait) {
  auto schedule = loadOrDie(gradientAllReduceSchedule());
  runRanks(connection("View"), 2, {}, [&](Rank &self) {
    std::vector<float> values(10);
    auto binding = bindOrDie(self, schedule, gradientBucket("b", values));
    ASSERT_EQ(binding->start(fb::Event::Gradient, 4), absl::OkStatus());
    Status again = binding->start(fb::Event::Gradient, 5);
    EXPECT_EQ(again.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(message(again), AllOf(HasSubstr("'b'"), HasSubstr("step 5"), HasSubstr("step 4")));
    EXPECT_EQ(binding->start(fb::Event::AfterUpdate, 5), absl::OkStatus()); // No such program.
    ASSERT_EQ(waitFor(*binding), absl::OkStatus());
    ASSERT_EQ(waitFor(*binding), absl::OkStatus()); // Nothing runs: nothing to wait for.
  });
}

/// Real time that a test can push forward.
class PushedClock final : public Clock {
public:
  int64_t nowNs() const override { return SteadyClock().nowNs() + pushedNs_.load(); }
  void push(std::chrono::nanoseconds by) { pushedNs_ += by.count(); }

private:
  std::atomic<int64_t> pushedNs_{0};
};

TEST(EngineDeadlineTest, APeerThatNeverStartsIsNamedOnEveryRank) {
  auto schedule = loadOrDie(gradientAllReduceSchedule());
  auto clock = std::make_shared<PushedClock>();
  RankOptions options;
  options.engine.clock = clock;
  std::vector<std::vector<float>> values(3, std::vector<float>(1000));
  std::barrier<> started(3), ended(3);
  runRanks(connection("View"), 3, options, [&](Rank &self) {
    auto binding =
        bindOrDie(self, schedule, gradientBucket("layer1", values[static_cast<size_t>(self.rank)]));
    Status status;
    if (self.rank == 1) {
      started.arrive_and_wait();
      while (!self.engine.failed()) { // Again and again: the others' drivers may not have begun.
        clock->push(options.stepTimeout);
        std::this_thread::sleep_for(1ms);
      }
      status = binding->start(fb::Event::Gradient, 42);
    } else {
      EXPECT_EQ(binding->start(fb::Event::Gradient, 42), absl::OkStatus());
      started.arrive_and_wait();
      status = failureOf(*binding);
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    EXPECT_THAT(message(status),
                AllOf(HasSubstr("rank 1 (host "), HasSubstr("bucket 'layer1'"),
                      HasSubstr("step 42"), HasSubstr("gradient_allreduce.mlir:")));
    ended.arrive_and_wait();
  });
}

TEST(EngineDeadlineTest, B46_ThePausedTimeoutDoesNotRun) {
  auto schedule = loadOrDie(gradientAllReduceSchedule());
  auto clock = std::make_shared<PushedClock>();
  RankOptions options;
  options.engine.clock = clock;
  std::barrier<> paused(2), waited(2);
  runRanks(connection("View"), 2, options, [&](Rank &self) {
    std::vector<float> values(1000, static_cast<float>(self.rank));
    auto binding = bindOrDie(self, schedule, gradientBucket("b", values));
    if (self.rank == 0) {
      self.group.pauseTimeout(1);
      paused.arrive_and_wait();
      waited.arrive_and_wait();
      EXPECT_EQ(binding->start(fb::Event::Gradient, 0), absl::OkStatus());
    } else {
      EXPECT_EQ(binding->start(fb::Event::Gradient, 0), absl::OkStatus());
      paused.arrive_and_wait();
      for (int i = 0; i < 3; ++i) {
        clock->push(10 * options.stepTimeout);
        // Long enough for the driver to look at its deadlines.
        StatusOr<bool> done = binding->wait(120ms);
        EXPECT_TRUE(done.ok() && !*done) << done.status();
      }
      waited.arrive_and_wait();
    }
    EXPECT_EQ(waitFor(*binding), absl::OkStatus());
    EXPECT_EQ(values, std::vector<float>(1000, 0.5f));
    if (self.rank == 0)
      self.group.pauseTimeout(-1);
  });
}

TEST(EngineVerdictTest, ALostPeerIsNamedWithBucketStepAndLine) {
  auto schedule = loadOrDie(bytegradSchedule());
  std::vector<std::vector<float>> values(2, std::vector<float>(5000));
  std::barrier<> ended(2);
  runRanks(connection("View"), 2, {}, [&](Rank &self) {
    auto binding =
        bindOrDie(self, schedule, gradientBucket("layer2", values[static_cast<size_t>(self.rank)]));
    if (self.rank == 1) {
      (void)self.group.condemn(absl::UnavailableError("rank 1 (host elsewhere, pid 5) died"));
    } else {
      Status status = failureOf(*binding, 3);
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
      EXPECT_THAT(message(status), AllOf(HasSubstr("rank 1 (host elsewhere, pid 5) died"),
                                         HasSubstr("'layer2'"), HasSubstr("step 3")));
    }
    ended.arrive_and_wait();
  });
}

TEST(EngineUnbindTest, ARunningProgramIsAbortedAndTheOthersHearOfIt) {
  auto schedule = loadOrDie(gradientAllReduceSchedule());
  std::vector<std::vector<float>> values(2, std::vector<float>(1000));
  std::barrier<> ended(2);
  runRanks(connection("View"), 2, {}, [&](Rank &self) {
    auto first =
        bindOrDie(self, schedule, gradientBucket("b1", values[static_cast<size_t>(self.rank)]));
    if (self.rank == 0) {
      ASSERT_EQ(first->start(fb::Event::Gradient, 0), absl::OkStatus());
      first.reset();
      EXPECT_THAT(message(self.engine.status()), HasSubstr("rank 0 unbound bucket 'b1'"));
    } else {
      while (!self.engine.failed())
        std::this_thread::yield();
      EXPECT_THAT(message(self.engine.status()), HasSubstr("rank 0 unbound bucket 'b1'"));
    }
    ended.arrive_and_wait();
  });
}

TEST(EngineUnbindTest, ABucketCanBeBoundAgain) {
  auto schedule = loadOrDie(gradientAllReduceSchedule());
  for (const char *name : {"View", "WindowShared"})
    runRanks(connection(name), 2, {}, [&](Rank &self) {
      std::vector<float> values(1000);
      for (int round = 0; round < 10; ++round) {
        std::fill(values.begin(), values.end(), static_cast<float>(self.rank + round));
        auto binding = bindOrDie(self, schedule, gradientBucket("b", values));
        ASSERT_EQ(binding->start(fb::Event::Gradient, round), absl::OkStatus());
        ASSERT_EQ(waitFor(*binding), absl::OkStatus());
        EXPECT_EQ(values[999], static_cast<float>(round) + 0.5f);
      }
    });
}

// ---- Step-time values ----

/// Sends the gradient to the rank `1 + step mod (world - 1)` further on, in odd steps only, and
/// mixes what came with weight 1 / (step + 1).
fb::ScheduleT rotatingSchedule() {
  ScheduleBuilder s("rotating");
  E n = s.world(), r = s.rank(), zero = s.constant(0), one = s.constant(1);
  E bytes = s.length() * s.elementBytes();
  E distance = s.step() % (n - 1) + 1;
  E odd = s.step() % s.constant(2) == 1;
  uint32_t mix = s.kernel("mix");
  s.program("gradient", fb::Event::Gradient, 1, one, bytes);
  uint32_t g = s.jobBuffer("gradient", fb::Role::Gradient);
  uint32_t in = s.slots("in", one, bytes);
  uint32_t sent = s.events("sent", one), arrived = s.events("arrived", one);
  auto whole = [&] { return S::one(S::range(g, zero, bytes)); };
  s.line(7);
  s.send((r + distance) % n, 0, S::range(g, zero, bytes), {}, S::event(sent, zero)).guard =
      odd.node;
  s.recv((r + n - distance) % n, 0, in, zero, bytes, {}, S::event(arrived, zero)).guard = odd.node;
  s.line(8);
  s.launch(s.kernel("copy"), S::list(whole()),
           S::list(S::one(S::range(s.scratch("old", bytes), zero, bytes))), s.length());
  E weight = s.expr(fb::ExprOp::FDiv, s.real(1.0), toFloat(s.step() + 1));
  uint32_t mixed = s.scratch("mixed", bytes);
  s.launch(mix, S::list(whole(), S::one(S::view(in, zero, zero, bytes))),
           S::list(S::one(S::range(mixed, zero, bytes))), s.length(),
           S::list(S::event(arrived, zero)), {}, {weight})
      .guard = odd.node;
  s.release(in, zero).guard = odd.node;
  s.launch(s.kernel("copy"), S::list(S::one(S::range(mixed, zero, bytes))), S::list(whole()),
           s.length(), S::list(S::event(sent, zero)))
      .guard = odd.node;
  return s.take();
}

TEST(EngineStepTest, PeersGuardsAndScalarsFollowTheStep) {
  constexpr int kWorld = 4;
  auto schedule = loadOrDie(rotatingSchedule());
  for (const Connection &connection : connections())
    runRanks(connection, kWorld, {}, [&](Rank &self) {
      std::vector<float> values(100);
      auto binding = bindOrDie(self, schedule, gradientBucket("b", values));
      for (int step = 0; step < 12; ++step) {
        std::fill(values.begin(), values.end(), static_cast<float>(self.rank));
        ASSERT_EQ(binding->start(fb::Event::Gradient, step), absl::OkStatus());
        ASSERT_EQ(waitFor(*binding), absl::OkStatus());
        float own = static_cast<float>(self.rank), expected = own;
        if (step % 2 == 1) {
          int distance = step % (kWorld - 1) + 1;
          auto other = static_cast<float>((self.rank + kWorld - distance) % kWorld);
          expected = own + static_cast<float>(1.0 / (step + 1)) * (other - own);
        }
        ASSERT_EQ(values, std::vector<float>(100, expected))
            << connection.name << ", step " << step;
      }
    });
}

TEST(EngineStepTest, NegativeAPeerOutsideTheWorld) {
  ScheduleBuilder s("lost");
  E zero = s.constant(0), one = s.constant(1), bytes = s.length() * s.elementBytes();
  s.program("gradient", fb::Event::Gradient, 1, one, bytes);
  uint32_t g = s.jobBuffer("gradient", fb::Role::Gradient);
  s.line(5);
  s.send(s.step(), 0, S::range(g, zero, bytes));
  auto schedule = loadOrDie(s.take());
  std::barrier<> ended(2);
  runRanks(connection("View"), 2, {}, [&](Rank &self) {
    std::vector<float> values(10);
    auto binding = bindOrDie(self, schedule, gradientBucket("b", values));
    Status status = failureOf(*binding, 2);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(message(status),
                AllOf(HasSubstr("lost.mlir:5"), HasSubstr("got 2"), HasSubstr("step 2")));
    ended.arrive_and_wait();
  });
}

TEST(EngineStuckTest, NegativeAnEventThatNothingSets) {
  ScheduleBuilder s("stuck");
  E zero = s.constant(0), one = s.constant(1), bytes = s.length() * s.elementBytes();
  s.program("gradient", fb::Event::Gradient, 1, zero, zero);
  uint32_t g = s.jobBuffer("gradient", fb::Role::Gradient);
  uint32_t never = s.events("never", one);
  auto whole = [&] { return S::one(S::range(g, zero, bytes)); };
  s.line(6);
  s.launch(s.kernel("reduce_sum"), S::list(whole()), S::list(whole()), s.length(),
           S::list(S::event(never, zero)));
  auto schedule = loadOrDie(s.take());
  runRanks(connection("View"), 1, {}, [&](Rank &self) {
    std::vector<float> values(10);
    auto binding = bindOrDie(self, schedule, gradientBucket("b", values));
    Status status = failureOf(*binding, 2);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(message(status), AllOf(HasSubstr("nothing will set"), HasSubstr("stuck.mlir:6")));
  });
}

} // namespace
} // namespace bagua::rt::testing
