// Where two schedules differ, by name.
#include "Diff.h"

#include "ExprText.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include <algorithm>
#include <bit>
#include <map>
#include <tuple>

namespace bagua::tools {
namespace {

using rt::kNone;

/// Numbers the expressions of several pools so that equal ones, and only they, have equal numbers.
class Interner {
public:
  std::vector<uint32_t> intern(const fb::ScheduleT &schedule) {
    std::vector<uint32_t> numbers;
    for (const auto &expr : schedule.expressions) {
      // Fields that the operation does not use may hold anything.
      bool hasValue = expr->op == fb::ExprOp::ConstInt || expr->op == fb::ExprOp::Loop;
      std::string parameter;
      if (expr->op == fb::ExprOp::Parameter)
        parameter = schedule.parameters[static_cast<size_t>(expr->value)]->name;
      unsigned operands = operandCount(expr->op);
      auto operand = [&](uint32_t node, unsigned i) { return i < operands ? numbers[node] : 0; };
      uint64_t real = expr->op == fb::ExprOp::ConstFloat ? std::bit_cast<uint64_t>(expr->real) : 0;
      auto key = std::make_tuple(expr->op, operand(expr->a, 0), operand(expr->b, 1),
                                 operand(expr->c, 2), hasValue ? expr->value : 0, real, parameter);
      numbers.push_back(known_.try_emplace(key, known_.size()).first->second);
    }
    return numbers;
  }

private:
  std::map<std::tuple<fb::ExprOp, uint32_t, uint32_t, uint32_t, int64_t, uint64_t, std::string>,
           uint32_t>
      known_;
};

class Differ {
public:
  Differ(const fb::ScheduleT &a, const fb::ScheduleT &b, const DiffOptions &options)
      : a_(a), b_(b), options_(options), textA_(a, false), textB_(b, false) {
    Interner interner;
    numbersA_ = interner.intern(a);
    numbersB_ = interner.intern(b);
  }

  std::vector<std::string> run();

private:
  using Steps = std::vector<std::unique_ptr<fb::StepT>>;

  void tell(const std::string &where, const std::string &a, const std::string &b) {
    ++found_;
    if (lines_.size() < options_.differencesMax)
      lines_.push_back(absl::StrCat(where, ": ", a, " -> ", b));
  }
  template <typename T> void value(const std::string &where, const T &a, const T &b) {
    if (!(a == b))
      tell(where, absl::StrCat(a), absl::StrCat(b));
  }
  void flag(const std::string &where, bool a, bool b) {
    if (a != b)
      tell(where, a ? "yes" : "no", b ? "yes" : "no");
  }
  /// Indices of `a` and `b` in their own pools; kNone is "always".
  void expr(const std::string &where, uint32_t a, uint32_t b) {
    if ((a == kNone) != (b == kNone) || (a != kNone && numbersA_[a] != numbersB_[b]))
      tell(where, a == kNone ? "none" : textA_(a), b == kNone ? "none" : textB_(b));
  }
  /// Calls `each` for entries of both, and tells of those that only one has.
  template <typename T, typename Name, typename Each>
  void list(const std::string &where, const std::vector<std::unique_ptr<T>> &a,
            const std::vector<std::unique_ptr<T>> &b, Name &&name, Each &&each) {
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
      each(i, *a[i], *b[i]);
    for (size_t i = b.size(); i < a.size(); ++i)
      tell(absl::StrCat(where, " ", i), name(*a[i]), "none");
    for (size_t i = a.size(); i < b.size(); ++i)
      tell(absl::StrCat(where, " ", i), "none", name(*b[i]));
  }

  void program(const fb::ProgramT &a, const fb::ProgramT &b);
  void steps(const std::string &where, const Steps &a, const Steps &b);
  void step(const std::string &where, const fb::StepT &a, const fb::StepT &b);
  void range(const std::string &where, const fb::RangeT &a, const fb::RangeT &b);
  void ranges(const std::string &where, const fb::RangesT &a, const fb::RangesT &b);
  void event(const std::string &where, const fb::EventRefT &a, const fb::EventRefT &b);
  std::string stepText(const fb::ScheduleT &s, const fb::StepT &step) const;
  std::string locationText(const fb::ScheduleT &s, uint32_t index) const;
  template <typename T>
  static std::string nameIn(const std::vector<std::unique_ptr<T>> &list, uint32_t id) {
    return list[id]->name;
  }

  const fb::ScheduleT &a_, &b_;
  const DiffOptions &options_;
  ExprText textA_, textB_;
  std::vector<uint32_t> numbersA_, numbersB_;
  const fb::ProgramT *programA_ = nullptr, *programB_ = nullptr;
  std::vector<std::string> lines_;
  size_t found_ = 0;
};

std::string Differ::locationText(const fb::ScheduleT &s, uint32_t index) const {
  if (index >= s.locations.size())
    return "unknown location";
  const fb::LocationT &location = *s.locations[index];
  return absl::StrCat(location.file, ":", location.line, ":", location.column);
}

std::string Differ::stepText(const fb::ScheduleT &s, const fb::StepT &step) const {
  std::string text = fb::EnumNameAction(step.action.type);
  if (const fb::LaunchT *launch = step.action.AsLaunch())
    absl::StrAppend(&text, " ", s.kernels[launch->kernel]->name);
  return absl::StrCat(text, " (", locationText(s, step.location), ")");
}

std::string kernelText(const fb::KernelT &kernel) {
  std::string text = kernel.name;
  for (const auto &attribute : kernel.attributes)
    absl::StrAppend(&text, " ", attribute->name, "=", attribute->value);
  return text + codeText(kernel);
}

std::vector<std::string> Differ::run() {
  value<std::string>("name", a_.name, b_.name);
  if (!options_.ignoreLocations)
    value<std::string>("producer", a_.producer, b_.producer);
  auto dtypes = [](const fb::ScheduleT &s) {
    std::string text;
    for (fb::DType dtype : s.dtypes)
      absl::StrAppend(&text, text.empty() ? "" : " ", fb::EnumNameDType(dtype));
    return text;
  };
  value("dtypes", dtypes(a_), dtypes(b_));
  value("grain", a_.grain, b_.grain);
  flag("owns_update", a_.owns_update, b_.owns_update);
  flag("proven", !a_.proof.empty(), !b_.proof.empty());
  list(
      "parameter", a_.parameters, b_.parameters, [](auto &p) { return p.name; },
      [&](size_t i, const fb::ParameterT &a, const fb::ParameterT &b) {
        std::string where = absl::StrCat("parameter ", i, " '", a.name, "'");
        value<std::string>(where + ": name", a.name, b.name);
        flag(where + ": is f64", a.is_float, b.is_float);
        flag(where + ": per step", a.per_step, b.per_step);
        value(where + ": default", a.default_int, b.default_int);
        value(where + ": default", a.default_float, b.default_float);
      });
  list(
      "state", a_.states, b_.states, [](auto &state) { return state.name; },
      [&](size_t i, const fb::StateT &a, const fb::StateT &b) {
        std::string where = absl::StrCat("state ", i, " '", a.name, "'");
        value<std::string>(where + ": name", a.name, b.name);
        value(where, stateText(a), stateText(b));
      });
  list(
      "program", a_.programs, b_.programs, [](auto &p) { return p.name; },
      [&](size_t, const fb::ProgramT &a, const fb::ProgramT &b) { program(a, b); });
  if (found_ > lines_.size())
    lines_.push_back(absl::StrCat("… and ", found_ - lines_.size(), " more"));
  return std::move(lines_);
}

void Differ::program(const fb::ProgramT &a, const fb::ProgramT &b) {
  programA_ = &a;
  programB_ = &b;
  std::string where = absl::StrCat("program '", a.name, "': ");
  value<std::string>(where + "name", a.name, b.name);
  value<std::string>(where + "event", fb::EnumNameEvent(a.event), fb::EnumNameEvent(b.event));
  value(where + "channels", a.channels, b.channels);
  expr(where + "rounds", a.rounds, b.rounds);
  expr(where + "wire_bytes", a.wire_bytes, b.wire_bytes);
  expr(where + "every", a.every, b.every);
  value<std::string>(where + "every_unit", fb::EnumNameIntervalUnit(a.every_unit),
                     fb::EnumNameIntervalUnit(b.every_unit));
  expr(where + "after", a.after, b.after);
  value(where + "staleness", a.staleness, b.staleness);
  auto name = [](auto &entry) { return entry.name; };
  list(where + "buffer", a.buffers, b.buffers, name,
       [&](size_t i, const fb::BufferT &x, const fb::BufferT &y) {
         std::string at = absl::StrCat(where, "buffer ", i, " '", x.name, "': ");
         value<std::string>(at + "name", x.name, y.name);
         value<std::string>(at + "kind", fb::EnumNameBufferKind(x.kind),
                            fb::EnumNameBufferKind(y.kind));
         if (x.kind == fb::BufferKind::Job)
           value<std::string>(at + "role", fb::EnumNameRole(x.role), fb::EnumNameRole(y.role));
         if (x.kind == fb::BufferKind::State && y.kind == fb::BufferKind::State) {
           value(at + "state", nameIn(a_.states, x.state), nameIn(b_.states, y.state));
           flag(at + "next", x.next, y.next);
         }
         expr(at + "bytes", x.bytes, y.bytes);
       });
  list(where + "slots", a.slots, b.slots, name,
       [&](size_t i, const fb::SlotsT &x, const fb::SlotsT &y) {
         std::string at = absl::StrCat(where, "slots ", i, " '", x.name, "': ");
         value<std::string>(at + "name", x.name, y.name);
         expr(at + "count", x.count, y.count);
         expr(at + "bytes", x.bytes, y.bytes);
       });
  list(where + "events", a.events, b.events, name,
       [&](size_t i, const fb::EventsT &x, const fb::EventsT &y) {
         std::string at = absl::StrCat(where, "events ", i, " '", x.name, "': ");
         value<std::string>(at + "name", x.name, y.name);
         expr(at + "count", x.count, y.count);
       });
  steps(where + "step ", a.body, b.body);
}

void Differ::steps(const std::string &where, const Steps &a, const Steps &b) {
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    std::string at = absl::StrCat(where, i);
    if (a[i]->action.type != b[i]->action.type) {
      tell(at, stepText(a_, *a[i]), stepText(b_, *b[i]));
      return;
    }
    step(at, *a[i], *b[i]);
  }
  if (a.size() > b.size())
    tell(absl::StrCat(where, b.size()), stepText(a_, *a[b.size()]), "none");
  if (b.size() > a.size())
    tell(absl::StrCat(where, a.size()), "none", stepText(b_, *b[a.size()]));
}

void Differ::step(const std::string &where, const fb::StepT &a, const fb::StepT &b) {
  std::string at = absl::StrCat(where, " (", stepText(a_, a), "): ");
  if (!options_.ignoreLocations)
    value("" + at + "location", locationText(a_, a.location), locationText(b_, b.location));
  if (const fb::ForT *loop = a.action.AsFor()) {
    const fb::ForT &other = *b.action.AsFor();
    value(at + "variable", loop->variable, other.variable);
    expr(at + "lower", loop->lower, other.lower);
    expr(at + "upper", loop->upper, other.upper);
    steps(where + ".", loop->body, other.body);
    return;
  }
  if (const fb::IfT *branch = a.action.AsIf()) {
    const fb::IfT &other = *b.action.AsIf();
    expr(at + "condition", branch->condition, other.condition);
    steps(where + ".then.", branch->then, other.then);
    steps(where + ".otherwise.", branch->otherwise, other.otherwise);
    return;
  }
  value<std::string>(at + "queue", fb::EnumNameQueue(a.queue), fb::EnumNameQueue(b.queue));
  expr(at + "guard", a.guard, b.guard);
  flag(at + "if_finite", a.if_finite, b.if_finite);
  auto eventText = [](const std::vector<std::unique_ptr<fb::EventsT>> &events) {
    return [&events](const fb::EventRefT &ref) { return events[ref.id]->name; };
  };
  for (size_t i = 0; i < std::max(a.waits.size(), b.waits.size()); ++i) {
    std::string wait = absl::StrCat(at, "wait ", i);
    if (i >= b.waits.size())
      tell(wait, eventText(programA_->events)(*a.waits[i]), "none");
    else if (i >= a.waits.size())
      tell(wait, "none", eventText(programB_->events)(*b.waits[i]));
    else
      event(wait, *a.waits[i], *b.waits[i]);
  }
  if (!a.signal != !b.signal)
    tell(at + "signal", a.signal ? eventText(programA_->events)(*a.signal) : "none",
         b.signal ? eventText(programB_->events)(*b.signal) : "none");
  else if (a.signal)
    event(at + "signal", *a.signal, *b.signal);

  if (const fb::SendT *send = a.action.AsSend()) {
    const fb::SendT &other = *b.action.AsSend();
    expr(at + "peer", send->peer, other.peer);
    value(at + "channel", send->channel, other.channel);
    range(at + "source", *send->source, *other.source);
  } else if (const fb::RecvT *recv = a.action.AsRecv()) {
    const fb::RecvT &other = *b.action.AsRecv();
    expr(at + "peer", recv->peer, other.peer);
    value(at + "channel", recv->channel, other.channel);
    value(at + "slots", nameIn(programA_->slots, recv->slots),
          nameIn(programB_->slots, other.slots));
    expr(at + "index", recv->index, other.index);
    expr(at + "bytes", recv->bytes, other.bytes);
  } else if (const fb::ReleaseT *release = a.action.AsRelease()) {
    const fb::ReleaseT &other = *b.action.AsRelease();
    value(at + "slots", nameIn(programA_->slots, release->slots),
          nameIn(programB_->slots, other.slots));
    expr(at + "index", release->index, other.index);
  } else if (const fb::LaunchT *launch = a.action.AsLaunch()) {
    const fb::LaunchT &other = *b.action.AsLaunch();
    value(at + "kernel", kernelText(*a_.kernels[launch->kernel]),
          kernelText(*b_.kernels[other.kernel]));
    expr(at + "count", launch->count, other.count);
    auto some = [](auto &) { return std::string("ranges"); };
    list(at + "input", launch->inputs, other.inputs, some,
         [&](size_t i, auto &x, auto &y) { ranges(absl::StrCat(at, "input ", i), x, y); });
    list(at + "output", launch->outputs, other.outputs, some,
         [&](size_t i, auto &x, auto &y) { ranges(absl::StrCat(at, "output ", i), x, y); });
    value(at + "scalars", launch->scalars.size(), other.scalars.size());
    for (size_t i = 0; i < std::min(launch->scalars.size(), other.scalars.size()); ++i)
      expr(absl::StrCat(at, "scalar ", i), launch->scalars[i], other.scalars[i]);
  } else if (const fb::WaitT *wait = a.action.AsWait()) {
    value<std::string>(at + "gate", fb::EnumNameGate(wait->gate),
                       fb::EnumNameGate(b.action.AsWait()->gate));
  } else if (const fb::PublishT *publish = a.action.AsPublish()) {
    value(at + "state", nameIn(a_.states, publish->state),
          nameIn(b_.states, b.action.AsPublish()->state));
  }
}

void Differ::range(const std::string &where, const fb::RangeT &a, const fb::RangeT &b) {
  auto name = [](const fb::ProgramT &program, const fb::RangeT &range) {
    return range.space == fb::Space::Slot
               ? absl::StrCat("slots ", program.slots[range.id]->name)
               : absl::StrCat("buffer ", program.buffers[range.id]->name);
  };
  value(where + ": of", name(*programA_, a), name(*programB_, b));
  if (a.space == fb::Space::Slot && b.space == fb::Space::Slot)
    expr(where + ": index", a.index, b.index);
  expr(where + ": offset", a.offset, b.offset);
  expr(where + ": bytes", a.bytes, b.bytes);
  expr(where + ": when", a.when, b.when);
}

void Differ::ranges(const std::string &where, const fb::RangesT &a, const fb::RangesT &b) {
  value(where + ": variable", a.variable, b.variable);
  if (a.variable != kNone && b.variable != kNone) {
    expr(where + ": lower", a.lower, b.lower);
    expr(where + ": upper", a.upper, b.upper);
  }
  list(
      where + ": range", a.ranges, b.ranges, [](auto &) { return std::string("a range"); },
      [&](size_t i, auto &x, auto &y) { range(absl::StrCat(where, ": range ", i), x, y); });
}

void Differ::event(const std::string &where, const fb::EventRefT &a, const fb::EventRefT &b) {
  value(where + ": events", nameIn(programA_->events, a.id), nameIn(programB_->events, b.id));
  value(where + ": variable", a.variable, b.variable);
  if (a.variable != kNone && b.variable != kNone) {
    expr(where + ": lower", a.lower, b.lower);
    expr(where + ": upper", a.upper, b.upper);
  }
  expr(where + ": index", a.index, b.index);
  expr(where + ": when", a.when, b.when);
}

} // namespace

std::vector<std::string> diff(const fb::ScheduleT &a, const fb::ScheduleT &b,
                              const DiffOptions &options) {
  return Differ(a, b, options).run();
}

} // namespace bagua::tools
