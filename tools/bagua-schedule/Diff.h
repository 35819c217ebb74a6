// Where two schedules differ, by name.
#pragma once

#include "bagua/Schedule.h"

#include <string>
#include <vector>

namespace bagua::tools {

struct DiffOptions {
  bool ignoreLocations = false; ///< Source lines, and who produced the file.
  size_t differencesMax = 20;
};

/// One line per difference, "where: a -> b"; empty if none. Expressions are compared by what they
/// say, not by their place in the pool. Of two lists of steps only the first difference is told:
/// after it nothing says which belong together.
std::vector<std::string> diff(const fb::ScheduleT &a, const fb::ScheduleT &b,
                              const DiffOptions &options = {});

} // namespace bagua::tools
