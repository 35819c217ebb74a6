// What a forked child must not inherit: a data-loader worker would keep a dead rank's sockets
// alive.
#include "Fork.h"

#include <pthread.h>
#include <unistd.h>

namespace bagua::rt {
namespace {

/// Fixed and lock-free, because the child of a fork may find any lock held. Descriptors are small
/// numbers; one beyond the table only loses the early close in children, pidfds still tell of
/// deaths.
constexpr int kDescriptorsMax = 65536;
std::atomic<uint64_t> registered[kDescriptorsMax / 64];

void afterForkInChild() {
  forkCount.fetch_add(1, std::memory_order_relaxed);
  for (int word = 0; word < kDescriptorsMax / 64; ++word) {
    uint64_t bits = registered[word].exchange(0, std::memory_order_relaxed);
    for (int bit = 0; bits != 0; ++bit, bits >>= 1)
      if (bits & 1)
        ::close(word * 64 + bit);
  }
}

/// Before main() or when the library is loaded: later would miss forks in between.
[[maybe_unused]] const int installed = ::pthread_atfork(nullptr, nullptr, afterForkInChild);

} // namespace

std::atomic<uint64_t> forkCount{0};

void closeInChildren(int descriptor) {
  if (descriptor >= 0 && descriptor < kDescriptorsMax)
    registered[descriptor / 64].fetch_or(uint64_t{1} << (descriptor % 64),
                                         std::memory_order_relaxed);
}

void forgetInChildren(int descriptor) {
  if (descriptor >= 0 && descriptor < kDescriptorsMax)
    registered[descriptor / 64].fetch_and(~(uint64_t{1} << (descriptor % 64)),
                                          std::memory_order_relaxed);
}

} // namespace bagua::rt
