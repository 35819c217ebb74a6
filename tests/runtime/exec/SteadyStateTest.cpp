// After bind, steps allocate nothing. Own binary: it replaces operator new.
#include "Oracle.h"
#include "RankThreads.h"
#include "SampleSchedules.h"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <cstdlib>
#include <new>

namespace {
std::atomic<bool> counting{false};
std::atomic<uint64_t> allocations{0};

void *allocate(size_t bytes, size_t alignment) {
  if (counting.load(std::memory_order_relaxed))
    allocations.fetch_add(1, std::memory_order_relaxed);
  void *memory =
      alignment <= alignof(std::max_align_t)
          ? std::malloc(bytes == 0 ? 1 : bytes)
          : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr)
    throw std::bad_alloc();
  return memory;
}
} // namespace

void *operator new(size_t bytes) { return allocate(bytes, 1); }
void *operator new[](size_t bytes) { return allocate(bytes, 1); }
void *operator new(size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<size_t>(alignment));
}
void *operator new[](size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<size_t>(alignment));
}
void operator delete(void *memory) noexcept { std::free(memory); }
void operator delete[](void *memory) noexcept { std::free(memory); }
void operator delete(void *memory, size_t) noexcept { std::free(memory); }
void operator delete[](void *memory, size_t) noexcept { std::free(memory); }
void operator delete(void *memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void *memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void *memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void *memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace bagua::rt::testing {
namespace {

TEST(SteadyStateTest, StepsAllocateNothing) {
  // The counter works.
  counting = true;
  auto counted = std::make_unique<std::vector<int>>(1000);
  counting = false;
  ASSERT_EQ(allocations.exchange(0), 2u);
  counted.reset();
  constexpr int kWorld = 3, kWarmUp = 3, kSteps = 20;
  for (const Connection &connection : connections()) {
    SCOPED_TRACE(connection.name);
    std::barrier<> together(kWorld);
    runRanks(connection, kWorld, {}, [&](Rank &self) {
      std::vector<float> gradients[2], weights(5000);
      std::vector<std::unique_ptr<Binding>> bindings;
      auto bind = [&](const fb::ScheduleT &schedule, const Bucket &bucket) {
        auto binding = Binding::create(self.engine, loadOrDie(schedule), bucket, {});
        ASSERT_TRUE(binding.ok()) << binding.status();
        bindings.push_back(*std::move(binding));
      };
      for (auto &gradient : gradients)
        gradient.resize(200'000);
      bind(gradientAllReduceSchedule(),
           {"g0", 200'000, fb::DType::F32, reinterpret_cast<std::byte *>(gradients[0].data()),
            nullptr});
      bind(bytegradSchedule(), {"g1", 200'000, fb::DType::F32,
                                reinterpret_cast<std::byte *>(gradients[1].data()), nullptr});
      bind(decentralizedSchedule(),
           {"w", 5000, fb::DType::F32, nullptr, reinterpret_cast<std::byte *>(weights.data())});
      ASSERT_EQ(bindings.size(), 3u);
      for (int step = 0; step < kWarmUp + kSteps; ++step) {
        if (step == kWarmUp) {
          together.arrive_and_wait();
          counting = true;
          together.arrive_and_wait();
        }
        bool ok = bindings[2]->start(fb::Event::BeforeForward, step).ok() &&
                  bindings[0]->start(fb::Event::Gradient, step).ok() &&
                  bindings[1]->start(fb::Event::Gradient, step).ok() &&
                  waitFor(*bindings[1]).ok() && waitFor(*bindings[0]).ok() &&
                  bindings[2]->openGate(fb::Gate::BeforeUpdate).ok() && waitFor(*bindings[2]).ok();
        if (!ok) {
          ADD_FAILURE() << self.engine.status();
          break;
        }
      }
      together.arrive_and_wait();
      counting = false;
      together.arrive_and_wait();
    });
    EXPECT_EQ(allocations.exchange(0), 0u);
  }
}

} // namespace
} // namespace bagua::rt::testing
