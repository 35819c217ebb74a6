// Executes chunk programs for all ranks of a group in lockstep: an op on every rank, then the next
// op. A move copies; what a lowered program could not do (read a message whose bytes were
// overwritten, say) is an error here.
#include "bagua/compiler/ChunkMessages.h"
#include "bagua/compiler/Interpreter.h"
#include "bagua/compiler/KernelCode.h"
#include "bagua/compiler/ScalarEvaluator.h"

#include "../Steps.h"

#include "llvm/ADT/TypeSwitch.h"

#include <algorithm>
#include <optional>
#include <utility>

using namespace mlir;
namespace chunk = bagua::ir::chunk;

namespace bagua::compiler {
namespace {

constexpr size_t kCountMax = size_t{1} << 36;  ///< Elements of a launch: sizes do not overflow.
constexpr size_t kRangesMax = size_t{1} << 16; ///< Of one list.
constexpr size_t kSlotsMax = size_t{1} << 18;  ///< Of one pool.
constexpr size_t kOpsMax = size_t{1} << 24;    ///< Executed, of all ranks together.

struct Interval {
  size_t offset = 0, bytes = 0;
  bool overlaps(const Interval &other) const {
    return offset < other.offset + other.bytes && other.offset < offset + bytes;
  }
};

struct Buffer {
  Bytes *bytes = nullptr; ///< The job's, or `scratch`.
  Bytes scratch;
  struct Write {
    Interval where;
    size_t time;
    Operation *op;
  };
  std::vector<Write> writes; ///< In order of time.
  std::map<int64_t, std::vector<Interval>>
      parts[3]; ///< By group and part number: what was used under it.
};

struct Message {
  Bytes bytes;
  Buffer *source = nullptr; ///< What it was copied from, and when.
  Interval where;
  size_t time = 0;
  Operation *move = nullptr;
};

struct Pool {
  size_t bytes = 0;
  std::vector<std::optional<Message>> slots;
};

struct Rank {
  int64_t rank = 0;
  ScalarEvaluator values;
  llvm::DenseMap<Value, std::shared_ptr<Buffer>> buffers;
  llvm::DenseMap<Value, Pool> pools;
};

/// Bytes that an op uses: of a buffer, or of a message.
struct Used {
  Buffer *buffer = nullptr;
  const Message *message = nullptr; ///< Null for no bytes of no message.
  Interval where;

  const std::byte *data() const {
    const Bytes *bytes = buffer ? buffer->bytes : message ? &message->bytes : nullptr;
    return bytes ? bytes->data() + where.offset : nullptr;
  }
};

class Interpreter {
public:
  /// `step`: its number, or that of the round. `atGate`: what the job does until it opens the gate;
  /// called once, at the latest at the end.
  Interpreter(const Inputs &inputs, const InterpreterOptions &options, Outputs &outputs,
              States &states, ChunkMessages &messages, int64_t step,
              llvm::function_ref<LogicalResult()> atGate)
      : inputs_(inputs), options_(options), outputs_(outputs), states_(states), messages_(messages),
        stepNumber_(step), atGate_(atGate), scratchBytesLeft_(options.scratchBytesMax) {}

  LogicalResult run(chunk::ProgramOp program);

private:
  using Ranks = llvm::SmallVector<Rank *, 8>;

  InFlightDiagnostic error(Operation *op, const Rank &rank) const {
    return op->emitOpError() << "on rank " << rank.rank << " of " << inputs_.world << ", length "
                             << inputs_.length << ": ";
  }
  LogicalResult execute(Block &block, const Ranks &ranks);
  LogicalResult execute(Operation *op, const Ranks &ranks);
  LogicalResult loop(chunk::ForOp op, const Ranks &ranks);
  LogicalResult branch(chunk::IfOp op, const Ranks &ranks);
  FailureOr<int64_t> peer(chunk::PeerMap map, ValueRange arguments, Rank &rank);
  LogicalResult move(chunk::MoveOp op, const Ranks &ranks);
  LogicalResult passGate();
  LogicalResult launch(chunk::LaunchOp op, const Ranks &ranks);
  LogicalResult run(chunk::LaunchOp op, Rank &rank, const kernels::Kernel &kernel,
                    ArrayRef<Used> inputs, ArrayRef<Used> outputs, size_t count);
  void bind(Value value, Bytes &bytes, Rank &rank);
  LogicalResult declare(Operation *op, Rank &rank);
  LogicalResult number(Operation *op, Rank &rank);
  FailureOr<size_t> size(Value value, Operation *op, StringRef what, Rank &rank);
  LogicalResult use(Value operand, Operation *op, Rank &rank, std::vector<Used> &list);
  LogicalResult useRange(Value range, Operation *op, Rank &rank, std::vector<Used> &list);
  LogicalResult checkPart(chunk::RangeOp range, const Used &used, Operation *op, Rank &rank);
  LogicalResult checkUntouched(const Used &used, Operation *op, const Rank &rank);
  void log(Operation *op, const Rank &rank, const std::string &what);

  const Inputs &inputs_;
  const InterpreterOptions &options_;
  Outputs &outputs_;
  States &states_;
  ChunkMessages &messages_;
  int64_t stepNumber_;
  llvm::function_ref<LogicalResult()> atGate_;
  bool gateIsOpen_ = false;
  std::vector<std::pair<StringAttr, int64_t>> published_; ///< States, and the ranks that did.
  std::vector<std::unique_ptr<Rank>> ranks_;
  int64_t step() const { return static_cast<int64_t>(outputs_.gradients.size()) - 1; }

  size_t time_ = 0; ///< Counts ops that touch bytes.
  size_t opCount_ = 0;
  size_t scratchBytesLeft_;
};

FailureOr<size_t> Interpreter::size(Value value, Operation *op, StringRef what, Rank &rank) {
  FailureOr<int64_t> result = rank.values.tryInteger(value);
  if (failed(result))
    return failure();
  if (*result < 0)
    return error(op, rank) << "expects " << what << " of at least 0, got " << *result;
  return static_cast<size_t>(*result);
}

void Interpreter::log(Operation *op, const Rank &rank, const std::string &what) {
  if (options_.log)
    outputs_.log.push_back("rank " + std::to_string(rank.rank) + " " +
                           op->getName().getStringRef().str() + ": " + what);
}

// ---- Ranges ------------------------------------------------------------------------------------

LogicalResult Interpreter::useRange(Value range, Operation *op, Rank &rank,
                                    std::vector<Used> &list) {
  if (auto view = range.getDefiningOp<chunk::ViewOp>()) {
    FailureOr<size_t> index = size(view.getIndex(), op, "a slot", rank);
    FailureOr<size_t> offset = size(view.getOffset(), op, "an offset", rank);
    FailureOr<size_t> bytes = size(view.getBytes(), op, "a size", rank);
    if (failed(index) || failed(offset) || failed(bytes))
      return failure();
    Pool &pool = rank.pools[view.getSlots()];
    if (*index >= pool.slots.size())
      return error(op, rank) << "expects a slot below " << pool.slots.size() << ", got " << *index;
    const std::optional<Message> &message = pool.slots[*index];
    if (!message && *offset + *bytes > 0)
      return error(op, rank) << "expects a message in slot " << *index << ", got an empty slot";
    size_t limit = message ? message->bytes.size() : 0;
    if (*offset > limit || *bytes > limit - *offset)
      return error(op, rank) << "expects bytes within the " << limit << " of the message in slot "
                             << *index << ", got " << *bytes << " at " << *offset;
    list.push_back({nullptr, message ? &*message : nullptr, {*offset, *bytes}});
    return success();
  }
  auto of = range.getDefiningOp<chunk::RangeOp>();
  FailureOr<size_t> offset = size(of.getOffset(), op, "an offset", rank);
  FailureOr<size_t> bytes = size(of.getBytes(), op, "a size", rank);
  if (failed(offset) || failed(bytes))
    return failure();
  Buffer &buffer = *rank.buffers[of.getBuffer()];
  size_t limit = buffer.bytes->size();
  if (*offset > limit || *bytes > limit - *offset)
    return error(op, rank) << "expects bytes within the " << limit << " of the buffer, got "
                           << *bytes << " at " << *offset;
  list.push_back({&buffer, nullptr, {*offset, *bytes}});
  return checkPart(of, list.back(), op, rank);
}

/// What `part` promises: the lowering waits only for ranges of the same part.
LogicalResult Interpreter::checkPart(chunk::RangeOp range, const Used &used, Operation *op,
                                     Rank &rank) {
  if (!range.getPart() || used.where.bytes == 0)
    return success();
  FailureOr<int64_t> part = rank.values.tryInteger(range.getPart());
  if (failed(part))
    return failure();
  auto &parts = used.buffer->parts[static_cast<size_t>(range.getGroup())];
  std::vector<Interval> &own = parts[*part];
  auto same = [&](const Interval &other) {
    return other.offset == used.where.offset && other.bytes == used.where.bytes;
  };
  if (std::any_of(own.begin(), own.end(), same))
    return success();
  for (auto &[number, intervals] : parts)
    for (const Interval &interval : intervals)
      if (number != *part && interval.overlaps(used.where)) { // range_C1
        InFlightDiagnostic diagnostic = error(op, rank);
        diagnostic << "expects parts that do not overlap, got " << used.where.bytes << " bytes at "
                   << used.where.offset << " as part " << *part << " and " << interval.bytes
                   << " at " << interval.offset << " as part " << number;
        diagnostic.attachNote(range.getLoc()) << "the range";
        return diagnostic;
      }
  own.push_back(used.where);
  return success();
}

LogicalResult Interpreter::use(Value operand, Operation *op, Rank &rank, std::vector<Used> &list) {
  auto gather = operand.getDefiningOp<chunk::GatherOp>();
  if (!gather)
    return useRange(operand, op, rank, list);
  FailureOr<int64_t> lower = rank.values.tryInteger(gather.getLower()),
                     upper = rank.values.tryInteger(gather.getUpper());
  if (failed(lower) || failed(upper))
    return failure();
  chunk::YieldOp yield = gather.getYield();
  for (int64_t i = *lower; i < *upper; ++i) {
    if (list.size() > kRangesMax)
      return error(op, rank) << "expects a list of at most " << kRangesMax << " ranges";
    rank.values.bind(gather.getVariable(), i);
    if (++opCount_ > kOpsMax)
      return op->emitOpError("executes more than ") << kOpsMax << " ops";
    for (Operation &inner : gather.getBody().front().without_terminator())
      if (failed(number(&inner, rank)))
        return failure();
    for (auto [j, range] : llvm::enumerate(yield.getRanges())) {
      if (!yield.getConditions().empty()) {
        FailureOr<int64_t> condition = rank.values.tryInteger(yield.getConditions()[j]);
        if (failed(condition))
          return failure();
        if (*condition == 0)
          continue;
      }
      if (failed(useRange(range, op, rank, list)))
        return failure();
    }
  }
  return success();
}

/// A message may be the sender's own memory: it must be as it was when it was sent.
LogicalResult Interpreter::checkUntouched(const Used &used, Operation *op, const Rank &rank) {
  if (!used.message || used.where.bytes == 0)
    return success();
  const Message &message = *used.message;
  for (auto write = message.source->writes.rbegin();
       write != message.source->writes.rend() && write->time > message.time; ++write)
    if (write->where.overlaps(message.where)) { // move_C4
      InFlightDiagnostic diagnostic = error(op, rank);
      diagnostic << "reads a message whose bytes its sender has overwritten since";
      diagnostic.attachNote(message.move->getLoc()) << "sent here";
      diagnostic.attachNote(write->op->getLoc()) << "overwritten here";
      return diagnostic;
    }
  return success();
}

// ---- Ops ---------------------------------------------------------------------------------------

/// Of the same bytes there is one buffer, however often it is named.
void Interpreter::bind(Value value, Bytes &bytes, Rank &rank) {
  std::shared_ptr<Buffer> shared;
  for (auto &[other, buffer] : rank.buffers)
    if (buffer->bytes == &bytes)
      shared = buffer;
  if (!shared) {
    shared = std::make_shared<Buffer>();
    shared->bytes = &bytes;
  }
  rank.buffers[value] = shared;
}

LogicalResult Interpreter::declare(Operation *op, Rank &rank) {
  if (auto job = dyn_cast<chunk::JobOp>(op)) {
    auto &list = job.getRole() == chunk::Role::Gradient ? outputs_.gradients.back()
                                                        : outputs_.weights.back();
    bind(job.getResult(), list[static_cast<size_t>(rank.rank)], rank);
    return success();
  }
  if (auto state = dyn_cast<chunk::StateOp>(op)) {
    State &memory = states_.get(state.getStateAttr().getAttr());
    auto index = static_cast<size_t>(rank.rank);
    bind(state.getResult(), state.getNext() ? memory.next[index] : memory.committed[index], rank);
    return success();
  }
  if (auto scratch = dyn_cast<chunk::ScratchOp>(op)) {
    FailureOr<size_t> bytes = size(scratch.getBytes(), op, "a size", rank);
    if (failed(bytes))
      return failure();
    if (*bytes > scratchBytesLeft_)
      return error(op, rank) << "expects scratch memory of at most " << options_.scratchBytesMax
                             << " bytes for all ranks together, got " << *bytes << " here";
    scratchBytesLeft_ -= *bytes;
    auto &buffer = rank.buffers[scratch.getResult()] = std::make_shared<Buffer>();
    buffer->scratch.assign(*bytes, std::byte{0xff}); // NaN as f32 and f64: unwritten bytes show.
    buffer->bytes = &buffer->scratch;
    return success();
  }
  auto slots = cast<chunk::SlotsOp>(op);
  FailureOr<size_t> count = size(slots.getCount(), op, "a count", rank);
  FailureOr<size_t> bytes = size(slots.getBytes(), op, "a size", rank);
  if (failed(count) || failed(bytes))
    return failure();
  if (*count > kSlotsMax)
    return error(op, rank) << "expects at most " << kSlotsMax << " slots, got " << *count;
  Pool &pool = rank.pools[slots.getResult()];
  pool.bytes = *bytes;
  pool.slots.resize(*count);
  return success();
}

/// Ops that yield a number, or a range: ranges mean something only where they are used.
LogicalResult Interpreter::number(Operation *op, Rank &rank) {
  if (ScalarEvaluator::isArithmetic(op))
    return rank.values.evaluate(op);
  if (isa<chunk::RangeOp, chunk::ViewOp, chunk::GatherOp>(op))
    return success();
  if (auto parameter = dyn_cast<chunk::ParameterOp>(op)) {
    auto declared = SymbolTable::lookupNearestSymbolFrom<chunk::DeclareParameterOp>(
        op->getParentOfType<chunk::ScheduleOp>(), parameter.getParameterAttr());
    rank.values.bind(parameter.getResult(), valueOf(inputs_, step(), parameter.getParameter(),
                                                    declared.getDefaultValue()));
    return success();
  }
  if (auto of = dyn_cast<chunk::PeerOp>(op)) {
    FailureOr<int64_t> partner = peer(of.getMap(), of.getArguments(), rank);
    if (succeeded(partner))
      rank.values.bind(of.getResult(), *partner);
    return partner;
  }
  std::optional<int64_t> value =
      llvm::TypeSwitch<Operation *, std::optional<int64_t>>(op)
          .Case([&](chunk::WorldOp) { return inputs_.world; })
          .Case([&](chunk::RankOp) { return rank.rank; })
          .Case([&](chunk::LocalRankOp) { return rank.rank % inputs_.ranksPerNode(); })
          .Case([&](chunk::NodeOp) { return rank.rank / inputs_.ranksPerNode(); })
          .Case([&](chunk::LocalSizeOp) { return inputs_.ranksPerNode(); })
          .Case([&](chunk::NodesOp) { return inputs_.world / inputs_.ranksPerNode(); })
          .Case([&](chunk::LengthOp) { return inputs_.length; })
          .Case([&](chunk::ElementBytesOp) { return inputs_.elementBytes(); })
          .Case([&](chunk::BucketOp) { return inputs_.bucket; })
          .Case([&](chunk::StepOp) { return stepNumber_; })
          .Default([](Operation *) { return std::nullopt; });
  if (!value)
    return op->emitOpError("is unknown to the chunk interpreter");
  rank.values.bind(op->getResult(0), *value);
  return success();
}

FailureOr<int64_t> Interpreter::peer(chunk::PeerMap map, ValueRange arguments, Rank &rank) {
  SmallVector<int64_t, 2> values;
  for (Value argument : arguments) {
    FailureOr<int64_t> value = rank.values.tryInteger(argument);
    if (failed(value))
      return failure();
    values.push_back(*value);
  }
  return peerOf(map, values, inputs_.world, inputs_.ranksPerNode(), rank.rank);
}

LogicalResult Interpreter::move(chunk::MoveOp op, const Ranks &ranks) {
  ++time_;
  struct Delivery {
    Rank *target;
    size_t slot;
    Message message;
  };
  std::vector<Delivery> deliveries;
  for (Rank *rank : ranks) {
    std::vector<Used> used;
    FailureOr<int64_t> target = peer(op.getMap(), op.getArguments(), *rank);
    FailureOr<size_t> slot = size(op.getSlot(), op, "a slot", *rank);
    if (failed(useRange(op.getSource(), op, *rank, used)) || failed(target) || failed(slot))
      return failure();
    const Used &source = used.front();
    int64_t peer = *target;
    if (source.where.bytes == 0 || (peer == rank->rank && !op.getRotated()))
      continue;
    if (peer == rank->rank) // move_C5
      return error(op, *rank) << "expects another rank to send to, got itself: "
                              << chunk::stringifyPeerMap(op.getMap()) << "("
                              << rank->values.integer(op.getArgument()) << ")";
    Message message;
    message.bytes.assign(source.data(), source.data() + source.where.bytes);
    message.source = source.buffer;
    message.where = source.where;
    message.time = time_;
    message.move = op;
    log(op, *rank,
        std::to_string(source.where.bytes) + " bytes to rank " + std::to_string(peer) + " slot " +
            std::to_string(*slot));
    outputs_.wireBytes.back()[static_cast<size_t>(rank->rank)] +=
        static_cast<int64_t>(source.where.bytes);
    deliveries.push_back({ranks_[static_cast<size_t>(peer)].get(), *slot, std::move(message)});
  }
  for (Delivery &delivery : deliveries) {
    Pool &pool = delivery.target->pools[op.getSlots()];
    if (delivery.slot >= pool.slots.size())
      return error(op, *delivery.target)
             << "expects a slot below " << pool.slots.size() << ", got " << delivery.slot;
    if (delivery.message.bytes.size() > pool.bytes)
      return error(op, *delivery.target)
             << "expects a message of at most " << pool.bytes << " bytes in slot " << delivery.slot
             << ", got " << delivery.message.bytes.size();
    std::optional<Message> &slot = pool.slots[delivery.slot];
    if (slot) { // slots_C4
      InFlightDiagnostic diagnostic = error(op, *delivery.target);
      diagnostic << "expects slot " << delivery.slot
                 << " to be empty, got an earlier message in it";
      diagnostic.attachNote(slot->move->getLoc()) << "the earlier message";
      return diagnostic;
    }
    slot = std::move(delivery.message);
  }
  return success();
}

LogicalResult Interpreter::run(chunk::LaunchOp op, Rank &rank, const kernels::Kernel &kernel,
                               ArrayRef<Used> inputs, ArrayRef<Used> outputs, size_t count) {
  if (std::string fault = checkOperands(op.getKernel(), kernel, inputs.size(), outputs.size(),
                                        op.getScalars().size());
      !fault.empty())
    return error(op, rank) << fault;
  std::vector<std::span<const std::byte>> sources;
  for (auto [i, used] : llvm::enumerate(inputs)) {
    if (used.where.bytes != kernel.inputBytes(count, i))
      return error(op, rank) << "expects inputs of " << kernel.inputBytes(count, i) << " bytes for "
                             << count << " elements, got " << used.where.bytes;
    sources.emplace_back(used.data(), used.where.bytes);
  }
  std::vector<std::span<std::byte>> targets;
  for (const Used &target : outputs) {
    if (target.where.bytes != kernel.outputBytes(count))
      return error(op, rank) << "expects an output of " << kernel.outputBytes(count)
                             << " bytes for " << count << " elements, got " << target.where.bytes;
    targets.emplace_back(target.buffer->bytes->data() + target.where.offset, target.where.bytes);
  }
  std::vector<double> scalars;
  for (Value scalar : op.getScalars()) {
    FailureOr<double> value = rank.values.tryReal(scalar);
    if (failed(value))
      return failure();
    scalars.push_back(*value);
  }
  log(op, rank, op.getKernel().str() + " of " + std::to_string(count) + " elements");
  kernels::Args args;
  args.inputs = sources;
  args.outputs = targets;
  args.scalars = scalars;
  args.count = count;
  kernel.run(kernel, args, 0, count);
  for (const Used &target : outputs)
    target.buffer->writes.push_back({target.where, time_, op});
  return success();
}

LogicalResult Interpreter::launch(chunk::LaunchOp op, const Ranks &ranks) {
  ++time_;
  DictionaryAttr constants = op.getConstants().value_or(DictionaryAttr::get(op.getContext()));
  FailureOr<kernels::Kernel> kernel = findKernel(op, op.getKernel(), constants, inputs_.dtype);
  if (failed(kernel))
    return failure();

  std::vector<std::pair<Rank *, std::vector<Used>>> reads;
  for (Rank *rank : ranks) {
    std::vector<Used> inputs, outputs;
    FailureOr<size_t> count = size(op.getCount(), op, "a count", *rank);
    if (failed(count))
      return failure();
    if (*count == 0)
      continue;
    if (*count > kCountMax)
      return error(op, *rank) << "expects at most " << kCountMax << " elements, got " << *count;
    for (Value input : op.getInputs())
      if (failed(use(input, op, *rank, inputs)))
        return failure();
    for (Value output : op.getOutputs())
      if (failed(use(output, op, *rank, outputs)))
        return failure();
    if (failed(run(op, *rank, *kernel, inputs, outputs, *count)))
      return failure();
    reads.emplace_back(rank, std::move(inputs));
  }
  for (auto &[rank, inputs] : reads) // Ranks do not run in order: after all of them have written.
    for (const Used &used : inputs)
      if (failed(checkUntouched(used, op, *rank)))
        return failure();
  return success();
}

LogicalResult Interpreter::loop(chunk::ForOp op, const Ranks &ranks) {
  std::vector<std::pair<int64_t, int64_t>> bounds;
  int64_t first = INT64_MAX, last = INT64_MIN;
  for (Rank *rank : ranks) {
    FailureOr<int64_t> lower = rank->values.tryInteger(op.getLower()),
                       upper = rank->values.tryInteger(op.getUpper());
    if (failed(lower) || failed(upper))
      return failure();
    bounds.emplace_back(*lower, *upper);
    if (*lower < *upper) {
      first = std::min(first, *lower);
      last = std::max(last, *upper);
    }
  }
  for (int64_t i = first; i < last; ++i) {
    Ranks active;
    for (auto [rank, bound] : llvm::zip(ranks, bounds))
      if (bound.first <= i && i < bound.second) {
        rank->values.bind(op.getVariable(), i);
        active.push_back(rank);
      }
    if (failed(execute(op.getBody().front(), active)))
      return failure();
    if (++opCount_ > kOpsMax)
      return op.emitOpError("executes more than ") << kOpsMax << " ops";
  }
  return success();
}

LogicalResult Interpreter::branch(chunk::IfOp op, const Ranks &ranks) {
  Ranks yes, no;
  for (Rank *rank : ranks) {
    FailureOr<int64_t> condition = rank->values.tryInteger(op.getCondition());
    if (failed(condition))
      return failure();
    (*condition != 0 ? yes : no).push_back(rank);
  }
  if (!yes.empty() && failed(execute(op.getThen().front(), yes)))
    return failure();
  if (!no.empty() && !op.getOtherwise().empty())
    return execute(op.getOtherwise().front(), no);
  return success();
}

LogicalResult Interpreter::execute(Operation *op, const Ranks &ranks) {
  opCount_ += ranks.size();
  if (opCount_ > kOpsMax)
    return op->emitOpError("executes more than ") << kOpsMax << " ops";
  if (auto inner = dyn_cast<chunk::ForOp>(op))
    return loop(inner, ranks);
  if (auto inner = dyn_cast<chunk::IfOp>(op))
    return branch(inner, ranks);
  if (auto forall = dyn_cast<chunk::ForallOp>(op)) {
    for (Rank *rank : ranks)
      rank->values.bind(forall.getRank(), rank->rank);
    return execute(forall.getBody().front(), ranks);
  }
  if (auto inner = dyn_cast<chunk::MoveOp>(op))
    return move(inner, ranks);
  if (auto inner = dyn_cast<chunk::LaunchOp>(op))
    return launch(inner, ranks);
  if (auto inner = dyn_cast<chunk::IfFiniteOp>(op))
    return outputs_.finite.back() ? execute(inner.getBody().front(), ranks) : success();
  if (isa<chunk::WaitOp>(op) && failed(passGate()))
    return failure();
  for (Rank *rank : ranks) {
    LogicalResult done = success();
    if (isa<chunk::WaitOp>(op)) {
      log(op, *rank, "passes the gate");
    } else if (auto publish = dyn_cast<chunk::PublishOp>(op)) {
      published_.emplace_back(publish.getStateAttr().getAttr(), rank->rank);
      log(op, *rank, publish.getState().str());
    } else if (auto cost = dyn_cast<chunk::CostOp>(op)) {
      FailureOr<size_t> bytes = size(cost.getWireBytes(), op, "bytes", *rank);
      if (succeeded(bytes))
        outputs_.formulaWireBytes.back()[static_cast<size_t>(rank->rank)] +=
            static_cast<int64_t>(*bytes);
      done = bytes;
    } else if (isa<chunk::JobOp, chunk::ScratchOp, chunk::StateOp, chunk::SlotsOp>(op)) {
      done = declare(op, *rank);
    } else {
      done = number(op, *rank);
    }
    if (failed(done))
      return failure();
  }
  return success();
}

LogicalResult Interpreter::execute(Block &block, const Ranks &ranks) {
  for (auto &[slots, pool] : messages_.pools())
    if (pool.scope == &block)
      for (Rank *rank : ranks)
        for (std::optional<Message> &slot : rank->pools[slots].slots)
          slot.reset();
  for (Operation &op : block)
    if (failed(execute(&op, ranks)))
      return failure();
  return success();
}

LogicalResult Interpreter::passGate() {
  if (std::exchange(gateIsOpen_, true))
    return success();
  return atGate_();
}

LogicalResult Interpreter::run(chunk::ProgramOp program) {
  states_.startProgram(program);
  Ranks ranks;
  for (int64_t r = 0; r < inputs_.world; ++r) {
    ranks_.push_back(std::make_unique<Rank>());
    ranks_.back()->rank = r;
    ranks.push_back(ranks_.back().get());
  }
  if (failed(execute(program.getBody().front(), ranks)) || failed(passGate()))
    return failure();
  for (auto [state, rank] : published_)
    states_.publish(state, rank);
  return success();
}

/// The programs of one step (or of a round: `step` is its number), from number `first` on, up to
/// where all stand at their gates; then each goes on.
LogicalResult runFrom(size_t first, ArrayRef<chunk::ProgramOp> programs, int64_t step,
                      const Inputs &inputs, const InterpreterOptions &options, Outputs &outputs,
                      States &states) {
  if (first == programs.size())
    return success();
  FailureOr<ChunkMessages> messages = ChunkMessages::analyze(programs[first]);
  if (failed(messages))
    return failure();
  auto rest = [&] { return runFrom(first + 1, programs, step, inputs, options, outputs, states); };
  return Interpreter(inputs, options, outputs, states, *messages, step, rest).run(programs[first]);
}

struct ChunkLevel {
  using ScheduleOp = chunk::ScheduleOp;
  using ProgramOp = chunk::ProgramOp;
  using DeclareParameterOp = chunk::DeclareParameterOp;
  using ParameterOp = chunk::ParameterOp;
  using DeclareStateOp = chunk::DeclareStateOp;
  using Event = chunk::Event;
  static Event eventOf(ProgramOp program) { return program.getEvent(); }
};

} // namespace

FailureOr<Outputs> interpretChunk(ModuleOp module, const Inputs &inputs,
                                  const InterpreterOptions &options) {
  auto run = [&](ArrayRef<chunk::ProgramOp> programs, int64_t step, Outputs &outputs,
                 States &states) {
    return runFrom(0, programs, step, inputs, options, outputs, states);
  };
  return interpretSteps<ChunkLevel>(module, inputs, run);
}

} // namespace bagua::compiler
