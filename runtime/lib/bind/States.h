// What a binding keeps from step to step, for all of its programs.
#pragma once

#include "bagua/Binding.h"
#include "bagua/Expand.h"
#include "bagua/Transport.h"

#include <memory>
#include <span>
#include <vector>

namespace bagua::rt {

/// How a program uses a state.
struct StateUse {
  bool isSent = false;  ///< Peers read it.
  bool hasNext = false; ///< It may be published.
  bool isKept = true;   ///< Else it belongs to the bucket's other binding and takes no memory here.
};

/// Two copies of each state that is ever published: the committed one and the next. Programs run
/// one after the other; so do all calls.
class States {
public:
  /// Sizes only; `schedule` must outlive this. `uses`: of all programs together, by state.
  static StatusOr<States> resolve(const fb::ScheduleT &schedule, const BindValues &values,
                                  const Bucket &bucket, std::vector<StateUse> uses,
                                  uint64_t memoryBytesMax);
  /// Reserves the memory and writes the initial values.
  Status reserve(Transport &transport, const Bucket &bucket);

  /// The size is fixed; where the bytes are is not.
  uint64_t bytes(size_t state) const { return states_[state].bytes; }
  std::span<std::byte> committed(size_t state) const { return copy(state, 0); }
  /// Of a state with StateUse::hasNext.
  std::span<std::byte> next(size_t state) const { return copy(state, 1); }

  void publish(size_t state) { states_[state].isPublished = true; }
  /// Ends a run: what was published is committed.
  void commit();
  /// Ends a run that failed.
  void forget();
  /// Changes whenever places change.
  uint64_t version() const { return version_; }

private:
  struct State {
    uint64_t bytes = 0;
    StateUse use;
    std::byte *copies[2] = {nullptr, nullptr};
    uint8_t committed = 0;
    bool isPublished = false;
  };

  std::span<std::byte> copy(size_t state, uint8_t which) const {
    const State &s = states_[state];
    return {s.copies[s.committed ^ which], s.bytes};
  }

  const fb::ScheduleT *schedule_ = nullptr;
  fb::DType dtype_ = fb::DType::F32;
  std::vector<State> states_;
  uint64_t version_ = 1;
  Memory sent_; ///< Of states that peers read.
  std::unique_ptr<std::byte, void (*)(void *)> private_{nullptr, nullptr};
};

} // namespace bagua::rt
