// Deterministic buckets and their hash: the same on every machine, for interpreters and for the
// runtime's own runs of a schedule. Needs no MLIR.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

namespace bagua::compiler {

/// What generatedElement() gives.
enum class Fill : uint8_t {
  Exact,  ///< Small integers: sums of any 256 ranks are exact in any order.
  Normal, ///< About normal, magnitudes over several decades.
  Edge,   ///< Normal with zeros, denormals, huge values, infinities and NaN strewn in, constant
          ///< stretches.
};

namespace generator {

/// splitmix64: a counter-based generator, so that element i needs no earlier one.
inline uint64_t mixBits(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

/// Uniform in [0, 1), exact in double.
inline double uniform(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

/// About normal with only sums and products, whose bits are the same everywhere.
inline double normal(uint64_t key) {
  double sum = 0;
  for (uint64_t i = 0; i < 4; ++i)
    sum += uniform(mixBits(key + i * 0xd1342543de82ef95));
  return (sum - 2.0) * 1.7320508075688772;
}

} // namespace generator

/// Streams of later steps: the gradient of step s and rank r is stream s * kStepStreams + 2 * r.
inline constexpr uint64_t kStepStreams = uint64_t{1} << 20;

/// Element `index` of one bucket; `stream` is 2 * rank for gradients, 2 * rank + 1 for weights.
inline double generatedElement(uint64_t seed, uint64_t stream, uint64_t index, Fill fill) {
  using generator::mixBits, generator::normal, generator::uniform;
  uint64_t key = mixBits(mixBits(seed ^ stream * 0x2545f4914f6cdd1d) + index);
  if (fill == Fill::Exact)
    return static_cast<double>(static_cast<int64_t>(key % 2001) - 1000);
  // The magnitude changes every 64 elements, so blocks differ and small ones exist.
  int exponent = static_cast<int>(mixBits(seed + index / 64) % 24) - 20;
  double value = std::ldexp(normal(key), exponent);
  if (fill == Fill::Normal)
    return value;
  if (index / 128 % 8 == 5)
    return 0.1; // A constant stretch.
  switch (mixBits(key) % 97) {
  case 0:
    return 0.0;
  case 1:
    return -0.0;
  case 2:
    return std::ldexp(value, -140); // Denormal as f32.
  case 3:
    return std::ldexp(1.0 + uniform(key), 126);
  case 4:
    return -std::ldexp(1.0 + uniform(key), 126);
  case 5: // Rare enough to leave most blocks finite.
    return mixBits(key + 1) % 64 == 0 ? std::numeric_limits<double>::infinity() : value;
  case 6:
    return mixBits(key + 1) % 64 == 0 ? std::numeric_limits<double>::quiet_NaN() : value;
  default:
    return value;
  }
}

/// 64-bit FNV-1a.
inline uint64_t fnv1a(std::span<const std::byte> bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (std::byte byte : bytes)
    hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3;
  return hash;
}

} // namespace bagua::compiler
