// One generation of a group: who has joined, what each rank does, what is stored, and the verdict.
#include "Session.h"
#include "GroupBase.h"
#include "Text.h"

#include <algorithm>
#include <set>

namespace bagua::rt {
namespace {

constexpr size_t kDescribedMax = 4;
constexpr size_t kRefusalsMax = 4;

} // namespace

std::string rankList(const std::vector<int> &ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1)
      ++end;
    if (i > 0)
      text += ", ";
    if (end - i >= 3) {
      text += cat(ranks[i], "-", ranks[end - 1]);
      i = end;
    } else {
      text += cat(ranks[i++]);
    }
  }
  return text;
}

std::string secondsText(double seconds) {
  return seconds < 1.0 ? fmt::format("{:.0f} ms", seconds * 1e3) : fmt::format("{:.1f} s", seconds);
}

Status Table::set(std::string_view key, std::string_view value) {
  if (key.empty() || key.size() > kKeyBytesMax)
    return absl::InvalidArgumentError(
        cat("a key of the store has 1 to ", kKeyBytesMax, " bytes, got ", key.size()));
  if (value.size() > kValueBytesMax)
    return absl::InvalidArgumentError(cat("the store's value for '", key, "' has ", value.size(),
                                          " bytes, more than ", kValueBytesMax));
  if (entries_.contains(key))
    return absl::FailedPreconditionError(cat("the store's key '", key, "' is already set"));
  if (bytes_ + key.size() + value.size() > kTotalBytesMax)
    return absl::ResourceExhaustedError(
        cat("the store is full: more than ", kTotalBytesMax, " bytes"));
  bytes_ += key.size() + value.size();
  entries_.emplace(std::string(key), Entry{std::string(value), std::nullopt});
  return absl::OkStatus();
}

StatusOr<int64_t> Table::add(std::string_view key, int64_t delta) {
  auto found = entries_.find(key);
  if (found == entries_.end()) {
    BAGUA_TRY(set(key, "0"));
    found = entries_.find(key);
    found->second.count = 0;
  }
  Entry &entry = found->second;
  if (!entry.count)
    return absl::FailedPreconditionError(
        cat("the store's key '", key, "' holds a value, not a counter"));
  int64_t sum = 0;
  if (__builtin_add_overflow(*entry.count, delta, &sum))
    return absl::InvalidArgumentError(cat("the store's counter '", key, "' would overflow"));
  entry.count = sum;
  entry.value = std::to_string(sum);
  return sum;
}

void Table::erase(std::string_view prefix) {
  auto it = entries_.lower_bound(prefix);
  while (it != entries_.end() && std::string_view(it->first).starts_with(prefix)) {
    bytes_ -= it->first.size() + (it->second.count ? 1 : it->second.value.size());
    it = entries_.erase(it);
  }
}

const std::string *Table::find(std::string_view key) const {
  auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : &found->second.value;
}

Session::Session(int world, std::string job) : job_(std::move(job)), members_(world) {}

Status Session::join(int world, const PeerInfo &info, const Limits &limits) {
  if (world != this->world())
    return absl::AbortedError(cat("ranks disagree about the world: rank ", info.rank, " (host ",
                                  info.host, ", pid ", info.pid, ") says ", world,
                                  ", the group has ", this->world()));
  if (info.rank < 0 || info.rank >= world)
    return absl::InvalidArgumentError(cat("rank ", info.rank, " is not in a world of ", world));
  Member &member = members_[info.rank];
  if (member.joined)
    return absl::AbortedError(cat("rank ", info.rank, " joined twice: first host ",
                                  member.info.host, ", pid ", member.info.pid, ", then host ",
                                  info.host, ", pid ", info.pid));
  member.info = info;
  member.limits = limits;
  member.joined = true;
  ++joined_;
  return absl::OkStatus();
}

/// Of one host. One host may play several of `localSize` ranks each; then a local rank is there
/// once in each.
Status Session::checkPlaces(const std::vector<int> &ranks) const {
  int sized = -1;
  for (int rank : ranks) {
    int size = members_[rank].info.localSize;
    if (size > 0 && sized >= 0 && size != members_[sized].info.localSize)
      return absl::AbortedError(
          cat("the ranks of a host disagree about its local size: ", identify(sized, ""), " says ",
              members_[sized].info.localSize, ", ", identify(rank, ""), " says ", size));
    if (size > 0)
      sized = rank;
  }
  int size = sized < 0 ? world() : members_[sized].info.localSize;
  int hosts = (static_cast<int>(ranks.size()) + size - 1) / size;
  std::map<int, std::vector<int>> byPlace;
  for (int rank : ranks) {
    if (members_[rank].info.localRank < 0)
      continue;
    std::vector<int> &same = byPlace[members_[rank].info.localRank];
    same.push_back(rank);
    if (static_cast<int>(same.size()) > hosts)
      return absl::AbortedError(cat(identify(same.front(), ""), " and ", identify(rank, ""),
                                    " of one host both have local rank ",
                                    members_[rank].info.localRank,
                                    sized < 0 ? "" : cat(" of local size ", size)));
  }
  return absl::OkStatus();
}

Status Session::settle() {
  std::map<std::string, std::vector<int>> hosts;
  for (int rank = 0; rank < world(); ++rank)
    hosts[members_[rank].info.hostKey].push_back(rank);
  for (const auto &[host, ranks] : hosts)
    BAGUA_TRY(checkPlaces(ranks));
  std::map<std::string, int> nodes;
  std::map<std::string, std::set<int>> taken;
  for (Member &member : members_) {
    auto [found, isNew] = nodes.try_emplace(member.info.hostKey, static_cast<int>(nodes.size()));
    member.info.node = found->second;
    if (member.info.localRank >= 0)
      taken[member.info.hostKey].insert(member.info.localRank);
  }
  for (Member &member : members_) {
    if (member.info.localRank >= 0)
      continue;
    std::set<int> &used = taken[member.info.hostKey];
    int free = 0;
    while (used.contains(free))
      ++free;
    used.insert(free);
    member.info.localRank = free;
  }
  return absl::OkStatus();
}

void Session::noteRefusal(std::string text) {
  if (refusals_.size() < kRefusalsMax)
    refusals_.push_back(std::move(text));
}

void Session::heartbeat(int rank, Activity activity) {
  Member &member = members_[rank];
  if (activity.changes != member.activity.changes) {
    member.waited = 0.0;
    member.warnedWaiting = false;
  }
  member.activity = std::move(activity);
  member.silence = 0.0;
  member.warnedFrozen = false;
}

void Session::pause(int rank, int delta) {
  Member &member = members_[rank];
  if (member.pauses + delta < 0)
    delta = -member.pauses;
  member.pauses += delta;
  pauses_ += delta;
}

void Session::leave(int rank) {
  Member &member = members_[rank];
  if (!member.joined || member.left || member.dead)
    return;
  member.left = true;
  ++gone_;
  ++departures_;
  pause(rank, -member.pauses);
  for (const auto &[what, gather] : gathers_)
    if (!gather->values[rank] && gather->arrived > 0)
      condemn(absent(what, *gather, gather->elapsed));
}

std::string Session::departure(int rank) const {
  return members_[rank].left ? cat(identify(rank, ""), kSaidGoodbye) : "";
}

void Session::dead(int rank, std::string_view how) {
  Member &member = members_[rank];
  if (!member.joined || member.left || member.dead)
    return;
  member.dead = true;
  ++gone_;
  pause(rank, -member.pauses);
  std::string phase = member.activity.phase.empty() ? "user code" : member.activity.phase;
  for (const auto &[what, gather] : gathers_)
    if (gather->values[rank])
      phase = cat("exchange '", what, "'");
  if (!hasVerdict())
    culprit_ = rank;
  condemn(absl::UnavailableError(
      cat(identify(rank, ""), " died (", how, "); its last phase: ", phase)));
}

void Session::neverJoins(int rank, std::string_view how) {
  if (members_[rank].joined || hasVerdict())
    return;
  culprit_ = rank;
  condemn(absl::UnavailableError(cat("rank ", rank, " ", how, " before it joined the group")));
}

StatusOr<std::shared_ptr<Gather>> Session::contribute(std::string_view what, int rank,
                                                      std::string_view value) {
  if (what.empty() || what.size() > Table::kKeyBytesMax)
    return absl::InvalidArgumentError(
        cat("the name of an exchange has 1 to ", Table::kKeyBytesMax, " bytes, got ", what.size()));
  if (value.size() > Table::kValueBytesMax)
    return absl::InvalidArgumentError(cat("rank ", rank, "'s value in '", what, "' has ",
                                          value.size(), " bytes, more than ",
                                          Table::kValueBytesMax));
  auto found = gathers_.find(what);
  if (found == gathers_.end()) {
    auto gather = std::make_shared<Gather>();
    gather->values.resize(members_.size());
    found = gathers_.emplace(std::string(what), std::move(gather)).first;
  }
  std::shared_ptr<Gather> gather = found->second;
  if (gather->values[rank])
    return absl::FailedPreconditionError(
        cat("rank ", rank, " entered the exchange '", what, "' twice"));
  gather->values[rank] = std::string(value);
  ++gather->arrived;
  stuckInGathers_ = 0.0;
  if (gather->complete()) {
    gathers_.erase(found);
    return gather;
  }
  for (int other = 0; other < world(); ++other)
    if (members_[other].left && !gather->values[other]) {
      condemn(absent(what, *gather, gather->elapsed));
      break;
    }
  return gather;
}

const Status &Session::condemn(const Status &reason) {
  if (verdict_.ok() && !reason.ok())
    verdict_ = unshared(reason);
  return verdict_;
}

std::string Session::identify(int rank, std::string_view more) const {
  const PeerInfo &info = members_[rank].info;
  return cat("rank ", rank, " (host ", info.host, ", pid ", info.pid, more.empty() ? "" : ", ",
             more, ")");
}

std::string Session::describe(int rank) const {
  if (rank < 0 || rank >= world())
    return cat("rank ", rank, " (not in this world of ", world(), ")");
  const Member &member = members_[rank];
  if (!member.joined)
    return cat("rank ", rank, " (never joined)");
  if (member.dead)
    return identify(rank, "dead");
  if (member.left)
    return identify(rank, "said goodbye");
  std::string last =
      member.activity.phase.empty() ? "" : cat(", last phase: ", member.activity.phase);
  if (member.silence >= member.limits.warnFrozen)
    return identify(rank, cat("no heartbeat for ", secondsText(member.silence), last));
  double seconds = member.activity.seconds + member.silence;
  for (const auto &[what, gather] : gathers_)
    if (gather->values[rank])
      return identify(rank, cat("waiting in exchange '", what, "'"));
  if (member.activity.waiting)
    return identify(rank, cat("waiting for ", secondsText(seconds), " in ", member.activity.phase));
  if (member.activity.phase.starts_with("in user code")) // "…, after program gradient, step 7"
    return identify(rank, cat(member.activity.phase, ", for ", secondsText(seconds)));
  return identify(rank, cat("in user code for ", secondsText(seconds), last));
}

std::string Session::describe(const std::vector<int> &ranks) const {
  std::vector<std::string> texts;
  for (size_t i = 0; i < std::min(ranks.size(), kDescribedMax); ++i)
    texts.push_back(describe(ranks[i]));
  std::string text = joinWith(texts, ", ");
  if (ranks.size() > kDescribedMax)
    text += cat(" and ", ranks.size() - kDescribedMax, " more");
  return text;
}

Status Session::absent(std::string_view what, const Gather &gather, double seconds) const {
  std::vector<int> missing, left, arrived;
  for (int rank = 0; rank < world(); ++rank) {
    if (gather.values[rank])
      arrived.push_back(rank);
    else
      (members_[rank].left ? left : missing).push_back(rank);
  }
  if (!left.empty())
    return absl::UnavailableError(
        cat(describe(left), " left while ", rankList(arrived), " waited in exchange '", what, "'"));
  return absl::DeadlineExceededError(cat(rankList(missing), " did not answer in exchange '", what,
                                         "' within ", secondsText(seconds), ": ",
                                         describe(missing)));
}

bool Session::inGather(int rank) const {
  for (const auto &[what, gather] : gathers_)
    if (gather->values[rank])
      return true;
  return false;
}

void Session::tick(double seconds, std::vector<std::string> &warnings) {
  if (hasVerdict())
    return;
  if (!complete()) {
    tickBootstrap(seconds);
  } else {
    tickFrozen(seconds, warnings);
    tickGathers(seconds, warnings);
    tickWaits(seconds, warnings);
  }
}

void Session::tickBootstrap(double seconds) {
  std::vector<int> missing;
  double longest = 0.0;
  bool expired = false;
  for (int rank = 0; rank < world(); ++rank) {
    Member &member = members_[rank];
    if (!member.joined) {
      missing.push_back(rank);
      continue;
    }
    member.sinceJoin += seconds;
    if (member.sinceJoin >= member.limits.bootstrapTimeout) {
      expired = true;
      longest = std::max(longest, member.limits.bootstrapTimeout);
    }
  }
  if (!expired)
    return;
  std::string text =
      cat(rankList(missing), " of ", world(), " did not join within ", secondsText(longest),
          " (last phase seen: none, ", missing.size() == 1 ? "it" : "they",
          " never joined the store; ", kTimeToJoin, ")");
  if (!refusals_.empty())
    text += cat("; refused meanwhile: ", joinWith(refusals_, "; "));
  condemn(absl::DeadlineExceededError(text));
}

void Session::tickFrozen(double seconds, std::vector<std::string> &warnings) {
  for (int rank = 0; rank < world(); ++rank) {
    Member &member = members_[rank];
    if (member.left || member.dead)
      continue;
    member.silence += seconds;
    if (member.silence >= member.limits.warnFrozen && !member.warnedFrozen) {
      member.warnedFrozen = true;
      warnings.push_back(cat(describe(rank), " looks frozen; it has ",
                             secondsText(member.limits.stepTimeout - member.silence), " left"));
    }
    if (member.silence >= member.limits.stepTimeout)
      condemn(absl::DeadlineExceededError(
          cat(describe(rank), " is frozen: it did not answer within the step timeout of ",
              secondsText(member.limits.stepTimeout))));
  }
}

void Session::tickGathers(double seconds, std::vector<std::string> &warnings) {
  if (gathers_.empty() || pauses_ > 0 || hasVerdict())
    return;
  std::vector<int> inside;
  for (int rank = 0; rank < world(); ++rank)
    if (!members_[rank].left && inGather(rank))
      inside.push_back(rank);
  // Everyone waits, each for another exchange: no timeout can help. A little patience, because
  // other threads of the ranks may be on their way.
  if (inside.size() + gone_ == members_.size() && gathers_.size() > 1) {
    stuckInGathers_ += seconds;
    if (stuckInGathers_ >= members_[inside.front()].limits.warnFrozen) {
      std::vector<std::string> texts;
      for (const auto &[what, gather] : gathers_) {
        std::vector<int> ranks;
        for (int rank = 0; rank < world(); ++rank)
          if (gather->values[rank])
            ranks.push_back(rank);
        texts.push_back(cat(rankList(ranks), " in '", what, "'"));
        if (texts.size() == kDescribedMax)
          break;
      }
      condemn(
          absl::AbortedError(cat("ranks wait in different exchanges: ", joinWith(texts, ", "))));
      return;
    }
  }
  for (auto &[what, gather] : gathers_) {
    gather->elapsed += seconds;
    double warn = 0.0, timeout = 0.0;
    std::vector<int> missing;
    for (int rank = 0; rank < world(); ++rank) {
      if (!gather->values[rank]) {
        missing.push_back(rank);
        continue;
      }
      warn = std::max(warn, members_[rank].limits.warnWaiting);
      timeout = std::max(timeout, members_[rank].limits.stepTimeout);
    }
    if (gather->elapsed >= timeout) {
      condemn(absent(what, *gather, gather->elapsed));
      return;
    }
    if (gather->elapsed >= warn && !gather->warned) {
      gather->warned = true;
      warnings.push_back(cat("exchange '", what, "' waits for ", rankList(missing), " since ",
                             secondsText(gather->elapsed), ": ", describe(missing)));
    }
  }
}

void Session::tickWaits(double seconds, std::vector<std::string> &warnings) {
  if (pauses_ > 0 || hasVerdict())
    return;
  std::vector<int> waiting, user, left;
  for (int rank = 0; rank < world(); ++rank) {
    Member &member = members_[rank];
    if (member.left)
      left.push_back(rank);
    else if (member.activity.waiting)
      waiting.push_back(rank);
    else if (!inGather(rank))
      user.push_back(rank);
  }
  if (waiting.empty())
    return;
  bool warn = false, expired = false;
  double shortest = 1e300, longest = 0.0;
  int first = waiting.front();
  for (int rank : waiting) {
    Member &member = members_[rank];
    member.waited += seconds;
    shortest = std::min(shortest, member.waited);
    if (member.waited > longest) {
      longest = member.waited;
      first = rank;
    }
    warn |= member.waited >= member.limits.warnWaiting && !member.warnedWaiting;
    expired |= member.waited >= member.limits.stepTimeout;
  }
  const std::string &phase = members_[first].activity.phase;
  // Patience: what still moves between those who are left does not need the ones that are gone.
  if (user.empty() && !left.empty() && shortest >= members_[first].limits.warnWaiting) {
    condemn(absl::UnavailableError(
        cat(describe(left), " left while ", rankList(waiting), " waited in ", phase)));
    return;
  }
  std::vector<int> frozen;
  for (int rank = 0; rank < world(); ++rank)
    if (!members_[rank].left && members_[rank].silence >= members_[rank].limits.warnFrozen)
      frozen.push_back(rank);
  if (expired && !frozen.empty()) { // Whatever else they were doing, that is why the others wait.
    std::erase_if(waiting,
                  [&](int rank) { return std::count(frozen.begin(), frozen.end(), rank); });
    condemn(absl::DeadlineExceededError(cat(describe(frozen), frozen.size() == 1 ? " is" : " are",
                                            " frozen while ",
                                            waiting.empty() ? "all" : rankList(waiting),
                                            " waited for ", secondsText(longest), " in ", phase)));
    return;
  }
  if (expired) {
    condemn(absl::DeadlineExceededError(
        user.empty()
            ? cat("every rank waits, none for ranks in user code: ", describe(waiting))
            : cat(rankList(user), " did not answer within ", secondsText(longest), " while ",
                  rankList(waiting), " waited in ", phase, ": ", describe(user))));
    return;
  }
  if (!warn)
    return;
  for (int rank : waiting)
    members_[rank].warnedWaiting = true;
  warnings.push_back(
      user.empty() ? cat("every rank waits since ", secondsText(shortest), ": ", describe(waiting))
                   : cat(rankList(waiting), " waiting for ", secondsText(longest), " in ", phase,
                         "; missing: ", describe(user)));
}

} // namespace bagua::rt
