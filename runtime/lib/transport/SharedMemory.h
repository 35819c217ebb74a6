// memfd files and their mappings: memory between processes without names.
#pragma once

#include "bagua/Status.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace bagua::rt {

inline constexpr size_t kPageBytes = 4096;
inline constexpr size_t kHugePageBytes = size_t{2} << 20;

inline constexpr size_t roundUp(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// Owns one descriptor.
class FileDescriptor {
public:
  FileDescriptor() = default;
  explicit FileDescriptor(int descriptor) : descriptor_(descriptor) {}
  FileDescriptor(FileDescriptor &&other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)) {}
  FileDescriptor &operator=(FileDescriptor &&other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~FileDescriptor();
  int get() const { return descriptor_; }
  int take() { return std::exchange(descriptor_, -1); }
  void reset();
  explicit operator bool() const { return descriptor_ >= 0; }

private:
  int descriptor_ = -1;
};

/// A sparse memfd of `bytes`, close-on-exec. Its pages exist only once committed (or touched).
StatusOr<FileDescriptor> createSharedFile(const char *name, size_t bytes);
/// Reserves the pages of a range, so that touching them cannot fail later. kResourceExhausted says
/// how much `what` needs.
Status commitSharedFile(int descriptor, size_t offset, size_t bytes, const char *what);
class Mapping;
/// The same for a range that `mapping` (of the whole file, writable) shows, in huge pages where the
/// kernel gives them, and present in the page table: first use costs no faults.
Status commitMappedFile(int descriptor, const Mapping &mapping, size_t offset, size_t bytes,
                        const char *what);
/// Gives the pages of a range back; they read as zero if committed again.
void discardSharedFile(int descriptor, size_t offset, size_t bytes);
/// No shrinking and no further seals: a peer that maps the file gets no SIGBUS.
Status sealSharedFile(int descriptor);

/// One shared mapping, 2 MiB aligned when that large; unmapped with the last reference.
class Mapping {
public:
  static StatusOr<std::shared_ptr<Mapping>> map(int descriptor, size_t bytes, bool writable);
  /// Keeps a peer's memory out of core files and of children.
  void hideFromChildren();
  ~Mapping();
  Mapping(const Mapping &) = delete;
  Mapping &operator=(const Mapping &) = delete;
  std::byte *data() const { return data_; }
  size_t bytes() const { return bytes_; }

private:
  Mapping(std::byte *data, size_t bytes) : data_(data), bytes_(bytes) {}
  std::byte *data_;
  size_t bytes_;
};

} // namespace bagua::rt
