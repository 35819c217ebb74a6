// Where a rank's place in the group comes from, and a store for launchers that only exchange an
// address.
#pragma once

#include "bagua/Status.h"

#include <map>
#include <span>
#include <string>
#include <vector>

namespace bagua::rt {

/// Starts the group's store in this process, on a free port, and returns its address "host:port". A
/// later Group::create of rank 0 whose `store` equals it adopts the store; others may connect
/// before. `towards`: host or address of a rank on another host (MASTER_ADDR); empty: ranks on this
/// host only.
StatusOr<std::string> listenStore(const std::string &towards);

/// A rank's place, before anyone was asked.
struct Launch {
  int rank = 0, world = 1;
  int localRank = -1, localSize = -1; ///< -1: from the hosts of the ranks.
  std::string store;                  ///< "host:port"; empty only for a world of one.
  bool hostsStore = true;         ///< Rank 0 listens at `store`; false: the launcher already does.
  std::string job;                ///< Tells jobs apart that meet at one address; may be empty.
  std::string source;             ///< "torchrun's environment"
  std::vector<std::string> notes; ///< Worth a line: outer launchers that were ignored.
};

/// What the caller wants regardless of the environment; -1 and "" mean nothing.
struct LaunchRequest {
  int rank = -1, world = -1, localRank = -1, localSize = -1;
  std::string store;
};

using Environment = std::map<std::string, std::string>;

/// This process's environment variables.
Environment processEnvironment();

/// Takes one source whole: the request, BAGUA_* (bagua-run), torchrun, Open MPI, Slurm, else alone.
/// A source that contradicts itself is kInvalidArgument. Pure.
StatusOr<Launch> resolveLaunch(const LaunchRequest &request, const Environment &environment);

/// One row of `bagua-info --env`.
struct EnvironmentVariable {
  const char *name;
  const char *otherwise; ///< Default, as shown.
  const char *meaning;
  /// What is expected instead of `value`; empty if it is right. May look at files and at the CPU.
  std::string (*expected)(const std::string &value);
};
std::span<const EnvironmentVariable> environmentVariables();

/// "NAME expects …, got '…'", kInvalidArgument, if `value` is not right. An empty one is as unset.
Status checkVariable(const EnvironmentVariable &variable, const std::string &value);

/// The same for every variable of the table; the first wrong one is told. Done at Group::create.
Status checkEnvironment(const Environment &environment);

/// The number that a variable of the table has in this process; `otherwise` if it is unset.
StatusOr<int64_t> environmentNumber(const char *name, int64_t otherwise);

} // namespace bagua::rt
