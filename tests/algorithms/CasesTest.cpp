// Cases of the field (by id) that the shipped algorithms must get right, executed by the runtime.
#include "Algorithms.h"

#include "RankThreads.h"
#include "bagua/Expand.h"
#include "bagua/compiler/Checker.h"

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

TEST(CasesTest, B38_OnlyTheMeanDividesAndOnce) {
  const std::pair<const char *, const char *> operations[] = {
      {"all_reduce", "%y = bagua.all_reduce KIND %g\n"},
      {"reduce", "%p = bagua.all_gather %g over @world\n"
                 "    %y = bagua.reduce KIND %p : !bagua.per<@world, !bucket>\n"},
      {"reduce_scatter", "%s = bagua.reduce_scatter KIND %g over @world\n"
                         "    %p = bagua.all_gather %s : !shard over @world\n"
                         "    %y = bagua.concat %p : !bagua.per<@world, !shard>\n"},
  };
  constexpr int64_t kLength = 37;
  for (const auto &[name, text] : operations)
    for (const char *kind : {"sum", "mean"}) {
      std::string operation = text;
      operation.replace(operation.find("KIND"), 4, kind);
      Compiled compiled(Compiled::Source{name, "!bucket = tensor<?xf32, #bagua.bucket>\n"
                                               "!shard = tensor<?xf32, #bagua.shard<@world>>\n"
                                               "bagua.algorithm @reduces {\n"
                                               "  bagua.on gradient(%g: !bucket) {\n    " +
                                                   operation +
                                                   "    bagua.update gradient = %y\n  }\n}\n"});
      ASSERT_TRUE(compiled.schedule()) << compiled.diagnostics();
      for (int64_t world : {1, 2, 3, 4, 5}) {
        SCOPED_TRACE(testing::Message() << name << " " << kind << ", world " << world);
        Inputs inputs = inputsOf(world, kLength, Fill::Normal);
        std::vector<float> expected(kLength);
        for (int64_t rank = 0; rank < world; ++rank) {
          std::vector<float> values(kLength);
          for (int64_t i = 0; i < kLength; ++i)
            expected[i] += values[i] = static_cast<float>((rank + 1) * (i + 1));
          std::memcpy(inputs.gradients[0][rank].data(), values.data(), kLength * sizeof(float));
        }
        if (std::string(kind) == "mean")
          for (float &value : expected) // (i + 1) (n + 1) / 2: exact.
            value /= static_cast<float>(world);
        auto outputs = compiler::interpretSched(compiled.at(compiler::Level::Sched), inputs);
        ASSERT_TRUE(succeeded(outputs));
        for (const Bytes &gradient : outputs->gradients[0])
          EXPECT_EQ(std::memcmp(gradient.data(), expected.data(), gradient.size()), 0);
      }
    }
}

struct Topology {
  const char *attribute;
  bool isPairing = false; ///< Ranks exchange in pairs, by rounds.
  bool hasRounds = false;
};

/// Algorithm that mixes with the topology's neighbours before each forward, round t in step t.
Compiled::Source mixingOn(const Topology &topology) {
  const char *round = topology.hasRounds ? " at %t" : "";
  std::string text =
      std::string("bagua.algorithm @mixing {\n"
                  "  bagua.on before_forward(%w: tensor<?xf32, #bagua.bucket>) {\n") +
      (topology.hasRounds ? "    %t = bagua.step\n" : "") +
      "    %n = bagua.neighbor_exchange %w on #t" + round + "\n    %x = bagua.mix %w, %n on #t" +
      round + "\n    bagua.update weight = %x at before_update\n  }\n}\n";
  return {topology.attribute, std::string("#t = #bagua.") + topology.attribute + "\n" + text};
}

/// What each rank's weight becomes in `round`, by the ranks it came from: rank r begins with one in
/// element r and zero elsewhere. Also each rank's bytes on the wire.
std::pair<std::vector<std::vector<double>>, std::vector<int64_t>>
mixingMatrix(mlir::ModuleOp sched, int64_t world, int64_t round) {
  auto count = static_cast<size_t>(world);
  Inputs inputs;
  inputs.world = inputs.length = world;
  inputs.dtype = kernels::DType::F64;
  inputs.firstStep = round;
  const Bytes zeros(count * sizeof(double));
  inputs.gradients = {std::vector<Bytes>(count, zeros)};
  inputs.weights = std::vector<Bytes>(count, zeros);
  for (size_t rank = 0; rank < count; ++rank) {
    const double one = 1;
    std::memcpy(inputs.weights[rank].data() + rank * sizeof(one), &one, sizeof(one));
  }
  auto outputs = compiler::interpretSched(sched, inputs);
  EXPECT_TRUE(succeeded(outputs));
  std::vector<std::vector<double>> matrix(count, std::vector<double>(count));
  if (failed(outputs))
    return {matrix, std::vector<int64_t>(count)};
  for (size_t rank = 0; rank < count; ++rank)
    std::memcpy(matrix[rank].data(), outputs->weights[0][rank].data(), zeros.size());
  return {matrix, outputs->wireBytes[0]};
}

TEST(CasesTest, B66_EverySendHasItsReceiveAndMixingIsDoublyStochastic) {
  const Topology topologies[] = {
      {"topology<offsets = [1], weights = [1/2]>"},
      {"topology<offsets = [-1, 1], weights = [1/3, 1/3]>"},
      {"topology<offsets = [-2, 3, 4], weights = [1/8, 1/2, 1/4]>"},
      {"exponential"},
      {"torus<columns = 2>"},
      {"torus<columns = 3>"},
      {"one_peer_exponential", /*isPairing=*/false, /*hasRounds=*/true},
      {"round_robin", /*isPairing=*/true, /*hasRounds=*/true},
      {"shift_one", /*isPairing=*/true, /*hasRounds=*/true},
      {"pairing<seed = 42>", /*isPairing=*/true, /*hasRounds=*/true},
  };
  for (const Topology &topology : topologies) {
    SCOPED_TRACE(topology.attribute);
    Compiled compiled(mixingOn(topology));
    ASSERT_TRUE(compiled.schedule()) << compiled.diagnostics();
    compiler::CheckOptions options;
    options.worldMax = 5;
    auto report = compiler::check(*compiled.schedule(), options);
    ASSERT_TRUE(report.ok()) << report.status();
    for (const compiler::Finding &finding : report->findings)
      ADD_FAILURE() << finding.text();
    EXPECT_GT(report->cases, 0u);

    for (int64_t world : {1, 2, 3, 5})
      for (int64_t round = 0; round < (topology.hasRounds ? 2 * world + 3 : 1); ++round) {
        SCOPED_TRACE(testing::Message() << "world " << world << ", round " << round);
        auto [matrix, wireBytes] = mixingMatrix(compiled.at(compiler::Level::Sched), world, round);
        int64_t idle = 0;
        for (size_t rank = 0; rank < matrix.size(); ++rank) {
          double taken = 0, given = 0;
          for (size_t other = 0; other < matrix.size(); ++other) {
            EXPECT_GE(matrix[rank][other], -1e-15);
            taken += matrix[rank][other];
            given += matrix[other][rank];
            if (topology.isPairing)
              EXPECT_EQ(matrix[rank][other], matrix[other][rank]) << "pairs are mutual";
          }
          EXPECT_NEAR(taken, 1, 1e-14) << "rank " << rank;
          EXPECT_NEAR(given, 1, 1e-14) << "rank " << rank;
          bool isIdle = matrix[rank][rank] == 1;
          EXPECT_EQ(isIdle, wireBytes[rank] == 0) << "rank " << rank;
          idle += isIdle;
        }
        if (world == 1)
          EXPECT_EQ(idle, 1);
        else if (topology.isPairing && world % 2 == 1)
          EXPECT_EQ(idle, 1) << "an odd world leaves one rank without a partner";
        else if (!topology.isPairing)
          EXPECT_EQ(idle, 0);
      }
  }
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
