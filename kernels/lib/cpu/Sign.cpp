// The sign codec for every instruction-set target.
#include "common/Sign.h"
#include "Runs.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/Sign.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "cpu/Codec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace bagua::kernels {
namespace HWY_NAMESPACE {
namespace {

/// Writes the sign bits of `count` elements and returns the sum of their magnitudes.
template <bool kPrefetch>
HWY_INLINE double signsAndSum(const std::byte *x, size_t count, std::byte *signs,
                              PrefetchCursor *cursor) {
  const F64 d;
  const F32 d32;
  const hn::Rebind<float, F64> half;
  constexpr size_t kVectors = kPartials / hn::MaxLanes(F64());
  const size_t lanes = hn::Lanes(d), lanes32 = hn::Lanes(d32);
  const float *p = floats(x);
  HWY_ALIGN double partials[kPartials];
  hn::Vec<F64> sums[kVectors];
  for (size_t a = 0; a < kVectors; ++a)
    sums[a] = hn::Zero(d);
  size_t i = 0;
  for (; count - i >= kStep; i += kStep) {
    if (kPrefetch)
      prefetch(cursor);
    uint64_t bits = 0;
    for (size_t j = 0; j < kStep; j += lanes32) {
      const auto v = hn::LoadU(d32, p + i + j);
      uint8_t mask[8] = {};
      hn::StoreMaskBits(d32, hn::Lt(v, hn::Zero(d32)), mask);
      uint64_t part = 0;
      std::memcpy(&part, mask, sizeof(part));
      bits |= part << j;
    }
    storeOne(signs, i / kStep, bits);
    for (size_t a = 0; a < kVectors; ++a)
      sums[a] = hn::Add(sums[a], hn::Abs(hn::PromoteTo(d, hn::LoadU(half, p + i + a * lanes))));
  }
  for (size_t a = 0; a < kVectors; ++a)
    hn::Store(sums[a], d, partials + a * lanes);
  if (i < count) {
    uint64_t bits = 0;
    for (size_t j = 0; i + j < count; ++j) {
      const float v = loadOne<float>(x, i + j);
      bits |= uint64_t{v < 0.0f} << j;
      partials[j] = partials[j] + (v < 0.0f ? -static_cast<double>(v) : static_cast<double>(v));
    }
    std::memcpy(signs + i / 8, &bits, codeBytes(count - i, 1));
  }
  return foldPartials(partials);
}

template <bool kLarge>
HWY_INLINE void encodeAs(const Kernel &kernel, const Args &args, size_t begin, size_t end) {
  const size_t block = kernel.packing.block;
  PrefetchCursor cursor(args.inputs[0].data() + begin * sizeof(float));
  std::byte *packed = args.outputs[0].data() + kernel.packing.bytes(begin);
  for (size_t first = begin; first < end; first += block) {
    const size_t count = std::min(block, end - first);
    const std::byte *x = args.inputs[0].data() + first * sizeof(float);
    std::byte *signs = packed + sizeof(float);
    const float scale = signScale(signsAndSum<kLarge>(x, count, signs, &cursor), count);
    storeOne(packed, 0, scale);
    if (scale != scale) // Rare.
      std::memset(signs, 0, codeBytes(count, 1));
    packed += kernel.packing.blockBytes(count);
  }
}

HWY_ATTR void encode(const Kernel &kernel, const Args &args, size_t begin, size_t end) {
  if (args.count * sizeof(float) >= kStreamBytesMin)
    encodeAs<true>(kernel, args, begin, end);
  else
    encodeAs<false>(kernel, args, begin, end);
}

struct Decoder {
  /// `begin` is a multiple of 8.
  HWY_INLINE void decode(const std::byte *packed, size_t begin, size_t count, float *y) const {
    const F32 d;
    const U32 du;
    const size_t lanes = hn::Lanes(d);
    const float scale = loadOne<float>(packed, 0);
    if (!std::isfinite(scale)) { // Rare.
      std::fill_n(y, count, kNan<float>);
      return;
    }
    const std::byte *signs = packed + sizeof(float) + begin / 8;
    const auto laneBits = hn::Shl(hn::Set(du, 1), hn::Iota(du, 0));
    const auto positive = hn::Set(d, scale), negative = hn::Set(d, -scale);
    size_t i = 0;
    for (; count - i >= 32; i += 32) {
      const uint32_t bits = loadOne<uint32_t>(signs, i / 32);
      for (size_t j = 0; j < 32; j += lanes) {
        const auto word = hn::Set(du, bits >> j);
        const auto isNegative = hn::RebindMask(d, hn::TestBit(word, laneBits));
        hn::Store(hn::IfThenElse(isNegative, negative, positive), d, y + i + j);
      }
    }
    for (; i < count; ++i)
      y[i] = signValue(scale, loadCode(signs, i, 1) != 0);
  }
};

HWY_ATTR void decodeReduceSum(const Kernel &kernel, const Args &args, size_t begin, size_t end) {
  decodeSum(Decoder(), kernel, args, begin, end);
}

HWY_ATTR void decodeReduceMean(const Kernel &kernel, const Args &args, size_t begin, size_t end) {
  decodeMean(Decoder(), kernel, args, begin, end);
}

const CodecRuns *signTable() {
  static constexpr CodecRuns kRuns{encode, decodeReduceSum, decodeReduceSum, decodeReduceMean};
  return &kRuns;
}

} // namespace
} // namespace HWY_NAMESPACE
} // namespace bagua::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bagua::kernels {
HWY_EXPORT(signTable);

const CodecRuns &signRuns(int64_t target) {
  hwy::ChosenTarget chosen; // Ours: Highway's own choice is global to the process.
  chosen.Update(target);
  return *HWY_DISPATCH_TABLE(signTable)[chosen.GetIndex()]();
}

} // namespace bagua::kernels
#endif
