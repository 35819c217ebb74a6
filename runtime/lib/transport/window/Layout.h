// What lies in a control window. All of it may be written by another process: readers copy each
// word once and check it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace bagua::rt {

// Who writes what, and how it is ordered. A window belongs to one rank, the owner.
//   directory    owner only. A slot's fields are written, then its state (release). A reader takes
//   the state
//                (acquire), the fields, and the state again: equal and open means the fields belong
//                together. `version` grows after each change, so that readers who lack a channel
//                look again.
//   descriptors  owner only. Fields, then `sequence` = message number + 1 (release). A reader that
//   takes
//                that very number (acquire) has the fields and the message's bytes.
//   released     the receiving peer only. released[ticket] = message number + 1 (release) says that
//   the
//                view of that message has ended; the owner (acquire) may overwrite the bytes after
//                it.
//   closed       the receiving peer only: 1 (release) when it will not touch the ring again.
// Each word has one writer, and every counter only grows: nothing needs repair when its writer
// dies.

inline constexpr uint64_t kWindowMagic = 0x314e495741554741; // "AGUAWIN1"

using SharedWord = std::atomic<uint64_t>;
static_assert(SharedWord::is_always_lock_free, "shared between processes");

struct ControlHeader {
  SharedWord magic;
  SharedWord directoryCount; ///< Slots in use or used before.
  SharedWord version;
};
inline constexpr size_t kDirectoryOffset = 4096;

/// A ring from the window's owner to `target`.
struct alignas(64) DirectorySlot {
  static constexpr uint64_t kOpenBit = 1;
  SharedWord state; ///< Odd: open. Grows by one at each opening and closing.
  SharedWord binding;
  SharedWord channelAndOpening; ///< Channel in the upper half.
  SharedWord targetAndCapacity; ///< Target rank in the upper half.
  SharedWord ringOffset;        ///< In this window.
};
static_assert(sizeof(DirectorySlot) == 64);

/// Ring: RingHeader, released[capacity] padded to a cache line, Descriptor[capacity].
struct alignas(64) RingHeader {
  SharedWord closed;
};

/// One message. Two share a cache line; a line is written by its sender and read by its receiver.
struct Descriptor {
  SharedWord sequence;
  SharedWord offset; ///< In the sender's data window.
  SharedWord bytes;
  SharedWord ticket; ///< < capacity
};
static_assert(sizeof(Descriptor) == 32);

inline constexpr uint32_t kRingCapacityMax = 1u << 16;

inline size_t releasedBytes(uint32_t capacity) {
  return (size_t{capacity} * sizeof(SharedWord) + 63) / 64 * 64;
}
inline size_t ringBytes(uint32_t capacity) {
  return sizeof(RingHeader) + releasedBytes(capacity) + size_t{capacity} * sizeof(Descriptor);
}

/// Pointers into a ring whose range has been checked.
struct Ring {
  RingHeader *header = nullptr;
  SharedWord *released = nullptr;
  Descriptor *descriptors = nullptr;
  uint32_t capacity = 0;

  Ring() = default;
  Ring(std::byte *memory, uint32_t capacity)
      : header(reinterpret_cast<RingHeader *>(memory)),
        released(reinterpret_cast<SharedWord *>(memory + sizeof(RingHeader))),
        descriptors(
            reinterpret_cast<Descriptor *>(memory + sizeof(RingHeader) + releasedBytes(capacity))),
        capacity(capacity) {}
  explicit operator bool() const { return header != nullptr; }
};

} // namespace bagua::rt
