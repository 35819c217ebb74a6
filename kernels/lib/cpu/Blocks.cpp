// What codec programs do to whole blocks besides their maps, for every instruction-set target: look
// for non-finite elements, fold 64 strided partials, round numbers to codes, narrow them.
#include "Runs.h"
#include "common/CodecWords.h"
#include "common/Partials.h"

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

struct Sum {
  template <class D, class V> HWY_INLINE V operator()(D, V a, V b) const { return hn::Add(a, b); }
};
struct Least {
  template <class D, class V> HWY_INLINE V operator()(D d, V a, V b) const {
    return minimum(d, a, b);
  }
};
struct Greatest {
  template <class D, class V> HWY_INLINE V operator()(D d, V a, V b) const {
    return maximum(d, a, b);
  }
};

HWY_INLINE const float *floatsAt(const std::byte *x) { // May be unaligned.
  return reinterpret_cast<const float *>(x);
}

HWY_ATTR bool allFinite(const std::byte *x, size_t count) {
  const Floats d;
  const hn::RebindToUnsigned<Floats> du;
  const size_t lanes = hn::Lanes(d);
  const auto exponent = hn::Set(du, 0x7f800000u), one = hn::Set(du, 0x00800000u);
  auto carry = hn::Zero(du); // Out of the exponent, if that is all ones.
  size_t i = 0;
  for (; count - i >= lanes; i += lanes) {
    const auto bits = hn::BitCast(du, hn::LoadU(d, floatsAt(x) + i));
    carry = hn::Or(carry, hn::Add(hn::And(bits, exponent), one));
  }
  uint32_t rest = 0;
  for (; i < count; ++i) {
    uint32_t bits;
    std::memcpy(&bits, x + i * sizeof bits, sizeof bits);
    rest |= (bits & 0x7f800000u) + 0x00800000u;
  }
  const auto top = hn::Set(du, 0x80000000u);
  return rest >> 31 == 0 && hn::AllTrue(du, hn::Eq(hn::And(carry, top), hn::Zero(du)));
}

template <class Op>
HWY_ATTR void fold(const std::byte *x, size_t count, float *HWY_RESTRICT partials) {
  const Floats d;
  const Op op;
  constexpr size_t kVectors = kPartials / hn::MaxLanes(Floats());
  const size_t lanes = hn::Lanes(d);
  hn::Vec<Floats> sums[kVectors];
  for (size_t a = 0; a < kVectors; ++a)
    sums[a] = hn::LoadU(d, partials + a * lanes);
  size_t i = 0, j = 0;
  for (; count - i >= kPartials; i += kPartials)
    for (size_t a = 0; a < kVectors; ++a)
      sums[a] = op(d, sums[a], hn::LoadU(d, floatsAt(x) + i + a * lanes));
  for (size_t a = 0; a < kVectors; ++a)
    hn::StoreU(sums[a], d, partials + a * lanes);
  for (; count - i >= lanes; i += lanes, j += lanes)
    hn::StoreU(op(d, hn::LoadU(d, partials + j), hn::LoadU(d, floatsAt(x) + i)), d, partials + j);
  if (i == count)
    return;
  float padded[hn::MaxLanes(Floats())] = {};
  std::memcpy(padded, x + i * sizeof(float), (count - i) * sizeof(float));
  hn::StoreU(op(d, hn::LoadU(d, partials + j), hn::LoadU(d, padded)), d, padded);
  std::memcpy(partials + j, padded, (count - i) * sizeof(float));
}

HWY_ATTR void toWords(const float *q, size_t count, float lowest, float highest, uint32_t *words) {
  const Floats d;
  const hn::RebindToUnsigned<Floats> du;
  const size_t lanes = hn::Lanes(d);
  auto wordOf = [&](auto v) HWY_ATTR {
    const auto clamped = hn::Min(hn::Max(v, hn::Set(d, lowest)), hn::Set(d, highest));
    const auto number = hn::IfThenElseZero(hn::Eq(v, v), clamped);
    return hn::BitCast(du, hn::Add(number, hn::Set(d, kCodeShift)));
  };
  size_t i = 0;
  for (; count - i >= lanes; i += lanes)
    hn::StoreU(wordOf(hn::LoadU(d, q + i)), du, words + i);
  if (i == count)
    return;
  float padded[hn::MaxLanes(Floats())] = {};
  std::memcpy(padded, q + i, (count - i) * sizeof(float));
  uint32_t last[hn::MaxLanes(Floats())];
  hn::StoreU(wordOf(hn::LoadU(d, padded)), du, last);
  std::memcpy(words + i, last, (count - i) * sizeof(uint32_t));
}

HWY_ATTR void narrow(const uint32_t *words, size_t count, uint32_t mask, uint8_t *bytes) {
  const hn::CappedTag<uint32_t, kPartials> d;
  const hn::Rebind<uint8_t, decltype(d)> d8;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; count - i >= lanes; i += lanes)
    hn::StoreU(hn::TruncateTo(d8, hn::And(hn::LoadU(d, words + i), hn::Set(d, mask))), d8,
               bytes + i);
  for (; i < count; ++i)
    bytes[i] = static_cast<uint8_t>(words[i] & mask);
}

} // namespace blocks

const BlockRuns *blockTable() {
  static constexpr BlockRuns kRuns{
      blocks::allFinite,
      {blocks::fold<blocks::Greatest>, blocks::fold<blocks::Least>, blocks::fold<blocks::Sum>},
      blocks::toWords,
      blocks::narrow};
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
