// Where the runtime's log lines go: stderr, one spdlog logger per part.
#include "bagua/Log.h"
#include "Text.h"

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

spdlog::level::level_enum levelOf(std::string_view part) {
  spdlog::level::level_enum level = spdlog::level::warn;
  const char *text = std::getenv("BAGUA_LOG");
  for (std::string_view item : split(text ? text : "", ',')) {
    size_t colon = item.find(':');
    if (colon == std::string_view::npos)
      level = spdlog::level::from_str(std::string(item));
    else if (item.substr(0, colon) == part)
      return spdlog::level::from_str(std::string(item.substr(colon + 1)));
  }
  return level;
}

} // namespace

std::shared_ptr<spdlog::logger> logger(std::string_view part) {
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

void setLogPrefix(std::string_view prefix) {
  Loggers &all = loggers();
  std::lock_guard lock(all.mutex);
  all.prefix = std::string(prefix);
  applyPattern(all);
}

} // namespace bagua::rt
