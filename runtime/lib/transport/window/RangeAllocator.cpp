#include "RangeAllocator.h"

#include "bagua/Status.h"

#include <algorithm>

namespace bagua::rt {

std::optional<size_t> RangeAllocator::allocate(size_t bytes, size_t alignment) {
  for (auto range = free_.begin(); range != free_.end(); ++range) {
    auto [offset, size] = *range;
    size_t start = (offset + alignment - 1) & ~(alignment - 1);
    size_t skipped = start - offset;
    if (skipped > size || size - skipped < bytes)
      continue;
    free_.erase(range);
    if (skipped > 0)
      free_.emplace(offset, skipped);
    if (size_t tail = size - skipped - bytes; tail > 0)
      free_.emplace(start + bytes, tail);
    return start;
  }
  return std::nullopt;
}

void RangeAllocator::free(size_t offset, size_t bytes) {
  auto [range, inserted] = free_.emplace(offset, bytes);
  BAGUA_CHECK(inserted);
  if (auto next = std::next(range); next != free_.end() && offset + bytes == next->first) {
    range->second += next->second;
    free_.erase(next);
  }
  if (range != free_.begin()) {
    auto previous = std::prev(range);
    if (previous->first + previous->second == offset) {
      previous->second += range->second;
      free_.erase(range);
    }
  }
}

size_t RangeAllocator::largestFree() const {
  size_t largest = 0;
  for (auto [offset, bytes] : free_)
    largest = std::max(largest, bytes);
  return largest;
}

} // namespace bagua::rt
