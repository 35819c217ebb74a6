// Allocation in a rank's own window.
#include "Window.h"

#include "absl/strings/str_cat.h"

#include <unistd.h>

namespace bagua::rt {
namespace {

constexpr size_t kControlAlignment = 64;

} // namespace

Window::Window(FileDescriptor file, std::shared_ptr<Mapping> mapping)
    : pid_(getpid()), file_(std::move(file)), mapping_(std::move(mapping)),
      ranges_(mapping_->bytes()) {}

bool Window::isForeign() const { return getpid() != pid_; }

StatusOr<std::shared_ptr<Window>> Window::create(const char *name, size_t bytes) {
  bytes = roundUp(bytes, bytes >= kHugePageBytes ? kHugePageBytes : kPageBytes);
  BAGUA_ASSIGN(FileDescriptor file, createSharedFile(name, bytes));
  BAGUA_TRY(sealSharedFile(file.get()));
  BAGUA_ASSIGN(std::shared_ptr<Mapping> mapping, Mapping::map(file.get(), bytes, true));
  return std::shared_ptr<Window>(new Window(std::move(file), std::move(mapping)));
}

StatusOr<Memory> Window::allocate(size_t bytes) {
  if (isForeign())
    return absl::FailedPreconditionError("a forked child asks for transport memory of its parent");
  size_t alignment = bytes >= kHugePageBytes ? kHugePageBytes : kPageBytes;
  auto tooLarge = [&](size_t room) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "transport memory of ", bytes, " bytes does not fit into this rank's window, which has ",
        room, " bytes of address space left in one piece"));
  };
  if (bytes > this->bytes())
    return tooLarge(this->bytes());
  size_t rounded = roundUp(bytes == 0 ? 1 : bytes, alignment);
  size_t offset;
  {
    std::lock_guard lock(mutex_);
    std::optional<size_t> found = ranges_.allocate(rounded, alignment);
    if (!found)
      return tooLarge(ranges_.largestFree());
    offset = *found;
  }
  // Touching through the mapping first: only this way do huge pages come.
  if (Status committed =
          commitMappedFile(file_.get(), *mapping_, offset, rounded, "transport memory");
      !committed.ok()) {
    release(offset, rounded);
    return committed;
  }
  std::byte *begin = data() + offset;
  std::shared_ptr<void> owner(begin, [self = shared_from_this(), offset, rounded](void *) {
    self->release(offset, rounded);
  });
  return Memory{std::move(owner), {begin, bytes}};
}

void Window::release(size_t offset, size_t bytes) {
  if (isForeign()) // These are the parent's bytes, and it may be using them.
    return;
  discardSharedFile(file_.get(), offset, bytes); // Before the range can be handed out again.
  std::lock_guard lock(mutex_);
  ranges_.free(offset, bytes);
}

StatusOr<size_t> Window::reserve(size_t bytes) {
  std::lock_guard lock(mutex_);
  std::optional<size_t> offset =
      ranges_.allocate(roundUp(bytes, kControlAlignment), kControlAlignment);
  if (!offset)
    return absl::ResourceExhaustedError(
        absl::StrCat("no room for ", bytes, " bytes of channel descriptors: the control window of ",
                     this->bytes(), " bytes is full"));
  return *offset;
}

StatusOr<size_t> Window::allocateControl(size_t bytes) {
  BAGUA_ASSIGN(size_t offset, reserve(bytes));
  size_t begin = offset / kPageBytes * kPageBytes, end = roundUp(offset + bytes, kPageBytes);
  if (Status committed = commitSharedFile(file_.get(), begin, end - begin, "channel descriptors");
      !committed.ok()) {
    freeControl(offset, bytes);
    return committed;
  }
  return offset;
}

void Window::freeControl(size_t offset, size_t bytes) {
  std::lock_guard lock(mutex_);
  ranges_.free(offset, roundUp(bytes, kControlAlignment));
}

} // namespace bagua::rt
