// Damaged sched modules end in a diagnostic, or mean the same to the interpreter and the runtime;
// nothing crashes and nothing runs away.
#include "../CompilerTestSupport.h"

#include "bagua/Expand.h"
#include "bagua/compiler/EmitSchedule.h"

#include "llvm/ADT/StringExtras.h"

#include <cstdlib>
#include <random>

namespace bagua::test {
namespace {

/// Words, and every other character by itself.
std::vector<std::string> tokensOf(const std::string &text) {
  std::vector<std::string> tokens;
  bool inWord = false;
  for (char c : text) {
    bool isWord = llvm::isAlnum(c) || llvm::StringRef("_.%@#!").contains(c);
    if (isWord && inWord)
      tokens.back() += c;
    else
      tokens.emplace_back(1, c);
    inWord = isWord;
  }
  return tokens;
}

std::string damage(const std::string &text, std::mt19937_64 &random) {
  constexpr const char *kWords[] = {"0",
                                    "-1",
                                    "1",
                                    "9223372036854775807",
                                    "cpu",
                                    "net",
                                    "index",
                                    "f64",
                                    "!sched.range",
                                    "%c0",
                                    "%rank",
                                    "muli",
                                    "subi",
                                    "sched.step",
                                    "guard",
                                    "signals",
                                    "after",
                                    "true",
                                    "1000000",
                                    "3"};
  std::vector<std::string> tokens = tokensOf(text);
  auto pick = [&](size_t size) { return static_cast<size_t>(random() % size); };
  for (size_t left = 1 + pick(3); left > 0; --left) {
    size_t at = pick(tokens.size());
    switch (pick(8)) {
    case 0:
      tokens[at].clear();
      break;
    case 1:
      tokens[at] += tokens[pick(tokens.size())];
      break;
    case 2:
      std::swap(tokens[at], tokens[pick(tokens.size())]);
      break;
    case 3:
      tokens[at] = kWords[pick(std::size(kWords))];
      break;
    case 4:
      if (!tokens[at].empty())
        tokens[at][pick(tokens[at].size())] = static_cast<char>(random());
      break;
    default: { // Another value in its place: most likely to still verify.
      std::vector<size_t> values;
      for (size_t i = 0; i < tokens.size(); ++i)
        if (llvm::StringRef(tokens[i]).starts_with("%"))
          values.push_back(i);
      tokens[values[pick(values.size())]] = tokens[values[pick(values.size())]];
      break;
    }
    }
  }
  return llvm::join(tokens, "");
}

TEST(DamagedSchedTest, EndsInADiagnosticOrMeansTheSame) {
  constexpr uint64_t kSeed = 77001;
  const char *wanted = std::getenv("BAGUA_TEST_CASES"); // More, by hand.
  const size_t caseCount = wanted ? std::strtoull(wanted, nullptr, 10) : 900;
  std::vector<std::string> texts;
  for (const char *name : {"gradient-allreduce", "bytegrad", "decentralized", "states"}) {
    std::string text =
        readFile(std::string(BAGUA_SOURCE_DIR) + "/tests/dialect/Sched/" + name + ".mlir");
    texts.push_back(text.substr(text.find("sched.schedule @", text.find("\nsched."))));
  }
  size_t parsed = 0, emitted = 0, bound = 0, ran = 0;
  std::unique_ptr<Ir> ir;
  for (size_t index = 0; index < caseCount; ++index) {
    if (index % 256 == 0) // Attributes live as long as their context.
      ir = std::make_unique<Ir>();
    std::mt19937_64 random(kSeed + index);
    std::string text = damage(texts[index % texts.size()], random);
    SCOPED_TRACE("case " + std::to_string(index) + "\n" + text);
    size_t before = ir->diagnostics().size();
    auto module = ir->parse(text);
    if (!module) {
      ASSERT_GT(ir->diagnostics().size(), before);
      continue;
    }
    ++parsed;
    auto bytes = compiler::emitSchedule(*module);
    if (mlir::failed(bytes)) {
      ASSERT_GT(ir->diagnostics().size(), before);
      continue;
    }
    ++emitted;
    auto schedule = rt::Schedule::fromBytes(*bytes);
    ASSERT_TRUE(schedule.ok()) << schedule.status();

    compiler::Inputs inputs;
    inputs.world = 2 + static_cast<int64_t>(index % 2);
    inputs.length = 2500;
    fillInputs(inputs, index);
    bool accepts = (*schedule)->ir().dtypes.front() == fb::DType::F32;
    bool isBound = accepts;
    std::vector<int64_t> formula(static_cast<size_t>(inputs.world), 0);
    for (const auto &program : (*schedule)->ir().programs)
      for (int64_t rank = 0; rank < inputs.world && isBound; ++rank) {
        rt::BindValues values;
        values.world = values.localSize = inputs.world;
        values.rank = values.localRank = rank;
        values.length = inputs.length;
        auto flat = expand(**schedule, *program, values);
        isBound = flat.ok();
        if (!isBound)
          continue;
        auto bytes = evaluateInt(**schedule, flat->wireBytes, values, rt::StepValues());
        isBound = bytes.ok();
        if (isBound)
          formula[static_cast<size_t>(rank)] += *bytes;
      }
    bound += isBound;
    before = ir->diagnostics().size();
    compiler::InterpreterOptions options;
    options.scratchBytesMax = size_t{64} << 20;
    auto outputs = interpretSched(*module, inputs, options);
    if (mlir::failed(outputs)) {
      ASSERT_GT(ir->diagnostics().size(), before);
      continue;
    }
    ++ran;
    // What the interpreter runs, the runtime can bind, at the same cost.
    EXPECT_TRUE(isBound);
    EXPECT_EQ(outputs->formulaWireBytes.front(), formula);
  }
  // The damages reach every stage.
  EXPECT_GT(parsed, caseCount / 20);
  EXPECT_GT(emitted, caseCount / 20);
  EXPECT_GT(bound, caseCount / 50);
  EXPECT_GT(ran, caseCount / 100);
  EXPECT_LT(ran, parsed);
  RecordProperty("parsed", static_cast<int>(parsed));
  RecordProperty("ran", static_cast<int>(ran));
}

} // namespace
} // namespace bagua::test
