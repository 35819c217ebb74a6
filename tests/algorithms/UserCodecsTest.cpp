// Codecs written in the language keep the laws of SPEC.md, "Codecs" and "User codecs", on every
// instruction set: from their text to the bytes that travel.
#include "Algorithms.h"
#include "CompilerTestSupport.h"
#include "EdgeBuckets.h"

#include "bagua/compiler/KernelCode.h"
#include "bagua/dialect/Bagua/BaguaOps.h"

#include <filesystem>
#include <map>

namespace bagua::kernels {
namespace {

/// What may be lost of an element of a block.
using Bound = double (*)(double least, double greatest);

double absMaxBound(double least, double greatest) {
  return std::max(std::fabs(least), std::fabs(greatest)) / 14 * (1 + 0x1p-12) + 0x1p-149;
}

/// Half a step, the rounding of lo + code * step, and of a step among denormals.
double rangeBound(double least, double greatest) {
  return (greatest - least) / 126 * (1 + 0x1p-12) +
         0x1p-23 * std::max(std::fabs(least), std::fabs(greatest)) + 63 * 0x1p-149;
}

struct Codec {
  std::string name;
  CodecProgram program;
  ir::UserCodecAttr attribute;
};

/// Every codec of tests/algorithms/Inputs.
class Codecs {
public:
  Codecs() {
    mlir::DialectRegistry registry;
    compiler::registerDialects(registry);
    ir_.context().appendDialectRegistry(registry);
    for (const auto &entry :
         std::filesystem::directory_iterator(BAGUA_SOURCE_DIR "/tests/algorithms/Inputs")) {
      auto &module = modules_.emplace_back(ir_.parse(test::readFile(entry.path())));
      EXPECT_TRUE(module) << entry.path() << ir_.diagnostics();
      if (!module)
        continue;
      for (auto op : module->getOps<ir::CodecOp>()) {
        auto attribute = ir::UserCodecAttr::get(
            &ir_.context(), mlir::FlatSymbolRefAttr::get(op.getSymNameAttr()), op.getProgram());
        mlir::FailureOr<CodecProgram> program =
            compiler::codecProgram(attribute.getKernelAttributes(), op);
        EXPECT_TRUE(succeeded(program)) << ir_.diagnostics();
        if (succeeded(program)) {
          EXPECT_EQ(validateCodec(*program), "") << op.getSymName().str();
          all_.push_back({op.getSymName().str(), *program, attribute});
        }
      }
    }
    EXPECT_EQ(all_.size(), 5u);
  }

  const std::vector<Codec> &all() const { return all_; }
  const Codec &named(const std::string &name) const {
    auto found = std::find_if(all_.begin(), all_.end(), [&](auto &c) { return c.name == name; });
    EXPECT_NE(found, all_.end()) << name;
    return *found;
  }

private:
  test::Ir ir_;
  std::vector<mlir::OwningOpRef<mlir::ModuleOp>> modules_;
  std::vector<Codec> all_;
};

const Codecs &codecs() {
  static const Codecs all;
  return all;
}

Kernel kernel(const Codec &codec, const char *name, bool reference) {
  Kernel found;
  std::string error;
  EXPECT_EQ(findCodec(name, std::make_shared<const CodecProgram>(codec.program), DType::F32, found,
                      error, reference),
            FindError::None)
      << error;
  return found;
}

Bytes encode(const Codec &codec, const std::vector<float> &x, bool reference = false) {
  return launch(kernel(codec, "codec_encode", reference), x.size(), {toBytes(x)});
}
std::vector<float> decode(const Codec &codec, size_t count, const Bytes &packed,
                          bool reference = false) {
  return valuesOf<float>(launch(kernel(codec, "codec_decode", reference), count, {packed}));
}

class UserCodecTest : public TargetTest {};

TEST_P(UserCodecTest, B16_SameBytesAsReferenceOnEveryBucket) {
  for (const Codec &codec : codecs().all())
    for (size_t count : {size_t{1}, size_t{codec.program.block - 1}, size_t{codec.program.block},
                         3 * size_t{codec.program.block} + 13})
      for (const Bucket &bucket : buckets(count)) {
        const Bytes expected = encode(codec, bucket.values, true);
        ASSERT_EQ(static_cast<int64_t>(expected.size()),
                  codec.attribute.packedBytes(static_cast<int64_t>(count)));
        ASSERT_EQ(difference<uint8_t>(encode(codec, bucket.values), expected), "")
            << codec.name << ", " << bucket.name << ", " << count;
        ASSERT_EQ(difference<float>(toBytes(decode(codec, count, expected)),
                                    toBytes(decode(codec, count, expected, true))),
                  "")
            << codec.name << ", " << bucket.name << ", " << count;
        const std::vector<Bytes> three(3, expected);
        for (const char *name : {"codec_decode_reduce_sum", "codec_decode_reduce_mean"})
          ASSERT_EQ(difference<float>(launch(kernel(codec, name, false), count, three),
                                      launch(kernel(codec, name, true), count, three)),
                    "")
              << codec.name << ", " << bucket.name << ", " << name;
      }
}

TEST_P(UserCodecTest, B16_KeepsItsBoundOnEveryFiniteBucket) {
  for (auto [name, bound] :
       std::map<std::string, Bound>{{"absmax4", absMaxBound}, {"range6", rangeBound}}) {
    const Codec &codec = codecs().named(name);
    const size_t count = 1300;
    for (const Bucket &bucket : finiteBuckets(count)) {
      const std::vector<float> y = decode(codec, count, encode(codec, bucket.values));
      for (size_t first = 0; first < count; first += codec.program.block) {
        const size_t last = std::min<size_t>(first + codec.program.block, count);
        auto [least, greatest] =
            std::minmax_element(bucket.values.begin() + static_cast<ptrdiff_t>(first),
                                bucket.values.begin() + static_cast<ptrdiff_t>(last));
        // A range that overflows loses its block, visibly: SPEC.md, CP3.
        const bool isLost = name == "range6" && !std::isfinite(*greatest - *least);
        for (size_t i = first; i < last; ++i) {
          if (isLost)
            ASSERT_TRUE(std::isnan(y[i])) << bucket.name << ", " << i;
          else
            ASSERT_LE(std::fabs(double{bucket.values[i]} - double{y[i]}), bound(*least, *greatest))
                << name << ", " << bucket.name << ", element " << i << ": " << bucket.values[i]
                << ", " << y[i];
        }
      }
    }
  }
}

TEST_P(UserCodecTest, B15_ZeroBlocksDecodeToZeros) {
  for (const Codec &codec : codecs().all())
    for (float zero : {0.0f, -0.0f}) {
      const std::vector<float> x(100, zero);
      for (float y : decode(codec, x.size(), encode(codec, x)))
        ASSERT_EQ(y, 0.0f) << codec.name;
    }
}

TEST_P(UserCodecTest, B16_NonFiniteFillsItsBlockAndTouchesNoOther) {
  const size_t count = 1300;
  for (const Codec &codec : codecs().all())
    for (float value : {INFINITY, -INFINITY, NAN}) {
      std::vector<float> x = randomValues<float>(count, 7, Data::Normal);
      const std::vector<float> clean = decode(codec, count, encode(codec, x));
      const size_t at = 700;
      x[at] = value;
      const std::vector<float> y = decode(codec, count, encode(codec, x));
      for (size_t i = 0; i < count; ++i) {
        const bool isLost = i / codec.program.block == at / codec.program.block;
        ASSERT_EQ(std::bit_cast<uint32_t>(y[i]),
                  isLost ? 0x7fc00000u : std::bit_cast<uint32_t>(clean[i]))
            << codec.name << ", " << i;
      }
    }
}

TEST_P(UserCodecTest, AnyBytesDecodeAsInTheReference) {
  std::mt19937 random(41);
  for (const Codec &codec : codecs().all()) {
    const size_t count = 3 * codec.program.block + 5;
    Bytes packed(codecPackedBytes(codec.program, count));
    for (int round = 0; round < 20; ++round) {
      for (std::byte &byte : packed)
        byte = static_cast<std::byte>(random());
      ASSERT_EQ(difference<float>(toBytes(decode(codec, count, packed)),
                                  toBytes(decode(codec, count, packed, true))),
                "")
          << codec.name << ", round " << round;
    }
  }
}

/// The worked example of SPEC.md.
TEST_P(UserCodecTest, WireFormatIsTheDocumentedOne) {
  Codec codec = codecs().named("absmax4");
  codec.program.block = 8;
  const Bytes packed = encode(codec, {7, -7, 3.5f, 0, 1, -1, 2.5f, -0.4f});
  const uint8_t expected[] = {0x00, 0x00, 0xe0, 0x40, 0x97, 0x04, 0xf1, 0x02};
  ASSERT_EQ(packed.size(), std::size(expected));
  for (size_t i = 0; i < packed.size(); ++i)
    EXPECT_EQ(std::to_integer<unsigned>(packed[i]), expected[i]) << i;
}

INSTANTIATE_TEST_SUITE_P(Targets, UserCodecTest,
                         testing::ValuesIn(supportedTargets().begin(), supportedTargets().end()),
                         targetTestName);

} // namespace
} // namespace bagua::kernels
