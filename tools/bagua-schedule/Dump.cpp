// A schedule as text.
#include "Dump.h"

#include "ExprText.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace bagua::tools {
namespace {

using rt::kNone;

std::string lower(absl::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    bool isUpper = text[i] >= 'A' && text[i] <= 'Z';
    if (isUpper && i > 0)
      result += '_';
    result += isUpper ? static_cast<char>(text[i] - 'A' + 'a') : text[i];
  }
  return result;
}

std::string kernelText(const fb::KernelT &kernel) {
  if (kernel.attributes.empty())
    return kernel.name + codeText(kernel);
  std::vector<std::string> attributes;
  for (const auto &attribute : kernel.attributes)
    attributes.push_back(absl::StrCat(attribute->name, " = ", attribute->value));
  return absl::StrCat(kernel.name, " {", absl::StrJoin(attributes, ", "), "}", codeText(kernel));
}

const char *unitText(const fb::ProgramT &program) {
  return program.every_unit == fb::IntervalUnit::Steps ? " steps" : " ms";
}

std::string header(const rt::Schedule &schedule) {
  const fb::ScheduleT &s = schedule.ir();
  std::vector<std::string> dtypes;
  for (fb::DType dtype : s.dtypes)
    dtypes.push_back(lower(fb::EnumNameDType(dtype)));
  std::string text = absl::StrCat("schedule ", s.name, "  digest ", schedule.digestHex());
  if (!s.producer.empty())
    absl::StrAppend(&text, ", producer: ", s.producer);
  absl::StrAppend(&text, "\n  buckets of ", absl::StrJoin(dtypes, " or "), ", grain ", s.grain,
                  s.owns_update ? ", owns the update" : "",
                  s.proof.empty() ? ", not proven" : ", proven", "\n");
  return text;
}

class Dumper {
public:
  explicit Dumper(const rt::Schedule &schedule)
      : schedule_(schedule), ir_(schedule.ir()), expr_(schedule.ir(), true) {}

  std::string run() {
    text_ = header(schedule_);
    for (const auto &parameter : ir_.parameters)
      absl::StrAppend(&text_, "  parameter @", parameter->name, " : ",
                      parameter->is_float ? absl::StrCat("f64 = ", parameter->default_float)
                                          : absl::StrCat("i64 = ", parameter->default_int),
                      parameter->per_step ? ", per step" : "", "\n");
    for (const auto &state : ir_.states)
      absl::StrAppend(&text_, "  state @", state->name, " : ", stateText(*state), "\n");
    for (const auto &kernel : ir_.kernels)
      absl::StrAppend(&text_, "  kernel ", kernelText(*kernel), "\n");
    for (const std::string &definition : expr_.definitions())
      absl::StrAppend(&text_, "  ", definition, "\n");
    for (const auto &program : ir_.programs)
      dump(*program);
    return std::move(text_);
  }

private:
  void dump(const fb::ProgramT &program) {
    program_ = &program;
    absl::StrAppend(&text_, "\nprogram ", program.name, " on ",
                    lower(fb::EnumNameEvent(program.event)), "  ", program.channels,
                    " channels\n  rounds ", expr_(program.rounds), "\n  wire_bytes ",
                    expr_(program.wire_bytes), "\n");
    if (program.event == fb::Event::Async)
      absl::StrAppend(&text_, "  every ", expr_(program.every), unitText(program),
                      program.after == kNone ? "" : ", after " + expr_(program.after) + " steps",
                      ", staleness ", program.staleness, "\n");
    for (const auto &buffer : program.buffers)
      absl::StrAppend(&text_, "  buffer ", buffer->name, " : ", kindText(*buffer), ", ",
                      expr_(buffer->bytes), " bytes\n");
    for (const auto &slots : program.slots)
      absl::StrAppend(&text_, "  slots ", slots->name, " : ", expr_(slots->count), " of ",
                      expr_(slots->bytes), " bytes\n");
    for (const auto &events : program.events)
      absl::StrAppend(&text_, "  events ", events->name, " : ", expr_(events->count), "\n");
    body(program.body, "", 1);
  }

  std::string kindText(const fb::BufferT &buffer) const {
    if (buffer.kind == fb::BufferKind::Job)
      return absl::StrCat("job ", lower(fb::EnumNameRole(buffer.role)));
    if (buffer.kind == fb::BufferKind::State)
      return absl::StrCat("state @", ir_.states[buffer.state]->name, buffer.next ? " next" : "");
    return "scratch";
  }

  void line(size_t depth, const std::string &what, uint32_t location) {
    std::string text = std::string(2 * depth, ' ') + what;
    absl::StrAppend(&text_, text);
    if (location != kNone)
      absl::StrAppend(&text_, "  // ", schedule_.location(location));
    absl::StrAppend(&text_, "\n");
  }

  void body(const std::vector<std::unique_ptr<fb::StepT>> &steps, const std::string &path,
            size_t depth) {
    for (size_t i = 0; i < steps.size(); ++i) {
      const fb::StepT &step = *steps[i];
      std::string own = absl::StrCat(path, i);
      if (const fb::ForT *loop = step.action.AsFor()) {
        line(depth,
             absl::StrCat(own, ": for i", loop->variable, " = ", expr_(loop->lower), " to ",
                          expr_(loop->upper), " {"),
             step.location);
        body(loop->body, own + ".", depth + 1);
        absl::StrAppend(&text_, std::string(2 * depth, ' '), "}\n");
      } else if (const fb::IfT *branch = step.action.AsIf()) {
        line(depth, absl::StrCat(own, ": if ", expr_(branch->condition), " {"), step.location);
        body(branch->then, own + ".then.", depth + 1);
        if (!branch->otherwise.empty()) {
          absl::StrAppend(&text_, std::string(2 * depth, ' '), "} else {\n");
          body(branch->otherwise, own + ".otherwise.", depth + 1);
        }
        absl::StrAppend(&text_, std::string(2 * depth, ' '), "}\n");
      } else {
        line(depth,
             absl::StrCat(own, ": ", lower(fb::EnumNameQueue(step.queue)), " ", action(step)),
             step.location);
      }
    }
  }

  std::string when(uint32_t node) const { return node == kNone ? "" : " when " + expr_(node); }

  std::string loopOver(uint32_t variable, uint32_t lower, uint32_t upper) const {
    return variable == kNone
               ? ""
               : absl::StrCat(" for i", variable, " = ", expr_(lower), " to ", expr_(upper));
  }

  std::string range(const fb::RangeT &range) const {
    std::string name =
        range.space == fb::Space::Slot
            ? absl::StrCat(program_->slots[range.id]->name, "[", expr_(range.index), "]")
            : program_->buffers[range.id]->name;
    return absl::StrCat(name, "[", expr_(range.offset), ", +", expr_(range.bytes), "]",
                        when(range.when));
  }

  std::string ranges(const std::vector<std::unique_ptr<fb::RangesT>> &lists) const {
    std::vector<std::string> texts;
    for (const auto &list : lists) {
      std::vector<std::string> entries;
      for (const auto &entry : list->ranges)
        entries.push_back(range(*entry));
      std::string text = absl::StrJoin(entries, ", ");
      texts.push_back(
          list->variable == kNone
              ? text
              : absl::StrCat("[", text, loopOver(list->variable, list->lower, list->upper), "]"));
    }
    return absl::StrJoin(texts, ", ");
  }

  std::string event(const fb::EventRefT &ref) const {
    return absl::StrCat(program_->events[ref.id]->name, "[", expr_(ref.index), "]", when(ref.when),
                        loopOver(ref.variable, ref.lower, ref.upper));
  }

  std::string action(const fb::StepT &step) const {
    std::string text;
    if (const fb::SendT *send = step.action.AsSend()) {
      text = absl::StrCat("send ", range(*send->source), " to ", expr_(send->peer), " channel ",
                          send->channel);
    } else if (const fb::RecvT *recv = step.action.AsRecv()) {
      text = absl::StrCat("recv ", expr_(recv->bytes), " bytes from ", expr_(recv->peer),
                          " channel ", recv->channel, " into ", program_->slots[recv->slots]->name,
                          "[", expr_(recv->index), "]");
    } else if (const fb::ReleaseT *release = step.action.AsRelease()) {
      text = absl::StrCat("release ", program_->slots[release->slots]->name, "[",
                          expr_(release->index), "]");
    } else if (const fb::LaunchT *launch = step.action.AsLaunch()) {
      text = absl::StrCat("launch ", kernelText(*ir_.kernels[launch->kernel]), " count ",
                          expr_(launch->count), " in(", ranges(launch->inputs), ") out(",
                          ranges(launch->outputs), ")");
      if (!launch->scalars.empty())
        absl::StrAppend(
            &text, " scalars(",
            absl::StrJoin(launch->scalars, ", ",
                          [&](std::string *out, uint32_t node) { *out += expr_(node); }),
            ")");
    } else if (const fb::WaitT *wait = step.action.AsWait()) {
      text = absl::StrCat("wait ", lower(fb::EnumNameGate(wait->gate)));
    } else if (const fb::PublishT *publish = step.action.AsPublish()) {
      text = absl::StrCat("publish @", ir_.states[publish->state]->name);
    }
    if (step.if_finite)
      text += " if_finite";
    if (step.guard != kNone)
      absl::StrAppend(&text, " guard ", expr_(step.guard));
    if (!step.waits.empty())
      absl::StrAppend(
          &text, " after(",
          absl::StrJoin(step.waits, ", ",
                        [&](std::string *out, const auto &ref) { *out += event(*ref); }),
          ")");
    if (step.signal)
      absl::StrAppend(&text, " signal ", event(*step.signal));
    return text;
  }

  const rt::Schedule &schedule_;
  const fb::ScheduleT &ir_;
  ExprText expr_;
  const fb::ProgramT *program_ = nullptr;
  std::string text_;
};

class FlatDumper {
public:
  FlatDumper(const rt::Schedule &schedule, const rt::FlatProgram &flat)
      : schedule_(schedule), flat_(flat), program_(*flat.source), expr_(schedule.ir(), false) {}

  std::string run() {
    std::string text = absl::StrCat("\nprogram ", program_.name, "  rounds ", value(flat_.rounds),
                                    ", wire bytes ", value(flat_.wireBytes), "\n");
    if (program_.event == fb::Event::Async)
      absl::StrAppend(&text, "  every ", flat_.every, unitText(program_), ", after ", flat_.after,
                      " steps, staleness ", program_.staleness, "\n");
    for (size_t i = 0; i < flat_.bufferBytes.size(); ++i)
      absl::StrAppend(&text, "  buffer ", program_.buffers[i]->name, " : ", flat_.bufferBytes[i],
                      " bytes\n");
    for (size_t i = 0; i < flat_.slots.size(); ++i)
      absl::StrAppend(&text, "  slots ", program_.slots[i]->name, " : ", flat_.slots[i].count,
                      " of ", flat_.slots[i].bytes, " bytes\n");
    for (size_t i = 0; i < flat_.steps.size(); ++i) {
      const rt::FlatStep &step = flat_.steps[i];
      absl::StrAppend(&text, "  ", i, ": ", lower(fb::EnumNameQueue(step.queue)), " ", action(step),
                      "  // ", schedule_.location(step.location), "\n");
    }
    return text;
  }

private:
  std::string range(const rt::ByteRange &range) const {
    std::string name = range.space == fb::Space::Slot
                           ? absl::StrCat(program_.slots[range.id]->name, "[", range.index, "]")
                           : program_.buffers[range.id]->name;
    return absl::StrCat(name, "[", range.offset, ", +", range.bytes, "]");
  }
  std::string ranges(const std::vector<rt::ByteRange> &list) const {
    return absl::StrJoin(
        list, ", ", [&](std::string *out, const rt::ByteRange &entry) { *out += range(entry); });
  }
  std::string value(const rt::StepExpr &expr) const {
    if (expr.isConstant)
      return absl::StrCat(expr.intValue);
    std::string text = expr_(expr.node);
    for (const auto &[loop, bound] : expr.loops)
      absl::StrAppend(&text, " with i", loop, " = ", bound);
    return text;
  }
  std::string event(uint32_t number) const {
    for (size_t i = flat_.firstEvent.size(); i-- > 0;)
      if (number >= flat_.firstEvent[i])
        return absl::StrCat(program_.events[i]->name, "[", number - flat_.firstEvent[i], "]");
    return "?";
  }
  std::string action(const rt::FlatStep &step) const {
    std::string text;
    using Kind = rt::FlatStep::Kind;
    switch (step.kind) {
    case Kind::Send:
      text = absl::StrCat("send ", range(step.range), " to ", value(step.peer), " channel ",
                          step.channel);
      break;
    case Kind::Recv:
      text = absl::StrCat("recv ", step.range.bytes, " bytes from ", value(step.peer), " channel ",
                          step.channel, " into ", program_.slots[step.range.id]->name, "[",
                          step.range.index, "]");
      break;
    case Kind::Release:
      text =
          absl::StrCat("release ", program_.slots[step.range.id]->name, "[", step.range.index, "]");
      break;
    case Kind::Launch:
      text = absl::StrCat("launch ", kernelText(*schedule_.ir().kernels[step.kernel]), " count ",
                          step.count, " in(", ranges(step.inputs), ") out(", ranges(step.outputs),
                          ")");
      if (!step.scalars.empty())
        absl::StrAppend(&text, " scalars(",
                        absl::StrJoin(step.scalars, ", ",
                                      [&](std::string *out, const rt::StepExpr &scalar) {
                                        *out += scalar.isConstant ? absl::StrCat(scalar.floatValue)
                                                                  : value(scalar);
                                      }),
                        ")");
      break;
    case Kind::Wait:
      text = absl::StrCat("wait ", lower(fb::EnumNameGate(step.gate)));
      break;
    case Kind::Publish:
      text = absl::StrCat("publish @", schedule_.ir().states[step.state]->name);
      break;
    }
    if (step.ifFinite)
      text += " if_finite";
    if (step.guarded)
      absl::StrAppend(&text, " guard ", value(step.guard));
    if (!step.waits.empty())
      absl::StrAppend(
          &text, " after(",
          absl::StrJoin(step.waits, ", ",
                        [&](std::string *out, uint32_t number) { *out += event(number); }),
          ")");
    if (step.signal != kNone)
      absl::StrAppend(&text, " signal ", event(step.signal));
    return text;
  }

  const rt::Schedule &schedule_;
  const rt::FlatProgram &flat_;
  const fb::ProgramT &program_;
  ExprText expr_;
};

} // namespace

std::string dump(const rt::Schedule &schedule) { return Dumper(schedule).run(); }

rt::StatusOr<std::string> dumpExpanded(const rt::Schedule &schedule, const rt::BindValues &values) {
  std::string text =
      absl::StrCat(header(schedule), "  rank ", values.rank, " of ", values.world, ", length ",
                   values.length, ", ", lower(fb::EnumNameDType(values.dtype)), "\n");
  for (const auto &program : schedule.ir().programs) {
    auto flat = rt::expand(schedule, *program, values);
    BAGUA_TRY(flat.status());
    text += FlatDumper(schedule, *flat).run();
  }
  return text;
}

} // namespace bagua::tools
