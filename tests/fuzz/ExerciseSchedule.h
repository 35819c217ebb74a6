// Everything that is done with a schedule file from outside, as far as its bytes allow.
#pragma once

#include "bagua/Schedule.h"

namespace bagua::rt::testing {

/// How far some bytes came.
struct Reached {
  bool loaded = false;   ///< fromBytes accepted them.
  size_t expansions = 0; ///< expand() succeeded.
  size_t refusals = 0;   ///< expand() refused.
};

/// Loads `file` without checking its digest, expands it for a few ranks, dumps, checks and writes
/// it. Aborts if what was accepted is not written and read back as the same.
Reached exerciseSchedule(std::span<const uint8_t> file);

/// A file around a FlatBuffer, whatever that holds. The digest is not right.
std::vector<uint8_t> fileAround(std::span<const uint8_t> payload);

} // namespace bagua::rt::testing
