// From the sched dialect to the bytes of a schedule file.
#pragma once

#include "bagua/Schedule.h"

#include "mlir/IR/BuiltinOps.h"

#include <cstdint>
#include <string>
#include <vector>

namespace bagua::compiler {

struct EmitOptions {
  std::string producer = "bagua-opt 0.1.0";
  /// Absolute paths under this folder are written relative to it; other absolute paths lose their
  /// folders. A file says nothing of the machine that made it.
  std::string sourceRoot;
};

/// The schedule of the module's one `sched.schedule`. Module verified. Equal modules give equal
/// schedules: the order of everything follows the module's text, never an address. Emits a
/// diagnostic and fails for what the format cannot say.
mlir::FailureOr<fb::ScheduleT> buildSchedule(mlir::ModuleOp module,
                                             const EmitOptions &options = {});

/// buildSchedule(), validated and serialized.
mlir::FailureOr<std::vector<uint8_t>> emitSchedule(mlir::ModuleOp module,
                                                   const EmitOptions &options = {});

} // namespace bagua::compiler
