// Per-element arithmetic of the reference system's min-max codec, faults included (SPEC.md,
// "minmax_reference"). A block is its least and greatest element (f32 each) and a byte each.
#pragma once

#include "common/Elementwise.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace bagua::kernels {

/// Adding it to an integer of less than 2^22 leaves its low bits, two's complement, in those of the
/// sum. The cast that it stands for is undefined where a code leaves 0…255.
constexpr float kWrapShift = 0x1.8p23f;

struct MinMaxReferenceBlock {
  float lo, hi;
  float scale, upper, lower;

  MinMaxReferenceBlock(float least, float greatest) : lo(least), hi(greatest) {
    scale = 255.0f / ((hi - lo) + 1e-7f);
    upper = std::nearbyint(hi * scale);
    lower = upper - 255.0f;
  }

  /// Of what running minimum and maximum have become; they start as +inf and -inf, and NaN changes
  /// neither. Zeros become +0: which one a minimum keeps would depend on the order.
  static MinMaxReferenceBlock of(float least, float greatest) {
    if (least > greatest) // Every element is NaN.
      return {kNan<float>, kNan<float>};
    return {least + 0.0f, greatest + 0.0f};
  }

  uint8_t encodeOne(float x) const {
    float level = std::nearbyint(x * scale);
    level = level < upper ? level : upper; // A NaN becomes the upper level.
    return static_cast<uint8_t>(std::bit_cast<uint32_t>((level - lower) + kWrapShift));
  }

  float decodeOne(uint8_t code) const {
    return finishOne((static_cast<float>(code) + lower) / scale);
  }
};

} // namespace bagua::kernels
