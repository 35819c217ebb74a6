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
static_assert(kPiece % kPartials == 0 && kPartials * sizeof(float) >= kMapVectorBytesMax);

using Tiles = MapTiles<float>;

std::byte *bytesAt(void *memory) { return static_cast<std::byte *>(memory); }

/// y = a op b for `count` elements of aligned memory, a multiple of the lanes. `kFinish`: every NaN
/// becomes the canonical one.
template <bool kFinish = false>
void combine(const MapTileRuns &runs, MapTileOp op, float *a, float *b, size_t count, float *y,
             bool broadcast = false) {
  const size_t vector = runs.lanes * sizeof(float);
  const MapOperand operands[] = {{bytesAt(a), vector, false},
                                 {bytesAt(b), broadcast ? 0 : vector, false},
                                 {bytesAt(y), vector, false}};
  MapStep step;
  step.a = 0, step.b = 1, step.y = 2;
  (kFinish ? runs.toOutput : runs.toSlot)[static_cast<size_t>(op)](operands, step, count);
}

/// What each output of `stats` is over the block.
void reduceBlock(const PreparedProgram &prepared, const std::byte *x, size_t count,
                 float *reduced) {
  const CodecProgram &codec = *prepared.codec;
  const size_t outputs = codec.reductions.size();
  alignas(kMapVectorBytesMax) float values[kMapOutputsMax][kPiece];
  alignas(kMapVectorBytesMax) float partials[kMapOutputsMax][kPartials];
  MapTileOp ops[kMapOutputsMax];
  bool elements[kMapOutputsMax]; // The output is the element itself: read where it is.
  bool computes = false;
  const float infinity = std::numeric_limits<float>::infinity();
  Tiles tiles(codec.stats, prepared.statsPlan);
  tiles.setUniforms({}, [](size_t) { return 0.0f; });
  for (size_t k = 0; k < outputs; ++k) {
    const BlockReduction reduction = codec.reductions[k];
    ops[k] = reduction == BlockReduction::Max   ? MapTileOp::Max
             : reduction == BlockReduction::Min ? MapTileOp::Min
                                                : MapTileOp::Add;
    std::fill_n(partials[k], kPartials,
                reduction == BlockReduction::Max   ? -infinity
                : reduction == BlockReduction::Min ? infinity
                                                   : 0.0f);
    tiles.setOutput(k, bytesAt(values[k]));
    elements[k] = codec.stats.code[codec.stats.outputs[k]].op == MapOp::Input;
    computes = computes || !elements[k];
  }
  for (size_t done = 0; done < count; done += kPiece) {
    const size_t part = std::min(kPiece, count - done);
    const std::byte *piece = x + done * sizeof(float);
    if (computes) {
      tiles.setInput(0, piece);
      tiles.run(0, part);
    }
    for (size_t k = 0; k < outputs; ++k)
      prepared.blocks->fold[static_cast<size_t>(codec.reductions[k])](
          elements[k] ? piece : bytesAt(values[k]), part, partials[k]);
  }
  for (size_t k = 0; k < outputs; ++k) {
    for (size_t width = kPartials / 2; width > 0; width /= 2) {
      alignas(kMapVectorBytesMax) float upper[kPartials] = {};
      std::copy_n(partials[k] + width, width, upper);
      combine(*prepared.runs, ops[k], partials[k], upper, std::max(width, prepared.runs->lanes),
              partials[k]);
    }
    reduced[k] = partials[k][0];
  }
}

/// Sets the headers of the block at `x`; false if it cannot be encoded.
bool makeHeaders(const PreparedProgram &prepared, const std::byte *x, size_t count,
                 float *headers) {
  const CodecProgram &codec = *prepared.codec;
  if (!prepared.blocks->allFinite(x, count))
    return false;
  float reduced[kMapOutputsMax];
  reduceBlock(prepared, x, count, reduced);
  std::array<MapValue<float>, kMapInstructionsMax> values;
  mapElement<float>(
      codec.headers, {}, [&](size_t k) { return reduced[k]; }, [](size_t) { return false; },
      values.data());
  bool finite = true;
  for (size_t k = 0; k < codec.headerCount; ++k) {
    headers[k] = values[codec.headers.outputs[k]].number;
    finite = finite && std::isfinite(headers[k]);
  }
  return finite;
}

/// Packs the low bits of `count` words; their array has room for full groups of eight.
void packWords(const BlockRuns &blocks, uint32_t *words, size_t count, int bits,
               std::byte *target) {
  const size_t bytes = (count * static_cast<size_t>(bits) + 7) / 8;
  const uint32_t mask = (1u << bits) - 1;
  std::fill(words + count, words + (count + 7) / 8 * 8, 0u);
  if (bits <= 8) {
    if (bits == 8) {
      blocks.narrow(words, count, mask, reinterpret_cast<uint8_t *>(target));
      return;
    }
    alignas(16) uint8_t codes[kPiece];
    blocks.narrow(words, (count + 7) / 8 * 8, mask, codes);
    const size_t step = static_cast<size_t>(bits);
    for (size_t g = 0; g * step < bytes; ++g) {
      const uint64_t group = packGroup(loadOne<uint64_t>(bytesAt(codes), g), bits);
      // Where there is room, surplus bytes are written that the next group overwrites.
      std::memcpy(target + g * step, &group,
                  g * step + 8 <= bytes ? 8 : std::min(step, bytes - g * step));
    }
    return;
  }
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

/// The inverse: words for decodeFromWords(), that is, of the code less the least one. Reads exactly
/// the bytes of `count` codes.
void unpackWords(const std::byte *source, size_t count, int bits, bool signedCodes,
                 uint32_t *words) {
  const size_t bytes = (count * static_cast<size_t>(bits) + 7) / 8;
  const uint32_t base = std::bit_cast<uint32_t>(kCodeShift);
  const uint32_t flip = signedCodes ? 1u << (bits - 1) : 0;
  if (bits <= 8) {
    if (bits == 8) {
      for (size_t i = 0; i < count; ++i)
        words[i] = base + (std::to_integer<uint32_t>(source[i]) ^ flip);
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
    for (size_t i = 0; i < count; ++i)
      words[i] = base + (codes[i] ^ flip);
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

void encodeBlock(const PreparedProgram &prepared, const float *headers, const std::byte *x,
                 size_t count, std::byte *codes) {
  const int bits = prepared.codec->codeBits;
  const CodeRange range = codeRange(*prepared.codec);
  alignas(kMapVectorBytesMax) float numbers[kPiece];
  alignas(kMapVectorBytesMax) uint32_t words[kPiece];
  Tiles tiles(prepared.codec->encode, prepared.encodePlan);
  tiles.setUniforms({}, [&](size_t k) { return headers[k - 1]; });
  tiles.setOutput(0, bytesAt(numbers));
  for (size_t done = 0; done < count; done += kPiece) {
    const size_t part = std::min(kPiece, count - done);
    tiles.setInput(0, x + done * sizeof(float));
    tiles.run(0, part);
    prepared.blocks->toWords(numbers, part, range.lowest, range.highest, words);
    packWords(*prepared.blocks, words, part, bits, codes + done * static_cast<size_t>(bits) / 8);
  }
}

void encode(const Kernel &kernel, const Args &args, size_t begin, size_t end) {
  const PreparedProgram &prepared = *kernel.prepared;
  const CodecProgram &codec = *prepared.codec;
  std::byte *packed = args.outputs[0].data() + codecPackedBytes(codec, begin);
  for (size_t first = begin; first < end; first += codec.block) {
    const size_t count = std::min<size_t>(codec.block, end - first);
    const std::byte *x = args.inputs[0].data() + first * sizeof(float);
    float headers[kCodecHeadersMax] = {};
    const size_t bytes = codecBlockBytes(codec, count);
    if (makeHeaders(prepared, x, count, headers)) {
      for (size_t k = 0; k < codec.headerCount; ++k)
        storeOne<float>(packed, k, headers[k]);
      encodeBlock(prepared, headers, x, count, packed + codec.headerCount * sizeof(float));
    } else {
      std::memset(packed, 0, bytes);
      storeOne<float>(packed, 0, kNan<float>);
    }
    packed += bytes;
  }
}

/// Decodes elements [done, done + part) of a block into `y`.
void decodePiece(const PreparedProgram &prepared, Tiles &tiles, const std::byte *packed,
                 size_t done, size_t part, float *y) {
  const CodecProgram &codec = *prepared.codec;
  const size_t bits = codec.codeBits;
  alignas(kMapVectorBytesMax) uint32_t words[kPiece];
  unpackWords(packed + codec.headerCount * sizeof(float) + done * bits / 8, part,
              static_cast<int>(bits), codec.signedCodes, words);
  tiles.setInput(0, bytesAt(words));
  tiles.setOutput(0, bytesAt(y));
  tiles.run(0, part);
}

template <bool kMean>
void decodeReduce(const Kernel &kernel, const Args &args, size_t begin, size_t end) {
  const PreparedProgram &prepared = *kernel.prepared;
  const CodecProgram &codec = *prepared.codec;
  const MapTileRuns &runs = *prepared.runs;
  // Padded by zeros: whole vectors are added.
  alignas(kMapVectorBytesMax) float sum[kPiece] = {}, term[kPiece] = {};
  alignas(kMapVectorBytesMax) float divisor[kMapVectorBytesMax / sizeof(float)];
  std::fill(std::begin(divisor), std::end(divisor), static_cast<float>(args.inputs.size()));
  Tiles tiles(prepared.decode, prepared.decodePlan);
  size_t offset = codecPackedBytes(codec, begin);
  for (size_t first = begin; first < end; first += codec.block) {
    const size_t count = std::min<size_t>(codec.block, end - first);
    for (size_t done = 0; done < count; done += kPiece) {
      const size_t part = std::min(kPiece, count - done);
      const size_t padded = (part + runs.lanes - 1) / runs.lanes * runs.lanes;
      for (size_t k = 0; k < args.inputs.size(); ++k) {
        const std::byte *packed = args.inputs[k].data() + offset;
        float headers[kCodecHeadersMax];
        float *y = k == 0 ? sum : term;
        if (!loadHeaders(codec, packed, headers)) {
          std::fill_n(y, part, kNan<float>);
        } else {
          if (done == 0 || args.inputs.size() > 1)
            tiles.setUniforms({}, [&](size_t h) { return headers[h - 1]; });
          decodePiece(prepared, tiles, packed, done, part, y);
        }
        if (k > 0)
          combine<true>(runs, MapTileOp::Add, sum, term, padded, sum);
      }
      if (kMean)
        combine<true>(runs, MapTileOp::Div, sum, divisor, padded, sum, true);
      std::byte *y = args.outputs[0].data() + (first + done) * sizeof(float);
      std::memcpy(y, sum, part * sizeof(float));
    }
    offset += codecBlockBytes(codec, count);
  }
}

} // namespace

const CodecProgramRuns &codecProgramRuns() {
  // Decoding is the sum of one.
  static constexpr CodecProgramRuns kRuns{encode, decodeReduce<false>, decodeReduce<false>,
                                          decodeReduce<true>};
  return kRuns;
}

} // namespace bagua::kernels
