// Walks a sched.schedule and writes down each op as the table it mirrors.
#include "bagua/compiler/EmitSchedule.h"

#include "ExpressionPool.h"

#include "bagua/compiler/KernelCode.h"
#include "bagua/dialect/Sched/Sched.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/Path.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

using namespace mlir;
namespace sched = bagua::ir::sched;

namespace bagua::compiler {
namespace {

using rt::kNone;
using Node = ExpressionPool::Node;

/// The place in a source file that a location names first, if any.
FileLineColRange fileLocation(Location location) {
  return llvm::TypeSwitch<Location, FileLineColRange>(location)
      .Case([](FileLineColRange file) { return file; })
      .Case([](NameLoc name) { return fileLocation(name.getChildLoc()); })
      .Case([](CallSiteLoc call) { // What the algorithm calls, not where a helper is defined.
        FileLineColRange caller = fileLocation(call.getCaller());
        return caller ? caller : fileLocation(call.getCallee());
      })
      .Case([](FusedLoc fused) {
        for (Location part : fused.getLocations())
          if (FileLineColRange file = fileLocation(part))
            return file;
        return FileLineColRange();
      })
      .Default([](Location) { return FileLineColRange(); });
}

std::string relativePath(StringRef path, StringRef root) {
  namespace path_ns = llvm::sys::path;
  SmallString<128> clean(path);
  path_ns::remove_dots(clean, /*remove_dot_dot=*/true);
  if (!path_ns::is_absolute(clean))
    return clean.str().str();
  SmallString<128> folder(root);
  path_ns::remove_dots(folder, /*remove_dot_dot=*/true);
  StringRef rest = clean;
  if (!folder.empty() && rest.consume_front(folder) && rest.consume_front("/"))
    return rest.str();
  return path_ns::filename(clean).str();
}

class Emitter {
public:
  explicit Emitter(const EmitOptions &options) : options_(options) {}

  LogicalResult run(sched::ScheduleOp op);
  fb::ScheduleT take() {
    schedule_.expressions = pool_.take();
    return std::move(schedule_);
  }

private:
  using Steps = std::vector<std::unique_ptr<fb::StepT>>;

  void state(sched::DeclareStateOp op);
  Node stateBytes(sched::DeclareStateOp op);
  LogicalResult program(sched::ProgramOp op);
  LogicalResult declaration(Operation *op, fb::ProgramT &program);
  LogicalResult body(Block &block, Steps &steps);
  LogicalResult step(sched::StepInterface op, fb::StepT &step);
  LogicalResult action(sched::StepInterface op, fb::ActionUnion &action);
  LogicalResult launch(sched::LaunchOp op, fb::LaunchT &launch);

  FailureOr<Node> expression(Value value);
  FailureOr<Node> compute(Operation *op);
  Node remainder(Node a, Node b);
  Node lessUnsigned(Node a, Node b);
  /// Writes the node of `value` to `field`; leaves it if there is no value.
  LogicalResult set(uint32_t &field, Value value);
  FailureOr<Node> enterLoop(Value variable, Value lower, Value upper, unsigned depth);
  FailureOr<Node> enterGather(sched::GatherOp op) {
    // Never inside one another, but used at any depth: one id everywhere, apart from those of
    // loops.
    constexpr unsigned kGatherDepth = ~0u;
    return enterLoop(op.getVariable(), op.getLower(), op.getUpper(), kGatherDepth);
  }

  FailureOr<std::unique_ptr<fb::RangeT>> range(Operation *op);
  LogicalResult ranges(OperandRange operands, std::vector<std::unique_ptr<fb::RangesT>> &out);
  LogicalResult waits(OperandRange operands, std::vector<std::unique_ptr<fb::EventRefT>> &out);

  FailureOr<uint32_t> kernel(sched::LaunchOp op);
  uint32_t location(Location location);

  const EmitOptions &options_;
  fb::ScheduleT schedule_;
  ExpressionPool pool_;
  llvm::DenseMap<Value, Node> nodes_;   ///< Looked up only, never walked.
  llvm::DenseMap<Value, uint32_t> ids_; ///< Of buffers, slots and events, in their program's lists.
  llvm::DenseMap<Attribute, uint32_t> parameters_, states_;           ///< By name.
  llvm::DenseMap<std::pair<Attribute, Attribute>, uint32_t> kernels_; ///< Looked up only.
  std::map<std::tuple<std::string, unsigned, unsigned>, uint32_t> locations_;
  unsigned loopDepth_ = 0;
  int32_t channelMax_ = -1;
};

// ---- Expressions ----

LogicalResult Emitter::set(uint32_t &field, Value value) {
  if (!value)
    return success();
  FailureOr<Node> node = expression(value);
  if (failed(node))
    return failure();
  field = *node;
  return success();
}

FailureOr<Node> Emitter::expression(Value value) {
  if (auto known = nodes_.find(value); known != nodes_.end())
    return known->second;
  Operation *op = value.getDefiningOp();
  if (!op) // Loop variables are entered into nodes_ before their bodies are walked.
    return emitError(value.getLoc()) << "expects an expression, got a block argument that is no "
                                        "loop variable in scope";
  FailureOr<Node> node = compute(op);
  if (succeeded(node))
    nodes_[value] = *node;
  return node;
}

/// arith.remsi takes the dividend's sign, Mod the divisor's.
Node Emitter::remainder(Node a, Node b) {
  using Op = fb::ExprOp;
  Node zero = pool_.constant(int64_t{0});
  if (!pool_.isNonNegative(b))
    b = pool_.make(Op::Max, b, pool_.make(Op::Sub, zero, b));
  Node positive = pool_.make(Op::Mod, a, b);
  if (pool_.isNonNegative(a))
    return positive;
  Node negative = pool_.make(Op::Sub, zero, pool_.make(Op::Mod, pool_.make(Op::Sub, zero, a), b));
  return pool_.make(Op::Select, pool_.make(Op::Lt, a, zero), negative, positive);
}

Node Emitter::lessUnsigned(Node a, Node b) {
  using Op = fb::ExprOp;
  Node less = pool_.make(Op::Lt, a, b);
  if (pool_.isNonNegative(a) && pool_.isNonNegative(b))
    return less;
  // As unsigned numbers negative ones are the largest.
  Node zero = pool_.constant(int64_t{0});
  Node aNegative = pool_.make(Op::Lt, a, zero), bNegative = pool_.make(Op::Lt, b, zero);
  return pool_.make(Op::Select, pool_.make(Op::Eq, aNegative, bNegative), less, bNegative);
}

FailureOr<Node> Emitter::compute(Operation *op) {
  using Op = fb::ExprOp;
  if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
    if (auto integer = dyn_cast<IntegerAttr>(constant.getValue()))
      return pool_.constant(integer.getType().isInteger(1)
                                ? static_cast<int64_t>(integer.getValue().getZExtValue())
                                : integer.getValue().getSExtValue());
    if (auto real = dyn_cast<FloatAttr>(constant.getValue()))
      return pool_.constant(real.getValueAsDouble());
    return op->emitOpError("expects a number in a schedule file");
  }
  if (auto parameter = dyn_cast<sched::ParameterOp>(op))
    return pool_.parameter(parameters_.lookup(parameter.getParameterAttr().getAttr()));

  std::optional<Op> leaf = llvm::TypeSwitch<Operation *, std::optional<Op>>(op)
                               .Case([](sched::WorldOp) { return Op::World; })
                               .Case([](sched::RankOp) { return Op::Rank; })
                               .Case([](sched::LocalRankOp) { return Op::LocalRank; })
                               .Case([](sched::LocalSizeOp) { return Op::LocalSize; })
                               .Case([](sched::NodesOp) { return Op::Nodes; })
                               .Case([](sched::LengthOp) { return Op::Length; })
                               .Case([](sched::ElementBytesOp) { return Op::ElementBytes; })
                               .Case([](sched::BucketOp) { return Op::Bucket; })
                               .Case([](sched::StepOp) { return Op::Step; })
                               .Default([](Operation *) { return std::nullopt; });
  if (leaf)
    return pool_.leaf(*leaf);
  if (!sched::isExpression(op))
    return op->emitOpError("is no arithmetic that a schedule file can say");

  SmallVector<Node, 3> in;
  for (Value operand : op->getOperands()) {
    FailureOr<Node> node = expression(operand);
    if (failed(node))
      return failure();
    in.push_back(*node);
  }
  if (isa<arith::IndexCastOp, arith::IndexCastUIOp, arith::ExtUIOp>(op))
    return in[0]; // Conditions are 0 or 1, everything else is i64.

  if (isa<arith::DivUIOp, arith::CeilDivUIOp, arith::RemUIOp, arith::MinUIOp, arith::MaxUIOp>(op))
    for (Node node : in)
      if (!pool_.isNonNegative(node))
        return op->emitOpError("expects operands that are known never to be negative; use the "
                               "signed operation");
  if (auto compare = dyn_cast<arith::CmpIOp>(op)) {
    Node a = in[0], b = in[1];
    switch (compare.getPredicate()) {
    case arith::CmpIPredicate::eq:
      return pool_.make(Op::Eq, a, b);
    case arith::CmpIPredicate::ne:
      return pool_.make(Op::Ne, a, b);
    case arith::CmpIPredicate::slt:
      return pool_.make(Op::Lt, a, b);
    case arith::CmpIPredicate::sle:
      return pool_.make(Op::Le, a, b);
    case arith::CmpIPredicate::sgt:
      return pool_.make(Op::Lt, b, a);
    case arith::CmpIPredicate::sge:
      return pool_.make(Op::Le, b, a);
    case arith::CmpIPredicate::ult:
      return lessUnsigned(a, b);
    case arith::CmpIPredicate::ugt:
      return lessUnsigned(b, a);
    case arith::CmpIPredicate::ule:
      return pool_.make(Op::Not, lessUnsigned(b, a));
    case arith::CmpIPredicate::uge:
      return pool_.make(Op::Not, lessUnsigned(a, b));
    }
  }
  if (isa<arith::RemSIOp>(op))
    return remainder(in[0], in[1]);
  if (isa<arith::NegFOp>(op)) // Not 0 - x, which loses the sign of zero.
    return pool_.make(Op::FMul, in[0], pool_.constant(-1.0));
  if (isa<arith::SelectOp>(op))
    return pool_.make(Op::Select, in[0], in[1], in[2]);
  if (isa<arith::SIToFPOp>(op))
    return pool_.make(Op::ToFloat, in[0]);
  Op binary = llvm::TypeSwitch<Operation *, Op>(op)
                  .Case([](arith::AddIOp) { return Op::Add; })
                  .Case([](arith::SubIOp) { return Op::Sub; })
                  .Case([](arith::MulIOp) { return Op::Mul; })
                  .Case<arith::FloorDivSIOp, arith::DivUIOp>([](auto) { return Op::FloorDiv; })
                  .Case<arith::CeilDivSIOp, arith::CeilDivUIOp>([](auto) { return Op::CeilDiv; })
                  .Case([](arith::RemUIOp) { return Op::Mod; })
                  .Case<arith::MinSIOp, arith::MinUIOp>([](auto) { return Op::Min; })
                  .Case<arith::MaxSIOp, arith::MaxUIOp>([](auto) { return Op::Max; })
                  .Case([](arith::AndIOp) { return Op::And; })
                  .Case([](arith::OrIOp) { return Op::Or; })
                  .Case([](arith::XOrIOp) { return Op::Ne; })
                  .Case([](sched::PairingOp) { return Op::Pairing; })
                  .Case([](arith::AddFOp) { return Op::FAdd; })
                  .Case([](arith::SubFOp) { return Op::FSub; })
                  .Case([](arith::MulFOp) { return Op::FMul; })
                  .Case([](arith::DivFOp) { return Op::FDiv; })
                  .Default([](Operation *) { return Op::FPowInt; });
  return pool_.make(binary, in[0], in[1]);
}

FailureOr<Node> Emitter::enterLoop(Value variable, Value lower, Value upper, unsigned depth) {
  FailureOr<Node> begin = expression(lower), end = expression(upper);
  if (failed(begin) || failed(end))
    return failure();
  Node loop = pool_.loop(depth, *begin, *end);
  nodes_[variable] = loop;
  return loop;
}

// ---- References ----

FailureOr<std::unique_ptr<fb::RangeT>> Emitter::range(Operation *op) {
  auto out = std::make_unique<fb::RangeT>();
  LogicalResult done = success();
  if (auto buffer = dyn_cast<sched::RangeOp>(op)) {
    out->space = fb::Space::Buffer;
    out->id = ids_.lookup(buffer.getBuffer());
    done = failure(failed(set(out->offset, buffer.getOffset())) ||
                   failed(set(out->bytes, buffer.getBytes())) ||
                   failed(set(out->when, buffer.getWhen())));
  } else {
    auto view = cast<sched::ViewOp>(op);
    out->space = fb::Space::Slot;
    out->id = ids_.lookup(view.getSlots());
    done = failure(
        failed(set(out->index, view.getSlot())) || failed(set(out->offset, view.getOffset())) ||
        failed(set(out->bytes, view.getBytes())) || failed(set(out->when, view.getWhen())));
  }
  if (failed(done))
    return failure();
  return out;
}

LogicalResult Emitter::ranges(OperandRange operands,
                              std::vector<std::unique_ptr<fb::RangesT>> &out) {
  for (Value operand : operands) {
    auto list = std::make_unique<fb::RangesT>();
    auto append = [&](Value reference) -> LogicalResult {
      FailureOr<std::unique_ptr<fb::RangeT>> one = range(reference.getDefiningOp());
      if (succeeded(one))
        list->ranges.push_back(std::move(*one));
      return one;
    };
    if (auto gather = operand.getDefiningOp<sched::GatherOp>()) {
      FailureOr<Node> loop = enterGather(gather);
      if (failed(loop))
        return failure();
      list->variable = pool_.loopId(*loop);
      if (failed(set(list->lower, gather.getLower())) ||
          failed(set(list->upper, gather.getUpper())))
        return failure();
      for (Value reference : gather.getBlock()->getTerminator()->getOperands())
        if (failed(append(reference)))
          return failure();
    } else if (failed(append(operand))) {
      return failure();
    }
    out.push_back(std::move(list));
  }
  return success();
}

LogicalResult Emitter::waits(OperandRange operands,
                             std::vector<std::unique_ptr<fb::EventRefT>> &out) {
  for (Value operand : operands) {
    auto gather = operand.getDefiningOp<sched::GatherOp>();
    SmallVector<Value> references = {operand};
    fb::EventRefT loopFields;
    if (gather) {
      FailureOr<Node> loop = enterGather(gather);
      if (failed(loop) || failed(set(loopFields.lower, gather.getLower())) ||
          failed(set(loopFields.upper, gather.getUpper())))
        return failure();
      loopFields.variable = pool_.loopId(*loop);
      references.assign(gather.getBlock()->getTerminator()->operand_begin(),
                        gather.getBlock()->getTerminator()->operand_end());
    }
    for (Value reference : references) {
      auto event = reference.getDefiningOp<sched::EventOp>();
      auto ref = std::make_unique<fb::EventRefT>(loopFields);
      ref->id = ids_.lookup(event.getEvents());
      if (failed(set(ref->index, event.getIndex())) || failed(set(ref->when, event.getWhen())))
        return failure();
      out.push_back(std::move(ref));
    }
  }
  return success();
}

// ---- Steps ----

std::unique_ptr<fb::MapCodeT> mapCode(const kernels::MapProgram &program) {
  auto out = std::make_unique<fb::MapCodeT>();
  for (const kernels::MapInstruction &one : program.code)
    out->code.emplace_back(static_cast<uint8_t>(one.op), one.a, one.b, one.c);
  out->constants = program.constants;
  out->outputs = program.outputs;
  out->inputs = program.inputs;
  out->scalars = program.scalars;
  out->broadcast = program.broadcast;
  return out;
}

std::unique_ptr<fb::CodecCodeT> codecCode(const kernels::CodecProgram &program) {
  auto out = std::make_unique<fb::CodecCodeT>();
  out->block = program.block;
  out->header_count = program.headerCount;
  out->code_bits = program.codeBits;
  out->signed_codes = program.signedCodes;
  out->stats = mapCode(program.stats);
  for (kernels::BlockReduction reduction : program.reductions)
    out->reductions.push_back(static_cast<uint8_t>(reduction));
  out->headers = mapCode(program.headers);
  out->encode = mapCode(program.encode);
  out->decode = mapCode(program.decode);
  return out;
}

FailureOr<uint32_t> Emitter::kernel(sched::LaunchOp op) {
  DictionaryAttr attributes = op.getKernelAttributes();
  std::pair<Attribute, Attribute> key = {op.getKernelAttr(), attributes};
  if (auto known = kernels_.find(key); known != kernels_.end())
    return known->second;
  auto kernel = std::make_unique<fb::KernelT>();
  kernel->name = op.getKernel().str();
  if (isMapKernel(op.getKernel())) {
    FailureOr<kernels::MapProgram> program = mapProgram(attributes, op);
    if (failed(program))
      return failure();
    kernel->map = mapCode(*program);
  } else if (isCodecKernel(op.getKernel())) {
    FailureOr<kernels::CodecProgram> program = codecProgram(attributes, op);
    if (failed(program))
      return failure();
    kernel->codec = codecCode(*program);
  } else {
    for (NamedAttribute attribute : attributes) { // Sorted by name.
      auto value = dyn_cast<IntegerAttr>(attribute.getValue());
      if (!value)
        return op.emitOpError("expects numbers as attributes of kernel '")
               << op.getKernel() << "', got '" << attribute.getName().getValue() << "' "
               << attribute.getValue();
      kernel->attributes.push_back(std::make_unique<fb::KernelAttributeT>());
      kernel->attributes.back()->name = attribute.getName().str();
      kernel->attributes.back()->value = value.getInt();
    }
  }
  auto index = static_cast<uint32_t>(schedule_.kernels.size());
  schedule_.kernels.push_back(std::move(kernel));
  return kernels_[key] = index;
}

uint32_t Emitter::location(Location location) {
  FileLineColRange file = fileLocation(location);
  if (!file)
    return kNone;
  std::string path = relativePath(file.getFilename().strref(), options_.sourceRoot);
  auto [entry, isNew] = locations_.try_emplace({path, file.getStartLine(), file.getStartColumn()},
                                               static_cast<uint32_t>(schedule_.locations.size()));
  if (isNew) {
    auto out = std::make_unique<fb::LocationT>();
    out->file = path;
    out->line = file.getStartLine();
    out->column = file.getStartColumn();
    schedule_.locations.push_back(std::move(out));
  }
  return entry->second;
}

LogicalResult Emitter::launch(sched::LaunchOp op, fb::LaunchT &launch) {
  FailureOr<uint32_t> index = kernel(op);
  if (failed(index))
    return failure();
  launch.kernel = *index;
  for (Value scalar : op.getScalars()) {
    launch.scalars.push_back(kNone);
    if (failed(set(launch.scalars.back(), scalar)))
      return failure();
  }
  return failure(failed(set(launch.count, op.getCount())) ||
                 failed(ranges(op.getInputs(), launch.inputs)) ||
                 failed(ranges(op.getOutputs(), launch.outputs)));
}

LogicalResult Emitter::action(sched::StepInterface op, fb::ActionUnion &action) {
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](sched::SendOp o) {
        fb::SendT send;
        send.channel = static_cast<uint32_t>(o.getChannel());
        send.source = std::make_unique<fb::RangeT>();
        send.source->space = fb::Space::Buffer;
        send.source->id = ids_.lookup(o.getBuffer());
        channelMax_ = std::max<int32_t>(channelMax_, o.getChannel());
        LogicalResult done = failure(failed(set(send.peer, o.getPeer())) ||
                                     failed(set(send.source->offset, o.getOffset())) ||
                                     failed(set(send.source->bytes, o.getBytes())));
        action.Set(std::move(send));
        return done;
      })
      .Case([&](sched::RecvOp o) {
        fb::RecvT recv;
        recv.channel = static_cast<uint32_t>(o.getChannel());
        recv.slots = ids_.lookup(o.getSlots());
        channelMax_ = std::max<int32_t>(channelMax_, o.getChannel());
        LogicalResult done =
            failure(failed(set(recv.peer, o.getPeer())) || failed(set(recv.index, o.getSlot())) ||
                    failed(set(recv.bytes, o.getBytes())));
        action.Set(std::move(recv));
        return done;
      })
      .Case([&](sched::ReleaseOp o) {
        fb::ReleaseT release;
        release.slots = ids_.lookup(o.getSlots());
        LogicalResult done = set(release.index, o.getSlot());
        action.Set(std::move(release));
        return done;
      })
      .Case([&](sched::LaunchOp o) {
        fb::LaunchT out;
        LogicalResult done = launch(o, out);
        action.Set(std::move(out));
        return done;
      })
      .Case([&](sched::WaitGateOp o) {
        fb::WaitT wait;
        wait.gate = static_cast<fb::Gate>(o.getGate());
        action.Set(std::move(wait));
        return success();
      })
      .Case([&](sched::PublishOp o) {
        fb::PublishT publish;
        publish.state = states_.lookup(o.getStateAttr().getAttr());
        action.Set(std::move(publish));
        return success();
      })
      .Default([](Operation *o) { return o->emitOpError("is no step of a schedule file"); });
}

LogicalResult Emitter::step(sched::StepInterface op, fb::StepT &step) {
  step.queue = static_cast<fb::Queue>(op.getStepQueue());
  step.location = location(op.getLoc());
  step.if_finite = op.getIfFinite();
  if (op.getSignal()) {
    step.signal = std::make_unique<fb::EventRefT>();
    step.signal->id = ids_.lookup(op.getSignal());
    if (failed(set(step.signal->index, op.getSignalIndex())))
      return failure();
  }
  return failure(failed(set(step.guard, op.getGuard())) ||
                 failed(waits(op.getAfter(), step.waits)) || failed(action(op, step.action)));
}

LogicalResult Emitter::body(Block &block, Steps &steps) {
  for (Operation &op : block) {
    auto out = std::make_unique<fb::StepT>();
    out->location = kNone;
    if (auto loop = dyn_cast<sched::ForOp>(op)) {
      fb::ForT action;
      FailureOr<Node> variable =
          enterLoop(loop.getVariable(), loop.getLower(), loop.getUpper(), loopDepth_);
      if (failed(variable) || failed(set(action.lower, loop.getLower())) ||
          failed(set(action.upper, loop.getUpper())))
        return failure();
      action.variable = pool_.loopId(*variable);
      ++loopDepth_;
      LogicalResult done = body(*loop.getBlock(), action.body);
      --loopDepth_;
      if (failed(done))
        return failure();
      if (action.body.empty())
        continue;
      out->location = location(op.getLoc());
      out->action.Set(std::move(action));
    } else if (auto branch = dyn_cast<sched::IfOp>(op)) {
      fb::IfT action;
      if (failed(set(action.condition, branch.getCondition())) ||
          failed(body(*branch.getThenBlock(), action.then)) ||
          (branch.getElseBlock() && failed(body(*branch.getElseBlock(), action.otherwise))))
        return failure();
      if (action.then.empty() && action.otherwise.empty())
        continue;
      out->location = location(op.getLoc());
      out->action.Set(std::move(action));
    } else if (auto one = dyn_cast<sched::StepInterface>(op)) {
      if (failed(step(one, *out)))
        return failure();
    } else {
      continue; // Expressions and references are emitted where they are used.
    }
    steps.push_back(std::move(out));
  }
  return success();
}

// ---- Programs ----

void Emitter::state(sched::DeclareStateOp op) {
  auto state = std::make_unique<fb::StateT>();
  state->name = op.getSymName().str();
  state->domain = static_cast<fb::StateDomain>(op.getDomain());
  state->copies = static_cast<uint32_t>(op.copies());
  state->initial = op.getInitial() ? op.getInitial()->convertToDouble() : 0;
  state->initial_weight = !op.getInitial();
  state->on_resize = static_cast<fb::OnResize>(op.getOnResize());
  states_[op.getSymNameAttr()] = static_cast<uint32_t>(schedule_.states.size());
  schedule_.states.push_back(std::move(state));
}

Node Emitter::stateBytes(sched::DeclareStateOp op) {
  using Op = fb::ExprOp;
  Node length = pool_.leaf(Op::Length), elements = length;
  switch (op.getDomain()) {
  case sched::StateDomain::Bucket:
    break;
  case sched::StateDomain::Scalar:
    elements = pool_.constant(int64_t{1});
    break;
  case sched::StateDomain::Neighbors:
    elements = pool_.make(Op::Mul, length, pool_.constant(op.copies()));
    break;
  case sched::StateDomain::Shard: {
    Node grain = pool_.constant(static_cast<int64_t>(schedule_.grain));
    Node blocks = pool_.make(Op::CeilDiv, length, grain);
    Node rank = pool_.leaf(Op::Rank), world = pool_.leaf(Op::World);
    auto border = [&](Node index) {
      Node block = pool_.make(Op::FloorDiv, pool_.make(Op::Mul, index, blocks), world);
      return pool_.make(Op::Min, length, pool_.make(Op::Mul, block, grain));
    };
    Node next = pool_.make(Op::Add, rank, pool_.constant(int64_t{1}));
    Node end = border(next);
    elements = pool_.make(Op::Sub, end, border(rank));
    break;
  }
  }
  return pool_.make(Op::Mul, elements, pool_.leaf(Op::ElementBytes));
}

LogicalResult Emitter::declaration(Operation *op, fb::ProgramT &program) {
  auto job = [&](sched::JobOp o) {
    auto buffer = std::make_unique<fb::BufferT>();
    buffer->name = o.getName().str();
    buffer->kind = fb::BufferKind::Job;
    buffer->role = static_cast<fb::Role>(o.getRole());
    buffer->bytes = pool_.make(fb::ExprOp::Mul, pool_.leaf(fb::ExprOp::Length),
                               pool_.leaf(fb::ExprOp::ElementBytes));
    ids_[o.getBuffer()] = static_cast<uint32_t>(program.buffers.size());
    program.buffers.push_back(std::move(buffer));
    return success();
  };
  auto state = [&](sched::StateOp o) {
    auto buffer = std::make_unique<fb::BufferT>();
    buffer->name = o.getName().str();
    buffer->kind = fb::BufferKind::State;
    buffer->state = states_.lookup(o.getStateAttr().getAttr());
    buffer->next = o.getNext();
    buffer->bytes = stateBytes(SymbolTable::lookupNearestSymbolFrom<sched::DeclareStateOp>(
        o->getParentOfType<sched::ScheduleOp>(), o.getStateAttr()));
    ids_[o.getBuffer()] = static_cast<uint32_t>(program.buffers.size());
    program.buffers.push_back(std::move(buffer));
    return success();
  };
  auto scratch = [&](sched::ScratchOp o) {
    auto buffer = std::make_unique<fb::BufferT>();
    buffer->name = o.getName().str();
    buffer->kind = fb::BufferKind::Scratch;
    ids_[o.getBuffer()] = static_cast<uint32_t>(program.buffers.size());
    LogicalResult done = set(buffer->bytes, o.getBytes());
    program.buffers.push_back(std::move(buffer));
    return done;
  };
  auto slots = [&](sched::SlotsOp o) {
    auto pool = std::make_unique<fb::SlotsT>();
    pool->name = o.getName().str();
    ids_[o.getSlots()] = static_cast<uint32_t>(program.slots.size());
    LogicalResult done =
        failure(failed(set(pool->count, o.getCount())) || failed(set(pool->bytes, o.getBytes())));
    program.slots.push_back(std::move(pool));
    return done;
  };
  auto events = [&](sched::EventsOp o) {
    auto array = std::make_unique<fb::EventsT>();
    array->name = o.getName().str();
    ids_[o.getEvents()] = static_cast<uint32_t>(program.events.size());
    LogicalResult done = set(array->count, o.getCount());
    program.events.push_back(std::move(array));
    return done;
  };
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case<sched::JobOp>(job)
      .Case<sched::ScratchOp>(scratch)
      .Case<sched::StateOp>(state)
      .Case<sched::SlotsOp>(slots)
      .Case<sched::EventsOp>(events)
      .Default([](Operation *) { return success(); });
}

LogicalResult Emitter::program(sched::ProgramOp op) {
  auto out = std::make_unique<fb::ProgramT>();
  out->name = op.getSymName().str();
  out->event = static_cast<fb::Event>(op.getTrigger());
  channelMax_ = -1;
  Block &block = op.getBody().front();
  for (Operation &inner : block)
    if (failed(declaration(&inner, *out)))
      return failure();
  if (failed(body(block, out->body)))
    return failure();
  auto cost = cast<sched::CostOp>(block.getTerminator());
  if (failed(set(out->rounds, cost.getRounds())) ||
      failed(set(out->wire_bytes, cost.getWireBytes())))
    return failure();
  out->channels = static_cast<uint32_t>(channelMax_ + 1);
  if (op.isAsync()) {
    auto count = [&](Attribute value) {
      auto name = dyn_cast<FlatSymbolRefAttr>(value);
      return name ? pool_.parameter(parameters_.lookup(name.getAttr()))
                  : pool_.constant(cast<IntegerAttr>(value).getInt());
    };
    out->every = count(*op.getEvery());
    out->every_unit = static_cast<fb::IntervalUnit>(*op.getEveryUnit());
    if (op.getAfter())
      out->after = count(*op.getAfter());
    out->staleness = static_cast<uint32_t>(*op.getStaleness());
  }
  schedule_.programs.push_back(std::move(out));
  return success();
}

LogicalResult Emitter::run(sched::ScheduleOp op) {
  schedule_.name = op.getSymName().str();
  schedule_.producer = options_.producer;
  schedule_.owns_update = op.getOwnsUpdate();
  if (op.getGrain() > std::numeric_limits<uint32_t>::max())
    return op.emitOpError("expects a grain that fits 32 bits in a schedule file, got ")
           << static_cast<int64_t>(op.getGrain());
  schedule_.grain = static_cast<uint32_t>(op.getGrain());
  for (Attribute dtype : op.getDtypes())
    schedule_.dtypes.push_back(cast<TypeAttr>(dtype).getValue().isF32() ? fb::DType::F32
                                                                        : fb::DType::F64);
  // Parameters first: programs may stand before those that they use.
  for (auto declared : op.getBody().getOps<sched::DeclareParameterOp>()) {
    auto parameter = std::make_unique<fb::ParameterT>();
    parameter->name = declared.getSymName().str();
    parameter->per_step = declared.getPerStep();
    if (auto real = dyn_cast<FloatAttr>(declared.getDefaultValue())) {
      parameter->is_float = true;
      parameter->default_float = real.getValueAsDouble();
    } else {
      parameter->default_int = cast<IntegerAttr>(declared.getDefaultValue()).getInt();
    }
    parameters_[declared.getSymNameAttr()] = static_cast<uint32_t>(schedule_.parameters.size());
    schedule_.parameters.push_back(std::move(parameter));
  }
  for (auto declared : op.getBody().getOps<sched::DeclareStateOp>())
    state(declared);
  for (auto inner : op.getBody().getOps<sched::ProgramOp>())
    if (failed(program(inner)))
      return failure();
  return success();
}

FailureOr<sched::ScheduleOp> onlySchedule(ModuleOp module) {
  auto schedules = module.getOps<sched::ScheduleOp>();
  auto count = std::distance(schedules.begin(), schedules.end());
  if (count != 1)
    return module.emitError("expects one sched.schedule to emit, got ") << count;
  return *schedules.begin();
}

} // namespace

FailureOr<fb::ScheduleT> buildSchedule(ModuleOp module, const EmitOptions &options) {
  FailureOr<sched::ScheduleOp> schedule = onlySchedule(module);
  if (failed(schedule))
    return failure();
  Emitter emitter(options);
  if (failed(emitter.run(*schedule)))
    return failure();
  return emitter.take();
}

FailureOr<std::vector<uint8_t>> emitSchedule(ModuleOp module, const EmitOptions &options) {
  FailureOr<fb::ScheduleT> schedule = buildSchedule(module, options);
  if (failed(schedule))
    return failure();
  rt::StatusOr<std::vector<uint8_t>> bytes = rt::serialize(*schedule);
  if (!bytes.ok())
    return (*onlySchedule(module))
        .emitOpError("gives a schedule that the runtime would refuse: ")
        .append(std::string(bytes.status().message()));
  return *std::move(bytes);
}

} // namespace bagua::compiler
