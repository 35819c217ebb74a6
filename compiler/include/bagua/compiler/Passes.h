// Every pass of the compiler: constructors, options, registration.
#pragma once

#include "mlir/Pass/Pass.h"

namespace bagua::compiler {

#define GEN_PASS_DECL
#include "bagua/compiler/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "bagua/compiler/Passes.h.inc"

} // namespace bagua::compiler
