// What one rank is doing, written on the data path and read by the monitor.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace bagua::rt {

/// A snapshot of a Phase.
struct Activity {
  std::string phase;
  bool waiting = false;
  uint64_t changes = 0; ///< Grows with every change: two equal waits in a row are told apart.
  double seconds = 0.0; ///< Since the last change.
};

/// A text behind a sequence lock. Any thread may write or read; neither ever blocks: of two writers
/// at the same moment one is dropped.
class Phase {
public:
  static constexpr size_t kBytesMax = 240;

  void set(std::string_view text, bool waiting) {
    if (writing_.test_and_set(std::memory_order_acquire))
      return;
    text = text.substr(0, kBytesMax);
    uint64_t words[kWords] = {};
    if (!text.empty())
      std::memcpy(words, text.data(), text.size());
    uint64_t meta = text.size() * 2 + (waiting ? 1 : 0);
    bool same = meta == meta_.load(std::memory_order_relaxed);
    for (size_t i = 0; same && i * 8 < text.size(); ++i)
      same = words[i] == words_[i].load(std::memory_order_relaxed);
    if (!same) {
      uint64_t sequence = sequence_.load(std::memory_order_relaxed);
      sequence_.store(sequence + 1, std::memory_order_relaxed);
      // Release, so that whoever sees a new word also sees the odd sequence before it.
      for (size_t i = 0; i * 8 < text.size(); ++i)
        words_[i].store(words[i], std::memory_order_release);
      meta_.store(meta, std::memory_order_release);
      sinceNs_.store(nowNs(), std::memory_order_release);
      sequence_.store(sequence + 2, std::memory_order_release);
    }
    writing_.clear(std::memory_order_release);
  }

  Activity read() const {
    Activity activity;
    for (;;) {
      uint64_t before = sequence_.load(std::memory_order_acquire);
      uint64_t meta = meta_.load(std::memory_order_acquire);
      int64_t since = sinceNs_.load(std::memory_order_acquire);
      uint64_t words[kWords];
      size_t bytes = std::min<size_t>(meta / 2, kBytesMax);
      for (size_t i = 0; i * 8 < bytes; ++i)
        words[i] = words_[i].load(std::memory_order_acquire);
      if (before % 2 != 0 || before != sequence_.load(std::memory_order_relaxed))
        continue;
      activity.phase.assign(reinterpret_cast<const char *>(words), bytes);
      activity.waiting = meta % 2 != 0;
      activity.changes = before / 2;
      activity.seconds = static_cast<double>(nowNs() - since) * 1e-9;
      return activity;
    }
  }

private:
  static constexpr size_t kWords = kBytesMax / 8;
  static int64_t nowNs() {
    return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
  }

  std::atomic_flag writing_ = ATOMIC_FLAG_INIT;
  std::atomic<uint64_t> sequence_{0}, meta_{0};
  std::atomic<int64_t> sinceNs_{nowNs()};
  std::atomic<uint64_t> words_[kWords] = {};
};

} // namespace bagua::rt
