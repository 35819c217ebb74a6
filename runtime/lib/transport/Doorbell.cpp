// Eventcount on one futex word: waking costs a system call only if somebody sleeps.
#include "Doorbell.h"

#include "SharedMemory.h"

#include "absl/strings/str_cat.h"

#include <climits>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace bagua::rt {
namespace {

constexpr uint32_t kArmed = 1, kSleeping = 2, kFlags = 3;
constexpr int kYields = 50;
constexpr auto kYieldTime =
    std::chrono::microseconds(100); ///< One yield may last long on a busy machine.

static_assert(std::atomic<uint32_t>::is_always_lock_free, "shared between processes");

long futex(std::atomic<uint32_t> &word, int op, bool shared, uint32_t value,
           const timespec *timeout) {
  return syscall(SYS_futex, reinterpret_cast<uint32_t *>(&word),
                 shared ? op : op | FUTEX_PRIVATE_FLAG, value, timeout, nullptr, 0);
}

} // namespace

void DoorbellWord::ring(std::atomic<uint32_t> &word, bool shared) {
  // Pairs with the fence in value(): either we see the word armed, or the owner's poll after arming
  // sees everything that was written before this call.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  uint32_t seen = word.load(std::memory_order_relaxed);
  while (seen & kArmed) {
    if (!word.compare_exchange_weak(seen, (seen | kFlags) + 1, std::memory_order_acq_rel,
                                    std::memory_order_relaxed))
      continue;
    if (seen & kSleeping)
      futex(word, FUTEX_WAKE, shared, INT_MAX, nullptr);
    return;
  }
}

FutexDoorbell::FutexDoorbell(std::atomic<uint32_t> *word, std::shared_ptr<void> owner,
                             int descriptor)
    : word_(word), owner_(std::move(owner)), descriptor_(descriptor) {}

FutexDoorbell::~FutexDoorbell() {
  if (descriptor_ >= 0)
    close(descriptor_);
}

void FutexDoorbell::ring() { DoorbellWord::ring(*word_, descriptor_ >= 0); }

uint32_t FutexDoorbell::value() const {
  uint32_t seen = word_->load(std::memory_order_acquire);
  if (seen & kArmed)
    return seen; // Armed by an earlier value(), whose fence came before whatever is polled now.
  seen = word_->fetch_or(kArmed, std::memory_order_acq_rel) | kArmed;
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return seen;
}

void FutexDoorbell::wait(uint32_t seen, std::chrono::nanoseconds timeout) {
  auto start = std::chrono::steady_clock::now(), deadline = start + timeout;
  if (word_->load(std::memory_order_acquire) != seen)
    return;
  if (hook_ != nullptr) {
    if (!hook_->beforeSleep())
      return;
  } else {
    for (int i = 0; i < kYields && std::chrono::steady_clock::now() - start < kYieldTime; ++i) {
      sched_yield();
      if (word_->load(std::memory_order_acquire) != seen)
        return;
    }
  }
  uint32_t expected = seen;
  if (!word_->compare_exchange_strong(expected, seen | kSleeping, std::memory_order_acq_rel))
    return;
  while (word_->load(std::memory_order_acquire) == (seen | kSleeping)) {
    auto left = deadline - std::chrono::steady_clock::now();
    if (left <= std::chrono::nanoseconds::zero())
      break;
    auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
    timespec relative{static_cast<time_t>(seconds.count()),
                      static_cast<long>(std::chrono::nanoseconds(left - seconds).count())};
    // EINTR, EAGAIN and ETIMEDOUT are all answered by the loop's two conditions.
    futex(*word_, FUTEX_WAIT, descriptor_ >= 0, seen | kSleeping, &relative);
  }
  expected = seen | kSleeping;
  word_->compare_exchange_strong(expected, seen, std::memory_order_acq_rel);
}

std::shared_ptr<Doorbell> makeDoorbell() {
  struct alignas(64) Line {
    std::atomic<uint32_t> word{0};
  };
  auto line = std::make_shared<Line>();
  return std::make_shared<FutexDoorbell>(&line->word, line, -1);
}

StatusOr<std::shared_ptr<Doorbell>> makeSharedDoorbell() {
  BAGUA_ASSIGN(FileDescriptor file, createSharedFile("bagua-doorbell", kPageBytes));
  BAGUA_TRY(commitSharedFile(file.get(), 0, kPageBytes, "a doorbell"));
  BAGUA_TRY(sealSharedFile(file.get()));
  BAGUA_ASSIGN(std::shared_ptr<Mapping> mapping, Mapping::map(file.get(), kPageBytes, true));
  auto *word = new (mapping->data()) std::atomic<uint32_t>(0);
  return std::make_shared<FutexDoorbell>(word, mapping, file.take());
}

} // namespace bagua::rt
