// From an algorithm to a schedule, level by level.
#pragma once

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/MemoryBuffer.h"

#include <cstdint>
#include <memory>
#include <string>

namespace mlir {
class DialectRegistry;
}

namespace bagua::compiler {

enum class Level : uint8_t { Bagua, Chunk, Sched, Schedule };

/// Every dialect that a module may hold between parsing and emission.
void registerDialects(mlir::DialectRegistry &registry);

/// Every pass, for the command line. Once per process.
void registerPasses();

/// Takes a module of any level to `level` (Schedule: what emission wants, which is Sched); levels
/// already passed are left alone.
void buildPipeline(mlir::OpPassManager &manager, Level level);

/// The same without the checks that a shipped algorithm must pass: the lowering itself asks less.
void buildLowering(mlir::OpPassManager &manager, Level level);

/// Holds a file to one algorithm, or what it was lowered to; says which one is too many.
llvm::LogicalResult verifyOneProgram(mlir::ModuleOp module);

/// From now on `context` shows what concerns a file as a whole as "file: error: …" on stderr.
/// Other diagnostics go to the handlers registered before.
void showFileDiagnostics(mlir::MLIRContext &context);

/// MLIR's parser recurses without a limit: what is nested deeper than this would overflow its
/// stack.
inline constexpr unsigned kNestingMax = 256;

/// No algorithm is longer; what never ends, as /dev/zero, would fill the memory.
inline constexpr size_t kSourceBytesMax = size_t{64} << 20;

/// The file, or standard input for "-". Null, with a message, if it cannot be read or is longer.
std::unique_ptr<llvm::MemoryBuffer> readSource(llvm::StringRef path, std::string &error);

/// "line:column: error: …" if the parser must not see `source`: a schedule file, or MLIR text whose
/// brackets nest too deeply. Else empty. Bytecode passes.
std::string sourceError(llvm::StringRef source);

} // namespace bagua::compiler
