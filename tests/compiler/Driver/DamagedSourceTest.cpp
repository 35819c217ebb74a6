// Damaged sources end in a diagnostic or in a valid schedule, never in a crash: tokens are cut,
// doubled, swapped and replaced by others, bytes are flipped, files end early.
#include "CompilerTestSupport.h"

#include "bagua/compiler/EmitSchedule.h"
#include "bagua/compiler/Explain.h"
#include "bagua/compiler/Pipelines.h"

#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/StringExtras.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <random>

namespace bagua::test {
namespace {

using namespace bagua::compiler;

std::vector<std::string> sources() {
  std::vector<std::string> files;
  for (const char *folder : {"/tests/compiler/Conversion/BaguaToChunk/Inputs", "/algorithms"})
    for (const auto &entry :
         std::filesystem::directory_iterator(std::string(BAGUA_SOURCE_DIR) + folder))
      if (entry.path().extension() == ".mlir")
        files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<std::string> texts;
  for (const std::string &file : files)
    texts.push_back(readFile(file));
  return texts;
}

std::vector<std::string> tokensOf(const std::string &text) {
  std::vector<std::string> tokens;
  for (char c : text) {
    bool word =
        llvm::isAlnum(c) || c == '_' || c == '.' || c == '%' || c == '@' || c == '#' || c == '!';
    if (word && !tokens.empty() && llvm::isAlnum(tokens.back().back()))
      tokens.back() += c;
    else
      tokens.emplace_back(1, c);
  }
  return tokens;
}

/// `text` with one to three damages; `words` are tokens of all sources.
std::string damage(const std::string &text, const std::vector<std::string> &words,
                   std::mt19937_64 &random) {
  static const std::vector<std::string> kNumbers = {"0",
                                                    "-1",
                                                    "1",
                                                    "2",
                                                    "9",
                                                    "65537",
                                                    "2147483648",
                                                    "9223372036854775807",
                                                    "99999999999999999999",
                                                    "1/0",
                                                    "1e999"};
  std::vector<std::string> tokens = tokensOf(text);
  auto pick = [&](size_t size) { return static_cast<size_t>(random() % size); };
  for (size_t left = 1 + pick(3); left > 0 && !tokens.empty(); --left) {
    size_t at = pick(tokens.size());
    switch (pick(7)) {
    case 0:
      tokens.erase(tokens.begin() + static_cast<ptrdiff_t>(at));
      break;
    case 1:
      tokens.insert(tokens.begin() + static_cast<ptrdiff_t>(at), tokens[pick(tokens.size())]);
      break;
    case 2:
      std::swap(tokens[at], tokens[pick(tokens.size())]);
      break;
    case 3:
      tokens[at] = words[pick(words.size())];
      break;
    case 4: // Another number, or another word of the file for one.
      for (size_t tries = 0; tries < 50 && !llvm::isDigit(tokens[at][0]); ++tries)
        at = pick(tokens.size());
      tokens[at] = kNumbers[pick(kNumbers.size())];
      break;
    case 5:
      tokens[at][pick(tokens[at].size())] = static_cast<char>(random());
      break;
    default:
      if (pick(10) == 0)
        tokens.resize(at);
      break;
    }
  }
  return llvm::join(tokens, "");
}

TEST(DamagedSourceTest, EndsInADiagnosticOrAValidSchedule) {
  constexpr uint64_t kSeed = 20240601;
  const char *wanted = std::getenv("BAGUA_TEST_CASES"); // More, by hand.
  const size_t caseCount = wanted ? std::strtoull(wanted, nullptr, 10) : 1000;
  mlir::DialectRegistry registry;
  registerDialects(registry);
  std::vector<std::string> texts = sources();
  std::vector<std::string> words;
  for (const std::string &text : texts)
    for (std::string &token : tokensOf(text))
      words.push_back(std::move(token));

  size_t parsed = 0, lowered = 0, emitted = 0;
  std::unique_ptr<Ir> ir;
  for (size_t index = 0; index < caseCount; ++index) {
    if (index % 256 == 0) { // Attributes live as long as their context.
      ir = std::make_unique<Ir>();
      ir->context().appendDialectRegistry(registry);
    }
    std::mt19937_64 random(kSeed + index);
    std::string text = damage(texts[index % texts.size()], words, random);
    SCOPED_TRACE("seed " + std::to_string(kSeed + index) + "\n" + text);
    if (!sourceError(text).empty())
      continue;
    size_t before = ir->diagnostics().size();
    mlir::OwningOpRef<mlir::ModuleOp> module = ir->parse(text);
    if (!module) {
      ASSERT_GT(ir->diagnostics().size(), before);
      continue;
    }
    ++parsed;
    std::string explanation;
    llvm::raw_string_ostream os(explanation);
    mlir::LogicalResult explained = explain(*module, {.world = 3, .length = 100}, os);
    before = ir->diagnostics().size();
    mlir::PassManager manager(&ir->context());
    buildPipeline(manager, Level::Schedule);
    if (mlir::failed(manager.run(*module))) {
      ASSERT_GT(ir->diagnostics().size(), before);
      continue;
    }
    ++lowered;
    mlir::FailureOr<std::vector<uint8_t>> bytes = emitSchedule(*module);
    if (mlir::failed(bytes)) {
      ASSERT_GT(ir->diagnostics().size(), before);
      continue;
    }
    ++emitted;
    EXPECT_TRUE(mlir::succeeded(explained)) << ir->diagnostics();
    EXPECT_TRUE(rt::Schedule::fromBytes(*bytes).ok());
  }
  // The damages reach every stage.
  EXPECT_GT(parsed, caseCount / 20);
  EXPECT_GT(lowered, caseCount / 50);
  EXPECT_GT(emitted, caseCount / 50);
  EXPECT_LT(emitted, caseCount);
}

} // namespace
} // namespace bagua::test
