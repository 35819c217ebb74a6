// Proves properties of a schedule by expanding it for small worlds and looking at all ranks at
// once. Links no MLIR: it reads the same file as the runtime.
#pragma once

#include "bagua/Expand.h"

#include <string>
#include <vector>

namespace bagua::compiler {

/// Codes:
///   B100  a rank's program does not expand (a range outside its buffer, an overflow, …)
///   B101  every send has its receive and the other way round, per channel, in order
///   B102  both ends of a transfer name the same number of bytes
///   B103  the bytes sent in a step are those that the program's wire_bytes promises for it
///   B110  no rank waits for ever on the weakest transport: a send is done when its receiver has
///         released it, a receive needs its slot free, nothing is buffered
///   B120  no race: every two accesses to the same bytes of which one writes are ordered by queues,
///         events and messages; a message is read between its arrival and its release; weights are
///         written after the job has opened its gate; a state is published once, when all that
///         writes it is done, and written by one program
///   B160  where rounds of an async program begin by the clock, no other program waits for other
///   ranks
///         in steps beside which a round may be under way
struct Finding {
  std::string code;
  std::string message;
  std::string program;
  int64_t world = 0, length = 0, step = 0, rank = 0;
  fb::DType dtype = fb::DType::F32;
  bool hasStep = false; ///< The fields below are meaningful.
  fb::Queue queue = fb::Queue::Cpu;
  size_t index = 0;     ///< Of the step in the rank's expanded program.
  std::string location; ///< "file.mlir:12:5"

  /// One line with everything.
  std::string text() const;
};

struct CheckOptions {
  int64_t worldMax = 8;         ///< Worlds 1 to this, all ranks, all lengths.
  std::vector<int64_t> worlds;  ///< And these, at most kWorldLimit, with a few lengths.
  std::vector<int64_t> lengths; ///< Instead of the ones around the grain and a prime.
  /// Steps at which programs that depend on the step are looked at, besides those below max(16, 2 *
  /// world) and n - 1, n, n + 1 and 2 n for each number n in the file's expressions and defaults of
  /// index parameters. Parameters have their defaults, and the bucket is number 0.
  std::vector<int64_t> steps = {0, 1, 2, 3, 4, 5, 6, 7, 99, 100, 101};
  size_t findingsMax = 20;
  static constexpr int64_t kWorldLimit = 256;
};

struct CheckReport {
  std::vector<Finding> findings; ///< The smallest case of each; empty: all proven.
  size_t cases = 0;              ///< (program, world, length, dtype, step) looked at.
  size_t casesWithoutRaces = 0;  ///< Of these, too large for B120.
};

/// Errors only for bad options; what is wrong with the schedule is in the findings.
rt::StatusOr<CheckReport> check(const rt::Schedule &schedule, const CheckOptions &options = {});

} // namespace bagua::compiler
