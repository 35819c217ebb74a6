// Per-element arithmetic of copy, reduce and mix: shared by the references and the vector tails.
// No source is compiled with flags of its own ISA (Highway sets them per function), so these inline
// functions have one meaning everywhere.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

namespace bagua::kernels {

/// Every NaN that arithmetic writes is this one: hardware picks payloads by operand order, which
/// compilers may swap, and GPUs have none.
template <typename T> constexpr T kNan = std::numeric_limits<T>::quiet_NaN();
static_assert(std::bit_cast<uint32_t>(kNan<float>) == 0x7fc00000u);
static_assert(std::bit_cast<uint64_t>(kNan<double>) == 0x7ff8000000000000u);

template <typename T> inline T finishOne(T x) { return x != x ? kNan<T> : x; }

/// Element `index` of a buffer that may be unaligned.
template <typename T> inline T loadOne(const std::byte *base, size_t index) {
  T value;
  std::memcpy(&value, base + index * sizeof(T), sizeof(T));
  return value;
}
template <typename T> inline void storeOne(std::byte *base, size_t index, T value) {
  std::memcpy(base + index * sizeof(T), &value, sizeof(T));
}

template <typename T> inline T mixTerm(T weight, T x, T w) { return weight * (x - w); }

} // namespace bagua::kernels
