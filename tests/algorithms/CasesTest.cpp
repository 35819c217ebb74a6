// Cases of the field (by id) that the shipped algorithms must get right, executed by the runtime.
#include "Algorithms.h"

#include "RankThreads.h"
#include "bagua/Expand.h"

#include <gtest/gtest.h>

#include <cstring>

namespace bagua::test {
namespace {

using compiler::Bytes;
using compiler::Fill;
using compiler::Inputs;

/// A bucket between guard bytes, at an odd place.
class Guarded {
public:
  explicit Guarded(const Bytes &values) : size_(values.size()), all_(kGuard * 2 + size_, kFill) {
    if (size_ != 0)
      std::memcpy(data(), values.data(), size_);
  }
  std::byte *data() { return all_.data() + kGuard; }
  Bytes bytes() { return Bytes(data(), data() + size_); }
  bool isIntact() const {
    for (size_t i = 0; i < kGuard; ++i)
      if (all_[i] != kFill || all_[kGuard + size_ + i] != kFill)
        return false;
    return true;
  }

private:
  static constexpr size_t kGuard = 4096 - 8;
  static constexpr std::byte kFill{0xc3};
  size_t size_;
  Bytes all_;
};

struct Result {
  Bytes gradient, weight;
  rt::Binding::Statistics statistics;
};

/// One step of `algorithm` on every rank, and what it left.
std::vector<Result> run(const std::string &connection, const Algorithm &algorithm,
                        const Inputs &inputs) {
  std::shared_ptr<const rt::Schedule> schedule = Compiled(algorithm).schedule();
  std::vector<Result> results(static_cast<size_t>(inputs.world));
  rt::testing::runRanks(
      rt::testing::connection(connection), static_cast<int>(inputs.world), {},
      [&](rt::testing::Rank &self) {
        auto rank = static_cast<size_t>(self.rank);
        Guarded gradient(inputs.gradients[0][rank]), weight(inputs.weights[rank]);
        rt::Bucket bucket;
        bucket.name = "bucket";
        bucket.length = inputs.length;
        bucket.gradient = gradient.data();
        bucket.weight = weight.data();
        auto binding = rt::Binding::create(self.engine, schedule, bucket, {});
        ASSERT_TRUE(binding.ok()) << binding.status();
        fb::Event event = algorithm.changesWeights ? fb::Event::BeforeForward : fb::Event::Gradient;
        ASSERT_EQ((*binding)->start(event, 0), absl::OkStatus());
        ASSERT_EQ((*binding)->openGate(fb::Gate::BeforeUpdate), absl::OkStatus());
        ASSERT_EQ(rt::testing::waitFor(**binding), absl::OkStatus());
        EXPECT_TRUE(gradient.isIntact() && weight.isIntact()) << "wrote beside the bucket";
        results[rank] = {gradient.bytes(), weight.bytes(), (*binding)->statistics()};
      });
  return results;
}

Inputs inputsOf(int64_t world, int64_t length, Fill fill) {
  Inputs inputs;
  inputs.world = world;
  inputs.length = length;
  fillInputs(inputs, 5, fill);
  return inputs;
}

TEST(CasesTest, B02_EmptyBucketSendsNothing) {
  for (const Algorithm &algorithm : algorithms())
    for (const Result &result : run("View", algorithm, inputsOf(3, 0, Fill::Normal))) {
      EXPECT_EQ(result.statistics.bytesWire, 0u) << algorithm.name;
      EXPECT_EQ(result.statistics.runs, 1u);
    }
}

TEST(CasesTest, B03_OddWorldsAndOddSizesAreExactAndStayInTheirBucket) {
  for (const Algorithm &algorithm : algorithms())
    for (int64_t world : {3, 5, 7})
      for (int64_t length : {1, 2, 31, 32, 33, 1'000'003}) {
        SCOPED_TRACE(testing::Message()
                     << algorithm.name << ", world " << world << ", length " << length);
        Inputs inputs = inputsOf(world, length, Fill::Normal);
        Expected expected =
            algorithm.expected(algorithm.changesWeights ? inputs.weights : inputs.gradients.front(),
                               kernels::DType::F32);
        std::vector<Result> results = run("WindowShared", algorithm, inputs);
        for (size_t rank = 0; rank < results.size(); ++rank)
          ASSERT_EQ(differenceOf(
                        {algorithm.changesWeights ? results[rank].weight : results[rank].gradient},
                        {expected.values[rank]}, kernels::DType::F32),
                    "")
              << "rank " << rank;
      }
}

TEST(CasesTest, B13_EightBitsTravelWhereEightBitsAreSaid) {
  // Raw bytes of four ranks' mean: 2 * 3/4 of the bucket each; in 8 bits a quarter, and the
  // headers.
  constexpr int64_t kLength = 1 << 18;
  Inputs inputs = inputsOf(4, kLength, Fill::Normal);
  uint64_t plain = 0, coded = 0;
  for (const Result &result : run("View", algorithms()[0], inputs))
    plain += result.statistics.bytesWire;
  for (const Result &result : run("View", algorithms()[1], inputs)) {
    coded += result.statistics.bytesWire;
    EXPECT_EQ(result.statistics.bytesRaw, static_cast<uint64_t>(kLength) * 4);
  }
  EXPECT_EQ(plain, uint64_t{2} * 3 * kLength * 4);
  EXPECT_EQ(coded, uint64_t{2} * 3 * (kLength + kLength / 2048 * 8));
  EXPECT_LE(static_cast<double>(coded), 0.27 * static_cast<double>(plain));
}

TEST(CasesTest, B51_WorldOfOneChangesNoBit) {
  for (const Algorithm &algorithm : algorithms())
    for (int64_t length : {0, 1, 2049}) {
      Inputs inputs = inputsOf(1, length, Fill::Edge);
      if (length > 0) { // A signalling NaN with a payload: any arithmetic would change it.
        const uint32_t nan = 0x7fa12345;
        std::memcpy(inputs.gradients[0][0].data(), &nan, sizeof(nan));
        std::memcpy(inputs.weights[0].data(), &nan, sizeof(nan));
      }
      std::vector<Result> results = run("View", algorithm, inputs);
      EXPECT_EQ(results[0].gradient, inputs.gradients[0][0]) << algorithm.name;
      EXPECT_EQ(results[0].weight, inputs.weights[0]) << algorithm.name;
      EXPECT_EQ(results[0].statistics.bytesWire, 0u);
    }
}

} // namespace
} // namespace bagua::test
