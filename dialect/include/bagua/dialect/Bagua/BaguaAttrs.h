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

/// The built-in groups (SPEC.md, D2): all ranks, those of this rank's node, and those that have its
/// local rank.
enum class Group : uint8_t { World, Node, Cross };

} // namespace bagua::ir

#include "bagua/dialect/Bagua/BaguaCodecInterface.h.inc"

#define GET_ATTRDEF_CLASSES
#include "bagua/dialect/Bagua/BaguaAttrs.h.inc"

namespace bagua::ir {

std::optional<Group> groupNamed(llvm::StringRef name);
/// `group` is verified.
inline Group groupOf(mlir::FlatSymbolRefAttr group) { return *groupNamed(group.getValue()); }
mlir::FlatSymbolRefAttr groupAttr(mlir::MLIRContext *context, Group group);

/// True if ranks of one group `over` have the same place in their groups `of`, and so shards of
/// equal elements: the node and the cross group.
inline bool alignsShards(Group over, Group of) {
  return over != of && over != Group::World && of != Group::World;
}

/// `@group`, `#topology` or `#topology over @group`.
mlir::ParseResult parsePeers(mlir::AsmParser &parser, mlir::Attribute &peers);
void printPeers(mlir::AsmPrinter &printer, mlir::Attribute peers);

/// Emits an error unless `group` names a group.
llvm::LogicalResult verifyGroup(llvm::function_ref<mlir::InFlightDiagnostic()> emitError,
                                mlir::FlatSymbolRefAttr group);

} // namespace bagua::ir
