// Finding a kernel by name, and choosing the instruction-set target.
#include "bagua/kernels/Kernels.h"

#include "Prepared.h"
#include "Runs.h"
#include "common/Sparse.h"

#include "hwy/targets.h"

#include <array>
#include <atomic>
#include <bit>
#include <cstdio>
#include <cstdlib>

namespace bagua::kernels {
namespace {

constexpr int64_t kBlockMin = 8, kBlockMax = 65536, kBitsMin = 2, kBitsMax = 8;

struct Targets {
  std::array<int64_t, 64> bits{};
  std::array<std::string_view, 64> names{};
  size_t count = 0;
};

/// Best first: Highway gives better targets lower bits.
const Targets &targets() {
  static const Targets kTargets = [] {
    Targets result;
    int64_t left = compiledTargets() & hwy::SupportedTargets();
    for (; left != 0; left &= left - 1) {
      int64_t bit = left & -left;
      result.bits[result.count] = bit;
      result.names[result.count++] = hwy::TargetName(bit);
    }
    return result;
  }();
  return kTargets;
}

size_t indexOf(std::string_view name) {
  const Targets &all = targets();
  for (size_t i = 0; i < all.count; ++i)
    if (all.names[i] == name)
      return i;
  return all.count;
}

/// Index into targets() of what find() hands out.
std::atomic<size_t> &selected() {
  static std::atomic<size_t> index = [] {
    const char *wanted = std::getenv("BAGUA_KERNELS_TARGET");
    if (wanted == nullptr || *wanted == '\0')
      return size_t{0};
    size_t index = indexOf(wanted);
    if (index < targets().count)
      return index;
    // find() turns this into an error: results must not silently come from another target.
    return targets().count;
  }();
  return index;
}

std::string targetList() {
  std::string list;
  for (std::string_view name : supportedTargets())
    list.append(list.empty() ? "" : ", ").append(name);
  return list;
}

/// Kernels whose runs depend on the dtype alone.
struct Entry {
  std::string_view name;
  Kernel::Run ElementwiseRuns::*f32, ElementwiseRuns::*f64;
  Kernel::Run ReductionRuns::*reduction;
  size_t inputsMin, inputsMax;
};

constexpr Entry kEntries[] = {
    {"copy", &ElementwiseRuns::copy, &ElementwiseRuns::copy, nullptr, 1, 1},
    {"reduce_sum", &ElementwiseRuns::reduceSumF32, &ElementwiseRuns::reduceSumF64, nullptr, 1,
     SIZE_MAX},
    {"reduce_mean", &ElementwiseRuns::reduceMeanF32, &ElementwiseRuns::reduceMeanF64, nullptr, 1,
     SIZE_MAX},
    {"mix", &ElementwiseRuns::mixF32, &ElementwiseRuns::mixF64, nullptr, 1, SIZE_MAX},
    {"dot", nullptr, nullptr, &ReductionRuns::dot, 2, 2},
    {"norm", nullptr, nullptr, &ReductionRuns::norm, 1, 1},
    {"all_finite", nullptr, nullptr, &ReductionRuns::allFinite, 1, 1},
    {"random_uniform", nullptr, nullptr, &ReductionRuns::randomUniform, 0, 0},
};

/// More elements than any launch has, and far from overflow: the grain of kernels that cannot be
/// split.
constexpr size_t kWholeLaunch = size_t{1} << 48;

struct AttributeRule {
  std::string_view name;
  int64_t Kernel::*field;
  int64_t min, max, multipleOf;
};
constexpr AttributeRule kBits{"bits", &Kernel::bits, kBitsMin, kBitsMax, 1};
constexpr AttributeRule kBlock{"block", &Kernel::block, kBlockMin, kBlockMax, 8};
constexpr AttributeRule kSparseBlock{"block", &Kernel::block, kBlockMin,
                                     static_cast<int64_t>(kSparseBlockMax), 8};
constexpr AttributeRule kLevels{"levels", &Kernel::levels, 1, 127, 1};
constexpr AttributeRule kNorm{"norm", &Kernel::norm, 0, 2, 2};
constexpr AttributeRule kEntriesPerBlock{"k", &Kernel::k, 1, static_cast<int64_t>(kSparseBlockMax),
                                         1};
constexpr AttributeRule kScaled{"scaled", &Kernel::scaled, 0, 1, 1};

struct CodecEntry {
  std::string_view name;
  std::array<const AttributeRule *, 3> attributes;
  const CodecRuns &(*runs)(int64_t target);
  const CodecRuns &(*reference)();
  bool randomEncode, randomDecode;
};

constexpr CodecEntry kCodecs[] = {
    {"identity", {}, nullptr, nullptr, false, false}, // Runs of copy and reduce.
    {"f16", {}, f16Runs, f16Reference, false, false},
    {"bf16", {}, bf16Runs, bf16Reference, false, false},
    {"minmax", {&kBits, &kBlock}, minMaxRuns, minMaxReference, false, false},
    {"minmax_reference", {&kBlock}, minMaxReferenceRuns, minMaxReferenceReference, false, false},
    {"qsgd", {&kLevels, &kNorm, &kBlock}, qsgdRuns, qsgdReference, true, false},
    {"ternary", {&kBlock}, qsgdRuns, qsgdReference, true, false},
    {"sign", {&kBlock}, signRuns, signReference, false, false},
    {"topk", {&kEntriesPerBlock, &kSparseBlock}, topKRuns, topKReference, false, false},
    {"randk", {&kEntriesPerBlock, &kSparseBlock, &kScaled}, randKRuns, randKReference, true, true},
};

/// What kernels of a codec are called after it.
struct CodecOperation {
  std::string_view suffix;
  Kernel::Run CodecRuns::*run;
};
constexpr CodecOperation kCodecOperations[] = {
    {"_encode", &CodecRuns::encode},
    {"_decode", &CodecRuns::decode},
    {"_decode_reduce_sum", &CodecRuns::decodeReduceSum},
    {"_decode_reduce_mean", &CodecRuns::decodeReduceMean},
};

constexpr size_t kRandomScalars = 6;

FindError fail(std::string &error, FindError code, std::string text) {
  error = std::move(text);
  return code;
}

/// "in 2…8", "to be a multiple of 8 in 8…65536".
std::string expectation(const AttributeRule &rule) {
  const std::string range = std::to_string(rule.min) + "…" + std::to_string(rule.max);
  return rule.multipleOf == 1
             ? "in " + range
             : "to be a multiple of " + std::to_string(rule.multipleOf) + " in " + range;
}

FindError readAttributes(const CodecEntry &codec, const std::string &who,
                         std::span<const Attribute> attributes, Kernel &kernel,
                         std::string &error) {
  std::array<bool, 3> given{};
  for (const Attribute &attribute : attributes) {
    size_t index = 0;
    while (index < codec.attributes.size() && codec.attributes[index] != nullptr &&
           codec.attributes[index]->name != attribute.name)
      ++index;
    if (index == codec.attributes.size() || codec.attributes[index] == nullptr)
      return fail(error, FindError::BadAttribute,
                  who + " has no attribute '" + std::string(attribute.name) + "'");
    const AttributeRule &rule = *codec.attributes[index];
    if (attribute.value < rule.min || attribute.value > rule.max ||
        attribute.value % rule.multipleOf != 0)
      return fail(error, FindError::BadAttribute,
                  who + " expects attribute '" + std::string(rule.name) + "' " + expectation(rule) +
                      ", got " + std::to_string(attribute.value));
    kernel.*(rule.field) = attribute.value;
    given[index] = true;
  }
  for (size_t index = 0; index < given.size() && codec.attributes[index] != nullptr; ++index)
    if (!given[index])
      return fail(error, FindError::MissingAttribute,
                  who + " expects attribute '" + std::string(codec.attributes[index]->name) + "'");
  if (kernel.k > kernel.block)
    return fail(error, FindError::BadAttribute,
                who + " expects attribute 'k' in 1…" + std::to_string(kernel.block) +
                    ", the block, got " + std::to_string(kernel.k));
  return FindError::None;
}

Packing codesPacking(const Kernel &kernel, uint32_t headerBytes) {
  return {static_cast<uint32_t>(kernel.block), headerBytes, 1, static_cast<uint32_t>(kernel.bits),
          8};
}

Packing sparsePacking(const Kernel &kernel, uint32_t entryBytes) {
  const uint32_t block = static_cast<uint32_t>(kernel.block);
  return {block, 0, entryBytes, static_cast<uint32_t>(kernel.k), block};
}

/// Reads the attributes of `codec`, derives what follows from them.
FindError bindCodec(const CodecEntry &codec, const std::string &who,
                    std::span<const Attribute> attributes, Kernel &kernel, std::string &error) {
  if (FindError code = readAttributes(codec, who, attributes, kernel, error);
      code != FindError::None)
    return code;
  const std::string_view name = codec.name;
  if (name == "identity") {
    kernel.packing.unitBytes = static_cast<uint32_t>(elementBytes(kernel.dtype));
  } else if (name == "f16" || name == "bf16") {
    kernel.packing.unitBytes = sizeof(uint16_t);
  } else if (name == "topk") {
    kernel.packing = sparsePacking(kernel, sizeof(SparseIndex) + sizeof(float));
  } else if (name == "randk") {
    kernel.packing = sparsePacking(kernel, sizeof(float));
  } else {
    if (name == "ternary")
      kernel.levels = 1;
    if (name == "minmax_reference")
      kernel.bits = 8;
    else if (name == "sign")
      kernel.bits = 1;
    else if (kernel.levels != 0) // Codes 0 … 2 * levels.
      kernel.bits = std::bit_width(static_cast<uint64_t>(2 * kernel.levels));
    const bool twoFloats = name == "minmax" || name == "minmax_reference";
    kernel.packing = codesPacking(kernel, twoFloats ? 8 : 4);
  }
  kernel.grain = kernel.packing.block;
  return FindError::None;
}

/// The codec whose kernel is called `name`, and which of its kernels.
const CodecEntry *codecOf(std::string_view name, const CodecOperation *&operation) {
  for (const CodecEntry &codec : kCodecs)
    if (name.starts_with(codec.name))
      for (const CodecOperation &candidate : kCodecOperations)
        if (name.substr(codec.name.size()) == candidate.suffix) {
          operation = &candidate;
          return &codec;
        }
  return nullptr;
}

FindError checkDType(const std::string &who, DType dtype, bool acceptsF64, std::string &error) {
  if (dtype == DType::F32 || (dtype == DType::F64 && acceptsF64))
    return FindError::None;
  return fail(error, FindError::UnsupportedDType,
              who + (acceptsF64 ? " expects dtype f32 or f64, got " : " expects dtype f32, got ") +
                  (dtype == DType::F64 ? "f64" : "an unknown one"));
}

/// No range has SIZE_MAX bytes; a product that wraps could have those of one.
size_t bytesOf(const Kernel &kernel, bool packed, size_t count) {
  if (count > kWholeLaunch)
    return SIZE_MAX;
  return packed ? kernel.packing.bytes(count) : count * elementBytes(kernel.dtype);
}

} // namespace

size_t Kernel::inputBytes(size_t count, size_t input) const {
  if (prepared != nullptr && prepared->map != nullptr && prepared->map->broadcast[input] != 0)
    return elementBytes(dtype);
  return bytesOf(*this, packedInput, count);
}

size_t Kernel::outputBytes(size_t count) const {
  if (oneElementOutput)
    return elementBytes(dtype);
  return bytesOf(*this, packedOutput, count);
}

FindError chooseTarget(int64_t &target, std::string &error) {
  const size_t index = selected().load(std::memory_order_acquire);
  if (index >= targets().count) {
    const char *wanted = std::getenv("BAGUA_KERNELS_TARGET");
    return fail(error, FindError::UnknownTarget,
                "BAGUA_KERNELS_TARGET expects one of " + targetList() + ", got '" +
                    (wanted == nullptr ? "" : wanted) + "'");
  }
  target = targets().bits[index];
  return FindError::None;
}

FindError find(std::string_view name, DType dtype, std::span<const Attribute> attributes,
               Kernel &kernel, std::string &error, bool reference) {
  const Entry *entry = nullptr;
  for (const Entry &candidate : kEntries)
    if (candidate.name == name)
      entry = &candidate;
  const CodecOperation *operation = nullptr;
  const CodecEntry *codec = entry == nullptr ? codecOf(name, operation) : nullptr;
  if (entry == nullptr && codec == nullptr)
    return fail(error, FindError::UnknownName, "no kernel is named '" + std::string(name) + "'");

  const std::string who = "kernel '" + std::string(name) + "'";
  Kernel result;
  result.dtype = dtype;
  const bool acceptsF64 = codec == nullptr || codec->runs == nullptr;
  if (FindError code = checkDType(who, dtype, acceptsF64, error); code != FindError::None)
    return code;
  int64_t target = 0;
  if (!reference)
    if (FindError code = chooseTarget(target, error); code != FindError::None)
      return code;
  const ElementwiseRuns &elementwise = reference ? elementwiseReference() : elementwiseRuns(target);
  if (codec != nullptr) {
    if (FindError code = bindCodec(*codec, who, attributes, result, error); code != FindError::None)
      return code;
    const bool encodes = operation->run == &CodecRuns::encode;
    result.packedInput = !encodes;
    result.packedOutput = encodes;
    const bool one = encodes || operation->run == &CodecRuns::decode;
    result.inputsMax = one ? 1 : SIZE_MAX;
    result.scalars = (encodes ? codec->randomEncode : codec->randomDecode) ? kRandomScalars : 0;
    if (codec->runs != nullptr) {
      const CodecRuns &runs = reference ? codec->reference() : codec->runs(target);
      result.run = runs.*(operation->run);
    } else if (one) {
      result.run = elementwise.copy;
    } else {
      const bool mean = operation->run == &CodecRuns::decodeReduceMean;
      const bool f32 = dtype == DType::F32;
      result.run = mean  ? f32 ? elementwise.reduceMeanF32 : elementwise.reduceMeanF64
                   : f32 ? elementwise.reduceSumF32
                         : elementwise.reduceSumF64;
    }
  } else {
    if (!attributes.empty())
      return fail(error, FindError::BadAttribute,
                  who + " has no attribute '" + std::string(attributes[0].name) + "'");
    result.inputsMin = entry->inputsMin;
    result.inputsMax = entry->inputsMax;
    result.scalarPerPeer = name == "mix";
    if (entry->reduction != nullptr) {
      const ReductionRuns &runs =
          reference ? reductionReference(dtype) : reductionRuns(target, dtype);
      result.run = runs.*(entry->reduction);
      result.oneElementOutput = entry->inputsMax > 0;
      if (result.oneElementOutput)
        result.grain = kWholeLaunch;
      else
        result.scalars = kRandomScalars;
    } else {
      result.run = elementwise.*(dtype == DType::F32 ? entry->f32 : entry->f64);
    }
  }
  kernel = result;
  return FindError::None;
}

size_t packedBytes(std::string_view codec, std::span<const Attribute> attributes, size_t count) {
  for (const CodecEntry &entry : kCodecs) {
    Kernel kernel;
    std::string error;
    if (entry.name == codec &&
        bindCodec(entry, std::string(codec), attributes, kernel, error) == FindError::None)
      return kernel.packing.bytes(count);
  }
  return 0;
}

size_t minmaxPackedBytes(size_t count, int64_t bits, int64_t block) {
  const Attribute attributes[] = {{"bits", bits}, {"block", block}};
  return packedBytes("minmax", attributes, count);
}

std::span<const std::string_view> supportedTargets() {
  return std::span(targets().names).first(targets().count);
}

bool selectTarget(std::string_view name) {
  const size_t index = name.empty() ? 0 : indexOf(name);
  if (index >= targets().count)
    return false;
  selected().store(index, std::memory_order_release);
  return true;
}

} // namespace bagua::kernels
