// What the local and the networked group share: the verdict cell and agreement.
#pragma once

#include "bagua/Group.h"

#include <atomic>
#include <mutex>

namespace bagua::rt {

/// A copy that shares no reference count with `status`, for another thread: thread sanitizers
/// cannot see into the system's libabsl and take the shared count for a race.
inline Status unshared(const Status &status) {
  return status.ok() ? absl::OkStatus() : Status(status.code(), status.message());
}

/// Written once, read by everyone without a lock.
class VerdictCell {
public:
  VerdictCell() = default;
  VerdictCell(const VerdictCell &) = delete;
  VerdictCell &operator=(const VerdictCell &) = delete;
  ~VerdictCell() { delete verdict_.load(); }

  bool set() const { return verdict_.load(std::memory_order_acquire) != nullptr; }
  Status get() const {
    const Status *verdict = verdict_.load(std::memory_order_acquire);
    return verdict ? unshared(*verdict) : absl::OkStatus();
  }
  /// True if this call was the first. `verdict` is an error.
  bool put(const Status &verdict) {
    const Status *expected = nullptr;
    const Status *mine = new Status(unshared(verdict));
    if (verdict_.compare_exchange_strong(expected, mine, std::memory_order_acq_rel))
      return true;
    delete mine;
    return false;
  }

private:
  std::atomic<const Status *> verdict_{nullptr};
};

class GroupBase : public Group {
public:
  Status verdict() const override { return cell_.get(); }
  bool hasVerdict() const override { return cell_.set(); }
  void onVerdict(std::function<void(const Status &)> callback) override;
  Status agree(std::string_view what, std::string_view json) override;

protected:
  /// Records the verdict and calls back, the first time.
  void deliver(const Status &verdict);

private:
  VerdictCell cell_;
  std::mutex mutex_;
  std::function<void(const Status &)> callback_; // guarded by mutex_
};

/// The group of Options::localStore.
StatusOr<std::unique_ptr<Group>> createLocalGroup(const Group::Options &options,
                                                  const std::string &source);
/// The group of processes that the environment describes.
StatusOr<std::unique_ptr<Group>> createRemoteGroup(const Group::Options &options);

/// `chosen`, else the variable in milliseconds, else the default.
StatusOr<std::chrono::milliseconds> timeoutOr(std::chrono::milliseconds chosen,
                                              const char *variable,
                                              std::chrono::milliseconds otherwise);

} // namespace bagua::rt
