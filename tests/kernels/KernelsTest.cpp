// Finding kernels, their sizes and attributes, and choosing a target.
#include "KernelTestSupport.h"

namespace bagua::kernels {
namespace {

FindError tryFind(std::string_view name, DType dtype, std::vector<Attribute> attributes,
                  std::string &error) {
  Kernel kernel;
  FindError code = find(name, dtype, attributes, kernel, error);
  EXPECT_EQ(code == FindError::None, kernel.run != nullptr) << "outputs change only on success";
  return code;
}

TEST(KernelsTest, FindsEveryKernel) {
  std::string error;
  for (const char *name : {"copy", "reduce_sum", "reduce_mean", "mix"})
    for (DType dtype : {DType::F32, DType::F64}) {
      EXPECT_EQ(tryFind(name, dtype, {}, error), FindError::None) << error;
      EXPECT_EQ(mustFind(name, dtype, {}).inputBytes(10), 10 * elementBytes(dtype));
      EXPECT_EQ(mustFind(name, dtype, {}).outputBytes(10), 10 * elementBytes(dtype));
      EXPECT_EQ(mustFind(name, dtype, {}).inputsMax == 1, std::string_view(name) == "copy");
    }
  const Attribute attributes[] = {{"block", 64}, {"bits", 4}};
  for (const char *name : {"minmax_encode", "minmax_decode", "minmax_decode_reduce_sum",
                           "minmax_decode_reduce_mean"}) {
    Kernel kernel = mustFind(name, DType::F32, attributes);
    EXPECT_EQ(kernel.grain, 64u);
    EXPECT_EQ(kernel.bits, 4);
    EXPECT_EQ(kernel.block, 64);
    const bool encode = std::string_view(name) == "minmax_encode";
    EXPECT_EQ(kernel.inputBytes(65), encode ? 260u : 8u + 32 + 8 + 1);
    EXPECT_EQ(kernel.outputBytes(65), encode ? 8u + 32 + 8 + 1 : 260u);
  }
}

TEST(KernelsTest, SaysWhyItRefuses) {
  struct {
    const char *name;
    DType dtype;
    std::vector<Attribute> attributes;
    FindError code;
    const char *message;
  } const cases[] = {
      {"reduce", DType::F32, {}, FindError::UnknownName, "no kernel is named 'reduce'"},
      {"", DType::F32, {}, FindError::UnknownName, "no kernel is named ''"},
      {"minmax_decode",
       DType::F64,
       {{"bits", 8}, {"block", 8}},
       FindError::UnsupportedDType,
       "kernel 'minmax_decode' expects dtype f32, got f64"},
      {"mix",
       static_cast<DType>(9),
       {},
       FindError::UnsupportedDType,
       "kernel 'mix' expects dtype f32 or f64, got an unknown one"},
      {"mix",
       DType::F32,
       {{"bits", 8}},
       FindError::BadAttribute,
       "kernel 'mix' has no attribute 'bits'"},
      {"minmax_encode",
       DType::F32,
       {{"bits", 8}, {"blocks", 8}},
       FindError::BadAttribute,
       "kernel 'minmax_encode' has no attribute 'blocks'"},
      {"minmax_encode",
       DType::F32,
       {{"bits", 1}, {"block", 8}},
       FindError::BadAttribute,
       "kernel 'minmax_encode' expects attribute 'bits' in 2…8, got 1"},
      {"minmax_encode",
       DType::F32,
       {{"bits", 9}, {"block", 8}},
       FindError::BadAttribute,
       "kernel 'minmax_encode' expects attribute 'bits' in 2…8, got 9"},
      {"minmax_encode",
       DType::F32,
       {{"bits", 8}, {"block", 0}},
       FindError::BadAttribute,
       "kernel 'minmax_encode' expects attribute 'block' to be a multiple of 8 in 8…65536, got 0"},
      {"minmax_encode",
       DType::F32,
       {{"bits", 8}, {"block", 12}},
       FindError::BadAttribute,
       "kernel 'minmax_encode' expects attribute 'block' to be a multiple of 8 in 8…65536, got 12"},
      {"minmax_encode",
       DType::F32,
       {{"bits", 8}, {"block", 65544}},
       FindError::BadAttribute,
       "kernel 'minmax_encode' expects attribute 'block' to be a multiple of 8 in 8…65536, got "
       "65544"},
      {"minmax_encode",
       DType::F32,
       {{"bits", 8}},
       FindError::MissingAttribute,
       "kernel 'minmax_encode' expects attribute 'block'"},
      {"minmax_encode",
       DType::F32,
       {{"block", 8}},
       FindError::MissingAttribute,
       "kernel 'minmax_encode' expects attribute 'bits'"},
  };
  for (const auto &c : cases) {
    std::string error;
    EXPECT_EQ(tryFind(c.name, c.dtype, c.attributes, error), c.code) << c.name;
    EXPECT_EQ(error, c.message);
  }
}

// Counts come from files: a size that wraps would match a small range.
TEST(KernelsTest, CountsBeyondAllMemoryHaveNoSize) {
  const Attribute attributes[] = {{"bits", 8}, {"block", 8}};
  for (int shift : {49, 60, 61, 62, 63})
    for (size_t more : {0u, 1u, 8u}) {
      const size_t count = (size_t{1} << shift) + more;
      for (DType dtype : {DType::F32, DType::F64}) {
        EXPECT_EQ(mustFind("copy", dtype, {}).inputBytes(count), SIZE_MAX);
        EXPECT_EQ(mustFind("copy", dtype, {}).outputBytes(count), SIZE_MAX);
        EXPECT_EQ(mustFind("dot", dtype, {}).inputBytes(count), SIZE_MAX);
      }
      EXPECT_EQ(mustFind("minmax_encode", DType::F32, attributes).outputBytes(count), SIZE_MAX);
      EXPECT_EQ(mustFind("minmax_decode", DType::F32, attributes).inputBytes(count), SIZE_MAX);
    }
  EXPECT_EQ(mustFind("copy", DType::F64, {}).inputBytes(size_t{1} << 48), size_t{1} << 51);
}

TEST(KernelsTest, PackedBytesAreTheSumOverBlocks) {
  for (int64_t bits = 2; bits <= 8; ++bits)
    for (int64_t block : {8, 24, 64, 2048})
      for (size_t count = 0; count < 5000; count += 1 + count / 3) {
        size_t expected = 0;
        for (size_t first = 0; first < count; first += static_cast<size_t>(block)) {
          size_t length = std::min(static_cast<size_t>(block), count - first);
          size_t codeBits = length * static_cast<size_t>(bits);
          expected += 8 + codeBits / 8 + (codeBits % 8 != 0);
        }
        EXPECT_EQ(minmaxPackedBytes(count, bits, block), expected)
            << bits << " bits, block " << block << ", " << count;
      }
  EXPECT_EQ(minmaxPackedBytes(100, 0, 8), 0u);
  EXPECT_EQ(minmaxPackedBytes(100, 9, 8), 0u);
  EXPECT_EQ(minmaxPackedBytes(100, 8, 0), 0u);
  EXPECT_EQ(minmaxPackedBytes(100, 8, -8), 0u);
  EXPECT_EQ(minmaxPackedBytes(100, 8, 12), 0u);
}

TEST(KernelsTest, SelectsOnlySupportedTargets) {
  ASSERT_FALSE(supportedTargets().empty());
  EXPECT_FALSE(selectTarget("SSE9"));
  const Kernel best = mustFind("mix", DType::F32, {});
  for (std::string_view name : supportedTargets()) {
    EXPECT_TRUE(selectTarget(name));
    EXPECT_EQ(mustFind("mix", DType::F32, {}).run == best.run, name == supportedTargets()[0])
        << "each target has its own code: " << name;
  }
  EXPECT_TRUE(selectTarget(""));
  EXPECT_EQ(mustFind("mix", DType::F32, {}).run, best.run);
}

/// Runs in a process of its own, so that the variable is read anew.
class TargetVariableDeathTest : public testing::Test {
protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
  void TearDown() override { unsetenv("BAGUA_KERNELS_TARGET"); }

  [[noreturn]] static void exitWithFind() {
    Kernel kernel;
    std::string error;
    FindError code = find("mix", DType::F32, {}, kernel, error);
    std::fprintf(stderr, "%s\n", error.c_str());
    Kernel chosen = kernel;
    selectTarget(supportedTargets().back());
    if (code == FindError::None && find("mix", DType::F32, {}, kernel, error) == FindError::None)
      std::exit(kernel.run == chosen.run ? 0 : 1);
    std::exit(2);
  }
};

TEST_F(TargetVariableDeathTest, PicksATarget) {
  setenv("BAGUA_KERNELS_TARGET", std::string(supportedTargets().back()).c_str(), 1);
  EXPECT_EXIT(exitWithFind(), testing::ExitedWithCode(0), "");
}

TEST_F(TargetVariableDeathTest, RefusesAnUnknownTarget) {
  setenv("BAGUA_KERNELS_TARGET", "SSE9", 1);
  EXPECT_EXIT(exitWithFind(), testing::ExitedWithCode(2),
              "BAGUA_KERNELS_TARGET expects one of .*, got 'SSE9'");
}

} // namespace
} // namespace bagua::kernels
