// A schedule as text.
#pragma once

#include "bagua/Expand.h"

#include <string>

namespace bagua::tools {

/// The whole schedule: declarations, expressions, steps with their source lines.
std::string dump(const rt::Schedule &schedule);

/// The steps of one rank, loops unrolled and numbers filled in, for every program.
rt::StatusOr<std::string> dumpExpanded(const rt::Schedule &schedule, const rt::BindValues &values);

} // namespace bagua::tools
