// The constants of a launch, of the chunk or the sched level: numbers, or the bytecode of a map or
// codec.
#pragma once

#include "bagua/kernels/CodecProgram.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Operation.h"

namespace bagua::compiler {

/// True if launches of the kernel carry a map's code: "map".
bool isMapKernel(llvm::StringRef kernel);
/// True if they carry a codec's: "codec_encode" and the decoders.
bool isCodecKernel(llvm::StringRef kernel);

/// {code = array<i64: op, a, b, c, …>, constants = array<f64: …>, outputs = array<i64: …>,
/// inputs = n, scalars = k, broadcast = array<i64: …>}; lists that are left out are empty, but for
/// `broadcast`, which then is all 0. Whether the program keeps the kernel's rules is not looked at.
/// On failure an error at `op` was emitted.
mlir::FailureOr<kernels::MapProgram> mapProgram(mlir::DictionaryAttr constants,
                                                mlir::Operation *op);
/// {block, header_count, code_bits, signed_codes = 0 or 1, stats = {…}, reductions = array<i64: …>,
/// headers = {…}, encode = {…}, decode = {…}}, the dictionaries as those of maps.
mlir::FailureOr<kernels::CodecProgram> codecProgram(mlir::DictionaryAttr constants,
                                                    mlir::Operation *op);

/// The reference implementation of the kernel of `op`. On failure an error at `op` was emitted.
mlir::FailureOr<kernels::Kernel> findKernel(mlir::Operation *op, llvm::StringRef name,
                                            mlir::DictionaryAttr constants, kernels::DType dtype);

/// "" if `kernel`, of this name, takes so many operands, else what it expects.
std::string checkOperands(llvm::StringRef name, const kernels::Kernel &kernel, size_t inputs,
                          size_t outputs, size_t scalars);

} // namespace bagua::compiler
