// Packed values and values per peer, and the tensors they are made of.
#pragma once

#include "bagua/dialect/Bagua/BaguaAttrs.h"

#include "mlir/IR/BuiltinTypes.h"

#define GET_TYPEDEF_CLASSES
#include "bagua/dialect/Bagua/BaguaTypes.h.inc"

namespace bagua::ir {

/// tensor<?xf32, #bagua.bucket>
mlir::RankedTensorType bucketType(mlir::MLIRContext *context);
/// tensor<?xf32, #bagua.shard<group>>
mlir::RankedTensorType shardType(mlir::FlatSymbolRefAttr group);

/// tensor<?xf32, #bagua.scalar>
mlir::RankedTensorType scalarType(mlir::MLIRContext *context);

bool isBucket(mlir::Type type);
bool isScalar(mlir::Type type); ///< A tensor of one element.
/// The group whose shard `type` is over; null if it is no shard.
mlir::FlatSymbolRefAttr shardGroup(mlir::Type type);
bool isPlain(mlir::Type type); ///< A bucket, a shard or a scalar.

/// `type`, or the tensor whose bytes it is.
mlir::Type unpacked(mlir::Type type);
/// `type` with each tensor T replaced by packed<codec, T>.
mlir::Type packedWith(CodecAttrInterface codec, mlir::Type type);

} // namespace bagua::ir
