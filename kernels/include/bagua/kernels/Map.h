// Kernel bytecode: elementwise programs that arrive in a schedule file (SPEC.md, "Map bytecode").
// Safe by construction: a program that validateMap() accepts reads and writes only its operands.
#pragma once

#include "bagua/kernels/Kernels.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace bagua::kernels {

/// What an instruction computes from its operands a, b, c. Values are numbers of the dtype or
/// booleans; comparisons and logic yield booleans. Enumerators are only appended: files hold them.
enum class MapOp : uint8_t {
  Input,    ///< Element of input number a.
  Scalar,   ///< Scalar number a, rounded to the dtype.
  Constant, ///< Constant number a, rounded to the dtype.
  Add,
  Sub,
  Mul,
  Div,
  Fma, ///< a * b + c with one rounding.
  Sqrt,
  Neg,
  Abs,
  Sign, ///< 1 or -1 with the sign of a; a itself where it is a zero or NaN.
  Min,  ///< IEEE 754-2019 minimum: NaN if one is NaN; -0 is less than +0.
  Max,
  Rint, ///< To an integer, ties to even.
  Floor,
  Lt, ///< Numbers to a boolean; false with a NaN, but for Ne.
  Le,
  Eq,
  Ne,
  And, ///< Of booleans.
  Or,
  Not,
  Select, ///< b where the boolean a is true, else c: both numbers or both booleans.
};
constexpr uint8_t kMapOpCount = static_cast<uint8_t>(MapOp::Select) + 1;

/// Instruction i of a program defines value i; its operands are values of smaller index. Operands
/// that the operation lacks are 0.
struct MapInstruction {
  MapOp op = MapOp::Input;
  uint16_t a = 0, b = 0, c = 0;
  bool operator==(const MapInstruction &) const = default;
};

struct MapProgram {
  std::vector<MapInstruction> code;
  std::vector<double> constants;
  std::vector<uint16_t> outputs; ///< The value that each output gets: a number.
  uint16_t inputs = 0, scalars = 0;
  std::vector<uint8_t> broadcast; ///< Per input: 1 if it has one element, used for all; else 0.
  bool operator==(const MapProgram &) const = default;
};

constexpr size_t kMapInstructionsMax = 256, kMapInputsMax = 32, kMapOutputsMax = 16,
                 kMapScalarsMax = 64, kMapConstantsMax = 256;

/// "" if `program` keeps the rules, else which it breaks and where. For programs of any origin.
std::string validateMap(const MapProgram &program);

/// The kernel of `program`: inputs and outputs in its order, as many scalars as it says; an output
/// may be exactly any input that is not broadcast. Everything that a launch needs is allocated
/// here. BadAttribute if validateMap() refuses. `error`, `reference` as in find().
FindError findMap(std::shared_ptr<const MapProgram> program, DType dtype, Kernel &kernel,
                  std::string &error, bool reference = false);

} // namespace bagua::kernels
