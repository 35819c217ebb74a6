// Group::create, and what the local and the networked group share.
#include "bagua/Group.h"
#include "Compare.h"
#include "GroupBase.h"
#include "Session.h"
#include "Text.h"
#include "bagua/Bootstrap.h"

#include <cstdlib>
#include <xxhash.h>

namespace bagua::rt {
namespace {

std::string digestOf(std::string_view text) {
  XXH128_hash_t hash = XXH3_128bits(text.data(), text.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

} // namespace

StatusOr<std::chrono::milliseconds> timeoutOr(std::chrono::milliseconds chosen,
                                              const char *variable,
                                              std::chrono::milliseconds otherwise) {
  if (chosen.count() != 0) {
    if (chosen.count() < 0)
      return absl::InvalidArgumentError(cat("a timeout is positive, got ", chosen.count(), " ms"));
    return chosen;
  }
  BAGUA_ASSIGN(int64_t value, environmentNumber(variable, otherwise.count()));
  return std::chrono::milliseconds(value);
}

void GroupBase::onVerdict(std::function<void(const Status &)> callback) {
  std::unique_lock lock(mutex_);
  if (!cell_.set()) {
    callback_ = std::move(callback);
    return;
  }
  lock.unlock();
  if (callback)
    callback(verdict());
}

void GroupBase::deliver(const Status &verdict) {
  std::unique_lock lock(mutex_);
  if (!cell_.put(verdict))
    return;
  std::function<void(const Status &)> callback = std::move(callback_);
  lock.unlock();
  if (callback)
    callback(verdict);
}

Status GroupBase::agree(std::string_view what, std::string_view json) {
  // Digests first: the texts are large and nearly always equal.
  BAGUA_ASSIGN(std::vector<std::string> digests, allGather(what, digestOf(json)));
  std::vector<int> others;
  for (int rank = 1; rank < world(); ++rank)
    if (digests[rank] != digests[0])
      others.push_back(rank);
  if (others.empty())
    return absl::OkStatus();
  std::string texts = cat(what, "/texts");
  bool shown = rank() == 0 || rank() == others.front();
  BAGUA_ASSIGN(std::vector<std::string> values, allGather(texts, shown ? json : ""));
  std::optional<Difference> difference = firstDifference(values[0], values[others.front()]);
  if (!difference) // Equal values, spelled differently.
    return absl::OkStatus();
  std::string more = others.size() == 1 ? "" : cat(" (", rankList(others), " differ from rank 0)");
  return absl::AbortedError(cat("ranks disagree on ", what,
                                difference->path.empty() ? "" : ", first at ", difference->path,
                                ": rank 0 has ", difference->mine, ", rank ", others.front(),
                                " has ", difference->theirs, more));
}

StatusOr<std::unique_ptr<Group>> Group::create(const Options &options) {
  if (options.localStore)
    return createLocalGroup(options, "threads of one process");
  return createRemoteGroup(options);
}

} // namespace bagua::rt
