// Large kernel launches cut into pieces that the driver and TBB's workers run together.
#pragma once

#include "bagua/Transport.h"
#include "bagua/kernels/Kernels.h"

#include <atomic>
#include <cstdint>
#include <memory>

namespace bagua::rt {

/// Threads beside the driver that help with launches. submit() and help() are the driver's, one
/// thread at a time.
class Workers {
public:
  /// One launch at a time. Never freed before the Workers: a task that comes late finds it
  /// exhausted.
  class Job {
    friend class Workers;
    static constexpr unsigned kCountBits = 20;
    static constexpr uint64_t kCountMask = (uint64_t{1} << kCountBits) - 1;
    /// generation | pieces | next piece, in one word: whoever claims a piece of a generation knows
    /// that the fields below are that generation's until it reports the piece as done.
    std::atomic<uint64_t> ticket_{0};
    alignas(64) std::atomic<uint32_t> done_{0};
    uint32_t pieces_ = 0;
    const kernels::Kernel *kernel_ = nullptr;
    kernels::Args args_;
    size_t pieceElements_ = 0;
  };

  /// `threads`: the driver included; 1 makes no other. The doorbell is rung when helpers finish a
  /// launch.
  static std::unique_ptr<Workers> create(int threads, std::shared_ptr<Doorbell> doorbell);
  virtual ~Workers() = default;

  virtual int threads() const = 0;
  /// Called at bind: allocates. freeJob gives it back for reuse; no launch may be in flight.
  virtual Job *makeJob() = 0;
  virtual void freeJob(Job *job) = 0;

  /// Offers `args` in pieces of `pieceElements`; ends with finished(). The kernel and the arrays
  /// behind `args` stay in place until then. At most 2^20 - 1 pieces.
  virtual void submit(Job &job, const kernels::Kernel &kernel, const kernels::Args &args,
                      size_t pieceElements) = 0;
  /// Runs one piece; false if none is left to start.
  static bool help(Job &job);
  static bool finished(const Job &job) {
    return job.done_.load(std::memory_order_acquire) == job.pieces_;
  }
  /// Starts no further piece and returns when none runs.
  static void cancel(Job &job);

protected:
  static uint32_t offer(Job &job, const kernels::Kernel &kernel, const kernels::Args &args,
                        size_t pieceElements);
  /// Runs a piece; false if none is left. `last`: it was the launch's last to finish.
  static bool runPiece(Job &job, bool &last);
};

} // namespace bagua::rt
