// Wire format and per-element arithmetic of the min-max codec (SPEC.md, "minmax"): shared by the
// reference, the vector code and its tails. See Elementwise.h for why these may be plain inlines.
#pragma once

#include "common/Codes.h"
#include "common/Elementwise.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

namespace bagua::kernels {

struct MinMaxHeader { // Goes on the wire, little-endian, at any alignment.
  float lo, step;     // lo is never -0. A block with a non-finite element has lo = NaN, step = 0.
};
static_assert(sizeof(MinMaxHeader) == 8, "goes on the wire: no padding");
static_assert(std::endian::native == std::endian::little, "the wire format is little-endian");

/// Above this step sums like lo + code * step or x - lo could overflow: work at a quarter of the
/// scale.
constexpr float kMinMaxStepWide = 0x1p110f;
/// Below this step 1 / step could overflow: encode at 2^64 times the scale.
constexpr float kMinMaxStepTiny = 0x1p-100f;

constexpr size_t minMaxBlockBytes(size_t count, int64_t bits) {
  return sizeof(MinMaxHeader) + codeBytes(count, bits);
}
constexpr int minMaxLevels(int64_t bits) { return (1 << bits) - 1; }

inline MinMaxHeader loadHeader(const std::byte *packed) {
  MinMaxHeader header;
  std::memcpy(&header, packed, sizeof(header));
  return header;
}
inline void storeHeader(std::byte *packed, MinMaxHeader header) {
  std::memcpy(packed, &header, sizeof(header));
}

/// Header of a block whose finite elements span [lo, hi].
inline MinMaxHeader minMaxHeader(float lo, float hi, int64_t bits) {
  // Adding +0 turns -0 into +0: which of two equal zeros a minimum returns differs between targets.
  lo += 0.0f;
  hi += 0.0f;
  // In double neither the difference nor the quotient can overflow or become denormal.
  double range = static_cast<double>(hi) - static_cast<double>(lo);
  double levels = minMaxLevels(bits);
  float step = static_cast<float>(range / levels);
  // Rounded up, so that the highest code reaches hi: with a denormal step the gap would be large.
  if (static_cast<double>(step) * levels < range)
    step = std::bit_cast<float>(std::bit_cast<uint32_t>(step) + 1);
  return {lo, step};
}
constexpr MinMaxHeader kMinMaxNonFinite{kNan<float>, 0.0f};

/// Adding it to a float in [0, 2^22] leaves the nearest integer, ties to even, in the low bits of
/// the sum: no conversion instruction, whose out-of-range results differ between targets.
constexpr float kRoundingShift = 0x1p23f;

/// What encoding one block needs: code = rint((x * scale - lo) * inverse), saturated.
struct MinMaxEncoder {
  float lo, inverse; ///< At `scale`.
  float scale;       ///< A power of two; 1 except for huge and denormal ranges.
  float levels;

  MinMaxEncoder(MinMaxHeader header, int64_t bits)
      : scale(header.step > kMinMaxStepWide                         ? 0.25f
              : header.step > 0.0f && header.step < kMinMaxStepTiny ? 0x1p64f
                                                                    : 1.0f),
        levels(static_cast<float>(minMaxLevels(bits))) {
    lo = header.lo * scale;
    // A constant block has step 0 and gets code 0.
    inverse = header.step > 0.0f ? 1.0f / (header.step * scale) : 0.0f;
  }

  uint8_t encodeOne(float x) const {
    float scaled = (x * scale - lo) * inverse;
    scaled = scaled < levels ? scaled : levels;
    return static_cast<uint8_t>(std::bit_cast<uint32_t>(scaled + kRoundingShift));
  }
};

/// What decoding one block needs.
struct MinMaxDecoder {
  float lo, step;
  bool finite; ///< Else every element is kNan. A negative step comes from no encoder.
  bool wide;   ///< lo and step are at a quarter of their scale.

  explicit MinMaxDecoder(MinMaxHeader header)
      : lo(header.lo), step(header.step),
        finite(std::isfinite(header.lo) && std::isfinite(header.step) && header.step >= 0.0f),
        wide(header.step > kMinMaxStepWide) {
    if (wide) {
      lo *= 0.25f;
      step *= 0.25f;
    }
  }

  float decodeOne(uint8_t code) const {
    if (!finite)
      return kNan<float>;
    float y = lo + static_cast<float>(code) * step;
    if (!wide)
      return y;
    constexpr float kLimit = std::numeric_limits<float>::max() * 0.25f;
    y = y > kLimit ? kLimit : y;
    y = y < -kLimit ? -kLimit : y;
    return y * 4.0f;
  }
};

} // namespace bagua::kernels
