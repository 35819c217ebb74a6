// Turns what all ranks do in lockstep into what one rank does on its queues. SPEC.md, "From chunk
// to sched", has the rules and the argument why the result neither races nor deadlocks.
#include "Keys.h"

#include "bagua/compiler/ChunkPasses.h"
#include "bagua/dialect/Sched/Sched.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Dominance.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Transforms/CSE.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

#include <map>

using namespace mlir;
namespace chunk = bagua::ir::chunk;
namespace sched = bagua::ir::sched;

namespace bagua::compiler {

#define GEN_PASS_DEF_CHUNKTOSCHED
#include "bagua/compiler/ChunkPasses.h.inc"

namespace {

using Variables = llvm::SmallDenseMap<Value, Value>;

/// Where expressions are written, and what the variables in them stand for.
struct Env {
  OpBuilder builder;
  Variables variables;  ///< chunk.for or chunk.gather variable -> value in the sched program.
  Value rank = nullptr; ///< Null: this rank. Else …
  chunk::MoveOp sender; ///< … whoever sends this rank a message by this move, …
  Value place =
      nullptr; ///< … and its place in the group within which the move rotates, if it does.
  Variables memo;
  Value guard = nullptr; ///< Conditions of the step around; null: none.
};

struct Waits {
  SmallVector<Value> events;
  SmallVector<std::tuple<EventKey, Value, Value, Operation *, Value, Operation *>> seen;
};

SmallVector<chunk::ForOp> loopsAround(Operation *op) { // Outermost first.
  SmallVector<chunk::ForOp> loops;
  for (Operation *parent = op->getParentOp(); parent; parent = parent->getParentOp())
    if (auto loop = dyn_cast<chunk::ForOp>(parent))
      loops.push_back(loop);
  std::reverse(loops.begin(), loops.end());
  return loops;
}

class ProgramLowering {
public:
  ProgramLowering(chunk::ProgramOp source, sched::ProgramOp target, ChunkMessages &messages)
      : source_(source), messages_(messages), top_(target.getContext()),
        body_(&target.getBody().front()), stepsRegion_(new Region) {
    top_.setInsertionPointToStart(body_);
    stepsRegion_->emplaceBlock();
  }

  LogicalResult run();
  unsigned waitCount() const { return waitCount_; }

private:
  // Expressions.
  Value evaluate(Value value, Env &env);
  Value ownRank() { return leaf("rank"); }
  Value ownPlace(Group group);
  Value placeOf(Group group, Env &env);
  Value sizeOf(Group group);
  Value rankAt(Env &env, Group group, Value place);
  Value leaf(StringRef name);
  template <typename Op> Value make(Env &env, Value a, Value b) {
    return env.builder.createOrFold<Op>(location_, a, b);
  }
  Value compare(Env &env, arith::CmpIPredicate predicate, Value a, Value b) {
    return env.builder.createOrFold<arith::CmpIOp>(location_, predicate, a, b);
  }
  Value constant(int64_t value);
  Value negate(Env &env, Value condition) {
    Value yes = arith::ConstantIntOp::create(env.builder, location_, 1, 1);
    return make<arith::XOrIOp>(env, condition, yes);
  }
  Value world() { return leaf("world"); }
  Value modulo(Env &env, Value value, Value divisor);
  Value rotate(Env &env, chunk::MoveOp move, bool inverse);
  Value partner(Env &env, chunk::PeerMap map, ValueRange arguments, Operation *op);
  Value peer(Env &env, chunk::MoveOp move, bool inverse);
  Value guardOf(Env &env, Value condition, bool taken);
  Value guardOf(Env &env, chunk::MoveOp move, Value peer);
  bool isOfStep(const Conflict &conflict);
  Env at(const OpBuilder &builder, const Variables &variables) {
    return {builder, variables, nullptr, chunk::MoveOp(), nullptr, Variables(), guard_};
  }
  /// Where what the sender of a message that `env` receives by `move` does is computed.
  Env senderOf(Env &env, chunk::MoveOp move);
  Env topEnv() { return at(top_, Variables()); }

  // Storage.
  void declareStorage();

  // Steps.
  LogicalResult lowerBlock(Block &block, OpBuilder &builder, Variables &variables);
  LogicalResult emitSend(chunk::MoveOp move, Env &env);
  void emitRecv(chunk::MoveOp move, Env &env);
  LogicalResult emitLaunch(chunk::LaunchOp launch, Env &env);
  void emitRelease(chunk::MoveOp move, Env &env);
  /// Repeats the loops and conditions between `root` and `leaf` and calls `emit` inside.
  void emitUnder(Block *root, Operation *leaf, OpBuilder &builder, const Variables &variables,
                 llvm::function_ref<void(Env &)> emit);
  /// True if no slot of the pool is ever used again.
  bool isFilledOnce(Value slots) {
    Operation *owner = messages_.pools().find(slots)->second.scope->getParentOp();
    return !isa<chunk::ForOp>(owner) && loopsAround(owner).empty();
  }
  Value lowerRanges(Value operand, Env &env);
  Value lowerRange(Value range, Value when, Env &env);

  // Events.
  void remember(EventKey key, sched::StepInterface step, Env &env);
  Value eventIndex(Operation *op, Env &env);
  Value eventsOf(EventKey key);
  Value loopBase(chunk::ForOp loop);
  Value loopTrips(chunk::ForOp loop);
  LogicalResult waitFor(const Conflict &conflict, Env &env, Waits &waits);
  LogicalResult waitForIterations(const Conflict &conflict, const IterationSet &iterations,
                                  Env &env, Waits &waits);
  Value materialize(const Solution &solution, Env &consumer, Env &producerKey);
  LogicalResult checkReadBefore(chunk::MoveOp move, Operation *writer);
  void finishSignals();

  chunk::ProgramOp source_;
  ChunkMessages &messages_;
  OpBuilder top_; ///< Declarations and what does not depend on variables.
  Block *body_;
  std::unique_ptr<Region> stepsRegion_; ///< Steps, until everything above them is known.
  Location location_ = UnknownLoc::get(source_.getContext());

  Variables topMemo_;
  llvm::StringMap<Value> leaves_;
  std::map<int64_t, Value> constants_; // A DenseMap has no room for the extreme keys.
  Variables storage_;
  llvm::DenseMap<Operation *, unsigned> channels_;
  unsigned waitCount_ = 0;
  llvm::DenseMap<Operation *, unsigned> ordinals_; ///< Of launches and gates, for names.

  Value guard_;            ///< Conditions of the step around the block that is being lowered.
  bool ifFinite_ = false;  ///< It stands under chunk.if_finite.
  bool hasFailed_ = false; ///< An expression has no counterpart; a diagnostic was emitted.

  SmallVector<chunk::MoveOp> moves_;
  SmallVector<chunk::LaunchOp> launches_;
  SmallVector<chunk::WaitOp> gates_;
  struct Step {
    sched::StepInterface op;
    Value index;
  };
  llvm::DenseMap<EventKey, Step> steps_;
  llvm::MapVector<EventKey, Value> events_;
};

// ---- Expressions -------------------------------------------------------------------------------

Value ProgramLowering::leaf(StringRef name) {
  Value &value = leaves_[name];
  if (!value) {
    OperationState state(source_.getLoc(), ("sched." + name).str());
    state.addTypes(top_.getIndexType());
    value = top_.create(state)->getResult(0);
  }
  return value;
}

Value ProgramLowering::ownPlace(Group group) {
  switch (group) {
  case Group::World:
    return ownRank();
  case Group::Node:
    return leaf("local_rank");
  case Group::Cross: { // Ranks of a node follow each other.
    Env env = topEnv();
    return make<arith::FloorDivSIOp>(env, ownRank(), sizeOf(Group::Node));
  }
  }
  llvm_unreachable("all groups");
}

Value ProgramLowering::sizeOf(Group group) {
  return leaf(group == Group::World ? "world" : group == Group::Node ? "local_size" : "nodes");
}

/// The place of the rank of `env`.
Value ProgramLowering::placeOf(Group group, Env &env) {
  if (!env.rank)
    return ownPlace(group);
  std::optional<Group> rotated = env.sender.getRotated();
  if (group == Group::World)
    return env.rank;
  if (rotated == group)
    return env.place;
  if (rotated && rotated != Group::World) // Across the nodes, or within this one.
    return ownPlace(group);
  return group == Group::Node ? make<arith::RemSIOp>(env, env.rank, sizeOf(Group::Node))
                              : make<arith::FloorDivSIOp>(env, env.rank, sizeOf(Group::Node));
}

/// The rank at `place` in the group of the rank of `env`.
Value ProgramLowering::rankAt(Env &env, Group group, Value place) {
  if (group == Group::World)
    return place;
  Value node = group == Group::Cross ? place : placeOf(Group::Cross, env);
  Value local = group == Group::Node ? place : placeOf(Group::Node, env);
  return make<arith::AddIOp>(env, make<arith::MulIOp>(env, node, sizeOf(Group::Node)), local);
}

Value ProgramLowering::constant(int64_t value) {
  Value &known = constants_[value];
  if (!known)
    known = arith::ConstantIndexOp::create(top_, source_.getLoc(), value);
  return known;
}

Value ProgramLowering::evaluate(Value value, Env &env) {
  if (std::optional<Group> group = groupOfPlace(value))
    return placeOf(*group, env);
  if (isa<BlockArgument>(value))
    return env.variables.lookup(value);
  Operation *op = value.getDefiningOp();
  if (std::optional<Group> group = groupOfSize(value))
    return sizeOf(*group);
  if (isa<chunk::LengthOp>(op))
    return leaf("length");
  if (isa<chunk::ElementBytesOp>(op))
    return leaf("element_bytes");
  if (isa<chunk::StepOp>(op))
    return leaf("step");
  if (isa<chunk::BucketOp>(op))
    return leaf("bucket");
  if (auto number = constantOf(value); number && value.getType().isIndex())
    return constant(*number);

  // The sender's peer is this rank.
  std::optional<Group> rotated = env.sender ? env.sender.getRotated() : std::nullopt;
  if (auto remainder = dyn_cast<arith::RemSIOp>(op);
      remainder && rotated && groupOfSize(remainder.getRhs()) == rotated)
    if (auto sum = remainder.getLhs().getDefiningOp<arith::AddIOp>()) {
      Value a = sum.getLhs(), b = sum.getRhs();
      if (groupOfPlace(b) == rotated)
        std::swap(a, b);
      if (groupOfPlace(a) == rotated && b == env.sender.getArgument() && isNonNegative(b))
        return ownPlace(*rotated);
    }

  // What is the same everywhere in the program is computed once, at its top.
  bool everywhere =
      !messages_.dependsOnVariable(value) && (!env.rank || !messages_.dependsOnRank(value));
  Variables &memo = everywhere ? topMemo_ : env.memo;
  if (Value known = memo.lookup(value))
    return known;
  Value result;
  if (auto peer = dyn_cast<chunk::PeerOp>(op)) {
    Env inner = everywhere ? topEnv() : env;
    result = partner(inner, peer.getMap(), peer.getArguments(), op);
  } else if (auto parameter = dyn_cast<chunk::ParameterOp>(op)) {
    result = sched::ParameterOp::create(top_, op->getLoc(), value.getType(),
                                        parameter.getParameterAttr());
  } else {
    IRMapping mapping;
    for (Value operand : op->getOperands())
      mapping.map(operand, evaluate(operand, env));
    OpBuilder &builder = everywhere ? top_ : env.builder;
    Operation *clone = builder.clone(*op, mapping);
    SmallVector<Value> folded;
    if (succeeded(builder.tryFold(clone, folded)) && !folded.empty()) {
      result = folded[cast<OpResult>(value).getResultNumber()];
      clone->erase();
    } else {
      result = clone->getResult(cast<OpResult>(value).getResultNumber());
    }
  }
  // `memo` may have grown while operands were evaluated.
  return (everywhere ? topMemo_ : env.memo)[value] = result;
}

/// `value` modulo `divisor`, in [0, divisor), also where `value` is negative.
Value ProgramLowering::modulo(Env &env, Value value, Value divisor) {
  Value remainder = make<arith::RemSIOp>(env, value, divisor);
  Value positive = make<arith::AddIOp>(env, remainder, divisor);
  return make<arith::RemSIOp>(env, positive, divisor);
}

/// The place in the group to which this rank sends, or (inverse) from which it receives.
Value ProgramLowering::rotate(Env &env, chunk::MoveOp move, bool inverse) {
  Group group = *move.getRotated();
  Value argument = evaluate(move.getArgument(), env);
  bool small = isAtMostSize(move.getArgument(), group);
  Value place = ownPlace(group), size = sizeOf(group);
  if (inverse) {
    if (!small)
      argument = modulo(env, argument, size);
    place = make<arith::SubIOp>(env, make<arith::AddIOp>(env, place, size), argument);
    return make<arith::RemSIOp>(env, place, size);
  }
  Value sum = make<arith::AddIOp>(env, place, argument);
  return small || isNonNegative(move.getArgument()) ? make<arith::RemSIOp>(env, sum, size)
                                                    : modulo(env, sum, size);
}

/// The rank to which `map` takes the rank of `env`.
Value ProgramLowering::partner(Env &env, chunk::PeerMap map, ValueRange arguments, Operation *op) {
  chunk::MoveOp by = env.sender;
  if (by && by.getMap() == map && !chunk::rotatedBy(map) &&
      llvm::equal(by.getArguments(), arguments))
    return ownRank(); // The partner's partner.
  Value rank = env.rank ? env.rank : ownRank();
  SmallVector<Value> values;
  for (Value argument : arguments)
    values.push_back(evaluate(argument, env));
  Value t = values.back();
  switch (map) {
  case chunk::PeerMap::Rotate:
  case chunk::PeerMap::NodeRotate:
  case chunk::PeerMap::CrossRotate: {
    Group group = *chunk::rotatedBy(map);
    Value sum = make<arith::AddIOp>(env, placeOf(group, env), t);
    return rankAt(env, group, modulo(env, sum, sizeOf(group)));
  }
  case chunk::PeerMap::RoundRobin:
    return modulo(env, make<arith::SubIOp>(env, t, rank), world());
  case chunk::PeerMap::ShiftOne: {
    Value lower = make<arith::FloorDivSIOp>(env, world(), constant(2));
    Value upper = make<arith::SubIOp>(env, world(), lower);
    Value up =
        make<arith::AddIOp>(env, lower, modulo(env, make<arith::AddIOp>(env, t, rank), upper));
    Value down = make<arith::SubIOp>(env, make<arith::SubIOp>(env, rank, lower), t);
    down = modulo(env, down, upper);
    Value paired = compare(env, arith::CmpIPredicate::slt, down, lower);
    down = env.builder.createOrFold<arith::SelectOp>(location_, paired, down, rank);
    Value isLow = compare(env, arith::CmpIPredicate::slt, rank, lower);
    return env.builder.createOrFold<arith::SelectOp>(location_, isLow, up, down);
  }
  case chunk::PeerMap::Pairing:
    if (env.rank) { // peer_C2
      op->emitOpError("expects the partner of this rank where a receiver computes what its sender "
                      "does, got that of the sender in another matching");
      hasFailed_ = true;
    }
    return sched::PairingOp::create(env.builder, location_, values[0], values[1]);
  }
  llvm_unreachable("all peer maps");
}

/// The rank to which this one sends, or (inverse) from which it receives.
Value ProgramLowering::peer(Env &env, chunk::MoveOp move, bool inverse) {
  if (std::optional<Group> group = move.getRotated())
    return rankAt(env, *group, rotate(env, move, inverse));
  return partner(env, move.getMap(), move.getArguments(), move);
}

Env ProgramLowering::senderOf(Env &env, chunk::MoveOp move) {
  Env sender = at(env.builder, env.variables);
  if (std::optional<Group> group = move.getRotated()) {
    sender.place = rotate(env, move, /*inverse=*/true);
    sender.rank = rankAt(env, *group, sender.place);
  } else {
    sender.rank = peer(env, move, /*inverse=*/true);
  }
  sender.sender = move;
  return sender;
}

/// The guard of what stands under one more condition of the step.
Value ProgramLowering::guardOf(Env &env, Value condition, bool taken) {
  Value value = evaluate(condition, env);
  auto test = value.getDefiningOp<arith::CmpIOp>();
  if (test && !taken) // Not its negation: guards are compared as they are written.
    value = compare(env, arith::invertPredicate(test.getPredicate()), test.getLhs(), test.getRhs());
  else if (!taken)
    value = negate(env, value);
  return env.guard ? make<arith::AndIOp>(env, env.guard, value) : value;
}

/// The guard of a transfer: a rank whose partner is itself has none.
Value ProgramLowering::guardOf(Env &env, chunk::MoveOp move, Value peer) {
  if (move.getRotated())
    return env.guard;
  Value active = compare(env, arith::CmpIPredicate::ne, peer, ownRank());
  return env.guard ? make<arith::AndIOp>(env, env.guard, active) : active;
}

// ---- Storage -----------------------------------------------------------------------------------

void ProgramLowering::declareStorage() {
  Env env = topEnv();
  unsigned scratchCount = 0, slotsCount = 0;
  Value jobs[2];
  llvm::StringMap<Value> states; // By name in the program.
  for (Operation &op : source_.getBody().front()) {
    if (auto job = dyn_cast<chunk::JobOp>(op)) {
      Value &value = jobs[static_cast<uint32_t>(job.getRole())];
      if (!value)
        value = sched::JobOp::create(
            top_, op.getLoc(), sched::BufferType::get(op.getContext()),
            top_.getStringAttr(stringifyRole(job.getRole())),
            sched::RoleAttr::get(op.getContext(), static_cast<sched::Role>(job.getRole())));
      storage_[job] = value;
    } else if (auto state = dyn_cast<chunk::StateOp>(op)) {
      std::string name = "@" + state.getState().str() + (state.getNext() ? ".next" : "");
      Value &value = states[name];
      if (!value)
        value = sched::StateOp::create(top_, op.getLoc(), sched::BufferType::get(op.getContext()),
                                       top_.getStringAttr(name), state.getStateAttr(),
                                       state.getNextAttr());
      storage_[state] = value;
    } else if (auto scratch = dyn_cast<chunk::ScratchOp>(op)) {
      storage_[scratch] = sched::ScratchOp::create(
          top_, op.getLoc(), sched::BufferType::get(op.getContext()),
          top_.getStringAttr("scratch" + Twine(scratchCount++)), evaluate(scratch.getBytes(), env));
    } else if (auto slots = dyn_cast<chunk::SlotsOp>(op)) {
      storage_[slots] =
          sched::SlotsOp::create(top_, op.getLoc(), sched::SlotsType::get(op.getContext()),
                                 top_.getStringAttr("slots" + Twine(slotsCount++)),
                                 evaluate(slots.getCount(), env), evaluate(slots.getBytes(), env));
    }
  }
}

// ---- Steps -------------------------------------------------------------------------------------

LogicalResult ProgramLowering::run() {
  source_.walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (auto move = dyn_cast<chunk::MoveOp>(op)) {
      channels_[op] = moves_.size();
      moves_.push_back(move);
    } else if (auto launch = dyn_cast<chunk::LaunchOp>(op)) {
      ordinals_[op] = launches_.size();
      launches_.push_back(launch);
    } else if (auto gate = dyn_cast<chunk::WaitOp>(op)) {
      ordinals_[op] = gates_.size();
      gates_.push_back(gate);
    }
  });
  WalkResult checked = source_.walk([&](chunk::ForOp loop) -> WalkResult {
    if (messages_.dependsOnVariable(loop.getLower()) ||
        messages_.dependsOnVariable(loop.getUpper()))
      return loop.emitOpError("expects bounds that do not depend on the variable of an outer loop, "
                              "as each iteration has an event"); // for_C3
    return success();
  });
  if (checked.wasInterrupted())
    return failure();
  declareStorage();

  OpBuilder builder(source_.getContext());
  builder.setInsertionPointToStart(&stepsRegion_->front());
  Variables none;
  Block *top = &source_.getBody().front();
  // Receives that can never wait for a slot go first: nothing of this rank can then delay them.
  for (chunk::MoveOp move : moves_)
    if (isFilledOnce(move.getSlots()))
      emitUnder(top, move, builder, none, [&](Env &env) { emitRecv(move, env); });
  if (failed(lowerBlock(*top, builder, none)) || hasFailed_)
    return failure();
  finishSignals();

  chunk::CostOp cost = *source_.getBody().front().getOps<chunk::CostOp>().begin();
  Env env = topEnv();
  Value rounds = evaluate(cost.getRounds(), env), bytes = evaluate(cost.getWireBytes(), env);
  body_->getOperations().splice(body_->end(), stepsRegion_->front().getOperations());
  top_.setInsertionPointToEnd(body_);
  sched::CostOp::create(top_, cost.getLoc(), rounds, bytes);
  return success();
}

LogicalResult ProgramLowering::lowerBlock(Block &block, OpBuilder &builder, Variables &variables) {
  for (Operation &op : block) {
    location_ = op.getLoc();
    if (auto loop = dyn_cast<chunk::ForOp>(op)) {
      Env env = at(builder, variables);
      Value lower = evaluate(loop.getLower(), env), upper = evaluate(loop.getUpper(), env);
      auto out = sched::ForOp::create(builder, op.getLoc(), lower, upper);
      OpBuilder inner = OpBuilder::atBlockEnd(out.getBlock());
      variables[loop.getVariable()] = out.getVariable();
      if (failed(lowerBlock(loop.getBody().front(), inner, variables)))
        return failure();
      variables.erase(loop.getVariable());
    } else if (auto branch = dyn_cast<chunk::IfOp>(op);
               branch && messages_.dependsOnStep(branch.getCondition())) {
      Value outer = guard_;
      for (Region *body : {&branch.getThen(), &branch.getOtherwise()}) {
        if (body->empty())
          continue;
        Env env = at(builder, variables);
        guard_ = guardOf(env, branch.getCondition(), body == &branch.getThen());
        if (failed(lowerBlock(body->front(), builder, variables)))
          return failure();
        guard_ = outer;
      }
    } else if (auto finite = dyn_cast<chunk::IfFiniteOp>(op)) {
      ifFinite_ = true;
      if (failed(lowerBlock(finite.getBody().front(), builder, variables)))
        return failure();
      ifFinite_ = false;
    } else if (auto branch = dyn_cast<chunk::IfOp>(op)) {
      Env env = at(builder, variables);
      bool withElse = !branch.getOtherwise().empty();
      auto out =
          sched::IfOp::create(builder, op.getLoc(), evaluate(branch.getCondition(), env), withElse);
      OpBuilder inner = OpBuilder::atBlockEnd(out.getThenBlock());
      if (failed(lowerBlock(branch.getThen().front(), inner, variables)))
        return failure();
      if (withElse) {
        inner.setInsertionPointToEnd(out.getElseBlock());
        if (failed(lowerBlock(branch.getOtherwise().front(), inner, variables)))
          return failure();
      }
    } else if (auto forall = dyn_cast<chunk::ForallOp>(op)) {
      if (failed(lowerBlock(forall.getBody().front(), builder, variables)))
        return failure();
    } else if (auto move = dyn_cast<chunk::MoveOp>(op)) {
      Env env = at(builder, variables);
      if (!isFilledOnce(move.getSlots()))
        emitRecv(move, env);
      if (failed(emitSend(move, env)))
        return failure();
    } else if (auto launch = dyn_cast<chunk::LaunchOp>(op)) {
      Env env = at(builder, variables);
      if (failed(emitLaunch(launch, env)))
        return failure();
    } else if (auto gate = dyn_cast<chunk::WaitOp>(op)) {
      Env env = at(builder, variables);
      auto step =
          sched::WaitGateOp::create(builder, op.getLoc(), static_cast<sched::Gate>(gate.getGate()),
                                    sched::Queue::Cpu, ValueRange(), Value(), Value(), guard_);
      remember({gate, Happening::Done}, step, env);
    } else if (auto publish = dyn_cast<chunk::PublishOp>(op)) {
      // On the queue of the launches that write it.
      sched::PublishOp::create(builder, op.getLoc(), publish.getState(), ValueRange(), Value(),
                               Value(), guard_, ifFinite_);
    }
    for (auto &[slots, pool] : messages_.pools())
      if (pool.scope == &block && pool.last == &op)
        for (chunk::MoveOp move : pool.moves)
          emitUnder(&block, move, builder, variables, [&](Env &env) { emitRelease(move, env); });
  }
  return success();
}

void ProgramLowering::emitUnder(Block *root, Operation *leaf, OpBuilder &builder,
                                const Variables &variables, llvm::function_ref<void(Env &)> emit) {
  SmallVector<Operation *> path; // Innermost first, `leaf` itself included.
  for (Operation *op = leaf; op->getBlock() != root; op = op->getParentOp())
    path.push_back(op);
  path.push_back(root->findAncestorOpInBlock(*leaf));
  location_ = leaf->getLoc();
  Env env = at(builder, variables);
  for (size_t i = path.size(); i-- > 1;) {
    Block *next = path[i - 1]->getBlock();
    if (auto loop = dyn_cast<chunk::ForOp>(path[i])) {
      Value lower = evaluate(loop.getLower(), env), upper = evaluate(loop.getUpper(), env);
      auto out = sched::ForOp::create(env.builder, loop.getLoc(), lower, upper);
      env.builder.setInsertionPointToEnd(out.getBlock());
      env.variables[loop.getVariable()] = out.getVariable();
    } else if (auto branch = dyn_cast<chunk::IfOp>(path[i]);
               branch && messages_.dependsOnStep(branch.getCondition())) {
      env.guard = guardOf(env, branch.getCondition(), next->getParent() == &branch.getThen());
    } else if (auto branch = dyn_cast<chunk::IfOp>(path[i])) {
      Value condition = evaluate(branch.getCondition(), env);
      if (next->getParent() == &branch.getOtherwise()) {
        condition = negate(env, condition);
      }
      auto out = sched::IfOp::create(env.builder, branch.getLoc(), condition);
      env.builder.setInsertionPointToEnd(out.getThenBlock());
    }
  }
  emit(env);
}

void ProgramLowering::emitRecv(chunk::MoveOp move, Env &env) {
  location_ = move.getLoc();
  Env sender = senderOf(env, move);
  Value peer = sender.rank;
  Value guard = guardOf(env, move, peer);
  auto range = move.getSource().getDefiningOp<chunk::RangeOp>();
  Value slot = evaluate(move.getSlot(), sender), bytes = evaluate(range.getBytes(), sender);
  auto step =
      sched::RecvOp::create(env.builder, location_, storage_.lookup(move.getSlots()), slot, bytes,
                            peer, channels_.lookup(move), ValueRange(), Value(), Value(), guard);
  remember({move, Happening::Arrived}, step, env);
}

LogicalResult ProgramLowering::emitSend(chunk::MoveOp move, Env &env) {
  location_ = move.getLoc();
  auto range = move.getSource().getDefiningOp<chunk::RangeOp>();
  ChunkAccess access = ChunkMessages::accesses(move.getSource()).front();
  Waits waits;
  for (chunk::LaunchOp launch : launches_) // What was written must have been written.
    for (Value output : launch.getOutputs())
      for (const ChunkAccess &written : ChunkMessages::accesses(output))
        if (storage_.lookup(written.storage) == storage_.lookup(access.storage) &&
            failed(waitFor({{launch, Happening::Done},
                            written.gather ? Value() : written.key,
                            move,
                            &access,
                            written.group},
                           env, waits)))
          return failure();
  for (chunk::WaitOp gate : gates_)
    if (failed(waitFor({{gate, Happening::Done}, nullptr, move, nullptr}, env, waits)))
      return failure();
  Value peer = this->peer(env, move, /*inverse=*/false);
  Value guard = guardOf(env, move, peer);
  Value offset = evaluate(range.getOffset(), env), bytes = evaluate(range.getBytes(), env);
  auto step = sched::SendOp::create(env.builder, location_, storage_.lookup(range.getBuffer()),
                                    offset, bytes, peer, channels_.lookup(move), waits.events,
                                    Value(), Value(), guard);
  remember({move, Happening::Sent}, step, env);
  return success();
}

LogicalResult ProgramLowering::emitLaunch(chunk::LaunchOp launch, Env &env) {
  location_ = launch.getLoc();
  Waits waits;
  for (Value input : launch.getInputs()) // What is read must have arrived.
    for (const ChunkAccess &access : ChunkMessages::accesses(input))
      if (auto pool = messages_.pools().find(access.storage); pool != messages_.pools().end())
        for (chunk::MoveOp move : pool->second.moves)
          if (failed(waitFor({{move, Happening::Arrived}, move.getSlot(), launch, &access}, env,
                             waits)))
            return failure();
  for (Value output : launch.getOutputs()) // What is overwritten must have been sent.
    for (const ChunkAccess &access : ChunkMessages::accesses(output))
      for (chunk::MoveOp move : moves_) {
        auto sent = move.getSource().getDefiningOp<chunk::RangeOp>();
        if (storage_.lookup(sent.getBuffer()) == storage_.lookup(access.storage) &&
            failed(
                waitFor({{move, Happening::Sent}, sent.getPart(), launch, &access, sent.getGroup()},
                        env, waits)))
          return failure();
      }
  SmallVector<Value> inputs, outputs, scalars;
  for (Value input : launch.getInputs())
    inputs.push_back(lowerRanges(input, env));
  for (Value output : launch.getOutputs())
    outputs.push_back(lowerRanges(output, env));
  for (Value scalar : launch.getScalars())
    scalars.push_back(evaluate(scalar, env));
  Value count = evaluate(launch.getCount(), env);
  auto step = sched::LaunchOp::create(
      env.builder, location_, launch.getKernelAttr(),
      launch.getConstants().value_or(env.builder.getDictionaryAttr({})), count, inputs, outputs,
      scalars, waits.events, Value(), Value(), env.guard, ifFinite_);
  remember({launch, Happening::Done}, step, env);
  return success();
}

/// On the cpu queue, behind the last reader there; the event matters where no launch read the
/// message.
void ProgramLowering::emitRelease(chunk::MoveOp move, Env &env) {
  Env sender = senderOf(env, move);
  Value guard = guardOf(env, move, sender.rank);
  Value slot = evaluate(move.getSlot(), sender);
  Value events = eventsOf({move, Happening::Arrived}), index = eventIndex(move, env);
  Value arrived = sched::EventOp::create(
      env.builder, location_, sched::EventType::get(move.getContext()), events, index, Value());
  sched::ReleaseOp::create(env.builder, location_, storage_.lookup(move.getSlots()), slot,
                           sched::Queue::Cpu, ValueRange(arrived), Value(), Value(), guard);
}

Value ProgramLowering::lowerRange(Value range, Value when, Env &env) {
  Type type = sched::RangeType::get(range.getContext());
  if (auto view = range.getDefiningOp<chunk::ViewOp>()) {
    Value slot = evaluate(view.getIndex(), env), offset = evaluate(view.getOffset(), env),
          bytes = evaluate(view.getBytes(), env);
    return sched::ViewOp::create(env.builder, location_, type, storage_.lookup(view.getSlots()),
                                 slot, offset, bytes, when);
  }
  auto op = range.getDefiningOp<chunk::RangeOp>();
  Value offset = evaluate(op.getOffset(), env), bytes = evaluate(op.getBytes(), env);
  return sched::RangeOp::create(env.builder, location_, type, storage_.lookup(op.getBuffer()),
                                offset, bytes, when);
}

Value ProgramLowering::lowerRanges(Value operand, Env &env) {
  auto gather = operand.getDefiningOp<chunk::GatherOp>();
  if (!gather)
    return lowerRange(operand, nullptr, env);
  Value lower = evaluate(gather.getLower(), env), upper = evaluate(gather.getUpper(), env);
  auto out = sched::GatherOp::create(env.builder, location_,
                                     sched::RangesType::get(operand.getContext()), lower, upper);
  OpBuilder inner = OpBuilder::atBlockBegin(out.getBlock());
  Env innerEnv = at(inner, env.variables);
  innerEnv.variables[gather.getVariable()] = out.getVariable();
  chunk::YieldOp yield = gather.getYield();
  SmallVector<Value> ranges;
  for (auto [i, range] : llvm::enumerate(yield.getRanges())) {
    Value when =
        yield.getConditions().empty() ? Value() : evaluate(yield.getConditions()[i], innerEnv);
    ranges.push_back(lowerRange(range, when, innerEnv));
  }
  sched::YieldOp::create(innerEnv.builder, location_, ranges);
  return out.getList();
}

// ---- Events ------------------------------------------------------------------------------------

Value ProgramLowering::loopBase(chunk::ForOp loop) {
  auto lower = constantOf(loop.getLower());
  if (lower && (*lower == 0 || *lower == 1)) // A loop from 1 leaves event 0 unused.
    return constant(0);
  Env env = topEnv();
  return evaluate(loop.getLower(), env);
}

Value ProgramLowering::loopTrips(chunk::ForOp loop) {
  Env env = topEnv();
  Value upper = evaluate(loop.getUpper(), env);
  Value trips = make<arith::SubIOp>(env, upper, loopBase(loop));
  return isNonNegative(loop.getUpper()) && trips == upper
             ? upper
             : make<arith::MaxSIOp>(env, trips, constant(0));
}

Value ProgramLowering::eventIndex(Operation *op, Env &env) {
  Value index;
  for (chunk::ForOp loop : loopsAround(op)) {
    Value own = make<arith::SubIOp>(env, env.variables.lookup(loop.getVariable()), loopBase(loop));
    index = index ? make<arith::AddIOp>(env, make<arith::MulIOp>(env, index, loopTrips(loop)), own)
                  : own;
  }
  return index ? index : constant(0);
}

Value ProgramLowering::eventsOf(EventKey key) {
  Value &events = events_[key];
  if (events)
    return events;
  Env env = topEnv();
  Value count = constant(1);
  for (chunk::ForOp loop : loopsAround(key.first))
    count = make<arith::MulIOp>(env, count, loopTrips(loop));
  Twine number = isa<chunk::MoveOp>(key.first) ? Twine(channels_.lookup(key.first))
                                               : Twine(ordinals_.lookup(key.first));
  StringRef what = key.second == Happening::Sent      ? "sent"
                   : key.second == Happening::Arrived ? "arrived"
                   : isa<chunk::WaitOp>(key.first)    ? "gate"
                                                      : "done";
  // Declared where its count is known; evaluating it has not touched `events_`.
  events = sched::EventsOp::create(top_, key.first->getLoc(),
                                   sched::EventsType::get(source_.getContext()),
                                   top_.getStringAttr(what + number), count);
  return events;
}

void ProgramLowering::remember(EventKey key, sched::StepInterface step, Env &env) {
  env.builder.setInsertionPoint(step);
  Value index = eventIndex(key.first, env);
  env.builder.setInsertionPointAfter(step);
  steps_[key] = {step, index};
}

void ProgramLowering::finishSignals() {
  for (auto &[key, events] : events_) {
    Step step = steps_.lookup(key);
    auto assign = [&](auto op) {
      op.getSignalMutable().assign(events);
      op.getSignalIndexMutable().assign(step.index);
    };
    Operation *op = step.op;
    if (auto send = dyn_cast<sched::SendOp>(op))
      assign(send);
    else if (auto recv = dyn_cast<sched::RecvOp>(op))
      assign(recv);
    else if (auto launch = dyn_cast<sched::LaunchOp>(op))
      assign(launch);
    else
      assign(cast<sched::WaitGateOp>(op));
  }
}

/// A launch that overwrites what a move sends waits until it was read: the readers must come first.
LogicalResult ProgramLowering::checkReadBefore(chunk::MoveOp move, Operation *writer) {
  const ChunkMessages::Pool &pool = messages_.pools().find(move.getSlots())->second;
  auto [last, own] = ancestorsInCommonBlock(pool.last, writer);
  if (last != own && last->isBeforeInBlock(own))
    return success();
  // Around the pool's scope there may be a loop: messages of earlier iterations are gone.
  auto [sends, writes] = ancestorsInCommonBlock(move, writer);
  if ((sends == writes || writes->isBeforeInBlock(sends)) &&
      pool.scope->findAncestorOpInBlock(*writer))
    return success();
  InFlightDiagnostic error = writer->emitOpError(
      "expects that nobody reads any more what it overwrites, got bytes that an earlier move sends "
      "and whose message is read later"); // launch_C6
  error.attachNote(move.getLoc()) << "sent here";
  error.attachNote(pool.last->getLoc()) << "read until here";
  return error;
}

/// Adds the events of all steps of the producer that come before the consumer and may touch the
/// same bytes.
LogicalResult ProgramLowering::waitFor(const Conflict &conflict, Env &env, Waits &waits) {
  Operation *producer = conflict.producer.first;
  auto [first, second] = ancestorsInCommonBlock(producer, conflict.consumer);
  SmallVector<chunk::ForOp> common = loopsAround(first), all = loopsAround(producer);
  auto from = [&](size_t i) { return SmallVector<chunk::ForOp>(ArrayRef(all).drop_front(i)); };
  if (first != second && first->isBeforeInBlock(second) &&
      failed(waitForIterations(conflict, {from(common.size()), nullptr, first->getParentOp()}, env,
                               waits)))
    return failure();
  if (conflict.producer.second == Happening::Arrived) // Messages end with the scope of their pool,
    return success();                                 // and loops around both are around that.
  for (size_t i = 0; i < common.size(); ++i) // Earlier iterations of the loops around both.
    if (failed(waitForIterations(conflict, {from(i), common[i], common[i]}, env, waits)))
      return failure();
  return success();
}

/// Writes the solution's value: with a modulus, reduced to [0, modulus).
Value ProgramLowering::materialize(const Solution &solution, Env &consumer, Env &producerKey) {
  const Linear &sum = solution.value;
  Value positive = constant(0), negative = constant(0);
  int64_t sizes = 0;   // Added so that the sum is not negative.
  bool bounded = true; // It cannot be.
  for (auto &[term, coefficient] : sum.terms) {
    Value value = !term.value ? ownPlace(term.group)
                              : evaluate(term.value, term.ofProducer ? producerKey : consumer);
    value = make<arith::MulIOp>(consumer, value, constant(std::abs(coefficient)));
    Value &side = coefficient > 0 ? positive : negative;
    side = make<arith::AddIOp>(consumer, side, value);
    if (coefficient > 0)
      bounded &= !term.value || isNonNegative(term.value);
    else if (sum.modulus) {
      sizes -= coefficient;
      bounded &= term.value ? isAtMostSize(term.value, *sum.modulus) : term.group == sum.modulus;
    }
  }
  if (sum.modulus) {
    sizes += std::max<int64_t>(0, -sum.constant);
    Value addend = make<arith::MulIOp>(consumer, sizeOf(*sum.modulus), constant(sizes));
    positive = make<arith::AddIOp>(consumer, positive, addend);
  }
  positive = make<arith::AddIOp>(consumer, positive, constant(sum.constant));
  Value value = make<arith::SubIOp>(consumer, positive, negative);
  if (!sum.modulus)
    return value;
  Value size = sizeOf(*sum.modulus);
  return bounded ? make<arith::RemSIOp>(consumer, value, size) : modulo(consumer, value, size);
}

/// True if the keys are known at each step only: then the wait, which is of bind time, is for all.
bool ProgramLowering::isOfStep(const Conflict &conflict) {
  chunk::MoveOp by = conflict.receivedBy();
  bool peers = by && messages_.dependsOnRank(conflict.producerKey) &&
               llvm::any_of(by.getArguments(),
                            [&](Value argument) { return messages_.dependsOnStep(argument); });
  return peers || messages_.dependsOnStep(conflict.producerKey) ||
         messages_.dependsOnStep(conflict.access->key);
}

LogicalResult ProgramLowering::waitForIterations(const Conflict &conflict,
                                                 const IterationSet &iterations, Env &env,
                                                 Waits &waits) {
  // ---- Can they touch the same bytes, and in which iteration?
  Operation *producer = conflict.producer.first;
  Value consumerKey = conflict.access ? conflict.access->key : Value();
  bool keyed = conflict.producerKey && consumerKey &&
               conflict.producerGroup == conflict.access->group && !isOfStep(conflict);
  std::optional<Solution> solution;
  Keys keys(messages_);
  if (keyed) {
    solution = keys.solve(conflict, iterations);
    Relation relation = solution ? keys.relate(*solution) : keys.relate(conflict, iterations);
    if (relation == Relation::Never)
      return success();
    keyed = relation != Relation::Always;
  }
  if (!keyed && conflict.producer.second == Happening::Sent &&
      failed(checkReadBefore(cast<chunk::MoveOp>(producer), conflict.consumer)))
    return failure();

  chunk::GatherOp gather = keyed ? conflict.access->gather : chunk::GatherOp();
  Value condition = gather ? conflict.access->condition : Value();
  std::tuple<EventKey, Value, Value, Operation *, Value, Operation *> query = {
      conflict.producer,
      keyed ? conflict.producerKey : Value(),
      keyed ? consumerKey : Value(),
      gather,
      condition,
      iterations.carried};
  if (llvm::is_contained(waits.seen, query))
    return success();
  waits.seen.push_back(query);
  Value events = eventsOf(conflict.producer);

  // ---- What is left to enumerate: the consumer's list, and iterations that no key determines.
  struct Dimension {
    Value variable, lower, upper;
  };
  SmallVector<Dimension> dimensions;
  auto upperOf = [&](chunk::ForOp loop) {
    return loop == iterations.carried ? env.variables.lookup(loop.getVariable())
                                      : evaluate(loop.getUpper(), env);
  };
  if (gather)
    dimensions.push_back(
        {gather.getVariable(), evaluate(gather.getLower(), env), evaluate(gather.getUpper(), env)});
  for (chunk::ForOp loop : iterations.free)
    if (!solution || loop != solution->loop)
      dimensions.push_back({loop.getVariable(), evaluate(loop.getLower(), env), upperOf(loop)});
  MLIRContext *context = source_.getContext();
  sched::GatherOp list;
  Env consumer = at(env.builder, env.variables);
  SmallVector<Value> values; // Of the dimensions' variables.
  if (dimensions.size() == 1) {
    list = sched::GatherOp::create(env.builder, location_, sched::EventListType::get(context),
                                   dimensions[0].lower, dimensions[0].upper);
    consumer.builder.setInsertionPointToStart(list.getBlock());
    values.push_back(list.getVariable());
  } else if (!dimensions.empty()) {
    Value total = constant(1);
    SmallVector<Value> trips;
    for (Dimension &dimension : dimensions) {
      Value difference = make<arith::SubIOp>(env, dimension.upper, dimension.lower);
      trips.push_back(make<arith::MaxSIOp>(env, difference, constant(0)));
      total = make<arith::MulIOp>(env, total, trips.back());
    }
    list = sched::GatherOp::create(env.builder, location_, sched::EventListType::get(context),
                                   constant(0), total);
    consumer.builder.setInsertionPointToStart(list.getBlock());
    Value rest = list.getVariable();
    values.resize(dimensions.size());
    for (size_t i = dimensions.size(); i-- > 0;) {
      Value step = i == 0 ? rest : make<arith::RemSIOp>(consumer, rest, trips[i]);
      if (i > 0)
        rest = make<arith::FloorDivSIOp>(consumer, rest, trips[i]);
      values[i] = make<arith::AddIOp>(consumer, step, dimensions[i].lower);
    }
  }
  Env own = at(consumer.builder, env.variables); // The producer's expressions, on this rank.
  for (auto [dimension, value] : llvm::zip(dimensions, values))
    (gather && dimension.variable == gather.getVariable() ? consumer : own)
        .variables[dimension.variable] = value;
  // `own` and `consumer` share one place to write to.

  // ---- Under which condition?
  Value when;
  auto require = [&](Value condition) {
    if (!matchPattern(condition, m_One()))
      when = when ? make<arith::AndIOp>(consumer, when, condition) : condition;
  };
  auto keyEnv = [&] {
    chunk::MoveOp move = conflict.receivedBy();
    return move ? senderOf(own, move) : at(consumer.builder, own.variables);
  };
  if (condition)
    require(evaluate(condition, consumer));
  if (solution) {
    const Linear &sum = solution->value;
    bool usesProducer = llvm::any_of(sum.terms, [](auto &entry) { return entry.first.ofProducer; });
    Env producerKey = usesProducer ? keyEnv() : at(consumer.builder, own.variables);
    Value iteration = materialize(*solution, consumer, producerKey);
    chunk::ForOp loop = solution->loop;
    own.variables[loop.getVariable()] = iteration;
    auto lower = constantOf(loop.getLower());
    std::optional<Group> modulus = sum.modulus;
    bool exact = !modulus || (isPlaceNumber(conflict.producerKey, *modulus) &&
                              isPlaceNumber(consumerKey, *modulus));
    auto isPlace = [&](Group group) { // The iteration itself.
      auto term = sum.asTerm();
      return modulus ? modulus == group : term && term->isPlaceNumber(group);
    };
    bool isNotNegative = isPlace(Group::World) || isPlace(Group::Node) || isPlace(Group::Cross);
    auto difference = sum.asDifference();
    if (lower == 1 && modulus && keys.isNeverZero(sum, conflict)) {
      // A remainder of at least 1.
    } else if (lower == 1 && modulus && difference && difference->first.isPlaceNumber(*modulus) &&
               difference->second.isPlaceNumber(*modulus)) {
      auto [a, b] = *difference;
      require(compare(consumer, arith::CmpIPredicate::ne,
                      a.value ? evaluate(a.value, consumer) : ownPlace(a.group),
                      b.value ? evaluate(b.value, consumer) : ownPlace(b.group)));
    } else if (!(lower == 0 && isNotNegative)) {
      require(
          compare(consumer, arith::CmpIPredicate::sge, iteration, evaluate(loop.getLower(), own)));
    }
    std::optional<Group> upper = groupOfSize(loop.getUpper());
    if (loop == iterations.carried || !(upper && isPlace(*upper)))
      require(compare(consumer, arith::CmpIPredicate::slt, iteration, upperOf(loop)));
    keyed = !exact;
  }
  if (keyed) {
    Env producerKey = keyEnv();
    require(compare(consumer, arith::CmpIPredicate::eq, evaluate(conflict.producerKey, producerKey),
                    evaluate(consumerKey, consumer)));
  }
  for (Operation *op = producer; op->getParentOp() != iterations.stop; op = op->getParentOp())
    if (auto branch = dyn_cast<chunk::IfOp>(op->getParentOp());
        branch && !messages_.dependsOnStep(branch.getCondition())) { // Guards do not matter here.
      Value taken = evaluate(branch.getCondition(), own);
      require(op->getParentRegion() == &branch.getOtherwise() ? negate(own, taken) : taken);
    }
  Value index = eventIndex(producer, own);
  Value event = sched::EventOp::create(consumer.builder, location_, sched::EventType::get(context),
                                       events, index, when);
  if (list)
    sched::YieldOp::create(consumer.builder, location_, event);
  waits.events.push_back(list ? Value(list.getList()) : event);
  ++waitCount_;
  return success();
}

} // namespace

struct ChunkToSched final : impl::ChunkToSchedBase<ChunkToSched> {
  using ChunkToSchedBase::ChunkToSchedBase;

  void runOnOperation() override {
    SmallVector<chunk::ScheduleOp> schedules(getOperation().getOps<chunk::ScheduleOp>());
    if (schedules.empty())
      return markAllAnalysesPreserved();
    for (chunk::ScheduleOp schedule : schedules)
      if (failed(lower(schedule)))
        return signalPassFailure();
  }

private:
  LogicalResult lower(chunk::ScheduleOp source) {
    OpBuilder builder(source);
    OperationState state(source.getLoc(), sched::ScheduleOp::getOperationName());
    state.addAttributes(llvm::to_vector(source->getDiscardableAttrs()));
    state.addRegion()->emplaceBlock();
    auto target = cast<sched::ScheduleOp>(builder.create(state));
    target.setSymNameAttr(source.getSymNameAttr());
    target.setGrainAttr(source.getGrainAttr());
    target.setDtypesAttr(source.getDtypesAttr());
    target.setOwnsUpdate(source.getOwnsUpdate());
    builder.setInsertionPointToEnd(&target.getBody().front());
    for (Operation &op : source.getBody().front()) {
      if (auto parameter = dyn_cast<chunk::DeclareParameterOp>(op)) {
        sched::DeclareParameterOp::create(builder, op.getLoc(), parameter.getSymNameAttr(),
                                          parameter.getDefaultValueAttr(),
                                          parameter.getPerStepAttr());
        continue;
      }
      if (auto state = dyn_cast<chunk::DeclareStateOp>(op)) {
        MLIRContext *context = op.getContext();
        sched::DeclareStateOp::create(
            builder, op.getLoc(), state.getSymNameAttr(),
            sched::StateDomainAttr::get(context,
                                        static_cast<sched::StateDomain>(state.getDomain())),
            state.getBucketsAttr(), state.getInitialAttr(),
            sched::OnResizeAttr::get(context, static_cast<sched::OnResize>(state.getOnResize())));
        continue;
      }
      auto program = cast<chunk::ProgramOp>(op);
      FailureOr<ChunkMessages> messages = ChunkMessages::analyze(program);
      if (failed(messages))
        return failure();
      OperationState programState(op.getLoc(), sched::ProgramOp::getOperationName());
      programState.addAttributes(llvm::to_vector(op.getDiscardableAttrs()));
      programState.addRegion()->emplaceBlock();
      auto out = cast<sched::ProgramOp>(builder.create(programState));
      out.setSymNameAttr(program.getSymNameAttr());
      out.setTrigger(static_cast<sched::Trigger>(program.getEvent()));
      if (program.isAsync()) {
        out.setEveryAttr(program.getEveryAttr());
        out.setEveryUnit(static_cast<sched::IntervalUnit>(*program.getEveryUnit()));
        out.setAfterAttr(program.getAfterAttr());
        out.setStalenessAttr(program.getStalenessAttr());
      }
      ProgramLowering lowering(program, out, *messages);
      if (failed(lowering.run()))
        return failure();
      numWaits += lowering.waitCount();
      simplify(out);
    }
    source.erase();
    return success();
  }

  /// Expressions were written where they were needed: share and fold them.
  static void simplify(sched::ProgramOp program) {
    IRRewriter rewriter(program.getContext());
    for (int pass = 0; pass < 2; ++pass) {
      DominanceInfo dominance(program);
      eliminateCommonSubExpressions(rewriter, dominance, program);
      if (pass == 0)
        (void)applyPatternsGreedily(program.getOperation(), FrozenRewritePatternSet());
    }
  }
};

} // namespace bagua::compiler
