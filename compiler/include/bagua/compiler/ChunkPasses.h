// Passes on and from the chunk dialect: constructors, registration.
#pragma once

#include "mlir/Pass/Pass.h"

namespace bagua::compiler {

#define GEN_PASS_DECL
#include "bagua/compiler/ChunkPasses.h.inc"

#define GEN_PASS_REGISTRATION
#include "bagua/compiler/ChunkPasses.h.inc"

} // namespace bagua::compiler
