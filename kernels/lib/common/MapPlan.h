// How a map runs on tiles: a list of steps over whole tiles of values, made once by planMap(). Free
// of instruction sets; the steps' functions are in cpu/Map.cpp.
//
// A tile is as many elements as fit the first-level cache for all values that live at one time. A
// step reads operands and writes one: slots hold values of the tile, inputs and outputs are the
// caller's memory, uniforms are one vector that is read again and again (step 0).
#pragma once

#include "bagua/kernels/Map.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace bagua::kernels {

/// Vectors have at most so many bytes; a uniform fills that much.
constexpr size_t kMapVectorBytesMax = 64;

struct MapOperand {
  std::byte *at;
  size_t step; ///< Bytes to the next vector.
  bool stream; ///< An output that is written past the caches; aligned to a cache line.
};

struct MapStep {
  /// `count` is a positive multiple of the lanes of a vector.
  using Run = void (*)(const MapOperand *operands, const MapStep &step, size_t count);
  Run run = nullptr;
  uint16_t a = 0, b = 0, c = 0, d = 0, y = 0; ///< Operands.
};

/// What a step does: an operation of the bytecode, or several of them in one sweep. Each operation
/// inside is rounded as if it stood alone.
enum class MapTileOp : uint8_t {
  Copy, ///< a
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
  MulAdd,     ///< a * b + c
  MulSub,     ///< a * b - c
  SubOfMul,   ///< c - a * b
  MulAddMul,  ///< a * b + c * d
  MulOfSub,   ///< (a - b) * c
  AddMulOfSub ///< (a - b) * c + d
};
constexpr size_t kMapTileOpCount = static_cast<size_t>(MapTileOp::AddMulOfSub) + 1;

/// The step functions of one target and dtype.
struct MapTileRuns {
  size_t lanes = 0;
  MapStep::Run toSlot[kMapTileOpCount] = {};
  MapStep::Run toOutput[kMapTileOpCount] = {}; ///< Every NaN becomes the canonical one.
};

/// Operands are numbered: uniforms, slots, inputs, outputs.
struct MapPlan {
  std::vector<uint16_t> uniforms; ///< The value that each uniform is.
  std::vector<uint8_t> varying;   ///< Per value: differs between elements, or nobody needs it.
  size_t slots = 0;
  std::vector<uint16_t> inputs; ///< The program's input that each input operand is.
  size_t outputs = 0;
  size_t lanes = 0, elementBytes = 0;
  size_t tile = 0; ///< Elements; a multiple of kMapVectorBytesMax bytes.
  std::vector<MapStep> steps;

  size_t firstSlot() const { return uniforms.size(); }
  size_t firstInput() const { return firstSlot() + slots; }
  size_t firstOutput() const { return firstInput() + inputs.size(); }
  size_t operands() const { return firstOutput() + outputs; }
};

/// Memory for slots, on the stack of the launch.
constexpr size_t kMapArenaBytes = size_t{32} << 10;
constexpr size_t kMapTileMax = 1024;
/// A value is uniform, or has a slot, or is an input.
constexpr size_t kMapOperandsMax = kMapInstructionsMax + kMapInputsMax + kMapOutputsMax;

/// What becomes of NaNs in outputs. As they come: for outputs that are aligned like slots, whose
/// readers take one NaN for another.
enum class MapNans : uint8_t { Canonical, AsTheyCome };

/// For a valid program.
MapPlan planMap(const MapProgram &program, const MapTileRuns &runs, size_t elementBytes,
                MapNans nans = MapNans::Canonical);

} // namespace bagua::kernels
