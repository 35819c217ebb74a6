// What the tests of bytecode share: programs written down, and random ones.
#pragma once

#include "KernelTestSupport.h"
#include "bagua/kernels/Map.h"

namespace bagua::kernels {

/// A program in the order of its text: `in`, `scalar`, `constant` and the operations return values.
struct Builder {
  MapProgram program;

  uint16_t add(MapOp op, size_t a = 0, size_t b = 0, size_t c = 0) {
    program.code.push_back(
        {op, static_cast<uint16_t>(a), static_cast<uint16_t>(b), static_cast<uint16_t>(c)});
    return static_cast<uint16_t>(program.code.size() - 1);
  }
  uint16_t input(bool broadcast = false) {
    program.broadcast.push_back(broadcast);
    return add(MapOp::Input, program.inputs++);
  }
  uint16_t scalar() { return add(MapOp::Scalar, program.scalars++); }
  uint16_t constant(double value) {
    program.constants.push_back(value);
    return add(MapOp::Constant, program.constants.size() - 1);
  }
  Builder &output(uint16_t value) {
    program.outputs.push_back(value);
    return *this;
  }
};

inline std::shared_ptr<const MapProgram> share(const MapProgram &program) {
  return std::make_shared<const MapProgram>(program);
}

/// Often a recent value: chains, that is, rather than bushes of inputs.
inline uint16_t pickRandomly(std::mt19937_64 &random, const std::vector<uint16_t> &from) {
  const size_t recent = std::min<size_t>(from.size(), 1 + random() % 8);
  return random() % 3 == 0 ? from[random() % from.size()]
                           : from[from.size() - 1 - random() % recent];
}

/// Adds operations until the program has so many instructions; those that are numbers are added to
/// `numbers`, which is not empty.
inline void growRandomly(Builder &builder, std::mt19937_64 &random, size_t instructions,
                         std::vector<uint16_t> &numbers) {
  std::vector<uint16_t> booleans;
  auto pick = [&](const std::vector<uint16_t> &from) { return pickRandomly(random, from); };
  while (builder.program.code.size() < instructions) {
    const MapOp op = static_cast<MapOp>(3 + random() % (kMapOpCount - 3));
    const bool logic = op == MapOp::And || op == MapOp::Or || op == MapOp::Not;
    if ((logic || op == MapOp::Select) && booleans.empty())
      continue;
    if (op == MapOp::Select) {
      auto &from = random() % 4 == 0 ? booleans : numbers;
      from.push_back(builder.add(op, pick(booleans), pick(from), pick(from)));
      continue;
    }
    auto &from = logic ? booleans : numbers;
    const bool unary = op == MapOp::Sqrt || op == MapOp::Neg || op == MapOp::Abs ||
                       op == MapOp::Sign || op == MapOp::Rint || op == MapOp::Floor ||
                       op == MapOp::Not;
    const uint16_t value =
        builder.add(op, pick(from), unary ? 0 : pick(from), op == MapOp::Fma ? pick(from) : 0);
    (op >= MapOp::Lt && op <= MapOp::Not ? booleans : numbers).push_back(value);
  }
}

} // namespace bagua::kernels
