// A window: one memfd whose address space is fixed and whose pages come and go.
#pragma once

#include "RangeAllocator.h"
#include "SharedMemory.h"

#include "bagua/Transport.h"

#include <mutex>

namespace bagua::rt {

/// This rank's own window. The file is sparse: its size is address space, reserved once so that
/// peers map it once and every later allocation is reachable without another word; pages are
/// committed per allocation and given back when the last reference goes. Thread-safe: memory is
/// freed from any thread, also after the transport's end. A forked child may use the memory it has
/// inherited, which stays shared with its parent; what it frees stays, and it gets nothing new.
class Window : public std::enable_shared_from_this<Window> {
public:
  static StatusOr<std::shared_ptr<Window>> create(const char *name, size_t bytes);

  /// Zeroed. At least page-aligned, 2 MiB aligned from that size on (huge pages).
  StatusOr<Memory> allocate(size_t bytes);

  /// A range for the owner's control words: never given back to the system, not zeroed again.
  StatusOr<size_t> allocateControl(size_t bytes);
  /// The same without committing pages.
  StatusOr<size_t> reserve(size_t bytes);
  void freeControl(size_t offset, size_t bytes);

  int descriptor() const { return file_.get(); }
  const std::shared_ptr<Mapping> &mapping() const { return mapping_; }
  std::byte *data() const { return mapping_->data(); }
  size_t bytes() const { return mapping_->bytes(); }
  bool contains(const std::byte *data, size_t bytes) const {
    auto begin = reinterpret_cast<uintptr_t>(data),
         base = reinterpret_cast<uintptr_t>(this->data());
    return begin >= base && begin - base <= this->bytes() &&
           bytes <= this->bytes() - (begin - base);
  }

private:
  Window(FileDescriptor file, std::shared_ptr<Mapping> mapping);
  void release(size_t offset, size_t bytes);

  /// In a forked child, whose copy of the allocator knows nothing of the parent's later life.
  bool isForeign() const;

  const int pid_;
  FileDescriptor file_;
  std::shared_ptr<Mapping> mapping_;
  std::mutex mutex_;
  RangeAllocator ranges_; ///< Guarded by mutex_.
};

} // namespace bagua::rt
