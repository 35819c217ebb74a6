// Binding: what must be equal on all ranks, and what one rank can get wrong.
#include "RankThreads.h"
#include "SampleSchedules.h"
#include "ScheduleBuilder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace bagua::rt::testing {
namespace {

using S = ScheduleBuilder;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string message(const Status &status) { return std::string(status.message()); }

struct Attempt {
  std::shared_ptr<const Schedule> schedule;
  Bucket bucket;
  Binding::Options options;
};

/// Every rank's result of binding what `make` says.
std::vector<Status> bindAll(int world, const std::function<Attempt(int rank)> &make,
                            const std::vector<int> &hosts = {}) {
  std::vector<Status> results(static_cast<size_t>(world));
  RankOptions options;
  options.hosts = hosts;
  runRanks(connection("View"), world, options, [&](Rank &self) {
    Attempt attempt = make(self.rank);
    results[static_cast<size_t>(self.rank)] =
        Binding::create(self.engine, attempt.schedule, attempt.bucket, attempt.options).status();
    // The group goes on: a failed bind is no verdict.
    alignas(8) static std::byte memory[2][64];
    Bucket good{"good", 4, fb::DType::F32, memory[self.rank % 2], nullptr};
    auto again = Binding::create(self.engine, loadOrDie(gradientAllReduceSchedule()), good, {});
    EXPECT_TRUE(again.ok()) << again.status();
  });
  return results;
}

class BindTest : public ::testing::Test {
protected:
  alignas(8) std::byte memory[4][1024] = {};
  std::shared_ptr<const Schedule> allReduce = loadOrDie(gradientAllReduceSchedule());
  Attempt attempt(int rank) {
    return {allReduce, {"layer1", 100, fb::DType::F32, memory[rank], nullptr}, {}};
  }
  void expectMismatch(const std::vector<Status> &results, const std::vector<const char *> &parts) {
    for (const Status &status : results) {
      EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
      for (const char *part : parts)
        EXPECT_THAT(message(status), HasSubstr(part));
    }
  }
};

TEST_F(BindTest, B43_DifferentLengthsAreRefusedBeforeDataMoves) {
  expectMismatch(bindAll(3,
                         [&](int rank) {
                           Attempt one = attempt(rank);
                           one.bucket.length = rank == 1 ? 99 : 100;
                           return one;
                         }),
                 {"bucket.length", "rank 1", "99", "100"});
}

TEST_F(BindTest, B44_DifferentNamesAreRefusedWithBoth) {
  expectMismatch(bindAll(3,
                         [&](int rank) {
                           Attempt one = attempt(rank);
                           one.bucket.name = rank == 2 ? "layer2" : "layer1";
                           return one;
                         }),
                 {"bucket.name", "rank 2", "layer1", "layer2"});
}

TEST_F(BindTest, DifferentDTypesAreRefused) {
  expectMismatch(bindAll(2,
                         [&](int rank) {
                           Attempt one = attempt(rank);
                           one.bucket.dtype = rank == 0 ? fb::DType::F32 : fb::DType::F64;
                           return one;
                         }),
                 {"bucket.dtype", "F32", "F64"});
}

TEST_F(BindTest, DifferentSchedulesAreRefusedByName) {
  expectMismatch(bindAll(2,
                         [&](int rank) {
                           Attempt one = attempt(rank);
                           if (rank == 1)
                             one.schedule = loadOrDie(bytegradSchedule());
                           return one;
                         }),
                 {"schedule.name", "bytegrad", "gradient_allreduce"});
  expectMismatch(bindAll(2,
                         [&](int rank) {
                           Attempt one = attempt(rank);
                           one.schedule = loadOrDie(bytegradSchedule(8, rank == 1 ? 1024 : 2048));
                           return one;
                         }),
                 {"schedule.digest"});
}

TEST_F(BindTest, DifferentCallsAreRefused) {
  runRanks(connection("View"), 2, {}, [&](Rank &self) {
    Attempt one = attempt(self.rank);
    Status status = self.rank == 0
                        ? Binding::create(self.engine, one.schedule, one.bucket, {}).status()
                        : self.engine.agree("barrier 'x'", "barrier", "true");
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    EXPECT_THAT(message(status), AllOf(HasSubstr("bind"), HasSubstr("barrier 'x'")));
  });
}

TEST_F(BindTest, NegativeOneRankWithoutMemoryIsNamedOnAll) {
  auto results = bindAll(3, [&](int rank) {
    Attempt one = attempt(rank);
    if (rank == 1)
      one.bucket.gradient = nullptr;
    return one;
  });
  for (const Status &status : results) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(message(status),
                AllOf(HasSubstr("layer1"), HasSubstr("gradient"), HasSubstr("null")));
  }
  EXPECT_THAT(message(results[0]), HasSubstr("rank 1 cannot bind"));
}

TEST_F(BindTest, NegativeDTypeThatTheScheduleDoesNotTake) {
  for (const Status &status : bindAll(2, [&](int rank) {
         Attempt one = attempt(rank);
         one.schedule = loadOrDie(bytegradSchedule());
         one.bucket.dtype = fb::DType::F64;
         return one;
       })) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(message(status), AllOf(HasSubstr("bytegrad"), HasSubstr("F32"), HasSubstr("F64")));
  }
}

/// A schedule that asks for nothing but this rank's place in its node.
std::shared_ptr<const Schedule> nodeByNodeSchedule() {
  ScheduleBuilder s("by_node");
  E zero = s.constant(0);
  s.program("gradient", fb::Event::Gradient, 0, zero, zero);
  uint32_t g = s.jobBuffer("gradient", fb::Role::Gradient);
  s.ifThen(s.localRank() < s.localSize() * s.nodes(), [&] {
    S::RangesPtr in = S::one(S::range(g, zero, s.elementBytes()));
    s.launch(s.kernel("reduce_sum"), S::list(std::move(in)),
             S::list(S::one(S::range(g, zero, s.elementBytes()))), s.constant(1));
  });
  return loadOrDie(s.take());
}

TEST_F(BindTest, NegativeNodesThatAScheduleOfNodesDoesNotTake) {
  struct {
    std::vector<int> hosts;
    const char *message;
  } cases[] = {
      {{0, 0, 1},
       "schedule 'by_node' works node by node: expected as many ranks on every node, got 1 on node "
       "1 (host host1) and 2 on node 0 (host host0)"},
      {{0, 1, 0, 1},
       "schedule 'by_node' works node by node: expected rank 1 to be local rank 1 of node 0, got "
       "local rank 0 of node 1 (host host1)"},
  };
  auto schedule = nodeByNodeSchedule();
  for (const auto &one : cases)
    for (const Status &status : bindAll(
             static_cast<int>(one.hosts.size()),
             [&](int rank) {
               Attempt attempt = this->attempt(rank);
               attempt.schedule = schedule;
               return attempt;
             },
             one.hosts)) {
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
      EXPECT_THAT(message(status), HasSubstr(one.message));
    }
}

TEST_F(BindTest, NodesOfOneSizeInOrderAreTaken) {
  auto schedule = nodeByNodeSchedule();
  for (const std::vector<int> &hosts :
       {std::vector<int>{0, 0, 0, 0}, {7, 7, 3, 3}, {0, 1, 2, 3}, {5}})
    for (const Status &status : bindAll(
             static_cast<int>(hosts.size()),
             [&](int rank) {
               Attempt attempt = this->attempt(rank);
               attempt.schedule = schedule;
               return attempt;
             },
             hosts))
      EXPECT_TRUE(status.ok()) << status;
  // Others do not care.
  for (const Status &status : bindAll(3, [&](int rank) { return attempt(rank); }, {0, 0, 1}))
    EXPECT_TRUE(status.ok()) << status;
}

TEST_F(BindTest, NegativeMisalignedMemory) {
  for (const Status &status : bindAll(1, [&](int rank) {
         Attempt one = attempt(rank);
         one.bucket.gradient += 2;
         return one;
       }))
    EXPECT_THAT(message(status), HasSubstr("multiple of 4"));
}

TEST_F(BindTest, NegativeMoreMemoryThanAllowed) {
  for (const Status &status : bindAll(2, [&](int rank) {
         Attempt one = attempt(rank);
         one.schedule = loadOrDie(bytegradSchedule());
         one.options.memoryBytesMax = 100;
         return one;
       })) {
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(message(status), AllOf(HasSubstr("layer1"), HasSubstr("100 bytes")));
  }
}

TEST_F(BindTest, NegativeParameterThatTheScheduleDoesNotHave) {
  for (const Status &status : bindAll(2, [&](int rank) {
         Attempt one = attempt(rank);
         one.options.parameters = {{"warmup", int64_t{3}}};
         return one;
       }))
    EXPECT_THAT(message(status), AllOf(HasSubstr("warmup"), HasSubstr("gradient_allreduce")));
}

/// Something is divided by `interval`; `warmup` is compared only; a comparison of `guarded` with 0
/// may see to its division. Remainders as the compiler writes them.
TEST_F(BindTest, NegativeIndexBelowWhatItMayBe) {
  ScheduleBuilder s("rounds", 1, {fb::DType::F32});
  E zero = s.constant(0);
  auto remainder = [&](E number, E divisor) {
    return number % s.expr(fb::ExprOp::Max, divisor, zero - divisor);
  };
  E interval = s.parameter("interval", 4), guarded = s.parameter("guarded", 0);
  (void)remainder(s.step(), interval);
  (void)(s.step() < s.parameter("warmup", 2));
  (void)(zero < guarded);
  (void)remainder(s.step(), guarded);
  s.program("gradient", fb::Event::Gradient, 0, zero, zero);
  auto schedule = loadOrDie(s.take());
  for (auto [name, value, least] : {std::tuple{"interval", int64_t{0}, "at least 1, got 0"},
                                    {"interval", int64_t{-3}, "at least 1, got -3"},
                                    {"warmup", int64_t{-1}, "at least 0, got -1"},
                                    {"guarded", int64_t{-1}, "at least 0, got -1"},
                                    {"guarded", int64_t{0}, ""}})
    for (const Status &status : bindAll(1, [&](int rank) {
           Attempt one = attempt(rank);
           one.schedule = schedule;
           one.options.parameters = {{name, value}};
           return one;
         })) {
      EXPECT_EQ(status.ok(), *least == 0) << status;
      EXPECT_THAT(message(status), AllOf(HasSubstr(*least == 0 ? "" : name), HasSubstr(least)));
    }
}

// ---- Kernels that do not fit ----

/// One launch of `kernel` over the whole gradient, into scratch of `bytesPerElement`.
fb::ScheduleT launchOnce(const std::string &kernel,
                         std::vector<std::pair<std::string, int64_t>> attributes,
                         std::vector<fb::DType> dtypes, int64_t outputBytesPerElement,
                         int inputs = 1) {
  ScheduleBuilder s("once", 1, std::move(dtypes));
  E zero = s.constant(0), bytes = s.length() * s.elementBytes();
  s.program("gradient", fb::Event::Gradient, 0, zero, zero);
  uint32_t g = s.jobBuffer("gradient", fb::Role::Gradient);
  E outputBytes = s.length() * outputBytesPerElement;
  uint32_t out = s.scratch("out", outputBytes);
  std::vector<S::RangesPtr> in;
  for (int i = 0; i < inputs; ++i)
    in.push_back(S::one(S::range(g, zero, bytes)));
  s.line(9);
  s.launch(s.kernel(kernel, std::move(attributes)), std::move(in),
           S::list(S::one(S::range(out, zero, outputBytes))), s.length());
  return s.take();
}

TEST_F(BindTest, NegativeKernelThatDoesNotFit) {
  struct {
    fb::ScheduleT schedule;
    fb::DType dtype;
    absl::StatusCode code;
    std::vector<const char *> parts;
  } cases[] = {
      {launchOnce("transmogrify", {}, {fb::DType::F32}, 4),
       fb::DType::F32,
       absl::StatusCode::kUnimplemented,
       {"transmogrify", "F32", "once.mlir:9"}},
      {launchOnce("minmax_encode", {{"bits", 8}, {"block", 64}}, {fb::DType::F64}, 8),
       fb::DType::F64,
       absl::StatusCode::kUnimplemented,
       {"minmax_encode", "F64", "once.mlir:9"}},
      {launchOnce("minmax_encode", {{"bits", 9}, {"block", 64}}, {fb::DType::F32}, 8),
       fb::DType::F32,
       absl::StatusCode::kInvalidArgument,
       {"minmax_encode", "bits"}},
      {launchOnce("copy", {}, {fb::DType::F32}, 8),
       fb::DType::F32,
       absl::StatusCode::kInvalidArgument,
       {"copy", "output 0", "400", "800"}},
      {launchOnce("copy", {}, {fb::DType::F32}, 4, 2),
       fb::DType::F32,
       absl::StatusCode::kInvalidArgument,
       {"copy", "inputs", "got 2"}},
      {launchOnce("mix", {}, {fb::DType::F32}, 4, 2),
       fb::DType::F32,
       absl::StatusCode::kInvalidArgument,
       {"mix", "expects 1 scalars, got 0"}},
  };
  for (auto &one : cases) {
    alignas(8) static std::byte large[1024];
    auto schedule = loadOrDie(one.schedule);
    for (const Status &status : bindAll(1, [&](int) {
           return Attempt{schedule, {"layer1", 100, one.dtype, large, nullptr}, {}};
         })) {
      EXPECT_EQ(status.code(), one.code) << status;
      for (const char *part : one.parts)
        EXPECT_THAT(message(status), HasSubstr(part));
    }
  }
}

TEST_F(BindTest, NegativeOverlappingRanges) {
  ScheduleBuilder s("overlap");
  E zero = s.constant(0), four = s.constant(4), bytes = s.length() * s.elementBytes() - 4;
  s.program("gradient", fb::Event::Gradient, 0, zero, zero);
  uint32_t g = s.jobBuffer("gradient", fb::Role::Gradient);
  s.launch(s.kernel("reduce_sum"), S::list(S::one(S::range(g, zero, bytes))),
           S::list(S::one(S::range(g, four, bytes))), s.length() - 1);
  auto schedule = loadOrDie(s.take());
  for (const Status &status : bindAll(1, [&](int rank) {
         Attempt one = attempt(rank);
         one.schedule = schedule;
         return one;
       }))
    EXPECT_THAT(message(status), AllOf(HasSubstr("reduce_sum"), HasSubstr("overlaps")));
}

} // namespace
} // namespace bagua::rt::testing
