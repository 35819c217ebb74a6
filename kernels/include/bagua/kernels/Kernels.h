// The kernels library: arithmetic on the caller's buffers. Allocates nothing, locks nothing, logs
// nothing; every function is thread-safe. All targets give the same bytes (SPEC.md, "Kernels").
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace bagua::kernels {

enum class DType : uint8_t { F32, F64 };
constexpr size_t elementBytes(DType dtype) { return dtype == DType::F32 ? 4 : 8; }

/// Attributes of a kernel, constant for a schedule (e.g. bits = 8, block = 2048).
struct Attribute {
  std::string_view name;
  int64_t value;
};

/// What findMap() and findCodec() make of a program, for its launches.
struct PreparedProgram;

/// One launch. Inputs and outputs are byte ranges in the order the kernel documents, at any
/// alignment; an output may be exactly one of the inputs (same first byte) where the kernel says
/// so, else they do not overlap. The caller has checked the number of inputs, outputs and scalars,
/// and the sizes.
struct Args {
  std::span<const std::span<const std::byte>> inputs;
  std::span<const std::span<std::byte>> outputs;
  std::span<const double> scalars;
  size_t count = 0; ///< Elements of the whole launch.
};

/// How a codec lays out bytes: a block of m elements has headerBytes, then
/// ceil(m * units / elements) units of unitBytes; blocks lie back to back.
struct Packing {
  uint32_t block = 1; ///< Elements; 1 where each stands for itself.
  uint32_t headerBytes = 0, unitBytes = 0;
  uint32_t units = 1, elements = 1;

  size_t blockBytes(size_t count) const {
    return headerBytes + (count * units + elements - 1) / elements * unitBytes;
  }
  /// Of `count` elements, the last block possibly short.
  size_t bytes(size_t count) const {
    const size_t rest = count % block;
    return count / block * blockBytes(block) + (rest == 0 ? 0 : blockBytes(rest));
  }
};

/// A kernel bound to a dtype and attributes.
///
///   name                       inputs                       outputs     scalars   in place
///   copy                       x                            y                     -
///   reduce_sum, reduce_mean    x0 … x(n-1), n >= 1          y                     y may be any xi
///   mix                        w, x1 … xk                   y           a1 … ak   y may be w
///   dot                        x, y                         one element           no
///   norm, all_finite           x                            one element           no
///   random_uniform             none                         y           random    -
///   C_encode                   x                            packed      (random)  no
///   C_decode                   packed                       y           (random)  no
///   C_decode_reduce_sum, _mean packed0 … packed(n-1), n >= 1  y         (random)  no
///
/// C is a codec: identity f16 bf16 minmax minmax_reference qsgd sign ternary topk randk; f32, but
/// for identity. Attributes, bytes and laws are in SPEC.md. random stands for seed, step, rank (-1:
/// shared by all), bucket, op, index in the bucket of the first element; (random) for codecs whose
/// encoding (qsgd, ternary, randk) or decoding (randk) draws numbers.
///
/// reduce: y = ((x0 + x1) + x2) + …, left fold; mean divides that by n, one rounding.
/// mix: y = w + (a1*(x1 - w) + a2*(x2 - w) + …), the sum a left fold from its first term.
struct Kernel {
  using Run = void (*)(const Kernel &, const Args &, size_t begin, size_t end);
  Run run = nullptr; ///< Elements [begin, end); both multiples of `grain` (end may be count).
  size_t grain = 1;  ///< A launch may be split at multiples of it, pieces run concurrently.
  DType dtype = DType::F32;
  int64_t bits = 0, block = 0, levels = 0, norm = 0, k = 0, scaled = 0; ///< Of codecs.
  Packing packing; ///< Of the packed inputs or output.

  /// Bytes that input i / output i must have for `count` elements. Inputs differ only where a map
  /// has broadcast ones. SIZE_MAX beyond 2^48 elements, for which there is no memory.
  size_t inputBytes(size_t count, size_t input = 0) const;
  size_t outputBytes(size_t count) const;
  bool packedInput = false, packedOutput = false;
  bool oneElementOutput = false;
  size_t inputsMin = 1, inputsMax = SIZE_MAX;
  size_t outputs = 1;
  size_t scalars = 0;         ///< But for mix.
  bool scalarPerPeer = false; ///< mix: one for each input but the first.
  size_t scalarsFor(size_t inputs) const { return scalarPerPeer ? inputs - 1 : scalars; }
  std::shared_ptr<const PreparedProgram> prepared;
};

enum class FindError : uint8_t {
  None,
  UnknownName,
  UnsupportedDType,
  BadAttribute,
  MissingAttribute,
  UnknownTarget, ///< BAGUA_KERNELS_TARGET names none of supportedTargets().
};

/// Finds kernel `name`; on failure says why in `error` (must be non-null). `reference` selects the
/// plain scalar implementation, the oracle of the tests.
FindError find(std::string_view name, DType dtype, std::span<const Attribute> attributes,
               Kernel &kernel, std::string &error, bool reference = false);

/// Packed bytes of `count` f32 elements under a codec, named as above; 0 if find() would refuse
/// these attributes.
size_t packedBytes(std::string_view codec, std::span<const Attribute> attributes, size_t count);
/// The same for minmax(bits, block).
size_t minmaxPackedBytes(size_t count, int64_t bits, int64_t block);

/// Instruction-set targets this CPU can run, best first; BAGUA_KERNELS_TARGET, read once, picks one
/// by name (find() refuses an unknown one).
std::span<const std::string_view> supportedTargets();
/// Forces a target on later calls of find(), for tests; false if the CPU lacks it. "" restores the
/// best.
bool selectTarget(std::string_view name);

} // namespace bagua::kernels
