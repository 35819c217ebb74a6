// The expressions of bagua.map: bytecode, as kernels run it (SPEC.md, "Map bytecode"), and infix
// text.
#pragma once

#include "mlir/IR/OpImplementation.h"

#include <cstdint>
#include <string>

namespace bagua::ir {

/// What an instruction computes; the numbers are those of kernels::MapOp.
enum class MapCode : uint8_t {
  Input,
  Scalar,
  Constant,
  Add,
  Sub,
  Mul,
  Div,
  Fma,
  Sqrt,
  Neg,
  Abs,
  Sign,
  Min,
  Max,
  Rint,
  Floor,
  Lt,
  Le,
  Eq,
  Ne,
  And,
  Or,
  Not,
  Select,
};
inline constexpr int64_t kMapCodeCount = static_cast<int64_t>(MapCode::Select) + 1;

/// Instructions are `kMapStride` numbers: what, and its operands a, b, c; 0 where it has none.
inline constexpr size_t kMapStride = 4;

/// How many earlier values an instruction uses; 0 for those that load.
unsigned mapArity(MapCode code);

/// Shortest text that parses as exactly `value`, with a point.
std::string mapNumberText(double value);

/// A number with or without a point or a sign.
mlir::ParseResult parseMapNumber(mlir::OpAsmParser &parser, double &value);

} // namespace bagua::ir
