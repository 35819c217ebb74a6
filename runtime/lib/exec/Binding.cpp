// Agreement, plans and runs of one binding.
#include "bagua/Binding.h"

#include "ProgramRun.h"
#include "Task.h"
#include "bind/Plan.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace bagua::rt {
namespace {

constexpr size_t kEvents = static_cast<size_t>(fb::Event::MAX) + 1;

/// True if something in the schedule is computed from this rank's place in its node, or from nodes.
bool countsNodes(const fb::ScheduleT &ir) {
  return std::any_of(ir.expressions.begin(), ir.expressions.end(), [](const auto &expr) {
    return expr->op == fb::ExprOp::LocalRank || expr->op == fb::ExprOp::LocalSize ||
           expr->op == fb::ExprOp::Nodes;
  });
}

/// Such a schedule takes rank r for local rank r mod s of node ⌊r / s⌋, s being the ranks of every
/// node. The same answer on all ranks, but where a launcher gives them different local sizes.
Status checkNodes(const std::string &schedule, const Group &group) {
  auto refuse = [&](const std::string &text) {
    return absl::FailedPreconditionError(
        absl::StrCat("schedule '", schedule, "' works node by node: ", text));
  };
  std::vector<int> sizes(static_cast<size_t>(group.nodes()));
  std::vector<std::string> names(sizes.size());
  for (int rank = 0; rank < group.world(); ++rank) {
    const PeerInfo &peer = group.peer(rank);
    auto node = static_cast<size_t>(peer.node);
    if (sizes[node]++ == 0)
      names[node] = absl::StrCat("node ", peer.node, " (host ", peer.host, ")");
  }
  for (size_t node = 1; node < sizes.size(); ++node)
    if (sizes[node] != sizes[0])
      return refuse(absl::StrCat("expected as many ranks on every node, got ", sizes[node], " on ",
                                 names[node], " and ", sizes[0], " on ", names[0]));
  if (group.localSize() != sizes[0])
    return refuse(absl::StrCat("expected the local size ", sizes[0], " of ", names[0], ", got ",
                               group.localSize(), " from the launcher"));
  for (int rank = 0; rank < group.world(); ++rank) {
    const PeerInfo &peer = group.peer(rank);
    int node = rank / sizes[0], local = rank % sizes[0];
    if (peer.node != node || peer.localRank != local)
      return refuse(absl::StrCat("expected rank ", rank, " to be local rank ", local, " of node ",
                                 node, ", got local rank ", peer.localRank, " of ",
                                 names[static_cast<size_t>(peer.node)]));
  }
  return absl::OkStatus();
}

/// One short text to the next rank of the ring, and one from the rank before.
class Comparison {
public:
  Comparison(int rank, int world) : rank_(rank), world_(world) {}

  Status open(Transport &transport, uint64_t binding, uint32_t channel) {
    auto ends = [&](int peer) {
      return transport.openChannel(binding, channel, peer, kBytes, 1, 1);
    };
    BAGUA_ASSIGN(next_, ends(next()));
    previous_ = next_;
    if (world_ > 2) {
      BAGUA_ASSIGN(previous_, ends(previous()));
    }
    return absl::OkStatus();
  }
  void set(std::string_view text) {
    mine_.fill(std::byte{0});
    std::memcpy(mine_.data(), text.data(), text.size());
  }
  Status begin(Transport &transport) {
    send_ = {};
    send_.data = mine_.data();
    recv_ = {};
    recv_.landing = theirs_.data();
    send_.bytes = recv_.bytes = kBytes;
    heard_ = false;
    BAGUA_TRY(transport.recv(*previous_, recv_));
    return transport.send(*next_, send_);
  }
  /// True when nothing is in flight any more. kAborted if the texts differ.
  StatusOr<bool> advance(Transport &transport) {
    if (!heard_ && recv_.arrived) {
      if (std::memcmp(recv_.view, mine_.data(), kBytes) != 0)
        return absl::AbortedError(absl::StrCat("rank ", previous(), ": ", text(recv_.view),
                                               "; rank ", rank_, ": ", text(mine_.data())));
      BAGUA_TRY(transport.release(*previous_, recv_));
      heard_ = true;
    }
    return heard_ && send_.sent;
  }
  int awaited() const { return heard_ ? next() : previous(); }

private:
  static constexpr size_t kBytes = Binding::kCompareBytesMax;

  int next() const { return (rank_ + 1) % world_; }
  int previous() const { return (rank_ + world_ - 1) % world_; }
  static absl::string_view text(const std::byte *bytes) {
    const char *begin = reinterpret_cast<const char *>(bytes);
    return {begin, ::strnlen(begin, kBytes)};
  }

  const int rank_, world_;
  Channel *previous_ = nullptr, *next_ = nullptr;
  std::array<std::byte, kBytes> mine_{}, theirs_{};
  SendOp send_;
  RecvOp recv_;
  bool heard_ = false;
};

/// By number: whether the async program uses the state, and so no other does.
std::vector<bool> statesOfAsync(const fb::ScheduleT &schedule) {
  std::vector<bool> uses(schedule.states.size());
  for (const auto &program : schedule.programs)
    for (const auto &buffer : program->buffers)
      if (program->event == fb::Event::Async && buffer->kind == fb::BufferKind::State)
        uses[buffer->state] = true;
  return uses;
}

class BindingImpl final : public Binding, public Task {
public:
  BindingImpl(Engine &engine, std::shared_ptr<const Schedule> schedule, const Bucket &bucket)
      : engine_(engine), schedule_(std::move(schedule)), bucket_(bucket) {}
  ~BindingImpl() override;

  Status create(const Options &options);

  Status start(fb::Event event, int64_t step) override;
  Status compare(std::string_view text) override;
  Status openGate(fb::Gate gate, bool finite) override;
  StatusOr<bool> wait(std::chrono::nanoseconds slice) override { return wait(slice, false); }
  StatusOr<bool> waitUntilGate(std::chrono::nanoseconds slice) override {
    return wait(slice, true);
  }
  Status setParameter(const Parameter &parameter) override;
  StatusOr<Interval> interval() const override;
  bool communicates(fb::Event event, int64_t step) const override;
  std::vector<Binding::State> states() const override;
  Status readState(size_t state, std::span<std::byte> bytes) const override;
  Status writeState(size_t state, std::span<const std::byte> bytes) override;
  Statistics statistics() const override;
  uint64_t wireBytes(fb::Event event, int64_t step) const override;

protected:
  Status begin(PollContext &context) override {
    startNs_ = context.nowNs;
    if (comparing_)
      BAGUA_TRY(comparison_->begin(context.transport));
    return current_->begin(context);
  }
  StatusOr<bool> advance(PollContext &context) override;
  bool finished() const override { return current_->finished() && !comparing_; }
  void cancel() override {
    comparing_ = false;
    current_->cancel();
  }
  void end(PollContext &context, const Status &result) override;
  PeerWait peerWait() const override;
  bool waitsForPeer() const override { return current_->waitsForPeer() || comparing_; }
  bool waitsForJob() const override { return current_->waitsForJob(); }
  std::string describe() const override {
    const Plan &plan = current_->plan();
    return absl::StrCat(bucket_.description.empty() ? absl::StrCat("program ", plan.program->name,
                                                                   ", bucket '", bucket_.name, "'")
                                                    : bucket_.description,
                        ", ", plan.stepText(values_.step));
  }
  Trace::Span waitSpan(int64_t startNs) const override {
    return {startNs, 0, values_.step, 0, waitName_, -1, Trace::Track::Job};
  }

private:
  using Task::State;

  StatusOr<bool> wait(std::chrono::nanoseconds slice, bool untilGate);
  void notePhase() const;
  /// "program gradient of step 7": the current one.
  std::string currentText() const {
    return absl::StrCat("program ", current_->plan().program->name, " of ",
                        current_->plan().stepText(values_.step));
  }
  bool isWrongKind(fb::Event event) const { return (event == fb::Event::Async) != bucket_.async; }
  StatusOr<size_t> parameterIndex(const Parameter &parameter) const;
  Status assign(const Parameter &parameter, size_t index, std::vector<int64_t> &ints,
                std::vector<double> &floats) const;
  Status groupStatus(absl::string_view what) const;
  Status checkState(size_t state, size_t bytes, absl::string_view what) const;
  std::vector<BindValues> valuesOfAllRanks() const;
  Status setParameters(const Options &options);
  std::string agreement() const;
  Status resolve(const Options &options);

  Engine &engine_;
  std::shared_ptr<const Schedule> schedule_;
  const Bucket bucket_;
  uint64_t id_ = 0; ///< The same on all ranks.
  BindValues bindValues_;
  StepValues values_;
  States states_;
  std::vector<uint32_t> keptStates_; ///< Numbers in the schedule.
  Interval interval_;
  std::vector<BindValues> rankValues_; ///< Of all ranks, where communicates() needs them.
  std::array<std::unique_ptr<ProgramRun>, kEvents> runs_; ///< By event.
  bool registered_ = false, opened_ = false;
  uint32_t channels_ = 0; ///< Of all programs.
  std::unique_ptr<Comparison> comparison_;
  bool comparing_ = false; ///< Along with the program that starts next, or runs.
  ProgramRun *current_ = nullptr;
  int64_t startNs_ = 0;
  uint32_t waitName_ = 0;
  std::atomic<uint64_t> finishedRuns_{0}, bytesWire_{0}, busyNs_{0}, waitNs_{0};
};

BindingImpl::~BindingImpl() {
  if (!registered_)
    return;
  if (state() == State::Posted || state() == State::Running) {
    engine_.abort(absl::FailedPreconditionError(
        absl::StrCat("rank ", engine_.group().rank(), " unbound bucket '", bucket_.name,
                     "' while program ", current_->plan().program->name, " was running")));
    while (!engine_.wait(*this, std::chrono::seconds(1))) {
    }
  }
  Status ignored = engine_.exclusively([&] {
    for (auto &run : runs_)
      run.reset();
    if (opened_)
      engine_.transport().closeBinding(id_);
    engine_.releaseTask();
    return absl::OkStatus();
  });
  ignored.IgnoreError();
}

StatusOr<size_t> BindingImpl::parameterIndex(const Parameter &parameter) const {
  const auto &declared = schedule_->ir().parameters;
  for (size_t i = 0; i < declared.size(); ++i)
    if (declared[i]->name == parameter.name)
      return i;
  return absl::InvalidArgumentError(absl::StrCat(
      "schedule '", schedule_->ir().name, "' has no parameter '", parameter.name, "'; it has ",
      declared.empty() ? "none"
                       : absl::StrJoin(declared, ", ", [](std::string *out, const auto &known) {
                           absl::StrAppend(out, known->name);
                         })));
}

Status BindingImpl::assign(const Parameter &parameter, size_t index, std::vector<int64_t> &ints,
                           std::vector<double> &floats) const {
  auto refuse = [&](absl::string_view expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("parameter '", parameter.name, "' of schedule '", schedule_->ir().name,
                     "' expects ", expected, ", got ",
                     std::visit([](auto value) { return absl::StrCat(value); }, parameter.value)));
  };
  const int64_t *number = std::get_if<int64_t>(&parameter.value);
  if (schedule_->ir().parameters[index]->is_float) {
    floats[index] = number ? static_cast<double>(*number) : std::get<double>(parameter.value);
    return std::isfinite(floats[index]) ? absl::OkStatus() : refuse("a finite number");
  }
  if (number == nullptr)
    return refuse("an integer");
  int64_t least = leastOfParameter(schedule_->ir(), index);
  if (*number < least)
    return refuse(absl::StrCat("an index of at least ", least));
  if (*number > int64_t{1} << 53) // P1
    return refuse("an index of at most 2^53");
  ints[index] = *number;
  return absl::OkStatus();
}

/// What ended the group, if something did, and what of this bucket it came before.
Status BindingImpl::groupStatus(absl::string_view what) const {
  if (!engine_.failed())
    return absl::OkStatus();
  Status status = engine_.status();
  return Status(status.code(),
                absl::StrCat(status.message(), "; bucket '", bucket_.name, "' of schedule '",
                             schedule_->ir().name, "' cannot ", what));
}

Status BindingImpl::setParameter(const Parameter &parameter) {
  BAGUA_TRY(groupStatus("take a parameter"));
  BAGUA_ASSIGN(size_t index, parameterIndex(parameter));
  if (!schedule_->ir().parameters[index]->per_step)
    return absl::InvalidArgumentError(
        absl::StrCat("parameter '", parameter.name, "' of schedule '", schedule_->ir().name,
                     "' is fixed at bind: it is not declared per_step"));
  if (state() != State::Idle)
    return absl::FailedPreconditionError(absl::StrCat("bucket '", bucket_.name, "': parameter '",
                                                      parameter.name, "' set while ", currentText(),
                                                      " runs"));
  // Only what is right is kept.
  std::vector<int64_t> ints = values_.intParameters;
  std::vector<double> floats = values_.floatParameters;
  BAGUA_TRY(assign(parameter, index, ints, floats));
  values_.intParameters = std::move(ints);
  values_.floatParameters = std::move(floats);
  return absl::OkStatus();
}

std::vector<Binding::State> BindingImpl::states() const {
  const fb::ScheduleT &ir = schedule_->ir();
  std::vector<Binding::State> states;
  for (uint32_t number : keptStates_) {
    const fb::StateT &declared = *ir.states[number];
    Binding::State state;
    state.name = declared.name;
    state.domain = declared.domain;
    state.onResize = declared.on_resize;
    state.elements = stateElements(ir, declared, bindValues_);
    if (declared.domain == fb::StateDomain::Shard)
      state.offset =
          shardOf(bindValues_.length, ir.grain, bindValues_.world, bindValues_.rank).begin;
    state.bytes = static_cast<uint64_t>(state.elements * elementBytes(bindValues_.dtype));
    states.push_back(std::move(state));
  }
  return states;
}

Status BindingImpl::checkState(size_t index, size_t bytes, absl::string_view what) const {
  BAGUA_TRY(groupStatus("show its states"));
  if (index >= keptStates_.size())
    return absl::InvalidArgumentError(absl::StrCat("bucket '", bucket_.name, "': state ", index,
                                                   ", expected below ", keptStates_.size()));
  uint32_t number = keptStates_[index];
  absl::string_view name = schedule_->ir().states[number]->name;
  bool isRead = what == "read";
  if (state() != State::Idle && !(isRead && bucket_.async))
    return absl::FailedPreconditionError(absl::StrCat("bucket '", bucket_.name, "': state '", name,
                                                      "' ", what, " while ", currentText(),
                                                      " runs"));
  if (bytes != states_.bytes(number))
    return absl::InvalidArgumentError(absl::StrCat("bucket '", bucket_.name, "': state '", name,
                                                   "' has ", states_.bytes(number), " bytes, got ",
                                                   bytes));
  return absl::OkStatus();
}

Status BindingImpl::readState(size_t index, std::span<std::byte> bytes) const {
  BAGUA_TRY(checkState(index, bytes.size(), "read"));
  // The driver knows where the states are; a run does not change what is committed.
  return engine_.exclusively([&] {
    std::span<const std::byte> from = states_.committed(keptStates_[index]);
    std::copy(from.begin(), from.end(), bytes.begin());
    return absl::OkStatus();
  });
}

Status BindingImpl::writeState(size_t index, std::span<const std::byte> bytes) {
  BAGUA_TRY(checkState(index, bytes.size(), "written"));
  std::copy(bytes.begin(), bytes.end(), states_.committed(keptStates_[index]).begin());
  return absl::OkStatus();
}

StatusOr<Binding::Interval> BindingImpl::interval() const {
  if (!bucket_.async)
    return absl::FailedPreconditionError(absl::StrCat(
        "bucket '", bucket_.name, "': expected an async binding, which alone has rounds"));
  return interval_;
}

/// As far as formulas of costs may ask: bind values of each rank.
std::vector<BindValues> BindingImpl::valuesOfAllRanks() const {
  Group &group = engine_.group();
  std::vector<BindValues> all(static_cast<size_t>(group.world()), bindValues_);
  for (int rank = 0; rank < group.world(); ++rank) {
    const PeerInfo &peer = group.peer(rank);
    BindValues &values = all[static_cast<size_t>(rank)];
    values.rank = rank;
    values.localRank = peer.localRank;
    values.localSize = 0;
    for (int other = 0; other < group.world(); ++other)
      values.localSize += group.peer(other).node == peer.node ? 1 : 0;
  }
  return all;
}

bool BindingImpl::communicates(fb::Event event, int64_t step) const {
  const auto &run = runs_[static_cast<size_t>(event)];
  if (!run || bindValues_.world == 1)
    return false;
  if (rankValues_.empty() || run->plan().wireBytes.isConstant)
    return true;
  StepExpr formula;
  formula.isConstant = false;
  formula.node = run->plan().program->wire_bytes;
  StepValues values = values_;
  values.step = step;
  return std::any_of(rankValues_.begin(), rankValues_.end(), [&](const BindValues &ofRank) {
    StatusOr<int64_t> bytes = evaluateInt(*schedule_, formula, ofRank, values);
    return !bytes.ok() || *bytes > 0;
  });
}

Status BindingImpl::setParameters(const Options &options) {
  const auto &declared = schedule_->ir().parameters;
  bindValues_.intParameters.assign(declared.size(), 0);
  bindValues_.floatParameters.assign(declared.size(), 0.0);
  for (size_t i = 0; i < declared.size(); ++i) {
    bindValues_.intParameters[i] = declared[i]->default_int;
    bindValues_.floatParameters[i] = declared[i]->default_float;
  }
  std::vector<bool> given(declared.size());
  for (const Parameter &parameter : options.parameters) {
    BAGUA_ASSIGN(size_t index, parameterIndex(parameter));
    BAGUA_TRY(assign(parameter, index, bindValues_.intParameters, bindValues_.floatParameters));
    given[index] = true;
  }
  for (size_t i = 0; i < declared.size(); ++i) // Files of other compilers, and older ones.
    if (!given[i] && !declared[i]->is_float)
      BAGUA_TRY(assign({declared[i]->name, declared[i]->default_int}, i, bindValues_.intParameters,
                       bindValues_.floatParameters));
  values_.intParameters = bindValues_.intParameters;
  values_.floatParameters = bindValues_.floatParameters;
  return absl::OkStatus();
}

/// What must be equal on all ranks, in the order in which differences are reported.
std::string BindingImpl::agreement() const {
  nlohmann::ordered_json parameters = nlohmann::ordered_json::object();
  const auto &declared = schedule_->ir().parameters;
  for (size_t i = 0; i < declared.size(); ++i) {
    if (declared[i]->is_float)
      parameters[declared[i]->name] = bindValues_.floatParameters[i];
    else
      parameters[declared[i]->name] = bindValues_.intParameters[i];
  }
  nlohmann::ordered_json json = {
      {"schedule", {{"name", schedule_->ir().name}, {"digest", schedule_->digestHex()}}},
      {"bucket",
       {{"name", bucket_.name},
        {"index", bucket_.index},
        {"async", bucket_.async},
        {"length", bucket_.length},
        {"dtype", fb::EnumNameDType(bucket_.dtype)}}},
      {"parameters", std::move(parameters)}};
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// Everything that can fail on this rank alone.
Status BindingImpl::resolve(const Options &options) {
  BAGUA_TRY(engine_.status());
  const fb::ScheduleT &ir = schedule_->ir();
  if (countsNodes(ir)) {
    BAGUA_TRY(checkNodes(ir.name, engine_.group()));
  }
  if (std::find(ir.dtypes.begin(), ir.dtypes.end(), bucket_.dtype) == ir.dtypes.end())
    return absl::InvalidArgumentError(
        absl::StrCat("schedule '", ir.name, "' accepts ",
                     absl::StrJoin(ir.dtypes, ", ",
                                   [](std::string *out, fb::DType dtype) {
                                     absl::StrAppend(out, fb::EnumNameDType(dtype));
                                   }),
                     "; bucket '", bucket_.name, "' has ", fb::EnumNameDType(bucket_.dtype)));
  if (bucket_.async && schedule_->program(fb::Event::Async) == nullptr)
    return absl::InvalidArgumentError(
        absl::StrCat("bucket '", bucket_.name, "': schedule '", ir.name, "' has no async program"));
  Plan::Options planOptions{options.referenceKernels, options.memoryBytesMax};
  std::array<std::unique_ptr<Plan>, kEvents> plans;
  std::array<uint32_t, kEvents> channelBase{};
  std::vector<StateUse> stateUses(ir.states.size());
  std::vector<bool> ofAsync = statesOfAsync(ir);
  for (uint32_t i = 0; i < stateUses.size(); ++i) {
    stateUses[i].isKept = ofAsync[i] == bucket_.async;
    if (stateUses[i].isKept)
      keptStates_.push_back(i);
  }
  uint32_t channels = 0;
  for (size_t event = 0; event < kEvents; ++event) {
    const fb::ProgramT *program = schedule_->program(static_cast<fb::Event>(event));
    if (program == nullptr || isWrongKind(program->event))
      continue;
    BAGUA_ASSIGN(Plan plan, Plan::resolve(*schedule_, *program, bindValues_, bucket_,
                                          engine_.trace(), planOptions));
    for (size_t i = 0; i < stateUses.size(); ++i) {
      stateUses[i].isSent |= plan.stateUses[i].isSent;
      stateUses[i].hasNext |= plan.stateUses[i].hasNext;
    }
    interval_ = {plan.every, plan.after};
    // Which formulas depend on the step is the same on all ranks.
    if (!plan.wireBytes.isConstant && rankValues_.empty() && !bucket_.async &&
        schedule_->program(fb::Event::Async) != nullptr)
      rankValues_ = valuesOfAllRanks();
    plans[event] = std::make_unique<Plan>(std::move(plan));
    channelBase[event] = channels;
    channels += program->channels;
  }
  channels_ = channels;
  BAGUA_ASSIGN(states_, States::resolve(ir, bindValues_, bucket_, std::move(stateUses),
                                        options.memoryBytesMax));
  return engine_.exclusively([&]() -> Status {
    BAGUA_TRY(engine_.status());
    engine_.reserveTask();
    registered_ = opened_ = true;
    BAGUA_TRY(states_.reserve(engine_.transport(), bucket_));
    for (size_t event = 0; event < kEvents; ++event) {
      if (!plans[event])
        continue;
      BAGUA_TRY(plans[event]->reserve(engine_.transport(), id_, channelBase[event]));
      runs_[event] =
          std::make_unique<ProgramRun>(std::move(*plans[event]), engine_.workers(), states_);
    }
    return absl::OkStatus();
  });
}

Status BindingImpl::create(const Options &options) {
  Group &group = engine_.group();
  waitName_ = engine_.trace().name({"wait", bucket_.name, "", ""});
  group.setPhase(absl::StrCat("binding bucket '", bucket_.name, "'"));
  bindValues_.world = group.world();
  bindValues_.rank = group.rank();
  const PeerInfo &self = group.peer(group.rank());
  bindValues_.localRank = self.localRank;
  bindValues_.localSize = group.localSize();
  bindValues_.nodes = group.nodes();
  bindValues_.length = bucket_.length;
  bindValues_.bucket = bucket_.index;
  bindValues_.dtype = bucket_.dtype;
  // A bad parameter is this rank's affair, but the others must hear of it: it goes into the
  // exchange.
  Status local = setParameters(options);
  uint64_t number = 0;
  BAGUA_TRY(engine_.agree("bind", "bind", agreement(), &number));
  id_ = number + 1; // 0 is the broadcasts'.
  if (local.ok())
    local = resolve(options);
  if (group.world() == 1)
    return local;
  BAGUA_ASSIGN(std::vector<std::string> results,
               group.allGather(absl::StrCat("collective/", number, "/result"),
                               local.ok() ? std::string()
                                          : absl::StrCat(static_cast<int>(local.code()), " ",
                                                         local.message())));
  BAGUA_TRY(local);
  for (size_t rank = 0; rank < results.size(); ++rank) {
    if (results[rank].empty())
      continue;
    size_t space = results[rank].find(' ');
    int code = std::atoi(results[rank].substr(0, space).c_str());
    return Status(static_cast<absl::StatusCode>(code),
                  absl::StrCat("rank ", rank, " cannot bind: ", results[rank].substr(space + 1)));
  }
  group.setPhase(absl::StrCat("in user code, after binding bucket '", bucket_.name, "'"));
  return absl::OkStatus();
}

Status BindingImpl::start(fb::Event event, int64_t step) {
  ProgramRun *run = runs_[static_cast<size_t>(event)].get();
  if (run == nullptr)
    return groupStatus("go on");
  if (engine_.failed())
    return groupStatus(absl::StrCat("start program ", run->plan().program->name, " of ",
                                    run->plan().stepText(step)));
  if (state() != State::Idle)
    return absl::FailedPreconditionError(absl::StrCat(
        "bucket '", bucket_.name, "': program ", run->plan().program->name, " of ",
        run->plan().stepText(step), " started before ", currentText(), " was waited for"));
  values_.step = step;
  current_ = run;
  run->arm(values_);
  atGate_.store(false, std::memory_order_relaxed);
  engine_.post(*this);
  return absl::OkStatus();
}

Status BindingImpl::compare(std::string_view text) {
  if (text.size() > kCompareBytesMax)
    return absl::InvalidArgumentError(absl::StrCat("bucket '", bucket_.name,
                                                   "': compare expects at most ", kCompareBytesMax,
                                                   " bytes of text, got ", text.size()));
  BAGUA_TRY(groupStatus("compare what ranks have"));
  if (state() != State::Idle)
    return absl::FailedPreconditionError(
        absl::StrCat("bucket '", bucket_.name, "': compare while ", currentText(), " runs"));
  if (bindValues_.world == 1)
    return absl::OkStatus();
  if (!comparison_) {
    auto comparison = std::make_unique<Comparison>(bindValues_.rank, bindValues_.world);
    BAGUA_TRY(engine_.exclusively([&]() -> Status {
      BAGUA_TRY(engine_.status());
      return comparison->open(engine_.transport(), id_, channels_);
    }));
    comparison_ = std::move(comparison);
  }
  comparison_->set(text);
  comparing_ = true;
  return absl::OkStatus();
}

StatusOr<bool> BindingImpl::advance(PollContext &context) {
  bool any = false;
  if (!current_->finished()) {
    BAGUA_ASSIGN(any, current_->advance(context));
  }
  if (comparing_) {
    StatusOr<bool> equal = comparison_->advance(context.transport);
    if (!equal.ok() && absl::IsAborted(equal.status()))
      return absl::AbortedError(
          absl::StrCat("ranks differ in ", describe(), ": ", equal.status().message()));
    BAGUA_TRY(equal.status());
    comparing_ = !*equal;
    any = any || *equal;
  }
  atGate_.store(current_->standsAtGate(), std::memory_order_release);
  return any;
}

PeerWait BindingImpl::peerWait() const {
  PeerWait wait = current_->peerWait();
  if (comparing_) {
    wait.all.push_back(comparison_->awaited());
    if (wait.ranks.empty())
      wait.ranks.push_back(comparison_->awaited());
  }
  return wait;
}

Status BindingImpl::openGate(fb::Gate gate, bool finite) {
  uint32_t bit = uint32_t{1} << static_cast<uint32_t>(gate);
  if (state() == State::Idle) {
    bool any = false;
    for (const auto &run : runs_)
      any = any || (run && run->plan().gatesUsed & bit);
    return any ? absl::FailedPreconditionError(absl::StrCat("bucket '", bucket_.name, "': gate ",
                                                            fb::EnumNameGate(gate),
                                                            " opened while no program runs"))
               : absl::OkStatus();
  }
  if ((current_->plan().gatesUsed & bit) == 0)
    return absl::OkStatus();
  if (!current_->openGate(gate, finite))
    return absl::FailedPreconditionError(absl::StrCat("bucket '", bucket_.name, "': gate ",
                                                      fb::EnumNameGate(gate),
                                                      " opened twice in step ", values_.step));
  engine_.ring();
  return absl::OkStatus();
}

StatusOr<bool> BindingImpl::wait(std::chrono::nanoseconds slice, bool untilGate) {
  if (state() == State::Idle) {
    BAGUA_TRY(groupStatus("go on"));
    return true;
  }
  int64_t begin = engine_.clock().nowNs();
  // Once the gates are open the program runs to its end.
  bool done = engine_.wait(*this, slice, untilGate && current_->waitsForJob());
  waitNs_.fetch_add(static_cast<uint64_t>(engine_.clock().nowNs() - begin),
                    std::memory_order_relaxed);
  if (!done)
    return false;
  if (state() != State::Done)
    return true; // At a gate.
  BAGUA_TRY(result());
  rearm();
  notePhase();
  return true;
}

/// For peers that wait for this rank: what it did last. No allocation.
void BindingImpl::notePhase() const {
  std::array<char, 160> text;
  const char *unit = bucket_.async ? "round" : "step";
  auto step = static_cast<long long>(values_.step);
  int bytes =
      bucket_.description.empty()
          ? std::snprintf(text.data(), text.size(),
                          "in user code, after program %s, bucket '%.64s', %s %lld",
                          current_->plan().program->name.c_str(), bucket_.name.c_str(), unit, step)
          : std::snprintf(text.data(), text.size(), "in user code, after %.64s, %s %lld",
                          bucket_.description.c_str(), unit, step);
  engine_.group().setPhase(
      {text.data(), std::min<size_t>(static_cast<size_t>(bytes), text.size() - 1)});
}

void BindingImpl::end(PollContext &context, const Status &result) {
  if (!result.ok())
    return;
  finishedRuns_.fetch_add(1, std::memory_order_relaxed);
  bytesWire_.fetch_add(current_->bytesSent(), std::memory_order_relaxed);
  busyNs_.fetch_add(static_cast<uint64_t>(context.nowNs - startNs_), std::memory_order_relaxed);
  context.trace.record({startNs_, context.nowNs, values_.step, current_->bytesSent(),
                        current_->plan().spanName, -1, Trace::Track::Program});
}

uint64_t BindingImpl::wireBytes(fb::Event event, int64_t step) const {
  const auto &run = runs_[static_cast<size_t>(event)];
  if (!run)
    return 0;
  StepValues values = values_;
  values.step = step;
  StatusOr<int64_t> bytes = evaluateInt(*schedule_, run->plan().wireBytes, bindValues_, values);
  return bytes.ok() && *bytes > 0 ? static_cast<uint64_t>(*bytes) : 0;
}

Binding::Statistics BindingImpl::statistics() const {
  Statistics statistics;
  statistics.runs = finishedRuns_.load(std::memory_order_relaxed);
  statistics.bytesRaw = statistics.runs * static_cast<uint64_t>(bucket_.length) *
                        static_cast<uint64_t>(elementBytes(bucket_.dtype));
  statistics.bytesWire = bytesWire_.load(std::memory_order_relaxed);
  statistics.waitNs = waitNs_.load(std::memory_order_relaxed);
  statistics.busyNs = busyNs_.load(std::memory_order_relaxed);
  return statistics;
}

} // namespace

StatusOr<std::unique_ptr<Binding>> Binding::create(Engine &engine,
                                                   std::shared_ptr<const Schedule> schedule,
                                                   const Bucket &bucket, const Options &options) {
  if (schedule == nullptr)
    return absl::InvalidArgumentError("bind expects a schedule");
  if (bucket.length < 0 || bucket.length > (int64_t{1} << 52))
    return absl::InvalidArgumentError(absl::StrCat(
        "bucket '", bucket.name, "' expects a length in [0, 2^52], got ", bucket.length));
  auto binding = std::make_unique<BindingImpl>(engine, std::move(schedule), bucket);
  BAGUA_TRY(binding->create(options));
  return std::unique_ptr<Binding>(std::move(binding));
}

} // namespace bagua::rt
