// How kernels walk through arrays that fit no cache. Measured on Sapphire Rapids with 4 KiB pages,
// per core: reading is limited by the misses in flight, and hardware prefetches inside 4 KiB pages
// only, so a kernel reads from four pages at once; writing without streaming stores reads every
// line first.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bagua::kernels {

/// Launches that write or read this much of one array use streaming stores: below, whoever reads
/// the result next, often another core, is likely to find it in a cache.
constexpr size_t kStreamBytesMin = size_t{16} << 20;

/// Distance of the four places, in bytes: a page and four lines, so that they use different cache
/// sets.
constexpr size_t kPlaceBytes = 4096 + 256;

constexpr size_t kLineBytes = 64;

/// Addresses to prefetch while a kernel walks on from `begin`: four pages ahead, in turns from four
/// pages. They may lie past the end of the array; a prefetch is a hint and never faults.
class PrefetchCursor {
public:
  explicit PrefetchCursor(const std::byte *begin)
      : base_(reinterpret_cast<uintptr_t>(begin) + kAheadBytes) {}

  /// The next two lines are this one and the one a page after it.
  uintptr_t nextPair() {
    const uintptr_t pair = pair_++;
    return base_ + pair / kWindowPairs * kWindowBytes + pair % 2 * (2 * kPageBytes) +
           pair / 2 % (kPageBytes / kLineBytes) * kLineBytes;
  }

  /// The kernel is at `position`: don't fall behind it.
  void catchUp(const std::byte *position) {
    const uintptr_t at = reinterpret_cast<uintptr_t>(position);
    if (at > base_ + pair_ / kWindowPairs * kWindowBytes)
      pair_ = (at - base_ + kWindowBytes - 1) / kWindowBytes * kWindowPairs;
  }

  static constexpr size_t kPageBytes = 4096;

private:
  static constexpr size_t kAheadBytes = 4 * kPageBytes, kWindowBytes = 4 * kPageBytes;
  static constexpr size_t kWindowPairs = kWindowBytes / kLineBytes / 2;
  uintptr_t base_, pair_ = 0;
};

} // namespace bagua::kernels
