// The meaning of one instruction of map bytecode (SPEC.md, "Map bytecode"): shared by the reference
// and by whatever the tile interpreter evaluates once per launch.
#pragma once

#include "bagua/kernels/Map.h"
#include "common/Elementwise.h"

#include <cmath>
#include <span>

namespace bagua::kernels {

/// Operands of `op` that are values.
constexpr int mapArity(MapOp op) {
  switch (op) {
  case MapOp::Input:
  case MapOp::Scalar:
  case MapOp::Constant:
    return 0;
  case MapOp::Sqrt:
  case MapOp::Neg:
  case MapOp::Abs:
  case MapOp::Sign:
  case MapOp::Rint:
  case MapOp::Floor:
  case MapOp::Not:
    return 1;
  case MapOp::Fma:
  case MapOp::Select:
    return 3;
  default:
    return 2;
  }
}

/// A number or a boolean, as the program's types say. Not initialized: launches have arrays of
/// them.
template <typename T> struct MapValue {
  T number;
  bool flag;
};

template <typename T> inline T mapMin(T a, T b) {
  if (a != a || b != b)
    return kNan<T>;
  return a < b || (a == b && std::signbit(a)) ? a : b;
}
template <typename T> inline T mapMax(T a, T b) {
  if (a != a || b != b)
    return kNan<T>;
  return a > b || (a == b && !std::signbit(a)) ? a : b;
}
template <typename T> inline T mapSign(T a) { return a > 0 ? T{1} : a < 0 ? T{-1} : a; }

/// Of an operation with operands; not of Input, Scalar, Constant.
template <typename T>
inline MapValue<T> mapOne(MapOp op, const MapValue<T> &a, const MapValue<T> &b,
                          const MapValue<T> &c) {
  const T &x = a.number, &y = b.number; // Read only by operations that have them.
  switch (op) {
  case MapOp::Add:
    return {x + y, false};
  case MapOp::Sub:
    return {x - y, false};
  case MapOp::Mul:
    return {x * y, false};
  case MapOp::Div:
    return {x / y, false};
  case MapOp::Fma:
    return {std::fma(x, y, c.number), false};
  case MapOp::Sqrt:
    return {std::sqrt(x), false};
  case MapOp::Neg:
    return {-x, false};
  case MapOp::Abs:
    return {std::fabs(x), false};
  case MapOp::Sign:
    return {mapSign(x), false};
  case MapOp::Min:
    return {mapMin(x, y), false};
  case MapOp::Max:
    return {mapMax(x, y), false};
  case MapOp::Rint:
    return {std::rint(x), false};
  case MapOp::Floor:
    return {std::floor(x), false};
  case MapOp::Lt:
    return {T{}, x < y};
  case MapOp::Le:
    return {T{}, x <= y};
  case MapOp::Eq:
    return {T{}, x == y};
  case MapOp::Ne:
    return {T{}, x != y};
  case MapOp::And:
    return {T{}, a.flag && b.flag};
  case MapOp::Or:
    return {T{}, a.flag || b.flag};
  case MapOp::Not:
    return {T{}, !a.flag};
  case MapOp::Select:
    return a.flag ? b : c;
  case MapOp::Input:
  case MapOp::Scalar:
  case MapOp::Constant:
    break;
  }
  return {};
}

/// Evaluates all of a valid program for one element: `input(k)` is its element of input k. `values`
/// has room for every instruction; those for which `skip(i)` holds stay as they are.
template <typename T, class Input, class Skip>
inline void mapElement(const MapProgram &program, std::span<const double> scalars,
                       const Input &input, const Skip &skip, MapValue<T> *values) {
  for (size_t i = 0; i < program.code.size(); ++i) {
    if (skip(i))
      continue;
    const MapInstruction &step = program.code[i];
    if (step.op == MapOp::Input)
      values[i] = {input(step.a), false};
    else if (step.op == MapOp::Scalar)
      values[i] = {static_cast<T>(scalars[step.a]), false};
    else if (step.op == MapOp::Constant)
      values[i] = {static_cast<T>(program.constants[step.a]), false};
    else
      values[i] = mapOne(step.op, values[step.a], values[step.b], values[step.c]);
  }
}

} // namespace bagua::kernels
