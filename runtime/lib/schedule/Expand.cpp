// Unrolls one program for one rank. Work and memory are bounded whatever the file says: every loop
// iteration, step, range, wait and scalar is paid from one budget, expressions from another.
#include "bagua/Expand.h"

#include "Expressions.h"
#include "Limits.h"

#include "absl/strings/str_cat.h"

#include <algorithm>
#include <tuple>

namespace bagua::rt {
namespace {

constexpr size_t kWorkBudget = size_t{1} << 21;
/// Slots of all pools and events of all arrays, each.
constexpr size_t kMaxDeclared = size_t{1} << 18;

bool sameExpr(const StepExpr &a, const StepExpr &b) {
  return a.isConstant == b.isConstant &&
         (a.isConstant ? a.intValue == b.intValue : a.node == b.node && a.loops == b.loops);
}

class Expander {
public:
  Expander(const Schedule &schedule, const fb::ProgramT &program, const BindValues &values,
           const PoolFacts &facts)
      : schedule_(schedule), program_(program), values_(values),
        evaluator_(schedule.ir(), facts, values) {}

  StatusOr<FlatProgram> run();

private:
  /// What a slot holds, in program order.
  struct SlotState {
    enum : uint8_t { Free, Nothing, Message } held = Free; ///< Nothing: a message of zero bytes.
    bool guarded = false;
    uint64_t bytes = 0;
    StepExpr guard;
  };
  enum class EventState : uint8_t { Unset, Signalled, SetAtOnce };

  Status error(absl::string_view what) const;
  Status limit(absl::string_view what) const {
    return absl::ResourceExhaustedError(error(what).message());
  }
  Status pay(uint64_t work) {
    if (work > workLeft_)
      return limit("unrolls to too many steps, ranges or waits");
    workLeft_ -= work;
    return absl::OkStatus();
  }
  StatusOr<int64_t> evaluate(uint32_t node, absl::string_view what);
  StatusOr<uint64_t> evaluateSize(uint32_t node, absl::string_view what);
  StatusOr<bool> isLeftOut(uint32_t when, absl::string_view what);
  StatusOr<StepExpr> freeze(uint32_t node, absl::string_view what);
  StatusOr<StepExpr> cost(uint32_t node, absl::string_view what);
  /// Calls `each` for every value of `variable`, or once.
  template <typename F>
  Status forEach(uint32_t variable, uint32_t lower, uint32_t upper, absl::string_view what,
                 F &&each);

  Status declare();
  Status body(const std::vector<std::unique_ptr<fb::StepT>> &steps);
  Status step(const fb::StepT &step);
  Status transferPeer(uint32_t node, FlatStep &flat, absl::string_view what);
  Status send(const fb::SendT &send, FlatStep &flat, bool &leftOut);
  Status recv(const fb::RecvT &recv, FlatStep &flat, bool &leftOut);
  Status release(const fb::ReleaseT &release, FlatStep &flat, bool &leftOut);
  Status launch(const fb::LaunchT &launch, FlatStep &flat, bool &leftOut);
  StatusOr<SlotState *> slot(uint32_t pool, uint32_t indexNode, uint32_t &index,
                             absl::string_view what);
  Status checkGuard(const SlotState &slot, const FlatStep &flat, absl::string_view what) const;
  Status range(const fb::RangeT &range, const FlatStep &flat, absl::string_view what,
               std::vector<ByteRange> &out);
  Status ranges(const std::vector<std::unique_ptr<fb::RangesT>> &lists, const FlatStep &flat,
                absl::string_view what, std::vector<ByteRange> &out);
  StatusOr<uint32_t> event(const fb::EventRefT &ref, absl::string_view what);

  const Schedule &schedule_;
  const fb::ProgramT &program_;
  const BindValues &values_;
  BindEvaluator evaluator_;
  FlatProgram flat_;
  std::vector<uint32_t> firstSlot_; ///< Of each pool, into slotStates_.
  std::vector<uint64_t> eventCounts_;
  std::vector<EventState> eventStates_;
  std::vector<SlotState> slotStates_;
  uint32_t location_ = kNone;
  size_t workLeft_ = kWorkBudget;
};

Status Expander::error(absl::string_view what) const {
  std::string where =
      absl::StrCat("schedule '", schedule_.ir().name, "': program '", program_.name, "'");
  if (location_ != kNone)
    absl::StrAppend(&where, " (", schedule_.location(location_), ")");
  return absl::InvalidArgumentError(absl::StrCat(where, ", rank ", values_.rank, " of ",
                                                 values_.world, ", length ", values_.length, ": ",
                                                 what));
}

StatusOr<int64_t> Expander::evaluate(uint32_t node, absl::string_view what) {
  int64_t value = 0;
  if (!evaluator_.evaluateInt(node, value))
    return Status(evaluator_.status().code(),
                  error(absl::StrCat(what, ": ", evaluator_.status().message())).message());
  return value;
}

StatusOr<uint64_t> Expander::evaluateSize(uint32_t node, absl::string_view what) {
  BAGUA_ASSIGN(int64_t value, evaluate(node, what));
  if (value < 0)
    return error(absl::StrCat(what, " is ", value, ", expected at least 0"));
  return static_cast<uint64_t>(value);
}

StatusOr<bool> Expander::isLeftOut(uint32_t when, absl::string_view what) {
  if (when == kNone)
    return false;
  BAGUA_ASSIGN(int64_t value, evaluate(when, what));
  return value == 0;
}

StatusOr<StepExpr> Expander::freeze(uint32_t node, absl::string_view what) {
  StepExpr expr;
  if (!evaluator_.freeze(node, expr))
    return Status(evaluator_.status().code(),
                  error(absl::StrCat(what, ": ", evaluator_.status().message())).message());
  BAGUA_TRY(pay(expr.loops.size()));
  return expr;
}

StatusOr<StepExpr> Expander::cost(uint32_t node, absl::string_view what) {
  BAGUA_ASSIGN(StepExpr expr, freeze(node, what));
  if (expr.isConstant && expr.intValue < 0)
    return error(absl::StrCat(what, " is ", expr.intValue, ", expected at least 0"));
  return expr;
}

template <typename F>
Status Expander::forEach(uint32_t variable, uint32_t lower, uint32_t upper, absl::string_view what,
                         F &&each) {
  if (variable == kNone)
    return each();
  BAGUA_ASSIGN(int64_t begin, evaluate(lower, what));
  BAGUA_ASSIGN(int64_t end, evaluate(upper, what));
  if (begin >= end)
    return absl::OkStatus();
  // Unsigned: the difference of two i64 may not fit one.
  BAGUA_TRY(pay(static_cast<uint64_t>(end) - static_cast<uint64_t>(begin)));
  evaluator_.pushLoop(variable);
  for (int64_t i = begin; i < end; ++i) {
    evaluator_.setLoop(i);
    BAGUA_TRY(each());
  }
  evaluator_.popLoop();
  return absl::OkStatus();
}

Status Expander::declare() {
  for (const auto &buffer : program_.buffers) {
    std::string what = absl::StrCat("buffer '", buffer->name, "': bytes");
    BAGUA_ASSIGN(uint64_t bytes, evaluateSize(buffer->bytes, what));
    if (bytes > static_cast<uint64_t>(kLimits.bufferBytes))
      return error(absl::StrCat(what, " is ", bytes, ", expected at most ", kLimits.bufferBytes));
    uint64_t jobBytes = static_cast<uint64_t>(values_.length * elementBytes(values_.dtype));
    if (buffer->kind == fb::BufferKind::Job && bytes != jobBytes)
      return error(absl::StrCat(what, " is ", bytes, ", expected the bucket's ", jobBytes));
    if (buffer->kind == fb::BufferKind::State) {
      const fb::StateT &state = *schedule_.ir().states[buffer->state];
      auto stateBytes = static_cast<uint64_t>(stateElements(schedule_.ir(), state, values_) *
                                              elementBytes(values_.dtype));
      if (bytes != stateBytes)
        return error(absl::StrCat(what, " is ", bytes, ", expected the ", stateBytes, " of state '",
                                  state.name, "'"));
    }
    flat_.bufferBytes.push_back(bytes);
  }
  uint64_t slotCount = 0;
  for (const auto &slots : program_.slots) {
    std::string what = absl::StrCat("slots '", slots->name, "'");
    BAGUA_ASSIGN(uint64_t count, evaluateSize(slots->count, what + ": count"));
    BAGUA_ASSIGN(uint64_t bytes, evaluateSize(slots->bytes, what + ": bytes"));
    if (count > kMaxDeclared || slotCount + count > kMaxDeclared)
      return limit(absl::StrCat(what, ": count is ", count, ", expected at most ", kMaxDeclared,
                                " slots in all pools"));
    if (bytes > static_cast<uint64_t>(kLimits.bufferBytes) ||
        count * bytes > static_cast<uint64_t>(kLimits.bufferBytes))
      return limit(absl::StrCat(what, ": ", count, " slots of ", bytes, " bytes, expected at most ",
                                kLimits.bufferBytes, " bytes"));
    firstSlot_.push_back(static_cast<uint32_t>(slotCount));
    slotCount += count;
    flat_.slots.push_back({count, bytes});
  }
  uint64_t eventCount = 0;
  for (const auto &events : program_.events) {
    std::string what = absl::StrCat("events '", events->name, "': count");
    BAGUA_ASSIGN(uint64_t count, evaluateSize(events->count, what));
    if (count > kMaxDeclared || eventCount + count > kMaxDeclared)
      return limit(absl::StrCat(what, " is ", count, ", expected at most ", kMaxDeclared,
                                " events in all arrays"));
    flat_.firstEvent.push_back(static_cast<uint32_t>(eventCount));
    eventCounts_.push_back(count);
    eventCount += count;
  }
  flat_.eventCount = static_cast<uint32_t>(eventCount);
  eventStates_.assign(eventCount, EventState::Unset);
  slotStates_.resize(slotCount);
  BAGUA_ASSIGN(flat_.wireBytes, cost(program_.wire_bytes, "wire_bytes"));
  BAGUA_ASSIGN(flat_.rounds, cost(program_.rounds, "rounds"));
  if (program_.event != fb::Event::Async)
    return absl::OkStatus();
  BAGUA_ASSIGN(flat_.every, evaluate(program_.every, "every"));
  if (program_.after != kNone) {
    BAGUA_ASSIGN(flat_.after, evaluate(program_.after, "after"));
  }
  for (auto [value, least, what] : {std::tuple{flat_.every, 1, "every"}, {flat_.after, 0, "after"}})
    if (value < least)
      return error(absl::StrCat(what, " is ", value, ", expected at least ", least));
  return absl::OkStatus();
}

StatusOr<FlatProgram> Expander::run() {
  const BindValues &v = values_;
  if (v.world < 1 || v.rank < 0 || v.rank >= v.world)
    return error("expected a world of at least 1 and a rank inside it");
  if (v.localSize < 1 || v.localRank < 0 || v.localRank >= v.localSize || v.nodes < 1)
    return error(absl::StrCat("local rank ", v.localRank, " of ", v.localSize, " on ", v.nodes,
                              " nodes, expected a rank inside its host"));
  if (v.length < 0 || v.length > kLimits.bufferBytes / elementBytes(v.dtype))
    return error(
        absl::StrCat("expected a length of 0 to ", kLimits.bufferBytes / elementBytes(v.dtype)));
  const auto &dtypes = schedule_.ir().dtypes;
  if (std::find(dtypes.begin(), dtypes.end(), v.dtype) == dtypes.end())
    return error(absl::StrCat("does not accept buckets of ", fb::EnumNameDType(v.dtype)));
  flat_.source = &program_;
  BAGUA_TRY(declare());
  BAGUA_TRY(body(program_.body));

  // An event may be awaited before the step that would signal it is known to be left out.
  for (FlatStep &step : flat_.steps) {
    std::erase_if(step.waits, [&](uint32_t e) { return eventStates_[e] == EventState::SetAtOnce; });
    std::sort(step.waits.begin(), step.waits.end());
    step.waits.erase(std::unique(step.waits.begin(), step.waits.end()), step.waits.end());
  }
  return std::move(flat_);
}

Status Expander::body(const std::vector<std::unique_ptr<fb::StepT>> &steps) {
  for (const auto &step : steps) {
    BAGUA_TRY(pay(1));
    location_ = step->location;
    if (const fb::ForT *loop = step->action.AsFor()) {
      BAGUA_TRY(forEach(loop->variable, loop->lower, loop->upper, "For",
                        [&] { return body(loop->body); }));
    } else if (const fb::IfT *branch = step->action.AsIf()) {
      BAGUA_ASSIGN(int64_t condition, evaluate(branch->condition, "If: condition"));
      BAGUA_TRY(body(condition != 0 ? branch->then : branch->otherwise));
    } else {
      BAGUA_TRY(this->step(*step));
    }
  }
  return absl::OkStatus();
}

Status Expander::step(const fb::StepT &step) {
  FlatStep flat{};
  flat.queue = step.queue;
  flat.location = step.location;
  flat.ifFinite = step.if_finite;
  if (step.guard != kNone) {
    BAGUA_ASSIGN(flat.guard, freeze(step.guard, "guard"));
    flat.guarded = !flat.guard.isConstant || flat.guard.intValue == 0;
  }
  bool leftOut = false;
  switch (step.action.type) {
  case fb::Action::Send:
    BAGUA_TRY(send(*step.action.AsSend(), flat, leftOut));
    break;
  case fb::Action::Recv:
    BAGUA_TRY(recv(*step.action.AsRecv(), flat, leftOut));
    break;
  case fb::Action::Release:
    BAGUA_TRY(release(*step.action.AsRelease(), flat, leftOut));
    break;
  case fb::Action::Launch:
    BAGUA_TRY(launch(*step.action.AsLaunch(), flat, leftOut));
    break;
  case fb::Action::Wait:
    flat.kind = FlatStep::Kind::Wait;
    flat.gate = step.action.AsWait()->gate;
    break;
  case fb::Action::Publish:
    flat.kind = FlatStep::Kind::Publish;
    flat.state = step.action.AsPublish()->state;
    break;
  default:
    BAGUA_CHECK(false); // The validator has refused it.
  }
  if (step.signal) {
    BAGUA_ASSIGN(flat.signal, event(*step.signal, "signal"));
    EventState &state = eventStates_[flat.signal];
    if (state != EventState::Unset)
      return error(absl::StrCat("signals event ", program_.events[step.signal->id]->name, "[",
                                flat.signal - flat_.firstEvent[step.signal->id],
                                "] a second time: events are one-shot"));
    state = leftOut ? EventState::SetAtOnce : EventState::Signalled;
  }
  if (leftOut)
    return absl::OkStatus();
  for (const auto &ref : step.waits)
    BAGUA_TRY(forEach(ref->variable, ref->lower, ref->upper, "wait", [&]() -> Status {
      BAGUA_TRY(pay(1));
      BAGUA_ASSIGN(bool absent, isLeftOut(ref->when, "wait: when"));
      if (absent)
        return absl::OkStatus();
      BAGUA_ASSIGN(uint32_t number, event(*ref, "wait"));
      flat.waits.push_back(number);
      return absl::OkStatus();
    }));
  if (flat_.steps.size() == kMaxSteps)
    return limit(absl::StrCat("unrolls to more than ", kMaxSteps, " steps"));
  flat_.steps.push_back(std::move(flat));
  return absl::OkStatus();
}

StatusOr<uint32_t> Expander::event(const fb::EventRefT &ref, absl::string_view what) {
  BAGUA_ASSIGN(int64_t index, evaluate(ref.index, what));
  if (index < 0 || static_cast<uint64_t>(index) >= eventCounts_[ref.id])
    return error(absl::StrCat(what, ": event ", program_.events[ref.id]->name, "[", index,
                              "], expected an index below ", eventCounts_[ref.id]));
  return flat_.firstEvent[ref.id] + static_cast<uint32_t>(index);
}

Status Expander::transferPeer(uint32_t node, FlatStep &flat, absl::string_view what) {
  if (flat.guarded && flat.guard.isConstant)
    return absl::OkStatus(); // Never happens, and its peer may mean nothing.
  BAGUA_ASSIGN(flat.peer, freeze(node, what));
  const StepExpr &peer = flat.peer;
  if (peer.isConstant &&
      (peer.intValue < 0 || peer.intValue >= values_.world || peer.intValue == values_.rank))
    return error(
        absl::StrCat(what, " is ", peer.intValue, ", expected another rank below ", values_.world));
  return absl::OkStatus();
}

Status Expander::send(const fb::SendT &send, FlatStep &flat, bool &leftOut) {
  flat.kind = FlatStep::Kind::Send;
  flat.channel = send.channel;
  std::vector<ByteRange> source;
  BAGUA_TRY(range(*send.source, flat, "Send: source", source));
  flat.range = source.front();
  leftOut = flat.range.bytes == 0;
  return leftOut ? absl::OkStatus() : transferPeer(send.peer, flat, "Send: peer");
}

StatusOr<Expander::SlotState *> Expander::slot(uint32_t pool, uint32_t indexNode, uint32_t &index,
                                               absl::string_view what) {
  BAGUA_ASSIGN(int64_t value, evaluate(indexNode, what));
  if (value < 0 || static_cast<uint64_t>(value) >= flat_.slots[pool].count)
    return error(absl::StrCat(what, ": slot ", program_.slots[pool]->name, "[", value,
                              "], expected an index below ", flat_.slots[pool].count));
  index = static_cast<uint32_t>(value);
  return &slotStates_[firstSlot_[pool] + index];
}

/// A message received under a guard exists only where the guard holds: so must its uses.
Status Expander::checkGuard(const SlotState &slot, const FlatStep &flat,
                            absl::string_view what) const {
  if (slot.guarded != flat.guarded || (slot.guarded && !sameExpr(slot.guard, flat.guard)))
    return error(absl::StrCat(what, ": its message is received under another guard"));
  return absl::OkStatus();
}

Status Expander::recv(const fb::RecvT &recv, FlatStep &flat, bool &leftOut) {
  flat.kind = FlatStep::Kind::Recv;
  flat.channel = recv.channel;
  flat.range.space = fb::Space::Slot;
  flat.range.id = recv.slots;
  BAGUA_ASSIGN(SlotState * state, slot(recv.slots, recv.index, flat.range.index, "Recv"));
  BAGUA_ASSIGN(flat.range.bytes, evaluateSize(recv.bytes, "Recv: bytes"));
  absl::string_view pool = program_.slots[recv.slots]->name;
  if (flat.range.bytes > flat_.slots[recv.slots].bytes)
    return error(absl::StrCat("Recv: ", flat.range.bytes, " bytes into slot ", pool, "[",
                              flat.range.index, "], expected at most ",
                              flat_.slots[recv.slots].bytes));
  if (state->held != SlotState::Free)
    return error(absl::StrCat("Recv: slot ", pool, "[", flat.range.index,
                              "] still holds a message, expected a Release before"));
  leftOut = flat.range.bytes == 0;
  state->held = leftOut ? SlotState::Nothing : SlotState::Message;
  state->bytes = flat.range.bytes;
  state->guarded = flat.guarded;
  state->guard = flat.guard;
  return leftOut ? absl::OkStatus() : transferPeer(recv.peer, flat, "Recv: peer");
}

Status Expander::release(const fb::ReleaseT &release, FlatStep &flat, bool &leftOut) {
  flat.kind = FlatStep::Kind::Release;
  flat.range.space = fb::Space::Slot;
  flat.range.id = release.slots;
  BAGUA_ASSIGN(SlotState * state, slot(release.slots, release.index, flat.range.index, "Release"));
  if (state->held == SlotState::Free)
    return error(absl::StrCat("Release: slot ", program_.slots[release.slots]->name, "[",
                              flat.range.index, "] holds no message"));
  leftOut = state->held == SlotState::Nothing;
  if (!leftOut)
    BAGUA_TRY(checkGuard(*state, flat, "Release"));
  flat.range.bytes = state->bytes;
  state->held = SlotState::Free;
  return absl::OkStatus();
}

Status Expander::range(const fb::RangeT &range, const FlatStep &flat, absl::string_view what,
                       std::vector<ByteRange> &out) {
  BAGUA_TRY(pay(1));
  BAGUA_ASSIGN(bool absent, isLeftOut(range.when, what));
  if (absent)
    return absl::OkStatus();
  ByteRange result;
  result.space = range.space;
  result.id = range.id;
  BAGUA_ASSIGN(result.offset, evaluateSize(range.offset, what));
  BAGUA_ASSIGN(result.bytes, evaluateSize(range.bytes, what));
  uint64_t limit = 0;
  absl::string_view name;
  if (range.space == fb::Space::Slot) {
    name = program_.slots[range.id]->name;
    BAGUA_ASSIGN(SlotState * state, slot(range.id, range.index, result.index, what));
    if (state->held == SlotState::Free)
      return error(absl::StrCat(what, ": slot ", name, "[", result.index, "] holds no message"));
    if (state->held == SlotState::Message)
      BAGUA_TRY(checkGuard(*state, flat, what));
    limit = state->bytes; // Not the slot's size: a view is as long as its message.
  } else {
    name = program_.buffers[range.id]->name;
    limit = flat_.bufferBytes[range.id];
  }
  if (result.offset > limit || result.bytes > limit - result.offset)
    return error(absl::StrCat(what, ": bytes [", result.offset, ", ", result.offset, " + ",
                              result.bytes, ") of '", name, "', which has ", limit));
  out.push_back(result);
  return absl::OkStatus();
}

Status Expander::ranges(const std::vector<std::unique_ptr<fb::RangesT>> &lists,
                        const FlatStep &flat, absl::string_view what, std::vector<ByteRange> &out) {
  for (const auto &list : lists)
    BAGUA_TRY(forEach(list->variable, list->lower, list->upper, what, [&]() -> Status {
      for (const auto &range : list->ranges)
        BAGUA_TRY(this->range(*range, flat, what, out));
      return absl::OkStatus();
    }));
  return absl::OkStatus();
}

Status Expander::launch(const fb::LaunchT &launch, FlatStep &flat, bool &leftOut) {
  flat.kind = FlatStep::Kind::Launch;
  flat.kernel = launch.kernel;
  BAGUA_ASSIGN(flat.count, evaluateSize(launch.count, "Launch: count"));
  leftOut = flat.count == 0;
  if (leftOut)
    return absl::OkStatus();
  BAGUA_TRY(ranges(launch.inputs, flat, "Launch: input", flat.inputs));
  BAGUA_TRY(ranges(launch.outputs, flat, "Launch: output", flat.outputs));
  for (uint32_t scalar : launch.scalars) {
    BAGUA_TRY(pay(1));
    BAGUA_ASSIGN(StepExpr expr, freeze(scalar, "Launch: scalar"));
    flat.scalars.push_back(std::move(expr));
  }
  return absl::OkStatus();
}

} // namespace

int64_t elementBytes(fb::DType dtype) { return dtype == fb::DType::F64 ? 8 : 4; }

Shard shardOf(int64_t length, int64_t grain, int64_t world, int64_t rank) {
  int64_t grains = length / grain + (length % grain != 0 ? 1 : 0);
  auto begin = [&](int64_t i) {
    // Wide: world and grains are each of any size.
    auto first = static_cast<__int128>(i) * grains / world * grain;
    return static_cast<int64_t>(std::min<__int128>(length, first));
  };
  return {begin(rank), begin(rank + 1)};
}

int64_t stateElements(const fb::ScheduleT &schedule, const fb::StateT &state,
                      const BindValues &values) {
  switch (state.domain) {
  case fb::StateDomain::Bucket:
    return values.length;
  case fb::StateDomain::Shard: {
    Shard shard = shardOf(values.length, schedule.grain, values.world, values.rank);
    return shard.end - shard.begin;
  }
  case fb::StateDomain::Scalar:
    return 1;
  case fb::StateDomain::Neighbors:
    return values.length * static_cast<int64_t>(state.copies);
  }
  BAGUA_CHECK(false); // The validator has refused it.
}

StatusOr<FlatProgram> expand(const Schedule &schedule, const fb::ProgramT &program,
                             const BindValues &values) {
  BAGUA_ASSIGN(PoolFacts facts, poolFacts(schedule.ir()));
  return Expander(schedule, program, values, facts).run();
}

} // namespace bagua::rt
