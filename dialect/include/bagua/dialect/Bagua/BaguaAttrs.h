// Domains, codecs, topologies and the enumerations of the `bagua` dialect.
#pragma once

#include "bagua/dialect/Bagua/BaguaCodecs.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/TensorEncoding.h"

#include <string>

#include "bagua/dialect/Bagua/BaguaEnums.h.inc"

namespace bagua::ir {

/// A weight: exact, the denominator positive.
struct Rational {
  int64_t numerator = 0, denominator = 1;
};

/// To whom a rank sends, with n ranks (SPEC.md, "chunk", move).
enum class PeerMap : uint8_t {
  Rotate,     ///< r to (r + distance) mod n
  RoundRobin, ///< r to (round - r) mod n
  ShiftOne,   ///< Ranks below n / 2 with ranks above, shifted by the round.
  Pairing,    ///< A random matching of (seed, round).
};

} // namespace bagua::ir

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
