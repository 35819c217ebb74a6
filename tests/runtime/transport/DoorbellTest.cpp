// The doorbell: no ring is lost, no ring is needed twice.
#include "Doorbell.h"

#include "SharedMemory.h"
#include "bagua/Transport.h"

#include "gtest/gtest.h"

#include <thread>
#include <vector>

namespace bagua::rt {
namespace {

using namespace std::chrono_literals;
constexpr auto kLong = 120s; ///< A lost ring turns into a test that does not end.

class DoorbellTest : public ::testing::TestWithParam<bool> {
protected:
  static std::shared_ptr<Doorbell> make() {
    if (!GetParam())
      return makeDoorbell();
    StatusOr<std::shared_ptr<Doorbell>> doorbell = makeSharedDoorbell();
    EXPECT_TRUE(doorbell.ok()) << doorbell.status();
    return *doorbell;
  }
};

TEST_P(DoorbellTest, RingAfterValueEndsTheWait) {
  std::shared_ptr<Doorbell> doorbell = make();
  for (int i = 0; i < 10; ++i) {
    uint32_t seen = doorbell->value();
    doorbell->ring();
    doorbell->wait(seen, kLong);
  }
}

TEST_P(DoorbellTest, RingsBeforeValueDoNotCount) {
  std::shared_ptr<Doorbell> doorbell = make();
  doorbell->ring();
  doorbell->ring();
  uint32_t seen = doorbell->value();
  EXPECT_EQ(doorbell->value(), seen) << "asking twice changes nothing";
  auto start = std::chrono::steady_clock::now();
  doorbell->wait(seen, 20ms);
  EXPECT_GE(std::chrono::steady_clock::now() - start, 20ms);
  EXPECT_EQ(doorbell->value(), seen) << "a timeout leaves no trace";
  doorbell->ring();
  doorbell->wait(seen, kLong);
  EXPECT_NE(doorbell->value(), seen);
}

TEST_P(DoorbellTest, NoRingIsLostBetweenManyRingersAndOneWaiter) {
  std::shared_ptr<Doorbell> doorbell = make();
  constexpr int kRingers = 3, kRings = 4000;
  std::atomic<int> work = 0;
  std::vector<std::thread> ringers;
  for (int r = 0; r < kRingers; ++r)
    ringers.emplace_back([&] {
      for (int i = 0; i < kRings; ++i) {
        work.fetch_add(1, std::memory_order_release);
        doorbell->ring();
        if (i % 16 == 0)
          std::this_thread::yield();
      }
    });
  int done = 0;
  while (done < kRingers * kRings) {
    uint32_t seen = doorbell->value();
    int now = work.load(std::memory_order_acquire);
    if (now == done)
      doorbell->wait(seen, kLong);
    done = now;
  }
  for (std::thread &ringer : ringers)
    ringer.join();
}

TEST_P(DoorbellTest, PingPongWithSleeps) {
  std::shared_ptr<Doorbell> bells[2] = {make(), make()};
  std::atomic<int> turn = 0;
  constexpr int kTurns = 400;
  auto play = [&](int me) {
    for (int t = me; t < kTurns; t += 2) {
      while (true) {
        uint32_t seen = bells[me]->value();
        if (turn.load(std::memory_order_acquire) == t)
          break;
        bells[me]->wait(seen, kLong);
      }
      if (t % 40 < 2) // Long enough that the other one is really asleep.
        std::this_thread::sleep_for(2ms);
      turn.store(t + 1, std::memory_order_release);
      bells[1 - me]->ring();
    }
  };
  std::thread other(play, 1);
  play(0);
  other.join();
  EXPECT_EQ(turn.load(), kTurns);
}

TEST_P(DoorbellTest, SleepHookIsAskedBeforeSleepAndCanRefuse) {
  struct Hook final : Doorbell::SleepHook {
    bool beforeSleep() override {
      ++calls;
      return allow;
    }
    int calls = 0;
    bool allow = false;
  } hook;
  std::shared_ptr<Doorbell> doorbell = make();
  doorbell->setSleepHook(&hook);
  doorbell->wait(doorbell->value(), kLong);
  EXPECT_EQ(hook.calls, 1) << "refused: returns at once";
  uint32_t seen = doorbell->value();
  doorbell->ring();
  doorbell->wait(seen, kLong);
  EXPECT_EQ(hook.calls, 1) << "no sleep, no question";
  hook.allow = true;
  doorbell->wait(doorbell->value(), 1ms);
  EXPECT_EQ(hook.calls, 2);
  doorbell->setSleepHook(nullptr);
  doorbell->wait(doorbell->value(), 1ms);
  EXPECT_EQ(hook.calls, 2);
}

INSTANTIATE_TEST_SUITE_P(Kinds, DoorbellTest, ::testing::Values(false, true),
                         [](const auto &info) { return info.param ? "Shared" : "Private"; });

TEST(SharedDoorbellTest, IsRungThroughAnotherMapping) {
  StatusOr<std::shared_ptr<Doorbell>> doorbell = makeSharedDoorbell();
  ASSERT_TRUE(doorbell.ok()) << doorbell.status();
  auto &futex = dynamic_cast<FutexDoorbell &>(**doorbell);
  StatusOr<std::shared_ptr<Mapping>> mapping = Mapping::map(futex.descriptor(), kPageBytes, true);
  ASSERT_TRUE(mapping.ok()) << mapping.status();
  auto &word = *reinterpret_cast<std::atomic<uint32_t> *>((*mapping)->data());
  ASSERT_NE(&word, &futex.word());
  uint32_t seen = futex.value();
  std::thread peer([&] {
    std::this_thread::sleep_for(5ms); // Let the waiter fall asleep; it also works if it does not.
    DoorbellWord::ring(word, true);
  });
  futex.wait(seen, kLong);
  peer.join();
}

} // namespace
} // namespace bagua::rt
