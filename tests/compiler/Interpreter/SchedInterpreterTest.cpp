// The sched interpreter against an oracle on the three algorithms, and on what it must refuse.
#include "../CompilerTestSupport.h"
#include "Oracle.h"

#include "llvm/ADT/StringRef.h"

#include <gmock/gmock.h>

namespace bagua::test {
namespace {

using compiler::Bytes;
using compiler::Inputs;
using compiler::InterpreterOptions;
using compiler::Outputs;
using testing::HasSubstr;

std::string example(const std::string &name) {
  return readFile(std::string(BAGUA_SOURCE_DIR) + "/tests/dialect/Sched/" + name + ".mlir");
}

template <typename T> kernels::DType dtypeOf() {
  return sizeof(T) == 4 ? kernels::DType::F32 : kernels::DType::F64;
}

/// Runs `name` on every world and length, in several orders and both modes of messages.
template <typename T, typename F>
void checkAgainstOracle(const std::string &name, bool weights, F &&oracle) {
  Ir ir;
  auto module = ir.parse(example(name));
  ASSERT_TRUE(module) << ir.diagnostics();
  for (int64_t world : {1, 2, 3, 4, 5, 8})
    for (int64_t length : {0, 1, 31, 2047, 2048, 2049, 20011}) {
      Inputs inputs;
      inputs.world = world;
      inputs.length = length;
      inputs.dtype = dtypeOf<T>();
      fillInputs(inputs, 7, compiler::Fill::Edge);
      OracleResult<T> expected =
          oracle(elementsOf<T>(weights ? inputs.weights : inputs.gradients.front()));
      for (uint64_t seed : {0, 1, 2})
        for (bool copy : {false, true}) {
          InterpreterOptions options;
          options.seed = seed;
          options.copyMessages = copy;
          SCOPED_TRACE(testing::Message() << name << ", world " << world << ", length " << length
                                          << ", seed " << seed << (copy ? ", copy" : ", view"));
          auto outputs = interpretSched(*module, inputs, options);
          ASSERT_TRUE(succeeded(outputs)) << ir.diagnostics();
          EXPECT_EQ(
              firstDifference<T>(weights ? outputs->weights.front() : outputs->gradients.front(),
                                 bytesOf(expected.values)),
              "");
          EXPECT_EQ(
              firstDifference<T>(weights ? outputs->gradients.front() : outputs->weights.front(),
                                 weights ? inputs.gradients.front() : inputs.weights),
              "");
          EXPECT_EQ(outputs->wireBytes.front(), expected.wireBytes);
          EXPECT_EQ(outputs->formulaWireBytes.front(), expected.wireBytes);
        }
    }
}

TEST(SchedInterpreterTest, GradientAllreduceF32EqualsOracle) {
  checkAgainstOracle<float>("gradient-allreduce", false, oracleGradientAllreduce<float>);
}

TEST(SchedInterpreterTest, GradientAllreduceF64EqualsOracle) {
  checkAgainstOracle<double>("gradient-allreduce", false, oracleGradientAllreduce<double>);
}

TEST(SchedInterpreterTest, BytegradEqualsOracle) {
  checkAgainstOracle<float>("bytegrad", false, [](const PerRank<float> &gradients) {
    return oracleBytegrad(gradients, 8, 2048);
  });
}

TEST(SchedInterpreterTest, DecentralizedF32EqualsOracle) {
  checkAgainstOracle<float>("decentralized", true, oracleDecentralized<float>);
}

TEST(SchedInterpreterTest, DecentralizedF64EqualsOracle) {
  checkAgainstOracle<double>("decentralized", true, oracleDecentralized<double>);
}

/// A program whose body is `steps`, with the declarations that most cases need.
std::string programOf(const std::string &steps) {
  return R"(sched.schedule @case grain 1 accepts [f32] {
  sched.declare_parameter @k = 3 : index
  sched.program @gradient on gradient {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c4 = arith.constant 4 : index
    %c8 = arith.constant 8 : index
    %n = sched.world
    %r = sched.rank
    %len = sched.length
    %g = sched.job "g" gradient
    %q = sched.scratch "q" bytes %c8
    %in = sched.slots "in" count %c2 bytes %c8
    %e = sched.events "e" count %c4
    %next = arith.addi %r, %c1 : index
    %peer = arith.remsi %next, %n : index
)" + steps +
         R"(
    sched.cost rounds %c0 wire_bytes %c0
  }
})";
}

/// The diagnostics of a run on two ranks, two f32 each; "" if it succeeds.
std::string failureOf(const std::string &text, const InterpreterOptions &options = {},
                      void (*change)(Inputs &) = nullptr) {
  Ir ir;
  auto module = ir.parse(text);
  if (!module)
    return "does not parse: " + ir.diagnostics();
  Inputs inputs;
  inputs.world = 2;
  inputs.length = 2;
  if (change)
    change(inputs);
  fillInputs(inputs, 1, compiler::Fill::Exact);
  return succeeded(interpretSched(*module, inputs, options)) ? "" : ir.diagnostics();
}

constexpr char kExchange[] = R"(
    sched.send %g[%c0, %c8] to %peer channel 0 signals %e[%c0]
    sched.recv %in[%c0] bytes %c8 from %peer channel 0 signals %e[%c1]
    %arrived = sched.event %e[%c1]
    %x = sched.view %in[%c0][%c0, %c8]
    %y = sched.range %q[%c0, %c8]
    %z = sched.range %g[%c0, %c8]
)";

TEST(SchedInterpreterTest, ExchangeIsFine) {
  EXPECT_EQ(failureOf(programOf(std::string(kExchange) + R"(
    sched.launch "copy" {} count %c2 ins(%x : !sched.range) outs(%y : !sched.range) after(%arrived : !sched.event)
    sched.release %in[%c0] on cpu
)")),
            "");
}

TEST(SchedInterpreterTest, DeadlockNamesWhoWaitsForWhat) {
  std::string failure = failureOf(programOf(R"(
    %arrived = sched.event %e[%c1]
    sched.send %g[%c0, %c8] to %peer channel 0 after(%arrived : !sched.event)
    sched.recv %in[%c0] bytes %c8 from %peer channel 0 signals %e[%c1]
    sched.release %in[%c0] on cpu after(%arrived : !sched.event)
)"));
  EXPECT_THAT(failure, HasSubstr("cannot go on: every queue of every rank waits"));
  EXPECT_THAT(failure, HasSubstr("rank 0, queue net: waits for event 'e[1]'"));
  EXPECT_THAT(failure, HasSubstr("rank 1, queue cpu: waits for event 'e[1]'"));
  EXPECT_THAT(failure, HasSubstr("loc(\"t.mlir\":20:5): rank 0, queue net"));
}

TEST(SchedInterpreterTest, WaitForAnEventThatNobodySignals) {
  EXPECT_THAT(failureOf(programOf(R"(
    %never = sched.event %e[%c2]
    sched.wait_gate before_update on net after(%never : !sched.event)
)")),
              HasSubstr("waits for event 'e[2]', which nobody signals"));
}

TEST(SchedInterpreterTest, ReceiveIntoABusySlotWaitsForItsRelease) {
  // The second receive would need the release that stands behind it on the same queue.
  std::string steps = R"(
    sched.send %g[%c0, %c4] to %peer channel 0
    sched.send %g[%c4, %c4] to %peer channel 0
    sched.recv %in[%c0] bytes %c4 from %peer channel 0 signals %e[%c0]
    %first = sched.event %e[%c0]
    sched.release %in[%c0] on QUEUE after(%first : !sched.event) signals %e[%c1]
    %free = sched.event %e[%c1]
    sched.recv %in[%c0] bytes %c4 from %peer channel 0 signals %e[%c2]
    %second = sched.event %e[%c2]
    sched.release %in[%c0] on cpu after(%second : !sched.event)
)";
  auto on = [&](const std::string &queue) {
    std::string text = steps;
    text.replace(text.find("QUEUE"), 5, queue);
    return programOf(text);
  };
  EXPECT_EQ(failureOf(on("cpu")), "");
  EXPECT_EQ(failureOf(on("net")), "");
  EXPECT_THAT(failureOf(programOf(R"(
    sched.recv %in[%c0] bytes %c4 from %peer channel 0
    sched.recv %in[%c0] bytes %c4 from %peer channel 0
)")),
              HasSubstr("expects a slot that was released before"));
}

TEST(SchedInterpreterTest, SlotThatIsNotFreeBlocksTheQueue) {
  // In program order the release comes first; at run time it waits for what the queue holds up.
  std::string failure = failureOf(programOf(R"(
    %c3 = arith.constant 3 : index
    sched.send %g[%c0, %c4] to %peer channel 0
    sched.send %g[%c4, %c4] to %peer channel 0
    sched.recv %in[%c0] bytes %c4 from %peer channel 0
    %late = sched.event %e[%c3]
    sched.release %in[%c0] on cpu after(%late : !sched.event)
    sched.recv %in[%c0] bytes %c4 from %peer channel 0 signals %e[%c3]
    sched.release %in[%c0] on cpu
)"));
  EXPECT_THAT(failure, HasSubstr("queue net: waits for its slot to be released"));
}

TEST(SchedInterpreterTest, ReadOfAMessageThatHasNotArrived) {
  EXPECT_THAT(failureOf(programOf(std::string(kExchange) + R"(
    sched.launch "copy" {} count %c2 ins(%x : !sched.range) outs(%y : !sched.range)
    sched.release %in[%c0] on cpu after(%arrived : !sched.event)
)"),
                        {.log = false, .seed = 0, .copyMessages = false},
                        [](Inputs &inputs) { inputs.world = 3; }),
              HasSubstr("reads a message that has not arrived, or was released"));
}

TEST(SchedInterpreterTest, ReadAfterRelease) {
  EXPECT_THAT(failureOf(programOf(std::string(kExchange) + R"(
    sched.release %in[%c0] on cpu after(%arrived : !sched.event)
    sched.launch "copy" {} count %c2 ins(%x : !sched.range) outs(%y : !sched.range)
)")),
              HasSubstr("expects a slot that a message was received into"));
}

TEST(SchedInterpreterTest, WriteOfBytesThatAPeerMayRead) {
  std::string failure = failureOf(programOf(std::string(kExchange) + R"(
    sched.launch "copy" {} count %c2 ins(%x : !sched.range) outs(%z : !sched.range) after(%arrived : !sched.event)
    sched.release %in[%c0] on cpu
)"));
  EXPECT_THAT(failure, HasSubstr("writes bytes of 'g' that rank"));
  EXPECT_THAT(failure, HasSubstr("sent here"));
}

TEST(SchedInterpreterTest, MessageThatIsNeverReleased) {
  EXPECT_THAT(failureOf(programOf(kExchange)), HasSubstr("never releases"));
}

TEST(SchedInterpreterTest, MessageThatIsNeverReceivedOrSent) {
  EXPECT_THAT(failureOf(programOf("    sched.send %g[%c0, %c8] to %peer channel 0\n")),
              HasSubstr("sends a message to rank 1 that it never receives"));
  EXPECT_THAT(failureOf(programOf("    sched.recv %in[%c0] bytes %c8 from %peer channel 0\n")),
              HasSubstr("receives a message from rank 0 that it never sends"));
}

TEST(SchedInterpreterTest, SizesThatDiffer) {
  std::string failure = failureOf(programOf(R"(
    sched.send %g[%c0, %c8] to %peer channel 0
    sched.recv %in[%c0] bytes %c4 from %peer channel 0
)"));
  EXPECT_THAT(failure, HasSubstr("expects 4 bytes from rank"));
  EXPECT_THAT(failure, HasSubstr("got 8"));
}

TEST(SchedInterpreterTest, OutOfRange) {
  EXPECT_THAT(failureOf(programOf("    sched.send %g[%c4, %c8] to %peer channel 0\n")),
              HasSubstr("on rank 0 of 2, length 2: expects bytes within the 8 of 'g', got 8 at 4"));
  EXPECT_THAT(failureOf(programOf("    sched.recv %in[%c2] bytes %c8 from %peer channel 0\n")),
              HasSubstr("expects a slot of 'in' below 2, got 2"));
  EXPECT_THAT(failureOf(programOf(R"(
    %c16 = arith.constant 16 : index
    sched.recv %in[%c0] bytes %c16 from %peer channel 0
)")),
              HasSubstr("expects a message of at most 8 bytes, got 16"));
  EXPECT_THAT(failureOf(programOf("    sched.wait_gate before_update on cpu signals %e[%c4]\n")),
              HasSubstr("expects an event of 'e' below 4, got 4"));
  EXPECT_THAT(failureOf(programOf("    sched.send %g[%c0, %c8] to %n channel 0\n")),
              HasSubstr("expects another rank as peer, got 2"));
  EXPECT_THAT(failureOf(programOf("    sched.send %g[%c0, %c8] to %r channel 0\n")),
              HasSubstr("expects another rank as peer, got 0"));
  EXPECT_THAT(failureOf(programOf(R"(
    %minus = arith.subi %c0, %c4 : index
    sched.send %g[%minus, %c4] to %peer channel 0
)")),
              HasSubstr("expects an offset of at least 0, got -4"));
  EXPECT_THAT(failureOf(programOf("    sched.release %in[%c0] on cpu\n")),
              HasSubstr("expects a slot that a message was received into"));
  EXPECT_THAT(failureOf(programOf(std::string(kExchange) + R"(
    %w = sched.view %in[%c0][%c4, %c8]
    sched.launch "copy" {} count %c2 ins(%w : !sched.range) outs(%y : !sched.range) after(%arrived : !sched.event)
)")),
              HasSubstr("expects bytes within the 8 of the message, got 8 at 4"));
}

TEST(SchedInterpreterTest, NegativeCost) {
  // Found by DamagedSchedTest: only the bytes were checked.
  std::string text = programOf("    %less = arith.subi %c0, %c1 : index\n");
  auto with = [&](const std::string &cost) {
    std::string changed = text;
    changed.replace(changed.find("rounds %c0 wire_bytes %c0"), 25, cost);
    return failureOf(changed);
  };
  EXPECT_THAT(with("rounds %less wire_bytes %c0"),
              HasSubstr("expects rounds of at least 0, got -1"));
  EXPECT_THAT(with("rounds %c0 wire_bytes %less"),
              HasSubstr("expects bytes of at least 0, got -1"));
}

TEST(SchedInterpreterTest, EventSignalledTwice) {
  std::string failure = failureOf(programOf(R"(
    sched.wait_gate before_update on cpu signals %e[%c0]
    sched.wait_gate before_update on cpu signals %e[%c0]
)"));
  EXPECT_THAT(failure, HasSubstr("expects an event that nobody else signals, got 'e[0]'"));
  EXPECT_THAT(failure, HasSubstr("signalled here too"));
}

TEST(SchedInterpreterTest, ReleaseOfWhatHasNotArrived) {
  EXPECT_THAT(failureOf(programOf(R"(
    sched.recv %in[%c0] bytes %c8 from %peer channel 0
    sched.release %in[%c0] on net
)")),
              HasSubstr("releases a message that has not arrived"));
}

TEST(SchedInterpreterTest, KernelsThatDoNotFit) {
  std::string ranges = "    %x = sched.range %g[%c0, %c8]\n    %y = sched.range %q[%c0, %c8]\n"
                       "    %h = sched.range %q[%c0, %c4]\n";
  auto launch = [&](const std::string &text) {
    return failureOf(programOf(ranges + "    sched.launch " + text));
  };
  EXPECT_THAT(launch(R"("fold" {} count %c2 ins(%x : !sched.range) outs(%y : !sched.range))"),
              HasSubstr("fold"));
  EXPECT_THAT(
      launch(
          R"("minmax_encode" {bits = 9, block = 2048} count %c2 ins(%x : !sched.range) outs(%y : !sched.range))"),
      HasSubstr("bits"));
  EXPECT_THAT(launch(R"("copy" {} count %c1 ins(%x : !sched.range) outs(%y : !sched.range))"),
              HasSubstr("expects inputs of 4 bytes for 1 elements, got 8"));
  EXPECT_THAT(launch(R"("copy" {} count %c2 ins(%x : !sched.range) outs(%h : !sched.range))"),
              HasSubstr("expects an output of 8 bytes for 2 elements, got 4"));
  EXPECT_THAT(
      launch(
          R"("copy" {} count %c2 ins(%x, %x : !sched.range, !sched.range) outs(%y : !sched.range))"),
      HasSubstr("inputs, got 2"));
  EXPECT_THAT(
      launch(
          R"("copy" {} count %c2 ins(%x : !sched.range) outs(%y, %y : !sched.range, !sched.range))"),
      HasSubstr("expects one output, got 2"));
  EXPECT_THAT(
      launch(
          R"("mix" {} count %c2 ins(%x, %x : !sched.range, !sched.range) outs(%y : !sched.range))"),
      HasSubstr("expects a scalar for each input but the first, got 0 for 2 inputs"));
}

TEST(SchedInterpreterTest, ArithmeticFailsWhereItIsUsed) {
  std::string fault = R"(
    %bad = arith.floordivsi %c1, %c0 : index
    %t = arith.cmpi eq, %c0, %c0 : index
    %chosen = arith.select %t, %c8, %bad : index
)";
  EXPECT_EQ(
      failureOf(programOf(
          fault + "    sched.for %i = %c0 to %c0 { sched.send %g[%c0, %bad] to %peer channel 0 }")),
      "");
  EXPECT_THAT(failureOf(programOf(fault + "    sched.send %g[%c0, %bad] to %peer channel 0")),
              HasSubstr("divides by zero"));
  EXPECT_THAT(failureOf(programOf(fault + "    sched.send %g[%c0, %chosen] to %peer channel 0")),
              HasSubstr("never receives"));
}

TEST(SchedInterpreterTest, TooManySteps) {
  EXPECT_THAT(failureOf(programOf(R"(
    %many = arith.constant 100000000 : index
    sched.for %i = %c0 to %many { sched.wait_gate before_update on cpu }
)")),
              HasSubstr("unrolls to more than 1048576 steps"));
}

TEST(SchedInterpreterTest, TooMuchMemory) {
  InterpreterOptions options;
  options.scratchBytesMax = 15; // Two ranks want 8 each.
  EXPECT_THAT(
      failureOf(programOf(""), options),
      HasSubstr("on rank 1 of 2, length 2: expects scratch memory of at most 15 bytes for all "
                "ranks together, got 8 here"));
}

TEST(SchedInterpreterTest, InputsThatDoNotFit) {
  std::string fine = programOf("");
  EXPECT_EQ(failureOf(fine), "");
  EXPECT_THAT(failureOf(fine, {}, [](Inputs &inputs) { inputs.dtype = kernels::DType::F64; }),
              HasSubstr("expects a bucket of an element type that it accepts, got f64"));
  EXPECT_THAT(failureOf(fine, {}, [](Inputs &inputs) { inputs.localSize = 3; }),
              HasSubstr("expects ranks per node that divide the world of 2, got 3"));
  EXPECT_THAT(failureOf(fine, {}, [](Inputs &inputs) { inputs.firstStep = -1; }),
              HasSubstr("expects a step of at least 0, got -1"));
  EXPECT_THAT(failureOf(fine, {}, [](Inputs &inputs) { inputs.parameters["unknown"] = 1; }),
              HasSubstr("has no parameter 'unknown'"));
  Ir ir;
  auto module = ir.parse(fine);
  Inputs inputs;
  inputs.length = 2;
  fillInputs(inputs, 1);
  inputs.weights[0].pop_back();
  EXPECT_TRUE(failed(interpretSched(*module, inputs)));
  EXPECT_THAT(ir.diagnostics(), HasSubstr("expects 8 bytes of weights for rank 0, got 7"));
}

TEST(SchedInterpreterTest, GuardOfZeroSkipsButSignals) {
  std::string text = programOf(R"(
    %step = sched.step
    %k = sched.parameter @k : index
    %on = arith.cmpi eq, %step, %k : index
    %x = sched.range %g[%c0, %c8]
    %two = arith.constant 2.0 : f64
    %y = sched.range %q[%c0, %c8]
    sched.launch "copy" {} count %c2 ins(%x : !sched.range) outs(%y : !sched.range)
    sched.launch "reduce_sum" {} count %c2 ins(%x, %y : !sched.range, !sched.range) outs(%x : !sched.range) signals %e[%c0] guard %on
    %done = sched.event %e[%c0]
    sched.wait_gate before_update on net after(%done : !sched.event)
)");
  Ir ir;
  auto module = ir.parse(text);
  ASSERT_TRUE(module) << ir.diagnostics();
  Inputs inputs;
  inputs.length = 2;
  fillInputs(inputs, 1, compiler::Fill::Exact);
  float before = elementsOf<float>(inputs.gradients.front())[0][0];
  ASSERT_NE(before, 0.0f);
  auto at = [&](int64_t step, double k) {
    inputs.firstStep = step;
    inputs.parameters["k"] = k;
    auto outputs = interpretSched(*module, inputs);
    EXPECT_TRUE(succeeded(outputs)) << ir.diagnostics();
    return succeeded(outputs) ? elementsOf<float>(outputs->gradients.front())[0][0] : 0.0f;
  };
  EXPECT_EQ(at(5, 5), 2 * before);
  EXPECT_EQ(at(4, 5), before);
}

TEST(SchedInterpreterTest, LogSaysWhatHappenedInOrder) {
  Ir ir;
  auto module = ir.parse(example("decentralized"));
  Inputs inputs;
  inputs.world = 2;
  inputs.length = 3;
  fillInputs(inputs, 1);
  InterpreterOptions options;
  options.log = true;
  auto outputs = interpretSched(*module, inputs, options);
  ASSERT_TRUE(succeeded(outputs)) << ir.diagnostics();
  ASSERT_FALSE(outputs->log.empty());
  EXPECT_THAT(outputs->log.front(), HasSubstr("rank 0: sends 12 bytes to rank 1"));
  EXPECT_THAT(outputs->log, testing::Contains(HasSubstr("rank 1: passes the gate")));
}

TEST(InputsTest, FilesRoundTripAndRefuseOtherSizes) {
  Inputs inputs;
  inputs.world = 2;
  inputs.length = 5;
  fillInputs(inputs, 3);
  compiler::Outputs unchanged;
  beginStep(inputs, unchanged);
  std::string path = testing::TempDir() + "/bagua-inputs-test.bin", error;
  ASSERT_TRUE(succeeded(writeOutputs(path, unchanged, error))) << error;
  Inputs again = inputs;
  again.gradients.clear();
  again.weights.clear();
  ASSERT_TRUE(succeeded(readInputs(path, again, error))) << error;
  EXPECT_EQ(again.gradients, inputs.gradients);
  EXPECT_EQ(again.weights, inputs.weights);
  again.length = 6;
  EXPECT_TRUE(failed(readInputs(path, again, error)));
  EXPECT_THAT(error, HasSubstr("expects 96 bytes (gradients, then weights, of 2 ranks), got 80"));
  again.length = 4;
  EXPECT_TRUE(failed(readInputs(path, again, error)));
  EXPECT_THAT(error, HasSubstr("got more"));
  EXPECT_TRUE(failed(readInputs(path + ".none", again, error)));
  EXPECT_THAT(error, HasSubstr("cannot open"));
  EXPECT_TRUE(failed(writeOutputs("/no-such-folder/x", unchanged, error)));
  EXPECT_THAT(error, HasSubstr("cannot write"));
}

} // namespace
} // namespace bagua::test
