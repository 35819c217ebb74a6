// What changes from step to step: states, steps that are not finite, partners, guards. The chunk
// interpreter gives results computed here by hand, lowered programs the same in any order, and the
// checker proves them, and finds what is wrong at one step only.
#include "LoweringTestSupport.h"

#include "bagua/Expand.h"

#include <algorithm>
#include <functional>
#include <limits>

namespace bagua::test {
namespace {

constexpr int64_t kWorlds[] = {1, 2, 3, 4, 5, 8};

/// The one schedule `name` of step-time.mlir.
std::string scheduleOf(ChunkIr &ir, const std::string &name) {
  std::string text = ir.text("step-time");
  size_t begin = text.find("chunk.schedule @" + name);
  size_t end = text.find("\n}\n", begin);
  return text.substr(begin, end + 3 - begin);
}

template <typename T> Inputs stepsOf(int64_t world, int64_t length, int64_t steps) {
  Inputs inputs;
  inputs.world = world;
  inputs.length = length;
  inputs.steps = steps;
  inputs.dtype = sizeof(T) == 4 ? kernels::DType::F32 : kernels::DType::F64;
  fillInputs(inputs, 5, compiler::Fill::Exact);
  return inputs;
}

template <typename T> void spoil(compiler::Bytes &bytes) {
  T bad = std::numeric_limits<T>::infinity();
  if (bytes.size() >= sizeof(T))
    std::memcpy(bytes.data(), &bad, sizeof(T));
}

template <typename T> void checkMomentum() {
  ChunkIr ir;
  auto module = ir.parse(scheduleOf(ir, "momentum"));
  ASSERT_TRUE(module) << ir.diagnostics();
  auto lowered = ir.lower(*module);
  ASSERT_TRUE(lowered) << ir.diagnostics();
  for (int64_t world : kWorlds)
    for (int64_t length : {0, 1, 31}) {
      SCOPED_TRACE(testing::Message() << "world " << world << ", length " << length);
      auto n = static_cast<size_t>(world);
      Inputs inputs = stepsOf<T>(world, length, 4);
      spoil<T>(inputs.gradients[2][n - 1]); // One rank's: no rank commits what it computed.
      std::vector<std::vector<T>> m(n, std::vector<T>(static_cast<size_t>(length), T(0.5)));
      auto outputs = interpretChunk(*module, inputs);
      ASSERT_TRUE(succeeded(outputs)) << ir.diagnostics();
      for (size_t step = 0; step < 4; ++step) {
        auto g = elementsOf<T>(inputs.gradients[step]), next = m, expected = m;
        for (size_t rank = 0; rank < n; ++rank)
          for (size_t i = 0; i < g[rank].size(); ++i)
            next[rank][i] = T(0.5) * m[rank][i] + g[rank][i];
        for (size_t rank = 0; rank < n; ++rank)
          for (size_t i = 0; i < g[rank].size(); ++i)
            expected[rank][i] =
                n == 1 ? next[rank][i] : (next[rank][i] + next[(rank + n - 1) % n][i]) / 2;
        EXPECT_EQ(firstDifference<T>(outputs->gradients[step], bytesOf(expected)), "") << step;
        bool isFinite = step != 2 || length == 0;
        EXPECT_EQ(outputs->finite[step], isFinite) << step;
        if (isFinite)
          m = next;
      }
      EXPECT_EQ(firstDifference<T>(outputs->states.at("m"), bytesOf(m)), "");
      checkLowered<T>(ir, *lowered, inputs, *outputs);
    }
  checkProven(ir, *lowered, {});
}

TEST(StepTimeTest, MomentumOverStepsF32) { checkMomentum<float>(); }
TEST(StepTimeTest, MomentumOverStepsF64) { checkMomentum<double>(); }

/// Rank `r` sends to this one.
using Peers = std::function<int64_t(int64_t t, int64_t n, int64_t r)>;

int64_t modulo(int64_t a, int64_t n) { return ((a % n) + n) % n; }

void checkPeers(const std::string &map, const Peers &peerOf) {
  ChunkIr ir;
  std::string text = scheduleOf(ir, "pairs");
  const std::string written = "pairing(%seed, %t)";
  for (size_t at = 0; (at = text.find(written, at)) != std::string::npos; at += map.size())
    text.replace(at, written.size(), map);
  auto module = ir.parse(text);
  ASSERT_TRUE(module) << ir.diagnostics();
  auto lowered = ir.lower(*module);
  ASSERT_TRUE(lowered) << ir.diagnostics();
  for (int64_t world : kWorlds)
    for (int64_t length : {0, 1, 31}) {
      SCOPED_TRACE(testing::Message() << map << ", world " << world << ", length " << length);
      auto n = static_cast<size_t>(world);
      Inputs inputs = stepsOf<float>(world, length, 6);
      inputs.firstStep = 3;
      inputs.stepSize = 0.25;
      spoil<float>(inputs.gradients[3][0]);
      auto outputs = interpretChunk(*module, inputs);
      ASSERT_TRUE(succeeded(outputs)) << ir.diagnostics();
      auto weights = elementsOf<float>(inputs.weights);
      for (size_t step = 0; step < 6; ++step) {
        auto t = inputs.firstStep + static_cast<int64_t>(step);
        auto g = elementsOf<float>(inputs.gradients[step]), mixed = weights;
        for (int64_t rank = 0; rank < world; ++rank) {
          int64_t peer = peerOf(t, world, rank);
          EXPECT_EQ(peerOf(t, world, peer), rank);
          bool isActive = t % 2 == 0 && peer != rank;
          EXPECT_EQ(outputs->wireBytes[step][static_cast<size_t>(rank)], isActive ? 4 * length : 0);
          auto &own = weights[static_cast<size_t>(rank)];
          auto &other = weights[static_cast<size_t>(peer)];
          for (size_t i = 0; i < own.size() && isActive; ++i)
            mixed[static_cast<size_t>(rank)][i] = own[i] + 0.5f * (other[i] - own[i]);
        }
        if (step != 3 || length == 0) {
          weights = mixed;
          for (size_t rank = 0; rank < n; ++rank)
            for (size_t i = 0; i < weights[rank].size(); ++i)
              weights[rank][i] -= 0.25f * g[rank][i];
        }
        EXPECT_EQ(firstDifference<float>(outputs->weights[step], bytesOf(weights)), "") << step;
      }
      EXPECT_EQ(outputs->formulaWireBytes, outputs->wireBytes);
      checkLowered<float>(ir, *lowered, inputs, *outputs);
    }
  checkProven(ir, *lowered, {});
}

TEST(StepTimeTest, PairingMixes) {
  checkPeers("pairing(%seed, %t)",
             [](int64_t t, int64_t n, int64_t r) { return rt::pairingPartner(7, t, n, r); });
}

TEST(StepTimeTest, RoundRobinMixes) {
  checkPeers("round_robin(%t)", [](int64_t t, int64_t n, int64_t r) { return modulo(t - r, n); });
}

TEST(StepTimeTest, ShiftOneMixes) {
  checkPeers("shift_one(%t)", [](int64_t t, int64_t n, int64_t r) {
    int64_t low = n / 2, high = n - low;
    if (r < low)
      return low + modulo(t + r, high);
    int64_t partner = modulo(r - low - t, high);
    return partner < low ? partner : r;
  });
}

/// A distance of the step: what comes is from as far to the other side.
TEST(StepTimeTest, RotationsOfTheStepMix) {
  ChunkIr ir;
  auto module = ir.parse(R"mlir(
  chunk.schedule @rotating grain 1 accepts [f32] {
    chunk.program @p on before_forward {
      %zero = arith.constant 0 : index
      %one = arith.constant 1 : index
      %half = arith.constant 0.5 : f64
      %n = chunk.world
      %len = chunk.length
      %eb = chunk.element_bytes
      %bytes = arith.muli %len, %eb : index
      %many = arith.cmpi sgt, %n, %one : index
      %sent = arith.select %many, %bytes, %zero : index
      %t = chunk.step
      %others = arith.subi %n, %one : index
      %period = arith.maxsi %others, %one : index
      %k0 = arith.remsi %t, %period : index
      %k = arith.addi %k0, %one : index
      %w = chunk.job weight
      %s = chunk.scratch %bytes
      %in = chunk.slots %one, %bytes
      chunk.if %many {
        chunk.forall %r {
          %x = chunk.range %w[%zero, %bytes]
          %y = chunk.range %s[%zero, %bytes]
          %v = chunk.view %in[%zero][%zero, %bytes]
          chunk.move %x to rotate(%k) into %in[%zero]
          chunk.launch "mix" count %len ins(%x, %v : !chunk.range, !chunk.range)
            outs(%y : !chunk.range) scalars(%half : f64)
          chunk.wait before_update
          chunk.launch "copy" count %len ins(%y : !chunk.range) outs(%x : !chunk.range)
        }
      }
      chunk.cost rounds %one wire_bytes %sent
    }
  })mlir");
  ASSERT_TRUE(module) << ir.diagnostics();
  auto lowered = ir.lower(*module);
  ASSERT_TRUE(lowered) << ir.diagnostics();
  for (int64_t world : kWorlds) {
    SCOPED_TRACE(testing::Message() << "world " << world);
    Inputs inputs = stepsOf<float>(world, 5, 8);
    auto outputs = interpretChunk(*module, inputs);
    ASSERT_TRUE(succeeded(outputs)) << ir.diagnostics();
    auto weights = elementsOf<float>(inputs.weights);
    for (size_t step = 0; step < 8; ++step) {
      int64_t k = 1 + static_cast<int64_t>(step) % std::max<int64_t>(world - 1, 1);
      auto mixed = weights;
      for (int64_t rank = 0; rank < world && world > 1; ++rank) {
        auto &own = weights[static_cast<size_t>(rank)];
        auto &other = weights[static_cast<size_t>(modulo(rank - k, world))];
        for (size_t i = 0; i < own.size(); ++i)
          mixed[static_cast<size_t>(rank)][i] = own[i] + 0.5f * (other[i] - own[i]);
      }
      weights = mixed;
      EXPECT_EQ(firstDifference<float>(outputs->weights[step], bytesOf(weights)), "") << step;
    }
    checkLowered<float>(ir, *lowered, inputs, *outputs);
  }
  checkProven(ir, *lowered, {});
}

/// States of every domain: each keeps what the job had, then what the last step made of it.
TEST(StepTimeTest, DomainsHaveTheirSizes) {
  ChunkIr ir;
  auto module = ir.parse(R"mlir(
  chunk.schedule @domains grain 4 accepts [f32] {
    chunk.declare_state @shard shard = 1.5 on_resize repartition
    chunk.declare_state @scalar scalar = -2.0 on_resize mean
    chunk.declare_state @copies neighbors(3) = weight on_resize zero
    chunk.declare_state @anchor bucket = weight on_resize mean
    chunk.program @p on after_update {
      %zero = arith.constant 0 : index
      %one = arith.constant 1 : index
      %three = arith.constant 3 : index
      %four = arith.constant 4 : index
      %n = chunk.world
      %rank = chunk.rank
      %len = chunk.length
      %eb = chunk.element_bytes
      %bytes = arith.muli %len, %eb : index
      %blocks = arith.ceildivsi %len, %four : index
      %next_rank = arith.addi %rank, %one : index
      %b0 = arith.muli %rank, %blocks : index
      %b1 = arith.floordivsi %b0, %n : index
      %b2 = arith.muli %b1, %four : index
      %begin = arith.minsi %len, %b2 : index
      %e0 = arith.muli %next_rank, %blocks : index
      %e1 = arith.floordivsi %e0, %n : index
      %e2 = arith.muli %e1, %four : index
      %end = arith.minsi %len, %e2 : index
      %own = arith.subi %end, %begin : index
      %own_bytes = arith.muli %own, %eb : index
      %offset = arith.muli %begin, %eb : index
      %all = arith.muli %len, %three : index
      %all_bytes = arith.muli %all, %eb : index
      %w = chunk.job weight
      %shard = chunk.state @shard next
      %scalar = chunk.state @scalar
      %scalar_next = chunk.state @scalar next
      %copies = chunk.state @copies
      %copies_next = chunk.state @copies next
      %anchor = chunk.state @anchor
      chunk.forall %r {
        %part = chunk.range %w[%offset, %own_bytes]
        %kept = chunk.range %shard[%zero, %own_bytes]
        chunk.launch "copy" count %own ins(%part : !chunk.range) outs(%kept : !chunk.range)
        %s = chunk.range %scalar[%zero, %eb]
        %sn = chunk.range %scalar_next[%zero, %eb]
        chunk.launch "reduce_sum" count %one ins(%s, %s : !chunk.range, !chunk.range) outs(%sn : !chunk.range)
        %c = chunk.range %copies[%zero, %all_bytes]
        %cn = chunk.range %copies_next[%zero, %all_bytes]
        chunk.launch "reduce_sum" count %all ins(%c, %c : !chunk.range, !chunk.range) outs(%cn : !chunk.range)
        %a = chunk.range %anchor[%zero, %bytes]
        %x = chunk.range %w[%zero, %bytes]
        chunk.launch "reduce_sum" count %len ins(%a, %x : !chunk.range, !chunk.range) outs(%x : !chunk.range)
        chunk.publish @shard
        chunk.publish @scalar
        chunk.publish @copies
      }
      chunk.cost rounds %zero wire_bytes %zero
    }
  })mlir");
  ASSERT_TRUE(module) << ir.diagnostics();
  auto lowered = ir.lower(*module);
  ASSERT_TRUE(lowered) << ir.diagnostics();
  for (int64_t world : {1, 3})
    for (int64_t length : {1, 10, 13}) {
      SCOPED_TRACE(testing::Message() << "world " << world << ", length " << length);
      Inputs inputs = stepsOf<float>(world, length, 2);
      auto outputs = interpretChunk(*module, inputs);
      ASSERT_TRUE(succeeded(outputs)) << ir.diagnostics();
      auto first = elementsOf<float>(inputs.weights);
      for (int64_t rank = 0; rank < world; ++rank) {
        auto r = static_cast<size_t>(rank);
        rt::Shard shard = rt::shardOf(length, 4, world, rank);
        std::vector<float> kept, copies;
        for (int64_t i = shard.begin; i < shard.end; ++i) // As the second step found the weight.
          kept.push_back(2 * first[r][static_cast<size_t>(i)]);
        for (int copy = 0; copy < 3; ++copy)
          for (float x : first[r])
            copies.push_back(4 * x);
        EXPECT_EQ(elementsOf<float>(outputs->states.at("shard"))[r], kept);
        EXPECT_EQ(elementsOf<float>(outputs->states.at("scalar")) [r], std::vector<float> { -8 });
        EXPECT_EQ(elementsOf<float>(outputs->states.at("copies"))[r], copies);
        EXPECT_EQ(elementsOf<float>(outputs->states.at("anchor"))[r], first[r]);
        for (size_t i = 0; i < first[r].size(); ++i)
          EXPECT_EQ(elementsOf<float>(outputs->weights[1])[r][i], 3 * first[r][i]);
      }
      checkLowered<float>(ir, *lowered, inputs, *outputs);
    }
  checkProven(ir, *lowered, {});
}

// ---- What the checker finds --------------------------------------------------------------------

fb::ScheduleT scheduleOf(Ir &ir, const std::string &steps, const std::string &event = "gradient") {
  auto module = ir.parse(R"(sched.schedule @s grain 1 accepts [f32] {
    sched.declare_state @m bucket = 0.0 on_resize mean
    sched.program @p on )" +
                         event +
                         R"( {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c2 = arith.constant 2 : index
      %c9 = arith.constant 9 : index
      %c1000 = arith.constant 1000 : index
      %n = sched.world
      %rank = sched.rank
      %len = sched.length
      %eb = sched.element_bytes
      %bytes = arith.muli %len, %eb : index
      %t = sched.step
      %many = arith.cmpi sgt, %n, %c1 : index
      %right0 = arith.addi %rank, %c1 : index
      %right = arith.remsi %right0, %n : index
      %left0 = arith.addi %rank, %n : index
      %left1 = arith.subi %left0, %c1 : index
      %left = arith.remsi %left1, %n : index
      %odd0 = arith.remsi %t, %c2 : index
      %odd = arith.cmpi eq, %odd0, %c1 : index
      %late = arith.cmpi sge, %t, %c1000 : index
      %at9 = arith.cmpi ne, %t, %c9 : index
      %all = arith.select %many, %bytes, %c0 : index
      %if_odd = arith.select %odd, %all, %c0 : index
      %g = sched.job "g" gradient
      %m = sched.state "m" @m
      %next = sched.state "next" @m next
      %in = sched.slots "in" count %c1 bytes %bytes
      %arrived = sched.events "arrived" count %c1
      %x = sched.range %g[%c0, %bytes]
      %y = sched.range %next[%c0, %bytes]
)" + steps + "}}");
  EXPECT_TRUE(module) << ir.diagnostics();
  if (!module)
    return {};
  auto schedule = compiler::buildSchedule(*module);
  EXPECT_TRUE(succeeded(schedule)) << ir.diagnostics();
  return succeeded(schedule) ? std::move(*schedule) : fb::ScheduleT();
}

std::string findingsOf(const fb::ScheduleT &schedule) {
  auto bytes = rt::serialize(schedule);
  if (!bytes.ok())
    return std::string(bytes.status().message());
  auto report = compiler::check(**rt::Schedule::fromBytes(*bytes));
  if (!report.ok())
    return std::string(report.status().message());
  std::string text;
  for (const compiler::Finding &finding : report->findings)
    text += finding.text() + "\n";
  return text;
}

std::string findingsOf(const std::string &steps) {
  Ir ir;
  return findingsOf(scheduleOf(ir, steps));
}

constexpr const char *kCopy =
    "sched.launch \"copy\" {} count %len ins(%x : !sched.range) outs(%y : !sched.range)\n";

TEST(StepTimeCheckerTest, AcceptsAPublishBehindItsWriter) {
  EXPECT_EQ(
      findingsOf(std::string(kCopy) + "sched.publish @m\nsched.cost rounds %c0 wire_bytes %c0"),
      "");
}

TEST(StepTimeCheckerTest, PublishBeforeItsWriter) {
  EXPECT_THAT(findingsOf(std::string("sched.publish @m\n") + kCopy +
                         "sched.cost rounds %c0 wire_bytes %c0"),
              testing::AllOf(testing::HasSubstr("B120"),
                             testing::HasSubstr("writes 'next' and is not done before rank 0 "
                                                "Publish")));
}

TEST(StepTimeCheckerTest, PublishTwice) {
  EXPECT_THAT(findingsOf(std::string(kCopy) + "sched.publish @m\nsched.publish @m guard %late\n"
                                              "sched.cost rounds %c0 wire_bytes %c0"),
              testing::AllOf(testing::HasSubstr("B120"), testing::HasSubstr("step 1000"),
                             testing::HasSubstr("publishes a state again")));
}

TEST(StepTimeCheckerTest, StateOfTwoWriters) {
  Ir ir;
  fb::ScheduleT schedule =
      scheduleOf(ir, std::string(kCopy) + "sched.publish @m\nsched.cost rounds %c0 wire_bytes %c0");
  ASSERT_EQ(schedule.programs.size(), 1u);
  auto other = std::make_unique<fb::ProgramT>(*schedule.programs.front());
  other->name = "q";
  other->event = fb::Event::BeforeForward;
  other->body.clear();
  schedule.programs.push_back(std::move(other));
  EXPECT_THAT(findingsOf(schedule), testing::HasSubstr("writes state 'm', as program 'p' does"));
}

/// A ring whose send and receive have these guards.
std::string ring(const std::string &send, const std::string &recv, const std::string &cost) {
  return R"(sched.if %many {
    sched.recv %in[%c0] bytes %bytes from %left channel 0 signals %arrived[%c0] )" +
         recv + R"(
    sched.send %g[%c0, %bytes] to %right channel 0 )" +
         send + R"(
    %e = sched.event %arrived[%c0]
    sched.release %in[%c0] on cpu after(%e : !sched.event) )" +
         recv + "\n}\nsched.cost rounds %c1 wire_bytes %" + cost;
}

TEST(StepTimeCheckerTest, AcceptsEqualGuards) {
  EXPECT_EQ(findingsOf(ring("guard %odd", "guard %odd", "if_odd")), "");
}

TEST(StepTimeCheckerTest, SendThatOneStepLacks) { // 9 is a number of the file.
  EXPECT_THAT(findingsOf(ring("guard %at9", "", "all")),
              testing::AllOf(testing::HasSubstr("B101"), testing::HasSubstr("step 9")));
}

TEST(StepTimeCheckerTest, ReceiveThatLateStepsLack) {
  EXPECT_THAT(findingsOf(ring("", "guard %late", "all")), testing::HasSubstr("B101"));
}

TEST(StepTimeCheckerTest, WireBytesOfAnotherStep) {
  EXPECT_THAT(findingsOf(ring("guard %odd", "guard %odd", "all")),
              testing::AllOf(testing::HasSubstr("B103"), testing::HasSubstr("step 0"),
                             testing::HasSubstr("sends 0 bytes, but wire_bytes is ")));
}

} // namespace
} // namespace bagua::test
