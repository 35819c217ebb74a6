// What a launch of bytecode needs: made by findMap() and findCodec(), read by the run functions.
#pragma once

#include "bagua/kernels/Map.h"
#include "common/MapPlan.h"

#include <memory>

namespace bagua::kernels {

struct PreparedProgram {
  std::shared_ptr<const MapProgram> map; ///< Null for codecs.
  MapPlan plan;                          ///< Of `map`; the reference needs none.
};

} // namespace bagua::kernels
