// Facts about this machine and its processes, read from /proc.
#pragma once

#include <cstdint>
#include <string>

namespace bagua::rt {

std::string hostName();
/// Boot id and network namespace: processes with equal keys can reach one another's abstract
/// sockets.
std::string hostKey();
/// Processes with equal values see one another under the same process ids.
uint64_t pidNamespace();
/// Clock ticks from boot to the process's start: tells a process from a later one with its id. 0:
/// gone.
uint64_t processStartTime(int64_t pid);
/// Whether the process that had this id and start time has ended; its parent may not know yet.
bool processHasEnded(int64_t pid, uint64_t startTime);
/// "pid 17 (python3)" for the process that listens on TCP `port` here; empty if that cannot be
/// told.
std::string portHolder(uint16_t port);

struct DescriptorUse {
  int64_t open = 0, limit = 0; ///< Of this process; the limit is RLIMIT_NOFILE's soft one.
};
DescriptorUse descriptorUse();

} // namespace bagua::rt
