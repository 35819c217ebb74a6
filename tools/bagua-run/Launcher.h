// Starts a command once per rank on this host, watches the processes, and leaves nothing behind.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace bagua::run {

struct LaunchOptions {
  int ranks = 1;
  bool prefix = false; ///< Each output line begins with its rank.
  /// After the first failure the others have so long to end by themselves, then as long after
  /// SIGTERM.
  std::chrono::milliseconds grace{2'000}, termination{1'000};
  std::vector<std::string> command;
};

/// Returns the exit code for this process: the first failing rank's, 128 + the signal that ended
/// the job, or 0. Must be called before the process has threads.
int launch(const LaunchOptions &options);

} // namespace bagua::run
