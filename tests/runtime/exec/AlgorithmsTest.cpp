// The three algorithms, executed over every in-process transport, equal their oracle bit for bit.
#include "Oracle.h"
#include "RankThreads.h"
#include "SampleSchedules.h"
#include "bagua/Expand.h"

#include <gtest/gtest.h>

#include <cstring>

namespace bagua::rt::testing {
namespace {

constexpr int kWorlds[] = {1, 2, 3, 4, 5, 8};
constexpr int64_t kLengths[] = {0, 1, 31, 2047, 2048, 2049, 999'983};

/// Memory of the transport or of the job, to see both.
template <typename T> struct BucketMemory {
  Memory memory;
  std::vector<T> plain;
  T *data = nullptr;
  BucketMemory(Transport &transport, const std::vector<T> &values, bool fromTransport) {
    if (fromTransport && !values.empty()) {
      StatusOr<Memory> allocated = transport.allocate(values.size() * sizeof(T));
      EXPECT_TRUE(allocated.ok()) << allocated.status();
      memory = *allocated;
      data = reinterpret_cast<T *>(memory.bytes.data());
      std::memcpy(data, values.data(), values.size() * sizeof(T));
    } else {
      plain = values;
      data = plain.data();
    }
  }
};

template <typename T> constexpr fb::DType kDType = sizeof(T) == 8 ? fb::DType::F64 : fb::DType::F32;

/// The same result on every rank.
template <typename T> Inputs<T> onAll(const Inputs<T> &inputs, const std::vector<T> &result) {
  return Inputs<T>(inputs.size(), result);
}

class AlgorithmsTest : public ::testing::TestWithParam<Connection> {
protected:
  template <typename T, typename Expected>
  void check(const std::shared_ptr<const Schedule> &schedule, fb::Event event, int world,
             int64_t length, int steps, Expected expected) {
    SCOPED_TRACE(schedule->ir().name + ", world " + std::to_string(world) + ", length " +
                 std::to_string(length));
    Inputs<T> inputs;
    for (int rank = 0; rank < world; ++rank)
      inputs.push_back(numbers<T>(static_cast<uint64_t>(rank + 1), static_cast<size_t>(length)));
    // The result of one step is the input of the next.
    std::vector<Inputs<T>> states = {inputs};
    for (int step = 0; step < steps; ++step) {
      states.push_back(expected(states.back()));
    }
    runRanks(GetParam(), world, {}, [&](Rank &self) {
      bool weight = event == fb::Event::BeforeForward;
      BucketMemory<T> memory(self.transport, inputs[static_cast<size_t>(self.rank)],
                             self.rank % 2 == 0);
      Bucket bucket{"bucket", length, kDType<T>, nullptr, nullptr};
      (weight ? bucket.weight : bucket.gradient) = reinterpret_cast<std::byte *>(memory.data);
      auto binding = Binding::create(self.engine, schedule, bucket, {});
      ASSERT_TRUE(binding.ok()) << binding.status();
      for (int step = 0; step < steps; ++step) {
        ASSERT_EQ((*binding)->start(event, step), absl::OkStatus());
        if (weight)
          ASSERT_EQ((*binding)->openGate(fb::Gate::BeforeUpdate), absl::OkStatus());
        ASSERT_EQ(waitFor(**binding), absl::OkStatus());
        const auto &want = states[static_cast<size_t>(step + 1)][static_cast<size_t>(self.rank)];
        size_t wrong = 0;
        while (wrong < want.size() &&
               std::memcmp(&memory.data[wrong], &want[wrong], sizeof(T)) == 0)
          ++wrong;
        ASSERT_EQ(wrong, want.size()) << "rank " << self.rank << ", step " << step << ": got "
                                      << memory.data[wrong] << ", expected " << want[wrong];
      }
      Binding::Statistics statistics = (*binding)->statistics();
      EXPECT_EQ(statistics.runs, static_cast<uint64_t>(steps));
      EXPECT_EQ(statistics.bytesRaw,
                static_cast<uint64_t>(steps) * static_cast<uint64_t>(length) * sizeof(T));
      BindValues values;
      values.world = world;
      values.rank = self.rank;
      values.length = length;
      values.dtype = kDType<T>;
      StatusOr<FlatProgram> flat = expand(*schedule, *schedule->program(event), values);
      ASSERT_TRUE(flat.ok()) << flat.status();
      EXPECT_EQ(statistics.bytesWire,
                static_cast<uint64_t>(steps) * static_cast<uint64_t>(flat->wireBytes.intValue));
    });
  }
};

TEST_P(AlgorithmsTest, GradientAllReduceIsTheMeanBitForBit) {
  auto schedule = loadOrDie(gradientAllReduceSchedule());
  auto expected = [](const auto &inputs) { return onAll(inputs, meanOf(inputs)); };
  for (int world : kWorlds)
    for (int64_t length : kLengths)
      check<float>(schedule, fb::Event::Gradient, world, length, 2, expected);
  check<double>(schedule, fb::Event::Gradient, 3, 2049, 2, expected);
}

TEST_P(AlgorithmsTest, BytegradIsTheMeanThroughTheCodecBitForBit) {
  auto schedule = loadOrDie(bytegradSchedule());
  auto expected = [](const auto &inputs) { return onAll(inputs, bytegradOf(inputs, 8, 2048)); };
  for (int world : kWorlds)
    for (int64_t length : kLengths)
      check<float>(schedule, fb::Event::Gradient, world, length, 2, expected);
  for (int64_t length : {1, 64, 1000, 10'007})
    check<float>(loadOrDie(bytegradSchedule(3, 8)), fb::Event::Gradient, 4, length, 2,
                 [](const auto &inputs) { return onAll(inputs, bytegradOf(inputs, 3, 8)); });
}

TEST_P(AlgorithmsTest, DecentralizedMixesTheNeighboursBitForBit) {
  auto schedule = loadOrDie(decentralizedSchedule());
  auto expected = [](const auto &inputs) {
    auto mixed = inputs;
    for (size_t rank = 0; rank < inputs.size(); ++rank)
      mixed[rank] = ringMixOf(inputs, rank);
    return mixed;
  };
  for (int world : kWorlds)
    for (int64_t length : kLengths)
      check<float>(schedule, fb::Event::BeforeForward, world, length, 2, expected);
  check<double>(schedule, fb::Event::BeforeForward, 3, 2049, 2, expected);
}

INSTANTIATE_TEST_SUITE_P(Connections, AlgorithmsTest, ::testing::ValuesIn(connections()),
                         [](const auto &info) { return info.param.name; });

} // namespace
} // namespace bagua::rt::testing
