// What bindings keep from step to step: states, parameters of the step, finite steps, pairings.
#include "Oracle.h"
#include "RankThreads.h"
#include "SampleSchedules.h"
#include "ScheduleBuilder.h"
#include "bagua/Expand.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

namespace bagua::rt::testing {
namespace {

using namespace std::chrono_literals;
using S = ScheduleBuilder;
using fb::MapInstruction;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string message(const Status &status) { return std::string(status.message()); }

template <typename T> constexpr fb::DType kDType = sizeof(T) == 8 ? fb::DType::F64 : fb::DType::F32;

template <typename T> std::byte *bytesOf(std::vector<T> &values) {
  return reinterpret_cast<std::byte *>(values.data());
}

std::unique_ptr<Binding> bindOrDie(Rank &self, const std::shared_ptr<const Schedule> &schedule,
                                   const Bucket &bucket, const Binding::Options &options = {}) {
  auto binding = Binding::create(self.engine, schedule, bucket, options);
  EXPECT_TRUE(binding.ok()) << binding.status();
  BAGUA_CHECK(binding.ok());
  return *std::move(binding);
}

Status runOnce(Binding &binding, fb::Event event, int64_t step) {
  BAGUA_TRY(binding.start(event, step));
  return waitFor(binding);
}

Status untilGate(Binding &binding) {
  for (;;) {
    BAGUA_ASSIGN(bool there, binding.waitUntilGate(100ms));
    if (there)
      return absl::OkStatus();
  }
}

template <typename T> std::vector<T> valueOf(Binding &binding, size_t state) {
  std::vector<T> values(static_cast<size_t>(binding.states()[state].elements));
  EXPECT_EQ(binding.readState(state, std::as_writable_bytes(std::span(values))), absl::OkStatus());
  return values;
}

/// gossip_momentum written down once more, all ranks in one loop.
template <typename T> struct GossipMomentum {
  Inputs<T> weights, momenta;

  void step(int64_t step, const Inputs<T> &gradients, T beta, T lr, bool finite) {
    auto world = static_cast<int64_t>(weights.size());
    Inputs<T> next = momenta;
    for (size_t r = 0; r < weights.size(); ++r)
      for (size_t i = 0; i < next[r].size(); ++i) {
        T kept = beta * momenta[r][i];
        next[r][i] = kept + gradients[r][i];
      }
    Inputs<T> mixed = next;
    for (size_t r = 0; r < weights.size(); ++r) {
      auto partner = static_cast<size_t>(pairingPartner(7, step, world, static_cast<int64_t>(r)));
      for (size_t i = 0; partner != r && i < next[r].size(); ++i)
        mixed[r][i] = (next[r][i] + next[partner][i]) * T{0.5};
    }
    if (!finite)
      return;
    momenta = mixed;
    for (size_t r = 0; r < weights.size(); ++r)
      for (size_t i = 0; i < weights[r].size(); ++i) {
        T change = lr * momenta[r][i];
        weights[r][i] = weights[r][i] - change;
      }
  }
};

class StatesTest : public ::testing::TestWithParam<Connection> {
protected:
  template <typename T> void expectGossip(int world, size_t length) {
    constexpr int kSteps = 6;
    auto schedule = loadOrDie(gossipMomentumSchedule());
    auto gradientsOf = [&](int step) {
      Inputs<T> gradients;
      for (int rank = 0; rank < world; ++rank)
        gradients.push_back(numbers<T>(static_cast<uint64_t>(step * 100 + rank), length));
      return gradients;
    };
    auto lr = [](int step) { return 0.125 / (1 << step); };
    GossipMomentum<T> oracle;
    for (int rank = 0; rank < world; ++rank) {
      oracle.weights.push_back(numbers<T>(static_cast<uint64_t>(900 + rank), length));
      oracle.momenta.emplace_back(length);
    }
    Inputs<T> start = oracle.weights;
    std::vector<GossipMomentum<T>> expected;
    for (int step = 0; step < kSteps; ++step) {
      oracle.step(step, gradientsOf(step), static_cast<T>(0.75), static_cast<T>(lr(step)),
                  step != 3);
      expected.push_back(oracle);
    }
    runRanks(GetParam(), world, {}, [&](Rank &self) {
      auto rank = static_cast<size_t>(self.rank);
      std::vector<T> gradient(length), weight = start[rank];
      Binding::Options options;
      options.parameters = {{"beta", 0.75}};
      auto binding = bindOrDie(
          self, schedule,
          {"b", static_cast<int64_t>(length), kDType<T>, bytesOf(gradient), bytesOf(weight)},
          options);
      uint64_t wire = 0;
      for (int step = 0; step < kSteps; ++step) {
        gradient = gradientsOf(step)[rank];
        std::vector<T> before = weight;
        ASSERT_EQ(binding->setParameter({"lr", lr(step)}), absl::OkStatus());
        ASSERT_EQ(binding->start(fb::Event::Gradient, step), absl::OkStatus());
        ASSERT_EQ(untilGate(*binding), absl::OkStatus());
        ASSERT_EQ(weight, before) << "the weight changes at the gate";
        ASSERT_EQ(binding->openGate(fb::Gate::BeforeUpdate, step != 3), absl::OkStatus());
        ASSERT_EQ(waitFor(*binding), absl::OkStatus());
        const GossipMomentum<T> &now = expected[static_cast<size_t>(step)];
        ASSERT_EQ(weight, now.weights[rank]) << "step " << step;
        ASSERT_EQ(valueOf<T>(*binding, 0), now.momenta[rank]) << "step " << step;
        bool paired = pairingPartner(7, step, world, self.rank) != self.rank;
        EXPECT_EQ(binding->wireBytes(fb::Event::Gradient, step), paired ? length * sizeof(T) : 0);
        wire += paired ? length * sizeof(T) : 0;
        EXPECT_EQ(binding->statistics().bytesWire, wire);
      }
    });
  }
};

TEST_P(StatesTest, MomentumPairingsAndFiniteStepsAsWrittenDown) {
  for (int world : {1, 2, 3, 5}) {
    expectGossip<float>(world, 1000);
    expectGossip<double>(world, 7);
  }
  expectGossip<float>(2, 0);
  expectGossip<float>(3, 300'001);
}

// Peers read a state where it lies: the place that they read moves when it is published.
TEST_P(StatesTest, CommittedStatesMayBeSent) {
  constexpr int kWorld = 3, kSteps = 5;
  constexpr size_t kLength = 1000;
  ScheduleBuilder s("replica");
  E zero = s.constant(0), one = s.constant(1), bytes = s.length() * s.elementBytes();
  s.state("x").initial_weight = true;
  uint32_t sum = s.mapKernel(
      2, 0, {},
      {MapInstruction(0, 0, 0, 0), MapInstruction(0, 1, 0, 0), MapInstruction(3, 0, 1, 0)});
  s.program("after", fb::Event::AfterUpdate, 1, one, bytes);
  uint32_t w = s.jobBuffer("weight", fb::Role::Weight);
  uint32_t x = s.stateBuffer("x", 0, false, bytes), next = s.stateBuffer("x", 0, true, bytes);
  uint32_t in = s.slots("in", one, bytes), arrived = s.events("arrived", one);
  auto whole = [&](uint32_t buffer) { return S::one(S::range(buffer, zero, bytes)); };
  s.send((s.rank() + 1) % s.world(), 0, S::range(x, zero, bytes));
  s.recv((s.rank() + (s.world() - 1)) % s.world(), 0, in, zero, bytes, {}, S::event(arrived, zero));
  s.launch(sum, S::list(whole(x), S::one(S::view(in, zero, zero, bytes))), S::list(whole(next)),
           s.length(), S::list(S::event(arrived, zero)));
  s.release(in, zero);
  s.publish(0);
  s.launch(s.kernel("copy"), S::list(whole(x)), S::list(whole(w)), s.length());
  auto schedule = loadOrDie(s.take());

  std::vector<Inputs<float>> expected(1);
  for (int rank = 0; rank < kWorld; ++rank)
    expected[0].push_back(numbers<float>(static_cast<uint64_t>(rank), kLength));
  for (int step = 0; step < kSteps; ++step) {
    Inputs<float> now = expected.back();
    for (size_t r = 0; r < now.size(); ++r)
      for (size_t i = 0; i < kLength; ++i)
        now[r][i] = expected.back()[r][i] + expected.back()[(r + kWorld - 1) % kWorld][i];
    expected.push_back(now);
  }
  runRanks(GetParam(), kWorld, {}, [&](Rank &self) {
    auto rank = static_cast<size_t>(self.rank);
    std::vector<float> weight = expected[0][rank];
    auto binding =
        bindOrDie(self, schedule, {"b", kLength, fb::DType::F32, nullptr, bytesOf(weight)});
    for (size_t step = 0; step < kSteps; ++step) {
      ASSERT_EQ(runOnce(*binding, fb::Event::AfterUpdate, static_cast<int64_t>(step)),
                absl::OkStatus());
      EXPECT_EQ(weight, expected[step][rank]) << "a run keeps reading what it began with";
      EXPECT_EQ(valueOf<float>(*binding, 0), expected[step + 1][rank]) << "step " << step;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Connections, StatesTest, ::testing::ValuesIn(connections()),
                         [](const auto &info) { return info.param.name; });

/// One program on gradients with a counter: n_next = n + 1, published where step is a multiple of
/// `period`; the gradient becomes n.
std::shared_ptr<const Schedule> counterSchedule() {
  ScheduleBuilder s("counter", 1, {fb::DType::F32, fb::DType::F64});
  E zero = s.constant(0), one = s.constant(1), element = s.elementBytes();
  E period = s.parameter("period", 2, true);
  s.parameter("unused", 3);
  E now = s.step() % period == 0;
  uint32_t increment = s.mapKernel(
      1, 0, {1.0},
      {MapInstruction(0, 0, 0, 0), MapInstruction(2, 0, 0, 0), MapInstruction(3, 0, 1, 0)});
  uint32_t spread = s.mapKernel(1, 0, {}, {MapInstruction(0, 0, 0, 0)}, {1});
  s.state("n", fb::StateDomain::Scalar).initial = 10;
  s.program("gradient", fb::Event::Gradient, 0, zero, zero);
  uint32_t g = s.jobBuffer("gradient", fb::Role::Gradient);
  uint32_t n = s.stateBuffer("n", 0, false, element), next = s.stateBuffer("n", 0, true, element);
  auto scalar = [&](uint32_t buffer) { return S::list(S::one(S::range(buffer, zero, element))); };
  s.launch(spread, scalar(n), S::list(S::one(S::range(g, zero, s.length() * element))), s.length());
  s.launch(increment, scalar(n), scalar(next), one).guard = now.node;
  s.publish(0).guard = now.node;
  return loadOrDie(s.take());
}

TEST(StatesGuardTest, AStateThatIsNotPublishedStays) {
  auto schedule = counterSchedule();
  runRanks(connection("View"), 2, {}, [&](Rank &self) {
    std::vector<float> gradient(4);
    auto binding = bindOrDie(self, schedule, {"b", 4, fb::DType::F32, bytesOf(gradient), nullptr});
    float expected = 10;
    for (int64_t step = 0; step < 6; ++step) {
      if (step == 4) {
        ASSERT_EQ(binding->setParameter({"period", int64_t{5}}), absl::OkStatus());
      }
      ASSERT_EQ(runOnce(*binding, fb::Event::Gradient, step), absl::OkStatus());
      EXPECT_EQ(gradient, std::vector<float>(4, expected)) << "step " << step;
      bool published = step < 4 ? step % 2 == 0 : step % 5 == 0;
      expected += published ? 1 : 0;
      EXPECT_EQ(valueOf<float>(*binding, 0), std::vector<float>{expected});
    }
  });
}

TEST(StatesParameterTest, NegativeParametersOfTheStep) {
  auto schedule = counterSchedule();
  auto floats = loadOrDie(gossipMomentumSchedule());
  runRanks(connection("View"), 1, {}, [&](Rank &self) {
    std::vector<float> values(4), weights(4);
    Bucket bucket{"b", 4, fb::DType::F32, bytesOf(values), bytesOf(weights)};
    auto binding = bindOrDie(self, schedule, bucket);
    auto refused = [](const Status &status, const char *what) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      EXPECT_THAT(message(status), HasSubstr(what));
    };
    refused(binding->setParameter({"perod", int64_t{1}}),
            "has no parameter 'perod'; it has period, unused");
    refused(binding->setParameter({"unused", int64_t{1}}), "not declared per_step");
    refused(binding->setParameter({"period", 1.5}), "expects an integer, got 1.5");
    refused(binding->setParameter({"period", int64_t{-1}}), "expects an index of at least ");
    refused(binding->setParameter({"period", (int64_t{1} << 53) + 1}),
            "expects an index of at most 2^53, got 9007199254740993");
    auto gossip = bindOrDie(self, floats, bucket);
    refused(gossip->setParameter({"lr", NAN}), "expects a finite number, got nan");
    EXPECT_EQ(gossip->setParameter({"lr", int64_t{2}}),
              absl::OkStatus()); // An integer is a number.
    ASSERT_EQ(gossip->start(fb::Event::Gradient, 3), absl::OkStatus());
    Status running = gossip->setParameter({"lr", 1.0});
    EXPECT_EQ(running.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(message(running), AllOf(HasSubstr("'lr'"), HasSubstr("of step 3 runs")));
    std::vector<float> state(4);
    EXPECT_THAT(message(gossip->readState(0, std::as_writable_bytes(std::span(state)))),
                HasSubstr("state 'm' read while program gradient of step 3 runs"));
    EXPECT_THAT(message(gossip->writeState(0, std::as_bytes(std::span(state)))),
                HasSubstr("state 'm' written while"));
    ASSERT_EQ(gossip->openGate(fb::Gate::BeforeUpdate), absl::OkStatus());
    ASSERT_EQ(waitFor(*gossip), absl::OkStatus());
    // A bad value at bind.
    Binding::Options options;
    options.parameters = {{"beta", INFINITY}};
    refused(Binding::create(self.engine, floats, bucket, options).status(), "got inf");
  });
}

TEST(StatesParameterTest, ParametersOfTheStepDifferNextToOthersAtBind) {
  auto schedule = counterSchedule();
  runRanks(connection("View"), 2, {}, [&](Rank &self) {
    std::vector<float> values(4);
    Binding::Options options;
    options.parameters = {{"unused", int64_t{self.rank}}};
    auto binding = Binding::create(self.engine, schedule,
                                   {"b", 4, fb::DType::F32, bytesOf(values), nullptr}, options);
    EXPECT_EQ(binding.status().code(), absl::StatusCode::kAborted);
    EXPECT_THAT(message(binding.status()), HasSubstr("parameters.unused"));
  });
}

// The gate of a step that is not finite still opens; what needs no finite step happens.
TEST(StatesGateTest, OnlyWhatNeedsAFiniteStepIsLeftOut) {
  ScheduleBuilder s("gates");
  E zero = s.constant(0), one = s.constant(1), bytes = s.length() * s.elementBytes();
  uint32_t copy = s.kernel("copy");
  s.program("gradient", fb::Event::Gradient, 0, zero, zero);
  uint32_t g = s.jobBuffer("gradient", fb::Role::Gradient);
  uint32_t w = s.jobBuffer("weight", fb::Role::Weight);
  uint32_t kept = s.scratch("kept", bytes), skipped = s.events("skipped", one);
  auto whole = [&](uint32_t buffer) { return S::list(S::one(S::range(buffer, zero, bytes))); };
  s.launch(copy, whole(g), whole(kept), s.length());
  // No Wait: a step with if_finite waits for the gate itself. Its event is set, skipped or not.
  s.launch(copy, whole(g), whole(w), s.length(), {}, S::event(skipped, zero)).if_finite = true;
  s.launch(copy, whole(kept), whole(g), s.length(), S::list(S::event(skipped, zero)));
  auto schedule = loadOrDie(s.take());
  runRanks(connection("View"), 1, {}, [&](Rank &self) {
    std::vector<float> gradient(5), weight(5, 7.0f);
    auto binding =
        bindOrDie(self, schedule, {"b", 5, fb::DType::F32, bytesOf(gradient), bytesOf(weight)});
    for (bool finite : {false, true}) {
      gradient.assign(5, 3.0f);
      ASSERT_EQ(binding->start(fb::Event::Gradient, 0), absl::OkStatus());
      ASSERT_EQ(untilGate(*binding), absl::OkStatus());
      ASSERT_EQ(untilGate(*binding), absl::OkStatus()) << "it stays there";
      gradient.assign(5, 4.0f);
      ASSERT_EQ(binding->openGate(fb::Gate::BeforeUpdate, finite), absl::OkStatus());
      ASSERT_EQ(untilGate(*binding), absl::OkStatus()) << "the end, since no gate is shut";
      EXPECT_EQ(binding->statistics().runs, finite ? 2u : 1u);
      EXPECT_EQ(weight, std::vector<float>(5, finite ? 4.0f : 7.0f));
      EXPECT_EQ(gradient, std::vector<float>(5, 3.0f));
    }
  });
}

TEST(StatesGateTest, WaitUntilGateEndsWithAProgramThatHasNone) {
  auto schedule = loadOrDie(gradientAllReduceSchedule());
  runRanks(connection("View"), 2, {}, [&](Rank &self) {
    std::vector<float> values(10, static_cast<float>(self.rank));
    auto binding = bindOrDie(self, schedule, {"b", 10, fb::DType::F32, bytesOf(values), nullptr});
    ASSERT_EQ(binding->start(fb::Event::Gradient, 0), absl::OkStatus());
    ASSERT_EQ(untilGate(*binding), absl::OkStatus());
    EXPECT_EQ(values, std::vector<float>(10, 0.5f));
    EXPECT_EQ(binding->start(fb::Event::Gradient, 1), absl::OkStatus()) << "it was waited for";
    ASSERT_EQ(waitFor(*binding), absl::OkStatus());
  });
}

// Somebody else may drive: who waits for the gate is woken.
TEST(StatesGateTest, SeveralThreadsWaitForGates) {
  constexpr int kBuckets = 4;
  auto schedule = loadOrDie(gossipMomentumSchedule());
  runRanks(connection("View"), 2, {}, [&](Rank &self) {
    std::vector<std::vector<float>> gradients(kBuckets, std::vector<float>(1000, 1.0f));
    std::vector<std::vector<float>> weights(kBuckets, std::vector<float>(1000));
    std::vector<std::unique_ptr<Binding>> bindings;
    for (int i = 0; i < kBuckets; ++i)
      bindings.push_back(bindOrDie(self, schedule,
                                   {std::to_string(i), 1000, fb::DType::F32, bytesOf(gradients[i]),
                                    bytesOf(weights[i]), i}));
    for (int64_t step = 0; step < 20; ++step) {
      for (auto &binding : bindings)
        ASSERT_EQ(binding->start(fb::Event::Gradient, step), absl::OkStatus());
      std::vector<std::thread> threads;
      for (auto &binding : bindings)
        threads.emplace_back([&] {
          ASSERT_EQ(untilGate(*binding), absl::OkStatus());
          ASSERT_EQ(binding->openGate(fb::Gate::BeforeUpdate), absl::OkStatus());
          ASSERT_EQ(waitFor(*binding), absl::OkStatus());
        });
      for (std::thread &thread : threads)
        thread.join();
    }
    EXPECT_NE(weights[3][999], 0.0f);
  });
}

/// A state of every domain.
std::shared_ptr<const Schedule> domainsSchedule() {
  ScheduleBuilder s("domains", 4, {fb::DType::F32, fb::DType::F64});
  E zero = s.constant(0);
  s.state("whole").initial = 0.1;
  s.state("shard", fb::StateDomain::Shard).on_resize = fb::OnResize::Repartition;
  s.state("one", fb::StateDomain::Scalar).initial = -2;
  fb::StateT &replicas = s.state("replicas", fb::StateDomain::Neighbors);
  replicas.copies = 2;
  replicas.initial_weight = true;
  replicas.on_resize = fb::OnResize::Zero;
  s.program("gradient", fb::Event::Gradient, 0, zero, zero);
  s.scratch("nothing", zero);
  return loadOrDie(s.take());
}

TEST(StatesDomainTest, InitialValuesSizesAndPlaces) {
  auto schedule = domainsSchedule();
  runRanks(connection("View"), 4, {}, [&](Rank &self) {
    std::vector<float> weight(10);
    for (size_t i = 0; i < weight.size(); ++i)
      weight[i] = static_cast<float>(self.rank * 100) + static_cast<float>(i);
    auto binding = bindOrDie(self, schedule, {"b", 10, fb::DType::F32, nullptr, bytesOf(weight)});
    std::vector<Binding::State> states = binding->states();
    ASSERT_EQ(states.size(), 4u);
    EXPECT_EQ(states[0].name, "whole");
    EXPECT_EQ(valueOf<float>(*binding, 0), std::vector<float>(10, 0.1f));
    // SPEC.md, "Domains": shards [0, 0), [0, 4), [4, 8), [8, 10).
    constexpr int64_t kBegin[] = {0, 0, 4, 8}, kElements[] = {0, 4, 4, 2};
    EXPECT_EQ(states[1].offset, kBegin[self.rank]);
    EXPECT_EQ(states[1].elements, kElements[self.rank]);
    EXPECT_EQ(states[1].bytes, 4u * static_cast<uint64_t>(kElements[self.rank]));
    EXPECT_EQ(states[1].onResize, fb::OnResize::Repartition);
    EXPECT_EQ(valueOf<float>(*binding, 2), std::vector<float>{-2.0f});
    std::vector<float> twice = weight;
    twice.insert(twice.end(), weight.begin(), weight.end());
    EXPECT_EQ(valueOf<float>(*binding, 3), twice);
  });
  runRanks(connection("View"), 1, {}, [&](Rank &self) {
    std::vector<double> weight(10, 1.5);
    auto binding = bindOrDie(self, schedule, {"b", 10, fb::DType::F64, nullptr, bytesOf(weight)});
    EXPECT_EQ(valueOf<double>(*binding, 0), std::vector<double>(10, 0.1));
  });
}

TEST(StatesDomainTest, NegativeReadAndWrite) {
  auto schedule = domainsSchedule();
  runRanks(connection("View"), 1, {}, [&](Rank &self) {
    std::vector<float> weight(10), values(9);
    auto binding = bindOrDie(self, schedule, {"b", 10, fb::DType::F32, nullptr, bytesOf(weight)});
    EXPECT_THAT(message(binding->readState(0, std::as_writable_bytes(std::span(values)))),
                HasSubstr("bucket 'b': state 'whole' has 40 bytes, got 36"));
    EXPECT_THAT(message(binding->writeState(4, std::as_bytes(std::span(values)))),
                HasSubstr("state 4, expected below 4"));
  });
}

TEST(StatesDomainTest, NegativeBind) {
  auto schedule = domainsSchedule();
  runRanks(connection("View"), 1, {}, [&](Rank &self) {
    auto refusal = [&](const Bucket &bucket, const Binding::Options &options = {}) {
      return Binding::create(self.engine, schedule, bucket, options).status();
    };
    EXPECT_THAT(message(refusal({"b", 10, fb::DType::F32, nullptr, nullptr})),
                AllOf(HasSubstr("bucket 'b': state 'replicas'"), HasSubstr("null pointer")));
    std::vector<float> weight(100'000);
    Binding::Options options;
    options.memoryBytesMax = 1'000'000;
    Status large = refusal({"b", 100'000, fb::DType::F32, nullptr, bytesOf(weight)}, options);
    EXPECT_EQ(large.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(message(large),
                HasSubstr("states of schedule 'domains' need more than the 1000000"));
  });
}

// B33, of one binding: what is read at a step and written into another binding goes on bit for bit.
TEST(StatesDomainTest, B33_ResumeIsBitForBit) {
  constexpr int kSteps = 6, kCut = 3;
  auto schedule = loadOrDie(gossipMomentumSchedule());
  runRanks(connection("Copy"), 3, {}, [&](Rank &self) {
    auto rank = static_cast<uint64_t>(self.rank);
    auto train = [&](Binding &binding, std::vector<float> &gradient, int begin, int end) {
      for (int step = begin; step < end; ++step) {
        // Copied: the bucket stays where it is.
        const auto made = numbers<float>(static_cast<uint64_t>(step) * 10 + rank, gradient.size());
        gradient = made;
        ASSERT_EQ(binding.start(fb::Event::Gradient, step), absl::OkStatus());
        ASSERT_EQ(binding.openGate(fb::Gate::BeforeUpdate), absl::OkStatus());
        ASSERT_EQ(waitFor(binding), absl::OkStatus());
      }
    };
    std::vector<float> gradient(100), weight(100), savedState, savedWeight;
    Bucket bucket{"b", 100, fb::DType::F32, bytesOf(gradient), bytesOf(weight)};
    {
      auto binding = bindOrDie(self, schedule, bucket);
      train(*binding, gradient, 0, kCut);
      savedState = valueOf<float>(*binding, 0);
      savedWeight = weight;
      train(*binding, gradient, kCut, kSteps);
    }
    std::vector<float> uninterrupted = weight;
    weight = savedWeight;
    auto binding = bindOrDie(self, schedule, bucket);
    ASSERT_EQ(binding->writeState(0, std::as_bytes(std::span(savedState))), absl::OkStatus());
    train(*binding, gradient, kCut, kSteps);
    EXPECT_EQ(weight, uninterrupted);
  });
}

} // namespace
} // namespace bagua::rt::testing
