// copy, reduce and mix: every target equals the reference bit for bit, and the reference equals an
// oracle that computes in twice the precision.
#include "KernelTestSupport.h"

namespace bagua::kernels {
namespace {

struct Case {
  const char *name;
  size_t inputs;
};
const Case kCases[] = {
    {"copy", 1},        {"reduce_sum", 1},  {"reduce_sum", 2},  {"reduce_sum", 3},
    {"reduce_sum", 8},  {"reduce_mean", 1}, {"reduce_mean", 2}, {"reduce_mean", 3},
    {"reduce_mean", 4}, {"reduce_mean", 5}, {"reduce_mean", 8}, {"reduce_mean", 33},
    {"mix", 1},         {"mix", 2},         {"mix", 3},         {"mix", 6}};

template <typename T> constexpr DType kDType = sizeof(T) == 4 ? DType::F32 : DType::F64;

template <typename T>
std::vector<Bytes> inputsFor(const Case &c, size_t count, unsigned seed, Data data) {
  std::vector<Bytes> inputs;
  for (size_t k = 0; k < c.inputs; ++k)
    inputs.push_back(toBytes(randomValues<T>(count, seed + static_cast<unsigned>(k), data)));
  return inputs;
}

std::vector<double> scalarsFor(const Case &c) {
  // 1/3 is no float: the rounding of scalars to the dtype is part of the contract.
  return std::string_view(c.name) == "mix" ? std::vector<double>(c.inputs - 1, 1.0 / 3.0)
                                           : std::vector<double>{};
}

class ElementwiseTargetTest : public TargetTest {
protected:
  template <typename T> void sameBitsAsReference() {
    for (const Case &c : kCases)
      for (size_t count : tailCounts())
        for (Data data : {Data::Normal, Data::AnyBits}) {
          auto inputs = inputsFor<T>(c, count, static_cast<unsigned>(count), data);
          Bytes expected =
              launch(mustFind(c.name, kDType<T>, {}, true), count, inputs, scalarsFor(c));
          for (auto place : {GuardedBytes::Place::AtEnd, GuardedBytes::Place::AtStart})
            EXPECT_EQ(difference<T>(launch(mustFind(c.name, kDType<T>, {}), count, inputs,
                                           scalarsFor(c), {}, place),
                                    expected),
                      "")
                << c.name << ", " << c.inputs << " inputs, count " << count << ", seed " << count;
        }
  }

  /// The output takes the place of input `shared`.
  template <typename T> void inPlace(const Case &c, size_t shared) {
    const size_t count = 131;
    auto inputs = inputsFor<T>(c, count, 7, Data::AnyBits);
    Kernel kernel = mustFind(c.name, kDType<T>, {});
    Bytes expected = launch(kernel, count, inputs, scalarsFor(c));
    std::vector<std::span<const std::byte>> views(inputs.begin(), inputs.end());
    std::span<std::byte> outputs[] = {inputs[shared]};
    std::vector<double> scalars = scalarsFor(c);
    kernel.run(kernel, Args{views, outputs, scalars, count}, 0, count);
    EXPECT_EQ(difference<T>(inputs[shared], expected), "")
        << c.name << " into input " << shared << " of " << c.inputs;
  }
};

TEST_P(ElementwiseTargetTest, SameBitsAsReferenceF32) { sameBitsAsReference<float>(); }
TEST_P(ElementwiseTargetTest, SameBitsAsReferenceF64) { sameBitsAsReference<double>(); }

TEST_P(ElementwiseTargetTest, OutputMayBeAnyInputOfReduceAndTheWeightOfMix) {
  for (const Case &c : kCases) {
    if (std::string_view(c.name) == "copy")
      continue;
    const size_t last = std::string_view(c.name) == "mix" ? 1 : c.inputs;
    for (size_t shared = 0; shared < last; ++shared) {
      inPlace<float>(c, shared);
      inPlace<double>(c, shared);
    }
  }
}

TEST_P(ElementwiseTargetTest, PiecesGiveTheSameBytes) {
  for (const Case &c : kCases) {
    auto inputs = inputsFor<float>(c, 259, 11, Data::AnyBits);
    Kernel kernel = mustFind(c.name, DType::F32, {});
    EXPECT_EQ(kernel.grain, 1u);
    Bytes whole = launch(kernel, 259, inputs, scalarsFor(c));
    for (const std::vector<size_t> &cuts :
         {std::vector<size_t>{1}, {0, 100}, {3, 64, 65, 66, 258, 259}})
      EXPECT_EQ(difference<float>(launch(kernel, 259, inputs, scalarsFor(c), cuts), whole), "")
          << c.name;
  }
}

TEST_P(ElementwiseTargetTest, BuffersMayBeUnaligned) {
  for (const Case &c : kCases) {
    const size_t count = 67;
    auto inputs = inputsFor<double>(c, count, 13, Data::AnyBits);
    Kernel kernel = mustFind(c.name, DType::F64, {});
    Bytes expected = launch(kernel, count, inputs, scalarsFor(c));
    std::vector<std::span<const std::byte>> views;
    for (Bytes &input : inputs) {
      input.insert(input.begin(), std::byte{1}); // Vectors start aligned: now the data does not.
      views.push_back(std::span(input).subspan(1));
    }
    Bytes output(expected.size() + 3);
    std::span<std::byte> outputs[] = {std::span(output).subspan(3)};
    std::vector<double> scalars = scalarsFor(c);
    kernel.run(kernel, Args{views, outputs, scalars, count}, 0, count);
    EXPECT_EQ(difference<double>(Bytes(output.begin() + 3, output.end()), expected), "") << c.name;
  }
}

TEST_P(ElementwiseTargetTest, LargeLaunchesGiveTheSameBits) {
  const size_t head = 9001, tail = 2003; // Beyond two rounds of every unrolled loop.
  for (const Case &c : kCases)
    for (DType dtype : {DType::F32, DType::F64})
      for (size_t shift : {0u, 4u, 8u, 20u, 1u}) {
        const bool f32 = dtype == DType::F32;
        auto heads = f32 ? inputsFor<float>(c, head, 1, Data::AnyBits)
                         : inputsFor<double>(c, head, 1, Data::AnyBits);
        auto tails = f32 ? inputsFor<float>(c, tail, 2, Data::AnyBits)
                         : inputsFor<double>(c, tail, 2, Data::AnyBits);
        Kernel reference = mustFind(c.name, dtype, {}, true), kernel = mustFind(c.name, dtype, {});
        Bytes expected = launch(reference, head, heads, scalarsFor(c));
        Bytes last = launch(reference, tail, tails, scalarsFor(c));
        expected.insert(expected.end(), last.begin(), last.end());
        EXPECT_EQ(difference<float>(launchEnds(kernel, heads, tails, head, kLargeCount - tail,
                                               scalarsFor(c), shift),
                                    expected),
                  "")
            << c.name << ", " << c.inputs << " inputs, shift " << shift;
        if (shift == 0 && std::string_view(c.name) != "copy")
          EXPECT_EQ(difference<float>(launchEnds(kernel, heads, tails, head, kLargeCount - tail,
                                                 scalarsFor(c), 0, true),
                                      expected),
                    "")
              << c.name << ", " << c.inputs << " inputs, in place";
      }
}

INSTANTIATE_TEST_SUITE_P(Targets, ElementwiseTargetTest,
                         testing::ValuesIn(supportedTargets().begin(), supportedTargets().end()),
                         targetTestName);

// In a format with more than twice the digits plus two, one operation followed by rounding is the
// correctly rounded operation. So the oracle rounds after each step, and shares no code with the
// reference.
template <typename T> struct Wider;
template <> struct Wider<float> {
  using Type = double;
};
template <> struct Wider<double> {
  using Type = __float128;
};

template <typename T> void referenceEqualsOracle() {
  using W = typename Wider<T>::Type;
  for (const Case &c : kCases) {
    const size_t count = 500;
    std::vector<std::vector<T>> x;
    std::vector<Bytes> inputs = inputsFor<T>(c, count, 3, Data::Normal);
    for (const Bytes &input : inputs)
      x.push_back(valuesOf<T>(input));
    auto got =
        valuesOf<T>(launch(mustFind(c.name, kDType<T>, {}, true), count, inputs, scalarsFor(c)));
    const std::string_view name = c.name;
    const T weight = static_cast<T>(1.0 / 3.0);
    for (size_t i = 0; i < count; ++i) {
      T expected = x[0][i];
      if (name == "mix" && c.inputs > 1) {
        T sum{};
        for (size_t k = 1; k < c.inputs; ++k) {
          T delta = static_cast<T>(W(x[k][i]) - W(x[0][i]));
          T term = static_cast<T>(W(weight) * W(delta));
          sum = k == 1 ? term : static_cast<T>(W(sum) + W(term));
        }
        expected = static_cast<T>(W(x[0][i]) + W(sum));
      } else if (name == "reduce_sum" || name == "reduce_mean") {
        for (size_t k = 1; k < c.inputs; ++k)
          expected = static_cast<T>(W(expected) + W(x[k][i]));
        if (name == "reduce_mean")
          expected = static_cast<T>(W(expected) / W(static_cast<T>(c.inputs)));
      }
      EXPECT_EQ(got[i], expected) << c.name << ", " << c.inputs << " inputs, element " << i;
    }
  }
}

TEST(ElementwiseReferenceTest, EqualsOracleF32) { referenceEqualsOracle<float>(); }
TEST(ElementwiseReferenceTest, EqualsOracleF64) { referenceEqualsOracle<double>(); }

TEST(ElementwiseReferenceTest, SumIsALeftFoldByInputOrder) {
  Kernel kernel = mustFind("reduce_sum", DType::F32, {}, true);
  const float big = 0x1p24f;
  auto sum = [&](float a, float b, float c) {
    return valuesOf<float>(
        launch(kernel, 1, {toBytes<float>({a}), toBytes<float>({b}), toBytes<float>({c})}))[0];
  };
  EXPECT_EQ(sum(big, 1, 1), big);     // Each 1 is lost on its own …
  EXPECT_EQ(sum(1, 1, big), big + 2); // … together they count.
}

TEST(ElementwiseReferenceTest, EveryNanIsTheSame) {
  const uint32_t payloads[] = {0x7fc00001, 0xffc00000, 0x7f800001};
  for (uint32_t payload : payloads) {
    Bytes nan = toBytes<uint32_t>({payload}), one = toBytes<float>({1.0f});
    const Bytes canonical = toBytes<uint32_t>({0x7fc00000});
    EXPECT_EQ(launch(mustFind("reduce_sum", DType::F32, {}, true), 1, {nan}), canonical);
    EXPECT_EQ(launch(mustFind("reduce_mean", DType::F32, {}, true), 1, {one, nan}), canonical);
    EXPECT_EQ(launch(mustFind("mix", DType::F32, {}, true), 1, {one, nan}, {0.5}), canonical);
    EXPECT_EQ(launch(mustFind("copy", DType::F32, {}, true), 1, {nan}),
              nan); // Moves bits, computes nothing.
  }
}

TEST(ElementwiseReferenceTest, MixKeepsEqualWeightsEqual) {
  auto w = toBytes(randomValues<float>(1000, 5, Data::Normal));
  EXPECT_EQ(
      launch(mustFind("mix", DType::F32, {}, true), 1000, {w, w, w, w}, {0.1, 0.7, 1.0 / 3.0}), w);
}

} // namespace
} // namespace bagua::kernels
