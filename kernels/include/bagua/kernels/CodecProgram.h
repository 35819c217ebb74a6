// Codecs written in kernel bytecode: per block, statistics become headers, elements become codes,
// codes become elements again (SPEC.md, "User codecs").
#pragma once

#include "bagua/kernels/Map.h"

namespace bagua::kernels {

/// How a value of each element of a block becomes one of the block. Enumerators are only appended:
/// files hold them.
enum class BlockReduction : uint8_t { Max, Min, Sum };
constexpr uint8_t kBlockReductionCount = static_cast<uint8_t>(BlockReduction::Sum) + 1;

/// Programs without scalars; all arithmetic is f32.
struct CodecProgram {
  uint32_t block = 0;                     ///< Elements: a multiple of 8 in 8…65536.
  uint8_t headerCount = 0;                ///< Floats before a block's codes: 1…4.
  uint8_t codeBits = 0;                   ///< 1…16.
  bool signedCodes = false;               ///< Codes are two's complement.
  MapProgram stats;                       ///< x to the values that are reduced.
  std::vector<BlockReduction> reductions; ///< One for each output of `stats`.
  MapProgram headers;                     ///< The reduced values to the headers.
  MapProgram encode;                      ///< x, headers (broadcast) to the code, not yet rounded.
  MapProgram decode;                      ///< code, headers (broadcast) to y.
  bool operator==(const CodecProgram &) const = default;
};

constexpr size_t kCodecInstructionsMax = 240; ///< Of `encode` and of `decode`.

/// "" if `program` keeps the rules, else which it breaks and where. For programs of any origin.
std::string validateCodec(const CodecProgram &program);

/// Packed bytes of `count` elements under a valid `program`.
size_t codecPackedBytes(const CodecProgram &program, size_t count);

/// Finds `codec_encode`, `codec_decode`, `codec_decode_reduce_sum` or `codec_decode_reduce_mean` of
/// `program`. Operands as of the minmax kernels. BadAttribute if validateCodec() refuses. `error`,
/// `reference` as in find().
FindError findCodec(std::string_view name, std::shared_ptr<const CodecProgram> program, DType dtype,
                    Kernel &kernel, std::string &error, bool reference = false);

} // namespace bagua::kernels
