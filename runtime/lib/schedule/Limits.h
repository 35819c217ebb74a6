// Limits of the schedule file, version 1 (kLimits). A file is untrusted: each bounds work or
// memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bagua::rt {

struct Limits {
  size_t fileBytes = size_t{16} << 20;
  uint32_t tables = 1u << 18; ///< FlatBuffers tables, counted at each use.
  uint32_t tableDepth = 64;   ///< FlatBuffers tables inside one another.
  size_t nestingDepth = 16;   ///< For and If inside one another.
  size_t nameBytes = 255;     ///< Every name.
  size_t pathBytes = 4096;    ///< Location.file.
  size_t proofBytes = size_t{1} << 20;
  size_t expressions = 1u << 16;
  size_t parameters = 256;
  size_t states = 256;
  uint32_t stateCopies = 256; ///< Buckets of one state.
  size_t kernels = 4096;
  size_t attributes = 64;  ///< Of one kernel.
  size_t mapEntries = 256; ///< Instructions, constants, outputs, inputs of one piece of bytecode.
  size_t locations = 1u << 16;
  size_t programs = 64;
  size_t declarations = 4096; ///< Buffers, slots, events of one program, each.
  size_t steps = 1u << 16;    ///< Of one program, as written.
  size_t listEntries = 4096;  ///< Waits, inputs, outputs, scalars, ranges of one step, each.
  uint32_t channels = 1u << 16;
  uint32_t grain = 1u << 24;              ///< Elements.
  int64_t bufferBytes = int64_t{1} << 40; ///< One buffer, or one pool of slots, once bound.
};
inline constexpr Limits kLimits;

} // namespace bagua::rt
