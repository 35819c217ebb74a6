// The three algorithms' schedules written by hand, as the compiler should emit them (SPEC.md of the
// dialects has the meaning): for tests of everything that reads schedules.
#pragma once

#include "bagua/Schedule.h"

namespace bagua::rt::testing {

/// Mean of the gradients: direct reduce-scatter, then all-gather. Accepts f32 and f64.
fb::ScheduleT gradientAllReduceSchedule();

/// The same through the min-max codec, twice. f32; grain = block.
fb::ScheduleT bytegradSchedule(int64_t bits = 8, int64_t block = 2048);

/// Weights mixed with the ring's two neighbours, a third each: read before the forward, replaced
/// before the optimizer step. Accepts f32 and f64.
fb::ScheduleT decentralizedSchedule();

/// Owns the update: momentum, averaged with a random partner where there is one, and w -= lr * m if
/// the step is finite. Uses all that is newer than the first readers: a state, kernel bytecode, a
/// per-step parameter, Pairing, costs of step time. Accepts f32 and f64.
fb::ScheduleT gossipMomentumSchedule();

/// Sends nothing and leaves the gradient as it is; keeps, of each domain, what checkpoints are to
/// keep: "total" (the gradients' sum), "part" (the same of this rank's shard), "count" (of finite
/// steps) and "first" (twice the weight at bind). f32; grain 4.
fb::ScheduleT keeperSchedule();

/// An async program: the weights' mean by direct exchange, as the difference from the snapshot.
/// Every `interval` (2) steps or milliseconds, after `warmup` (0) steps; a scalar state counts the
/// rounds. With `warmsUp`, gradients are averaged in the steps before `warmup`. Accepts f32 and
/// f64.
fb::ScheduleT asyncAverageSchedule(fb::IntervalUnit unit = fb::IntervalUnit::Steps,
                                   uint32_t staleness = 2, bool warmsUp = false);

struct SampleSchedule {
  const char *name;
  fb::ScheduleT (*build)();
};
/// The first three above, by name.
const std::vector<SampleSchedule> &sampleSchedules();
/// All of this file.
const std::vector<SampleSchedule> &allSampleSchedules();

/// Serialized and read back. Aborts on failure: for schedules that are meant to be right.
std::shared_ptr<const Schedule> loadOrDie(const fb::ScheduleT &schedule);

} // namespace bagua::rt::testing
