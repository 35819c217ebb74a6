// Lowers chunk programs and holds the result to the interpreter and the checker.
#pragma once

#include "../../CompilerTestSupport.h"

#include "bagua/compiler/Checker.h"
#include "bagua/compiler/ChunkPasses.h"
#include "bagua/compiler/EmitSchedule.h"
#include "bagua/dialect/Chunk/ChunkOps.h"

#include "mlir/Pass/PassManager.h"

#include <gmock/gmock.h>

namespace bagua::test {

using compiler::Inputs;
using compiler::InterpreterOptions;

class ChunkIr : public Ir {
public:
  ChunkIr() { context().loadDialect<ir::chunk::ChunkDialect>(); }

  std::string text(const std::string &name) {
    for (const char *folder : {"/tests/dialect/Chunk/", "/tests/compiler/Conversion/ChunkToSched/"})
      if (std::string path = BAGUA_SOURCE_DIR + (folder + name) + ".mlir"; std::ifstream(path))
        return readFile(path);
    ADD_FAILURE() << "no " << name;
    return "";
  }

  /// Null after an error.
  mlir::OwningOpRef<mlir::ModuleOp> lower(mlir::ModuleOp module) {
    mlir::OwningOpRef<mlir::ModuleOp> result(module.clone());
    mlir::PassManager manager(&context());
    manager.addPass(compiler::createChunkToSched());
    if (failed(manager.run(*result)))
      return nullptr;
    return result;
  }
};

template <typename T> Inputs inputsOf(int64_t world, int64_t length) {
  Inputs inputs;
  inputs.world = world;
  inputs.length = length;
  inputs.dtype = sizeof(T) == 4 ? kernels::DType::F32 : kernels::DType::F64;
  fillInputs(inputs, 11, compiler::Fill::Edge);
  return inputs;
}

/// Lowered programs give the bytes of the interpreted one.
template <typename T>
void checkLowered(ChunkIr &ir, mlir::ModuleOp lowered, const Inputs &inputs,
                  const compiler::Outputs &expected, bool withCost = true) {
  for (uint64_t seed : {0, 1, 2, 3})
    for (bool copy : {false, true}) {
      InterpreterOptions options;
      options.seed = seed;
      options.copyMessages = copy;
      SCOPED_TRACE(testing::Message() << "lowered, seed " << seed << (copy ? ", copy" : ", view"));
      auto outputs = interpretSched(lowered, inputs, options);
      ASSERT_TRUE(succeeded(outputs)) << ir.diagnostics();
      ASSERT_EQ(outputs->gradients.size(), expected.gradients.size());
      for (size_t step = 0; step < expected.gradients.size(); ++step) {
        SCOPED_TRACE(testing::Message() << "step " << step);
        EXPECT_EQ(firstDifference<T>(outputs->gradients[step], expected.gradients[step]), "");
        EXPECT_EQ(firstDifference<T>(outputs->weights[step], expected.weights[step]), "");
      }
      ASSERT_EQ(outputs->states.size(), expected.states.size());
      for (const auto &[name, state] : expected.states)
        EXPECT_EQ(firstDifference<T>(outputs->states.at(name), state), "") << name;
      EXPECT_EQ(outputs->wireBytes, expected.wireBytes);
      if (withCost)
        EXPECT_EQ(outputs->formulaWireBytes, expected.formulaWireBytes);
    }
}

/// B101, B102, B103 (if `withCost`), B110, B120.
inline void checkProven(ChunkIr &ir, mlir::ModuleOp lowered, const compiler::CheckOptions &options,
                        bool withCost = true) {
  auto bytes = compiler::emitSchedule(lowered);
  ASSERT_TRUE(succeeded(bytes)) << ir.diagnostics();
  auto schedule = rt::Schedule::fromBytes(*bytes);
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  auto report = compiler::check(**schedule, options);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_GT(report->cases, 0u);
  EXPECT_EQ(report->casesWithoutRaces, 0u);
  for (const compiler::Finding &finding : report->findings)
    if (withCost || finding.code != "B103")
      ADD_FAILURE() << finding.text();
}

} // namespace bagua::test
