// Writes schedules by hand, for tests.
#include "ScheduleBuilder.h"

namespace bagua::rt::testing {

using fb::ExprOp;

ScheduleBuilder::ScheduleBuilder(std::string name, uint32_t grain, std::vector<fb::DType> dtypes) {
  schedule_.name = std::move(name);
  schedule_.producer = "by hand";
  schedule_.grain = grain;
  schedule_.dtypes = std::move(dtypes);
}

E ScheduleBuilder::expr(ExprOp op, E a, E b, E c, int64_t value, double real) {
  auto operand = [](E e) { return e.builder ? e.node : 0; };
  auto key = std::make_tuple(op, operand(a), operand(b), operand(c), value, real);
  auto [entry, isNew] = known_.try_emplace(key, schedule_.expressions.size());
  if (isNew) {
    auto node = std::make_unique<fb::ExprT>();
    node->op = op;
    node->a = operand(a);
    node->b = operand(b);
    node->c = operand(c);
    node->value = value;
    node->real = real;
    schedule_.expressions.push_back(std::move(node));
  }
  return {this, entry->second};
}

E ScheduleBuilder::parameter(const std::string &name, int64_t value, bool perStep) {
  auto parameter = std::make_unique<fb::ParameterT>();
  parameter->name = name;
  parameter->default_int = value;
  parameter->per_step = perStep;
  schedule_.parameters.push_back(std::move(parameter));
  return expr(ExprOp::Parameter, {}, {}, {}, static_cast<int64_t>(schedule_.parameters.size()) - 1);
}

E ScheduleBuilder::floatParameter(const std::string &name, double value, bool perStep) {
  E result = parameter(name, 0, perStep);
  schedule_.parameters.back()->is_float = true;
  schedule_.parameters.back()->default_float = value;
  return result;
}

fb::StateT &ScheduleBuilder::state(const std::string &name, fb::StateDomain domain) {
  schedule_.states.push_back(std::make_unique<fb::StateT>());
  schedule_.states.back()->name = name;
  schedule_.states.back()->domain = domain;
  return *schedule_.states.back();
}

uint32_t ScheduleBuilder::mapKernel(uint16_t inputs, uint16_t scalars,
                                    std::vector<double> constants,
                                    std::vector<fb::MapInstruction> code,
                                    std::vector<uint8_t> broadcast) {
  uint32_t id = kernel("map");
  auto map = std::make_unique<fb::MapCodeT>();
  map->inputs = inputs;
  map->scalars = scalars;
  map->constants = std::move(constants);
  map->outputs = {static_cast<uint16_t>(code.size() - 1)};
  map->code = std::move(code);
  map->broadcast = std::move(broadcast);
  map->broadcast.resize(inputs, 0);
  schedule_.kernels.back()->map = std::move(map);
  return id;
}

uint32_t ScheduleBuilder::absMaxCodecKernel(const std::string &name, uint32_t block) {
  uint32_t id = kernel(name);
  auto map = [](uint16_t inputs, std::vector<fb::MapInstruction> code,
                std::vector<double> constants = {}) {
    auto result = std::make_unique<fb::MapCodeT>();
    result->inputs = inputs;
    result->outputs = {static_cast<uint16_t>(code.size() - 1)};
    result->code = std::move(code);
    result->constants = std::move(constants);
    result->broadcast = {0, 1}; // The header is one for all elements of a block.
    result->broadcast.resize(inputs);
    return result;
  };
  // 0 Input, 2 Constant, 5 Mul, 6 Div, 10 Abs.
  auto codec = std::make_unique<fb::CodecCodeT>();
  codec->block = block;
  codec->header_count = 1;
  codec->code_bits = 8;
  codec->signed_codes = true;
  codec->stats = map(1, {{0, 0, 0, 0}, {10, 0, 0, 0}});
  codec->reductions = {0}; // Max
  codec->headers = map(1, {{0, 0, 0, 0}, {2, 0, 0, 0}, {6, 0, 1, 0}}, {127.0});
  codec->encode = map(2, {{0, 0, 0, 0}, {0, 1, 0, 0}, {6, 0, 1, 0}});
  codec->decode = map(2, {{0, 0, 0, 0}, {0, 1, 0, 0}, {5, 0, 1, 0}});
  schedule_.kernels.back()->codec = std::move(codec);
  return id;
}

uint32_t ScheduleBuilder::kernel(const std::string &name,
                                 std::vector<std::pair<std::string, int64_t>> attributes) {
  auto kernel = std::make_unique<fb::KernelT>();
  kernel->name = name;
  for (const auto &[attributeName, value] : attributes) {
    auto attribute = std::make_unique<fb::KernelAttributeT>();
    attribute->name = attributeName;
    attribute->value = value;
    kernel->attributes.push_back(std::move(attribute));
  }
  schedule_.kernels.push_back(std::move(kernel));
  return static_cast<uint32_t>(schedule_.kernels.size() - 1);
}

void ScheduleBuilder::program(const std::string &name, fb::Event event, uint32_t channels, E rounds,
                              E wireBytes) {
  auto program = std::make_unique<fb::ProgramT>();
  program->name = name;
  program->event = event;
  program->channels = channels;
  program->rounds = rounds.node;
  program->wire_bytes = wireBytes.node;
  body_ = {&program->body};
  schedule_.programs.push_back(std::move(program));
}

void ScheduleBuilder::interval(E every, fb::IntervalUnit unit, E after, uint32_t staleness) {
  fb::ProgramT &program = *schedule_.programs.back();
  program.every = every.node;
  program.every_unit = unit;
  program.after = after.node;
  program.staleness = staleness;
}

uint32_t ScheduleBuilder::jobBuffer(const std::string &name, fb::Role role) {
  uint32_t id = scratch(name, length() * elementBytes());
  fb::BufferT &buffer = *schedule_.programs.back()->buffers.back();
  buffer.kind = fb::BufferKind::Job;
  buffer.role = role;
  return id;
}

uint32_t ScheduleBuilder::scratch(const std::string &name, E bytes) {
  auto buffer = std::make_unique<fb::BufferT>();
  buffer->name = name;
  buffer->kind = fb::BufferKind::Scratch;
  buffer->bytes = bytes.node;
  auto &buffers = schedule_.programs.back()->buffers;
  buffers.push_back(std::move(buffer));
  return static_cast<uint32_t>(buffers.size() - 1);
}

uint32_t ScheduleBuilder::stateBuffer(const std::string &name, uint32_t state, bool next, E bytes) {
  uint32_t id = scratch(next ? name + "_next" : name, bytes);
  fb::BufferT &buffer = *schedule_.programs.back()->buffers.back();
  buffer.kind = fb::BufferKind::State;
  buffer.state = state;
  buffer.next = next;
  return id;
}

uint32_t ScheduleBuilder::slots(const std::string &name, E count, E bytes) {
  auto slots = std::make_unique<fb::SlotsT>();
  slots->name = name;
  slots->count = count.node;
  slots->bytes = bytes.node;
  auto &pools = schedule_.programs.back()->slots;
  pools.push_back(std::move(slots));
  return static_cast<uint32_t>(pools.size() - 1);
}

uint32_t ScheduleBuilder::events(const std::string &name, E count) {
  auto events = std::make_unique<fb::EventsT>();
  events->name = name;
  events->count = count.node;
  auto &arrays = schedule_.programs.back()->events;
  arrays.push_back(std::move(events));
  return static_cast<uint32_t>(arrays.size() - 1);
}

ScheduleBuilder::Ref ScheduleBuilder::event(uint32_t id, E index, E when) {
  auto ref = std::make_unique<fb::EventRefT>();
  ref->id = id;
  ref->index = index.node;
  ref->when = when.node;
  return ref;
}

ScheduleBuilder::Ref ScheduleBuilder::eventsFor(uint32_t variable, E lower, E upper, uint32_t id,
                                                E index, E when) {
  Ref ref = event(id, index, when);
  ref->variable = variable;
  ref->lower = lower.node;
  ref->upper = upper.node;
  return ref;
}

ScheduleBuilder::RangePtr ScheduleBuilder::range(uint32_t buffer, E offset, E bytes, E when) {
  auto range = std::make_unique<fb::RangeT>();
  range->space = fb::Space::Buffer;
  range->id = buffer;
  range->offset = offset.node;
  range->bytes = bytes.node;
  range->when = when.node;
  return range;
}

ScheduleBuilder::RangePtr ScheduleBuilder::view(uint32_t slots, E index, E offset, E bytes,
                                                E when) {
  RangePtr range = ScheduleBuilder::range(slots, offset, bytes, when);
  range->space = fb::Space::Slot;
  range->index = index.node;
  return range;
}

ScheduleBuilder::RangesPtr ScheduleBuilder::one(RangePtr range) {
  auto ranges = std::make_unique<fb::RangesT>();
  ranges->ranges.push_back(std::move(range));
  return ranges;
}

template <typename Action>
fb::StepT &ScheduleBuilder::add(Action action, fb::Queue queue, Waits waits, Ref signal) {
  auto step = std::make_unique<fb::StepT>();
  step->action.Set(std::move(action));
  step->queue = queue;
  step->waits = std::move(waits);
  step->signal = std::move(signal);
  step->location = location_;
  body_.back()->push_back(std::move(step));
  return *body_.back()->back();
}

void ScheduleBuilder::forLoop(uint32_t variable, E lower, E upper,
                              const std::function<void()> &body) {
  fb::ForT loop;
  loop.variable = variable;
  loop.lower = lower.node;
  loop.upper = upper.node;
  body_.push_back(&add(std::move(loop), fb::Queue::Cpu).action.AsFor()->body);
  body();
  body_.pop_back();
}

void ScheduleBuilder::ifThen(E condition, const std::function<void()> &then,
                             const std::function<void()> &otherwise) {
  fb::IfT branch;
  branch.condition = condition.node;
  fb::IfT *added = add(std::move(branch), fb::Queue::Cpu).action.AsIf();
  body_.push_back(&added->then);
  then();
  body_.back() = &added->otherwise;
  if (otherwise)
    otherwise();
  body_.pop_back();
}

fb::StepT &ScheduleBuilder::send(E peer, uint32_t channel, RangePtr source, Waits waits,
                                 Ref signal) {
  fb::SendT send;
  send.peer = peer.node;
  send.channel = channel;
  send.source = std::move(source);
  return add(std::move(send), fb::Queue::Net, std::move(waits), std::move(signal));
}

fb::StepT &ScheduleBuilder::recv(E peer, uint32_t channel, uint32_t slots, E index, E bytes,
                                 Waits waits, Ref signal) {
  fb::RecvT recv;
  recv.peer = peer.node;
  recv.channel = channel;
  recv.slots = slots;
  recv.index = index.node;
  recv.bytes = bytes.node;
  return add(std::move(recv), fb::Queue::Net, std::move(waits), std::move(signal));
}

fb::StepT &ScheduleBuilder::release(uint32_t slots, E index, Waits waits, fb::Queue queue) {
  fb::ReleaseT release;
  release.slots = slots;
  release.index = index.node;
  return add(std::move(release), queue, std::move(waits));
}

fb::StepT &ScheduleBuilder::launch(uint32_t kernel, std::vector<RangesPtr> inputs,
                                   std::vector<RangesPtr> outputs, E count, Waits waits, Ref signal,
                                   std::vector<E> scalars) {
  fb::LaunchT launch;
  launch.kernel = kernel;
  launch.inputs = std::move(inputs);
  launch.outputs = std::move(outputs);
  launch.count = count.node;
  for (E scalar : scalars)
    launch.scalars.push_back(scalar.node);
  return add(std::move(launch), fb::Queue::Cpu, std::move(waits), std::move(signal));
}

fb::StepT &ScheduleBuilder::wait(fb::Gate gate, Waits waits, Ref signal) {
  fb::WaitT wait;
  wait.gate = gate;
  return add(std::move(wait), fb::Queue::Cpu, std::move(waits), std::move(signal));
}

fb::StepT &ScheduleBuilder::publish(uint32_t state, Waits waits) {
  fb::PublishT publish;
  publish.state = state;
  return add(std::move(publish), fb::Queue::Cpu, std::move(waits));
}

void ScheduleBuilder::line(uint32_t line) {
  auto location = std::make_unique<fb::LocationT>();
  location->file = schedule_.name + ".mlir";
  location->line = line;
  location->column = 5;
  schedule_.locations.push_back(std::move(location));
  location_ = static_cast<uint32_t>(schedule_.locations.size() - 1);
}

E operator+(E a, E b) { return a.builder->expr(ExprOp::Add, a, b); }
E operator-(E a, E b) { return a.builder->expr(ExprOp::Sub, a, b); }
E operator*(E a, E b) { return a.builder->expr(ExprOp::Mul, a, b); }
E operator%(E a, E b) { return a.builder->expr(ExprOp::Mod, a, b); }
E operator==(E a, E b) { return a.builder->expr(ExprOp::Eq, a, b); }
E operator!=(E a, E b) { return a.builder->expr(ExprOp::Ne, a, b); }
E operator<(E a, E b) { return a.builder->expr(ExprOp::Lt, a, b); }
E operator&&(E a, E b) { return a.builder->expr(ExprOp::And, a, b); }
E operator+(E a, int64_t b) { return a + a.builder->constant(b); }
E operator-(E a, int64_t b) { return a - a.builder->constant(b); }
E operator*(E a, int64_t b) { return a * a.builder->constant(b); }
E operator==(E a, int64_t b) { return a == a.builder->constant(b); }
E operator<(int64_t a, E b) { return b.builder->constant(a) < b; }
E floorDiv(E a, E b) { return a.builder->expr(ExprOp::FloorDiv, a, b); }
E ceilDiv(E a, E b) { return a.builder->expr(ExprOp::CeilDiv, a, b); }
E min(E a, E b) { return a.builder->expr(ExprOp::Min, a, b); }
E select(E condition, E then, E otherwise) {
  return condition.builder->expr(ExprOp::Select, condition, then, otherwise);
}
E toFloat(E a) { return a.builder->expr(ExprOp::ToFloat, a); }
E operator/(E a, double b) { return a.builder->expr(ExprOp::FDiv, a, a.builder->real(b)); }

} // namespace bagua::rt::testing
