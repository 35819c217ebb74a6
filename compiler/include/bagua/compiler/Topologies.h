// Topologies in numbers: who hears whom in a world of known size.
#pragma once

#include "bagua/dialect/Bagua/BaguaAttrs.h"

#include <cstdint>

namespace bagua::compiler {

/// The rank that `rank` of `world` hears with an entry of `topology`, which exists; itself: nobody.
/// Over a group, ranks are places in it and the world is its size.
int64_t heardRank(ir::TopologyAttrInterface topology, int64_t world, int64_t rank, int64_t round,
                  int64_t entry);

} // namespace bagua::compiler
