// Every algorithm as the runtime executes it, on every transport: equal to the oracle bit for bit,
// and so (InterpretedTest) to the interpreters; bytes counted equal the formula.
#include "Algorithms.h"

#include "RankThreads.h"
#include "bagua/Expand.h"
#include "bagua/Ucx.h"
#include "bagua/dialect/Bagua/BaguaOps.h"

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

/// One bucket through some steps.
struct Case {
  std::string name;
  std::shared_ptr<const rt::Schedule> schedule;
  Inputs inputs;
  struct Step {
    std::vector<Bytes> gradients, weights; ///< After it.
    std::vector<int64_t> wireBytes;
  };
  std::vector<Step> steps;
};

/// A second step finds slots, events and channels as the first has left them.
constexpr int kSteps = 2;

/// The shipped algorithms against the oracle.
std::vector<Case> algorithmCases(int64_t world) {
  std::vector<Case> cases;
  for (const Algorithm &algorithm : algorithms()) {
    std::shared_ptr<const rt::Schedule> schedule = Compiled(algorithm).schedule();
    for (kernels::DType dtype : algorithm.dtypes)
      for (int64_t length : lengthsOf(algorithm)) {
        if (length == kLargeLength && dtype == kernels::DType::F64)
          continue;
        Case &one = cases.emplace_back();
        one.name = algorithm.name + (dtype == kernels::DType::F32 ? "/f32/" : "/f64/") +
                   std::to_string(length);
        one.schedule = schedule;
        one.inputs.world = world;
        one.inputs.length = length;
        one.inputs.dtype = dtype;
        fillInputs(one.inputs, 23, Fill::Edge);
        Case::Step state{one.inputs.gradients.front(), one.inputs.weights, {}};
        for (int step = 0; step < (length == kLargeLength ? 1 : kSteps); ++step) {
          auto &changed = algorithm.changesWeights ? state.weights : state.gradients;
          Expected expected = algorithm.expected(changed, dtype);
          changed = expected.values;
          state.wireBytes = expected.wireBytes;
          one.steps.push_back(state);
        }
      }
  }
  return cases;
}

/// Programs of other shapes against the bagua interpreter.
std::vector<Case> furtherCases(const Layout &layout, bool nodesOnly) {
  std::vector<Case> cases;
  for (const std::string &file : furtherFiles()) {
    Compiled compiled(file, /*mayNotLower=*/true);
    if (!compiled.schedule() || (nodesOnly && !countsNodes(*compiled.schedule())))
      continue;
    int64_t grain = compiled.schedule()->ir().grain;
    for (int64_t length : {int64_t{0}, int64_t{1}, grain, 7 * grain + 3, int64_t{1009}}) {
      Case &one = cases.emplace_back();
      one.name = file + "/" + std::to_string(length);
      one.schedule = compiled.schedule();
      one.inputs.world = layout.world();
      one.inputs.localSize = layout.local;
      one.inputs.length = length;
      bool weights = false; // Does it move them? In steps that are finite, then.
      compiled.at(compiler::Level::Bagua)->walk([&](ir::UpdateOp update) {
        weights |= update.getRole() == ir::Role::Weight;
      });
      if (weights)
        fillFiniteInputs(one.inputs, 29, Fill::Edge);
      else
        fillInputs(one.inputs, 29, Fill::Edge);
      Inputs state = one.inputs;
      for (int step = 0; step < kSteps; ++step) {
        state.firstStep = step;
        auto outputs = interpretBagua(compiled.at(compiler::Level::Bagua), state);
        if (failed(outputs)) {
          ADD_FAILURE() << one.name << ": " << compiled.diagnostics();
          return {};
        }
        state.gradients = outputs->gradients;
        state.weights = outputs->weights.front();
        one.steps.push_back({state.gradients.front(), state.weights, outputs->wireBytes.front()});
      }
    }
  }
  return cases;
}

/// A rank's bucket, in the transport's memory or in the job's own.
class BucketMemory {
public:
  BucketMemory(rt::Transport &transport, const Bytes &values, bool fromTransport) : own_(values) {
    data_ = own_.data();
    if (!fromTransport || values.empty())
      return;
    auto allocated = transport.allocate(values.size());
    if (!allocated.ok()) {
      ADD_FAILURE() << allocated.status();
      return;
    }
    memory_ = *std::move(allocated);
    data_ = memory_.bytes.data();
    std::memcpy(data_, values.data(), values.size());
  }
  std::byte *data() { return data_; }
  Bytes bytes() const { return Bytes(data_, data_ + own_.size()); }

private:
  Bytes own_;
  rt::Memory memory_;
  std::byte *data_;
};

void runCase(const Case &one, rt::testing::Rank &self) {
  SCOPED_TRACE(one.name + ", rank " + std::to_string(self.rank));
  auto rank = static_cast<size_t>(self.rank);
  BucketMemory gradient(self.transport, one.inputs.gradients.front()[rank], self.rank % 2 == 0);
  BucketMemory weight(self.transport, one.inputs.weights[rank], self.rank % 2 == 0);
  rt::Bucket bucket;
  bucket.name = one.name;
  bucket.length = one.inputs.length;
  bucket.dtype = one.inputs.dtype == kernels::DType::F32 ? fb::DType::F32 : fb::DType::F64;
  bucket.gradient = gradient.data();
  bucket.weight = weight.data();
  auto binding = rt::Binding::create(self.engine, one.schedule, bucket, {});
  ASSERT_TRUE(binding.ok()) << binding.status();
  uint64_t sent = 0;
  for (size_t step = 0; step < one.steps.size(); ++step) {
    uint64_t formula = 0;
    for (fb::Event event :
         {fb::Event::BeforeForward, fb::Event::Gradient, fb::Event::AfterUpdate}) {
      if (!one.schedule->program(event))
        continue;
      ASSERT_EQ((*binding)->start(event, static_cast<int64_t>(step)), absl::OkStatus());
      ASSERT_EQ((*binding)->openGate(fb::Gate::BeforeUpdate), absl::OkStatus());
      ASSERT_EQ(rt::testing::waitFor(**binding), absl::OkStatus());
      formula += (*binding)->wireBytes(event, static_cast<int64_t>(step));
    }
    const Case::Step &expected = one.steps[step];
    ASSERT_EQ(differenceOf({gradient.bytes()}, {expected.gradients[rank]}, one.inputs.dtype), "")
        << "gradient, step " << step;
    ASSERT_EQ(differenceOf({weight.bytes()}, {expected.weights[rank]}, one.inputs.dtype), "")
        << "weight, step " << step;
    EXPECT_EQ(formula, static_cast<uint64_t>(expected.wireBytes[rank]));
    sent += formula;
    EXPECT_EQ((*binding)->statistics().bytesWire, sent);
  }
}

void run(size_t connection, const Layout &layout, const std::vector<Case> &cases) {
  if (testing::Test::HasFailure())
    return;
  ASSERT_FALSE(cases.empty());
  rt::testing::RankOptions options;
  options.hosts = layout.hosts();
  rt::testing::runRanks(everyConnection()[connection], static_cast<int>(layout.world()), options,
                        [&](rt::testing::Rank &self) {
                          for (const Case &one : cases) {
                            runCase(one, self);
                            if (testing::Test::HasFailure())
                              return;
                          }
                        });
}

class ExecutedTest : public testing::TestWithParam<std::tuple<size_t, int64_t>> {};

TEST_P(ExecutedTest, EveryAlgorithmEqualsTheOracle) {
  auto [connection, world] = GetParam();
  run(connection, {1, world}, algorithmCases(world));
}

std::string nameOf(const testing::TestParamInfo<std::tuple<size_t, int64_t>> &info) {
  return everyConnection()[std::get<0>(info.param)].name + "_world" +
         std::to_string(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Transports, ExecutedTest,
                         testing::Combine(testing::Range(size_t{0}, everyConnection().size()),
                                          testing::ValuesIn(kWorlds)),
                         nameOf);

class FurtherTest : public ExecutedTest {};

TEST_P(FurtherTest, EveryInputOfTheLoweringEqualsItsInterpretation) {
  auto [connection, world] = GetParam();
  run(connection, {1, world}, furtherCases({1, world}, /*nodesOnly=*/false));
}

INSTANTIATE_TEST_SUITE_P(Transports, FurtherTest,
                         testing::Combine(testing::Range(size_t{0}, everyConnection().size()),
                                          testing::Values(2, 5)),
                         nameOf);

class OnNodesTest : public testing::TestWithParam<std::tuple<size_t, Layout>> {};

TEST_P(OnNodesTest, WhatCountsNodesEqualsItsInterpretation) {
  auto [connection, layout] = GetParam();
  run(connection, layout, furtherCases(layout, /*nodesOnly=*/true));
}

INSTANTIATE_TEST_SUITE_P(Transports, OnNodesTest,
                         testing::Combine(testing::Range(size_t{0}, everyConnection().size()),
                                          testing::ValuesIn(kLayouts)),
                         [](const testing::TestParamInfo<std::tuple<size_t, Layout>> &info) {
                           return everyConnection()[std::get<0>(info.param)].name + "_" +
                                  std::get<1>(info.param).name();
                         });

} // namespace
} // namespace bagua::test
