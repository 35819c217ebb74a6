// Checks of arguments that every transport makes, with one wording.
#include "Channel.h"

#include "absl/strings/str_cat.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace bagua::rt {

StatusOr<Memory> allocatePrivate(size_t bytes) {
  constexpr size_t kAlignment = 64;
  if (bytes > SIZE_MAX - kAlignment)
    return absl::ResourceExhaustedError(absl::StrCat("no memory for ", bytes, " bytes"));
  size_t rounded = std::max(bytes + kAlignment - 1, kAlignment) / kAlignment * kAlignment;
  void *data = std::aligned_alloc(kAlignment, rounded);
  if (data == nullptr)
    return absl::ResourceExhaustedError(absl::StrCat("no memory for ", bytes, " bytes"));
  std::memset(data, 0, rounded);
  return Memory{std::shared_ptr<void>(data, std::free), {static_cast<std::byte *>(data), bytes}};
}

std::string describe(const Channel &channel) {
  return absl::StrCat("channel ", channel.key.channel, " of binding ", channel.key.binding,
                      " with rank ", channel.peer);
}

Status checkOpen(int rank, int world, int peer) {
  if (peer < 0 || peer >= world)
    return absl::InvalidArgumentError(
        absl::StrCat("peer ", peer, " is outside the group of ", world, " ranks"));
  if (peer == rank)
    return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " opens a channel to itself"));
  return absl::OkStatus();
}

Status checkSend(const Channel &channel, const SendOp &op, uint32_t inFlight) {
  if (op.data == nullptr || op.bytes == 0)
    return absl::InvalidArgumentError(absl::StrCat(describe(channel), ": a send without bytes"));
  if (op.bytes > channel.limits.bytesMax)
    return absl::InvalidArgumentError(absl::StrCat(describe(channel), ": a send of ", op.bytes,
                                                   " bytes, the channel was opened for at most ",
                                                   channel.limits.bytesMax));
  if (inFlight >= channel.limits.sendsMax)
    return absl::ResourceExhaustedError(absl::StrCat(
        describe(channel), ": ", inFlight, " sends are in flight, as many as it was opened for"));
  return absl::OkStatus();
}

Status checkRecv(const Channel &channel, const RecvOp &op, uint32_t inFlight, bool needsLanding) {
  if (op.bytes == 0)
    return absl::InvalidArgumentError(absl::StrCat(describe(channel), ": a receive without bytes"));
  if (op.bytes > channel.limits.bytesMax)
    return absl::InvalidArgumentError(absl::StrCat(describe(channel), ": a receive of ", op.bytes,
                                                   " bytes, the channel was opened for at most ",
                                                   channel.limits.bytesMax));
  if (needsLanding && op.landing == nullptr)
    return absl::InvalidArgumentError(
        absl::StrCat(describe(channel), ": a receive without landing memory"));
  if (inFlight >= channel.limits.recvsMax)
    return absl::ResourceExhaustedError(
        absl::StrCat(describe(channel), ": ", inFlight,
                     " receives are in flight, as many as it was opened for"));
  return absl::OkStatus();
}

Status sizeMismatch(const Channel &channel, size_t messageBytes, size_t receiveBytes) {
  return absl::AbortedError(absl::StrCat(describe(channel), ": the message has ", messageBytes,
                                         " bytes, the receive expects ", receiveBytes));
}

} // namespace bagua::rt
