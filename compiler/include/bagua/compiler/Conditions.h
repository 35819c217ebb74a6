// What conditions of the `bagua` dialect imply.
#pragma once

#include "bagua/dialect/Bagua/BaguaAttrs.h"

#include "mlir/IR/Operation.h"

namespace bagua::compiler {

/// True if `condition` being `holds` implies that the group has at least two ranks: comparisons of
/// its size (bagua.world, local_size, nodes) with a constant, and their conjunctions. False if that
/// cannot be seen.
bool impliesMany(mlir::Value condition, bool holds, ir::Group group);

/// True if a branch around `op` implies that the group has at least two ranks: of the world, also
/// because another group has.
bool hasPeers(mlir::Operation *op, ir::Group group = ir::Group::World);

} // namespace bagua::compiler
