// Plain reference of codec programs, element by element and bit by bit: the oracle for
// CodecProgram.cpp.
#include "Prepared.h"
#include "Runs.h"
#include "common/CodecWords.h"
#include "common/Map.h"

#include <array>

namespace bagua::kernels {
namespace {

constexpr size_t kPartialCount = 64;

using Values = std::array<MapValue<float>, kMapInstructionsMax>;

template <class Input>
void evaluate(const MapProgram &program, const Input &input, Values &values) {
  mapElement<float>(program, {}, input, [](size_t) { return false; }, values.data());
}

float reduceOne(BlockReduction reduction, float a, float b) {
  switch (reduction) {
  case BlockReduction::Max:
    return mapMax(a, b);
  case BlockReduction::Min:
    return mapMin(a, b);
  case BlockReduction::Sum:
    break;
  }
  return a + b;
}

/// Sets the headers of the block at `x`; false if it cannot be encoded.
bool makeHeaders(const CodecProgram &codec, const std::byte *x, size_t count, float *headers) {
  Values values;
  for (size_t i = 0; i < count; ++i)
    if (!std::isfinite(loadOne<float>(x, i)))
      return false;
  std::array<float, kMapOutputsMax> reduced{};
  for (size_t k = 0; k < codec.reductions.size(); ++k) {
    const BlockReduction reduction = codec.reductions[k];
    const float infinity = std::numeric_limits<float>::infinity();
    const float start = reduction == BlockReduction::Max   ? -infinity
                        : reduction == BlockReduction::Min ? infinity
                                                           : 0.0f;
    std::array<float, kPartialCount> partials;
    partials.fill(start);
    for (size_t i = 0; i < count; ++i) {
      evaluate(codec.stats, [&](size_t) { return loadOne<float>(x, i); }, values);
      float &partial = partials[i % kPartialCount];
      partial = reduceOne(reduction, partial, values[codec.stats.outputs[k]].number);
    }
    for (size_t width = kPartialCount / 2; width > 0; width /= 2)
      for (size_t j = 0; j < width; ++j)
        partials[j] = reduceOne(reduction, partials[j], partials[j + width]);
    reduced[k] = partials[0];
  }
  evaluate(codec.headers, [&](size_t k) { return reduced[k]; }, values);
  bool finite = true;
  for (size_t k = 0; k < codec.headerCount; ++k) {
    headers[k] = values[codec.headers.outputs[k]].number;
    finite = finite && std::isfinite(headers[k]);
  }
  return finite;
}

/// The code of q: nearest integer, ties to even, saturated; 0 for NaN.
unsigned codeOf(const CodecProgram &codec, float q) {
  const CodeRange range = codeRange(codec);
  const float rounded = std::rint(q);
  const float code = rounded != rounded        ? 0.0f
                     : rounded < range.lowest  ? range.lowest
                     : rounded > range.highest ? range.highest
                                               : rounded;
  return static_cast<unsigned>(static_cast<int>(code)) & ((1u << codec.codeBits) - 1);
}

void encode(const Kernel &kernel, const Args &args, size_t begin, size_t end) {
  const CodecProgram &codec = *kernel.prepared->codec;
  Values values;
  for (size_t first = begin; first < end; first += codec.block) {
    const size_t count = std::min<size_t>(codec.block, end - first);
    const std::byte *x = args.inputs[0].data() + first * sizeof(float);
    std::byte *packed = args.outputs[0].data() + codecPackedBytes(codec, first);
    std::fill_n(packed, codecBlockBytes(codec, count), std::byte{0});
    float headers[kCodecHeadersMax] = {};
    if (!makeHeaders(codec, x, count, headers)) {
      storeOne<float>(packed, 0, kNan<float>);
      continue;
    }
    for (size_t k = 0; k < codec.headerCount; ++k)
      storeOne<float>(packed, k, headers[k]);
    std::byte *codes = packed + codec.headerCount * sizeof(float);
    for (size_t i = 0; i < count; ++i) {
      auto input = [&](size_t k) { return k == 0 ? loadOne<float>(x, i) : headers[k - 1]; };
      evaluate(codec.encode, input, values);
      const unsigned code = codeOf(codec, values[codec.encode.outputs[0]].number);
      for (size_t j = 0; j < codec.codeBits; ++j) {
        const size_t bit = i * codec.codeBits + j;
        codes[bit / 8] |= static_cast<std::byte>((code >> j & 1) << (bit % 8));
      }
    }
  }
}

float decodeAt(const CodecProgram &codec, const std::byte *packed, size_t index, Values &values) {
  packed += index / codec.block * codecBlockBytes(codec, codec.block);
  float headers[kCodecHeadersMax];
  if (!loadHeaders(codec, packed, headers))
    return kNan<float>;
  const std::byte *codes = packed + codec.headerCount * sizeof(float);
  int code = 0;
  for (size_t j = 0; j < codec.codeBits; ++j) {
    const size_t bit = index % codec.block * codec.codeBits + j;
    code |= (std::to_integer<int>(codes[bit / 8]) >> (bit % 8) & 1) << j;
  }
  if (codec.signedCodes && (code >> (codec.codeBits - 1)) != 0)
    code -= 1 << codec.codeBits;
  auto input = [&](size_t k) { return k == 0 ? static_cast<float>(code) : headers[k - 1]; };
  evaluate(codec.decode, input, values);
  return values[codec.decode.outputs[0]].number;
}

template <bool kMean>
void decodeReduce(const Kernel &kernel, const Args &args, size_t begin, size_t end) {
  const CodecProgram &codec = *kernel.prepared->codec;
  Values values;
  for (size_t i = begin; i < end; ++i) {
    float sum = decodeAt(codec, args.inputs[0].data(), i, values);
    for (size_t k = 1; k < args.inputs.size(); ++k)
      sum = sum + decodeAt(codec, args.inputs[k].data(), i, values);
    if (kMean)
      sum = sum / static_cast<float>(args.inputs.size());
    storeOne<float>(args.outputs[0].data(), i, finishOne(sum));
  }
}

} // namespace

const CodecProgramRuns &codecProgramReference() {
  // One input and no division: decoding is the sum of one.
  static constexpr CodecProgramRuns kRuns{encode, decodeReduce<false>, decodeReduce<false>,
                                          decodeReduce<true>};
  return kRuns;
}

} // namespace bagua::kernels
