// A rank's timeline: spans in a ring buffer reserved at start, written out as Chrome trace JSON.
#pragma once

#include "bagua/Status.h"

#include <compare>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace bagua::rt {

/// What a span shows besides its times; said once, at bind.
struct SpanName {
  std::string name;   ///< "send", "minmax_encode", "gradient" (a program), …
  std::string bucket; ///< May be empty, as the next two.
  std::string program;
  std::string location; ///< "bytegrad.mlir:12:5".
  auto operator<=>(const SpanName &) const = default;
};

/// Spans of one rank. record() is for one thread at a time, as is write(); name() is thread-safe.
/// The newest `capacity` spans are kept.
class Trace {
public:
  enum class Track : uint8_t { Program, Cpu, Net, Job };

  struct Span {
    int64_t startNs = 0, endNs = 0; ///< Monotonic clock.
    int64_t step = -1;              ///< -1: none.
    uint64_t bytes = 0;             ///< 0: not shown.
    uint32_t name = 0;              ///< From name().
    int32_t peer = -1;              ///< -1: none.
    Track track = Track::Program;
  };

  /// capacity 0: records nothing.
  explicit Trace(size_t capacity);

  /// Number of `name`, for Span::name; equal names have one. Called at bind: allocates.
  uint32_t name(SpanName name);

  void record(const Span &span) {
    if (spans_.empty())
      return;
    spans_[next_] = span;
    next_ = next_ + 1 == spans_.size() ? 0 : next_ + 1;
    ++recorded_;
  }
  bool enabled() const { return !spans_.empty(); }
  uint64_t recorded() const { return recorded_; }

  /// Chrome trace JSON of the spans kept, oldest first. Spans that overlap on a track are laid out
  /// on lanes below each other.
  std::string json(int rank, std::string_view host) const;
  Status write(const std::string &path, int rank, std::string_view host) const;

private:
  std::vector<Span> spans_;
  size_t next_ = 0;
  uint64_t recorded_ = 0;
  mutable std::mutex mutex_; ///< Guards names_ and numbers_.
  std::vector<SpanName> names_;
  std::map<SpanName, uint32_t> numbers_;
};

/// `pattern` with every "%r" replaced by the rank. Without one, and with other ranks about, the
/// rank goes before the extension, so that none overwrites another's file.
std::string tracePath(std::string_view pattern, int rank, int world);

/// Says now what would keep Trace::write from writing to `path`. Touches nothing.
Status checkTraceFile(const std::string &path);

} // namespace bagua::rt
