// Every codec by one set of rules: targets write the bytes of the reference; the reference obeys
// its law in SPEC.md on the buckets that have broken other codecs.
#include "EdgeBuckets.h"

namespace bagua::kernels {
namespace {

struct Codec {
  std::string name;
  std::vector<Attribute> attributes;

  size_t attribute(std::string_view wanted) const {
    for (const Attribute &attribute : attributes)
      if (attribute.name == wanted)
        return static_cast<size_t>(attribute.value);
    return 1;
  }
  /// Elements that share a fate.
  size_t block() const { return attribute("block"); }
  std::string text() const {
    std::string text = name;
    for (const Attribute &attribute : attributes)
      text += " " + std::string(attribute.name) + "=" + std::to_string(attribute.value);
    return text;
  }
};

const std::vector<Codec> &codecs() {
  static const std::vector<Codec> kCodecs = {
      {"identity", {}},
      {"f16", {}},
      {"bf16", {}},
      {"minmax", {{"bits", 3}, {"block", 64}}},
      {"minmax_reference", {{"block", 64}}},
      {"minmax_reference", {{"block", 1032}}},
      {"qsgd", {{"levels", 1}, {"norm", 0}, {"block", 24}}},
      {"qsgd", {{"levels", 2}, {"norm", 2}, {"block", 64}}},
      {"qsgd", {{"levels", 7}, {"norm", 0}, {"block", 512}}},
      {"qsgd", {{"levels", 41}, {"norm", 0}, {"block", 8}}},
      {"qsgd", {{"levels", 127}, {"norm", 0}, {"block", 1032}}},
      {"qsgd", {{"levels", 127}, {"norm", 2}, {"block", 2048}}},
      {"ternary", {{"block", 64}}},
      {"ternary", {{"block", 2048}}},
      {"sign", {{"block", 8}}},
      {"sign", {{"block", 64}}},
      {"sign", {{"block", 1032}}},
      {"topk", {{"k", 1}, {"block", 64}}},
      {"topk", {{"k", 7}, {"block", 8}}},
      {"topk", {{"k", 33}, {"block", 1032}}},
      {"topk", {{"k", 64}, {"block", 64}}},
      {"randk", {{"k", 1}, {"block", 64}, {"scaled", 1}}},
      {"randk", {{"k", 7}, {"block", 8}, {"scaled", 0}}},
      {"randk", {{"k", 33}, {"block", 1032}, {"scaled", 1}}},
      {"randk", {{"k", 64}, {"block", 64}, {"scaled", 1}}},
  };
  return kCodecs;
}

Kernel kernelOf(const Codec &codec, const char *operation, bool reference) {
  return mustFind(codec.name + "_" + operation, DType::F32, codec.attributes, reference);
}

/// Scalars of a random kernel.
struct Draw {
  double seed = 7, step = 3, rank = 1, bucket = 2, op = 5, first = 0;
  std::vector<double> scalars(const Kernel &kernel) const {
    if (kernel.scalars == 0)
      return {};
    EXPECT_EQ(kernel.scalars, 6u);
    return {seed, step, rank, bucket, op, first};
  }
};

Bytes run(const Codec &codec, const char *operation, size_t count, const std::vector<Bytes> &inputs,
          bool reference, Draw draw = {}, const std::vector<size_t> &cuts = {},
          GuardedBytes::Place place = GuardedBytes::Place::AtEnd) {
  const Kernel kernel = kernelOf(codec, operation, reference);
  return launch(kernel, count, inputs, draw.scalars(kernel), cuts, place);
}

Bytes encode(const Codec &codec, const std::vector<float> &x, bool reference = true,
             Draw draw = {}) {
  return run(codec, "encode", x.size(), {toBytes(x)}, reference, draw);
}

std::vector<float> decode(const Codec &codec, size_t count, const Bytes &packed,
                          bool reference = true, Draw draw = {}) {
  return valuesOf<float>(run(codec, "decode", count, {packed}, reference, draw));
}

std::vector<float> roundTrip(const Codec &codec, const std::vector<float> &x, Draw draw = {}) {
  return decode(codec, x.size(), encode(codec, x, true, draw), true, draw);
}

// ---- Every target equals the reference ----

class CodecTargetTest : public TargetTest {};

TEST_P(CodecTargetTest, B15_B16_SameBytesAsReferenceOnEveryBucket) {
  const size_t count = 2100;
  for (const Codec &codec : codecs())
    for (const Bucket &bucket : buckets(count)) {
      Bytes expected = encode(codec, bucket.values);
      EXPECT_EQ(difference<uint8_t>(encode(codec, bucket.values, false), expected), "")
          << bucket.name << ", " << codec.text();
      EXPECT_EQ(difference<float>(toBytes(decode(codec, count, expected, false)),
                                  toBytes(decode(codec, count, expected))),
                "")
          << bucket.name << ", " << codec.text();
    }
}

// Odd counts around blocks and vectors; any access outside the buffers ends the test.
TEST_P(CodecTargetTest, B02_B03_SameBytesAsReferenceAtEveryTail) {
  for (const Codec &codec : codecs()) {
    std::vector<size_t> counts = tailCounts();
    const size_t block = codec.block();
    counts.insert(counts.end(), {block - 1, block, block + 1, 2 * block + 3});
    for (size_t count : counts) {
      const std::vector<float> x = normal(count);
      const Bytes packed = encode(codec, x), y = toBytes(decode(codec, count, packed));
      EXPECT_EQ(packed.empty(), count == 0);
      for (auto place : {GuardedBytes::Place::AtEnd, GuardedBytes::Place::AtStart}) {
        EXPECT_EQ(difference<uint8_t>(
                      run(codec, "encode", count, {toBytes(x)}, false, {}, {}, place), packed),
                  "")
            << codec.text() << ", count " << count;
        EXPECT_EQ(difference<float>(run(codec, "decode", count, {packed}, false, {}, {}, place), y),
                  "")
            << codec.text() << ", count " << count;
      }
    }
  }
}

TEST_P(CodecTargetTest, B03_LargePrimeCount) {
  const size_t count = 100003;
  const std::vector<float> x = normal(count);
  for (const Codec &codec : codecs()) {
    const Draw draw{.first = 0x1p34 - 4096}; // Counters pass 32 bits within the bucket.
    Bytes expected = encode(codec, x, true, draw);
    EXPECT_EQ(difference<uint8_t>(encode(codec, x, false, draw), expected), "") << codec.text();
    EXPECT_EQ(difference<float>(toBytes(decode(codec, count, expected, false, draw)),
                                toBytes(decode(codec, count, expected, true, draw))),
              "")
        << codec.text();
  }
}

TEST_P(CodecTargetTest, DecodeReduceSameBitsAsReference) {
  for (const Codec &codec : codecs())
    for (size_t inputs : {1u, 2u, 3u, 4u, 5u, 17u})
      for (size_t count : {size_t{1}, size_t{17}, 2 * codec.block() + 3}) {
        std::vector<Bytes> packed;
        for (size_t k = 0; k < inputs; ++k) {
          std::vector<float> x =
              scaled(randomValues<float>(count, static_cast<unsigned>(k), Data::Normal),
                     k == 2 ? 1e38f : 1);
          if (k == 1)
            x[count / 2] = NAN;
          packed.push_back(encode(codec, x));
        }
        for (const char *name : {"decode_reduce_sum", "decode_reduce_mean"})
          EXPECT_EQ(difference<float>(run(codec, name, count, packed, false),
                                      run(codec, name, count, packed, true)),
                    "")
              << name << ", " << inputs << " inputs, " << codec.text() << ", count " << count;
      }
}

// Packed bytes come from other processes: any bytes must decode, and alike on all targets.
TEST_P(CodecTargetTest, AnyBytesDecodeAsInTheReference) {
  std::mt19937 random(41);
  const size_t count = 300;
  const uint32_t special[] = {0, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc12345,
                              1, 0x80000001, 0x7f7fffff, 0xff7fffff, 0x3f800000};
  for (const Codec &codec : codecs())
    for (int round = 0; round < 60; ++round) {
      std::vector<Bytes> packed(3);
      for (Bytes &bytes : packed) {
        bytes.resize(kernelOf(codec, "decode", true).inputBytes(count));
        for (std::byte &byte : bytes)
          byte = static_cast<std::byte>(random());
        // Words that mean something, in headers, values and codes.
        for (size_t i = 0; i + 4 <= bytes.size() && round % 2 == 0; i += 4 + 4 * (random() % 4))
          std::memcpy(bytes.data() + i, &special[random() % std::size(special)], 4);
        if (round % 3 == 0 && bytes.size() >= 8)
          std::memcpy(bytes.data(), &special[random() % std::size(special)], 4);
      }
      EXPECT_EQ(difference<float>(run(codec, "decode", count, {packed[0]}, false),
                                  run(codec, "decode", count, {packed[0]}, true)),
                "")
          << codec.text() << ", round " << round;
      EXPECT_EQ(difference<float>(run(codec, "decode_reduce_sum", count, packed, false),
                                  run(codec, "decode_reduce_sum", count, packed, true)),
                "")
          << codec.text() << ", round " << round;
    }
}

TEST_P(CodecTargetTest, PiecesGiveTheSameBytesAndWriteTheirOwn) {
  for (const Codec &codec : codecs()) {
    const size_t block = codec.block(), count = 5 * block + 3;
    const std::vector<float> x = randomValues<float>(count, 5, Data::AnyBits);
    const Bytes packed = encode(codec, x, false), y = toBytes(decode(codec, count, packed, false));
    const std::vector<size_t> cuts = {block, 3 * block, 4 * block};
    EXPECT_EQ(run(codec, "encode", count, {toBytes(x)}, false, {}, cuts), packed) << codec.text();
    EXPECT_EQ(run(codec, "decode", count, {packed}, false, {}, cuts), y) << codec.text();
    for (const char *name : {"encode", "decode"}) { // The piece of blocks 1 and 2 alone.
      Kernel kernel = kernelOf(codec, name, false);
      EXPECT_EQ(kernel.grain, block) << codec.text();
      const Bytes &input = kernel.packedInput ? packed : toBytes(x);
      const Bytes &whole = kernel.packedInput ? y : packed;
      Bytes output(whole.size(), kPoison);
      std::span<const std::byte> inputs[] = {input};
      std::span<std::byte> outputs[] = {output};
      const std::vector<double> scalars = Draw{}.scalars(kernel);
      kernel.run(kernel, Args{inputs, outputs, scalars, count}, block, 3 * block);
      for (size_t i = 0; i < output.size(); ++i) {
        const bool inside = i >= kernel.outputBytes(block) && i < kernel.outputBytes(3 * block);
        ASSERT_EQ(output[i], inside ? whole[i] : kPoison)
            << codec.text() << " " << name << ", byte " << i;
      }
    }
  }
}

TEST_P(CodecTargetTest, LargeLaunchesGiveTheSameBytes) {
  for (const Codec &codec : codecs()) {
    if (codec.name == "minmax") // MinMaxTest has it.
      continue;
    const size_t block = codec.block();
    const size_t head = (3000 / block + 2) * block, tailBegin = (kLargeCount / block - 2) * block;
    const size_t tail = kLargeCount - tailBegin;
    const Draw headDraw{.first = 0}, tailDraw{.first = static_cast<double>(tailBegin)};
    for (size_t shift : {1u, 4u, 46u}) {
      std::vector<Bytes> heads, tails, packedHeads, packedTails;
      for (unsigned k = 0; k < 2; ++k) {
        std::vector<float> x = randomValues<float>(head, k, Data::Normal);
        if (k == 1)
          x[head / 2] = NAN;
        heads.push_back(toBytes(x));
        tails.push_back(toBytes(randomValues<float>(tail, k + 7, Data::Normal)));
        packedHeads.push_back(run(codec, "encode", head, {heads[k]}, true, headDraw));
        packedTails.push_back(run(codec, "encode", tail, {tails[k]}, true, tailDraw));
      }
      const auto joined = [](Bytes a, const Bytes &b) {
        a.insert(a.end(), b.begin(), b.end());
        return a;
      };
      const Kernel encoder = kernelOf(codec, "encode", false);
      EXPECT_EQ(difference<uint8_t>(launchEnds(encoder, {heads[1]}, {tails[1]}, head, tailBegin,
                                               headDraw.scalars(encoder), shift),
                                    joined(packedHeads[1], packedTails[1])),
                "")
          << codec.text() << ", shift " << shift;
      const Kernel decoder = kernelOf(codec, "decode_reduce_mean", false);
      EXPECT_EQ(difference<float>(
                    launchEnds(decoder, packedHeads, packedTails, head, tailBegin,
                               headDraw.scalars(decoder), shift),
                    joined(run(codec, "decode_reduce_mean", head, packedHeads, true, headDraw),
                           run(codec, "decode_reduce_mean", tail, packedTails, true, tailDraw))),
                "")
          << codec.text() << ", shift " << shift;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, CodecTargetTest,
                         testing::ValuesIn(supportedTargets().begin(), supportedTargets().end()),
                         targetTestName);

// ---- The laws; the targets equal the reference, so they are theirs ----

using Span = std::span<const float>;

double largestMagnitude(Span x) {
  double most = 0;
  for (float value : x)
    most = std::max(most, std::fabs(static_cast<double>(value)));
  return most;
}

double squares(Span x) {
  double sum = 0;
  for (float value : x)
    sum += static_cast<double>(value) * value;
  return sum;
}

size_t entriesOf(const Codec &codec, size_t count) {
  return (count * codec.attribute("k") + codec.block() - 1) / codec.block();
}

/// The law of one block of finite elements.
void expectLaw(const Codec &codec, Span x, Span y, const std::string &where) {
  const double most = largestMagnitude(x);
  if (codec.name == "identity") {
    for (size_t i = 0; i < x.size(); ++i)
      ASSERT_EQ(std::bit_cast<uint32_t>(x[i]), std::bit_cast<uint32_t>(y[i])) << where;
  } else if (codec.name == "f16" || codec.name == "bf16") {
    const bool f16 = codec.name == "f16";
    const double limit = f16 ? 65504 : static_cast<double>(std::bit_cast<float>(0x7f7f0000u));
    const double relative = f16 ? 0x1p-11 : 0x1p-8, absolute = f16 ? 0x1p-25 : 0x1p-134;
    for (size_t i = 0; i < x.size(); ++i) {
      const double used = std::clamp<double>(x[i], -limit, limit);
      ASSERT_LE(std::fabs(used - y[i]), std::max(relative * std::fabs(used), absolute)) << where;
      ASSERT_EQ(std::signbit(x[i]), std::signbit(y[i])) << where;
    }
  } else if (codec.name == "qsgd" || codec.name == "ternary") {
    const double norm =
        codec.attribute("norm") == 2 ? std::min<double>(std::sqrt(squares(x)), FLT_MAX) : most;
    const double levels = static_cast<double>(codec.attribute("levels"));
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_LE(std::fabs(static_cast<double>(x[i]) - y[i]),
                norm / levels * (1 + 0x1p-20) + 0x1p-149)
          << where << ", element " << i << ": " << x[i] << " became " << y[i] << ", norm " << norm;
      ASSERT_LE(std::fabs(static_cast<double>(y[i])), norm * (1 + 0x1p-23) + 0x1p-149) << where;
      ASSERT_FALSE(x[i] == 0 && y[i] != 0) << where;
      ASSERT_TRUE(codec.name == "qsgd" || y[i] == 0 || std::fabs(y[i]) == most) << where;
    }
  } else if (codec.name == "sign") {
    double sum = 0;
    for (float value : x)
      sum += std::fabs(static_cast<double>(value));
    const double mean = sum / static_cast<double>(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(y[i] < 0 || (y[i] == 0 && std::signbit(y[i])), x[i] < 0) << where;
      ASSERT_LE(std::fabs(std::fabs(static_cast<double>(y[i])) - mean), mean * 0x1p-23 + 0x1p-149)
          << where;
    }
  } else if (codec.name == "topk") {
    std::vector<size_t> order(x.size());
    for (size_t i = 0; i < order.size(); ++i)
      order[i] = i;
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      const float p = std::fabs(x[a]), q = std::fabs(x[b]);
      return p != q ? p > q : a < b;
    });
    std::vector<float> expected(x.size(), 0.0f);
    for (size_t e = 0; e < entriesOf(codec, x.size()); ++e)
      expected[order[e]] = x[order[e]];
    for (size_t i = 0; i < x.size(); ++i)
      ASSERT_EQ(y[i], expected[i]) << where << ", element " << i;
  } else if (codec.name == "randk") {
    const size_t entries = entriesOf(codec, x.size());
    const float factor = codec.attribute("scaled") == 1
                             ? static_cast<float>(x.size()) / static_cast<float>(entries)
                             : 1.0f;
    size_t kept = 0, zeros = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const float all = std::clamp(x[i] * factor, -FLT_MAX, FLT_MAX);
      ASSERT_TRUE(y[i] == 0 || y[i] == all) << where << ", element " << i;
      kept += y[i] != 0 ? 1 : 0;
      zeros += x[i] == 0 ? 1 : 0;
    }
    ASSERT_LE(kept, entries) << where;
    ASSERT_GE(kept + zeros, entries) << where;
  } else if (codec.name == "minmax") {
    const auto [lo, hi] = std::minmax_element(x.begin(), x.end());
    const double range = static_cast<double>(*hi) - *lo;
    const double levels = std::exp2(static_cast<double>(codec.attribute("bits"))) - 1;
    for (size_t i = 0; i < x.size(); ++i)
      ASSERT_LE(std::fabs(static_cast<double>(x[i]) - y[i]),
                range / (2 * levels) * (1 + 0x1p-12) + 0x1p-23 * most + 0x1p-149)
          << where;
  }
}

TEST(CodecLawTest, B16_HoldsOnEveryFiniteBucket) {
  for (const Codec &codec : codecs()) {
    if (codec.name == "minmax_reference") // Promises nothing: see below.
      continue;
    for (const Bucket &bucket : finiteBuckets(2048 + 5)) {
      const std::vector<float> y = roundTrip(codec, bucket.values);
      for (size_t first = 0; first < y.size(); first += codec.block()) {
        const size_t count = std::min(codec.block(), y.size() - first);
        for (size_t i = first; i < first + count; ++i)
          ASSERT_TRUE(std::isfinite(y[i])) << codec.text() << ", " << bucket.name;
        expectLaw(codec, Span(bucket.values).subspan(first, count), Span(y).subspan(first, count),
                  codec.text() + ", " + bucket.name + ", block at " + std::to_string(first));
        if (HasFatalFailure())
          return;
      }
    }
  }
}

TEST(CodecLawTest, B15_ZeroBlocksDecodeToZeros) {
  for (const Codec &codec : codecs())
    for (float zero : {0.0f, -0.0f}) {
      const size_t block = codec.block();
      std::vector<float> x = normal(3 * block + 5); // A zero block between others.
      std::fill(x.begin() + static_cast<ptrdiff_t>(block),
                x.begin() + static_cast<ptrdiff_t>(2 * block), zero);
      std::vector<float> y = roundTrip(codec, x);
      for (size_t i = block; i < 2 * block; ++i)
        ASSERT_EQ(y[i], 0.0f) << codec.text();
      y = roundTrip(codec, std::vector<float>(2 * block + 3, zero));
      for (float value : y)
        ASSERT_EQ(value, 0.0f) << codec.text();
    }
}

// Exact where SPEC.md promises it: a codec that keeps a few elements cannot, nor one that draws
// against a Euclidean norm, nor the reference system's.
TEST(CodecLawTest, B16_ConstantBlocksAreExact) {
  std::mt19937 random(43);
  for (const Codec &codec : codecs()) {
    const std::string &name = codec.name;
    if (name != "identity" && name != "sign" && name != "ternary" && name != "minmax" &&
        (name != "qsgd" || codec.attribute("norm") == 2))
      continue;
    for (int round = 0; round < 300; ++round) {
      const float constant = std::bit_cast<float>(static_cast<uint32_t>(random()));
      if (!std::isfinite(constant) || constant == 0)
        continue;
      const std::vector<float> x(codec.block() + 5, constant);
      ASSERT_EQ(toBytes(roundTrip(codec, x)), toBytes(x)) << codec.text() << ", " << constant;
    }
  }
}

TEST(CodecLawTest, B16_NonFiniteStaysNonFiniteAndInItsBlock) {
  for (const Codec &codec : codecs()) {
    if (codec.name == "minmax_reference")
      continue;
    const size_t block = codec.block(), count = 3 * block + 8;
    for (float value : {INFINITY, -INFINITY, NAN, -NAN})
      for (size_t index : {size_t{0}, block - 1, block, 2 * block + block / 2, count - 1}) {
        std::vector<float> x = normal(count);
        const std::vector<float> before = roundTrip(codec, x);
        x[index] = value;
        const std::vector<float> after = roundTrip(codec, x);
        ASSERT_FALSE(std::isfinite(after[index]))
            << codec.text() << ", " << value << " at " << index << " became " << after[index];
        for (size_t i = 0; i < count; ++i) {
          const uint32_t bits = std::bit_cast<uint32_t>(after[i]);
          if (i / block != index / block) {
            ASSERT_EQ(bits, std::bit_cast<uint32_t>(before[i]))
                << codec.text() << ", " << value << " at " << index << ", element " << i;
          } else if (block > 1) {
            ASSERT_EQ(bits, 0x7fc00000u) << codec.text();
          }
        }
      }
  }
}

TEST(CodecLawTest, B16_SmallGradientsKeepTheirRelativeAccuracy) {
  for (const Codec &codec : codecs()) {
    if (codec.name == "minmax_reference" || codec.name == "f16") // f16 has no such exponents.
      continue;
    const auto error = [&](float factor) {
      const std::vector<float> x = scaled(normal(4096), factor), y = roundTrip(codec, x);
      double sum = 0;
      for (size_t i = 0; i < x.size(); ++i)
        sum += std::pow((static_cast<double>(x[i]) - y[i]) / static_cast<double>(factor), 2);
      return std::sqrt(sum / 4096);
    };
    const double usual = error(1.0f);
    for (float factor : {1e-6f, 1e-9f, 1e-10f, 1e-20f, 1e-30f})
      EXPECT_NEAR(error(factor), usual, 0.3 * usual) << codec.text() << ", " << factor;
  }
}

TEST(CodecLawTest, DecodeReduceIsTheFoldOfDecodes) {
  for (const Codec &codec : codecs()) {
    const size_t count = 2 * codec.block() + 7;
    std::vector<Bytes> packed, decoded;
    for (unsigned k = 0; k < 5; ++k) {
      std::vector<float> x = randomValues<float>(count, k, Data::Normal);
      if (k == 3)
        x[count / 2] = INFINITY;
      packed.push_back(encode(codec, x));
      decoded.push_back(toBytes(decode(codec, count, packed.back())));
    }
    EXPECT_EQ(run(codec, "decode_reduce_sum", count, packed, true),
              launch(mustFind("reduce_sum", DType::F32, {}, true), count, decoded))
        << codec.text();
    EXPECT_EQ(run(codec, "decode_reduce_mean", count, packed, true),
              launch(mustFind("reduce_mean", DType::F32, {}, true), count, decoded))
        << codec.text();
  }
}

// Runs of whole blocks, each at its place in the bucket, lie end to end.
TEST(CodecLawTest, B03_PackedBytesAreThoseOfTheParts) {
  for (const Codec &codec : codecs()) {
    const size_t block = codec.block(), count = 4 * block + 3;
    const std::vector<float> x = normal(count);
    const Bytes whole = encode(codec, x);
    Bytes joined;
    std::vector<float> decoded;
    for (size_t first : {size_t{0}, block, 3 * block}) {
      const size_t last = first == 0 ? block : first == block ? 3 * block : count;
      const Draw draw{.first = static_cast<double>(first)};
      const Bytes part = encode(codec,
                                std::vector<float>(x.begin() + static_cast<ptrdiff_t>(first),
                                                   x.begin() + static_cast<ptrdiff_t>(last)),
                                true, draw);
      EXPECT_EQ(joined.size(), packedBytes(codec.name, codec.attributes, first)) << codec.text();
      joined.insert(joined.end(), part.begin(), part.end());
      const std::vector<float> y = decode(codec, last - first, part, true, draw);
      decoded.insert(decoded.end(), y.begin(), y.end());
    }
    EXPECT_EQ(difference<uint8_t>(joined, whole), "") << codec.text();
    EXPECT_EQ(toBytes(decoded), toBytes(decode(codec, count, whole))) << codec.text();
  }
}

TEST(CodecLawTest, PackedBytesAreTheClosedFormula) {
  for (const Codec &codec : codecs())
    for (size_t count = 0; count < 9000; count += 1 + count / 3) {
      const auto up = [](size_t a, size_t b) { return (a + b - 1) / b; };
      const size_t blocks = up(count, codec.block()), levels = codec.attribute("levels");
      size_t bits = 1;
      while ((size_t{1} << bits) < 2 * levels + 1)
        ++bits;
      const size_t kept = up(count * codec.attribute("k"), codec.block());
      const size_t expected = codec.name == "identity"           ? 4 * count
                              : codec.name == "f16"              ? 2 * count
                              : codec.name == "bf16"             ? 2 * count
                              : codec.name == "minmax"           ? 8 * blocks + up(3 * count, 8)
                              : codec.name == "minmax_reference" ? 8 * blocks + count
                              : codec.name == "qsgd"             ? 4 * blocks + up(bits * count, 8)
                              : codec.name == "ternary"          ? 4 * blocks + up(2 * count, 8)
                              : codec.name == "sign"             ? 4 * blocks + up(count, 8)
                              : codec.name == "topk"             ? 6 * kept
                                                                 : 4 * kept;
      EXPECT_EQ(packedBytes(codec.name, codec.attributes, count), expected)
          << codec.text() << ", " << count;
    }
  EXPECT_EQ(packedBytes("none", {}, 100), 0u);
  EXPECT_EQ(packedBytes("sign", {}, 100), 0u);
}

// ---- Wire formats ----

void expectWire(const Codec &codec, const std::vector<float> &x,
                const std::vector<std::vector<std::byte>> &parts, const std::vector<float> &y) {
  Bytes expected;
  for (const Bytes &part : parts)
    expected.insert(expected.end(), part.begin(), part.end());
  EXPECT_EQ(difference<uint8_t>(encode(codec, x), expected), "") << codec.text();
  EXPECT_EQ(decode(codec, x.size(), expected), y) << codec.text();
}

TEST(CodecWireTest, IsTheDocumentedOne) {
  const auto f32 = [](std::vector<float> values) { return toBytes(values); };
  const auto u16 = [](std::vector<uint16_t> values) { return toBytes(values); };
  const auto u8 = [](std::vector<uint8_t> values) { return toBytes(values); };
  expectWire({"identity", {}}, {1, -2}, {f32({1, -2})}, {1, -2});
  expectWire({"f16", {}}, {1, -2, 65504, 1e6f, 0x1p-24f, 0x1p-26f, INFINITY},
             {u16({0x3c00, 0xc000, 0x7bff, 0x7bff, 0x0001, 0x0000, 0x7c00})},
             {1, -2, 65504, 65504, 0x1p-24f, 0, INFINITY});
  expectWire({"bf16", {}}, {1, -2, 1 + 0x1p-8f, 1 + 0x3p-8f, FLT_MAX, -INFINITY},
             {u16({0x3f80, 0xc000, 0x3f80, 0x3f82, 0x7f7f, 0xff80})},
             {1, -2, 1, 1 + 0x1p-6f, std::bit_cast<float>(0x7f7f0000u), -INFINITY});
  // Magnitudes that are whole levels have nothing to draw.
  expectWire({"qsgd", {{"levels", 4}, {"norm", 0}, {"block", 8}}},
             {4, -4, 0, 1, -1, 2, -3, 3, -8, 8},
             {f32({4}), u8({0x08, 0x54, 0x63, 0x71}), f32({8}), u8({0x80})},
             {4, -4, 0, 1, -1, 2, -3, 3, -8, 8});
  expectWire({"qsgd", {{"levels", 5}, {"norm", 2}, {"block", 8}}}, {3, -4, 0},
             {f32({5}), u8({0x18, 0x05})}, {3, -4, 0});
  expectWire({"ternary", {{"block", 8}}}, {2, -2, 0, 0, 2}, {f32({2}), u8({0b01010010, 0b10})},
             {2, -2, 0, 0, 2});
  expectWire({"sign", {{"block", 8}}}, {1, -3, 2, -0.0f, -4, 0, 3, 3, -5, 7},
             {f32({2}), u8({0b00010010}), f32({6}), u8({0b01})}, {2, -2, 2, 2, -2, 2, 2, 2, -6, 6});
  expectWire({"topk", {{"k", 3}, {"block", 8}}}, {1, -5, 2, 5, 2, 0, 2, -1, 7, 8},
             {u16({1, 2, 3}), f32({-5, 2, 5}), u16({1}), f32({8})},
             {0, -5, 2, 5, 0, 0, 0, 0, 0, 8});
  expectWire({"randk", {{"k", 8}, {"block", 8}, {"scaled", 1}}}, {1, -5, 2, 5, 2, 0, 2, -1, 7},
             {f32({1, -5, 2, 5, 2, 0, 2, -1}), f32({7})}, {1, -5, 2, 5, 2, 0, 2, -1, 7});
  expectWire({"minmax_reference", {{"block", 8}}}, {0, 255, 1, 254, 100},
             {f32({0, 255}), u8({0, 255, 1, 254, 100})}, {0, 255, 1, 254, 100});
}

// What the reference system's formula does to the buckets of cases.md, section H.
TEST(MinMaxReferenceCodecTest, B16_FaultsAreTheMeasuredOnes) {
  const Codec codec{"minmax_reference", {{"block", 4096}}};
  const auto error = [&](const std::vector<float> &x) {
    const std::vector<float> y = roundTrip(codec, x);
    double sum = 0, size = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      sum += std::pow((static_cast<double>(x[i]) - y[i]) * 1e10, 2);
      size += std::pow(static_cast<double>(x[i]) * 1e10, 2);
    }
    return std::sqrt(sum / size);
  };
  const std::vector<float> x = normal(4096);
  EXPECT_NEAR(error(x), 0.008, 0.002);
  EXPECT_NEAR(error(scaled(x, 1e-6f)), 0.008, 0.002);
  EXPECT_NEAR(error(scaled(x, 1e-8f)), 0.019, 0.01);
  EXPECT_NEAR(error(scaled(x, 1e-9f)), 0.12, 0.04);
  EXPECT_NEAR(error(scaled(x, 1e-10f)), 0.93, 0.2);
  EXPECT_EQ(roundTrip(codec, std::vector<float>(64, 12345.0f)),
            std::vector<float>(64, 12345.0f)); // Exact, by luck.
  for (float value : roundTrip(codec, std::vector<float>(64, 1e30f)))
    EXPECT_FALSE(std::isfinite(value));
  for (float value : roundTrip(codec, {3e38f, -3e38f, 0}))
    EXPECT_FALSE(std::isfinite(value));
  for (float value : roundTrip(codec, scaled(x, 1e-42f)))
    EXPECT_EQ(value, 0.0f);
  std::vector<float> one = x;
  one[7] = INFINITY;
  for (float value : roundTrip(codec, one))
    EXPECT_FALSE(std::isfinite(value));
  one[7] = NAN; // Replaced by about the greatest element.
  EXPECT_NEAR(roundTrip(codec, one)[7], *std::max_element(x.begin(), x.end()), 0.1);
  for (float value : roundTrip(codec, std::vector<float>(64, NAN)))
    EXPECT_TRUE(std::isnan(value));
}

// ---- Random codecs ----

const Codec kRandomCodecs[] = {
    {"qsgd", {{"levels", 1}, {"norm", 0}, {"block", 64}}},
    {"qsgd", {{"levels", 7}, {"norm", 0}, {"block", 64}}},
    {"qsgd", {{"levels", 127}, {"norm", 2}, {"block", 64}}},
    {"qsgd", {{"levels", 3}, {"norm", 2}, {"block", 64}}},
    {"ternary", {{"block", 64}}},
    {"randk", {{"k", 5}, {"block", 64}, {"scaled", 1}}},
};

// The mean of n independent decodings, each within a range of `spread`, has a standard error of at
// most spread / (2 sqrt(n)): 5.5 of them bound each element, and the average over all elements.
TEST(CodecRandomTest, MeansOfManyDrawsAreTheElement) {
  const int draws = 8000;
  const std::vector<float> x = normal(64 + 5);
  const Bytes input = toBytes(x);
  for (const Codec &codec : kRandomCodecs) {
    const Kernel encoder = kernelOf(codec, "encode", false),
                 decoder = kernelOf(codec, "decode", false);
    Bytes packed(encoder.outputBytes(x.size())), output(input.size());
    std::vector<double> sum(x.size());
    for (int draw = 0; draw < draws; ++draw) {
      const Draw used{.step = static_cast<double>(draw)};
      const auto once = [&](const Kernel &kernel, const Bytes &from, Bytes &to) {
        std::span<const std::byte> inputs[] = {from};
        std::span<std::byte> outputs[] = {to};
        const std::vector<double> scalars = used.scalars(kernel);
        kernel.run(kernel, Args{inputs, outputs, scalars, x.size()}, 0, x.size());
      };
      once(encoder, input, packed);
      once(decoder, packed, output);
      const std::vector<float> y = valuesOf<float>(output);
      for (size_t i = 0; i < x.size(); ++i)
        sum[i] += static_cast<double>(y[i]);
    }
    double bias = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const Span block = i < 64 ? Span(x).first(64) : Span(x).last(5);
      const double norm =
          codec.attribute("norm") == 2 ? std::sqrt(squares(block)) : largestMagnitude(block);
      const double factor =
          static_cast<double>(block.size()) / static_cast<double>(entriesOf(codec, block.size()));
      const double spread = codec.name == "randk"
                                ? std::fabs(static_cast<double>(x[i])) * factor
                                : norm / static_cast<double>(codec.attribute("levels"));
      const double error = (sum[i] / draws - static_cast<double>(x[i])) / spread;
      EXPECT_LT(std::fabs(error), 5.5 / (2 * std::sqrt(draws)))
          << codec.text() << ", element " << i << ": " << x[i];
      bias += x[i] < 0 ? -error : error;
    }
    EXPECT_LT(std::fabs(bias) / static_cast<double>(x.size()),
              5.5 / (2 * std::sqrt(draws * static_cast<double>(x.size()))))
        << codec.text();
  }
}

TEST(CodecRandomTest, UnscaledRandKKeepsElementsAsTheyAre) {
  const std::vector<float> x = normal(64);
  const Codec codec{"randk", {{"k", 5}, {"block", 64}, {"scaled", 0}}};
  size_t kept = 0;
  const std::vector<float> y = roundTrip(codec, x);
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_TRUE(y[i] == 0 || y[i] == x[i]);
    kept += y[i] != 0 ? 1 : 0;
  }
  EXPECT_EQ(kept, 5u);
}

TEST(CodecRandomTest, EveryScalarChangesTheDraw) {
  const std::vector<float> x = normal(640);
  for (const Codec &codec : kRandomCodecs) {
    const Bytes bytes = encode(codec, x);
    EXPECT_EQ(encode(codec, x), bytes) << "equal scalars, equal bytes: " << codec.text();
    for (const Draw &other :
         {Draw{.seed = 8}, Draw{.seed = 7 + 0x1p40}, Draw{.step = 4}, Draw{.step = 3 + 0x1p50},
          Draw{.rank = -1}, Draw{.rank = 2}, Draw{.bucket = 3}, Draw{.op = 6}, Draw{.first = 640}})
      EXPECT_NE(encode(codec, x, true, other), bytes) << codec.text();
  }
}

TEST(CodecRandomTest, RandKIsClosedUnderSum) {
  const Codec codec{"randk", {{"k", 9}, {"block", 64}, {"scaled", 1}}};
  const size_t count = 64 * 3 + 5;
  std::vector<Bytes> packed, values;
  for (unsigned k = 0; k < 3; ++k)
    packed.push_back(encode(codec, randomValues<float>(count, k, Data::Normal)));
  const size_t entries = packed[0].size() / sizeof(float);
  const Bytes sum = launch(mustFind("reduce_sum", DType::F32, {}, true), entries, packed);
  EXPECT_EQ(toBytes(decode(codec, count, sum)),
            run(codec, "decode_reduce_sum", count, packed, true));
}

TEST(CodecTest, FindsEveryKernel) {
  for (const Codec &codec : codecs())
    for (const char *operation : {"encode", "decode", "decode_reduce_sum", "decode_reduce_mean"}) {
      const Kernel kernel = kernelOf(codec, operation, false);
      const bool encodes = std::string_view(operation) == "encode";
      const bool many = std::string_view(operation).starts_with("decode_reduce");
      const bool random =
          codec.name == "randk" || (encodes && (codec.name == "qsgd" || codec.name == "ternary"));
      EXPECT_EQ(kernel.scalarsFor(3), random ? 6u : 0u) << codec.text() << " " << operation;
      EXPECT_EQ(kernel.inputsMax, many ? SIZE_MAX : 1u);
      EXPECT_EQ(kernel.packedInput, !encodes);
      EXPECT_EQ(kernel.packedOutput, encodes);
      EXPECT_EQ(encodes ? kernel.outputBytes(77) : kernel.inputBytes(77),
                packedBytes(codec.name, codec.attributes, 77));
      EXPECT_EQ(encodes ? kernel.inputBytes(77) : kernel.outputBytes(77), 308u);
    }
}

TEST(CodecTest, SaysWhyItRefuses) {
  struct {
    const char *name;
    DType dtype;
    std::vector<Attribute> attributes;
    const char *message;
  } const cases[] = {
      {"f16_encode", DType::F64, {}, "kernel 'f16_encode' expects dtype f32, got f64"},
      {"f16_encode", DType::F32, {{"block", 8}}, "kernel 'f16_encode' has no attribute 'block'"},
      {"sign_encode", DType::F32, {}, "kernel 'sign_encode' expects attribute 'block'"},
      {"qsgd_encode",
       DType::F32,
       {{"levels", 0}},
       "kernel 'qsgd_encode' expects attribute 'levels' in 1…127, got 0"},
      {"qsgd_encode",
       DType::F32,
       {{"levels", 128}},
       "kernel 'qsgd_encode' expects attribute 'levels' in 1…127, got 128"},
      {"qsgd_decode",
       DType::F32,
       {{"norm", 1}},
       "kernel 'qsgd_decode' expects attribute 'norm' to be a multiple of 2 in 0…2, got 1"},
      {"topk_decode",
       DType::F32,
       {{"k", 2}, {"block", 8192}},
       "kernel 'topk_decode' expects attribute 'block' to be a multiple of 8 in 8…4096, got 8192"},
      {"topk_encode",
       DType::F32,
       {{"k", 9}, {"block", 8}},
       "kernel 'topk_encode' expects attribute 'k' in 1…8, the block, got 9"},
      {"randk_encode",
       DType::F32,
       {{"k", 8}, {"block", 8}},
       "kernel 'randk_encode' expects attribute 'scaled'"},
      {"ternary_decode_reduce", DType::F32, {}, "no kernel is named 'ternary_decode_reduce'"},
  };
  for (const auto &c : cases) {
    Kernel kernel;
    std::string error;
    EXPECT_NE(find(c.name, c.dtype, c.attributes, kernel, error), FindError::None) << c.name;
    EXPECT_EQ(error, c.message);
  }
}

TEST(CodecTest, IdentityTakesF64) {
  const std::vector<double> x = randomValues<double>(100, 1, Data::Normal);
  const Kernel encode = mustFind("identity_encode", DType::F64, {});
  EXPECT_EQ(launch(encode, 100, {toBytes(x)}), toBytes(x));
  const Kernel mean = mustFind("identity_decode_reduce_mean", DType::F64, {});
  EXPECT_EQ(launch(mean, 100, {toBytes(x), toBytes(x)}), toBytes(x));
}

} // namespace
} // namespace bagua::kernels
