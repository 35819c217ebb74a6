// bagua.map: its operands, and its constraints.
#include "Expressions.h"

#include "bagua/dialect/Bagua/BaguaOps.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Threading.h"

using namespace mlir;
using namespace bagua::ir;

namespace {

constexpr size_t kInputsMax = 32, kScalarsMax = 64;

class MapParser {
public:
  MapParser(OpAsmParser &parser, OperationState &state)
      : parser_(parser), state_(state), expression_(parser) {}

  ParseResult parse() {
    int64_t value = 0;
    if (failed(expression_.parse(value)))
      return failure();
    if (!mayEnd(textAt(parser_.getCurrentLocation())))
      return expression_.unexpected("the end of the map, `: T`");
    Type type = bucketType(context());
    if (succeeded(parser_.parseOptionalColon()) && failed(parser_.parseType(type)))
      return failure();
    StringRef rest = textAt(parser_.getCurrentLocation());
    if (!rest.empty() && StringRef("+-*/<>=").contains(rest.front()))
      return parser_.emitError(parser_.getCurrentLocation())
             << "expects nothing after `: T`, which is the type of the whole expression";
    if (failed(resolve(type)) || parser_.parseOptionalAttrDict(state_.attributes))
      return failure();
    for (Value scalar : scalars_)
      values_.push_back(scalar);
    state_.addOperands(values_);
    state_.addTypes(type);
    auto &properties = state_.getOrAddProperties<MapOp::Properties>();
    properties.operandSegmentSizes = {static_cast<int32_t>(values_.size() - scalars_.size()),
                                      static_cast<int32_t>(scalars_.size())};
    Builder &builder = parser_.getBuilder();
    properties.code = builder.getDenseI64ArrayAttr(expression_.flatCode());
    properties.constants = builder.getDenseF64ArrayAttr(expression_.constants());
    return success();
  }

private:
  OpAsmParser &parser_;
  OperationState &state_;
  ExpressionParser expression_;
  SmallVector<Value> values_, scalars_;

  /// `rest`, after the expression, may be that of an op that ends there.
  static bool mayEnd(StringRef rest) {
    if (rest.empty() || !rest.starts_with("%"))
      return rest.empty() ||
             !(llvm::isDigit(rest.front()) || StringRef("(),").contains(rest.front()));
    rest =
        rest.drop_while([](char c) { return llvm::isAlnum(c) || StringRef("%$._-").contains(c); });
    rest = rest.ltrim(); // The results of the next op.
    return rest.empty() || StringRef("=:,/").contains(rest.front());
  }

  MLIRContext *context() { return parser_.getContext(); }

  /// The parser wants the type of each operand, and knows it, though it tells only in messages:
  /// tries those that a map may have.
  ParseResult resolve(Type result) {
    SmallVector<Type> candidates{result};
    auto per = dyn_cast<PerType>(result);
    for (Type type :
         {Type(bucketType(context())), Type(scalarType(context())),
          Type(Float64Type::get(context())), Type(IndexType::get(context())),
          per ? per.getElement() : Type(), Type(shardType(groupAttr(context(), Group::World))),
          Type(shardType(groupAttr(context(), Group::Node))),
          Type(shardType(groupAttr(context(), Group::Cross)))})
      if (type && !llvm::is_contained(candidates, type))
        candidates.push_back(type);
    SmallVector<std::pair<MapCode, int64_t>> places;
    for (const OpAsmParser::UnresolvedOperand &operand : expression_.operands()) {
      SmallVector<Value> resolved;
      std::string got;
      if (failed(resolve(operand, candidates, resolved, got))) {
        InFlightDiagnostic diagnostic = parser_.emitError(operand.location)
                                        << "expects a value over the domain of the result, "
                                        << result << ", a scalar, an f64 or an index";
        if (!got.empty())
          diagnostic << ", got " << got;
        if (StringRef(got).contains("!bagua.per<"))
          return diagnostic << ": bagua.mix makes one value of a rank's and its neighbours', "
                               "bagua.reduce of the ranks of a group";
        if (StringRef(got).contains("!bagua.packed<"))
          return diagnostic << ": bagua.decode makes values of it";
        if (StringRef(got).contains("'f32'"))
          return diagnostic << ": scalars are f64, rounded once where they enter a map";
        return diagnostic << "; write the type of the result, `: T`, where it is not over the "
                             "bucket";
      }
      if (auto cast = resolved.front().getDefiningOp<UnrealizedConversionCastOp>();
          cast && cast.getInputs().empty() && isOneName(operand))
        return emitOneName(parser_, operand); // Undeclared: the parser's stand-in for it.
      bool isScalarOperand = isa<FloatType, IndexType>(resolved.front().getType());
      SmallVector<Value> &list = isScalarOperand ? scalars_ : values_;
      places.push_back(
          {isScalarOperand ? MapCode::Scalar : MapCode::Input, static_cast<int64_t>(list.size())});
      list.push_back(resolved.front());
    }
    for (std::array<int64_t, kMapStride> &instruction : expression_.code())
      if (instruction[0] == static_cast<int64_t>(MapCode::Input)) {
        auto [code, index] = places[instruction[1]];
        instruction[0] = static_cast<int64_t>(code);
        instruction[1] = index;
      }
    return success();
  }

  ParseResult resolve(const OpAsmParser::UnresolvedOperand &operand, ArrayRef<Type> candidates,
                      SmallVectorImpl<Value> &resolved, std::string &got) {
    uint64_t thread = llvm::get_threadid();
    ScopedDiagnosticHandler quiet(context(), [&](Diagnostic &diagnostic) {
      if (llvm::get_threadid() != thread)
        return failure();
      got = StringRef(diagnostic.str())
                .split(" vs ")
                .second.str(); // Of another type than prior uses.
      return success();
    });
    for (Type type : candidates)
      if (succeeded(parser_.resolveOperand(operand, type, resolved)))
        return success();
    return failure();
  }
};

Expressions expressionsOf(MapOp op) {
  return {op.getCode(), op.getConstants(), static_cast<int64_t>(op.getValues().size()),
          static_cast<int64_t>(op.getScalars().size())};
}

} // namespace

ParseResult MapOp::parse(OpAsmParser &parser, OperationState &result) {
  return MapParser(parser, result).parse();
}

void MapOp::print(OpAsmPrinter &printer) {
  printer << ' ';
  Expressions expressions = expressionsOf(*this);
  printExpression(printer, expressions, expressions.size() - 1, [&](MapCode code, int64_t index) {
    printer << (code == MapCode::Scalar ? getScalars() : getValues())[static_cast<size_t>(index)];
  });
  if (getResult().getType() != bucketType(getContext()))
    printer << " : " << getResult().getType();
  printer.printOptionalAttrDict((*this)->getAttrs(), {"code", "constants", "operandSegmentSizes"});
}

// ---- Verification -------------------------------------------------------------------------------

/// map_C2: the domain that the value's elements are of; scalars are of every domain.
static LogicalResult verifyDomains(MapOp op) {
  Type result = op.getResult().getType();
  auto per = dyn_cast<PerType>(result);
  bool isPlainPer = per && isa<TopologyAttrInterface>(per.getOver()) && isBucket(per.getElement());
  if (!isPlain(result) && !isPlainPer)
    return op.emitOpError() << "expects a result over the bucket, a shard, a scalar, or buckets of "
                               "neighbours, got "
                            << result;
  bool hasResult = false;
  for (Value value : op.getValues()) {
    Type type = value.getType();
    hasResult |= type == result;
    if (type == result || isScalar(type) || (isPlainPer && isBucket(type)))
      continue;
    return op.emitOpError() << "expects values of one domain, that of the result, " << result
                            << ", got " << type;
  }
  if (!hasResult)
    return op.emitOpError() << "expects a value over the domain of the result, " << result
                            << ", got none: the result is over the bucket unless "
                            << "the map says `: T`, T being its type";
  return success();
}

LogicalResult MapOp::verify() {
  if (getValues().empty()) // map_C1
    return emitOpError("expects at least one value over a bucket, a shard or neighbours, or a "
                       "scalar of dot, norm or a state, got numbers only: use arith");
  if (failed(verifyDomains(*this))) // map_C2
    return failure();
  for (auto [what, count, most] :
       {std::tuple{"instructions", getCode().size() / kMapStride, kInstructionsMax},
        {"values", size_t{getValues().size()}, kInputsMax},
        {"scalars", size_t{getScalars().size()}, kScalarsMax},
        {"constants", getConstants().size(), kConstantsMax}})
    if (count > most) // map_C4
      return emitOpError() << "expects at most " << most << " " << what << ", got " << count
                           << ": use two maps";
  Expressions expressions = expressionsOf(*this);
  return verifyExpressions([&] { return emitOpError(); }, expressions, expressions.size() - 1,
                           ": use two maps"); // map_C3, map_C4, map_C5
}
