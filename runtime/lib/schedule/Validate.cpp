// The rules of a schedule, each tagged schedule_Sxx and quoted as [Sxx] in its message. They are
// all that bind, checker and tools may rely on. SPEC.md, "Schedule file", lists them; the pool's
// rules (S08 to S11) are in Expressions.cpp.
#include "Expressions.h"
#include "Limits.h"

#include "absl/strings/str_cat.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace bagua::rt {
namespace {

/// Printable UTF-8 (names go into messages, traces and terminals): no control characters, no
/// overlong forms, no surrogates.
bool isPrintableUtf8(absl::string_view text) {
  for (size_t i = 0; i < text.size();) {
    auto byte = static_cast<unsigned char>(text[i]);
    if (byte < 0x80) {
      if (byte < 0x20 || byte == 0x7f)
        return false;
      ++i;
      continue;
    }
    unsigned length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc2 ? 2 : 0;
    if (length == 0 || byte > 0xf4 || i + length > text.size())
      return false;
    uint32_t code = byte & (0xffu >> (length + 1));
    for (unsigned k = 1; k < length; ++k) {
      auto next = static_cast<unsigned char>(text[i + k]);
      if ((next & 0xc0) != 0x80)
        return false;
      code = code << 6 | (next & 0x3fu);
    }
    constexpr uint32_t kSmallest[5] = {0, 0, 0x80, 0x800, 0x10000};
    if (code < kSmallest[length] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000) ||
        code < 0xa0)
      return false;
    i += length;
  }
  return true;
}

enum class Time : uint8_t { Bind, Any };
enum class Type : uint8_t { Int, Any };

class Validator {
public:
  explicit Validator(const fb::ScheduleT &schedule) : schedule_(schedule) {}

  Status run();

private:
  Status error(absl::string_view rule, absl::string_view what) const;
  Status name(absl::string_view text, absl::string_view what,
              size_t bytesMax = kLimits.nameBytes) const;
  Status count(size_t actual, size_t limit, absl::string_view what) const;
  Status index(uint32_t index, size_t size, absl::string_view what) const;
  Status expression(uint32_t node, Type type, Time time, absl::string_view what) const;
  Status optional(uint32_t node, Time time, absl::string_view what) const {
    return node == kNone ? absl::OkStatus() : expression(node, Type::Int, time, what);
  }
  template <typename E> Status enumeration(E value, E last, absl::string_view what) const {
    if (value > last) // schedule_S01
      return error("S01", absl::StrCat(what, " has value ", static_cast<int>(value),
                                       ", expected at most ", static_cast<int>(last)));
    return absl::OkStatus();
  }
  template <typename T>
  Status noNulls(const std::vector<std::unique_ptr<T>> &list, absl::string_view what) const {
    for (size_t i = 0; i < list.size(); ++i)
      if (!list[i]) // schedule_S07
        return error("S07", absl::StrCat(what, " ", i, " is null"));
    return absl::OkStatus();
  }
  template <typename T>
  Status list(const std::vector<std::unique_ptr<T>> &list, size_t limit,
              absl::string_view what) const {
    BAGUA_TRY(count(list.size(), limit, what));
    return noNulls(list, what);
  }

  Status program(const fb::ProgramT &program);
  Status async(const fb::ProgramT &program) const;
  Status interval(uint32_t node, absl::string_view what) const;
  Status asyncStates() const;
  Status body(const std::vector<std::unique_ptr<fb::StepT>> &steps, size_t depth);
  Status step(const fb::StepT &step, size_t depth);
  Status action(const fb::ForT &loop, size_t depth);
  Status action(const fb::IfT &branch, size_t depth);
  Status action(const fb::SendT &send);
  Status action(const fb::RecvT &recv);
  Status action(const fb::ReleaseT &release);
  Status action(const fb::LaunchT &launch);
  Status state(const fb::StateT &state) const;
  Status kernel(const fb::KernelT &kernel) const;
  Status code(const fb::MapCodeT &code, const std::string &what) const;
  Status range(const fb::RangeT &range, absl::string_view what) const;
  Status ranges(const fb::RangesT &ranges, absl::string_view what);
  Status eventRef(const fb::EventRefT &ref, absl::string_view what);
  Status enterLoop(uint32_t variable, uint32_t lower, uint32_t upper, absl::string_view what);

  const fb::ScheduleT &schedule_;
  const fb::ProgramT *program_ = nullptr;
  PoolFacts facts_;
  std::set<uint32_t> nextStates_; ///< That have a next buffer in the program at hand.
  std::vector<uint32_t> scope_;   ///< Loop variables.
  std::vector<std::string> path_; ///< Of the step at hand, e.g. {"2", "then 0"}.
  uint32_t location_ = kNone;
  size_t steps_ = 0;
};

Status Validator::error(absl::string_view rule, absl::string_view what) const {
  std::string where = "schedule";
  if (isPrintableUtf8(schedule_.name) && schedule_.name.size() <= kLimits.nameBytes)
    absl::StrAppend(&where, " '", schedule_.name, "'");
  if (program_ && isPrintableUtf8(program_->name) && program_->name.size() <= kLimits.nameBytes)
    absl::StrAppend(&where, ": program '", program_->name, "'");
  if (!path_.empty()) {
    absl::StrAppend(&where, ": step ");
    for (size_t i = 0; i < path_.size(); ++i)
      absl::StrAppend(&where, i == 0 ? "" : ".", path_[i]);
    if (location_ < schedule_.locations.size()) {
      const fb::LocationT &location = *schedule_.locations[location_];
      absl::StrAppend(&where, " (", location.file, ":", location.line, ":", location.column, ")");
    }
  }
  return absl::InvalidArgumentError(absl::StrCat(where, ": ", what, " [", rule, "]"));
}

Status Validator::name(absl::string_view text, absl::string_view what, size_t bytesMax) const {
  if (text.size() > bytesMax) // schedule_S02
    return error("S02",
                 absl::StrCat(what, " has ", text.size(), " bytes, expected at most ", bytesMax));
  if (!isPrintableUtf8(text)) // schedule_S02
    return error("S02", absl::StrCat(what, " is not printable UTF-8"));
  return absl::OkStatus();
}

Status Validator::count(size_t actual, size_t limit, absl::string_view what) const {
  if (actual > limit) // schedule_S04
    return error("S04",
                 absl::StrCat("has ", actual, " entries '", what, "', expected at most ", limit));
  return absl::OkStatus();
}

Status Validator::index(uint32_t index, size_t size, absl::string_view what) const {
  if (index >= size) // schedule_S21
    return error("S21", absl::StrCat(what, " is ", index, ", expected below ", size));
  return absl::OkStatus();
}

Status Validator::expression(uint32_t node, Type type, Time time, absl::string_view what) const {
  if (node >= facts_.nodes.size()) // schedule_S12
    return error("S12", absl::StrCat(what, " is expression %", node, ", expected below ",
                                     facts_.nodes.size()));
  const ExprFacts &fact = facts_.nodes[node];
  if (type == Type::Int && fact.isFloat) // schedule_S13
    return error("S13", absl::StrCat(what, " is an f64 expression (%", node, "), expected i64"));
  if (time == Time::Bind && fact.isStep) // schedule_S14
    return error("S14", absl::StrCat(what, " (%", node,
                                     ") depends on the step, expected an "
                                     "expression known at bind"));
  for (uint32_t loop : facts_.loopsOf(node))
    if (std::find(scope_.begin(), scope_.end(), loop) == scope_.end()) // schedule_S15
      return error("S15", absl::StrCat(what, " (%", node, ") uses loop variable ", loop,
                                       ", which is not in scope"));
  return absl::OkStatus();
}

template <typename T, typename Get>
const std::string *duplicate(const std::vector<std::unique_ptr<T>> &list, Get &&get) {
  std::set<std::string> seen;
  for (const auto &entry : list)
    if (!seen.insert(get(*entry)).second)
      return &get(*entry);
  return nullptr;
}

Status Validator::run() {
  const fb::ScheduleT &s = schedule_;
  if (s.name.empty()) // schedule_S02
    return error("S02", "the schedule's name is empty");
  BAGUA_TRY(name(s.name, "the schedule's name"));
  BAGUA_TRY(name(s.producer, "the producer"));
  BAGUA_TRY(list(s.expressions, kLimits.expressions, "expression"));
  BAGUA_TRY(list(s.parameters, kLimits.parameters, "parameter"));
  BAGUA_TRY(list(s.kernels, kLimits.kernels, "kernel"));
  BAGUA_TRY(list(s.locations, kLimits.locations, "location"));
  BAGUA_TRY(list(s.programs, kLimits.programs, "program"));
  BAGUA_TRY(list(s.states, kLimits.states, "state"));
  BAGUA_TRY(count(s.proof.size(), kLimits.proofBytes, "proof byte"));

  if (s.dtypes.empty() || s.dtypes.size() > 2) // schedule_S05
    return error("S05", absl::StrCat("accepts ", s.dtypes.size(), " dtypes, expected 1 or 2"));
  for (fb::DType dtype : s.dtypes)
    BAGUA_TRY(enumeration(dtype, fb::DType::MAX, "dtype"));
  if (s.dtypes.size() == 2 && s.dtypes[0] == s.dtypes[1]) // schedule_S05
    return error("S05", "names one dtype twice");
  if (s.grain == 0 || s.grain > kLimits.grain) // schedule_S06
    return error("S06", absl::StrCat("grain is ", s.grain, ", expected 1 to ", kLimits.grain));

  for (const auto &location : s.locations)
    BAGUA_TRY(name(location->file, "a location's file", kLimits.pathBytes));
  for (const auto &parameter : s.parameters) {
    if (parameter->name.empty()) // schedule_S02
      return error("S02", "a parameter's name is empty");
    BAGUA_TRY(name(parameter->name, "a parameter's name"));
    if (!std::isfinite(parameter->default_float)) // schedule_S27
      return error("S27", absl::StrCat("parameter '", parameter->name, "' has default ",
                                       parameter->default_float, ", expected a finite number"));
  }
  if (const std::string *twice = duplicate(
          s.parameters, [](auto &p) -> const std::string & { return p.name; })) // schedule_S03
    return error("S03", absl::StrCat("two parameters are named '", *twice, "'"));
  for (const auto &kernel : s.kernels)
    BAGUA_TRY(this->kernel(*kernel));
  for (const auto &state : s.states)
    BAGUA_TRY(this->state(*state));
  if (const std::string *twice = duplicate(
          s.states, [](auto &p) -> const std::string & { return p.name; })) // schedule_S03
    return error("S03", absl::StrCat("two states are named '", *twice, "'"));

  auto facts = poolFacts(s);
  BAGUA_TRY(facts.status());
  facts_ = *std::move(facts);

  for (const auto &program : s.programs)
    BAGUA_TRY(this->program(*program));
  program_ = nullptr;
  if (const std::string *twice = duplicate(
          s.programs, [](auto &p) -> const std::string & { return p.name; })) // schedule_S03
    return error("S03", absl::StrCat("two programs are named '", *twice, "'"));
  for (size_t i = 0; i < s.programs.size(); ++i)
    for (size_t k = 0; k < i; ++k)
      if (s.programs[i]->event == s.programs[k]->event) // schedule_S23
        return error("S23", absl::StrCat("programs '", s.programs[k]->name, "' and '",
                                         s.programs[i]->name, "' start at the same event"));
  return asyncStates();
}

/// An async program runs beside the others: what they share would be read while it is written.
Status Validator::asyncStates() const {
  std::map<uint32_t, std::pair<bool, bool>> users; // State -> used by async programs, by others.
  for (const auto &program : schedule_.programs)
    for (const auto &buffer : program->buffers)
      if (buffer->kind == fb::BufferKind::State) {
        auto &[isAsync, isOther] = users[buffer->state];
        (program->event == fb::Event::Async ? isAsync : isOther) = true;
      }
  for (const auto &[state, by] : users)
    if (by.first && by.second) // schedule_S37
      return error("S37", absl::StrCat("state '", schedule_.states[state]->name,
                                       "' is used by an async program and by another"));
  return absl::OkStatus();
}

/// Rounds begin at the same boundaries for every bucket, and where steps count, on every rank.
Status Validator::interval(uint32_t node, absl::string_view what) const {
  BAGUA_TRY(expression(node, Type::Int, Time::Bind, what));
  std::set<uint32_t> open = {node};
  while (!open.empty()) { // Operands are earlier expressions.
    uint32_t at = *open.rbegin();
    open.erase(at);
    const fb::ExprT &expr = *schedule_.expressions[at];
    switch (expr.op) {
    case fb::ExprOp::Rank:
    case fb::ExprOp::LocalRank:
    case fb::ExprOp::LocalSize:
    case fb::ExprOp::Length:
    case fb::ExprOp::ElementBytes:
    case fb::ExprOp::Bucket:
    case fb::ExprOp::Pairing:
      return error("S35", absl::StrCat(what, " uses ", fb::EnumNameExprOp(expr.op),
                                       ", expected what is the same for all ranks and buckets"));
    default: // schedule_S35
      break;
    }
    const uint32_t operands[] = {expr.a, expr.b, expr.c};
    open.insert(operands, operands + operandCount(expr.op));
  }
  return absl::OkStatus();
}

Status Validator::async(const fb::ProgramT &program) const {
  BAGUA_TRY(enumeration(program.every_unit, fb::IntervalUnit::MAX, "every_unit"));
  if (program.event != fb::Event::Async) {
    if (program.every != kNone || program.after != kNone || program.staleness != 0 ||
        program.every_unit != fb::IntervalUnit::Steps) // schedule_S34
      return error("S34", "has every, after or staleness, which belong to async programs");
    return absl::OkStatus();
  }
  if (program.every == kNone || program.staleness == 0) // schedule_S34
    return error("S34", absl::StrCat("has ", program.every == kNone ? "no every" : "staleness 0",
                                     ", expected an interval and a staleness of at least 1"));
  BAGUA_TRY(interval(program.every, "every"));
  if (program.after != kNone)
    BAGUA_TRY(interval(program.after, "after"));
  bool hasWeight = false;
  for (const auto &buffer : program.buffers) {
    if (buffer->kind != fb::BufferKind::Job)
      continue;
    if (buffer->role != fb::Role::Weight) // schedule_S36
      return error("S36", absl::StrCat("buffer '", buffer->name,
                                       "' is the gradient, which an async program does not have"));
    hasWeight = true;
  }
  if (!hasWeight) // schedule_S36
    return error("S36", "has no job buffer for the weight, which an async program changes");
  return absl::OkStatus();
}

Status Validator::kernel(const fb::KernelT &kernel) const {
  if (kernel.name.empty()) // schedule_S02
    return error("S02", "a kernel's name is empty");
  BAGUA_TRY(name(kernel.name, "a kernel's name"));
  BAGUA_TRY(list(kernel.attributes, kLimits.attributes, "attribute"));
  for (const auto &attribute : kernel.attributes) {
    if (attribute->name.empty()) // schedule_S02
      return error("S02",
                   absl::StrCat("an attribute's name of kernel '", kernel.name, "' is empty"));
    BAGUA_TRY(name(attribute->name, "an attribute's name"));
  }
  if (const std::string *twice = duplicate(
          kernel.attributes, [](auto &a) -> const std::string & { return a.name; })) // schedule_S03
    return error("S03",
                 absl::StrCat("kernel '", kernel.name, "' has attribute '", *twice, "' twice"));
  bool isMap = kernel.name == "map";
  bool isCodec = kernel.name == "codec_encode" || kernel.name == "codec_decode" ||
                 kernel.name == "codec_decode_reduce_sum" ||
                 kernel.name == "codec_decode_reduce_mean";
  auto codeText = [](bool map, bool codec) {
    return map && codec ? "code of a map and of a codec"
           : map        ? "code of a map"
           : codec      ? "code of a codec"
                        : "no code";
  };
  if (isMap != !!kernel.map || isCodec != !!kernel.codec) // schedule_S29
    return error("S29", absl::StrCat("kernel '", kernel.name, "' has ",
                                     codeText(!!kernel.map, !!kernel.codec), ", expected ",
                                     codeText(isMap, isCodec)));
  std::string what = absl::StrCat("kernel '", kernel.name, "'");
  if (isMap)
    return code(*kernel.map, what);
  if (!isCodec)
    return absl::OkStatus();
  const fb::CodecCodeT &codec = *kernel.codec;
  BAGUA_TRY(count(codec.reductions.size(), kLimits.mapEntries, "reduction"));
  for (const auto &[part, partName] :
       {std::pair{&codec.stats, "stats"}, std::pair{&codec.headers, "headers"},
        std::pair{&codec.encode, "encode"}, std::pair{&codec.decode, "decode"}}) {
    if (!*part) // schedule_S07
      return error("S07", absl::StrCat(what, ": ", partName, " is null"));
    BAGUA_TRY(code(**part, absl::StrCat(what, ": ", partName)));
  }
  return absl::OkStatus();
}

/// Sizes only: what the code says is the kernels library's to judge.
Status Validator::code(const fb::MapCodeT &code, const std::string &what) const {
  for (const auto &[size, entries] :
       {std::pair{code.code.size(), "instructions"}, std::pair{code.constants.size(), "constants"},
        std::pair{code.outputs.size(), "outputs"},
        std::pair{code.broadcast.size(), "broadcast flags"}})
    if (size > kLimits.mapEntries) // schedule_S04
      return error("S04", absl::StrCat(what, " has ", size, " ", entries, ", expected at most ",
                                       kLimits.mapEntries));
  return absl::OkStatus();
}

Status Validator::state(const fb::StateT &state) const {
  if (state.name.empty()) // schedule_S02
    return error("S02", "a state's name is empty");
  BAGUA_TRY(name(state.name, "a state's name"));
  std::string what = absl::StrCat("state '", state.name, "'");
  BAGUA_TRY(enumeration(state.domain, fb::StateDomain::MAX, what + ": domain"));
  BAGUA_TRY(enumeration(state.on_resize, fb::OnResize::MAX, what + ": on_resize"));
  bool isMany = state.domain == fb::StateDomain::Neighbors;
  uint32_t copiesMax = isMany ? kLimits.stateCopies : 1;
  if (state.copies < 1 || state.copies > copiesMax) // schedule_S30
    return error("S30", absl::StrCat(what, " has ", state.copies, " copies, expected ",
                                     isMany ? "1 to " : "", copiesMax));
  if (!std::isfinite(state.initial)) // schedule_S27
    return error("S27",
                 absl::StrCat(what, " is ", state.initial, " at first, expected a finite number"));
  bool fitsWeight = state.domain == fb::StateDomain::Bucket || isMany;
  if (state.initial_weight && (!fitsWeight || state.initial != 0)) // schedule_S30
    return error("S30", absl::StrCat(what, " begins as the weight",
                                     fitsWeight ? " and as a number" : ", but is over no bucket"));
  return absl::OkStatus();
}

Status Validator::program(const fb::ProgramT &program) {
  program_ = &program;
  if (program.name.empty()) // schedule_S02
    return error("S02", "its name is empty");
  BAGUA_TRY(name(program.name, "a program's name"));
  BAGUA_TRY(enumeration(program.event, fb::Event::MAX, "event"));
  BAGUA_TRY(list(program.buffers, kLimits.declarations, "buffer"));
  BAGUA_TRY(list(program.slots, kLimits.declarations, "slots"));
  BAGUA_TRY(list(program.events, kLimits.declarations, "events"));
  if (program.channels > kLimits.channels) // schedule_S04
    return error("S04", absl::StrCat("has ", program.channels, " channels, expected at most ",
                                     kLimits.channels));
  bool hasRole[2] = {false, false};
  std::set<uint32_t> committedStates;
  nextStates_.clear();
  std::set<std::string> names;
  auto declare = [&](const std::string &text, absl::string_view what) -> Status {
    if (text.empty()) // schedule_S02
      return error("S02", absl::StrCat(what, ": name is empty"));
    BAGUA_TRY(name(text, what));
    if (!names.insert(text).second) // schedule_S03
      return error("S03", absl::StrCat("declares '", text, "' twice"));
    return absl::OkStatus();
  };
  for (const auto &buffer : program.buffers) {
    BAGUA_TRY(declare(buffer->name, "a buffer's name"));
    BAGUA_TRY(enumeration(buffer->kind, fb::BufferKind::MAX, "a buffer's kind"));
    BAGUA_TRY(enumeration(buffer->role, fb::Role::MAX, "a buffer's role"));
    BAGUA_TRY(expression(buffer->bytes, Type::Int, Time::Bind,
                         absl::StrCat("buffer '", buffer->name, "': bytes")));
    if (buffer->kind == fb::BufferKind::Job) {
      bool &has = hasRole[static_cast<size_t>(buffer->role)];
      if (has) // schedule_S24
        return error("S24", absl::StrCat("buffer '", buffer->name, "': a second job buffer for ",
                                         fb::EnumNameRole(buffer->role)));
      has = true;
    }
    if (buffer->kind == fb::BufferKind::State) {
      BAGUA_TRY(index(buffer->state, schedule_.states.size(),
                      absl::StrCat("buffer '", buffer->name, "': state")));
      bool isNew = (buffer->next ? nextStates_ : committedStates).insert(buffer->state).second;
      if (!isNew) // schedule_S31
        return error("S31", absl::StrCat("buffer '", buffer->name, "': a second buffer for the ",
                                         buffer->next ? "next" : "committed", " value of state '",
                                         schedule_.states[buffer->state]->name, "'"));
    }
  }
  for (const auto &slots : program.slots) {
    BAGUA_TRY(declare(slots->name, "a slot pool's name"));
    BAGUA_TRY(expression(slots->count, Type::Int, Time::Bind,
                         absl::StrCat("slots '", slots->name, "': count")));
    BAGUA_TRY(expression(slots->bytes, Type::Int, Time::Bind,
                         absl::StrCat("slots '", slots->name, "': bytes")));
  }
  for (const auto &events : program.events) {
    BAGUA_TRY(declare(events->name, "an event array's name"));
    BAGUA_TRY(expression(events->count, Type::Int, Time::Bind,
                         absl::StrCat("events '", events->name, "': count")));
  }
  BAGUA_TRY(expression(program.rounds, Type::Int, Time::Any, "rounds"));
  BAGUA_TRY(expression(program.wire_bytes, Type::Int, Time::Any, "wire_bytes"));
  BAGUA_TRY(async(program));
  steps_ = 0;
  return body(program.body, 0);
}

Status Validator::body(const std::vector<std::unique_ptr<fb::StepT>> &steps, size_t depth) {
  BAGUA_TRY(noNulls(steps, "step"));
  steps_ += steps.size();
  BAGUA_TRY(count(steps_, kLimits.steps, "step"));
  for (size_t i = 0; i < steps.size(); ++i) {
    path_.push_back(absl::StrCat(i));
    location_ = steps[i]->location;
    BAGUA_TRY(step(*steps[i], depth));
    path_.pop_back();
  }
  return absl::OkStatus();
}

Status Validator::step(const fb::StepT &step, size_t depth) {
  if (step.location != kNone)
    BAGUA_TRY(index(step.location, schedule_.locations.size(), "location"));
  BAGUA_TRY(enumeration(step.queue, fb::Queue::MAX, "queue"));
  if (step.action.type == fb::Action::NONE || step.action.type > fb::Action::MAX ||
      !step.action.value) // schedule_S18
    return error("S18", absl::StrCat("has action ", static_cast<int>(step.action.type),
                                     ", which is none or unknown"));
  BAGUA_TRY(list(step.waits, kLimits.listEntries, "wait"));
  const fb::ForT *loop = step.action.AsFor();
  const fb::IfT *branch = step.action.AsIf();
  if (loop || branch) {
    if (!step.waits.empty() || step.signal || step.guard != kNone || step.if_finite) // schedule_S19
      return error("S19", "For and If neither wait, signal nor have a guard: their steps do");
    return loop ? action(*loop, depth) : action(*branch, depth);
  }
  for (size_t i = 0; i < step.waits.size(); ++i)
    BAGUA_TRY(eventRef(*step.waits[i], absl::StrCat("wait ", i)));
  if (step.signal) {
    if (step.signal->variable != kNone || step.signal->when != kNone) // schedule_S22
      return error("S22", "signal has a loop variable or a condition, expected one event");
    BAGUA_TRY(eventRef(*step.signal, "signal"));
  }
  BAGUA_TRY(optional(step.guard, Time::Any, "guard"));
  if (step.if_finite && step.action.type != fb::Action::Launch &&
      step.action.type != fb::Action::Publish) // schedule_S33
    return error("S33", absl::StrCat(fb::EnumNameAction(step.action.type),
                                     " depends on a finite step, which Launch and Publish may"));
  if (program_->event == fb::Event::Async &&
      (step.if_finite || step.action.type == fb::Action::Wait)) // schedule_S36
    return error("S36", absl::StrCat(fb::EnumNameAction(step.action.type),
                                     step.if_finite ? " depends on a finite step" : "",
                                     ": an async program belongs to no step of the job"));
  bool onNet = step.queue == fb::Queue::Net;
  auto expectQueue = [&](bool right, absl::string_view what) {
    return right ? absl::OkStatus() : error("S20", what); // schedule_S20
  };
  switch (step.action.type) {
  case fb::Action::Send:
    BAGUA_TRY(expectQueue(onNet, "Send is on queue Cpu, expected Net"));
    return action(*step.action.AsSend());
  case fb::Action::Recv:
    BAGUA_TRY(expectQueue(onNet, "Recv is on queue Cpu, expected Net"));
    return action(*step.action.AsRecv());
  case fb::Action::Launch:
    BAGUA_TRY(expectQueue(!onNet, "Launch is on queue Net, expected Cpu"));
    return action(*step.action.AsLaunch());
  case fb::Action::Release:
    return action(*step.action.AsRelease());
  case fb::Action::Wait:
    return enumeration(step.action.AsWait()->gate, fb::Gate::MAX, "gate");
  case fb::Action::Publish: {
    BAGUA_TRY(expectQueue(!onNet, "Publish is on queue Net, expected Cpu"));
    uint32_t state = step.action.AsPublish()->state;
    BAGUA_TRY(index(state, schedule_.states.size(), "Publish: state"));
    if (!nextStates_.contains(state)) // schedule_S31
      return error("S31", absl::StrCat("Publish: state '", schedule_.states[state]->name,
                                       "' has no next buffer in this program"));
    return absl::OkStatus();
  }
  default:
    BAGUA_CHECK(false);
  }
}

Status Validator::enterLoop(uint32_t variable, uint32_t lower, uint32_t upper,
                            absl::string_view what) {
  BAGUA_TRY(expression(lower, Type::Int, Time::Bind, absl::StrCat(what, ": lower")));
  BAGUA_TRY(expression(upper, Type::Int, Time::Bind, absl::StrCat(what, ": upper")));
  if (variable == kNone) // schedule_S15
    return error("S15", absl::StrCat(what, ": has no loop variable"));
  if (std::find(scope_.begin(), scope_.end(), variable) != scope_.end()) // schedule_S16
    return error("S16", absl::StrCat(what, ": loop variable ", variable, " is already in scope"));
  scope_.push_back(variable);
  return absl::OkStatus();
}

Status Validator::action(const fb::ForT &loop, size_t depth) {
  if (depth >= kLimits.nestingDepth) // schedule_S17
    return error("S17", absl::StrCat("is nested deeper than ", kLimits.nestingDepth));
  BAGUA_TRY(enterLoop(loop.variable, loop.lower, loop.upper, "For"));
  BAGUA_TRY(body(loop.body, depth + 1));
  scope_.pop_back();
  return absl::OkStatus();
}

Status Validator::action(const fb::IfT &branch, size_t depth) {
  if (depth >= kLimits.nestingDepth) // schedule_S17
    return error("S17", absl::StrCat("is nested deeper than ", kLimits.nestingDepth));
  BAGUA_TRY(expression(branch.condition, Type::Int, Time::Bind, "If: condition"));
  std::string own = path_.back();
  path_.back() = own + ".then";
  BAGUA_TRY(body(branch.then, depth + 1));
  path_.back() = own + ".otherwise";
  BAGUA_TRY(body(branch.otherwise, depth + 1));
  path_.back() = own;
  return absl::OkStatus();
}

Status Validator::range(const fb::RangeT &range, absl::string_view what) const {
  BAGUA_TRY(enumeration(range.space, fb::Space::MAX, absl::StrCat(what, ": space")));
  if (range.space == fb::Space::Slot) {
    BAGUA_TRY(index(range.id, program_->slots.size(), absl::StrCat(what, ": slots")));
    BAGUA_TRY(expression(range.index, Type::Int, Time::Bind, absl::StrCat(what, ": index")));
  } else {
    BAGUA_TRY(index(range.id, program_->buffers.size(), absl::StrCat(what, ": buffer")));
  }
  BAGUA_TRY(expression(range.offset, Type::Int, Time::Bind, absl::StrCat(what, ": offset")));
  BAGUA_TRY(expression(range.bytes, Type::Int, Time::Bind, absl::StrCat(what, ": bytes")));
  return optional(range.when, Time::Bind, absl::StrCat(what, ": when"));
}

Status Validator::ranges(const fb::RangesT &ranges, absl::string_view what) {
  BAGUA_TRY(list(ranges.ranges, kLimits.listEntries, "range"));
  bool loops = ranges.variable != kNone;
  if (loops)
    BAGUA_TRY(enterLoop(ranges.variable, ranges.lower, ranges.upper, what));
  for (size_t i = 0; i < ranges.ranges.size(); ++i)
    BAGUA_TRY(range(*ranges.ranges[i], absl::StrCat(what, ": range ", i)));
  if (loops)
    scope_.pop_back();
  return absl::OkStatus();
}

Status Validator::eventRef(const fb::EventRefT &ref, absl::string_view what) {
  bool loops = ref.variable != kNone;
  if (loops)
    BAGUA_TRY(enterLoop(ref.variable, ref.lower, ref.upper, what));
  BAGUA_TRY(index(ref.id, program_->events.size(), absl::StrCat(what, ": events")));
  BAGUA_TRY(expression(ref.index, Type::Int, Time::Bind, absl::StrCat(what, ": index")));
  BAGUA_TRY(optional(ref.when, Time::Bind, absl::StrCat(what, ": when")));
  if (loops)
    scope_.pop_back();
  return absl::OkStatus();
}

Status Validator::action(const fb::SendT &send) {
  BAGUA_TRY(expression(send.peer, Type::Int, Time::Any, "Send: peer"));
  BAGUA_TRY(index(send.channel, program_->channels, "Send: channel"));
  if (!send.source) // schedule_S07
    return error("S07", "Send: source is null");
  if (send.source->space == fb::Space::Slot) // schedule_S28
    return error("S28", "Send: source is a slot, expected a buffer");
  if (send.source->when != kNone) // schedule_S28
    return error("S28", "Send: source has a condition; use the step's guard or an If");
  return range(*send.source, "Send: source");
}

Status Validator::action(const fb::RecvT &recv) {
  BAGUA_TRY(expression(recv.peer, Type::Int, Time::Any, "Recv: peer"));
  BAGUA_TRY(index(recv.channel, program_->channels, "Recv: channel"));
  BAGUA_TRY(index(recv.slots, program_->slots.size(), "Recv: slots"));
  BAGUA_TRY(expression(recv.index, Type::Int, Time::Bind, "Recv: index"));
  return expression(recv.bytes, Type::Int, Time::Bind, "Recv: bytes");
}

Status Validator::action(const fb::ReleaseT &release) {
  BAGUA_TRY(index(release.slots, program_->slots.size(), "Release: slots"));
  return expression(release.index, Type::Int, Time::Bind, "Release: index");
}

Status Validator::action(const fb::LaunchT &launch) {
  BAGUA_TRY(index(launch.kernel, schedule_.kernels.size(), "Launch: kernel"));
  BAGUA_TRY(list(launch.inputs, kLimits.listEntries, "input"));
  BAGUA_TRY(list(launch.outputs, kLimits.listEntries, "output"));
  BAGUA_TRY(count(launch.scalars.size(), kLimits.listEntries, "scalar"));
  for (size_t i = 0; i < launch.inputs.size(); ++i)
    BAGUA_TRY(ranges(*launch.inputs[i], absl::StrCat("Launch: input ", i)));
  if (launch.outputs.empty()) // schedule_S26
    return error("S26", "Launch: has no output");
  for (size_t i = 0; i < launch.outputs.size(); ++i) {
    BAGUA_TRY(ranges(*launch.outputs[i], absl::StrCat("Launch: output ", i)));
    for (const auto &range : launch.outputs[i]->ranges) {
      if (range->space == fb::Space::Slot) // schedule_S25
        return error("S25", absl::StrCat("Launch: output ", i,
                                         " is a slot, expected a buffer: a view may be the sender's"
                                         " own memory"));
      const fb::BufferT &buffer = *program_->buffers[range->id];
      if (buffer.kind == fb::BufferKind::State && !buffer.next) // schedule_S32
        return error("S32", absl::StrCat("Launch: output ", i, " is '", buffer.name,
                                         "', the committed value of a state, which is read only"));
    }
  }
  for (size_t i = 0; i < launch.scalars.size(); ++i)
    BAGUA_TRY(
        expression(launch.scalars[i], Type::Any, Time::Any, absl::StrCat("Launch: scalar ", i)));
  return expression(launch.count, Type::Int, Time::Bind, "Launch: count");
}

} // namespace

Status validate(const fb::ScheduleT &schedule) { return Validator(schedule).run(); }

} // namespace bagua::rt
