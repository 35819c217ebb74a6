// The chunk dialect: registration, assembly, verifiers. Labels name constraints of SPEC.md,
// "chunk".
#include "bagua/dialect/Chunk/ChunkOps.h"

#include "bagua/dialect/Declarations.h"
#include "bagua/dialect/Rounds.h"

#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace bagua::ir::chunk;

#include "bagua/dialect/Chunk/ChunkDialect.cpp.inc"
#include "bagua/dialect/Chunk/ChunkEnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "bagua/dialect/Chunk/ChunkAttrs.cpp.inc"

#define GET_TYPEDEF_CLASSES
#include "bagua/dialect/Chunk/ChunkTypes.cpp.inc"

void ChunkDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "bagua/dialect/Chunk/ChunkOps.cpp.inc"
      >();
  addTypes<
#define GET_TYPEDEF_LIST
#include "bagua/dialect/Chunk/ChunkTypes.cpp.inc"
      >();
  addAttributes<
#define GET_ATTRDEF_LIST
#include "bagua/dialect/Chunk/ChunkAttrs.cpp.inc"
      >();
}

// ---- Assembly ----------------------------------------------------------------------------------

/// `%v = %lower to %upper {`; the body's argument is %v.
static ParseResult parseLoop(OpAsmParser &parser, OperationState &result) {
  OpAsmParser::Argument variable;
  OpAsmParser::UnresolvedOperand lower, upper;
  Type index = parser.getBuilder().getIndexType();
  if (parser.parseArgument(variable) || parser.parseEqual() || parser.parseOperand(lower) ||
      parser.parseKeyword("to") || parser.parseOperand(upper) ||
      parser.resolveOperand(lower, index, result.operands) ||
      parser.resolveOperand(upper, index, result.operands) ||
      parser.parseOptionalAttrDictWithKeyword(result.attributes))
    return failure();
  variable.type = index;
  Region *body = result.addRegion();
  if (parser.parseRegion(*body, variable))
    return failure();
  if (body->empty())
    body->emplaceBlock().addArgument(index, result.location);
  return success();
}

template <typename LoopOp> static void printLoop(OpAsmPrinter &printer, LoopOp op) {
  printer << ' ' << op.getBody().getArgument(0) << " = " << op.getLower() << " to "
          << op.getUpper();
  printer.printOptionalAttrDictWithKeyword(op->getAttrs());
  printer << ' ';
  printer.printRegion(op.getBody(), /*printEntryBlockArgs=*/false);
}

static LogicalResult verifyOneIndexArgument(Operation *op, Region &body) {
  if (body.getNumArguments() == 1 && body.getArgument(0).getType().isIndex())
    return success();
  return op->emitOpError("expects a body with one argument of type index, got ")
         << body.getNumArguments() << " arguments";
}

static void addBody(OpBuilder &builder, OperationState &state, bool withArgument) {
  Block &block = state.addRegion()->emplaceBlock();
  if (withArgument)
    block.addArgument(builder.getIndexType(), state.location);
}

// ---- Structure ---------------------------------------------------------------------------------

void ScheduleOp::build(OpBuilder &builder, OperationState &state, StringRef name, int64_t grain,
                       ArrayRef<Type> dtypes, bool ownsUpdate) {
  state.addAttribute(getSymNameAttrName(state.name), builder.getStringAttr(name));
  state.addAttribute(getGrainAttrName(state.name), builder.getI64IntegerAttr(grain));
  state.addAttribute(getDtypesAttrName(state.name), builder.getTypeArrayAttr(dtypes));
  if (ownsUpdate)
    state.addAttribute(getOwnsUpdateAttrName(state.name), builder.getUnitAttr());
  addBody(builder, state, /*withArgument=*/false);
}

LogicalResult ScheduleOp::verify() { // schedule_C1: ODS.
  if (getDtypes().empty())           // schedule_C2
    return emitOpError("expects at least one element type");
  SmallPtrSet<Type, 2> seen;
  for (Type type : getDtypes().getAsValueRange<TypeAttr>()) {
    if (!isa<Float32Type, Float64Type>(type)) // schedule_C2
      return emitOpError("expects element types f32 and f64, got ") << type;
    if (!seen.insert(type).second) // schedule_C2
      return emitOpError("expects each element type once, got ") << type << " twice";
  }
  return success();
}

LogicalResult ScheduleOp::verifyRegions() {
  SmallVector<Event> events;
  DenseMap<StringAttr, ProgramOp> writers;
  for (Operation &op : getBody().front()) {
    auto program = dyn_cast<ProgramOp>(op);
    if (!program && !isa<DeclareParameterOp, DeclareStateOp>(op)) // schedule_C3
      return op.emitOpError("expects only parameters, states and programs in a schedule");
    if (!program)
      continue;
    if (llvm::is_contained(events, program.getEvent())) // schedule_C4
      return op.emitOpError("expects one program for each event, got a second one on ")
             << stringifyEvent(program.getEvent());
    events.push_back(program.getEvent());
    WalkResult walked = program.walk([&](StateOp state) -> WalkResult {
      if (!state.getNext())
        return success();
      auto [writer, isNew] = writers.try_emplace(state.getStateAttr().getLeafReference(), program);
      if (isNew || writer->second == program)
        return success();
      InFlightDiagnostic error = // schedule_C5
          state.emitOpError("expects a state that no other program writes, got ")
          << state.getStateAttr();
      error.attachNote(writer->second.getLoc()) << "this one does";
      return error;
    });
    if (walked.wasInterrupted())
      return failure();
    if (program.isAsync() &&
        failed(verifyRoundParameters<ParameterOp, DeclareParameterOp>(*this, program)))
      return failure(); // program_C5
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

void ProgramOp::build(OpBuilder &builder, OperationState &state, StringRef name, Event event) {
  state.addAttribute(getSymNameAttrName(state.name), builder.getStringAttr(name));
  state.addAttribute(getEventAttrName(state.name), EventAttr::get(builder.getContext(), event));
  addBody(builder, state, /*withArgument=*/false);
}

LogicalResult ProgramOp::verify() {
  size_t costs = llvm::range_size(getBody().front().getOps<CostOp>());
  if (costs != 1) // program_C1
    return emitOpError("expects exactly one chunk.cost, got ") << costs;
  if (failed(verifyRounds(*this, isAsync()))) // program_C4, C5, C6
    return failure();
  if (!isAsync())
    return success();
  WalkResult walked = walk([](Operation *op) -> WalkResult { // program_C7
    auto job = dyn_cast<JobOp>(op);
    if (!isa<WaitOp, IfFiniteOp>(op) && !(job && job.getRole() == Role::Gradient))
      return success();
    return op->emitOpError("is not allowed in an async program: it belongs to a step of the job");
  });
  return failure(walked.wasInterrupted());
}

static LogicalResult verifyInForall(Operation *op) {
  if (op->getParentOfType<ForallOp>())
    return success();
  return op->emitOpError("expects to be inside a chunk.forall");
}

void ForallOp::build(OpBuilder &builder, OperationState &state) {
  addBody(builder, state, /*withArgument=*/true);
}

ParseResult ForallOp::parse(OpAsmParser &parser, OperationState &result) {
  OpAsmParser::Argument rank;
  if (parser.parseArgument(rank) || parser.parseOptionalAttrDictWithKeyword(result.attributes))
    return failure();
  rank.type = parser.getBuilder().getIndexType();
  Region *body = result.addRegion();
  if (parser.parseRegion(*body, rank))
    return failure();
  if (body->empty())
    body->emplaceBlock().addArgument(rank.type, result.location);
  return success();
}

void ForallOp::print(OpAsmPrinter &printer) {
  printer << ' ' << getRank();
  printer.printOptionalAttrDictWithKeyword((*this)->getAttrs());
  printer << ' ';
  printer.printRegion(getBody(), /*printEntryBlockArgs=*/false);
}

LogicalResult ForallOp::verify() {
  if (failed(verifyOneIndexArgument(*this, getBody()))) // forall_C1
    return failure();
  if ((*this)->getParentOfType<ForallOp>()) // forall_C2
    return emitOpError("expects not to be inside another chunk.forall");
  return success();
}

void ForOp::build(OpBuilder &builder, OperationState &state, Value lower, Value upper) {
  state.addOperands({lower, upper});
  addBody(builder, state, /*withArgument=*/true);
}

ParseResult ForOp::parse(OpAsmParser &parser, OperationState &result) {
  return parseLoop(parser, result);
}

void ForOp::print(OpAsmPrinter &printer) { printLoop(printer, *this); }

LogicalResult ForOp::verify() { return verifyOneIndexArgument(*this, getBody()); } // for_C1

void IfOp::build(OpBuilder &builder, OperationState &state, Value condition, bool withElse) {
  state.addOperands(condition);
  addBody(builder, state, /*withArgument=*/false);
  if (withElse)
    addBody(builder, state, /*withArgument=*/false);
  else
    state.addRegion();
}

ParseResult IfOp::parse(OpAsmParser &parser, OperationState &result) {
  OpAsmParser::UnresolvedOperand condition;
  Region *then = result.addRegion(), *otherwise = result.addRegion();
  auto parseBody = [&parser](Region *body) -> ParseResult {
    if (parser.parseRegion(*body))
      return failure();
    if (body->empty())
      body->emplaceBlock();
    return success();
  };
  if (parser.parseOperand(condition) ||
      parser.resolveOperand(condition, parser.getBuilder().getI1Type(), result.operands) ||
      parser.parseOptionalAttrDictWithKeyword(result.attributes) || parseBody(then))
    return failure();
  if (succeeded(parser.parseOptionalKeyword("else")))
    return parseBody(otherwise);
  return success();
}

void IfOp::print(OpAsmPrinter &printer) {
  printer << ' ' << getCondition();
  printer.printOptionalAttrDictWithKeyword((*this)->getAttrs());
  printer << ' ';
  printer.printRegion(getThen());
  if (!getOtherwise().empty()) {
    printer << " else ";
    printer.printRegion(getOtherwise());
  }
}

void IfFiniteOp::build(OpBuilder &builder, OperationState &state) {
  addBody(builder, state, /*withArgument=*/false);
}

LogicalResult IfFiniteOp::verify() { return verifyInForall(*this); } // if_finite_C1

LogicalResult IfFiniteOp::verifyRegions() {
  WalkResult walked = getBody().walk([](Operation *op) -> WalkResult {
    if (isa<MoveOp, WaitOp, IfFiniteOp>(op)) // if_finite_C2
      return op->emitOpError("expects not to be inside chunk.if_finite");
    return success();
  });
  return failure(walked.wasInterrupted());
}

// ---- Numbers -----------------------------------------------------------------------------------

static LogicalResult verifyPeerMap(Operation *op, PeerMap map, OperandRange arguments) {
  size_t expected = map == PeerMap::Pairing ? 2 : 1;
  if (arguments.size() == expected)
    return success();
  return op->emitOpError("expects ")
         << expected << (expected == 1 ? " argument" : " arguments") << " of the peer map "
         << stringifyPeerMap(map) << ", got " << arguments.size();
}

LogicalResult PeerOp::verify() { // peer_C1
  return verifyPeerMap(*this, getMap(), getArguments());
}

std::optional<Group> bagua::ir::chunk::rotatedBy(PeerMap map) {
  switch (map) {
  case PeerMap::Rotate:
    return Group::World;
  case PeerMap::NodeRotate:
    return Group::Node;
  case PeerMap::CrossRotate:
    return Group::Cross;
  case PeerMap::RoundRobin:
  case PeerMap::ShiftOne:
  case PeerMap::Pairing:
    return std::nullopt;
  }
  llvm_unreachable("all peer maps");
}

PeerMap bagua::ir::chunk::rotationOf(Group group) {
  return group == Group::World  ? PeerMap::Rotate
         : group == Group::Node ? PeerMap::NodeRotate
                                : PeerMap::CrossRotate;
}

// ---- Storage -----------------------------------------------------------------------------------

LogicalResult RangeOp::verify() {
  if (getGroup() != Group::World && !getPart()) // range_C2
    return emitOpError("expects a part where it says of which group, got none: of ")
           << stringifyGroup(getGroup());
  return success();
}

void GatherOp::build(OpBuilder &builder, OperationState &state, Value lower, Value upper) {
  state.addOperands({lower, upper});
  addBody(builder, state, /*withArgument=*/true);
  state.addTypes(RangesType::get(builder.getContext()));
}

ParseResult GatherOp::parse(OpAsmParser &parser, OperationState &result) {
  result.addTypes(RangesType::get(parser.getContext()));
  return parseLoop(parser, result);
}

void GatherOp::print(OpAsmPrinter &printer) { printLoop(printer, *this); }

YieldOp GatherOp::getYield() { return cast<YieldOp>(getBody().front().getTerminator()); }

LogicalResult GatherOp::verify() {
  if (failed(verifyOneIndexArgument(*this, getBody()))) // gather_C1
    return failure();
  for (Operation &op : getBody().front())
    if (!isMemoryEffectFree(&op)) // gather_C2
      return emitOpError("expects a body without effects, got ") << op.getName();
  return success();
}

ParseResult YieldOp::parse(OpAsmParser &parser, OperationState &result) {
  SmallVector<OpAsmParser::UnresolvedOperand> ranges, conditions;
  SMLoc location = parser.getCurrentLocation();
  OptionalParseResult first = parser.parseOptionalOperand(ranges.emplace_back());
  if (!first.has_value())
    ranges.clear();
  else if (failed(*first))
    return failure();
  if (!ranges.empty()) {
    bool conditional = succeeded(parser.parseOptionalKeyword("when"));
    if (conditional && parser.parseOperand(conditions.emplace_back()))
      return failure();
    while (succeeded(parser.parseOptionalComma()))
      if (parser.parseOperand(ranges.emplace_back()) ||
          (conditional &&
           (parser.parseKeyword("when") || parser.parseOperand(conditions.emplace_back()))))
        return failure();
  }
  Builder &builder = parser.getBuilder();
  if (parser.parseOptionalAttrDict(result.attributes) ||
      parser.resolveOperands(ranges, RangeType::get(parser.getContext()), location,
                             result.operands) ||
      parser.resolveOperands(conditions, builder.getI1Type(), location, result.operands))
    return failure();
  result.getOrAddProperties<Properties>().operandSegmentSizes = {
      static_cast<int32_t>(ranges.size()), static_cast<int32_t>(conditions.size())};
  return success();
}

void YieldOp::print(OpAsmPrinter &printer) {
  for (auto [i, range] : llvm::enumerate(getRanges())) {
    printer << (i ? ", " : " ") << range;
    if (i < getConditions().size())
      printer << " when " << getConditions()[i];
  }
  printer.printOptionalAttrDict((*this)->getAttrs(), getOperandSegmentSizesAttrName().getValue());
}

LogicalResult YieldOp::verify() {
  if (getRanges().empty()) // yield_C1
    return emitOpError("expects at least one range");
  if (!getConditions().empty() && getConditions().size() != getRanges().size()) // yield_C2
    return emitOpError("expects a condition for each of ")
           << getRanges().size() << " ranges or none, got " << getConditions().size();
  return success();
}

// ---- Work --------------------------------------------------------------------------------------

LogicalResult MoveOp::verify() {
  if (failed(verifyInForall(*this))) // move_C1
    return failure();
  return verifyPeerMap(*this, getMap(), getArguments()); // move_C6
}

/// Numbers, lists of numbers, and dictionaries of both.
static bool isKernelConstant(Attribute value, bool nested = false) {
  if (auto dictionary = dyn_cast<DictionaryAttr>(value))
    return !nested && llvm::all_of(dictionary, [](NamedAttribute entry) {
      return isKernelConstant(entry.getValue(), /*nested=*/true);
    });
  auto integer = dyn_cast<IntegerAttr>(value);
  return (integer && integer.getType().isInteger(64)) ||
         isa<DenseI64ArrayAttr, DenseF64ArrayAttr>(value);
}

LogicalResult LaunchOp::verify() {
  if (failed(verifyInForall(*this))) // launch_C1
    return failure();
  if (getOutputs().empty()) // launch_C2
    return emitOpError("expects at least one output");
  for (NamedAttribute constant : getConstants().value_or(DictionaryAttr::get(getContext())))
    if (!isKernelConstant(constant.getValue())) // launch_C3
      return emitOpError("expects constant '")
             << constant.getName().getValue() << "' to be a 64-bit integer or a map's code, got "
             << constant.getValue();
  if (getKernel().empty()) // launch_C4
    return emitOpError("expects a kernel's name, got an empty one");
  return success();
}

LogicalResult WaitOp::verify() { return verifyInForall(*this); } // wait_C1

LogicalResult PublishOp::verify() { return verifyInForall(*this); } // publish_C1

#define GET_OP_CLASSES
#include "bagua/dialect/Chunk/ChunkOps.cpp.inc"
