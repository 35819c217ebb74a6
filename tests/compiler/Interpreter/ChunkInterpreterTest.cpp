// What the chunk interpreter refuses, each at the op at fault. That it is right on what it accepts
// is in tests/compiler/Conversion/ChunkToSched.
#include "../CompilerTestSupport.h"

#include "bagua/dialect/Chunk/ChunkOps.h"

#include <gmock/gmock.h>

namespace bagua::test {
namespace {

using compiler::Inputs;
using compiler::InterpreterOptions;
using testing::ElementsAre;
using testing::HasSubstr;

/// A program whose forall holds `body`. %x: gradients; %y: scratch; %in: slots, one for each rank;
/// %v: the message in slot 0.
std::string program(const std::string &body, const std::string &outside = "") {
  return R"(chunk.schedule @s grain 1 accepts [f32] {
    chunk.declare_parameter @three = 3 : index
    chunk.program @p on gradient {
      %zero = arith.constant 0 : index
      %one = arith.constant 1 : index
      %two = arith.constant 2 : index
      %three = chunk.parameter @three : index
      %n = chunk.world
      %rank = chunk.rank
      %len = chunk.length
      %eb = chunk.element_bytes
      %bytes = arith.muli %len, %eb : index
      %more = arith.addi %bytes, %one : index
      %g = chunk.job gradient
      %s = chunk.scratch %bytes
      %in = chunk.slots %n, %bytes)" +
         outside + R"(
      chunk.forall %r {
        %x = chunk.range %g[%zero, %bytes]
        %y = chunk.range %s[%zero, %bytes]
        %v = chunk.view %in[%zero][%zero, %bytes])" +
         body + R"(
      }
      chunk.cost rounds %one wire_bytes %bytes
    }
  })";
}

class ChunkInterpreterTest : public testing::Test {
protected:
  ChunkInterpreterTest() {
    ir_.context().loadDialect<ir::chunk::ChunkDialect>();
    inputs_.world = 3;
    inputs_.length = 4;
    fillInputs(inputs_, 1, compiler::Fill::Exact);
  }

  /// Interprets; the diagnostics, or "" if there was no error.
  std::string errorOf(const std::string &text) {
    auto module = ir_.parse(text);
    if (!module)
      return "does not parse: " + ir_.diagnostics();
    auto outputs = interpretChunk(*module, inputs_, options_);
    if (succeeded(outputs)) {
      outputs_ = *outputs;
      return "";
    }
    return ir_.diagnostics();
  }

  Ir ir_;
  Inputs inputs_;
  InterpreterOptions options_;
  compiler::Outputs outputs_;
};

constexpr const char *kCopyView =
    "\nchunk.launch \"copy\" count %len ins(%v : !chunk.range) outs(%y : !chunk.range)";

TEST_F(ChunkInterpreterTest, MovesAndLogsInLockstep) {
  options_.log = true;
  ASSERT_EQ(
      errorOf(program(std::string("chunk.move %x to rotate(%one) into %in[%zero]") + kCopyView +
                      "\nchunk.launch \"copy\" count %len ins(%y : !chunk.range) outs(%x : "
                      "!chunk.range)")),
      "");
  for (size_t rank = 0; rank < 3; ++rank)
    EXPECT_EQ(outputs_.gradients[0][rank], inputs_.gradients[0][(rank + 2) % 3]) << rank;
  EXPECT_THAT(outputs_.wireBytes.front(), ElementsAre(16, 16, 16));
  EXPECT_THAT(outputs_.formulaWireBytes.front(), ElementsAre(16, 16, 16));
  ASSERT_EQ(outputs_.log.size(), 9u);
  EXPECT_EQ(outputs_.log[1], "rank 1 chunk.move: 16 bytes to rank 2 slot 0");
  EXPECT_EQ(outputs_.log[5], "rank 2 chunk.launch: copy of 4 elements");
}

TEST_F(ChunkInterpreterTest, NegativeRotationAndParameter) {
  inputs_.parameters["three"] = 2;
  ASSERT_EQ(errorOf(program("%k = arith.subi %zero, %three : index\n"
                            "chunk.move %x to rotate(%k) into %in[%zero]" +
                            std::string(kCopyView) +
                            "\nchunk.launch \"copy\" count %len ins(%y : !chunk.range) outs(%x : "
                            "!chunk.range)")),
            "");
  for (size_t rank = 0; rank < 3; ++rank)
    EXPECT_EQ(outputs_.gradients[0][rank], inputs_.gradients[0][(rank + 2) % 3]) << rank;
}

TEST_F(ChunkInterpreterTest, ZeroBytesAreNoMessage) {
  inputs_.length = 0;
  fillInputs(inputs_, 1);
  EXPECT_EQ(
      errorOf(program(std::string("chunk.move %x to rotate(%zero) into %in[%zero]") + kCopyView)),
      "");
  EXPECT_THAT(outputs_.wireBytes.front(), ElementsAre(0, 0, 0));
}

/// Rotations in the groups of two nodes of three ranks, forwards and back.
TEST_F(ChunkInterpreterTest, RotationsStayInTheirGroup) {
  inputs_.world = 6;
  inputs_.localSize = 3;
  fillInputs(inputs_, 1);
  struct {
    const char *map;
    std::vector<size_t> from; ///< By rank.
  } cases[] = {
      {"node_rotate(%one)", {2, 0, 1, 5, 3, 4}},
      {"node_rotate(%back)", {1, 2, 0, 4, 5, 3}},
      {"cross_rotate(%three)", {3, 4, 5, 0, 1, 2}},
      {"cross_rotate(%back)", {3, 4, 5, 0, 1, 2}},
  };
  for (const auto &one : cases) {
    SCOPED_TRACE(one.map);
    ASSERT_EQ(errorOf(program("%back = arith.subi %zero, %one : index\nchunk.move %x to " +
                              std::string(one.map) + " into %in[%zero]" + kCopyView +
                              "\nchunk.launch \"copy\" count %len ins(%y : !chunk.range) outs(%x : "
                              "!chunk.range)")),
              "");
    for (size_t rank = 0; rank < 6; ++rank)
      EXPECT_EQ(outputs_.gradients[0][rank], inputs_.gradients[0][one.from[rank]]) << rank;
  }
}

struct Refusal {
  const char *name, *body, *message;
};
void PrintTo(const Refusal &refusal, std::ostream *out) { *out << refusal.name; }

class ChunkInterpreterRefusalTest : public ChunkInterpreterTest,
                                    public testing::WithParamInterface<Refusal> {};

TEST_P(ChunkInterpreterRefusalTest, SaysWhatAndWhere) {
  EXPECT_THAT(errorOf(program(GetParam().body)), HasSubstr(GetParam().message));
}

const Refusal kRefusals[] = {
    {"MoveToItself", "chunk.move %x to rotate(%three) into %in[%zero]",
     "'chunk.move' op on rank 0 of 3, length 4: expects another rank to send to, got itself: "
     "rotate(3)"},
    {"MoveToItselfInItsNode", "chunk.move %x to cross_rotate(%one) into %in[%zero]",
     "'chunk.move' op on rank 0 of 3, length 4: expects another rank to send to, got itself: "
     "cross_rotate(1)"},
    {"RangeBeyondBuffer",
     "%z = chunk.range %g[%one, %bytes]\nchunk.move %z to rotate(%one) into %in[%zero]",
     "expects bytes within the 16 of the buffer, got 16 at 1"},
    {"NegativeOffset",
     "%m = arith.subi %zero, %one : index\n%z = chunk.range %g[%m, %bytes]\n"
     "chunk.move %z to rotate(%one) into %in[%zero]",
     "expects an offset of at least 0, got -1"},
    {"NoSuchSlot", "chunk.move %x to rotate(%one) into %in[%three]",
     "expects a slot below 3, got 3"},
    {"SlotTwice",
     "chunk.move %x to rotate(%one) into %in[%zero]\nchunk.move %x to rotate(%two) into %in[%zero]",
     "expects slot 0 to be empty, got an earlier message in it\nnote: loc(\"t.mlir\":"},
    {"EmptySlot",
     "chunk.move %x to rotate(%one) into %in[%one]\n"
     "chunk.launch \"copy\" count %len ins(%v : !chunk.range) outs(%y : !chunk.range)",
     "expects a message in slot 0, got an empty slot"},
    {"ViewBeyondMessage",
     "%short = arith.subi %bytes, %eb : index\n%z = chunk.range %g[%zero, %short]\n"
     "chunk.move %z to rotate(%one) into %in[%zero]\n"
     "chunk.launch \"copy\" count %len ins(%v : !chunk.range) outs(%y : !chunk.range)",
     "expects bytes within the 12 of the message in slot 0, got 16 at 0"},
    {"OverwrittenBeforeRead",
     "chunk.move %x to rotate(%one) into %in[%zero]\n"
     "chunk.launch \"copy\" count %len ins(%y : !chunk.range) outs(%x : !chunk.range)\n"
     "chunk.launch \"copy\" count %len ins(%v : !chunk.range) outs(%y : !chunk.range)",
     "reads a message whose bytes its sender has overwritten since"},
    {"OverwrittenByItsReader",
     "chunk.move %x to rotate(%one) into %in[%zero]\n"
     "chunk.launch \"copy\" count %len ins(%v : !chunk.range) outs(%x : !chunk.range)",
     "reads a message whose bytes its sender has overwritten since"},
    {"MessageOfEarlierIteration",
     "chunk.for %i = %zero to %two {\n"
     "  %first = arith.cmpi eq, %i, %zero : index\n"
     "  chunk.if %first { chunk.move %x to rotate(%one) into %in[%zero] }\n"
     "  chunk.launch \"copy\" count %len ins(%v : !chunk.range) outs(%y : !chunk.range)\n}",
     "expects a message in slot 0, got an empty slot"},
    {"PartsOverlap",
     "%a = chunk.range %g[%zero, %bytes] part(%zero)\n%b = chunk.range %g[%zero, %bytes] "
     "part(%one)\n"
     "chunk.launch \"copy\" count %len ins(%a : !chunk.range) outs(%y : !chunk.range)\n"
     "chunk.launch \"copy\" count %len ins(%b : !chunk.range) outs(%y : !chunk.range)",
     "expects parts that do not overlap, got 16 bytes at 0 as part 1 and 16 at 0 as part 0"},
    {"UnknownKernel",
     "chunk.launch \"warp\" count %len ins(%x : !chunk.range) outs(%y : !chunk.range)",
     "'chunk.launch' op no kernel is named 'warp'"},
    {"InputOfWrongSize",
     "%z = chunk.range %g[%zero, %eb]\n"
     "chunk.launch \"copy\" count %len ins(%z : !chunk.range) outs(%y : !chunk.range)",
     "expects inputs of 16 bytes for 4 elements, got 4"},
    {"OutputOfWrongSize",
     "%z = chunk.range %s[%zero, %eb]\n"
     "chunk.launch \"copy\" count %len ins(%x : !chunk.range) outs(%z : !chunk.range)",
     "expects an output of 16 bytes for 4 elements, got 4"},
    {"TwoOutputs",
     "chunk.launch \"copy\" count %len ins(%x : !chunk.range) outs(%y, %y : !chunk.range, "
     "!chunk.range)",
     "expects one output, got 2"},
    {"NoInput", "chunk.launch \"copy\" count %len outs(%y : !chunk.range)",
     "expects 1 to 1 inputs, got 0"},
    {"ScalarsOfMix",
     "chunk.launch \"mix\" count %len ins(%x, %x : !chunk.range, !chunk.range) outs(%y : "
     "!chunk.range)",
     "expects a scalar for each input but the first, got 0 for 2 inputs"},
    {"EndlessList",
     "%huge = arith.constant 4611686018427387904 : index\n"
     "%l = chunk.gather %p = %zero to %huge { chunk.yield %x }\n"
     "chunk.launch \"reduce_sum\" count %len ins(%l : !chunk.ranges) outs(%y : !chunk.range)",
     "expects a list of at most 65536 ranges"},
    {"EndlessEmptyList",
     "%huge = arith.constant 4611686018427387904 : index\n%no = arith.constant false\n"
     "%l = chunk.gather %p = %zero to %huge { chunk.yield %x when %no }\n"
     "chunk.launch \"reduce_sum\" count %len ins(%l : !chunk.ranges) outs(%y : !chunk.range)",
     "executes more than 16777216 ops"},
    {"EndlessLoop",
     "%huge = arith.constant 4611686018427387904 : index\nchunk.for %i = %zero to %huge {}",
     "executes more than 16777216 ops"},
    {"CountThatOverflows",
     "%huge = arith.constant 4611686018427387904 : index\n%z = chunk.range %g[%zero, %zero]\n"
     "chunk.launch \"copy\" count %huge ins(%z : !chunk.range) outs(%z : !chunk.range)",
     "expects at most 68719476736 elements, got 4611686018427387904"},
    {"DivisionByZero",
     "%bad = arith.floordivsi %one, %zero : index\n"
     "chunk.launch \"copy\" count %bad ins(%x : !chunk.range) outs(%y : !chunk.range)",
     "divi"},
};

INSTANTIATE_TEST_SUITE_P(All, ChunkInterpreterRefusalTest, testing::ValuesIn(kRefusals),
                         [](const auto &info) { return info.param.name; });

TEST_F(ChunkInterpreterTest, MessageLargerThanItsSlot) {
  std::string text =
      program("chunk.move %x to rotate(%one) into %small[%zero]", "\n%small = chunk.slots %n, %eb");
  EXPECT_THAT(errorOf(text), HasSubstr("expects a message of at most 4 bytes in slot 0, got 16"));
}

TEST_F(ChunkInterpreterTest, ScratchOfNegativeSize) {
  std::string text =
      program("", "\n%minus = arith.subi %zero, %one : index\n%t = chunk.scratch %minus");
  EXPECT_THAT(errorOf(text), HasSubstr("expects a size of at least 0, got -1"));
}

TEST_F(ChunkInterpreterTest, ScratchBeyondTheLimit) {
  options_.scratchBytesMax = 40; // Two ranks' 16 bytes, not three.
  EXPECT_THAT(
      errorOf(program("")),
      HasSubstr("on rank 2 of 3, length 4: expects scratch memory of at most 40 bytes for all "
                "ranks together, got 16 here"));
}

TEST_F(ChunkInterpreterTest, ElementTypeNotAccepted) {
  inputs_.dtype = kernels::DType::F64;
  fillInputs(inputs_, 1);
  EXPECT_THAT(errorOf(program("")),
              HasSubstr("expects a bucket of an element type that it accepts, got f64"));
}

TEST_F(ChunkInterpreterTest, UnknownParameter) {
  inputs_.parameters["four"] = 4;
  EXPECT_THAT(errorOf(program("")), HasSubstr("has no parameter 'four'"));
}

TEST_F(ChunkInterpreterTest, NotUniform) {
  EXPECT_THAT(errorOf(program("chunk.move %x to rotate(%r) into %in[%zero]")),
              HasSubstr("expects an argument of the peer map that is the same on all ranks"));
}

} // namespace
} // namespace bagua::test
