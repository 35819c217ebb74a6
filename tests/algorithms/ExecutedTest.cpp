// Every algorithm as the runtime executes it, on every transport: equal to the oracle bit for bit,
// and so (InterpretedTest) to the interpreters; bytes counted equal the formula.
#include "Algorithms.h"

#include "RankThreads.h"
#include "bagua/Expand.h"
#include "bagua/Ucx.h"

#include <gtest/gtest.h>

#include <cstring>

namespace bagua::test {
namespace {

using compiler::Bytes;
using compiler::Fill;
using compiler::Inputs;
using rt::testing::Connection;

/// Those of the executor's suite, and UCX over loopback TCP.
const std::vector<Connection> &everyConnection() {
  static const std::vector<Connection> all = [] {
    std::vector<Connection> list = rt::testing::connections();
#if defined(BAGUA_HAS_UCX)
    list.push_back({"Ucx", [](int) -> Connection::MakePart {
                      return [](rt::Group &group) -> rt::StatusOr<Connection::Part> {
                        BAGUA_ASSIGN(std::shared_ptr<rt::Doorbell> doorbell,
                                     rt::makeSharedDoorbell());
                        BAGUA_ASSIGN(std::unique_ptr<rt::Transport> transport,
                                     rt::makeUcxTransport(group, doorbell));
                        return Connection::Part{std::move(doorbell), std::move(transport)};
                      };
                    }});
#endif
    return list;
  }();
  return all;
}

/// One bucket: what goes in, what must come out of each of two steps.
struct Case {
  const Algorithm *algorithm;
  std::shared_ptr<const rt::Schedule> schedule;
  Inputs inputs;
  std::vector<Expected> steps;
  std::string name;

  const std::vector<Bytes> &before() const {
    return algorithm->changesWeights ? inputs.weights : inputs.gradients;
  }
};

std::vector<Case> casesFor(int64_t world) {
  std::vector<Case> cases;
  for (const Algorithm &algorithm : algorithms()) {
    std::shared_ptr<const rt::Schedule> schedule = Compiled(algorithm).schedule();
    for (kernels::DType dtype : algorithm.dtypes)
      for (int64_t length : lengthsOf(algorithm)) {
        if (length == kLargeLength && dtype == kernels::DType::F64)
          continue;
        Case &one = cases.emplace_back();
        one.algorithm = &algorithm;
        one.schedule = schedule;
        one.inputs.world = world;
        one.inputs.length = length;
        one.inputs.dtype = dtype;
        one.name = algorithm.name + (dtype == kernels::DType::F32 ? "/f32/" : "/f64/") +
                   std::to_string(length);
        fillInputs(one.inputs, 23, Fill::Edge);
        // A second step finds slots, events and channels as the first has left them.
        int stepCount = length == kLargeLength ? 1 : 2;
        for (int step = 0; step < stepCount; ++step)
          one.steps.push_back(
              algorithm.expected(step == 0 ? one.before() : one.steps.back().values, dtype));
      }
  }
  return cases;
}

void runCase(const Case &one, rt::testing::Rank &self) {
  SCOPED_TRACE(one.name + ", rank " + std::to_string(self.rank));
  auto rank = static_cast<size_t>(self.rank);
  const Bytes &before = one.before()[rank];
  // Even ranks' buckets lie in the transport's memory, odd ones' in the job's own.
  Bytes own = before;
  rt::Memory memory;
  std::byte *data = own.data();
  if (self.rank % 2 == 0 && !before.empty()) {
    auto allocated = self.transport.allocate(before.size());
    ASSERT_TRUE(allocated.ok()) << allocated.status();
    memory = *std::move(allocated);
    data = memory.bytes.data();
    std::memcpy(data, before.data(), before.size());
  }
  bool weights = one.algorithm->changesWeights;
  rt::Bucket bucket;
  bucket.name = one.name;
  bucket.length = one.inputs.length;
  bucket.dtype = one.inputs.dtype == kernels::DType::F32 ? fb::DType::F32 : fb::DType::F64;
  (weights ? bucket.weight : bucket.gradient) = data;
  auto binding = rt::Binding::create(self.engine, one.schedule, bucket, {});
  ASSERT_TRUE(binding.ok()) << binding.status();
  fb::Event event = weights ? fb::Event::BeforeForward : fb::Event::Gradient;
  for (size_t step = 0; step < one.steps.size(); ++step) {
    ASSERT_EQ((*binding)->start(event, static_cast<int64_t>(step)), absl::OkStatus());
    ASSERT_EQ((*binding)->openGate(fb::Gate::BeforeUpdate), absl::OkStatus());
    ASSERT_EQ(rt::testing::waitFor(**binding), absl::OkStatus());
    Bytes got(data, data + before.size());
    ASSERT_EQ(differenceOf({got}, {one.steps[step].values[rank]}, one.inputs.dtype), "")
        << "step " << step;
  }
  EXPECT_EQ((*binding)->statistics().bytesWire,
            one.steps.size() * static_cast<uint64_t>(one.steps[0].wireBytes[rank]));
  EXPECT_EQ((*binding)->wireBytes(event), static_cast<uint64_t>(one.steps[0].wireBytes[rank]));
}

class ExecutedTest : public testing::TestWithParam<std::tuple<size_t, int64_t>> {};

TEST_P(ExecutedTest, EveryAlgorithmEqualsTheOracle) {
  auto [connection, world] = GetParam();
  std::vector<Case> cases = casesFor(world);
  if (HasFailure())
    return;
  rt::testing::runRanks(everyConnection()[connection], static_cast<int>(world), {},
                        [&](rt::testing::Rank &self) {
                          for (const Case &one : cases) {
                            runCase(one, self);
                            if (testing::Test::HasFailure())
                              return;
                          }
                        });
}

INSTANTIATE_TEST_SUITE_P(Transports, ExecutedTest,
                         testing::Combine(testing::Range(size_t{0}, everyConnection().size()),
                                          testing::ValuesIn(kWorlds)),
                         [](const auto &info) {
                           return everyConnection()[std::get<0>(info.param)].name + "_world" +
                                  std::to_string(std::get<1>(info.param));
                         });

} // namespace
} // namespace bagua::test
