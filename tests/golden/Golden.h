// What the golden files' texts show.
#pragma once

#include "Dump.h"

namespace bagua::rt::testing {

inline StatusOr<std::string> goldenText(const Schedule &schedule) {
  BindValues values;
  values.world = values.localSize = 4;
  values.rank = values.localRank = 1;
  values.length = 5000;
  return tools::dumpExpanded(schedule, values);
}

} // namespace bagua::rt::testing
