// Infix expressions: text to bytecode and back, and the rules of well-formed code.
#include "Expressions.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <charconv>
#include <cmath>

using namespace mlir;
using namespace bagua::ir;

namespace {

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

/// As it is written.
StringRef textOf(MapCode code) {
  if (code == MapCode::Neg)
    return "-";
  if (code == MapCode::Not)
    return "not";
  if (code == MapCode::Ne)
    return "not ==";
  if (Operator infix = operatorOf(code); !infix.text.empty())
    return infix.text;
  const Function *function =
      llvm::find_if(kFunctions, [&](const Function &f) { return f.code == code; });
  return function == std::end(kFunctions) ? "" : function->name;
}

bool yieldsCondition(MapCode code) { return code >= MapCode::Lt && code <= MapCode::Not; }

constexpr StringRef kThereIs =
    "there are + - * /, < <= > >= ==, and or not, and the functions sqrt, abs, sign, min, max, "
    "fma, rint, floor and select";

constexpr StringRef kLeaves = "expects a value, a number or one of the functions sqrt, abs, sign, "
                              "min, max, fma, rint, floor and select";

// ---- What is written as in other languages ------------------------------------------------------

bool isNameCharacter(char c) { return llvm::isAlnum(c) || StringRef("$._-").contains(c); }

struct Foreign {
  StringRef text, way;
};
constexpr Foreign kForeign[] = {
    {"^", "multiply, a * a"},
    {"**", "multiply, a * a"},
    {"?", "write select(condition, a, b)"},
    {"&", "write `and`"},
    {"|", "write `or`"},
    {"!=", "write not a == b, or select(a == b, y, x) with the arms swapped"},
    {"!", "write `not`"},
    {";", "an op ends where its line does"},
};

/// Looks through an expression's text for what MLIR's lexer would refuse in words of its own,
/// before it gets there.
class SlipFinder {
public:
  explicit SlipFinder(OpAsmParser &parser)
      : parser_(parser), rest_(textAt(parser.getCurrentLocation())) {}

  ParseResult find() {
    while (!rest_.empty()) {
      char c = rest_.front();
      if (rest_.starts_with("//")) {
        rest_ = rest_.drop_until([](char other) { return other == '\n'; });
      } else if (llvm::isSpace(c)) {
        if (c == '\n' && depth_ == 0)
          return success(); // The expression may go on; what follows may be no part of it.
        rest_ = rest_.drop_front();
      } else if (llvm::isAlpha(c)) {
        StringRef word = take();
        if (word == "loc" || word.contains('.'))
          return success(); // Another op.
      } else if (ends()) {
        return success();
      } else if (failed(check())) {
        return failure();
      }
    }
    return success();
  }

private:
  OpAsmParser &parser_;
  StringRef rest_;
  int64_t depth_ = 0;

  InFlightDiagnostic error() { return parser_.emitError(SMLoc::getFromPointer(rest_.data())); }

  StringRef take() {
    StringRef word = rest_.take_while(isNameCharacter);
    rest_ = rest_.drop_front(word.size());
    return word;
  }

  /// At what stands in no expression, or after one.
  bool ends() {
    char c = rest_.front();
    depth_ += c == '(' ? 1 : c == ')' ? -1 : 0;
    bool isAssignment = c == '=' && !rest_.starts_with("==");
    return depth_ < 0 || isAssignment || StringRef("{}:\"#").contains(c) ||
           (c == ',' && depth_ == 0);
  }

  ParseResult check() {
    for (const Foreign &foreign : kForeign)
      if (rest_.starts_with(foreign.text))
        return error() << "expressions have no `" << foreign.text << "`: " << foreign.way << "; "
                       << kThereIs;
    char c = rest_.front();
    if (llvm::isDigit(c) || c == '.')
      return checkNumber();
    rest_ = rest_.drop_front();
    if (c == '@') {
      StringRef name = take();
      rest_ = StringRef(name.data() - 1);
      return error() << "expects values: `bagua.read @" << name
                     << "` gives that of a state, and a parameter is %" << name;
    }
    if (c == '%' && take().empty()) {
      rest_ = StringRef(rest_.data() - 1);
      return error() << "expressions have no operator `%`: write a - b * floor(a / b); "
                     << kThereIs;
    }
    if ((c == '<' || c == '>' || c == '=') && rest_.starts_with("="))
      rest_ = rest_.drop_front();
    return success();
  }

  /// MLIR wants digits before the point, and a point before an exponent.
  ParseResult checkNumber() {
    StringRef all = rest_, whole = all.take_while(llvm::isDigit);
    StringRef rest = all.drop_front(whole.size());
    StringRef fraction;
    if (rest.consume_front("."))
      fraction = rest.take_while(llvm::isDigit);
    bool hasPoint = rest.data() != all.data() + whole.size();
    rest = rest.drop_front(fraction.size());
    StringRef exponent;
    if (StringRef digits = rest.drop_front(rest.empty() ? 0 : 1);
        rest.starts_with_insensitive("e")) {
      size_t sign = digits.starts_with("-") || digits.starts_with("+") ? 1 : 0;
      if (size_t count = digits.drop_front(sign).take_while(llvm::isDigit).size())
        exponent = rest.take_front(1 + sign + count);
    }
    if (whole.empty() ? !fraction.empty() : !hasPoint && !exponent.empty())
      return error() << "expects a number with a digit before its point: write "
                     << (whole.empty() ? "0" : whole) << '.' << (fraction.empty() ? "0" : fraction)
                     << exponent;
    size_t size = rest.data() + exponent.size() - all.data();
    rest_ = all.drop_front(std::max<size_t>(size, 1));
    return success();
  }
};

} // namespace

// ---- Parsing ------------------------------------------------------------------------------------

ParseResult ExpressionParser::parse(int64_t &value) {
  if (failed(SlipFinder(parser_).find()) || failed(parseBinary(kOr, value)))
    return failure();
  StringRef rest = textAt(parser_.getCurrentLocation());
  if (rest.starts_with("<") || rest.starts_with(">") || rest.starts_with("=="))
    return parser_.emitError(parser_.getCurrentLocation())
           << "expects one comparison, they do not chain: write a < b and b < c";
  return success();
}

ParseResult ExpressionParser::unexpected(StringRef wanted) {
  if (!operands_.empty() &&
      (operands_.back().name.ends_with("-") || operands_.back().name.ends_with(".")))
    return emitOneName(parser_, operands_.back());
  return parser_.emitError(parser_.getCurrentLocation())
         << "expects " << wanted << " or an operator; " << kThereIs;
}

bool bagua::ir::isOneName(const OpAsmParser::UnresolvedOperand &operand) {
  return operand.name.contains('-') || operand.name.contains('.');
}

ParseResult bagua::ir::emitOneName(OpAsmParser &parser,
                                   const OpAsmParser::UnresolvedOperand &operand) {
  return parser.emitError(operand.location)
         << '`' << operand.name << "` is read as one name: write spaces around `"
         << (operand.name.contains('-') ? '-' : '.') << '`';
}

SmallVector<int64_t> ExpressionParser::flatCode() const {
  SmallVector<int64_t> flat;
  for (const std::array<int64_t, kMapStride> &instruction : code_)
    llvm::append_range(flat, instruction);
  return flat;
}

/// Equal instructions are one.
int64_t ExpressionParser::add(MapCode what, int64_t a, int64_t b, int64_t c) {
  std::array<int64_t, kMapStride> instruction{static_cast<int64_t>(what), a, b, c};
  auto *found = llvm::find(code_, instruction);
  if (found == code_.end()) {
    code_.push_back(instruction);
    return static_cast<int64_t>(code_.size()) - 1;
  }
  return found - code_.begin();
}

int64_t ExpressionParser::constant(double value) {
  for (auto [i, known] : llvm::enumerate(constants_)) // Signs of zero differ.
    if (known == value && std::signbit(known) == std::signbit(value))
      return add(MapCode::Constant, static_cast<int64_t>(i));
  constants_.push_back(value);
  return add(MapCode::Constant, static_cast<int64_t>(constants_.size()) - 1);
}

ParseResult ExpressionParser::parseBinary(unsigned precedence, int64_t &value) {
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
ParseResult ExpressionParser::parseOperator(unsigned precedence, std::optional<MapCode> &code,
                                            bool &swapped) {
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

ParseResult ExpressionParser::enter() {
  if (++depth_ > kDepthMax)
    return parser_.emitError(parser_.getCurrentLocation())
           << "expects an expression that nests at most " << kDepthMax << " deep";
  return success();
}

ParseResult ExpressionParser::parseUnary(int64_t &value) {
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

ParseResult ExpressionParser::parsePrimary(int64_t &value) {
  if (succeeded(parser_.parseOptionalLParen())) {
    if (failed(parseBinary(kOr, value)))
      return failure();
    return succeeded(parser_.parseOptionalRParen()) ? success() : unexpected("`)`");
  }
  OpAsmParser::UnresolvedOperand operand;
  OptionalParseResult isOperand = parser_.parseOptionalOperand(operand);
  if (isOperand.has_value()) {
    if (failed(*isOperand))
      return failure();
    StringRef after = textAt(SMLoc::getFromPointer(operand.name.end()));
    if (operand.name.ends_with("-") && (after.starts_with("%") || after.starts_with("(")))
      return emitOneName(parser_, operand);
    auto *known = llvm::find_if(operands_, [&](const auto &other) {
      return other.name == operand.name && other.number == operand.number;
    });
    int64_t index = known - operands_.begin();
    if (known == operands_.end())
      operands_.push_back(operand);
    value = add(MapCode::Input, index); // MapOp finds out which are scalars.
    return success();
  }
  SMLoc loc = parser_.getCurrentLocation();
  StringRef name;
  if (succeeded(parser_.parseOptionalKeyword(&name))) {
    const Function *function =
        llvm::find_if(kFunctions, [&](const Function &f) { return f.name == name; });
    if (function == std::end(kFunctions))
      return parser_.emitError(loc) << kLeaves << ", got '" << name << "'";
    return parseCall(function->name, function->code, value);
  }
  double number = 0;
  if (!llvm::isDigit(*loc.getPointer()))
    return parser_.emitError(loc) << kLeaves;
  if (failed(parseMapNumber(parser_, number)))
    return failure();
  value = constant(number);
  return success();
}

ParseResult ExpressionParser::parseCall(StringRef name, MapCode code, int64_t &value) {
  SMLoc loc = parser_.getCurrentLocation();
  SmallVector<int64_t> arguments;
  if (failed(parser_.parseLParen()))
    return failure();
  do {
    if (failed(parseBinary(kOr, arguments.emplace_back())))
      return failure();
  } while (succeeded(parser_.parseOptionalComma()));
  if (failed(parser_.parseOptionalRParen()))
    return unexpected("`,`, `)`");
  unsigned arity = mapArity(code);
  if (arguments.size() != arity)
    return parser_.emitError(loc) << "expects " << arity << " operands of " << name << ", got "
                                  << arguments.size();
  arguments.resize(3);
  value = add(code, arguments[0], arguments[1], arguments[2]);
  return success();
}

// ---- Printing -----------------------------------------------------------------------------------

namespace {

class ExpressionPrinter {
public:
  ExpressionPrinter(OpAsmPrinter &printer, const Expressions &expressions,
                    function_ref<void(MapCode, int64_t)> load)
      : printer_(printer), expressions_(expressions), load_(load) {}

  void print(int64_t index, unsigned outer) {
    ArrayRef<int64_t> at = expressions_.at(index);
    auto code = static_cast<MapCode>(at[0]);
    switch (code) {
    case MapCode::Input:
    case MapCode::Scalar:
      load_(code, at[1]);
      return;
    case MapCode::Constant:
      printer_ << mapNumberText(expressions_.constants[static_cast<size_t>(at[1])]);
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

private:
  OpAsmPrinter &printer_;
  const Expressions &expressions_;
  function_ref<void(MapCode, int64_t)> load_;

  template <typename Body> void parenthesized(bool isNeeded, Body body) {
    printer_ << (isNeeded ? "(" : "");
    body();
    printer_ << (isNeeded ? ")" : "");
  }
};

} // namespace

void bagua::ir::printExpression(OpAsmPrinter &printer, const Expressions &expressions,
                                int64_t index, function_ref<void(MapCode, int64_t)> load) {
  ExpressionPrinter(printer, expressions, load).print(index, 0);
}

// ---- Numbers and codes --------------------------------------------------------------------------

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
  SMLoc loc = parser.getCurrentLocation();
  // MLIR would read it as the bits of a float, or as an integer, depending on who asks.
  if (textAt(loc).starts_with("0x"))
    return parser.emitError(loc) << "expects a decimal number";
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

// ---- Verification -------------------------------------------------------------------------------

LogicalResult bagua::ir::verifyExpressions(function_ref<InFlightDiagnostic()> emitError,
                                           const Expressions &expressions,
                                           ArrayRef<int64_t> outputs, StringRef fix) {
  ArrayRef<int64_t> code = expressions.code;
  if (!llvm::all_of(expressions.constants, [](double value) { return std::isfinite(value); }))
    return emitError() << "expects finite constants";
  if (code.empty() || code.size() % kMapStride != 0)
    return emitError() << "expects code of " << kMapStride
                       << " numbers for each instruction, at least one, got " << code.size();
  SmallVector<bool> isCondition;
  SmallVector<int64_t> terms;
  for (int64_t i = 0; i < expressions.size(); ++i) {
    ArrayRef<int64_t> at = expressions.at(i);
    auto bad = [&] { return emitError() << "instruction " << i << " "; };
    if (at[0] < 0 || at[0] >= kMapCodeCount)
      return bad() << "expects a code in 0.." << kMapCodeCount - 1 << ", got " << at[0];
    auto what = static_cast<MapCode>(at[0]);
    unsigned arity = mapArity(what);
    int64_t limit = what == MapCode::Input      ? expressions.inputs
                    : what == MapCode::Scalar   ? expressions.scalars
                    : what == MapCode::Constant ? static_cast<int64_t>(expressions.constants.size())
                                                : i;
    for (unsigned operand = 1; operand < kMapStride; ++operand) {
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
      if (!free && condition != (wanted || what == MapCode::Select))
        return emitError() << "expects " << (condition ? "a number" : "a condition")
                           << " as operand " << operand << " of `" << textOf(what) << "`, got "
                           << (condition ? "a condition: select(condition, 1.0, 0.0) is a number"
                                         : "a number: compare it, as with `> 0.0`");
      size = std::min(size + terms[at[operand]], kTermsMax + 1);
    }
    if (what == MapCode::Select && isCondition[at[2]] != isCondition[at[3]])
      return emitError() << "expects two numbers or two conditions to select from";
    isCondition.push_back(what == MapCode::Select ? isCondition[at[2]] : yieldsCondition(what));
    terms.push_back(size);
  }
  for (int64_t output : outputs) {
    if (output < 0 || output >= expressions.size())
      return emitError() << "expects the number of an instruction, below " << expressions.size()
                         << ", as its value, got " << output;
    if (isCondition[output])
      return emitError() << "expects an expression that is a number, got a condition: use select";
    if (terms[output] > kTermsMax)
      return emitError() << "expects an expression of at most " << kTermsMax << " terms" << fix;
  }
  return success();
}
