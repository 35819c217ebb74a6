// Executes sched programs for all ranks of a group, in one thread. First each rank's program is
// unrolled to a list of steps; then the queues are stepped until all have ended, or nobody can go
// on.
#include "bagua/compiler/Interpreter.h"

#include "bagua/Expand.h"
#include "bagua/compiler/KernelCode.h"
#include "bagua/compiler/ScalarEvaluator.h"
#include "bagua/dialect/Sched/Sched.h"

#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/FormatVariadic.h"

#include "../Steps.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <random>

using namespace mlir;
namespace sched = bagua::ir::sched;

namespace bagua::compiler {
namespace {

constexpr size_t kMaxSteps = size_t{1} << 20; ///< Of all ranks together.

struct Event {
  bool isSet = false;
  sched::StepInterface setBy; ///< The step that signals it, once that is known.
};

struct EventArray {
  sched::EventsOp op;
  std::vector<Event> events;
};

struct EventRef {
  EventArray *array = nullptr;
  size_t index = 0;
  Event &get() const { return array->events[index]; }
};

struct Transfer;

struct Slot {
  /// What it holds at this point of the unrolled program, which is not yet what it holds at run
  /// time.
  enum : uint8_t { Free, Nothing, Message } unrolled = Free; ///< Nothing: a message of zero bytes.
  size_t unrolledBytes = 0;

  bool reserved = false;           ///< A receive has been issued.
  const std::byte *view = nullptr; ///< Not null once the message has arrived.
  size_t bytes = 0;
  Bytes copy;                 ///< Backs `view` if messages are copied.
  Transfer *source = nullptr; ///< The send that ends on release.
};

struct Pool {
  sched::SlotsOp op;
  size_t bytes = 0;
  std::vector<Slot> slots;
};

struct Buffer {
  StringRef name;
  Bytes *bytes = nullptr; ///< The job's, or `scratch`.
  Bytes scratch;
};

/// Bytes of a buffer, or of the message in a slot.
struct RangeRef {
  Buffer *buffer = nullptr;
  Slot *slot = nullptr;
  size_t offset = 0, bytes = 0;
};

/// A send or a receive between its issue and its end.
struct Transfer {
  sched::StepInterface op;
  int64_t rank = 0, peer = 0;
  int32_t channel = 0;
  size_t bytes = 0;
  const std::byte *data = nullptr; ///< Send.
  Slot *slot = nullptr;            ///< Receive.
  std::optional<EventRef> signal;
  bool ended = false;
};

struct Step {
  sched::StepInterface op;
  std::vector<EventRef> waits;
  std::optional<EventRef> signal;
  bool skipped = false; ///< Guard is 0.
  int64_t peer = 0;     ///< Send, Recv.
  RangeRef range;       ///< Send: source. Recv, Release: the slot.
  std::vector<RangeRef> inputs, outputs;
  std::vector<double> scalars;
  size_t count = 0;
};

struct Rank {
  int64_t rank = 0;
  ScalarEvaluator values;
  std::deque<Buffer> buffers; // A deque keeps addresses.
  std::deque<Pool> pools;
  std::deque<EventArray> events;
  llvm::DenseMap<Value, Buffer *> bufferOf;
  llvm::DenseMap<Value, Pool *> poolOf;
  llvm::DenseMap<Value, EventArray *> eventsOf;
  llvm::DenseMap<Value, std::vector<RangeRef>> rangesOf;
  llvm::DenseMap<Value, std::vector<EventRef>> eventListOf;
  std::vector<Step> steps[2]; ///< By queue.
  size_t next[2] = {0, 0};
  std::deque<Transfer> sends; ///< In order of issue; some have ended.
  int64_t formulaWireBytes = 0;
};

class Interpreter {
public:
  /// `step`: its number, or that of the round.
  Interpreter(sched::ProgramOp program, int64_t step, const Inputs &inputs,
              const InterpreterOptions &options, Outputs &outputs, States &states)
      : program_(program), stepNumber_(step), inputs_(inputs), options_(options), outputs_(outputs),
        states_(states), random_(options.seed), scratchBytesLeft_(options.scratchBytesMax) {}

  /// Until nobody can go on before the job opens the gate.
  LogicalResult start();
  /// Opens the gate.
  LogicalResult finish();

private:
  // Unrolling.
  InFlightDiagnostic error(Operation *op, const Rank &rank) const {
    return op->emitOpError() << "on rank " << rank.rank << " of " << inputs_.world << ", length "
                             << inputs_.length << ": ";
  }
  LogicalResult unroll(Block &block, Rank &rank);
  LogicalResult unroll(Operation *op, Rank &rank);
  LogicalResult unrollLoop(Value variable, Value lower, Value upper, Rank &rank,
                           llvm::function_ref<LogicalResult()> body);
  LogicalResult declare(Operation *op, Rank &rank);
  LogicalResult leaf(Operation *op, Rank &rank);
  LogicalResult reference(Operation *op, Rank &rank);
  LogicalResult unrollStep(sched::StepInterface op, Rank &rank);
  LogicalResult unrollAction(Step &step, Rank &rank, bool &leftOut);
  FailureOr<size_t> size(Value value, Operation *op, StringRef what, Rank &rank);
  FailureOr<EventRef> event(Value array, Value index, Operation *op, Rank &rank);
  FailureOr<Slot *> slot(Value pool, Value index, Operation *op, Rank &rank);
  LogicalResult peer(Value value, Step &step, Rank &rank);
  LogicalResult checkRange(const RangeRef &range, Operation *op, const Rank &rank) const;

  // Running.
  enum class Progress : uint8_t { Blocked, Moved, Failed };
  Progress advance(Rank &rank, sched::Queue queue);
  Progress issue(Step &step, Rank &rank);
  LogicalResult launch(Step &step, Rank &rank);
  LogicalResult match(int64_t source, int64_t target, int32_t channel);
  FailureOr<const std::byte *> readable(const RangeRef &range, Operation *op,
                                        const Rank &rank) const;
  void set(const std::optional<EventRef> &event) {
    if (event)
      event->get().isSet = true;
  }
  void log(const Rank &rank, Operation *op, StringRef what);
  LogicalResult runQueues();
  LogicalResult reportDeadlock();
  LogicalResult checkEnd();
  int64_t step() const { return static_cast<int64_t>(outputs_.gradients.size()) - 1; }

  struct Channel {
    std::deque<Transfer *> sends;
    std::deque<Transfer> receives;
  };

  sched::ProgramOp program_;
  int64_t stepNumber_;
  const Inputs &inputs_;
  const InterpreterOptions &options_;
  Outputs &outputs_;
  States &states_;
  bool gateIsOpen_ = false;
  std::vector<std::pair<StringAttr, int64_t>> published_; ///< States, and the ranks that did.
  std::mt19937_64 random_;
  std::deque<Rank> ranks_;
  std::map<std::tuple<int64_t, int64_t, int32_t>, Channel>
      channels_; ///< By source, target, channel.
  size_t stepCount_ = 0;
  size_t scratchBytesLeft_;
};

// ---- Unrolling ----

FailureOr<size_t> Interpreter::size(Value value, Operation *op, StringRef what, Rank &rank) {
  FailureOr<int64_t> result = rank.values.tryInteger(value);
  if (failed(result))
    return failure();
  if (*result < 0)
    return error(op, rank) << "expects " << what << " of at least 0, got " << *result;
  return static_cast<size_t>(*result);
}

LogicalResult Interpreter::unrollLoop(Value variable, Value lower, Value upper, Rank &rank,
                                      llvm::function_ref<LogicalResult()> body) {
  FailureOr<int64_t> begin = rank.values.tryInteger(lower), end = rank.values.tryInteger(upper);
  if (failed(begin) || failed(end))
    return failure();
  for (int64_t i = *begin; i < *end; ++i) {
    rank.values.bind(variable, i);
    if (++stepCount_ > kMaxSteps)
      return emitError(variable.getLoc()) << "unrolls to more than " << kMaxSteps << " steps";
    if (failed(body()))
      return failure();
  }
  return success();
}

LogicalResult Interpreter::unroll(Block &block, Rank &rank) {
  for (Operation &op : block)
    if (failed(unroll(&op, rank)))
      return failure();
  return success();
}

LogicalResult Interpreter::unroll(Operation *op, Rank &rank) {
  if (ScalarEvaluator::isArithmetic(op))
    return rank.values.evaluate(op);
  if (auto step = dyn_cast<sched::StepInterface>(op))
    return unrollStep(step, rank);
  if (auto loop = dyn_cast<sched::ForOp>(op))
    return unrollLoop(loop.getVariable(), loop.getLower(), loop.getUpper(), rank,
                      [&] { return unroll(*loop.getBlock(), rank); });
  if (auto branch = dyn_cast<sched::IfOp>(op)) {
    FailureOr<int64_t> condition = rank.values.tryInteger(branch.getCondition());
    if (failed(condition))
      return failure();
    Block *chosen = *condition != 0 ? branch.getThenBlock() : branch.getElseBlock();
    return chosen ? unroll(*chosen, rank) : success();
  }
  if (isa<sched::JobOp, sched::ScratchOp, sched::StateOp, sched::SlotsOp, sched::EventsOp>(op))
    return declare(op, rank);
  if (isa<sched::RangeOp, sched::ViewOp, sched::EventOp, sched::GatherOp>(op))
    return reference(op, rank);
  if (auto cost = dyn_cast<sched::CostOp>(op)) {
    FailureOr<size_t> rounds = size(cost.getRounds(), op, "rounds", rank);
    FailureOr<size_t> bytes = size(cost.getWireBytes(), op, "bytes", rank);
    if (failed(rounds) || failed(bytes))
      return failure();
    rank.formulaWireBytes = static_cast<int64_t>(*bytes);
    return success();
  }
  return leaf(op, rank);
}

LogicalResult Interpreter::declare(Operation *op, Rank &rank) {
  if (auto job = dyn_cast<sched::JobOp>(op)) {
    auto &list = job.getRole() == sched::Role::Gradient ? outputs_.gradients.back()
                                                        : outputs_.weights.back();
    Buffer &buffer = rank.buffers.emplace_back();
    buffer.name = job.getName();
    buffer.bytes = &list[static_cast<size_t>(rank.rank)];
    rank.bufferOf[job.getBuffer()] = &buffer;
    return success();
  }
  if (auto state = dyn_cast<sched::StateOp>(op)) {
    State &memory = states_.get(state.getStateAttr().getAttr());
    auto &list = state.getNext() ? memory.next : memory.committed;
    Buffer &buffer = rank.buffers.emplace_back();
    buffer.name = state.getName();
    buffer.bytes = &list[static_cast<size_t>(rank.rank)];
    rank.bufferOf[state.getBuffer()] = &buffer;
    return success();
  }
  if (auto scratch = dyn_cast<sched::ScratchOp>(op)) {
    FailureOr<size_t> bytes = size(scratch.getBytes(), op, "a size", rank);
    if (failed(bytes))
      return failure();
    if (*bytes > scratchBytesLeft_)
      return error(op, rank) << "expects scratch memory of at most " << options_.scratchBytesMax
                             << " bytes for all ranks together, got " << *bytes << " here";
    scratchBytesLeft_ -= *bytes;
    Buffer &buffer = rank.buffers.emplace_back();
    buffer.name = scratch.getName();
    buffer.scratch.assign(*bytes, std::byte{0xff}); // NaN as f32 and f64: unwritten bytes show.
    buffer.bytes = &buffer.scratch;
    rank.bufferOf[scratch.getBuffer()] = &buffer;
    return success();
  }
  constexpr size_t kCountMax = size_t{1} << 18;
  if (auto slots = dyn_cast<sched::SlotsOp>(op)) {
    FailureOr<size_t> count = size(slots.getCount(), op, "a count", rank);
    FailureOr<size_t> bytes = size(slots.getBytes(), op, "a size", rank);
    if (failed(count) || failed(bytes))
      return failure();
    if (*count > kCountMax)
      return error(op, rank) << "expects at most " << kCountMax << " slots, got " << *count;
    Pool &pool = rank.pools.emplace_back();
    pool.op = slots;
    pool.bytes = *bytes;
    pool.slots.resize(*count);
    rank.poolOf[slots.getSlots()] = &pool;
    return success();
  }
  auto events = cast<sched::EventsOp>(op);
  FailureOr<size_t> count = size(events.getCount(), op, "a count", rank);
  if (failed(count))
    return failure();
  if (*count > kCountMax)
    return error(op, rank) << "expects at most " << kCountMax << " events, got " << *count;
  EventArray &array = rank.events.emplace_back();
  array.op = events;
  array.events.resize(*count);
  rank.eventsOf[events.getEvents()] = &array;
  return success();
}

LogicalResult Interpreter::leaf(Operation *op, Rank &rank) {
  int64_t perNode = inputs_.ranksPerNode();
  if (auto parameter = dyn_cast<sched::ParameterOp>(op)) {
    auto declared = SymbolTable::lookupNearestSymbolFrom<sched::DeclareParameterOp>(
        op->getParentOfType<sched::ScheduleOp>(), parameter.getParameterAttr());
    rank.values.bind(parameter.getResult(), valueOf(inputs_, step(), parameter.getParameter(),
                                                    declared.getDefaultValue()));
    return success();
  }
  if (auto pairing = dyn_cast<sched::PairingOp>(op)) {
    FailureOr<int64_t> seed = rank.values.tryInteger(pairing.getSeed()),
                       round = rank.values.tryInteger(pairing.getRound());
    if (failed(seed) || failed(round))
      return failure();
    rank.values.bind(pairing.getResult(),
                     rt::pairingPartner(*seed, *round, inputs_.world, rank.rank));
    return success();
  }
  std::optional<int64_t> value =
      llvm::TypeSwitch<Operation *, std::optional<int64_t>>(op)
          .Case([&](sched::WorldOp) { return inputs_.world; })
          .Case([&](sched::RankOp) { return rank.rank; })
          .Case([&](sched::LocalRankOp) { return rank.rank % perNode; })
          .Case([&](sched::LocalSizeOp) { return perNode; })
          .Case([&](sched::NodesOp) { return inputs_.world / perNode; })
          .Case([&](sched::LengthOp) { return inputs_.length; })
          .Case([&](sched::ElementBytesOp) { return inputs_.elementBytes(); })
          .Case([&](sched::BucketOp) { return inputs_.bucket; })
          .Case([&](sched::StepOp) { return stepNumber_; })
          .Default([](Operation *) { return std::nullopt; });
  if (!value)
    return op->emitOpError("is unknown to the sched interpreter");
  rank.values.bind(op->getResult(0), *value);
  return success();
}

FailureOr<EventRef> Interpreter::event(Value array, Value index, Operation *op, Rank &rank) {
  FailureOr<int64_t> at = rank.values.tryInteger(index);
  if (failed(at))
    return failure();
  EventArray *events = rank.eventsOf.lookup(array);
  if (*at < 0 || static_cast<size_t>(*at) >= events->events.size())
    return error(op, rank) << "expects an event of '" << events->op.getName() << "' below "
                           << events->events.size() << ", got " << *at;
  return EventRef{events, static_cast<size_t>(*at)};
}

FailureOr<Slot *> Interpreter::slot(Value value, Value index, Operation *op, Rank &rank) {
  FailureOr<int64_t> at = rank.values.tryInteger(index);
  if (failed(at))
    return failure();
  Pool *pool = rank.poolOf.lookup(value);
  if (*at < 0 || static_cast<size_t>(*at) >= pool->slots.size())
    return error(op, rank) << "expects a slot of '" << pool->op.getName() << "' below "
                           << pool->slots.size() << ", got " << *at;
  return &pool->slots[static_cast<size_t>(*at)];
}

/// Ranges are checked where they are used: one whose list is never used may mean nothing.
LogicalResult Interpreter::checkRange(const RangeRef &range, Operation *op,
                                      const Rank &rank) const {
  if (range.slot && range.slot->unrolled == Slot::Free)
    return error(op, rank) << "expects a slot that a message was received into";
  size_t limit = range.slot ? range.slot->unrolledBytes : range.buffer->bytes->size();
  if (range.offset > limit || range.bytes > limit - range.offset) {
    InFlightDiagnostic diagnostic = error(op, rank);
    diagnostic << "expects bytes within the " << limit << " of "
               << (range.slot ? std::string("the message") : "'" + range.buffer->name.str() + "'")
               << ", got " << range.bytes << " at " << range.offset;
    return diagnostic;
  }
  return success();
}

LogicalResult Interpreter::reference(Operation *op, Rank &rank) {
  auto isLeftOut = [&](Value when) -> FailureOr<bool> {
    if (!when)
      return false;
    FailureOr<int64_t> value = rank.values.tryInteger(when);
    if (failed(value))
      return failure();
    return *value == 0;
  };
  if (auto range = dyn_cast<sched::RangeOp>(op)) {
    auto &list = rank.rangesOf[range.getRange()];
    list.clear();
    FailureOr<bool> leftOut = isLeftOut(range.getWhen());
    if (failed(leftOut) || *leftOut)
      return leftOut;
    FailureOr<size_t> offset = size(range.getOffset(), op, "an offset", rank);
    FailureOr<size_t> bytes = size(range.getBytes(), op, "a size", rank);
    if (failed(offset) || failed(bytes))
      return failure();
    list.push_back({rank.bufferOf.lookup(range.getBuffer()), nullptr, *offset, *bytes});
    return success();
  }
  if (auto view = dyn_cast<sched::ViewOp>(op)) {
    auto &list = rank.rangesOf[view.getRange()];
    list.clear();
    FailureOr<bool> leftOut = isLeftOut(view.getWhen());
    if (failed(leftOut) || *leftOut)
      return leftOut;
    FailureOr<Slot *> found = slot(view.getSlots(), view.getSlot(), op, rank);
    FailureOr<size_t> offset = size(view.getOffset(), op, "an offset", rank);
    FailureOr<size_t> bytes = size(view.getBytes(), op, "a size", rank);
    if (failed(found) || failed(offset) || failed(bytes))
      return failure();
    list.push_back({nullptr, *found, *offset, *bytes});
    return success();
  }
  if (auto one = dyn_cast<sched::EventOp>(op)) {
    auto &list = rank.eventListOf[one.getEvent()];
    list.clear();
    FailureOr<bool> leftOut = isLeftOut(one.getWhen());
    if (failed(leftOut) || *leftOut)
      return leftOut;
    FailureOr<EventRef> found = event(one.getEvents(), one.getIndex(), op, rank);
    if (failed(found))
      return failure();
    list.push_back(*found);
    return success();
  }
  auto gather = cast<sched::GatherOp>(op);
  std::vector<RangeRef> ranges;
  std::vector<EventRef> events;
  LogicalResult done = unrollLoop(
      gather.getVariable(), gather.getLower(), gather.getUpper(), rank, [&]() -> LogicalResult {
        for (Operation &inner : gather.getBlock()->without_terminator())
          if (failed(unroll(&inner, rank)))
            return failure();
        for (Value value : gather.getBlock()->getTerminator()->getOperands()) {
          if (isa<sched::EventType>(value.getType()))
            llvm::append_range(events, rank.eventListOf[value]);
          else
            llvm::append_range(ranges, rank.rangesOf[value]);
        }
        return success();
      });
  if (isa<sched::EventListType>(gather.getList().getType()))
    rank.eventListOf[gather.getList()] = std::move(events);
  else
    rank.rangesOf[gather.getList()] = std::move(ranges);
  return done;
}

LogicalResult Interpreter::peer(Value value, Step &step, Rank &rank) {
  FailureOr<int64_t> result = rank.values.tryInteger(value);
  if (failed(result))
    return failure();
  if (*result < 0 || *result >= inputs_.world || *result == rank.rank)
    return error(step.op, rank) << "expects another rank as peer, got " << *result;
  step.peer = *result;
  return success();
}

/// Sets `leftOut` for what moves or computes nothing: such a step does not exist, its event is set.
LogicalResult Interpreter::unrollAction(Step &step, Rank &rank, bool &leftOut) {
  return llvm::TypeSwitch<Operation *, LogicalResult>(step.op)
      .Case([&](sched::SendOp op) -> LogicalResult {
        FailureOr<size_t> offset = size(op.getOffset(), op, "an offset", rank);
        FailureOr<size_t> bytes = size(op.getBytes(), op, "a size", rank);
        if (failed(offset) || failed(bytes))
          return failure();
        step.range = {rank.bufferOf.lookup(op.getBuffer()), nullptr, *offset, *bytes};
        leftOut = *bytes == 0;
        return failure(failed(checkRange(step.range, op, rank)) ||
                       (!leftOut && !step.skipped && failed(peer(op.getPeer(), step, rank))));
      })
      .Case([&](sched::RecvOp op) -> LogicalResult {
        FailureOr<Slot *> found = slot(op.getSlots(), op.getSlot(), op, rank);
        FailureOr<size_t> bytes = size(op.getBytes(), op, "a size", rank);
        if (failed(found) || failed(bytes))
          return failure();
        if (*bytes > rank.poolOf.lookup(op.getSlots())->bytes)
          return error(op, rank) << "expects a message of at most "
                                 << rank.poolOf.lookup(op.getSlots())->bytes << " bytes, got "
                                 << *bytes;
        if ((*found)->unrolled != Slot::Free)
          return error(op, rank) << "expects a slot that was released before";
        leftOut = *bytes == 0;
        (*found)->unrolled = leftOut ? Slot::Nothing : Slot::Message;
        (*found)->unrolledBytes = *bytes;
        step.range = {nullptr, *found, 0, *bytes};
        return leftOut || step.skipped ? success() : peer(op.getPeer(), step, rank);
      })
      .Case([&](sched::ReleaseOp op) -> LogicalResult {
        FailureOr<Slot *> found = slot(op.getSlots(), op.getSlot(), op, rank);
        if (failed(found))
          return failure();
        if ((*found)->unrolled == Slot::Free)
          return error(op, rank) << "expects a slot that a message was received into";
        leftOut = (*found)->unrolled == Slot::Nothing;
        (*found)->unrolled = Slot::Free;
        step.range = {nullptr, *found, 0, (*found)->unrolledBytes};
        return success();
      })
      .Case([&](sched::LaunchOp op) -> LogicalResult {
        FailureOr<size_t> count = size(op.getCount(), op, "a count", rank);
        if (failed(count))
          return failure();
        step.count = *count;
        leftOut = step.count == 0;
        for (auto [operands, list] :
             {std::pair{op.getInputs(), &step.inputs}, std::pair{op.getOutputs(), &step.outputs}})
          for (Value operand : operands)
            llvm::append_range(*list, rank.rangesOf[operand]);
        for (const auto *list : {&step.inputs, &step.outputs})
          for (const RangeRef &range : *list)
            if (failed(checkRange(range, op, rank)))
              return failure();
        for (Value scalar : op.getScalars()) {
          FailureOr<double> value = rank.values.tryReal(scalar);
          if (failed(value))
            return failure();
          step.scalars.push_back(*value);
        }
        return success();
      })
      .Default([](Operation *) { return success(); });
}

LogicalResult Interpreter::unrollStep(sched::StepInterface op, Rank &rank) {
  Step step;
  step.op = op;
  bool leftOut = false;
  if (++stepCount_ > kMaxSteps)
    return op->emitOpError() << "unrolls to more than " << kMaxSteps << " steps";
  if (op.getGuard()) {
    FailureOr<int64_t> guard = rank.values.tryInteger(op.getGuard());
    if (failed(guard))
      return failure();
    step.skipped = *guard == 0;
  }
  if (failed(unrollAction(step, rank, leftOut)))
    return failure();
  if (op.getSignal()) {
    FailureOr<EventRef> signal = event(op.getSignal(), op.getSignalIndex(), op, rank);
    if (failed(signal))
      return failure();
    Event &target = signal->get();
    if (target.setBy) {
      InFlightDiagnostic diagnostic = error(op, rank);
      diagnostic << "expects an event that nobody else signals, got '"
                 << signal->array->op.getName() << "[" << signal->index << "]'";
      diagnostic.attachNote(target.setBy.getLoc()) << "signalled here too";
      return diagnostic;
    }
    target.setBy = op;
    target.isSet = leftOut;
    step.signal = *signal;
  }
  if (leftOut)
    return success();
  for (Value list : op.getAfter())
    llvm::append_range(step.waits, rank.eventListOf[list]);
  rank.steps[static_cast<size_t>(op.getStepQueue())].push_back(std::move(step));
  return success();
}

// ---- Running ----

void Interpreter::log(const Rank &rank, Operation *op, StringRef what) {
  if (!options_.log)
    return;
  std::string line;
  llvm::raw_string_ostream(line) << "rank " << rank.rank << ": " << what << " (" << op->getLoc()
                                 << ")";
  outputs_.log.push_back(std::move(line));
}

FailureOr<const std::byte *> Interpreter::readable(const RangeRef &range, Operation *op,
                                                   const Rank &rank) const {
  if (range.buffer)
    return range.buffer->bytes->data() + range.offset;
  if (range.bytes == 0)
    return static_cast<const std::byte *>(nullptr);
  if (!range.slot->view)
    return error(op, rank) << "reads a message that has not arrived, or was released";
  if (range.offset + range.bytes > range.slot->bytes)
    return error(op, rank) << "reads beyond the message in its slot";
  return range.slot->view + range.offset;
}

LogicalResult Interpreter::launch(Step &step, Rank &rank) {
  auto op = cast<sched::LaunchOp>(step.op);
  FailureOr<kernels::Kernel> found =
      findKernel(op, op.getKernel(), op.getKernelAttributes(), inputs_.dtype);
  if (failed(found))
    return failure();
  const kernels::Kernel &kernel = *found;
  if (std::string fault = checkOperands(op.getKernel(), kernel, step.inputs.size(),
                                        step.outputs.size(), step.scalars.size());
      !fault.empty())
    return error(op, rank) << fault;

  std::vector<std::span<const std::byte>> inputs;
  for (auto [i, range] : llvm::enumerate(step.inputs)) {
    if (range.bytes != kernel.inputBytes(step.count, i))
      return error(op, rank) << "expects inputs of " << kernel.inputBytes(step.count, i)
                             << " bytes for " << step.count << " elements, got " << range.bytes;
    FailureOr<const std::byte *> data = readable(range, op, rank);
    if (failed(data))
      return failure();
    inputs.emplace_back(*data, range.bytes);
  }
  while (!rank.sends.empty() && rank.sends.front().ended)
    rank.sends.pop_front();
  std::vector<std::span<std::byte>> outputs;
  for (const RangeRef &target : step.outputs) {
    if (target.bytes != kernel.outputBytes(step.count))
      return error(op, rank) << "expects an output of " << kernel.outputBytes(step.count)
                             << " bytes for " << step.count << " elements, got " << target.bytes;
    std::span<std::byte> output(target.buffer->bytes->data() + target.offset, target.bytes);
    for (const Transfer &send : rank.sends)
      if (!send.ended && send.data < output.data() + output.size() &&
          output.data() < send.data + send.bytes) {
        InFlightDiagnostic diagnostic = error(op, rank);
        diagnostic << "writes bytes of '" << target.buffer->name << "' that rank " << send.peer
                   << " may still read";
        diagnostic.attachNote(send.op->getLoc()) << "sent here";
        return diagnostic;
      }
    outputs.push_back(output);
  }
  kernels::Args args;
  args.inputs = inputs;
  args.outputs = outputs;
  args.scalars = step.scalars;
  args.count = step.count;
  kernel.run(kernel, args, 0, step.count);
  return success();
}

/// Pairs the oldest send and the oldest receive of a channel: the message arrives.
LogicalResult Interpreter::match(int64_t source, int64_t target, int32_t channelId) {
  Channel &channel = channels_[{source, target, channelId}];
  while (!channel.sends.empty() && !channel.receives.empty()) {
    Transfer &send = *channel.sends.front();
    Transfer &receive = channel.receives.front();
    if (send.bytes != receive.bytes) {
      InFlightDiagnostic diagnostic = error(receive.op, ranks_[static_cast<size_t>(target)]);
      diagnostic << "expects " << receive.bytes << " bytes from rank " << source << ", got "
                 << send.bytes;
      diagnostic.attachNote(send.op->getLoc()) << "sent here";
      return diagnostic;
    }
    Slot &slot = *receive.slot;
    slot.bytes = send.bytes;
    if (options_.copyMessages) {
      slot.copy.assign(send.data, send.data + send.bytes);
      slot.view = slot.copy.data();
      send.ended = true;
      set(send.signal);
    } else {
      slot.view = send.data;
      slot.source = &send;
    }
    set(receive.signal);
    channel.sends.pop_front();
    channel.receives.pop_front();
  }
  return success();
}

Interpreter::Progress Interpreter::issue(Step &step, Rank &rank) {
  auto result = [](LogicalResult done) {
    return succeeded(done) ? Progress::Moved : Progress::Failed;
  };
  return llvm::TypeSwitch<Operation *, Progress>(step.op)
      .Case([&](sched::SendOp op) {
        Transfer &send = rank.sends.emplace_back();
        send = {step.op,
                rank.rank,
                step.peer,
                static_cast<int32_t>(op.getChannel()),
                step.range.bytes,
                step.range.buffer->bytes->data() + step.range.offset,
                nullptr,
                step.signal,
                false};
        outputs_.wireBytes.back()[static_cast<size_t>(rank.rank)] +=
            static_cast<int64_t>(send.bytes);
        channels_[{rank.rank, send.peer, send.channel}].sends.push_back(&send);
        log(rank, op,
            "sends " + std::to_string(send.bytes) + " bytes to rank " + std::to_string(send.peer));
        return result(match(rank.rank, send.peer, send.channel));
      })
      .Case([&](sched::RecvOp op) {
        Slot &slot = *step.range.slot;
        if (slot.reserved)
          return Progress::Blocked; // Its credit is the release.
        slot.reserved = true;
        Transfer receive;
        receive.op = step.op;
        receive.rank = rank.rank;
        receive.peer = step.peer;
        receive.channel = static_cast<int32_t>(op.getChannel());
        receive.bytes = step.range.bytes;
        receive.slot = &slot;
        receive.signal = step.signal;
        channels_[{step.peer, rank.rank, receive.channel}].receives.push_back(receive);
        log(rank, op,
            "receives " + std::to_string(receive.bytes) + " bytes from rank " +
                std::to_string(step.peer));
        return result(match(step.peer, rank.rank, receive.channel));
      })
      .Case([&](sched::ReleaseOp op) {
        Slot &slot = *step.range.slot;
        if (!slot.view) {
          error(op, rank) << "releases a message that has not arrived";
          return Progress::Failed;
        }
        if (slot.source) {
          slot.source->ended = true;
          set(slot.source->signal);
        }
        std::fill(slot.copy.begin(), slot.copy.end(), std::byte{0xa5});
        slot.view = nullptr;
        slot.source = nullptr;
        slot.reserved = false;
        set(step.signal);
        log(rank, op, "releases");
        return Progress::Moved;
      })
      .Case([&](sched::LaunchOp op) {
        log(rank, op, ("launches " + op.getKernel()).str());
        if (failed(launch(step, rank)))
          return Progress::Failed;
        set(step.signal);
        return Progress::Moved;
      })
      .Case([&](sched::PublishOp op) {
        published_.emplace_back(op.getStateAttr().getAttr(), rank.rank);
        log(rank, op, ("publishes " + op.getState()).str());
        set(step.signal);
        return Progress::Moved;
      })
      .Default([&](Operation *op) {
        if (!gateIsOpen_)
          return Progress::Blocked;
        log(rank, op, "passes the gate");
        set(step.signal);
        return Progress::Moved;
      });
}

Interpreter::Progress Interpreter::advance(Rank &rank, sched::Queue queue) {
  auto q = static_cast<size_t>(queue);
  if (rank.next[q] == rank.steps[q].size())
    return Progress::Blocked;
  Step &step = rank.steps[q][rank.next[q]];
  for (const EventRef &event : step.waits)
    if (!event.get().isSet)
      return Progress::Blocked;
  if (step.op.getIfFinite() && !gateIsOpen_)
    return Progress::Blocked;
  Progress progress = Progress::Moved;
  if (step.skipped || (step.op.getIfFinite() && !outputs_.finite.back()))
    set(step.signal);
  else
    progress = issue(step, rank);
  if (progress == Progress::Moved)
    ++rank.next[q];
  return progress;
}

LogicalResult Interpreter::runQueues() {
  std::vector<std::pair<Rank *, sched::Queue>> queues;
  for (Rank &rank : ranks_)
    for (sched::Queue queue : {sched::Queue::Net, sched::Queue::Cpu})
      queues.emplace_back(&rank, queue);
  for (bool moved = true; moved;) {
    moved = false;
    if (options_.seed != 0)
      for (size_t i = queues.size(); i > 1; --i) // Not std::shuffle, whose order is the library's.
        std::swap(queues[i - 1], queues[random_() % i]);
    for (auto [rank, queue] : queues) {
      // Under a seed a queue runs some steps at a time, so that ranks drift apart.
      uint64_t burst = options_.seed != 0 ? random_() % 4 : 1;
      for (uint64_t i = 0; i < burst; ++i) {
        Progress progress = advance(*rank, queue);
        if (progress == Progress::Failed)
          return failure();
        if (progress == Progress::Blocked)
          break;
        moved = true;
      }
    }
    // A round of empty bursts says nothing.
    if (!moved && options_.seed != 0)
      for (auto [rank, queue] : queues) {
        Progress progress = advance(*rank, queue);
        if (progress == Progress::Failed)
          return failure();
        moved |= progress == Progress::Moved;
      }
  }
  return success();
}

LogicalResult Interpreter::reportDeadlock() {
  InFlightDiagnostic diagnostic =
      program_.emitOpError("cannot go on: every queue of every rank waits");
  for (Rank &rank : ranks_)
    for (sched::Queue queue : {sched::Queue::Cpu, sched::Queue::Net}) {
      auto q = static_cast<size_t>(queue);
      if (rank.next[q] == rank.steps[q].size())
        continue;
      const Step &step = rank.steps[q][rank.next[q]];
      Diagnostic &note = diagnostic.attachNote(step.op->getLoc());
      note << "rank " << rank.rank << ", queue " << sched::stringifyQueue(queue) << ": waits for ";
      bool named = false;
      for (const EventRef &event : step.waits)
        if (!event.get().isSet && !named) {
          named = true;
          note << "event '" << event.array->op.getName() << "[" << event.index << "]'";
          if (!event.get().setBy)
            note << ", which nobody signals";
        }
      if (!named)
        note << "its slot to be released";
    }
  return diagnostic;
}

/// Every message was received and released: else a sender never gets its bytes back.
LogicalResult Interpreter::checkEnd() {
  for (Rank &rank : ranks_)
    for (sched::Queue queue : {sched::Queue::Cpu, sched::Queue::Net})
      if (auto q = static_cast<size_t>(queue); rank.next[q] != rank.steps[q].size())
        return reportDeadlock();
  for (auto &[key, channel] : channels_) {
    auto [source, target, id] = key;
    if (!channel.sends.empty())
      return error(channel.sends.front()->op, ranks_[static_cast<size_t>(source)])
             << "sends a message to rank " << target << " that it never receives";
    if (!channel.receives.empty())
      return error(channel.receives.front().op, ranks_[static_cast<size_t>(target)])
             << "receives a message from rank " << source << " that it never sends";
  }
  for (Rank &rank : ranks_)
    for (const Transfer &send : rank.sends)
      if (!send.ended)
        return error(send.op, rank)
               << "sends a message that rank " << send.peer << " never releases";
  return success();
}

LogicalResult Interpreter::start() {
  states_.startProgram(program_);
  for (int64_t r = 0; r < inputs_.world; ++r) {
    Rank &rank = ranks_.emplace_back();
    rank.rank = r;
    if (failed(unroll(program_.getBody().front(), rank)))
      return failure();
    outputs_.formulaWireBytes.back()[static_cast<size_t>(r)] += rank.formulaWireBytes;
  }
  return runQueues();
}

LogicalResult Interpreter::finish() {
  gateIsOpen_ = true;
  if (failed(runQueues()) || failed(checkEnd()))
    return failure();
  for (auto [state, rank] : published_)
    states_.publish(state, rank);
  return success();
}

/// Runs programs side by side up to the gate, then one after the other.
LogicalResult runPrograms(ArrayRef<sched::ProgramOp> programs, int64_t step, const Inputs &inputs,
                          const InterpreterOptions &options, Outputs &outputs, States &states) {
  std::deque<Interpreter> running;
  for (sched::ProgramOp program : programs)
    if (failed(running.emplace_back(program, step, inputs, options, outputs, states).start()))
      return failure();
  for (; !running.empty(); running.pop_back())
    if (failed(running.back().finish()))
      return failure();
  return success();
}

struct SchedLevel {
  using ScheduleOp = sched::ScheduleOp;
  using ProgramOp = sched::ProgramOp;
  using DeclareParameterOp = sched::DeclareParameterOp;
  using ParameterOp = sched::ParameterOp;
  using DeclareStateOp = sched::DeclareStateOp;
  using Event = sched::Trigger;
  static Event eventOf(ProgramOp program) { return program.getTrigger(); }
};

} // namespace

FailureOr<Outputs> interpretSched(ModuleOp module, const Inputs &inputs,
                                  const InterpreterOptions &options) {
  auto run = [&](ArrayRef<sched::ProgramOp> programs, int64_t step, Outputs &outputs,
                 States &states) {
    return runPrograms(programs, step, inputs, options, outputs, states);
  };
  return interpretSteps<SchedLevel>(module, inputs, run);
}

} // namespace bagua::compiler
