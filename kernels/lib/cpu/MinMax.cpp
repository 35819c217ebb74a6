// The min-max codec for every instruction-set target.
#include "common/MinMax.h"
#include "Runs.h"
#include "common/Sweep.h"

#include <algorithm>
#include <bit>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/MinMax.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bagua::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using U32 = hn::RebindToUnsigned<F32>;
using I32 = hn::RebindToSigned<F32>;
using U8 = hn::Rebind<uint8_t, F32>; // As many bytes as F32 has lanes.
using U64 = hn::ScalableTag<uint64_t>;

/// Elements worked on at a time: their bytes stay in the first-level cache.
constexpr size_t kTile = 512;

HWY_INLINE const float *floats(const std::byte *bytes) {
  return reinterpret_cast<const float *>(bytes); // Only for LoadU: may be unaligned.
}
HWY_INLINE float *floats(std::byte *bytes) { return reinterpret_cast<float *>(bytes); }
HWY_INLINE const uint8_t *octets(const std::byte *bytes) {
  return reinterpret_cast<const uint8_t *>(bytes);
}
HWY_INLINE uint8_t *octets(std::byte *bytes) { return reinterpret_cast<uint8_t *>(bytes); }

/// Elements per step of the loops below. Each step prefetches two of the four lines that its
/// elements fill: both passes of an encoding do it.
constexpr size_t kStep = 64;
static_assert(HWY_MAX_BYTES <= kStep / 2 * sizeof(float),
              "blockHeader takes two vectors at a time");

HWY_INLINE void prefetch(PrefetchCursor *cursor) {
  const uintptr_t address = cursor->nextPair();
  hwy::Prefetch(reinterpret_cast<const std::byte *>(address));
  hwy::Prefetch(reinterpret_cast<const std::byte *>(address + PrefetchCursor::kPageBytes));
}

/// Header of the block of `count` >= 1 elements at `x`.
template <bool kPrefetch>
HWY_INLINE MinMaxHeader blockHeader(const std::byte *x, size_t count, int64_t bits,
                                    PrefetchCursor *cursor) {
  const F32 d;
  const U32 du;
  const size_t lanes = hn::Lanes(d);
  const float *p = floats(x);
  const auto start = hn::Set(d, loadOne<float>(x, 0));
  auto lo0 = start, lo1 = start, hi0 = start, hi1 = start;
  // x - x is +0 for a finite x, else NaN; minimum and maximum cannot be trusted to carry NaN.
  auto bad0 = hn::Zero(du), bad1 = hn::Zero(du);
  size_t i = 0;
  for (; count - i >= kStep; i += kStep) {
    if (kPrefetch)
      prefetch(cursor);
    for (size_t j = 0; j < kStep; j += 2 * lanes) {
      const auto v0 = hn::LoadU(d, p + i + j), v1 = hn::LoadU(d, p + i + j + lanes);
      lo0 = hn::Min(lo0, v0), lo1 = hn::Min(lo1, v1);
      hi0 = hn::Max(hi0, v0), hi1 = hn::Max(hi1, v1);
      bad0 = hn::Or(bad0, hn::BitCast(du, hn::Sub(v0, v0)));
      bad1 = hn::Or(bad1, hn::BitCast(du, hn::Sub(v1, v1)));
    }
  }
  for (; count - i >= lanes; i += lanes) {
    const auto v = hn::LoadU(d, p + i);
    lo0 = hn::Min(lo0, v);
    hi0 = hn::Max(hi0, v);
    bad0 = hn::Or(bad0, hn::BitCast(du, hn::Sub(v, v)));
  }
  float lo = hn::GetLane(hn::MinOfLanes(d, hn::Min(lo0, lo1)));
  float hi = hn::GetLane(hn::MaxOfLanes(d, hn::Max(hi0, hi1)));
  bool finite = hn::AllTrue(du, hn::Eq(hn::Or(bad0, bad1), hn::Zero(du)));
  for (; i < count; ++i) {
    const float value = loadOne<float>(x, i);
    finite = finite && value - value == 0.0f;
    lo = value < lo ? value : lo;
    hi = value > hi ? value : hi;
  }
  return finite ? minMaxHeader(lo, hi, bits) : kMinMaxNonFinite;
}

/// MinMaxEncoder::encodeOne, in vectors; without the multiplication by a scale of 1.
template <bool kScaled> struct Quantizer {
  hn::Vec<F32> lo, inverse, scale, levels, shift;
  hn::Vec<U32> low;

  explicit HWY_INLINE Quantizer(const MinMaxEncoder &encoder)
      : lo(hn::Set(F32(), encoder.lo)), inverse(hn::Set(F32(), encoder.inverse)),
        scale(hn::Set(F32(), encoder.scale)), levels(hn::Set(F32(), encoder.levels)),
        shift(hn::Set(F32(), kRoundingShift)), low(hn::Set(U32(), 0xff)) {}

  HWY_INLINE void operator()(const float *x, uint8_t *codes) const {
    auto v = hn::LoadU(F32(), x);
    if (kScaled)
      v = hn::Mul(v, scale);
    v = hn::Min(hn::Mul(hn::Sub(v, lo), inverse), levels);
    const auto code = hn::And(hn::BitCast(U32(), hn::Add(v, shift)), low);
    hn::StoreU(hn::U8FromU32(code), U8(), codes);
  }
};

template <bool kScaled, bool kPrefetch>
HWY_INLINE void quantizeAs(const MinMaxEncoder &encoder, const std::byte *x, size_t count,
                           uint8_t *codes, PrefetchCursor *cursor) {
  const size_t lanes = hn::Lanes(F32());
  const Quantizer<kScaled> quantizer(encoder);
  size_t i = 0;
  for (; count - i >= kStep; i += kStep) {
    if (kPrefetch)
      prefetch(cursor);
    for (size_t j = 0; j < kStep; j += lanes)
      quantizer(floats(x) + i + j, codes + i + j);
  }
  for (; count - i >= lanes; i += lanes)
    quantizer(floats(x) + i, codes + i);
  for (; i < count; ++i)
    codes[i] = encoder.encodeOne(loadOne<float>(x, i));
}

template <bool kPrefetch>
HWY_INLINE void quantize(const MinMaxEncoder &encoder, const std::byte *x, size_t count,
                         uint8_t *codes, PrefetchCursor *cursor) {
  if (encoder.scale == 1.0f) // Multiplying by 1 changes nothing.
    quantizeAs<false, kPrefetch>(encoder, x, count, codes, cursor);
  else
    quantizeAs<true, kPrefetch>(encoder, x, count, codes, cursor);
}

/// Packs `count` codes into `target`, which has room for exactly their bytes. Destroys `codes`,
/// whose array must have room for full groups of eight vectors.
HWY_INLINE void pack(uint8_t *codes, size_t count, int bits, std::byte *target) {
  const U64 d;
  const hn::Repartition<uint8_t, U64> d8;
  const size_t groups = (count + 7) / 8;
  std::fill(codes + count, codes + groups * 8, uint8_t{0});
  const auto even8 = hn::Set(d, 0x00ff00ff00ff00ff), odd8 = hn::Set(d, 0xff00ff00ff00ff00);
  const auto even16 = hn::Set(d, 0x0000ffff0000ffff), odd16 = hn::Set(d, 0xffff0000ffff0000);
  const auto even32 = hn::Set(d, 0x00000000ffffffff), odd32 = hn::Set(d, 0xffffffff00000000);
  const size_t lanes = hn::Lanes(d);
  for (size_t g = 0; g < groups; g += lanes) { // packGroup, in vectors.
    auto v = hn::BitCast(d, hn::Load(d8, codes + g * 8));
    v = hn::Or(hn::And(v, even8), hn::ShiftRightSame(hn::And(v, odd8), 8 - bits));
    v = hn::Or(hn::And(v, even16), hn::ShiftRightSame(hn::And(v, odd16), 16 - 2 * bits));
    v = hn::Or(hn::And(v, even32), hn::ShiftRightSame(hn::And(v, odd32), 32 - 4 * bits));
    hn::Store(hn::BitCast(d8, v), d8, codes + g * 8);
  }
  const size_t bytes = minMaxCodeBytes(count, bits), step = static_cast<size_t>(bits);
  size_t g = 0;
  for (; g * step + 8 <= bytes; ++g) // The surplus bytes are overwritten by the next group.
    std::memcpy(target + g * step, codes + g * 8, 8);
  for (; g < groups; ++g)
    std::memcpy(target + g * step, codes + g * 8, std::min(step, bytes - g * step));
}

/// The inverse; reads exactly the bytes of `count` codes.
HWY_INLINE void unpack(const std::byte *source, size_t count, int bits, uint8_t *codes) {
  const U64 d;
  const hn::Repartition<uint8_t, U64> d8;
  const size_t groups = (count + 7) / 8;
  const size_t bytes = minMaxCodeBytes(count, bits), step = static_cast<size_t>(bits);
  size_t g = 0;
  for (; g * step + 8 <= bytes; ++g)
    std::memcpy(codes + g * 8, source + g * step, 8);
  for (; g < groups; ++g)
    std::memcpy(codes + g * 8, source + g * step, std::min(step, bytes - g * step));
  const uint64_t low4 = (uint64_t{1} << (4 * bits)) - 1;
  const uint64_t low2 = ((uint64_t{1} << (2 * bits)) - 1) * 0x0000000100000001;
  const uint64_t low1 = ((uint64_t{1} << bits) - 1) * 0x0001000100010001;
  const auto even32 = hn::Set(d, low4), odd32 = hn::Set(d, low4 << 32);
  const auto even16 = hn::Set(d, low2), odd16 = hn::Set(d, low2 << 16);
  const auto even8 = hn::Set(d, low1), odd8 = hn::Set(d, low1 << 8);
  const size_t lanes = hn::Lanes(d);
  for (g = 0; g < groups; g += lanes) { // unpackGroup, in vectors.
    auto v = hn::BitCast(d, hn::Load(d8, codes + g * 8));
    v = hn::Or(hn::And(v, even32), hn::And(hn::ShiftLeftSame(v, 32 - 4 * bits), odd32));
    v = hn::Or(hn::And(v, even16), hn::And(hn::ShiftLeftSame(v, 16 - 2 * bits), odd16));
    v = hn::Or(hn::And(v, even8), hn::And(hn::ShiftLeftSame(v, 8 - bits), odd8));
    hn::Store(hn::BitCast(d8, v), d8, codes + g * 8);
  }
}

/// Where packed bytes go: straight to the output, or, for streaming stores, through whole cache
/// lines.
template <bool kStream> class PackedWriter {
public:
  explicit HWY_INLINE PackedWriter(std::byte *target) : target_(target) {
    if (kStream) { // The first line begins before the output: its first bytes belong to others.
      fill_ = skip_ = reinterpret_cast<uintptr_t>(target) % kLineBytes;
      target_ -= skip_;
    }
  }

  /// Room for the next kTile bytes, or a header.
  HWY_INLINE std::byte *next() { return kStream ? lines_ + fill_ : target_; }

  HWY_INLINE void advance(size_t bytes) {
    if (!kStream) {
      target_ += bytes;
      return;
    }
    fill_ += bytes;
    size_t done = 0;
    if (skip_ != 0 && fill_ >= kLineBytes) {
      std::memcpy(target_ + skip_, lines_ + skip_, kLineBytes - skip_);
      skip_ = 0;
      done = kLineBytes;
    }
    const hn::ScalableTag<uint8_t> d;
    for (; done + kLineBytes <= fill_; done += kLineBytes)
      for (size_t i = 0; i < kLineBytes; i += hn::Lanes(d))
        hn::Stream(hn::Load(d, octets(lines_ + done + i)), d, octets(target_ + done + i));
    if (done != 0) // Less than a line is left.
      std::memcpy(lines_, lines_ + done, kLineBytes);
    target_ += done;
    fill_ -= done;
  }

  HWY_INLINE void finish() {
    if (!kStream)
      return;
    std::memcpy(target_ + skip_, lines_ + skip_, fill_ - skip_);
    hwy::FlushStream();
  }

private:
  std::byte *target_;
  size_t fill_ = 0, skip_ = 0;
  alignas(kLineBytes) std::byte lines_[kStream ? kTile + 3 * kLineBytes : 1];
};

template <bool kLarge>
HWY_INLINE void encodeAs(const Kernel &kernel, const Args &args, size_t begin, size_t end) {
  HWY_ALIGN uint8_t tile[kTile];
  const size_t block = static_cast<size_t>(kernel.block);
  const int bits = static_cast<int>(kernel.bits);
  const std::byte *x = args.inputs[0].data();
  PrefetchCursor cursor(x + begin * sizeof(float));
  PackedWriter<kLarge> writer(args.outputs[0].data() +
                              minmaxPackedBytes(begin, kernel.bits, kernel.block));
  for (size_t first = begin; first < end; first += block) {
    const size_t count = std::min(block, end - first);
    const std::byte *source = x + first * sizeof(float);
    if (kLarge)
      cursor.catchUp(source);
    const MinMaxHeader header = blockHeader<kLarge>(source, count, bits, &cursor);
    storeHeader(writer.next(), header);
    writer.advance(sizeof(header));
    const MinMaxEncoder encoder(header, bits);
    for (size_t done = 0; done < count; done += kTile) {
      const size_t part = std::min(kTile, count - done), bytes = minMaxCodeBytes(part, bits);
      if (!(header.step > 0.0f)) { // Constant, or not finite.
        std::memset(writer.next(), 0, bytes);
      } else if (bits == 8) {
        quantize<kLarge>(encoder, source + done * sizeof(float), part, octets(writer.next()),
                         &cursor);
      } else {
        quantize<kLarge>(encoder, source + done * sizeof(float), part, tile, &cursor);
        pack(tile, part, bits, writer.next());
      }
      writer.advance(bytes);
    }
  }
  writer.finish();
}

HWY_ATTR void encode(const Kernel &kernel, const Args &args, size_t begin, size_t end) {
  if (args.count * sizeof(float) >= kStreamBytesMin)
    encodeAs<true>(kernel, args, begin, end);
  else
    encodeAs<false>(kernel, args, begin, end);
}

/// What a decode-reduce does to the sum in the end.
enum class Finish : uint8_t { Nothing, Multiply, Divide };

/// Inputs that are decoded side by side; more are summed group by group.
constexpr size_t kGroup = 16;

/// One tile of up to kGroup inputs.
struct Group {
  size_t inputs = 0;
  bool plain = true; ///< All blocks finite, none wide: `lo` and `step` say it all.
  float lo[kGroup], step[kGroup];
  const uint8_t *codes[kGroup]; ///< One byte each.
  MinMaxHeader header[kGroup];
};

/// y = (sum +) decode(input 0) + decode(input 1) + …, finished with `operand`. `y` may be `sum`.
template <bool kAdd, Finish kFinish> struct GroupFold {
  const Group &group;
  float operand;
  const std::byte *sum;
  std::byte *y;

  HWY_INLINE void one(size_t i) const {
    float v = kAdd ? loadOne<float>(sum, i) : 0.0f;
    for (size_t k = 0; k < group.inputs; ++k) {
      const float x = MinMaxDecoder(group.header[k]).decodeOne(group.codes[k][i]);
      v = !kAdd && k == 0 ? x : v + x;
    }
    if (kFinish == Finish::Multiply)
      v = v * operand;
    if (kFinish == Finish::Divide)
      v = v / operand;
    storeOne<float>(y, i, kFinish == Finish::Nothing ? v : finishOne(v));
  }

  HWY_INLINE hn::Vec<F32> decode(hn::Vec<F32> lo, hn::Vec<F32> step, const uint8_t *codes) const {
    const auto code = hn::ConvertTo(F32(), hn::PromoteTo(I32(), hn::LoadU(U8(), codes)));
    return hn::Add(lo, hn::Mul(code, step));
  }

  template <bool kStream> HWY_INLINE void finish(hn::Vec<F32> v, size_t i) const {
    const F32 d;
    if (kFinish == Finish::Multiply)
      v = hn::Mul(v, hn::Set(d, operand));
    if (kFinish == Finish::Divide)
      v = hn::Div(v, hn::Set(d, operand));
    if (kFinish != Finish::Nothing)
      v = hn::IfThenElse(hn::IsNaN(v), hn::Set(d, kNan<float>), v);
    if (kStream)
      hn::Stream(v, d, floats(y) + i);
    else
      hn::StoreU(v, d, floats(y) + i);
  }

  template <bool kStream> HWY_INLINE void many(size_t count) const {
    const F32 d;
    const size_t lanes = hn::Lanes(d);
    const size_t start = kAdd ? 0 : 1; // The first input that is added.
    const auto lo0 = hn::Set(d, group.lo[0]), step0 = hn::Set(d, group.step[0]);
    size_t i = 0;
    if (kStream) // Streaming stores are aligned.
      for (; i < count && reinterpret_cast<uintptr_t>(floats(y) + i) % kLineBytes != 0; ++i)
        one(i);
    for (; count - i >= 4 * lanes; i += 4 * lanes) {
      hn::Vec<F32> v0, v1, v2, v3;
      if (kAdd) {
        const float *s = floats(sum) + i;
        v0 = hn::LoadU(d, s), v1 = hn::LoadU(d, s + lanes);
        v2 = hn::LoadU(d, s + 2 * lanes), v3 = hn::LoadU(d, s + 3 * lanes);
      } else {
        const uint8_t *c = group.codes[0] + i;
        v0 = decode(lo0, step0, c), v1 = decode(lo0, step0, c + lanes);
        v2 = decode(lo0, step0, c + 2 * lanes), v3 = decode(lo0, step0, c + 3 * lanes);
      }
      for (size_t k = start; k < group.inputs; ++k) {
        const auto lo = hn::Set(d, group.lo[k]), step = hn::Set(d, group.step[k]);
        const uint8_t *c = group.codes[k] + i;
        v0 = hn::Add(v0, decode(lo, step, c));
        v1 = hn::Add(v1, decode(lo, step, c + lanes));
        v2 = hn::Add(v2, decode(lo, step, c + 2 * lanes));
        v3 = hn::Add(v3, decode(lo, step, c + 3 * lanes));
      }
      finish<kStream>(v0, i), finish<kStream>(v1, i + lanes);
      finish<kStream>(v2, i + 2 * lanes), finish<kStream>(v3, i + 3 * lanes);
    }
    for (; i < count; ++i)
      one(i);
  }

  HWY_INLINE void run(size_t count, bool stream) const {
    if (!group.plain) // Rare.
      for (size_t i = 0; i < count; ++i)
        one(i);
    else if (stream)
      many<true>(count);
    else
      many<false>(count);
  }
};

/// Prefetches `bytes` that lie some tiles after `source`.
HWY_INLINE void prefetchAhead(const std::byte *source, size_t bytes) {
  const uintptr_t first = reinterpret_cast<uintptr_t>(source) + 4 * kTile;
  for (size_t i = 0; i < bytes; i += kLineBytes)
    hwy::Prefetch(reinterpret_cast<const std::byte *>(first + i));
}

template <Finish kFinish>
HWY_INLINE void decodeReduceAs(const Kernel &kernel, const Args &args, size_t begin, size_t end,
                               float operand) {
  HWY_ALIGN uint8_t unpacked[kGroup][kTile];
  HWY_ALIGN float sums[kTile];
  std::byte *sum = reinterpret_cast<std::byte *>(sums);
  const size_t block = static_cast<size_t>(kernel.block);
  const int bits = static_cast<int>(kernel.bits);
  const bool stream = args.count * sizeof(float) >= kStreamBytesMin &&
                      reinterpret_cast<uintptr_t>(args.outputs[0].data()) % sizeof(float) == 0;
  size_t offset = minmaxPackedBytes(begin, kernel.bits, kernel.block);
  for (size_t first = begin; first < end; first += block) {
    const size_t count = std::min(block, end - first);
    for (size_t done = 0; done < count; done += kTile) {
      const size_t part = std::min(kTile, count - done);
      std::byte *y = args.outputs[0].data() + (first + done) * sizeof(float);
      for (size_t base = 0; base < args.inputs.size(); base += kGroup) {
        Group group;
        group.inputs = std::min(kGroup, args.inputs.size() - base);
        for (size_t k = 0; k < group.inputs; ++k) {
          const std::byte *packed = args.inputs[base + k].data() + offset;
          const MinMaxDecoder decoder(loadHeader(packed));
          group.header[k] = loadHeader(packed);
          group.lo[k] = decoder.lo;
          group.step[k] = decoder.step;
          group.plain = group.plain && decoder.finite && !decoder.wide;
          const std::byte *source = packed + sizeof(MinMaxHeader) + minMaxCodeBytes(done, bits);
          if (stream)
            prefetchAhead(source, minMaxCodeBytes(part, bits));
          group.codes[k] = bits == 8 ? octets(source) : unpacked[k];
          if (bits != 8)
            unpack(source, part, bits, unpacked[k]);
        }
        const bool last = base + kGroup >= args.inputs.size();
        if (base == 0 && last)
          GroupFold<false, kFinish>{group, operand, sum, y}.run(part, stream);
        else if (base == 0)
          GroupFold<false, Finish::Nothing>{group, operand, sum, sum}.run(part, false);
        else if (last)
          GroupFold<true, kFinish>{group, operand, sum, y}.run(part, stream);
        else
          GroupFold<true, Finish::Nothing>{group, operand, sum, sum}.run(part, false);
      }
    }
    offset += minMaxBlockBytes(count, bits);
  }
  if (stream)
    hwy::FlushStream();
}

HWY_ATTR void decodeReduceSum(const Kernel &kernel, const Args &args, size_t begin, size_t end) {
  decodeReduceAs<Finish::Multiply>(kernel, args, begin, end, 1.0f); // Changes nothing.
}

HWY_ATTR void decodeReduceMean(const Kernel &kernel, const Args &args, size_t begin, size_t end) {
  const float divisor = static_cast<float>(args.inputs.size());
  // By a power of two, multiplication and division round alike, and multiplication is much faster.
  if (std::has_single_bit(args.inputs.size()))
    decodeReduceAs<Finish::Multiply>(kernel, args, begin, end, 1.0f / divisor);
  else
    decodeReduceAs<Finish::Divide>(kernel, args, begin, end, divisor);
}

const MinMaxRuns *minMaxTable() {
  // Decoding is the sum of one.
  static constexpr MinMaxRuns kRuns{encode, decodeReduceSum, decodeReduceSum, decodeReduceMean};
  return &kRuns;
}

} // namespace HWY_NAMESPACE
} // namespace bagua::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bagua::kernels {
HWY_EXPORT(minMaxTable);

const MinMaxRuns &minMaxRuns(int64_t target) {
  hwy::ChosenTarget chosen; // Ours: Highway's own choice is global to the process.
  chosen.Update(target);
  return *HWY_DISPATCH_TABLE(minMaxTable)[chosen.GetIndex()]();
}

} // namespace bagua::kernels
#endif
