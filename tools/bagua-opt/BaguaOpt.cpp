// bagua-opt: checks, transforms, lowers and explains algorithms. Without --emit and --explain it is
// mlir-opt with our dialects and passes.
#include "bagua/compiler/EmitSchedule.h"
#include "bagua/compiler/Explain.h"
#include "bagua/compiler/Pipelines.h"

#include "mlir/IR/AttrTypeSubElements.h"
#include "mlir/IR/Location.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Support/FileUtilities.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/ToolOutputFile.h"

using namespace mlir;
using namespace bagua::compiler;

namespace {

/// Tells the values that there are when given another.
template <typename T> struct EnumParser : llvm::cl::parser<T> {
  using llvm::cl::parser<T>::parser;

  bool parse(llvm::cl::Option &option, StringRef name, StringRef text, T &value) {
    std::string expected;
    for (const auto &known : this->Values) {
      if (known.Name == text) {
        value = known.V.getValue();
        return false;
      }
      expected += (expected.empty() ? "" : ", ") + known.Name.str();
    }
    return option.error("expects one of " + expected + ", got '" + text + "'", name);
  }
};

llvm::cl::OptionCategory category("bagua options");
llvm::cl::opt<Level, false, EnumParser<Level>> emitLevel(
    "emit", llvm::cl::desc("Lower the input to a level and write that"),
    llvm::cl::values(clEnumValN(Level::Bagua, "bagua", "algorithms, checked, sugar expanded"),
                     clEnumValN(Level::Chunk, "chunk", "moves and launches of all ranks"),
                     clEnumValN(Level::Sched, "sched", "the program of one rank"),
                     clEnumValN(Level::Schedule, "schedule", "a schedule file (.bsched)")),
    llvm::cl::cat(category));
llvm::cl::opt<bool> explainOnly("explain",
                                llvm::cl::desc("Say what the algorithms cost and what was fused"),
                                llvm::cl::cat(category));
llvm::cl::opt<int64_t> explainWorld("world", llvm::cl::desc("Ranks for the figures of --explain"),
                                    llvm::cl::init(ExplainOptions().world),
                                    llvm::cl::cat(category));
llvm::cl::opt<int64_t> explainNodes("nodes",
                                    llvm::cl::desc("Nodes of equal size for these figures"),
                                    llvm::cl::init(ExplainOptions().nodes),
                                    llvm::cl::value_desc("count"), llvm::cl::cat(category));
llvm::cl::opt<int64_t> explainLength("length",
                                     llvm::cl::desc("Bucket elements for the figures of --explain"),
                                     llvm::cl::init(ExplainOptions().length),
                                     llvm::cl::cat(category));
llvm::cl::opt<bagua::kernels::DType, false, EnumParser<bagua::kernels::DType>>
    explainType("dtype", llvm::cl::desc("Bucket element type for the figures of --explain"),
                llvm::cl::values(clEnumValN(bagua::kernels::DType::F32, "f32", ""),
                                 clEnumValN(bagua::kernels::DType::F64, "f64", "")),
                llvm::cl::init(bagua::kernels::DType::F32), llvm::cl::cat(category));
llvm::cl::opt<bool> stripLocations(
    "strip-locations",
    llvm::cl::desc("Forget source locations: equal programs then give equal schedule files"),
    llvm::cl::cat(category));

/// False, with a message, if the parser must not see `buffer`.
bool mayParse(const llvm::MemoryBuffer &buffer) {
  std::string error = sourceError(buffer.getBuffer());
  if (!error.empty())
    llvm::errs() << buffer.getBufferIdentifier() << ":" << error << "\n";
  return error.empty();
}

/// A schedule names its source by file name alone: the same bytes wherever it was compiled.
void shortenLocations(ModuleOp module) {
  AttrTypeReplacer replacer;
  replacer.addReplacement([](FileLineColRange range) -> std::optional<Attribute> {
    StringRef name = llvm::sys::path::filename(range.getFilename().getValue());
    return FileLineColLoc::get(range.getContext(), name, range.getStartLine(),
                               range.getStartColumn());
  });
  replacer.recursivelyReplaceElementsIn(module, /*replaceAttrs=*/false, /*replaceLocs=*/true);
}

void forgetLocations(ModuleOp module) {
  Location unknown = UnknownLoc::get(module.getContext());
  module->walk([&](Operation *op) {
    op->setLoc(unknown);
    for (Region &region : op->getRegions())
      for (Block &block : region)
        for (BlockArgument argument : block.getArguments())
          argument.setLoc(unknown);
  });
}

LogicalResult write(ModuleOp module, raw_ostream &os) {
  if (emitLevel != Level::Schedule) {
    module->print(os);
    os << "\n";
    return success();
  }
  shortenLocations(module);
  FailureOr<std::vector<uint8_t>> bytes = emitSchedule(module);
  if (failed(bytes))
    return failure();
  os.write(reinterpret_cast<const char *>(bytes->data()), bytes->size());
  return success();
}

/// The source, or null after a message.
std::unique_ptr<llvm::MemoryBuffer> readParsable(StringRef input) {
  std::string error;
  std::unique_ptr<llvm::MemoryBuffer> buffer = readSource(input, error);
  if (!buffer)
    llvm::errs() << error << "\n";
  else if (!mayParse(*buffer))
    buffer.reset();
  return buffer;
}

LogicalResult run(StringRef input, StringRef output, DialectRegistry &registry) {
  std::unique_ptr<llvm::MemoryBuffer> buffer = readParsable(input);
  if (!buffer)
    return failure();
  std::string error;
  // One small module: threads would only delay the start and shuffle diagnostics.
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  context.printOpOnDiagnostic(false); // The source line is enough.
  auto sources = std::make_shared<llvm::SourceMgr>();
  sources->AddNewSourceBuffer(std::move(buffer), SMLoc());
  SourceMgrDiagnosticHandler handler(*sources, &context);
  showFileDiagnostics(context);
  OwningOpRef<ModuleOp> module = parseSourceFile<ModuleOp>(sources, &context);
  if (!module)
    return failure();
  bool emits = emitLevel.getNumOccurrences() > 0;
  if (emits && failed(verifyOneProgram(*module)))
    return failure();

  MlirOptMainConfig config = MlirOptMainConfig::createFromCLOptions();
  PassManager passes(&context);
  if (failed(applyPassManagerCLOptions(passes)) || failed(config.setupPassPipeline(passes)))
    return failure();
  if (emits)
    buildPipeline(passes, emitLevel);
  if (!passes.empty() && failed(passes.run(*module)))
    return failure();
  if (stripLocations)
    forgetLocations(*module);

  // Held back until all of it is known to be right.
  std::string text;
  llvm::raw_string_ostream os(text);
  if (explainOnly) {
    ExplainOptions options{explainWorld, explainLength, explainType, explainNodes};
    if (failed(explain(*module, options, os)))
      return failure();
  } else if (failed(write(*module, os))) {
    return failure();
  }
  if (emitLevel == Level::Schedule && !explainOnly && output == "-" &&
      llvm::outs().is_displayed()) {
    llvm::errs() << "a schedule file is binary: give -o FILE\n";
    return failure();
  }
  std::unique_ptr<llvm::ToolOutputFile> file = openOutputFile(output, &error);
  if (!file) {
    llvm::errs() << error << "\n";
    return failure();
  }
  file->os() << text;
  file->os().flush();
  if (file->os().has_error()) {
    llvm::errs() << "cannot write " << output << ": " << file->os().error().message() << "\n";
    file->os().clear_error();
    return failure();
  }
  file->keep();
  return success();
}

/// mlir-opt with our dialects and passes.
LogicalResult runPasses(StringRef input, StringRef output, DialectRegistry &registry) {
  std::unique_ptr<llvm::MemoryBuffer> buffer = readParsable(input);
  if (!buffer)
    return failure();
  std::string error;
  std::unique_ptr<llvm::ToolOutputFile> file = openOutputFile(output, &error);
  if (!file) {
    llvm::errs() << error << "\n";
    return failure();
  }
  if (failed(MlirOptMain(file->os(), std::move(buffer), registry,
                         MlirOptMainConfig::createFromCLOptions())))
    return failure();
  file->keep();
  return success();
}

/// --help shows our options, and those of mlir-opt that go with them; --help-hidden all.
void hideOthers() {
  auto &options = llvm::cl::getRegisteredOptions();
  for (StringRef name : {"split-input-file", "verify-diagnostics", "bagua-verify-uses"})
    if (auto found = options.find(name); found != options.end())
      found->second->addCategory(category);
  for (auto [name, option] : options) {
    bool isOurs = llvm::is_contained(option->Categories, &category);
    bool isHelp = name.starts_with("help") || name == "version";
    if (!isOurs && !isHelp && option->getOptionHiddenFlag() == llvm::cl::NotHidden)
      option->setHiddenFlag(llvm::cl::Hidden);
  }
}

} // namespace

int main(int argc, char **argv) {
  DialectRegistry registry;
  registerDialects(registry);
  registerPasses();
  std::string header = registerCLIOptions(
      "Bagua compiler: checks, lowers and explains algorithms (--help-hidden: all of mlir-opt)\n",
      registry);
  hideOthers();
  auto [input, output] = parseCLIOptions(argc, argv, header);
  bool emits = emitLevel.getNumOccurrences() > 0;
  if (emits && explainOnly) {
    llvm::errs() << "--emit and --explain exclude each other\n";
    return 1;
  }
  if (MlirOptMainConfig::createFromCLOptions().shouldShowDialects())
    return asMainReturnCode(MlirOptMain(argc, argv, input, output, registry));
  if (!emits && !explainOnly)
    return asMainReturnCode(runPasses(input, output, registry));
  return asMainReturnCode(run(input, output, registry));
}
