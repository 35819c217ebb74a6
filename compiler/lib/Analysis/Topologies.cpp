// Topologies in numbers.
#include "bagua/compiler/Topologies.h"

#include "bagua/Expand.h"

namespace bagua::compiler {

int64_t heardRank(ir::TopologyAttrInterface topology, int64_t world, int64_t rank, int64_t round,
                  int64_t entry) {
  auto mod = [](int64_t a, int64_t b) { return (a % b + b) % b; };
  int64_t lower = world / 2, upper = world - lower;
  switch (topology.getPeerMap()) {
  case ir::PeerMap::Rotate: // Others send as far as we do.
    return mod(rank - topology.distance(world, round, entry), world);
  case ir::PeerMap::RoundRobin:
    return mod(round - rank, world);
  case ir::PeerMap::ShiftOne: {
    if (rank < lower)
      return lower + mod(round + rank, upper);
    int64_t partner = mod(rank - lower - round, upper);
    return partner < lower ? partner : rank;
  }
  case ir::PeerMap::Pairing:
    return rt::pairingPartner(topology.pairingSeed(), round, world, rank);
  }
  llvm_unreachable("a peer map of an unknown kind");
}

} // namespace bagua::compiler
