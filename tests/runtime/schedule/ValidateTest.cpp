// Every rule of a schedule (schedule_Sxx) refuses what it is there to refuse.
#include "SampleSchedules.h"
#include "ScheduleBuilder.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <set>

namespace bagua::rt::testing {
namespace {

using ::testing::HasSubstr;

fb::ProgramT &program(fb::ScheduleT &s) { return *s.programs.front(); }

/// First step of the program, in program order, whose action is `type`.
fb::StepT *findStep(std::vector<std::unique_ptr<fb::StepT>> &steps, fb::Action type) {
  for (auto &step : steps) {
    if (step->action.type == type)
      return step.get();
    fb::StepT *found = nullptr;
    if (fb::ForT *loop = step->action.AsFor())
      found = findStep(loop->body, type);
    if (fb::IfT *branch = step->action.AsIf())
      found = findStep(branch->then, type);
    if (found)
      return found;
  }
  return nullptr;
}
fb::StepT &step(fb::ScheduleT &s, fb::Action type) { return *findStep(program(s).body, type); }
fb::SendT &send(fb::ScheduleT &s) { return *step(s, fb::Action::Send).action.AsSend(); }
fb::RecvT &recv(fb::ScheduleT &s) { return *step(s, fb::Action::Recv).action.AsRecv(); }
fb::LaunchT &launch(fb::ScheduleT &s) { return *step(s, fb::Action::Launch).action.AsLaunch(); }
fb::ForT &loop(fb::ScheduleT &s) { return *step(s, fb::Action::For).action.AsFor(); }

uint32_t addExpr(fb::ScheduleT &s, fb::ExprOp op, uint32_t a = 0, uint32_t b = 0, uint32_t c = 0,
                 int64_t value = 0) {
  auto expr = std::make_unique<fb::ExprT>();
  expr->op = op;
  expr->a = a;
  expr->b = b;
  expr->c = c;
  expr->value = value;
  s.expressions.push_back(std::move(expr));
  return static_cast<uint32_t>(s.expressions.size() - 1);
}

struct Refusal {
  const char *rule;
  const char *what; ///< Part of the message.
  void (*damage)(fb::ScheduleT &);
};

// Damages to the bytegrad sample.
const Refusal kRefusals[] = {
    {"S01", "dtype has value 9", [](auto &s) { s.dtypes[0] = static_cast<fb::DType>(9); }},
    {"S01", "event has value 200", [](auto &s) { program(s).event = static_cast<fb::Event>(200); }},
    {"S01", "a buffer's kind has value 3",
     [](auto &s) { program(s).buffers[0]->kind = static_cast<fb::BufferKind>(3); }},
    {"S01", "a buffer's role has value 2",
     [](auto &s) { program(s).buffers[0]->role = static_cast<fb::Role>(2); }},
    {"S01", "queue has value 7",
     [](auto &s) { step(s, fb::Action::Send).queue = static_cast<fb::Queue>(7); }},
    {"S01", "space has value 3",
     [](auto &s) { send(s).source->space = static_cast<fb::Space>(3); }},
    {"S01", "unknown operation 99",
     [](auto &s) { s.expressions[0]->op = static_cast<fb::ExprOp>(99); }},
    {"S01", "gate has value 4",
     [](auto &s) {
       fb::WaitT wait;
       wait.gate = static_cast<fb::Gate>(4);
       step(s, fb::Action::Launch).action.Set(std::move(wait));
     }},
    {"S02", "the schedule's name is empty", [](auto &s) { s.name.clear(); }},
    {"S02", "a program's name is not printable", [](auto &s) { program(s).name = "two\nlines"; }},
    {"S02", "a kernel's name is not printable", [](auto &s) { s.kernels[0]->name = "\xc0\x80"; }},
    {"S02", "a location's file is not printable",
     [](auto &s) { s.locations[0]->file = "a\x1b[31m"; }},
    {"S02", "the producer has 256 bytes", [](auto &s) { s.producer = std::string(256, 'x'); }},
    {"S02", "a buffer's name", [](auto &s) { program(s).buffers[0]->name.clear(); }},
    {"S02", "a kernel's name is empty", [](auto &s) { s.kernels[0]->name.clear(); }},
    {"S02", "attribute's name", [](auto &s) { s.kernels[0]->attributes[0]->name.clear(); }},
    {"S02", "name is empty", [](auto &s) { program(s).name.clear(); }},
    {"S03", "declares 'coded' twice", [](auto &s) { program(s).buffers[2]->name = "coded"; }},
    {"S03", "has attribute 'bits' twice",
     [](auto &s) { s.kernels[0]->attributes[1]->name = "bits"; }},
    {"S03", "two parameters are named 'x'",
     [](auto &s) {
       for (int i = 0; i < 2; ++i) {
         s.parameters.push_back(std::make_unique<fb::ParameterT>());
         s.parameters.back()->name = "x";
       }
     }},
    {"S03", "two programs are named 'gradient'",
     [](auto &s) {
       s.programs.push_back(std::make_unique<fb::ProgramT>());
       s.programs.back()->name = "gradient";
       s.programs.back()->event = fb::Event::AfterUpdate;
     }},
    {"S04", "'expression', expected at most",
     [](auto &s) {
       while (s.expressions.size() <= 65536)
         addExpr(s, fb::ExprOp::World);
     }},
    {"S04", "100000 channels", [](auto &s) { program(s).channels = 100000; }},
    {"S04", "'wait', expected at most",
     [](auto &s) {
       for (int i = 0; i < 5000; ++i)
         step(s, fb::Action::Launch).waits.push_back(std::make_unique<fb::EventRefT>());
     }},
    {"S05", "accepts 0 dtypes", [](auto &s) { s.dtypes.clear(); }},
    {"S05", "names one dtype twice", [](auto &s) { s.dtypes = {fb::DType::F32, fb::DType::F32}; }},
    {"S06", "grain is 0", [](auto &s) { s.grain = 0; }},
    {"S06", "grain is 4294967295", [](auto &s) { s.grain = 0xffffffff; }},
    {"S07", "expression 3 is null", [](auto &s) { s.expressions[3].reset(); }},
    {"S07", "step 0 is null", [](auto &s) { program(s).body[0].reset(); }},
    {"S07", "wait 0 is null", [](auto &s) { step(s, fb::Action::Send).waits[0].reset(); }},
    {"S07", "Send: source is null", [](auto &s) { send(s).source.reset(); }},
    {"S07", "input 0 is null", [](auto &s) { launch(s).inputs[0].reset(); }},
    {"S07", "range 0 is null", [](auto &s) { launch(s).inputs[0]->ranges[0].reset(); }},
    {"S08", "expected an earlier expression",
     [](auto &s) { addExpr(s, fb::ExprOp::Add, 0, static_cast<uint32_t>(s.expressions.size())); }},
    {"S09", "operand 1 is f64, expected i64",
     [](auto &s) { addExpr(s, fb::ExprOp::Add, 0, addExpr(s, fb::ExprOp::ConstFloat)); }},
    {"S09", "operand 0 is i64, expected f64", [](auto &s) { addExpr(s, fb::ExprOp::FAdd); }},
    {"S09", "operands 1 and 2 differ in type",
     [](auto &s) { addExpr(s, fb::ExprOp::Select, 0, 0, addExpr(s, fb::ExprOp::ConstFloat)); }},
    {"S10", "deeper than 512",
     [](auto &s) {
       uint32_t node = addExpr(s, fb::ExprOp::World);
       for (int i = 0; i < 512; ++i)
         node = addExpr(s, fb::ExprOp::Not, node);
     }},
    {"S10", "visits more than 65536",
     [](auto &s) {
       uint32_t node = addExpr(s, fb::ExprOp::Step);
       for (int i = 0; i < 16; ++i)
         node = addExpr(s, fb::ExprOp::Add, node, node);
     }},
    {"S10", "uses 18 loop variables",
     [](auto &s) {
       uint32_t node = addExpr(s, fb::ExprOp::Loop);
       for (int i = 1; i < 18; ++i)
         node = addExpr(s, fb::ExprOp::Add, node, addExpr(s, fb::ExprOp::Loop, 0, 0, 0, i));
     }},
    {"S11", "parameter 3, expected below 0",
     [](auto &s) { addExpr(s, fb::ExprOp::Parameter, 0, 0, 0, 3); }},
    {"S11", "parameter -1", [](auto &s) { addExpr(s, fb::ExprOp::Parameter, 0, 0, 0, -1); }},
    {"S12", "Launch: count is expression %4294967295", [](auto &s) { launch(s).count = kNone; }},
    {"S12", "wire_bytes is expression", [](auto &s) { program(s).wire_bytes = 100000; }},
    {"S12", "buffer 'gradient': bytes", [](auto &s) { program(s).buffers[0]->bytes = 100000; }},
    {"S12", "guard is expression", [](auto &s) { step(s, fb::Action::Send).guard = 100000; }},
    {"S13", "is an f64 expression",
     [](auto &s) { recv(s).bytes = addExpr(s, fb::ExprOp::ConstFloat); }},
    {"S14", "depends on the step", [](auto &s) { recv(s).bytes = addExpr(s, fb::ExprOp::Step); }},
    {"S15", "For: has no loop variable", [](auto &s) { loop(s).variable = kNone; }},
    {"S15", "uses loop variable 7, which is not in scope",
     [](auto &s) { launch(s).count = addExpr(s, fb::ExprOp::Loop, 0, 0, 0, 7); }},
    {"S15", "loop variable 4294967295 is not an id",
     [](auto &s) { addExpr(s, fb::ExprOp::Loop, 0, 0, 0, kNone); }},
    {"S16", "loop variable 0 is already in scope",
     [](auto &s) {
       auto inner = std::make_unique<fb::StepT>();
       inner->location = kNone;
       inner->action.Set(fb::ForT());
       loop(s).body.push_back(std::move(inner));
     }},
    {"S17", "nested deeper than 16",
     [](auto &s) {
       auto *body = &program(s).body;
       for (uint32_t i = 0; i < 17; ++i) {
         body->push_back(std::make_unique<fb::StepT>());
         body->back()->location = kNone;
         fb::IfT branch;
         body->back()->action.Set(std::move(branch));
         body = &body->back()->action.AsIf()->otherwise;
       }
     }},
    {"S18", "none or unknown", [](auto &s) { step(s, fb::Action::Launch).action.Reset(); }},
    {"S19", "neither wait, signal",
     [](auto &s) { step(s, fb::Action::For).waits.push_back(std::make_unique<fb::EventRefT>()); }},
    {"S19", "neither wait, signal", [](auto &s) { step(s, fb::Action::If).guard = 0; }},
    {"S20", "Send is on queue Cpu",
     [](auto &s) { step(s, fb::Action::Send).queue = fb::Queue::Cpu; }},
    {"S20", "Recv is on queue Cpu",
     [](auto &s) { step(s, fb::Action::Recv).queue = fb::Queue::Cpu; }},
    {"S20", "Launch is on queue Net",
     [](auto &s) { step(s, fb::Action::Launch).queue = fb::Queue::Net; }},
    {"S21", "location is 4000", [](auto &s) { step(s, fb::Action::Send).location = 4000; }},
    {"S21", "Send: channel is 2", [](auto &s) { send(s).channel = 2; }},
    {"S21", "Send: source: buffer is 3", [](auto &s) { send(s).source->id = 3; }},
    {"S21", "Recv: slots is 2", [](auto &s) { recv(s).slots = 2; }},
    {"S21", "Release: slots is 2",
     [](auto &s) { step(s, fb::Action::Release).action.AsRelease()->slots = 2; }},
    {"S21", "Launch: kernel is 3", [](auto &s) { launch(s).kernel = 3; }},
    {"S21", "wait 0: events is 4", [](auto &s) { step(s, fb::Action::Send).waits[0]->id = 4; }},
    {"S21", "signal: events is 4", [](auto &s) { step(s, fb::Action::Launch).signal->id = 4; }},
    {"S22", "signal has a loop variable",
     [](auto &s) { step(s, fb::Action::Launch).signal->variable = 3; }},
    {"S23", "start at the same event",
     [](auto &s) {
       s.programs.push_back(std::make_unique<fb::ProgramT>());
       s.programs.back()->name = "again";
     }},
    {"S24", "a second job buffer for Gradient",
     [](auto &s) { program(s).buffers[1]->kind = fb::BufferKind::Job; }},
    {"S25", "output 0 is a slot",
     [](auto &s) {
       launch(s).outputs[0]->ranges[0]->space = fb::Space::Slot;
       launch(s).outputs[0]->ranges[0]->id = 0;
     }},
    {"S26", "has no output", [](auto &s) { launch(s).outputs.clear(); }},
    {"S27", "expected a finite number",
     [](auto &s) {
       s.parameters.push_back(std::make_unique<fb::ParameterT>());
       s.parameters.back()->name = "x";
       s.parameters.back()->default_float = std::nan("");
     }},
    {"S28", "source is a slot",
     [](auto &s) {
       send(s).source->space = fb::Space::Slot;
       send(s).source->id = 0;
     }},
    {"S28", "source has a condition", [](auto &s) { send(s).source->when = 0; }},
};

fb::StateT &state(fb::ScheduleT &s) { return *s.states[0]; }
fb::BufferT &buffer(fb::ScheduleT &s, const std::string &name) {
  for (auto &buffer : program(s).buffers)
    if (buffer->name == name)
      return *buffer;
  std::abort();
}
void makeCodec(fb::ScheduleT &s) {
  fb::KernelT &kernel = *s.kernels[0];
  kernel.name = "codec_encode";
  kernel.codec = std::make_unique<fb::CodecCodeT>();
  for (auto *part :
       {&kernel.codec->stats, &kernel.codec->headers, &kernel.codec->encode, &kernel.codec->decode})
    *part = std::make_unique<fb::MapCodeT>();
  kernel.map.reset();
}

// Damages to the gossip_momentum sample.
const Refusal kStateRefusals[] = {
    {"S01", "state 'm': domain has value 4",
     [](auto &s) { state(s).domain = static_cast<fb::StateDomain>(4); }},
    {"S01", "state 'm': on_resize has value 3",
     [](auto &s) { state(s).on_resize = static_cast<fb::OnResize>(3); }},
    {"S02", "a state's name is empty", [](auto &s) { state(s).name.clear(); }},
    {"S03", "two states are named 'm'",
     [](auto &s) { s.states.push_back(std::make_unique<fb::StateT>(state(s))); }},
    {"S04", "'state', expected at most 256",
     [](auto &s) {
       for (int i = 0; i < 256; ++i) {
         s.states.push_back(std::make_unique<fb::StateT>());
         s.states.back()->name = "m" + std::to_string(i);
       }
     }},
    {"S04", "kernel 'map' has 300 instructions, expected at most 256",
     [](auto &s) { s.kernels[0]->map->code.resize(300); }},
    {"S04", "kernel 'map' has 300 constants",
     [](auto &s) { s.kernels[0]->map->constants.resize(300); }},
    {"S04", "kernel 'codec_encode': encode has 300 outputs",
     [](auto &s) {
       makeCodec(s);
       s.kernels[0]->codec->encode->outputs.resize(300);
     }},
    {"S04", "'reduction', expected at most 256",
     [](auto &s) {
       makeCodec(s);
       s.kernels[0]->codec->reductions.resize(300);
     }},
    {"S07", "state 0 is null", [](auto &s) { s.states[0].reset(); }},
    {"S07", "kernel 'codec_encode': decode is null",
     [](auto &s) {
       makeCodec(s);
       s.kernels[0]->codec->decode.reset();
     }},
    {"S19", "neither wait, signal",
     [](auto &s) {
       auto outer = std::make_unique<fb::StepT>();
       outer->location = kNone;
       outer->action.Set(fb::IfT());
       outer->if_finite = true;
       program(s).body.push_back(std::move(outer));
     }},
    {"S20", "Publish is on queue Net",
     [](auto &s) { step(s, fb::Action::Publish).queue = fb::Queue::Net; }},
    {"S21", "buffer 'm': state is 1, expected below 1", [](auto &s) { buffer(s, "m").state = 1; }},
    {"S21", "Publish: state is 7",
     [](auto &s) { step(s, fb::Action::Publish).action.AsPublish()->state = 7; }},
    {"S27", "expected a finite number",
     [](auto &s) { state(s).initial = std::numeric_limits<double>::infinity(); }},
    {"S29", "kernel 'map' has no code, expected code of a map",
     [](auto &s) { s.kernels[0]->map.reset(); }},
    {"S29", "kernel 'copy' has code of a map, expected no code",
     [](auto &s) { s.kernels.back()->map = std::make_unique<fb::MapCodeT>(); }},
    {"S29", "kernel 'codec_decode_reduce_mean' has no code, expected code of a codec",
     [](auto &s) { s.kernels.back()->name = "codec_decode_reduce_mean"; }},
    {"S29", "kernel 'map' has code of a map and of a codec, expected code of a map",
     [](auto &s) { s.kernels[0]->codec = std::make_unique<fb::CodecCodeT>(); }},
    {"S30", "has 0 copies, expected 1", [](auto &s) { state(s).copies = 0; }},
    {"S30", "has 2 copies, expected 1", [](auto &s) { state(s).copies = 2; }},
    {"S30", "has 257 copies, expected 1 to 256",
     [](auto &s) {
       state(s).domain = fb::StateDomain::Neighbors;
       state(s).copies = 257;
     }},
    {"S30", "begins as the weight, but is over no bucket",
     [](auto &s) {
       state(s).domain = fb::StateDomain::Shard;
       state(s).initial_weight = true;
     }},
    {"S30", "begins as the weight and as a number",
     [](auto &s) {
       state(s).initial_weight = true;
       state(s).initial = 1;
     }},
    {"S31", "a second buffer for the next value of state 'm'",
     [](auto &s) { buffer(s, "m").next = true; }},
    {"S31", "a second buffer for the committed value of state 'm'",
     [](auto &s) { buffer(s, "m_next").next = false; }},
    {"S31", "state 'm' has no next buffer in this program",
     [](auto &s) { buffer(s, "m_next").kind = fb::BufferKind::Scratch; }},
    {"S32", "output 0 is 'm', the committed value",
     [](auto &s) { launch(s).outputs[0]->ranges[0]->id = 2; }},
    {"S33", "Send depends on a finite step",
     [](auto &s) { step(s, fb::Action::Send).if_finite = true; }},
    {"S33", "Wait depends on a finite step",
     [](auto &s) { step(s, fb::Action::Wait).if_finite = true; }},
};

// Damages to the async_average sample.
const Refusal kAsyncRefusals[] = {
    {"S01", "every_unit has value 2",
     [](auto &s) { program(s).every_unit = static_cast<fb::IntervalUnit>(2); }},
    {"S12", "every is expression", [](auto &s) { program(s).every = 100000; }},
    {"S13", "after is an f64 expression",
     [](auto &s) { program(s).after = addExpr(s, fb::ExprOp::ConstFloat); }},
    {"S14", "depends on the step",
     [](auto &s) { program(s).every = addExpr(s, fb::ExprOp::Step); }},
    {"S14", "depends on the step", [](auto &s) { s.parameters[1]->per_step = true; }},
    {"S15", "uses loop variable 7, which is not in scope",
     [](auto &s) { program(s).every = addExpr(s, fb::ExprOp::Loop, 0, 0, 0, 7); }},
    {"S34", "has no every", [](auto &s) { program(s).every = kNone; }},
    {"S34", "has staleness 0", [](auto &s) { program(s).staleness = 0; }},
    {"S34", "which belong to async programs",
     [](auto &s) { program(s).event = fb::Event::AfterUpdate; }},
    {"S34", "which belong to async programs",
     [](auto &s) {
       fb::ProgramT &p = program(s);
       p.event = fb::Event::AfterUpdate;
       p.every = p.after = kNone;
     }},
    {"S34", "which belong to async programs",
     [](auto &s) {
       fb::ProgramT &p = program(s);
       p.event = fb::Event::AfterUpdate;
       p.every = p.after = kNone;
       p.staleness = 0;
       p.every_unit = fb::IntervalUnit::Milliseconds;
     }},
    {"S35", "every uses Length",
     [](auto &s) {
       program(s).every = addExpr(s, fb::ExprOp::Add, addExpr(s, fb::ExprOp::World),
                                  addExpr(s, fb::ExprOp::Length));
     }},
    {"S35", "after uses Rank", [](auto &s) { program(s).after = addExpr(s, fb::ExprOp::Rank); }},
    {"S35", "after uses LocalSize",
     [](auto &s) { program(s).after = addExpr(s, fb::ExprOp::LocalSize); }},
    {"S35", "every uses Bucket",
     [](auto &s) { program(s).every = addExpr(s, fb::ExprOp::Bucket); }},
    {"S35", "every uses Pairing",
     [](auto &s) { program(s).every = addExpr(s, fb::ExprOp::Pairing); }},
    {"S36", "buffer 'weight' is the gradient",
     [](auto &s) { buffer(s, "weight").role = fb::Role::Gradient; }},
    {"S36", "has no job buffer for the weight",
     [](auto &s) { buffer(s, "weight").kind = fb::BufferKind::Scratch; }},
    {"S36", "Wait: an async program belongs to no step",
     [](auto &s) { step(s, fb::Action::Publish).action.Set(fb::WaitT()); }},
    {"S36", "Publish depends on a finite step",
     [](auto &s) { step(s, fb::Action::Publish).if_finite = true; }},
    {"S37", "state 'rounds' is used by an async program and by another",
     [](auto &s) {
       auto other = std::make_unique<fb::ProgramT>();
       other->name = "other";
       other->rounds = other->wire_bytes = program(s).buffers[0]->bytes;
       other->buffers.push_back(std::make_unique<fb::BufferT>(buffer(s, "rounds")));
       s.programs.push_back(std::move(other));
     }},
};

void expectRefused(const Refusal &refusal, fb::ScheduleT damaged) {
  refusal.damage(damaged);
  Status status = validate(damaged);
  ASSERT_FALSE(status.ok()) << refusal.rule << ": " << refusal.what;
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  std::string message(status.message());
  EXPECT_THAT(message, HasSubstr(refusal.what));
  EXPECT_THAT(message, HasSubstr(std::string("[") + refusal.rule + "]"));
  EXPECT_FALSE(serialize(damaged).ok()) << "writes what it would not read";
}

TEST(ValidateTest, AcceptsTheSamples) {
  for (const SampleSchedule &sample : allSampleSchedules())
    EXPECT_EQ(validate(sample.build()), absl::OkStatus()) << sample.name;
}

TEST(ValidateTest, RefusesWhatEachRuleForbids) {
  for (const Refusal &refusal : kRefusals)
    expectRefused(refusal, bytegradSchedule());
  for (const Refusal &refusal : kStateRefusals)
    expectRefused(refusal, gossipMomentumSchedule());
  for (const Refusal &refusal : kAsyncRefusals)
    expectRefused(refusal, asyncAverageSchedule());
}

TEST(ValidateTest, EveryRuleHasARefusal) {
  std::set<std::string> seen;
  for (const Refusal &refusal : kRefusals)
    seen.insert(refusal.rule);
  for (const Refusal &refusal : kStateRefusals)
    seen.insert(refusal.rule);
  for (const Refusal &refusal : kAsyncRefusals)
    seen.insert(refusal.rule);
  for (int rule = 1; rule <= 37; ++rule) {
    char tag[8];
    std::snprintf(tag, sizeof(tag), "S%02d", rule);
    EXPECT_TRUE(seen.contains(tag)) << tag;
  }
}

TEST(ValidateTest, SaysWhichProgramStepAndLine) {
  fb::ScheduleT damaged = bytegradSchedule();
  send(damaged).channel = 9;
  EXPECT_EQ(validate(damaged).message(),
            "schedule 'bytegrad': program 'gradient': step 0.then.1.0 (bytegrad.mlir:4:5): Send: "
            "channel is 9, expected below 2 [S21]");
}

TEST(ValidateTest, NamesMayBeAnyPrintableText) {
  fb::ScheduleT s = bytegradSchedule();
  s.name = "bytegrad «8 Bit» 🚀";
  EXPECT_EQ(validate(s), absl::OkStatus());
}

} // namespace
} // namespace bagua::rt::testing
