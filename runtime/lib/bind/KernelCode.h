// Kernels of a schedule: by name, or from the bytecode that it carries.
#pragma once

#include "bagua/Schedule.h"
#include "bagua/kernels/Kernels.h"

#include <string>

namespace bagua::rt {

/// kernels::find, findMap or findCodec, as `kernel` wants. `kernel` is of a valid schedule.
kernels::FindError findKernel(const fb::KernelT &kernel, kernels::DType dtype,
                              kernels::Kernel &found, std::string &error, bool reference);

} // namespace bagua::rt
