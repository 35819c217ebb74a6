#include "NetworkDevices.h"

#include <arpa/inet.h>
#include <cstring>
#include <filesystem>
#include <ifaddrs.h>
#include <memory>
#include <netinet/in.h>

namespace bagua::rt {
namespace {

std::string interfaceOf(const std::string &address) {
  in_addr v4{};
  in6_addr v6{};
  bool isV4 = inet_pton(AF_INET, address.c_str(), &v4) == 1;
  bool isV6 = !isV4 && inet_pton(AF_INET6, address.c_str(), &v6) == 1;
  ifaddrs *list = nullptr;
  if ((!isV4 && !isV6) || getifaddrs(&list) != 0)
    return "";
  std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> guard(list, freeifaddrs);
  for (ifaddrs *entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr)
      continue;
    if (isV4 && entry->ifa_addr->sa_family == AF_INET &&
        reinterpret_cast<sockaddr_in *>(entry->ifa_addr)->sin_addr.s_addr == v4.s_addr)
      return entry->ifa_name;
    if (isV6 && entry->ifa_addr->sa_family == AF_INET6 &&
        std::memcmp(&reinterpret_cast<sockaddr_in6 *>(entry->ifa_addr)->sin6_addr, &v6,
                    sizeof v6) == 0)
      return entry->ifa_name;
    // 127.0.0.2 and the like are ours without being listed.
    if (isV4 && (ntohl(v4.s_addr) >> 24) == 127 && entry->ifa_addr->sa_family == AF_INET &&
        (ntohl(reinterpret_cast<sockaddr_in *>(entry->ifa_addr)->sin_addr.s_addr) >> 24) == 127)
      return entry->ifa_name;
  }
  return "";
}

} // namespace

NetworkDevices networkDevices(const std::string &address) {
  NetworkDevices devices;
  devices.names = interfaceOf(address);
  std::error_code error;
  for (const auto &device : std::filesystem::directory_iterator("/sys/class/infiniband", error)) {
    std::error_code inner;
    for (const auto &port : std::filesystem::directory_iterator(device.path() / "ports", inner)) {
      devices.hasRdma = true;
      if (!devices.names.empty())
        devices.names +=
            "," + device.path().filename().string() + ":" + port.path().filename().string();
    }
  }
  return devices;
}

} // namespace bagua::rt
