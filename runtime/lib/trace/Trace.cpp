// The timeline's ring buffer and its Chrome trace JSON.
#include "bagua/Trace.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <tuple>
#include <unistd.h>

namespace bagua::rt {
namespace {

constexpr size_t kTracks = 4;
constexpr std::array<const char *, kTracks> kTrackNames = {"programs", "cpu", "net", "job"};
/// Thread ids of a track's lanes start here, times the track's number plus one.
constexpr int kLanesPerTrack = 1000;

std::string jsonString(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// Chrome's unit is the microsecond; three decimals keep the nanosecond.
std::string microseconds(int64_t ns) { return absl::StrFormat("%d.%03d", ns / 1000, ns % 1000); }

} // namespace

Trace::Trace(size_t capacity) : spans_(capacity) {}

uint32_t Trace::name(SpanName name) {
  std::lock_guard lock(mutex_);
  auto [known, isNew] = numbers_.emplace(std::move(name), static_cast<uint32_t>(names_.size()));
  if (isNew)
    names_.push_back(known->first);
  return known->second;
}

std::string Trace::json(int rank, std::string_view host) const {
  std::vector<Span> spans;
  size_t kept = std::min<uint64_t>(recorded_, spans_.size());
  spans.reserve(kept);
  for (size_t i = 0; i < kept; ++i)
    spans.push_back(spans_[(next_ + spans_.size() - kept + i) % spans_.size()]);
  std::sort(spans.begin(), spans.end(), [](const Span &a, const Span &b) {
    return std::tuple(a.startNs, -a.endNs, a.name, a.peer) <
           std::tuple(b.startNs, -b.endNs, b.name, b.peer);
  });

  // The offset lets a merge tool put ranks of several hosts on one axis.
  using std::chrono::duration_cast, std::chrono::nanoseconds;
  int64_t realtimeNs =
      duration_cast<nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  int64_t monotonicNs =
      duration_cast<nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();

  std::string out = absl::StrCat(
      "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"rank\":", rank, ",\"host\":", jsonString(host),
      ",\"spans_recorded\":", recorded_, ",\"spans_kept\":", kept,
      ",\"realtime_minus_monotonic_ns\":", realtimeNs - monotonicNs, "},\n\"traceEvents\":[\n");
  absl::StrAppend(&out, "{\"ph\":\"M\",\"pid\":", rank, ",\"tid\":0,\"name\":\"process_name\",",
                  "\"args\":{\"name\":",
                  jsonString(absl::StrCat("rank ", rank, " (", std::string(host), ")")), "}},\n");
  absl::StrAppend(&out, "{\"ph\":\"M\",\"pid\":", rank,
                  ",\"tid\":0,\"name\":\"process_sort_index\",", "\"args\":{\"sort_index\":", rank,
                  "}}");

  std::lock_guard lock(mutex_);
  std::array<std::vector<int64_t>, kTracks> laneEnds; // End of the last span of each lane.
  for (const Span &span : spans) {
    auto track = static_cast<size_t>(span.track);
    std::vector<int64_t> &ends = laneEnds[track];
    size_t lane = 0;
    while (lane < ends.size() && ends[lane] > span.startNs)
      ++lane;
    if (lane == ends.size())
      ends.push_back(0);
    ends[lane] = span.endNs;
    static const SpanName kUnnamed;
    const SpanName &name = span.name < names_.size() ? names_[span.name] : kUnnamed;
    absl::StrAppend(
        &out, ",\n{\"ph\":\"X\",\"pid\":", rank, ",\"tid\":", (track + 1) * kLanesPerTrack + lane,
        ",\"ts\":", microseconds(span.startNs),
        ",\"dur\":", microseconds(std::max<int64_t>(span.endNs - span.startNs, 0)), ",\"cat\":\"",
        kTrackNames[track], "\",\"name\":", jsonString(name.name), ",\"args\":{");
    const char *comma = "";
    auto argument = [&](const char *key, const std::string &json) {
      absl::StrAppend(&out, comma, "\"", key, "\":", json);
      comma = ",";
    };
    if (!name.bucket.empty())
      argument("bucket", jsonString(name.bucket));
    if (!name.program.empty())
      argument("program", jsonString(name.program));
    if (!name.location.empty())
      argument("source", jsonString(name.location));
    if (span.step >= 0)
      argument("step", absl::StrCat(span.step));
    if (span.peer >= 0)
      argument("peer", absl::StrCat(span.peer));
    if (span.bytes > 0)
      argument("bytes", absl::StrCat(span.bytes));
    absl::StrAppend(&out, "}}");
  }
  for (size_t track = 0; track < kTracks; ++track) {
    for (size_t lane = 0; lane < laneEnds[track].size(); ++lane) {
      size_t tid = (track + 1) * kLanesPerTrack + lane;
      absl::StrAppend(&out, ",\n{\"ph\":\"M\",\"pid\":", rank, ",\"tid\":", tid,
                      ",\"name\":\"thread_name\",\"args\":{\"name\":\"", kTrackNames[track],
                      "\"}}");
      absl::StrAppend(&out, ",\n{\"ph\":\"M\",\"pid\":", rank, ",\"tid\":", tid,
                      ",\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":", tid, "}}");
    }
  }
  absl::StrAppend(&out, "\n]}\n");
  return out;
}

Status Trace::write(const std::string &path, int rank, std::string_view host) const {
  std::string text = json(rank, host);
  std::FILE *file = std::fopen(path.c_str(), "we");
  if (file == nullptr)
    return absl::InvalidArgumentError(
        absl::StrCat("cannot write the trace to ", path, ": ", std::strerror(errno)));
  bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  int error = errno;
  if (std::fclose(file) != 0 && written) {
    written = false;
    error = errno;
  }
  if (!written)
    return absl::InternalError(
        absl::StrCat("writing the trace to ", path, " failed: ", std::strerror(error)));
  return absl::OkStatus();
}

std::string tracePath(std::string_view pattern, int rank, int world) {
  std::string text;
  bool hasRank = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern.substr(i, 2) == "%r") {
      absl::StrAppend(&text, rank);
      hasRank = true;
      ++i;
    } else {
      text.push_back(pattern[i]);
    }
  }
  if (hasRank || world == 1 || text.empty())
    return text;
  std::filesystem::path path(text);
  path.replace_filename(absl::StrCat(path.stem().string(), ".", rank, path.extension().string()));
  return path.string();
}

Status checkTraceFile(const std::string &path) {
  std::error_code ignored;
  std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (folder.empty())
    folder = ".";
  bool exists = std::filesystem::exists(path, ignored);
  int error = 0;
  if (std::filesystem::is_directory(path, ignored))
    error = EISDIR;
  else if (!std::filesystem::is_directory(folder, ignored))
    error = std::filesystem::exists(folder, ignored) ? ENOTDIR : ENOENT;
  else if (::access(exists ? path.c_str() : folder.c_str(), exists ? W_OK : W_OK | X_OK) != 0)
    error = errno;
  if (error == 0)
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("BAGUA_TRACE_FILE expects a file that can be written, got '", path,
                   "': ", std::strerror(error)));
}

} // namespace bagua::rt
