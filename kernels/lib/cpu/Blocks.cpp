// What codec programs do to whole blocks besides their maps, for every instruction-set target: find
// extremes and non-finite elements, fold 64 strided partials, round numbers to codes, and back.
#include "Runs.h"
#include "common/CodecWords.h"
#include "common/Partials.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/Blocks.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "cpu/Minima-inl.h"

HWY_BEFORE_NAMESPACE();
namespace bagua::kernels {
namespace HWY_NAMESPACE {
namespace blocks { // Other sources have operations of the same names.
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::CappedTag<float, kPartials>;

/// Folds keep `held(partial)` and add `held(element)`.
struct Sum {
  template <class V> static HWY_INLINE V held(V v) { return v; }
  template <class D, class V> static HWY_INLINE V join(D, V a, V b) { return hn::Add(a, b); }
};
struct Least {
  template <class V> static HWY_INLINE V held(V v) { return v; }
  template <class D, class V> static HWY_INLINE V join(D d, V a, V b) { return minimum(d, a, b); }
};
struct Greatest {
  template <class V> static HWY_INLINE V held(V v) { return hn::Neg(v); }
  template <class D, class V> static HWY_INLINE V join(D d, V a, V b) { return minimum(d, a, b); }
};

HWY_INLINE const float *floatsAt(const std::byte *x) { // May be unaligned.
  return reinterpret_cast<const float *>(x);
}

HWY_ATTR bool extremes(const std::byte *x, size_t count, float *least, float *greatest) {
  const Floats d;
  const hn::RebindToUnsigned<Floats> du;
  const size_t lanes = hn::Lanes(d);
  float first;
  std::memcpy(&first, x, sizeof first);
  const auto start = hn::Set(d, first);
  auto lo0 = start, lo1 = start, hi0 = start, hi1 = start;
  // x - x is +0 for a finite x, else NaN.
  auto bad0 = hn::Zero(du), bad1 = hn::Zero(du);
  const auto take = [&](auto v, auto &lo, auto &hi, auto &bad) HWY_ATTR {
    lo = hn::Min(lo, v);
    hi = hn::Max(hi, v);
    bad = hn::Or(bad, hn::BitCast(du, hn::Sub(v, v)));
  };
  size_t i = 0;
  for (; count - i >= 2 * lanes; i += 2 * lanes) {
    take(hn::LoadU(d, floatsAt(x) + i), lo0, hi0, bad0);
    take(hn::LoadU(d, floatsAt(x) + i + lanes), lo1, hi1, bad1);
  }
  for (; i < count; i += lanes) { // Padded by the first element.
    const size_t part = std::min(lanes, count - i);
    float padded[hn::MaxLanes(Floats())];
    hn::StoreU(start, d, padded);
    std::memcpy(padded, x + i * sizeof(float), part * sizeof(float));
    take(hn::LoadU(d, padded), lo0, hi0, bad0);
  }
  *least = hn::GetLane(hn::MinOfLanes(d, hn::Min(lo0, lo1)));
  *greatest = hn::GetLane(hn::MaxOfLanes(d, hn::Max(hi0, hi1)));
  return hn::AllTrue(du, hn::Eq(hn::Or(bad0, bad1), hn::Zero(du)));
}

template <class Op>
HWY_ATTR void fold(const std::byte *x, size_t count, float *HWY_RESTRICT partials) {
  const Floats d;
  constexpr size_t kVectors = kPartials / hn::MaxLanes(Floats());
  const size_t lanes = hn::Lanes(d);
  hn::Vec<Floats> sums[kVectors];
  for (size_t a = 0; a < kVectors; ++a)
    sums[a] = Op::held(hn::LoadU(d, partials + a * lanes));
  size_t i = 0, j = 0;
  for (; count - i >= kPartials; i += kPartials)
    for (size_t a = 0; a < kVectors; ++a)
      sums[a] = Op::join(d, sums[a], Op::held(hn::LoadU(d, floatsAt(x) + i + a * lanes)));
  for (size_t a = 0; a < kVectors; ++a)
    hn::StoreU(Op::held(sums[a]), d, partials + a * lanes);
  for (; i < count; i += lanes, j += lanes) {
    const size_t part = std::min(lanes, count - i);
    float padded[hn::MaxLanes(Floats())] = {};
    std::memcpy(padded, x + i * sizeof(float), part * sizeof(float));
    const auto sum = Op::held(hn::LoadU(d, partials + j));
    hn::StoreU(Op::held(Op::join(d, sum, Op::held(hn::LoadU(d, padded)))), d, padded);
    std::memcpy(partials + j, padded, part * sizeof(float));
  }
}

template <class Op, size_t kWidth> HWY_INLINE void halve(float *partials) {
  const hn::CappedTag<float, kWidth> d;
  for (size_t j = 0; j < kWidth; j += hn::Lanes(d)) {
    const auto a = Op::held(hn::LoadU(d, partials + j));
    const auto b = Op::held(hn::LoadU(d, partials + j + kWidth));
    hn::StoreU(Op::held(Op::join(d, a, b)), d, partials + j);
  }
  if constexpr (kWidth > 1)
    halve<Op, kWidth / 2>(partials);
}

template <class Op> HWY_ATTR float tree(float *partials) {
  halve<Op, kPartials / 2>(partials);
  return partials[0];
}

/// Words of saturated and rounded numbers.
struct Rounder {
  hn::Vec<Floats> lowest, highest, shift;

  HWY_INLINE Rounder(float low, float high)
      : lowest(hn::Set(Floats(), low)), highest(hn::Set(Floats(), high)),
        shift(hn::Set(Floats(), kCodeShift)) {}

  HWY_INLINE hn::VFromD<hn::RebindToUnsigned<Floats>> operator()(hn::Vec<Floats> v) const {
    const auto clamped = hn::Min(hn::Max(v, lowest), highest);
    const auto number = hn::IfThenElseZero(hn::Eq(v, v), clamped);
    return hn::BitCast(hn::RebindToUnsigned<Floats>(), hn::Add(number, shift));
  }
};

HWY_ATTR void toWords(const float *q, size_t count, float lowest, float highest, uint32_t *words) {
  const Floats d;
  const hn::RebindToUnsigned<Floats> du;
  const size_t lanes = hn::Lanes(d);
  const Rounder round(lowest, highest);
  size_t i = 0;
  for (; count - i >= lanes; i += lanes)
    hn::StoreU(round(hn::LoadU(d, q + i)), du, words + i);
  if (i == count)
    return;
  float padded[hn::MaxLanes(Floats())] = {};
  std::memcpy(padded, q + i, (count - i) * sizeof(float));
  uint32_t last[hn::MaxLanes(Floats())];
  hn::StoreU(round(hn::LoadU(d, padded)), du, last);
  std::memcpy(words + i, last, (count - i) * sizeof(uint32_t));
}

HWY_ATTR void toBytes(const float *q, size_t count, float lowest, float highest, uint8_t *bytes) {
  const Floats d;
  const hn::Rebind<uint8_t, Floats> d8;
  const size_t lanes = hn::Lanes(d);
  const Rounder round(lowest, highest);
  size_t i = 0;
  for (; count - i >= lanes; i += lanes)
    hn::StoreU(hn::TruncateTo(d8, round(hn::LoadU(d, q + i))), d8, bytes + i);
  if (i == count)
    return;
  float padded[hn::MaxLanes(Floats())] = {};
  std::memcpy(padded, q + i, (count - i) * sizeof(float));
  uint8_t last[hn::MaxLanes(Floats())];
  hn::StoreU(hn::TruncateTo(d8, round(hn::LoadU(d, padded))), d8, last);
  std::memcpy(bytes + i, last, count - i);
}

HWY_ATTR void fromBytes(const uint8_t *bytes, size_t count, uint32_t base, uint32_t flip,
                        uint32_t *words) {
  const hn::RebindToUnsigned<Floats> du;
  const hn::Rebind<uint8_t, Floats> d8;
  const size_t lanes = hn::Lanes(du);
  const auto vectorBase = hn::Set(du, base), vectorFlip = hn::Set(du, flip);
  size_t i = 0;
  for (; count - i >= lanes; i += lanes) {
    const auto code = hn::PromoteTo(du, hn::LoadU(d8, bytes + i));
    hn::StoreU(hn::Add(vectorBase, hn::Xor(code, vectorFlip)), du, words + i);
  }
  for (; i < count; ++i)
    words[i] = base + (bytes[i] ^ flip);
}

} // namespace blocks

const BlockRuns *blockTable() {
  static constexpr BlockRuns kRuns{
      blocks::extremes,
      {blocks::fold<blocks::Greatest>, blocks::fold<blocks::Least>, blocks::fold<blocks::Sum>},
      {blocks::tree<blocks::Greatest>, blocks::tree<blocks::Least>, blocks::tree<blocks::Sum>},
      blocks::toWords,
      blocks::toBytes,
      blocks::fromBytes};
  return &kRuns;
}

} // namespace HWY_NAMESPACE
} // namespace bagua::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bagua::kernels {
HWY_EXPORT(blockTable);

const BlockRuns &blockRuns(int64_t target) {
  hwy::ChosenTarget chosen; // Ours: Highway's own choice is global to the process.
  chosen.Update(target);
  return *HWY_DISPATCH_TABLE(blockTable)[chosen.GetIndex()]();
}

} // namespace bagua::kernels
#endif
