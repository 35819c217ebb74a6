// bagua.map: infix text to bytecode and back, and its constraints.
#include "bagua/dialect/Bagua/BaguaMap.h"
#include "bagua/dialect/Bagua/BaguaOps.h"

#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/Threading.h"

#include <charconv>
#include <cmath>

using namespace mlir;
using namespace bagua::ir;

namespace {

constexpr size_t kInstructionsMax = 256, kInputsMax = 32, kScalarsMax = 64, kConstantsMax = 256;
constexpr int64_t kTermsMax = 4096; // Of the text: shared values are written out.
constexpr unsigned kDepthMax = 600; // Of the text, whose parser recurses; what is printed parses.

struct Operator {
  StringRef text;
  unsigned precedence; ///< Binds tighter the greater it is.
};
constexpr unsigned kOr = 1, kAnd = 2, kNot = 3, kCompare = 4, kSum = 5, kProduct = 6, kUnary = 7;

/// Null text: no infix operator.
Operator operatorOf(MapCode code) {
  switch (code) {
  case MapCode::Or:
    return {"or", kOr};
  case MapCode::And:
    return {"and", kAnd};
  case MapCode::Lt:
    return {"<", kCompare};
  case MapCode::Le:
    return {"<=", kCompare};
  case MapCode::Eq:
    return {"==", kCompare};
  case MapCode::Add:
    return {"+", kSum};
  case MapCode::Sub:
    return {"-", kSum};
  case MapCode::Mul:
    return {"*", kProduct};
  case MapCode::Div:
    return {"/", kProduct};
  default:
    return {};
  }
}

struct Function {
  StringRef name;
  MapCode code;
};
constexpr Function kFunctions[] = {
    {"sqrt", MapCode::Sqrt}, {"abs", MapCode::Abs},     {"sign", MapCode::Sign},
    {"min", MapCode::Min},   {"max", MapCode::Max},     {"fma", MapCode::Fma},
    {"rint", MapCode::Rint}, {"floor", MapCode::Floor}, {"select", MapCode::Select},
};

bool yieldsCondition(MapCode code) { return code >= MapCode::Lt && code <= MapCode::Not; }

// ---- Parsing ------------------------------------------------------------------------------------

class MapParser {
public:
  MapParser(OpAsmParser &parser, OperationState &state) : parser_(parser), state_(state) {}

  ParseResult parse() {
    int64_t value = 0;
    if (failed(parseBinary(kOr, value)))
      return failure();
    Type type = bucketType(context());
    if (succeeded(parser_.parseOptionalColon()) && failed(parser_.parseType(type)))
      return failure();
    if (failed(resolve(type)) || parser_.parseOptionalAttrDict(state_.attributes))
      return failure();
    for (Value scalar : scalars_)
      values_.push_back(scalar);
    state_.addOperands(values_);
    state_.addTypes(type);
    auto &properties = state_.getOrAddProperties<MapOp::Properties>();
    properties.operandSegmentSizes = {static_cast<int32_t>(values_.size() - scalars_.size()),
                                      static_cast<int32_t>(scalars_.size())};
    SmallVector<int64_t> flat;
    for (const std::array<int64_t, kMapStride> &instruction : code_)
      llvm::append_range(flat, instruction);
    Builder &builder = parser_.getBuilder();
    properties.code = builder.getDenseI64ArrayAttr(flat);
    properties.constants = builder.getDenseF64ArrayAttr(constants_);
    return success();
  }

private:
  OpAsmParser &parser_;
  OperationState &state_;
  SmallVector<std::array<int64_t, kMapStride>> code_;
  SmallVector<double> constants_;
  SmallVector<OpAsmParser::UnresolvedOperand> operands_; ///< In order of appearance.
  SmallVector<Value> values_, scalars_;
  unsigned depth_ = 0;

  MLIRContext *context() { return parser_.getContext(); }

  /// Equal instructions are one.
  int64_t add(MapCode what, int64_t a, int64_t b = 0, int64_t c = 0) {
    std::array<int64_t, kMapStride> instruction{static_cast<int64_t>(what), a, b, c};
    auto *found = llvm::find(code_, instruction);
    if (found == code_.end()) {
      code_.push_back(instruction);
      return static_cast<int64_t>(code_.size()) - 1;
    }
    return found - code_.begin();
  }

  int64_t constant(double value) {
    for (auto [i, known] : llvm::enumerate(constants_)) // Signs of zero differ.
      if (known == value && std::signbit(known) == std::signbit(value))
        return add(MapCode::Constant, static_cast<int64_t>(i));
    constants_.push_back(value);
    return add(MapCode::Constant, static_cast<int64_t>(constants_.size()) - 1);
  }

  ParseResult parseBinary(unsigned precedence, int64_t &value) {
    if (precedence == kNot) {
      if (failed(parser_.parseOptionalKeyword("not")))
        return parseBinary(kCompare, value);
      if (failed(enter()) || failed(parseBinary(kNot, value)))
        return failure();
      value = add(MapCode::Not, value);
      --depth_;
      return success();
    }
    if (precedence == kUnary)
      return parseUnary(value);
    if (failed(parseBinary(precedence + 1, value)))
      return failure();
    while (true) {
      bool swapped = false;
      std::optional<MapCode> code;
      if (failed(parseOperator(precedence, code, swapped)))
        return failure();
      if (!code)
        return success();
      int64_t right = 0;
      if (failed(parseBinary(precedence + 1, right)))
        return failure();
      value = swapped ? add(*code, right, value) : add(*code, value, right);
      if (precedence == kCompare)
        return success(); // Does not chain.
    }
  }

  /// `swapped`: a > b is b < a.
  ParseResult parseOperator(unsigned precedence, std::optional<MapCode> &code, bool &swapped) {
    switch (precedence) {
    case kOr:
      if (succeeded(parser_.parseOptionalKeyword("or")))
        code = MapCode::Or;
      break;
    case kAnd:
      if (succeeded(parser_.parseOptionalKeyword("and")))
        code = MapCode::And;
      break;
    case kCompare:
      if (succeeded(parser_.parseOptionalLess())) {
        code = succeeded(parser_.parseOptionalEqual()) ? MapCode::Le : MapCode::Lt;
      } else if (succeeded(parser_.parseOptionalGreater())) {
        code = succeeded(parser_.parseOptionalEqual()) ? MapCode::Le : MapCode::Lt;
        swapped = true;
      } else if (succeeded(parser_.parseOptionalEqual())) {
        code = MapCode::Eq;
        return parser_.parseEqual();
      }
      break;
    case kSum:
      if (succeeded(parser_.parseOptionalPlus()))
        code = MapCode::Add;
      else if (succeeded(parser_.parseOptionalMinus()))
        code = MapCode::Sub;
      break;
    default:
      if (succeeded(parser_.parseOptionalStar()))
        code = MapCode::Mul;
      else if (succeeded(parser_.parseOptionalSlash()))
        code = MapCode::Div;
      break;
    }
    return success();
  }

  ParseResult enter() {
    if (++depth_ > kDepthMax)
      return parser_.emitError(parser_.getCurrentLocation())
             << "expects an expression that nests at most " << kDepthMax << " deep";
    return success();
  }

  ParseResult parseUnary(int64_t &value) {
    if (failed(enter()))
      return failure();
    if (succeeded(parser_.parseOptionalMinus())) {
      size_t before = code_.size(), constantsBefore = constants_.size();
      if (failed(parseUnary(value)))
        return failure();
      bool isLiteral = code_[value][0] == static_cast<int64_t>(MapCode::Constant);
      double literal = isLiteral ? constants_[code_[value][1]] : 0.0;
      if (isLiteral && before + 1 == code_.size() && constantsBefore + 1 == constants_.size()) {
        code_.pop_back();
        constants_.pop_back();
      }
      value = isLiteral ? constant(-literal) : add(MapCode::Neg, value);
    } else if (failed(parsePrimary(value))) {
      return failure();
    }
    --depth_;
    return success();
  }

  ParseResult parsePrimary(int64_t &value) {
    if (succeeded(parser_.parseOptionalLParen()))
      return failure(parseBinary(kOr, value) || parser_.parseRParen());
    OpAsmParser::UnresolvedOperand operand;
    OptionalParseResult isOperand = parser_.parseOptionalOperand(operand);
    if (isOperand.has_value()) {
      if (failed(*isOperand))
        return failure();
      auto *known = llvm::find_if(operands_, [&](const auto &other) {
        return other.name == operand.name && other.number == operand.number;
      });
      int64_t index = known - operands_.begin();
      if (known == operands_.end())
        operands_.push_back(operand);
      value = add(MapCode::Input, index); // resolve() finds out which are scalars.
      return success();
    }
    SMLoc loc = parser_.getCurrentLocation();
    StringRef name;
    if (succeeded(parser_.parseOptionalKeyword(&name))) {
      const Function *function =
          llvm::find_if(kFunctions, [&](const Function &f) { return f.name == name; });
      if (function == std::end(kFunctions))
        return parser_.emitError(loc) << "expects a value, a number or one of the functions sqrt, "
                                         "abs, sign, min, max, fma, rint, floor and select, got '"
                                      << name << "'";
      return parseCall(*function, value);
    }
    double number = 0;
    if (failed(parseMapNumber(parser_, number)))
      return failure();
    value = constant(number);
    return success();
  }

  ParseResult parseCall(const Function &function, int64_t &value) {
    SMLoc loc = parser_.getCurrentLocation();
    SmallVector<int64_t> arguments;
    auto argument = [&] { return parseBinary(kOr, arguments.emplace_back()); };
    if (parser_.parseCommaSeparatedList(AsmParser::Delimiter::Paren, argument))
      return failure();
    unsigned arity = mapArity(function.code);
    if (arguments.size() != arity)
      return parser_.emitError(loc) << "expects " << arity << " operands of " << function.name
                                    << ", got " << arguments.size();
    arguments.resize(3);
    value = add(function.code, arguments[0], arguments[1], arguments[2]);
    return success();
  }

  /// The parser wants the type of each operand, and knows it: tries those that a map may have.
  ParseResult resolve(Type result) {
    SmallVector<Type> candidates{result};
    auto per = dyn_cast<PerType>(result);
    for (Type type : {Type(bucketType(context())), Type(scalarType(context())),
                      Type(Float64Type::get(context())), Type(IndexType::get(context())),
                      per ? per.getElement() : Type(),
                      Type(shardType(FlatSymbolRefAttr::get(context(), kWorldGroup)))})
      if (type && !llvm::is_contained(candidates, type))
        candidates.push_back(type);
    SmallVector<std::pair<MapCode, int64_t>> places;
    for (const OpAsmParser::UnresolvedOperand &operand : operands_) {
      SmallVector<Value> resolved;
      if (failed(resolve(operand, candidates, resolved)))
        return parser_.emitError(operand.location)
               << "expects a value over the domain of the result, " << result
               << ", a scalar, an f64 or an index; write the type of the result, `: T`, where it "
                  "is not over the bucket";
      bool isScalarOperand = isa<FloatType, IndexType>(resolved.front().getType());
      SmallVector<Value> &list = isScalarOperand ? scalars_ : values_;
      places.push_back(
          {isScalarOperand ? MapCode::Scalar : MapCode::Input, static_cast<int64_t>(list.size())});
      list.push_back(resolved.front());
    }
    for (std::array<int64_t, kMapStride> &instruction : code_)
      if (instruction[0] == static_cast<int64_t>(MapCode::Input)) {
        auto [code, index] = places[instruction[1]];
        instruction[0] = static_cast<int64_t>(code);
        instruction[1] = index;
      }
    return success();
  }

  ParseResult resolve(const OpAsmParser::UnresolvedOperand &operand, ArrayRef<Type> candidates,
                      SmallVectorImpl<Value> &resolved) {
    uint64_t thread = llvm::get_threadid();
    ScopedDiagnosticHandler quiet(
        context(), [thread](Diagnostic &) { return success(llvm::get_threadid() == thread); });
    for (Type type : candidates)
      if (succeeded(parser_.resolveOperand(operand, type, resolved)))
        return success();
    return failure();
  }
};

// ---- Printing -----------------------------------------------------------------------------------

class MapPrinter {
public:
  MapPrinter(OpAsmPrinter &printer, MapOp op) : printer_(printer), op_(op) {}

  void print() {
    ArrayRef<int64_t> code = op_.getCode();
    print(static_cast<int64_t>(code.size() / kMapStride) - 1, 0);
  }

private:
  OpAsmPrinter &printer_;
  MapOp op_;

  void print(int64_t index, unsigned outer) {
    ArrayRef<int64_t> at = op_.getCode().slice(static_cast<size_t>(index) * kMapStride, kMapStride);
    auto code = static_cast<MapCode>(at[0]);
    switch (code) {
    case MapCode::Input:
      printer_ << op_.getValues()[at[1]];
      return;
    case MapCode::Scalar:
      printer_ << op_.getScalars()[at[1]];
      return;
    case MapCode::Constant:
      printer_ << mapNumberText(op_.getConstants()[at[1]]);
      return;
    case MapCode::Neg:
      return parenthesized(outer > kUnary, [&] {
        printer_ << "-";
        print(at[1], kUnary);
      });
    case MapCode::Not:
      return parenthesized(outer > kNot, [&] {
        printer_ << "not ";
        print(at[1], kNot);
      });
    case MapCode::Ne: // The text has no such operator: `!` begins a type.
      return parenthesized(outer > kNot, [&] {
        printer_ << "not ";
        print(at[1], kCompare + 1);
        printer_ << " == ";
        print(at[2], kCompare + 1);
      });
    default:
      break;
    }
    if (Operator infix = operatorOf(code); !infix.text.empty())
      return parenthesized(outer > infix.precedence, [&] {
        print(at[1], infix.precedence == kCompare ? kCompare + 1 : infix.precedence);
        printer_ << ' ' << infix.text << ' ';
        print(at[2], infix.precedence + 1);
      });
    printer_ << llvm::find_if(kFunctions, [&](const Function &f) { return f.code == code; })->name
             << '(';
    llvm::interleaveComma(at.slice(1, mapArity(code)), printer_,
                          [&](int64_t operand) { print(operand, 0); });
    printer_ << ')';
  }

  template <typename Body> void parenthesized(bool isNeeded, Body body) {
    printer_ << (isNeeded ? "(" : "");
    body();
    printer_ << (isNeeded ? ")" : "");
  }
};

} // namespace

unsigned bagua::ir::mapArity(MapCode code) {
  switch (code) {
  case MapCode::Input:
  case MapCode::Scalar:
  case MapCode::Constant:
    return 0;
  case MapCode::Sqrt:
  case MapCode::Neg:
  case MapCode::Abs:
  case MapCode::Sign:
  case MapCode::Rint:
  case MapCode::Floor:
  case MapCode::Not:
    return 1;
  case MapCode::Fma:
  case MapCode::Select:
    return 3;
  default:
    return 2;
  }
}

std::string bagua::ir::mapNumberText(double value) {
  char buffer[32];
  auto [end, error] = std::to_chars(buffer, buffer + sizeof(buffer), value);
  std::string text(buffer, end);
  size_t exponent = text.find('e');
  if (text.find('.') == std::string::npos) // MLIR takes a number without a point for an integer.
    text.insert(exponent == std::string::npos ? text.size() : exponent, ".0");
  return text;
}

ParseResult bagua::ir::parseMapNumber(OpAsmParser &parser, double &value) {
  bool negative = succeeded(parser.parseOptionalMinus());
  int64_t integer = 0;
  OptionalParseResult isInteger = parser.parseOptionalInteger(integer);
  if (isInteger.has_value()) {
    if (failed(*isInteger))
      return failure();
    value = static_cast<double>(integer);
  } else if (failed(parser.parseFloat(value))) {
    return failure();
  }
  if (negative)
    value = -value;
  return success();
}

ParseResult MapOp::parse(OpAsmParser &parser, OperationState &result) {
  return MapParser(parser, result).parse();
}

void MapOp::print(OpAsmPrinter &printer) {
  printer << ' ';
  MapPrinter(printer, *this).print();
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
                            << ", got none";
  return success();
}

LogicalResult MapOp::verify() {
  if (getValues().empty()) // map_C1
    return emitOpError("expects at least one value over a bucket, a shard or neighbours, or a "
                       "scalar of dot, norm or a state, got numbers only: use arith");
  if (failed(verifyDomains(*this))) // map_C2
    return failure();
  ArrayRef<int64_t> code = getCode();
  for (auto [what, count, most] :
       {std::tuple{"instructions", code.size() / kMapStride, kInstructionsMax},
        {"values", size_t{getValues().size()}, kInputsMax},
        {"scalars", size_t{getScalars().size()}, kScalarsMax},
        {"constants", getConstants().size(), kConstantsMax}})
    if (count > most) // map_C4
      return emitOpError() << "expects at most " << most << " " << what << ", got " << count
                           << ": use two maps";
  if (!llvm::all_of(getConstants(), [](double value) { return std::isfinite(value); })) // map_C4
    return emitOpError("expects finite constants");
  if (code.empty() || code.size() % kMapStride != 0) // map_C5
    return emitOpError() << "expects code of " << kMapStride
                         << " numbers for each instruction, at least one, got " << code.size();
  SmallVector<bool> isCondition;
  SmallVector<int64_t> terms;
  for (size_t i = 0; i < code.size() / kMapStride; ++i) {
    ArrayRef<int64_t> at = code.slice(i * kMapStride, kMapStride);
    auto bad = [&] { return emitOpError() << "instruction " << i << " "; };
    if (at[0] < 0 || at[0] >= kMapCodeCount) // map_C5
      return bad() << "expects a code in 0.." << kMapCodeCount - 1 << ", got " << at[0];
    auto what = static_cast<MapCode>(at[0]);
    unsigned arity = mapArity(what);
    int64_t limit = what == MapCode::Input      ? static_cast<int64_t>(getValues().size())
                    : what == MapCode::Scalar   ? static_cast<int64_t>(getScalars().size())
                    : what == MapCode::Constant ? static_cast<int64_t>(getConstants().size())
                                                : static_cast<int64_t>(i);
    for (unsigned operand = 1; operand < kMapStride; ++operand) { // map_C5
      bool used = operand <= std::max(arity, 1u);
      if (at[operand] < 0 || at[operand] >= (used ? limit : 1))
        return bad() << "expects operand " << operand << " in 0.." << (used ? limit : 1) - 1
                     << ", got " << at[operand];
    }
    bool wanted = what == MapCode::And || what == MapCode::Or || what == MapCode::Not;
    int64_t size = 1;
    for (unsigned operand = 1; operand <= arity; ++operand) {
      bool condition = isCondition[at[operand]];
      bool free = what == MapCode::Select && operand > 1;
      if (!free && condition != (wanted || what == MapCode::Select)) // map_C3
        return emitOpError() << "expects " << (condition ? "a number" : "a condition")
                             << " as operand " << operand << " of instruction " << i << ", got "
                             << (condition ? "a condition" : "a number");
      size = std::min(size + terms[at[operand]], kTermsMax + 1);
    }
    if (what == MapCode::Select && isCondition[at[2]] != isCondition[at[3]]) // map_C3
      return emitOpError("expects two numbers or two conditions to select from");
    isCondition.push_back(what == MapCode::Select ? isCondition[at[2]] : yieldsCondition(what));
    terms.push_back(size);
  }
  if (isCondition.back()) // map_C3
    return emitOpError("expects an expression that is a number, got a condition: use select");
  if (terms.back() > kTermsMax) // map_C4
    return emitOpError() << "expects an expression of at most " << kTermsMax
                         << " terms: use two maps";
  return success();
}
