// What concerns the whole process: forked children, its exit, memory handed out.
#pragma once

#include "bagua/Transport.h"

#include <cstdint>
#include <memory>

namespace bagua::rt::capi {

struct ContextState;

/// Counts the forks between the process that loaded the library and this one.
uint64_t forkGeneration();

/// Stops the context's thread before static objects go, if the process exits without a shutdown.
/// That is no goodbye: peers see this rank die.
void stopAtExit(const std::shared_ptr<ContextState> &context);

/// Keeps `memory` until returned by its address.
void keepMemory(const Memory &memory);
/// False if `address` is not one of keepMemory()'s. In a forked child nothing is freed: the pages
/// are the parent's too.
bool freeMemory(void *address);

} // namespace bagua::rt::capi
