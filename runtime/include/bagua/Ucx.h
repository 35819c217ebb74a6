// Ranks of different hosts: UCX over TCP, and over RDMA where present.
#pragma once

#include "bagua/Group.h"
#include "bagua/Transport.h"

namespace bagua::rt {

/// Collective: every rank of `group` calls it, with its own doorbell (any kind). Blocks until the
/// ranks have exchanged their addresses. Data goes over the interface that has the address this
/// rank advertises (PeerInfo::address), never over shared memory: UCX 1.13 does not notice the
/// death of a peer there. A helper thread turns UCX's event descriptor into rings while the
/// doorbell's waiter sleeps. kUnimplemented in builds without UCX.
StatusOr<std::unique_ptr<Transport>> makeUcxTransport(Group &group,
                                                      std::shared_ptr<Doorbell> doorbell);

} // namespace bagua::rt
