// The min-max codec for every instruction-set target.
#include "common/MinMax.h"
#include "Runs.h"

#include <algorithm>
#include <bit>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/MinMax.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
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
constexpr size_t kTile = 1024;

HWY_INLINE const float *floats(const std::byte *bytes) {
  return reinterpret_cast<const float *>(bytes); // Only for LoadU: may be unaligned.
}
HWY_INLINE float *floats(std::byte *bytes) { return reinterpret_cast<float *>(bytes); }
HWY_INLINE const uint8_t *octets(const std::byte *bytes) {
  return reinterpret_cast<const uint8_t *>(bytes);
}
HWY_INLINE uint8_t *octets(std::byte *bytes) { return reinterpret_cast<uint8_t *>(bytes); }

/// Header of the block of `count` >= 1 elements at `x`.
HWY_INLINE MinMaxHeader blockHeader(const std::byte *x, size_t count, int64_t bits) {
  const F32 d;
  const U32 du;
  const size_t lanes = hn::Lanes(d);
  const float *p = floats(x);
  const auto start = hn::Set(d, loadOne<float>(x, 0));
  auto lo0 = start, lo1 = start, hi0 = start, hi1 = start;
  // x - x is +0 for a finite x, else NaN; minimum and maximum cannot be trusted to carry NaN.
  auto bad0 = hn::Zero(du), bad1 = hn::Zero(du);
  size_t i = 0;
  for (; count - i >= 2 * lanes; i += 2 * lanes) {
    const auto v0 = hn::LoadU(d, p + i), v1 = hn::LoadU(d, p + i + lanes);
    lo0 = hn::Min(lo0, v0), lo1 = hn::Min(lo1, v1);
    hi0 = hn::Max(hi0, v0), hi1 = hn::Max(hi1, v1);
    bad0 = hn::Or(bad0, hn::BitCast(du, hn::Sub(v0, v0)));
    bad1 = hn::Or(bad1, hn::BitCast(du, hn::Sub(v1, v1)));
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

template <bool kScaled>
HWY_INLINE void quantizeAs(const MinMaxEncoder &encoder, const std::byte *x, size_t count,
                           uint8_t *codes) {
  const F32 d;
  const U32 du;
  const U8 d8;
  const size_t lanes = hn::Lanes(d);
  const auto lo = hn::Set(d, encoder.lo), inverse = hn::Set(d, encoder.inverse);
  const auto scale = hn::Set(d, encoder.scale), levels = hn::Set(d, encoder.levels);
  const auto shift = hn::Set(d, kRoundingShift);
  const auto low = hn::Set(du, 0xff);
  size_t i = 0;
  for (; count - i >= lanes; i += lanes) {
    auto v = hn::LoadU(d, floats(x) + i);
    if (kScaled)
      v = hn::Mul(v, scale);
    v = hn::Min(hn::Mul(hn::Sub(v, lo), inverse), levels);
    const auto code = hn::And(hn::BitCast(du, hn::Add(v, shift)), low);
    hn::StoreU(hn::U8FromU32(code), d8, codes + i);
  }
  for (; i < count; ++i)
    codes[i] = encoder.encodeOne(loadOne<float>(x, i));
}

HWY_INLINE void quantize(const MinMaxEncoder &encoder, const std::byte *x, size_t count,
                         uint8_t *codes) {
  if (encoder.scale == 1.0f) // Multiplying by 1 changes nothing.
    quantizeAs<false>(encoder, x, count, codes);
  else
    quantizeAs<true>(encoder, x, count, codes);
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

HWY_ATTR void encode(const Kernel &kernel, const Args &args, size_t begin, size_t end) {
  HWY_ALIGN uint8_t tile[kTile];
  const size_t block = static_cast<size_t>(kernel.block);
  const int bits = static_cast<int>(kernel.bits);
  const std::byte *x = args.inputs[0].data();
  std::byte *packed = args.outputs[0].data() + minmaxPackedBytes(begin, kernel.bits, kernel.block);
  for (size_t first = begin; first < end; first += block) {
    const size_t count = std::min(block, end - first);
    const std::byte *source = x + first * sizeof(float);
    const MinMaxHeader header = blockHeader(source, count, bits);
    storeHeader(packed, header);
    std::byte *codes = packed + sizeof(header);
    packed += minMaxBlockBytes(count, bits);
    if (!(header.step > 0.0f)) { // Constant, or not finite.
      std::memset(codes, 0, minMaxCodeBytes(count, bits));
      continue;
    }
    const MinMaxEncoder encoder(header, bits);
    if (bits == 8) {
      quantize(encoder, source, count, octets(codes));
      continue;
    }
    for (size_t done = 0; done < count; done += kTile) {
      const size_t part = std::min(kTile, count - done);
      quantize(encoder, source + done * sizeof(float), part, tile);
      pack(tile, part, bits, codes + minMaxCodeBytes(done, bits));
    }
  }
}

/// What the last input of a decode-reduce does to the sum.
enum class Finish : uint8_t { Nothing, Keep, Multiply, Divide };

/// y = decode(codes), or y += decode(codes); then, at the last input, finished with `operand`.
template <bool kAdd, bool kWide, Finish kFinish>
HWY_INLINE void dequantizeAs(const MinMaxDecoder &decoder, const uint8_t *codes, size_t count,
                             float operand, std::byte *y) {
  const F32 d;
  const I32 di;
  const U8 d8;
  const size_t lanes = hn::Lanes(d);
  const auto lo = hn::Set(d, decoder.lo), step = hn::Set(d, decoder.step);
  const auto limit = hn::Set(d, std::numeric_limits<float>::max() * 0.25f);
  const auto vOperand = hn::Set(d, operand);
  float *p = floats(y);
  size_t i = 0;
  for (; count - i >= lanes; i += lanes) {
    const auto code = hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(d8, codes + i)));
    auto v = hn::Add(lo, hn::Mul(code, step));
    if (kWide)
      v = hn::Mul(hn::Max(hn::Min(v, limit), hn::Neg(limit)), hn::Set(d, 4.0f));
    if (kAdd)
      v = hn::Add(hn::LoadU(d, p + i), v);
    if (kFinish == Finish::Multiply)
      v = hn::Mul(v, vOperand);
    if (kFinish == Finish::Divide)
      v = hn::Div(v, vOperand);
    if (kFinish != Finish::Nothing)
      v = hn::IfThenElse(hn::IsNaN(v), hn::Set(d, kNan<float>), v);
    hn::StoreU(v, d, p + i);
  }
  for (; i < count; ++i) {
    float v = decoder.decodeOne(codes[i]);
    if (kAdd)
      v = loadOne<float>(y, i) + v;
    if (kFinish == Finish::Multiply)
      v = v * operand;
    if (kFinish == Finish::Divide)
      v = v / operand;
    storeOne<float>(y, i, kFinish == Finish::Nothing ? v : finishOne(v));
  }
}

template <bool kAdd, Finish kFinish>
HWY_INLINE void dequantize(const MinMaxDecoder &decoder, const uint8_t *codes, size_t count,
                           float operand, std::byte *y) {
  if (!decoder.finite) { // Whatever is added to it, and divided: NaN stays, and stays this NaN.
    for (size_t i = 0; i < count; ++i)
      storeOne<float>(y, i, kNan<float>);
  } else if (decoder.wide) {
    dequantizeAs<kAdd, true, kFinish>(decoder, codes, count, operand, y);
  } else {
    dequantizeAs<kAdd, false, kFinish>(decoder, codes, count, operand, y);
  }
}

template <bool kMean>
HWY_ATTR void decodeReduce(const Kernel &kernel, const Args &args, size_t begin, size_t end) {
  HWY_ALIGN uint8_t tile[kTile];
  const size_t block = static_cast<size_t>(kernel.block);
  const int bits = static_cast<int>(kernel.bits);
  const size_t inputs = args.inputs.size();
  size_t offset = minmaxPackedBytes(begin, kernel.bits, kernel.block);
  // By a power of two, multiplication and division round alike, and multiplication is much faster.
  const Finish finish = !kMean                        ? Finish::Keep
                        : std::has_single_bit(inputs) ? Finish::Multiply
                                                      : Finish::Divide;
  const float divisor = static_cast<float>(inputs);
  const float operand = finish == Finish::Multiply ? 1.0f / divisor : divisor;
  for (size_t first = begin; first < end; first += block) {
    const size_t count = std::min(block, end - first);
    for (size_t done = 0; done < count; done += kTile) {
      const size_t part = std::min(kTile, count - done);
      std::byte *y = args.outputs[0].data() + (first + done) * sizeof(float);
      for (size_t k = 0; k < inputs; ++k) {
        const std::byte *packed = args.inputs[k].data() + offset;
        const MinMaxDecoder decoder(loadHeader(packed));
        const std::byte *source = packed + sizeof(MinMaxHeader) + minMaxCodeBytes(done, bits);
        const uint8_t *codes = tile;
        if (bits == 8)
          codes = octets(source);
        else
          unpack(source, part, bits, tile);
        const Finish now = k + 1 == inputs ? finish : Finish::Nothing;
        if (k == 0 && inputs == 1) // Dividing by one changes nothing.
          dequantize<false, Finish::Keep>(decoder, codes, part, operand, y);
        else if (k == 0)
          dequantize<false, Finish::Nothing>(decoder, codes, part, operand, y);
        else if (now == Finish::Nothing)
          dequantize<true, Finish::Nothing>(decoder, codes, part, operand, y);
        else if (now == Finish::Keep)
          dequantize<true, Finish::Keep>(decoder, codes, part, operand, y);
        else if (now == Finish::Multiply)
          dequantize<true, Finish::Multiply>(decoder, codes, part, operand, y);
        else
          dequantize<true, Finish::Divide>(decoder, codes, part, operand, y);
      }
    }
    offset += minMaxBlockBytes(count, bits);
  }
}

const MinMaxRuns *minMaxTable() {
  // One input and no division: decoding is the sum of one.
  static constexpr MinMaxRuns kRuns{encode, decodeReduce<false>, decodeReduce<false>,
                                    decodeReduce<true>};
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
