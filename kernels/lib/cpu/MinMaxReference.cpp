// The reference system's min-max codec for every instruction-set target.
#include "common/MinMaxReference.h"
#include "Runs.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/MinMaxReference.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "cpu/Codec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace bagua::kernels {
namespace HWY_NAMESPACE {
namespace {

constexpr size_t kHeaderBytes = 2 * sizeof(float);

HWY_INLINE MinMaxReferenceBlock blockOf(const std::byte *x, size_t count) {
  const F32 d;
  const size_t lanes = hn::Lanes(d);
  constexpr float kInf = std::numeric_limits<float>::infinity();
  auto lo = hn::Set(d, kInf), hi = hn::Set(d, -kInf);
  size_t i = 0;
  for (; count - i >= lanes; i += lanes) {
    const auto v = hn::LoadU(d, floats(x) + i);
    // Comparisons are false for a NaN; minima of vectors may keep it.
    lo = hn::IfThenElse(hn::Lt(v, lo), v, lo);
    hi = hn::IfThenElse(hn::Gt(v, hi), v, hi);
  }
  float least = hn::GetLane(hn::MinOfLanes(d, lo)), greatest = hn::GetLane(hn::MaxOfLanes(d, hi));
  for (; i < count; ++i) {
    const float v = loadOne<float>(x, i);
    least = v < least ? v : least;
    greatest = v > greatest ? v : greatest;
  }
  return MinMaxReferenceBlock::of(least, greatest);
}

HWY_INLINE void quantize(const MinMaxReferenceBlock &block, const std::byte *x, size_t count,
                         std::byte *codes) {
  const F32 d;
  const U32 du;
  const size_t lanes = hn::Lanes(d);
  const auto scale = hn::Set(d, block.scale), upper = hn::Set(d, block.upper);
  const auto lower = hn::Set(d, block.lower), shift = hn::Set(d, kWrapShift);
  const auto low = hn::Set(du, 0xff);
  size_t i = 0;
  for (; count - i >= lanes; i += lanes) {
    auto level = hn::Round(hn::Mul(hn::LoadU(d, floats(x) + i), scale));
    level = hn::IfThenElse(hn::Lt(level, upper), level, upper);
    const auto code = hn::BitCast(du, hn::Add(hn::Sub(level, lower), shift));
    hn::StoreU(hn::U8FromU32(hn::And(code, low)), U8(), octets(codes) + i);
  }
  for (; i < count; ++i)
    storeOne(codes, i, block.encodeOne(loadOne<float>(x, i)));
}

HWY_ATTR void encode(const Kernel &kernel, const Args &args, size_t begin, size_t end) {
  const size_t block = kernel.packing.block;
  std::byte *packed = args.outputs[0].data() + kernel.packing.bytes(begin);
  for (size_t first = begin; first < end; first += block) {
    const size_t count = std::min(block, end - first);
    const std::byte *x = args.inputs[0].data() + first * sizeof(float);
    const MinMaxReferenceBlock used = blockOf(x, count);
    storeOne(packed, 0, used.lo);
    storeOne(packed, 1, used.hi);
    quantize(used, x, count, packed + kHeaderBytes);
    packed += kernel.packing.blockBytes(count);
  }
}

struct Decoder {
  struct Tile {
    float lo, hi, lower, scale;
    const std::byte *codes;
  };

  HWY_INLINE void open(const std::byte *packed, size_t begin, size_t count, Tile &tile) const {
    const MinMaxReferenceBlock block(loadOne<float>(packed, 0), loadOne<float>(packed, 1));
    tile = {block.lo, block.hi, block.lower, block.scale, packed + kHeaderBytes + begin};
    prefetchAhead(tile.codes, count);
  }
  HWY_INLINE bool plain(const Tile &) const { return true; }
  HWY_INLINE hn::Vec<F32> vector(const Tile &tile, size_t i) const {
    const F32 d;
    const auto code =
        hn::ConvertTo(d, hn::PromoteTo(I32(), hn::LoadU(U8(), octets(tile.codes) + i)));
    const auto v = hn::Div(hn::Add(code, hn::Set(d, tile.lower)), hn::Set(d, tile.scale));
    return hn::IfThenElse(hn::IsNaN(v), hn::Set(d, kNan<float>), v);
  }
  HWY_INLINE float one(const Tile &tile, size_t i) const {
    return MinMaxReferenceBlock(tile.lo, tile.hi).decodeOne(loadOne<uint8_t>(tile.codes, i));
  }
};

HWY_ATTR void decodeReduceSum(const Kernel &kernel, const Args &args, size_t begin, size_t end) {
  decodeFold(Decoder(), kernel, args, begin, end, false);
}

HWY_ATTR void decodeReduceMean(const Kernel &kernel, const Args &args, size_t begin, size_t end) {
  decodeFold(Decoder(), kernel, args, begin, end, true);
}

const CodecRuns *minMaxReferenceTable() {
  static constexpr CodecRuns kRuns{encode, decodeReduceSum, decodeReduceSum, decodeReduceMean};
  return &kRuns;
}

} // namespace
} // namespace HWY_NAMESPACE
} // namespace bagua::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bagua::kernels {
HWY_EXPORT(minMaxReferenceTable);

const CodecRuns &minMaxReferenceRuns(int64_t target) {
  hwy::ChosenTarget chosen; // Ours: Highway's own choice is global to the process.
  chosen.Update(target);
  return *HWY_DISPATCH_TABLE(minMaxReferenceTable)[chosen.GetIndex()]();
}

} // namespace bagua::kernels
#endif
