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
#include <string>
#include <vector>

namespace bagua::compiler {

using Bytes = std::vector<std::byte>;

/// One step of one bucket on every rank.
struct Inputs {
  int64_t world = 1;
  int64_t localSize = 0; ///< Ranks per node; 0: all on one. Must divide `world`.
  int64_t length = 0;    ///< Elements in the bucket.
  kernels::DType dtype = kernels::DType::F32;
  int64_t step = 0;
  std::vector<Bytes> gradients;             ///< By rank, length * element bytes each.
  std::vector<Bytes> weights;               ///< By rank, likewise.
  std::map<std::string, double> parameters; ///< Those not named keep their default.

  int64_t elementBytes() const { return static_cast<int64_t>(kernels::elementBytes(dtype)); }
  int64_t ranksPerNode() const { return localSize > 0 ? localSize : world; }
};

/// The bucket after the step, and what it cost.
struct Outputs {
  std::vector<Bytes> gradients, weights; ///< By rank.
  std::vector<int64_t> wireBytes; ///< By rank: payload bytes given to transfers between ranks.
  std::vector<int64_t>
      formulaWireBytes;         ///< By rank: what the program's cost says; empty at bagua level.
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

// Each runs the handlers of every algorithm or program of `module` in the order of the step:
// before_forward, gradient, after_update; gates are open when reached. Module verified. On failure
// a diagnostic has been emitted at the op at fault, and the outputs mean nothing.
mlir::FailureOr<Outputs> interpretBagua(mlir::ModuleOp module, const Inputs &inputs,
                                        const InterpreterOptions &options = {});
mlir::FailureOr<Outputs> interpretChunk(mlir::ModuleOp module, const Inputs &inputs,
                                        const InterpreterOptions &options = {});
mlir::FailureOr<Outputs> interpretSched(mlir::ModuleOp module, const Inputs &inputs,
                                        const InterpreterOptions &options = {});

/// Emits an error at the module unless sizes and counts of `inputs` fit together.
mlir::LogicalResult checkInputs(mlir::ModuleOp module, const Inputs &inputs);

/// Outputs before anything ran: the inputs' data, no bytes on the wire.
Outputs initialOutputs(const Inputs &inputs);

/// Deterministic gradients and weights by (seed, rank, element), the same on every machine.
void fillInputs(Inputs &inputs, uint64_t seed, Fill fill = Fill::Normal);

/// 64-bit FNV-1a of the bytes, as 16 hex digits: for printing and comparing.
std::string hashHex(const Bytes &bytes);

/// Reads or writes raw little-endian elements: gradients of rank 0, 1, …, then weights of rank 0,
/// 1, ….
mlir::LogicalResult readInputs(const std::string &path, Inputs &inputs, std::string &error);
mlir::LogicalResult writeOutputs(const std::string &path, const Outputs &outputs,
                                 std::string &error);

} // namespace bagua::compiler
