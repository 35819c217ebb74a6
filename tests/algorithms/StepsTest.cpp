// Every shipped algorithm, and those of Inputs/, through several steps, one of them not finite: the
// three interpreters agree bit for bit, states and bytes included, and so does the runtime on every
// transport.
#include "Algorithms.h"

#include "RankThreads.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <utility>

namespace bagua::test {
namespace {

using compiler::Bytes;
using compiler::Inputs;
using compiler::Level;
using compiler::Outputs;
using rt::testing::Connection;

constexpr int64_t kSteps = 7, kNonFiniteStep = 4;
constexpr float kStepSize = 0.05f;

std::vector<std::string> files() {
  std::vector<std::string> all = filesIn("algorithms");
  for (std::string &file : filesIn("tests/algorithms/Inputs"))
    all.push_back(std::move(file));
  return all;
}

/// Parameters that decide when something happens: often, so that a few steps see all of it.
std::map<std::string, double> shortened(const rt::Schedule &schedule) {
  std::map<std::string, double> parameters;
  for (const auto &parameter : schedule.ir().parameters)
    for (const char *word : {"warmup", "interval", "period", "steps"})
      if (!parameter->is_float && parameter->name.find(word) != std::string::npos)
        parameters[parameter->name] = 2;
  return parameters;
}

Inputs inputsOf(const rt::Schedule &schedule, const Layout &layout, int64_t length) {
  Inputs inputs;
  int64_t world = inputs.world = layout.world();
  inputs.localSize = layout.local;
  inputs.length = length;
  inputs.bucket = 3;
  inputs.steps = kSteps;
  inputs.parameters = shortened(schedule);
  inputs.stepSize = schedule.ir().owns_update ? 0 : double{kStepSize};
  fillInputs(inputs, 41);
  for (size_t rank = 1; rank < inputs.weights.size(); ++rank)
    inputs.weights[rank] = inputs.weights[0]; // As a job begins.
  if (length > 0) {
    float bad = std::numeric_limits<float>::infinity();
    Bytes &gradient = inputs.gradients[kNonFiniteStep][static_cast<size_t>(world - 1)];
    std::memcpy(gradient.data() + (static_cast<size_t>(length) / 2) * sizeof bad, &bad, sizeof bad);
  }
  return inputs;
}

std::vector<int64_t> lengthsOf(const rt::Schedule &schedule) {
  int64_t grain = schedule.ir().grain;
  return {0, 1, grain + 1, 3 * grain + 31};
}

void expectEqual(const Outputs &got, const Outputs &expected) {
  for (size_t step = 0; step < expected.gradients.size(); ++step) {
    ASSERT_EQ(differenceOf(got.gradients[step], expected.gradients[step], kernels::DType::F32), "")
        << "gradient of step " << step;
    ASSERT_EQ(differenceOf(got.weights[step], expected.weights[step], kernels::DType::F32), "")
        << "weight of step " << step;
  }
  ASSERT_EQ(got.states.size(), expected.states.size());
  for (const auto &[name, values] : expected.states)
    ASSERT_EQ(differenceOf(got.states.at(name), values, kernels::DType::F32), "") << name;
  EXPECT_EQ(got.wireBytes, expected.wireBytes);
  EXPECT_EQ(got.finite, expected.finite);
}

class StepsInterpretedTest : public testing::TestWithParam<std::string> {};

TEST_P(StepsInterpretedTest, LevelsAgree) {
  Compiled compiled(GetParam());
  ASSERT_TRUE(compiled.schedule()) << compiled.diagnostics();
  for (const Layout &layout : layoutsOf(*compiled.schedule()))
    for (int64_t length : lengthsOf(*compiled.schedule())) {
      SCOPED_TRACE(layout.name() + " ranks, length " + std::to_string(length));
      Inputs inputs = inputsOf(*compiled.schedule(), layout, length);
      auto expected = interpretBagua(compiled.at(Level::Bagua), inputs);
      ASSERT_TRUE(succeeded(expected)) << compiled.diagnostics();
      auto chunk = interpretChunk(compiled.at(Level::Chunk), inputs);
      ASSERT_TRUE(succeeded(chunk)) << compiled.diagnostics();
      expectEqual(*chunk, *expected);
      EXPECT_EQ(chunk->formulaWireBytes, expected->wireBytes);
      auto sched = interpretSched(compiled.at(Level::Sched), inputs);
      ASSERT_TRUE(succeeded(sched)) << compiled.diagnostics();
      expectEqual(*sched, *expected);
      EXPECT_EQ(sched->formulaWireBytes, expected->wireBytes);
      ASSERT_FALSE(HasFailure());
    }
}

TEST_P(StepsInterpretedTest, ANonFiniteStepLeavesStatesAndWeightsAsTheyWere) {
  Compiled compiled(GetParam());
  ASSERT_TRUE(compiled.schedule()) << compiled.diagnostics();
  Inputs inputs = inputsOf(*compiled.schedule(), {1, 3}, 100);
  if (compiled.schedule()->program(fb::Event::Async)) { // Between steps, rounds move weights.
    ASSERT_FALSE(inputs.parameters.empty());
    for (auto &[name, value] : inputs.parameters)
      value = 1000;
  }
  Inputs before = inputs;
  before.steps = kNonFiniteStep;
  before.gradients.resize(kNonFiniteStep);
  inputs.steps = kNonFiniteStep + 1;
  inputs.gradients.resize(kNonFiniteStep + 1);
  auto without = interpretBagua(compiled.at(Level::Bagua), before);
  auto with = interpretBagua(compiled.at(Level::Bagua), inputs);
  ASSERT_TRUE(succeeded(without) && succeeded(with)) << compiled.diagnostics();
  ASSERT_FALSE(with->finite.back());
  EXPECT_EQ(with->weights.back(), without->weights.back());
  EXPECT_EQ(with->states, without->states);
}

std::string fileName(const testing::TestParamInfo<std::string> &info) {
  return std::filesystem::path(info.param).stem().string();
}

INSTANTIATE_TEST_SUITE_P(Algorithms, StepsInterpretedTest, testing::ValuesIn(files()), fileName);

/// What a job does between programs, on this rank's buffers.
void jobStep(std::vector<float> &weight, const std::vector<float> &gradient) {
  for (size_t i = 0; i < weight.size(); ++i) {
    float moved = kStepSize * gradient[i];
    weight[i] = weight[i] - moved;
  }
}

std::vector<float> floatsOf(const Bytes &bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  if (!bytes.empty())
    std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

Bytes bytesOf(const std::vector<float> &values) {
  Bytes bytes(values.size() * sizeof(float));
  if (!bytes.empty())
    std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

/// The trainer's part in rounds (SPEC.md, A1): begins and adds them at the boundaries between
/// steps, with a binding of their own.
class RoundsByHand {
public:
  /// By the clock, rounds are interpreted as due at each boundary.
  static rt::StatusOr<RoundsByHand> create(const std::shared_ptr<const rt::Schedule> &schedule,
                                           rt::testing::Rank &self, rt::Bucket bucket,
                                           const rt::Binding::Options &options) {
    RoundsByHand rounds;
    const fb::ProgramT *program = schedule->program(fb::Event::Async);
    if (!program || self.world == 1)
      return rounds;
    const auto *weight = reinterpret_cast<const float *>(bucket.weight);
    rounds.snapshot_.assign(weight, weight + bucket.length); // As states begin that are the weight.
    bucket.async = true;
    bucket.weight = reinterpret_cast<std::byte *>(rounds.snapshot_.data());
    BAGUA_ASSIGN(rounds.binding_, rt::Binding::create(self.engine, schedule, bucket, options));
    BAGUA_ASSIGN(rounds.interval_, rounds.binding_->interval());
    if (program->every_unit == fb::IntervalUnit::Milliseconds)
      rounds.interval_.every = 1;
    rounds.staleness_ = program->staleness;
    return rounds;
  }

  /// Returns the bytes that a round which begins here sends.
  rt::StatusOr<int64_t> atBoundary(int64_t boundary, std::vector<float> &weight) {
    if (!binding_)
      return 0;
    if (runs_ && boundary == addedAt_)
      BAGUA_TRY(add(weight));
    waits_ |= boundary % interval_.every == 0 && boundary >= interval_.after;
    if (runs_ || !waits_)
      return 0;
    snapshot_.assign(weight.begin(), weight.end());
    addedAt_ = boundary + staleness_;
    runs_ = true;
    waits_ = false;
    BAGUA_TRY(binding_->start(fb::Event::Async, round_));
    auto bytes = static_cast<int64_t>(binding_->wireBytes(fb::Event::Async, round_++));
    bytes_ += bytes;
    return bytes;
  }
  /// Of the round that is under way, if there is one.
  rt::Status add(std::vector<float> &weight) {
    if (!std::exchange(runs_, false))
      return absl::OkStatus();
    BAGUA_TRY(rt::testing::waitFor(*binding_));
    EXPECT_EQ(binding_->statistics().bytesWire, static_cast<uint64_t>(bytes_));
    for (size_t i = 0; i < weight.size(); ++i)
      weight[i] += snapshot_[i];
    return absl::OkStatus();
  }
  rt::Binding *binding() const { return binding_.get(); }

private:
  std::unique_ptr<rt::Binding> binding_; ///< Null: no rounds.
  rt::Binding::Interval interval_;
  int64_t staleness_ = 0, addedAt_ = 0, round_ = 0, bytes_ = 0;
  bool runs_ = false, waits_ = false;
  std::vector<float> snapshot_; ///< Of the weight, then what to add to it.
};

struct Case {
  std::string name;
  std::shared_ptr<const rt::Schedule> schedule;
  Inputs inputs;
  Outputs expected;
};

void runCase(const Case &one, rt::testing::Rank &self) {
  SCOPED_TRACE(one.name + ", rank " + std::to_string(self.rank));
  auto rank = static_cast<size_t>(self.rank);
  std::vector<float> weight = floatsOf(one.inputs.weights[rank]);
  std::vector<float> gradient(weight.size());
  rt::Bucket bucket;
  bucket.name = one.name;
  bucket.length = one.inputs.length;
  bucket.gradient = reinterpret_cast<std::byte *>(gradient.data());
  bucket.weight = reinterpret_cast<std::byte *>(weight.data());
  bucket.index = one.inputs.bucket;
  rt::Binding::Options options;
  for (const auto &[name, value] : one.inputs.parameters)
    options.parameters.push_back({name, static_cast<int64_t>(value)});
  auto binding = rt::Binding::create(self.engine, one.schedule, bucket, options);
  ASSERT_TRUE(binding.ok()) << binding.status();
  auto rounds = RoundsByHand::create(one.schedule, self, bucket, options);
  ASSERT_TRUE(rounds.ok()) << rounds.status();
  for (size_t step = 0; step < static_cast<size_t>(kSteps); ++step) {
    std::vector<float> fresh = floatsOf(one.inputs.gradients[step][rank]);
    std::copy(fresh.begin(), fresh.end(), gradient.begin());
    bool finite = one.expected.finite[step];
    uint64_t sentBefore = (*binding)->statistics().bytesWire;
    for (fb::Event event :
         {fb::Event::BeforeForward, fb::Event::Gradient, fb::Event::AfterUpdate}) {
      if (event == fb::Event::AfterUpdate) {
        if (finite && !one.schedule->ir().owns_update)
          jobStep(weight, gradient);
        if (!finite)
          continue;
      }
      if (!one.schedule->program(event))
        continue;
      ASSERT_EQ((*binding)->start(event, static_cast<int64_t>(step)), absl::OkStatus());
      ASSERT_EQ((*binding)->openGate(fb::Gate::BeforeUpdate, finite), absl::OkStatus());
      ASSERT_EQ(rt::testing::waitFor(**binding), absl::OkStatus());
    }
    auto roundBytes = rounds->atBoundary(static_cast<int64_t>(step) + 1, weight);
    ASSERT_TRUE(roundBytes.ok()) << roundBytes.status();
    if (step + 1 == static_cast<size_t>(kSteps))
      ASSERT_EQ(rounds->add(weight), absl::OkStatus());
    ASSERT_EQ(differenceOf({bytesOf(gradient)}, {one.expected.gradients[step][rank]},
                           kernels::DType::F32),
              "")
        << "gradient, step " << step;
    ASSERT_EQ(
        differenceOf({bytesOf(weight)}, {one.expected.weights[step][rank]}, kernels::DType::F32),
        "")
        << "weight, step " << step;
    EXPECT_EQ((*binding)->statistics().bytesWire - sentBefore + static_cast<uint64_t>(*roundBytes),
              static_cast<uint64_t>(one.expected.wireBytes[step][rank]))
        << "step " << step;
  }
  size_t stateCount = 0;
  for (const rt::Binding *owner : {binding->get(), rounds->binding()}) {
    std::vector<rt::Binding::State> states =
        owner ? owner->states() : std::vector<rt::Binding::State>();
    stateCount += states.size();
    for (size_t i = 0; i < states.size(); ++i) {
      Bytes value(states[i].bytes);
      ASSERT_EQ(owner->readState(i, value), absl::OkStatus());
      ASSERT_EQ(differenceOf({value}, {one.expected.states.at(states[i].name)[rank]},
                             kernels::DType::F32),
                "")
          << states[i].name;
    }
  }
  if (one.inputs.world > 1) // Alone there are no rounds, and nobody keeps their states.
    EXPECT_EQ(stateCount, one.expected.states.size());
}

void runAll(const rt::testing::Connection &connection, const Layout &layout, bool nodesOnly) {
  std::vector<Case> cases;
  for (const std::string &file : files()) {
    Compiled compiled(file);
    ASSERT_TRUE(compiled.schedule()) << file << ": " << compiled.diagnostics();
    if (nodesOnly && !countsNodes(*compiled.schedule()))
      continue;
    for (int64_t length : lengthsOf(*compiled.schedule())) {
      Inputs inputs = inputsOf(*compiled.schedule(), layout, length);
      auto expected = interpretBagua(compiled.at(Level::Bagua), inputs);
      ASSERT_TRUE(succeeded(expected)) << file << ": " << compiled.diagnostics();
      cases.push_back(
          {file + "/" + std::to_string(length), compiled.schedule(), inputs, *std::move(expected)});
    }
  }
  ASSERT_FALSE(cases.empty());
  rt::testing::RankOptions options;
  options.hosts = layout.hosts();
  rt::testing::runRanks(connection, static_cast<int>(layout.world()), options,
                        [&](rt::testing::Rank &self) {
                          for (const Case &one : cases) {
                            runCase(one, self);
                            if (testing::Test::HasFailure())
                              return;
                          }
                        });
}

class StepsExecutedTest : public testing::TestWithParam<std::tuple<size_t, int64_t>> {};

TEST_P(StepsExecutedTest, EveryAlgorithmEqualsItsInterpretation) {
  auto [connection, world] = GetParam();
  runAll(rt::testing::connections()[connection], {1, world}, /*nodesOnly=*/false);
}

INSTANTIATE_TEST_SUITE_P(Transports, StepsExecutedTest,
                         testing::Combine(testing::Range(size_t{0},
                                                         rt::testing::connections().size()),
                                          testing::ValuesIn(kWorlds)),
                         [](const testing::TestParamInfo<std::tuple<size_t, int64_t>> &info) {
                           return rt::testing::connections()[std::get<0>(info.param)].name +
                                  "_world" + std::to_string(std::get<1>(info.param));
                         });

class StepsOnNodesTest : public testing::TestWithParam<std::tuple<size_t, Layout>> {};

TEST_P(StepsOnNodesTest, WhatCountsNodesEqualsItsInterpretation) {
  auto [connection, layout] = GetParam();
  runAll(rt::testing::connections()[connection], layout, /*nodesOnly=*/true);
}

INSTANTIATE_TEST_SUITE_P(Transports, StepsOnNodesTest,
                         testing::Combine(testing::Range(size_t{0},
                                                         rt::testing::connections().size()),
                                          testing::ValuesIn(kLayouts)),
                         [](const testing::TestParamInfo<std::tuple<size_t, Layout>> &info) {
                           return rt::testing::connections()[std::get<0>(info.param)].name + "_" +
                                  std::get<1>(info.param).name();
                         });

} // namespace
} // namespace bagua::test
