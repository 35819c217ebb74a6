// dot, norm, all_finite, random_uniform and the generator behind it.
#include "KernelTestSupport.h"

#include "common/Philox.h"

#include <set>

namespace bagua::kernels {
namespace {

template <typename T> constexpr DType kDType = sizeof(T) == 4 ? DType::F32 : DType::F64;

template <typename T>
Bytes run(const char *name, size_t count, const std::vector<Bytes> &inputs, bool reference,
          const std::vector<double> &scalars = {},
          GuardedBytes::Place place = GuardedBytes::Place::AtEnd) {
  return launch(mustFind(name, kDType<T>, {}, reference), count, inputs, scalars, {}, place);
}

std::vector<size_t> counts() {
  std::vector<size_t> counts = tailCounts();
  counts.insert(counts.end(), {191, 192, 193, 10007});
  return counts;
}

class ReductionsTargetTest : public TargetTest {
protected:
  template <typename T> void sameBits() {
    for (size_t count : counts())
      for (Data data : {Data::Normal, Data::AnyBits}) {
        const Bytes x = toBytes(randomValues<T>(count, 1, data)),
                    y = toBytes(randomValues<T>(count, 2, data));
        for (auto place : {GuardedBytes::Place::AtEnd, GuardedBytes::Place::AtStart}) {
          EXPECT_EQ(difference<T>(run<T>("dot", count, {x, y}, false, {}, place),
                                  run<T>("dot", count, {x, y}, true)),
                    "")
              << count;
          for (const char *name : {"norm", "all_finite"})
            EXPECT_EQ(difference<T>(run<T>(name, count, {x}, false, {}, place),
                                    run<T>(name, count, {x}, true)),
                      "")
                << name << ", " << count;
        }
      }
  }

  template <typename T> void everyPlaceCounts() {
    for (size_t count : {1u, 63u, 64u, 65u, 200u})
      for (size_t i = 0; i < count; ++i)
        for (T value : {std::numeric_limits<T>::infinity(), -std::numeric_limits<T>::infinity(),
                        std::numeric_limits<T>::quiet_NaN()}) {
          std::vector<T> x(count, std::numeric_limits<T>::max());
          EXPECT_EQ(valuesOf<T>(run<T>("all_finite", count, {toBytes(x)}, false)),
                    std::vector<T>{1});
          x[i] = value;
          EXPECT_EQ(valuesOf<T>(run<T>("all_finite", count, {toBytes(x)}, false)),
                    std::vector<T>{0})
              << value << " at " << i << " of " << count;
        }
  }
};

TEST_P(ReductionsTargetTest, SameBitsAsReferenceF32) { sameBits<float>(); }
TEST_P(ReductionsTargetTest, SameBitsAsReferenceF64) { sameBits<double>(); }
TEST_P(ReductionsTargetTest, B16_AllFiniteSeesEveryPlace) {
  everyPlaceCounts<float>();
  everyPlaceCounts<double>();
}

TEST_P(ReductionsTargetTest, RandomUniformIsTheReferencesAtEveryOffset) {
  for (double first : {0.0, 1.0, 2.0, 3.0, 4.0, 509.0, 0x1p34 - 7, 0x1p40 + 1})
    for (size_t count : {0u, 1u, 3u, 17u, 511u, 513u, 1400u}) {
      const std::vector<double> scalars = {1, 2, -1, 3, 4, first};
      for (auto place : {GuardedBytes::Place::AtEnd, GuardedBytes::Place::AtStart})
        EXPECT_EQ(difference<float>(run<float>("random_uniform", count, {}, false, scalars, place),
                                    run<float>("random_uniform", count, {}, true, scalars)),
                  "")
            << count << " from " << first;
      EXPECT_EQ(run<double>("random_uniform", count, {}, false, scalars),
                run<double>("random_uniform", count, {}, true, scalars));
    }
}

INSTANTIATE_TEST_SUITE_P(Targets, ReductionsTargetTest,
                         testing::ValuesIn(supportedTargets().begin(), supportedTargets().end()),
                         targetTestName);

// ---- The references ----

TEST(ReductionsReferenceTest, SumsRunOverSixtyFourPartialsAndATree) {
  const size_t count = 1000;
  const std::vector<double> x = randomValues<double>(count, 3, Data::Normal),
                            y = randomValues<double>(count, 4, Data::Normal);
  std::vector<double> partial(64, 0.0);
  for (size_t i = 0; i < count; ++i)
    partial[i % 64] += x[i] * y[i];
  for (size_t half = 32; half > 0; half /= 2)
    for (size_t j = 0; j < half; ++j)
      partial[j] += partial[j + half];
  EXPECT_EQ(valuesOf<double>(run<double>("dot", count, {toBytes(x), toBytes(y)}, true))[0],
            partial[0]);
}

TEST(ReductionsReferenceTest, F32SumsAreAlmostExactAndDoNotOverflow) {
  const size_t count = 100000;
  const std::vector<float> x = randomValues<float>(count, 5, Data::Normal);
  long double sum = 0;
  for (float value : x)
    sum += static_cast<long double>(value) * value;
  const float norm = valuesOf<float>(run<float>("norm", count, {toBytes(x)}, true))[0];
  EXPECT_NEAR(norm, static_cast<double>(std::sqrt(sum)), 0x1p-23 * static_cast<double>(norm));
  const std::vector<float> huge(16, 1e37f), tiny(16, 1e-40f); // 4 times the element.
  EXPECT_EQ(valuesOf<float>(run<float>("norm", 16, {toBytes(huge)}, true))[0], 4 * 1e37f);
  EXPECT_EQ(valuesOf<float>(run<float>("norm", 16, {toBytes(tiny)}, true))[0], 4 * 1e-40f);
}

TEST(ReductionsReferenceTest, B02_NothingHasNormZeroAndIsFinite) {
  EXPECT_EQ(valuesOf<float>(run<float>("dot", 0, {{}, {}}, true)), std::vector<float>{0});
  EXPECT_EQ(valuesOf<float>(run<float>("norm", 0, {{}}, true)), std::vector<float>{0});
  EXPECT_EQ(valuesOf<float>(run<float>("all_finite", 0, {{}}, true)), std::vector<float>{1});
}

TEST(ReductionsReferenceTest, EveryNanIsTheSame) {
  const Bytes nan = toBytes<uint32_t>({0xffc00001}), canonical = toBytes<uint32_t>({0x7fc00000});
  EXPECT_EQ(run<float>("dot", 1, {nan, nan}, true), canonical);
  EXPECT_EQ(run<float>("norm", 1, {nan}, true), canonical);
}

TEST(ReductionsReferenceTest, SizesAndSplitting) {
  for (const char *name : {"dot", "norm", "all_finite"}) {
    const Kernel kernel = mustFind(name, DType::F64, {});
    EXPECT_EQ(kernel.inputBytes(100), 800u);
    EXPECT_EQ(kernel.outputBytes(100), 8u);
    EXPECT_GE(kernel.grain, size_t{1} << 40) << "one piece, whatever the count";
    EXPECT_EQ(kernel.inputsMin, std::string_view(name) == "dot" ? 2u : 1u);
    EXPECT_EQ(kernel.inputsMax, kernel.inputsMin);
  }
  const Kernel uniform = mustFind("random_uniform", DType::F32, {});
  EXPECT_EQ(uniform.inputsMax, 0u);
  EXPECT_EQ(uniform.scalarsFor(0), 6u);
  EXPECT_EQ(uniform.grain, 1u);
}

// Known answers of Random123 1.14, tests/kat_vectors.
TEST(PhiloxTest, KnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}),
            (PhiloxWords{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (PhiloxWords{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxWords{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// The bytes of a stream are part of what a schedule means: these may never change.
TEST(PhiloxTest, StreamIsTheDocumentedOne) {
  const double scalars[] = {11, 5 + 0x1p33, -1, 3, 9, 100};
  const RandomScalars given{std::span<const double>(scalars)};
  EXPECT_EQ(given.rank, ~uint64_t{0});
  EXPECT_EQ(given.first, 100u);
  const PhiloxWords outer = philox({11, 0, 5, 2}, {9, 0});
  const PhiloxWords inner =
      philox({0xffffffff ^ outer[2], 0xffffffff ^ outer[3], 3, 0}, {outer[0], outer[1]});
  const RandomStream stream(given);
  const uint64_t index = (uint64_t{1} << 36) + 7;
  EXPECT_EQ(stream.word(index), philox({1, 4, inner[2], inner[3]}, {inner[0], inner[1]})[3]);
}

TEST(PhiloxTest, ScalarsThatAreNoIntegersCountAsZero) {
  const double scalars[] = {NAN, INFINITY, -1e300, 1e300, 2, 3};
  const RandomScalars given{std::span<const double>(scalars)};
  EXPECT_EQ(given.seed, 0u);
  EXPECT_EQ(given.step, 0u);
  EXPECT_EQ(given.rank, 0u);
  EXPECT_EQ(given.bucket, 0u);
}

TEST(PhiloxTest, UniformNumbersAreUniform) {
  const size_t count = 1 << 18;
  const std::vector<float> y =
      valuesOf<float>(run<float>("random_uniform", count, {}, false, {1, 2, 3, 4, 5, 0}));
  std::vector<size_t> bins(64);
  for (float value : y) {
    ASSERT_TRUE(value >= 0.0f && value < 1.0f);
    ASSERT_EQ(value * 0x1p24f, std::floor(value * 0x1p24f));
    ++bins[static_cast<size_t>(value * 64)];
  }
  double chi = 0; // 63 degrees of freedom: beyond 140 once in ten million.
  const double expected = static_cast<double>(count) / 64;
  for (size_t n : bins)
    chi += std::pow(static_cast<double>(n) - expected, 2) / expected;
  EXPECT_LT(chi, 140);
  std::set<float> distinct(y.begin(), y.end());
  EXPECT_GT(distinct.size(), count - count / 50);
}

} // namespace
} // namespace bagua::kernels
