// The min-max codec: every target writes the bytes of the reference; the reference obeys the law of
// SPEC.md, "minmax", on the buckets that have broken other codecs.
#include "EdgeBuckets.h"

namespace bagua::kernels {
namespace {

struct Codec {
  int64_t bits, block;
};

Kernel minMax(std::string_view name, Codec codec, bool reference = false) {
  const Attribute attributes[] = {{"bits", codec.bits}, {"block", codec.block}};
  return mustFind(std::string("minmax_").append(name), DType::F32, attributes, reference);
}

Bytes encode(Codec codec, const std::vector<float> &x, bool reference = false) {
  return launch(minMax("encode", codec, reference), x.size(), {toBytes(x)});
}

std::vector<float> decode(Codec codec, size_t count, const Bytes &packed, bool reference = false) {
  return valuesOf<float>(launch(minMax("decode", codec, reference), count, {packed}));
}

std::vector<float> roundTrip(Codec codec, const std::vector<float> &x, bool reference = true) {
  return decode(codec, x.size(), encode(codec, x, reference), reference);
}

/// The law of SPEC.md, computed in double: |x - y| <= bound in each block.
double lawBound(double lo, double hi, int64_t bits) {
  const double levels = std::exp2(static_cast<double>(bits)) - 1;
  return (hi - lo) / (2 * levels) * (1 + 0x1p-12) +
         0x1p-23 * std::max(std::fabs(lo), std::fabs(hi)) + 0x1p-149;
}

void expectLaw(Codec codec, const Bucket &bucket, const std::vector<float> &decoded) {
  const std::vector<float> &x = bucket.values;
  const size_t block = static_cast<size_t>(codec.block);
  ASSERT_EQ(decoded.size(), x.size());
  for (size_t first = 0; first < x.size(); first += block) {
    const size_t last = std::min(first + block, x.size());
    const auto [lo, hi] = std::minmax_element(x.begin() + static_cast<ptrdiff_t>(first),
                                              x.begin() + static_cast<ptrdiff_t>(last));
    const double bound = lawBound(*lo, *hi, codec.bits);
    for (size_t i = first; i < last; ++i) {
      ASSERT_TRUE(std::isfinite(decoded[i])) << bucket.name << ", element " << i << ": " << x[i];
      ASSERT_LE(std::fabs(static_cast<double>(x[i]) - decoded[i]), *lo == *hi ? 0.0 : bound)
          << bucket.name << ", " << codec.bits << " bits, block " << codec.block << ", element "
          << i << ": " << x[i] << " became " << decoded[i] << " in [" << *lo << ", " << *hi << "]";
    }
  }
}

const Codec kCodecs[] = {{8, 8},    {8, 64}, {8, 2048}, {8, 1032}, {7, 24},   {6, 512}, {5, 8},
                         {5, 1032}, {4, 64}, {4, 2048}, {3, 40},   {3, 2048}, {2, 8},   {2, 512}};

class MinMaxTargetTest : public TargetTest {};

TEST_P(MinMaxTargetTest, SameBytesAsReferenceOnEveryBucket) {
  for (Codec codec : kCodecs)
    for (const Bucket &bucket : buckets(2100)) {
      Bytes expected = encode(codec, bucket.values, true);
      EXPECT_EQ(difference<uint8_t>(encode(codec, bucket.values), expected), "")
          << bucket.name << ", " << codec.bits << " bits, block " << codec.block;
      EXPECT_EQ(difference<float>(toBytes(decode(codec, 2100, expected)),
                                  toBytes(decode(codec, 2100, expected, true))),
                "")
          << bucket.name << ", " << codec.bits << " bits, block " << codec.block;
    }
}

// B03: odd counts around blocks and vectors; any access outside the buffers ends the test.
TEST_P(MinMaxTargetTest, B03_SameBytesAsReferenceAtEveryTail) {
  for (Codec codec : kCodecs) {
    std::vector<size_t> counts = tailCounts();
    const size_t block = static_cast<size_t>(codec.block);
    counts.insert(counts.end(), {block - 1, block, block + 1, 2 * block + 3});
    for (size_t count : counts) {
      const std::vector<float> x = normal(count);
      Bytes expected = encode(codec, x, true);
      for (auto place : {GuardedBytes::Place::AtEnd, GuardedBytes::Place::AtStart}) {
        Bytes packed = launch(minMax("encode", codec), count, {toBytes(x)}, {}, {}, place);
        EXPECT_EQ(difference<uint8_t>(packed, expected), "")
            << codec.bits << " bits, block " << codec.block << ", count " << count;
        Bytes y = launch(minMax("decode", codec), count, {expected}, {}, {}, place);
        EXPECT_EQ(difference<float>(y, launch(minMax("decode", codec, true), count, {expected})),
                  "")
            << codec.bits << " bits, block " << codec.block << ", count " << count;
      }
    }
  }
}

TEST_P(MinMaxTargetTest, B03_LargePrimeCount) {
  const size_t count = 1000003;
  const std::vector<float> x = normal(count);
  for (Codec codec : {Codec{8, 2048}, Codec{4, 512}, Codec{3, 512}}) {
    Bytes expected = encode(codec, x, true);
    EXPECT_EQ(difference<uint8_t>(encode(codec, x), expected), "") << codec.bits;
    EXPECT_EQ(difference<float>(toBytes(decode(codec, count, expected)),
                                toBytes(decode(codec, count, expected, true))),
              "")
        << codec.bits;
  }
}

TEST_P(MinMaxTargetTest, DecodeReduceSameBitsAsReference) {
  for (Codec codec : kCodecs)
    for (size_t inputs : {1u, 2u, 3u, 4u, 5u, 16u, 17u, 35u})
      for (size_t count : {size_t{1}, size_t{17}, static_cast<size_t>(2 * codec.block + 3)}) {
        std::vector<Bytes> packed;
        for (size_t k = 0; k < inputs; ++k) {
          std::vector<float> x =
              scaled(randomValues<float>(count, static_cast<unsigned>(k), Data::Normal),
                     k == 2 ? 1e38f : 1);
          if (k == 1)
            x[count / 2] = NAN;
          packed.push_back(encode(codec, x, true));
        }
        for (const char *name : {"decode_reduce_sum", "decode_reduce_mean"})
          EXPECT_EQ(difference<float>(launch(minMax(name, codec), count, packed),
                                      launch(minMax(name, codec, true), count, packed)),
                    "")
              << name << ", " << inputs << " inputs, " << codec.bits << " bits, block "
              << codec.block << ", count " << count;
      }
}

// Packed bytes come from other processes: any bytes must decode, and alike on all targets.
TEST_P(MinMaxTargetTest, AnyBytesDecodeAsInTheReference) {
  std::mt19937 random(41);
  const size_t count = 300;
  for (Codec codec : {Codec{8, 8}, Codec{8, 64}, Codec{5, 24}, Codec{2, 64}})
    for (int round = 0; round < 50; ++round) {
      std::vector<Bytes> packed(3, Bytes(minmaxPackedBytes(count, codec.bits, codec.block)));
      for (Bytes &bytes : packed)
        for (std::byte &byte : bytes)
          byte = static_cast<std::byte>(random());
      for (const char *name : {"decode_reduce_sum", "decode_reduce_mean"})
        EXPECT_EQ(difference<float>(launch(minMax(name, codec), count, packed),
                                    launch(minMax(name, codec, true), count, packed)),
                  "")
            << name << " " << round;
    }
}

TEST_P(MinMaxTargetTest, PiecesGiveTheSameBytesAndWriteNothingElse) {
  for (Codec codec : kCodecs) {
    const size_t block = static_cast<size_t>(codec.block), count = 4 * block + 3;
    const std::vector<float> x = normal(count);
    Bytes packed = encode(codec, x);
    EXPECT_EQ(launch(minMax("encode", codec), count, {toBytes(x)}, {}, {block, 3 * block}), packed);
    Bytes y = launch(minMax("decode", codec), count, {packed});
    EXPECT_EQ(launch(minMax("decode", codec), count, {packed}, {}, {block, 3 * block, 4 * block}),
              y);
    // The piece of blocks 1 and 2 alone.
    for (const char *name : {"encode", "decode"}) {
      Kernel kernel = minMax(name, codec);
      const Bytes &input = kernel.packedInput ? packed : toBytes(x);
      const Bytes &whole = kernel.packedInput ? y : packed;
      Bytes output(whole.size(), kPoison);
      std::span<const std::byte> inputs[] = {input};
      std::span<std::byte> outputs[] = {output};
      kernel.run(kernel, Args{inputs, outputs, {}, count}, block, 3 * block);
      for (size_t i = 0; i < output.size(); ++i) {
        const bool inside = i >= kernel.outputBytes(block) && i < kernel.outputBytes(3 * block);
        ASSERT_EQ(output[i], inside ? whole[i] : kPoison) << name << ", byte " << i;
      }
    }
  }
}

TEST_P(MinMaxTargetTest, LargeLaunchesGiveTheSameBytes) {
  for (Codec codec : kCodecs) {
    const size_t block = static_cast<size_t>(codec.block);
    const size_t head = (10000 / block + 2) * block, tailBegin = (kLargeCount / block - 2) * block;
    const size_t tail = kLargeCount - tailBegin;
    for (size_t shift : {0u, 1u, 4u, 13u, 32u}) {
      std::vector<Bytes> heads, tails;
      for (unsigned k = 0; k < 3; ++k) {
        std::vector<float> x = randomValues<float>(head, k, Data::Normal);
        if (k == 1) {
          x[head / 2] = NAN;
          x[head / 3] = 3e38f;
          x[head / 3 + 1] = -3e38f;
        }
        heads.push_back(toBytes(x));
        tails.push_back(toBytes(randomValues<float>(tail, k + 7, Data::Normal)));
      }
      std::vector<Bytes> packedHeads, packedTails;
      for (size_t k = 0; k < heads.size(); ++k) {
        packedHeads.push_back(launch(minMax("encode", codec, true), head, {heads[k]}));
        packedTails.push_back(launch(minMax("encode", codec, true), tail, {tails[k]}));
        Bytes expected = packedHeads[k];
        expected.insert(expected.end(), packedTails[k].begin(), packedTails[k].end());
        EXPECT_EQ(difference<uint8_t>(launchEnds(minMax("encode", codec), {heads[k]}, {tails[k]},
                                                 head, tailBegin, {}, shift),
                                      expected),
                  "")
            << codec.bits << " bits, block " << block << ", shift " << shift << ", input " << k;
      }
      for (const char *name : {"decode_reduce_sum", "decode_reduce_mean"}) {
        Bytes expected = launch(minMax(name, codec, true), head, packedHeads);
        Bytes last = launch(minMax(name, codec, true), tail, packedTails);
        expected.insert(expected.end(), last.begin(), last.end());
        EXPECT_EQ(difference<float>(launchEnds(minMax(name, codec), packedHeads, packedTails, head,
                                               tailBegin, {}, shift),
                                    expected),
                  "")
            << name << ", " << codec.bits << " bits, block " << block << ", shift " << shift;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, MinMaxTargetTest,
                         testing::ValuesIn(supportedTargets().begin(), supportedTargets().end()),
                         targetTestName);

// ---- The reference: the targets equal it, so its laws are theirs ----

TEST(MinMaxReferenceTest, B16_LawHoldsOnEveryFiniteBucket) {
  for (int64_t bits = 2; bits <= 8; ++bits)
    for (int64_t block : {8, 512, 2048})
      for (const Bucket &bucket : finiteBuckets(4096 + 5))
        expectLaw({bits, block}, bucket, roundTrip({bits, block}, bucket.values));
}

TEST(MinMaxReferenceTest, B16_SmallGradientsKeepTheirRelativeAccuracy) {
  for (float factor : {1.0f, 1e-6f, 1e-9f, 1e-10f, 1e-20f, 1e-30f, 1e-35f}) {
    const std::vector<float> x = scaled(normal(4096), factor), y = roundTrip({8, 4096}, x);
    double error = 0, size = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      error += std::pow((static_cast<double>(x[i]) - y[i]) / factor, 2);
      size += std::pow(static_cast<double>(x[i]) / factor, 2);
    }
    EXPECT_LT(std::sqrt(error / size), 0.01) << factor; // 0.8 % at every scale.
  }
}

TEST(MinMaxReferenceTest, B15_ZeroBlockDecodesToPositiveZeros) {
  for (float zero : {0.0f, -0.0f}) {
    const std::vector<float> x(100, zero);
    EXPECT_EQ(toBytes(roundTrip({8, 64}, x)), toBytes(std::vector<float>(100, 0.0f)));
  }
  std::vector<float> x = normal(192); // A zero block between others.
  std::fill(x.begin() + 64, x.begin() + 128, 0.0f);
  const std::vector<float> y = roundTrip({8, 64}, x);
  EXPECT_EQ(std::vector<float>(y.begin() + 64, y.begin() + 128), std::vector<float>(64, 0.0f));
}

TEST(MinMaxReferenceTest, B16_ConstantBlockIsExact) {
  std::mt19937 random(43);
  for (int round = 0; round < 2000; ++round) {
    float constant = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (!std::isfinite(constant) || constant == 0)
      continue;
    const std::vector<float> x(20, constant);
    EXPECT_EQ(toBytes(roundTrip({2 + round % 7, 8}, x)), toBytes(x)) << constant;
  }
}

TEST(MinMaxReferenceTest, B16_NonFiniteFillsItsBlockAndTouchesNoOther) {
  for (int64_t bits : {2, 5, 8})
    for (float value : {INFINITY, -INFINITY, NAN, -NAN})
      for (size_t index : {0u, 63u, 64u, 100u, 127u, 191u, 192u, 199u}) {
        std::vector<float> x = normal(200);
        const std::vector<float> before = roundTrip({bits, 64}, x);
        x[index] = value;
        const std::vector<float> after = roundTrip({bits, 64}, x);
        for (size_t i = 0; i < x.size(); ++i)
          EXPECT_EQ(std::bit_cast<uint32_t>(after[i]),
                    i / 64 == index / 64 ? 0x7fc00000u : std::bit_cast<uint32_t>(before[i]))
              << value << " at " << index << ", element " << i;
      }
}

TEST(MinMaxReferenceTest, WireFormatIsTheDocumentedOne) {
  // lo = 1, step = 0.5: code i for element i.
  auto golden = [](Codec codec, size_t count, std::vector<uint8_t> codes) {
    std::vector<float> x;
    for (size_t i = 0; i < count; ++i)
      x.push_back(1 + 0.5f * static_cast<float>(i % (size_t{1} << codec.bits)));
    Bytes expected = toBytes<float>({1.0f, 0.5f});
    for (uint8_t code : codes)
      expected.push_back(static_cast<std::byte>(code));
    EXPECT_EQ(difference<uint8_t>(encode(codec, x, true), expected), "") << codec.bits << " bits";
    EXPECT_EQ(decode(codec, count, expected, true), x) << codec.bits << " bits";
  };
  golden({2, 8}, 8, {0b11100100, 0b11100100});
  golden({2, 8}, 5, {0b11100100, 0b00000000});
  golden({3, 8}, 8, {0b10001000, 0b11000110, 0b11111010});
  golden({4, 16}, 16, {0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe});
  std::vector<uint8_t> all(256);
  for (size_t i = 0; i < all.size(); ++i)
    all[i] = static_cast<uint8_t>(i);
  golden({8, 256}, 256, all);
}

TEST(MinMaxReferenceTest, BlocksLieBackToBack) {
  const Bytes whole = encode({5, 16}, normal(40), true);
  Bytes joined;
  const std::vector<float> x = normal(40);
  for (size_t first = 0; first < 40; first += 16) {
    const size_t last = std::min<size_t>(first + 16, 40);
    Bytes part = encode({5, 16},
                        std::vector<float>(x.begin() + static_cast<ptrdiff_t>(first),
                                           x.begin() + static_cast<ptrdiff_t>(last)),
                        true);
    joined.insert(joined.end(), part.begin(), part.end());
  }
  EXPECT_EQ(whole, joined);
}

TEST(MinMaxReferenceTest, DecodeReduceIsTheFoldOfDecodes) {
  const Codec codec{6, 24};
  const size_t count = 100;
  std::vector<Bytes> packed, decoded;
  for (unsigned k = 0; k < 5; ++k) {
    packed.push_back(encode(codec, randomValues<float>(count, k, Data::Normal), true));
    decoded.push_back(toBytes(decode(codec, count, packed.back(), true)));
  }
  EXPECT_EQ(launch(minMax("decode_reduce_sum", codec, true), count, packed),
            launch(mustFind("reduce_sum", DType::F32, {}, true), count, decoded));
  EXPECT_EQ(launch(minMax("decode_reduce_mean", codec, true), count, packed),
            launch(mustFind("reduce_mean", DType::F32, {}, true), count, decoded));
}

} // namespace
} // namespace bagua::kernels
