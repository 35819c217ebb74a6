// The chunk dialect in C++: dialect, types, enums, ops.
#pragma once

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "bagua/dialect/Chunk/ChunkDialect.h.inc"
#include "bagua/dialect/Chunk/ChunkEnums.h.inc"

namespace bagua::ir::chunk {

/// The group within which `map` rotates; none if it is no rotation.
std::optional<Group> rotatedBy(PeerMap map);
PeerMap rotationOf(Group group);

} // namespace bagua::ir::chunk

#define GET_ATTRDEF_CLASSES
#include "bagua/dialect/Chunk/ChunkAttrs.h.inc"

#define GET_TYPEDEF_CLASSES
#include "bagua/dialect/Chunk/ChunkTypes.h.inc"

#define GET_OP_CLASSES
#include "bagua/dialect/Chunk/ChunkOps.h.inc"
