// Operations of the `bagua` dialect: syntax, type inference, constraints of SPEC.md.
#include "bagua/dialect/Bagua/BaguaOps.h"

#include "bagua/dialect/Bagua/BaguaMap.h"
#include "bagua/dialect/Scalars.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Matchers.h"

#include <cmath>
#include <limits>
#include <map>
#include <numeric>

using namespace mlir;
using namespace bagua::ir;

namespace {

/// Prints topologies and codecs once, at the top of the file.
struct BaguaAsmInterface : OpAsmDialectInterface {
  using OpAsmDialectInterface::OpAsmDialectInterface;
  AliasResult getAlias(Attribute attribute, raw_ostream &os) const override {
    if (isa<OverAttr>(attribute))
      return AliasResult::NoAlias;
    if (isa<TopologyAttrInterface>(attribute))
      os << "topology";
    else if (auto codec = dyn_cast<UserCodecAttr>(attribute))
      os << codec.getName().getValue();
    else if (auto minmax = dyn_cast<MinMaxAttr>(attribute))
      os << "minmax" << minmax.getBits() << "_" << minmax.getBlock();
    else
      return AliasResult::NoAlias;
    return AliasResult::FinalAlias;
  }
};

} // namespace

#include "bagua/dialect/Bagua/BaguaDialect.cpp.inc"

std::optional<Dialect::ParseOpHook> BaguaDialect::getParseOperationHook(StringRef) const {
  return [](OpAsmParser &parser, OperationState &state) -> ParseResult {
    StringRef name = state.name.stripDialect();
    InFlightDiagnostic diagnostic = parser.emitError(parser.getNameLoc(), "is no op of bagua: ");
    std::string nearest;
    SmallVector<StringRef> all;
    unsigned least = std::max<unsigned>(2, name.size() / 3) + 1;
    for (RegisteredOperationName known : parser.getContext()->getRegisteredOperations()) {
      if (known.getDialectNamespace() != getDialectNamespace())
        continue;
      StringRef other = known.stripDialect();
      all.push_back(other);
      if (unsigned distance = name.edit_distance(other); distance < least) {
        least = distance;
        nearest = other.str();
      }
    }
    if (!nearest.empty())
      diagnostic << "did you mean bagua." << nearest << "? ";
    llvm::sort(all);
    diagnostic << "There are ";
    llvm::interleaveComma(all, diagnostic);
    return diagnostic;
  };
}

void BaguaDialect::initialize() {
  registerAttributes();
  registerTypes();
  addOperations<
#define GET_OP_LIST
#include "bagua/dialect/Bagua/BaguaOps.cpp.inc"
      >();
  addInterfaces<BaguaAsmInterface>();
}

// ---- Syntax -------------------------------------------------------------------------------------

static ParseResult parseBucketType(OpAsmParser &parser, Type &type) {
  if (succeeded(parser.parseOptionalColon()))
    return parser.parseType(type);
  type = bucketType(parser.getContext());
  return success();
}

static void printBucketType(OpAsmPrinter &printer, Operation *, Type type) {
  if (type != bucketType(type.getContext()))
    printer << " : " << type;
}

/// A type that is always written.
static ParseResult parseValueType(OpAsmParser &parser, Type &type) {
  if (failed(parser.parseOptionalColon()))
    return parser.emitError(parser.getNameLoc())
           << "expects `: T` at its end, T being the operand's type, as !bagua.packed<#codec, T> "
              "of encode or "
              "!bagua.per<#topology, T> of neighbor_exchange";
  return parser.parseType(type);
}

static void printValueType(OpAsmPrinter &printer, Operation *, Type type) {
  printer << ": " << type;
}

/// `: (T, …) -> T`
static ParseResult parseCallType(OpAsmParser &parser, SmallVectorImpl<Type> &inputs,
                                 SmallVectorImpl<Type> &outputs) {
  constexpr StringRef kExpected = "expects the function's type, `: (!bucket, f64) -> !bucket`";
  if (failed(parser.parseOptionalColon()))
    return parser.emitError(parser.getNameLoc()) << kExpected << ", at its end";
  SMLoc loc = parser.getCurrentLocation();
  Type type;
  if (failed(parser.parseType(type)))
    return failure();
  auto function = dyn_cast<FunctionType>(type);
  if (!function)
    return parser.emitError(loc) << kExpected << ", got " << type;
  llvm::append_range(inputs, function.getInputs());
  llvm::append_range(outputs, function.getResults());
  return success();
}

static void printCallType(OpAsmPrinter &printer, Operation *, TypeRange inputs, TypeRange outputs) {
  printer << ": ";
  printer.printFunctionalType(inputs, outputs);
}

static ParseResult parseReduceKind(OpAsmParser &parser, ReduceKindAttr &kind) {
  SMLoc loc = parser.getCurrentLocation();
  StringRef keyword;
  std::optional<ReduceKind> found;
  if (succeeded(parser.parseOptionalKeyword(&keyword)))
    found = symbolizeReduceKind(keyword);
  if (!found)
    return parser.emitError(loc) << "expects sum or mean, got "
                                 << (keyword.empty() ? "none" : "'" + keyword.str() + "'");
  kind = ReduceKindAttr::get(parser.getContext(), *found);
  return success();
}

static void printReduceKind(OpAsmPrinter &printer, Operation *, ReduceKindAttr kind) {
  printer << stringifyReduceKind(kind.getValue());
}

static ParseResult parseDraw(OpAsmParser &parser, DrawAttr &draw) {
  StringRef keyword;
  std::optional<Draw> found;
  if (succeeded(parser.parseOptionalKeyword(&keyword)))
    found = symbolizeDraw(keyword);
  if (!found)
    return parser.emitError(parser.getNameLoc())
           << "expects shared, the same numbers on all ranks, or per_rank after the seed";
  draw = DrawAttr::get(parser.getContext(), *found);
  return success();
}

static void printDraw(OpAsmPrinter &printer, Operation *, DrawAttr draw) {
  printer << stringifyDraw(draw.getValue());
}

static ParseResult parseTopology(OpAsmParser &parser, TopologyAttrInterface &topology) {
  SMLoc loc = parser.getCurrentLocation();
  Attribute peers;
  if (parsePeers(parser, peers))
    return failure();
  topology = dyn_cast<TopologyAttrInterface>(peers);
  if (!topology)
    return parser.emitError(loc) << "expects a topology, got " << peers;
  return success();
}

static void printTopology(OpAsmPrinter &printer, Operation *, TopologyAttrInterface topology) {
  printPeers(printer, topology);
}

/// `: T, T on #topology`, or `on #topology` for the bucket and its neighbours there.
static ParseResult parseMixTypes(OpAsmParser &parser, Type &value, Type &neighbors,
                                 TopologyAttrInterface &topology) {
  bool typed = succeeded(parser.parseOptionalColon());
  if (typed && (parser.parseType(value) || parser.parseComma() || parser.parseType(neighbors)))
    return failure();
  if (parser.parseKeyword("on") || parseTopology(parser, topology))
    return failure();
  if (!typed) {
    value = bucketType(parser.getContext());
    neighbors = PerType::get(parser.getContext(), topology, value, /*own=*/false);
  }
  return success();
}

static void printMixTypes(OpAsmPrinter &printer, Operation *op, Type value, Type neighbors,
                          TopologyAttrInterface topology) {
  Type bucket = bucketType(value.getContext());
  if (value != bucket ||
      neighbors != PerType::get(value.getContext(), topology, bucket, /*own=*/false))
    printer << " : " << value << ", " << neighbors;
  printer << " on ";
  printTopology(printer, op, topology);
}

/// `@state`, or a role of the job.
static ParseResult parseUpdateTarget(OpAsmParser &parser, RoleAttr &role,
                                     FlatSymbolRefAttr &state) {
  StringAttr name;
  MLIRContext *context = parser.getContext();
  if (succeeded(parser.parseOptionalSymbolName(name))) {
    state = FlatSymbolRefAttr::get(name);
    role = RoleAttr::get(context, Role::State);
    return success();
  }
  SMLoc loc = parser.getCurrentLocation();
  StringRef keyword;
  if (parser.parseKeyword(&keyword))
    return failure();
  std::optional<Role> found = symbolizeRole(keyword);
  if (!found || *found == Role::State)
    return parser.emitError(loc) << "expects gradient, weight or a state (@name), got '" << keyword
                                 << "'";
  role = RoleAttr::get(context, *found);
  return success();
}

static void printUpdateTarget(OpAsmPrinter &printer, Operation *, RoleAttr role,
                              FlatSymbolRefAttr state) {
  if (state)
    printer << state;
  else
    printer << stringifyRole(role.getValue());
}

/// `=`, or `+=`
static ParseResult parseAssignment(OpAsmParser &parser, UnitAttr &add) {
  if (succeeded(parser.parseOptionalPlus()))
    add = parser.getBuilder().getUnitAttr();
  return parser.parseEqual();
}

static void printAssignment(OpAsmPrinter &printer, Operation *, UnitAttr add) {
  printer << (add ? "+=" : "=");
}

#define GET_OP_CLASSES
#include "bagua/dialect/Bagua/BaguaOps.cpp.inc"

/// `%name: type = default (per_step)?`
static ParseResult parseParameter(OpAsmParser &parser, OpAsmParser::Argument &argument,
                                  Attribute &initial, bool &perStep) {
  if (failed(parser.parseArgument(argument)))
    return failure();
  SMLoc nameLoc = argument.ssaName.location;
  StringRef name = argument.ssaName.name;
  if (failed(parser.parseOptionalColon()))
    return parser.emitError(nameLoc) << "expects the parameter's type and value: " << name
                                     << ": f64 = 0.1, or " << name << ": index = 1";
  Builder &builder = parser.getBuilder();
  SMLoc loc = parser.getCurrentLocation();
  bool isIndex = succeeded(parser.parseOptionalKeyword("index"));
  StringRef word;
  if (isIndex || succeeded(parser.parseOptionalKeyword("f64"))) {
    argument.type = isIndex ? Type(builder.getIndexType()) : Type(builder.getF64Type());
  } else if (succeeded(parser.parseOptionalKeyword(&word))) {
    return parser.emitError(loc) << "expects a parameter of type index or f64, got '" << word
                                 << "'";
  } else if (failed(parser.parseType(argument.type))) {
    return failure();
  }
  if (!isa<IndexType, Float64Type>(argument.type))
    return parser.emitError(loc) << "expects a parameter of type index or f64, got "
                                 << argument.type;
  if (failed(parser.parseOptionalEqual()))
    return parser.emitError(nameLoc)
           << "expects the parameter's value if the job gives none: " << name
           << (isa<IndexType>(argument.type) ? ": index = 1" : ": f64 = 0.1")
           << ", then per_step if it may change from step to step";
  if (isa<IndexType>(argument.type)) {
    int64_t value = 0;
    loc = parser.getCurrentLocation();
    OptionalParseResult isInteger = parser.parseOptionalInteger(value);
    if (!isInteger.has_value())
      return parser.emitError(loc) << "expects an integer as the value of " << name << ": index";
    if (failed(*isInteger))
      return failure();
    initial = builder.getIndexAttr(value);
  } else {
    double value = 0;
    if (parseMapNumber(parser, value))
      return failure();
    initial = builder.getF64FloatAttr(value);
  }
  perStep = succeeded(parser.parseOptionalKeyword("per_step"));
  return success();
}

ParseResult AlgorithmOp::parse(OpAsmParser &parser, OperationState &result) {
  Properties &properties = result.getOrAddProperties<Properties>();
  StringAttr name;
  SmallVector<OpAsmParser::Argument> arguments;
  SmallVector<Attribute> names, defaults;
  SmallVector<bool> perStep;
  Builder &builder = parser.getBuilder();
  auto parameter = [&]() -> ParseResult {
    if (parseParameter(parser, arguments.emplace_back(), defaults.emplace_back(),
                       perStep.emplace_back()))
      return failure();
    names.push_back(builder.getStringAttr(arguments.back().ssaName.name.drop_front()));
    return success();
  };
  if (parser.parseSymbolName(name) ||
      parser.parseCommaSeparatedList(AsmParser::Delimiter::OptionalParen, parameter))
    return failure();
  properties.sym_name = name;
  if (!arguments.empty()) {
    properties.parameter_names = builder.getArrayAttr(names);
    properties.parameter_defaults = builder.getArrayAttr(defaults);
    properties.parameter_per_step = builder.getDenseBoolArrayAttr(perStep);
  }
  Region *body = result.addRegion();
  if (parser.parseOptionalAttrDictWithKeyword(result.attributes) ||
      parser.parseRegion(*body, arguments))
    return failure();
  if (body->empty())
    body->emplaceBlock();
  return success();
}

void AlgorithmOp::print(OpAsmPrinter &printer) {
  printer << ' ';
  printer.printSymbolName(getSymName());
  if (SmallVector<Parameter> parameters = getParameters(); !parameters.empty()) {
    printer << '(';
    llvm::interleaveComma(parameters, printer, [&](const Parameter &parameter) {
      printer << parameter.value << ": " << parameter.initial.getType() << " = ";
      if (auto integer = dyn_cast<IntegerAttr>(parameter.initial))
        printer << integer.getInt();
      else
        printer << mapNumberText(cast<FloatAttr>(parameter.initial).getValueAsDouble());
      printer << (parameter.perStep ? " per_step" : "");
    });
    printer << ')';
  }
  printer.printOptionalAttrDictWithKeyword(
      (*this)->getAttrs(),
      {"sym_name", "parameter_names", "parameter_defaults", "parameter_per_step"});
  printer << ' ';
  printer.printRegion(getBody(), /*printEntryBlockArgs=*/false, /*printBlockTerminators=*/false);
}

void AlgorithmOp::getAsmBlockArgumentNames(Region &, OpAsmSetValueNameFn setName) {
  for (const Parameter &parameter : getParameters())
    setName(parameter.value, parameter.name);
}

SmallVector<AlgorithmOp::Parameter> AlgorithmOp::getParameters() {
  SmallVector<Parameter> parameters;
  if (!getParameterNames() || !getParameterDefaults() || !getParameterPerStep())
    return parameters;
  for (auto [name, initial, perStep, value] :
       llvm::zip(getParameterNames()->getAsRange<StringAttr>(),
                 getParameterDefaults()->getAsRange<TypedAttr>(), *getParameterPerStep(),
                 getBody().getArguments()))
    parameters.push_back({name.getValue(), initial, perStep, value});
  return parameters;
}

std::optional<AlgorithmOp::Parameter> AlgorithmOp::getParameter(Value value) {
  for (const Parameter &parameter : getParameters())
    if (parameter.value == value)
      return parameter;
  return std::nullopt;
}

/// `bucket | scalar | shard<@group> | per<#topology>`: the type of a state.
static ParseResult parseStateDomain(OpAsmParser &parser, Type &type) {
  SMLoc loc = parser.getCurrentLocation();
  MLIRContext *context = parser.getContext();
  auto emitError = [&] { return parser.emitError(loc); };
  StringRef domain;
  if (parser.parseKeyword(&domain))
    return failure();
  if (domain == "bucket") {
    type = bucketType(context);
  } else if (domain == "scalar") {
    type = scalarType(context);
  } else if (domain == "shard") {
    StringAttr name;
    if (parser.parseLess() || parser.parseSymbolName(name) || parser.parseGreater())
      return failure();
    auto group = FlatSymbolRefAttr::get(name);
    if (failed(verifyGroup(emitError, group)))
      return failure();
    type = shardType(group);
  } else if (domain == "per") {
    Attribute topology;
    if (parser.parseLess() || parsePeers(parser, topology) || parser.parseGreater())
      return failure();
    type = parser.getChecked<PerType>(loc, context, topology, Type(bucketType(context)),
                                      /*own=*/false);
    return failure(!type);
  } else {
    return parser.emitError(loc) << "expects bucket, scalar, shard<@world> or per<#topology>, got '"
                                 << domain << "'";
  }
  return success();
}

/// What becomes of a state of this type if nothing else is said.
static OnResize defaultOnResize(Type type) {
  if (shardGroup(type))
    return OnResize::Repartition;
  return isa<PerType>(type) ? OnResize::Zero : OnResize::Mean;
}

ParseResult StateOp::parse(OpAsmParser &parser, OperationState &result) {
  Properties &properties = result.getOrAddProperties<Properties>();
  Builder &builder = parser.getBuilder();
  StringAttr name;
  Type type;
  if (parser.parseSymbolName(name) || parser.parseColon() || parseStateDomain(parser, type))
    return failure();
  if (failed(parser.parseOptionalEqual()))
    return parser.emitError(parser.getNameLoc())
           << "expects the state's initial value: `= 0.0`, or `= weight` for the job's weights";
  double initial = 0;
  bool isWeight = succeeded(parser.parseOptionalKeyword("weight"));
  if (!isWeight && parseMapNumber(parser, initial))
    return failure();
  OnResize onResize = defaultOnResize(type);
  if (succeeded(parser.parseOptionalKeyword("on_resize"))) {
    SMLoc loc = parser.getCurrentLocation();
    StringRef keyword;
    if (parser.parseKeyword(&keyword))
      return failure();
    std::optional<OnResize> found = symbolizeOnResize(keyword);
    if (!found)
      return parser.emitError(loc) << "expects mean, zero or repartition, got '" << keyword << "'";
    onResize = *found;
  }
  properties.sym_name = name;
  properties.type = TypeAttr::get(type);
  properties.initial = builder.getF64FloatAttr(initial);
  if (isWeight)
    properties.initial_weight = builder.getUnitAttr();
  properties.on_resize = OnResizeAttr::get(parser.getContext(), onResize);
  return parser.parseOptionalAttrDict(result.attributes);
}

void StateOp::print(OpAsmPrinter &printer) {
  printer << ' ';
  printer.printSymbolName(getSymName());
  printer << " : ";
  if (FlatSymbolRefAttr group = shardGroup(getType())) {
    printer << "shard<" << group << ">";
  } else if (auto per = dyn_cast<PerType>(getType())) {
    printer << "per<";
    printPeers(printer, per.getOver());
    printer << ">";
  } else {
    printer << (isScalar(getType()) ? "scalar" : "bucket");
  }
  printer << " = ";
  if (getInitialWeight())
    printer << "weight";
  else
    printer << mapNumberText(getInitial().convertToDouble());
  if (getOnResize() != defaultOnResize(getType()))
    printer << " on_resize " << stringifyOnResize(getOnResize());
  printer.printOptionalAttrDict((*this)->getAttrs(),
                                {"sym_name", "type", "initial", "initial_weight", "on_resize"});
}

/// A parameter, or a number.
static ParseResult parseCount(OpAsmParser &parser, OperationState &result, int32_t &operands,
                              IntegerAttr &number) {
  OpAsmParser::UnresolvedOperand parameter;
  OptionalParseResult isOperand = parser.parseOptionalOperand(parameter);
  Builder &builder = parser.getBuilder();
  if (isOperand.has_value()) {
    operands = 1;
    return failure(failed(*isOperand) ||
                   parser.resolveOperand(parameter, builder.getIndexType(), result.operands));
  }
  SMLoc loc = parser.getCurrentLocation();
  int64_t value = 0;
  OptionalParseResult isNumber = parser.parseOptionalInteger(value);
  if (!isNumber.has_value())
    return parser.emitError(loc, "expects a parameter of the algorithm or a number");
  number = builder.getI64IntegerAttr(value);
  return *isNumber;
}

/// `every(count unit) (after(count))? staleness(number)`
static ParseResult parseRounds(OpAsmParser &parser, OperationState &result) {
  OnOp::Properties &properties = result.getOrAddProperties<OnOp::Properties>();
  auto &operands = properties.operandSegmentSizes;
  Builder &builder = parser.getBuilder();
  SMLoc loc = parser.getCurrentLocation();
  if (failed(parser.parseOptionalKeyword("every")))
    return parser.emitError(loc, "expects how often rounds begin: `every(%n steps)` or "
                                 "`every(%t ms)`, %n and %t parameters or numbers");
  if (parser.parseLParen() || parseCount(parser, result, operands[0], properties.every_number))
    return failure();
  loc = parser.getCurrentLocation();
  StringRef keyword;
  if (failed(parser.parseOptionalKeyword(&keyword)))
    return parser.emitError(loc) << "expects the unit of the interval, steps or ms: "
                                    "`every(2 steps)` or `every(200 ms)`";
  std::optional<IntervalUnit> unit = symbolizeIntervalUnit(keyword);
  if (!unit)
    return parser.emitError(loc) << "expects steps or ms, got '" << keyword << "'";
  properties.every_unit = IntervalUnitAttr::get(builder.getContext(), *unit);
  if (parser.parseRParen())
    return failure();
  if (succeeded(parser.parseOptionalKeyword("after")) &&
      (parser.parseLParen() || parseCount(parser, result, operands[1], properties.after_number) ||
       parser.parseRParen()))
    return failure();
  loc = parser.getCurrentLocation();
  if (failed(parser.parseOptionalKeyword("staleness"))) // on_C7
    return parser.emitError(loc, "B160: expects `staleness(S)`: so many steps after a round began, "
                                 "the trainer waits for what it brings");
  int64_t staleness = 0;
  if (parser.parseLParen() || parser.parseInteger(staleness) || parser.parseRParen())
    return failure();
  properties.staleness = builder.getI64IntegerAttr(staleness);
  return success();
}

ParseResult OnOp::parse(OpAsmParser &parser, OperationState &result) {
  SMLoc loc = parser.getCurrentLocation();
  StringRef keyword;
  if (parser.parseKeyword(&keyword))
    return failure();
  std::optional<Event> event = symbolizeEvent(keyword);
  if (!event)
    return parser.emitError(loc) << "expects gradient, before_forward, after_update or async, got '"
                                 << keyword << "'";
  Properties &properties = result.getOrAddProperties<Properties>();
  properties.event = EventAttr::get(parser.getContext(), *event);
  if (*event == Event::Async && failed(parseRounds(parser, result)))
    return failure();
  SmallVector<OpAsmParser::Argument> arguments;
  return failure(parser.parseArgumentList(arguments, AsmParser::Delimiter::Paren,
                                          /*allowType=*/true) ||
                 parser.parseOptionalAttrDictWithKeyword(result.attributes) ||
                 parser.parseRegion(*result.addRegion(), arguments));
}

void OnOp::print(OpAsmPrinter &printer) {
  printer << ' ' << stringifyEvent(getEvent());
  auto count = [&](Value parameter, std::optional<int64_t> number) {
    if (parameter)
      printer << parameter;
    else
      printer << number.value_or(0);
  };
  if (isAsync()) {
    printer << " every(";
    count(getEvery(), getEveryNumber());
    printer << ' ' << stringifyIntervalUnit(getEveryUnit().value_or(IntervalUnit::Steps)) << ')';
    if (getAfter() || getAfterNumber()) {
      printer << " after(";
      count(getAfter(), getAfterNumber());
      printer << ')';
    }
    printer << " staleness(" << getStaleness().value_or(0) << ") ";
  }
  printer << '(';
  llvm::interleaveComma(getBody().getArguments(), printer,
                        [&](BlockArgument argument) { printer.printRegionArgument(argument); });
  printer << ')';
  printer.printOptionalAttrDictWithKeyword((*this)->getAttrs(),
                                           {"event", "every_number", "every_unit", "after_number",
                                            "staleness", getOperandSegmentSizeAttr()});
  printer << ' ';
  printer.printRegion(getBody(), /*printEntryBlockArgs=*/false, /*printBlockTerminators=*/false);
}

// ---- Structure ----------------------------------------------------------------------------------

LogicalResult bagua::ir::verifyInHandler(Operation *op) {
  if (!op->getParentOfType<OnOp>() && !op->getParentOfType<func::FuncOp>())
    return op->emitOpError("expects to stand inside a handler (bagua.on) or a function");
  return success();
}

constexpr int64_t kGrainMax = int64_t{1} << 24;

/// Least common multiple of all codec blocks named by ops of `algorithm`; -1 if above kGrainMax.
static int64_t grainOf(AlgorithmOp algorithm) {
  int64_t grain = 1;
  algorithm.walk([&](Operation *op) {
    for (NamedAttribute attribute : op->getAttrs())
      if (auto codec = dyn_cast<CodecAttrInterface>(attribute.getValue()); codec && grain > 0) {
        if (auto user = dyn_cast<UserCodecAttr>(attribute.getValue())) {
          codec = linkedCodec(user, algorithm);
          if (!codec) // The op that names it says so.
            continue;
        }
        grain = std::lcm(grain, codec.getBlock());
        if (grain > kGrainMax)
          grain = -1;
      }
  });
  return grain;
}

int64_t bagua::ir::grain(AlgorithmOp algorithm) { return grainOf(algorithm); }

int64_t bagua::ir::leastOf(const AlgorithmOp::Parameter &parameter) {
  for (OpOperand &use : parameter.value.getUses())
    if (auto on = dyn_cast<OnOp>(use.getOwner()); on && on.getEvery() == parameter.value)
      return 1;
  return leastOfParameter(parameter.value);
}

/// algorithm_C8
static LogicalResult verifyDefaults(AlgorithmOp algorithm) {
  for (const AlgorithmOp::Parameter &parameter : algorithm.getParameters()) {
    auto initial = dyn_cast<IntegerAttr>(parameter.initial);
    if (!initial)
      continue;
    int64_t least = leastOf(parameter);
    if (initial.getInt() > kIndexParameterMax)
      return mlir::emitError(parameter.value.getLoc())
             << "expects a default of parameter %" << parameter.name << " of at most 2^53, got "
             << initial.getInt() << ": for what never happens, take 9007199254740992";
    if (initial.getInt() >= least)
      continue;
    InFlightDiagnostic diagnostic = mlir::emitError(parameter.value.getLoc())
                                    << "expects a default of parameter %" << parameter.name
                                    << " of at least " << least << ", got " << initial.getInt();
    if (initial.getInt() < 0)
      return diagnostic << ": an index is never negative; of signed numbers, take f64";
    for (Operation *user : parameter.value.getUsers())
      if (isa<OnOp>(user) || user->getOperand(user->getNumOperands() - 1) == parameter.value) {
        diagnostic.attachNote(user->getLoc())
            << (isa<OnOp>(user) ? "the interval between rounds" : "divided by it");
        break;
      }
    return diagnostic;
  }
  return success();
}

LogicalResult AlgorithmOp::verify() {
  if ((*this)->hasAttr("reassoc")) // algorithm_C4
    return emitOpError() << "reassoc is not supported yet";
  size_t count = getBody().getNumArguments(); // algorithm_C5
  size_t named = getParameterNames() ? getParameterNames()->size() : 0;
  size_t valued = getParameterDefaults() ? getParameterDefaults()->size() : 0;
  size_t timed = getParameterPerStep() ? getParameterPerStep()->size() : 0;
  if (named != count || valued != count || timed != count)
    return emitOpError() << "expects a name, a default and a time for each of " << count
                         << " parameters, got " << named << ", " << valued << " and " << timed;
  if (count == 0)
    return success();
  llvm::SmallDenseSet<Attribute> seen;
  for (auto [name, initial, value] :
       llvm::zip(*getParameterNames(), *getParameterDefaults(), getBody().getArguments())) {
    Type type = value.getType();
    auto typed = dyn_cast<TypedAttr>(initial);
    auto real = dyn_cast<FloatAttr>(initial);
    if (!(isa<IndexType>(type) || type.isF64()) || !typed || typed.getType() != type ||
        (real && !std::isfinite(real.getValueAsDouble())))
      return emitOpError() << "expects parameter " << name
                           << " to be an index or a finite f64 with a default of its type, got "
                           << type << " and " << initial;
    if (!seen.insert(name).second)
      return emitOpError() << "expects parameters of different names, got " << name << " twice";
  }
  return success();
}

/// algorithm_C6
static LogicalResult verifyOwnsUpdate(AlgorithmOp algorithm) {
  if (!algorithm.getOwnsUpdate())
    return success();
  bool owns = false;
  for (auto on : algorithm.getBody().getOps<OnOp>())
    if (on.getEvent() == Event::Gradient)
      on.walk([&](UpdateOp update) { owns |= update.getRole() == Role::Weight; });
  if (owns)
    return success();
  return algorithm.emitOpError("owns the update: expects `bagua.update weight = %x at "
                               "before_update` in the handler of gradient, got none");
}

/// algorithm_C7
static LogicalResult verifyStatesUsed(AlgorithmOp algorithm) {
  for (auto state : algorithm.getBody().getOps<StateOp>()) {
    bool read = false, updated = false;
    auto name = FlatSymbolRefAttr::get(state.getSymNameAttr());
    algorithm.walk([&](Operation *op) {
      if (auto use = dyn_cast<ReadOp>(op)) {
        read |= use.getStateAttr() == name;
      } else if (auto update = dyn_cast<UpdateOp>(op)) {
        updated |= update.getStateAttr() == name;
      } else if (auto reduce = dyn_cast<AllReduceOp>(op)) {
        bool remembers = reduce.getWorkerAttr() == name || reduce.getServerAttr() == name;
        read |= remembers;
        updated |= remembers;
      }
    });
    if (!read)
      return state.emitOpError("is never read: expects a `bagua.read ")
             << name << "`; or leave the state out";
    if (!updated && !state.getInitialWeight())
      return state.emitOpError("is never updated: expects a `bagua.update ")
             << name << " = …`; or use a constant instead";
  }
  return success();
}

/// on_C9: rounds run beside the steps, whose handlers would read what a round is writing.
static LogicalResult verifyAsyncStates(AlgorithmOp algorithm) {
  std::map<StringRef, Operation *> uses[2]; // By state: of other handlers, and of the async one.
  for (auto on : algorithm.getBody().getOps<OnOp>())
    on.walk([&](Operation *op) {
      auto read = dyn_cast<ReadOp>(op);
      auto update = dyn_cast<UpdateOp>(op);
      if (read)
        uses[on.isAsync()].try_emplace(read.getState(), op);
      else if (update && update.getState())
        uses[on.isAsync()].try_emplace(*update.getState(), op);
      else if (auto reduce = dyn_cast<AllReduceOp>(op))
        for (std::optional<StringRef> state : {reduce.getWorker(), reduce.getServer()})
          if (state)
            uses[on.isAsync()].try_emplace(*state, op);
    });
  for (auto [name, op] : uses[1])
    if (auto other = uses[0].find(name); other != uses[0].end()) {
      InFlightDiagnostic diagnostic =
          op->emitOpError() << "expects a state that only the async handler uses, got @" << name
                            << ": rounds run beside the steps; give each handler a state of its "
                               "own";
      diagnostic.attachNote(other->second->getLoc()) << "used here as well";
      return diagnostic;
    }
  return success();
}

LogicalResult AlgorithmOp::verifyRegions() {
  std::optional<OnOp> handlers[getMaxEnumValForEvent() + 1];
  for (Operation &op : getBody().front()) {
    if (isa<StateOp>(op))
      continue;
    auto on = dyn_cast<OnOp>(op);
    if (!on) // algorithm_C1
      return op.emitOpError("is not allowed in an algorithm: expects bagua.state or bagua.on");
    std::optional<OnOp> &first = handlers[static_cast<uint32_t>(on.getEvent())];
    if (first) { // algorithm_C2
      InFlightDiagnostic diagnostic = on.emitOpError()
                                      << "handles " << stringifyEvent(on.getEvent()) << " again";
      diagnostic.attachNote(first->getLoc()) << "first here";
      return diagnostic;
    }
    first = on;
  }
  if (getBody().getOps<OnOp>().empty()) // algorithm_C1
    return emitOpError("expects at least one handler");
  if (failed(verifyDefaults(*this)) || failed(verifyOwnsUpdate(*this)) ||
      failed(verifyStatesUsed(*this)) || failed(verifyAsyncStates(*this)))
    return failure();
  if (grainOf(*this) < 0) // algorithm_C3
    return emitOpError() << "expects codec blocks whose least common multiple is at most "
                         << kGrainMax;
  return success();
}

namespace {

/// on_C2, on_C3, on_C4: walks a handler in program order, with the updates some path may have made.
struct HandlerVerifier {
  OnOp on;
  using Updates = std::map<std::string, Operation *>; ///< Of some path so far, by their target.

  LogicalResult verify(Block &block, Updates &updates) {
    for (Operation &op : block) {
      if (auto update = dyn_cast<UpdateOp>(op)) {
        if (failed(verifyUpdate(update, updates)))
          return failure();
      } else if (auto reduce = dyn_cast<AllReduceOp>(op)) {
        for (FlatSymbolRefAttr state : {reduce.getWorkerAttr(), reduce.getServerAttr()})
          if (state && failed(replace(reduce, "state @" + state.getValue().str(), updates)))
            return failure();
      } else if (auto branch = dyn_cast<scf::IfOp>(op)) {
        Updates afterThen = updates, afterElse = updates;
        if (failed(verify(*branch.thenBlock(), afterThen)) ||
            (branch.elseBlock() && failed(verify(*branch.elseBlock(), afterElse))))
          return failure();
        updates = std::move(afterThen);
        updates.merge(afterElse);
      } else if (failed(verifyAllowed(op))) {
        return failure();
      }
    }
    return success();
  }

  LogicalResult verifyUpdate(UpdateOp update, Updates &updates) {
    StringRef event = stringifyEvent(on.getEvent()), role = stringifyRole(update.getRole());
    std::string target =
        update.getState() ? "state @" + update.getState()->str() : "the " + role.str();
    if (update.getRole() != Role::State && failed(verifyRole(update, event, role)))
      return failure();
    return replace(update, target, updates);
  }

  /// on_C3
  static LogicalResult replace(Operation *op, const std::string &target, Updates &updates) {
    auto [earlier, isFirst] = updates.try_emplace(target, op);
    if (isFirst)
      return success();
    InFlightDiagnostic diagnostic = op->emitOpError()
                                    << "replaces " << target << " twice on one path";
    diagnostic.attachNote(earlier->second->getLoc()) << "first here";
    return diagnostic;
  }

  LogicalResult verifyRole(UpdateOp update, StringRef event, StringRef role) {
    bool owns = on->getParentOfType<AlgorithmOp>().getOwnsUpdate();
    bool isGradient = on.getEvent() == Event::Gradient;
    Role wanted = isGradient && !owns ? Role::Gradient : Role::Weight;
    if (update.getRole() != wanted) {
      InFlightDiagnostic diagnostic =
          update.emitOpError() << "of the " << role << " is not allowed in a handler of " << event;
      if (isGradient && owns)
        diagnostic << " of an algorithm that owns the update: no optimizer of the job reads it; "
                      "expects weight, `at before_update`";
      else
        diagnostic << ": expects " << stringifyRole(wanted);
      if (isGradient && !owns)
        diagnostic << "; or let the algorithm own the update: `attributes {owns_update}`";
      return diagnostic;
    }
    if (on.isAsync() != update.getAdd()) {
      InFlightDiagnostic diagnostic = update.emitOpError()
                                      << "in a handler of " << event << " expects ";
      if (on.isAsync())
        diagnostic << "`weight += %d`: the trainer has moved the weight since the round began; "
                      "give the difference to the snapshot";
      else
        diagnostic << "`weight = %x`: only async rounds add to the weight";
      return diagnostic;
    }
    bool gated = on.getEvent() == Event::BeforeForward || (isGradient && owns);
    if (gated != update.getGate().has_value())
      return update.emitOpError() << "in a handler of " << event << " expects "
                                  << (gated ? "`at before_update`" : "no `at`");
    return success();
  }

  LogicalResult verifyAllowed(Operation &op) {
    Dialect *dialect = op.getDialect();
    if (isa<scf::YieldOp>(op) || isa_and_nonnull<BaguaDialect>(dialect))
      return success();
    for (Type type : llvm::concat<Type>(op.getOperandTypes(), op.getResultTypes()))
      if (isa_and_nonnull<arith::ArithDialect>(dialect) && !isScalarType(type))
        return op.emitOpError() << "expects scalars in a handler, index, i1, i64 or f64, got "
                                << type
                                << (isa<TensorType>(type) ? ": compute with it in a bagua.map"
                                                          : "");
    if (isDivision(&op) && matchPattern(op.getOperand(1), m_Zero()))
      return op.emitOpError("divides by the constant 0: expects a divisor of at least 1, as an "
                            "interval of 1 for every step");
    if (isScalarArithmetic(&op) && isa<arith::ArithDialect>(dialect))
      return success();
    return op.emitOpError()
           << "is not allowed in a handler: expects ops of bagua, scf.if and those "
              "of arith that SPEC.md lists under \"Scalars\"; "
           << insteadOf(op);
  }

  /// What to write for an op that is not allowed.
  static StringRef insteadOf(Operation &op) {
    StringRef name = op.getName().getStringRef();
    if (name == "arith.cmpf")
      return "a condition is of indices; what depends on an f64 or on the data is a select in a "
             "bagua.map";
    if (name == "arith.divsi" || name == "arith.divui")
      return "take arith.floordivsi";
    if (name == "arith.shli" || name == "arith.shrsi" || name == "arith.shrui")
      return "take arith.muli or arith.floordivsi";
    if (name == "math.fpowi" || name == "math.powf" || name == "math.ipowi")
      return "take bagua.power";
    if (name == "arith.uitofp")
      return "take bagua.to_f64";
    if (isa_and_nonnull<arith::ArithDialect>(op.getDialect()) || name.starts_with("math."))
      return "bagua.map has sqrt, abs, sign, min, max, fma, rint, floor and select";
    if (name.starts_with("scf.") || name.starts_with("affine."))
      return "write iterations one after the other, or as calls of a private function";
    if (name == "func.call" || name == "call")
      return "take bagua.call";
    return "there is nothing to take instead";
  }
};

} // namespace

/// on_C6: at least `least`, the same on all ranks and in every step.
static LogicalResult verifyCount(OnOp on, StringRef what, Value value,
                                 std::optional<int64_t> number, int64_t least) {
  if (value) {
    auto algorithm = on->getParentOfType<AlgorithmOp>();
    auto parameter = algorithm ? algorithm.getParameter(value) : std::nullopt;
    if (!parameter)
      return on.emitOpError() << "expects " << what << " to be a parameter of the algorithm or a "
                              << "number";
    if (parameter->perStep)
      return on.emitOpError() << "expects a parameter that is not per_step for " << what
                              << ", got %" << parameter->name
                              << ": rounds are set up when a bucket is bound";
    number = cast<IntegerAttr>(parameter->initial).getInt();
  }
  if (number && *number < least)
    return on.emitOpError() << "expects " << what << " of at least " << least << ", got " << *number
                            << (value ? " by default" : "");
  return success();
}

LogicalResult OnOp::verify() {
  bool every = getEvery() || getEveryNumber();
  if (every != isAsync() || every != getEveryUnit().has_value() ||
      every != getStaleness().has_value() || (getEvery() && getEveryNumber()) ||
      (getAfter() && getAfterNumber()) || ((getAfter() || getAfterNumber()) && !isAsync())) // on_C5
    return emitOpError() << "of " << stringifyEvent(getEvent()) << " expects "
                         << (isAsync() ? "one interval and its unit, one `after` at most, and "
                                         "staleness"
                                       : "no every, after or staleness: they belong to async");
  if (!isAsync())
    return success();
  if (failed(verifyCount(*this, "every", getEvery(), getEveryNumber(), 1)) ||
      failed(verifyCount(*this, "after", getAfter(), getAfterNumber(), 0)))
    return failure();
  if (*getStaleness() < 1) // on_C7
    return emitOpError() << "B160: expects a staleness of at least 1, got " << *getStaleness()
                         << ": what a round brings is added at a later step at the earliest";
  if (*getStaleness() > std::numeric_limits<int32_t>::max()) // on_C7
    return emitOpError() << "B160: expects a staleness below 2^31, got " << *getStaleness();
  return success();
}

/// on_C8
static LogicalResult verifyNoStepParameters(OnOp on) {
  auto algorithm = on->getParentOfType<AlgorithmOp>();
  WalkResult result = on.walk([&](Operation *op) {
    for (Value operand : op->getOperands())
      if (auto parameter = algorithm.getParameter(operand); parameter && parameter->perStep) {
        op->emitOpError() << "expects parameters that are not per_step in an async handler, got %"
                          << parameter->name << ": in one round, ranks may be at different steps";
        return WalkResult::interrupt();
      }
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

LogicalResult OnOp::verifyRegions() {
  Block &block = getBody().front();
  size_t most = getEvent() == Event::Gradient ? 2 : 1;
  if (block.getNumArguments() < 1 || block.getNumArguments() > most ||
      !llvm::all_of(block.getArgumentTypes(), isBucket)) { // on_C1
    InFlightDiagnostic diagnostic =
        emitOpError() << "expects one argument over the bucket"
                      << (most == 2 ? ", or two: gradient and weight" : "") << ", got ";
    diagnostic << block.getArgumentTypes();
    return diagnostic;
  }
  if (isAsync() && failed(verifyNoStepParameters(*this)))
    return failure();
  HandlerVerifier::Updates updates{};
  return HandlerVerifier{*this}.verify(block, updates);
}

// ---- Inference and verification -----------------------------------------------------------------

namespace {

using Types = SmallVectorImpl<Type>;

/// How to make a bucket of what is none.
StringRef bucketFrom(Type type) {
  if (auto per = dyn_cast<PerType>(type)) {
    if (isa<TopologyAttrInterface>(per.getOver()))
      return ": bagua.mix makes one bucket of a rank's and its neighbours'";
    return shardGroup(unpacked(per.getElement())) ? ": bagua.concat joins shards"
                                                  : ": bagua.reduce makes one of them";
  }
  if (isa<PackedType>(type))
    return ": bagua.decode makes values of it";
  if (shardGroup(type))
    return ": bagua.all_gather and bagua.concat make a bucket of shards";
  return isScalar(type) ? ": a bagua.map stretches a scalar over a bucket that it names" : "";
}

LogicalResult expectBucket(Operation *op, StringRef what, Type type) {
  if (!isBucket(type))
    return op->emitOpError() << "expects the " << what << " over the bucket, got " << type
                             << bucketFrom(type);
  return success();
}

LogicalResult verifyOpGroup(Operation *op, FlatSymbolRefAttr group) {
  return verifyGroup([&] { return op->emitOpError(); }, group);
}

/// verify() of groups comes after inference: build no type that a bad group makes invalid.
bool isGroup(FlatSymbolRefAttr group) { return group && groupNamed(group.getValue()); }

LogicalResult badGroup(std::optional<Location> loc, FlatSymbolRefAttr group) {
  if (!loc)
    return failure();
  return verifyGroup([&] { return mlir::emitError(*loc); }, group);
}

} // namespace

/// The state `name` of the algorithm around `op`.
static FailureOr<StateOp> stateNamed(Operation *op, FlatSymbolRefAttr name) {
  auto algorithm = op->getParentOfType<AlgorithmOp>();
  if (!algorithm)
    return op->emitOpError("expects to stand in a handler: a function takes states as arguments "
                           "and returns their new values");
  if (auto state = algorithm.lookupSymbol<StateOp>(name))
    return state;
  return op->emitOpError() << "expects a state of the algorithm, got " << name
                           << ": declare `bagua.state " << name << " : bucket = 0.0`";
}

LogicalResult AllReduceOp::inferReturnTypes(MLIRContext *, std::optional<Location>, Adaptor adaptor,
                                            Types &inferred) {
  inferred.push_back(adaptor.getInput().getType());
  return success();
}

LogicalResult AllReduceOp::verify() {
  if (getGroupAttr() && failed(verifyOpGroup(*this, getGroupAttr()))) // all_reduce_C2
    return failure();
  Type type = getInput().getType();
  if (getServerAttr() && !getWorkerAttr()) // all_reduce_C5
    return emitOpError() << "expects a state of the worker beside " << getServerAttr();
  if (getWorkerAttr() && !getCodec()) // all_reduce_C4
    return emitOpError() << "expects `via` before `remember`: without a codec nothing is lost";
  if (getWorkerAttr() && !isBucket(type)) // all_reduce_C4
    return emitOpError() << "expects to `remember` of the bucket, got " << type;
  Group group = getReductionGroup();
  if (getServerAttr() && group != Group::World) // all_reduce_C5
    return emitOpError() << "expects no state of the shard's owner over " << getGroupAttr()
                         << ", got " << getServerAttr() << ": states of shards are of @world";
  if (isBucket(type) || (isScalar(type) && !getCodec())) // all_reduce_C1
    return success();
  FlatSymbolRefAttr shard = shardGroup(type);
  if (shard && alignsShards(group, groupOf(shard)))
    return success();
  InFlightDiagnostic diagnostic = emitOpError() << "expects the input over the bucket";
  if (group != Group::World)
    diagnostic << ", or over a shard of "
               << groupAttr(getContext(), group == Group::Node ? Group::Cross : Group::Node);
  return diagnostic << ", got " << type;
}

LogicalResult AllReduceOp::verifySymbolUses(SymbolTableCollection &) {
  for (auto [name, type] : {std::pair(getWorkerAttr(), bucketType(getContext())),
                            {getServerAttr(), shardType(groupAttr(getContext(), Group::World))}}) {
    if (!name)
      continue;
    FailureOr<StateOp> state = stateNamed(*this, name); // all_reduce_C5
    if (failed(state))
      return failure();
    if (state->getType() != type) // all_reduce_C5
      return emitOpError() << "expects " << name << " of type " << type << ", got "
                           << state->getType();
  }
  return verifyCodecExists(*this, getCodecAttr()); // all_reduce_C3
}

void AllReduceOp::getEffects(
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &effects) {
  effects.emplace_back(MemoryEffects::Read::get(), CommResource::get());
  effects.emplace_back(MemoryEffects::Write::get(), CommResource::get());
  if (!getWorkerAttr())
    return;
  effects.emplace_back(MemoryEffects::Read::get(), StateResource::get());
  effects.emplace_back(MemoryEffects::Write::get(), StateResource::get());
}

LogicalResult ReduceScatterOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                                Adaptor adaptor, Types &inferred) {
  if (!isGroup(adaptor.getGroupAttr())) // reduce_scatter_C2
    return badGroup(loc, adaptor.getGroupAttr());
  inferred.push_back(shardType(adaptor.getGroupAttr()));
  return success();
}

LogicalResult ReduceScatterOp::verify() {
  return expectBucket(*this, "input", getInput().getType()); // reduce_scatter_C1
}

LogicalResult SplitOp::inferReturnTypes(MLIRContext *context, std::optional<Location> loc,
                                        Adaptor adaptor, Types &inferred) {
  if (!isGroup(adaptor.getGroupAttr())) // split_C2
    return badGroup(loc, adaptor.getGroupAttr());
  inferred.push_back(
      PerType::get(context, adaptor.getGroupAttr(), shardType(adaptor.getGroupAttr()), false));
  return success();
}

LogicalResult SplitOp::verify() {
  return expectBucket(*this, "input", getInput().getType()); // split_C1
}

LogicalResult AllToAllOp::inferReturnTypes(MLIRContext *context, std::optional<Location> loc,
                                           Adaptor adaptor, Types &inferred) {
  if (!isGroup(adaptor.getGroupAttr())) // all_to_all_C2
    return badGroup(loc, adaptor.getGroupAttr());
  auto per = dyn_cast<PerType>(adaptor.getInput().getType());
  if (!per || per.getOver() != adaptor.getGroupAttr() ||
      shardGroup(unpacked(per.getElement())) != adaptor.getGroupAttr()) // all_to_all_C1
    return emitOptionalError(
        loc, "'bagua.all_to_all' op expects one value over a shard for each rank of ",
        adaptor.getGroupAttr(), ", got ", adaptor.getInput().getType());
  inferred.push_back(PerType::get(context, per.getOver(), per.getElement(), !per.getOwn()));
  return success();
}

LogicalResult AllGatherOp::inferReturnTypes(MLIRContext *context, std::optional<Location> loc,
                                            Adaptor adaptor, Types &inferred) {
  if (!isGroup(adaptor.getGroupAttr())) // all_gather_C2
    return badGroup(loc, adaptor.getGroupAttr());
  Type type = adaptor.getInput().getType();
  Type plain = unpacked(type);
  if (!isPlain(plain)) // all_gather_C1
    return emitOptionalError(loc, "'bagua.all_gather' op expects one value, plain or packed, got ",
                             type);
  FlatSymbolRefAttr shard = shardGroup(plain), group = adaptor.getGroupAttr();
  bool own = shard && shard != group;                       // Whoever sends it has my shard.
  if (own && !alignsShards(groupOf(group), groupOf(shard))) // all_gather_C1
    return emitOptionalError(loc, "'bagua.all_gather' op expects a shard of ", group,
                             ", or of a group in which its ranks have one shard, got ", type);
  inferred.push_back(PerType::get(context, group, type, own));
  return success();
}

LogicalResult NeighborExchangeOp::inferReturnTypes(MLIRContext *context,
                                                   std::optional<Location> loc, Adaptor adaptor,
                                                   Types &inferred) {
  Type type = adaptor.getInput().getType();
  FlatSymbolRefAttr shard = shardGroup(unpacked(type));
  bool own = shard && alignsShards(adaptor.getTopology().getGroup(), groupOf(shard));
  if (!isBucket(unpacked(type)) && !isScalar(type) && !own) // neighbor_exchange_C1
    return emitOptionalError(
        loc, "'bagua.neighbor_exchange' op expects the input over the bucket, got ", type);
  inferred.push_back(PerType::get(context, adaptor.getTopology(), type, own));
  return success();
}

LogicalResult ConcatOp::inferReturnTypes(MLIRContext *context, std::optional<Location> loc,
                                         Adaptor adaptor, Types &inferred) {
  auto per = dyn_cast<PerType>(adaptor.getInput().getType());
  if (!per || per.getOwn() || !shardGroup(per.getElement())) // concat_C1
    return emitOptionalError(
        loc, "'bagua.concat' op expects one plain value over each rank's shard, got ",
        adaptor.getInput().getType());
  inferred.push_back(bucketType(context));
  return success();
}

LogicalResult EncodeOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                         Adaptor adaptor, Types &inferred) {
  Type type = adaptor.getInput().getType();
  auto per = dyn_cast<PerType>(type);
  Type element = per ? per.getElement() : type;
  if (!isPlain(element) || isScalar(element)) // encode_C1
    return emitOptionalError(loc, "'bagua.encode' op expects plain input, got ", type);
  inferred.push_back(packedWith(adaptor.getCodec(), type));
  return success();
}

LogicalResult EncodeOp::verifySymbolUses(SymbolTableCollection &) {
  return verifyCodecExists(*this, getCodecAttr()); // encode_C2
}

LogicalResult DecodeOp::inferReturnTypes(MLIRContext *context, std::optional<Location> loc,
                                         Adaptor adaptor, Types &inferred) {
  Type type = adaptor.getInput().getType();
  auto per = dyn_cast<PerType>(type);
  auto packed = dyn_cast<PackedType>(per ? per.getElement() : type);
  if (!packed) // decode_C1
    return emitOptionalError(loc, "'bagua.decode' op expects packed input, got ", type);
  Type plain = packed.getElement();
  inferred.push_back(per ? PerType::get(context, per.getOver(), plain, per.getOwn()) : plain);
  return success();
}

LogicalResult ReduceOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc,
                                         Adaptor adaptor, Types &inferred) {
  Type type = adaptor.getInput().getType();
  auto per = dyn_cast<PerType>(type);
  if (!per || !isa<FlatSymbolRefAttr>(per.getOver()) || !isPlain(per.getElement())) // reduce_C1
    return emitOptionalError(
        loc, "'bagua.reduce' op expects one plain value for each rank of a group, got ", type,
        per && isa<TopologyAttrInterface>(per.getOver())
            ? ": bagua.mix averages a rank's value and its neighbours'"
            : "");
  if (shardGroup(per.getElement()) && !per.getOwn()) // reduce_C2
    return emitOptionalError(loc, "'bagua.reduce' op expects elements of one length (own), got ",
                             type, ", whose element i is over the shard of rank i");
  inferred.push_back(per.getElement());
  return success();
}

LogicalResult MixOp::inferReturnTypes(MLIRContext *, std::optional<Location>, Adaptor adaptor,
                                      Types &inferred) {
  inferred.push_back(adaptor.getValue().getType());
  return success();
}

/// neighbor_exchange_C2, mix_C3
static LogicalResult verifyRound(Operation *op, TopologyAttrInterface topology, Value round) {
  if (round && topology.isStatic())
    return op->emitOpError() << "expects no `at`: " << topology << " is the same in every round";
  return success();
}

LogicalResult NeighborExchangeOp::verify() { return verifyRound(*this, getTopology(), getRound()); }

LogicalResult MixOp::verify() {
  if (failed(verifyRound(*this, getTopology(), getRound()))) // mix_C3
    return failure();
  auto per = cast<PerType>(getNeighbors().getType());
  if (per.getOver() != getTopology()) // mix_C2
    return emitOpError() << "expects the neighbours of its own topology " << getTopology()
                         << ", got those of " << per.getOver();
  if (per.getElement() != getValue().getType()) // mix_C2
    return emitOpError() << "expects neighbours of the value's type " << getValue().getType()
                         << ", got " << per.getElement();
  return success();
}

LogicalResult UpdateOp::verify() {
  bool isState = getRole() == Role::State;
  if (isState != getState().has_value()) // update_C2
    return emitOpError() << "expects the name of a state where, and only where, the role is state";
  if (isState && getGate()) // update_C3
    return emitOpError("of a state expects no `at`: it takes its new value at the end of the step");
  if (getAdd() && (getRole() != Role::Weight || getGate())) // update_C4
    return emitOpError() << "expects `+=` for the weight only, without `at`: "
                         << (isState ? "read the state, and update it to the sum"
                                     : "it is added between two steps");
  return isState ? success() : expectBucket(*this, "value", getValue().getType()); // update_C1
}

LogicalResult ReadOp::verifySymbolUses(SymbolTableCollection &) {
  FailureOr<StateOp> state = stateNamed(*this, getStateAttr()); // read_C1
  if (failed(state))
    return failure();
  if (state->getType() != getResult().getType()) // read_C2
    return emitOpError() << "expects the type of the state, " << state->getType() << ", got "
                         << getResult().getType() << ": write it after a colon";
  return success();
}

LogicalResult UpdateOp::verifySymbolUses(SymbolTableCollection &) {
  if (!getStateAttr())
    return success();
  FailureOr<StateOp> state = stateNamed(*this, getStateAttr()); // update_C2
  if (failed(state))
    return failure();
  if (state->getType() != getValue().getType()) // update_C1
    return emitOpError() << "expects a value of the type of the state, " << state->getType()
                         << ", got " << getValue().getType()
                         << (isBucket(state->getType()) ? bucketFrom(getValue().getType()) : "");
  return success();
}

LogicalResult StateOp::verify() {
  Type type = getType();
  auto per = dyn_cast<PerType>(type);
  bool isNeighbors = per && isa<TopologyAttrInterface>(per.getOver()) && isBucket(per.getElement());
  if (FlatSymbolRefAttr group = shardGroup(type);
      group && groupOf(group) != Group::World) // state_C5
    return emitOpError() << "expects a shard of @world, got one of " << group
                         << ": states are laid out again by ranks of the world on a resize";
  if (!isPlain(type) && !isNeighbors) // state_C1
    return emitOpError() << "expects a type over the bucket, a shard, a scalar or one bucket per "
                            "neighbour, got "
                         << type;
  if (isNeighbors && !cast<TopologyAttrInterface>(per.getOver()).isStatic()) // state_C1
    return emitOpError() << "expects neighbours that are the same in every round, got "
                         << per.getOver()
                         << ": keep a state over the bucket, or take #bagua.topology, "
                            "#bagua.torus or #bagua.exponential";
  if (!getInitial().isFinite()) // state_C2
    return emitOpError("expects a finite initial value");
  if (getInitialWeight() && !isBucket(type) && !isNeighbors) // state_C3
    return emitOpError() << "expects a state over the bucket or neighbours to begin as the weight, "
                            "got "
                         << type;
  bool fits = getOnResize() == OnResize::Zero ||
              (getOnResize() == OnResize::Mean ? isBucket(type) || isScalar(type)
                                               : static_cast<bool>(shardGroup(type)));
  if (!fits) // state_C4
    return emitOpError() << "expects on_resize " << stringifyOnResize(defaultOnResize(type))
                         << (defaultOnResize(type) == OnResize::Zero ? "" : " or zero") << ", got "
                         << stringifyOnResize(getOnResize());
  return success();
}

static LogicalResult expectElements(Operation *op, Type type) {
  if (!isPlain(type) || isScalar(type))
    return op->emitOpError() << "expects operands over the bucket or a shard, got " << type;
  return success();
}

LogicalResult DotOp::inferReturnTypes(MLIRContext *context, std::optional<Location>, Adaptor,
                                      Types &inferred) {
  inferred.push_back(scalarType(context));
  return success();
}

LogicalResult NormOp::inferReturnTypes(MLIRContext *context, std::optional<Location>, Adaptor,
                                       Types &inferred) {
  inferred.push_back(scalarType(context));
  return success();
}

LogicalResult DotOp::verify() { return expectElements(*this, getLhs().getType()); }    // dot_C1
LogicalResult NormOp::verify() { return expectElements(*this, getInput().getType()); } // norm_C1

LogicalResult RandomOp::verify() {
  return expectBucket(*this, "result", getResult().getType()); // random_C1
}

// ---- Random numbers -----------------------------------------------------------------------------

int64_t bagua::ir::drawNumber(Operation *op) {
  int64_t number = 0;
  op->getParentOfType<AlgorithmOp>().walk<WalkOrder::PreOrder>([&](Operation *other) {
    if (other == op)
      return WalkResult::interrupt();
    auto reduce = dyn_cast<AllReduceOp>(other);
    if (reduce && reduce.getCodec()) // Of a shard, one: it is gathered, and not cut again.
      number += isBucket(reduce.getInput().getType()) ? 2 : 1;
    else
      number += isa<EncodeOp, RandomOp>(other);
    return WalkResult::advance();
  });
  return number;
}

EncodeOp bagua::ir::encodeOf(Value packed) {
  EncodeOp found;
  SmallVector<Value> open{packed};
  llvm::SmallDenseSet<Value> seen;
  while (!open.empty()) {
    Value value = open.pop_back_val();
    if (!seen.insert(value).second)
      continue;
    Operation *op = value.getDefiningOp();
    if (auto encode = dyn_cast_or_null<EncodeOp>(op)) {
      if (found && found != encode)
        return {};
      found = encode;
    } else if (auto branch = dyn_cast_or_null<scf::IfOp>(op)) {
      unsigned index = cast<OpResult>(value).getResultNumber();
      for (Block *block : {branch.thenBlock(), branch.elseBlock()})
        open.push_back(block->getTerminator()->getOperand(index));
    } else if (isa_and_nonnull<AllToAllOp, AllGatherOp, NeighborExchangeOp>(op)) {
      open.push_back(op->getOperand(0));
    } else {
      return {};
    }
  }
  return found;
}
