// The topk and randk codecs for every instruction-set target. Blocks are at most 4096 elements:
// what selection and decoding need lies on the stack.
#include "common/Sparse.h"
#include "Runs.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/Sparse.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "cpu/Codec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace bagua::kernels {
namespace HWY_NAMESPACE {
namespace {

constexpr int32_t kInfMagnitude = 0x7f800000;

/// Magnitudes of `count` elements as integers, which compare like them; returns the greatest. Up to
/// a whole number of steps they are followed by -1, which no threshold selects.
HWY_INLINE int32_t magnitudes(const std::byte *x, size_t count, int32_t *keys) {
  const I32 d;
  const size_t lanes = hn::Lanes(d);
  const auto mask = hn::Set(d, 0x7fffffff);
  auto most = hn::Zero(d);
  size_t i = 0;
  for (; count - i >= lanes; i += lanes) {
    const auto key = hn::And(hn::LoadU(d, reinterpret_cast<const int32_t *>(x) + i), mask);
    most = hn::Max(most, key);
    hn::Store(key, d, keys + i);
  }
  int32_t greatest = hn::GetLane(hn::MaxOfLanes(d, most));
  for (; i < count; ++i) {
    keys[i] = loadOne<int32_t>(x, i) & 0x7fffffff;
    greatest = std::max(greatest, keys[i]);
  }
  for (; i % kStep != 0; ++i)
    keys[i] = -1;
  return greatest;
}

/// How many of `count` keys, a whole number of steps, are at least `threshold`.
HWY_INLINE size_t countFrom(const int32_t *keys, size_t count, int32_t threshold) {
  const I32 d;
  const size_t lanes = hn::Lanes(d);
  const auto below = hn::Set(d, threshold - 1);
  auto n0 = hn::Zero(d), n1 = n0;
  for (size_t i = 0; i < count; i += 2 * lanes) { // A mask as a vector is -1.
    n0 = hn::Sub(n0, hn::VecFromMask(d, hn::Gt(hn::Load(d, keys + i), below)));
    n1 = hn::Sub(n1, hn::VecFromMask(d, hn::Gt(hn::Load(d, keys + i + lanes), below)));
  }
  return static_cast<size_t>(hn::GetLane(hn::SumOfLanes(d, hn::Add(n0, n1))));
}

/// The indices of the `entries` greatest of `count` keys, of equal ones the first; ascending.
HWY_INLINE void selectGreatest(const int32_t *keys, size_t count, int32_t greatest, size_t entries,
                               SparseIndex *indices) {
  const size_t padded = (count + kStep - 1) / kStep * kStep;
  // The greatest threshold that at least `entries` keys reach, bit by bit from the top.
  int32_t threshold = 0;
  size_t reached = count;
  for (int bit = static_cast<int>(std::bit_width(static_cast<uint32_t>(greatest))) - 1;
       bit >= 0 && reached != entries; --bit) {
    const int32_t candidate = threshold | (int32_t{1} << bit);
    const size_t n = countFrom(keys, padded, candidate);
    if (n >= entries) {
      threshold = candidate;
      reached = n;
    }
  }
  // Too many reach it: then those equal to it are the surplus, and the last of them go.
  size_t surplus = reached - entries;
  size_t equal = 0;
  if (surplus != 0)
    equal = reached - countFrom(keys, padded, threshold + 1);
  size_t keptEqual = equal - surplus, e = 0;
  const I32 d;
  const size_t lanes = hn::Lanes(d);
  const auto below = hn::Set(d, threshold - 1);
  for (size_t i = 0; i < padded; i += kStep) {
    uint64_t reaching = 0;
    for (size_t j = 0; j < kStep; j += lanes) {
      uint8_t mask[8] = {};
      hn::StoreMaskBits(d, hn::Gt(hn::Load(d, keys + i + j), below), mask);
      uint64_t part = 0;
      std::memcpy(&part, mask, sizeof(part));
      reaching |= part << j;
    }
    for (; reaching != 0; reaching &= reaching - 1) {
      const size_t index = i + static_cast<size_t>(std::countr_zero(reaching));
      if (surplus != 0 && keys[index] == threshold) {
        if (keptEqual == 0)
          continue;
        --keptEqual;
      }
      indices[e++] = static_cast<SparseIndex>(index);
    }
  }
}

HWY_ATTR void topKEncode(const Kernel &kernel, const Args &args, size_t begin, size_t end) {
  HWY_ALIGN int32_t keys[kSparseBlockMax];
  SparseIndex indices[kSparseBlockMax];
  const size_t block = kernel.packing.block;
  std::byte *packed = args.outputs[0].data() + kernel.packing.bytes(begin);
  for (size_t first = begin; first < end; first += block) {
    const size_t count = std::min(block, end - first);
    const size_t entries = sparseEntries(count, kernel.k, kernel.block);
    const std::byte *x = args.inputs[0].data() + first * sizeof(float);
    std::byte *values = packed + entries * sizeof(SparseIndex);
    const int32_t greatest = magnitudes(x, count, keys);
    if (greatest < kInfMagnitude) {
      selectGreatest(keys, count, greatest, entries, indices);
      for (size_t e = 0; e < entries; ++e)
        storeOne(values, e, loadOne<float>(x, indices[e]));
    } else {
      for (size_t e = 0; e < entries; ++e) {
        indices[e] = static_cast<SparseIndex>(e);
        storeOne(values, e, kNan<float>);
      }
    }
    std::memcpy(packed, indices, entries * sizeof(SparseIndex));
    packed = values + entries * sizeof(float);
  }
}

/// Blocks of topk decode whole, then add up.
template <bool kMean>
HWY_ATTR void topKDecodeReduce(const Kernel &kernel, const Args &args, size_t begin, size_t end) {
  HWY_ALIGN float sum[kSparseBlockMax], term[kSparseBlockMax];
  const size_t block = kernel.packing.block;
  size_t offset = kernel.packing.bytes(begin);
  for (size_t first = begin; first < end; first += block) {
    const size_t count = std::min(block, end - first);
    const size_t entries = sparseEntries(count, kernel.k, kernel.block);
    for (size_t k = 0; k < args.inputs.size(); ++k) {
      const std::byte *packed = args.inputs[k].data() + offset;
      scatterEntries(
          packed + entries * sizeof(SparseIndex), entries, count,
          [&](size_t e) { return loadIndex(packed, e); }, k == 0 ? sum : term);
      if (k != 0)
        addTile(term, count, sum);
    }
    std::byte *y = args.outputs[0].data() + first * sizeof(float);
    finishTile(sum, count, finisherOf(kMean, args.inputs.size()), y);
    offset += kernel.packing.blockBytes(count);
  }
}

/// The indices that both ends draw for the block at `first`.
HWY_INLINE void drawBlock(const RandomStream &stream, uint64_t first, size_t count, size_t entries,
                          SparseIndex *indices) {
  HWY_ALIGN uint32_t words[kSparseBlockMax + kWordsSlack];
  drawIndices(fillWords(stream, first, entries, words), count, entries, indices);
}

HWY_INLINE bool allFinite(const std::byte *x, size_t count) {
  const F32 d;
  const size_t lanes = hn::Lanes(d);
  auto bad = hn::Zero(d); // x - x is +0 for a finite x, else NaN.
  size_t i = 0;
  for (; count - i >= lanes; i += lanes) {
    const auto v = hn::LoadU(d, floats(x) + i);
    bad = hn::Or(bad, hn::Sub(v, v));
  }
  bool finite = hn::AllTrue(d, hn::Eq(bad, hn::Zero(d)));
  for (; i < count; ++i) {
    const float v = loadOne<float>(x, i);
    finite = finite && v - v == 0.0f;
  }
  return finite;
}

HWY_ATTR void randKEncode(const Kernel &kernel, const Args &args, size_t begin, size_t end) {
  SparseIndex indices[kSparseBlockMax];
  const RandomScalars scalars(args.scalars);
  const RandomStream stream(scalars);
  const size_t block = kernel.packing.block;
  std::byte *packed = args.outputs[0].data() + kernel.packing.bytes(begin);
  for (size_t first = begin; first < end; first += block) {
    const size_t count = std::min(block, end - first);
    const size_t entries = sparseEntries(count, kernel.k, kernel.block);
    const std::byte *x = args.inputs[0].data() + first * sizeof(float);
    if (allFinite(x, count)) {
      drawBlock(stream, scalars.first + first, count, entries, indices);
      const float factor = randKFactor(count, entries, kernel.scaled != 0);
      for (size_t e = 0; e < entries; ++e)
        storeOne(packed, e, randKValue(loadOne<float>(x, indices[e]), factor));
    } else {
      for (size_t e = 0; e < entries; ++e)
        storeOne(packed, e, kNan<float>);
    }
    packed += entries * sizeof(float);
  }
}

/// All inputs have values at the same places: they add up packed.
template <bool kMean>
HWY_ATTR void randKDecodeReduce(const Kernel &kernel, const Args &args, size_t begin, size_t end) {
  SparseIndex indices[kSparseBlockMax];
  HWY_ALIGN float sum[kSparseBlockMax];
  const RandomScalars scalars(args.scalars);
  const RandomStream stream(scalars);
  const size_t block = kernel.packing.block;
  const float divisor = static_cast<float>(args.inputs.size());
  size_t offset = kernel.packing.bytes(begin);
  for (size_t first = begin; first < end; first += block) {
    const size_t count = std::min(block, end - first);
    const size_t entries = sparseEntries(count, kernel.k, kernel.block);
    bool good = true;
    for (size_t e = 0; e < entries; ++e) {
      float v = loadOne<float>(args.inputs[0].data() + offset, e);
      good = good && v == v;
      for (size_t k = 1; k < args.inputs.size(); ++k) {
        const float term = loadOne<float>(args.inputs[k].data() + offset, e);
        good = good && term == term; // The sum of numbers may be NaN: that is this element's alone.
        v = v + term;
      }
      sum[e] = finishOne(kMean ? v / divisor : v);
    }
    drawBlock(stream, scalars.first + first, count, entries, indices);
    float *y = floats(args.outputs[0].data() + first * sizeof(float));
    std::byte *bytes = args.outputs[0].data() + first * sizeof(float);
    const F32 d;
    const auto fill = hn::Set(d, good ? 0.0f : kNan<float>);
    size_t i = 0;
    for (; count - i >= hn::Lanes(d); i += hn::Lanes(d))
      hn::StoreU(fill, d, y + i);
    for (; i < count; ++i)
      storeOne(bytes, i, good ? 0.0f : kNan<float>);
    if (good)
      for (size_t e = 0; e < entries; ++e)
        storeOne(bytes, indices[e], sum[e]);
    offset += entries * sizeof(float);
  }
}

const CodecRuns *topKTable() {
  static constexpr CodecRuns kRuns{topKEncode, topKDecodeReduce<false>, topKDecodeReduce<false>,
                                   topKDecodeReduce<true>};
  return &kRuns;
}
const CodecRuns *randKTable() {
  static constexpr CodecRuns kRuns{randKEncode, randKDecodeReduce<false>, randKDecodeReduce<false>,
                                   randKDecodeReduce<true>};
  return &kRuns;
}

} // namespace
} // namespace HWY_NAMESPACE
} // namespace bagua::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bagua::kernels {
HWY_EXPORT(topKTable);
HWY_EXPORT(randKTable);

const CodecRuns &topKRuns(int64_t target) {
  hwy::ChosenTarget chosen; // Ours: Highway's own choice is global to the process.
  chosen.Update(target);
  return *HWY_DISPATCH_TABLE(topKTable)[chosen.GetIndex()]();
}

const CodecRuns &randKRuns(int64_t target) {
  hwy::ChosenTarget chosen;
  chosen.Update(target);
  return *HWY_DISPATCH_TABLE(randKTable)[chosen.GetIndex()]();
}

} // namespace bagua::kernels
#endif
