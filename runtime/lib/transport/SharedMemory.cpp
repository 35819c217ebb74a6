// memfd files and their mappings; the one place that turns their errno into Status.
#include "SharedMemory.h"

#include "absl/strings/str_cat.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

namespace bagua::rt {
namespace {

Status errnoStatus(int error, const std::string &what) {
  std::string message = absl::StrCat(what, ": ", strerror(error));
  switch (error) {
  case ENOMEM:
  case ENOSPC:
  case EMFILE:
  case ENFILE:
    return absl::ResourceExhaustedError(message);
  default:
    return absl::InternalError(message);
  }
}

// Newer than the C library's headers may be.
constexpr int kPopulateWrite = 23; // MADV_POPULATE_WRITE, Linux 5.14.
constexpr int kCollapse = 25;      // MADV_COLLAPSE, Linux 6.1.

/// MemAvailable of /proc/meminfo, or no limit if that cannot be read.
uint64_t availableMemoryBytes() {
  FileDescriptor file(open("/proc/meminfo", O_RDONLY | O_CLOEXEC));
  char text[4096];
  ssize_t size = file ? read(file.get(), text, sizeof text - 1) : -1;
  if (size <= 0)
    return UINT64_MAX;
  text[size] = 0;
  unsigned long long kibibytes = 0;
  const char *line = strstr(text, "MemAvailable:");
  if (line == nullptr || sscanf(line, "MemAvailable: %llu kB", &kibibytes) != 1)
    return UINT64_MAX;
  return uint64_t{kibibytes} << 10;
}

} // namespace

FileDescriptor::~FileDescriptor() { reset(); }

void FileDescriptor::reset() {
  if (descriptor_ >= 0)
    close(std::exchange(descriptor_, -1));
}

StatusOr<FileDescriptor> createSharedFile(const char *name, size_t bytes) {
  // ftruncate beyond this limit does not fail: it kills with SIGXFSZ.
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      limit.rlim_cur < bytes)
    return absl::ResourceExhaustedError(absl::StrCat(
        "shared memory of ", bytes, " bytes is above the limit on file size (ulimit -f), ",
        static_cast<uint64_t>(limit.rlim_cur), " bytes"));
  FileDescriptor file(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file)
    return errnoStatus(errno, "cannot create shared memory (memfd_create)");
  if (ftruncate(file.get(), static_cast<off_t>(bytes)) != 0)
    return errnoStatus(errno, absl::StrCat("cannot size shared memory to ", bytes, " bytes"));
  return file;
}

Status commitMappedFile(int descriptor, const Mapping &mapping, size_t offset, size_t bytes,
                        const char *what) {
  // The kernel would rather kill somebody than say no, so ask first.
  if (uint64_t available = availableMemoryBytes(); bytes > available)
    return absl::ResourceExhaustedError(absl::StrCat("no shared memory for ", what,
                                                     ", which needs ", bytes, " bytes; ", available,
                                                     " bytes of memory are available"));
  // All of this is advice, and older kernels refuse it: fallocate has the last word. Most systems
  // give shared memory no huge pages on their own (shmem_enabled is "never"), but collapse a range
  // with some page in each huge page on request. That is also three times faster than making small
  // pages.
  std::byte *begin = mapping.data() + offset;
  if (reinterpret_cast<uintptr_t>(begin) % kHugePageBytes == 0 && bytes >= kHugePageBytes) {
    for (size_t i = 0; i + kHugePageBytes <= bytes; i += kHugePageBytes)
      (void)madvise(begin + i, kPageBytes, kPopulateWrite);
    (void)madvise(begin, bytes / kHugePageBytes * kHugePageBytes, kCollapse);
  }
  (void)madvise(begin, bytes, kPopulateWrite);
  return commitSharedFile(descriptor, offset, bytes, what);
}

Status commitSharedFile(int descriptor, size_t offset, size_t bytes, const char *what) {
  if (bytes == 0)
    return absl::OkStatus();
  int result;
  do
    result = fallocate(descriptor, 0, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  while (result != 0 && errno == EINTR);
  if (result != 0)
    return errnoStatus(
        errno, absl::StrCat("no shared memory for ", what, ", which needs ", bytes, " bytes"));
  return absl::OkStatus();
}

void discardSharedFile(int descriptor, size_t offset, size_t bytes) {
  if (bytes != 0)
    (void)fallocate(descriptor, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                    static_cast<off_t>(offset), static_cast<off_t>(bytes));
}

Status sealSharedFile(int descriptor) {
  if (fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return errnoStatus(errno, "cannot seal shared memory");
  return absl::OkStatus();
}

StatusOr<std::shared_ptr<Mapping>> Mapping::map(int descriptor, size_t bytes, bool writable) {
  BAGUA_CHECK(bytes > 0 && bytes % kPageBytes == 0);
  int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  size_t alignment = bytes >= kHugePageBytes ? kHugePageBytes : kPageBytes;
  size_t reserved = bytes + alignment - kPageBytes;
  // The reservation makes room for an aligned start, which huge pages need.
  void *room =
      mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED)
    return errnoStatus(errno, absl::StrCat("no address space for ", bytes,
                                           " bytes of shared memory (ulimit -v?)"));
  auto begin = reinterpret_cast<uintptr_t>(room);
  uintptr_t aligned = roundUp(begin, alignment);
  void *data = mmap(reinterpret_cast<void *>(aligned), bytes, protection, MAP_SHARED | MAP_FIXED,
                    descriptor, 0);
  if (data == MAP_FAILED) {
    int error = errno;
    munmap(room, reserved);
    return errnoStatus(error, absl::StrCat("cannot map ", bytes, " bytes of shared memory"));
  }
  if (aligned > begin)
    munmap(room, aligned - begin);
  if (size_t tail = begin + reserved - (aligned + bytes); tail > 0)
    munmap(reinterpret_cast<void *>(aligned + bytes), tail);
  if (bytes >= kHugePageBytes)
    (void)madvise(data, bytes, MADV_HUGEPAGE); // Only advice: kernels without it say EINVAL.
  return std::shared_ptr<Mapping>(new Mapping(static_cast<std::byte *>(data), bytes));
}

void Mapping::hideFromChildren() {
  (void)madvise(data_, bytes_, MADV_DONTFORK);
  (void)madvise(data_, bytes_, MADV_DONTDUMP);
}

Mapping::~Mapping() { munmap(data_, bytes_); }

} // namespace bagua::rt
