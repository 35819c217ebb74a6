// Finding a kernel by name, and choosing the instruction-set target.
#include "bagua/kernels/Kernels.h"

#include "Prepared.h"
#include "Runs.h"
#include "common/MinMax.h"

#include "hwy/targets.h"

#include <array>
#include <atomic>
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

enum class Family : uint8_t { Elementwise, MinMax };

struct Entry {
  std::string_view name;
  Family family;
  Kernel::Run ElementwiseRuns::*f32, ElementwiseRuns::*f64;
  Kernel::Run MinMaxRuns::*minMax;
  bool packedInput, packedOutput;
  size_t inputsMax;
};

constexpr Entry kEntries[] = {
    {"copy", Family::Elementwise, &ElementwiseRuns::copy, &ElementwiseRuns::copy, nullptr, false,
     false, 1},
    {"reduce_sum", Family::Elementwise, &ElementwiseRuns::reduceSumF32,
     &ElementwiseRuns::reduceSumF64, nullptr, false, false, SIZE_MAX},
    {"reduce_mean", Family::Elementwise, &ElementwiseRuns::reduceMeanF32,
     &ElementwiseRuns::reduceMeanF64, nullptr, false, false, SIZE_MAX},
    {"mix", Family::Elementwise, &ElementwiseRuns::mixF32, &ElementwiseRuns::mixF64, nullptr, false,
     false, SIZE_MAX},
    {"minmax_encode", Family::MinMax, nullptr, nullptr, &MinMaxRuns::encode, false, true, 1},
    {"minmax_decode", Family::MinMax, nullptr, nullptr, &MinMaxRuns::decode, true, false, 1},
    {"minmax_decode_reduce_sum", Family::MinMax, nullptr, nullptr, &MinMaxRuns::decodeReduceSum,
     true, false, SIZE_MAX},
    {"minmax_decode_reduce_mean", Family::MinMax, nullptr, nullptr, &MinMaxRuns::decodeReduceMean,
     true, false, SIZE_MAX},
};

FindError fail(std::string &error, FindError code, std::string text) {
  error = std::move(text);
  return code;
}

FindError readMinMaxAttributes(const Entry &entry, std::span<const Attribute> attributes,
                               Kernel &kernel, std::string &error) {
  const std::string who = "kernel '" + std::string(entry.name) + "'";
  for (const Attribute &attribute : attributes) {
    const std::string value = std::to_string(attribute.value);
    if (attribute.name == "bits") {
      if (attribute.value < kBitsMin || attribute.value > kBitsMax)
        return fail(error, FindError::BadAttribute,
                    who + " expects attribute 'bits' in 2…8, got " + value);
      kernel.bits = attribute.value;
    } else if (attribute.name == "block") {
      if (attribute.value < kBlockMin || attribute.value > kBlockMax || attribute.value % 8 != 0)
        return fail(error, FindError::BadAttribute,
                    who + " expects attribute 'block' to be a multiple of 8 in 8…65536, got " +
                        value);
      kernel.block = attribute.value;
    } else {
      return fail(error, FindError::BadAttribute,
                  who + " has no attribute '" + std::string(attribute.name) + "'");
    }
  }
  for (auto [name, value] : {std::pair{"bits", kernel.bits}, std::pair{"block", kernel.block}})
    if (value == 0)
      return fail(error, FindError::MissingAttribute,
                  who + " expects attribute '" + std::string(name) + "'");
  kernel.grain = static_cast<size_t>(kernel.block);
  return FindError::None;
}

} // namespace

size_t Kernel::inputBytes(size_t count, size_t input) const {
  if (prepared != nullptr && prepared->map != nullptr && prepared->map->broadcast[input] != 0)
    return elementBytes(dtype);
  return packedInput ? minmaxPackedBytes(count, bits, block) : count * elementBytes(dtype);
}

size_t Kernel::outputBytes(size_t count) const {
  return packedOutput ? minmaxPackedBytes(count, bits, block) : count * elementBytes(dtype);
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
  if (entry == nullptr)
    return fail(error, FindError::UnknownName, "no kernel is named '" + std::string(name) + "'");

  const std::string who = "kernel '" + std::string(name) + "'";
  Kernel result;
  result.dtype = dtype;
  result.packedInput = entry->packedInput;
  result.packedOutput = entry->packedOutput;
  result.inputsMax = entry->inputsMax;
  if (dtype != DType::F32 && (dtype != DType::F64 || entry->family == Family::MinMax))
    return fail(error, FindError::UnsupportedDType,
                who +
                    (entry->family == Family::MinMax ? " expects dtype f32, got "
                                                     : " expects dtype f32 or f64, got ") +
                    (dtype == DType::F64 ? "f64" : "an unknown one"));

  int64_t target = 0;
  if (!reference)
    if (FindError code = chooseTarget(target, error); code != FindError::None)
      return code;
  if (entry->family == Family::MinMax) {
    if (FindError code = readMinMaxAttributes(*entry, attributes, result, error);
        code != FindError::None)
      return code;
    const MinMaxRuns &runs = reference ? minMaxReference() : minMaxRuns(target);
    result.run = runs.*(entry->minMax);
  } else {
    if (!attributes.empty())
      return fail(error, FindError::BadAttribute,
                  who + " has no attribute '" + std::string(attributes[0].name) + "'");
    const ElementwiseRuns &runs = reference ? elementwiseReference() : elementwiseRuns(target);
    result.run = runs.*(dtype == DType::F32 ? entry->f32 : entry->f64);
  }
  kernel = result;
  return FindError::None;
}

size_t minmaxPackedBytes(size_t count, int64_t bits, int64_t block) {
  if (bits < kBitsMin || bits > kBitsMax || block < kBlockMin || block > kBlockMax ||
      block % 8 != 0)
    return 0;
  const size_t blockSize = static_cast<size_t>(block), rest = count % blockSize;
  return count / blockSize * minMaxBlockBytes(blockSize, bits) +
         (rest == 0 ? 0 : minMaxBlockBytes(rest, bits));
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
