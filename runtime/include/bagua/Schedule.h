// The schedule file: reading, validating, writing. The only thing compiler and runtime share.
#pragma once

#include "bagua/Status.h"
#include "bagua/schedule_generated.h" // generated from runtime/lib/schedule/schedule.fbs

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace bagua::rt {

inline constexpr uint32_t kNone = 0xffffffffu; ///< "absent" in index fields of the format.
inline constexpr uint32_t kFormatVersion = 1;

/// XXH3-128, canonical byte order, over every byte of the file but the digest's own.
using Digest = std::array<uint8_t, 16>;

/// File header, little-endian, 64 bytes, followed by `payloadBytes` bytes of FlatBuffer.
struct FileHeader {
  char magic[8]; ///< "BAGUASCH"
  uint32_t version;
  uint32_t headerBytes;      ///< 64
  uint64_t requiredFeatures; ///< A reader refuses bits it does not know.
  uint64_t payloadBytes;
  Digest digest;
  uint8_t reserved[16]; ///< Zero.
};
static_assert(sizeof(FileHeader) == 64, "goes into the file: no padding");

/// A validated schedule. Immutable; safe to share between threads.
class Schedule {
public:
  struct Options {
    bool verifyDigest = true; ///< Off only for fuzzing: lets damaged bytes reach the validator.
  };
  /// Checks header, digest, FlatBuffer structure and every rule of validate(); copies `bytes`.
  static StatusOr<std::shared_ptr<const Schedule>> fromBytes(std::span<const uint8_t> bytes,
                                                             const Options &options);
  static StatusOr<std::shared_ptr<const Schedule>> fromBytes(std::span<const uint8_t> bytes);
  static StatusOr<std::shared_ptr<const Schedule>> fromFile(const std::string &path);

  const fb::ScheduleT &ir() const { return ir_; }
  const Digest &digest() const { return digest_; }
  std::string digestHex() const;
  /// "file.mlir:12:5" of a step's location index.
  std::string location(uint32_t index) const;
  /// Program started by `event`, or nullptr.
  const fb::ProgramT *program(fb::Event event) const;

private:
  Schedule() = default;
  fb::ScheduleT ir_;
  Digest digest_{};
};

/// Index ranges, expression times and types, loop scopes, unique names, limits (kLimits), non-null
/// children. Says which program, step and field is wrong.
Status validate(const fb::ScheduleT &schedule);

/// Serializes with header and digest. Equal schedules give equal bytes. Validates first.
StatusOr<std::vector<uint8_t>> serialize(const fb::ScheduleT &schedule);

} // namespace bagua::rt
