// What an algorithm costs, for people: bagua-opt --explain.
#pragma once

#include "bagua/kernels/Kernels.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/raw_ostream.h"

#include <cstdint>

namespace bagua::compiler {

struct ExplainOptions {
  int64_t world = 4;        ///< For the evaluated figures.
  int64_t length = 1000000; ///< Elements in the bucket.
  kernels::DType dtype = kernels::DType::F32;
  int64_t nodes = 1; ///< Divides the world.
};

/// Prints rounds, bytes on the wire as formulas and as numbers, bytes touched per element, and
/// which fusions fired. `module` holds algorithms at the bagua level; verified; it is left alone.
/// Fails, with a diagnostic, if an algorithm has no lowering or `options` make no sense.
mlir::LogicalResult explain(mlir::ModuleOp module, const ExplainOptions &options,
                            llvm::raw_ostream &os);

} // namespace bagua::compiler
