// Ranges neither overlap nor get lost.
#include "window/RangeAllocator.h"

#include "gtest/gtest.h"

#include <random>
#include <vector>

namespace bagua::rt {
namespace {

TEST(RangeAllocatorTest, AlignsAndFillsGaps) {
  RangeAllocator ranges(1 << 16);
  EXPECT_EQ(ranges.allocate(100, 64), 0u);
  EXPECT_EQ(ranges.allocate(100, 4096), 4096u);
  EXPECT_EQ(ranges.allocate(64, 64), 128u) << "the gap before the aligned range is used";
  EXPECT_EQ(ranges.allocate(1 << 17, 64), std::nullopt);
}

TEST(RangeAllocatorTest, NeighboursMergeAgain) {
  RangeAllocator ranges(4096);
  std::vector<size_t> offsets;
  for (int i = 0; i < 4; ++i)
    offsets.push_back(*ranges.allocate(1024, 64));
  EXPECT_EQ(ranges.largestFree(), 0u);
  EXPECT_EQ(ranges.allocate(1, 1), std::nullopt);
  for (size_t i : {2u, 0u, 3u, 1u})
    ranges.free(offsets[i], 1024);
  EXPECT_EQ(ranges.largestFree(), 4096u);
  EXPECT_EQ(ranges.allocate(4096, 4096), 0u);
}

TEST(RangeAllocatorTest, RandomUseNeverOverlaps) {
  constexpr size_t kBytes = 1 << 14;
  RangeAllocator ranges(kBytes);
  std::vector<int> ownerOf(kBytes, 0);
  struct Held {
    size_t offset, bytes;
    int owner;
  };
  std::vector<Held> held;
  std::mt19937 random(7);
  for (int i = 1; i < 4000; ++i) {
    if (random() % 2 == 0 && !held.empty()) {
      std::swap(held[random() % held.size()], held.back());
      Held range = held.back();
      held.pop_back();
      for (size_t b = range.offset; b < range.offset + range.bytes; ++b) {
        ASSERT_EQ(ownerOf[b], range.owner);
        ownerOf[b] = 0;
      }
      ranges.free(range.offset, range.bytes);
      continue;
    }
    size_t bytes = 1 + random() % 700, alignment = size_t{1} << random() % 9;
    std::optional<size_t> offset = ranges.allocate(bytes, alignment);
    if (!offset)
      continue;
    ASSERT_EQ(*offset % alignment, 0u);
    ASSERT_LE(*offset + bytes, kBytes);
    for (size_t b = *offset; b < *offset + bytes; ++b) {
      ASSERT_EQ(ownerOf[b], 0);
      ownerOf[b] = i;
    }
    held.push_back({*offset, bytes, i});
  }
  for (const Held &range : held)
    ranges.free(range.offset, range.bytes);
  EXPECT_EQ(ranges.largestFree(), kBytes);
}

} // namespace
} // namespace bagua::rt
