// Every algorithm at every level: the interpreters equal the oracle bit for bit and send what the
// formula says.
#include "Algorithms.h"

#include <gtest/gtest.h>

namespace bagua::test {
namespace {

using compiler::Fill;
using compiler::Inputs;
using compiler::InterpreterOptions;
using compiler::Level;
using compiler::Outputs;

class InterpretedTest : public testing::TestWithParam<std::tuple<size_t, int64_t>> {
protected:
  const Algorithm &algorithm() const { return algorithms()[std::get<0>(GetParam())]; }
  int64_t world() const { return std::get<1>(GetParam()); }

  void check(const mlir::FailureOr<Outputs> &outputs, const Inputs &inputs,
             const Expected &expected, const Compiled &compiled) {
    ASSERT_TRUE(succeeded(outputs)) << compiled.diagnostics();
    bool weights = algorithm().changesWeights;
    EXPECT_EQ(differenceOf(weights ? outputs->weights.front() : outputs->gradients.front(),
                           expected.values, inputs.dtype),
              "");
    EXPECT_EQ(weights ? outputs->gradients.front() : outputs->weights.front(),
              weights ? inputs.gradients.front() : inputs.weights)
        << "the other bucket changed";
    EXPECT_EQ(outputs->wireBytes.front(), expected.wireBytes);
    if (!outputs->formulaWireBytes.empty()) {
      EXPECT_EQ(outputs->formulaWireBytes.front(), expected.wireBytes);
    }
  }
};

TEST_P(InterpretedTest, EveryLevelEqualsTheOracle) {
  Compiled compiled(algorithm());
  ASSERT_TRUE(compiled.schedule());
  for (kernels::DType dtype : algorithm().dtypes)
    for (int64_t length : lengthsOf(algorithm())) {
      bool large = length == kLargeLength;
      if (large && dtype == kernels::DType::F64)
        continue; // The reference kernels take their time.
      for (Fill fill : {Fill::Normal, Fill::Edge}) {
        if (large && fill == Fill::Normal)
          continue;
        Inputs inputs;
        inputs.world = world();
        inputs.length = length;
        inputs.dtype = dtype;
        if (algorithm().changesWeights)
          fillFiniteInputs(inputs, 11, fill);
        else
          fillInputs(inputs, 11, fill);
        Expected expected = algorithm().expected(
            algorithm().changesWeights ? inputs.weights : inputs.gradients.front(), dtype);
        std::string where = algorithm().name + ", world " + std::to_string(world()) + ", length " +
                            std::to_string(length) +
                            (dtype == kernels::DType::F32 ? ", f32" : ", f64") +
                            (fill == Fill::Edge ? ", edge" : ", normal");
        {
          SCOPED_TRACE(where + ", bagua");
          check(interpretBagua(compiled.at(Level::Bagua), inputs), inputs, expected, compiled);
        }
        {
          SCOPED_TRACE(where + ", chunk");
          check(interpretChunk(compiled.at(Level::Chunk), inputs), inputs, expected, compiled);
        }
        for (uint64_t seed : {0, 1, 2, 3})
          for (bool copy : {false, true}) {
            if (large && (seed != 0 || copy))
              continue;
            SCOPED_TRACE(where + ", sched, order " + std::to_string(seed) +
                         (copy ? ", copy" : ", view"));
            InterpreterOptions options;
            options.seed = seed;
            options.copyMessages = copy;
            check(interpretSched(compiled.at(Level::Sched), inputs, options), inputs, expected,
                  compiled);
          }
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Algorithms, InterpretedTest,
                         testing::Combine(testing::Range(size_t{0}, algorithms().size()),
                                          testing::ValuesIn(kWorlds)),
                         [](const auto &info) {
                           return algorithms()[std::get<0>(info.param)].name + "_world" +
                                  std::to_string(std::get<1>(info.param));
                         });

TEST(CompiledTest, TwoCompilationsGiveTheSameBytes) {
  for (const Algorithm &algorithm : algorithms())
    EXPECT_EQ(Compiled(algorithm).bytes(), Compiled(algorithm).bytes()) << algorithm.name;
}

TEST(CompiledTest, EveryStepNamesItsLineInTheAlgorithm) {
  for (const Algorithm &algorithm : algorithms()) {
    Compiled compiled(algorithm);
    ASSERT_TRUE(compiled.schedule());
    const fb::ScheduleT &schedule = compiled.schedule()->ir();
    ASSERT_FALSE(schedule.locations.empty());
    for (const auto &location : schedule.locations)
      EXPECT_EQ(location->file, algorithm.file);
    for (const auto &program : schedule.programs)
      for (const auto &step : program->body)
        EXPECT_LT(step->location, schedule.locations.size()) << algorithm.name;
  }
}

} // namespace
} // namespace bagua::test
