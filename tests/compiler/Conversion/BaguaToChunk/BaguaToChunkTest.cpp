// The lowering against the oracle: every algorithm of Inputs/, algorithms/ and of tests/algorithms
// means the same at the bagua, chunk and sched levels, bit for bit, and costs what its formula
// says.
#include "CompilerTestSupport.h"

#include "bagua/compiler/Pipelines.h"
#include "bagua/dialect/Bagua/BaguaOps.h"
#include "bagua/dialect/Chunk/ChunkOps.h"

#include "mlir/Pass/PassManager.h"

#include <algorithm>
#include <filesystem>

namespace bagua::test {
namespace {

using namespace bagua::compiler;

std::vector<std::string> algorithmFiles() {
  std::vector<std::string> files;
  for (const char *folder : {"/tests/compiler/Conversion/BaguaToChunk/Inputs", "/algorithms",
                             "/tests/algorithms/Inputs"})
    for (const auto &entry :
         std::filesystem::directory_iterator(std::string(BAGUA_SOURCE_DIR) + folder))
      if (entry.path().extension() == ".mlir")
        files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

std::string nameOf(const testing::TestParamInfo<std::string> &info) {
  std::string name = std::filesystem::path(info.param).stem();
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::string difference(kernels::DType dtype, const std::vector<Bytes> &got,
                       const std::vector<Bytes> &expected) {
  return dtype == kernels::DType::F32 ? firstDifference<float>(got, expected)
                                      : firstDifference<double>(got, expected);
}

class BaguaToChunkTest : public testing::TestWithParam<std::string> {
protected:
  BaguaToChunkTest() {
    mlir::DialectRegistry registry;
    registerDialects(registry);
    ir_.context().appendDialectRegistry(registry);
  }

  mlir::OwningOpRef<mlir::ModuleOp> lower(mlir::ModuleOp module, Level level) {
    mlir::OwningOpRef<mlir::ModuleOp> copy = module.clone();
    mlir::PassManager manager(&ir_.context());
    buildLowering(manager, level);
    if (mlir::failed(manager.run(*copy)))
      return {};
    return copy;
  }

  Ir ir_;
};

TEST_P(BaguaToChunkTest, MeansTheSameAtEveryLevel) {
  mlir::OwningOpRef<mlir::ModuleOp> module = ir_.parse(readFile(GetParam()));
  ASSERT_TRUE(module) << ir_.diagnostics();
  int64_t grain = 1;
  module->walk([&](ir::AlgorithmOp algorithm) { grain = ir::grain(algorithm); });
  mlir::OwningOpRef<mlir::ModuleOp> chunk = lower(*module, Level::Chunk);
  ASSERT_TRUE(chunk) << ir_.diagnostics();
  mlir::OwningOpRef<mlir::ModuleOp> sched = lower(*module, Level::Sched);
  ASSERT_TRUE(sched) << ir_.diagnostics();
  bool ownsUpdate = false;
  module->walk([&](ir::AlgorithmOp algorithm) { ownsUpdate = algorithm.getOwnsUpdate(); });
  bool changesWeights = false;
  module->walk(
      [&](ir::UpdateOp update) { changesWeights |= update.getRole() == ir::Role::Weight; });
  bool acceptsF64 = false;
  chunk->walk(
      [&](ir::chunk::ScheduleOp schedule) { acceptsF64 = schedule.getDtypes().size() == 2; });

  bool countsNodes = chunk
                         ->walk([](mlir::Operation *op) {
                           return mlir::isa<ir::chunk::LocalSizeOp, ir::chunk::NodesOp>(op)
                                      ? mlir::WalkResult::interrupt()
                                      : mlir::WalkResult::advance();
                         })
                         .wasInterrupted();
  std::vector<std::pair<int64_t, int64_t>> layouts; // Ranks, and ranks of a node.
  for (int64_t world : {1, 2, 3, 4, 5, 6, 8})
    for (int64_t local = 1; local <= world; ++local)
      if (countsNodes ? world % local == 0 : world == local && world != 6)
        layouts.emplace_back(world, local);

  for (auto [world, local] : layouts)
    for (int64_t length : {int64_t{0}, int64_t{1}, int64_t{31}, grain - 1, grain, grain + 1,
                           3 * grain + 7, int64_t{1009}})
      for (kernels::DType dtype : {kernels::DType::F32, kernels::DType::F64}) {
        if (dtype == kernels::DType::F64 && !acceptsF64)
          continue;
        Inputs inputs;
        inputs.world = world;
        inputs.localSize = local;
        inputs.length = length;
        inputs.dtype = dtype;
        inputs.firstStep = (world + length) % 3;
        Fill fill = length % 2 ? Fill::Edge : Fill::Normal;
        if (changesWeights) // Steps that are finite, or nothing is to see.
          fillFiniteInputs(inputs, /*seed=*/length + 1, fill);
        else
          fillInputs(inputs, /*seed=*/length + 1, fill);
        std::string where = "world " + std::to_string(world) + ", " + std::to_string(local) +
                            " per node, length " + std::to_string(length) +
                            (dtype == kernels::DType::F32 ? ", f32" : ", f64");
        mlir::FailureOr<Outputs> expected = interpretBagua(*module, inputs);
        ASSERT_TRUE(mlir::succeeded(expected)) << where << "\n" << ir_.diagnostics();
        if (world == 1 && !ownsUpdate) { // Plain training, bit for bit.
          EXPECT_EQ(difference(dtype, expected->gradients.front(), inputs.gradients.front()), "")
              << where;
          EXPECT_EQ(difference(dtype, expected->weights.front(), inputs.weights), "") << where;
          EXPECT_EQ(expected->wireBytes.front(), std::vector<int64_t>{0}) << where;
        }
        for (bool isSched : {false, true}) {
          mlir::FailureOr<Outputs> got =
              isSched ? interpretSched(*sched, inputs) : interpretChunk(*chunk, inputs);
          std::string level = (isSched ? "sched, " : "chunk, ") + where;
          ASSERT_TRUE(mlir::succeeded(got)) << level << "\n" << ir_.diagnostics();
          EXPECT_EQ(difference(dtype, got->gradients.front(), expected->gradients.front()), "")
              << level;
          EXPECT_EQ(difference(dtype, got->weights.front(), expected->weights.front()), "")
              << level;
          EXPECT_EQ(got->wireBytes, expected->wireBytes) << level;
          EXPECT_EQ(got->formulaWireBytes, expected->wireBytes) << level;
          if (HasFailure())
            return;
        }
      }
}

INSTANTIATE_TEST_SUITE_P(Algorithms, BaguaToChunkTest, testing::ValuesIn(algorithmFiles()), nameOf);

} // namespace
} // namespace bagua::test
