// Which network devices UCX may use.
#pragma once

#include <string>

namespace bagua::rt {

struct NetworkDevices {
  std::string names; ///< For UCX's NET_DEVICES: "eth0" or "eth0,mlx5_0:1"; empty: no restriction.
  bool hasRdma = false;
};

/// The interface that carries `address` (IPv4 or IPv6, no port), and RDMA ports, if there are any.
NetworkDevices networkDevices(const std::string &address);

} // namespace bagua::rt
