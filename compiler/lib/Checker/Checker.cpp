// Checks B100 to B120, and B160, on the expanded programs of all ranks.
#include "bagua/compiler/Checker.h"

#include "HappensBefore.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace bagua::compiler {
namespace {

using rt::BindValues;
using rt::ByteRange;
using rt::FlatProgram;
using rt::FlatStep;
using rt::Schedule;
using Kind = FlatStep::Kind;

absl::string_view nameOf(Kind kind) {
  switch (kind) {
  case Kind::Send:
    return "Send";
  case Kind::Recv:
    return "Recv";
  case Kind::Release:
    return "Release";
  case Kind::Launch:
    return "Launch";
  case Kind::Wait:
    return "Wait";
  case Kind::Publish:
    return "Publish";
  }
  return "?";
}

absl::string_view reasonOf(Order order) {
  switch (order) {
  case Order::Runs:
    return "runs";
  case Order::Queue:
    return "stands in its queue before";
  case Order::Event:
    return "signals";
  case Order::Arrival:
    return "sends to";
  case Order::Fifo:
    return "arrives before";
  case Order::Release:
    return "releases the message of";
  case Order::Credit:
    return "frees the slot of";
  }
  return "?";
}

/// Pairs of accesses that one case may compare: what real programs need, not what a hostile one
/// asks.
constexpr size_t kPairsMax = size_t{1} << 26;

/// One program at one (world, length, dtype, step): every rank's steps, by (rank, index).
class Case {
public:
  Case(const Schedule &schedule, const fb::ProgramT &program, int64_t world, int64_t length,
       fb::DType dtype, int64_t localSize, int64_t roundsAfter, CheckReport &report,
       size_t findingsMax,
       std::set<std::tuple<std::string, std::string, uint32_t, int, std::string>> &seen)
      : schedule_(schedule), program_(program), world_(world), length_(length), dtype_(dtype),
        localSize_(localSize), roundsAfter_(roundsAfter), report_(report),
        findingsMax_(findingsMax), seen_(seen) {}

  /// False if a rank's program does not expand.
  bool expand(bool reportFailure = true);
  bool dependsOnStep() const;
  /// Looks at a step; at one in which all guards, peers and costs are as in an earlier one, not
  /// again.
  void checkAt(int64_t step);
  /// Pairs only, at step 0.
  void checkPairs();

private:
  struct Active {
    bool active = true; ///< Its guard holds.
    int64_t peer = -1;
    uint32_t partner = UINT32_MAX;    ///< Send: global number of its Recv, and the other way round.
    uint32_t releasedBy = UINT32_MAX; ///< Recv: global number of its Release.
  };

  void report(absl::string_view code, int64_t rank, const FlatStep *step, absl::string_view kind,
              const std::string &message);
  BindValues bindValues(int64_t rank) const;
  uint32_t global(int64_t rank, size_t index) const {
    return firstStep_[static_cast<size_t>(rank)] + static_cast<uint32_t>(index);
  }
  int64_t rankOf(uint32_t step) const;
  const FlatStep &stepOf(uint32_t step) const {
    int64_t rank = rankOf(step);
    return ranks_[static_cast<size_t>(rank)].steps[step - firstStep_[static_cast<size_t>(rank)]];
  }
  std::string describe(uint32_t step) const;
  std::string eventName(int64_t rank, uint32_t event) const;

  bool activate();
  bool pair();
  void checkWireBytes();
  bool buildOrder(HappensBefore &order, bool rendezvous, bool reportMissing);
  bool checkWaits();
  void checkRaces();
  void checkRacesOfRank(int64_t rank, const HappensBefore &order);
  void checkAliasing(int64_t rank, const FlatStep &step);
  void checkJobAccess(int64_t rank, const HappensBefore &order);
  void checkStates(int64_t rank, const HappensBefore &order);
  void checkBesideRounds();

  static uint32_t issued(uint32_t step) { return 2 * step; }
  static uint32_t done(uint32_t step) { return 2 * step + 1; }

  const Schedule &schedule_;
  const fb::ProgramT &program_;
  int64_t world_, length_;
  fb::DType dtype_;
  int64_t localSize_;
  int64_t roundsAfter_; ///< From this step on, rounds that begin by the clock may be under way.
  int64_t step_ = 0;
  CheckReport &report_;
  size_t findingsMax_;
  std::set<std::tuple<std::string, std::string, uint32_t, int, std::string>> &seen_;
  std::vector<FlatProgram> ranks_;
  std::vector<uint32_t> firstStep_;
  std::vector<Active> active_;             ///< By global step number.
  std::vector<int64_t> wireBytes_;         ///< By rank: what the program promises for the step.
  std::set<std::vector<int64_t>> checked_; ///< What decides a step, of those looked at.
  size_t pairsLeft_ = kPairsMax;
};

/// Reports the first case of what is the same finding: same code, line, kind of step, kind of
/// fault. A cycle may be met at any of its steps, so one of a program is enough.
void Case::report(absl::string_view code, int64_t rank, const FlatStep *step,
                  absl::string_view kind, const std::string &message) {
  const FlatStep *place = kind == "cycle" ? nullptr : step;
  if (report_.findings.size() >= findingsMax_ ||
      !seen_
           .emplace(std::string(code), program_.name, place ? place->location : rt::kNone,
                    place ? static_cast<int>(place->kind) : -1, std::string(kind))
           .second)
    return;
  Finding finding;
  finding.code = std::string(code);
  finding.message = message;
  finding.program = program_.name;
  finding.world = world_;
  finding.length = length_;
  finding.dtype = dtype_;
  finding.step = step_;
  finding.rank = rank;
  if (step) {
    const auto &steps = ranks_[static_cast<size_t>(rank)].steps;
    finding.hasStep = true;
    finding.queue = step->queue;
    finding.index = static_cast<size_t>(step - steps.data());
    finding.location = schedule_.location(step->location);
  }
  report_.findings.push_back(std::move(finding));
}

BindValues Case::bindValues(int64_t rank) const {
  BindValues values;
  values.world = world_;
  values.rank = rank;
  values.localSize = localSize_;
  values.localRank = rank % localSize_;
  values.nodes = world_ / localSize_;
  values.length = length_;
  values.dtype = dtype_;
  return values;
}

int64_t Case::rankOf(uint32_t step) const {
  return std::upper_bound(firstStep_.begin(), firstStep_.end(), step) - firstStep_.begin() - 1;
}

std::string Case::describe(uint32_t number) const {
  const FlatStep &step = stepOf(number);
  std::string text = absl::StrCat("rank ", rankOf(number), " ", nameOf(step.kind));
  if (step.kind == Kind::Launch)
    absl::StrAppend(&text, " ", schedule_.ir().kernels[step.kernel]->name);
  if (step.kind == Kind::Send)
    absl::StrAppend(&text, " to rank ", active_[number].peer);
  if (step.kind == Kind::Recv)
    absl::StrAppend(&text, " from rank ", active_[number].peer);
  if (step.kind == Kind::Recv || step.kind == Kind::Release)
    absl::StrAppend(&text, " ", program_.slots[step.range.id]->name, "[", step.range.index, "]");
  return absl::StrCat(text, " (", schedule_.location(step.location), ")");
}

std::string Case::eventName(int64_t rank, uint32_t event) const {
  const FlatProgram &flat = ranks_[static_cast<size_t>(rank)];
  BAGUA_CHECK(event < flat.eventCount);
  for (size_t i = program_.events.size(); i-- > 0;)
    if (event >= flat.firstEvent[i])
      return absl::StrCat(program_.events[i]->name, "[", event - flat.firstEvent[i], "]");
  return "?";
}

bool Case::expand(bool reportFailure) {
  firstStep_ = {0};
  for (int64_t rank = 0; rank < world_; ++rank) {
    auto flat = rt::expand(schedule_, program_, bindValues(rank));
    if (!flat.ok()) {
      ranks_.clear();
      if (reportFailure)
        report("B100", rank, nullptr, "expand", std::string(flat.status().message()));
      return false;
    }
    firstStep_.push_back(firstStep_.back() + static_cast<uint32_t>(flat->steps.size()));
    ranks_.push_back(*std::move(flat));
  }
  return true;
}

bool Case::dependsOnStep() const {
  for (const FlatProgram &flat : ranks_) {
    if (!flat.wireBytes.isConstant)
      return true;
    for (const FlatStep &step : flat.steps)
      if ((step.guarded && !step.guard.isConstant) || !step.peer.isConstant)
        return true;
  }
  return false;
}

bool Case::activate() {
  active_.assign(firstStep_.back(), Active());
  wireBytes_.assign(static_cast<size_t>(world_), 0);
  rt::StepValues values;
  values.step = step_;
  for (int64_t rank = 0; rank < world_; ++rank) {
    BindValues bind = bindValues(rank);
    const auto &steps = ranks_[static_cast<size_t>(rank)].steps;
    auto promised =
        rt::evaluateInt(schedule_, ranks_[static_cast<size_t>(rank)].wireBytes, bind, values);
    if (!promised.ok()) {
      report("B100", rank, nullptr, "wire_bytes", std::string(promised.status().message()));
      return false;
    }
    wireBytes_[static_cast<size_t>(rank)] = *promised;
    for (size_t i = 0; i < steps.size(); ++i) {
      const FlatStep &step = steps[i];
      Active &active = active_[global(rank, i)];
      if (step.guarded) {
        auto guard = rt::evaluateInt(schedule_, step.guard, bind, values);
        if (!guard.ok()) {
          report("B100", rank, &step, "guard", std::string(guard.status().message()));
          return false;
        }
        active.active = *guard != 0;
      }
      if (!active.active || (step.kind != Kind::Send && step.kind != Kind::Recv))
        continue;
      auto peer = rt::evaluateInt(schedule_, step.peer, bind, values);
      if (!peer.ok()) {
        report("B100", rank, &step, "peer", std::string(peer.status().message()));
        return false;
      }
      active.peer = *peer;
      if (*peer < 0 || *peer >= world_ || *peer == rank) {
        report("B101", rank, &step, "peer",
               absl::StrCat(nameOf(step.kind), ": peer is ", *peer,
                            ", expected another rank below ", world_));
        return false;
      }
    }
  }
  return true;
}

/// B101 and B102. False if some message has only one end.
bool Case::pair() {
  struct Ends {
    std::vector<uint32_t> sends, recvs;
  };
  std::map<std::tuple<uint32_t, int64_t, int64_t>, Ends> channels; // channel, source, target
  for (uint32_t number = 0; number < active_.size(); ++number) {
    const Active &active = active_[number];
    if (!active.active || active.peer < 0)
      continue;
    const FlatStep &step = stepOf(number);
    int64_t rank = rankOf(number);
    if (step.kind == Kind::Send)
      channels[{step.channel, rank, active.peer}].sends.push_back(number);
    else
      channels[{step.channel, active.peer, rank}].recvs.push_back(number);
  }
  bool complete = true;
  for (const auto &[key, ends] : channels) {
    auto [channel, source, target] = key;
    size_t both = std::min(ends.sends.size(), ends.recvs.size());
    for (size_t i = 0; i < both; ++i) {
      uint32_t send = ends.sends[i], recv = ends.recvs[i];
      active_[send].partner = recv;
      active_[recv].partner = send;
      const FlatStep &sent = stepOf(send), &received = stepOf(recv);
      if (sent.range.bytes != received.range.bytes)
        report("B102", source, &sent, "bytes",
               absl::StrCat("Send of ", sent.range.bytes, " bytes to rank ", target,
                            ", whose Recv (", schedule_.location(received.location), ") expects ",
                            received.range.bytes));
    }
    for (size_t i = both; i < ends.sends.size(); ++i) {
      complete = false;
      const FlatStep &sent = stepOf(ends.sends[i]);
      report("B101", source, &sent, "send",
             absl::StrCat("Send of ", sent.range.bytes, " bytes to rank ", target, " on channel ",
                          channel, " has no Recv: rank ", target, " has ", ends.recvs.size(),
                          " from rank ", source, ", which sends ", ends.sends.size()));
    }
    for (size_t i = both; i < ends.recvs.size(); ++i) {
      complete = false;
      const FlatStep &received = stepOf(ends.recvs[i]);
      report("B101", target, &received, "recv",
             absl::StrCat("Recv of ", received.range.bytes, " bytes from rank ", source,
                          " on channel ", channel, " has no Send: rank ", source, " has ",
                          ends.sends.size(), " to rank ", target, ", which receives ",
                          ends.recvs.size()));
    }
  }
  return complete;
}

/// B103.
void Case::checkWireBytes() {
  for (int64_t rank = 0; rank < world_; ++rank) {
    const FlatProgram &flat = ranks_[static_cast<size_t>(rank)];
    int64_t bytes = 0, promised = wireBytes_[static_cast<size_t>(rank)];
    for (size_t i = 0; i < flat.steps.size(); ++i)
      if (flat.steps[i].kind == Kind::Send && active_[global(rank, i)].active)
        bytes += static_cast<int64_t>(flat.steps[i].range.bytes);
    if (bytes != promised)
      report("B103", rank, nullptr, "wire_bytes",
             absl::StrCat("sends ", bytes, " bytes, but wire_bytes is ", promised));
  }
}

/// Adds every order that any transport keeps; with `rendezvous`, also that a send is done only when
/// its receiver has released it. False if a step waits for what never comes.
bool Case::buildOrder(HappensBefore &order, bool rendezvous, bool reportMissing) {
  bool complete = true;
  std::map<std::tuple<uint32_t, int64_t, int64_t>, uint32_t> lastArrival;
  for (int64_t rank = 0; rank < world_; ++rank) {
    const FlatProgram &flat = ranks_[static_cast<size_t>(rank)];
    std::vector<uint32_t> signaller(flat.eventCount, UINT32_MAX);
    for (size_t i = 0; i < flat.steps.size(); ++i)
      if (flat.steps[i].signal != rt::kNone)
        signaller[flat.steps[i].signal] = global(rank, i);
    uint32_t lastOnQueue[2] = {UINT32_MAX, UINT32_MAX};
    std::map<std::pair<uint32_t, uint32_t>, uint32_t> holder;      // Slot -> Recv.
    std::map<std::pair<uint32_t, uint32_t>, uint32_t> lastRelease; // Slot -> Release.
    for (size_t i = 0; i < flat.steps.size(); ++i) {
      const FlatStep &step = flat.steps[i];
      uint32_t number = global(rank, i);
      Active &active = active_[number];
      order.add(issued(number), done(number), Order::Runs);
      uint32_t &last = lastOnQueue[static_cast<size_t>(step.queue)];
      if (last != UINT32_MAX)
        order.add(step.queue == fb::Queue::Cpu ? done(last) : issued(last), issued(number),
                  Order::Queue);
      last = number;
      for (uint32_t event : step.waits) {
        if (signaller[event] != UINT32_MAX) {
          order.add(done(signaller[event]), issued(number), Order::Event);
          continue;
        }
        complete = false;
        if (reportMissing)
          report("B110", rank, &step, "unsignalled",
                 absl::StrCat(nameOf(step.kind), " waits for event ", eventName(rank, event),
                              ", which no step signals"));
      }
      if (!active.active)
        continue;
      std::pair<uint32_t, uint32_t> slot = {step.range.id, step.range.index};
      if (step.kind == Kind::Recv) {
        if (auto freed = lastRelease.find(slot); freed != lastRelease.end())
          order.add(done(freed->second), issued(number), Order::Credit);
        holder[slot] = number;
        active.releasedBy = UINT32_MAX;
        order.add(issued(active.partner), done(number), Order::Arrival);
        auto [previous, isFirst] =
            lastArrival.try_emplace({step.channel, active.peer, rank}, number);
        if (!isFirst) {
          order.add(done(previous->second), done(number), Order::Fifo);
          previous->second = number;
        }
      } else if (step.kind == Kind::Release) {
        if (auto held = holder.find(slot); held != holder.end()) {
          active_[held->second].releasedBy = number;
          holder.erase(held);
        }
        lastRelease[slot] = number;
      }
    }
  }
  for (uint32_t number = 0; number < active_.size(); ++number) {
    const Active &active = active_[number];
    if (!active.active || stepOf(number).kind != Kind::Recv)
      continue;
    if (active.releasedBy != UINT32_MAX) {
      if (rendezvous)
        order.add(done(active.releasedBy), done(active.partner), Order::Release);
      continue;
    }
    complete = false;
    if (reportMissing)
      report("B110", rankOf(number), &stepOf(number), "unreleased",
             absl::StrCat("Recv into ", program_.slots[stepOf(number).range.id]->name, "[",
                          stepOf(number).range.index, "] is never released: the Send of rank ",
                          active.peer, " (", schedule_.location(stepOf(active.partner).location),
                          ") is never done"));
  }
  return complete;
}

/// B110.
bool Case::checkWaits() {
  HappensBefore order(2 * active_.size());
  bool complete = buildOrder(order, /*rendezvous=*/true, /*reportMissing=*/true);
  std::vector<HappensBefore::Edge> cycle = order.findCycle();
  if (cycle.empty())
    return complete;
  // Name the steps, not both instants of each.
  std::string text = "cyclic wait: ";
  size_t named = 0;
  uint32_t at = cycle.front().before / 2;
  for (const HappensBefore::Edge &edge : cycle) {
    if (edge.before / 2 == edge.after / 2)
      continue;
    if (named++ == 8) {
      absl::StrAppend(&text, "…, which ");
      break;
    }
    at = edge.before / 2;
    absl::StrAppend(&text, describe(at), " ", reasonOf(edge.order), " ");
  }
  absl::StrAppend(&text, "the first again");
  at = cycle.front().before / 2;
  report("B110", rankOf(at), &stepOf(at), "cycle", text);
  return false;
}

/// B120, on the graph without rendezvous: a transport that copies says "sent" at once. Where views
/// are the sender's memory, the peer reads between arrival and release, `sent` follows the release,
/// and so the order of a send with the writes around it covers the peer's reads too.
void Case::checkRaces() {
  if (2 * active_.size() > HappensBefore::kReachNodesMax) {
    ++report_.casesWithoutRaces;
    return;
  }
  HappensBefore order(2 * active_.size());
  buildOrder(order, /*rendezvous=*/false, /*reportMissing=*/false);
  order.computeReach();
  pairsLeft_ = kPairsMax;
  for (int64_t rank = 0; rank < world_; ++rank) {
    checkRacesOfRank(rank, order);
    checkJobAccess(rank, order);
    checkStates(rank, order);
  }
  if (pairsLeft_ == 0)
    ++report_.casesWithoutRaces;
}

std::string rangeText(const ByteRange &range) {
  return absl::StrCat("[", range.offset, ", ", range.offset + range.bytes, ")");
}

bool overlap(const ByteRange &a, const ByteRange &b) {
  return a.bytes != 0 && b.bytes != 0 && a.offset < b.offset + b.bytes &&
         b.offset < a.offset + a.bytes;
}

void Case::checkRacesOfRank(int64_t rank, const HappensBefore &order) {
  const FlatProgram &flat = ranks_[static_cast<size_t>(rank)];
  struct Access {
    uint32_t step;
    bool isWrite;
    ByteRange range;
  };
  std::vector<std::vector<Access>> buffers(program_.buffers.size());
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> holder;
  std::map<uint32_t, std::vector<uint32_t>> readers; // Recv -> Launches.
  for (size_t i = 0; i < flat.steps.size(); ++i) {
    const FlatStep &step = flat.steps[i];
    uint32_t number = global(rank, i);
    if (!active_[number].active)
      continue;
    switch (step.kind) {
    case Kind::Send:
      buffers[step.range.id].push_back({number, false, step.range});
      break;
    case Kind::Recv:
      holder[{step.range.id, step.range.index}] = number;
      break;
    case Kind::Launch:
      for (const ByteRange &range : step.outputs)
        buffers[range.id].push_back({number, true, range});
      for (const ByteRange &range : step.inputs) {
        if (range.space == fb::Space::Buffer)
          buffers[range.id].push_back({number, false, range});
        else if (auto held = holder.find({range.id, range.index});
                 held != holder.end() && range.bytes != 0)
          readers[held->second].push_back(number);
      }
      checkAliasing(rank, step);
      break;
    case Kind::Release:
    case Kind::Wait:
    case Kind::Publish:
      break;
    }
  }
  for (const auto &[recv, launches] : readers)
    for (uint32_t launch : launches) {
      if (!order.before(done(recv), issued(launch)))
        report("B120", rank, &stepOf(launch), "arrival",
               absl::StrCat(describe(launch), " reads the message of ", describe(recv),
                            " and does not wait for its arrival"));
      uint32_t release = active_[recv].releasedBy;
      if (release != UINT32_MAX && !order.before(done(launch), issued(release)))
        report("B120", rank, &stepOf(release), "release",
               absl::StrCat(describe(release), " does not wait for ", describe(launch),
                            ", which reads the message"));
    }
  for (size_t buffer = 0; buffer < buffers.size(); ++buffer) {
    auto &accesses = buffers[buffer];
    std::sort(accesses.begin(), accesses.end(), [](const Access &a, const Access &b) {
      return std::tie(a.range.offset, a.step, a.isWrite) <
             std::tie(b.range.offset, b.step, b.isWrite);
    });
    for (size_t i = 0; i < accesses.size(); ++i)
      for (size_t k = i + 1;
           k < accesses.size() && pairsLeft_ != 0 &&
           accesses[k].range.offset < accesses[i].range.offset + accesses[i].range.bytes;
           ++k, --pairsLeft_) {
        const Access *a = &accesses[i], *b = &accesses[k];
        if (a->step == b->step || (!a->isWrite && !b->isWrite) || !overlap(a->range, b->range) ||
            order.before(done(a->step), issued(b->step)) ||
            order.before(done(b->step), issued(a->step)))
          continue;
        if (a->step > b->step)
          std::swap(a, b);
        auto verb = [](const Access &access) { return access.isWrite ? " writes " : " reads "; };
        report("B120", rank, &stepOf(b->step), absl::StrCat("race ", stepOf(a->step).location),
               absl::StrCat("race on '", program_.buffers[buffer]->name, "': ", describe(b->step),
                            verb(*b), rangeText(b->range), " and ", describe(a->step), verb(*a),
                            rangeText(a->range), ", in no order"));
      }
  }
}

/// An output may be exactly an input; anything else shared depends on the kernel's order of work.
void Case::checkAliasing(int64_t rank, const FlatStep &step) {
  size_t pairs = step.outputs.size() * (step.inputs.size() + step.outputs.size());
  pairsLeft_ -= std::min(pairs, pairsLeft_);
  if (pairsLeft_ == 0)
    return;
  for (size_t i = 0; i < step.outputs.size(); ++i) {
    const ByteRange &output = step.outputs[i];
    for (const ByteRange &input : step.inputs)
      if (input.space == fb::Space::Buffer && input.id == output.id && overlap(input, output) &&
          (input.offset != output.offset || input.bytes != output.bytes))
        report("B120", rank, &step, "alias",
               absl::StrCat("Launch ", schedule_.ir().kernels[step.kernel]->name, " writes ",
                            rangeText(output), " of '", program_.buffers[output.id]->name,
                            "' and reads ", rangeText(input), ": they overlap in part"));
    for (size_t k = 0; k < i; ++k)
      if (step.outputs[k].id == output.id && overlap(step.outputs[k], output))
        report("B120", rank, &step, "outputs",
               absl::StrCat("Launch ", schedule_.ir().kernels[step.kernel]->name,
                            " writes bytes of '", program_.buffers[output.id]->name, "' twice"));
  }
}

/// The job reads weights until its gate opens, and has gradients only between their program's end
/// and the next bucket-ready.
void Case::checkJobAccess(int64_t rank, const HappensBefore &order) {
  const FlatProgram &flat = ranks_[static_cast<size_t>(rank)];
  std::vector<uint32_t> gates;
  for (size_t i = 0; i < flat.steps.size(); ++i)
    if (flat.steps[i].kind == Kind::Wait && active_[global(rank, i)].active)
      gates.push_back(global(rank, i));
  auto isJob = [&](const ByteRange &range, fb::Role role) {
    return range.space == fb::Space::Buffer &&
           program_.buffers[range.id]->kind == fb::BufferKind::Job &&
           program_.buffers[range.id]->role == role && range.bytes != 0;
  };
  for (size_t i = 0; i < flat.steps.size(); ++i) {
    const FlatStep &step = flat.steps[i];
    uint32_t number = global(rank, i);
    if (!active_[number].active || (step.kind != Kind::Launch && step.kind != Kind::Send))
      continue;
    std::vector<ByteRange> all = step.inputs;
    all.insert(all.end(), step.outputs.begin(), step.outputs.end());
    if (step.kind == Kind::Send)
      all.push_back(step.range);
    for (const ByteRange &range : all)
      if (program_.event != fb::Event::Gradient && isJob(range, fb::Role::Gradient))
        report("B120", rank, &step, "gradient",
               absl::StrCat(describe(number), " uses the gradient, which the job owns at ",
                            fb::EnumNameEvent(program_.event)));
    if (program_.event == fb::Event::AfterUpdate || program_.event == fb::Event::Async)
      continue; // The job waits, or has handed over a snapshot.
    bool isGated = step.ifFinite || std::any_of(gates.begin(), gates.end(), [&](uint32_t gate) {
                     return order.before(done(gate), issued(number));
                   });
    for (const ByteRange &range : step.outputs)
      if (!isGated && isJob(range, fb::Role::Weight))
        report("B120", rank, &step, "gate",
               absl::StrCat(describe(number), " writes weights that the job still reads, expected a"
                                              " Wait for BeforeUpdate before it"));
  }
}

/// A state is complete when it is published, and as it is then until the program ends.
void Case::checkStates(int64_t rank, const HappensBefore &order) {
  const FlatProgram &flat = ranks_[static_cast<size_t>(rank)];
  std::map<uint32_t, uint32_t> publishes; // State -> Publish.
  for (size_t i = 0; i < flat.steps.size(); ++i) {
    const FlatStep &step = flat.steps[i];
    uint32_t number = global(rank, i);
    if (step.kind != Kind::Publish || !active_[number].active)
      continue;
    auto [previous, isFirst] = publishes.try_emplace(step.state, number);
    if (!isFirst)
      report("B120", rank, &step, "publish twice",
             absl::StrCat(describe(number), " publishes a state again, after ",
                          describe(previous->second)));
  }
  for (size_t i = 0; i < flat.steps.size() && !publishes.empty(); ++i) {
    const FlatStep &step = flat.steps[i];
    uint32_t number = global(rank, i);
    if (step.kind != Kind::Launch || !active_[number].active)
      continue;
    for (const ByteRange &range : step.outputs) {
      const fb::BufferT &buffer = *program_.buffers[range.id];
      if (buffer.kind != fb::BufferKind::State || !buffer.next || range.bytes == 0)
        continue;
      auto publish = publishes.find(buffer.state);
      if (publish != publishes.end() && !order.before(done(number), issued(publish->second)))
        report("B120", rank, &step, "publish",
               absl::StrCat(describe(number), " writes '", buffer.name, "' and is not done before ",
                            describe(publish->second)));
    }
  }
}

/// B160. A rank that waits for a timed round at the staleness bound waits for one that has not
/// begun it, and that must not wait for the first.
void Case::checkBesideRounds() {
  if (world_ == 1 || program_.event == fb::Event::Async ||
      (step_ < roundsAfter_ && (roundsAfter_ == INT64_MAX || dependsOnStep())))
    return;
  constexpr absl::string_view kWhy = "while a timed round may be under way: a rank that has not "
                                     "begun it would wait for one that waits for it";
  if (program_.event == fb::Event::AfterUpdate)
    report("B160", 0, nullptr, "after_update",
           absl::StrCat("runs only once all ranks agree that the step is finite, ", kWhy));
  for (uint32_t number = 0; number < active_.size(); ++number) {
    const FlatStep &step = stepOf(number);
    if (active_[number].active && (step.kind == Kind::Send || step.ifFinite))
      report("B160", rankOf(number), &step, "beside",
             absl::StrCat(describe(number),
                          step.ifFinite ? " waits for whether the step is finite on all ranks, "
                                        : " waits for its peer in a step, ",
                          kWhy));
  }
}

void Case::checkPairs() {
  if (activate())
    pair();
}

void Case::checkAt(int64_t step) {
  step_ = step;
  ++report_.cases;
  if (!activate())
    return;
  checkBesideRounds();
  std::vector<int64_t> deciding = wireBytes_;
  for (const Active &active : active_)
    deciding.push_back(active.active ? active.peer : INT64_MIN);
  if (!checked_.insert(std::move(deciding)).second)
    return;
  if (!pair())
    return; // What follows would only repeat it.
  checkWireBytes();
  if (checkWaits())
    checkRaces();
}

/// The schedule with its transfers only, each message released at once: what pairs up can be said
/// even where the uses of the messages are wrong.
std::vector<std::unique_ptr<fb::StepT>>
transfersOf(const std::vector<std::unique_ptr<fb::StepT>> &steps) {
  std::vector<std::unique_ptr<fb::StepT>> result;
  auto add = [&](const fb::StepT &like, auto action) {
    auto step = std::make_unique<fb::StepT>();
    step->queue = fb::Queue::Net;
    step->guard = like.guard;
    step->location = like.location;
    step->action.Set(std::move(action));
    result.push_back(std::move(step));
  };
  for (const auto &step : steps) {
    if (const fb::ForT *loop = step->action.AsFor()) {
      fb::ForT copy;
      copy.variable = loop->variable;
      copy.lower = loop->lower;
      copy.upper = loop->upper;
      copy.body = transfersOf(loop->body);
      add(*step, std::move(copy));
    } else if (const fb::IfT *branch = step->action.AsIf()) {
      fb::IfT copy;
      copy.condition = branch->condition;
      copy.then = transfersOf(branch->then);
      copy.otherwise = transfersOf(branch->otherwise);
      add(*step, std::move(copy));
    } else if (const fb::SendT *send = step->action.AsSend()) {
      add(*step, fb::SendT(*send));
    } else if (const fb::RecvT *recv = step->action.AsRecv()) {
      add(*step, fb::RecvT(*recv));
      fb::ReleaseT release;
      release.slots = recv->slots;
      release.index = recv->index;
      add(*step, release);
    }
  }
  return result;
}

/// Null if it does not read back (it grew beyond a limit).
std::shared_ptr<const Schedule> transfersOf(const Schedule &schedule) {
  fb::ScheduleT copy = schedule.ir();
  for (auto &program : copy.programs)
    program->body = transfersOf(program->body);
  auto bytes = rt::serialize(copy);
  if (!bytes.ok())
    return nullptr;
  auto result = Schedule::fromBytes(*bytes);
  return result.ok() ? *std::move(result) : nullptr;
}

bool uses(const Schedule &schedule, std::initializer_list<fb::ExprOp> ops) {
  for (const auto &expr : schedule.ir().expressions)
    if (std::find(ops.begin(), ops.end(), expr->op) != ops.end())
      return true;
  return false;
}

/// Steps at which a program that depends on the step is looked at, besides those of the options: a
/// period of the pairings, and where a comparison or remainder with a number of the file may turn.
std::vector<int64_t> stepsOf(const Schedule &schedule, int64_t world) {
  constexpr int64_t kNumberMax = int64_t{1} << 40; // Sizes are no steps.
  constexpr size_t kNumbersMax = 256;
  std::vector<int64_t> steps;
  for (int64_t step = 0; step < std::max<int64_t>(16, 2 * world); ++step)
    steps.push_back(step);
  std::set<int64_t> numbers;
  for (const auto &expr : schedule.ir().expressions)
    if (expr->op == fb::ExprOp::ConstInt)
      numbers.insert(expr->value);
  for (const auto &parameter : schedule.ir().parameters)
    if (!parameter->is_float)
      numbers.insert(parameter->default_int);
  size_t used = 0;
  for (int64_t number : numbers)
    if (number > 0 && number < kNumberMax && used++ < kNumbersMax)
      for (int64_t step : {number - 1, number, number + 1, 2 * number})
        steps.push_back(step);
  return steps;
}

/// A state that two programs write would be written by both at once. No case of its own.
void checkWriters(const Schedule &schedule, CheckReport &report) {
  std::map<uint32_t, const fb::ProgramT *> writers;
  for (const auto &program : schedule.ir().programs)
    for (const auto &buffer : program->buffers) {
      if (buffer->kind != fb::BufferKind::State || !buffer->next)
        continue;
      auto [writer, isFirst] = writers.try_emplace(buffer->state, program.get());
      if (isFirst)
        continue;
      Finding finding;
      finding.code = "B120";
      finding.program = program->name;
      finding.message = absl::StrCat("writes state '", schedule.ir().states[buffer->state]->name,
                                     "', as program '", writer->second->name, "' does");
      report.findings.push_back(std::move(finding));
    }
}

/// The first step beside which rounds that begin by the clock may be under way, INT64_MAX if there
/// are none.
int64_t timedRoundsAfter(const Schedule &schedule, int64_t world) {
  const fb::ProgramT *program = schedule.program(fb::Event::Async);
  if (!program || program->every_unit != fb::IntervalUnit::Milliseconds)
    return INT64_MAX;
  BindValues values;
  values.world = world;
  values.localSize = world;
  auto flat = rt::expand(schedule, *program, values);
  return flat.ok() ? flat->after : 0; // What is wrong with it is found there.
}

std::vector<int64_t> sortedUnique(std::vector<int64_t> values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  std::erase_if(values, [](int64_t value) { return value < 0; });
  return values;
}

constexpr int64_t kPrime = 999983;

} // namespace

std::string Finding::text() const {
  std::string text =
      absl::StrCat(code, " program '", program, "', world ", world, ", length ", length, ", ",
                   fb::EnumNameDType(dtype), ", step ", step, ", rank ", rank);
  if (hasStep)
    absl::StrAppend(&text, ", queue ", fb::EnumNameQueue(queue), ", step ", index, " (", location,
                    ")");
  return absl::StrCat(text, ": ", message);
}

rt::StatusOr<CheckReport> check(const Schedule &schedule, const CheckOptions &options) {
  auto badOption = [](const std::string &what) {
    return absl::InvalidArgumentError("check: " + what);
  };
  if (options.worldMax < 0 || options.worldMax > CheckOptions::kWorldLimit)
    return badOption(absl::StrCat("worlds up to ", options.worldMax, ", expected 0 to ",
                                  CheckOptions::kWorldLimit));
  for (int64_t world : options.worlds)
    if (world < 1 || world > CheckOptions::kWorldLimit)
      return badOption(
          absl::StrCat("world ", world, ", expected 1 to ", CheckOptions::kWorldLimit));
  for (int64_t length : options.lengths)
    if (length < 0)
      return badOption(absl::StrCat("length ", length, ", expected at least 0"));
  for (int64_t step : options.steps)
    if (step < 0)
      return badOption(absl::StrCat("step ", step, ", expected at least 0"));

  std::vector<int64_t> worlds = options.worlds;
  for (int64_t world = 1; world <= options.worldMax; ++world)
    worlds.push_back(world);
  worlds = sortedUnique(std::move(worlds));
  int64_t grain = schedule.ir().grain;
  bool hasHosts = uses(schedule, {fb::ExprOp::LocalRank, fb::ExprOp::LocalSize, fb::ExprOp::Nodes});

  CheckReport report;
  std::shared_ptr<const Schedule> transfers; // Made when needed.
  std::set<std::tuple<std::string, std::string, uint32_t, int, std::string>> seen;
  checkWriters(schedule, report);
  for (const auto &program : schedule.ir().programs)
    for (int64_t world : worlds) {
      std::vector<int64_t> lengths = options.lengths;
      if (lengths.empty() && world <= options.worldMax)
        lengths = {0, 1, 31, grain - 1, grain, grain + 1, grain * world, grain * world + 1, kPrime};
      else if (lengths.empty())
        lengths = {1, grain * world + 1, kPrime};
      std::vector<int64_t> localSizes = {world};
      if (hasHosts)
        for (int64_t size = 1; size < world; ++size)
          if (world % size == 0)
            localSizes.push_back(size);
      int64_t roundsAfter = timedRoundsAfter(schedule, world);
      std::vector<int64_t> steps = stepsOf(schedule, world);
      if (roundsAfter != INT64_MAX)
        steps.push_back(roundsAfter);
      steps.insert(steps.end(), options.steps.begin(), options.steps.end());
      steps = sortedUnique(std::move(steps));
      for (int64_t length : sortedUnique(std::move(lengths)))
        for (fb::DType dtype : schedule.ir().dtypes)
          for (int64_t localSize : localSizes) {
            Case current(schedule, *program, world, length, dtype, localSize, roundsAfter, report,
                         options.findingsMax, seen);
            if (!current.expand()) {
              ++report.cases;
              if (!transfers)
                transfers = transfersOf(schedule);
              if (!transfers)
                continue;
              size_t index = static_cast<size_t>(&program - schedule.ir().programs.data());
              Case pairs(*transfers, *transfers->ir().programs[index], world, length, dtype,
                         localSize, roundsAfter, report, options.findingsMax, seen);
              if (pairs.expand(/*reportFailure=*/false))
                pairs.checkPairs();
              continue;
            }
            if (!current.dependsOnStep())
              current.checkAt(0);
            else
              for (int64_t step : steps)
                current.checkAt(step);
          }
    }
  return report;
}

} // namespace bagua::compiler
