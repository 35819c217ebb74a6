// Facts about a chunk program that lowering and interpreting both rest on: which values differ
// between ranks or steps, and from where to where the messages of a pool live (SPEC.md, "Life of a
// message").
#pragma once

#include "bagua/dialect/Chunk/ChunkOps.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SmallVector.h"

namespace bagua::compiler {

/// One range that a launch uses.
struct ChunkAccess {
  mlir::Value storage;        ///< Of type !chunk.buffer or !chunk.slots.
  mlir::Value key;            ///< Slot index, or part number; null: may touch every byte.
  mlir::Value range;          ///< The chunk.range or chunk.view.
  ir::chunk::GatherOp gather; ///< Null: used once, unconditionally.
  mlir::Value condition;      ///< Of the gather's yield; null: always.
  /// Of a part number: whose shards it counts. Part numbers of different groups say nothing of each
  /// other.
  ir::chunk::Group group = ir::chunk::Group::World;
};

class ChunkMessages {
public:
  struct Pool {
    llvm::SmallVector<ir::chunk::MoveOp> moves;     ///< Program order.
    llvm::SmallVector<ir::chunk::LaunchOp> readers; ///< Program order.
    mlir::Block *scope = nullptr;                   ///< Innermost block that holds all of them.
    mlir::Operation *last = nullptr; ///< The op of `scope` after which all messages are gone.
  };

  /// Checks what verifiers cannot see from one op. On failure a diagnostic has been emitted.
  static mlir::FailureOr<ChunkMessages> analyze(ir::chunk::ProgramOp program);

  /// Pools in program order of their declarations; unused ones are left out.
  const llvm::MapVector<mlir::Value, Pool> &pools() const { return pools_; }

  /// True if `value` may differ between ranks.
  bool dependsOnRank(mlir::Value value) { return facts(value).rank; }
  /// True if `value` is known at each step only: it uses `chunk.step` or a per-step parameter.
  bool dependsOnStep(mlir::Value value) { return facts(value).step; }
  /// True if `value` is computed from the variable of a chunk.for or chunk.gather.
  bool dependsOnVariable(mlir::Value value) { return facts(value).variable; }

  /// Ranges that `operand`, of type !chunk.range or !chunk.ranges, stands for.
  static llvm::SmallVector<ChunkAccess> accesses(mlir::Value operand);

private:
  struct Facts {
    bool rank = false, variable = false, step = false;
  };
  Facts facts(mlir::Value value);
  mlir::LogicalResult checkUniform(ir::chunk::MoveOp move);
  mlir::LogicalResult checkPool(mlir::Value slots, Pool &pool);

  llvm::DenseMap<mlir::Value, Facts> facts_;
  llvm::MapVector<mlir::Value, Pool> pools_;
};

/// The ancestor of `first`, and that of `second`, in the innermost block that holds both. Equal if
/// the two are in different branches of one chunk.if, or one is in the other.
std::pair<mlir::Operation *, mlir::Operation *> ancestorsInCommonBlock(mlir::Operation *first,
                                                                       mlir::Operation *second);

/// The rank to which `map` takes `rank` of `world`, on nodes of `localSize` ranks; itself: no
/// partner.
int64_t peerOf(ir::chunk::PeerMap map, llvm::ArrayRef<int64_t> arguments, int64_t world,
               int64_t localSize, int64_t rank);

} // namespace bagua::compiler
