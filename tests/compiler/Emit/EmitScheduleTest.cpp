// Emission: what comes out is valid, says what the module says, and is the same every time.
#include "../CompilerTestSupport.h"

#include "bagua/Expand.h"
#include "bagua/compiler/EmitSchedule.h"

#include <gmock/gmock.h>

#include <random>

namespace bagua::test {
namespace {

using compiler::EmitOptions;
using compiler::emitSchedule;
using testing::HasSubstr;

std::string example(const std::string &name) {
  return readFile(std::string(BAGUA_SOURCE_DIR) + "/tests/dialect/Sched/" + name + ".mlir");
}

constexpr const char *kExamples[] = {"gradient-allreduce", "bytegrad", "decentralized"};

std::shared_ptr<const rt::Schedule> emitted(const std::string &text,
                                            const EmitOptions &options = {},
                                            const std::string &name = "t.mlir") {
  Ir ir;
  auto module = ir.parse(text, name);
  if (!module) {
    ADD_FAILURE() << ir.diagnostics();
    return nullptr;
  }
  auto bytes = emitSchedule(*module, options);
  if (failed(bytes)) {
    ADD_FAILURE() << ir.diagnostics();
    return nullptr;
  }
  auto schedule = rt::Schedule::fromBytes(*bytes);
  if (!schedule.ok()) {
    ADD_FAILURE() << schedule.status().ToString();
    return nullptr;
  }
  return *schedule;
}

std::string refusal(const std::string &text) {
  Ir ir;
  auto module = ir.parse(text);
  if (!module)
    return "does not parse: " + ir.diagnostics();
  return succeeded(emitSchedule(*module)) ? "" : ir.diagnostics();
}

rt::BindValues valuesOf(int64_t world, int64_t rank, int64_t length) {
  rt::BindValues values;
  values.world = world;
  values.rank = rank;
  values.localRank = rank;
  values.localSize = world;
  values.length = length;
  return values;
}

TEST(EmitScheduleTest, ExamplesExpandEverywhere) {
  for (const char *name : kExamples) {
    auto schedule = emitted(example(name));
    ASSERT_TRUE(schedule) << name;
    ASSERT_EQ(schedule->ir().programs.size(), 1u);
    for (int64_t world : {1, 2, 3, 4, 5, 8, 16})
      for (int64_t length : {0, 1, 31, 2047, 2048, 2049, 1000003})
        for (int64_t rank = 0; rank < world; ++rank) {
          auto flat = expand(*schedule, *schedule->ir().programs[0], valuesOf(world, rank, length));
          ASSERT_TRUE(flat.ok()) << flat.status().ToString();
          uint64_t sent = 0;
          for (const rt::FlatStep &step : flat->steps)
            if (step.kind == rt::FlatStep::Kind::Send)
              sent += step.range.bytes;
          EXPECT_EQ(static_cast<uint64_t>(flat->wireBytes.intValue), sent)
              << name << ", world " << world << ", length " << length;
        }
  }
}

TEST(EmitScheduleTest, TwoCompilationsGiveTheSameBytes) {
  for (const char *name : kExamples) {
    std::vector<uint8_t> bytes[2];
    for (auto &list : bytes) {
      Ir ir; // Another context: other addresses.
      auto module = ir.parse(example(name));
      auto result = emitSchedule(*module);
      ASSERT_TRUE(succeeded(result)) << ir.diagnostics();
      list = *result;
    }
    EXPECT_EQ(bytes[0], bytes[1]) << name;
  }
}

TEST(EmitScheduleTest, EveryField) {
  auto schedule = emitted(R"(sched.schedule @all grain 64 accepts [f64, f32] owns_update {
  sched.declare_parameter @beta = 0.5 : f64
  sched.declare_parameter @period = 3 : index per_step
  sched.program @after on after_update {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %n = sched.world
    %r = sched.rank
    %s = sched.step
    %len = sched.length
    %period = sched.parameter @period : index
    %beta = sched.parameter @beta : f64
    %g = sched.job "g" gradient
    %w = sched.job "w" weight
    %q = sched.scratch "q" bytes %len
    %in = sched.slots "in" count %n bytes %len
    %e = sched.events "e" count %n
    %ring = arith.addi %r, %s : index
    %peer = arith.remsi %ring, %n : index
    %phase = arith.remsi %s, %period : index
    %on = arith.cmpi eq, %phase, %c0 : index
    %many = arith.cmpi sgt, %n, %c1 : index
    sched.if %many {
      sched.for %k = %c1 to %n {
        sched.send %g[%c0, %k] to %peer channel 7 signals %e[%k] guard %on
      }
    } else {
      sched.wait_gate before_update on net
    }
    sched.recv %in[%c0] bytes %c1 from %peer channel 2 guard %on
    %events = sched.gather %k = %c0 to %n {
      %own = arith.cmpi ne, %k, %r : index
      %x = sched.event %e[%k] when %own
      sched.yield %x : !sched.event
    } : !sched.event_list
    %ranges = sched.gather %k = %c0 to %n {
      %a = sched.range %q[%k, %c1]
      %b = sched.view %in[%c0][%c0, %c1] when %many
      sched.yield %a, %b : !sched.range, !sched.range
    } : !sched.ranges
    %y = sched.range %w[%c0, %len]
    sched.launch "mix" {b = 2, a = 1} count %len ins(%y, %ranges : !sched.range, !sched.ranges)
      outs(%y : !sched.range) scalars(%beta, %s : f64, index) after(%events : !sched.event_list)
    sched.launch "mix" {a = 1, b = 2} count %len ins(%y : !sched.range) outs(%y : !sched.range)
    sched.release %in[%c0] on net
    sched.cost rounds %c1 wire_bytes %len
  }
  sched.program @empty on gradient {
    %c0 = arith.constant 0 : index
    sched.for %i = %c0 to %c0 { %x = arith.addi %i, %i : index }
    sched.cost rounds %c0 wire_bytes %c0
  }
}
)");
  ASSERT_TRUE(schedule);
  const fb::ScheduleT &s = schedule->ir();
  EXPECT_EQ(s.name, "all");
  EXPECT_EQ(s.producer, "bagua-opt 0.1.0");
  EXPECT_EQ(s.grain, 64u);
  EXPECT_TRUE(s.owns_update);
  EXPECT_THAT(s.dtypes, testing::ElementsAre(fb::DType::F64, fb::DType::F32));
  ASSERT_EQ(s.parameters.size(), 2u);
  EXPECT_EQ(s.parameters[0]->name, "beta");
  EXPECT_TRUE(s.parameters[0]->is_float);
  EXPECT_EQ(s.parameters[0]->default_float, 0.5);
  EXPECT_FALSE(s.parameters[0]->per_step);
  EXPECT_EQ(s.parameters[1]->default_int, 3);
  EXPECT_TRUE(s.parameters[1]->per_step);
  ASSERT_EQ(s.kernels.size(), 1u) << "attributes are a set";
  EXPECT_EQ(s.kernels[0]->attributes[0]->name, "a");
  EXPECT_EQ(s.kernels[0]->attributes[1]->value, 2);

  ASSERT_EQ(s.programs.size(), 2u);
  EXPECT_TRUE(s.programs[1]->body.empty()) << "a loop without steps is nothing";
  const fb::ProgramT &p = *s.programs[0];
  EXPECT_EQ(p.name, "after");
  EXPECT_EQ(p.event, fb::Event::AfterUpdate);
  EXPECT_EQ(p.channels, 8u);
  ASSERT_EQ(p.buffers.size(), 3u);
  EXPECT_EQ(p.buffers[1]->role, fb::Role::Weight);
  EXPECT_EQ(p.buffers[2]->kind, fb::BufferKind::Scratch);
  ASSERT_EQ(p.body.size(), 5u);

  const fb::IfT &branch = *p.body[0]->action.AsIf();
  const fb::ForT &loop = *branch.then[0]->action.AsFor();
  const fb::StepT &send = *loop.body[0];
  EXPECT_EQ(send.queue, fb::Queue::Net);
  EXPECT_NE(send.guard, rt::kNone);
  EXPECT_EQ(send.action.AsSend()->channel, 7u);
  ASSERT_TRUE(send.signal);
  EXPECT_EQ(s.expressions[send.signal->index]->op, fb::ExprOp::Loop);
  EXPECT_EQ(static_cast<uint32_t>(s.expressions[send.signal->index]->value), loop.variable);
  EXPECT_EQ(branch.otherwise[0]->action.type, fb::Action::Wait);
  EXPECT_EQ(branch.otherwise[0]->queue, fb::Queue::Net);
  EXPECT_EQ(schedule->location(send.location), "t.mlir:25:9");

  const fb::StepT &launch = *p.body[2];
  EXPECT_EQ(launch.queue, fb::Queue::Cpu);
  ASSERT_EQ(launch.waits.size(), 1u);
  EXPECT_NE(launch.waits[0]->variable, rt::kNone);
  EXPECT_NE(launch.waits[0]->when, rt::kNone);
  const fb::LaunchT &mix = *launch.action.AsLaunch();
  ASSERT_EQ(mix.inputs.size(), 2u);
  EXPECT_EQ(mix.inputs[0]->variable, rt::kNone);
  EXPECT_NE(mix.inputs[1]->variable, rt::kNone);
  ASSERT_EQ(mix.inputs[1]->ranges.size(), 2u);
  EXPECT_EQ(mix.inputs[1]->ranges[0]->space, fb::Space::Buffer);
  EXPECT_EQ(mix.inputs[1]->ranges[1]->space, fb::Space::Slot);
  EXPECT_NE(mix.inputs[1]->ranges[1]->when, rt::kNone);
  ASSERT_EQ(mix.scalars.size(), 2u);
  EXPECT_EQ(s.expressions[mix.scalars[0]]->op, fb::ExprOp::Parameter);
  EXPECT_EQ(s.expressions[mix.scalars[1]]->op, fb::ExprOp::Step);
}

TEST(EmitScheduleTest, OneGatherAtTwoDepths) {
  // The list's variable has one id wherever it is used, and is never that of a loop around it.
  auto schedule = emitted(R"(sched.schedule @depths grain 1 accepts [f32] {
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %n = sched.world
    %len = sched.length
    %q = sched.scratch "q" bytes %n
    %e = sched.events "e" count %n
    %events = sched.gather %k = %c0 to %n {
      %x = sched.event %e[%k]
      sched.yield %x : !sched.event
    } : !sched.event_list
    sched.for %i = %c0 to %n {
      sched.wait_gate before_update on net signals %e[%i]
      sched.for %j = %c0 to %n {
        sched.wait_gate before_update on cpu after(%events : !sched.event_list)
      }
    }
    sched.wait_gate before_update on cpu after(%events : !sched.event_list)
    sched.cost rounds %c1 wire_bytes %len
  }
})");
  ASSERT_TRUE(schedule);
  auto flat = expand(*schedule, *schedule->ir().programs[0], valuesOf(3, 1, 5));
  ASSERT_TRUE(flat.ok()) << flat.status().ToString();
  EXPECT_EQ(flat->steps.back().waits.size(), 3u);
}

TEST(EmitScheduleTest, LocationsSayNothingOfTheMachine) {
  const std::string text = example("decentralized");
  auto fileOf = [&](const std::string &name, const std::string &root) {
    EmitOptions options;
    options.sourceRoot = root;
    auto schedule = emitted(text, options, name);
    return schedule ? schedule->ir().locations[0]->file : "";
  };
  EXPECT_EQ(fileOf("algorithms/a.mlir", ""), "algorithms/a.mlir");
  EXPECT_EQ(fileOf("./x/../algorithms/a.mlir", ""), "algorithms/a.mlir");
  EXPECT_EQ(fileOf("/home/someone/bagua/algorithms/a.mlir", "/home/someone/bagua"),
            "algorithms/a.mlir");
  EXPECT_EQ(fileOf("/home/someone/bagua/algorithms/a.mlir", "/home/someone/bagua/"),
            "algorithms/a.mlir");
  EXPECT_EQ(fileOf("/home/someone/bagua2/a.mlir", "/home/someone/bagua"), "a.mlir");
  EXPECT_EQ(fileOf("/home/someone/a.mlir", ""), "a.mlir");
}

TEST(EmitScheduleTest, LocationsOfDerivedOpsNameTheAlgorithm) {
  auto schedule = emitted(R"(sched.schedule @l grain 1 accepts [f32] {
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    sched.wait_gate before_update on cpu loc(fused[unknown, "a.mlir":1:2])
    sched.wait_gate before_update on cpu loc("name"("b.mlir":3:4))
    sched.wait_gate before_update on cpu loc(callsite("prelude.mlir":9:9 at "c.mlir":5:6))
    sched.wait_gate before_update on cpu loc(unknown)
    sched.cost rounds %c0 wire_bytes %c0
  }
})");
  ASSERT_TRUE(schedule);
  const auto &body = schedule->ir().programs[0]->body;
  EXPECT_EQ(schedule->location(body[0]->location), "a.mlir:1:2");
  EXPECT_EQ(schedule->location(body[1]->location), "b.mlir:3:4");
  EXPECT_EQ(schedule->location(body[2]->location), "c.mlir:5:6");
  EXPECT_EQ(body[3]->location, rt::kNone);
}

// ---- Expressions ----

std::string withCost(const std::string &expressions) {
  return R"(sched.schedule @expr grain 1 accepts [f32, f64] {
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    %n = sched.world
    %r = sched.rank
    %lr = sched.local_rank
    %ls = sched.local_size
    %nodes = sched.nodes
    %len = sched.length
    %eb = sched.element_bytes
)" + expressions +
         R"(
    sched.cost rounds %c0 wire_bytes %x
  }
})";
}

/// Evaluates %x as the runtime and as the interpreter do; both must agree, also that it fails.
void expectSameValue(const std::string &expressions) {
  SCOPED_TRACE(expressions);
  std::string text = withCost(expressions);
  auto schedule = emitted(text);
  ASSERT_TRUE(schedule);
  Ir ir;
  auto module = ir.parse(text);
  ASSERT_TRUE(module) << ir.diagnostics();
  for (int64_t world : {1, 2, 3, 7})
    for (int64_t length : {0, 1, 5, 4096}) {
      compiler::Inputs inputs;
      inputs.world = world;
      inputs.length = length;
      fillInputs(inputs, 1);
      auto outputs = interpretSched(*module, inputs);
      bool allBound = true;
      for (int64_t rank = 0; rank < world; ++rank) {
        auto flat = expand(*schedule, *schedule->ir().programs[0], valuesOf(world, rank, length));
        if (!flat.ok()) {
          allBound = false;
          continue;
        }
        auto value = evaluateInt(*schedule, flat->wireBytes, valuesOf(world, rank, length),
                                 rt::StepValues());
        allBound &= value.ok();
        if (value.ok() && succeeded(outputs))
          EXPECT_EQ(*value, outputs->formulaWireBytes[0][static_cast<size_t>(rank)])
              << "world " << world << ", rank " << rank << ", length " << length;
      }
      EXPECT_EQ(allBound, succeeded(outputs))
          << "world " << world << ", length " << length << ": " << ir.diagnostics();
    }
}

TEST(EmitScheduleTest, ExpressionsMeanTheSameInTheFile) {
  const char *cases[] = {
      // The sign of a remainder is the dividend's.
      "%a = arith.subi %r, %len : index\n%m = arith.constant 3 : index\n%b = arith.remsi %a, %m : "
      "index\n"
      "%k = arith.constant 100 : index\n%x = arith.addi %b, %k : index",
      "%a = arith.subi %r, %len : index\n%m = arith.constant -3 : index\n%b = arith.remsi %a, %m : "
      "index\n"
      "%k = arith.constant 100 : index\n%x = arith.addi %b, %k : index",
      "%m = arith.subi %c0, %n : index\n%x = arith.remsi %len, %m : index",
      "%a = arith.addi %r, %n : index\n%x = arith.remsi %a, %n : index",
      "%x = arith.remsi %len, %r : index", // Rank 0 divides by zero.
      "%x = arith.floordivsi %len, %r : index",
      "%a = arith.subi %r, %len : index\n%m = arith.constant 4 : index\n%b = arith.floordivsi %a, "
      "%m : index\n"
      "%k = arith.constant 5000 : index\n%x = arith.addi %b, %k : index",
      "%a = arith.subi %r, %len : index\n%m = arith.constant 4 : index\n%b = arith.ceildivsi %a, "
      "%m : index\n"
      "%k = arith.constant 5000 : index\n%x = arith.addi %b, %k : index",
      "%x = arith.divui %len, %n : index",
      "%x = arith.ceildivui %len, %n : index",
      "%x = arith.remui %len, %n : index",
      "%a = arith.minui %len, %n : index\n%b = arith.maxui %len, %n : index\n%x = arith.addi %a, "
      "%b : index",
      "%a = arith.minsi %len, %n : index\n%b = arith.maxsi %len, %n : index\n%x = arith.muli %a, "
      "%b : index",
      // Unsigned comparison of a negative number.
      "%a = arith.subi %r, %len : index\n%t = arith.cmpi ult, %a, %n : index\n%x = arith.select "
      "%t, %n, %len : index",
      "%a = arith.subi %r, %len : index\n%t = arith.cmpi uge, %a, %n : index\n%x = arith.select "
      "%t, %n, %len : index",
      "%a = arith.subi %r, %len : index\n%t = arith.cmpi ugt, %a, %n : index\n%x = arith.select "
      "%t, %n, %len : index",
      "%a = arith.subi %r, %len : index\n%t = arith.cmpi ule, %a, %n : index\n%x = arith.select "
      "%t, %n, %len : index",
      "%t = arith.cmpi slt, %r, %len : index\n%u = arith.cmpi sge, %n, %len : index\n%v = "
      "arith.andi %t, %u : i1\n"
      "%x = arith.select %v, %n, %len : index",
      "%t = arith.cmpi sle, %r, %len : index\n%u = arith.cmpi sgt, %n, %len : index\n%v = "
      "arith.ori %t, %u : i1\n"
      "%x = arith.select %v, %n, %len : index",
      "%t = arith.cmpi ne, %r, %len : index\n%u = arith.constant true\n%v = arith.xori %t, %u : "
      "i1\n"
      "%x = arith.select %v, %n, %len : index",
      "%t = arith.cmpi ne, %r, %len : index\n%x = arith.index_castui %t : i1 to index",
      "%t = arith.cmpi ne, %r, %len : index\n%i = arith.extui %t : i1 to i64\n%x = "
      "arith.index_cast %i : i64 to index",
      // What is not chosen may be meaningless.
      "%d = arith.floordivsi %len, %r : index\n%t = arith.cmpi eq, %r, %c0 : index\n%x = "
      "arith.select %t, %n, %d : index",
      "%d = arith.floordivsi %len, %r : index\n%t = arith.cmpi ne, %r, %c0 : index\n%u = "
      "arith.cmpi sgt, %d, %n : index\n"
      "%v = arith.andi %t, %u : i1\n%x = arith.select %v, %n, %len : index",
      // Overflow.
      "%h = arith.constant 4611686018427387904 : index\n%x = arith.muli %h, %n : index",
      "%h = arith.constant 9223372036854775807 : index\n%x = arith.addi %h, %len : index",
      "%h = arith.constant 9223372036854775807 : index\n%k = arith.constant 1 : index\n%x = "
      "arith.addi %h, %k : index",
      "%x = arith.subi %r, %n : index", // A negative cost.
      "%a = arith.addi %lr, %ls : index\n%b = arith.addi %nodes, %eb : index\n%x = arith.muli %a, "
      "%b : index",
  };
  for (const char *text : cases)
    expectSameValue(text);
}

TEST(EmitScheduleTest, PairingsMeanTheSameInTheFile) {
  expectSameValue("%t = sched.step\n%b = sched.bucket\n%seed = arith.addi %b, %len : index\n"
                  "%x = sched.pairing %seed, %t");
}

TEST(EmitScheduleTest, StatesAndCode) {
  auto schedule = emitted(example("states"));
  ASSERT_TRUE(schedule);
  const fb::ScheduleT &ir = schedule->ir();
  ASSERT_EQ(ir.states.size(), 3u);
  EXPECT_EQ(ir.states[0]->name, "m");
  EXPECT_EQ(ir.states[0]->domain, fb::StateDomain::Bucket);
  EXPECT_EQ(ir.states[0]->on_resize, fb::OnResize::Mean);
  EXPECT_EQ(ir.states[1]->domain, fb::StateDomain::Shard);
  EXPECT_EQ(ir.states[1]->initial, 0.5);
  EXPECT_EQ(ir.states[1]->on_resize, fb::OnResize::Repartition);
  EXPECT_EQ(ir.states[2]->copies, 2u);
  EXPECT_TRUE(ir.states[2]->initial_weight);
  const fb::ProgramT &program = *ir.programs[0];
  ASSERT_EQ(program.buffers.size(), 2u);
  EXPECT_EQ(program.buffers[0]->kind, fb::BufferKind::State);
  EXPECT_FALSE(program.buffers[0]->next);
  EXPECT_TRUE(program.buffers[1]->next);
  const auto &steps = program.body;
  ASSERT_EQ(steps.size(), 6u);
  EXPECT_EQ(steps[0]->guard, steps[3]->guard);
  EXPECT_NE(steps[0]->guard, rt::kNone);
  EXPECT_FALSE(steps[2]->if_finite);
  EXPECT_TRUE(steps[3]->if_finite);
  EXPECT_TRUE(steps[5]->if_finite);
  ASSERT_TRUE(steps[5]->action.AsPublish());
  EXPECT_EQ(steps[5]->action.AsPublish()->state, 0u);
  ASSERT_EQ(ir.kernels.size(), 1u);
  ASSERT_TRUE(ir.kernels[0]->map);
  const fb::MapCodeT &map = *ir.kernels[0]->map;
  ASSERT_EQ(map.code.size(), 3u);
  EXPECT_EQ(map.code[2].op(), 5);
  EXPECT_EQ(map.code[2].a(), 1);
  EXPECT_EQ(map.constants, std::vector<double>{0.5});
  EXPECT_EQ(map.outputs, std::vector<uint16_t>{2});
  EXPECT_EQ(map.inputs, 1);
  EXPECT_EQ(map.broadcast, std::vector<uint8_t>{0});
}

/// A codec whose programs are identities, with these constants for `stats`.
std::string codecLaunch(const std::string &stats) {
  std::string identity = "{code = array<i64: 0, 0, 0, 0>, outputs = array<i64: 0>, inputs = ";
  return R"(sched.schedule @s grain 8 accepts [f32] {
    sched.program @p on gradient {
      %c0 = arith.constant 0 : index
      %n = sched.length
      %eb = sched.element_bytes
      %bytes = arith.muli %n, %eb : index
      %g = sched.job "g" gradient
      %q = sched.scratch "q" bytes %bytes
      %x = sched.range %g[%c0, %bytes]
      %y = sched.range %q[%c0, %bytes]
      sched.launch "codec_encode" {block = 8, header_count = 1, code_bits = 4, signed_codes = 1,
        stats = )" +
         stats + ", reductions = array<i64: 2>, headers = " + identity +
         "1}, encode = " + identity + "2}, decode = " + identity +
         R"(2, broadcast = array<i64: 0, 1>}}
        count %n ins(%x : !sched.range) outs(%y : !sched.range)
      sched.cost rounds %c0 wire_bytes %c0
    }
  })";
}

TEST(EmitScheduleTest, CodecCode) {
  auto schedule = emitted(codecLaunch(
      "{code = array<i64: 0, 0, 0, 0, 10, 0, 0, 0>, outputs = array<i64: 1>, inputs = 1}"));
  ASSERT_TRUE(schedule);
  ASSERT_EQ(schedule->ir().kernels.size(), 1u);
  EXPECT_TRUE(schedule->ir().kernels[0]->attributes.empty());
  ASSERT_TRUE(schedule->ir().kernels[0]->codec);
  const fb::CodecCodeT &codec = *schedule->ir().kernels[0]->codec;
  EXPECT_EQ(codec.block, 8u);
  EXPECT_EQ(codec.header_count, 1);
  EXPECT_EQ(codec.code_bits, 4);
  EXPECT_TRUE(codec.signed_codes);
  ASSERT_EQ(codec.stats->code.size(), 2u);
  EXPECT_EQ(codec.stats->code[1].op(), 10);
  EXPECT_EQ(codec.reductions, std::vector<uint8_t>{2});
  EXPECT_EQ(codec.headers->inputs, 1);
  EXPECT_EQ(codec.encode->broadcast, (std::vector<uint8_t>{0, 0}));
  EXPECT_EQ(codec.decode->broadcast, (std::vector<uint8_t>{0, 1}));
}

TEST(EmitScheduleTest, NegativeCodecCode) {
  EXPECT_THAT(refusal(codecLaunch("1")),
              HasSubstr("expects a dictionary as constant 'stats', got 1"));
  EXPECT_THAT(refusal(codecLaunch("{code = array<i64: 0>, inputs = 1}")),
              HasSubstr("expects four numbers for each instruction as constant 'code' of 'stats'"));
}

TEST(EmitScheduleTest, NegativeMapCode) {
  auto refusalOf = [](const std::string &constants) {
    return refusal(R"(sched.schedule @s grain 1 accepts [f32] {
      sched.program @p on gradient {
        %c0 = arith.constant 0 : index
        %n = sched.length
        %eb = sched.element_bytes
        %bytes = arith.muli %n, %eb : index
        %g = sched.job "g" gradient
        %x = sched.range %g[%c0, %bytes]
        sched.launch "map" {)" +
                   constants + R"(} count %n ins(%x : !sched.range) outs(%x : !sched.range)
        sched.cost rounds %c0 wire_bytes %c0
      }
    })");
  };
  EXPECT_THAT(refusalOf("code = array<i64: 0, 0>, inputs = 1"),
              HasSubstr("expects four numbers for each instruction as constant 'code', got "
                        "array<i64: 0, 0>"));
  EXPECT_THAT(refusalOf("code = array<i64: 300, 0, 0, 0>, inputs = 1"),
              HasSubstr("expects operations below 256 as constant 'code'"));
  EXPECT_THAT(refusalOf("code = array<i64>"),
              HasSubstr("expects a number in 0 … 65535 as constant 'inputs', got none"));
  EXPECT_THAT(refusalOf("outputs = 1, inputs = 1"),
              HasSubstr("expects an array<i64> as constant 'outputs', got 1"));
  EXPECT_THAT(refusalOf("inputs = 1, broadcast = array<i64: 2>"),
              HasSubstr("expects numbers in 0 … 1 as constant 'broadcast'"));
  EXPECT_THAT(refusalOf("inputs = 1, constants = array<i64: 2>"),
              HasSubstr("expects an array<f64> as constant 'constants'"));
}

/// Random trees over all operations: what the emitter folds, shares and rewrites keeps its meaning.
TEST(EmitScheduleTest, RandomExpressionsMeanTheSameInTheFile) {
  constexpr const char *kBinary[] = {"addi",      "subi",  "muli",  "floordivsi",
                                     "ceildivsi", "remsi", "minsi", "maxsi"};
  constexpr const char *kCompare[] = {"eq",  "ne",  "slt", "sle", "sgt",
                                      "sge", "ult", "ule", "ugt", "uge"};
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<std::string> values = {"%n", "%r", "%len", "%eb", "%c0"}, conditions;
    std::string text;
    auto pick = [&](const std::vector<std::string> &from) { return from[random() % from.size()]; };
    for (int i = 0; i < 14; ++i) {
      std::string name = "%v" + std::to_string(i), line;
      switch (random() % 5) {
      case 0:
        line =
            "arith.constant " + std::to_string(static_cast<int64_t>(random() % 9) - 4) + " : index";
        break;
      case 1: {
        std::string condition = "%t" + std::to_string(i);
        text += condition + " = arith.cmpi " + kCompare[random() % 10] + ", " + pick(values) +
                ", " + pick(values) + " : index\n";
        if (!conditions.empty() && random() % 2) {
          text += condition + "b = arith." + (random() % 2 ? "andi " : "ori ") + condition + ", " +
                  pick(conditions) + " : i1\n";
          condition += "b";
        }
        conditions.push_back(condition);
        line = "arith.select " + condition + ", " + pick(values) + ", " + pick(values) + " : index";
        break;
      }
      default:
        line = std::string("arith.") + kBinary[random() % 8] + " " + pick(values) + ", " +
               pick(values) + " : index";
      }
      text += name + " = " + line + "\n";
      values.push_back(name);
    }
    // Always within the range of a cost where it has a value.
    text += "%big = arith.constant 1000 : index\n%rest = arith.remsi " + values.back() +
            ", %big : index\n%x = arith.addi %rest, %big : index";
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    expectSameValue(text);
  }
}

TEST(EmitScheduleTest, PoolIsFoldedAndShared) {
  auto schedule = emitted(withCost(R"(
    %two = arith.constant 2 : index
    %three = arith.constant 3 : index
    %six = arith.muli %two, %three : index
    %one = arith.subi %three, %two : index
    %a = arith.muli %len, %six : index
    %b = arith.muli %len, %six : index
    %c = arith.addi %a, %b : index
    %d = arith.muli %c, %one : index
    %x = arith.addi %d, %c0 : index
)"));
  ASSERT_TRUE(schedule);
  // 0 (rounds), length, 2, 3, 6, length * 6, the sum; and 1.
  EXPECT_EQ(schedule->ir().expressions.size(), 8u);
}

TEST(EmitScheduleTest, FloatScalars) {
  auto schedule = emitted(R"(sched.schedule @f grain 1 accepts [f32] {
  sched.declare_parameter @beta = 0.5 : f64
  sched.program @p on gradient {
    %c0 = arith.constant 0 : index
    %len = sched.length
    %s = sched.step
    %w = sched.job "w" weight
    %y = sched.range %w[%c0, %len]
    %beta = sched.parameter @beta : f64
    %i = arith.index_cast %s : index to i64
    %f = arith.sitofp %i : i64 to f64
    %e = arith.constant 3 : i32
    %cube = math.fpowi %beta, %e : f64, i32
    %sum = arith.addf %cube, %f : f64
    %minus = arith.negf %sum : f64
    %k = arith.constant 0.1 : f64
    %p = arith.mulf %minus, %k : f64
    %q = arith.divf %p, %beta : f64
    %r = arith.subf %q, %k : f64
    sched.launch "mix" {} count %len ins(%y, %y : !sched.range, !sched.range) outs(%y : !sched.range) scalars(%r : f64)
    sched.cost rounds %c0 wire_bytes %c0
  }
})");
  ASSERT_TRUE(schedule);
  rt::BindValues values = valuesOf(1, 0, 4);
  values.floatParameters = {0.25};
  auto flat = expand(*schedule, *schedule->ir().programs[0], values);
  if (!flat.ok()) { // 4 elements of f32 are 16 bytes, the range says 4: fine for expand().
    FAIL() << flat.status().ToString();
  }
  rt::StepValues step;
  step.step = 7;
  auto value = evaluateFloat(*schedule, flat->steps[0].scalars[0], values, step);
  ASSERT_TRUE(value.ok()) << value.status().ToString();
  EXPECT_EQ(*value, ((0.25 * 0.25 * 0.25 + 7.0) * -1.0) * 0.1 / 0.25 - 0.1);
}

TEST(EmitScheduleTest, AsyncPrograms) {
  auto program = [](const std::string &rounds) {
    return R"(sched.schedule @a grain 1 accepts [f32] {
  sched.declare_parameter @beta = 0.5 : f64
  sched.declare_parameter @interval = 500 : index
  sched.declare_parameter @warmup = 7 : index
  sched.program @async on async )" +
           rounds + R"( {
    %c0 = arith.constant 0 : index
    %w = sched.job "w" weight
    sched.cost rounds %c0 wire_bytes %c0
  }
})";
  };
  struct {
    const char *rounds;
    int64_t every;
    fb::IntervalUnit unit;
    int64_t after;
    uint32_t staleness;
  } cases[] = {
      {"every(@interval ms) after(@warmup) staleness(4)", 500, fb::IntervalUnit::Milliseconds, 7,
       4},
      {"every(8 steps) after(100) staleness(2)", 8, fb::IntervalUnit::Steps, 100, 2},
      {"every(8 steps) staleness(2147483647)", 8, fb::IntervalUnit::Steps, 0, 2147483647},
  };
  for (const auto &expected : cases) {
    SCOPED_TRACE(expected.rounds);
    auto schedule = emitted(program(expected.rounds));
    ASSERT_TRUE(schedule);
    const fb::ProgramT &out = *schedule->ir().programs[0];
    EXPECT_EQ(out.event, fb::Event::Async);
    EXPECT_EQ(out.every_unit, expected.unit);
    EXPECT_EQ(out.staleness, expected.staleness);
    auto flat = expand(*schedule, out, valuesOf(2, 0, 4));
    ASSERT_TRUE(flat.ok()) << flat.status().ToString();
    EXPECT_EQ(flat->every, expected.every);
    EXPECT_EQ(flat->after, expected.after);
  }
}

// ---- Refusals ----

TEST(EmitScheduleTest, NeedsExactlyOneSchedule) {
  EXPECT_THAT(refusal(""), HasSubstr("expects one sched.schedule to emit, got 0"));
  EXPECT_THAT(
      refusal(
          "sched.schedule @a grain 1 accepts [f32] {}\nsched.schedule @b grain 1 accepts [f32] {}"),
      HasSubstr("expects one sched.schedule to emit, got 2"));
}

TEST(EmitScheduleTest, RefusesUnsignedOperationsOnWhatMayBeNegative) {
  for (const char *op : {"divui", "ceildivui", "remui", "minui", "maxui"})
    EXPECT_THAT(
        refusal(withCost(std::string("%a = arith.subi %r, %len : index\n%x = arith.") + op +
                         " %a, %n : index")),
        HasSubstr(
            "expects operands that are known never to be negative; use the signed operation"));
}

TEST(EmitScheduleTest, RefusesWhatTheRuntimeWould) {
  EXPECT_THAT(refusal("sched.schedule @a grain 100000000000 accepts [f32] {}"),
              HasSubstr("expects a grain that fits 32 bits in a schedule file, got 100000000000"));
  EXPECT_THAT(refusal("sched.schedule @a grain 1000000000 accepts [f32] {}"),
              HasSubstr("gives a schedule that the runtime would refuse: "));
  EXPECT_THAT(refusal("sched.schedule @" + std::string(300, 'a') + " grain 1 accepts [f32] {}"),
              HasSubstr("expected at most 255"));
}

} // namespace
} // namespace bagua::test
