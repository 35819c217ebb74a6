// Runs a group of real processes: the test binary executes itself once per rank.
#pragma once

#include "absl/status/status.h"

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace bagua::test {

/// What a rank program sees. Its output goes to the rank's log.
class RankContext {
public:
  int rank() const { return rank_; }
  int world() const { return world_; }
  const std::string &store() const {
    return store_;
  } ///< "127.0.0.1:port"; nobody listens there yet.
  /// An argument of SpawnOptions::arguments, or `otherwise`.
  std::string argument(const std::string &name, const std::string &otherwise = "") const;

  /// Tells the test that this rank has come to `mark`.
  void ready(const std::string &mark = "ready") const;
  /// Blocks until the test tells this rank something; empty if the test is gone.
  std::string hear() const;

private:
  friend int runRankProgram();
  int rank_ = 0, world_ = 1;
  std::string store_;
  std::map<std::string, std::string> arguments_;
};

struct SpawnOptions {
  int worldSize = 2;
  std::chrono::milliseconds deadline{
      20'000}; ///< Of the whole group; then all are killed and the test fails.
  std::map<std::string, std::string> arguments = {};
  std::map<std::string, std::string> environment = {};
  std::vector<int> absent = {}; ///< Ranks that are not started.
  std::string store = {};       ///< Instead of a free port on 127.0.0.1.
};

/// The processes. Kills what still runs, with its descendants in the same process groups, when
/// destroyed.
class RankGroup {
public:
  ~RankGroup();
  RankGroup(RankGroup &&) noexcept;
  RankGroup &operator=(RankGroup &&) = delete;

  /// Until every running rank (or one) has come to `mark`. A rank that ends before fails the test.
  void waitReady(const std::string &mark = "ready");
  void waitReady(int rank, const std::string &mark);
  void tell(int rank, const std::string &line);
  void tellAll(const std::string &line);
  void kill(int rank, int signal);

  /// Waits for the end: the exit code, or 128 + signal. -1 if the deadline passed.
  int exitCode(int rank);
  bool running(int rank);
  pid_t pid(int rank) const;
  /// Standard output and error so far.
  std::string log(int rank) const;
  const std::string &store() const;

private:
  friend RankGroup spawn(const std::string &program, const SpawnOptions &options);
  struct Impl;
  explicit RankGroup(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Starts `program` (see BAGUA_RANK_PROGRAM) once per rank.
RankGroup spawn(const std::string &program, const SpawnOptions &options = {});

/// What a rank program returns for an error: 10 and the code; 0 for OK.
int exitCodeFor(absl::StatusCode code);
/// Prints the status to the log, then the above.
int exitCodeFor(const absl::Status &status);

/// A TCP port on 127.0.0.1 that was free a moment ago.
int freePort();

using RankProgram = int (*)(RankContext &context);
struct RankProgramRegistration {
  RankProgramRegistration(const char *name, RankProgram program);
};
/// The rank program this process was started for; -1 if it is the test itself. Called by main().
int runRankProgram();

} // namespace bagua::test

/// Defines a rank program: BAGUA_RANK_PROGRAM(ring_forever) { context.ready(); … return 0; }
#define BAGUA_RANK_PROGRAM(name)                                                                   \
  static int baguaRankProgram_##name(::bagua::test::RankContext &context);                         \
  static const ::bagua::test::RankProgramRegistration baguaRankRegistration_##name(                \
      #name, baguaRankProgram_##name);                                                             \
  static int baguaRankProgram_##name([[maybe_unused]] ::bagua::test::RankContext &context)
