// Deterministic inputs, hashes and raw files for the interpreters.
#include "bagua/compiler/Interpreter.h"

#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/SmallString.h"

#include <cmath>
#include <cstring>
#include <fstream>

using namespace mlir;

namespace bagua::compiler {
namespace {

Bytes fillOne(const Inputs &inputs, uint64_t seed, uint64_t stream, Fill fill) {
  Bytes bytes(static_cast<size_t>(inputs.length * inputs.elementBytes()));
  for (size_t i = 0; i < static_cast<size_t>(inputs.length); ++i) {
    double value = generatedElement(seed, stream, i, fill);
    if (inputs.dtype == kernels::DType::F64) {
      std::memcpy(bytes.data() + i * sizeof(double), &value, sizeof(double));
    } else {
      auto narrow = static_cast<float>(value);
      std::memcpy(bytes.data() + i * sizeof(float), &narrow, sizeof(float));
    }
  }
  return bytes;
}

template <typename T> bool isFinite(const Bytes &bytes) {
  for (size_t at = 0; at < bytes.size(); at += sizeof(T)) {
    T value;
    std::memcpy(&value, bytes.data() + at, sizeof(T));
    if (!std::isfinite(value))
      return false;
  }
  return true;
}

template <typename T> void descend(const Bytes &gradient, double stepSize, Bytes &weight) {
  for (size_t at = 0; at < weight.size(); at += sizeof(T)) {
    T g, w;
    std::memcpy(&g, gradient.data() + at, sizeof(T));
    std::memcpy(&w, weight.data() + at, sizeof(T));
    T change = static_cast<T>(stepSize) * g;
    w = w - change;
    std::memcpy(weight.data() + at, &w, sizeof(T));
  }
}

LogicalResult checkLists(ModuleOp module, const Inputs &inputs, StringRef what,
                         const std::vector<Bytes> &lists) {
  auto bytes = static_cast<size_t>(inputs.length * inputs.elementBytes());
  if (lists.size() != static_cast<size_t>(inputs.world))
    return module.emitError("expects ")
           << what << " of " << inputs.world << " ranks, got " << lists.size();
  for (auto [rank, list] : llvm::enumerate(lists))
    if (list.size() != bytes)
      return module.emitError("expects ")
             << bytes << " bytes of " << what << " for rank " << rank << ", got " << list.size();
  return success();
}

} // namespace

LogicalResult checkInputs(ModuleOp module, const Inputs &inputs) {
  if (inputs.world < 1 || inputs.world > 1024)
    return module.emitError("expects a world of 1 to 1024 ranks, got ") << inputs.world;
  if (inputs.localSize < 0 || inputs.world % inputs.ranksPerNode() != 0)
    return module.emitError("expects ranks per node that divide the world of ")
           << inputs.world << ", got " << inputs.localSize;
  if (inputs.length < 0 || inputs.length > int64_t{1} << 32)
    return module.emitError("expects a length of 0 to 2^32, got ") << inputs.length;
  if (inputs.firstStep < 0)
    return module.emitError("expects a step of at least 0, got ") << inputs.firstStep;
  if (inputs.bucket < 0)
    return module.emitError("expects a bucket number of at least 0, got ") << inputs.bucket;
  if (inputs.steps < 1 || inputs.gradients.size() != static_cast<size_t>(inputs.steps))
    return module.emitError("expects gradients of at least one step and of every step, got ")
           << inputs.steps << " steps and gradients of " << inputs.gradients.size();
  for (const std::vector<Bytes> &gradients : inputs.gradients)
    if (failed(checkLists(module, inputs, "gradients", gradients)))
      return failure();
  return checkLists(module, inputs, "weights", inputs.weights);
}

LogicalResult checkParameter(Operation *op, const std::string &name, std::optional<int64_t> least,
                             double value) {
  constexpr double kExactMax = 9007199254740992.0; // Beyond, an f64 skips integers.
  auto refuse = [&]() -> LogicalResult {
    InFlightDiagnostic diagnostic = op->emitOpError("expects parameter '") << name << "' to be ";
    if (least)
      diagnostic << "an index, an integer from " << *least << " to 2^53";
    else
      diagnostic << "a finite number";
    llvm::SmallString<32> text;
    llvm::APFloat(value).toString(text);
    return diagnostic << ", got " << text;
  };
  if (!std::isfinite(value))
    return refuse();
  if (least &&
      (value != std::trunc(value) || value > kExactMax || value < static_cast<double>(*least)))
    return refuse();
  return success();
}

void beginStep(const Inputs &inputs, Outputs &outputs) {
  const std::vector<Bytes> &gradients = inputs.gradients[outputs.gradients.size()];
  outputs.gradients.push_back(gradients);
  auto weights = outputs.weights.empty() ? inputs.weights : outputs.weights.back();
  outputs.weights.push_back(std::move(weights));
  outputs.wireBytes.emplace_back(static_cast<size_t>(inputs.world), 0);
  bool f32 = inputs.dtype == kernels::DType::F32;
  outputs.finite.push_back(llvm::all_of(gradients, f32 ? isFinite<float> : isFinite<double>));
}

void jobStep(const Inputs &inputs, Outputs &outputs) {
  if (inputs.stepSize == 0)
    return;
  for (auto [gradient, weight] : llvm::zip(outputs.gradients.back(), outputs.weights.back()))
    if (inputs.dtype == kernels::DType::F32)
      descend<float>(gradient, inputs.stepSize, weight);
    else
      descend<double>(gradient, inputs.stepSize, weight);
}

double parameterValue(const Inputs &inputs, int64_t step, const std::string &name, double initial) {
  if (static_cast<size_t>(step) < inputs.stepParameters.size()) {
    const auto &here = inputs.stepParameters[static_cast<size_t>(step)];
    if (auto found = here.find(name); found != here.end())
      return found->second;
  }
  auto found = inputs.parameters.find(name);
  return found == inputs.parameters.end() ? initial : found->second;
}

void fillInputs(Inputs &inputs, uint64_t seed, Fill fill) {
  inputs.gradients.assign(static_cast<size_t>(inputs.steps), {});
  inputs.weights.clear();
  for (int64_t rank = 0; rank < inputs.world; ++rank) {
    auto stream = static_cast<uint64_t>(rank) * 2;
    for (auto [step, gradients] : llvm::enumerate(inputs.gradients))
      gradients.push_back(fillOne(inputs, seed, step * kStepStreams + stream, fill));
    inputs.weights.push_back(fillOne(inputs, seed, stream + 1, fill));
  }
}

void fillFiniteInputs(Inputs &inputs, uint64_t seed, Fill fill) {
  fillInputs(inputs, seed, Fill::Normal);
  std::vector<std::vector<Bytes>> gradients = std::move(inputs.gradients);
  fillInputs(inputs, seed, fill);
  inputs.gradients = std::move(gradients);
}

std::string hashHex(const Bytes &bytes) {
  uint64_t hash = fnv1a(bytes);
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex(16, '0');
  for (size_t i = 0; i < hex.size(); ++i)
    hex[hex.size() - 1 - i] = kDigits[hash >> (4 * i) & 15];
  return hex;
}

LogicalResult readInputs(const std::string &path, Inputs &inputs, std::string &error) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    error = "cannot open " + path;
    return failure();
  }
  auto bytes = static_cast<size_t>(inputs.length * inputs.elementBytes());
  auto steps = static_cast<size_t>(inputs.steps);
  size_t expected = bytes * static_cast<size_t>(inputs.world) * (steps + 1), got = 0;
  inputs.gradients.assign(steps, {});
  std::vector<std::vector<Bytes> *> all;
  for (std::vector<Bytes> &gradients : inputs.gradients)
    all.push_back(&gradients);
  all.push_back(&inputs.weights);
  for (std::vector<Bytes> *lists : all) {
    lists->assign(static_cast<size_t>(inputs.world), Bytes(bytes));
    for (Bytes &list : *lists) {
      file.read(reinterpret_cast<char *>(list.data()), static_cast<std::streamsize>(list.size()));
      got += static_cast<size_t>(file.gcount());
    }
  }
  if (got != expected || file.peek() != std::ifstream::traits_type::eof()) {
    error = path + ": expects " + std::to_string(expected) + " bytes (gradients" +
            (steps == 1 ? "" : " of " + std::to_string(steps) + " steps") + ", then weights, of " +
            std::to_string(inputs.world) + " ranks), got " +
            (got == expected ? "more" : std::to_string(got));
    return failure();
  }
  return success();
}

static LogicalResult write(const std::string &path,
                           const std::vector<const std::vector<Bytes> *> &all, std::string &error) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  for (const std::vector<Bytes> *lists : all)
    for (const Bytes &list : *lists)
      file.write(reinterpret_cast<const char *>(list.data()),
                 static_cast<std::streamsize>(list.size()));
  file.close();
  if (file.fail()) {
    error = "cannot write " + path;
    return failure();
  }
  return success();
}

LogicalResult writeOutputs(const std::string &path, const Outputs &outputs, std::string &error) {
  std::vector<const std::vector<Bytes> *> all;
  for (size_t step = 0; step < outputs.gradients.size(); ++step) {
    all.push_back(&outputs.gradients[step]);
    all.push_back(&outputs.weights[step]);
  }
  return write(path, all, error);
}

LogicalResult writeStates(const std::string &path, const Outputs &outputs, std::string &error) {
  std::vector<const std::vector<Bytes> *> all;
  for (const auto &[name, lists] : outputs.states)
    all.push_back(&lists);
  return write(path, all, error);
}

} // namespace bagua::compiler
