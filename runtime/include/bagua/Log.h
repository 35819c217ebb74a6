// Where the runtime's log lines go: stderr, one spdlog logger per part.
#pragma once

#include <memory>
#include <spdlog/logger.h>
#include <string>
#include <string_view>

namespace bagua::rt {

/// The logger of `part` ("bootstrap", "transport"). Its level comes from BAGUA_LOG: "debug", or
/// parts with levels, "transport:debug,bootstrap:info"; else warnings and errors. Made at first
/// use; thread-safe.
std::shared_ptr<spdlog::logger> logger(std::string_view part);

/// What BAGUA_LOG may be instead of `text`; empty if that is right.
std::string logLevelsExpected(const std::string &text);

/// Put in front of every later line ("rank 2").
void setLogPrefix(std::string_view prefix);

} // namespace bagua::rt
