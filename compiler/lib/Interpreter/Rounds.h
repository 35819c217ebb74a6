// When rounds of an async handler begin, and when what they bring is added to the weights: for the
// interpreters of all levels. SPEC.md, "Async handlers".
#pragma once

#include "bagua/compiler/Interpreter.h"

#include <optional>

namespace bagua::compiler {

/// Of one async handler or program, on all ranks, whose boundaries are the ends of the same steps.
/// Rounds that begin by the clock are due at every boundary.
class Rounds {
public:
  /// `run(round)` finds the snapshots in the weights of the last step, and leaves there what the
  /// round brings.
  using Run = llvm::function_ref<mlir::LogicalResult(int64_t round)>;

  /// Emits an error at `op` unless the interval is at least 1 and `after` at least 0.
  static mlir::FailureOr<Rounds> create(mlir::Operation *op, int64_t every, int64_t after,
                                        int64_t staleness, bool timed);

  /// The last step of `outputs` has ended: adds what has been under way for long enough, then
  /// begins a round if one is due.
  mlir::LogicalResult atBoundary(const Inputs &inputs, Outputs &outputs, Run run);
  /// After the last step: adds what is still under way.
  void finish(const Inputs &inputs, Outputs &outputs);

private:
  Rounds(int64_t every, int64_t after, int64_t staleness)
      : every_(every), after_(after), staleness_(staleness) {}

  struct UnderWay {
    int64_t addedAt; ///< A boundary.
    std::vector<Bytes> deltas;
  };

  int64_t every_, after_, staleness_;
  int64_t next_ = 0; ///< Number of the next round.
  bool isDue_ = false;
  std::optional<UnderWay> underWay_;
};

} // namespace bagua::compiler
