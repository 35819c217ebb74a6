// What conditions of the `bagua` dialect imply.
#pragma once

#include "mlir/IR/Operation.h"

namespace bagua::compiler {

/// True if `condition` being `holds` implies that there are at least two ranks: comparisons of
/// bagua.world with a constant, and their conjunctions. False if that cannot be seen.
bool impliesMany(mlir::Value condition, bool holds);

/// True if a branch around `op` implies that there are at least two ranks.
bool hasPeers(mlir::Operation *op);

} // namespace bagua::compiler
