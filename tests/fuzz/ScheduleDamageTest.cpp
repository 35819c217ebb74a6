// Ten thousand damaged schedule files, the same ones in every run: each is refused with a message
// or works within its bounds; nothing crashes, hangs or takes memory without end.
#include "ExerciseSchedule.h"
#include "SampleSchedules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <sys/resource.h>

namespace bagua::rt::testing {
namespace {

constexpr size_t kHeader = sizeof(FileHeader);

/// Peak memory of the process so far, in MiB; 0 where a sanitizer makes it meaningless.
size_t peakMebibytes() {
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
  return 0;
#endif
#endif
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<size_t>(usage.ru_maxrss) / 1024;
}

class ScheduleDamageTest : public ::testing::TestWithParam<size_t> {
protected:
  const SampleSchedule &sample() const { return allSampleSchedules()[GetParam()]; }
  std::mt19937_64 random_{20240u +
                          GetParam()}; ///< Raw output only: distributions differ by library.
  size_t pick(size_t below) { return random_() % below; }

  void TearDown() override { EXPECT_LT(peakMebibytes(), 1500u); }
};

// Bits, bytes, words and pieces of the FlatBuffer; truncations with and without a header that
// agrees.
TEST_P(ScheduleDamageTest, DamagedBytes) {
  const std::vector<uint8_t> good = *serialize(sample().build());
  constexpr uint32_t kWords[] = {0,          1,          2,          0x7f,      0xff,
                                 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff};
  size_t loaded = 0, expanded = 0;
  for (int i = 0; i < 3400; ++i) {
    std::vector<uint8_t> file = good;
    auto at = [&] { return kHeader + pick(file.size() - kHeader); };
    for (size_t damages = 1 + pick(4); damages > 0 && file.size() > kHeader + 8; --damages)
      switch (pick(6)) {
      case 0:
      case 1:
        file[at()] ^= static_cast<uint8_t>(1u << pick(8));
        break;
      case 2:
        file[at()] = static_cast<uint8_t>(random_());
        break;
      case 3: {
        uint32_t word = kWords[pick(std::size(kWords))];
        std::memcpy(&file[kHeader + pick((file.size() - kHeader) / 4) * 4], &word, 4);
        break;
      }
      case 4: {
        size_t from = at(), to = at(),
               bytes = std::min({pick(64), file.size() - from, file.size() - to});
        std::memmove(&file[to], &file[from], bytes);
        break;
      }
      case 5:
        if (pick(8) == 0)
          file.resize(at());
        else
          file[pick(kHeader)] ^= static_cast<uint8_t>(pick(32) == 0);
        break;
      }
    if (pick(2) == 0)
      file = fileAround(std::span(file).subspan(kHeader));
    Reached reached = exerciseSchedule(file);
    loaded += reached.loaded;
    expanded += reached.expansions > 0;
  }
  // Else the damages no longer reach what they are to test.
  EXPECT_GT(loaded, 100u);
  EXPECT_GT(expanded, 100u);
}

/// Changes one number somewhere in a schedule.
class Damager {
public:
  Damager(fb::ScheduleT &schedule, std::mt19937_64 &random)
      : schedule_(schedule), random_(random) {}

  void damage() {
    fb::ScheduleT &s = schedule_;
    fb::ProgramT &program = *s.programs[pick(s.programs.size())];
    if (!s.states.empty() && pick(8) == 0)
      return state(s, program);
    switch (pick(10)) {
    case 0: {
      fb::ExprT &expr = *s.expressions[pick(s.expressions.size())];
      expr.op = static_cast<fb::ExprOp>(pick(static_cast<size_t>(fb::ExprOp::MAX) + 2));
      break;
    }
    case 1: {
      fb::ExprT &expr = *s.expressions[pick(s.expressions.size())];
      constexpr int64_t kValues[] = {0, 1, -1, 2, 3, 100, 1 << 20, INT64_MAX, INT64_MIN};
      expr.value = kValues[pick(std::size(kValues))];
      break;
    }
    case 2: {
      fb::ExprT &expr = *s.expressions[pick(s.expressions.size())];
      number(pick(3) == 0 ? expr.a : pick(2) == 0 ? expr.b : expr.c);
      break;
    }
    case 3:
      number(program.buffers[pick(program.buffers.size())]->bytes);
      break;
    case 4: {
      if (program.slots.empty())
        return body(program.body);
      fb::SlotsT &slots = *program.slots[pick(program.slots.size())];
      number(pick(2) == 0 ? slots.count : slots.bytes);
      break;
    }
    case 5:
      if (program.events.empty())
        return body(program.body);
      number(program.events[pick(program.events.size())]->count);
      break;
    default:
      body(program.body);
    }
  }

private:
  size_t pick(size_t below) { return random_() % below; }
  /// Mostly another expression, sometimes something out of bounds.
  void number(uint32_t &value) {
    value = pick(16) == 0   ? static_cast<uint32_t>(random_())
            : pick(16) == 0 ? kNone
                            : static_cast<uint32_t>(pick(schedule_.expressions.size()));
  }
  void small(uint32_t &value) { value = static_cast<uint32_t>(pick(6)); }

  void state(fb::ScheduleT &s, fb::ProgramT &program) {
    fb::StateT &state = *s.states[pick(s.states.size())];
    fb::BufferT &buffer = *program.buffers[pick(program.buffers.size())];
    fb::KernelT &kernel = *s.kernels[pick(s.kernels.size())];
    switch (pick(6)) {
    case 0:
      state.domain = static_cast<fb::StateDomain>(pick(5));
      return;
    case 1:
      state.copies = static_cast<uint32_t>(random_() >> pick(64));
      return;
    case 2:
      buffer.kind = static_cast<fb::BufferKind>(pick(4));
      return;
    case 3:
      small(buffer.state);
      return;
    case 4:
      buffer.next = !buffer.next;
      return;
    default:
      if (kernel.map)
        kernel.map->inputs = static_cast<uint16_t>(random_());
      else
        kernel.name = "map";
    }
  }

  void body(std::vector<std::unique_ptr<fb::StepT>> &steps) {
    if (steps.empty())
      return;
    size_t index = pick(steps.size());
    fb::StepT &step = *steps[index];
    if (fb::ForT *loop = step.action.AsFor(); loop && pick(4) != 0)
      return body(loop->body);
    if (fb::IfT *branch = step.action.AsIf(); branch && pick(8) != 0)
      return body(pick(2) == 0 || branch->otherwise.empty() ? branch->then : branch->otherwise);
    if (pick(16) == 0) {
      step.if_finite = !step.if_finite;
      return;
    }
    switch (pick(8)) {
    case 0:
      steps.erase(steps.begin() + static_cast<ptrdiff_t>(index));
      return;
    case 1:
      std::swap(steps[index], steps[pick(steps.size())]);
      return;
    case 2:
      steps.insert(steps.begin() + static_cast<ptrdiff_t>(pick(steps.size())),
                   std::make_unique<fb::StepT>(step));
      return;
    case 3:
      number(step.guard);
      return;
    case 4:
      if (!step.waits.empty())
        event(*step.waits[pick(step.waits.size())]);
      else if (step.signal)
        event(*step.signal);
      return;
    default:
      action(step);
    }
  }

  void event(fb::EventRefT &ref) {
    switch (pick(5)) {
    case 0:
      return small(ref.id);
    case 1:
      return number(ref.index);
    case 2:
      return number(ref.when);
    case 3:
      small(ref.variable);
      [[fallthrough]];
    default:
      return number(ref.upper);
    }
  }

  void range(fb::RangeT &range) {
    switch (pick(6)) {
    case 0:
      range.space = static_cast<fb::Space>(pick(3));
      return;
    case 1:
      return small(range.id);
    case 2:
      return number(range.index);
    case 3:
      return number(range.offset);
    case 4:
      return number(range.bytes);
    default:
      return number(range.when);
    }
  }

  void ranges(std::vector<std::unique_ptr<fb::RangesT>> &lists) {
    if (lists.empty())
      return;
    fb::RangesT &list = *lists[pick(lists.size())];
    if (pick(3) == 0)
      number(pick(2) == 0 ? list.lower : list.upper);
    else if (!list.ranges.empty())
      range(*list.ranges[pick(list.ranges.size())]);
  }

  void action(fb::StepT &step) {
    if (fb::ForT *loop = step.action.AsFor()) {
      pick(4) == 0 ? small(loop->variable) : number(pick(2) == 0 ? loop->lower : loop->upper);
    } else if (fb::IfT *branch = step.action.AsIf()) {
      number(branch->condition);
    } else if (fb::SendT *send = step.action.AsSend()) {
      pick(3) == 0 ? number(send->peer) : range(*send->source);
    } else if (fb::RecvT *recv = step.action.AsRecv()) {
      number(pick(3) == 0 ? recv->peer : pick(2) == 0 ? recv->index : recv->bytes);
    } else if (fb::ReleaseT *release = step.action.AsRelease()) {
      number(release->index);
    } else if (fb::LaunchT *launch = step.action.AsLaunch()) {
      switch (pick(5)) {
      case 0:
        return number(launch->count);
      case 1:
        if (!launch->scalars.empty())
          return number(launch->scalars[pick(launch->scalars.size())]);
        [[fallthrough]];
      case 2:
        return ranges(launch->outputs);
      default:
        return ranges(launch->inputs);
      }
    } else if (fb::PublishT *publish = step.action.AsPublish()) {
      small(publish->state);
    }
  }

  fb::ScheduleT &schedule_;
  std::mt19937_64 &random_;
};

// Well-formed files whose fields are wrong: these get past the FlatBuffers verifier.
TEST_P(ScheduleDamageTest, DamagedFields) {
  size_t loaded = 0, expanded = 0, refused = 0;
  for (int i = 0; i < 3400; ++i) {
    fb::ScheduleT damaged = sample().build();
    for (size_t damages = 1 + pick(3); damages > 0; --damages)
      Damager(damaged, random_).damage();
    flatbuffers::FlatBufferBuilder builder;
    fb::FinishScheduleBuffer(builder, fb::Schedule::Pack(builder, &damaged));
    Reached reached = exerciseSchedule(fileAround({builder.GetBufferPointer(), builder.GetSize()}));
    loaded += reached.loaded;
    expanded += reached.expansions;
    refused += reached.refusals;
  }
  EXPECT_GT(loaded, 300u);
  EXPECT_GT(expanded, 300u);
  EXPECT_GT(refused, 100u);
}

INSTANTIATE_TEST_SUITE_P(Samples, ScheduleDamageTest, ::testing::Values(0, 1, 2, 3, 4, 5, 7),
                         [](const auto &info) { return allSampleSchedules()[info.param].name; });

} // namespace
} // namespace bagua::rt::testing
