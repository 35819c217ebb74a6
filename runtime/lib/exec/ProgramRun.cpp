// The executor's inner loop.
#include "ProgramRun.h"

#include "bagua/Clock.h"

#include "absl/strings/str_cat.h"

#include <algorithm>

namespace bagua::rt {

ProgramRun::ProgramRun(Plan plan, Workers &workers, States &states)
    : plan_(std::move(plan)), workers_(workers), states_(states), job_(workers.makeJob()) {
  events_.assign(plan_.eventCount, 0);
  slots_.assign(plan_.slotCount, {});
  size_t transfers = plan_.transfers.size();
  sends_.resize(transfers);
  recvs_.resize(transfers);
  ends_.resize(transfers);
  peers_.resize(transfers);
  issuedNs_.resize(transfers);
  for (size_t i = 0; i < transfers; ++i) {
    ends_[i] = plan_.transfers[i].ends;
    peers_[i] = plan_.transfers[i].peer;
  }
  inFlight_.reserve(transfers);
  gateSignals_.reserve(plan_.queues[static_cast<size_t>(fb::Queue::Net)].size());
}

ProgramRun::~ProgramRun() {
  cancel();
  workers_.freeJob(job_);
}

Status ProgramRun::begin(PollContext &) {
  if (++epoch_ == 0) { // After 2^32 runs.
    std::fill(events_.begin(), events_.end(), 0);
    epoch_ = 1;
  }
  bytesSent_ = 0;
  finished_ = standsAtGate_ = false;
  if (statesVersion_ != states_.version()) {
    plan_.patchStates(states_);
    statesVersion_ = states_.version();
  }
  for (const Plan::StepValue &value : plan_.stepValues) {
    if (value.guard != kNone && plan_.guards[value.guard] == 0)
      continue;
    if (value.use == Plan::StepValue::Use::Scalar) {
      StatusOr<double> scalar =
          evaluateFloat(*plan_.schedule, value.expr, plan_.bindValues, *values_);
      if (!scalar.ok())
        return Status(scalar.status().code(),
                      absl::StrCat(plan_.place(value.location), ", ", plan_.stepText(step_), ": ",
                                   scalar.status().message()));
      plan_.scalars[value.target] = *scalar;
      continue;
    }
    StatusOr<int64_t> number = evaluateInt(*plan_.schedule, value.expr, plan_.bindValues, *values_);
    if (!number.ok())
      return Status(number.status().code(),
                    absl::StrCat(plan_.place(value.location), ", ", plan_.stepText(step_), ": ",
                                 number.status().message()));
    if (value.use == Plan::StepValue::Use::Guard) {
      plan_.guards[value.target] = *number != 0;
      continue;
    }
    const Plan::Transfer &transfer = plan_.transfers[value.target];
    if (*number < 0 || *number >= plan_.bindValues.world)
      return absl::InvalidArgumentError(
          absl::StrCat(plan_.place(value.location), ", ", plan_.stepText(step_),
                       ": expects a peer in [0, ", plan_.bindValues.world, "), got ", *number));
    peers_[value.target] = static_cast<int32_t>(*number);
    // Null where it is this rank: there is no such channel.
    ends_[value.target] = plan_.channels[transfer.channel][static_cast<size_t>(*number)];
  }
  return absl::OkStatus();
}

bool ProgramRun::ready(Queue &queue, const Plan::Step &step) {
  if (queue.fresh) {
    queue.waitsLeft = step.waitsBegin;
    queue.fresh = false;
  }
  while (queue.waitsLeft != step.waitsEnd) {
    if (!isSet(plan_.waits[queue.waitsLeft]))
      return false;
    ++queue.waitsLeft;
  }
  return true;
}

StatusOr<bool> ProgramRun::advance(PollContext &context) {
  bool any = false, yielded = false;
  budget_ = Plan::kPieceBytes;
  for (;;) {
    bool changed = complete(context);
    // Messages first: peers wait for them.
    for (fb::Queue which : {fb::Queue::Net, fb::Queue::Cpu}) {
      BAGUA_ASSIGN(bool moved, runQueue(which, context, yielded));
      changed = changed || moved;
    }
    any = any || changed;
    if (!changed || yielded)
      break;
  }
  bool issued = true;
  for (size_t which = 0; which < 2; ++which)
    issued = issued && queues_[which].next == plan_.queues[which].size();
  if (issued && inFlight_.empty() && gateSignals_.empty()) {
    if (slotsHeld_ != 0) {
      auto held = std::find_if(slots_.begin(), slots_.end(),
                               [](const Slot &slot) { return slot.state != Slot::State::Free; });
      return slotError(plan_.transfers[held->transfer].location,
                       static_cast<uint32_t>(held - slots_.begin()), "is never released");
    }
    states_.commit();
    standsAtGate_ = false;
    finished_ = true;
    return true;
  }
  // A gate on the net queue holds nothing back but what waits for its event.
  standsAtGate_ = !launching_ && !yielded &&
                  (cpuStandsAtGate() || (!gateSignals_.empty() && inFlight_.empty()));
  if (!any && !launching_ && inFlight_.empty() && !standsAtGate_)
    return stuck();
  return any;
}

StatusOr<bool> ProgramRun::runQueue(fb::Queue which, PollContext &context, bool &yielded) {
  Queue &queue = queues_[static_cast<size_t>(which)];
  const std::vector<Plan::Step> &steps = plan_.queues[static_cast<size_t>(which)];
  bool changed = false;
  while (queue.next != steps.size()) {
    const Plan::Step &step = steps[queue.next];
    if (!ready(queue, step))
      break;
    if (step.kind == Plan::Kind::Nothing ||
        (step.guard != kNone && plan_.guards[step.guard] == 0)) {
      set(step.signal);
    } else if (step.ifFinite && !isOpen(fb::Gate::BeforeUpdate)) {
      break;
    } else if (step.ifFinite && !isFinite(fb::Gate::BeforeUpdate)) {
      set(step.signal);
    } else {
      BAGUA_ASSIGN(Issue issued, issue(step, context));
      if (issued == Issue::Blocked)
        break;
      changed = true;
      if (issued == Issue::Yield) {
        yielded = true;
        break;
      }
    }
    changed = true;
    ++queue.next;
    queue.fresh = true;
  }
  return changed;
}

StatusOr<ProgramRun::Issue> ProgramRun::issue(const Plan::Step &step, PollContext &context) {
  switch (step.kind) {
  case Plan::Kind::Send:
  case Plan::Kind::Recv:
    return issueTransfer(step, context);
  case Plan::Kind::Launch:
    return issueLaunch(step, context);
  case Plan::Kind::Release:
    BAGUA_TRY(release(step, context));
    set(step.signal);
    return Issue::Done;
  case Plan::Kind::Publish:
    states_.publish(step.item);
    set(step.signal);
    return Issue::Done;
  case Plan::Kind::Gate: {
    bool open = isOpen(static_cast<fb::Gate>(step.item));
    bool onNet = &step >= plan_.queues[static_cast<size_t>(fb::Queue::Net)].data() &&
                 &step < plan_.queues[static_cast<size_t>(fb::Queue::Net)].data() +
                             plan_.queues[static_cast<size_t>(fb::Queue::Net)].size();
    if (open)
      set(step.signal);
    else if (onNet)
      gateSignals_.push_back(step.signal);
    else
      return Issue::Blocked;
    return Issue::Done;
  }
  case Plan::Kind::Nothing:
    break;
  }
  return Issue::Done;
}

StatusOr<ProgramRun::Issue> ProgramRun::issueTransfer(const Plan::Step &step,
                                                      PollContext &context) {
  uint32_t index = step.item;
  const Plan::Transfer &transfer = plan_.transfers[index];
  if (ends_[index] == nullptr) { // To itself: no transfer.
    set(step.signal);
    return Issue::Done;
  }
  if (transfer.isSend) {
    SendOp &op = sends_[index];
    op = {};
    op.data = transfer.data;
    op.bytes = transfer.bytes;
    if (transfer.slot != kNone) {
      const Slot &slot = slots_[transfer.slot];
      if (slot.state != Slot::State::Full)
        return slotError(step.location, transfer.slot, "is sent from but holds no message");
      const RecvOp &message = recvs_[slot.transfer];
      if (transfer.slotOffset + transfer.bytes > message.bytes)
        return slotError(step.location, transfer.slot, "is sent from beyond its message's end");
      op.data = message.view + transfer.slotOffset;
    }
    issuedNs_[index] = context.nowNs;
    BAGUA_TRY(context.transport.send(*ends_[index], op));
    bytesSent_ += op.bytes;
    if (op.sent)
      finishTransfer(index, context);
    else
      inFlight_.push_back(index);
    return Issue::Done;
  }
  Slot &slot = slots_[transfer.slot];
  if (slot.state != Slot::State::Free)
    return Issue::Blocked; // Its release is the credit.
  RecvOp &op = recvs_[index];
  op = {};
  op.landing = transfer.landing;
  op.bytes = transfer.bytes;
  slot.state = Slot::State::Receiving;
  slot.transfer = index;
  ++slotsHeld_;
  issuedNs_[index] = context.nowNs;
  BAGUA_TRY(context.transport.recv(*ends_[index], op));
  if (op.arrived)
    finishTransfer(index, context);
  else
    inFlight_.push_back(index);
  return Issue::Done;
}

void ProgramRun::finishTransfer(uint32_t index, PollContext &context) {
  const Plan::Transfer &transfer = plan_.transfers[index];
  if (!transfer.isSend)
    slots_[transfer.slot].state = Slot::State::Full;
  set(transfer.signal);
  context.trace.record({issuedNs_[index], context.nowNs, step_, transfer.bytes, transfer.spanName,
                        peers_[index], Trace::Track::Net});
}

bool ProgramRun::complete(PollContext &context) {
  bool changed = false;
  for (size_t i = 0; i < inFlight_.size();) {
    uint32_t index = inFlight_[i];
    if (plan_.transfers[index].isSend ? sends_[index].sent : recvs_[index].arrived) {
      finishTransfer(index, context);
      inFlight_[i] = inFlight_.back();
      inFlight_.pop_back();
      changed = true;
    } else {
      ++i;
    }
  }
  if (!gateSignals_.empty() && gatesOpen_.load(std::memory_order_acquire) != 0) {
    for (uint32_t event : gateSignals_)
      set(event);
    gateSignals_.clear();
    changed = true;
  }
  return changed;
}

Status ProgramRun::release(const Plan::Step &step, PollContext &context) {
  Slot &slot = slots_[step.item];
  if (slot.state != Slot::State::Full)
    return slotError(step.location, step.item, "is released but holds no message");
  BAGUA_TRY(context.transport.release(*ends_[slot.transfer], recvs_[slot.transfer]));
  slot.state = Slot::State::Free;
  --slotsHeld_;
  return absl::OkStatus();
}

StatusOr<ProgramRun::Issue> ProgramRun::issueLaunch(const Plan::Step &step, PollContext &context) {
  Plan::Launch &launch = plan_.launches[step.item];
  if (!launching_) {
    if (budget_ == 0)
      return Issue::Yield;
    for (uint32_t i = launch.patchesBegin; i != launch.patchesEnd; ++i) {
      const Plan::Patch &patch = plan_.patches[i];
      const Slot &slot = slots_[patch.slot];
      if (slot.state != Slot::State::Full)
        return slotError(step.location, patch.slot, "is read but holds no message");
      const RecvOp &message = recvs_[slot.transfer];
      if (patch.offset + patch.bytes > message.bytes)
        return slotError(step.location, patch.slot, "is read beyond its message's end");
      plan_.inputs[patch.input] = {message.view + patch.offset, patch.bytes};
    }
    kernels::Args args;
    args.inputs = {plan_.inputs.data() + launch.inputsBegin, launch.inputsCount};
    args.outputs = {plan_.outputs.data() + launch.outputsBegin, launch.outputsCount};
    args.scalars = {plan_.scalars.data() + launch.scalarsBegin, launch.scalarsCount};
    args.count = launch.count;
    launchNs_ = context.nowNs;
    if (launch.bytes <= Plan::kPieceBytes) {
      launch.kernel.run(launch.kernel, args, 0, launch.count);
      context.nowNs = context.clock.nowNs();
      context.trace.record(
          {launchNs_, context.nowNs, step_, launch.bytes, launch.spanName, -1, Trace::Track::Cpu});
      budget_ -= std::min(budget_, launch.bytes);
      set(step.signal);
      return Issue::Done;
    }
    workers_.submit(*job_, launch.kernel, args, launch.pieceElements);
    launching_ = true;
  }
  if (budget_ == 0)
    return Issue::Yield;
  if (Workers::help(*job_)) {
    budget_ = 0;
    context.nowNs = context.clock.nowNs();
    if (!Workers::finished(*job_))
      return Issue::Yield;
  } else if (!Workers::finished(*job_)) {
    return Issue::Blocked; // Helpers hold the last pieces; they ring.
  } else {
    context.nowNs = context.clock.nowNs();
  }
  launching_ = false;
  context.trace.record(
      {launchNs_, context.nowNs, step_, launch.bytes, launch.spanName, -1, Trace::Track::Cpu});
  set(step.signal);
  return Issue::Done;
}

void ProgramRun::cancel() {
  if (launching_)
    Workers::cancel(*job_);
  launching_ = false;
  inFlight_.clear();
  gateSignals_.clear();
  states_.forget();
}

bool ProgramRun::cpuStandsAtGate() const {
  const Queue &queue = queues_[static_cast<size_t>(fb::Queue::Cpu)];
  const auto &steps = plan_.queues[static_cast<size_t>(fb::Queue::Cpu)];
  if (queue.next == steps.size() || queue.fresh)
    return false;
  const Plan::Step &step = steps[queue.next];
  return (step.kind == Plan::Kind::Gate || step.ifFinite) && queue.waitsLeft == step.waitsEnd;
}

Status ProgramRun::slotError(uint32_t location, uint32_t slot, absl::string_view what) const {
  return absl::InvalidArgumentError(
      absl::StrCat(plan_.place(location), ", ", plan_.stepText(step_), ": slot ", slot, " ", what));
}

Status ProgramRun::stuck() const {
  std::string text;
  for (size_t which = 0; which < 2; ++which) {
    const auto &steps = plan_.queues[which];
    if (queues_[which].next != steps.size())
      absl::StrAppend(&text, text.empty() ? "" : " and ",
                      fb::EnumNameQueue(static_cast<fb::Queue>(which)), " queue at ",
                      plan_.schedule->location(steps[queues_[which].next].location));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("bucket '", plan_.bucketName, "', program ", plan_.program->name, ", ",
                   plan_.stepText(step_), ": waits for events that nothing will set: ", text));
}

PeerWait ProgramRun::peerWait() const {
  PeerWait wait;
  // A receive says more than a send: its peer has not sent, whatever else it does.
  const Plan::Transfer *first = nullptr;
  for (bool sends : {false, true}) {
    for (uint32_t index : inFlight_) {
      const Plan::Transfer &transfer = plan_.transfers[index];
      if (transfer.isSend != sends)
        continue;
      wait.ranks.push_back(peers_[index]);
      if (first == nullptr || &transfer < first)
        first = &transfer;
    }
    if (first != nullptr)
      break;
  }
  std::sort(wait.ranks.begin(), wait.ranks.end());
  wait.ranks.erase(std::unique(wait.ranks.begin(), wait.ranks.end()), wait.ranks.end());
  for (uint32_t index : inFlight_)
    wait.all.push_back(peers_[index]);
  uint32_t location = kNone;
  if (first != nullptr) {
    location = first->location;
  } else {
    for (size_t which = 0; which < 2 && location == kNone; ++which)
      if (queues_[which].next != plan_.queues[which].size())
        location = plan_.queues[which][queues_[which].next].location;
  }
  wait.place = absl::StrCat(plan_.subject(), ", ", plan_.stepText(step_));
  if (location != kNone && plan_.description.empty())
    absl::StrAppend(&wait.place, ", ", plan_.schedule->location(location));
  return wait;
}

} // namespace bagua::rt
