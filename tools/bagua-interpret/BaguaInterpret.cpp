// bagua-interpret: runs an algorithm on virtual ranks in one process, at the level asked for. Slow
// and obvious: what it prints is what the runtime must do.
#include "bagua/compiler/Interpreter.h"
#include "bagua/compiler/Pipelines.h"
#include "bagua/dialect/Bagua/BaguaOps.h"
#include "bagua/dialect/Chunk/ChunkOps.h"
#include "bagua/dialect/Sched/Sched.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/raw_ostream.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>

using namespace mlir;
using namespace bagua;
using compiler::Level;

namespace {

struct Arguments {
  std::string file, level = "bagua", dtype = "f32", fill = "normal", input, output, outputStates;
  compiler::Inputs inputs;
  compiler::InterpreterOptions options;
  uint64_t dataSeed = 1;
  int64_t nodes = 0; ///< 0: not given.
  std::vector<std::string> parameters;
};

/// The level of what the module holds.
Level levelOf(ModuleOp module) {
  if (!module.getOps<ir::sched::ScheduleOp>().empty())
    return Level::Sched;
  if (!module.getOps<ir::chunk::ScheduleOp>().empty())
    return Level::Chunk;
  return Level::Bagua;
}

LogicalResult lower(ModuleOp module, Level level, const std::string &name) {
  if (failed(compiler::verifyOneProgram(module)))
    return failure();
  Level has = levelOf(module);
  if (has > level)
    return module.emitError("expects a module of level ") << name << " or above it";
  if (has == level) // As written: the interpreter is to be held to the text.
    return success();
  PassManager passes(module.getContext());
  compiler::buildPipeline(passes, level);
  return passes.run(module);
}

FailureOr<compiler::Outputs> interpret(ModuleOp module, Level level, const Arguments &arguments) {
  switch (level) {
  case Level::Bagua:
    return compiler::interpretBagua(module, arguments.inputs, arguments.options);
  case Level::Chunk:
    return compiler::interpretChunk(module, arguments.inputs, arguments.options);
  default:
    return compiler::interpretSched(module, arguments.inputs, arguments.options);
  }
}

void print(const Arguments &arguments, const compiler::Outputs &outputs) {
  for (const std::string &line : outputs.log)
    llvm::outs() << line << '\n';
  llvm::outs() << "level " << arguments.level << ", world " << arguments.inputs.world << ", length "
               << arguments.inputs.length << ", " << arguments.dtype << '\n';
  for (size_t step = 0; step < outputs.gradients.size(); ++step) {
    llvm::outs() << "step " << arguments.inputs.firstStep + static_cast<int64_t>(step)
                 << (outputs.finite[step] ? "\n" : ", not finite\n")
                 << "rank  gradient          weight            wire bytes\n";
    for (size_t rank = 0; rank < outputs.wireBytes[step].size(); ++rank)
      llvm::outs() << llvm::formatv(
          "{0,-4}  {1}  {2}  {3}\n", rank, compiler::hashHex(outputs.gradients[step][rank]),
          compiler::hashHex(outputs.weights[step][rank]), outputs.wireBytes[step][rank]);
  }
  for (const auto &[name, lists] : outputs.states) {
    llvm::outs() << "state " << name << '\n';
    for (auto [rank, bytes] : llvm::enumerate(lists))
      llvm::outs() << llvm::formatv("{0,-4}  {1}\n", rank, compiler::hashHex(bytes));
  }
}

/// "name=number" into `parameters`.
bool parseParameter(const std::string &text, std::map<std::string, double> &parameters) {
  size_t equals = text.find('=');
  if (equals == 0 || equals == std::string::npos)
    return false;
  double value = 0;
  const char *end = text.data() + text.size();
  auto [rest, error] = std::from_chars(text.data() + equals + 1, end, value);
  parameters[text.substr(0, equals)] = value;
  return error == std::errc() && rest == end && std::isfinite(value);
}

int fail(const std::string &message) {
  llvm::errs() << "bagua-interpret: " << message << '\n';
  return 1;
}

int run(Arguments &arguments) {
  compiler::Inputs &inputs = arguments.inputs;
  inputs.dtype = arguments.dtype == "f32" ? kernels::DType::F32 : kernels::DType::F64;
  for (const std::string &text : arguments.parameters)
    if (!parseParameter(text, inputs.parameters))
      return fail("expects --parameter NAME=NUMBER, got " + text);
  // Inputs, outputs, and what the levels hold on the way.
  constexpr int64_t kBytesMax = int64_t{4} << 30;
  if (inputs.length * inputs.elementBytes() >
      kBytesMax / (inputs.world * (8 + 4 * (inputs.steps - 1))))
    return fail("a world of " + std::to_string(inputs.world) + " and a length of " +
                std::to_string(inputs.length) + " need more memory than interpreting is worth");
  std::string error;
  if (!arguments.input.empty()) {
    if (failed(compiler::readInputs(arguments.input, inputs, error)))
      return fail(error);
  } else {
    compiler::fillInputs(inputs, arguments.dataSeed,
                         arguments.fill == "exact"  ? compiler::Fill::Exact
                         : arguments.fill == "edge" ? compiler::Fill::Edge
                                                    : compiler::Fill::Normal);
  }

  DialectRegistry registry;
  compiler::registerDialects(registry);
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  context.printOpOnDiagnostic(false);
  std::unique_ptr<llvm::MemoryBuffer> buffer = compiler::readSource(arguments.file, error);
  if (!buffer)
    return fail(error);
  error = compiler::sourceError(buffer->getBuffer());
  if (!error.empty())
    return fail(arguments.file + ":" + error);
  auto sources = std::make_shared<llvm::SourceMgr>();
  sources->AddNewSourceBuffer(std::move(buffer), SMLoc());
  SourceMgrDiagnosticHandler handler(*sources, &context);
  compiler::showFileDiagnostics(context);
  OwningOpRef<ModuleOp> module = parseSourceFile<ModuleOp>(sources, &context);
  if (!module)
    return 1;
  Level level = arguments.level == "bagua"   ? Level::Bagua
                : arguments.level == "chunk" ? Level::Chunk
                                             : Level::Sched;
  if (failed(lower(*module, level, arguments.level)))
    return 1;
  FailureOr<compiler::Outputs> outputs = interpret(*module, level, arguments);
  if (failed(outputs))
    return 1;
  print(arguments, *outputs);
  if (!outputs->formulaWireBytes.empty() && outputs->formulaWireBytes != outputs->wireBytes)
    return fail("the program's cost says other wire bytes than were sent");
  if (!arguments.output.empty() &&
      failed(compiler::writeOutputs(arguments.output, *outputs, error)))
    return fail(error);
  if (!arguments.outputStates.empty() &&
      failed(compiler::writeStates(arguments.outputStates, *outputs, error)))
    return fail(error);
  return 0;
}

} // namespace

int main(int argc, char **argv) {
  Arguments arguments;
  compiler::Inputs &inputs = arguments.inputs;
  inputs.world = 4;
  inputs.length = 1000;
  CLI::App app("Runs an algorithm (.mlir, of any level) on virtual ranks in one process.");
  app.add_option("file", arguments.file, "The module; - for standard input")->required();
  app.add_option("--level", arguments.level, "Level to interpret at; a higher one is lowered to it")
      ->check(CLI::IsMember({"bagua", "chunk", "sched"}))
      ->capture_default_str();
  app.add_option("--world", inputs.world, "Ranks")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  CLI::Option *localSize =
      app.add_option("--local-size", inputs.localSize, "Ranks per node; 0: all on one")
          ->check(CLI::Range(0, 1024));
  app.add_option("--nodes", arguments.nodes, "Nodes; divides the world")
      ->check(CLI::Range(1, 1024))
      ->excludes(localSize);
  app.add_option("--length", inputs.length, "Elements in the bucket")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 32))
      ->capture_default_str();
  app.add_option("--dtype", arguments.dtype, "Element type of the bucket")
      ->check(CLI::IsMember({"f32", "f64"}))
      ->capture_default_str();
  app.add_option("--step", inputs.firstStep, "Number of the first step")
      ->check(CLI::Range(int64_t{0}, INT64_MAX))
      ->capture_default_str();
  app.add_option("--steps", inputs.steps, "Training steps")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--bucket", inputs.bucket, "Number of the bucket")
      ->check(CLI::Range(int64_t{0}, INT64_MAX))
      ->capture_default_str();
  app.add_option("--sgd", inputs.stepSize,
                 "The job's optimizer: weight -= this * gradient; 0: weights stay")
      ->check(CLI::Number)
      ->capture_default_str();
  app.add_option("--parameter", arguments.parameters, "NAME=NUMBER; may be repeated");
  app.add_option("--seed", arguments.dataSeed, "Of the generated inputs")->capture_default_str();
  app.add_option("--fill", arguments.fill, "Kind of generated inputs")
      ->check(CLI::IsMember({"exact", "normal", "edge"}))
      ->capture_default_str();
  app.add_option("--input", arguments.input,
                 "Raw elements instead: gradients of rank 0, 1, ... for each step, then weights");
  app.add_option("--output", arguments.output,
                 "Write, for each step, gradients and weights of rank 0, 1, ...");
  app.add_option("--output-states", arguments.outputStates,
                 "Write, at the end, each state by name, of rank 0, 1, ...");
  app.add_option("--order", arguments.options.seed,
                 "sched: seed of the order in which queues are stepped; 0: round robin");
  app.add_flag("--copy", arguments.options.copyMessages,
               "sched: receives copy, senders go on at once");
  app.add_flag("--log", arguments.options.log, "Print what happens, in order");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError &error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (arguments.nodes > 0 && inputs.world % arguments.nodes != 0)
    return fail("--nodes " + std::to_string(arguments.nodes) + ": expects a divisor of the " +
                std::to_string(inputs.world) + " ranks");
  if (arguments.nodes > 0)
    inputs.localSize = inputs.world / arguments.nodes;
  return run(arguments);
}
