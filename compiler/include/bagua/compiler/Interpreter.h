// The oracles: one interpreter per level, all ranks in one process, slow and obvious. They agree
// with each other and with the runtime bit for bit (SPEC.md, "Interpreters").
#pragma once

#include "bagua/compiler/InputGenerator.h"
#include "bagua/kernels/Kernels.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/STLFunctionalExtras.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace bagua::compiler {

using Bytes = std::vector<std::byte>;

/// Some steps of one bucket on every rank.
struct Inputs {
  int64_t world = 1;
  int64_t localSize = 0; ///< Ranks per node; 0: all on one. Must divide `world`.
  int64_t length = 0;    ///< Elements in the bucket.
  kernels::DType dtype = kernels::DType::F32;
  int64_t bucket = 0;    ///< Its number: random numbers differ between buckets.
  int64_t firstStep = 0; ///< Number of the first step.
  int64_t steps = 1;
  std::vector<std::vector<Bytes>> gradients; ///< By step and rank, length * element bytes each.
  std::vector<Bytes> weights;                ///< By rank, likewise, before the first step.
  std::map<std::string, double> parameters;  ///< Those not named keep their default.
  /// By step: `per_step` parameters that have another value there. May be shorter than `steps`.
  std::vector<std::map<std::string, double>> stepParameters;
  /// The job's own optimizer: w -= stepSize * g, a multiplication and a subtraction in `dtype`. 0:
  /// none.
  double stepSize = 0;

  int64_t elementBytes() const { return static_cast<int64_t>(kernels::elementBytes(dtype)); }
  int64_t ranksPerNode() const { return localSize > 0 ? localSize : world; }
};

/// The bucket after each step, and what it cost.
struct Outputs {
  std::vector<std::vector<Bytes>> gradients, weights; ///< By step and rank, at the step's end.
  std::map<std::string, std::vector<Bytes>> states;   ///< By name and rank, after the last step.
  /// By step and rank: payload bytes given to transfers between ranks.
  std::vector<std::vector<int64_t>> wireBytes;
  /// By step and rank: what the programs' costs say; empty at bagua level.
  std::vector<std::vector<int64_t>> formulaWireBytes;
  std::vector<bool> finite;     ///< By step: no rank's gradient holds a non-finite element.
  std::vector<std::string> log; ///< What happened, in order, when asked for.
};

struct InterpreterOptions {
  bool log = false; ///< Fill Outputs::log.
  /// sched only. 0: queues are stepped round robin; else in an order drawn from this seed.
  uint64_t seed = 0;
  /// sched only. A receive copies the message and the sender goes on; else its view is the sender's
  /// memory.
  bool copyMessages = false;
  /// chunk and sched. Scratch memory of all ranks together; beyond, an error.
  size_t scratchBytesMax = size_t{4} << 30;
};

// Each runs the handlers of every algorithm or program of `module` step by step, in the order of
// SPEC.md, "Steps". Module verified. On failure a diagnostic has been emitted at the op at fault,
// and the outputs mean nothing.
mlir::FailureOr<Outputs> interpretBagua(mlir::ModuleOp module, const Inputs &inputs,
                                        const InterpreterOptions &options = {});
mlir::FailureOr<Outputs> interpretChunk(mlir::ModuleOp module, const Inputs &inputs,
                                        const InterpreterOptions &options = {});
mlir::FailureOr<Outputs> interpretSched(mlir::ModuleOp module, const Inputs &inputs,
                                        const InterpreterOptions &options = {});

/// Emits an error at the module unless sizes and counts of `inputs` fit together.
mlir::LogicalResult checkInputs(mlir::ModuleOp module, const Inputs &inputs);

/// Emits an error at `op` unless `value` may be given to parameter `name`: an index that is at
/// least `least`, or any finite number where that is left out.
mlir::LogicalResult checkParameter(mlir::Operation *op, const std::string &name,
                                   std::optional<int64_t> least, double value);

/// Appends the next step to `outputs` as the job finds it: its gradients, the weights of the step
/// before, no bytes on the wire, and whether the step is finite.
void beginStep(const Inputs &inputs, Outputs &outputs);

/// The job's own optimizer in the last step of `outputs`, which is finite.
void jobStep(const Inputs &inputs, Outputs &outputs);

/// Value in step number `step`, counted from 0, of a parameter whose default is `initial`.
double parameterValue(const Inputs &inputs, int64_t step, const std::string &name, double initial);

/// Deterministic gradients and weights by (seed, step, rank, element), the same on every machine.
void fillInputs(Inputs &inputs, uint64_t seed, Fill fill = Fill::Normal);
/// The same with finite gradients, so that weights and states move in every step.
void fillFiniteInputs(Inputs &inputs, uint64_t seed, Fill fill);

/// 64-bit FNV-1a of the bytes, as 16 hex digits: for printing and comparing.
std::string hashHex(const Bytes &bytes);

/// Reads raw little-endian elements: gradients of step 0 and rank 0, 1, …, of step 1, …; then
/// weights of rank 0, 1, ….
mlir::LogicalResult readInputs(const std::string &path, Inputs &inputs, std::string &error);
/// Writes the same way, for each step: gradients of rank 0, 1, …, then weights of rank 0, 1, ….
mlir::LogicalResult writeOutputs(const std::string &path, const Outputs &outputs,
                                 std::string &error);
/// Writes each state by name, of rank 0, 1, ….
mlir::LogicalResult writeStates(const std::string &path, const Outputs &outputs,
                                std::string &error);

} // namespace bagua::compiler
