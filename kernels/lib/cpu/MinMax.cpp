// The min-max codec for every instruction-set target.
#include "common/MinMax.h"
#include "Runs.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/MinMax.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "cpu/Codec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace bagua::kernels {
namespace HWY_NAMESPACE {
namespace {

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

template <bool kLarge>
HWY_INLINE void encodeAs(const Kernel &kernel, const Args &args, size_t begin, size_t end) {
  HWY_ALIGN uint8_t tile[kTile];
  const size_t block = static_cast<size_t>(kernel.block);
  const int bits = static_cast<int>(kernel.bits);
  const std::byte *x = args.inputs[0].data();
  PrefetchCursor cursor(x + begin * sizeof(float));
  PackedWriter<kLarge> writer(args.outputs[0].data() + kernel.packing.bytes(begin));
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
      const size_t part = std::min(kTile, count - done), bytes = codeBytes(part, bits);
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

template <Finish kFinish>
HWY_INLINE void decodeBlocks(const Kernel &kernel, const Args &args, size_t begin, size_t end,
                             float operand) {
  HWY_ALIGN uint8_t unpacked[kGroup][kTile];
  HWY_ALIGN float sums[kTile];
  std::byte *sum = reinterpret_cast<std::byte *>(sums);
  const size_t block = static_cast<size_t>(kernel.block);
  const int bits = static_cast<int>(kernel.bits);
  const bool stream = args.count * sizeof(float) >= kStreamBytesMin &&
                      reinterpret_cast<uintptr_t>(args.outputs[0].data()) % sizeof(float) == 0;
  size_t offset = kernel.packing.bytes(begin);
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
          const std::byte *source = packed + sizeof(MinMaxHeader) + codeBytes(done, bits);
          if (stream)
            prefetchAhead(source, codeBytes(part, bits));
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
  decodeBlocks<Finish::Multiply>(kernel, args, begin, end, 1.0f); // Changes nothing.
}

HWY_ATTR void decodeReduceMean(const Kernel &kernel, const Args &args, size_t begin, size_t end) {
  const float divisor = static_cast<float>(args.inputs.size());
  // By a power of two, multiplication and division round alike, and multiplication is much faster.
  if (std::has_single_bit(args.inputs.size()))
    decodeBlocks<Finish::Multiply>(kernel, args, begin, end, 1.0f / divisor);
  else
    decodeBlocks<Finish::Divide>(kernel, args, begin, end, divisor);
}

const CodecRuns *minMaxTable() {
  // Decoding is the sum of one.
  static constexpr CodecRuns kRuns{encode, decodeReduceSum, decodeReduceSum, decodeReduceMean};
  return &kRuns;
}

} // namespace
} // namespace HWY_NAMESPACE
} // namespace bagua::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bagua::kernels {
HWY_EXPORT(minMaxTable);

const CodecRuns &minMaxRuns(int64_t target) {
  hwy::ChosenTarget chosen; // Ours: Highway's own choice is global to the process.
  chosen.Update(target);
  return *HWY_DISPATCH_TABLE(minMaxTable)[chosen.GetIndex()]();
}

} // namespace bagua::kernels
#endif
