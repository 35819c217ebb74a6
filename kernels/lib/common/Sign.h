// The sign codec (SPEC.md, "sign"): a block is the mean of its magnitudes (f32; NaN if an element
// is not finite) and a bit per element, 1 where it is negative.
#pragma once

#include "common/Elementwise.h"

#include <cmath>
#include <cstddef>

namespace bagua::kernels {

/// From the sum of the magnitudes of `count` elements, which is finite if they are.
inline float signScale(double sum, size_t count) {
  return std::isfinite(sum) ? static_cast<float>(sum / static_cast<double>(count)) : kNan<float>;
}

inline float signValue(float scale, bool negative) {
  if (!std::isfinite(scale))
    return kNan<float>;
  return negative ? -scale : scale;
}

} // namespace bagua::kernels
