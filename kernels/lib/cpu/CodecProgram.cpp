// Codec programs in pieces that stay in the first-level cache. All arithmetic is in the steps of
// cpu/Map.cpp and in cpu/Blocks.cpp, so this needs no code for each instruction set.
#include "Prepared.h"
#include "Runs.h"
#include "common/CodecWords.h"
#include "common/MapTiles.h"
#include "common/Partials.h"

#include <algorithm>

namespace bagua::kernels {
namespace {

/// Elements worked on at a time: whole bytes of codes, whole rounds of the partials.
constexpr size_t kPiece = 1024;
/// Of launches that fit no cache, so that memory is asked for little by little.
constexpr size_t kPrefetchPiece = 256, kPrefetchTargetBytes = 2048;
static_assert(kPiece % kPartials == 0 && kPartials * sizeof(float) >= kMapVectorBytesMax);

using Tiles = MapTiles<float>;

std::byte *bytesAt(void *memory) { return static_cast<std::byte *>(memory); }

/// Encodes blocks, one after the other.
class Encoder {
public:
  /// `x` is the first block. `large`: the launch fits no cache.
  Encoder(const PreparedProgram &prepared, const std::byte *x, bool large)
      : large_(large), cursor_(x), codec_(*prepared.codec), blocks_(*prepared.blocks),
        stats_(codec_.stats, prepared.statsPlan), encode_(codec_.encode, prepared.encodePlan) {
    for (size_t k = 0; k < codec_.reductions.size(); ++k) {
      stats_.setOutput(k, bytesAt(values_[k]));
      isElement_[k] = codec_.stats.code[codec_.stats.outputs[k]].op == MapOp::Input;
      computes_ = computes_ || !isElement_[k];
    }
    stats_.setUniforms({}, [](size_t) { return 0.0f; });
    encode_.setOutput(0, bytesAt(numbers_));
  }

  /// Writes the packed bytes of the `count` >= 1 elements at `x`.
  void block(const std::byte *x, size_t count, std::byte *packed);

private:
  bool makeHeaders(const std::byte *x, size_t count, float *headers);
  void reduce(const std::byte *x, size_t count, float least, float greatest, float *reduced);
  void pack(size_t count, std::byte *target);
  void prefetch(size_t count, const std::byte *target);

  const bool large_;
  PrefetchCursor cursor_;
  size_t unasked_ = 0; ///< Bytes read that the cursor has not moved on by.
  const CodecProgram &codec_;
  const BlockRuns &blocks_;
  Tiles stats_, encode_;
  bool isElement_[kMapOutputsMax] = {}; ///< The output of `stats` is the element itself.
  bool computes_ = false;               ///< Others are not.
  alignas(kMapVectorBytesMax) float values_[kMapOutputsMax][kPiece];
  alignas(kMapVectorBytesMax) float numbers_[kPiece];
};

/// Sets what each output of `stats` is over the block. `least` and `greatest` are of its elements;
/// of a zero any sign.
void Encoder::reduce(const std::byte *x, size_t count, float least, float greatest,
                     float *reduced) {
  const size_t outputs = codec_.reductions.size();
  float partials[kMapOutputsMax][kPartials];
  bool known[kMapOutputsMax];
  const float infinity = std::numeric_limits<float>::infinity();
  for (size_t k = 0; k < outputs; ++k) {
    const BlockReduction reduction = codec_.reductions[k];
    reduced[k] = reduction == BlockReduction::Min ? least : greatest;
    known[k] = isElement_[k] && reduction != BlockReduction::Sum && reduced[k] != 0.0f;
    if (!known[k])
      std::fill_n(partials[k], kPartials,
                  reduction == BlockReduction::Max   ? -infinity
                  : reduction == BlockReduction::Min ? infinity
                                                     : 0.0f);
  }
  if (std::all_of(known, known + outputs, [](bool is) { return is; }))
    return;
  for (size_t at = 0; at < count; at += kPiece) {
    const size_t part = std::min(kPiece, count - at);
    const std::byte *piece = x + at * sizeof(float);
    if (computes_) {
      stats_.setInput(0, piece);
      stats_.run(0, part);
    }
    for (size_t k = 0; k < outputs; ++k)
      if (!known[k])
        blocks_.fold[static_cast<size_t>(codec_.reductions[k])](
            isElement_[k] ? piece : bytesAt(values_[k]), part, partials[k]);
  }
  for (size_t k = 0; k < outputs; ++k)
    if (!known[k])
      reduced[k] = blocks_.tree[static_cast<size_t>(codec_.reductions[k])](partials[k]);
}

/// Sets the headers of the block at `x`; false if it cannot be encoded.
bool Encoder::makeHeaders(const std::byte *x, size_t count, float *headers) {
  float least, greatest, reduced[kMapOutputsMax];
  if (!blocks_.extremes(x, count, &least, &greatest))
    return false;
  reduce(x, count, least, greatest, reduced);
  std::array<MapValue<float>, kMapInstructionsMax> values;
  mapElement<float>(
      codec_.headers, {}, [&](size_t k) { return reduced[k]; }, [](size_t) { return false; },
      values.data());
  bool finite = true;
  for (size_t k = 0; k < codec_.headerCount; ++k) {
    headers[k] = values[codec_.headers.outputs[k]].number;
    finite = finite && std::isfinite(headers[k]);
  }
  return finite;
}

/// Packs the codes of the first `count` numbers.
void Encoder::pack(size_t count, std::byte *target) {
  const int bits = codec_.codeBits;
  const CodeRange range = codeRange(codec_);
  if (bits == 8) {
    blocks_.toBytes(numbers_, count, range.lowest, range.highest,
                    reinterpret_cast<uint8_t *>(target));
    return;
  }
  const uint32_t mask = (1u << bits) - 1;
  if (bits < 8) {
    const size_t step = static_cast<size_t>(bits), bytes = codeBytes(count, bits);
    uint8_t codes[kPiece];
    blocks_.toBytes(numbers_, count, range.lowest, range.highest, codes);
    std::fill(codes + count, codes + (count + 7) / 8 * 8, uint8_t{0});
    for (size_t g = 0; g * step < bytes; ++g) {
      const uint64_t eight = loadOne<uint64_t>(bytesAt(codes), g) & mask * 0x0101010101010101u;
      const uint64_t group = packGroup(eight, bits);
      // Where there is room, surplus bytes are written that the next group overwrites.
      std::memcpy(target + g * step, &group,
                  g * step + 8 <= bytes ? 8 : std::min(step, bytes - g * step));
    }
    return;
  }
  uint32_t words[kPiece];
  blocks_.toWords(numbers_, count, range.lowest, range.highest, words);
  uint64_t buffer = 0;
  int filled = 0;
  size_t written = 0;
  for (size_t i = 0; i < count; ++i) {
    buffer |= static_cast<uint64_t>(words[i] & mask) << filled;
    filled += bits;
    for (; filled >= 8; filled -= 8, buffer >>= 8)
      target[written++] = static_cast<std::byte>(buffer & 0xff);
  }
  if (filled > 0)
    target[written] = static_cast<std::byte>(buffer & 0xff);
}

/// Before `count` codes are written to `target`: asks for as much input, and for lines that will be
/// written, else each store would wait for its own.
void Encoder::prefetch(size_t count, const std::byte *target) {
  auto ask = [](uintptr_t at) { hwy::Prefetch(reinterpret_cast<const std::byte *>(at)); };
  unasked_ += count * sizeof(float);
  for (; unasked_ >= 2 * kLineBytes; unasked_ -= 2 * kLineBytes) {
    const uintptr_t at = cursor_.nextPair();
    ask(at), ask(at + PrefetchCursor::kPageBytes);
  }
  for (size_t i = 0; i < count * codec_.codeBits / 8; i += kLineBytes)
    ask(reinterpret_cast<uintptr_t>(target) + kPrefetchTargetBytes + i);
}

void Encoder::block(const std::byte *x, size_t count, std::byte *packed) {
  float headers[kCodecHeadersMax] = {};
  if (!makeHeaders(x, count, headers)) {
    std::memset(packed, 0, codecBlockBytes(codec_, count));
    storeOne<float>(packed, 0, kNan<float>);
    return;
  }
  for (size_t k = 0; k < codec_.headerCount; ++k)
    storeOne<float>(packed, k, headers[k]);
  encode_.setUniforms({}, [&](size_t k) { return headers[k - 1]; });
  std::byte *codes = packed + codec_.headerCount * sizeof(float);
  const size_t piece = large_ ? kPrefetchPiece : kPiece;
  for (size_t done = 0; done < count; done += piece) {
    const size_t part = std::min(piece, count - done);
    std::byte *target = codes + done * codec_.codeBits / 8;
    if (large_)
      prefetch(part, target);
    encode_.setInput(0, x + done * sizeof(float));
    encode_.run(0, part);
    pack(part, target);
  }
}

void encode(const Kernel &kernel, const Args &args, size_t begin, size_t end) {
  const CodecProgram &codec = *kernel.prepared->codec;
  const std::byte *x = args.inputs[0].data() + begin * sizeof(float);
  std::byte *packed = args.outputs[0].data() + codecPackedBytes(codec, begin);
  Encoder encoder(*kernel.prepared, x, args.count * sizeof(float) >= kStreamBytesMin);
  for (size_t first = begin; first < end; first += codec.block) {
    const size_t count = std::min<size_t>(codec.block, end - first);
    encoder.block(x, count, packed);
    x += count * sizeof(float);
    packed += codecBlockBytes(codec, count);
  }
}

/// The inverse: words for decodeFromWords(), that is, of the code less the least one. Reads exactly
/// the bytes of `count` codes.
void unpackWords(const BlockRuns &blocks, const std::byte *source, size_t count, int bits,
                 bool signedCodes, uint32_t *words) {
  const size_t bytes = (count * static_cast<size_t>(bits) + 7) / 8;
  const uint32_t base = std::bit_cast<uint32_t>(kCodeShift);
  const uint32_t flip = signedCodes ? 1u << (bits - 1) : 0;
  if (bits <= 8) {
    if (bits == 8) {
      blocks.fromBytes(reinterpret_cast<const uint8_t *>(source), count, base, flip, words);
      return;
    }
    alignas(8) uint8_t codes[kPiece];
    const size_t step = static_cast<size_t>(bits);
    for (size_t g = 0; g * step < bytes; ++g) {
      uint64_t group = 0;
      if (g * step + 8 <= bytes)
        std::memcpy(&group, source + g * step, 8);
      else
        std::memcpy(&group, source + g * step, std::min(step, bytes - g * step));
      group = unpackGroup(group, bits);
      std::memcpy(codes + g * 8, &group, 8);
    }
    blocks.fromBytes(codes, count, base, flip, words);
    return;
  }
  const uint32_t mask = (1u << bits) - 1;
  uint64_t buffer = 0;
  int filled = 0;
  size_t taken = 0;
  for (size_t i = 0; i < count; ++i) {
    for (; filled < bits; filled += 8)
      buffer |= static_cast<uint64_t>(std::to_integer<uint32_t>(source[taken++])) << filled;
    words[i] = base + ((static_cast<uint32_t>(buffer) & mask) ^ flip);
    buffer >>= bits;
    filled -= bits;
  }
}

/// Decodes elements [done, done + part) of a block into `y`.
void decodePiece(const PreparedProgram &prepared, Tiles &tiles, const std::byte *packed,
                 size_t done, size_t part, std::byte *y) {
  const CodecProgram &codec = *prepared.codec;
  const size_t bits = codec.codeBits;
  alignas(kMapVectorBytesMax) uint32_t words[kPiece];
  unpackWords(*prepared.blocks, packed + codec.headerCount * sizeof(float) + done * bits / 8, part,
              static_cast<int>(bits), codec.signedCodes, words);
  tiles.setInput(0, bytesAt(words));
  tiles.setOutput(0, y);
  tiles.run(0, part);
}

void decode(const Kernel &kernel, const Args &args, size_t begin, size_t end) {
  const PreparedProgram &prepared = *kernel.prepared;
  const CodecProgram &codec = *prepared.codec;
  Tiles tiles(prepared.decode, prepared.decodePlan);
  const std::byte *packed = args.inputs[0].data() + codecPackedBytes(codec, begin);
  for (size_t first = begin; first < end; first += codec.block) {
    const size_t count = std::min<size_t>(codec.block, end - first);
    std::byte *y = args.outputs[0].data() + first * sizeof(float);
    float headers[kCodecHeadersMax];
    if (loadHeaders(codec, packed, headers)) {
      tiles.setUniforms({}, [&](size_t k) { return headers[k - 1]; });
      for (size_t done = 0; done < count; done += kPiece)
        decodePiece(prepared, tiles, packed, done, std::min(kPiece, count - done),
                    y + done * sizeof(float));
    } else {
      for (size_t i = 0; i < count; ++i)
        storeOne<float>(y, i, kNan<float>);
    }
    packed += codecBlockBytes(codec, count);
  }
}

/// y = a op b for `count` elements, a multiple of the lanes.
void combine(const MapStep::Run *runs, size_t lanes, MapTileOp op, float *a, float *b, size_t count,
             std::byte *y, bool broadcast = false) {
  const size_t vector = lanes * sizeof(float);
  const MapOperand operands[] = {
      {bytesAt(a), vector, false}, {bytesAt(b), broadcast ? 0 : vector, false}, {y, vector, false}};
  MapStep step;
  step.a = 0, step.b = 1, step.y = 2;
  if (count != 0)
    runs[static_cast<size_t>(op)](operands, step, count);
}

template <bool kMean>
void decodeReduce(const Kernel &kernel, const Args &args, size_t begin, size_t end) {
  const PreparedProgram &prepared = *kernel.prepared;
  const CodecProgram &codec = *prepared.codec;
  const MapTileRuns &runs = *prepared.runs;
  const size_t lanes = runs.lanes;
  // Padded by zeros: whole vectors are added.
  alignas(kMapVectorBytesMax) float sum[kPiece] = {}, term[kPiece] = {};
  alignas(kMapVectorBytesMax) float divisor[kMapVectorBytesMax / sizeof(float)];
  // By a power of two, multiplication and division round alike, and multiplication is much faster.
  const bool multiplies = std::has_single_bit(args.inputs.size());
  const float inputs = static_cast<float>(args.inputs.size());
  std::fill(std::begin(divisor), std::end(divisor), multiplies ? 1.0f / inputs : inputs);
  const MapTileOp last = !kMean ? MapTileOp::Copy : multiplies ? MapTileOp::Mul : MapTileOp::Div;
  Tiles tiles(prepared.decode, prepared.decodePlan);
  size_t offset = codecPackedBytes(codec, begin);
  for (size_t first = begin; first < end; first += codec.block) {
    const size_t count = std::min<size_t>(codec.block, end - first);
    for (size_t done = 0; done < count; done += kPiece) {
      const size_t part = std::min(kPiece, count - done), whole = part / lanes * lanes;
      for (size_t k = 0; k < args.inputs.size(); ++k) {
        const std::byte *packed = args.inputs[k].data() + offset;
        float headers[kCodecHeadersMax];
        float *y = k == 0 ? sum : term;
        if (!loadHeaders(codec, packed, headers)) {
          std::fill_n(y, part, kNan<float>);
        } else {
          if (done == 0 || args.inputs.size() > 1)
            tiles.setUniforms({}, [&](size_t h) { return headers[h - 1]; });
          decodePiece(prepared, tiles, packed, done, part, bytesAt(y));
        }
        if (k > 0)
          combine(runs.toSlot, lanes, MapTileOp::Add, sum, term, (part + lanes - 1) / lanes * lanes,
                  bytesAt(sum));
      }
      std::byte *y = args.outputs[0].data() + (first + done) * sizeof(float);
      combine(runs.toOutput, lanes, last, sum, divisor, whole, y, true);
      if (whole == part)
        continue;
      float *rest = sum + whole; // Less than a vector.
      combine(runs.toOutput, lanes, last, rest, divisor, lanes, bytesAt(rest), true);
      std::memcpy(y + whole * sizeof(float), rest, (part - whole) * sizeof(float));
    }
    offset += codecBlockBytes(codec, count);
  }
}

} // namespace

const CodecProgramRuns &codecProgramRuns() {
  static constexpr CodecProgramRuns kRuns{encode, decode, decodeReduce<false>, decodeReduce<true>};
  return kRuns;
}

} // namespace bagua::kernels
