// Sums of many numbers in an order that suits every vector width: 64 strided partials and a fixed
// tree (SPEC.md, "Sums of many").
#pragma once

#include <cstddef>

namespace bagua::kernels {

constexpr size_t kPartials = 64;

/// The tree: partial j takes partial j + width, for widths 32, 16, … 1.
inline double sumOfPartials(double (&partials)[kPartials], size_t width = kPartials / 2) {
  for (; width > 0; width /= 2)
    for (size_t j = 0; j < width; ++j)
      partials[j] = partials[j] + partials[j + width];
  return partials[0];
}

/// The sum of term(0) … term(count - 1): partial j takes terms j, j + 64, j + 128, … in this order.
template <class Term> inline double stridedSum(size_t count, const Term &term) {
  double partials[kPartials] = {};
  for (size_t i = 0; i < count; ++i)
    partials[i % kPartials] = partials[i % kPartials] + term(i);
  return sumOfPartials(partials);
}

} // namespace bagua::kernels
