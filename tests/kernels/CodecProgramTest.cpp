// Codec programs: every target writes the bytes of the reference; the reference keeps the laws of
// SPEC.md, section User codecs, on the buckets that have broken other codecs.
#include "bagua/kernels/CodecProgram.h"
#include "MapTestSupport.h"

#include <array>

namespace bagua::kernels {
namespace {

using Shared = std::shared_ptr<const CodecProgram>;

Kernel mustFindCodec(const char *name, const CodecProgram &codec, bool reference = false) {
  Kernel kernel;
  std::string error;
  EXPECT_EQ(findCodec(name, std::make_shared<const CodecProgram>(codec), DType::F32, kernel, error,
                      reference),
            FindError::None)
      << error;
  return kernel;
}

Bytes encode(const CodecProgram &codec, const std::vector<float> &x, bool reference = false) {
  return launch(mustFindCodec("codec_encode", codec, reference), x.size(), {toBytes(x)});
}
std::vector<float> decode(const CodecProgram &codec, size_t count, const Bytes &packed,
                          bool reference = false) {
  return valuesOf<float>(launch(mustFindCodec("codec_decode", codec, reference), count, {packed}));
}

/// The example of design and specification: the block's largest magnitude, codes in −7…7 of it.
CodecProgram absMax(uint32_t block = 512, uint8_t bits = 4) {
  CodecProgram codec;
  codec.block = block, codec.headerCount = 1, codec.codeBits = bits, codec.signedCodes = true;
  const double levels = (1 << (bits - 1)) - 1;
  Builder stats, headers, encode, decode;
  stats.output(stats.add(MapOp::Abs, stats.input()));
  codec.reductions = {BlockReduction::Max};
  headers.output(headers.input());
  {
    const uint16_t x = encode.input(), h = encode.input(true), top = encode.constant(levels);
    const uint16_t share = encode.add(MapOp::Div, x, h); // NaN in a block of zeros: code 0.
    encode.output(encode.add(MapOp::Mul, share, top));
  }
  {
    const uint16_t q = decode.input(), h = decode.input(true), top = decode.constant(levels);
    const uint16_t share = decode.add(MapOp::Div, q, top);
    decode.output(decode.add(MapOp::Mul, share, h));
  }
  codec.stats = stats.program, codec.headers = headers.program;
  codec.encode = encode.program, codec.decode = decode.program;
  return codec;
}

/// The least element and a step, codes of any width.
CodecProgram affine(uint32_t block, uint8_t bits) {
  CodecProgram codec;
  codec.block = block, codec.headerCount = 2, codec.codeBits = bits;
  Builder stats, headers, encode, decode;
  const uint16_t any = stats.input();
  stats.output(any).output(any);
  codec.reductions = {BlockReduction::Min, BlockReduction::Max};
  {
    const uint16_t lo = headers.input(), hi = headers.input();
    const uint16_t levels = headers.constant((1 << bits) - 1);
    const uint16_t range = headers.add(MapOp::Sub, hi, lo);
    headers.output(lo).output(headers.add(MapOp::Div, range, levels));
  }
  {
    const uint16_t x = encode.input(), lo = encode.input(true), step = encode.input(true);
    encode.output(encode.add(MapOp::Div, encode.add(MapOp::Sub, x, lo), step));
  }
  {
    const uint16_t q = decode.input(), lo = decode.input(true), step = decode.input(true);
    decode.output(decode.add(MapOp::Fma, q, step, lo));
  }
  codec.stats = stats.program, codec.headers = headers.program;
  codec.encode = encode.program, codec.decode = decode.program;
  return codec;
}

/// Signs, times the mean magnitude: a sum over the block, and a count, which is a sum of ones.
CodecProgram meanSign(uint32_t block) {
  CodecProgram codec;
  codec.block = block, codec.headerCount = 1, codec.codeBits = 1;
  Builder stats, headers, encode, decode;
  const uint16_t magnitude = stats.add(MapOp::Abs, stats.input());
  stats.output(magnitude).output(stats.constant(1));
  codec.reductions = {BlockReduction::Sum, BlockReduction::Sum};
  const uint16_t sum = headers.input(), count = headers.input();
  headers.output(headers.add(MapOp::Div, sum, count));
  {
    const uint16_t x = encode.input();
    encode.input(true);
    const uint16_t zero = encode.constant(0), one = encode.constant(1);
    const uint16_t positive = encode.add(MapOp::Le, zero, x);
    encode.output(encode.add(MapOp::Select, positive, one, zero));
  }
  {
    const uint16_t q = decode.input(), h = decode.input(true), half = decode.constant(0.5);
    const uint16_t positive = decode.add(MapOp::Lt, half, q);
    decode.output(decode.add(MapOp::Select, positive, h, decode.add(MapOp::Neg, h)));
  }
  codec.stats = stats.program, codec.headers = headers.program;
  codec.encode = encode.program, codec.decode = decode.program;
  return codec;
}

/// Statistics that are NaN for some elements, sums of elements, and extremes of both kinds.
CodecProgram roots(uint32_t block, uint8_t bits) {
  CodecProgram codec = affine(block, bits);
  Builder stats, headers;
  const uint16_t x = stats.input(), root = stats.add(MapOp::Sqrt, x);
  stats.output(root).output(root).output(x).output(x).output(x);
  codec.reductions = {BlockReduction::Min, BlockReduction::Max, BlockReduction::Max,
                      BlockReduction::Sum, BlockReduction::Min};
  const uint16_t lo = headers.input(), hi = headers.input(), top = headers.input();
  const uint16_t sum = headers.input(), bottom = headers.input();
  const uint16_t defined =
      headers.add(MapOp::And, headers.add(MapOp::Eq, lo, lo), headers.add(MapOp::Eq, hi, hi));
  headers.output(headers.add(MapOp::Select, defined, lo, bottom))
      .output(headers.add(MapOp::Select, defined, headers.add(MapOp::Max, hi, top), sum));
  codec.stats = stats.program, codec.headers = headers.program;
  return codec;
}

CodecProgram randomCodec(unsigned seed) {
  std::mt19937_64 random(seed);
  CodecProgram codec;
  const uint32_t blocks[] = {8, 24, 64, 512, 520, 2048};
  codec.block = blocks[random() % std::size(blocks)];
  codec.headerCount = static_cast<uint8_t>(1 + random() % 4);
  codec.codeBits = static_cast<uint8_t>(1 + random() % 16);
  codec.signedCodes = random() % 2 != 0;
  const size_t reductions = 1 + random() % 4;
  for (size_t k = 0; k < reductions; ++k)
    codec.reductions.push_back(static_cast<BlockReduction>(random() % kBlockReductionCount));
  auto make = [&](size_t varying, size_t broadcast, size_t outputs) {
    Builder builder;
    std::vector<uint16_t> numbers;
    for (size_t k = 0; k < varying + broadcast; ++k)
      numbers.push_back(builder.input(k >= varying));
    numbers.push_back(builder.constant(3));
    growRandomly(builder, random, builder.program.code.size() + random() % 8, numbers);
    for (size_t k = 0; k < outputs; ++k)
      builder.output(pickRandomly(random, numbers));
    return builder.program;
  };
  codec.stats = make(1, 0, reductions);
  codec.headers = make(reductions, 0, codec.headerCount);
  codec.encode = make(1, codec.headerCount, 1);
  codec.decode = make(1, codec.headerCount, 1);
  return codec;
}

std::vector<CodecProgram> codecs() {
  std::vector<CodecProgram> all = {absMax(),        absMax(8, 8), absMax(24, 2),  meanSign(64),
                                   meanSign(65536), roots(64, 8), roots(1032, 5), affine(2048, 8)};
  for (uint8_t bits = 1; bits <= 16; ++bits)
    all.push_back(affine(bits % 2 == 0 ? 64 : 1032, bits));
  return all;
}

struct Bucket {
  std::string name;
  std::vector<float> values;
};

/// The edge buckets of cases.md, section H, and more of their kind; the first ones are finite.
std::vector<Bucket> finiteBuckets(size_t count) {
  const std::vector<float> normal = randomValues<float>(count, 17, Data::Normal);
  std::vector<Bucket> buckets;
  for (float factor : {1.0f, 1e-6f, 1e-10f, 1e-30f, 1e-38f, 1e-42f, 1e30f, 1e37f}) {
    buckets.push_back({"normal * " + std::to_string(std::log10(factor)), normal});
    for (float &value : buckets.back().values)
      value *= factor;
  }
  buckets.push_back({"outlier", normal});
  if (count > 0)
    buckets.back().values[count / 2] = 1e4f;
  for (float constant : {1.0f, 0.1f, 0.0f, -0.0f, 12345.0f, 1e30f, FLT_MAX, -FLT_MAX, FLT_TRUE_MIN})
    buckets.push_back(
        {"constant " + std::to_string(constant), std::vector<float>(count, constant)});
  // Headers show the sign of a zero that is the least or the greatest.
  for (float sign : {1.0f, -1.0f}) {
    buckets.push_back({"zeros of both signs and " + std::to_string(sign), normal});
    for (size_t i = 0; i < count; ++i)
      buckets.back().values[i] = i % 3 == 0   ? std::copysign(0.0f, normal[i])
                                 : i % 3 == 1 ? std::copysign(0.0f, sign)
                                              : std::copysign(normal[i], sign);
  }
  buckets.push_back({"zeros of both signs", normal});
  for (float &value : buckets.back().values)
    value = std::copysign(0.0f, value);
  buckets.push_back({"100 + normal * 1e-5", normal});
  for (float &value : buckets.back().values)
    value = 100 + 1e-5f * value;
  buckets.push_back({"huge range", normal});
  for (size_t i = 0; i < count; ++i)
    buckets.back().values[i] = i % 2 == 0 ? 3e38f : -3e38f;
  return buckets;
}
std::vector<Bucket> buckets(size_t count) {
  std::vector<Bucket> all = finiteBuckets(count);
  all.push_back({"any bits", randomValues<float>(count, 31, Data::AnyBits)});
  for (float value : {INFINITY, -INFINITY, NAN}) {
    all.push_back({"one " + std::to_string(value), randomValues<float>(count, 5, Data::Normal)});
    if (count > 0)
      all.back().values[count / 3] = value;
  }
  return all;
}

// --- The reference and the law.

TEST(CodecProgramReferenceTest, WireFormatIsTheDocumentedOne) {
  CodecProgram codec = absMax(8, 4);
  const std::vector<float> x = {7, -7, 3.5f, 0, 1, -1, 2.5f, -0.4f, 14};
  const Bytes packed = encode(codec, x, true);
  // 3.5 is rounded to 4 and 2.5 to 2: to even.
  const uint8_t expected[] = {0x00, 0x00, 0xe0, 0x40, 0x97, 0x04, 0xf1,
                              0x02, 0x00, 0x00, 0x60, 0x41, 0x07};
  ASSERT_EQ(packed.size(), std::size(expected));
  for (size_t i = 0; i < packed.size(); ++i)
    EXPECT_EQ(std::to_integer<unsigned>(packed[i]), expected[i]) << i;
  EXPECT_EQ(decode(codec, x.size(), packed, true),
            (std::vector<float>{7, -7, 4.0f / 7 * 7, 0, 1.0f / 7 * 7, -1.0f / 7 * 7, 2.0f / 7 * 7,
                                0, 14}));
}

TEST(CodecProgramReferenceTest, PackedBytesAreTheSumOverBlocks) {
  for (uint8_t bits = 1; bits <= 16; ++bits)
    for (uint32_t block : {8u, 24u, 512u}) {
      const CodecProgram codec = affine(block, bits);
      for (size_t count = 0; count < 3000; count += 1 + count / 3) {
        size_t expected = 0;
        for (size_t first = 0; first < count; first += block) {
          const size_t codeBits = std::min<size_t>(block, count - first) * bits;
          expected += 8 + codeBits / 8 + (codeBits % 8 != 0);
        }
        EXPECT_EQ(codecPackedBytes(codec, count), expected);
        EXPECT_EQ(mustFindCodec("codec_encode", codec).outputBytes(count), expected);
        EXPECT_EQ(mustFindCodec("codec_decode", codec).inputBytes(count), expected);
      }
    }
}

TEST(CodecProgramReferenceTest, B16_AbsMaxKeepsItsBoundOnEveryFiniteBucket) {
  const size_t count = 1300;
  for (uint8_t bits : {2, 4, 8}) {
    const CodecProgram codec = absMax(512, bits);
    for (const Bucket &bucket : finiteBuckets(count)) {
      const std::vector<float> y = decode(codec, count, encode(codec, bucket.values, true), true);
      for (size_t first = 0; first < count; first += codec.block) {
        const size_t last = std::min<size_t>(first + codec.block, count);
        double largest = 0;
        for (size_t i = first; i < last; ++i)
          largest = std::max(largest, std::fabs(static_cast<double>(bucket.values[i])));
        const double levels = (1 << (bits - 1)) - 1;
        const double bound = largest / (2 * levels) * (1 + 0x1p-12) + 0x1p-149;
        for (size_t i = first; i < last; ++i)
          ASSERT_LE(std::fabs(static_cast<double>(bucket.values[i]) - static_cast<double>(y[i])),
                    bound)
              << bucket.name << ", element " << i << ": " << bucket.values[i] << ", " << y[i];
      }
    }
  }
}

TEST(CodecProgramReferenceTest, CodesSaturateAndNanHasCodeZero) {
  CodecProgram codec = affine(8, 3);
  Builder encode3;
  const uint16_t x = encode3.input();
  encode3.input(true), encode3.input(true);
  encode3.output(encode3.add(MapOp::Sqrt, x)); // NaN for what is negative.
  codec.encode = encode3.program;
  const std::vector<float> values = {-1, 0, 1, 4, 6.25f, 49, 64, 1e30f};
  const unsigned expected[] = {0, 0, 1, 2, 2, 7, 7, 7};
  for (bool reference : {true, false}) {
    const Bytes packed = encode(codec, values, reference);
    unsigned bits = 0;
    for (size_t i = 0; i < 3; ++i)
      bits |= std::to_integer<unsigned>(packed[8 + i]) << (8 * i);
    for (size_t i = 0; i < 8; ++i)
      EXPECT_EQ(bits >> (3 * i) & 7, expected[i]) << values[i];
  }
}

TEST(CodecProgramReferenceTest, B16_NonFiniteFillsItsBlockAndTouchesNoOther) {
  const size_t count = 1300;
  for (const CodecProgram &codec : {absMax(), affine(64, 5), meanSign(512), affine(520, 12)})
    for (float value : {INFINITY, -INFINITY, NAN})
      for (size_t at : {size_t{0}, size_t{700}, count - 1}) {
        std::vector<float> x = randomValues<float>(count, 7, Data::Normal);
        const std::vector<float> clean = decode(codec, count, encode(codec, x, true), true);
        x[at] = value;
        const Bytes packed = encode(codec, x, true);
        const std::vector<float> y = decode(codec, count, packed, true);
        for (size_t i = 0; i < count; ++i) {
          const float expected = i / codec.block == at / codec.block
                                     ? std::numeric_limits<float>::quiet_NaN()
                                     : clean[i];
          ASSERT_EQ(std::bit_cast<uint32_t>(y[i]), std::bit_cast<uint32_t>(expected)) << i;
        }
      }
}

/// Its range overflows f32: the header is infinite, so the block says that it is lost.
TEST(CodecProgramReferenceTest, NonFiniteHeadersMakeTheBlockNan) {
  const CodecProgram codec = affine(8, 4);
  for (bool reference : {true, false}) {
    std::vector<float> x(16, 1.0f);
    x[0] = FLT_MAX, x[1] = -FLT_MAX;
    const Bytes packed = encode(codec, x, reference);
    EXPECT_EQ(std::vector<std::byte>(packed.begin(), packed.begin() + 4),
              toBytes<uint32_t>({0x7fc00000}));
    EXPECT_TRUE(std::all_of(packed.begin() + 4, packed.begin() + 12,
                            [](std::byte byte) { return byte == std::byte{0}; }));
    const std::vector<float> y = decode(codec, 16, packed, reference);
    for (size_t i = 0; i < 8; ++i)
      EXPECT_EQ(std::bit_cast<uint32_t>(y[i]), 0x7fc00000u);
    EXPECT_EQ(y[8], 1.0f);
  }
}

TEST(CodecProgramReferenceTest, SumsAreStridedPartialsAndATree) {
  const size_t count = 131;
  const CodecProgram codec = meanSign(256);
  std::vector<float> x = randomValues<float>(count, 9, Data::Normal);
  std::array<float, 64> partials{};
  for (size_t i = 0; i < count; ++i)
    partials[i % 64] += std::fabs(x[i]);
  for (size_t width = 32; width > 0; width /= 2)
    for (size_t j = 0; j < width; ++j)
      partials[j] += partials[j + width];
  const Bytes packed = encode(codec, x, true);
  EXPECT_EQ(valuesOf<float>(std::span(packed).first(4))[0],
            partials[0] / static_cast<float>(count));
}

TEST(CodecProgramReferenceTest, DecodeReduceIsTheFoldOfDecodes) {
  const CodecProgram codec = absMax(64, 5);
  const size_t count = 333;
  std::vector<Bytes> packed;
  std::vector<Bytes> plain;
  for (unsigned k = 0; k < 3; ++k) {
    packed.push_back(encode(codec, randomValues<float>(count, k, Data::Normal), true));
    plain.push_back(toBytes(decode(codec, count, packed.back(), true)));
  }
  EXPECT_EQ(launch(mustFindCodec("codec_decode_reduce_sum", codec, true), count, packed),
            launch(mustFind("reduce_sum", DType::F32, {}, true), count, plain));
  EXPECT_EQ(launch(mustFindCodec("codec_decode_reduce_mean", codec, true), count, packed),
            launch(mustFind("reduce_mean", DType::F32, {}, true), count, plain));
}

// --- Every target against the reference.

class CodecProgramTargetTest : public TargetTest {};

TEST_P(CodecProgramTargetTest, SameBytesAsReferenceOnEveryBucket) {
  for (const CodecProgram &codec : codecs()) {
    const size_t count = std::min<size_t>(codec.block, 1100) * 2 + 13;
    for (const Bucket &bucket : buckets(count)) {
      const Bytes expected = encode(codec, bucket.values, true);
      ASSERT_EQ(difference<uint8_t>(encode(codec, bucket.values), expected), "")
          << bucket.name << ", " << int{codec.codeBits} << " bits, block " << codec.block;
      ASSERT_EQ(difference<float>(toBytes(decode(codec, count, expected)),
                                  toBytes(decode(codec, count, expected, true))),
                "")
          << bucket.name << ", " << int{codec.codeBits} << " bits, block " << codec.block;
    }
  }
}

TEST_P(CodecProgramTargetTest, SameBytesAsReferenceAtEveryTail) {
  for (const CodecProgram &codec : {absMax(64, 3), affine(8, 7), affine(520, 11), meanSign(24)})
    for (size_t count : tailCounts()) {
      const std::vector<float> x =
          randomValues<float>(count, static_cast<unsigned>(count), Data::Normal);
      const Bytes packed = encode(codec, x, true);
      ASSERT_EQ(difference<uint8_t>(encode(codec, x), packed), "") << count;
      ASSERT_EQ(decode(codec, count, packed), decode(codec, count, packed, true)) << count;
      const std::vector<Bytes> inputs(3, packed);
      for (const char *name : {"codec_decode_reduce_sum", "codec_decode_reduce_mean"})
        ASSERT_EQ(difference<float>(launch(mustFindCodec(name, codec), count, inputs, {}, {},
                                           GuardedBytes::Place::AtStart),
                                    launch(mustFindCodec(name, codec, true), count, inputs)),
                  "")
            << name << ", " << count;
    }
}

TEST_P(CodecProgramTargetTest, SameBytesAsReferenceAroundABlock) {
  for (const CodecProgram &codec : {affine(64, 8), affine(2048, 8), roots(1024, 4)})
    for (size_t count : {size_t{1}, size_t{31}, size_t{codec.block} - 1, size_t{codec.block},
                         size_t{codec.block} + 1, 2 * size_t{codec.block} + 31})
      for (const Bucket &bucket : buckets(count)) {
        const Bytes packed = encode(codec, bucket.values, true);
        ASSERT_EQ(difference<uint8_t>(encode(codec, bucket.values), packed), "")
            << bucket.name << ", " << count;
        const std::vector<Bytes> inputs(2, packed);
        const char *name = "codec_decode_reduce_mean";
        ASSERT_EQ(difference<float>(launch(mustFindCodec(name, codec), count, inputs),
                                    launch(mustFindCodec(name, codec, true), count, inputs)),
                  "")
            << bucket.name << ", " << count;
      }
}

/// Launches that fit no cache prefetch what they will read and write.
TEST_P(CodecProgramTargetTest, LargeLaunchesEncodeBlockByBlock) {
  for (const CodecProgram &codec : {affine(2048, 8), affine(64, 3)}) {
    const size_t period = 2048, periods = (size_t{16} << 20) / sizeof(float) / period, rest = 13;
    const std::vector<float> once = randomValues<float>(period, 3, Data::Normal);
    const Bytes packed = encode(codec, once, true);
    std::vector<float> x(period * periods + rest);
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = once[i % period];
    Bytes expected;
    for (size_t k = 0; k < periods; ++k)
      expected.insert(expected.end(), packed.begin(), packed.end());
    const Bytes last = encode(codec, std::vector<float>(x.end() - rest, x.end()), true);
    expected.insert(expected.end(), last.begin(), last.end());
    EXPECT_TRUE(encode(codec, x) == expected) << codec.block;
  }
}

TEST_P(CodecProgramTargetTest, RandomCodecsGiveTheSameBytes) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    const CodecProgram codec = randomCodec(seed);
    ASSERT_EQ(validateCodec(codec), "") << seed;
    const size_t count = codec.block + 100 + seed % 37;
    const std::vector<float> x =
        randomValues<float>(count, seed, seed % 5 == 0 ? Data::AnyBits : Data::Normal);
    const Bytes packed = encode(codec, x, true);
    ASSERT_EQ(difference<uint8_t>(encode(codec, x), packed), "") << "seed " << seed;
    ASSERT_EQ(difference<float>(toBytes(decode(codec, count, packed)),
                                toBytes(decode(codec, count, packed, true))),
              "")
        << "seed " << seed;
  }
}

TEST_P(CodecProgramTargetTest, AnyBytesDecodeAsInTheReference) {
  std::mt19937 random(41);
  for (unsigned seed = 0; seed < 60; ++seed) {
    const CodecProgram codec = seed < 20 ? randomCodec(seed) : affine(64, seed % 16 + 1);
    const size_t count = codec.block * 2 + seed;
    std::vector<Bytes> inputs(1 + seed % 3, Bytes(codecPackedBytes(codec, count)));
    for (Bytes &input : inputs)
      for (std::byte &byte : input)
        byte = static_cast<std::byte>(random());
    if (inputs.size() == 1) {
      ASSERT_EQ(
          difference<float>(launch(mustFindCodec("codec_decode", codec), count, inputs),
                            launch(mustFindCodec("codec_decode", codec, true), count, inputs)),
          "")
          << "seed " << seed;
    }
    ASSERT_EQ(difference<float>(
                  launch(mustFindCodec("codec_decode_reduce_mean", codec), count, inputs),
                  launch(mustFindCodec("codec_decode_reduce_mean", codec, true), count, inputs)),
              "")
        << "seed " << seed;
  }
}

TEST_P(CodecProgramTargetTest, PiecesGiveTheSameBytesAndWriteNothingElse) {
  for (const CodecProgram &codec : {absMax(64, 3), affine(24, 9)}) {
    const size_t count = codec.block * 5 + 11, block = codec.block;
    const std::vector<float> x = randomValues<float>(count, 3, Data::Normal);
    const Kernel kernel = mustFindCodec("codec_encode", codec);
    EXPECT_EQ(kernel.grain, block);
    const Bytes packed = launch(kernel, count, {toBytes(x)});
    const Bytes plain = launch(mustFindCodec("codec_decode", codec), count, {packed});
    for (const std::vector<size_t> &cuts : {std::vector<size_t>{block}, {2 * block, 5 * block}}) {
      EXPECT_EQ(launch(kernel, count, {toBytes(x)}, {}, cuts), packed);
      EXPECT_EQ(launch(mustFindCodec("codec_decode", codec), count, {packed}, {}, cuts), plain);
    }
    GuardedBytes source(toBytes(x)), target(packed.size());
    std::fill(target.bytes().begin(), target.bytes().end(), kPoison);
    const std::span<const std::byte> inputs[] = {source.bytes()};
    const std::span<std::byte> outputs[] = {target.bytes()};
    kernel.run(kernel, Args{inputs, outputs, {}, count}, block, 3 * block);
    const size_t from = codecPackedBytes(codec, block), to = codecPackedBytes(codec, 3 * block);
    for (size_t i = 0; i < packed.size(); ++i)
      ASSERT_EQ(target.bytes()[i], i >= from && i < to ? packed[i] : kPoison) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, CodecProgramTargetTest,
                         testing::ValuesIn(supportedTargets().begin(), supportedTargets().end()),
                         targetTestName);

// --- Rules.

TEST(CodecProgramTest, SaysWhyItRefuses) {
  struct {
    void (*damage)(CodecProgram &);
    const char *message;
  } const cases[] = {
      {[](CodecProgram &c) { c.block = 0; }, "block expects a multiple of 8 in 8…65536, got 0"},
      {[](CodecProgram &c) { c.block = 12; }, "block expects a multiple of 8 in 8…65536, got 12"},
      {[](CodecProgram &c) { c.block = 65544; },
       "block expects a multiple of 8 in 8…65536, got 65544"},
      {[](CodecProgram &c) { c.headerCount = 0; }, "header count expects 1…4, got 0"},
      {[](CodecProgram &c) { c.headerCount = 5; }, "header count expects 1…4, got 5"},
      {[](CodecProgram &c) { c.codeBits = 0; }, "code bits expects 1…16, got 0"},
      {[](CodecProgram &c) { c.codeBits = 17; }, "code bits expects 1…16, got 17"},
      {[](CodecProgram &c) { c.stats.code.clear(); },
       "stats: expects at least 1 instruction, got 0"},
      {[](CodecProgram &c) { c.stats.scalars = 1; }, "stats: expects 0 scalars, got 1"},
      {[](CodecProgram &c) { c.stats.inputs = 2, c.stats.broadcast = {0, 0}; },
       "stats: expects 1 inputs, got 2"},
      {[](CodecProgram &c) { c.stats.broadcast[0] = 1; },
       "stats: broadcast flag 0 expects 0, got 1"},
      {[](CodecProgram &c) { c.reductions.pop_back(); },
       "expects a reduction for each of 2 outputs of stats, got 1"},
      {[](CodecProgram &c) { c.reductions[1] = static_cast<BlockReduction>(3); },
       "reduction 1 expects a number below 3, got 3"},
      {[](CodecProgram &c) { c.headers.inputs = 1; },
       "headers: expects a broadcast flag for each of 1 inputs, got 2"},
      {[](CodecProgram &c) { c.headers.outputs.pop_back(); }, "headers: expects 2 outputs, got 1"},
      {[](CodecProgram &c) { c.encode.broadcast[1] = 0; },
       "encode: broadcast flag 1 expects 1, got 0"},
      {[](CodecProgram &c) { c.encode.outputs = {0, 0}; }, "encode: expects 1 outputs, got 2"},
      {[](CodecProgram &c) { c.decode.broadcast[0] = 1; },
       "decode: broadcast flag 0 expects 0, got 1"},
      {[](CodecProgram &c) { c.decode.code.resize(241); },
       "decode: expects at most 240 instructions, got 241"},
      {[](CodecProgram &c) { c.encode.code[0].a = 3; },
       "encode: instruction 0 (input) expects an index below 3, got 3"},
  };
  for (const auto &c : cases) {
    CodecProgram codec = affine(64, 4);
    ASSERT_EQ(validateCodec(codec), "");
    c.damage(codec);
    EXPECT_EQ(validateCodec(codec), c.message);
    Kernel kernel;
    std::string error;
    EXPECT_EQ(findCodec("codec_decode", std::make_shared<const CodecProgram>(codec), DType::F32,
                        kernel, error),
              FindError::BadAttribute);
    EXPECT_EQ(error, std::string("kernel 'codec_decode': ") + c.message);
    EXPECT_EQ(kernel.run, nullptr);
  }
  Kernel kernel;
  std::string error;
  const Shared good = std::make_shared<const CodecProgram>(absMax());
  EXPECT_EQ(findCodec("codec", good, DType::F32, kernel, error), FindError::UnknownName);
  EXPECT_EQ(error, "no kernel of a codec program is named 'codec'");
  EXPECT_EQ(findCodec("codec_encode", good, DType::F64, kernel, error),
            FindError::UnsupportedDType);
  EXPECT_EQ(error, "kernel 'codec_encode' expects dtype f32, got f64");
  EXPECT_EQ(kernel.run, nullptr);
}

/// The longest programs: what is added to them stays within the limits of a map.
TEST(CodecProgramTest, LongestProgramsRun) {
  CodecProgram codec = absMax(64, 4);
  for (MapProgram *program : {&codec.encode, &codec.decode}) {
    while (program->code.size() < kCodecInstructionsMax) {
      program->code.push_back({MapOp::Neg, program->outputs[0], 0, 0});
      program->outputs[0] = static_cast<uint16_t>(program->code.size() - 1);
    }
  }
  ASSERT_EQ(validateCodec(codec), "");
  const std::vector<float> x = randomValues<float>(200, 1, Data::Normal);
  const Bytes packed = encode(codec, x, true);
  EXPECT_EQ(encode(codec, x), packed);
  EXPECT_EQ(decode(codec, 200, packed), decode(codec, 200, packed, true));
}

} // namespace
} // namespace bagua::kernels
