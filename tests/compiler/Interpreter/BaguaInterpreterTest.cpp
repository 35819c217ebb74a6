// The oracle of the bagua level against sums done by hand, and against the kernels' references.
#include "../CompilerTestSupport.h"

#include "bagua/Expand.h"
#include "bagua/compiler/ScalarEvaluator.h"
#include "bagua/dialect/Bagua/BaguaMap.h"
#include "bagua/dialect/Bagua/BaguaOps.h"
#include "bagua/kernels/Map.h"

#include "mlir/AsmParser/AsmParser.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

namespace bagua::test {
namespace {

using compiler::Bytes;
using compiler::Fill;
using compiler::Inputs;
using compiler::Outputs;
using testing::ElementsAre;
using testing::HasSubstr;

class BaguaInterpreterTest : public testing::Test {
protected:
  BaguaInterpreterTest() {
    ir_.context().loadDialect<ir::BaguaDialect, mlir::func::FuncDialect, mlir::scf::SCFDialect>();
    inputs_.world = 2;
    inputs_.length = 2;
  }

  /// Gradients by step, the same on every rank; weights 10, 20.
  void setSteps(const std::vector<std::vector<float>> &gradients) {
    inputs_.steps = static_cast<int64_t>(gradients.size());
    auto ranks = static_cast<size_t>(inputs_.world);
    inputs_.gradients.clear();
    for (const std::vector<float> &gradient : gradients)
      inputs_.gradients.push_back(bytesOf(std::vector(ranks, gradient)));
    inputs_.weights = bytesOf(std::vector(ranks, std::vector<float>{10, 20}));
  }

  /// Interprets; the diagnostics, or "" if there was no error.
  std::string errorOf(const std::string &text) {
    auto module = ir_.parse("!bucket = tensor<?xf32, #bagua.bucket>\n"
                            "!scalar = tensor<?xf32, #bagua.scalar>\n" +
                            text);
    if (!module)
      return "does not parse: " + ir_.diagnostics();
    auto outputs = interpretBagua(*module, inputs_);
    if (failed(outputs))
      return ir_.diagnostics();
    outputs_ = *outputs;
    return "";
  }

  std::vector<float> gradient(size_t step, size_t rank = 0) const {
    return elementsOf<float>(outputs_.gradients[step])[rank];
  }
  std::vector<float> weight(size_t step, size_t rank = 0) const {
    return elementsOf<float>(outputs_.weights[step])[rank];
  }
  std::vector<float> state(const std::string &name, size_t rank = 0) const {
    return elementsOf<float>(outputs_.states.at(name))[rank];
  }

  Ir ir_;
  Inputs inputs_;
  Outputs outputs_;
};

constexpr const char *kMomentum = R"(
bagua.algorithm @momentum(%beta: f64 = 0.5) {
  bagua.state @m : bucket = 1.0
  bagua.on gradient(%g: !bucket) {
    %m = bagua.read @m
    %new = bagua.map %beta * %m + %g
    bagua.update @m = %new
    %again = bagua.read @m
    bagua.update gradient = %again
  }
})";

TEST_F(BaguaInterpreterTest, AStateLivesFromStepToStep) {
  setSteps({{1, 2}, {1, 2}});
  inputs_.stepSize = 2;
  ASSERT_EQ(errorOf(kMomentum), "");
  EXPECT_THAT(gradient(0), ElementsAre(1.5f, 2.5f)); // What the handler updated, it reads.
  EXPECT_THAT(weight(0), ElementsAre(7, 15));        // The job's optimizer: w - 2 g.
  EXPECT_THAT(gradient(1), ElementsAre(1.75f, 3.25f));
  EXPECT_THAT(weight(1), ElementsAre(3.5f, 8.5f));
  EXPECT_THAT(state("m"), ElementsAre(1.75f, 3.25f));
}

TEST_F(BaguaInterpreterTest, ParametersHaveDefaultsAndOtherValues) {
  setSteps({{1, 2}});
  inputs_.parameters["beta"] = 0;
  ASSERT_EQ(errorOf(kMomentum), "");
  EXPECT_THAT(gradient(0), ElementsAre(1, 2));
  inputs_.parameters = {{"gamma", 0}};
  EXPECT_THAT(errorOf(kMomentum), HasSubstr("has no parameter 'gamma'"));
  inputs_.parameters = {};
  inputs_.stepParameters = {{{"beta", 0}}};
  EXPECT_THAT(errorOf(kMomentum), HasSubstr("expects parameter 'beta' to have one value for all "
                                            "steps: it is not per_step"));
}

TEST_F(BaguaInterpreterTest, ParametersOfTheStep) {
  setSteps({{1, 1}, {1, 1}});
  inputs_.stepParameters = {{}, {{"a", 3}}};
  ASSERT_EQ(errorOf(R"(
bagua.algorithm @scaled(%a: f64 = 2.0 per_step, %n: index = 1 per_step) {
  bagua.on gradient(%g: !bucket) {
    %x = bagua.map %g * %a + %n
    bagua.update gradient = %x
  }
})"),
            "");
  EXPECT_THAT(gradient(0), ElementsAre(3, 3));
  EXPECT_THAT(gradient(1), ElementsAre(4, 4));
}

TEST_F(BaguaInterpreterTest, AStepThatIsNotFiniteChangesNothingButTheGradient) {
  float inf = std::numeric_limits<float>::infinity();
  setSteps({{1, 2}, {inf, 2}, {1, 2}});
  inputs_.stepSize = 1;
  std::string text = std::string(kMomentum);
  text.insert(text.rfind('}'), R"(
  bagua.state @runs : scalar = 0.0
  bagua.on before_forward(%w: !bucket) {
    %x = bagua.map %w + 1
    bagua.update weight = %x at before_update
  }
  bagua.on after_update(%w: !bucket) {
    %r = bagua.read @runs : !scalar
    %r1 = bagua.map %r + 1 : !scalar
    bagua.update @runs = %r1 : !scalar
    %m = bagua.read @m
    %x = bagua.map %w * %m
    bagua.update weight = %x
  })");
  ASSERT_EQ(errorOf(text), "");
  EXPECT_THAT(outputs_.finite, ElementsAre(true, false, true));
  // (10 + 1 - 1.5) * 1.5: after_update sees the state of its own step.
  EXPECT_THAT(weight(0), ElementsAre(14.25f, 46.25f));
  EXPECT_THAT(gradient(1), ElementsAre(inf, 3.25f)); // As computed.
  EXPECT_THAT(weight(1), ElementsAre(14.25f, 46.25f));
  EXPECT_THAT(gradient(2), ElementsAre(1.75f, 3.25f)); // From the state of step 0.
  EXPECT_THAT(state("runs"), ElementsAre(2));
}

TEST_F(BaguaInterpreterTest, AnAlgorithmThatOwnsTheUpdateMovesTheWeightAlone) {
  setSteps({{1, 2}, {1, 2}});
  inputs_.stepSize = 100; // The job's optimizer does nothing.
  ASSERT_EQ(errorOf(R"(
bagua.algorithm @descent(%lr: f64 = 0.5 per_step) attributes {owns_update} {
  bagua.on gradient(%g: !bucket, %w: !bucket) {
    %x = bagua.map %w - %lr * %g
    bagua.update weight = %x at before_update
  }
})"),
            "");
  EXPECT_THAT(weight(0), ElementsAre(9.5f, 19));
  EXPECT_THAT(weight(1), ElementsAre(9, 18));
}

TEST_F(BaguaInterpreterTest, ScalarsBranchAndPower) {
  setSteps({{1, 2}, {1, 2}, {1, 2}});
  ASSERT_EQ(errorOf(R"(
bagua.algorithm @decayed(%warm: index = 1, %beta: f64 = 0.5) {
  bagua.on gradient(%g: !bucket) {
    %t = bagua.step
    %p = bagua.power %beta, %t
    %f = bagua.to_f64 %t
    %late = arith.cmpi sge, %t, %warm : index
    %x = scf.if %late -> !bucket {
      %y = bagua.map %g * %p
      scf.yield %y : !bucket
    } else {
      %one = arith.constant 1.0 : f64
      %s = arith.addf %f, %one : f64
      %y = bagua.map %g * %s
      scf.yield %y : !bucket
    }
    bagua.update gradient = %x
  }
})"),
            "");
  EXPECT_THAT(gradient(0), ElementsAre(1, 2));
  EXPECT_THAT(gradient(1), ElementsAre(0.5f, 1));
  EXPECT_THAT(gradient(2), ElementsAre(0.25f, 0.5f));
}

TEST_F(BaguaInterpreterTest, ScalarsOfRanksAreReduced) {
  inputs_.gradients = {bytesOf<float>({{3, 4}, {6, 8}})};
  inputs_.weights = bytesOf<float>({{0, 0}, {0, 0}});
  ASSERT_EQ(errorOf(R"(
bagua.algorithm @normed {
  bagua.state @sum : scalar = 0.0
  bagua.on gradient(%g: !bucket) {
    %norm = bagua.norm %g
    %dot = bagua.dot %g, %g
    %sum = bagua.all_reduce sum %norm : !scalar
    bagua.update @sum = %sum : !scalar
    %old = bagua.read @sum : !scalar
    %x = bagua.map %g / %old + %dot
    bagua.update gradient = %x
  }
})"),
            "");
  EXPECT_THAT(state("sum", 1), ElementsAre(15));
  EXPECT_THAT(gradient(0, 0), ElementsAre(3.0f / 15 + 25, 4.0f / 15 + 25));
  EXPECT_THAT(outputs_.wireBytes[0], ElementsAre(4, 4));
}

TEST_F(BaguaInterpreterTest, ReplicasOfNeighboursBeginAsTheWeight) {
  inputs_.world = 3;
  inputs_.gradients = {bytesOf<float>({{0, 0}, {0, 0}, {0, 0}})};
  inputs_.weights = bytesOf<float>({{0, 0}, {3, 3}, {6, 6}});
  ASSERT_EQ(errorOf(R"(
#ring = #bagua.topology<offsets = [-1, 1], weights = [1/3, 1/3]>
!near = !bagua.per<#ring, !bucket>
bagua.algorithm @replicas {
  bagua.state @near : per<#ring> = weight
  bagua.on after_update(%w: !bucket) {
    %old = bagua.read @near : !near
    %got = bagua.neighbor_exchange %w on #ring
    %change = bagua.map (%got - %old) * 2 + %w : !near
    bagua.update @near = %change : !near
    %x = bagua.mix %w, %old on #ring
    bagua.update weight = %x
  }
})"),
            "");
  EXPECT_THAT(weight(0, 0), ElementsAre(0, 0));             // The replicas are one's own weight.
  EXPECT_THAT(state("near", 0), ElementsAre(12, 12, 6, 6)); // Ranks 2 and 1.
}

TEST_F(BaguaInterpreterTest, RandomNumbersDifferByWhatTheyAreDrawnFrom) {
  inputs_.world = 2;
  inputs_.length = 3;
  inputs_.steps = 2;
  fillInputs(inputs_, 1);
  std::string text = R"(
bagua.algorithm @noise {
  bagua.state @other : bucket = 0.0
  bagua.state @own : bucket = 0.0
  bagua.on gradient(%g: !bucket) {
    %s = arith.constant 7 : index
    %x = bagua.random uniform seed %s shared
    %y = bagua.random uniform seed %s shared
    %z = bagua.random uniform seed %s per_rank
    bagua.update gradient = %x
    bagua.update @other = %y
    bagua.update @own = %z
  }
  bagua.on after_update(%w: !bucket) {
    %a = bagua.read @other
    %b = bagua.read @own
    %c = bagua.map %a + %b
    bagua.update weight = %c
  }
})";
  ASSERT_EQ(errorOf(text), "");
  EXPECT_EQ(gradient(0, 0), gradient(0, 1));
  EXPECT_NE(gradient(0), gradient(1));
  EXPECT_NE(gradient(1), state("other"));
  EXPECT_EQ(state("other", 0), state("other", 1));
  EXPECT_NE(state("own", 0), state("own", 1));
  for (float x : gradient(0)) {
    EXPECT_GE(x, 0);
    EXPECT_LT(x, 1);
  }
  std::vector<float> before = gradient(0);
  inputs_.bucket = 1;
  ASSERT_EQ(errorOf(text), "");
  EXPECT_NE(gradient(0), before);
}

TEST_F(BaguaInterpreterTest, CalledFunctionsAreOfTheFileOrThePrelude) {
  setSteps({{1, 2}});
  ASSERT_EQ(errorOf(R"(
func.func private @half(%x: !bucket) -> !bucket {
  %y = bagua.map %x / 2
  return %y : !bucket
}
bagua.algorithm @calls(%beta: f64 = 0.5) {
  bagua.state @m : bucket = 0.0
  bagua.on gradient(%g: !bucket) {
    %m = bagua.read @m
    %m1 = bagua.call @momentum(%m, %g, %beta) : (!bucket, !bucket, f64) -> !bucket
    bagua.update @m = %m1
    %x = bagua.call @half(%m1) : (!bucket) -> !bucket
    bagua.update gradient = %x
  }
})"),
            "");
  EXPECT_THAT(gradient(0), ElementsAre(0.25f, 0.5f));
  EXPECT_THAT(errorOf(R"(
bagua.algorithm @calls {
  bagua.on gradient(%g: !bucket) {
    %x = bagua.call @nobody(%g) : (!bucket) -> !bucket
    bagua.update gradient = %x
  }
})"),
              HasSubstr("calls @nobody, which neither this file nor the prelude defines"));
}

TEST_F(BaguaInterpreterTest, OptimizersOfThePreludeMoveAsTheyAreKnownTo) {
  setSteps({{3, -4}, {3, -4}});
  ASSERT_EQ(errorOf(R"(
bagua.algorithm @adam(%lr: f64 = 0.5 per_step, %beta1: f64 = 0.9, %beta2: f64 = 0.999,
                      %eps: f64 = 1.0e-8) attributes {owns_update} {
  bagua.state @m : bucket = 0.0
  bagua.state @v : bucket = 0.0
  bagua.on gradient(%g: !bucket, %w: !bucket) {
    %step = bagua.step
    %one = arith.constant 1 : index
    %t = arith.addi %step, %one : index
    %m = bagua.read @m
    %v = bagua.read @v
    %new:3 = bagua.call @adam(%w, %m, %v, %g, %t, %lr, %beta1, %beta2, %eps)
      : (!bucket, !bucket, !bucket, !bucket, index, f64, f64, f64, f64) -> (!bucket, !bucket, !bucket)
    bagua.update weight = %new#0 at before_update
    bagua.update @m = %new#1
    bagua.update @v = %new#2
  }
})"),
            "");
  // A constant gradient: each step is lr long, against its sign.
  for (size_t step = 0; step < 2; ++step) {
    auto distance = 0.5f * static_cast<float>(step + 1);
    EXPECT_NEAR(weight(step)[0], 10 - distance, 1e-5);
    EXPECT_NEAR(weight(step)[1], 20 + distance, 1e-5);
  }
  EXPECT_NEAR(state("m")[0], 0.19f * 3, 1e-6);
  EXPECT_NEAR(state("v")[1], 0.001999f * 16, 1e-8);

  ASSERT_EQ(errorOf(R"(
bagua.algorithm @sgd(%lr: f64 = 0.5 per_step, %momentum: f64 = 0.5, %decay: f64 = 0.25)
    attributes {owns_update} {
  bagua.state @b : bucket = 0.0
  bagua.on gradient(%g: !bucket, %w: !bucket) {
    %b = bagua.read @b
    %new:2 = bagua.call @sgd(%w, %b, %g, %lr, %momentum, %decay)
      : (!bucket, !bucket, !bucket, f64, f64, f64) -> (!bucket, !bucket)
    bagua.update weight = %new#0 at before_update
    bagua.update @b = %new#1
  }
})"),
            "");
  EXPECT_THAT(weight(0), ElementsAre(7.25f, 19.5f)); // b = 5.5, 1.
  EXPECT_THAT(state("b"), ElementsAre(7.5625f, 1.375f));
}

// ---- Maps ---------------------------------------------------------------------------------------

/// Every operation, as two independent implementations see it, on numbers of every kind.
TEST_F(BaguaInterpreterTest, MapsMeanWhatTheirBytecodeMeans) {
  const char *expressions[] = {
      "%g + %w",
      "%g - %w",
      "%g * %w",
      "%g / %w",
      "fma(%g, %w, %g)",
      "sqrt(%g)",
      "-%g",
      "abs(%g)",
      "sign(%g)",
      "min(%g, %w)",
      "max(%g, %w)",
      "rint(%g)",
      "floor(%g)",
      "select(%g < %w, %g, %w)",
      "select(%g <= %w and not %g == %w, 1, %a)",
      "select(%g == 0 or %w > 1, %g, 0.1)",
      "(%g - 0.1) * (%w + %a) / sqrt(%g * %g + 1.0e-8)",
  };
  inputs_.world = 1;
  inputs_.length = 997;
  for (kernels::DType dtype : {kernels::DType::F32, kernels::DType::F64}) {
    inputs_.dtype = dtype;
    fillInputs(inputs_, 3, Fill::Edge);
    // Zeros, equal numbers and NaN meet too.
    std::copy_n(inputs_.gradients[0][0].begin(), inputs_.gradients[0][0].size() / 2,
                inputs_.weights[0].begin());
    for (const char *expression : expressions) {
      SCOPED_TRACE(expression);
      ASSERT_EQ(errorOf("bagua.algorithm @x(%a: f64 = 0.3) {\n"
                        "  bagua.on gradient(%g: !bucket, %w: !bucket) {\n"
                        "    %x = bagua.map " +
                        std::string(expression) + "\n    bagua.update gradient = %x\n  }\n}"),
                "");
      auto module = ir_.parse("bagua.algorithm @x(%a: f64 = 0.3) {\n"
                              "  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>, "
                              "%w: tensor<?xf32, #bagua.bucket>) {\n"
                              "    %x = bagua.map " +
                              std::string(expression) + "\n    bagua.update gradient = %x\n  }\n}");
      auto program = std::make_shared<kernels::MapProgram>();
      std::vector<std::span<const std::byte>> operands;
      module->walk([&](ir::MapOp map) {
        llvm::ArrayRef<int64_t> code = map.getCode();
        for (size_t i = 0; i < code.size(); i += ir::kMapStride)
          program->code.push_back(
              {static_cast<kernels::MapOp>(code[i]), static_cast<uint16_t>(code[i + 1]),
               static_cast<uint16_t>(code[i + 2]), static_cast<uint16_t>(code[i + 3])});
        program->constants.assign(map.getConstants().begin(), map.getConstants().end());
        program->outputs = {static_cast<uint16_t>(program->code.size() - 1)};
        program->inputs = static_cast<uint16_t>(map.getValues().size());
        program->scalars = static_cast<uint16_t>(map.getScalars().size());
        program->broadcast.assign(program->inputs, 0);
        for (mlir::Value value : map.getValues())
          operands.emplace_back(mlir::cast<mlir::BlockArgument>(value).getArgNumber() == 0
                                    ? inputs_.gradients[0][0]
                                    : inputs_.weights[0]);
      });
      kernels::Kernel kernel;
      std::string error;
      ASSERT_EQ(kernels::findMap(program, dtype, kernel, error, /*reference=*/true),
                kernels::FindError::None)
          << error;
      Bytes expected(inputs_.gradients[0][0].size());
      std::span<std::byte> target = expected;
      std::vector<double> scalars(program->scalars, 0.3);
      auto count = static_cast<size_t>(inputs_.length);
      kernel.run(kernel, {operands, {&target, 1}, scalars, count}, 0, count);
      EXPECT_EQ(dtype == kernels::DType::F32
                    ? firstDifference<float>(outputs_.gradients[0], {expected})
                    : firstDifference<double>(outputs_.gradients[0], {expected}),
                "");
    }
  }
}

// ---- Topologies ---------------------------------------------------------------------------------

constexpr const char *kTopologies[] = {
    "#bagua.topology<offsets = [-1, 2, 5], weights = [1/8, 1/4, 1/8]>",
    "#bagua.exponential",
    "#bagua.one_peer_exponential",
    "#bagua.torus<columns = 3>",
    "#bagua.round_robin",
    "#bagua.shift_one",
    "#bagua.pairing<seed = 5>",
};

/// The lowering's arithmetic gives the interpreter's numbers.
TEST_F(BaguaInterpreterTest, TopologiesMeanTheSameAsArithmetic) {
  for (const char *text : kTopologies) {
    SCOPED_TRACE(text);
    auto topology =
        mlir::cast<ir::TopologyAttrInterface>(mlir::parseAttribute(text, &ir_.context()));
    mlir::OpBuilder builder(&ir_.context());
    mlir::Location loc = builder.getUnknownLoc();
    for (int64_t n = 1; n <= 20; ++n)
      for (int64_t round : {0, 1, 2, 3, 7, 1000}) {
        mlir::OwningOpRef<mlir::ModuleOp> module = mlir::ModuleOp::create(loc);
        builder.setInsertionPointToStart(module->getBody());
        mlir::Value world = mlir::arith::ConstantIndexOp::create(builder, loc, n);
        mlir::Value at = mlir::arith::ConstantIndexOp::create(builder, loc, round);
        std::vector<std::pair<mlir::Value, int64_t>> expected{
            {topology.buildEntries(builder, loc, world), topology.entries(n)}};
        EXPECT_LE(topology.entries(n), topology.entriesMax());
        for (int64_t entry = 0; entry < topology.entries(n); ++entry) {
          ir::Rational weight = topology.weight(n, entry);
          expected.push_back(
              {topology.buildNumerator(builder, loc, world, entry), weight.numerator});
          expected.push_back({topology.buildDenominator(builder, loc, world), weight.denominator});
          if (topology.getPeerMap() != ir::PeerMap::Rotate)
            continue;
          int64_t distance = topology.distance(n, round, entry);
          EXPECT_GE(distance, 0);
          EXPECT_LT(distance, n);
          expected.push_back({topology.buildDistance(builder, loc, world, at, entry), distance});
        }
        compiler::ScalarEvaluator evaluator;
        for (mlir::Operation &op : *module->getBody())
          ASSERT_TRUE(succeeded(evaluator.evaluate(&op))) << ir_.diagnostics();
        for (auto [value, number] : expected)
          EXPECT_EQ(evaluator.integer(value), number) << "world " << n << ", round " << round;
        EXPECT_FALSE(evaluator.hasFault());
      }
  }
}

/// Weights that are halves of small integers: the sum over ranks is exact, and stays.
TEST_F(BaguaInterpreterTest, MixingKeepsTheAverageAndReachesEveryone) {
  for (const char *text : kTopologies) {
    if (std::string(text).find("exponential") == 7 || std::string(text).find("torus") == 7)
      continue; // Weights of fifths: their sums are not exact.
    for (int64_t n : {1, 2, 3, 4, 5, 8}) {
      SCOPED_TRACE(testing::Message() << text << ", world " << n);
      inputs_ = {};
      inputs_.world = n;
      inputs_.length = 3;
      inputs_.steps = 6;
      fillInputs(inputs_, 9, Fill::Exact);
      ASSERT_EQ(errorOf("#t = " + std::string(text) +
                        "\nbagua.algorithm @x {\n  bagua.on after_update(%w: !bucket) {\n"
                        "    %n = bagua.neighbor_exchange %w on #t\n"
                        "    %x = bagua.mix %w, %n on #t\n    bagua.update weight = %x\n  }\n}"),
                "");
      auto sums = [&](const std::vector<Bytes> &ranks) {
        std::vector<float> sum(3);
        for (const std::vector<float> &values : elementsOf<float>(ranks))
          for (size_t i = 0; i < 3; ++i)
            sum[i] += values[i];
        return sum;
      };
      EXPECT_EQ(sums(outputs_.weights[0]), sums(inputs_.weights));
      if (n > 1)
        EXPECT_NE(outputs_.weights[5], inputs_.weights);
      else
        EXPECT_EQ(outputs_.weights[5], inputs_.weights);
    }
  }
}

TEST_F(BaguaInterpreterTest, PairsMeetAsTheReferencePairsThem) {
  inputs_.world = 4;
  inputs_.length = 1;
  inputs_.gradients = {bytesOf<float>({{0}, {0}, {0}, {0}})};
  inputs_.weights = bytesOf<float>({{0}, {2}, {4}, {6}});
  auto mixed = [&](const std::string &topology, int64_t step) {
    inputs_.firstStep = step;
    EXPECT_EQ(errorOf("bagua.algorithm @x {\n  bagua.on after_update(%w: !bucket) {\n"
                      "    %n = bagua.neighbor_exchange %w on " +
                      topology + "\n    %x = bagua.mix %w, %n on " + topology +
                      "\n    bagua.update weight = %x\n  }\n}"),
              "");
    std::vector<float> all;
    for (size_t rank = 0; rank < 4; ++rank)
      all.push_back(weight(0, rank)[0]);
    return all;
  };
  // Rank r < 2 meets 2 + (step + r) mod 2.
  EXPECT_THAT(mixed("#bagua.shift_one", 0), ElementsAre(2, 4, 2, 4));
  EXPECT_THAT(mixed("#bagua.shift_one", 1), ElementsAre(3, 3, 3, 3));
  // Rank r meets (step - r) mod 4.
  EXPECT_THAT(mixed("#bagua.round_robin", 1), ElementsAre(1, 1, 5, 5));
  EXPECT_THAT(mixed("#bagua.round_robin", 0), ElementsAre(0, 4, 4, 4));
  // Rank r sends to r + 1, then r + 2.
  EXPECT_THAT(mixed("#bagua.one_peer_exponential", 0), ElementsAre(3, 1, 3, 5));
  EXPECT_THAT(mixed("#bagua.one_peer_exponential", 1), ElementsAre(2, 4, 2, 4));
}

// Round k adds k + 1 to every weight, which the steps leave at 10.
constexpr const char *kAddsItsNumber = R"(
bagua.algorithm @x(%interval: index = 2, %after: index = 0) {
  bagua.on async every(%interval steps) after(%after) staleness(3) (%w: !bucket) {
    %k = bagua.step
    %one = arith.constant 1 : index
    %k1 = arith.addi %k, %one : index
    %d = bagua.map (%w - %w) + %k1
    bagua.update weight += %d
  }
})";

TEST_F(BaguaInterpreterTest, RoundsBeginAndAreAddedAtBoundaries) {
  setSteps(std::vector(12, std::vector<float>{0, 0}));
  auto first = [&] {
    std::vector<float> all;
    for (int64_t step = 0; step < inputs_.steps; ++step)
      all.push_back(weight(static_cast<size_t>(step), 1)[0]);
    return all;
  };
  ASSERT_EQ(errorOf(kAddsItsNumber), "");
  // SPEC.md, "Async handlers": begun at 2, 5, 8, 11, added at 5, 8, 11 and at the end.
  EXPECT_THAT(first(), ElementsAre(10, 10, 10, 10, 11, 11, 11, 13, 13, 13, 16, 20));
  inputs_.parameters = {{"after", 5}, {"interval", 4}};
  ASSERT_EQ(errorOf(kAddsItsNumber), "");
  EXPECT_THAT(first(), ElementsAre(10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 11, 13));
  inputs_.parameters = {};
  inputs_.firstStep = 1; // The first boundary is the end of the second step.
  ASSERT_EQ(errorOf(kAddsItsNumber), "");
  EXPECT_THAT(first(), ElementsAre(10, 10, 10, 11, 11, 11, 13, 13, 13, 16, 16, 20));
}

TEST_F(BaguaInterpreterTest, AStepThatIsNotFiniteEndsAtABoundaryToo) {
  setSteps({{0, 0}, {std::numeric_limits<float>::infinity(), 0}, {0, 0}, {0, 0}, {0, 0}});
  ASSERT_EQ(errorOf(kAddsItsNumber), "");
  EXPECT_THAT(weight(3, 0), ElementsAre(10, 20));
  EXPECT_THAT(weight(4, 0), ElementsAre(11 + 2, 21 + 2)); // Begun at 2; and at 5, the end.
}

TEST_F(BaguaInterpreterTest, ThereAreNoRoundsInAWorldOfOne) {
  inputs_.world = 1;
  setSteps(std::vector(12, std::vector<float>{0, 0}));
  ASSERT_EQ(errorOf(kAddsItsNumber), "");
  EXPECT_THAT(weight(11, 0), ElementsAre(10, 20));
}

TEST_F(BaguaInterpreterTest, WhereNothingIsAddedTheWeightStaysAsItIs) {
  setSteps(std::vector(4, std::vector<float>{0, 0}));
  inputs_.weights = bytesOf(std::vector(2, std::vector<float>{-0.0f, 0.0f}));
  ASSERT_EQ(errorOf(R"(
bagua.algorithm @x {
  bagua.state @m : bucket = 0.0
  bagua.on async every(1 steps) staleness(1) (%w: !bucket) {
    %m = bagua.read @m
    bagua.update @m = %w
    %k = bagua.step
    %two = arith.constant 2 : index
    %late = arith.cmpi uge, %k, %two : index
    scf.if %late {
      bagua.update weight += %m
    }
  }
})"),
            "");
  for (size_t step = 0; step < 4; ++step) {
    EXPECT_TRUE(step == 3 || std::signbit(weight(step, 0)[0])) << step;
    EXPECT_FALSE(std::signbit(weight(step, 0)[1])) << step;
  }
}

TEST_F(BaguaInterpreterTest, NegativeIntervals) {
  setSteps({{0, 0}});
  inputs_.parameters = {{"interval", 0}};
  EXPECT_THAT(errorOf(kAddsItsNumber),
              HasSubstr("'interval' to be an index, an integer from 1 to "));
  inputs_.parameters = {{"after", -1}};
  EXPECT_THAT(errorOf(kAddsItsNumber), HasSubstr("'after' to be an index, an integer from 0 to "));
}

TEST_F(BaguaInterpreterTest, ARoundThatDiffersBetweenRanksIsAnError) {
  setSteps({{1, 2}});
  EXPECT_THAT(errorOf(R"(
bagua.algorithm @x {
  bagua.on after_update(%w: !bucket) {
    %r = bagua.rank
    %n = bagua.neighbor_exchange %w on #bagua.round_robin at %r
    %x = bagua.mix %w, %n on #bagua.round_robin at %r
    bagua.update weight = %x
  }
})"),
              HasSubstr("expects a round that is the same on all ranks, got 0 on rank 0 and 1 on "
                        "rank 1"));
}

} // namespace
} // namespace bagua::test
