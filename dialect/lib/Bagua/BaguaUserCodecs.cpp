// bagua.codec: codecs that a file defines, their syntax and constraints, and the attribute that
// names them.
#include "Expressions.h"

#include "bagua/dialect/Bagua/BaguaOps.h"

#include "mlir/IR/AttrTypeSubElements.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/ErrorHandling.h"

#include <array>

using namespace mlir;
using namespace bagua::ir;

using EmitError = function_ref<InFlightDiagnostic()>;

namespace {

constexpr int64_t kBlockMin = 8, kBlockMax = 65536, kHeadersMax = 4, kCodeBitsMax = 16;
constexpr size_t kStatsMax = 16, kCodecInstructionsMax = 240;

/// By the numbers of kernels::BlockReduction.
constexpr StringRef kReductions[] = {"max", "min", "sum"};

// ---- The program as a dictionary
// ------------------------------------------------------------------ What a launch of the codec's
// kernels carries: SPEC.md, I4.

std::optional<int64_t> numberOf(DictionaryAttr dictionary, StringRef name) {
  auto number = dyn_cast_or_null<IntegerAttr>(dictionary.get(name));
  if (!number || !number.getType().isSignlessInteger(64))
    return std::nullopt;
  return number.getInt();
}

int64_t mustNumber(DictionaryAttr dictionary, StringRef name) {
  return *numberOf(dictionary, name);
}

/// One of stats, headers, encode, decode.
struct Part {
  Expressions expressions;
  ArrayRef<int64_t> outputs;
};

/// Nothing if the entry is none.
std::optional<Part> partOf(DictionaryAttr program, StringRef name) {
  auto entry = dyn_cast_or_null<DictionaryAttr>(program.get(name));
  if (!entry)
    return std::nullopt;
  auto code = dyn_cast_or_null<DenseI64ArrayAttr>(entry.get("code"));
  auto constants = dyn_cast_or_null<DenseF64ArrayAttr>(entry.get("constants"));
  auto outputs = dyn_cast_or_null<DenseI64ArrayAttr>(entry.get("outputs"));
  auto broadcast = dyn_cast_or_null<DenseI64ArrayAttr>(entry.get("broadcast"));
  std::optional<int64_t> inputs = numberOf(entry, "inputs");
  if (!code || !constants || !outputs || !broadcast || !inputs || entry.size() != 5)
    return std::nullopt;
  bool perBlock = name == "encode" || name == "decode";
  if (broadcast.size() != *inputs)
    return std::nullopt;
  for (auto [i, flag] : llvm::enumerate(broadcast.asArrayRef()))
    if (flag != (perBlock && i > 0 ? 1 : 0)) // An element or a code, then the block's headers.
      return std::nullopt;
  return Part{{code, constants, *inputs, 0}, outputs};
}

/// What a part takes and gives.
struct Shape {
  StringRef name, arguments;
  int64_t inputs, outputs;
  size_t instructionsMax;
};

/// In the order of the text.
std::array<Shape, 4> shapesOf(int64_t stats, int64_t headers) {
  return {Shape{"stats", "the element", 1, stats, kInstructionsMax},
          {"headers", "the reduced values of stats", stats, headers, kInstructionsMax},
          {"encode", "the element and the headers", 1 + headers, 1, kCodecInstructionsMax},
          {"decode", "the code and the headers", 1 + headers, 1, kCodecInstructionsMax}};
}

DictionaryAttr partAttr(Builder &builder, StringRef name, ArrayRef<int64_t> code,
                        ArrayRef<double> constants, ArrayRef<int64_t> outputs, size_t inputs) {
  SmallVector<int64_t> broadcast(inputs, name == "encode" || name == "decode" ? 1 : 0);
  if (!broadcast.empty())
    broadcast.front() = 0;
  return builder.getDictionaryAttr(
      {builder.getNamedAttr("code", builder.getDenseI64ArrayAttr(code)),
       builder.getNamedAttr("constants", builder.getDenseF64ArrayAttr(constants)),
       builder.getNamedAttr("outputs", builder.getDenseI64ArrayAttr(outputs)),
       builder.getNamedAttr("inputs", builder.getI64IntegerAttr(static_cast<int64_t>(inputs))),
       builder.getNamedAttr("broadcast", builder.getDenseI64ArrayAttr(broadcast))});
}

/// Headers that are the reduced values.
DictionaryAttr identity(Builder &builder, int64_t count) {
  SmallVector<int64_t> code, outputs;
  for (int64_t i = 0; i < count; ++i) {
    llvm::append_values(code, static_cast<int64_t>(MapCode::Input), i, 0, 0);
    outputs.push_back(i);
  }
  return partAttr(builder, "headers", code, {}, outputs, static_cast<size_t>(count));
}

LogicalResult verifyPart(EmitError emitError, DictionaryAttr program, const Shape &shape) {
  auto emit = [&] { return emitError() << shape.name << " "; };
  std::optional<Part> part = partOf(program, shape.name);
  if (!part) // codec_C8
    return emit()
           << "expects a dictionary of code, constants, outputs, inputs and broadcast, whose "
              "flags are 1 for headers and 0 else, got "
           << program.get(shape.name);
  const Expressions &expressions = part->expressions;
  if (expressions.inputs != shape.inputs) // codec_C5
    return emit() << "expects " << shape.inputs
                  << (shape.inputs == 1 ? " argument, " : " arguments, ") << shape.arguments
                  << ", got " << expressions.inputs;
  if (static_cast<int64_t>(part->outputs.size()) != shape.outputs) // codec_C5
    return emit() << "expects " << shape.outputs
                  << (shape.outputs == 1 ? " value, got " : " values, one for each header, got ")
                  << part->outputs.size();
  for (auto [what, count, most] :
       {std::tuple{"instructions", expressions.code.size() / kMapStride, shape.instructionsMax},
        {"constants", expressions.constants.size(), kConstantsMax}})
    if (count > most) // codec_C7
      return emit() << "expects at most " << most << " " << what << ", got " << count
                    << ": move what is the same for all elements to headers";
  return verifyExpressions(
      emit, expressions, part->outputs,
      ": move what is the same for all elements to headers"); // codec_C6, C7, C8
}

LogicalResult verifyProgram(EmitError emitError, DictionaryAttr program) {
  for (StringRef name : {"block", "header_count", "code_bits", "signed_codes"})
    if (!numberOf(program, name)) // codec_C8
      return emitError() << "expects an i64 as '" << name << "', got " << program.get(name);
  int64_t block = mustNumber(program, "block"), headers = mustNumber(program, "header_count");
  int64_t bits = mustNumber(program, "code_bits"), isSigned = mustNumber(program, "signed_codes");
  if (block < kBlockMin || block > kBlockMax || block % 8 != 0) // codec_C1
    return emitError() << "expects block to be a multiple of 8 in " << kBlockMin << ".."
                       << kBlockMax << ", got " << block;
  if (headers < 1 || headers > kHeadersMax) // codec_C2
    return emitError() << "expects 1.." << kHeadersMax << " headers, got " << headers;
  if (bits < 1 || bits > kCodeBitsMax || isSigned < 0 || isSigned > 1) // codec_C3
    return emitError() << "expects codes i1..i" << kCodeBitsMax << " or u1..u" << kCodeBitsMax
                       << ", got " << (isSigned ? "i" : "u") << bits;
  auto reductions = dyn_cast_or_null<DenseI64ArrayAttr>(program.get("reductions"));
  if (!reductions || program.size() != 9) // codec_C8
    return emitError() << "expects block, header_count, code_bits, signed_codes, stats, reductions "
                          "(array<i64>), headers, encode and decode, got "
                       << program;
  if (reductions.empty() || reductions.asArrayRef().size() > kStatsMax) // codec_C4
    return emitError() << "stats expects 1.." << kStatsMax << " values, got " << reductions.size();
  for (int64_t reduction : reductions.asArrayRef())
    if (reduction < 0 || reduction >= static_cast<int64_t>(std::size(kReductions))) // codec_C4
      return emitError() << "expects reductions 0 (max), 1 (min) or 2 (sum), got " << reduction;
  std::optional<Part> stats = partOf(program, "stats");
  if (stats && static_cast<int64_t>(stats->outputs.size()) != reductions.size()) // codec_C4
    return emitError() << "expects a reduction for each of " << stats->outputs.size()
                       << " values of stats, got " << reductions.size();
  for (const Shape &shape : shapesOf(reductions.size(), headers))
    if (failed(verifyPart(emitError, program, shape)))
      return failure();
  return success();
}

// ---- Syntax
// ---------------------------------------------------------------------------------------

/// Reads the body: `stats(%x) { max abs(%x) } …`.
class BodyParser {
public:
  explicit BodyParser(OpAsmParser &parser) : parser_(parser), builder_(parser.getBuilder()) {}

  ParseResult parse(int64_t headers, SmallVectorImpl<NamedAttribute> &program) {
    if (parser_.parseLBrace() || parser_.parseKeyword("stats") ||
        parsePart("stats", /*reduces=*/true, program))
      return failure();
    SMLoc loc = parser_.getCurrentLocation();
    auto stats = static_cast<int64_t>(reductions_.size());
    if (succeeded(parser_.parseOptionalKeyword("headers"))) {
      if (failed(parsePart("headers", /*reduces=*/false, program)))
        return failure();
    } else if (stats == headers) {
      program.push_back(builder_.getNamedAttr("headers", identity(builder_, headers)));
    } else { // codec_C5
      return parser_.emitError(loc)
             << "expects `headers(…) { … }` before encode: stats has " << stats << " value"
             << (stats == 1 ? "" : "s") << ", and a block " << headers << " header"
             << (headers == 1 ? "" : "s");
    }
    program.push_back(
        builder_.getNamedAttr("reductions", builder_.getDenseI64ArrayAttr(reductions_)));
    if (parser_.parseKeyword("encode") || parsePart("encode", false, program) ||
        parser_.parseKeyword("decode") || parsePart("decode", false, program) ||
        parser_.parseRBrace())
      return failure();
    if (reductions_.size() > kStatsMax)
      return success(); // The verifier says so.
    DictionaryAttr parts = builder_.getDictionaryAttr(program);
    for (const Shape &shape :
         shapesOf(stats, headers)) // Here for the place; the verifier does too.
      if (failed(verifyPart([&] { return parser_.emitError(places_.lookup(shape.name)); }, parts,
                            shape)))
        return failure();
    return success();
  }

private:
  OpAsmParser &parser_;
  Builder &builder_;
  SmallVector<int64_t> reductions_;
  llvm::StringMap<SMLoc> places_; ///< Of the parts.

  ParseResult parseReduction() {
    SMLoc loc = parser_.getCurrentLocation();
    StringRef name;
    if (failed(parser_.parseOptionalKeyword(&name)) || !llvm::is_contained(kReductions, name))
      return parser_.emitError(loc) << "expects max, min or sum before each value of stats: how it "
                                       "is reduced over the block"; // codec_C4
    reductions_.push_back(llvm::find(kReductions, name) - std::begin(kReductions));
    return success();
  }

  ParseResult parsePart(StringRef name, bool reduces, SmallVectorImpl<NamedAttribute> &program) {
    SmallVector<OpAsmParser::Argument> arguments;
    places_[name] = parser_.getCurrentLocation();
    if (parser_.parseArgumentList(arguments, AsmParser::Delimiter::Paren) || parser_.parseLBrace())
      return failure();
    ExpressionParser expressions(parser_);
    SmallVector<int64_t> outputs;
    do {
      if ((reduces && failed(parseReduction())) ||
          failed(expressions.parse(outputs.emplace_back())))
        return failure();
    } while (succeeded(parser_.parseOptionalComma()));
    if (failed(parser_.parseOptionalRBrace()))
      return expressions.unexpected("`,`, `}`");
    SmallVector<int64_t> inputs;
    for (const OpAsmParser::UnresolvedOperand &operand : expressions.operands()) {
      auto *found = llvm::find_if(arguments, [&](const OpAsmParser::Argument &argument) {
        return argument.ssaName.name == operand.name && argument.ssaName.number == operand.number;
      });
      if (found == arguments.end() && isOneName(operand))
        return emitOneName(parser_, operand);
      if (found == arguments.end()) // codec_C5
        return parser_.emitError(operand.location)
               << "expects an argument of " << name << ", got " << operand.name
               << ": a codec sees its arguments and numbers only";
      inputs.push_back(found - arguments.begin());
    }
    for (std::array<int64_t, kMapStride> &instruction : expressions.code())
      if (instruction[0] == static_cast<int64_t>(MapCode::Input))
        instruction[1] = inputs[static_cast<size_t>(instruction[1])];
    program.push_back(
        builder_.getNamedAttr(name, partAttr(builder_, name, expressions.flatCode(),
                                             expressions.constants(), outputs, arguments.size())));
    return success();
  }
};

void printPart(OpAsmPrinter &printer, DictionaryAttr program, StringRef name,
               ArrayRef<std::string> arguments, ArrayRef<int64_t> reductions = {}) {
  Part part = *partOf(program, name);
  printer.printNewline();
  printer << "  " << name << "(";
  llvm::interleaveComma(arguments, printer);
  printer << ") { ";
  for (auto [i, output] : llvm::enumerate(part.outputs)) {
    printer << (i > 0 ? ", " : "");
    if (!reductions.empty())
      printer << kReductions[reductions[i]] << ' ';
    printExpression(printer, part.expressions, output, [&](MapCode, int64_t index) {
      printer << arguments[static_cast<size_t>(index)];
    });
  }
  printer << " }";
}

/// first, then name or name0, name1, ….
SmallVector<std::string> argumentNames(StringRef first, StringRef name, size_t count) {
  SmallVector<std::string> names;
  if (!first.empty())
    names.push_back(first.str());
  for (size_t i = 0; i < count; ++i)
    names.push_back(name.str() + (count == 1 ? "" : std::to_string(i)));
  return names;
}

} // namespace

ParseResult CodecOp::parse(OpAsmParser &parser, OperationState &result) {
  Builder &builder = parser.getBuilder();
  StringAttr name;
  int64_t block = 0, headers = 0, bits = 0;
  auto header = [&]() -> ParseResult {
    SMLoc loc = parser.getCurrentLocation();
    Type type;
    if (parser.parseType(type))
      return failure();
    if (!type.isF32()) // codec_C2
      return parser.emitError(loc) << "expects headers of type f32, got " << type;
    ++headers;
    return success();
  };
  if (parser.parseSymbolName(name) || parser.parseKeyword("block") || parser.parseLParen() ||
      parser.parseInteger(block) || parser.parseRParen() || parser.parseKeyword("header"))
    return failure();
  SMLoc loc = parser.getCurrentLocation();
  if (failed(parser.parseCommaSeparatedList(AsmParser::Delimiter::Paren, header)))
    return failure();
  if (headers < 1 || headers > kHeadersMax) // codec_C2
    return parser.emitError(loc) << "expects 1.." << kHeadersMax << " headers, got " << headers;
  if (parser.parseKeyword("code") || parser.parseLParen())
    return failure();
  loc = parser.getCurrentLocation();
  StringRef code;
  if (failed(parser.parseOptionalKeyword(&code)) ||
      !(code.starts_with("i") || code.starts_with("u")) ||
      code.drop_front().getAsInteger(10, bits)) // codec_C3
    return parser.emitError(loc) << "expects codes i1..i" << kCodeBitsMax << " or u1..u"
                                 << kCodeBitsMax << ", got '" << code << "'";
  SmallVector<NamedAttribute> program;
  auto number = [&](StringRef key, int64_t value) {
    program.push_back(builder.getNamedAttr(key, builder.getI64IntegerAttr(value)));
  };
  number("block", block);
  number("header_count", headers);
  number("code_bits", bits);
  number("signed_codes", code.front() == 'i' ? 1 : 0);
  if (parser.parseRParen() || parser.parseOptionalAttrDictWithKeyword(result.attributes) ||
      BodyParser(parser).parse(headers, program))
    return failure();
  Properties &properties = result.getOrAddProperties<Properties>();
  properties.sym_name = name;
  properties.program = builder.getDictionaryAttr(program);
  return success();
}

void CodecOp::print(OpAsmPrinter &printer) {
  DictionaryAttr program = getProgram();
  auto reductions = cast<DenseI64ArrayAttr>(program.get("reductions"));
  auto headers = static_cast<size_t>(mustNumber(program, "header_count"));
  printer << ' ';
  printer.printSymbolName(getSymName());
  printer << " block(" << mustNumber(program, "block") << ") header(";
  llvm::interleaveComma(SmallVector<StringRef>(headers, "f32"), printer);
  printer << ") code(" << (mustNumber(program, "signed_codes") ? "i" : "u")
          << mustNumber(program, "code_bits") << ")";
  printer.printOptionalAttrDictWithKeyword((*this)->getAttrs(), {"sym_name", "program"});
  printer << " {";
  printPart(printer, program, "stats", argumentNames("%x", "", 0), reductions);
  Builder builder(getContext());
  if (program.get("headers") != identity(builder, reductions.size()))
    printPart(printer, program, "headers",
              argumentNames("", "%s", static_cast<size_t>(reductions.size())));
  printPart(printer, program, "encode", argumentNames("%x", "%h", headers));
  printPart(printer, program, "decode", argumentNames("%q", "%h", headers));
  printer.printNewline();
  printer << "}";
}

LogicalResult CodecOp::verify() {
  return verifyProgram([&] { return emitOpError(); }, getProgram());
}

// ---- The attribute
// --------------------------------------------------------------------------------

LogicalResult UserCodecAttr::verify(EmitError emitError, FlatSymbolRefAttr,
                                    DictionaryAttr program) {
  return program ? verifyProgram(emitError, program) : success();
}

/// What linkCodecs() has put there: sizes and kernels are asked for after it only.
static DictionaryAttr linked(UserCodecAttr codec) {
  if (!codec.getProgram())
    llvm::report_fatal_error("bagua.codec is asked for its bytes before linkCodecs()");
  return codec.getProgram();
}

int64_t UserCodecAttr::getBlock() const { return mustNumber(linked(*this), "block"); }
DictionaryAttr UserCodecAttr::getKernelAttributes() const { return linked(*this); }

CodecFormat UserCodecAttr::getFormat() const {
  DictionaryAttr program = linked(*this);
  int64_t headerBytes = 4 * mustNumber(program, "header_count");
  int64_t bits = mustNumber(program, "code_bits");
  if (bits % 8 == 0)
    return {getBlock(), headerBytes, 1, bits / 8, 1};
  return {getBlock(), headerBytes, 1, bits, 8};
}

UserCodecAttr bagua::ir::linkedCodec(UserCodecAttr codec, Operation *from) {
  if (codec.getProgram())
    return codec;
  auto module = from->getParentOfType<ModuleOp>();
  auto definition = module ? module.lookupSymbol<CodecOp>(codec.getName()) : CodecOp();
  return definition
             ? UserCodecAttr::get(codec.getContext(), codec.getName(), definition.getProgram())
             : UserCodecAttr();
}

LogicalResult bagua::ir::verifyCodecExists(Operation *op, Attribute codec) {
  auto user = dyn_cast_or_null<UserCodecAttr>(codec);
  if (!user || linkedCodec(user, op))
    return success();
  return op->emitOpError() << "expects a codec of the file, got " << user.getName()
                           << ": define `bagua.codec " << user.getName()
                           << " block(…) header(…) code(…) { … }`";
}

LogicalResult bagua::ir::linkCodecs(ModuleOp module) {
  bool failed = false;
  module.walk([&](Operation *op) {
    AttrTypeReplacer replacer;
    replacer.addReplacement([&](UserCodecAttr codec) -> std::optional<Attribute> {
      UserCodecAttr with = linkedCodec(codec, op);
      if (with)
        return with;
      if (!failed)
        (void)verifyCodecExists(op, codec);
      failed = true;
      return codec;
    });
    replacer.replaceElementsIn(op, /*replaceAttrs=*/true, /*replaceLocs=*/false,
                               /*replaceTypes=*/true);
  });
  if (failed)
    return failure();
  for (auto codec : llvm::make_early_inc_range(module.getOps<CodecOp>()))
    codec.erase();
  return success();
}
