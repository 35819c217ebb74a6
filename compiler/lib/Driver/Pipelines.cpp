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
#include "llvm/ADT/ScopeExit.h"
#include "llvm/Support/FileSystem.h"

using namespace mlir;

namespace bagua::compiler {

/// Says what to do about errors that MLIR's parser words, of types that do not fit.
static void addHints(MLIRContext *context, ir::BaguaDialect *) {
  context->getDiagEngine().registerHandler([](Diagnostic &diagnostic) {
    std::string text = diagnostic.str();
    StringRef types = StringRef(text).split("expects different type than prior uses: ").second;
    if (types.empty() || !types.contains("bagua."))
      return failure();
    auto [wanted, got] = types.split(" vs ");
    StringRef hint;
    if (got.contains("#bagua.scalar>") && !wanted.contains("bagua."))
      hint =
          "a scalar of dot, norm or a state is data, which arith and conditions do not see: use it "
          "in a bagua.map, with select(condition, a, b) where something depends on it";
    else if (got.contains("!bagua.packed<") && !wanted.contains("!bagua.packed<"))
      hint = "packed values are bytes: bagua.decode makes values of them";
    else if (got.contains("!bagua.per<") && !wanted.contains("!bagua.per<"))
      hint = "one value per neighbour or rank: bagua.mix, bagua.reduce or bagua.concat make one of "
             "them; or write the type after a colon";
    else
      hint = "an op takes values over the bucket unless it says `: T`, T being the operand's type";
    diagnostic.attachNote() << hint;
    return failure(); // Shown by the next handler.
  });
}

void registerDialects(DialectRegistry &registry) {
  registry.insert<ir::BaguaDialect, ir::chunk::ChunkDialect, ir::sched::SchedDialect,
                  arith::ArithDialect, func::FuncDialect, math::MathDialect, scf::SCFDialect>();
  registry.addExtension(
      +[](MLIRContext *context, ir::BaguaDialect *dialect) { addHints(context, dialect); });
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

std::unique_ptr<llvm::MemoryBuffer> readSource(StringRef path, std::string &error) {
  namespace fs = llvm::sys::fs;
  auto fail = [&](std::error_code code) {
    error = "cannot open input file '" + path.str() + "': " + code.message();
    return nullptr;
  };
  fs::file_t file = fs::getStdinHandle();
  bool opens = path != "-";
  if (opens) {
    llvm::Expected<fs::file_t> opened = fs::openNativeFileForRead(path);
    if (!opened)
      return fail(llvm::errorToErrorCode(opened.takeError()));
    file = *opened;
  }
  llvm::scope_exit close([&] {
    if (opens)
      fs::closeFile(file);
  });
  llvm::SmallVector<char, 0> text;
  constexpr size_t kPiece = 65536;
  while (text.size() <= kSourceBytesMax) {
    size_t size = text.size();
    text.resize_for_overwrite(size + kPiece);
    llvm::Expected<size_t> read = fs::readNativeFile(file, {text.data() + size, kPiece});
    if (!read)
      return fail(llvm::errorToErrorCode(read.takeError()));
    text.truncate(size + *read);
    if (*read == 0)
      return llvm::MemoryBuffer::getMemBufferCopy({text.data(), text.size()},
                                                  opens ? path : "<stdin>");
  }
  error = path.str() + ": expects a source of at most " + std::to_string(kSourceBytesMax >> 20) +
          " MiB, got more";
  return nullptr;
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
