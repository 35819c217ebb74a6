// The table of algorithms and their way through the compiler.
#include "Algorithms.h"

#include "CompilerTestSupport.h"
#include "Oracle.h"

#include "bagua/compiler/EmitSchedule.h"

#include "mlir/Pass/PassManager.h"

#include <algorithm>
#include <filesystem>

namespace bagua::test {
namespace {

using compiler::Bytes;
using compiler::Level;

template <typename T> Expected pack(OracleResult<T> result) {
  return {bytesOf(result.values), std::move(result.wireBytes)};
}

Expected gradientAllreduce(const std::vector<Bytes> &inputs, kernels::DType dtype) {
  return dtype == kernels::DType::F32 ? pack(oracleGradientAllreduce(elementsOf<float>(inputs)))
                                      : pack(oracleGradientAllreduce(elementsOf<double>(inputs)));
}

Expected bytegrad(const std::vector<Bytes> &inputs, kernels::DType) {
  return pack(oracleBytegrad(elementsOf<float>(inputs), 8, 2048));
}

Expected decentralized(const std::vector<Bytes> &inputs, kernels::DType dtype) {
  return dtype == kernels::DType::F32 ? pack(oracleDecentralized(elementsOf<float>(inputs)))
                                      : pack(oracleDecentralized(elementsOf<double>(inputs)));
}

} // namespace

const std::vector<Algorithm> &algorithms() {
  using enum kernels::DType;
  static const std::vector<Algorithm> all = {
      {"gradient_allreduce",
       "algorithms/gradient_allreduce.mlir",
       false,
       2048,
       {F32, F64},
       gradientAllreduce},
      {"bytegrad", "algorithms/bytegrad.mlir", false, 2048, {F32}, bytegrad},
      {"decentralized", "algorithms/decentralized.mlir", true, 2048, {F32, F64}, decentralized},
  };
  return all;
}

std::vector<int64_t> lengthsOf(const Algorithm &algorithm) {
  int64_t block = algorithm.block;
  return {0, 1, 31, block - 1, block, block + 1, 5 * block + 77, kLargeLength};
}

std::vector<int> Layout::hosts() const {
  std::vector<int> result;
  for (int64_t rank = 0; rank < world(); ++rank)
    result.push_back(static_cast<int>(rank / local));
  return result;
}

bool countsNodes(const rt::Schedule &schedule) {
  return std::any_of(schedule.ir().expressions.begin(), schedule.ir().expressions.end(),
                     [](const auto &expr) {
                       return expr->op == fb::ExprOp::LocalRank ||
                              expr->op == fb::ExprOp::LocalSize || expr->op == fb::ExprOp::Nodes;
                     });
}

std::vector<Layout> layoutsOf(const rt::Schedule &schedule) {
  if (countsNodes(schedule))
    return {std::begin(kLayouts), std::end(kLayouts)};
  std::vector<Layout> layouts;
  for (int64_t world : kWorlds)
    layouts.push_back({1, world});
  return layouts;
}

std::vector<std::string> filesIn(const std::string &folder) {
  std::vector<std::string> files;
  for (const auto &entry : std::filesystem::directory_iterator(BAGUA_SOURCE_DIR "/" + folder))
    if (entry.path().extension() == ".mlir")
      files.push_back(folder + "/" + entry.path().filename().string());
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<std::string> furtherFiles() {
  return filesIn("tests/compiler/Conversion/BaguaToChunk/Inputs");
}

Compiled::Compiled(const Algorithm &algorithm) : Compiled(algorithm.file) {}
Compiled::Compiled(const std::string &file, bool mayNotLower) {
  compile({file, readFile(std::string(BAGUA_SOURCE_DIR) + "/" + file)}, mayNotLower);
}
Compiled::Compiled(const Source &source) { compile(source, false); }

void Compiled::compile(const Source &source, bool mayNotLower) {
  mlir::DialectRegistry registry;
  compiler::registerDialects(registry);
  context_ = std::make_unique<mlir::MLIRContext>(registry, mlir::MLIRContext::Threading::DISABLED);
  context_->printOpOnDiagnostic(false);
  handler_ = std::make_unique<mlir::ScopedDiagnosticHandler>(
      context_.get(), [this](mlir::Diagnostic &diagnostic) {
        diagnostics_ += diagnostic.str() + "\n";
        return mlir::success();
      });
  const auto &[file, text] = source;
  for (Level level : {Level::Bagua, Level::Chunk, Level::Sched}) {
    auto &module = modules_[static_cast<size_t>(level)];
    module =
        mlir::parseSourceString<mlir::ModuleOp>(text, mlir::ParserConfig(context_.get()), file);
    ASSERT_TRUE(module) << diagnostics_;
    if (level == Level::Bagua)
      continue; // As written: the sugar is the oracle of its expansion.
    mlir::PassManager passes(context_.get());
    compiler::buildLowering(passes, level);
    bool lowered = succeeded(passes.run(*module));
    if (!lowered && mayNotLower && level == Level::Sched &&
        diagnostics_.find("known at bind time") != std::string::npos)
      return;
    ASSERT_TRUE(lowered) << file << ": " << diagnostics_;
  }
  auto bytes = compiler::emitSchedule(at(Level::Sched));
  ASSERT_TRUE(succeeded(bytes)) << diagnostics_;
  bytes_ = *bytes;
  auto schedule = rt::Schedule::fromBytes(bytes_);
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  schedule_ = *schedule;
}

std::string differenceOf(const std::vector<Bytes> &got, const std::vector<Bytes> &expected,
                         kernels::DType dtype) {
  return dtype == kernels::DType::F32 ? firstDifference<float>(got, expected)
                                      : firstDifference<double>(got, expected);
}

} // namespace bagua::test
