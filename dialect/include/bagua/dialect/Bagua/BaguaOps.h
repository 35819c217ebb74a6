// The operations of the `bagua` dialect.
#pragma once

#include "bagua/dialect/Bagua/BaguaDialect.h"
#include "bagua/dialect/Bagua/BaguaTypes.h"

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/RegionKindInterface.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace bagua::ir {

/// What communication ops read and write: keeps them in place and in order.
struct CommResource : mlir::SideEffects::Resource::Base<CommResource> {
  mlir::StringRef getName() override { return "bagua.comm"; }
};
struct StateResource : mlir::SideEffects::Resource::Base<StateResource> {
  mlir::StringRef getName() override { return "bagua.state"; }
};
/// The job's gradient and weight.
struct JobResource : mlir::SideEffects::Resource::Base<JobResource> {
  mlir::StringRef getName() override { return "bagua.job"; }
};

llvm::LogicalResult verifyInHandler(mlir::Operation *op);

/// The op stands inside a handler, or in a function that handlers call.
template <typename ConcreteOp> struct InHandler : mlir::OpTrait::TraitBase<ConcreteOp, InHandler> {
  static llvm::LogicalResult verifyTrait(mlir::Operation *op) { return verifyInHandler(op); }
};

} // namespace bagua::ir

#define GET_OP_CLASSES
#include "bagua/dialect/Bagua/BaguaOps.h.inc"

namespace bagua::ir {

/// `codec` with the program that the module around `from` defines for it; null if it defines none.
UserCodecAttr linkedCodec(UserCodecAttr codec, mlir::Operation *from);
/// all_reduce_C3, encode_C2: an error at `op` if `codec`, which may be null, names one that nobody
/// defines.
llvm::LogicalResult verifyCodecExists(mlir::Operation *op, mlir::Attribute codec);

/// Puts the program of each bagua.codec of `module` into the attributes that name it, and erases
/// the definitions: then sizes and kernels of all codecs are known. An error at an op that names a
/// codec which `module` does not define.
llvm::LogicalResult linkCodecs(mlir::ModuleOp module);

/// algorithm_C8: what an index parameter is at least.
int64_t leastOf(const AlgorithmOp::Parameter &parameter);

/// Shards are cut at multiples of this many elements: least common multiple of the blocks of every
/// codec that `algorithm` names, linked or not; 1 if none.
int64_t grain(AlgorithmOp algorithm);

/// Place of `op`, a bagua.random or bagua.encode, among the ops of its algorithm that may draw
/// random numbers, in the order of the text; all_reduce via a codec stands for two encodes.
int64_t drawNumber(mlir::Operation *op);

/// The one op whose bytes `packed` are, through communication: a bagua.encode. Null if they may be
/// of several, or of none that can be seen.
EncodeOp encodeOf(mlir::Value packed);

} // namespace bagua::ir
