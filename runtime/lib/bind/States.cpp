// Memory of states: sizes, initial values, the swap.
#include "States.h"

#include "Memory.h"

#include "absl/strings/str_cat.h"

#include <algorithm>
#include <cstring>

namespace bagua::rt {
namespace {

template <typename T> void fill(std::span<std::byte> bytes, double value) {
  auto element = static_cast<T>(value);
  for (size_t i = 0; i + sizeof(T) <= bytes.size(); i += sizeof(T))
    std::memcpy(bytes.data() + i, &element, sizeof(T));
}

} // namespace

StatusOr<States> States::resolve(const fb::ScheduleT &schedule, const BindValues &values,
                                 const Bucket &bucket, std::vector<StateUse> uses,
                                 uint64_t memoryBytesMax) {
  States states;
  states.schedule_ = &schedule;
  states.dtype_ = values.dtype;
  uint64_t limit = memoryBytesMax != 0 ? memoryBytesMax : machineMemoryBytes(), total = 0;
  for (size_t i = 0; i < schedule.states.size(); ++i) {
    const fb::StateT &declared = *schedule.states[i];
    State state;
    state.use = uses[i];
    if (!state.use.isKept) {
      states.states_.push_back(state);
      continue;
    }
    state.bytes = static_cast<uint64_t>(stateElements(schedule, declared, values)) *
                  static_cast<uint64_t>(elementBytes(values.dtype));
    uint64_t bytes = aligned(state.bytes) * (state.use.hasNext ? 2 : 1);
    if (state.bytes > kBytesMax || (total += bytes) > limit)
      return absl::ResourceExhaustedError(
          absl::StrCat("bucket '", bucket.name, "': the states of schedule '", schedule.name,
                       "' need more than the ", limit, " bytes of memory allowed"));
    if (declared.initial_weight && bucket.weight == nullptr && bucket.length > 0)
      return absl::InvalidArgumentError(
          absl::StrCat("bucket '", bucket.name, "': state '", declared.name, "' of schedule '",
                       schedule.name, "' begins as the bucket's weight, got a null pointer"));
    states.states_.push_back(state);
  }
  return states;
}

Status States::reserve(Transport &transport, const Bucket &bucket) {
  uint64_t sentBytes = 0, privateBytes = 0;
  for (const State &state : states_)
    (state.use.isSent ? sentBytes : privateBytes) +=
        aligned(state.bytes) * (state.use.hasNext ? 2 : 1);
  if (sentBytes > 0) {
    StatusOr<Memory> memory = transport.allocate(sentBytes);
    if (!memory.ok())
      return Status(memory.status().code(), absl::StrCat("bucket '", bucket.name,
                                                         "', states: ", memory.status().message()));
    sent_ = *std::move(memory);
  }
  private_ = allocateAligned(privateBytes);
  if (privateBytes > 0 && private_ == nullptr)
    return absl::ResourceExhaustedError(absl::StrCat("bucket '", bucket.name, "': cannot reserve ",
                                                     privateBytes, " bytes for states"));
  std::byte *sent = sent_.bytes.data(), *mine = private_.get();
  for (size_t i = 0; i < states_.size(); ++i) {
    State &state = states_[i];
    std::byte *&arena = state.use.isSent ? sent : mine;
    for (int which = 0; which < (state.use.hasNext ? 2 : 1); ++which) {
      state.copies[which] = arena;
      arena += aligned(state.bytes);
    }
    const fb::StateT &declared = *schedule_->states[i];
    if (!state.use.isKept)
      continue;
    std::span<std::byte> bytes = committed(i);
    if (declared.initial_weight) {
      size_t bucketBytes = bytes.size() / declared.copies;
      for (size_t at = 0; at < bytes.size(); at += bucketBytes)
        std::memcpy(bytes.data() + at, bucket.weight, bucketBytes);
    } else if (dtype_ == fb::DType::F64) {
      fill<double>(bytes, declared.initial);
    } else {
      fill<float>(bytes, declared.initial);
    }
  }
  return absl::OkStatus();
}

void States::commit() {
  for (State &state : states_)
    if (state.isPublished) {
      state.isPublished = false;
      state.committed ^= 1;
      ++version_;
    }
}

void States::forget() {
  for (State &state : states_)
    state.isPublished = false;
}

} // namespace bagua::rt
