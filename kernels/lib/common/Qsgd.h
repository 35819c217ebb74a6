// Wire format and per-element arithmetic of qsgd and ternary (SPEC.md, "qsgd"). A block is its norm
// (f32; NaN if an element is not finite) and codes levels + q, q in -levels … levels.
#pragma once

#include "common/Elementwise.h"
#include "common/Philox.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace bagua::kernels {

constexpr float kQsgdNonFinite = kNan<float>;

/// The Euclidean norm from a sum of squares; at most the largest float, which bounds every element.
inline float qsgdEuclideanNorm(double squares) {
  const double norm = std::sqrt(squares), most = std::numeric_limits<float>::max();
  return static_cast<float>(norm < most ? norm : most);
}

/// What one level is worth; rounded up, so that `levels` of them reach the norm.
inline float qsgdStep(float norm, int64_t levels) {
  const float step = static_cast<float>(static_cast<double>(norm) / static_cast<double>(levels));
  if (static_cast<double>(step) * static_cast<double>(levels) < static_cast<double>(norm))
    return std::bit_cast<float>(std::bit_cast<uint32_t>(step) + 1);
  return step;
}

/// What encoding one block of finite elements with norm > 0 needs.
struct QsgdEncoder {
  float norm, inverse;
  float scale; ///< A power of two: keeps 1 / step and x * scale away from overflow and denormals.
  float levels;

  QsgdEncoder(float blockNorm, int64_t levelCount)
      : norm(blockNorm), levels(static_cast<float>(levelCount)) {
    const float step = qsgdStep(norm, levelCount);
    scale = step > 0x1p100f ? 0x1p-64f : step < 0x1p-100f ? 0x1p64f : 1.0f;
    inverse = 1.0f / (step * scale);
  }

  /// Rounds up with the probability of the fraction; `word` is the element's random number.
  uint8_t encodeOne(float x, uint32_t word) const {
    const float magnitude = x < 0.0f ? -x : x;
    float ratio = (magnitude * scale) * inverse;
    ratio = ratio < levels ? ratio : levels;
    ratio = magnitude < norm ? ratio : levels; // The norm itself is exact.
    const int whole = static_cast<int>(ratio);
    const int q = whole + (uniformOf(word) < ratio - static_cast<float>(whole) ? 1 : 0);
    return static_cast<uint8_t>(static_cast<int>(levels) + (x < 0.0f ? -q : q));
  }
};

struct QsgdDecoder {
  float norm, step, levels;
  bool finite; ///< Else every element is kNan. A negative norm comes from no encoder.

  QsgdDecoder(float blockNorm, int64_t levelCount)
      : norm(blockNorm), step(0.0f), levels(static_cast<float>(levelCount)),
        finite(std::isfinite(blockNorm) && blockNorm >= 0.0f) {
    if (finite)
      step = qsgdStep(norm, levelCount);
  }

  float decodeOne(uint8_t code) const {
    if (!finite)
      return kNan<float>;
    float y = (static_cast<float>(code) - levels) * step;
    y = y > norm ? norm : y;
    return y < -norm ? -norm : y;
  }
};

} // namespace bagua::kernels
