// Per-element conversions of the f16 and bf16 codecs, in integers: hardware conversions differ in
// NaN payloads, and not every target has them.
#pragma once

#include "common/Elementwise.h"

#include <bit>
#include <cstdint>

namespace bagua::kernels {

constexpr uint32_t kF32Inf = 0x7f800000, kF32SignBit = 0x80000000;

struct F16 {
  static constexpr uint32_t kNormalMin = 0x38800000; ///< 2^-14, as bits of an f32.
  static constexpr uint32_t kRebias = 112u << 23;    ///< Between the biases 127 and 15.
  static constexpr uint32_t kMax = 0x7bff, kInf = 0x7c00, kNan = 0x7e00;
  /// Its last place is the distance of denormals: adding it rounds to one.
  static constexpr float kDenormalShift = 0.5f;

  static uint16_t encodeOne(float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x), a = bits & ~kF32SignBit;
    uint32_t h;
    if (a > kF32Inf)
      return kNan;
    if (a == kF32Inf) {
      h = kInf;
    } else if (a < kNormalMin) {
      h = std::bit_cast<uint32_t>(std::bit_cast<float>(a) + kDenormalShift) -
          std::bit_cast<uint32_t>(kDenormalShift);
    } else { // To nearest, ties to even.
      h = (a - kRebias + 0xfff + ((a >> 13) & 1)) >> 13;
      h = h < kMax ? h : kMax;
    }
    return static_cast<uint16_t>(h | ((bits & kF32SignBit) >> 16));
  }

  static float decodeOne(uint16_t h) {
    const uint32_t a = (h & 0x7fffu) << 13, exponent = h & kInf;
    uint32_t y;
    if (exponent == kInf) {
      if ((h & 0x7fffu) != kInf)
        return kernels::kNan<float>;
      y = kF32Inf;
    } else if (exponent == 0) {
      y = std::bit_cast<uint32_t>(std::bit_cast<float>(a + kNormalMin) -
                                  std::bit_cast<float>(kNormalMin));
    } else {
      y = a + kRebias;
    }
    return std::bit_cast<float>(y | (h & 0x8000u) << 16);
  }
};

struct BF16 {
  static constexpr uint32_t kNan = 0x7fc0;
  /// From here on finite values would round to infinity.
  static constexpr uint32_t kSaturated = 0x7f7f8000;

  static uint16_t encodeOne(float x) {
    const uint32_t bits = std::bit_cast<uint32_t>(x), a = bits & ~kF32SignBit;
    if (a > kF32Inf)
      return kNan;
    uint32_t rounded = bits + 0x7fff + ((bits >> 16) & 1); // To nearest, ties to even.
    if (a >= kSaturated && a < kF32Inf)
      rounded -= 0x10000;
    return static_cast<uint16_t>(rounded >> 16);
  }

  static float decodeOne(uint16_t h) {
    const uint32_t bits = static_cast<uint32_t>(h) << 16;
    return (bits & ~kF32SignBit) > kF32Inf ? kernels::kNan<float> : std::bit_cast<float>(bits);
  }
};

} // namespace bagua::kernels
