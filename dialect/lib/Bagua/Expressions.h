// Infix expressions of bagua.map and bagua.codec: text to bytecode (SPEC.md, "Map bytecode") and
// back, and the rules of well-formed code.
#pragma once

#include "bagua/dialect/Bagua/BaguaMap.h"

#include "mlir/IR/OpImplementation.h"

#include <array>
#include <cstring>

namespace bagua::ir {

inline constexpr size_t kInstructionsMax = 256, kConstantsMax = 256;

/// Reads expressions into one code; equal subexpressions are one instruction. Operands are inputs,
/// numbered as they first stand in the text.
class ExpressionParser {
public:
  explicit ExpressionParser(mlir::OpAsmParser &parser) : parser_(parser) {}

  /// Sets `value` to the instruction that is the expression's value.
  mlir::ParseResult parse(int64_t &value);

  /// Where an expression cannot go on as it does: an error, of what may be there.
  mlir::ParseResult unexpected(llvm::StringRef wanted);

  mlir::MutableArrayRef<std::array<int64_t, kMapStride>> code() { return code_; }
  llvm::SmallVector<int64_t> flatCode() const;
  mlir::ArrayRef<double> constants() const { return constants_; }
  mlir::ArrayRef<mlir::OpAsmParser::UnresolvedOperand> operands() const { return operands_; }

private:
  mlir::OpAsmParser &parser_;
  llvm::SmallVector<std::array<int64_t, kMapStride>> code_;
  llvm::SmallVector<double> constants_;
  llvm::SmallVector<mlir::OpAsmParser::UnresolvedOperand> operands_;
  unsigned depth_ = 0;

  int64_t add(MapCode what, int64_t a, int64_t b = 0, int64_t c = 0);
  int64_t constant(double value);
  mlir::ParseResult parseBinary(unsigned precedence, int64_t &value);
  mlir::ParseResult parseOperator(unsigned precedence, std::optional<MapCode> &code, bool &swapped);
  mlir::ParseResult enter();
  mlir::ParseResult parseUnary(int64_t &value);
  mlir::ParseResult parsePrimary(int64_t &value);
  mlir::ParseResult parseCall(llvm::StringRef name, MapCode code, int64_t &value);
};

/// The source from `loc` on, at most 64 KiB of it: measuring it to its end for each look ahead
/// would take quadratic time.
inline llvm::StringRef textAt(llvm::SMLoc loc) {
  return llvm::StringRef(loc.getPointer(), strnlen(loc.getPointer(), size_t{1} << 16));
}

/// Its name may be meant as an expression: MLIR takes `-` and `.` for characters of names.
bool isOneName(const mlir::OpAsmParser::UnresolvedOperand &operand);
mlir::ParseResult emitOneName(mlir::OpAsmParser &parser,
                              const mlir::OpAsmParser::UnresolvedOperand &operand);

/// Code and what it is made of.
struct Expressions {
  mlir::ArrayRef<int64_t> code; ///< kMapStride numbers for each instruction.
  mlir::ArrayRef<double> constants;
  int64_t inputs = 0, scalars = 0;

  int64_t size() const { return static_cast<int64_t>(code.size() / kMapStride); }
  mlir::ArrayRef<int64_t> at(int64_t index) const {
    return code.slice(static_cast<size_t>(index) * kMapStride, kMapStride);
  }
};

/// Prints value `index`; `load` prints input or scalar number k.
void printExpression(mlir::OpAsmPrinter &printer, const Expressions &expressions, int64_t index,
                     llvm::function_ref<void(MapCode, int64_t)> load);

/// Finite constants, code whose operands exist and are numbers or conditions where such are wanted,
/// and for each of `outputs` a number of not too many terms. `fix` ends messages about sizes.
llvm::LogicalResult verifyExpressions(llvm::function_ref<mlir::InFlightDiagnostic()> emitError,
                                      const Expressions &expressions,
                                      mlir::ArrayRef<int64_t> outputs, llvm::StringRef fix);

} // namespace bagua::ir
