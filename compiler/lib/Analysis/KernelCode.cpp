// Reads the constants of launches.
#include "bagua/compiler/KernelCode.h"

#include <limits>

using namespace mlir;

namespace bagua::compiler {
namespace {

/// Reads entries of one dictionary; the first fault is reported, and stays.
class Reader {
public:
  Reader(DictionaryAttr constants, Operation *op, StringRef where)
      : constants_(constants), op_(op), where_(where) {}

  /// A number in [0, max] of type T; 0 if it may be left out.
  template <typename T>
  T number(StringRef name, bool optional = false, uint64_t max = std::numeric_limits<T>::max()) {
    Attribute value = constants_.get(name);
    if (!value && optional)
      return T{};
    auto integer = dyn_cast_or_null<IntegerAttr>(value);
    if (!integer || !fits(integer.getInt(), max)) {
      fail(name, "a number in 0 … " + Twine(max));
      return T{};
    }
    return static_cast<T>(integer.getInt());
  }

  template <typename T>
  std::vector<T> numbers(StringRef name, uint64_t max = std::numeric_limits<T>::max()) {
    std::vector<T> result;
    Attribute value = constants_.get(name);
    auto list = dyn_cast_or_null<DenseI64ArrayAttr>(value);
    if (value && !list)
      fail(name, "an array<i64>");
    if (!list)
      return result;
    for (int64_t entry : list.asArrayRef()) {
      if (!fits(entry, max))
        fail(name, "numbers in 0 … " + Twine(max));
      result.push_back(static_cast<T>(entry));
    }
    return result;
  }

  std::vector<double> reals(StringRef name) {
    Attribute value = constants_.get(name);
    auto list = dyn_cast_or_null<DenseF64ArrayAttr>(value);
    if (value && !list)
      fail(name, "an array<f64>");
    return list ? std::vector<double>(list.asArrayRef()) : std::vector<double>();
  }

  kernels::MapProgram map() {
    kernels::MapProgram program;
    constexpr uint64_t kOperandMax = std::numeric_limits<uint16_t>::max();
    std::vector<int64_t> code = numbers<int64_t>("code", kOperandMax);
    if (code.size() % 4 != 0)
      fail("code", "four numbers for each instruction");
    for (size_t i = 0; i + 3 < code.size(); i += 4) {
      if (code[i] > std::numeric_limits<uint8_t>::max())
        fail("code", "operations below 256");
      program.code.push_back(
          {static_cast<kernels::MapOp>(code[i]), static_cast<uint16_t>(code[i + 1]),
           static_cast<uint16_t>(code[i + 2]), static_cast<uint16_t>(code[i + 3])});
    }
    program.constants = reals("constants");
    program.outputs = numbers<uint16_t>("outputs");
    program.inputs = number<uint16_t>("inputs");
    program.scalars = number<uint16_t>("scalars", /*optional=*/true);
    program.broadcast = numbers<uint8_t>("broadcast", 1);
    if (program.broadcast.empty())
      program.broadcast.resize(program.inputs);
    return program;
  }

  kernels::MapProgram map(StringRef name) {
    auto inner = dyn_cast_or_null<DictionaryAttr>(constants_.get(name));
    if (!inner) {
      fail(name, "a dictionary");
      return {};
    }
    Reader reader(inner, op_, name);
    kernels::MapProgram program = reader.map();
    failed_ |= reader.failed_;
    return program;
  }

  bool hasFailed() const { return failed_; }

private:
  static bool fits(int64_t value, uint64_t max) {
    return value >= 0 && static_cast<uint64_t>(value) <= max;
  }
  void fail(StringRef name, const Twine &expected) {
    if (failed_)
      return;
    failed_ = true;
    InFlightDiagnostic error = op_->emitOpError("expects ");
    error << expected << " as constant '" << name << "'";
    if (!where_.empty())
      error << " of '" << where_ << "'";
    if (Attribute value = constants_.get(name))
      error << ", got " << value;
    else
      error << ", got none";
  }

  DictionaryAttr constants_;
  Operation *op_;
  StringRef where_;
  bool failed_ = false;
};

} // namespace

bool isMapKernel(StringRef kernel) { return kernel == "map"; }

bool isCodecKernel(StringRef kernel) {
  return kernel == "codec_encode" || kernel == "codec_decode" ||
         kernel == "codec_decode_reduce_sum" || kernel == "codec_decode_reduce_mean";
}

FailureOr<kernels::MapProgram> mapProgram(DictionaryAttr constants, Operation *op) {
  Reader reader(constants, op, "");
  kernels::MapProgram program = reader.map();
  if (reader.hasFailed())
    return failure();
  return program;
}

FailureOr<kernels::CodecProgram> codecProgram(DictionaryAttr constants, Operation *op) {
  Reader reader(constants, op, "");
  kernels::CodecProgram program;
  program.block = reader.number<uint32_t>("block");
  program.headerCount = reader.number<uint8_t>("header_count");
  program.codeBits = reader.number<uint8_t>("code_bits");
  program.signedCodes = reader.number<uint8_t>("signed_codes", /*optional=*/true, 1) != 0;
  program.stats = reader.map("stats");
  for (uint8_t reduction : reader.numbers<uint8_t>("reductions"))
    program.reductions.push_back(static_cast<kernels::BlockReduction>(reduction));
  program.headers = reader.map("headers");
  program.encode = reader.map("encode");
  program.decode = reader.map("decode");
  if (reader.hasFailed())
    return failure();
  return program;
}

FailureOr<kernels::Kernel> findKernel(Operation *op, StringRef name, DictionaryAttr constants,
                                      kernels::DType dtype) {
  kernels::Kernel kernel;
  std::string message;
  kernels::FindError found = kernels::FindError::None;
  if (isMapKernel(name)) {
    FailureOr<kernels::MapProgram> program = mapProgram(constants, op);
    if (failed(program))
      return failure();
    found = kernels::findMap(std::make_shared<const kernels::MapProgram>(*program), dtype, kernel,
                             message, /*reference=*/true);
  } else if (isCodecKernel(name)) {
    FailureOr<kernels::CodecProgram> program = codecProgram(constants, op);
    if (failed(program))
      return failure();
    found = kernels::findCodec(name.str(), std::make_shared<const kernels::CodecProgram>(*program),
                               dtype, kernel, message, /*reference=*/true);
  } else {
    std::vector<kernels::Attribute> attributes;
    std::vector<std::string> names; // Attribute names are string_views.
    names.reserve(constants.size());
    for (NamedAttribute constant : constants) {
      auto value = dyn_cast<IntegerAttr>(constant.getValue());
      if (!value)
        return op->emitOpError("expects numbers as constants of kernel '")
               << name << "', got '" << constant.getName().getValue() << "' "
               << constant.getValue();
      names.push_back(constant.getName().str());
      attributes.push_back({names.back(), value.getInt()});
    }
    found = kernels::find(name.str(), dtype, attributes, kernel, message, /*reference=*/true);
  }
  if (found != kernels::FindError::None)
    return op->emitOpError() << message;
  return kernel;
}

std::string checkOperands(StringRef name, const kernels::Kernel &kernel, size_t inputs,
                          size_t outputs, size_t scalars) {
  if (inputs < kernel.inputsMin || inputs > kernel.inputsMax)
    return "expects " + std::to_string(kernel.inputsMin) + " to " +
           std::to_string(kernel.inputsMax) + " inputs, got " + std::to_string(inputs);
  if (outputs != kernel.outputs)
    return "expects " +
           (kernel.outputs == 1 ? "one output" : std::to_string(kernel.outputs) + " outputs") +
           ", got " + std::to_string(outputs);
  if (name == "mix" && scalars + 1 != inputs)
    return "expects a scalar for each input but the first, got " + std::to_string(scalars) +
           " for " + std::to_string(inputs) + " inputs";
  if (name != "mix" && scalars != kernel.scalars)
    return "expects " + std::to_string(kernel.scalars) + " scalars, got " + std::to_string(scalars);
  return "";
}

} // namespace bagua::compiler
