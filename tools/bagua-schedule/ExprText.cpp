// Expressions of a schedule as people write them.
#include "ExprText.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include <algorithm>

namespace bagua::tools {
namespace {

using fb::ExprOp;

struct Infix {
  const char *text; ///< Null: written as a function.
  int precedence;   ///< Higher binds closer.
};

Infix infixOf(ExprOp op) {
  switch (op) {
  case ExprOp::Or:
    return {"or", 2};
  case ExprOp::And:
    return {"and", 3};
  case ExprOp::Eq:
    return {"==", 4};
  case ExprOp::Ne:
    return {"!=", 4};
  case ExprOp::Lt:
    return {"<", 4};
  case ExprOp::Le:
    return {"<=", 4};
  case ExprOp::Add:
  case ExprOp::FAdd:
    return {"+", 5};
  case ExprOp::Sub:
  case ExprOp::FSub:
    return {"-", 5};
  case ExprOp::Mul:
  case ExprOp::FMul:
    return {"*", 6};
  case ExprOp::FDiv:
    return {"/", 6};
  case ExprOp::Mod:
    return {"mod", 6};
  default:
    return {nullptr, 0};
  }
}

const char *functionOf(ExprOp op) {
  switch (op) {
  case ExprOp::FloorDiv:
    return "floordiv";
  case ExprOp::CeilDiv:
    return "ceildiv";
  case ExprOp::Min:
    return "min";
  case ExprOp::Max:
    return "max";
  case ExprOp::Not:
    return "not";
  case ExprOp::ToFloat:
    return "float";
  case ExprOp::FPowInt:
    return "pow";
  case ExprOp::Pairing:
    return "pairing";
  default:
    return "?";
  }
}

const char *leafOf(ExprOp op) {
  switch (op) {
  case ExprOp::World:
    return "world";
  case ExprOp::Rank:
    return "rank";
  case ExprOp::LocalRank:
    return "local_rank";
  case ExprOp::LocalSize:
    return "local_size";
  case ExprOp::Nodes:
    return "nodes";
  case ExprOp::Length:
    return "length";
  case ExprOp::ElementBytes:
    return "element_bytes";
  case ExprOp::Step:
    return "step";
  case ExprOp::Bucket:
    return "bucket";
  default:
    return "?";
  }
}

/// Counts how often the programs use each expression.
class UseCounter {
public:
  UseCounter(const fb::ScheduleT &schedule, std::vector<uint32_t> &uses) : uses_(uses) {
    for (const auto &program : schedule.programs) {
      use(program->rounds, program->wire_bytes, program->every, program->after);
      for (const auto &buffer : program->buffers)
        use(buffer->bytes);
      for (const auto &slots : program->slots)
        use(slots->count, slots->bytes);
      for (const auto &events : program->events)
        use(events->count);
      body(program->body);
    }
  }

private:
  template <typename... Nodes> void use(Nodes... nodes) {
    ((nodes != rt::kNone ? void(++uses_[nodes]) : void()), ...);
  }
  void loop(uint32_t variable, uint32_t lower, uint32_t upper) {
    if (variable != rt::kNone)
      use(lower, upper);
  }
  void range(const fb::RangeT &range) {
    use(range.offset, range.bytes, range.when);
    if (range.space == fb::Space::Slot)
      use(range.index);
  }
  void event(const fb::EventRefT &ref) {
    loop(ref.variable, ref.lower, ref.upper);
    use(ref.index, ref.when);
  }
  void ranges(const std::vector<std::unique_ptr<fb::RangesT>> &lists) {
    for (const auto &list : lists) {
      loop(list->variable, list->lower, list->upper);
      for (const auto &entry : list->ranges)
        range(*entry);
    }
  }
  void body(const std::vector<std::unique_ptr<fb::StepT>> &steps) {
    for (const auto &step : steps) {
      use(step->guard);
      for (const auto &wait : step->waits)
        event(*wait);
      if (step->signal)
        event(*step->signal);
      if (const fb::ForT *nested = step->action.AsFor()) {
        use(nested->lower, nested->upper);
        body(nested->body);
      } else if (const fb::IfT *branch = step->action.AsIf()) {
        use(branch->condition);
        body(branch->then);
        body(branch->otherwise);
      } else if (const fb::SendT *send = step->action.AsSend()) {
        use(send->peer);
        range(*send->source);
      } else if (const fb::RecvT *recv = step->action.AsRecv()) {
        use(recv->peer, recv->index, recv->bytes);
      } else if (const fb::ReleaseT *release = step->action.AsRelease()) {
        use(release->index);
      } else if (const fb::LaunchT *launch = step->action.AsLaunch()) {
        use(launch->count);
        ranges(launch->inputs);
        ranges(launch->outputs);
        for (uint32_t scalar : launch->scalars)
          use(scalar);
      }
    }
  }

  std::vector<uint32_t> &uses_;
};

} // namespace

std::string codeText(const fb::KernelT &kernel) {
  auto map = [](const fb::MapCodeT &code) {
    return absl::StrCat(code.inputs, " inputs, ", code.scalars, " scalars, broadcast [",
                        absl::StrJoin(code.broadcast, " "), "], constants [",
                        absl::StrJoin(code.constants, " ",
                                      [](std::string *out, double value) {
                                        absl::StrAppendFormat(out, "%.17g", value);
                                      }),
                        "], code [",
                        absl::StrJoin(code.code, "; ",
                                      [](std::string *out, const fb::MapInstruction &instruction) {
                                        absl::StrAppend(out, instruction.op(), " ", instruction.a(),
                                                        " ", instruction.b(), " ", instruction.c());
                                      }),
                        "], outputs [", absl::StrJoin(code.outputs, " "), "]");
  };
  std::string text;
  if (kernel.map)
    text = absl::StrCat(" (", map(*kernel.map), ")");
  if (const fb::CodecCodeT *codec = kernel.codec.get())
    absl::StrAppend(&text, " (block ", codec->block, ", ", codec->header_count, " headers, ",
                    codec->code_bits, codec->signed_codes ? " signed" : "", " bits, reductions [",
                    absl::StrJoin(codec->reductions, " "), "], stats (", map(*codec->stats),
                    "), headers (", map(*codec->headers), "), encode (", map(*codec->encode),
                    "), decode (", map(*codec->decode), "))");
  return text;
}

std::string stateText(const fb::StateT &state) {
  std::string text = fb::EnumNameStateDomain(state.domain);
  if (state.domain == fb::StateDomain::Neighbors)
    absl::StrAppend(&text, "(", state.copies, ")");
  absl::StrAppend(&text, " = ");
  if (state.initial_weight)
    absl::StrAppend(&text, "weight");
  else
    absl::StrAppendFormat(&text, "%.17g", state.initial);
  absl::StrAppend(&text, ", on resize ", fb::EnumNameOnResize(state.on_resize));
  return text;
}

unsigned operandCount(ExprOp op) {
  switch (op) {
  case ExprOp::Select:
    return 3;
  case ExprOp::Not:
  case ExprOp::ToFloat:
    return 1;
  case ExprOp::Bucket:
    return 0;
  default:
    return op < ExprOp::Add ? 0 : 2;
  }
}

ExprText::ExprText(const fb::ScheduleT &schedule, bool nameShared)
    : schedule_(schedule), named_(schedule.expressions.size(), false) {
  // What is shared and not short has a name; so has anything too long to read, which also keeps the
  // text of a hostile file short: a pool of n nodes can spell 2^n.
  constexpr uint32_t kShortNodes = 7, kLongNodes = 64;
  std::vector<uint32_t> uses(schedule.expressions.size(), 0), size(schedule.expressions.size(), 1);
  for (const auto &expr : schedule.expressions) {
    uint32_t operands[3] = {expr->a, expr->b, expr->c};
    for (unsigned i = 0; i < operandCount(expr->op); ++i)
      ++uses[operands[i]];
  }
  if (nameShared)
    UseCounter(schedule, uses);
  for (size_t node = 0; node < size.size(); ++node) {
    const fb::ExprT &expr = *schedule.expressions[node];
    uint32_t operands[3] = {expr.a, expr.b, expr.c};
    for (unsigned i = 0; i < operandCount(expr.op); ++i)
      size[node] += named_[operands[i]] ? 1 : size[operands[i]];
    named_[node] =
        (nameShared && uses[node] > 1 && size[node] >= kShortNodes) || size[node] > kLongNodes;
  }
}

std::vector<std::string> ExprText::definitions() const {
  std::vector<std::string> result;
  for (uint32_t node = 0; node < named_.size(); ++node)
    if (named_[node])
      result.push_back(absl::StrCat("%", node, " = ", text(node, 0, true)));
  return result;
}

std::string ExprText::text(uint32_t node, int outerPrecedence, bool define) const {
  const fb::ExprT &expr = *schedule_.expressions[node];
  if (named_[node] && !define)
    return absl::StrCat("%", node);
  auto inParentheses = [&](int precedence, std::string inner) {
    return precedence < outerPrecedence ? absl::StrCat("(", inner, ")") : inner;
  };
  switch (expr.op) {
  case ExprOp::ConstInt:
    return absl::StrCat(expr.value);
  case ExprOp::ConstFloat:
    return absl::StrFormat("%.17g", expr.real);
  case ExprOp::Parameter:
    return absl::StrCat("@", schedule_.parameters[static_cast<size_t>(expr.value)]->name);
  case ExprOp::Loop:
    return absl::StrCat("i", expr.value);
  case ExprOp::Select:
    return inParentheses(1, absl::StrCat(text(expr.a, 2, false), " ? ", text(expr.b, 2, false),
                                         " : ", text(expr.c, 1, false)));
  default:
    break;
  }
  unsigned operands = operandCount(expr.op);
  if (operands == 0)
    return leafOf(expr.op);
  if (Infix infix = infixOf(expr.op); infix.text)
    return inParentheses(infix.precedence,
                         absl::StrCat(text(expr.a, infix.precedence, false), " ", infix.text, " ",
                                      text(expr.b, infix.precedence + 1, false)));
  std::string result = absl::StrCat(functionOf(expr.op), "(", text(expr.a, 0, false));
  if (operands > 1)
    absl::StrAppend(&result, ", ", text(expr.b, 0, false));
  return result + ")";
}

} // namespace bagua::tools
