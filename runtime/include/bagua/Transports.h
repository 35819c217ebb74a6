// The transports a user can name.
#pragma once

#include "bagua/Group.h"
#include "bagua/Transport.h"

#include <string_view>

namespace bagua::rt {

/// "window": shared memory; an error if a rank is on another host. "ucx": the network, also inside
/// a host. "auto" (or ""): windows between ranks of one host, UCX between hosts. Collective: all
/// ranks name the same. `doorbell` comes from makeSharedDoorbell().
StatusOr<std::unique_ptr<Transport>> makeTransport(std::string_view name, Group &group,
                                                   std::shared_ptr<Doorbell> doorbell);

} // namespace bagua::rt
