// Runs a map's plan over arrays, tile by tile; all memory is inside the object, on the caller's
// stack. One vector at the end, or at the start of an array that is not aligned, goes through
// padded copies: steps handle whole vectors only.
#pragma once

#include "common/Map.h"
#include "common/MapPlan.h"
#include "common/Sweep.h"

#include "hwy/cache_control.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

namespace bagua::kernels {

template <typename T> class MapTiles {
public:
  MapTiles(const MapProgram &program, const MapPlan &plan) : program_(program), plan_(plan) {
    const size_t vector = plan.lanes * sizeof(T);
    for (size_t u = 0; u < plan.uniforms.size(); ++u)
      operands_[u] = {uniforms_ + u * kMapVectorBytesMax, 0, false};
    for (size_t s = 0; s < plan.slots; ++s)
      operands_[plan.firstSlot() + s] = {arena_ + s * (plan.tile * sizeof(T) + kMapVectorBytesMax),
                                         vector, false};
    for (size_t k = plan.firstInput(); k < plan.operands(); ++k)
      operands_[k] = {nullptr, vector, false};
  }
  MapTiles(const MapTiles &) = delete;
  MapTiles &operator=(const MapTiles &) = delete;

  /// Evaluates what is the same for all elements: before the first run(). `broadcast(k)` is the
  /// element of broadcast input k.
  template <class Broadcast>
  void setUniforms(std::span<const double> scalars, const Broadcast &broadcast) {
    if (plan_.uniforms.empty())
      return;
    std::array<MapValue<T>, kMapInstructionsMax> values;
    mapElement<T>(
        program_, scalars, broadcast, [&](size_t i) { return plan_.varying[i] != 0; },
        values.data());
    for (size_t u = 0; u < plan_.uniforms.size(); ++u) {
      const MapValue<T> &value = values[plan_.uniforms[u]];
      std::byte *target = uniforms_ + u * kMapVectorBytesMax;
      if (value.flag) // A boolean is all ones or all zeros.
        std::memset(target, 0xff, kMapVectorBytesMax);
      else
        for (size_t i = 0; i < kMapVectorBytesMax / sizeof(T); ++i)
          storeOne<T>(target, i, value.number);
    }
  }

  /// Input k of the program begins at `at`.
  void setInput(size_t k, const std::byte *at) { inputs_[k] = at; }
  /// With `stream` the output is written past the caches, if `at` is aligned to a cache line.
  void setOutput(size_t k, std::byte *at, bool stream = false) {
    outputs_[k] = at;
    streams_[k] = stream;
  }

  /// Elements [begin, end) of the arrays. `kPrefetch` is for those that fit no cache.
  template <bool kPrefetch = false> void run(size_t begin, size_t end) {
    const size_t lanes = plan_.lanes;
    // Small tiles, so that memory is asked for little by little.
    const size_t tile =
        kPrefetch ? std::min(plan_.tile, kPrefetchTileBytes / sizeof(T)) : plan_.tile;
    size_t i = begin;
    for (; end - i >= lanes;) {
      const size_t count = std::min(tile, (end - i) / lanes * lanes);
      for (size_t k = 0; k < plan_.inputs.size(); ++k) // Read only, in spite of the type.
        operands_[plan_.firstInput() + k].at =
            const_cast<std::byte *>(inputs_[plan_.inputs[k]]) + i * sizeof(T);
      for (size_t k = 0; k < plan_.outputs; ++k) {
        MapOperand &output = operands_[plan_.firstOutput() + k];
        output.at = outputs_[k] + i * sizeof(T);
        output.stream = streams_[k];
      }
      if (kPrefetch)
        stepsWithPrefetch(count);
      else
        steps(count);
      i += count;
    }
    if (i < end)
      runPadded(i, end - i);
  }

  /// Fewer elements than a vector has.
  void runPadded(size_t begin, size_t count) {
    const size_t bytes = count * sizeof(T);
    alignas(kMapVectorBytesMax)
        std::byte padded[kMapInputsMax + kMapOutputsMax][kMapVectorBytesMax];
    for (size_t k = 0; k < plan_.inputs.size(); ++k) {
      std::memset(padded[k], 0, kMapVectorBytesMax);
      std::memcpy(padded[k], inputs_[plan_.inputs[k]] + begin * sizeof(T), bytes);
      operands_[plan_.firstInput() + k].at = padded[k];
    }
    for (size_t k = 0; k < plan_.outputs; ++k) {
      MapOperand &output = operands_[plan_.firstOutput() + k];
      output.at = padded[kMapInputsMax + k];
      output.stream = false;
    }
    steps(plan_.lanes);
    for (size_t k = 0; k < plan_.outputs; ++k)
      std::memcpy(outputs_[k] + begin * sizeof(T), padded[kMapInputsMax + k], bytes);
  }

private:
  void steps(size_t count) {
    for (const MapStep &step : plan_.steps)
      step.run(operands_, step, count);
  }
  /// Asks for the lines that lie kPrefetchBytes ahead of the tile's, a share before each step.
  void stepsWithPrefetch(size_t count) {
    const size_t lines = count * sizeof(T) / kLineBytes, inputs = plan_.inputs.size();
    const size_t share = (lines * inputs + plan_.steps.size() - 1) / plan_.steps.size();
    size_t line = 0, input = 0, due = share;
    for (const MapStep &step : plan_.steps) {
      for (; due > 0 && line < lines; --due) {
        const std::byte *at = operands_[plan_.firstInput() + input].at;
        hwy::Prefetch(reinterpret_cast<const std::byte *>(reinterpret_cast<uintptr_t>(at) +
                                                          kPrefetchBytes + line * kLineBytes));
        if (++input == inputs)
          input = 0, ++line;
      }
      due = share;
      step.run(operands_, step, count);
    }
  }

  static constexpr size_t kPrefetchTileBytes = 1024, kPrefetchBytes = 2048;

  const MapProgram &program_;
  const MapPlan &plan_;
  const std::byte *inputs_[kMapInputsMax];
  std::byte *outputs_[kMapOutputsMax];
  bool streams_[kMapOutputsMax];
  MapOperand operands_[kMapOperandsMax];
  alignas(kMapVectorBytesMax) std::byte uniforms_[kMapInstructionsMax * kMapVectorBytesMax];
  alignas(kMapVectorBytesMax) std::byte arena_[kMapArenaBytes];
};

} // namespace bagua::kernels
