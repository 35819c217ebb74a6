// The checker accepts what is right, and refuses a corpus of damaged schedules with the right code.
#include "SampleSchedules.h"
#include "ScheduleBuilder.h"

#include "bagua/compiler/Checker.h"

#include <gmock/gmock.h>

#include <functional>

namespace bagua::compiler {
namespace {

using namespace rt::testing;
using rt::kNone;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using S = ScheduleBuilder;
using Steps = std::vector<std::unique_ptr<fb::StepT>>;

std::vector<std::string> codes(const CheckReport &report) {
  std::vector<std::string> result;
  for (const Finding &finding : report.findings)
    result.push_back(finding.code);
  return result;
}

std::string texts(const CheckReport &report) {
  std::string result;
  for (const Finding &finding : report.findings)
    result += finding.text() + "\n";
  return result;
}

CheckReport checkOf(const fb::ScheduleT &schedule, const CheckOptions &options = {}) {
  auto report = check(*loadOrDie(schedule), options);
  EXPECT_TRUE(report.ok()) << report.status();
  return *std::move(report);
}

/// Every list of steps and every index into it, in program order.
void forEachStep(Steps &steps, const std::function<void(Steps &, size_t)> &visit) {
  for (size_t i = 0; i < steps.size(); ++i) {
    if (fb::ForT *loop = steps[i]->action.AsFor())
      forEachStep(loop->body, visit);
    else if (fb::IfT *branch = steps[i]->action.AsIf()) {
      forEachStep(branch->then, visit);
      forEachStep(branch->otherwise, visit);
    } else {
      visit(steps, i);
    }
  }
}

struct Place {
  Steps *steps;
  size_t index;
  fb::StepT &step() const { return *(*steps)[index]; }
};

/// The place of the `number`-th step of kind `type`, or of any kind.
std::optional<Place> findPlace(fb::ScheduleT &s, size_t number,
                               fb::Action type = fb::Action::NONE) {
  std::optional<Place> place;
  forEachStep(s.programs.front()->body, [&](Steps &steps, size_t index) {
    if ((type == fb::Action::NONE || steps[index]->action.type == type) && number-- == 0)
      place = Place{&steps, index};
  });
  return place;
}

TEST(CheckerTest, AcceptsTheSamples) {
  for (const SampleSchedule &sample : sampleSchedules()) {
    CheckOptions options;
    options.worlds = {13, 16};
    CheckReport report = checkOf(sample.build(), options);
    EXPECT_THAT(report.findings, IsEmpty()) << texts(report);
    EXPECT_GT(report.cases, 60u);
    EXPECT_EQ(report.casesWithoutRaces, 0u);
  }
}

TEST(CheckerTest, AcceptsTheSamplesAt64Ranks) {
  CheckOptions options;
  options.worldMax = 0;
  options.worlds = {64};
  options.lengths = {rt::testing::bytegradSchedule().grain * 64 + 1};
  for (const SampleSchedule &sample : sampleSchedules()) {
    CheckReport report = checkOf(sample.build(), options);
    EXPECT_THAT(report.findings, IsEmpty()) << texts(report);
    // Everyone to everyone is too large for B120, which is said.
    bool isRing = std::string(sample.name) == "decentralized";
    EXPECT_EQ(report.casesWithoutRaces, isRing ? 0 : report.cases);
  }
}

TEST(CheckerTest, NegativeOptions) {
  auto schedule = loadOrDie(decentralizedSchedule());
  CheckOptions options;
  options.worlds = {257};
  EXPECT_EQ(check(*schedule, options).status().message(), "check: world 257, expected 1 to 256");
  options.worlds = {0};
  EXPECT_FALSE(check(*schedule, options).ok());
  options = {};
  options.lengths = {-1};
  EXPECT_FALSE(check(*schedule, options).ok());
  options = {};
  options.steps = {-1};
  EXPECT_FALSE(check(*schedule, options).ok());
}

/// Damages every place of one kind in every sample, one at a time; each must be found with `code`.
void expectEachFound(fb::Action type, const std::string &code,
                     const std::function<bool(Place, size_t variant)> &damage, size_t atLeast) {
  size_t damaged = 0;
  for (const SampleSchedule &sample : sampleSchedules())
    for (size_t number = 0;; ++number) {
      bool isPlace = false;
      for (size_t variant = 0;; ++variant) {
        fb::ScheduleT s = sample.build();
        std::optional<Place> place = findPlace(s, number, type);
        isPlace = place.has_value();
        if (!isPlace || !damage(*place, variant))
          break;
        ++damaged;
        CheckReport report = checkOf(s);
        EXPECT_THAT(codes(report), ::testing::Contains(code))
            << sample.name << ", step " << number << ", variant " << variant << "\n"
            << texts(report);
      }
      if (!isPlace)
        break;
    }
  EXPECT_GE(damaged, atLeast) << "the corpus has become smaller";
}

bool erase(Place place, size_t variant) {
  if (variant > 0)
    return false;
  place.steps->erase(place.steps->begin() + static_cast<ptrdiff_t>(place.index));
  return true;
}

TEST(CheckerCorpus, DroppedSend) { expectEachFound(fb::Action::Send, "B101", erase, 6); }
TEST(CheckerCorpus, DroppedReceive) { expectEachFound(fb::Action::Recv, "B101", erase, 6); }
TEST(CheckerCorpus, DroppedRelease) { expectEachFound(fb::Action::Release, "B110", erase, 6); }

TEST(CheckerCorpus, DroppedWait) {
  auto drop = [](Place place, size_t variant) {
    auto &waits = place.step().waits;
    if (variant >= waits.size())
      return false;
    waits.erase(waits.begin() + static_cast<ptrdiff_t>(variant));
    return true;
  };
  expectEachFound(fb::Action::NONE, "B120", drop, 12);
}

TEST(CheckerCorpus, DroppedSignal) {
  auto drop = [](Place place, size_t variant) {
    if (variant > 0 || !place.step().signal)
      return false;
    place.step().signal.reset();
    return true;
  };
  expectEachFound(fb::Action::NONE, "B110", drop, 12);
}

TEST(CheckerCorpus, ReleaseThatOvertakesTheReader) {
  auto overtake = [](Place place, size_t variant) {
    if (variant > 0)
      return false;
    place.step().queue = fb::Queue::Net;
    return true;
  };
  expectEachFound(fb::Action::Release, "B120", overtake, 6);
}

/// `op`(old, value) instead of expression `node`.
void wrap(fb::ScheduleT &s, uint32_t &node, fb::ExprOp op, int64_t value) {
  auto constant = std::make_unique<fb::ExprT>();
  constant->value = value;
  s.expressions.push_back(std::move(constant));
  auto expr = std::make_unique<fb::ExprT>();
  expr->op = op;
  expr->a = node;
  expr->b = static_cast<uint32_t>(s.expressions.size() - 1);
  s.expressions.push_back(std::move(expr));
  node = static_cast<uint32_t>(s.expressions.size() - 1);
}

TEST(CheckerCorpus, ChangedBytes) {
  for (const SampleSchedule &sample : sampleSchedules())
    for (size_t number = 0; number < 2; ++number) {
      fb::ScheduleT s = sample.build();
      wrap(s, findPlace(s, number, fb::Action::Send)->step().action.AsSend()->source->bytes,
           fb::ExprOp::Min, 24);
      CheckReport report = checkOf(s);
      EXPECT_THAT(codes(report), ::testing::Contains("B102")) << sample.name << "\n"
                                                              << texts(report);
    }
}

TEST(CheckerCorpus, SwappedPeers) {
  fb::ScheduleT s = decentralizedSchedule();
  auto &first = *findPlace(s, 0, fb::Action::Send)->step().action.AsSend();
  auto &second = *findPlace(s, 1, fb::Action::Send)->step().action.AsSend();
  std::swap(first.peer, second.peer);
  CheckReport report = checkOf(s);
  EXPECT_THAT(codes(report), ::testing::Contains("B101")) << texts(report);
  EXPECT_EQ(report.findings.front().world, 3);

  // With everyone talking to everyone there still is one message each way, of another shard's size.
  s = gradientAllReduceSchedule();
  auto &send = *findPlace(s, 0, fb::Action::Send)->step().action.AsSend();
  auto &recv = *findPlace(s, 0, fb::Action::Recv)->step().action.AsRecv();
  std::swap(send.peer, recv.peer);
  report = checkOf(s);
  EXPECT_THAT(codes(report), ::testing::Contains("B102")) << texts(report);
}

TEST(CheckerCorpus, ChangedChannel) {
  for (const SampleSchedule &sample : sampleSchedules()) {
    fb::ScheduleT s = sample.build();
    auto &send = *findPlace(s, 0, fb::Action::Send)->step().action.AsSend();
    send.channel = 1 - send.channel;
    CheckReport report = checkOf(s);
    EXPECT_THAT(codes(report), ::testing::Contains("B101")) << texts(report);
  }
}

TEST(CheckerCorpus, OtherWireBytes) {
  for (const SampleSchedule &sample : sampleSchedules()) {
    fb::ScheduleT s = sample.build();
    wrap(s, s.programs.front()->wire_bytes, fb::ExprOp::Add, 1);
    CheckReport report = checkOf(s);
    EXPECT_THAT(codes(report), ::testing::ElementsAre("B103")) << texts(report);
  }
}

// Everyone waits for a message before sending one.
TEST(CheckerCorpus, CycleOfMessages) {
  fb::ScheduleT s = gradientAllReduceSchedule();
  fb::StepT &send = findPlace(s, 0, fb::Action::Send)->step();
  auto wait = std::make_unique<fb::EventRefT>(*send.signal);
  wait->id = 1; // arrived[target]
  send.waits.push_back(std::move(wait));
  Place place = *findPlace(s, 0, fb::Action::Send);
  std::swap((*place.steps)[0], (*place.steps)[1]); // Receives are issued first.
  CheckReport report = checkOf(s);
  ASSERT_EQ(report.findings.size(), 1u) << texts(report);
  const Finding &finding = report.findings.front();
  EXPECT_EQ(finding.code, "B110");
  EXPECT_EQ(finding.world, 2);
  EXPECT_THAT(finding.text(), HasSubstr("cyclic wait: "));
  EXPECT_THAT(finding.text(),
              HasSubstr("rank 0 Send to rank 1 (gradient_allreduce.mlir:3:5) sends to"));
  EXPECT_THAT(finding.text(), HasSubstr("rank 1 Recv from rank 0 parts[0]"));
}

// Passes on a transport that buffers; hangs where `sent` follows the receiver's release.
TEST(CheckerCorpus, CycleOnRendezvousOnly) {
  fb::ScheduleT s = decentralizedSchedule();
  fb::StepT &recv = findPlace(s, 0, fb::Action::Recv)->step();
  recv.waits.push_back(
      std::make_unique<fb::EventRefT>(*findPlace(s, 0, fb::Action::Send)->step().signal));
  CheckReport report = checkOf(s);
  EXPECT_THAT(codes(report), ::testing::ElementsAre("B110")) << texts(report);
  EXPECT_THAT(texts(report), HasSubstr("releases the message of"));
}

// The second message needs the slot that only its own launch would free.
TEST(CheckerCorpus, CycleOfCredits) {
  ScheduleBuilder s("made");
  E zero = s.constant(0), one = s.constant(1), bytes = s.length() * s.elementBytes();
  uint32_t copy = s.kernel("copy");
  s.program("gradient", fb::Event::Gradient, 1, zero, (s.world() - 1) * 2 * bytes);
  uint32_t g = s.jobBuffer("g", fb::Role::Gradient), a = s.scratch("a", bytes);
  uint32_t in = s.slots("in", one, bytes), arrived = s.events("arrived", s.constant(2));
  s.ifThen(s.world() == 2, [&] {
    E peer = one - s.rank();
    s.send(peer, 0, S::range(g, zero, bytes));
    s.send(peer, 0, S::range(g, zero, bytes));
    s.recv(peer, 0, in, zero, bytes, {}, S::event(arrived, zero));
    // Reads the first message, but waits for the second as well.
    s.launch(copy, S::list(S::one(S::view(in, zero, zero, bytes))),
             S::list(S::one(S::range(a, zero, bytes))), s.length(),
             S::list(S::event(arrived, zero), S::event(arrived, one)));
    s.release(in, zero);
    s.recv(peer, 0, in, zero, bytes, {}, S::event(arrived, one));
    s.release(in, zero, S::list(S::event(arrived, one)));
  });
  CheckOptions options;
  options.worldMax = 2;
  CheckReport report = checkOf(s.take(), options);
  ASSERT_THAT(codes(report), ::testing::ElementsAre("B110")) << texts(report);
  EXPECT_THAT(texts(report), HasSubstr("frees the slot of"));
}

TEST(CheckerCorpus, WeightsWrittenBeforeTheGate) {
  fb::ScheduleT s = decentralizedSchedule();
  erase(*findPlace(s, 0, fb::Action::Wait), 0);
  CheckReport report = checkOf(s);
  ASSERT_THAT(codes(report), ::testing::ElementsAre("B120")) << texts(report);
  EXPECT_THAT(texts(report), HasSubstr("writes weights that the job still reads"));
}

TEST(CheckerCorpus, GradientUsedOutsideItsProgram) {
  fb::ScheduleT s = gradientAllReduceSchedule();
  s.programs.front()->event = fb::Event::AfterUpdate;
  CheckReport report = checkOf(s);
  EXPECT_THAT(codes(report), ::testing::Contains("B120"));
  EXPECT_THAT(texts(report), HasSubstr("which the job owns at AfterUpdate"));
}

/// `schedule` with rounds that do nothing, every 1 of `unit` after `after` steps.
fb::ScheduleT besideRounds(fb::ScheduleT schedule, fb::IntervalUnit unit, int64_t after) {
  auto constant = [&](int64_t value) {
    auto expr = std::make_unique<fb::ExprT>();
    expr->value = value;
    schedule.expressions.push_back(std::move(expr));
    return static_cast<uint32_t>(schedule.expressions.size() - 1);
  };
  auto rounds = std::make_unique<fb::ProgramT>();
  rounds->name = "rounds";
  rounds->event = fb::Event::Async;
  auto weight = std::make_unique<fb::BufferT>();
  weight->name = "weight";
  weight->role = fb::Role::Weight;
  for (const auto &buffer : schedule.programs[0]->buffers)
    if (buffer->kind == fb::BufferKind::Job)
      weight->bytes = buffer->bytes;
  rounds->buffers.push_back(std::move(weight));
  rounds->rounds = rounds->wire_bytes = constant(0);
  rounds->every = constant(1);
  rounds->every_unit = unit;
  rounds->after = constant(after);
  rounds->staleness = 1;
  schedule.programs.push_back(std::move(rounds));
  return schedule;
}

TEST(CheckerCorpus, StepsThatWaitBesideTimedRounds) {
  using Unit = fb::IntervalUnit;
  struct {
    fb::ScheduleT schedule;
    const char *found;
  } cases[] = {{sampleSchedules()[0].build(), "waits for its peer in a step, while a timed round"},
               {keeperSchedule(), "waits for whether the step is finite on all ranks, while"}};
  for (auto &[schedule, found] : cases)
    for (int64_t after : {0, 1000}) {
      SCOPED_TRACE(schedule.name);
      EXPECT_THAT(codes(checkOf(besideRounds(schedule, Unit::Steps, after))), IsEmpty());
      CheckReport report = checkOf(besideRounds(schedule, Unit::Milliseconds, after));
      EXPECT_THAT(codes(report), Contains("B160"));
      EXPECT_THAT(texts(report), HasSubstr(found));
    }
}

TEST(CheckerCorpus, AfterUpdateBesideTimedRounds) {
  fb::ScheduleT schedule = sampleSchedules()[0].build();
  schedule.programs[0]->event = fb::Event::AfterUpdate;
  for (auto &buffer : schedule.programs[0]->buffers)
    buffer->role = fb::Role::Weight;
  EXPECT_THAT(texts(checkOf(besideRounds(schedule, fb::IntervalUnit::Milliseconds, 0))),
              HasSubstr("runs only once all ranks agree that the step is finite, while"));
}

TEST(CheckerCorpus, RoundsAreNotBesideThemselves) {
  EXPECT_THAT(codes(checkOf(asyncAverageSchedule(fb::IntervalUnit::Milliseconds))), IsEmpty());
}

TEST(CheckerCorpus, LaunchThatOverlapsItself) {
  fb::ScheduleT s = gradientAllReduceSchedule();
  auto &launch = *findPlace(s, 0, fb::Action::Launch)->step().action.AsLaunch();
  // The rank's own part of the input becomes the whole gradient.
  fb::RangeT &own = *launch.inputs[0]->ranges[0];
  own.offset = static_cast<uint32_t>(s.expressions.size());
  s.expressions.push_back(std::make_unique<fb::ExprT>());
  own.bytes = s.programs.front()->buffers[0]->bytes;
  CheckReport report = checkOf(s);
  EXPECT_THAT(texts(report), HasSubstr("they overlap in part"));
}

TEST(CheckerCorpus, ProgramsThatDoNotExpand) {
  fb::ScheduleT s = bytegradSchedule();
  wrap(s, s.programs.front()->buffers[1]->bytes, fb::ExprOp::Min, 5000);
  CheckReport report = checkOf(s);
  ASSERT_THAT(codes(report), ::testing::ElementsAre("B100")) << texts(report);
  EXPECT_THAT(texts(report), HasSubstr("of 'coded', which has 5000"));
}

// Peers and guards of the step: pairing (step, step + 1 mod world) every second step.
TEST(CheckerTest, LooksAtSeveralSteps) {
  auto made = [](int64_t shift) {
    ScheduleBuilder s("pairs");
    E zero = s.constant(0), bytes = s.length() * s.elementBytes(), n = s.world(),
      two = s.constant(2);
    uint32_t copy = s.kernel("copy");
    s.program("gradient", fb::Event::Gradient, 1, zero, s.step() % two * (1 < n) * bytes);
    uint32_t g = s.jobBuffer("g", fb::Role::Gradient), a = s.scratch("a", bytes);
    uint32_t in = s.slots("in", s.constant(1), bytes), arrived = s.events("arrived", s.constant(1));
    s.ifThen(1 < n, [&] {
      E distance = s.step() % (n - 1) + 1;
      uint32_t guard = (s.step() % two == 1).node;
      s.send((s.rank() + distance) % n, 0, S::range(g, zero, bytes)).guard = guard;
      s.recv((s.rank() - distance + shift) % n, 0, in, zero, bytes, {}, S::event(arrived, zero))
          .guard = guard;
      s.launch(copy, S::list(S::one(S::view(in, zero, zero, bytes))),
               S::list(S::one(S::range(a, zero, bytes))), s.length(),
               S::list(S::event(arrived, zero)))
          .guard = guard;
      s.release(in, zero).guard = guard;
    });
    return s.take();
  };
  CheckReport good = checkOf(made(0));
  EXPECT_THAT(good.findings, IsEmpty()) << texts(good);
  EXPECT_GT(good.cases, 300u);
  CheckReport bad = checkOf(made(1));
  EXPECT_THAT(codes(bad), ::testing::Contains("B101")) << texts(bad);
  EXPECT_EQ(bad.findings.front().step, 1);
}

TEST(CheckerTest, FindingsNameEverything) {
  fb::ScheduleT s = decentralizedSchedule();
  erase(*findPlace(s, 1, fb::Action::Send), 0);
  CheckReport report = checkOf(s);
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(
      report.findings.front().text(),
      "B101 program 'before_forward', world 3, length 1, F32, step 0, rank 2, queue Net, "
      "step 2 (decentralized.mlir:5:5): Recv of 4 bytes from rank 0 on channel 1 has no Send: "
      "rank 0 has 0 to rank 2, which receives 1");
}

TEST(CheckerTest, KeepsFindingsFew) {
  fb::ScheduleT s = gradientAllReduceSchedule();
  erase(*findPlace(s, 0, fb::Action::Send), 0);
  EXPECT_LE(checkOf(s).findings.size(), 3u) << "one finding per fault, not per rank and world";
  CheckOptions options;
  options.findingsMax = 1;
  EXPECT_EQ(checkOf(s, options).findings.size(), 1u);
}

} // namespace
} // namespace bagua::compiler
