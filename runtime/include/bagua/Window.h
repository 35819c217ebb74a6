// Ranks of one host: peers read each other's memory in place.
#pragma once

#include "bagua/Group.h"
#include "bagua/Transport.h"

namespace bagua::rt {

struct WindowOptions {
  /// Address space (not memory) for allocate() and staging; 0: four times the machine's memory.
  size_t windowBytes = 0;
  /// Address space for descriptor rings; 0: 256 MiB.
  size_t controlBytes = 0;
  /// Ranks that are threads of one process use each other's mappings; false: map them again, as
  /// processes do. (The thread sanitizer sees more with true, tests see more with both.)
  bool shareMappingsInProcess = true;
  /// Connect only the peers on this rank's host. False: a peer elsewhere is an error.
  bool localPeersOnly = false;
};

/// Collective: every rank of `group` calls it, with its own doorbell from makeSharedDoorbell().
/// Blocks until the ranks of this host have exchanged their windows, at most
/// group.bootstrapTimeout().
StatusOr<std::unique_ptr<Transport>>
makeWindowTransport(Group &group, std::shared_ptr<Doorbell> doorbell, const WindowOptions &options);

} // namespace bagua::rt
