#include "Memory.h"

#include <cstdlib>
#include <unistd.h>

namespace bagua::rt {

uint64_t machineMemoryBytes() {
  long pages = ::sysconf(_SC_PHYS_PAGES), pageBytes = ::sysconf(_SC_PAGESIZE);
  return pages > 0 && pageBytes > 0
             ? static_cast<uint64_t>(pages) * static_cast<uint64_t>(pageBytes)
             : kBytesMax;
}

std::unique_ptr<std::byte, void (*)(void *)> allocateAligned(uint64_t bytes) {
  return {static_cast<std::byte *>(bytes == 0 ? nullptr : std::aligned_alloc(kAlignment, bytes)),
          std::free};
}

} // namespace bagua::rt
