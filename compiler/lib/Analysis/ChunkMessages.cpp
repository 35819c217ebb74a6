// Uniformity, and the life of messages, of chunk programs.
#include "bagua/compiler/ChunkMessages.h"

#include "bagua/Expand.h"

using namespace mlir;
using namespace bagua::ir::chunk;

namespace bagua::compiler {

std::pair<Operation *, Operation *> ancestorsInCommonBlock(Operation *first, Operation *second) {
  for (Operation *op = first; op; op = op->getParentOp())
    if (Block *block = op->getBlock())
      if (Operation *other = block->findAncestorOpInBlock(*second))
        return {op, other};
  return {nullptr, nullptr};
}

SmallVector<ChunkAccess> ChunkMessages::accesses(Value operand) {
  auto one = [](Value range) {
    if (auto view = range.getDefiningOp<ViewOp>())
      return ChunkAccess{view.getSlots(), view.getIndex(), range, nullptr, nullptr};
    auto op = range.getDefiningOp<RangeOp>();
    return ChunkAccess{op.getBuffer(), op.getPart(), range, nullptr, nullptr, op.getGroup()};
  };
  auto gather = operand.getDefiningOp<GatherOp>();
  if (!gather)
    return {one(operand)};
  SmallVector<ChunkAccess> list;
  YieldOp yield = gather.getYield();
  for (auto [i, range] : llvm::enumerate(yield.getRanges())) {
    ChunkAccess access = one(range);
    access.gather = gather;
    if (!yield.getConditions().empty())
      access.condition = yield.getConditions()[i];
    list.push_back(access);
  }
  return list;
}

/// True if `op` is the value of a parameter that may change from step to step.
static bool isPerStep(Operation *op) {
  auto parameter = dyn_cast<ParameterOp>(op);
  if (!parameter)
    return false;
  auto declaration = SymbolTable::lookupNearestSymbolFrom<DeclareParameterOp>(
      op->getParentOfType<ScheduleOp>(), parameter.getParameterAttr());
  return declaration && declaration.getPerStep();
}

ChunkMessages::Facts ChunkMessages::facts(Value value) {
  if (auto known = facts_.find(value); known != facts_.end())
    return known->second;
  Facts result;
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    Operation *owner = argument.getOwner()->getParentOp();
    if (isa<ForallOp>(owner)) {
      result.rank = true;
    } else { // chunk.for, chunk.gather: their bounds are their operands.
      result.variable = true;
      for (Value bound : owner->getOperands()) {
        result.rank |= facts(bound).rank;
        result.step |= facts(bound).step;
      }
    }
  } else {
    Operation *op = value.getDefiningOp();
    result.rank = isa<RankOp, LocalRankOp, NodeOp, PeerOp>(op);
    result.step = isa<StepOp>(op) || isPerStep(op);
    for (Value operand : op->getOperands()) {
      Facts of = facts(operand);
      result.rank |= of.rank;
      result.variable |= of.variable;
      result.step |= of.step;
    }
  }
  return facts_[value] = result;
}

LogicalResult ChunkMessages::checkUniform(MoveOp move) {
  auto refuse = [&](Operation *op, StringRef what) {
    InFlightDiagnostic error = op->emitOpError("expects ")
                               << what << " that is the same on all ranks, got one that depends on "
                               << "the rank";
    if (op != move.getOperation())
      error.attachNote(move.getLoc()) << "a move is executed under it";
    return error;
  };
  for (Operation *op = move->getParentOp(); op; op = op->getParentOp()) {
    if (auto loop = dyn_cast<ForOp>(op)) // for_C2
      if (dependsOnRank(loop.getLower()) || dependsOnRank(loop.getUpper()))
        return refuse(loop, "a bound");
    if (auto branch = dyn_cast<IfOp>(op)) // if_C2
      if (dependsOnRank(branch.getCondition()))
        return refuse(branch, "a condition");
  }
  if (llvm::any_of(move.getArguments(), [&](Value argument) { return dependsOnRank(argument); }))
    return refuse(move, "an argument of the peer map"); // move_C3
  return success();
}

LogicalResult ChunkMessages::checkPool(Value slots, Pool &pool) {
  if (pool.moves.empty()) // slots_C3
    return pool.readers.front().emitOpError(
        "expects a pool into which something moves, got one without messages");
  SmallVector<Operation *> users(pool.moves.begin(), pool.moves.end());
  users.append(pool.readers.begin(), pool.readers.end());
  pool.scope = users.front()->getBlock();
  auto holdsAll = [&](Block *block) {
    return llvm::all_of(users, [&](Operation *op) { return block->findAncestorOpInBlock(*op); });
  };
  while (!holdsAll(pool.scope))
    pool.scope = pool.scope->getParentOp()->getBlock();
  for (Operation *op : users) {
    Operation *unit = pool.scope->findAncestorOpInBlock(*op);
    if (!pool.last || pool.last->isBeforeInBlock(unit))
      pool.last = unit;
  }

  for (MoveOp move : pool.moves)
    for (LaunchOp reader : pool.readers) {
      auto [moves, reads] = ancestorsInCommonBlock(move, reader);
      for (Operation *op = moves->getParentOp(); op != pool.scope->getParentOp();
           op = op->getParentOp())
        if (isa<ForOp>(op)) { // slots_C2
          InFlightDiagnostic error = op->emitOpError("expects a pool of its own for what moves and "
                                                     "is read in each iteration, got one that is "
                                                     "used outside too");
          error.attachNote(slots.getLoc()) << "the pool";
          return error;
        }
      if (moves != reads && reads->isBeforeInBlock(moves)) { // slots_C1
        InFlightDiagnostic error = move.emitOpError(
            "expects a pool that has not been read, got one that an earlier launch "
            "reads: its messages would never end");
        error.attachNote(reader.getLoc()) << "read here";
        return error;
      }
    }
  return success();
}

/// Every value is what the rest takes it for.
static LogicalResult checkOps(ProgramOp program) {
  auto isKnown = [](Value value) {
    Type type = value.getType();
    if (isa<RangeType>(type))
      return isa_and_nonnull<RangeOp, ViewOp>(value.getDefiningOp());
    if (isa<RangesType>(type))
      return isa_and_nonnull<GatherOp>(value.getDefiningOp());
    if (isa<BufferType>(type))
      return isa_and_nonnull<JobOp, ScratchOp, StateOp>(value.getDefiningOp());
    return !isa<SlotsType>(type) || isa_and_nonnull<SlotsOp>(value.getDefiningOp());
  };
  WalkResult walked = program.getBody().walk([&](Operation *op) -> WalkResult {
    bool isChunk = isa_and_nonnull<ChunkDialect>(op->getDialect());
    if (!isChunk && (op->getNumRegions() > 0 || !isMemoryEffectFree(op))) // program_C2
      return op->emitOpError("expects chunk ops and arithmetic in a chunk program");
    for (Value operand : op->getOperands())
      if (!isKnown(operand)) // program_C3
        return op->emitOpError("expects ranges, buffers and slots straight from the ops that make "
                               "them, got another value of type ")
               << operand.getType();
    return success();
  });
  return failure(walked.wasInterrupted());
}

/// True if the job has opened the gate when `op` is reached: a wait was executed before it.
static bool isBehindGate(Operation *op) {
  auto waits = [](Operation &earlier) {
    auto forall = dyn_cast<ForallOp>(earlier);
    return isa<WaitOp>(earlier) || (forall && !forall.getBody().front().getOps<WaitOp>().empty());
  };
  for (; !isa<ProgramOp>(op); op = op->getParentOp())
    for (Operation *earlier = op->getPrevNode(); earlier; earlier = earlier->getPrevNode())
      if (waits(*earlier))
        return true;
  return false;
}

/// What is written and committed of states, and what stands under if_finite.
static LogicalResult checkStates(ProgramOp program) {
  SmallVector<PublishOp> publishes;
  program.walk([&](PublishOp publish) { publishes.push_back(publish); });
  auto isAfter = [](Operation *first, Operation *second) {
    auto [a, b] = ancestorsInCommonBlock(first, second);
    return a != b && a->isBeforeInBlock(b);
  };
  auto stateOf = [](Value storage) {
    return storage ? storage.getDefiningOp<StateOp>() : StateOp();
  };
  for (PublishOp publish : publishes) {
    if (publish->getParentOfType<ForOp>()) // publish_C3
      return publish.emitOpError("expects to commit a state once, got a loop around it");
    for (PublishOp other : publishes)
      if (other.getStateAttr() == publish.getStateAttr() && isAfter(publish, other)) {
        InFlightDiagnostic error = other.emitOpError("expects to commit a state once, got ")
                                   << other.getStateAttr() << " twice"; // publish_C3
        error.attachNote(publish.getLoc()) << "committed here";
        return error;
      }
  }
  llvm::SmallPtrSet<Operation *, 4> written; // Publishes before which something is written.
  WalkResult walked = program.walk([&](Operation *op) -> WalkResult {
    if (isa<IfFiniteOp>(op) && !isBehindGate(op)) // if_finite_C3
      return op->emitOpError("expects a chunk.wait before_update before it: only behind the gate "
                             "is it known whether a step is finite");
    auto launch = dyn_cast<LaunchOp>(op);
    if (!launch)
      return success();
    for (Value output : launch.getOutputs())
      for (const ChunkAccess &access : ChunkMessages::accesses(output)) {
        StateOp state = stateOf(access.storage);
        if (state && !state.getNext()) // state_C2
          return launch.emitOpError("expects outputs that may be written, got the committed value "
                                    "of ")
                 << state.getStateAttr();
        for (PublishOp publish : publishes) {
          if (!state || publish.getStateAttr() != state.getStateAttr())
            continue;
          if (isAfter(op, publish))
            written.insert(publish);
          if (isAfter(publish, op)) {
            InFlightDiagnostic error = // publish_C3
                launch.emitOpError("expects the next value of ")
                << state.getStateAttr() << " to be complete when it is committed";
            error.attachNote(publish.getLoc()) << "committed here";
            return error;
          }
        }
      }
    return success();
  });
  if (walked.wasInterrupted())
    return failure();
  for (PublishOp publish : publishes)
    if (!written.contains(publish)) // publish_C4
      return publish.emitOpError("expects a launch before it that writes the next value of ")
             << publish.getStateAttr();
  return success();
}

FailureOr<ChunkMessages> ChunkMessages::analyze(ProgramOp program) {
  if (failed(checkOps(program)) || failed(checkStates(program)))
    return failure();
  ChunkMessages result;
  program.walk([&](SlotsOp slots) { result.pools_[slots.getResult()]; });
  WalkResult walked = program.walk<WalkOrder::PreOrder>([&](Operation *op) -> WalkResult {
    if (auto move = dyn_cast<MoveOp>(op)) {
      if (!move.getSource().getDefiningOp<RangeOp>()) // move_C2
        return move.emitOpError(
            "expects a range of a buffer, got a view of a received message: copy "
            "it to a buffer first");
      if (failed(result.checkUniform(move)))
        return failure();
      result.pools_[move.getSlots()].moves.push_back(move);
    }
    auto launch = dyn_cast<LaunchOp>(op);
    if (!launch)
      return success();
    for (Value output : launch.getOutputs())
      for (const ChunkAccess &access : accesses(output))
        if (isa<SlotsType>(access.storage.getType())) // launch_C5
          return launch.emitOpError("expects outputs in buffers, got a view of a received message");
    for (Value input : launch.getInputs())
      for (const ChunkAccess &access : accesses(input))
        if (isa<SlotsType>(access.storage.getType())) {
          auto &readers = result.pools_[access.storage].readers;
          if (readers.empty() || readers.back() != launch)
            readers.push_back(launch);
        }
    return success();
  });
  if (walked.wasInterrupted())
    return failure();
  result.pools_.remove_if(
      [](auto &entry) { return entry.second.moves.empty() && entry.second.readers.empty(); });
  for (auto &[slots, pool] : result.pools_)
    if (failed(result.checkPool(slots, pool)))
      return failure();
  return result;
}

int64_t peerOf(ir::chunk::PeerMap map, ArrayRef<int64_t> arguments, int64_t world,
               int64_t localSize, int64_t rank) {
  using ir::chunk::PeerMap;
  auto modulo = [](int64_t value, int64_t divisor) {
    return (value % divisor + divisor) % divisor;
  };
  int64_t t = arguments.back(), low = world / 2, high = world - low;
  switch (map) {
  case PeerMap::Rotate:
    return (rank + modulo(t, world)) % world;
  case PeerMap::RoundRobin:
    return modulo(modulo(t, world) - rank, world);
  case PeerMap::ShiftOne: {
    if (rank < low)
      return low + modulo(modulo(t, high) + rank, high);
    int64_t partner = modulo(rank - low - modulo(t, high), high);
    return partner < low ? partner : rank;
  }
  case PeerMap::Pairing:
    return rt::pairingPartner(arguments[0], t, world, rank);
  case PeerMap::NodeRotate: {
    int64_t local = rank % localSize;
    return rank - local + (local + modulo(t, localSize)) % localSize;
  }
  case PeerMap::CrossRotate:
    return (rank + modulo(t, world / localSize) * localSize) % world;
  }
  llvm_unreachable("all peer maps");
}

} // namespace bagua::compiler
