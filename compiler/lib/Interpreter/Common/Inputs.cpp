// Deterministic inputs, hashes and raw files for the interpreters.
#include "bagua/compiler/Interpreter.h"

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

} // namespace

LogicalResult checkInputs(ModuleOp module, const Inputs &inputs) {
  if (inputs.world < 1 || inputs.world > 1024)
    return module.emitError("expects a world of 1 to 1024 ranks, got ") << inputs.world;
  if (inputs.localSize < 0 || inputs.world % inputs.ranksPerNode() != 0)
    return module.emitError("expects ranks per node that divide the world of ")
           << inputs.world << ", got " << inputs.localSize;
  if (inputs.length < 0 || inputs.length > int64_t{1} << 32)
    return module.emitError("expects a length of 0 to 2^32, got ") << inputs.length;
  if (inputs.step < 0)
    return module.emitError("expects a step of at least 0, got ") << inputs.step;
  auto bytes = static_cast<size_t>(inputs.length * inputs.elementBytes());
  for (auto [what, lists] :
       {std::pair{"gradients", &inputs.gradients}, {"weights", &inputs.weights}}) {
    if (lists->size() != static_cast<size_t>(inputs.world))
      return module.emitError("expects ")
             << what << " of " << inputs.world << " ranks, got " << lists->size();
    for (auto [rank, list] : llvm::enumerate(*lists))
      if (list.size() != bytes)
        return module.emitError("expects ")
               << bytes << " bytes of " << what << " for rank " << rank << ", got " << list.size();
  }
  return success();
}

Outputs initialOutputs(const Inputs &inputs) {
  Outputs outputs;
  outputs.gradients = inputs.gradients;
  outputs.weights = inputs.weights;
  outputs.wireBytes.assign(static_cast<size_t>(inputs.world), 0);
  return outputs;
}

void fillInputs(Inputs &inputs, uint64_t seed, Fill fill) {
  inputs.gradients.clear();
  inputs.weights.clear();
  for (int64_t rank = 0; rank < inputs.world; ++rank) {
    auto stream = static_cast<uint64_t>(rank) * 2;
    inputs.gradients.push_back(fillOne(inputs, seed, stream, fill));
    inputs.weights.push_back(fillOne(inputs, seed, stream + 1, fill));
  }
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
  size_t expected = bytes * static_cast<size_t>(inputs.world) * 2, got = 0;
  for (auto *lists : {&inputs.gradients, &inputs.weights}) {
    lists->assign(static_cast<size_t>(inputs.world), Bytes(bytes));
    for (Bytes &list : *lists) {
      file.read(reinterpret_cast<char *>(list.data()), static_cast<std::streamsize>(list.size()));
      got += static_cast<size_t>(file.gcount());
    }
  }
  if (got != expected || file.peek() != std::ifstream::traits_type::eof()) {
    error = path + ": expects " + std::to_string(expected) +
            " bytes (gradients, then weights, of " + std::to_string(inputs.world) +
            " ranks), got " + (got == expected ? "more" : std::to_string(got));
    return failure();
  }
  return success();
}

LogicalResult writeOutputs(const std::string &path, const Outputs &outputs, std::string &error) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  for (const auto *lists : {&outputs.gradients, &outputs.weights})
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

} // namespace bagua::compiler
