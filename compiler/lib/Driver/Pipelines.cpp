// Which dialects and passes there are, and in what order the passes run.
#include "bagua/compiler/Pipelines.h"

#include "bagua/compiler/ChunkPasses.h"
#include "bagua/compiler/Passes.h"
#include "bagua/dialect/Bagua/BaguaOps.h"
#include "bagua/dialect/Chunk/ChunkOps.h"
#include "bagua/dialect/Sched/Sched.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;

namespace bagua::compiler {

void registerDialects(DialectRegistry &registry) {
  registry.insert<ir::BaguaDialect, ir::chunk::ChunkDialect, ir::sched::SchedDialect,
                  arith::ArithDialect, func::FuncDialect, math::MathDialect, scf::SCFDialect>();
}

void registerPasses() {
  registerBaguaPasses();
  registerChunkPasses();
  registerCanonicalizerPass();
  registerCSEPass();
  registerStripDebugInfoPass();
}

void buildPipeline(OpPassManager &manager, Level level) {
  manager.addPass(createInlineFunctions());
  OpPassManager &algorithm = manager.nest<ir::AlgorithmOp>();
  algorithm.addPass(createVerifyUniformity());
  algorithm.addPass(createVerifyUses());
  algorithm.addPass(createVerifyMixing());
  algorithm.addPass(createExpandVia()); // What it remembers is held to the law as well.
  algorithm.addPass(createVerifyResiduals());
  algorithm.addPass(createVerifyStaleness());
  buildLowering(manager, level);
}

void buildLowering(OpPassManager &manager, Level level) {
  OpPassManager &algorithm = manager.nest<ir::AlgorithmOp>();
  algorithm.addPass(createExpandVia());
  algorithm.addPass(createSpecializeWorldOne());
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

LogicalResult verifyOneProgram(ModuleOp module) {
  Operation *first = nullptr;
  for (Operation &op : *module.getBody()) {
    if (!isa<ir::AlgorithmOp, ir::chunk::ScheduleOp, ir::sched::ScheduleOp>(op))
      continue;
    if (first) {
      InFlightDiagnostic diagnostic = op.emitError() << "expects one " << first->getName()
                                                     << " in the file, got a second: "
                                                     << "give it a file of its own";
      diagnostic.attachNote(first->getLoc()) << "the first is here";
      return diagnostic;
    }
    first = &op;
  }
  if (!first)
    return module.emitError("expects one bagua.algorithm in the file, got none");
  return success();
}

void showFileDiagnostics(MLIRContext &context) {
  context.getDiagEngine().registerHandler([](Diagnostic &diagnostic) {
    auto file = dyn_cast<FileLineColLoc>(diagnostic.getLocation());
    if (!file || file.getLine() != 0 || diagnostic.getSeverity() != DiagnosticSeverity::Error)
      return failure();
    llvm::errs() << file.getFilename().getValue() << ": error: " << diagnostic.str() << "\n";
    return success();
  });
}

std::string sourceError(StringRef source) {
  if (source.starts_with("BAGUASCH"))
    return "1:1: error: expects an algorithm (.mlir), got a schedule file (.bsched): "
           "`bagua-schedule dump` shows it, `bagua-run -n N` runs it";
  unsigned depth = 0, line = 1;
  size_t lineStart = 0;
  for (size_t i = 0; i < source.size(); ++i) {
    switch (source[i]) {
    case '\n':
      ++line;
      lineStart = i + 1;
      break;
    case '/': // A comment ends with its line.
      if (source.substr(i).starts_with("//"))
        i = std::min(source.find('\n', i), source.size()) - 1;
      break;
    case '"': // So does a string, at the latest.
      for (++i; i < source.size() && source[i] != '"' && source[i] != '\n'; ++i)
        i += source[i] == '\\';
      if (i < source.size() && source[i] == '\n')
        --i;
      break;
    case '-':
      i += source.substr(i).starts_with("->");
      break;
    case '(':
    case '[':
    case '{':
    case '<':
      if (++depth > kNestingMax)
        return std::to_string(line) + ":" + std::to_string(i - lineStart + 1) +
               ": error: brackets nest deeper than " + std::to_string(kNestingMax) + " levels";
      break;
    case ')':
    case ']':
    case '}':
    case '>':
      depth -= depth > 0;
      break;
    default:
      break;
    }
  }
  return {};
}

} // namespace bagua::compiler
