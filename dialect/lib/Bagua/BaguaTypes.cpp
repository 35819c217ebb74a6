// Attributes and types of the `bagua` dialect: syntax, verification, the min-max codec.
#include "bagua/dialect/Bagua/BaguaTypes.h"

#include "bagua/dialect/Bagua/BaguaDialect.h"

#include "Expressions.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/SmallSet.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/Threading.h"

#include <numeric>

using namespace mlir;
using namespace bagua::ir;

#include "bagua/dialect/Bagua/BaguaEnums.cpp.inc"

#include "bagua/dialect/Bagua/BaguaCodecInterface.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "bagua/dialect/Bagua/BaguaAttrs.cpp.inc"

#define GET_TYPEDEF_CLASSES
#include "bagua/dialect/Bagua/BaguaTypes.cpp.inc"

// ---- Syntax -------------------------------------------------------------------------------------

namespace {

/// How each attribute that algorithms name is written.
struct Spelling {
  StringRef name, example;
};
constexpr Spelling kCodecs[] = {
    {"identity", ""},
    {"f16", ""},
    {"bf16", ""},
    {"minmax", "<bits = 8, block = 2048>"},
    {"minmax_reference", "<block = 2048>"},
    {"sign", "<block = 256>"},
    {"ternary", "<block = 512>"},
    {"qsgd", "<levels = 7, block = 512>"},
    {"topk", "<k = 64, block = 4096>"},
    {"randk", "<k = 64, block = 4096>"},
    {"codec", "<@name>"},
};
constexpr Spelling kTopologies[] = {
    {"topology", "<offsets = [-1, 1], weights = [1/3, 1/3]>"},
    {"exponential", ""},
    {"torus", "<columns = 4>"},
    {"one_peer_exponential", ""},
    {"round_robin", ""},
    {"shift_one", ""},
    {"pairing", "<seed = 7>"},
};
constexpr Spelling kDomains[] = {{"bucket", ""}, {"shard", "<@world>"}, {"scalar", ""}};

const Spelling *spellingOf(StringRef name) {
  for (ArrayRef<Spelling> list : {ArrayRef(kCodecs), ArrayRef(kTopologies), ArrayRef(kDomains)})
    for (const Spelling &known : list)
      if (known.name == name)
        return &known;
  return nullptr;
}

void unknownAttribute(DialectAsmParser &parser, SMLoc loc, StringRef name) {
  InFlightDiagnostic diagnostic = parser.emitError(loc)
                                  << "is no attribute of bagua, '" << name << "': there are";
  StringRef before = " ";
  for (auto [what, list] : {std::pair("codecs", ArrayRef(kCodecs)),
                            {"topologies", ArrayRef(kTopologies)},
                            {"domains", ArrayRef(kDomains)}}) {
    diagnostic << before << what << " (";
    llvm::interleaveComma(list, diagnostic,
                          [&](const Spelling &known) { diagnostic << known.name; });
    diagnostic << ")";
    before = ", ";
  }
  diagnostic << "; a file defines codecs of its own with bagua.codec";
}

} // namespace

Attribute BaguaDialect::parseAttribute(DialectAsmParser &parser, Type type) const {
  SMLoc loc = parser.getCurrentLocation();
  StringRef name = textAt(loc).take_while([](char c) { return llvm::isAlnum(c) || c == '_'; });
  Attribute attribute;
  std::vector<Diagnostic> problems; // Of this thread, until it is known who tells them best.
  OptionalParseResult known;
  {
    StringRef unknown;
    uint64_t thread = llvm::get_threadid();
    ScopedDiagnosticHandler keep(getContext(), [&](Diagnostic &diagnostic) {
      if (llvm::get_threadid() != thread)
        return failure();
      problems.push_back(std::move(diagnostic));
      return success();
    });
    known = generatedAttributeParser(parser, &unknown, type, attribute);
  }
  if (!known.has_value()) {
    unknownAttribute(parser, loc, name);
    return {};
  }
  if (succeeded(*known))
    return attribute;
  const Spelling *spelling = spellingOf(name);
  for (Diagnostic &problem : problems) {
    std::string text = problem.str();
    bool isClear = !StringRef(text).starts_with("expected ") ||
                   StringRef(text).starts_with("expected one of ");
    if (spelling && !isClear) {
      mlir::emitError(problem.getLocation())
          << "expects #bagua." << name << spelling->example
          << (spelling->example.empty() ? ", without parameters" : ", with numbers of your own");
      return {};
    }
    getContext()->getDiagEngine().emit(std::move(problem));
  }
  return {};
}

void BaguaDialect::printAttribute(Attribute attribute, DialectAsmPrinter &printer) const {
  (void)generatedAttributePrinter(attribute, printer);
}

void BaguaDialect::registerAttributes() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "bagua/dialect/Bagua/BaguaAttrs.cpp.inc"
      >();
}

void BaguaDialect::registerTypes() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "bagua/dialect/Bagua/BaguaTypes.cpp.inc"
      >();
}

using EmitError = function_ref<InFlightDiagnostic()>;

LogicalResult bagua::ir::verifyGroup(EmitError emitError, FlatSymbolRefAttr group) {
  StringRef name = group.getValue();
  if (groupNamed(name))
    return success();
  return emitError() << "unknown group: expects @world, @node or @cross, got @" << name;
}

static constexpr StringLiteral kGroupNames[] = {"world", "node", "cross"};

std::optional<Group> bagua::ir::groupNamed(StringRef name) {
  const auto *found = llvm::find(kGroupNames, name);
  if (found == std::end(kGroupNames))
    return std::nullopt;
  return static_cast<Group>(found - kGroupNames);
}

FlatSymbolRefAttr bagua::ir::groupAttr(MLIRContext *context, Group group) {
  return FlatSymbolRefAttr::get(context, kGroupNames[static_cast<size_t>(group)]);
}

// ---- Domains ------------------------------------------------------------------------------------

static LogicalResult verifyFlat(ArrayRef<int64_t> shape, Type elementType, EmitError emitError) {
  if (shape.size() != 1 || !ShapedType::isDynamic(shape[0]))
    return emitError() << "expects one dynamic dimension: lengths bind with the bucket";
  if (!elementType) // The parser asks before it has told of a bad element type.
    return failure();
  if (!elementType.isF32())
    return emitError() << "expects element type f32, got " << elementType
                       << ": the storage type binds with the bucket";
  return success();
}

LogicalResult BucketAttr::verifyEncoding(ArrayRef<int64_t> shape, Type elementType,
                                         EmitError emitError) const {
  return verifyFlat(shape, elementType, emitError);
}

LogicalResult ScalarAttr::verifyEncoding(ArrayRef<int64_t> shape, Type elementType,
                                         EmitError emitError) const {
  return verifyFlat(shape, elementType, emitError);
}

LogicalResult ShardAttr::verifyEncoding(ArrayRef<int64_t> shape, Type elementType,
                                        EmitError emitError) const {
  return verifyFlat(shape, elementType, emitError);
}

LogicalResult ShardAttr::verify(EmitError emitError, FlatSymbolRefAttr group) {
  return verifyGroup(emitError, group);
}

RankedTensorType bagua::ir::bucketType(MLIRContext *context) {
  return RankedTensorType::get({ShapedType::kDynamic}, Float32Type::get(context),
                               BucketAttr::get(context));
}

RankedTensorType bagua::ir::shardType(FlatSymbolRefAttr group) {
  MLIRContext *context = group.getContext();
  return RankedTensorType::get({ShapedType::kDynamic}, Float32Type::get(context),
                               ShardAttr::get(context, group));
}

RankedTensorType bagua::ir::scalarType(MLIRContext *context) {
  return RankedTensorType::get({ShapedType::kDynamic}, Float32Type::get(context),
                               ScalarAttr::get(context));
}

static Attribute domain(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor ? tensor.getEncoding() : Attribute();
}

bool bagua::ir::isBucket(Type type) { return isa_and_nonnull<BucketAttr>(domain(type)); }

bool bagua::ir::isScalar(Type type) { return isa_and_nonnull<ScalarAttr>(domain(type)); }

FlatSymbolRefAttr bagua::ir::shardGroup(Type type) {
  auto shard = dyn_cast_or_null<ShardAttr>(domain(type));
  return shard ? shard.getGroup() : FlatSymbolRefAttr();
}

bool bagua::ir::isPlain(Type type) { return isBucket(type) || shardGroup(type) || isScalar(type); }

Type bagua::ir::unpacked(Type type) {
  auto packed = dyn_cast<PackedType>(type);
  return packed ? packed.getElement() : type;
}

Type bagua::ir::packedWith(CodecAttrInterface codec, Type type) {
  if (auto per = dyn_cast<PerType>(type))
    return PerType::get(type.getContext(), per.getOver(), packedWith(codec, per.getElement()),
                        per.getOwn());
  return PackedType::get(type.getContext(), codec, type);
}

// ---- Codecs -------------------------------------------------------------------------------------

constexpr int64_t kMinMaxHeaderBytes = 8; // f32 minimum, f32 step: SPEC.md, "minmax".

LogicalResult MinMaxAttr::verify(EmitError emitError, int64_t bits, int64_t block) {
  if (bits < 2 || bits > 8)
    return emitError() << "expects bits in 2..8, got " << bits;
  if (block < 8 || block > 65536 || block % 8 != 0)
    return emitError() << "expects block to be a multiple of 8 in 8..65536, got " << block;
  return success();
}

// A block's codes fill whole bytes unless it is the last: block is a multiple of 8.
int64_t MinMaxAttr::packedBytes(int64_t count) const {
  return llvm::divideCeil(count, getBlock()) * kMinMaxHeaderBytes +
         llvm::divideCeil(count * getBits(), 8);
}

Value MinMaxAttr::buildPackedBytes(OpBuilder &builder, Location loc, Value count) const {
  auto constant = [&](int64_t value) -> Value {
    return arith::ConstantIndexOp::create(builder, loc, value);
  };
  Value blocks = arith::CeilDivSIOp::create(builder, loc, count, constant(getBlock()));
  Value headers = arith::MulIOp::create(builder, loc, blocks, constant(kMinMaxHeaderBytes));
  Value codes = count;
  if (getBits() != 8) {
    Value bits = arith::MulIOp::create(builder, loc, count, constant(getBits()));
    codes = arith::CeilDivSIOp::create(builder, loc, bits, constant(8));
  }
  return arith::AddIOp::create(builder, loc, headers, codes);
}

std::string MinMaxAttr::packedBytesFormula(StringRef count) const {
  std::string codes = getBits() == 8
                          ? count.str()
                          : "ceil(" + std::to_string(getBits()) + "*" + count.str() + "/8)";
  return "ceil(" + count.str() + "/" + std::to_string(getBlock()) + ")*" +
         std::to_string(kMinMaxHeaderBytes) + " + " + codes;
}

bool MinMaxAttr::isDeterministic() const { return true; }
bool MinMaxAttr::isClosedUnderSum() const { return false; }
bool MinMaxAttr::acceptsF64() const { return false; }
StringRef MinMaxAttr::getEncodeKernel() const { return "minmax_encode"; }
StringRef MinMaxAttr::getDecodeKernel() const { return "minmax_decode"; }
StringRef MinMaxAttr::getDecodeReduceKernel(ReduceKind kind) const {
  return kind == ReduceKind::Mean ? "minmax_decode_reduce_mean" : "minmax_decode_reduce_sum";
}

DictionaryAttr MinMaxAttr::getKernelAttributes() const {
  Builder builder(getContext());
  return builder.getDictionaryAttr(
      {builder.getNamedAttr("bits", builder.getI64IntegerAttr(getBits())),
       builder.getNamedAttr("block", builder.getI64IntegerAttr(getBlock()))});
}

// ---- Topologies ---------------------------------------------------------------------------------

constexpr int64_t kOffsetMax = 65536;
constexpr size_t kNeighborsMax = 16;                  // Lowering costs the cube of it.
constexpr int64_t kDenominatorMax = int64_t{1} << 31; // Sums of numerators stay exact in f64.

Attribute TopologyAttr::parse(AsmParser &parser, Type) {
  SmallVector<int64_t> offsets, numerators, denominators;
  auto offset = [&]() -> ParseResult { return parser.parseInteger(offsets.emplace_back()); };
  auto weight = [&]() -> ParseResult {
    SMLoc loc = parser.getCurrentLocation();
    int64_t numerator = 0, denominator = 1;
    OptionalParseResult isInteger = parser.parseOptionalInteger(numerator);
    if (!isInteger.has_value())
      return parser.emitError(loc) << "expects weights as exact fractions: 3/10 for 0.3, or 1";
    if (failed(*isInteger))
      return failure();
    if (succeeded(parser.parseOptionalSlash()) && parser.parseInteger(denominator))
      return failure();
    if (denominator <= 0 || denominator > kDenominatorMax)
      return parser.emitError(loc)
             << "expects a denominator in 1.." << kDenominatorMax << ", got " << denominator;
    // Written as in lowest terms; the verifier judges the value.
    int64_t divisor = numerator > 0 ? std::gcd(numerator, denominator) : 1;
    numerators.push_back(numerator / divisor);
    denominators.push_back(denominator / divisor);
    return success();
  };
  SMLoc loc = parser.getCurrentLocation();
  using Delimiter = AsmParser::Delimiter;
  if (parser.parseLess() || parser.parseKeyword("offsets") || parser.parseEqual() ||
      parser.parseCommaSeparatedList(Delimiter::Square, offset) || parser.parseComma() ||
      parser.parseKeyword("weights") || parser.parseEqual() ||
      parser.parseCommaSeparatedList(Delimiter::Square, weight))
    return {};
  SMLoc end = parser.getCurrentLocation();
  if (failed(parser.parseOptionalGreater())) {
    parser.emitError(end) << "expects `>` after the weights: a topology is offsets and weights. It "
                             "is directed where offsets do not come in pairs, -k and k";
    return {};
  }
  return parser.getChecked<TopologyAttr>(loc, parser.getContext(), offsets, numerators,
                                         denominators);
}

void TopologyAttr::print(AsmPrinter &printer) const {
  printer << "<offsets = [";
  llvm::interleaveComma(getOffsets(), printer);
  printer << "], weights = [";
  llvm::interleaveComma(llvm::zip(getNumerators(), getDenominators()), printer, [&](auto weight) {
    printer << std::get<0>(weight);
    if (std::get<1>(weight) != 1)
      printer << "/" << std::get<1>(weight);
  });
  printer << "]>";
}

LogicalResult TopologyAttr::verify(EmitError emitError, ArrayRef<int64_t> offsets,
                                   ArrayRef<int64_t> numerators, ArrayRef<int64_t> denominators) {
  if (offsets.empty() || offsets.size() > kNeighborsMax)
    return emitError() << "expects 1.." << kNeighborsMax << " offsets, got " << offsets.size();
  if (offsets.size() != numerators.size() || offsets.size() != denominators.size())
    return emitError() << "expects as many weights as offsets (" << offsets.size() << "), got "
                       << numerators.size();
  llvm::SmallSet<int64_t, 8> seen;
  for (int64_t offset : offsets) {
    if (offset == 0)
      return emitError() << "expects offsets other than 0: the self weight is 1 - sum of weights";
    if (offset < -kOffsetMax || offset > kOffsetMax)
      return emitError() << "expects offsets in -" << kOffsetMax << ".." << kOffsetMax << ", got "
                         << offset;
    if (!seen.insert(offset).second)
      return emitError() << "offset " << offset << " occurs twice";
  }
  int64_t common = 1;
  for (auto [numerator, denominator] : llvm::zip(numerators, denominators)) {
    if (denominator < 1 || denominator > kDenominatorMax)
      return emitError() << "expects a denominator in 1.." << kDenominatorMax << ", got "
                         << denominator;
    if (numerator <= 0 || numerator > denominator)
      return emitError() << "expects weights in (0, 1], got " << numerator << "/" << denominator;
    common = std::lcm(common, denominator);
    if (common > kDenominatorMax)
      return emitError() << "expects a common denominator of weights of at most " << kDenominatorMax
                         << ", got " << common;
  }
  int64_t sum = 0;
  for (auto [numerator, denominator] : llvm::zip(numerators, denominators))
    sum += numerator * (common / denominator);
  if (sum > common)
    return emitError() << "expects weights that sum to at most 1, got " << sum << "/" << common;
  return success();
}

int64_t TopologyAttr::getCommonDenominator() const {
  int64_t common = 1;
  for (int64_t denominator : getDenominators())
    common = std::lcm(common, denominator);
  return common;
}

SmallVector<int64_t> TopologyAttr::getCommonNumerators() const {
  int64_t common = getCommonDenominator();
  SmallVector<int64_t> numerators;
  for (auto [numerator, denominator] : llvm::zip(getNumerators(), getDenominators()))
    numerators.push_back(numerator * (common / denominator));
  return numerators;
}

// ---- Types --------------------------------------------------------------------------------------

LogicalResult PackedType::verify(EmitError emitError, CodecAttrInterface codec, Type element) {
  if (!isPlain(element) || isScalar(element))
    return emitError() << "expects a tensor over a bucket or a shard inside packed, got "
                       << element;
  return success();
}

Type PerType::parse(AsmParser &parser) {
  SMLoc loc = parser.getCurrentLocation();
  Attribute over;
  Type element;
  bool own = false;
  if (parser.parseLess() || parsePeers(parser, over) || parser.parseComma() ||
      parser.parseType(element))
    return {};
  if (succeeded(parser.parseOptionalComma())) {
    if (parser.parseKeyword("own"))
      return {};
    own = true;
  }
  if (parser.parseGreater())
    return {};
  return parser.getChecked<PerType>(loc, parser.getContext(), over, element, own);
}

void PerType::print(AsmPrinter &printer) const {
  printer << "<";
  printPeers(printer, getOver());
  printer << ", " << getElement() << (getOwn() ? ", own>" : ">");
}

LogicalResult PerType::verify(EmitError emitError, Attribute over, Type element, bool own) {
  Type plain = unpacked(element);
  if (!isPlain(plain))
    return emitError() << "expects a plain or packed tensor inside per, got " << element;
  FlatSymbolRefAttr shard = shardGroup(plain);
  if (own && !shard)
    return emitError() << "own says whose shard each element is over: expects a shard, got "
                       << element;
  if (auto group = dyn_cast<FlatSymbolRefAttr>(over)) {
    if (failed(verifyGroup(emitError, group)))
      return failure();
    if (shard && shard != group && !alignsShards(groupOf(group), groupOf(shard)))
      return emitError() << "expects elements over a shard of " << group << ", got " << element;
    if (shard && shard != group && !own)
      return emitError() << "expects own: ranks of " << group << " have one shard of " << shard
                         << ", got " << element;
    return success();
  }
  auto topology = dyn_cast<TopologyAttrInterface>(over);
  if (!topology)
    return emitError() << "expects a group or a topology, got " << over;
  if (!shard)
    return success();
  if (!alignsShards(topology.getGroup(), groupOf(shard)))
    return emitError() << "expects elements over the bucket for each neighbour, got " << element;
  if (!own)
    return emitError() << "expects own: ranks of "
                       << groupAttr(over.getContext(), topology.getGroup()) << " have one shard of "
                       << shard << ", got " << element;
  return success();
}
