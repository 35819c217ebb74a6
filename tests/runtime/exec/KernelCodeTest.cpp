// Launches whose kernels come in the schedule file, or keep to rules of their own.
#include "Oracle.h"
#include "RankThreads.h"
#include "SampleSchedules.h"
#include "ScheduleBuilder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace bagua::rt::testing {
namespace {

using S = ScheduleBuilder;
using fb::MapInstruction;
using ::testing::HasSubstr;

std::string message(const Status &status) { return std::string(status.message()); }

std::byte *bytesOf(std::vector<float> &values) {
  return reinterpret_cast<std::byte *>(values.data());
}

class KernelCodeTest : public ::testing::Test {
protected:
  ScheduleBuilder s{"made"};
  E zero = s.constant(0), bytes = s.length() * s.elementBytes();

  /// Binds a program on gradients of `values`' length, and runs it once.
  Status run(std::vector<float> &values, const std::function<void(uint32_t g)> &steps,
             const std::function<void(fb::ScheduleT &)> &change = {}) {
    s.program("gradient", fb::Event::Gradient, 0, zero, zero);
    steps(s.jobBuffer("gradient", fb::Role::Gradient));
    fb::ScheduleT made = s.take();
    if (change)
      change(made);
    auto schedule = loadOrDie(made);
    Status status;
    runRanks(connection("View"), 1, {}, [&](Rank &self) {
      Bucket bucket{"b", static_cast<int64_t>(values.size()), fb::DType::F32, bytesOf(values),
                    nullptr};
      auto binding = Binding::create(self.engine, schedule, bucket, {});
      status = binding.status();
      if (status.ok())
        status = (*binding)->start(fb::Event::Gradient, 0);
      if (status.ok())
        status = waitFor(**binding);
    });
    return status;
  }
  Status refused(const std::function<void(uint32_t g)> &steps,
                 const std::function<void(fb::ScheduleT &)> &change = {}) {
    std::vector<float> values(10);
    Status status = run(values, steps, change);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return status;
  }
  auto whole(uint32_t buffer) { return S::one(S::range(buffer, zero, bytes)); }
};

TEST_F(KernelCodeTest, ACodecOfTheFileEncodesAndDecodes) {
  constexpr uint32_t kBlock = 64;
  uint32_t encode = s.absMaxCodecKernel("codec_encode", kBlock);
  uint32_t decode = s.absMaxCodecKernel("codec_decode_reduce_mean", kBlock);
  std::vector<float> values = numbers<float>(1, 1000), expected = values;
  for (size_t begin = 0; begin < expected.size(); begin += kBlock) {
    size_t end = std::min(begin + kBlock, expected.size());
    float most = 0;
    for (size_t i = begin; i < end; ++i)
      most = std::max(most, std::abs(expected[i]));
    float step = most / 127.0f;
    for (size_t i = begin; i < end; ++i) {
      float code = std::nearbyint(expected[i] / step);
      expected[i] = code * step;
    }
  }
  Status status = run(values, [&](uint32_t g) {
    E packedBytes = ceilDiv(s.length(), s.constant(kBlock)) * 4 + s.length();
    uint32_t packed = s.scratch("packed", packedBytes);
    auto range = [&] { return S::list(S::one(S::range(packed, zero, packedBytes))); };
    s.launch(encode, S::list(whole(g)), range(), s.length());
    s.launch(decode, range(), S::list(whole(g)), s.length());
  });
  ASSERT_EQ(status, absl::OkStatus());
  EXPECT_EQ(values, expected);
}

TEST_F(KernelCodeTest, NegativeACodecOfAnOddBlock) {
  uint32_t encode = s.absMaxCodecKernel("codec_encode", 7);
  Status status = refused(
      [&](uint32_t g) { s.launch(encode, S::list(whole(g)), S::list(whole(g)), s.length()); });
  EXPECT_THAT(message(status), HasSubstr("kernel 'codec_encode' for F32"));
}

TEST_F(KernelCodeTest, NegativeCodeThatMeansNothing) {
  uint32_t kernel = s.mapKernel(1, 0, {}, {MapInstruction(0, 3, 0, 0)});
  Status status = refused(
      [&](uint32_t g) { s.launch(kernel, S::list(whole(g)), S::list(whole(g)), s.length()); });
  EXPECT_THAT(message(status), HasSubstr("kernel 'map' for F32"));
}

TEST_F(KernelCodeTest, NegativeNumberOfScalars) {
  uint32_t kernel = s.mapKernel(1, 1, {}, {MapInstruction(0, 0, 0, 0)});
  Status status = refused(
      [&](uint32_t g) { s.launch(kernel, S::list(whole(g)), S::list(whole(g)), s.length()); });
  EXPECT_THAT(message(status), HasSubstr("kernel 'map' expects 1 scalars, got 0"));
}

TEST_F(KernelCodeTest, NegativeOutputsThatOverlap) {
  uint32_t kernel = s.mapKernel(1, 0, {}, {MapInstruction(0, 0, 0, 0)});
  Status status = refused(
      [&](uint32_t g) {
        s.launch(kernel, S::list(whole(g)), S::list(whole(g), whole(g)), s.length());
      },
      [](fb::ScheduleT &made) { made.kernels[0]->map->outputs.push_back(0); });
  EXPECT_THAT(message(status), HasSubstr("another output at byte 0 overlaps output at byte 0"));
}

TEST_F(KernelCodeTest, NegativeInPlaceOverABroadcastInput) {
  uint32_t kernel = s.mapKernel(1, 0, {}, {MapInstruction(0, 0, 0, 0)}, {1});
  Status status = refused([&](uint32_t g) {
    s.launch(kernel, S::list(S::one(S::range(g, zero, s.elementBytes()))), S::list(whole(g)),
             s.length());
  });
  EXPECT_THAT(message(status), HasSubstr("input at byte 0 overlaps output at byte 0"));
}

// A dot product is one piece, however long, and one element.
TEST_F(KernelCodeTest, ReductionsAreOnePiece) {
  uint32_t dot = s.kernel("dot");
  std::vector<float> values(1'000'003, 1.0f);
  Status status = run(values, [&](uint32_t g) {
    s.launch(dot, S::list(whole(g), whole(g)),
             S::list(S::one(S::range(s.scratch("sum", s.elementBytes()), zero, s.elementBytes()))),
             s.length());
    s.launch(s.mapKernel(1, 0, {}, {MapInstruction(0, 0, 0, 0)}, {1}),
             S::list(S::one(S::range(1, zero, s.elementBytes()))), S::list(whole(g)), s.length());
  });
  ASSERT_EQ(status, absl::OkStatus());
  EXPECT_EQ(values, std::vector<float>(1'000'003, 1'000'003.0f));
}

} // namespace
} // namespace bagua::rt::testing
