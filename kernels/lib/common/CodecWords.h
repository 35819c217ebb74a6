// Codes as words: floats in which a code's bits are the low ones, so that rounding a number to a
// code, and getting the number back, is one addition each.
#pragma once

#include "bagua/kernels/CodecProgram.h"
#include "common/Codes.h"
#include "common/Elementwise.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace bagua::kernels {

/// The number n, an integer of magnitude below 2^22, is the float kCodeShift + n: its low 22 bits
/// are n in two's complement. Adding the shift rounds to nearest, ties to even.
constexpr float kCodeShift = 0x1.8p23f;

struct CodeRange {
  float lowest, highest;
};
inline CodeRange codeRange(const CodecProgram &codec) {
  const int bits = codec.codeBits;
  if (codec.signedCodes)
    return {-static_cast<float>(1 << (bits - 1)), static_cast<float>((1 << (bits - 1)) - 1)};
  return {0.0f, static_cast<float>((1 << bits) - 1)};
}

inline Packing codecPacking(const CodecProgram &codec) {
  const uint32_t headerBytes = codec.headerCount * static_cast<uint32_t>(sizeof(float));
  return {codec.block, headerBytes, 1, codec.codeBits, 8};
}
inline size_t codecBlockBytes(const CodecProgram &codec, size_t count) {
  return codecPacking(codec).blockBytes(count);
}

/// Headers of a block; false if one is not finite: then all its elements are NaN.
inline bool loadHeaders(const CodecProgram &codec, const std::byte *packed, float *headers) {
  bool finite = true;
  for (size_t k = 0; k < codec.headerCount; ++k) {
    headers[k] = loadOne<float>(packed, k);
    finite = finite && std::isfinite(headers[k]);
  }
  return finite;
}

constexpr size_t kCodecHeadersMax = 4;

} // namespace bagua::kernels
