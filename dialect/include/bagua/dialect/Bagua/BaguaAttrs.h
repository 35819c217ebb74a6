// Domains, codecs, topologies and the enumerations of the `bagua` dialect.
#pragma once

#include "bagua/dialect/Bagua/BaguaCodecs.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/TensorEncoding.h"

#include <string>

#include "bagua/dialect/Bagua/BaguaEnums.h.inc"

#include "bagua/dialect/Bagua/BaguaCodecInterface.h.inc"

#define GET_ATTRDEF_CLASSES
#include "bagua/dialect/Bagua/BaguaAttrs.h.inc"

namespace bagua::ir {

/// The built-in group of all ranks.
inline constexpr llvm::StringLiteral kWorldGroup = "world";

/// Emits an error unless `group` names a group that this version supports.
llvm::LogicalResult verifyGroup(llvm::function_ref<mlir::InFlightDiagnostic()> emitError,
                                mlir::FlatSymbolRefAttr group);

} // namespace bagua::ir
