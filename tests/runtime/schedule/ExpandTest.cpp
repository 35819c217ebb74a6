// expand() and the expressions: values, what is left out, every refusal.
#include "SampleSchedules.h"
#include "ScheduleBuilder.h"

#include "bagua/Expand.h"

#include <gmock/gmock.h>
#include <limits>

namespace bagua::rt::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using S = ScheduleBuilder;

BindValues bindValues(int64_t world, int64_t rank, int64_t length,
                      fb::DType dtype = fb::DType::F32) {
  BindValues values;
  values.world = world;
  values.rank = rank;
  values.length = length;
  values.dtype = dtype;
  return values;
}

StatusOr<FlatProgram> expandFirst(const std::shared_ptr<const Schedule> &schedule,
                                  const BindValues &values) {
  return expand(*schedule, *schedule->ir().programs.front(), values);
}

TEST(ExpandTest, SamplesExpandAndSendTheBytesTheyPromise) {
  for (const SampleSchedule &sample : sampleSchedules()) {
    auto schedule = loadOrDie(sample.build());
    for (int64_t world : {1, 2, 3, 4, 5, 8, 16})
      for (int64_t length : {0, 1, 31, 2047, 2048, 2049, 999983})
        for (int64_t rank = 0; rank < world; ++rank)
          for (fb::DType dtype : schedule->ir().dtypes) {
            SCOPED_TRACE(::testing::Message() << sample.name << " world " << world << " rank "
                                              << rank << " length " << length);
            auto flat = expandFirst(schedule, bindValues(world, rank, length, dtype));
            ASSERT_TRUE(flat.ok()) << flat.status();
            uint64_t sent = 0;
            for (const FlatStep &step : flat->steps)
              if (step.kind == FlatStep::Kind::Send)
                sent += step.range.bytes;
            EXPECT_EQ(sent, flat->wireBytes);
            EXPECT_EQ(flat->rounds, world == 1 ? 0u : sample.name[0] == 'd' ? 1u : 2u);
          }
  }
}

} // namespace
} // namespace bagua::rt::testing
