// Ranks inside one process: where the transport contract is tested.
#pragma once

#include "bagua/Transport.h"

namespace bagua::rt {

/// All ranks of one process. Each rank's transport may be driven by its own thread, or all of them
/// by one. Nothing depends on threads' timing but the order in which ranks act: with one thread,
/// equal seeds give equal runs.
class LoopbackWorld {
public:
  enum class Mode {
    View, ///< A receive's view is the sender's memory; `sent` follows its release.
    Copy, ///< Bytes are copied into the landing slot; `sent` follows the copy, long before release.
  };
  struct Options {
    Mode mode = Mode::View;
    uint64_t seed = 0;
    uint32_t delayPollsMax =
        0; ///< > 0: arrivals and `sent` show after 0…max further polls, at random.
    bool poisonReleased = true; ///< Copy mode: release() fills the landing slot with 0xfb.
  };
  static std::shared_ptr<LoopbackWorld> create(int world, const Options &options);
  static std::shared_ptr<LoopbackWorld> create(int world);
  virtual ~LoopbackWorld() = default;

  virtual int world() const = 0;
  /// The doorbell that peers' sends and releases ring. Any number of calls give the same one.
  virtual std::shared_ptr<Doorbell> doorbell(int rank) = 0;
  /// At most one living transport per rank; it keeps the world alive.
  virtual std::unique_ptr<Transport> transport(int rank) = 0;
};

} // namespace bagua::rt
