// The group's key-value store: control plane only.
#pragma once

#include "bagua/Status.h"

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace bagua::rt {

/// Thread-safe. Keys are set once or counted; values are bytes (at most 16 MiB).
class Store {
public:
  virtual ~Store() = default;
  virtual Status set(std::string_view key, std::string_view value) = 0;
  /// Blocks until `key` is set. kDeadlineExceeded after `timeout`; the verdict once there is one.
  virtual StatusOr<std::string> get(std::string_view key, std::chrono::milliseconds timeout) = 0;
  /// Adds to a counter (0 at first), returns the new value.
  virtual StatusOr<int64_t> add(std::string_view key, int64_t delta) = 0;
  virtual Status erase(std::string_view prefix) = 0;
};

/// For ranks that are threads of one process.
std::shared_ptr<Store> makeLocalStore();

} // namespace bagua::rt
