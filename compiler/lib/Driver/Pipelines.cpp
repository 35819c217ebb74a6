// Which dialects and passes there are, and in what order the passes run.
#include "bagua/compiler/Pipelines.h"

#include "bagua/compiler/ChunkPasses.h"
#include "bagua/compiler/Passes.h"
#include "bagua/dialect/Bagua/BaguaOps.h"
#include "bagua/dialect/Chunk/ChunkOps.h"
#include "bagua/dialect/Sched/Sched.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;

namespace bagua::compiler {

void registerDialects(DialectRegistry &registry) {
  registry.insert<ir::BaguaDialect, ir::chunk::ChunkDialect, ir::sched::SchedDialect,
                  arith::ArithDialect, math::MathDialect, scf::SCFDialect>();
}

void registerPasses() {
  registerBaguaPasses();
  registerChunkPasses();
  registerCanonicalizerPass();
  registerCSEPass();
  registerStripDebugInfoPass();
}

void buildPipeline(OpPassManager &manager, Level level) {
  OpPassManager &algorithm = manager.nest<ir::AlgorithmOp>();
  algorithm.addPass(createVerifyUniformity());
  algorithm.addPass(createVerifyWorldOne());
  algorithm.addPass(createExpandVia());
  if (level == Level::Bagua)
    return;
  manager.addPass(createBaguaToChunk());
  manager.addPass(createCanonicalizerPass());
  manager.addPass(createCSEPass());
  if (level == Level::Chunk)
    return;
  manager.addPass(createChunkToSched());
  manager.addPass(createCanonicalizerPass());
  manager.addPass(createCSEPass());
}

} // namespace bagua::compiler
