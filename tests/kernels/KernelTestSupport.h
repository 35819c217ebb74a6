// What the kernel tests share: guarded memory, launches, and inputs on which codecs have failed.
#pragma once

#include "bagua/kernels/Kernels.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

namespace bagua::kernels {

/// Memory between two pages that cannot be touched. `AtEnd` puts the last byte before the upper
/// one.
class GuardedBytes {
public:
  enum class Place { AtEnd, AtStart };
  explicit GuardedBytes(size_t size, Place place = Place::AtEnd) : size_(size) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    mapped_ = (size + page - 1) / page * page + 2 * page;
    base_ = static_cast<std::byte *>(
        mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (base_ == MAP_FAILED || mprotect(base_, page, PROT_NONE) != 0 ||
        mprotect(base_ + mapped_ - page, page, PROT_NONE) != 0)
      std::abort();
    data_ = place == Place::AtStart ? base_ + page : base_ + mapped_ - page - size;
  }
  GuardedBytes(std::span<const std::byte> bytes, Place place = Place::AtEnd)
      : GuardedBytes(bytes.size(), place) {
    std::copy(bytes.begin(), bytes.end(), data_);
  }
  ~GuardedBytes() { munmap(base_, mapped_); }
  GuardedBytes(const GuardedBytes &) = delete;
  GuardedBytes &operator=(const GuardedBytes &) = delete;

  std::span<std::byte> bytes() const { return {data_, size_}; }

private:
  size_t size_, mapped_ = 0;
  std::byte *base_ = nullptr, *data_ = nullptr;
};

using Bytes = std::vector<std::byte>;
constexpr std::byte kPoison{0xa5};

template <typename T> std::span<const std::byte> bytesOf(const std::vector<T> &values) {
  return std::as_bytes(std::span(values));
}

template <typename T> std::vector<T> valuesOf(std::span<const std::byte> bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty())
    std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

inline Kernel mustFind(std::string_view name, DType dtype, std::span<const Attribute> attributes,
                       bool reference = false) {
  Kernel kernel;
  std::string error;
  EXPECT_EQ(find(name, dtype, attributes, kernel, error, reference), FindError::None) << error;
  return kernel;
}

/// Runs `kernel` on copies of the inputs in guarded memory, in pieces cut at `cuts` (multiples of
/// the grain), and returns the output.
inline Bytes launch(const Kernel &kernel, size_t count, const std::vector<Bytes> &inputs,
                    const std::vector<double> &scalars = {}, const std::vector<size_t> &cuts = {},
                    GuardedBytes::Place place = GuardedBytes::Place::AtEnd) {
  std::vector<std::unique_ptr<GuardedBytes>> memory;
  std::vector<std::span<const std::byte>> views;
  for (const Bytes &input : inputs) {
    EXPECT_EQ(input.size(), kernel.inputBytes(count));
    memory.push_back(std::make_unique<GuardedBytes>(input, place));
    views.push_back(memory.back()->bytes());
  }
  GuardedBytes output(kernel.outputBytes(count), place);
  std::fill(output.bytes().begin(), output.bytes().end(), kPoison);
  std::span<std::byte> outputs[] = {output.bytes()};
  Args args{views, outputs, scalars, count};
  size_t begin = 0;
  for (size_t cut : cuts) {
    kernel.run(kernel, args, begin, cut);
    begin = cut;
  }
  kernel.run(kernel, args, begin, count);
  return Bytes(output.bytes().begin(), output.bytes().end());
}

/// Elements of a launch that is large enough for streaming stores.
constexpr size_t kLargeCount = (size_t{16} << 20) / sizeof(float) + 1003;

/// The first and the last elements of a large launch, on inputs that are zero elsewhere. Fails if
/// other bytes than those of the two pieces were written. The output begins `shift` bytes before
/// the guard's natural place; with `inPlace` it is input 0.
inline Bytes launchEnds(const Kernel &kernel, const std::vector<Bytes> &heads,
                        const std::vector<Bytes> &tails, size_t headCount, size_t tailBegin,
                        const std::vector<double> &scalars, size_t shift = 0,
                        bool inPlace = false) {
  const size_t count = kLargeCount;
  std::vector<std::unique_ptr<GuardedBytes>> memory;
  std::vector<std::span<const std::byte>> views;
  for (size_t k = 0; k < heads.size(); ++k) {
    memory.push_back(std::make_unique<GuardedBytes>(kernel.inputBytes(count)));
    auto bytes = memory.back()->bytes();
    std::copy(heads[k].begin(), heads[k].end(), bytes.begin());
    std::copy(tails[k].begin(), tails[k].end(),
              bytes.end() - static_cast<ptrdiff_t>(tails[k].size()));
    views.push_back(bytes);
  }
  const size_t outBytes = kernel.outputBytes(count);
  GuardedBytes output(outBytes + shift);
  std::span<std::byte> y = inPlace ? memory[0]->bytes() : output.bytes().first(outBytes);
  std::span<std::byte> outputs[] = {y};
  Args args{views, outputs, scalars, count};
  const size_t headBytes = kernel.outputBytes(headCount), tailStart = kernel.outputBytes(tailBegin);
  kernel.run(kernel, args, tailBegin, count);
  kernel.run(kernel, args, 0, headCount);
  const size_t margin = 20000;
  for (size_t from : {headBytes, tailStart - margin})
    for (size_t i = from; i < from + margin; ++i)
      if (y[i] != std::byte{0}) {
        ADD_FAILURE() << "byte " << i << " of " << outBytes << " was written, but is in no piece";
        i = from + margin;
      }
  Bytes result(y.begin(), y.begin() + static_cast<ptrdiff_t>(headBytes));
  result.insert(result.end(), y.begin() + static_cast<ptrdiff_t>(tailStart), y.end());
  return result;
}

template <typename T> Bytes toBytes(const std::vector<T> &values) {
  auto bytes = bytesOf(values);
  return Bytes(bytes.begin(), bytes.end());
}

/// "" if equal, else where and how they differ.
template <typename T> std::string difference(const Bytes &got, const Bytes &expected) {
  if (got.size() != expected.size())
    return "sizes " + std::to_string(got.size()) + " and " + std::to_string(expected.size());
  for (size_t i = 0; i < got.size(); ++i)
    if (got[i] != expected[i]) {
      char text[200];
      const size_t element = i / sizeof(T);
      T a{}, b{};
      std::memcpy(&a, got.data() + element * sizeof(T),
                  std::min(sizeof(T), got.size() - element * sizeof(T)));
      std::memcpy(&b, expected.data() + element * sizeof(T),
                  std::min(sizeof(T), got.size() - element * sizeof(T)));
      std::snprintf(text, sizeof(text),
                    "byte %zu (element %zu): got 0x%02x (%a), expected 0x%02x (%a)", i, element,
                    std::to_integer<unsigned>(got[i]), static_cast<double>(a),
                    std::to_integer<unsigned>(expected[i]), static_cast<double>(b));
      return text;
    }
  return "";
}

/// 0, 1, around every vector width and unrolling, and beyond: 2 * 64 + 3 …
inline std::vector<size_t> tailCounts() {
  return {0,  1,  2,  3,  4,  5,  7,   8,   9,   15,  16,  17,  31,
          32, 33, 47, 63, 64, 65, 127, 128, 129, 131, 259, 1003};
}

enum class Data { Normal, AnyBits };

/// Standard normal values, or any bit pattern with every kind of special value frequent.
template <typename T> std::vector<T> randomValues(size_t count, unsigned seed, Data data) {
  using Word = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  const T inf = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
  const T special[] = {T{0},
                       -T{0},
                       inf,
                       -inf,
                       nan,
                       std::bit_cast<T>(static_cast<Word>(std::bit_cast<Word>(nan) | 0x1234)),
                       std::copysign(nan, T{-1}),
                       std::numeric_limits<T>::denorm_min(),
                       -std::numeric_limits<T>::denorm_min(),
                       std::numeric_limits<T>::max(),
                       std::numeric_limits<T>::lowest(),
                       std::numeric_limits<T>::min(),
                       T{1}};
  std::vector<T> values(count);
  for (T &value : values)
    if (data == Data::Normal)
      value = static_cast<T>(normal(random));
    else if (random() % 2 == 0)
      value = special[random() % std::size(special)];
    else
      value = std::bit_cast<T>(static_cast<Word>(random()));
  return values;
}

/// Runs a test once per instruction-set target.
class TargetTest : public testing::TestWithParam<std::string_view> {
protected:
  void SetUp() override { ASSERT_TRUE(selectTarget(GetParam())); }
  void TearDown() override { selectTarget(""); }
};

inline std::string targetTestName(const testing::TestParamInfo<std::string_view> &info) {
  return std::string(info.param);
}

} // namespace bagua::kernels
