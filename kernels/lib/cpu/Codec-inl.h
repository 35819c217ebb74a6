// What the vector codecs share, compiled once per target inside their sources: packing of codes,
// prefetching and streaming, decode-reduce by tiles, random words.

// Per-target include guard.
#if defined(BAGUA_KERNELS_CPU_CODEC_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef BAGUA_KERNELS_CPU_CODEC_INL_H
#undef BAGUA_KERNELS_CPU_CODEC_INL_H
#else
#define BAGUA_KERNELS_CPU_CODEC_INL_H
#endif

#include "Runs.h"
#include "common/Codes.h"
#include "common/Elementwise.h"
#include "common/Partials.h"
#include "common/Philox.h"
#include "common/Sweep.h"

#include <algorithm>
#include <bit>
#include <cstring>

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
using F64 = hn::ScalableTag<double>;

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

/// Elements per step of the loops that read a run.
constexpr size_t kStep = 64;
static_assert(HWY_MAX_BYTES <= kStep / 2 * sizeof(float), "loops take two vectors at a time");

/// Two lines: a half of what a step reads, for kernels that read twice.
HWY_INLINE void prefetch(PrefetchCursor *cursor) {
  const uintptr_t address = cursor->nextPair();
  hwy::Prefetch(reinterpret_cast<const std::byte *>(address));
  hwy::Prefetch(reinterpret_cast<const std::byte *>(address + PrefetchCursor::kPageBytes));
}

/// As many lines as a kernel that walks through its input once reads with these bytes.
HWY_INLINE void prefetchBytes(PrefetchCursor *cursor, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 2 * kLineBytes)
    prefetch(cursor);
}

/// Prefetches `bytes` that lie some tiles after `source`.
HWY_INLINE void prefetchAhead(const std::byte *source, size_t bytes) {
  const uintptr_t first = reinterpret_cast<uintptr_t>(source) + 4 * kTile;
  for (size_t i = 0; i < bytes; i += kLineBytes)
    hwy::Prefetch(reinterpret_cast<const std::byte *>(first + i));
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
  const size_t bytes = codeBytes(count, bits), step = static_cast<size_t>(bits);
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
  const size_t bytes = codeBytes(count, bits), step = static_cast<size_t>(bits);
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

/// What a decode-reduce does to the sum in the end.
enum class Finish : uint8_t { Nothing, Multiply, Divide };

/// Finishes sums. The kind is no template parameter: the branch costs nothing beside a decoding.
struct Finisher {
  Finish kind;
  float operand;

  HWY_INLINE float operator()(float v) const {
    if (kind == Finish::Multiply)
      v = v * operand;
    if (kind == Finish::Divide)
      v = v / operand;
    return finishOne(v);
  }
  HWY_INLINE hn::Vec<F32> operator()(hn::Vec<F32> v) const {
    const F32 d;
    if (kind == Finish::Multiply)
      v = hn::Mul(v, hn::Set(d, operand));
    if (kind == Finish::Divide)
      v = hn::Div(v, hn::Set(d, operand));
    return hn::IfThenElse(hn::IsNaN(v), hn::Set(d, kNan<float>), v);
  }
};

/// What turns sums of `inputs` into sums or means.
HWY_INLINE Finisher finisherOf(bool mean, size_t inputs) {
  if (!mean)
    return {Finish::Nothing, 1.0f};
  const float divisor = static_cast<float>(inputs);
  // By a power of two, multiplication and division round alike, and multiplication is much faster.
  if (std::has_single_bit(inputs))
    return {Finish::Multiply, 1.0f / divisor};
  return {Finish::Divide, divisor};
}

/// y[i] = finish(sum[i]). `sum` is aligned, with room for whole vectors.
HWY_INLINE void finishTile(const float *sum, size_t count, Finisher finish, std::byte *y) {
  const F32 d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; count - i >= lanes; i += lanes)
    hn::StoreU(finish(hn::Load(d, sum + i)), d, floats(y) + i);
  for (; i < count; ++i)
    storeOne<float>(y, i, finish(sum[i]));
}

HWY_INLINE void addTile(const float *term, size_t count, float *sum) {
  const F32 d;
  for (size_t i = 0; i < count; i += hn::Lanes(d))
    hn::Store(hn::Add(hn::Load(d, sum + i), hn::Load(d, term + i)), d, sum + i);
}

/// True where a launch writes or reads enough of one array for streaming stores of elements.
HWY_INLINE bool streamsElements(const Args &args) {
  return args.count * sizeof(float) >= kStreamBytesMin &&
         reinterpret_cast<uintptr_t>(args.outputs[0].data()) % sizeof(float) == 0;
}

/// Inputs that are decoded side by side; more are summed group by group.
constexpr size_t kFoldGroup = 16;

/// y = finish((sum +) decoded input 0 + decoded input 1 + …), for the elements of one tile. `y` may
/// be `sum`.
template <class Codec, bool kAdd> struct TileFold {
  const Codec &codec;
  const typename Codec::Tile *tiles;
  size_t inputs;
  const std::byte *sum;
  Finisher finish;
  std::byte *y;

  HWY_INLINE void one(size_t i) const {
    float v = kAdd ? loadOne<float>(sum, i) : codec.one(tiles[0], i);
    for (size_t k = kAdd ? 0 : 1; k < inputs; ++k)
      v = v + codec.one(tiles[k], i);
    storeOne<float>(y, i, finish(v));
  }

  template <bool kStream> HWY_INLINE void many(size_t count) const {
    const F32 d;
    const size_t lanes = hn::Lanes(d);
    size_t i = 0;
    if (kStream) // Streaming stores are aligned.
      for (; i < count && reinterpret_cast<uintptr_t>(floats(y) + i) % kLineBytes != 0; ++i)
        one(i);
    for (; count - i >= 2 * lanes; i += 2 * lanes) {
      const float *s = floats(sum) + i;
      float *target = floats(y) + i;
      auto v0 = kAdd ? hn::LoadU(d, s) : codec.vector(tiles[0], i);
      auto v1 = kAdd ? hn::LoadU(d, s + lanes) : codec.vector(tiles[0], i + lanes);
      for (size_t k = kAdd ? 0 : 1; k < inputs; ++k) {
        v0 = hn::Add(v0, codec.vector(tiles[k], i));
        v1 = hn::Add(v1, codec.vector(tiles[k], i + lanes));
      }
      if (kStream) {
        hn::Stream(finish(v0), d, target);
        hn::Stream(finish(v1), d, target + lanes);
      } else {
        hn::StoreU(finish(v0), d, target);
        hn::StoreU(finish(v1), d, target + lanes);
      }
    }
    for (; i < count; ++i)
      one(i);
  }

  HWY_INLINE void run(size_t count, bool stream) const {
    bool plain = true;
    for (size_t k = 0; k < inputs; ++k)
      plain = plain && codec.plain(tiles[k]);
    if (!plain) // Rare.
      for (size_t i = 0; i < count; ++i)
        one(i);
    else if (stream)
      many<true>(count);
    else
      many<false>(count);
  }
};

/// Decodes the inputs tile by tile and writes their sum or mean. A codec has a type `Tile`, what
/// decoding one tile of one input needs; `open(packed, begin, count, tile)` prepares that of
/// `count` elements from `begin` on (a multiple of kTile) of the block of which `packed` are the
/// bytes; `vector(tile, i)` and `one(tile, i)` decode from element i of the tile on, i being any
/// number, `vector` only if `plain(tile)`. A codec without blocks takes the run as one.
template <class Codec>
HWY_ATTR void decodeFold(const Codec &codec, const Kernel &kernel, const Args &args, size_t begin,
                         size_t end, bool mean) {
  typename Codec::Tile tiles[kFoldGroup];
  HWY_ALIGN float sums[kTile];
  std::byte *sum = reinterpret_cast<std::byte *>(sums);
  const Finisher finish = finisherOf(mean, args.inputs.size()), keep = finisherOf(false, 1);
  const size_t block = kernel.packing.block == 1 ? end - begin : kernel.packing.block;
  const bool streams = streamsElements(args);
  size_t offset = kernel.packing.bytes(begin);
  for (size_t first = begin; first < end; first += block) {
    const size_t count = std::min(block, end - first);
    for (size_t done = 0; done < count; done += kTile) {
      const size_t part = std::min(kTile, count - done);
      std::byte *y = args.outputs[0].data() + (first + done) * sizeof(float);
      for (size_t base = 0; base < args.inputs.size(); base += kFoldGroup) {
        const size_t inputs = std::min(kFoldGroup, args.inputs.size() - base);
        for (size_t k = 0; k < inputs; ++k)
          codec.open(args.inputs[base + k].data() + offset, done, part, tiles[k]);
        const bool last = base + kFoldGroup >= args.inputs.size();
        const Finisher &used = last ? finish : keep;
        std::byte *target = last ? y : sum;
        if (base == 0)
          TileFold<Codec, false>{codec, tiles, inputs, sum, used, target}.run(part,
                                                                              last && streams);
        else
          TileFold<Codec, true>{codec, tiles, inputs, sum, used, target}.run(part, last && streams);
      }
    }
    offset += kernel.packing.blockBytes(count);
  }
  if (streams)
    hwy::FlushStream();
}

/// Adds up the tree of partials.
HWY_INLINE double foldPartials(double (&partials)[kPartials]) {
  const F64 d;
  const size_t lanes = hn::Lanes(d);
  size_t width = kPartials / 2;
  for (; width >= lanes && width > 0; width /= 2)
    for (size_t j = 0; j < width; j += lanes)
      hn::StoreU(hn::Add(hn::LoadU(d, partials + j), hn::LoadU(d, partials + j + width)), d,
                 partials + j);
  return sumOfPartials(partials, width);
}

/// Words that fillWords needs beyond `count`.
constexpr size_t kWordsSlack = 4 + 4 * HWY_MAX_BYTES / sizeof(uint32_t);

/// One variable of a round for twice as many counters as there are 64-bit lanes: those of even
/// index and those of odd index, each in the lower halves of the lanes. Upper halves mean nothing.
struct PhiloxPair {
  hn::Vec<U64> even, odd;
};

/// stream.word(first) … for `count` elements. `words` is aligned, with room for kWordsSlack more;
/// returns where in it they begin.
HWY_INLINE const uint32_t *fillWords(const RandomStream &stream, uint64_t first, size_t count,
                                     uint32_t *words) {
  const U64 d;
  const U32 d32;
  const size_t lanes = hn::Lanes(d32);
  const auto m0 = hn::BitCast(d32, hn::Set(d, uint64_t{kPhiloxMultipliers[0]}));
  const auto m1 = hn::BitCast(d32, hn::Set(d, uint64_t{kPhiloxMultipliers[1]}));
  const auto low = [&](hn::Vec<U64> v) { return hn::BitCast(d32, v); };
  const size_t groups = (static_cast<size_t>(first % 4) + count + 3) / 4;
  const auto even = hn::Add(hn::Iota(d, 0), hn::Iota(d, 0)); // 0, 2, 4, …
  for (size_t g = 0; g < groups; g += lanes) {
    const uint64_t group = first / 4 + g;
    PhiloxPair c0, c1, c2, c3;
    const auto evenGroups = hn::Add(hn::Set(d, group), even);
    const auto oddGroups = hn::Add(hn::Set(d, group + 1), even);
    c0 = {evenGroups, oddGroups};
    c1 = {hn::ShiftRight<32>(evenGroups), hn::ShiftRight<32>(oddGroups)};
    c2.even = c2.odd = hn::Set(d, uint64_t{stream.high[0]});
    c3.even = c3.odd = hn::Set(d, uint64_t{stream.high[1]});
    PhiloxKey key = stream.key;
    for (int round = 0; round < kPhiloxRounds; ++round) {
      const auto k0 = hn::Set(d, uint64_t{key[0]}), k1 = hn::Set(d, uint64_t{key[1]});
      const auto p0Even = hn::MulEven(low(c0.even), m0), p0Odd = hn::MulEven(low(c0.odd), m0);
      const auto p1Even = hn::MulEven(low(c2.even), m1), p1Odd = hn::MulEven(low(c2.odd), m1);
      c0.even = hn::Xor(hn::Xor(hn::ShiftRight<32>(p1Even), c1.even), k0);
      c0.odd = hn::Xor(hn::Xor(hn::ShiftRight<32>(p1Odd), c1.odd), k0);
      c2.even = hn::Xor(hn::Xor(hn::ShiftRight<32>(p0Even), c3.even), k1);
      c2.odd = hn::Xor(hn::Xor(hn::ShiftRight<32>(p0Odd), c3.odd), k1);
      c1 = {p1Even, p1Odd};
      c3 = {p0Even, p0Odd};
      key[0] += kPhiloxWeyl[0];
      key[1] += kPhiloxWeyl[1];
    }
    const auto joined = [&](const PhiloxPair &c) {
      return hn::OddEven(low(hn::ShiftLeft<32>(c.odd)), low(c.even));
    };
    hn::StoreInterleaved4(joined(c0), joined(c1), joined(c2), joined(c3), d32, words + 4 * g);
  }
  return words + first % 4;
}

} // namespace HWY_NAMESPACE
} // namespace bagua::kernels
HWY_AFTER_NAMESPACE();

#endif
