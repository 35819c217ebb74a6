// Verifiers, builders and custom syntax of the sched ops.
#include "bagua/dialect/Sched/Sched.h"

#include "bagua/dialect/Declarations.h"
#include "bagua/dialect/Rounds.h"
#include "bagua/dialect/Scalars.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace bagua::ir::sched {

bool isExpression(Operation *op) { return isScalarArithmetic(op) || isa<PairingOp>(op); }

namespace {

/// What all steps have in common. `mayBeSkipped`: by `if_finite`.
LogicalResult verifyStep(StepInterface op, bool mayBeSkipped = false) {
  if (op.getIfFinite() && !mayBeSkipped) // step_C1
    return op->emitOpError("expects 'if_finite' on launches and publishes only");
  Value signal = op.getSignal(), index = op.getSignalIndex();
  if (!signal != !index)
    return op->emitOpError("expects an index with the event array that it signals, got ")
           << (signal ? "none" : "an index without an array");
  return success();
}

/// Parses `%x = %lower to %upper { … }`, the common head of for and gather.
ParseResult parseLoop(OpAsmParser &parser, OperationState &result) {
  OpAsmParser::Argument variable;
  OpAsmParser::UnresolvedOperand lower, upper;
  Type index = parser.getBuilder().getIndexType();
  variable.type = index;
  if (parser.parseArgument(variable) || parser.parseEqual() || parser.parseOperand(lower) ||
      parser.parseKeyword("to") || parser.parseOperand(upper) ||
      parser.resolveOperand(lower, index, result.operands) ||
      parser.resolveOperand(upper, index, result.operands))
    return failure();
  return parser.parseRegion(*result.addRegion(), {variable});
}

void printLoop(OpAsmPrinter &printer, Value variable, Value lower, Value upper, Region &body,
               bool printTerminator) {
  printer << ' ' << variable << " = " << lower << " to " << upper << ' ';
  printer.printRegion(body, /*printEntryBlockArgs=*/false, printTerminator);
}

LogicalResult verifyLoopBody(Operation *op, Region &body) {
  if (body.getNumArguments() != 1 || !body.getArgument(0).getType().isIndex())
    return op->emitOpError("expects one loop variable of type index");
  return success();
}

} // namespace

// ---- schedule ----

LogicalResult ScheduleOp::verify() {
  if (static_cast<int64_t>(getGrain()) < 1) // schedule_C1
    return emitOpError("expects a grain of at least 1, got ") << static_cast<int64_t>(getGrain());
  SmallPtrSet<Type, 2> seen;
  if (getDtypes().empty()) // schedule_C2
    return emitOpError("expects at least one element type");
  for (Attribute attribute : getDtypes()) {
    Type type = cast<TypeAttr>(attribute).getValue();
    if (!isa<Float32Type, Float64Type>(type))
      return emitOpError("expects element types f32 and f64, got ") << type;
    if (!seen.insert(type).second)
      return emitOpError("expects each element type once, got ") << type << " twice";
  }
  return success();
}

LogicalResult ScheduleOp::verifyRegions() {
  llvm::SmallDenseSet<uint32_t> triggers;
  llvm::DenseMap<StringAttr, ProgramOp> writers;
  for (Operation &op : getBody().front()) {
    auto program = dyn_cast<ProgramOp>(op);
    if (!program && !isa<DeclareParameterOp, DeclareStateOp>(op)) // schedule_C3
      return op.emitOpError("expects only parameters, states and programs in a schedule");
    if (program &&
        !triggers.insert(static_cast<uint32_t>(program.getTrigger())).second) // schedule_C4
      return op.emitOpError("expects one program for each event, got a second one on ")
             << stringifyTrigger(program.getTrigger());
    if (!program)
      continue;
    if (program.isAsync() &&
        failed(verifyRoundParameters<ParameterOp, DeclareParameterOp>(*this, program)))
      return failure(); // program_C9
    for (auto state : program.getBody().front().getOps<StateOp>()) {
      if (!state.getNext())
        continue;
      auto [writer, isNew] = writers.try_emplace(state.getStateAttr().getLeafReference(), program);
      if (isNew || writer->second == program)
        continue;
      InFlightDiagnostic error = // schedule_C5
          state.emitOpError("expects a state that no other program writes, got ")
          << state.getStateAttr();
      error.attachNote(writer->second.getLoc()) << "this one does";
      return error;
    }
  }
  return verifyAsyncStates<StateOp, ProgramOp>( // schedule_C6
      *this, [](ProgramOp program) { return program.isAsync(); });
}

LogicalResult DeclareParameterOp::verify() { return verifyDeclaredParameter(*this); }

LogicalResult ParameterOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyParameterUse<ScheduleOp, DeclareParameterOp>(*this, symbols);
}

LogicalResult DeclareStateOp::verify() { return verifyDeclaredState(*this); }

LogicalResult StateOp::verifySymbolUses(SymbolTableCollection &symbols) { // state_C1
  return verifyStateUse<ScheduleOp, DeclareStateOp>(*this, symbols);
}

LogicalResult PublishOp::verifySymbolUses(SymbolTableCollection &symbols) { // publish_C2
  return verifyStateUse<ScheduleOp, DeclareStateOp>(*this, symbols);
}

// ---- program ----

namespace {

/// Operands of `op` that must be bind time, with the word for them.
SmallVector<std::pair<Value, StringRef>> bindTimeOperands(Operation *op) {
  using List = SmallVector<std::pair<Value, StringRef>>;
  List list =
      llvm::TypeSwitch<Operation *, List>(op)
          .Case([](ForOp o) { return List{{o.getLower(), "bound"}, {o.getUpper(), "bound"}}; })
          .Case([](GatherOp o) { return List{{o.getLower(), "bound"}, {o.getUpper(), "bound"}}; })
          .Case([](IfOp o) { return List{{o.getCondition(), "condition"}}; })
          .Case([](ScratchOp o) { return List{{o.getBytes(), "size"}}; })
          .Case([](SlotsOp o) { return List{{o.getCount(), "count"}, {o.getBytes(), "size"}}; })
          .Case([](EventsOp o) { return List{{o.getCount(), "count"}}; })
          .Case([](RangeOp o) {
            return List{{o.getOffset(), "offset"}, {o.getBytes(), "size"}, {o.getWhen(), "'when'"}};
          })
          .Case([](ViewOp o) {
            return List{{o.getSlot(), "slot"},
                        {o.getOffset(), "offset"},
                        {o.getBytes(), "size"},
                        {o.getWhen(), "'when'"}};
          })
          .Case([](EventOp o) {
            return List{{o.getIndex(), "event index"}, {o.getWhen(), "'when'"}};
          })
          .Case([](SendOp o) { return List{{o.getOffset(), "offset"}, {o.getBytes(), "size"}}; })
          .Case([](RecvOp o) { return List{{o.getSlot(), "slot"}, {o.getBytes(), "size"}}; })
          .Case([](ReleaseOp o) { return List{{o.getSlot(), "slot"}}; })
          .Case([](LaunchOp o) { return List{{o.getCount(), "count"}}; })
          .Default([](Operation *) { return List{}; });
  if (auto step = dyn_cast<StepInterface>(op))
    list.push_back({step.getSignalIndex(), "event index"});
  llvm::erase_if(list, [](auto &entry) { return !entry.first; });
  return list;
}

/// True if the parameter may change from step to step.
bool isPerStep(ParameterOp op) {
  auto declaration = SymbolTable::lookupNearestSymbolFrom<DeclareParameterOp>(
      op->getParentOfType<ProgramOp>()->getParentOp(), op.getParameterAttr());
  return declaration && declaration.getPerStep();
}

/// True if a range, or one of a list, is of a received message.
bool readsMessage(Value range) {
  if (auto gather = range.getDefiningOp<GatherOp>())
    return llvm::any_of(gather.getBlock()->getTerminator()->getOperands(), readsMessage);
  return range.getDefiningOp<ViewOp>() != nullptr;
}

/// True if a range, or one of a list, is of the committed value of a state.
bool isCommitted(Value range) {
  if (auto gather = range.getDefiningOp<GatherOp>())
    return llvm::any_of(gather.getBlock()->getTerminator()->getOperands(), isCommitted);
  auto op = range.getDefiningOp<RangeOp>();
  auto state = op ? op.getBuffer().getDefiningOp<StateOp>() : StateOp();
  return state && !state.getNext();
}

} // namespace

LogicalResult ProgramOp::verify() {
  return verifyRounds(*this, isAsync()); // program_C8, C9, C10
}

LogicalResult ProgramOp::verifyRegions() {
  llvm::StringMap<Location> names;
  llvm::SmallDenseSet<uint32_t> roles;
  llvm::DenseSet<std::pair<StringAttr, unsigned>> states;
  auto declare = [&names](StringRef name, Operation *op) -> LogicalResult {
    if (name.empty())
      return op->emitOpError("expects a name");
    auto [previous, isNew] = names.try_emplace(name, op->getLoc());
    if (isNew)
      return success();
    InFlightDiagnostic error = op->emitOpError("expects a unique name, got a second '")
                               << name << "'";
    error.attachNote(previous->second) << "the first one";
    return error;
  };
  if (!isa<CostOp>(getBody().front().back())) // program_C1
    return emitOpError("expects to end with sched.cost");

  DenseSet<Value> stepTime; // In walk order definitions come before uses.
  WalkResult walked = getBody().walk<WalkOrder::PreOrder>([&](Operation *op) -> WalkResult {
    bool isArithmetic = isExpression(op);
    if (!isArithmetic && !isa<SchedDialect>(op->getDialect())) // program_C2
      return op->emitOpError(
          "expects ops of the sched dialect and arithmetic that a schedule file can say");
    if (isArithmetic && !llvm::all_of(op->getResultTypes(), isScalarType)) // program_C2
      return op->emitOpError("expects index, i1, i32, i64 or f64 in a program, got ")
             << op->getResult(0).getType();

    if (isa<StepOp>(op) || (isa<ParameterOp>(op) && isPerStep(cast<ParameterOp>(op))))
      stepTime.insert(op->getResult(0));
    if (isArithmetic &&
        llvm::any_of(op->getOperands(), [&](Value v) { return stepTime.contains(v); }))
      stepTime.insert(op->getResult(0));
    for (auto [value, what] : bindTimeOperands(op)) // program_C3
      if (stepTime.contains(value))
        return op->emitOpError("expects its ")
               << what << " to be known at bind time, got one that depends on the step";

    LogicalResult named = llvm::TypeSwitch<Operation *, LogicalResult>(op) // program_C4
                              .Case<JobOp, ScratchOp, StateOp, SlotsOp, EventsOp>(
                                  [&](auto o) { return declare(o.getName(), op); })
                              .Default([](Operation *) { return success(); });
    if (failed(named))
      return failure();
    if (auto launch = dyn_cast<LaunchOp>(op))
      for (Value output : launch.getOutputs()) {
        if (readsMessage(output)) // program_C6
          return op->emitOpError("expects outputs in buffers, got a view of a received message");
        if (isCommitted(output)) // program_C7
          return op->emitOpError("expects outputs in buffers that may be written, got the "
                                 "committed value of a state");
      }
    if (auto state = dyn_cast<StateOp>(op)) // program_C5
      if (!states.insert({state.getStateAttr().getLeafReference(), state.getNext()}).second)
        return op->emitOpError("expects one ")
               << (state.getNext() ? "next" : "committed") << " buffer of a state, got a second "
               << "one of " << state.getStateAttr();
    auto step = dyn_cast<StepInterface>(op);
    auto job = dyn_cast<JobOp>(op);
    if (isAsync() && (isa<WaitGateOp>(op) || (step && step.getIfFinite()) ||
                      (job && job.getRole() == Role::Gradient))) // program_C11
      return op->emitOpError("is not allowed in an async program: it belongs to a step of the job");
    if (job) // program_C5
      if (!roles.insert(static_cast<uint32_t>(job.getRole())).second)
        return op->emitOpError("expects one buffer for each role, got a second one for ")
               << stringifyRole(job.getRole());
    return success();
  });
  return failure(walked.wasInterrupted());
}

// ---- for, if, gather ----

void ForOp::build(OpBuilder &builder, OperationState &state, Value lower, Value upper) {
  state.addOperands({lower, upper});
  Block &block = state.addRegion()->emplaceBlock();
  block.addArgument(builder.getIndexType(), state.location);
}

ParseResult ForOp::parse(OpAsmParser &parser, OperationState &result) {
  if (parseLoop(parser, result))
    return failure();
  Region &body = *result.regions.front();
  if (body.empty())
    body.emplaceBlock().addArgument(parser.getBuilder().getIndexType(), result.location);
  return parser.parseOptionalAttrDict(result.attributes);
}

void ForOp::print(OpAsmPrinter &printer) {
  printLoop(printer, getVariable(), getLower(), getUpper(), getBody(), /*printTerminator=*/true);
  printer.printOptionalAttrDict((*this)->getAttrs());
}

LogicalResult ForOp::verify() { return verifyLoopBody(*this, getBody()); }

void ForOp::getAsmBlockArgumentNames(Region &region, OpAsmSetValueNameFn setName) {
  if (region.getNumArguments() == 1)
    setName(region.getArgument(0), "k");
}

void IfOp::build(OpBuilder &builder, OperationState &state, Value condition, bool withElse) {
  state.addOperands(condition);
  state.addRegion()->emplaceBlock();
  Region *otherwise = state.addRegion();
  if (withElse)
    otherwise->emplaceBlock();
}

void YieldOp::build(OpBuilder &, OperationState &) {}

void GatherOp::build(OpBuilder &builder, OperationState &state, Type list, Value lower,
                     Value upper) {
  state.addOperands({lower, upper});
  state.addTypes(list);
  Block &block = state.addRegion()->emplaceBlock();
  block.addArgument(builder.getIndexType(), state.location);
}

ParseResult GatherOp::parse(OpAsmParser &parser, OperationState &result) {
  Type list;
  if (parseLoop(parser, result))
    return failure();
  Region &body = *result.regions.front();
  if (body.empty())
    body.emplaceBlock().addArgument(parser.getBuilder().getIndexType(), result.location);
  GatherOp::ensureTerminator(body, parser.getBuilder(), result.location);
  return failure(parser.parseOptionalAttrDict(result.attributes) || parser.parseColonType(list) ||
                 parser.addTypeToList(list, result.types));
}

void GatherOp::print(OpAsmPrinter &printer) {
  printLoop(printer, getVariable(), getLower(), getUpper(), getBody(), /*printTerminator=*/true);
  printer.printOptionalAttrDict((*this)->getAttrs());
  printer << " : " << getList().getType();
}

LogicalResult GatherOp::verify() { return verifyLoopBody(*this, getBody()); }

void GatherOp::getAsmBlockArgumentNames(Region &region, OpAsmSetValueNameFn setName) {
  if (region.getNumArguments() == 1) // Also printed, in the generic form, when the op is wrong.
    setName(region.getArgument(0), "p");
}

LogicalResult GatherOp::verifyRegions() {
  auto yield = cast<YieldOp>(getBody().front().getTerminator());
  if (yield.getReferences().empty()) // gather_C2
    return yield.emitOpError("expects at least one reference");
  bool ranges = isa<RangesType>(getList().getType());
  for (Type type : yield.getReferences().getTypes())
    if (isa<RangeType>(type) != ranges) // gather_C1
      return yield.emitOpError("expects ")
             << (ranges ? "ranges in a list of ranges" : "events in a list of events") << ", got "
             << type;
  return success();
}

// ---- steps ----

namespace {

LogicalResult verifyChannel(Operation *op, int32_t channel) {
  if (channel < 0)
    return op->emitOpError("expects a channel of at least 0, got ") << channel;
  return success();
}

/// Numbers, lists of numbers, and dictionaries of both.
bool isKernelAttribute(Attribute value, bool nested = false) {
  if (auto dictionary = dyn_cast<DictionaryAttr>(value))
    return !nested && llvm::all_of(dictionary, [](NamedAttribute entry) {
      return isKernelAttribute(entry.getValue(), /*nested=*/true);
    });
  auto integer = dyn_cast<IntegerAttr>(value);
  return (integer && integer.getType().isInteger(64)) ||
         isa<DenseI64ArrayAttr, DenseF64ArrayAttr>(value);
}

} // namespace

LogicalResult SendOp::verify() {
  if (failed(verifyChannel(*this, getChannel()))) // send_C1
    return failure();
  return verifyStep(*this); // send_C2
}

LogicalResult RecvOp::verify() {
  if (failed(verifyChannel(*this, getChannel()))) // recv_C1
    return failure();
  return verifyStep(*this); // recv_C2
}

LogicalResult ReleaseOp::verify() {
  return verifyStep(*this); // release_C1
}

LogicalResult LaunchOp::verify() {
  for (NamedAttribute attribute : getKernelAttributes())
    if (!isKernelAttribute(attribute.getValue())) // launch_C1
      return emitOpError("expects an i64 or a map's code for kernel attribute '")
             << attribute.getName().strref() << "', got " << attribute.getValue();
  if (getOutputs().empty()) // launch_C3
    return emitOpError("expects at least one output");
  return verifyStep(*this, /*mayBeSkipped=*/true); // launch_C2
}

LogicalResult WaitGateOp::verify() { return verifyStep(*this); } // wait_gate_C1

LogicalResult PublishOp::verify() { // publish_C1
  return verifyStep(*this, /*mayBeSkipped=*/true);
}

} // namespace bagua::ir::sched

#define GET_OP_CLASSES
#include "bagua/dialect/Sched/SchedOps.cpp.inc"
