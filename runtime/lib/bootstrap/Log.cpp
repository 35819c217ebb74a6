// Where the runtime's log lines go: stderr, one spdlog logger per part.
#include "bagua/Log.h"
#include "Text.h"

#include <algorithm>
#include <cassert>
#include <cstdlib>
#include <map>
#include <mutex>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>

namespace bagua::rt {
namespace {

struct Loggers {
  std::mutex mutex;
  std::string prefix;
  std::shared_ptr<spdlog::sinks::stderr_sink_mt> sink =
      std::make_shared<spdlog::sinks::stderr_sink_mt>();
  std::map<std::string, std::shared_ptr<spdlog::logger>, std::less<>> byPart;
};

/// Never destroyed: threads may log while the process exits.
Loggers &loggers() {
  static Loggers *instance = new Loggers;
  return *instance;
}

void applyPattern(Loggers &all) {
  std::string prefix;
  for (char c : all.prefix) {
    prefix += c;
    if (c == '%')
      prefix += c;
  }
  all.sink->set_pattern("%H:%M:%S.%e bagua " + (prefix.empty() ? "" : prefix + " ") +
                        "[%n] %l: %v");
}

constexpr std::string_view kParts[] = {"bootstrap", "engine", "trace", "transport"};
constexpr std::string_view kLevels[] = {"trace", "debug",    "info", "warn",
                                        "error", "critical", "off"};

/// An item of BAGUA_LOG: "debug", or "transport:debug".
struct LogItem {
  std::string_view part, level; ///< No part: the level of all others.
};

LogItem logItem(std::string_view text) {
  size_t colon = text.find(':');
  return colon == std::string_view::npos ? LogItem{{}, text}
                                         : LogItem{text.substr(0, colon), text.substr(colon + 1)};
}

template <size_t count>
bool isOneOf(const std::string_view (&names)[count], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

spdlog::level::level_enum levelOf(std::string_view part) {
  spdlog::level::level_enum level = spdlog::level::warn;
  const char *text = std::getenv("BAGUA_LOG");
  for (std::string_view piece : split(text ? text : "", ',')) {
    LogItem item = logItem(piece);
    if (!isOneOf(kLevels, item.level))
      continue; // Told at init. Until then it must not silence warnings.
    if (item.part == part)
      return spdlog::level::from_str(std::string(item.level));
    if (item.part.empty())
      level = spdlog::level::from_str(std::string(item.level));
  }
  return level;
}

} // namespace

std::shared_ptr<spdlog::logger> logger(std::string_view part) {
  assert(isOneOf(kParts, part) && "BAGUA_LOG must be able to name it");
  Loggers &all = loggers();
  std::lock_guard lock(all.mutex);
  auto found = all.byPart.find(part);
  if (found == all.byPart.end()) {
    if (all.byPart.empty())
      applyPattern(all);
    auto made = std::make_shared<spdlog::logger>(std::string(part), all.sink);
    made->set_level(levelOf(part));
    made->flush_on(spdlog::level::warn);
    found = all.byPart.emplace(std::string(part), std::move(made)).first;
  }
  return found->second;
}

std::string logLevelsExpected(const std::string &text) {
  for (std::string_view piece : split(text, ',')) {
    LogItem item = logItem(piece);
    bool hasPart = item.level.size() < piece.size();
    if (!isOneOf(kLevels, item.level) || (hasPart && !isOneOf(kParts, item.part)))
      return fmt::format("a level ({}), or levels by part ({}) as in transport:debug,engine:info",
                         fmt::join(kLevels, ", "), fmt::join(kParts, ", "));
  }
  return "";
}

void setLogPrefix(std::string_view prefix) {
  Loggers &all = loggers();
  std::lock_guard lock(all.mutex);
  all.prefix = std::string(prefix);
  applyPattern(all);
}

} // namespace bagua::rt
