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

/// A kernel bound to a dtype and attributes.
///
///   name                       inputs                       outputs     scalars   in place
///   copy                       x                            y                     -
///   reduce_sum, reduce_mean    x0 … x(n-1), n >= 1          y                     y may be any xi
///   mix                        w, x1 … xk                   y           a1 … ak   y may be w
///   minmax_encode              x                            packed                no   (F32)
///   minmax_decode              packed                       y                     no   (F32)
///   minmax_decode_reduce_sum, _mean   packed0 … packed(n-1) y                     no   (F32)
///
/// reduce: y = ((x0 + x1) + x2) + …, left fold; mean divides that by n, one rounding.
/// mix: y = w + (a1*(x1 - w) + a2*(x2 - w) + …), the sum a left fold from its first term.
/// minmax: attributes bits in 2…8 and block (elements, multiple of 8, 8…65536); wire format in
/// SPEC.md.
struct Kernel {
  using Run = void (*)(const Kernel &, const Args &, size_t begin, size_t end);
  Run run = nullptr; ///< Elements [begin, end); both multiples of `grain` (end may be count).
  size_t grain = 1;  ///< A launch may be split at multiples of it, pieces run concurrently.
  DType dtype = DType::F32;
  int64_t bits = 0, block = 0;

  /// Bytes that input i / output i must have for `count` elements. Inputs differ only where a map
  /// has broadcast ones.
  size_t inputBytes(size_t count, size_t input = 0) const;
  size_t outputBytes(size_t count) const;
  bool packedInput = false, packedOutput = false;
  size_t inputsMin = 1, inputsMax = SIZE_MAX; ///< mix: scalars = inputs - 1
  size_t outputs = 1;
  size_t scalars = 0; ///< Of a map; see above for others.
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

/// Packed bytes of `count` elements under minmax(bits, block); 0 if find() would refuse these
/// attributes.
size_t minmaxPackedBytes(size_t count, int64_t bits, int64_t block);

/// Instruction-set targets this CPU can run, best first; BAGUA_KERNELS_TARGET, read once, picks one
/// by name (find() refuses an unknown one).
std::span<const std::string_view> supportedTargets();
/// Forces a target on later calls of find(), for tests; false if the CPU lacks it. "" restores the
/// best.
bool selectTarget(std::string_view name);

} // namespace bagua::kernels
