// topk and randk: a block of m elements keeps e = ceil(m * k / block) of them (SPEC.md, "topk",
// "randk"). topk: e indices (u16, ascending), then e values; randk: e values, in ascending order of
// indices that both ends draw.
#pragma once

#include "common/Elementwise.h"
#include "common/Philox.h"

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace bagua::kernels {

constexpr size_t kSparseBlockMax = 4096;
using SparseIndex = uint16_t;

constexpr size_t sparseEntries(size_t count, int64_t k, int64_t block) {
  return (count * static_cast<size_t>(k) + static_cast<size_t>(block) - 1) /
         static_cast<size_t>(block);
}

inline SparseIndex loadIndex(const std::byte *indices, size_t entry) {
  return loadOne<SparseIndex>(indices, entry);
}

/// The block of `count` elements of which `entries` have values; a NaN among them, or an index that
/// is none, makes every element NaN.
template <class IndexOf>
inline void scatterEntries(const std::byte *values, size_t entries, size_t count,
                           const IndexOf &indexOf, float *y) {
  bool good = true;
  for (size_t i = 0; i < count; ++i)
    y[i] = 0.0f;
  for (size_t e = 0; e < entries; ++e) {
    const size_t index = indexOf(e);
    const float value = loadOne<float>(values, e);
    good = good && index < count && value == value;
    if (index < count)
      y[index] = value;
  }
  if (!good)
    for (size_t i = 0; i < count; ++i)
      y[i] = kNan<float>;
}

/// Draws `entries` of 0 … count - 1 without repetition, every set equally likely but for the 32
/// bits of a random number (R. W. Floyd; Bentley, CACM 30(9)); ascending. words[t], t < entries,
/// are the random numbers of the block's first elements.
inline void drawIndices(const uint32_t *words, size_t count, size_t entries, SparseIndex *indices) {
  uint64_t taken[kSparseBlockMax / 64] = {};
  for (size_t t = 0; t < entries; ++t) {
    const size_t last = count - entries + t;
    size_t index = static_cast<size_t>((uint64_t{words[t]} * (last + 1)) >> 32);
    if ((taken[index / 64] >> (index % 64) & 1) != 0)
      index = last;
    taken[index / 64] |= uint64_t{1} << (index % 64);
  }
  size_t e = 0;
  for (size_t word = 0; word * 64 < count; ++word)
    for (uint64_t left = taken[word]; left != 0; left &= left - 1)
      indices[e++] =
          static_cast<SparseIndex>(word * 64 + static_cast<size_t>(std::countr_zero(left)));
}

/// What the values of a randk block are multiplied with: elements over entries, or 1.
inline float randKFactor(size_t count, size_t entries, bool scaled) {
  return scaled ? static_cast<float>(count) / static_cast<float>(entries) : 1.0f;
}

inline float randKValue(float x, float factor) {
  constexpr float kLimit = std::numeric_limits<float>::max();
  const float value = x * factor;
  return value > kLimit ? kLimit : value < -kLimit ? -kLimit : value;
}

} // namespace bagua::kernels
