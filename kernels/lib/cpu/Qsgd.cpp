// The qsgd codec (and ternary, which is qsgd of one level) for every instruction-set target.
#include "common/Qsgd.h"
#include "Runs.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/Qsgd.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "cpu/Codec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace bagua::kernels {
namespace HWY_NAMESPACE {
namespace {

/// The largest magnitude of `count` elements; kQsgdNonFinite if one is not finite.
HWY_INLINE float maxNorm(const std::byte *x, size_t count) {
  const I32 d;
  const size_t lanes = hn::Lanes(d);
  const int32_t *p = reinterpret_cast<const int32_t *>(x); // Only for LoadU.
  // Magnitudes compare as integers, and what is not finite is greater than all that is.
  const auto magnitude = hn::Set(d, 0x7fffffff);
  auto m0 = hn::Zero(d), m1 = m0;
  size_t i = 0;
  for (; count - i >= 2 * lanes; i += 2 * lanes) {
    m0 = hn::Max(m0, hn::And(hn::LoadU(d, p + i), magnitude));
    m1 = hn::Max(m1, hn::And(hn::LoadU(d, p + i + lanes), magnitude));
  }
  int32_t most = hn::GetLane(hn::MaxOfLanes(d, hn::Max(m0, m1)));
  for (; i < count; ++i)
    most = std::max(most, loadOne<int32_t>(x, i) & 0x7fffffff);
  return most >= 0x7f800000 ? kQsgdNonFinite : std::bit_cast<float>(most);
}

HWY_INLINE float euclideanNorm(const std::byte *x, size_t count) {
  const F64 d;
  const hn::Rebind<float, F64> d32;
  const size_t lanes = hn::Lanes(d);
  const float *p = floats(x);
  HWY_ALIGN double partials[kPartials] = {};
  size_t i = 0;
  for (; count - i >= kPartials; i += kPartials)
    for (size_t j = 0; j < kPartials; j += lanes) {
      const auto v = hn::PromoteTo(d, hn::LoadU(d32, p + i + j));
      hn::Store(hn::Add(hn::Load(d, partials + j), hn::Mul(v, v)), d, partials + j);
    }
  for (size_t j = 0; i < count; ++i, ++j) {
    const double v = loadOne<float>(x, i);
    partials[j] = partials[j] + v * v;
  }
  const double squares = foldPartials(partials);
  return std::isfinite(squares) ? qsgdEuclideanNorm(squares) : kQsgdNonFinite;
}

/// QsgdEncoder::encodeOne, in vectors; codes go to one byte each.
HWY_INLINE void quantize(const QsgdEncoder &encoder, const std::byte *x, const uint32_t *words,
                         size_t count, uint8_t *codes) {
  const F32 d;
  const U32 du;
  const I32 di;
  const size_t lanes = hn::Lanes(d);
  const auto norm = hn::Set(d, encoder.norm), inverse = hn::Set(d, encoder.inverse);
  const auto scale = hn::Set(d, encoder.scale), levels = hn::Set(d, encoder.levels);
  const auto zero = hn::Set(di, static_cast<int32_t>(encoder.levels));
  const auto unit = hn::Set(d, 0x1p-24f);
  size_t i = 0;
  for (; count - i >= lanes; i += lanes) {
    const auto v = hn::LoadU(d, floats(x) + i), magnitude = hn::Abs(v);
    auto ratio = hn::Mul(hn::Mul(magnitude, scale), inverse);
    ratio = hn::IfThenElse(hn::And(hn::Lt(ratio, levels), hn::Lt(magnitude, norm)), ratio, levels);
    const auto whole = hn::ConvertTo(di, ratio);
    const auto fraction = hn::Sub(ratio, hn::ConvertTo(d, whole));
    const auto word = hn::ShiftRight<8>(hn::LoadU(du, words + i));
    const auto uniform = hn::Mul(hn::ConvertTo(d, hn::BitCast(di, word)), unit);
    // A mask as a vector is -1: subtracting it adds one.
    const auto up = hn::VecFromMask(di, hn::RebindMask(di, hn::Lt(uniform, fraction)));
    const auto q = hn::Sub(whole, up);
    const auto negative = hn::RebindMask(di, hn::Lt(v, hn::Zero(d)));
    const auto code = hn::IfThenElse(negative, hn::Sub(zero, q), hn::Add(zero, q));
    hn::StoreU(hn::U8FromU32(hn::BitCast(du, code)), U8(), codes + i);
  }
  for (; i < count; ++i)
    codes[i] = encoder.encodeOne(loadOne<float>(x, i), words[i]);
}

template <bool kLarge>
HWY_INLINE void encodeAs(const Kernel &kernel, const Args &args, size_t begin, size_t end) {
  HWY_ALIGN uint32_t words[kTile + kWordsSlack];
  HWY_ALIGN uint8_t tile[kTile];
  const RandomScalars scalars(args.scalars);
  const RandomStream stream(scalars);
  const size_t block = kernel.packing.block;
  const int bits = static_cast<int>(kernel.bits);
  PackedWriter<kLarge> writer(args.outputs[0].data() + kernel.packing.bytes(begin));
  for (size_t first = begin; first < end; first += block) {
    const size_t count = std::min(block, end - first);
    const std::byte *x = args.inputs[0].data() + first * sizeof(float);
    const float norm = kernel.norm == 2 ? euclideanNorm(x, count) : maxNorm(x, count);
    storeOne(writer.next(), 0, norm);
    writer.advance(sizeof(norm));
    for (size_t done = 0; done < count; done += kTile) {
      const size_t part = std::min(kTile, count - done), bytes = codeBytes(part, bits);
      if (norm > 0.0f) {
        const uint32_t *used = fillWords(stream, scalars.first + first + done, part, words);
        quantize(QsgdEncoder(norm, kernel.levels), x + done * sizeof(float), used, part, tile);
        pack(tile, part, bits, writer.next());
      } else if (norm == 0.0f) {
        std::memset(tile, static_cast<int>(kernel.levels), part);
        pack(tile, part, bits, writer.next());
      } else {
        std::memset(writer.next(), 0, bytes);
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

struct Decoder {
  int bits;
  int64_t levels;

  struct Tile {
    float norm, step;
    bool finite;
    const uint8_t *codes; ///< One byte each.
    HWY_ALIGN uint8_t unpacked[kTile];
  };

  HWY_INLINE void open(const std::byte *packed, size_t begin, size_t count, Tile &tile) const {
    const QsgdDecoder decoder(loadOne<float>(packed, 0), levels);
    tile.norm = decoder.norm;
    tile.step = decoder.step;
    tile.finite = decoder.finite;
    const std::byte *source = packed + sizeof(float) + codeBytes(begin, bits);
    prefetchAhead(source, codeBytes(count, bits));
    tile.codes = bits == 8 ? octets(source) : tile.unpacked;
    if (bits != 8)
      unpack(source, count, bits, tile.unpacked);
  }
  HWY_INLINE bool plain(const Tile &tile) const { return tile.finite; }
  HWY_INLINE hn::Vec<F32> vector(const Tile &tile, size_t i) const {
    const F32 d;
    const auto code = hn::ConvertTo(d, hn::PromoteTo(I32(), hn::LoadU(U8(), tile.codes + i)));
    const auto most = hn::Set(d, tile.norm), least = hn::Set(d, -tile.norm);
    auto v = hn::Mul(hn::Sub(code, hn::Set(d, static_cast<float>(levels))), hn::Set(d, tile.step));
    v = hn::IfThenElse(hn::Gt(v, most), most, v);
    return hn::IfThenElse(hn::Lt(v, least), least, v);
  }
  HWY_INLINE float one(const Tile &tile, size_t i) const {
    return QsgdDecoder(tile.norm, levels).decodeOne(tile.codes[i]);
  }
};

HWY_ATTR void decodeReduceSum(const Kernel &kernel, const Args &args, size_t begin, size_t end) {
  decodeFold(Decoder{static_cast<int>(kernel.bits), kernel.levels}, kernel, args, begin, end,
             false);
}

HWY_ATTR void decodeReduceMean(const Kernel &kernel, const Args &args, size_t begin, size_t end) {
  decodeFold(Decoder{static_cast<int>(kernel.bits), kernel.levels}, kernel, args, begin, end, true);
}

const CodecRuns *qsgdTable() {
  static constexpr CodecRuns kRuns{encode, decodeReduceSum, decodeReduceSum, decodeReduceMean};
  return &kRuns;
}

} // namespace
} // namespace HWY_NAMESPACE
} // namespace bagua::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bagua::kernels {
HWY_EXPORT(qsgdTable);

const CodecRuns &qsgdRuns(int64_t target) {
  hwy::ChosenTarget chosen; // Ours: Highway's own choice is global to the process.
  chosen.Update(target);
  return *HWY_DISPATCH_TABLE(qsgdTable)[chosen.GetIndex()]();
}

} // namespace bagua::kernels
#endif
