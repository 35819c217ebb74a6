// What the three algorithms compute, written down once more and independently of the executor: one
// element or block at a time, all ranks in one loop.
#pragma once

#include "bagua/kernels/Kernels.h"

#include <cstdint>
#include <vector>

namespace bagua::rt::testing {

/// One vector per rank.
template <typename T> using Inputs = std::vector<std::vector<T>>;

template <typename T> std::vector<T> meanOf(const Inputs<T> &inputs) {
  std::vector<T> result(inputs[0].size());
  for (size_t i = 0; i < result.size(); ++i) {
    T sum = inputs[0][i];
    for (size_t rank = 1; rank < inputs.size(); ++rank)
      sum += inputs[rank][i];
    result[i] = sum / static_cast<T>(inputs.size());
  }
  return result;
}

/// Through the min-max codec and back, by the reference kernels.
inline std::vector<float> throughCodec(const std::vector<float> &input, int64_t bits,
                                       int64_t block) {
  kernels::Attribute attributes[] = {{"bits", bits}, {"block", block}};
  kernels::Kernel encode, decode;
  std::string error;
  (void)kernels::find("minmax_encode", kernels::DType::F32, attributes, encode, error, true);
  (void)kernels::find("minmax_decode", kernels::DType::F32, attributes, decode, error, true);
  std::vector<std::byte> packed(kernels::minmaxPackedBytes(input.size(), bits, block));
  std::vector<float> output(input.size());
  auto run = [&](const kernels::Kernel &kernel, std::span<const std::byte> from,
                 std::span<std::byte> to) {
    std::span<const std::byte> inputs[] = {from};
    std::span<std::byte> outputs[] = {to};
    kernel.run(kernel, {inputs, outputs, {}, input.size()}, 0, input.size());
  };
  if (!input.empty()) {
    run(encode, std::as_bytes(std::span(input)), packed);
    run(decode, packed, std::as_writable_bytes(std::span(output)));
  }
  return output;
}

/// Blocks are counted from the bucket's start and shards are whole blocks, so that neither world
/// nor shards show but in the number of summands.
inline std::vector<float> bytegradOf(const Inputs<float> &inputs, int64_t bits, int64_t block) {
  if (inputs.size() == 1)
    return inputs[0];
  Inputs<float> decoded;
  for (const auto &input : inputs)
    decoded.push_back(throughCodec(input, bits, block));
  return throughCodec(meanOf(decoded), bits, block);
}

/// A third of each of the ring's neighbours -1 and +1.
template <typename T> std::vector<T> ringMixOf(const Inputs<T> &inputs, size_t rank) {
  size_t world = inputs.size();
  std::vector<T> result = inputs[rank];
  if (world == 1)
    return result;
  const auto &before = inputs[(rank + world - 1) % world], &after = inputs[(rank + 1) % world];
  for (size_t i = 0; i < result.size(); ++i) {
    T w = result[i];
    if (world == 2)
      result[i] = w + static_cast<T>(2.0 / 3.0) * (before[i] - w);
    else
      result[i] = w + (static_cast<T>(1.0 / 3.0) * (before[i] - w) +
                       static_cast<T>(1.0 / 3.0) * (after[i] - w));
  }
  return result;
}

/// Values of every size and sign, the same for equal arguments.
template <typename T> std::vector<T> numbers(uint64_t seed, size_t count) {
  std::vector<T> result(count);
  uint64_t state = seed * 0x9e3779b97f4a7c15 + 1;
  for (T &value : result) {
    state = state * 6364136223846793005 + 1442695040888963407;
    value = static_cast<T>(static_cast<int32_t>(state >> 32)) /
            static_cast<T>(int64_t{1} << (state >> 27 & 31));
  }
  return result;
}

} // namespace bagua::rt::testing
