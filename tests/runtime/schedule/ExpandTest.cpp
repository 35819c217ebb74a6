// expand() and the expressions: values, what is left out, every refusal.
#include "SampleSchedules.h"
#include "ScheduleBuilder.h"

#include "bagua/Expand.h"

#include <gmock/gmock.h>

#include <limits>
#include <optional>

namespace bagua::rt::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using S = ScheduleBuilder;

BindValues bindValues(int64_t world, int64_t rank, int64_t length,
                      fb::DType dtype = fb::DType::F32) {
  BindValues values;
  values.world = world;
  values.rank = rank;
  values.length = length;
  values.dtype = dtype;
  return values;
}

StatusOr<FlatProgram> expandFirst(const std::shared_ptr<const Schedule> &schedule,
                                  const BindValues &values) {
  return expand(*schedule, *schedule->ir().programs.front(), values);
}

TEST(ExpandTest, SamplesExpandAndSendTheBytesTheyPromise) {
  for (const SampleSchedule &sample : sampleSchedules()) {
    auto schedule = loadOrDie(sample.build());
    for (int64_t world : {1, 2, 3, 4, 5, 8, 16})
      for (int64_t length : {0, 1, 31, 2047, 2048, 2049, 999983})
        for (int64_t rank = 0; rank < world; ++rank)
          for (fb::DType dtype : schedule->ir().dtypes) {
            SCOPED_TRACE(::testing::Message() << sample.name << " world " << world << " rank "
                                              << rank << " length " << length);
            auto flat = expandFirst(schedule, bindValues(world, rank, length, dtype));
            ASSERT_TRUE(flat.ok()) << flat.status();
            uint64_t sent = 0;
            for (const FlatStep &step : flat->steps)
              if (step.kind == FlatStep::Kind::Send)
                sent += step.range.bytes;
            EXPECT_EQ(sent, static_cast<uint64_t>(flat->wireBytes.intValue));
            EXPECT_EQ(flat->rounds.intValue, world == 1 ? 0 : sample.name[0] == 'd' ? 1 : 2);
          }
  }
}

/// A schedule with one program whose steps the test adds: one job buffer "g",
/// slots "in" (2 of 64 bytes), events "e" (4).
class ExpandMadeTest : public ::testing::Test {
protected:
  ScheduleBuilder s{"made", 1, {fb::DType::F32, fb::DType::F64}};
  E zero = s.constant(0), one = s.constant(1);
  uint32_t kernel = s.kernel("copy");
  uint32_t g, in, e;

  ExpandMadeTest() {
    s.program("gradient", fb::Event::Gradient, 1, zero, zero);
    g = s.jobBuffer("g", fb::Role::Gradient);
    in = s.slots("in", s.constant(2), s.constant(64));
    e = s.events("e", s.constant(4));
    s.line(12);
  }

  Status expandStatus(BindValues values = bindValues(2, 0, 16)) {
    schedule_ = loadOrDie(s.take());
    return expandFirst(schedule_, values).status();
  }
  FlatProgram expandOk(BindValues values = bindValues(2, 0, 16)) {
    schedule_ = loadOrDie(s.take());
    auto flat = expandFirst(schedule_, values);
    EXPECT_TRUE(flat.ok()) << flat.status();
    return *std::move(flat);
  }
  E bytes(int64_t value) { return s.constant(value); }
  auto whole() { return S::list(S::one(S::range(g, zero, bytes(64)))); }

  std::shared_ptr<const Schedule> schedule_;
};

#define EXPECT_REFUSED(status, text)                                                               \
  do {                                                                                             \
    Status refusedStatus = (status);                                                               \
    EXPECT_FALSE(refusedStatus.ok());                                                              \
    EXPECT_THAT(std::string(refusedStatus.message()), HasSubstr(text));                            \
  } while (false)

TEST_F(ExpandMadeTest, NegativeBindValues) {
  schedule_ = loadOrDie(bytegradSchedule());
  auto refused = [&](auto &&change) {
    BindValues values = bindValues(2, 0, 16);
    change(values);
    return expandFirst(schedule_, values).status();
  };
  EXPECT_REFUSED(refused([](auto &v) { v.world = 0; }), "rank inside it");
  EXPECT_REFUSED(refused([](auto &v) { v.rank = 2; }), "rank inside it");
  EXPECT_REFUSED(refused([](auto &v) { v.rank = -1; }), "rank inside it");
  EXPECT_REFUSED(refused([](auto &v) { v.localRank = 1; }), "local rank 1 of 1");
  EXPECT_REFUSED(refused([](auto &v) { v.nodes = 0; }), "0 nodes");
  EXPECT_REFUSED(refused([](auto &v) { v.length = -1; }), "expected a length of 0 to");
  EXPECT_REFUSED(refused([](auto &v) { v.length = std::numeric_limits<int64_t>::max(); }),
                 "expected a length of 0 to");
  EXPECT_REFUSED(refused([](auto &v) { v.dtype = fb::DType::F64; }),
                 "does not accept buckets of F64");
}

TEST_F(ExpandMadeTest, NegativeRangeOutsideBuffer) {
  s.launch(kernel, S::list(S::one(S::range(g, bytes(4), bytes(61)))), whole(), bytes(1));
  EXPECT_REFUSED(expandStatus(),
                 "schedule 'made': program 'gradient' (made.mlir:12:5), rank 0 of 2, "
                 "length 16: Launch: input: bytes [4, 4 + 61) of 'g', which has 64");
}

TEST_F(ExpandMadeTest, NegativeRangeThatWouldWrapAround) {
  E huge = s.constant(std::numeric_limits<int64_t>::max());
  s.launch(kernel, S::list(S::one(S::range(g, huge, huge))), whole(), bytes(1));
  EXPECT_REFUSED(expandStatus(), "which has 64");
}

TEST_F(ExpandMadeTest, NegativeNegativeBytes) {
  s.send(one, 0, S::range(g, zero, bytes(-4)));
  EXPECT_REFUSED(expandStatus(), "Send: source is -4, expected at least 0");
}

TEST_F(ExpandMadeTest, NegativeOverflowNamesTheExpression) {
  E huge = s.constant(std::numeric_limits<int64_t>::max());
  s.send(one, 0, S::range(g, zero, huge + huge));
  EXPECT_REFUSED(expandStatus(), "(Add): overflow or division by zero on 9223372036854775807");
}

TEST_F(ExpandMadeTest, NegativeDivisionByZero) {
  s.send(one, 0, S::range(g, zero, floorDiv(one, zero)));
  EXPECT_REFUSED(expandStatus(), "(FloorDiv): overflow or division by zero on 1 and 0");
}

TEST_F(ExpandMadeTest, NegativePeerOutsideWorldOrSelf) {
  s.send(s.loop(9) + 0, 0, S::range(g, zero, bytes(4)));
  // The loop variable ranges over what is tried below.
  fb::ScheduleT made = s.take();
  auto send = std::move(made.programs[0]->body[0]);
  made.programs[0]->body.clear();
  for (int64_t peer : {-1, 0, 2}) {
    fb::ScheduleT copy = made;
    copy.programs[0]->body.push_back(std::make_unique<fb::StepT>(*send));
    auto constant = std::make_unique<fb::ExprT>();
    constant->value = peer;
    copy.expressions.push_back(std::move(constant));
    copy.programs[0]->body[0]->action.AsSend()->peer =
        static_cast<uint32_t>(copy.expressions.size() - 1);
    EXPECT_REFUSED(expandFirst(loadOrDie(copy), bindValues(2, 0, 16)).status(),
                   "expected another rank below 2");
  }
}

TEST_F(ExpandMadeTest, NegativeSlotIndex) {
  s.recv(one, 0, in, s.constant(2), bytes(4));
  EXPECT_REFUSED(expandStatus(), "slot in[2], expected an index below 2");
}

TEST_F(ExpandMadeTest, NegativeMessageLargerThanSlot) {
  s.recv(one, 0, in, zero, bytes(65));
  EXPECT_REFUSED(expandStatus(), "65 bytes into slot in[0], expected at most 64");
}

TEST_F(ExpandMadeTest, NegativeSecondMessageInSlot) {
  s.recv(one, 0, in, zero, bytes(4));
  s.recv(one, 0, in, zero, bytes(4));
  EXPECT_REFUSED(expandStatus(), "slot in[0] still holds a message");
}

TEST_F(ExpandMadeTest, NegativeReleaseOfFreeSlot) {
  s.release(in, zero);
  EXPECT_REFUSED(expandStatus(), "slot in[0] holds no message");
}

TEST_F(ExpandMadeTest, NegativeReadOfFreeSlot) {
  s.launch(kernel, S::list(S::one(S::view(in, one, zero, bytes(4)))), whole(), bytes(1));
  EXPECT_REFUSED(expandStatus(), "slot in[1] holds no message");
}

// The view is as long as its message, not as its slot.
TEST_F(ExpandMadeTest, NegativeReadBeyondMessage) {
  s.recv(one, 0, in, zero, bytes(8));
  s.launch(kernel, S::list(S::one(S::view(in, zero, bytes(4), bytes(8)))), whole(), bytes(2));
  EXPECT_REFUSED(expandStatus(), "bytes [4, 4 + 8) of 'in', which has 8");
}

TEST_F(ExpandMadeTest, NegativeReadUnderAnotherGuard) {
  s.recv(one, 0, in, zero, bytes(8)).guard = s.step().node;
  s.launch(kernel, S::list(S::one(S::view(in, zero, zero, bytes(8)))), whole(), bytes(2));
  EXPECT_REFUSED(expandStatus(), "received under another guard");
}

TEST_F(ExpandMadeTest, NegativeEventIndex) {
  s.send(one, 0, S::range(g, zero, bytes(4)), S::list(S::event(e, s.constant(4))));
  EXPECT_REFUSED(expandStatus(), "event e[4], expected an index below 4");
}

TEST_F(ExpandMadeTest, NegativeEventSignalledTwice) {
  s.forLoop(0, zero, s.constant(2),
            [&] { s.send(one, 0, S::range(g, zero, bytes(4)), {}, S::event(e, zero)); });
  EXPECT_REFUSED(expandStatus(), "signals event e[0] a second time");
}

TEST_F(ExpandMadeTest, NegativeJobBufferOfAnotherSize) {
  fb::ScheduleT made = s.take();
  made.programs[0]->buffers[0]->bytes = one.node;
  EXPECT_REFUSED(expandFirst(loadOrDie(made), bindValues(2, 0, 16)).status(),
                 "buffer 'g': bytes is 1, expected the bucket's 64");
}

TEST_F(ExpandMadeTest, NegativeStepTimeValueAtBind) {
  // A parameter's time is a property of the schedule: the validator lets no such use through.
  E perStep = s.parameter("period", 4, true);
  s.send(one, 0, S::range(g, zero, perStep));
  EXPECT_REFUSED(validate(s.take()), "[S14]");
}

TEST_F(ExpandMadeTest, NegativeHugeLoopsFailAtOnce) {
  E low = s.constant(std::numeric_limits<int64_t>::min());
  E high = s.constant(std::numeric_limits<int64_t>::max());
  s.forLoop(0, low, high, [] {});
  Status status = expandStatus();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_REFUSED(status, "unrolls to too many");
}

TEST_F(ExpandMadeTest, NegativeNestedLoopsEnd) {
  E many = s.constant(1500);
  s.forLoop(0, zero, many,
            [&] { s.forLoop(1, zero, many, [&] { s.forLoop(2, zero, many, [] {}); }); });
  EXPECT_EQ(expandStatus().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(ExpandMadeTest, NegativeTooManySteps) {
  s.forLoop(0, zero, s.constant((1 << 18) + 1),
            [&] { s.send(one, 0, S::range(g, zero, bytes(4))); });
  Status status = expandStatus();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_REFUSED(status, "unrolls to more than 262144 steps");
}

TEST_F(ExpandMadeTest, NegativeTooManyWaitsRangesEventsSlots) {
  E many = s.constant(1 << 17);
  s.forLoop(0, zero, s.constant(100), [&] {
    s.send(one, 0, S::range(g, zero, bytes(4)), S::list(S::eventsFor(1, zero, many, e, zero)));
  });
  EXPECT_EQ(expandStatus().code(), absl::StatusCode::kResourceExhausted);
}

// 2^32 visits without a table of results; each node once with it.
TEST_F(ExpandMadeTest, SharedSubexpressionsAreEvaluatedOnce) {
  E deep = zero;
  for (int i = 0; i < 32; ++i)
    deep = deep + deep;
  s.send(one, 0, S::range(g, zero, deep));
  EXPECT_TRUE(expandOk().steps.empty());
}

TEST_F(ExpandMadeTest, LoopVariablesMakeValuesAnew) {
  s.forLoop(0, zero, s.constant(3), [&] {
    s.forLoop(1, s.loop(0), s.constant(3),
              [&] { s.send(one, 0, S::range(g, s.loop(0) * 16 + s.loop(1) * 4, bytes(4))); });
  });
  std::vector<uint64_t> offsets;
  for (const FlatStep &step : expandOk().steps)
    offsets.push_back(step.range.offset);
  EXPECT_THAT(offsets, ElementsAre(0, 4, 8, 20, 24, 40));
}

// Bytes of zero are no transfer: the step and its release vanish, its event is set.
TEST_F(ExpandMadeTest, LeavesOutEmptyTransfersAndLaunches) {
  s.send(one, 0, S::range(g, zero, zero), {}, S::event(e, zero));
  s.recv(one, 0, in, zero, zero, {}, S::event(e, one));
  s.launch(kernel, whole(), whole(), zero, {}, S::event(e, s.constant(2)));
  s.release(in, zero);
  s.send(one, 0, S::range(g, zero, bytes(8)),
         S::list(S::eventsFor(0, zero, s.constant(4), e, s.loop(0))), {});
  FlatProgram flat = expandOk();
  ASSERT_EQ(flat.steps.size(), 1u);
  EXPECT_THAT(flat.steps[0].waits, ElementsAre(3));
}

// The wait stands before the step that is left out.
TEST_F(ExpandMadeTest, ForgetsEarlierWaitsForWhatIsLeftOut) {
  s.send(one, 0, S::range(g, zero, bytes(8)), S::list(S::event(e, zero), S::event(e, one)));
  s.launch(kernel, whole(), whole(), zero, {}, S::event(e, one));
  EXPECT_THAT(expandOk().steps[0].waits, ElementsAre(0));
}

TEST_F(ExpandMadeTest, ConditionsSelectRangesWaitsAndBranches) {
  E even = s.loop(1) % s.constant(2) == 0;
  auto some = std::make_unique<fb::RangesT>();
  some->variable = 1;
  some->lower = zero.node;
  some->upper = s.constant(4).node;
  some->ranges.push_back(S::range(g, s.loop(1) * 4, bytes(4), even));
  s.ifThen(
      s.rank() == 0, [] {},
      [&] {
        s.launch(kernel, S::list(std::move(some)), whole(), bytes(1),
                 S::list(S::eventsFor(1, zero, s.constant(4), e, s.loop(1), even)));
      });
  schedule_ = loadOrDie(s.take());
  EXPECT_TRUE(expandFirst(schedule_, bindValues(2, 0, 16))->steps.empty());
  auto flat = expandFirst(schedule_, bindValues(2, 1, 16));
  ASSERT_TRUE(flat.ok()) << flat.status();
  ASSERT_EQ(flat->steps.size(), 1u);
  EXPECT_THAT(flat->steps[0].waits, ElementsAre(0, 2));
  ASSERT_EQ(flat->steps[0].inputs.size(), 2u);
  EXPECT_EQ(flat->steps[0].inputs[1].offset, 8u);
}

TEST_F(ExpandMadeTest, GuardsPeersAndScalarsMayWaitForTheStep) {
  E period = s.parameter("period", 3, true);
  E factor = s.parameter("factor", 5);
  s.forLoop(0, one, s.constant(3), [&] {
    fb::StepT &send =
        s.send((s.step() * factor + s.loop(0)) % s.world(), 0, S::range(g, zero, bytes(4)));
    send.guard = (s.step() % period == 0).node;
  });
  s.launch(kernel, whole(), whole(), bytes(1), {}, {},
           {toFloat(s.step()) / 4.0, s.rank() + 1, s.step()});
  BindValues bind = bindValues(4, 0, 16);
  FlatProgram flat = expandOk(bind);
  ASSERT_EQ(flat.steps.size(), 3u);
  const FlatStep &second = flat.steps[1];
  EXPECT_TRUE(second.guarded);
  EXPECT_FALSE(second.peer.isConstant);
  StepValues step;
  step.step = 7;
  EXPECT_EQ(*evaluateInt(*schedule_, second.peer, bind, step), (7 * 5 + 2) % 4);
  bind.intParameters = {0, 6};
  EXPECT_EQ(*evaluateInt(*schedule_, second.peer, bind, step), (7 * 6 + 2) % 4);
  EXPECT_EQ(*evaluateInt(*schedule_, second.guard, bind, step), 0);
  step.intParameters = {7};
  EXPECT_EQ(*evaluateInt(*schedule_, second.guard, bind, step), 1);
  const FlatStep &launch = flat.steps[2];
  EXPECT_EQ(*evaluateFloat(*schedule_, launch.scalars[0], bind, step), 1.75);
  EXPECT_EQ(*evaluateFloat(*schedule_, launch.scalars[1], bind, step), 1.0);
  EXPECT_EQ(*evaluateFloat(*schedule_, launch.scalars[2], bind, step), 7.0);
}

TEST_F(ExpandMadeTest, StepTimeErrorsNameStepAndRank) {
  s.send(s.constant(1) % s.step(), 0, S::range(g, zero, bytes(4)));
  FlatProgram flat = expandOk();
  auto peer = evaluateInt(*schedule_, flat.steps[0].peer, bindValues(2, 0, 16), StepValues());
  EXPECT_REFUSED(peer.status(), "(Mod), step 0, rank 0: overflow or division by zero on 1 and 0");
}

// A guard that is 1 is none; one that is 0 at every step stays, so that its event keeps its order.
TEST_F(ExpandMadeTest, GuardsKnownAtBind) {
  s.send(one, 0, S::range(g, zero, bytes(4))).guard = one.node;
  s.send(one, 0, S::range(g, zero, bytes(4))).guard = zero.node;
  FlatProgram flat = expandOk();
  EXPECT_FALSE(flat.steps[0].guarded);
  EXPECT_TRUE(flat.steps[1].guarded);
  EXPECT_EQ(flat.steps[1].guard.intValue, 0);
}

constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

TEST(ExpressionTest, IntegerOperations) {
  struct Case {
    fb::ExprOp op;
    int64_t a, b;
    std::optional<int64_t> expected;
  };
  using enum fb::ExprOp;
  const Case cases[] = {
      {Add, 2, 3, 5},          {Add, kMax, 1, {}},    {Sub, 2, 3, -1},
      {Sub, kMin, 1, {}},      {Mul, -4, 3, -12},     {Mul, kMax, 2, {}},
      {FloorDiv, 7, 2, 3},     {FloorDiv, -7, 2, -4}, {FloorDiv, 7, -2, -4},
      {FloorDiv, -7, -2, 3},   {FloorDiv, -8, 2, -4}, {FloorDiv, kMin, -1, {}},
      {FloorDiv, 1, 0, {}},    {CeilDiv, 7, 2, 4},    {CeilDiv, -7, 2, -3},
      {CeilDiv, 7, -2, -3},    {CeilDiv, -7, -2, 4},  {CeilDiv, 8, 2, 4},
      {CeilDiv, kMin, -1, {}}, {CeilDiv, 0, 0, {}},   {CeilDiv, kMax, 2, kMax / 2 + 1},
      {Mod, 7, 3, 1},          {Mod, -7, 3, 2},       {Mod, 7, -3, -2},
      {Mod, -7, -3, -1},       {Mod, kMin, -1, 0},    {Mod, 5, 0, {}},
      {Mod, 6, 3, 0},          {Min, -1, 4, -1},      {Max, -1, 4, 4},
      {Eq, 3, 3, 1},           {Ne, 3, 3, 0},         {Lt, 2, 3, 1},
      {Lt, 3, 3, 0},           {Le, 3, 3, 1},         {Le, 4, 3, 0},
      {And, 2, 4, 1},          {And, 2, 0, 0},        {Or, 0, 8, 1},
      {Or, 0, 0, 0},           {Not, 5, 0, 0},        {Not, 0, 0, 1},
  };
  for (const Case &c : cases) {
    ScheduleBuilder s("made");
    E zero = s.constant(0);
    E value = s.expr(c.op, s.constant(c.a), s.constant(c.b));
    s.program("gradient", fb::Event::Gradient, 1, zero, zero);
    uint32_t kernel = s.kernel("copy");
    uint32_t g = s.jobBuffer("g", fb::Role::Gradient);
    // At bind and at a step: Step - Step is 0 and makes the expression wait.
    E later = s.expr(c.op, s.constant(c.a) + (s.step() - s.step()), s.constant(c.b));
    auto range = S::list(S::one(S::range(g, zero, zero)));
    s.launch(kernel, {}, std::move(range), s.constant(1), {}, {}, {later});
    if (c.expected)
      s.launch(kernel, {}, S::list(S::one(S::range(g, zero, zero))), s.constant(1), {}, {},
               {value});
    auto schedule = loadOrDie(s.take());
    auto flat = expandFirst(schedule, bindValues(1, 0, 0));
    ASSERT_TRUE(flat.ok()) << flat.status();
    auto atStep =
        evaluateInt(*schedule, flat->steps[0].scalars[0], bindValues(1, 0, 0), StepValues());
    SCOPED_TRACE(::testing::Message() << fb::EnumNameExprOp(c.op) << " " << c.a << " " << c.b);
    if (c.expected) {
      EXPECT_EQ(flat->steps[1].scalars[0].intValue, *c.expected);
      ASSERT_TRUE(atStep.ok()) << atStep.status();
      EXPECT_EQ(*atStep, *c.expected);
    } else {
      EXPECT_FALSE(atStep.ok());
    }
  }
}

TEST(ExpressionTest, FloatOperations) {
  ScheduleBuilder s("made");
  using enum fb::ExprOp;
  E zero = s.constant(0), x = s.real(1.5), y = s.real(-0.25);
  s.program("gradient", fb::Event::Gradient, 1, zero, zero);
  uint32_t kernel = s.kernel("copy");
  uint32_t g = s.jobBuffer("g", fb::Role::Gradient);
  std::vector<E> values = {s.expr(FAdd, x, y),
                           s.expr(FSub, x, y),
                           s.expr(FMul, x, y),
                           s.expr(FDiv, x, y),
                           s.expr(FDiv, x, s.real(0)),
                           s.expr(FPowInt, x, s.constant(3)),
                           s.expr(FPowInt, x, s.constant(-2)),
                           s.expr(FPowInt, x, zero),
                           s.expr(FPowInt, s.real(1), s.constant(kMin)),
                           s.expr(Select, zero, x, y),
                           toFloat(s.constant(-7))};
  s.launch(kernel, {}, S::list(S::one(S::range(g, zero, zero))), s.constant(1), {}, {}, values);
  auto schedule = loadOrDie(s.take());
  auto flat = expandFirst(schedule, bindValues(1, 0, 0));
  ASSERT_TRUE(flat.ok()) << flat.status();
  std::vector<double> got;
  for (const StepExpr &scalar : flat->steps[0].scalars)
    got.push_back(scalar.floatValue);
  EXPECT_THAT(got, ElementsAre(1.25, 1.75, -0.375, -6.0, std::numeric_limits<double>::infinity(),
                               3.375, 1 / 2.25, 1.0, 1.0, -0.25, -7.0));
}

// What is not chosen may be meaningless.
TEST(ExpressionTest, EvaluatesOnlyWhatIsChosen) {
  ScheduleBuilder s("made");
  using enum fb::ExprOp;
  E zero = s.constant(0), one = s.constant(1), bad = floorDiv(one, zero);
  s.program("gradient", fb::Event::Gradient, 1, select(one, one, bad), select(zero, bad, one));
  s.scratch("a", s.expr(And, zero, bad));
  s.scratch("b", s.expr(Or, one, bad));
  auto flat = expandFirst(loadOrDie(s.take()), bindValues(1, 0, 0));
  ASSERT_TRUE(flat.ok()) << flat.status();
  EXPECT_EQ(flat->rounds.intValue, 1);
  EXPECT_EQ(flat->wireBytes.intValue, 1);
  EXPECT_THAT(flat->bufferBytes, ElementsAre(0, 1));
}

TEST_F(ExpandMadeTest, BucketIsItsNumber) {
  s.launch(kernel, whole(), whole(), s.bucket());
  BindValues values = bindValues(2, 0, 16);
  values.bucket = 5;
  EXPECT_EQ(expandOk(values).steps.at(0).count, 5u);
}

TEST_F(ExpandMadeTest, CostsOfStepTime) {
  fb::ScheduleT made = gossipMomentumSchedule();
  auto schedule = loadOrDie(made);
  for (int64_t rank : {0, 1, 2}) {
    BindValues values = bindValues(3, rank, 16);
    auto flat = expandFirst(schedule, values);
    ASSERT_TRUE(flat.ok()) << flat.status();
    for (int64_t step = 0; step < 8; ++step) {
      StepValues stepValues;
      stepValues.step = step;
      bool paired = pairingPartner(7, step, 3, rank) != rank;
      EXPECT_EQ(*evaluateInt(*schedule, flat->wireBytes, values, stepValues), paired ? 64 : 0);
      EXPECT_EQ(*evaluateInt(*schedule, flat->rounds, values, stepValues), paired ? 1 : 0);
    }
  }
}

TEST_F(ExpandMadeTest, NegativeCostBelowZero) {
  s.program("after", fb::Event::AfterUpdate, 0, zero, zero - one);
  schedule_ = loadOrDie(s.take());
  EXPECT_REFUSED(expand(*schedule_, *schedule_->ir().programs[1], bindValues(2, 0, 16)).status(),
                 "wire_bytes is -1, expected at least 0");
}

// A pairing known at bind: the idle rank's transfers are guarded by "my partner is another".
TEST_F(ExpandMadeTest, PeerMayBeOneselfWhereAGuardLeavesItOut) {
  s.send(zero, 0, S::range(g, zero, bytes(4))).guard = (zero != s.rank()).node;
  s.recv(zero, 0, in, zero, bytes(4)).guard = (zero != s.rank()).node;
  s.release(in, zero).guard = (zero != s.rank()).node;
  schedule_ = loadOrDie(s.take());
  for (int64_t rank : {0, 1}) {
    auto flat = expandFirst(schedule_, bindValues(2, rank, 16));
    ASSERT_TRUE(flat.ok()) << flat.status();
    for (const FlatStep &step : flat->steps)
      EXPECT_EQ(step.guarded, rank == 0);
  }
}

TEST_F(ExpandMadeTest, NegativeStateOfAnotherSize) {
  s.state("v", fb::StateDomain::Shard);
  s.stateBuffer("v", 0, false, bytes(24));
  schedule_ = loadOrDie(s.take());
  EXPECT_EQ(expandFirst(schedule_, bindValues(3, 2, 16)).status(), absl::OkStatus());
  EXPECT_REFUSED(expandFirst(schedule_, bindValues(3, 1, 16)).status(),
                 "buffer 'v': bytes is 24, expected the 20 of state 'v'");
}

TEST(ExpandTest, IntervalsOfAsyncProgramsFollowTheParameters) {
  auto schedule = loadOrDie(asyncAverageSchedule());
  BindValues values;
  values.length = 8;
  auto expanded = [&](int64_t interval, int64_t warmup) {
    values.intParameters = {interval, warmup};
    return expand(*schedule, *schedule->program(fb::Event::Async), values);
  };
  auto flat = expanded(7, 100);
  ASSERT_TRUE(flat.ok()) << flat.status();
  EXPECT_EQ(flat->every, 7);
  EXPECT_EQ(flat->after, 100);
  EXPECT_THAT(std::string(expanded(0, 0).status().message()),
              HasSubstr("every is 0, expected at least 1"));
  EXPECT_THAT(std::string(expanded(1, -1).status().message()),
              HasSubstr("after is -1, expected at least 0"));
}

TEST(ExpandTest, StatesHaveTheElementsOfTheirDomain) {
  fb::ScheduleT schedule;
  schedule.grain = 4;
  fb::StateT state;
  BindValues values = bindValues(4, 2, 10);
  auto elements = [&](fb::StateDomain domain, uint32_t copies = 1) {
    state.domain = domain;
    state.copies = copies;
    return stateElements(schedule, state, values);
  };
  EXPECT_EQ(elements(fb::StateDomain::Bucket), 10);
  EXPECT_EQ(elements(fb::StateDomain::Shard), 4); // SPEC.md, "Domains": [4, 8).
  EXPECT_EQ(elements(fb::StateDomain::Scalar), 1);
  EXPECT_EQ(elements(fb::StateDomain::Neighbors, 3), 30);
}

TEST(ExpandTest, ShardsTileTheBucketAtMultiplesOfTheGrain) {
  for (int64_t grain : {1, 4, 2048})
    for (int64_t length : {0, 1, 10, 5000, 999983})
      for (int64_t world : {1, 2, 3, 7, 64}) {
        int64_t end = 0;
        for (int64_t rank = 0; rank < world; ++rank) {
          Shard shard = shardOf(length, grain, world, rank);
          EXPECT_EQ(shard.begin, end);
          EXPECT_TRUE(shard.begin % grain == 0 || shard.begin == length);
          EXPECT_GE(shard.end, shard.begin);
          end = shard.end;
        }
        EXPECT_EQ(end, length);
      }
}

TEST(ExpandTest, PairingIsAMatching) {
  for (int64_t world : {1, 2, 3, 4, 5, 8, 17, 256})
    for (int64_t round : {0, 1, 2, 1000, -5}) {
      int64_t idle = 0;
      for (int64_t rank = 0; rank < world; ++rank) {
        int64_t partner = pairingPartner(3, round, world, rank);
        ASSERT_GE(partner, 0);
        ASSERT_LT(partner, world);
        EXPECT_EQ(pairingPartner(3, round, world, partner), rank);
        idle += partner == rank;
      }
      EXPECT_EQ(idle, world % 2) << "world " << world << ", round " << round;
    }
}

TEST(ExpandTest, PairingsDifferByRoundAndSeedAndAreEven) {
  constexpr int64_t kWorld = 6, kRounds = 6000;
  int64_t met[kWorld] = {};
  int64_t sameAsOtherSeed = 0;
  for (int64_t round = 0; round < kRounds; ++round) {
    ++met[pairingPartner(1, round, kWorld, 0)];
    sameAsOtherSeed += pairingPartner(1, round, kWorld, 0) == pairingPartner(2, round, kWorld, 0);
  }
  EXPECT_EQ(met[0], 0);
  for (int64_t partner = 1; partner < kWorld; ++partner) // Five standard deviations.
    EXPECT_NEAR(static_cast<double>(met[partner]), kRounds / 5.0, 155);
  EXPECT_NEAR(static_cast<double>(sameAsOtherSeed), kRounds / 5.0, 155);
}

// Files rely on these for ever.
TEST(ExpandTest, PairingIsTheDocumentedOne) {
  std::vector<int64_t> partners;
  for (int64_t rank = 0; rank < 7; ++rank)
    partners.push_back(pairingPartner(42, 9, 7, rank));
  EXPECT_THAT(partners, ElementsAre(4, 2, 1, 6, 0, 5, 3));
}

} // namespace
} // namespace bagua::rt::testing
