// Operations of the `bagua` dialect: syntax, type inference, constraints of SPEC.md.
#include "bagua/dialect/Bagua/BaguaOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

#include <numeric>

using namespace mlir;
using namespace bagua::ir;

namespace {

/// Prints topologies and codecs once, at the top of the file.
struct BaguaAsmInterface : OpAsmDialectInterface {
  using OpAsmDialectInterface::OpAsmDialectInterface;
  AliasResult getAlias(Attribute attribute, raw_ostream &os) const override {
    if (isa<TopologyAttr>(attribute))
      os << "topology";
    else if (auto minmax = dyn_cast<MinMaxAttr>(attribute))
      os << "minmax" << minmax.getBits() << "_" << minmax.getBlock();
    else
      return AliasResult::NoAlias;
    return AliasResult::FinalAlias;
  }
};

} // namespace

#include "bagua/dialect/Bagua/BaguaDialect.cpp.inc"

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

/// `: T, T on #topology`, or `on #topology` for the bucket and its neighbours there.
static ParseResult parseMixTypes(OpAsmParser &parser, Type &value, Type &neighbors,
                                 TopologyAttr &topology) {
  bool typed = succeeded(parser.parseOptionalColon());
  if (typed && (parser.parseType(value) || parser.parseComma() || parser.parseType(neighbors)))
    return failure();
  if (parser.parseKeyword("on") || parser.parseAttribute(topology))
    return failure();
  if (!typed) {
    value = bucketType(parser.getContext());
    neighbors = PerType::get(parser.getContext(), topology, value, /*own=*/false);
  }
  return success();
}

static void printMixTypes(OpAsmPrinter &printer, Operation *, Type value, Type neighbors,
                          TopologyAttr topology) {
  Type bucket = bucketType(value.getContext());
  if (value != bucket ||
      neighbors != PerType::get(value.getContext(), topology, bucket, /*own=*/false))
    printer << " : " << value << ", " << neighbors;
  printer << " on " << topology;
}

#define GET_OP_CLASSES
#include "bagua/dialect/Bagua/BaguaOps.cpp.inc"

ParseResult OnOp::parse(OpAsmParser &parser, OperationState &result) {
  SMLoc loc = parser.getCurrentLocation();
  StringRef keyword;
  if (parser.parseKeyword(&keyword))
    return failure();
  std::optional<Event> event = symbolizeEvent(keyword);
  if (!event)
    return parser.emitError(loc) << "expects gradient, before_forward or after_update, got '"
                                 << keyword << "'";
  result.getOrAddProperties<Properties>().event = EventAttr::get(parser.getContext(), *event);
  OpAsmParser::Argument bucket;
  return failure(parser.parseLParen() || parser.parseArgument(bucket, /*allowType=*/true) ||
                 parser.parseRParen() ||
                 parser.parseOptionalAttrDictWithKeyword(result.attributes) ||
                 parser.parseRegion(*result.addRegion(), {bucket}));
}

void OnOp::print(OpAsmPrinter &printer) {
  printer << ' ' << stringifyEvent(getEvent()) << '(';
  printer.printRegionArgument(getBucket());
  printer << ") ";
  printer.printOptionalAttrDictWithKeyword((*this)->getAttrs(), {"event"});
  printer.printRegion(getBody(), /*printEntryBlockArgs=*/false, /*printBlockTerminators=*/false);
}

// ---- Structure ----------------------------------------------------------------------------------

LogicalResult bagua::ir::verifyInHandler(Operation *op) {
  if (!op->getParentOfType<OnOp>())
    return op->emitOpError("expects to stand inside a handler (bagua.on)");
  return success();
}

constexpr int64_t kGrainMax = int64_t{1} << 24;

/// Least common multiple of all codec blocks named by ops of `algorithm`; -1 if above kGrainMax.
static int64_t grainOf(AlgorithmOp algorithm) {
  int64_t grain = 1;
  algorithm.walk([&](Operation *op) {
    for (NamedAttribute attribute : op->getAttrs())
      if (auto codec = dyn_cast<CodecAttrInterface>(attribute.getValue()); codec && grain > 0) {
        grain = std::lcm(grain, codec.getBlock());
        if (grain > kGrainMax)
          grain = -1;
      }
  });
  return grain;
}

int64_t bagua::ir::grain(AlgorithmOp algorithm) { return grainOf(algorithm); }

LogicalResult AlgorithmOp::verify() {
  for (StringRef name : {"owns_update", "reassoc"}) // algorithm_C4
    if ((*this)->hasAttr(name))
      return emitOpError() << name << " is not supported yet";
  return success();
}

LogicalResult AlgorithmOp::verifyRegions() {
  std::optional<OnOp> handlers[getMaxEnumValForEvent() + 1];
  for (Operation &op : getBody().front()) {
    auto on = dyn_cast<OnOp>(op);
    if (!on) // algorithm_C1
      return op.emitOpError("is not allowed in an algorithm: expects bagua.on");
    std::optional<OnOp> &first = handlers[static_cast<uint32_t>(on.getEvent())];
    if (first) { // algorithm_C2
      InFlightDiagnostic diagnostic = on.emitOpError()
                                      << "handles " << stringifyEvent(on.getEvent()) << " again";
      diagnostic.attachNote(first->getLoc()) << "first here";
      return diagnostic;
    }
    first = on;
  }
  if (getBody().front().empty()) // algorithm_C1
    return emitOpError("expects at least one handler");
  if (grainOf(*this) < 0) // algorithm_C3
    return emitOpError() << "expects codec blocks whose least common multiple is at most "
                         << kGrainMax;
  return success();
}

namespace {

/// on_C2, on_C3, on_C4: walks a handler in program order, with the updates some path may have made.
struct HandlerVerifier {
  OnOp on;
  using Updates = std::array<UpdateOp, 2>; ///< By role; null: not updated on any path so far.

  LogicalResult verify(Block &block, Updates &updates) {
    for (Operation &op : block) {
      if (auto update = dyn_cast<UpdateOp>(op)) {
        if (failed(verifyUpdate(update, updates)))
          return failure();
      } else if (auto branch = dyn_cast<scf::IfOp>(op)) {
        Updates afterThen = updates, afterElse = updates;
        if (failed(verify(*branch.thenBlock(), afterThen)) ||
            (branch.elseBlock() && failed(verify(*branch.elseBlock(), afterElse))))
          return failure();
        for (size_t role = 0; role < updates.size(); ++role)
          updates[role] = afterThen[role] ? afterThen[role] : afterElse[role];
      } else if (failed(verifyAllowed(op))) {
        return failure();
      }
    }
    return success();
  }

  LogicalResult verifyUpdate(UpdateOp update, Updates &updates) {
    StringRef event = stringifyEvent(on.getEvent()), role = stringifyRole(update.getRole());
    Role wanted = on.getEvent() == Event::Gradient ? Role::Gradient : Role::Weight;
    if (update.getRole() != wanted)
      return update.emitOpError() << "of the " << role << " is not allowed in a handler of "
                                  << event << ": expects " << stringifyRole(wanted);
    bool gated = on.getEvent() == Event::BeforeForward;
    if (gated != update.getGate().has_value())
      return update.emitOpError() << "in a handler of " << event << " expects "
                                  << (gated ? "`at before_update`" : "no `at`");
    UpdateOp &earlier = updates[static_cast<uint32_t>(update.getRole())];
    if (earlier) {
      InFlightDiagnostic diagnostic = update.emitOpError()
                                      << "replaces the " << role << " twice on one path";
      diagnostic.attachNote(earlier.getLoc()) << "first here";
      return diagnostic;
    }
    earlier = update;
    return success();
  }

  LogicalResult verifyAllowed(Operation &op) {
    Dialect *dialect = op.getDialect();
    if (isa<scf::YieldOp>(op) || isa_and_nonnull<BaguaDialect>(dialect))
      return success();
    if (!isa_and_nonnull<arith::ArithDialect>(dialect))
      return op.emitOpError(
          "is not allowed in a handler: expects ops of bagua and arith, and scf.if");
    for (Type type : llvm::concat<Type>(op.getOperandTypes(), op.getResultTypes()))
      if (!type.isIntOrIndexOrFloat())
        return op.emitOpError() << "expects scalars in a handler, got " << type;
    return success();
  }
};

} // namespace

LogicalResult OnOp::verifyRegions() {
  Block &block = getBody().front();
  if (block.getNumArguments() != 1 || !isBucket(block.getArgument(0).getType())) { // on_C1
    InFlightDiagnostic diagnostic = emitOpError() << "expects one argument over the bucket, got ";
    diagnostic << block.getArgumentTypes();
    return diagnostic;
  }
  HandlerVerifier::Updates updates{};
  return HandlerVerifier{*this}.verify(block, updates);
}

// ---- Inference and verification -----------------------------------------------------------------

namespace {

using Types = SmallVectorImpl<Type>;

LogicalResult expectBucket(Operation *op, StringRef what, Type type) {
  if (!isBucket(type))
    return op->emitOpError() << "expects the " << what << " over the bucket, got " << type;
  return success();
}

LogicalResult verifyOpGroup(Operation *op, FlatSymbolRefAttr group) {
  return verifyGroup([&] { return op->emitOpError(); }, group);
}

/// verify() of groups comes after inference: build no type that a bad group makes invalid.
bool isGroup(FlatSymbolRefAttr group) { return group && group.getValue() == kWorldGroup; }

LogicalResult badGroup(std::optional<Location> loc, FlatSymbolRefAttr group) {
  if (!loc)
    return failure();
  return verifyGroup([&] { return mlir::emitError(*loc); }, group);
}

} // namespace

LogicalResult AllReduceOp::inferReturnTypes(MLIRContext *, std::optional<Location>, Adaptor adaptor,
                                            Types &inferred) {
  inferred.push_back(adaptor.getInput().getType());
  return success();
}

LogicalResult AllReduceOp::verify() {
  if (failed(expectBucket(*this, "input", getInput().getType()))) // all_reduce_C1
    return failure();
  return getGroupAttr() ? verifyOpGroup(*this, getGroupAttr()) : success(); // all_reduce_C2
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
  if (!per || shardGroup(unpacked(per.getElement())) != adaptor.getGroupAttr()) // all_to_all_C1
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
  inferred.push_back(PerType::get(context, adaptor.getGroupAttr(), type, false));
  return success();
}

LogicalResult NeighborExchangeOp::inferReturnTypes(MLIRContext *context,
                                                   std::optional<Location> loc, Adaptor adaptor,
                                                   Types &inferred) {
  Type type = adaptor.getInput().getType();
  if (!isBucket(unpacked(type))) // neighbor_exchange_C1
    return emitOptionalError(
        loc, "'bagua.neighbor_exchange' op expects the input over the bucket, got ", type);
  inferred.push_back(PerType::get(context, adaptor.getTopology(), type, false));
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
  if (!isPlain(per ? per.getElement() : type)) // encode_C1
    return emitOptionalError(loc, "'bagua.encode' op expects plain input, got ", type);
  inferred.push_back(packedWith(adaptor.getCodec(), type));
  return success();
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
        loc, "'bagua.reduce' op expects one plain value for each rank of a group, got ", type);
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

LogicalResult MixOp::verify() {
  if (failed(expectBucket(*this, "value", getValue().getType()))) // mix_C1
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
  return expectBucket(*this, "value", getValue().getType()); // update_C1
}
