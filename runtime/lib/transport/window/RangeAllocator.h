// First-fit allocation of ranges of a window.
#pragma once

#include <cstddef>
#include <map>
#include <optional>

namespace bagua::rt {

/// Hands out ranges of [0, bytes). Not thread-safe. O(free ranges) per call; off the data path.
class RangeAllocator {
public:
  explicit RangeAllocator(size_t bytes) : free_{{0, bytes}} {}

  /// `bytes` > 0; `alignment` is a power of two. Empty if no free range is large enough.
  std::optional<size_t> allocate(size_t bytes, size_t alignment);
  /// A range as it was allocated.
  void free(size_t offset, size_t bytes);
  size_t largestFree() const;

private:
  std::map<size_t, size_t> free_; ///< Offset to bytes; neighbours are merged.
};

} // namespace bagua::rt
