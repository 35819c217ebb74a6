// The f16 and bf16 codecs for every instruction-set target.
#include "common/Half.h"
#include "Runs.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/Half.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "cpu/Codec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace bagua::kernels {
namespace HWY_NAMESPACE {
namespace {

using U16 = hn::ScalableTag<uint16_t>;
using HalfU16 = hn::Half<U16>; // As many numbers as F32 has lanes.

/// F16 and BF16 of common/Half.h, in vectors.
struct F16Vectors {
  using One = F16;

  HWY_INLINE hn::Vec<U32> encode(hn::Vec<F32> x) const {
    const F32 df;
    const U32 d;
    const I32 di;
    const auto bits = hn::BitCast(d, x), a = hn::And(bits, hn::Set(d, ~kF32SignBit));
    const auto shift = hn::Set(df, F16::kDenormalShift);
    const auto small =
        hn::Sub(hn::BitCast(d, hn::Add(hn::BitCast(df, a), shift)), hn::BitCast(d, shift));
    const auto odd = hn::And(hn::ShiftRight<13>(a), hn::Set(d, 1));
    const auto large =
        hn::ShiftRight<13>(hn::Add(hn::Add(a, hn::Set(d, 0xfff - F16::kRebias)), odd));
    const auto signedA = hn::BitCast(di, a); // Not negative.
    auto h = hn::BitCast(
        d, hn::Min(hn::BitCast(di, large), hn::Set(di, static_cast<int32_t>(F16::kMax))));
    h = select(hn::Lt(signedA, hn::Set(di, static_cast<int32_t>(F16::kNormalMin))), small, h);
    const auto infinite = hn::Set(di, static_cast<int32_t>(kF32Inf));
    h = select(hn::Eq(signedA, infinite), hn::Set(d, F16::kInf), h);
    h = hn::Or(h, hn::ShiftRight<16>(hn::And(bits, hn::Set(d, kF32SignBit))));
    return select(hn::Gt(signedA, infinite), hn::Set(d, F16::kNan), h);
  }

  HWY_INLINE hn::Vec<F32> decode(hn::Vec<U32> h) const {
    const F32 df;
    const U32 d;
    const auto a = hn::ShiftLeft<13>(hn::And(h, hn::Set(d, 0x7fff)));
    const auto exponent = hn::And(h, hn::Set(d, F16::kInf));
    const auto one = hn::Set(d, F16::kNormalMin);
    const auto small =
        hn::BitCast(d, hn::Sub(hn::BitCast(df, hn::Add(a, one)), hn::BitCast(df, one)));
    auto y = hn::Add(a, hn::Set(d, F16::kRebias));
    y = hn::IfThenElse(hn::Eq(exponent, hn::Zero(d)), small, y);
    const auto mantissa = hn::And(h, hn::Set(d, 0x3ff));
    const auto special = hn::IfThenElse(hn::Eq(mantissa, hn::Zero(d)), hn::Set(d, kF32Inf),
                                        hn::Set(d, std::bit_cast<uint32_t>(kNan<float>)));
    const auto signBit = hn::ShiftLeft<16>(hn::And(h, hn::Set(d, 0x8000)));
    // A NaN has no sign.
    const auto isNan =
        hn::IfThenElse(hn::Eq(exponent, hn::Set(d, F16::kInf)), mantissa, hn::Zero(d));
    y = hn::IfThenElse(hn::Eq(exponent, hn::Set(d, F16::kInf)), special, y);
    return hn::BitCast(df, hn::IfThenElse(hn::Eq(isNan, hn::Zero(d)), hn::Or(y, signBit), y));
  }

private:
  template <class Mask>
  static HWY_INLINE hn::Vec<U32> select(Mask mask, hn::Vec<U32> yes, hn::Vec<U32> no) {
    return hn::IfThenElse(hn::RebindMask(U32(), mask), yes, no);
  }
};

struct BF16Vectors {
  using One = BF16;

  HWY_INLINE hn::Vec<U32> encode(hn::Vec<F32> x) const {
    const U32 d;
    const I32 di;
    const auto bits = hn::BitCast(d, x), a = hn::And(bits, hn::Set(d, ~kF32SignBit));
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1));
    auto h = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(d, 0x7fff)), odd));
    const auto signedA = hn::BitCast(di, a); // Not negative.
    const auto infinite = hn::Set(di, static_cast<int32_t>(kF32Inf));
    const auto saturated =
        hn::And(hn::Gt(signedA, hn::Set(di, static_cast<int32_t>(BF16::kSaturated - 1))),
                hn::Lt(signedA, infinite));
    h = hn::IfThenElse(hn::RebindMask(d, saturated), hn::Sub(h, hn::Set(d, 1)), h);
    return hn::IfThenElse(hn::RebindMask(d, hn::Gt(signedA, infinite)), hn::Set(d, BF16::kNan), h);
  }

  HWY_INLINE hn::Vec<F32> decode(hn::Vec<U32> h) const {
    const F32 df;
    const auto y = hn::BitCast(df, hn::ShiftLeft<16>(h));
    return hn::IfThenElse(hn::IsNaN(y), hn::Set(df, kNan<float>), y);
  }
};

template <class Vectors> struct HalfDecoder {
  struct Tile {
    const std::byte *halves;
  };

  HWY_INLINE void open(const std::byte *packed, size_t begin, size_t count, Tile &tile) const {
    tile.halves = packed + begin * sizeof(uint16_t);
    prefetchAhead(tile.halves, count * sizeof(uint16_t));
  }
  HWY_INLINE bool plain(const Tile &) const { return true; }
  HWY_INLINE hn::Vec<F32> vector(const Tile &tile, size_t i) const {
    const uint16_t *h = reinterpret_cast<const uint16_t *>(tile.halves) + i; // Only for LoadU.
    return Vectors().decode(hn::PromoteTo(U32(), hn::LoadU(HalfU16(), h)));
  }
  HWY_INLINE float one(const Tile &tile, size_t i) const {
    return Vectors::One::decodeOne(loadOne<uint16_t>(tile.halves, i));
  }
};

template <class Vectors, bool kLarge>
HWY_INLINE void encodeHalf(const std::byte *x, size_t count, std::byte *packed) {
  const F32 d;
  const I32 di;
  const U16 d16;
  const size_t lanes = hn::Lanes(d);
  const float *source = floats(x);
  uint16_t *target = reinterpret_cast<uint16_t *>(packed); // Aligned where streamed.
  const auto one = [&](size_t i) {
    storeOne(packed, i, Vectors::One::encodeOne(loadOne<float>(x, i)));
  };
  size_t i = 0;
  if (kLarge)
    for (; i < count && reinterpret_cast<uintptr_t>(target + i) % kLineBytes != 0; ++i)
      one(i);
  PrefetchCursor cursor(x);
  for (; count - i >= kStep; i += kStep) {
    if (kLarge)
      prefetchBytes(&cursor, kStep * sizeof(float));
    for (size_t j = i; j < i + kStep; j += 2 * lanes) {
      const auto low = Vectors().encode(hn::LoadU(d, source + j));
      const auto high = Vectors().encode(hn::LoadU(d, source + j + lanes));
      const auto both = hn::Combine(d16, hn::DemoteTo(HalfU16(), hn::BitCast(di, high)),
                                    hn::DemoteTo(HalfU16(), hn::BitCast(di, low)));
      if (kLarge)
        hn::Stream(both, d16, target + j);
      else
        hn::StoreU(both, d16, target + j);
    }
  }
  for (; i < count; ++i)
    one(i);
  if (kLarge)
    hwy::FlushStream();
}

template <class Vectors>
HWY_ATTR void encode(const Kernel &, const Args &args, size_t begin, size_t end) {
  const std::byte *x = args.inputs[0].data() + begin * sizeof(float);
  std::byte *packed = args.outputs[0].data() + begin * sizeof(uint16_t);
  if (args.count * sizeof(float) >= kStreamBytesMin &&
      reinterpret_cast<uintptr_t>(packed) % sizeof(uint16_t) == 0)
    encodeHalf<Vectors, true>(x, end - begin, packed);
  else
    encodeHalf<Vectors, false>(x, end - begin, packed);
}

template <class Vectors>
HWY_ATTR void decodeSumOf(const Kernel &kernel, const Args &args, size_t begin, size_t end) {
  decodeFold(HalfDecoder<Vectors>(), kernel, args, begin, end, false);
}

template <class Vectors>
HWY_ATTR void decodeMeanOf(const Kernel &kernel, const Args &args, size_t begin, size_t end) {
  decodeFold(HalfDecoder<Vectors>(), kernel, args, begin, end, true);
}

template <class Vectors> const CodecRuns *halfRuns() {
  static constexpr CodecRuns kRuns{encode<Vectors>, decodeSumOf<Vectors>, decodeSumOf<Vectors>,
                                   decodeMeanOf<Vectors>};
  return &kRuns;
}
const CodecRuns *f16Table() { return halfRuns<F16Vectors>(); }
const CodecRuns *bf16Table() { return halfRuns<BF16Vectors>(); }

} // namespace
} // namespace HWY_NAMESPACE
} // namespace bagua::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bagua::kernels {
HWY_EXPORT(f16Table);
HWY_EXPORT(bf16Table);

const CodecRuns &f16Runs(int64_t target) {
  hwy::ChosenTarget chosen; // Ours: Highway's own choice is global to the process.
  chosen.Update(target);
  return *HWY_DISPATCH_TABLE(f16Table)[chosen.GetIndex()]();
}

const CodecRuns &bf16Runs(int64_t target) {
  hwy::ChosenTarget chosen;
  chosen.Update(target);
  return *HWY_DISPATCH_TABLE(bf16Table)[chosen.GetIndex()]();
}

} // namespace bagua::kernels
#endif
