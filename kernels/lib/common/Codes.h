// Codes of 1 to 8 bits in a byte string: code i is bits i * bits … i * bits + bits - 1, bit j of
// the string being bit j % 8 of byte j / 8.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bagua::kernels {

constexpr size_t codeBytes(size_t count, int64_t bits) {
  return (count * static_cast<size_t>(bits) + 7) / 8;
}

/// Writes code `index` into bits that are zero.
inline void storeCode(std::byte *codes, size_t index, int64_t bits, unsigned code) {
  const size_t bit = index * static_cast<size_t>(bits);
  codes[bit / 8] |= static_cast<std::byte>(code << (bit % 8));
  if (bit % 8 + static_cast<size_t>(bits) > 8)
    codes[bit / 8 + 1] |= static_cast<std::byte>(code >> (8 - bit % 8));
}

inline uint8_t loadCode(const std::byte *codes, size_t index, int64_t bits) {
  const size_t bit = index * static_cast<size_t>(bits);
  unsigned code = std::to_integer<unsigned>(codes[bit / 8]) >> (bit % 8);
  if (bit % 8 + static_cast<size_t>(bits) > 8)
    code |= std::to_integer<unsigned>(codes[bit / 8 + 1]) << (8 - bit % 8);
  return static_cast<uint8_t>(code & ((1u << bits) - 1));
}

/// Eight codes, one per byte, to 8 * bits bits with the first code lowest; and back.
inline uint64_t packGroup(uint64_t x, int bits) {
  x = (x & 0x00ff00ff00ff00ff) | ((x & 0xff00ff00ff00ff00) >> (8 - bits));
  x = (x & 0x0000ffff0000ffff) | ((x & 0xffff0000ffff0000) >> (16 - 2 * bits));
  return (x & 0x00000000ffffffff) | ((x & 0xffffffff00000000) >> (32 - 4 * bits));
}
inline uint64_t unpackGroup(uint64_t x, int bits) {
  const uint64_t mask4 = (uint64_t{1} << (4 * bits)) - 1;
  const uint64_t mask2 = ((uint64_t{1} << (2 * bits)) - 1) * 0x0000000100000001;
  const uint64_t mask1 = ((uint64_t{1} << bits) - 1) * 0x0001000100010001;
  x = (x & mask4) | ((x << (32 - 4 * bits)) & (mask4 << 32));
  x = (x & mask2) | ((x << (16 - 2 * bits)) & (mask2 << 16));
  return (x & mask1) | ((x << (8 - bits)) & (mask1 << 8));
}

} // namespace bagua::kernels
