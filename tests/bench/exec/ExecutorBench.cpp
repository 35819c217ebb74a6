// What the executor itself costs: per step, per bind, and for the smallest all-reduce.
#include "RankThreads.h"
#include "SampleSchedules.h"
#include "ScheduleBuilder.h"
#include "bagua/Expand.h"
#include "bind/Plan.h"

#include <benchmark/benchmark.h>

namespace bagua::rt::testing {
namespace {

using S = ScheduleBuilder;

/// `steps` copies of one element, each waiting for the one before.
fb::ScheduleT chain(int64_t steps) {
  ScheduleBuilder s("chain");
  E zero = s.constant(0), one = s.constant(1), four = s.constant(4), count = s.constant(steps);
  s.program("gradient", fb::Event::Gradient, 0, zero, zero);
  uint32_t g = s.jobBuffer("gradient", fb::Role::Gradient);
  uint32_t out = s.scratch("out", four);
  uint32_t done = s.events("done", count);
  uint32_t copy = s.kernel("copy");
  E k = s.loop(0);
  s.forLoop(0, zero, count, [&] {
    s.launch(copy, S::list(S::one(S::range(g, zero, four))),
             S::list(S::one(S::range(out, zero, four))), one,
             S::list(S::event(done, k + -1, 0 < k)), S::event(done, k));
  });
  return s.take();
}

void executorStep(benchmark::State &state) {
  constexpr int64_t kSteps = 1000;
  auto schedule = loadOrDie(chain(kSteps));
  RankOptions options;
  options.engine.traceEvents = state.range(0) ? SIZE_MAX : 0;
  runRanks(connection("View"), 1, options, [&](Rank &self) {
    float gradient[4] = {};
    auto binding = Binding::create(
        self.engine, schedule,
        {"b", 4, fb::DType::F32, reinterpret_cast<std::byte *>(gradient), nullptr}, {});
    BAGUA_CHECK(binding.ok());
    int64_t step = 0;
    for (auto _ : state) {
      BAGUA_CHECK((*binding)->start(fb::Event::Gradient, step++).ok());
      BAGUA_CHECK(waitFor(**binding).ok());
    }
  });
  state.counters["ns_per_step"] = benchmark::Counter(
      kSteps * 1e-9, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
BENCHMARK(executorStep)->ArgName("trace")->Arg(0)->Arg(1)->UseRealTime();

void resolve(benchmark::State &state) {
  auto schedule = loadOrDie(bytegradSchedule());
  std::vector<float> gradient(2'621'440); // 10 MiB.
  BindValues values;
  values.world = state.range(0);
  values.length = static_cast<int64_t>(gradient.size());
  Bucket bucket{"b", values.length, fb::DType::F32, reinterpret_cast<std::byte *>(gradient.data()),
                nullptr};
  for (auto _ : state) {
    Trace trace(0);
    auto plan = Plan::resolve(*schedule, *schedule->program(fb::Event::Gradient), values, bucket,
                              trace, {});
    BAGUA_CHECK(plan.ok());
    benchmark::DoNotOptimize(plan);
  }
}
BENCHMARK(resolve)->ArgName("world")->Arg(4)->Arg(32)->Arg(256)->Unit(benchmark::kMicrosecond);

void smallAllReduce(benchmark::State &state) {
  auto schedule = loadOrDie(gradientAllReduceSchedule());
  int world = static_cast<int>(state.range(0));
  runRanks(connection("WindowShared"), world, {}, [&](Rank &self) {
    auto memory = self.transport.allocate(1024);
    BAGUA_CHECK(memory.ok());
    auto binding = Binding::create(self.engine, schedule,
                                   {"b", 256, fb::DType::F32, memory->bytes.data(), nullptr}, {});
    BAGUA_CHECK(binding.ok());
    // Rank 0 measures, and says through the reduced data itself when it is over.
    auto *first = reinterpret_cast<float *>(memory->bytes.data());
    int64_t step = 0;
    auto once = [&](bool last) {
      *first = last ? 1.0f : 0.0f;
      BAGUA_CHECK((*binding)->start(fb::Event::Gradient, step++).ok());
      BAGUA_CHECK(waitFor(**binding).ok());
      return *first > 0;
    };
    if (self.rank == 0) {
      for (auto _ : state)
        once(false);
      once(true);
    } else {
      while (!once(false)) {
      }
    }
  });
}
BENCHMARK(smallAllReduce)
    ->ArgName("ranks")
    ->Arg(2)
    ->Arg(4)
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

} // namespace
} // namespace bagua::rt::testing

BENCHMARK_MAIN();
