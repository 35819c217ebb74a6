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
      prefetchBytes(cursor, kStep * sizeof(float));
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
  struct Tile {
    float scale;
    std::byte signs[kTile / 8 + 8]; ///< Masks read 8 bytes.
  };

  HWY_INLINE void open(const std::byte *packed, size_t begin, size_t count, Tile &tile) const {
    tile.scale = loadOne<float>(packed, 0);
    std::memcpy(tile.signs, packed + sizeof(float) + begin / 8, codeBytes(count, 1));
  }
  HWY_INLINE bool plain(const Tile &tile) const { return std::isfinite(tile.scale); }
  HWY_INLINE hn::Vec<F32> vector(const Tile &tile, size_t i) const {
    const F32 d;
    const U32 du;
    // Elements of a vector begin anywhere where an output is not aligned.
    const uint32_t bits = static_cast<uint32_t>(loadOne<uint64_t>(tile.signs + i / 8, 0) >> i % 8);
    const auto laneBits = hn::Shl(hn::Set(du, 1), hn::Iota(du, 0));
    const auto negative = hn::RebindMask(d, hn::TestBit(hn::Set(du, bits), laneBits));
    return hn::IfThenElse(negative, hn::Set(d, -tile.scale), hn::Set(d, tile.scale));
  }
  HWY_INLINE float one(const Tile &tile, size_t i) const {
    return signValue(tile.scale, loadCode(tile.signs, i, 1) != 0);
  }
};

HWY_ATTR void decodeReduceSum(const Kernel &kernel, const Args &args, size_t begin, size_t end) {
  decodeFold(Decoder(), kernel, args, begin, end, false);
}

HWY_ATTR void decodeReduceMean(const Kernel &kernel, const Args &args, size_t begin, size_t end) {
  decodeFold(Decoder(), kernel, args, begin, end, true);
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
