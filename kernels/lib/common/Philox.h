// Random numbers that are a function of what they are for: Philox4x32-10 (Salmon et al., SC 2011),
// streams by (seed, step, rank, bucket, op), numbers by element (SPEC.md, "Random numbers").
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace bagua::kernels {

using PhiloxWords = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

constexpr uint32_t kPhiloxMultipliers[2] = {0xd2511f53, 0xcd9e8d57};
constexpr uint32_t kPhiloxWeyl[2] = {0x9e3779b9, 0xbb67ae85};
constexpr int kPhiloxRounds = 10;

constexpr PhiloxWords philox(PhiloxWords counter, PhiloxKey key) {
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t p0 = uint64_t{kPhiloxMultipliers[0]} * counter[0];
    const uint64_t p1 = uint64_t{kPhiloxMultipliers[1]} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += kPhiloxWeyl[0];
    key[1] += kPhiloxWeyl[1];
  }
  return counter;
}

/// The six scalars of a random kernel, in this order.
struct RandomScalars {
  uint64_t seed, step;
  uint64_t rank; ///< All ones where all ranks share the stream.
  uint64_t bucket, op;
  uint64_t first; ///< Index in the bucket of the launch's first element.

  explicit RandomScalars(std::span<const double> scalars)
      : seed(integer(scalars[0])), step(integer(scalars[1])), rank(integer(scalars[2])),
        bucket(integer(scalars[3])), op(integer(scalars[4])), first(integer(scalars[5])) {}

private:
  /// What is no integer in -2^53 … 2^53 counts as 0: its conversion would be undefined.
  static uint64_t integer(double value) {
    return value >= -0x1p53 && value <= 0x1p53 ? static_cast<uint64_t>(static_cast<int64_t>(value))
                                               : 0;
  }
};

/// One stream: 128 bits say which, the element's index counts in it.
struct RandomStream {
  PhiloxKey key;
  uint32_t high[2];

  explicit RandomStream(const RandomScalars &scalars) {
    const auto low = [](uint64_t x) { return static_cast<uint32_t>(x); };
    const auto upper = [](uint64_t x) { return static_cast<uint32_t>(x >> 32); };
    const PhiloxWords outer =
        philox({low(scalars.seed), upper(scalars.seed), low(scalars.step), upper(scalars.step)},
               {low(scalars.op), upper(scalars.op)});
    const PhiloxWords inner = philox({low(scalars.rank) ^ outer[2], upper(scalars.rank) ^ outer[3],
                                      low(scalars.bucket), upper(scalars.bucket)},
                                     {outer[0], outer[1]});
    key = {inner[0], inner[1]};
    high[0] = inner[2];
    high[1] = inner[3];
  }

  /// The four numbers of elements 4 * group … 4 * group + 3.
  PhiloxWords words(uint64_t group) const {
    return philox(
        {static_cast<uint32_t>(group), static_cast<uint32_t>(group >> 32), high[0], high[1]}, key);
  }
  /// The number of element `index`: 32 random bits.
  uint32_t word(uint64_t index) const { return words(index / 4)[index % 4]; }
};

/// In [0, 1), 24 bits.
inline float uniformOf(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

} // namespace bagua::kernels
