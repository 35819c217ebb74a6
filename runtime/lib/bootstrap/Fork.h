// What a forked child must not inherit.
#pragma once

#include <atomic>
#include <cstdint>

namespace bagua::rt {

/// The child of a fork closes `descriptor`. From any thread.
void closeInChildren(int descriptor);
void forgetInChildren(int descriptor);

/// Grows in the child of each fork: an object made before it belongs to the parent.
extern std::atomic<uint64_t> forkCount;

/// Remembers which side of a fork it was made on.
class ForkGuard {
public:
  ForkGuard() : count_(forkCount.load(std::memory_order_relaxed)) {}
  /// True in a forked child of the process that made the guard. Costs one load.
  bool inChild() const { return forkCount.load(std::memory_order_relaxed) != count_; }

private:
  uint64_t count_;
};

} // namespace bagua::rt
