// Time for the runtime, so that tests and the simulator can bring their own.
#pragma once

#include <chrono>
#include <cstdint>

namespace bagua::rt {

/// Thread-safe.
class Clock {
public:
  virtual ~Clock() = default;
  /// Nanoseconds on a clock that never goes back.
  virtual int64_t nowNs() const = 0;
};

class SteadyClock final : public Clock {
public:
  int64_t nowNs() const override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

} // namespace bagua::rt
