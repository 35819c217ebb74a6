// Random chunk programs: what the interpreter accepts is either refused by the lowering with a
// reason, or lowered to a program with the same bytes that the checker proves free of races and
// deadlocks.
#include "LoweringTestSupport.h"

#include <array>
#include <random>

namespace bagua::test {
namespace {

/// How a program names a group: its size, the rank's place in it, what a move is to, …
struct GroupNames {
  const char *size, *place, *last, *many, *more, *map, *of;
  const char *own; ///< Prefix of the size of the rank's own shard.
};
constexpr GroupNames kGroups[] = {
    {"%n", "%r", "%last", "%many", "%more", "rotate", "", "r"},
    {"%s", "%l", "%s_last", "%s_many", "%s_more", "node_rotate", " of node", "l"},
    {"%k", "%d", "%k_last", "%k_many", "%k_more", "cross_rotate", " of cross", "d"},
};

/// Writes a program out of phases that move, reduce, copy and wait, in the world, a node or across
/// the nodes, in loops and under conditions, of the step too; one buffer is a state.
class Generator {
public:
  explicit Generator(uint64_t seed) : random_(seed) {}

  std::string program() {
    for (const GroupNames &group : kGroups) {
      group_ = &group;
      shard(group.own, group.place, 4);
    }
    std::string own = std::move(body_);
    body_.clear();
    int phases = 2 + pick(4);
    for (int i = 0; i < phases; ++i)
      wrapped(4);
    return R"(chunk.schedule @random grain 1 accepts [f32] {
  chunk.declare_state @m bucket = 0.5 on_resize mean
  chunk.program @p on gradient {
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %two = arith.constant 2 : index
    %n = chunk.world
    %len = chunk.length
    %eb = chunk.element_bytes
    %bytes = arith.muli %len, %eb : index
    %last = arith.subi %n, %one : index
    %many = arith.cmpi ugt, %n, %one : index
    %more = arith.cmpi ugt, %n, %two : index
    %s = chunk.local_size
    %l = chunk.local_rank
    %s_last = arith.subi %s, %one : index
    %s_many = arith.cmpi ugt, %s, %one : index
    %s_more = arith.cmpi ugt, %s, %two : index
    %k = chunk.nodes
    %d = chunk.node
    %k_last = arith.subi %k, %one : index
    %k_many = arith.cmpi ugt, %k, %one : index
    %k_more = arith.cmpi ugt, %k, %two : index
    %b0 = chunk.job gradient
    %b1 = chunk.scratch %bytes
    %b2 = chunk.scratch %bytes
    %b3 = chunk.state @m next
    %b4 = chunk.state @m
    %t = chunk.step
    %phase = arith.remsi %t, %two : index
    %even = arith.cmpi eq, %phase, %zero : index
)" + declarations_ +
           "    chunk.forall %r {\n"
           "      %old = chunk.range %b4[%zero, %bytes]\n"
           "      %new = chunk.range %b3[%zero, %bytes]\n"
           "      chunk.launch \"copy\" count %len ins(%old : !chunk.range) outs(%new : "
           "!chunk.range)\n" +
           own + body_ +
           "      chunk.wait before_update\n      chunk.if_finite {\n        chunk.publish @m\n    "
           "  }\n"
           "    }\n    chunk.cost rounds %zero wire_bytes %zero\n  }\n}\n";
  }

private:
  int pick(int count) { return static_cast<int>(random_() % static_cast<uint64_t>(count)); }
  std::string name(const char *what) { return std::string("%") + what + std::to_string(count_++); }
  void line(int indent, const std::string &text) {
    body_ += std::string(static_cast<size_t>(indent), ' ') + "  " + text + "\n";
  }
  std::string buffer() { return "%b" + std::to_string(pick(4)); }
  std::string source() { return "%b" + std::to_string(pick(5)); } ///< The committed state, too.

  std::string otherThan(const std::string &buffer) {
    std::string other = buffer;
    while (other == buffer)
      other = this->buffer();
    return other;
  }

  /// %<p>_offset, %<p>_bytes, %<p>_count of shard `index`.
  void shard(const std::string &p, const std::string &index, int indent) {
    auto op = [&](const std::string &result, const std::string &kind, const std::string &a,
                  const std::string &b) {
      line(indent, "%" + p + "_" + result + " = arith." + kind + " " + a + ", " + b + " : index");
    };
    op("l", "muli", index, "%len");
    op("b", "floordivsi", "%" + p + "_l", group_->size);
    op("x", "addi", index, "%one");
    op("xl", "muli", "%" + p + "_x", "%len");
    op("e", "floordivsi", "%" + p + "_xl", group_->size);
    op("count", "subi", "%" + p + "_e", "%" + p + "_b");
    op("offset", "muli", "%" + p + "_b", "%eb");
    op("bytes", "muli", "%" + p + "_count", "%eb");
  }
  std::string part(const std::string &buffer, const std::string &p, const std::string &index,
                   int indent) {
    std::string range = name("x");
    // Without a number now and then: the lowering must then wait for everything.
    line(indent, range + " = chunk.range " + buffer + "[%" + p + "_offset, %" + p + "_bytes]" +
                     (pick(4) ? " part(" + index + ")" + group_->of : ""));
    return range;
  }
  std::string whole(const std::string &buffer, int indent) {
    std::string range = name("w");
    line(indent, range + " = chunk.range " + buffer + "[%zero, %bytes]");
    return range;
  }
  std::string pool() {
    std::string slots = name("in");
    declarations_ += "    " + slots + " = chunk.slots %n, %bytes\n";
    return slots;
  }
  void launch(int indent, const std::string &kernel, const std::string &count,
              std::initializer_list<std::string> inputs, const std::string &output,
              const std::string &type = "!chunk.range") {
    std::string names, types;
    for (const std::string &input : inputs) {
      names += (names.empty() ? "" : ", ") + input;
      types += (types.empty() ? "" : ", ") + type;
    }
    line(indent, "chunk.launch \"" + kernel + "\" count " + count + " ins(" + names + " : " +
                     types + ") outs(" + output + " : !chunk.range)");
  }
  /// (place + sign * variable) mod the group's size.
  std::string rotated(const std::string &variable, bool minus, int indent) {
    std::string sum = name("t"), index = name("t");
    if (minus) {
      std::string up = name("t");
      line(indent, up + " = arith.addi " + group_->place + ", " + group_->size + " : index");
      line(indent, sum + " = arith.subi " + up + ", " + variable + " : index");
    } else {
      line(indent, sum + " = arith.addi " + group_->place + ", " + variable + " : index");
    }
    line(indent, index + " = arith.remsi " + sum + ", " + group_->size + " : index");
    return index;
  }

  void wrapped(int indent) {
    int kind = depth_ < 2 ? pick(6) : 5;
    ++depth_;
    if (kind == 0) {
      line(indent, "chunk.for " + name("i") + " = %zero to %two {");
      wrapped(indent + 2);
      if (pick(2))
        wrapped(indent + 2);
      line(indent, "}");
    } else if (kind == 1) {
      line(indent, std::string("chunk.if ") +
                       (std::array{"%more {", "%many {", "%even {"})[static_cast<size_t>(pick(3))]);
      wrapped(indent + 2);
      if (pick(2)) {
        line(indent, "} else {");
        wrapped(indent + 2);
      }
      line(indent, "}");
    } else {
      phase(indent);
    }
    --depth_;
  }

  void phase(int indent) {
    group_ = &kGroups[pick(2) ? 0 : pick(3)];
    switch (pick(8)) {
    case 7:
      return partner(indent);
    case 0:
    case 1:
      return scatter(indent);
    case 2:
      return gather(indent);
    case 3:
      return ring(indent);
    case 4:
      return neighbour(indent);
    case 5:
      return local(indent);
    default:
      if (pick(3) == 0)
        line(indent, "chunk.wait before_update");
      return local(indent);
    }
  }

  /// Shards to their owners, who sum them.
  void scatter(int indent) {
    std::string n = group_->size, me = group_->place, mine = std::string("%") + group_->own;
    std::string from = source(), to = buffer(), in = pool(), k = name("k"), p = name("p"),
                t = "t" + std::to_string(count_++);
    line(indent, "chunk.for " + k + " = %one to " + n + " {");
    std::string index = rotated(k, false, indent + 2);
    shard(t, index, indent + 2);
    std::string x = part(from, t, index, indent + 2);
    bool bySender =
        pick(4); // Else: meaningful for odd worlds only; a few programs mean nothing then.
    std::string slot = bySender ? me : rotated(k, true, indent + 2);
    line(indent + 2,
         "chunk.move " + x + " to " + group_->map + "(" + k + ") into " + in + "[" + slot + "]");
    line(indent, "}");
    if (pick(3) == 0)
      local(indent);
    std::string own = part(from, group_->own, me, indent),
                target = part(to, group_->own, me, indent);
    if (bySender) {
      std::string list = name("l"), other = name("c"), same = name("c"), v = name("v");
      line(indent, list + " = chunk.gather " + p + " = %zero to " + n + " {");
      line(indent + 2, same + " = arith.cmpi eq, " + p + ", " + me + " : index");
      line(indent + 2, other + " = arith.cmpi ne, " + p + ", " + me + " : index");
      line(indent + 2, v + " = chunk.view " + in + "[" + p + "][%zero, " + mine + "_bytes]");
      line(indent + 2, "chunk.yield " + own + " when " + same + ", " + v + " when " + other);
      line(indent, "}");
      launch(indent, "reduce_sum", mine + "_count", {list}, target, "!chunk.ranges");
    } else { // Slots by (sender - k): some order, each message once.
      std::string k2 = name("k"), v = name("v"), back = name("t"), up = name("t"), at = name("t"),
                  twice = name("t");
      line(indent, "chunk.for " + k2 + " = %one to " + n + " {");
      line(indent + 2, twice + " = arith.addi " + k2 + ", " + k2 + " : index");
      line(indent + 2, back + " = arith.remsi " + twice + ", " + n + " : index");
      line(indent + 2, up + " = arith.addi " + me + ", " + n + " : index");
      line(indent + 2, at + " = arith.subi " + up + ", " + back + " : index");
      std::string slot2 = name("t");
      line(indent + 2, slot2 + " = arith.remsi " + at + ", " + n + " : index");
      line(indent + 2, v + " = chunk.view " + in + "[" + slot2 + "][%zero, " + mine + "_bytes]");
      launch(indent + 2, "reduce_sum", mine + "_count", {v, target}, target);
      line(indent, "}");
    }
  }

  /// Own shards to all, who copy them.
  void gather(int indent) {
    std::string n = group_->size, me = group_->place;
    std::string from = source(), to = buffer(), in = pool(), k = name("k"), p = name("p"),
                other = name("c"), q = "q" + std::to_string(count_++), v = name("v");
    std::string own = part(from, group_->own, me, indent);
    line(indent, "chunk.for " + k + " = %one to " + n + " {");
    line(indent + 2,
         "chunk.move " + own + " to " + group_->map + "(" + k + ") into " + in + "[" + me + "]");
    line(indent, "}");
    if (pick(3) == 0)
      local(indent);
    line(indent, "chunk.for " + p + " = %zero to " + n + " {");
    line(indent + 2, other + " = arith.cmpi ne, " + p + ", " + me + " : index");
    line(indent + 2, "chunk.if " + other + " {");
    shard(q, p, indent + 4);
    std::string y = part(to, q, p, indent + 4);
    line(indent + 4, v + " = chunk.view " + in + "[" + p + "][%zero, %" + q + "_bytes]");
    launch(indent + 4, pick(2) ? "copy" : "reduce_sum", "%" + q + "_count", {v}, y);
    line(indent + 2, "}");
    line(indent, "}");
  }

  /// n - 1 steps around the ring, a shard each.
  void ring(int indent) {
    std::string n = group_->size, me = group_->place;
    std::string b = buffer(), in = pool(), s = name("s"), slot = name("t"), next = name("t"),
                t = "t" + std::to_string(count_++), u = "u" + std::to_string(count_++),
                v = name("v");
    line(indent, "chunk.for " + s + " = %zero to " + group_->last + " {");
    line(indent + 2, slot + " = arith.remsi " + s + ", " + (pick(2) ? n : "%one") + " : index");
    std::string index = rotated(s, true, indent + 2);
    shard(t, index, indent + 2);
    line(indent + 2, next + " = arith.addi " + s + ", %one : index");
    std::string before = rotated(next, true, indent + 2);
    shard(u, before, indent + 2);
    std::string x = part(b, t, index, indent + 2), y = part(b, u, before, indent + 2);
    line(indent + 2,
         "chunk.move " + x + " to " + group_->map + "(%one) into " + in + "[" + slot + "]");
    line(indent + 2, v + " = chunk.view " + in + "[" + slot + "][%zero, %" + u + "_bytes]");
    launch(indent + 2, "reduce_sum", "%" + u + "_count", {v, y}, y);
    line(indent, "}");
  }

  /// The whole buffer to one or two neighbours.
  void neighbour(int indent) {
    std::string from = source(), to = buffer(), in = pool(), v = name("v"), v2 = name("v");
    std::string x = whole(from, indent), y = whole(to, indent);
    line(indent, std::string("chunk.if ") + group_->many + " {");
    line(indent + 2, "chunk.move " + x + " to " + group_->map + "(%one) into " + in + "[%zero]");
    line(indent + 2, v + " = chunk.view " + in + "[%zero][%zero, %bytes]");
    line(indent + 2, std::string("chunk.if ") + group_->more + " {");
    line(indent + 4,
         "chunk.move " + x + " to " + group_->map + "(" + group_->last + ") into " + in + "[%one]");
    line(indent + 4, v2 + " = chunk.view " + in + "[%one][%zero, %bytes]");
    launch(indent + 4, "reduce_sum", "%len", {v, v2}, y);
    line(indent + 2, "} else {");
    launch(indent + 4, "copy", "%len", {v}, y);
    line(indent + 2, "}");
    line(indent, "}");
  }

  /// The whole buffer to the partner of the step, who adds its own.
  void partner(int indent) {
    std::string from = source(), to = buffer(), in = pool(), v = name("v"), peer = name("t"),
                active = name("c");
    const char *map = (std::array{"pairing(%two, %t)", "round_robin(%t)",
                                  "shift_one(%t)"})[static_cast<size_t>(pick(3))];
    std::string x = whole(from, indent), y = whole(to, indent);
    line(indent, "chunk.move " + x + " to " + map + " into " + in + "[%zero]");
    if (pick(3) == 0)
      local(indent);
    line(indent, v + " = chunk.view " + in + "[%zero][%zero, %bytes]");
    line(indent, peer + " = chunk.peer " + map);
    line(indent, active + " = arith.cmpi ne, " + peer + ", %r : index");
    line(indent, "chunk.if " + active + " {");
    launch(indent + 2, "reduce_sum", "%len", {v, y}, y);
    line(indent, "}");
  }

  void local(int indent) {
    std::string from = source(), to = buffer(), p = name("p"), q = "q" + std::to_string(count_++),
                first = name("c");
    switch (pick(3)) {
    case 0: {
      std::string x = whole(from, indent), y = whole(otherThan(from), indent);
      return launch(indent, "copy", "%len", {x}, y);
    }
    case 1: {
      line(indent, "chunk.for " + p + " = %zero to " + group_->size + " {");
      shard(q, p, indent + 2);
      std::string x = part(from, q, p, indent + 2), y = part(to, q, p, indent + 2);
      launch(indent + 2, "reduce_sum", "%" + q + "_count", {x, y}, y);
      line(indent, "}");
      return;
    }
    default:
      line(indent, first + " = arith.cmpi eq, %r, %zero : index");
      line(indent, "chunk.if " + first + " {");
      std::string x = part(from, group_->own, group_->place, indent + 2),
                  y = part(to, group_->own, group_->place, indent + 2);
      launch(indent + 2, "reduce_sum", std::string("%") + group_->own + "_count", {x, y}, y);
      line(indent, "}");
    }
  }

  std::mt19937_64 random_;
  std::string declarations_, body_;
  int count_ = 0, depth_ = 0;
  const GroupNames *group_ = kGroups; ///< Of the phase.
};

TEST(RandomProgramsTest, LoweredKeepMeaningAndAreProven) {
  uint64_t first = 1, programs = 150;
  if (const char *seed = std::getenv("BAGUA_TEST_SEED")) {
    first = std::strtoull(seed, nullptr, 10);
    programs = 1;
  }
  if (const char *count = std::getenv("BAGUA_TEST_PROGRAMS")) // More than a test run has time for.
    programs = std::strtoull(count, nullptr, 10);
  int lowered = 0, refused = 0, meaningless = 0;
  for (uint64_t seed = first; seed < first + programs; ++seed) {
    SCOPED_TRACE(testing::Message() << "repeat with BAGUA_TEST_SEED=" << seed);
    std::string text = Generator(seed).program();
    ChunkIr ir;
    auto module = ir.parse(text);
    ASSERT_TRUE(module) << ir.diagnostics() << text;
    std::vector<std::pair<Inputs, compiler::Outputs>> runs;
    bool accepted = true;
    for (auto [world, local] : {std::pair<int64_t, int64_t>{1, 1},
                                {2, 2},
                                {2, 1},
                                {3, 3},
                                {3, 1},
                                {4, 4},
                                {4, 2},
                                {4, 1},
                                {6, 3},
                                {6, 2}})
      for (int64_t length : {1, 4, 23}) {
        Inputs inputs = inputsOf<float>(world, length);
        inputs.localSize = local;
        inputs.steps = world > 4 ? 1 : 3;
        fillInputs(inputs, seed, compiler::Fill::Normal);
        if (!accepted)
          continue;
        auto outputs = interpretChunk(*module, inputs);
        accepted = succeeded(outputs);
        if (accepted)
          runs.emplace_back(inputs, *outputs);
      }
    if (!accepted) {
      ++meaningless;
      continue;
    }
    std::string before = ir.diagnostics();
    auto low = ir.lower(*module);
    if (!low) { // Only for want of proof that nobody reads what is overwritten.
      EXPECT_THAT(ir.diagnostics(), testing::HasSubstr("expects that nobody reads any more"));
      ++refused;
      continue;
    }
    ++lowered;
    for (auto &[inputs, expected] : runs) {
      SCOPED_TRACE(testing::Message() << "world " << inputs.world << ", " << inputs.localSize
                                      << " per node, length " << inputs.length);
      checkLowered<float>(ir, *low, inputs, expected, /*withCost=*/false);
    }
    compiler::CheckOptions options;
    options.worldMax = 4;
    options.lengths = {1, 4, 23};
    checkProven(ir, *low, options, /*withCost=*/false);
    if (testing::Test::HasFailure()) {
      ADD_FAILURE() << text;
      return;
    }
  }
  std::cout << lowered << " lowered, " << refused << " refused, " << meaningless
            << " without meaning\n";
  if (programs > 1) { // Else the generator has become useless.
    EXPECT_GT(lowered, 40) << refused << " refused, " << meaningless << " without meaning";
    EXPECT_GT(meaningless + refused, 5);
  }
}

} // namespace
} // namespace bagua::test
