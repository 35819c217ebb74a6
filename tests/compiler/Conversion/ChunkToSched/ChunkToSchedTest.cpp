// Chunk programs: interpreted, they give the oracle's bytes; lowered, the same bytes in any order
// of the queues, on transports that copy and those that do not; and the checker proves the lowered
// program.
#include "LoweringTestSupport.h"
#include "Oracle.h"

namespace bagua::test {
namespace {

constexpr int64_t kWorlds[] = {1, 2, 3, 4, 5, 8};

template <typename T, typename F>
void checkAgainstOracle(const std::string &name, bool weights, F &&oracle) {
  ChunkIr ir;
  auto module = ir.parse(ir.text(name));
  ASSERT_TRUE(module) << ir.diagnostics();
  auto lowered = ir.lower(*module);
  ASSERT_TRUE(lowered) << ir.diagnostics();
  for (int64_t world : kWorlds)
    for (int64_t length : {0, 1, 31, 2047, 2048, 2049, 20011}) {
      SCOPED_TRACE(testing::Message() << name << ", world " << world << ", length " << length);
      Inputs inputs = inputsOf<T>(world, length);
      OracleResult<T> expected =
          oracle(elementsOf<T>(weights ? inputs.weights : inputs.gradients.front()));
      auto outputs = interpretChunk(*module, inputs);
      ASSERT_TRUE(succeeded(outputs)) << ir.diagnostics();
      EXPECT_EQ(firstDifference<T>(weights ? outputs->weights.front() : outputs->gradients.front(),
                                   bytesOf(expected.values)),
                "");
      EXPECT_EQ(firstDifference<T>(weights ? outputs->gradients.front() : outputs->weights.front(),
                                   weights ? inputs.gradients.front() : inputs.weights),
                "");
      EXPECT_EQ(outputs->wireBytes.front(), expected.wireBytes);
      EXPECT_EQ(outputs->formulaWireBytes.front(), expected.wireBytes);
      checkLowered<T>(ir, *lowered, inputs, *outputs);
    }
}

TEST(ChunkToSchedTest, GradientAllreduceF32EqualsOracle) {
  checkAgainstOracle<float>("gradient-allreduce", false, oracleGradientAllreduce<float>);
}

TEST(ChunkToSchedTest, GradientAllreduceF64EqualsOracle) {
  checkAgainstOracle<double>("gradient-allreduce", false, oracleGradientAllreduce<double>);
}

TEST(ChunkToSchedTest, BytegradEqualsOracle) {
  checkAgainstOracle<float>("bytegrad", false, [](const PerRank<float> &gradients) {
    return oracleBytegrad(gradients, 8, 2048);
  });
}

TEST(ChunkToSchedTest, DecentralizedF32EqualsOracle) {
  checkAgainstOracle<float>("decentralized", true, oracleDecentralized<float>);
}

TEST(ChunkToSchedTest, DecentralizedF64EqualsOracle) {
  checkAgainstOracle<double>("decentralized", true, oracleDecentralized<double>);
}

/// Sums of integers, exact in any order: every rank ends with the same ones.
template <typename T> void checkSums(const std::string &name) {
  ChunkIr ir;
  auto module = ir.parse(ir.text(name));
  ASSERT_TRUE(module) << ir.diagnostics();
  auto lowered = ir.lower(*module);
  ASSERT_TRUE(lowered) << ir.diagnostics();
  for (int64_t world : kWorlds)
    for (int64_t length : {0, 1, 4, 31, 1009}) {
      SCOPED_TRACE(testing::Message() << name << ", world " << world << ", length " << length);
      Inputs inputs = inputsOf<T>(world, length);
      fillInputs(inputs, 11, compiler::Fill::Exact);
      auto gradients = elementsOf<T>(inputs.gradients.front());
      std::vector<T> sum(static_cast<size_t>(length), T(0));
      for (const std::vector<T> &gradient : gradients)
        for (size_t i = 0; i < sum.size(); ++i)
          sum[i] += gradient[i];
      auto outputs = interpretChunk(*module, inputs);
      ASSERT_TRUE(succeeded(outputs)) << ir.diagnostics();
      std::vector<std::vector<T>> expected(static_cast<size_t>(world), sum);
      EXPECT_EQ(firstDifference<T>(outputs->gradients.front(), bytesOf(expected)), "");
      checkLowered<T>(ir, *lowered, inputs, *outputs);
    }
}

TEST(ChunkToSchedTest, RingSums) { checkSums<float>("ring"); }
TEST(ChunkToSchedTest, SegmentedSums) { checkSums<double>("segmented"); }

/// `withCost`: its cost is a formula, not 0.
void checkProven(const std::string &name, bool withCost = true) {
  ChunkIr ir;
  auto module = ir.parse(ir.text(name));
  ASSERT_TRUE(module) << ir.diagnostics();
  auto lowered = ir.lower(*module);
  ASSERT_TRUE(lowered) << ir.diagnostics();
  checkProven(ir, *lowered, {}, withCost);
}

TEST(ChunkToSchedTest, GradientAllreduceIsProven) { checkProven("gradient-allreduce"); }
TEST(ChunkToSchedTest, BytegradIsProven) { checkProven("bytegrad"); }
TEST(ChunkToSchedTest, DecentralizedIsProven) { checkProven("decentralized"); }

TEST(ChunkToSchedTest, RingIsProven) { checkProven("ring"); }
TEST(ChunkToSchedTest, SegmentedIsProven) { checkProven("segmented", /*withCost=*/false); }

TEST(ChunkToSchedTest, SameBytesTwice) {
  for (const char *name : {"gradient-allreduce", "bytegrad", "decentralized"}) {
    std::vector<std::vector<uint8_t>> results;
    for (int run = 0; run < 2; ++run) {
      ChunkIr ir;
      auto module = ir.parse(ir.text(name));
      auto lowered = ir.lower(*module);
      ASSERT_TRUE(lowered) << ir.diagnostics();
      auto bytes = compiler::emitSchedule(*lowered);
      ASSERT_TRUE(succeeded(bytes)) << ir.diagnostics();
      results.push_back(*bytes);
    }
    EXPECT_EQ(results[0], results[1]) << name;
  }
}

} // namespace
} // namespace bagua::test
