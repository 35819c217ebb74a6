// One rank of a schedule run on real processes, with the interpreters' inputs.
#pragma once

#include <string>
#include <vector>

namespace bagua::run {

/// What bagua-run puts before a rank's arguments when it launches itself.
inline constexpr const char *kScheduleRankFlag = "--schedule-rank";

/// Parses the arguments of a schedule run ("FILE.bsched --length 1000"). True if `code` is the
/// answer: bad arguments or --help. Called by the launcher, so that a mistake is told once.
bool checkScheduleArguments(const std::vector<std::string> &arguments, int &code);

/// Joins the group of the environment, runs steps of every program, and prints, on rank 0, the
/// tables that bagua-interpret prints. Returns the exit code.
int runScheduleRank(const std::vector<std::string> &arguments);

} // namespace bagua::run
