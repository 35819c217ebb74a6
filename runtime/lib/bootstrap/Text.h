// Small helpers for messages. Debian's absl::string_view is not std::string_view, hence no
// absl/strings.
#pragma once

#include <charconv>
#include <cstdint>
#include <fmt/format.h>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bagua::rt {

/// Its arguments, one after the other.
template <typename... Args> std::string cat(const Args &...args) {
  fmt::memory_buffer buffer;
  (fmt::format_to(std::back_inserter(buffer), "{}", args), ...);
  return fmt::to_string(buffer);
}

/// The whole of `text` as a decimal number.
inline std::optional<int64_t> parseInteger(std::string_view text) {
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty())
    return std::nullopt;
  return value;
}

/// Pieces between separators; empty pieces are dropped.
inline std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  while (!text.empty()) {
    size_t end = text.find(separator);
    if (end != 0)
      pieces.push_back(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return pieces;
}

inline std::string joinWith(const std::vector<std::string> &pieces, std::string_view separator) {
  return fmt::format("{}", fmt::join(pieces, separator));
}

} // namespace bagua::rt
