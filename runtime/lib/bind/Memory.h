// Sizes and alignment of what bind reserves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace bagua::rt {

inline constexpr uint64_t kAlignment = 64;
/// No sum of sizes that are each at most this overflows.
inline constexpr uint64_t kBytesMax = uint64_t{1} << 56;

/// Rounds up; the callers' sums stay far from overflow (kBytesMax).
constexpr uint64_t aligned(uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// Physical memory; kBytesMax if unknown.
uint64_t machineMemoryBytes();

/// Null if there is none, or for no bytes. `bytes` is a multiple of kAlignment.
std::unique_ptr<std::byte, void (*)(void *)> allocateAligned(uint64_t bytes);

} // namespace bagua::rt
