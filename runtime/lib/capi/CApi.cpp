// bagua.h: checks arguments, translates errors, lets no exception out.
#include "Context.h"
#include "Process.h"
#include "bagua/Bootstrap.h"
#include "bagua/Expand.h"
#include "bagua/Transports.h"

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

namespace {

namespace fb = bagua::fb;
using namespace bagua::rt;
using namespace bagua::rt::capi;
using std::chrono::milliseconds;

thread_local std::string lastError; // NOLINT: the C interface's error text is per thread.

bagua_code report(bagua_code code, std::string text) noexcept {
  lastError = std::move(text);
  return code;
}

/// Runs `function`, which returns a Status, and turns whatever comes out into a code.
template <typename Function> bagua_code guarded(Function function) noexcept {
  try {
    Status status = function();
    if (status.ok())
      return BAGUA_OK;
    return report(codeOf(status), std::string(status.message()));
  } catch (const std::bad_alloc &) {
    return report(BAGUA_RESOURCE_EXHAUSTED, "out of memory");
  } catch (const std::exception &error) {
    return report(BAGUA_INTERNAL, error.what());
  } catch (...) {
    return report(BAGUA_INTERNAL, "unknown exception");
  }
}

Status invalid(const std::string &text) { return absl::InvalidArgumentError(text); }

Status notNull(const void *pointer, const char *function, const char *argument) {
  if (pointer == nullptr)
    return invalid(absl::StrCat(function, " expects ", argument, ", got NULL"));
  return absl::OkStatus();
}

template <typename T> Status sized(const T *structure, const char *function, const char *argument) {
  BAGUA_TRY(notNull(structure, function, argument));
  if (structure->struct_size != sizeof(T))
    return invalid(absl::StrCat(function, " expects ", argument, "->struct_size ", sizeof(T),
                                ", got ", structure->struct_size,
                                ": set it to sizeof, and compile with the header of this library"));
  return absl::OkStatus();
}

Status usable(const ContextState &state, const char *function) {
  if (state.forkGeneration != forkGeneration())
    return absl::FailedPreconditionError(absl::StrCat(function, ": the context belongs to process ",
                                                      state.pid, "; a forked child cannot use it"));
  if (!state.engine)
    return absl::FailedPreconditionError(
        absl::StrCat(function, ": the context has been shut down"));
  return absl::OkStatus();
}

Status usable(const bagua_context *context, const char *function) {
  BAGUA_TRY(notNull(context, function, "a context"));
  return usable(*context->state, function);
}

Status usable(const bagua_binding *binding, const char *function) {
  BAGUA_TRY(notNull(binding, function, "a binding"));
  return usable(*binding->context, function);
}

StatusOr<fb::DType> dtypeOf(bagua_dtype dtype, const char *function) {
  switch (dtype) {
  case BAGUA_F32:
    return fb::DType::F32;
  case BAGUA_F64:
    return fb::DType::F64;
  }
  return invalid(
      absl::StrCat(function, " expects dtype 0 (f32) or 1 (f64), got ", static_cast<int>(dtype)));
}

StatusOr<fb::Event> eventOf(bagua_event event, const char *function) {
  switch (event) {
  case BAGUA_GRADIENT:
    return fb::Event::Gradient;
  case BAGUA_BEFORE_FORWARD:
    return fb::Event::BeforeForward;
  case BAGUA_AFTER_UPDATE:
    return fb::Event::AfterUpdate;
  case BAGUA_ASYNC:
    return fb::Event::Async;
  }
  return invalid(
      absl::StrCat(function, " expects an event in [0, 3], got ", static_cast<int>(event)));
}

Status lengthOk(int64_t length, const char *function) {
  constexpr int64_t kLengthMax = int64_t{1} << 52;
  if (length < 0 || length > kLengthMax)
    return invalid(absl::StrCat(function, " expects a length in [0, 2^52], got ", length));
  return absl::OkStatus();
}

const char *dtypeName(fb::DType dtype) { return dtype == fb::DType::F64 ? "f64" : "f32"; }

const char *eventName(fb::Event event) {
  switch (event) {
  case fb::Event::Gradient:
    return "gradient";
  case fb::Event::BeforeForward:
    return "before_forward";
  case fb::Event::AfterUpdate:
    return "after_update";
  case fb::Event::Async:
    return "async";
  }
  return "";
}

/// What the steps of a program do with the job.
struct JobUse {
  bool waitsForGate = false, needsFinite = false;
  bool writes[2] = {false, false}; ///< By role.
};
void addJobUse(const fb::ProgramT &program, const std::vector<std::unique_ptr<fb::StepT>> &steps,
               JobUse &use) {
  for (const auto &step : steps) {
    use.waitsForGate = use.waitsForGate || step->action.AsWait() != nullptr || step->if_finite;
    use.needsFinite = use.needsFinite || step->if_finite;
    if (const fb::LaunchT *launch = step->action.AsLaunch())
      for (const auto &output : launch->outputs)
        for (const auto &range : output->ranges)
          if (const fb::BufferT &buffer = *program.buffers[range->id];
              buffer.kind == fb::BufferKind::Job)
            use.writes[static_cast<size_t>(buffer.role)] = true;
    if (const fb::ForT *loop = step->action.AsFor())
      addJobUse(program, loop->body, use);
    if (const fb::IfT *branch = step->action.AsIf()) {
      addJobUse(program, branch->then, use);
      addJobUse(program, branch->otherwise, use);
    }
  }
}

const char *domainName(fb::StateDomain domain) {
  switch (domain) {
  case fb::StateDomain::Bucket:
    return "bucket";
  case fb::StateDomain::Shard:
    return "shard";
  case fb::StateDomain::Scalar:
    return "scalar";
  case fb::StateDomain::Neighbors:
    return "neighbors";
  }
  return "";
}

const char *onResizeName(fb::OnResize onResize) {
  switch (onResize) {
  case fb::OnResize::Mean:
    return "mean";
  case fb::OnResize::Zero:
    return "zero";
  case fb::OnResize::Repartition:
    return "repartition";
  }
  return "";
}

StatusOr<Binding::Parameter> parameterOf(const bagua_parameter &parameter, const char *function) {
  BAGUA_TRY(notNull(parameter.name, function, "parameter->name"));
  if (parameter.is_float != 0)
    return Binding::Parameter{parameter.name, parameter.real};
  return Binding::Parameter{parameter.name, parameter.integer};
}

std::string describeSchedule(const Schedule &schedule) {
  const fb::ScheduleT &ir = schedule.ir();
  nlohmann::ordered_json info;
  info["name"] = ir.name;
  info["digest"] = schedule.digestHex();
  info["producer"] = ir.producer;
  info["dtypes"] = nlohmann::ordered_json::array();
  for (fb::DType dtype : ir.dtypes)
    info["dtypes"].push_back(dtypeName(dtype));
  info["owns_update"] = ir.owns_update;
  info["grain"] = ir.grain;
  info["parameters"] = nlohmann::ordered_json::array();
  for (const auto &parameter : ir.parameters) {
    nlohmann::ordered_json entry = {{"name", parameter->name},
                                    {"type", parameter->is_float ? "f64" : "i64"}};
    if (parameter->is_float)
      entry["default"] = parameter->default_float;
    else
      entry["default"] = parameter->default_int;
    entry["per_step"] = parameter->per_step;
    info["parameters"].push_back(std::move(entry));
  }
  info["states"] = nlohmann::ordered_json::array();
  for (const auto &state : ir.states) {
    nlohmann::ordered_json entry = {{"name", state->name},
                                    {"domain", domainName(state->domain)},
                                    {"copies", state->copies},
                                    {"initial", state->initial},
                                    {"on_resize", onResizeName(state->on_resize)}};
    if (state->initial_weight)
      entry["initial"] = "weight";
    info["states"].push_back(std::move(entry));
  }
  // Programs after the update do not run in a step that is not finite.
  bool needsFinite = schedule.program(fb::Event::AfterUpdate) != nullptr;
  nlohmann::ordered_json programs = nlohmann::ordered_json::array();
  for (const auto &program : ir.programs) {
    nlohmann::ordered_json roles = nlohmann::ordered_json::array();
    for (fb::Role role : {fb::Role::Gradient, fb::Role::Weight})
      for (const auto &buffer : program->buffers)
        if (buffer->kind == fb::BufferKind::Job && buffer->role == role) {
          roles.push_back(role == fb::Role::Gradient ? "gradient" : "weight");
          break;
        }
    nlohmann::ordered_json gates = nlohmann::ordered_json::array();
    JobUse use;
    addJobUse(*program, program->body, use);
    nlohmann::ordered_json writes = nlohmann::ordered_json::array();
    for (fb::Role role : {fb::Role::Gradient, fb::Role::Weight})
      if (use.writes[static_cast<size_t>(role)])
        writes.push_back(role == fb::Role::Gradient ? "gradient" : "weight");
    needsFinite = needsFinite || use.needsFinite;
    if (use.waitsForGate)
      gates.push_back("before_update");
    programs.push_back({{"name", program->name},
                        {"event", eventName(program->event)},
                        {"roles", std::move(roles)},
                        {"writes", std::move(writes)},
                        {"gates", std::move(gates)}});
    if (program->event == fb::Event::Async) {
      bool countsSteps = program->every_unit == fb::IntervalUnit::Steps;
      programs.back()["every_unit"] = countsSteps ? "steps" : "ms";
      programs.back()["staleness"] = program->staleness;
    }
  }
  info["needs_finite"] = needsFinite;
  info["programs"] = std::move(programs);
  return info.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

bagua_code waitFor(bagua_binding *binding, int64_t sliceMs, const char *function, bool untilGate) {
  bool done = false;
  bagua_code code = guarded([&]() -> Status {
    BAGUA_TRY(usable(binding, function));
    constexpr int64_t kSliceMax = int64_t{1} << 32;
    if (sliceMs < 0)
      return invalid(absl::StrCat(function, " expects slice_ms >= 0, got ", sliceMs));
    milliseconds slice(std::min(sliceMs, kSliceMax));
    BAGUA_ASSIGN(done, untilGate ? binding->binding->waitUntilGate(slice)
                                 : binding->binding->wait(slice));
    return absl::OkStatus();
  });
  return code == BAGUA_OK && !done ? BAGUA_PENDING : code;
}

/// A float of the word's size is finite unless all bits of its exponent are set.
template <typename Word> bool allFinite(const void *data, size_t count, Word exponent) {
  constexpr size_t kBlock = 4096; // Without branches inside, so that it is compiled to vectors.
  const auto *bytes = static_cast<const std::byte *>(data);
  for (size_t begin = 0; begin < count; begin += kBlock) {
    size_t size = std::min(kBlock, count - begin);
    Word found = 0;
    for (size_t i = 0; i < size; ++i) {
      Word word;
      std::memcpy(&word, bytes + (begin + i) * sizeof word, sizeof word);
      found |= static_cast<Word>((word & exponent) == exponent);
    }
    if (found != 0)
      return false;
  }
  return true;
}

bagua_schedule *makeSchedule(std::shared_ptr<const Schedule> schedule) {
  std::string info = describeSchedule(*schedule);
  return new bagua_schedule{std::move(schedule), std::move(info)};
}

} // namespace

extern "C" {

const char *bagua_last_error(void) { return lastError.c_str(); }

const char *bagua_version(void) { return BAGUA_VERSION; }

bagua_code bagua_store_listen(const char *towards, char *address, size_t bytes) {
  return guarded([&]() -> Status {
    BAGUA_TRY(notNull(address, "bagua_store_listen", "room for an address"));
    BAGUA_ASSIGN(std::string listening, listenStore(towards == nullptr ? "" : towards));
    if (listening.size() + 1 > bytes)
      return invalid(absl::StrCat("bagua_store_listen expects room for ", listening.size() + 1,
                                  " bytes, got ", bytes));
    std::memcpy(address, listening.c_str(), listening.size() + 1);
    return absl::OkStatus();
  });
}

bagua_code bagua_init(const bagua_init_options *options, bagua_context **context) {
  return guarded([&]() -> Status {
    BAGUA_TRY(sized(options, "bagua_init", "options"));
    BAGUA_TRY(notNull(context, "bagua_init", "a place for the context"));
    if (options->step_timeout_ms < 0 || options->bootstrap_timeout_ms < 0)
      return invalid(absl::StrCat("bagua_init expects timeouts >= 0, got step_timeout_ms ",
                                  options->step_timeout_ms, " and bootstrap_timeout_ms ",
                                  options->bootstrap_timeout_ms));
    Group::Options groupOptions;
    groupOptions.rank = options->rank;
    groupOptions.world = options->world;
    groupOptions.localRank = options->local_rank;
    groupOptions.localSize = options->local_size;
    if (options->store != nullptr)
      groupOptions.store = options->store;
    groupOptions.stepTimeout = milliseconds(options->step_timeout_ms);
    groupOptions.bootstrapTimeout = milliseconds(options->bootstrap_timeout_ms);
    const char *transportName = options->transport;
    if (transportName == nullptr || *transportName == '\0')
      transportName = std::getenv("BAGUA_TRANSPORT");
    BAGUA_ASSIGN(std::unique_ptr<Group> group, Group::create(groupOptions));
    // From here on the others know of us: tell them why we give up.
    auto made = [&]() -> StatusOr<bagua_context *> {
      BAGUA_ASSIGN(std::shared_ptr<Doorbell> doorbell, makeSharedDoorbell());
      BAGUA_ASSIGN(std::unique_ptr<Transport> transport,
                   makeTransport(transportName == nullptr ? "" : transportName, *group, doorbell));
      return makeContext(std::move(group), std::move(doorbell), std::move(transport), {});
    }();
    if (!made.ok()) {
      if (group)
        return group->condemn(made.status());
      return made.status();
    }
    *context = *made;
    return absl::OkStatus();
  });
}

void bagua_shutdown(bagua_context *context) {
  if (context == nullptr)
    return;
  (void)guarded([&]() -> Status {
    if (context->state->forkGeneration != forkGeneration())
      return absl::OkStatus(); // Nothing here is ours to end.
    context->state->shutdown();
    delete context;
    return absl::OkStatus();
  });
}

int bagua_rank(const bagua_context *context) {
  return context == nullptr ? -1 : context->state->group->rank();
}

int bagua_world(const bagua_context *context) {
  return context == nullptr ? -1 : context->state->group->world();
}

int bagua_local_rank(const bagua_context *context) {
  return context == nullptr ? -1
                            : context->state->group->peer(context->state->group->rank()).localRank;
}

int bagua_local_size(const bagua_context *context) {
  return context == nullptr ? -1 : context->state->group->localSize();
}

const char *bagua_source(const bagua_context *context) {
  return context == nullptr ? "" : context->state->group->source().c_str();
}

bagua_code bagua_alloc(bagua_context *context, size_t bytes, void **memory) {
  return guarded([&]() -> Status {
    BAGUA_TRY(usable(context, "bagua_alloc"));
    BAGUA_TRY(notNull(memory, "bagua_alloc", "a place for the address"));
    if (bytes == 0)
      return invalid("bagua_alloc expects bytes > 0");
    Memory allocated;
    BAGUA_TRY(context->state->engine->exclusively([&]() -> Status {
      BAGUA_ASSIGN(allocated, context->state->transport->allocate(bytes));
      return absl::OkStatus();
    }));
    keepMemory(allocated);
    *memory = allocated.bytes.data();
    return absl::OkStatus();
  });
}

void bagua_free(void *memory) {
  if (memory != nullptr)
    (void)guarded([&]() -> Status {
      if (!freeMemory(memory))
        return invalid("bagua_free expects an address from bagua_alloc");
      return absl::OkStatus();
    });
}

bagua_code bagua_agree(bagua_context *context, const char *what, const char *text) {
  return guarded([&]() -> Status {
    BAGUA_TRY(usable(context, "bagua_agree"));
    BAGUA_TRY(notNull(what, "bagua_agree", "what"));
    BAGUA_TRY(notNull(text, "bagua_agree", "text"));
    if (!nlohmann::json::accept(text))
      return invalid(absl::StrCat("bagua_agree '", what, "' expects JSON, got ",
                                  std::string(text).substr(0, 200)));
    return context->state->engine->agree(absl::StrCat("agree '", what, "'"), what, text);
  });
}

bagua_code bagua_barrier(bagua_context *context, const char *what) {
  return guarded([&]() -> Status {
    BAGUA_TRY(usable(context, "bagua_barrier"));
    BAGUA_TRY(notNull(what, "bagua_barrier", "what"));
    return context->state->engine->agree(absl::StrCat("barrier '", what, "'"), "barrier", "true");
  });
}

bagua_code bagua_broadcast(bagua_context *context, void *data, size_t bytes, int root) {
  return guarded([&]() -> Status {
    BAGUA_TRY(usable(context, "bagua_broadcast"));
    if (bytes > 0)
      BAGUA_TRY(notNull(data, "bagua_broadcast", "data"));
    return context->state->engine->broadcast(static_cast<std::byte *>(data), bytes, root);
  });
}

bagua_code bagua_count(bagua_context *context, const char *name, int64_t delta, int64_t *value) {
  return guarded([&]() -> Status {
    BAGUA_TRY(usable(context, "bagua_count"));
    BAGUA_TRY(notNull(name, "bagua_count", "a name"));
    BAGUA_TRY(notNull(value, "bagua_count", "a place for the value"));
    BAGUA_ASSIGN(*value, context->state->group->store().add(absl::StrCat("count/", name), delta));
    return absl::OkStatus();
  });
}

bagua_code bagua_abort(bagua_context *context, const char *reason) {
  return guarded([&]() -> Status {
    BAGUA_TRY(usable(context, "bagua_abort"));
    BAGUA_TRY(notNull(reason, "bagua_abort", "a reason"));
    Group &group = *context->state->group;
    const PeerInfo &self = group.peer(group.rank());
    Status verdict = absl::UnavailableError(
        absl::StrCat("rank ", self.rank, " (host ", self.host, ", pid ", self.pid, ") ", reason));
    (void)group.condemn(verdict);
    context->state->engine->abort(verdict);
    return absl::OkStatus();
  });
}

bagua_code bagua_schedule_load(const char *path, bagua_schedule **schedule) {
  return guarded([&]() -> Status {
    BAGUA_TRY(notNull(path, "bagua_schedule_load", "a path"));
    BAGUA_TRY(notNull(schedule, "bagua_schedule_load", "a place for the schedule"));
    BAGUA_ASSIGN(std::shared_ptr<const Schedule> loaded, Schedule::fromFile(path));
    *schedule = makeSchedule(std::move(loaded));
    return absl::OkStatus();
  });
}

bagua_code bagua_schedule_parse(const void *bytes, size_t size, bagua_schedule **schedule) {
  return guarded([&]() -> Status {
    BAGUA_TRY(notNull(bytes, "bagua_schedule_parse", "bytes"));
    BAGUA_TRY(notNull(schedule, "bagua_schedule_parse", "a place for the schedule"));
    BAGUA_ASSIGN(std::shared_ptr<const Schedule> parsed,
                 Schedule::fromBytes({static_cast<const uint8_t *>(bytes), size}));
    *schedule = makeSchedule(std::move(parsed));
    return absl::OkStatus();
  });
}

void bagua_schedule_free(bagua_schedule *schedule) { delete schedule; }

const char *bagua_schedule_info(const bagua_schedule *schedule) {
  return schedule == nullptr ? "" : schedule->info.c_str();
}

bagua_code bagua_schedule_wire_bytes(const bagua_schedule *schedule, bagua_event event, int world,
                                     int rank, int64_t length, bagua_dtype dtype, int64_t *bytes) {
  constexpr const char *kName = "bagua_schedule_wire_bytes";
  return guarded([&]() -> Status {
    BAGUA_TRY(notNull(schedule, kName, "a schedule"));
    BAGUA_TRY(notNull(bytes, kName, "a place for the bytes"));
    BAGUA_ASSIGN(fb::Event which, eventOf(event, kName));
    if (world < 1 || rank < 0 || rank >= world)
      return invalid(
          absl::StrCat(kName, " expects 0 <= rank < world, got rank ", rank, ", world ", world));
    BAGUA_TRY(lengthOk(length, kName));
    BindValues values;
    values.world = values.localSize = world;
    values.rank = values.localRank = rank;
    values.length = length;
    BAGUA_ASSIGN(values.dtype, dtypeOf(dtype, kName));
    const fb::ProgramT *program = schedule->schedule->program(which);
    if (program == nullptr) {
      *bytes = 0;
      return absl::OkStatus();
    }
    BAGUA_ASSIGN(FlatProgram flat, expand(*schedule->schedule, *program, values));
    BAGUA_ASSIGN(*bytes, evaluateInt(*schedule->schedule, flat.wireBytes, values, StepValues()));
    return absl::OkStatus();
  });
}

bagua_code bagua_bind(bagua_context *context, const bagua_schedule *schedule,
                      const bagua_bucket *bucket, bagua_binding **binding) {
  return guarded([&]() -> Status {
    BAGUA_TRY(usable(context, "bagua_bind"));
    BAGUA_TRY(notNull(schedule, "bagua_bind", "a schedule"));
    BAGUA_TRY(sized(bucket, "bagua_bind", "bucket"));
    BAGUA_TRY(notNull(bucket->name, "bagua_bind", "bucket->name"));
    BAGUA_TRY(notNull(binding, "bagua_bind", "a place for the binding"));
    BAGUA_TRY(lengthOk(bucket->length, "bagua_bind"));
    Bucket described;
    described.name = bucket->name;
    described.length = bucket->length;
    BAGUA_ASSIGN(described.dtype, dtypeOf(bucket->dtype, "bagua_bind"));
    described.gradient = static_cast<std::byte *>(bucket->gradient);
    described.weight = static_cast<std::byte *>(bucket->weight);
    described.index = bucket->index;
    if (bucket->async != 0 && bucket->async != 1)
      return invalid(
          absl::StrCat("bagua_bind expects bucket->async to be 0 or 1, got ", bucket->async));
    described.async = bucket->async == 1;
    if (bucket->description != nullptr)
      described.description = bucket->description;
    Binding::Options options;
    if (bucket->parameter_count > 0)
      BAGUA_TRY(notNull(bucket->parameters, "bagua_bind", "bucket->parameters"));
    for (size_t i = 0; i < bucket->parameter_count; ++i) {
      BAGUA_ASSIGN(Binding::Parameter parameter, parameterOf(bucket->parameters[i], "bagua_bind"));
      options.parameters.push_back(std::move(parameter));
    }
    ContextState &state = *context->state;
    auto handle = std::make_unique<bagua_binding>();
    handle->context = context->state;
    BAGUA_ASSIGN(handle->binding,
                 Binding::create(*state.engine, schedule->schedule, described, options));
    handle->states = handle->binding->states();
    std::lock_guard lock(state.mutex);
    state.bindings.insert(handle.get());
    *binding = handle.release();
    return absl::OkStatus();
  });
}

void bagua_unbind(bagua_binding *binding) {
  if (binding == nullptr)
    return;
  (void)guarded([&]() -> Status {
    if (binding->context->forkGeneration != forkGeneration())
      return absl::OkStatus();
    std::unique_ptr<bagua_binding> owned(binding);
    std::shared_ptr<ContextState> state = binding->context;
    std::unique_ptr<Binding> inner;
    {
      std::lock_guard lock(state->mutex);
      state->bindings.erase(binding);
      inner = std::move(binding->binding);
    }
    return absl::OkStatus();
  });
}

bagua_code bagua_start(bagua_binding *binding, bagua_event event, int64_t step) {
  return guarded([&]() -> Status {
    BAGUA_TRY(usable(binding, "bagua_start"));
    BAGUA_ASSIGN(fb::Event which, eventOf(event, "bagua_start"));
    if (step < 0)
      return invalid(absl::StrCat("bagua_start expects a step >= 0, got ", step));
    return binding->binding->start(which, step);
  });
}

bagua_code bagua_compare(bagua_binding *binding, const char *text) {
  return guarded([&]() -> Status {
    BAGUA_TRY(usable(binding, "bagua_compare"));
    BAGUA_TRY(notNull(text, "bagua_compare", "a text"));
    return binding->binding->compare(text);
  });
}

bagua_code bagua_set_parameter(bagua_binding *binding, const bagua_parameter *parameter) {
  return guarded([&]() -> Status {
    BAGUA_TRY(usable(binding, "bagua_set_parameter"));
    BAGUA_TRY(notNull(parameter, "bagua_set_parameter", "a parameter"));
    BAGUA_ASSIGN(Binding::Parameter value, parameterOf(*parameter, "bagua_set_parameter"));
    return binding->binding->setParameter(value);
  });
}

bagua_code bagua_open_gate(bagua_binding *binding, bagua_gate gate, int finite) {
  return guarded([&]() -> Status {
    BAGUA_TRY(usable(binding, "bagua_open_gate"));
    if (gate != BAGUA_BEFORE_UPDATE)
      return invalid(absl::StrCat("bagua_open_gate expects gate 0, got ", static_cast<int>(gate)));
    return binding->binding->openGate(fb::Gate::BeforeUpdate, finite != 0);
  });
}

bagua_code bagua_wait(bagua_binding *binding, int64_t slice_ms) {
  return waitFor(binding, slice_ms, "bagua_wait", false);
}

bagua_code bagua_wait_gate(bagua_binding *binding, int64_t slice_ms) {
  return waitFor(binding, slice_ms, "bagua_wait_gate", true);
}

bagua_code bagua_state_count(const bagua_binding *binding, size_t *count) {
  return guarded([&]() -> Status {
    BAGUA_TRY(usable(binding, "bagua_state_count"));
    BAGUA_TRY(notNull(count, "bagua_state_count", "a place for the count"));
    *count = binding->states.size();
    return absl::OkStatus();
  });
}

bagua_code bagua_state_info(const bagua_binding *binding, size_t index, bagua_state *state) {
  return guarded([&]() -> Status {
    BAGUA_TRY(usable(binding, "bagua_state_info"));
    BAGUA_TRY(sized(state, "bagua_state_info", "state"));
    if (index >= binding->states.size())
      return invalid(absl::StrCat("bagua_state_info expects an index below ",
                                  binding->states.size(), ", got ", index));
    const Binding::State &known = binding->states[index];
    state->name = known.name.c_str();
    state->domain = static_cast<bagua_state_domain>(known.domain);
    state->on_resize = static_cast<bagua_on_resize>(known.onResize);
    state->elements = known.elements;
    state->offset = known.offset;
    return absl::OkStatus();
  });
}

bagua_code bagua_state_read(const bagua_binding *binding, size_t index, void *data, size_t bytes) {
  return guarded([&]() -> Status {
    BAGUA_TRY(usable(binding, "bagua_state_read"));
    if (bytes > 0)
      BAGUA_TRY(notNull(data, "bagua_state_read", "data"));
    return binding->binding->readState(index, {static_cast<std::byte *>(data), bytes});
  });
}

bagua_code bagua_state_write(bagua_binding *binding, size_t index, const void *data, size_t bytes) {
  return guarded([&]() -> Status {
    BAGUA_TRY(usable(binding, "bagua_state_write"));
    if (bytes > 0)
      BAGUA_TRY(notNull(data, "bagua_state_write", "data"));
    return binding->binding->writeState(index, {static_cast<const std::byte *>(data), bytes});
  });
}

bagua_code bagua_all_finite(const void *data, int64_t length, bagua_dtype dtype, int *finite) {
  return guarded([&]() -> Status {
    BAGUA_TRY(lengthOk(length, "bagua_all_finite"));
    if (length > 0)
      BAGUA_TRY(notNull(data, "bagua_all_finite", "data"));
    BAGUA_TRY(notNull(finite, "bagua_all_finite", "a place for the answer"));
    BAGUA_ASSIGN(fb::DType type, dtypeOf(dtype, "bagua_all_finite"));
    auto count = static_cast<size_t>(length);
    *finite = type == fb::DType::F64 ? allFinite<uint64_t>(data, count, 0x7ff0000000000000u)
                                     : allFinite<uint32_t>(data, count, 0x7f800000u);
    return absl::OkStatus();
  });
}

bagua_code bagua_binding_statistics(const bagua_binding *binding, bagua_statistics *statistics) {
  return guarded([&]() -> Status {
    BAGUA_TRY(usable(binding, "bagua_binding_statistics"));
    BAGUA_TRY(sized(statistics, "bagua_binding_statistics", "statistics"));
    Binding::Statistics now = binding->binding->statistics();
    statistics->runs = now.runs;
    statistics->bytes_raw = now.bytesRaw;
    statistics->bytes_wire = now.bytesWire;
    statistics->wait_ns = now.waitNs;
    statistics->busy_ns = now.busyNs;
    return absl::OkStatus();
  });
}

bagua_code bagua_binding_wire_bytes(const bagua_binding *binding, bagua_event event, int64_t step,
                                    int64_t *bytes) {
  return guarded([&]() -> Status {
    BAGUA_TRY(usable(binding, "bagua_binding_wire_bytes"));
    BAGUA_TRY(notNull(bytes, "bagua_binding_wire_bytes", "a place for the bytes"));
    BAGUA_ASSIGN(fb::Event which, eventOf(event, "bagua_binding_wire_bytes"));
    if (step < 0)
      return invalid(absl::StrCat("bagua_binding_wire_bytes expects a step >= 0, got ", step));
    *bytes = static_cast<int64_t>(binding->binding->wireBytes(which, step));
    return absl::OkStatus();
  });
}

bagua_code bagua_binding_every(const bagua_binding *binding, int64_t *every, int64_t *after) {
  return guarded([&]() -> Status {
    BAGUA_TRY(usable(binding, "bagua_binding_every"));
    BAGUA_ASSIGN(Binding::Interval interval, binding->binding->interval());
    if (every != nullptr)
      *every = interval.every;
    if (after != nullptr)
      *after = interval.after;
    return absl::OkStatus();
  });
}

bagua_code bagua_binding_communicates(const bagua_binding *binding, bagua_event event, int64_t step,
                                      int *communicates) {
  constexpr const char *kName = "bagua_binding_communicates";
  return guarded([&]() -> Status {
    BAGUA_TRY(usable(binding, kName));
    BAGUA_TRY(notNull(communicates, kName, "a place for the answer"));
    BAGUA_ASSIGN(fb::Event which, eventOf(event, kName));
    if (step < 0)
      return invalid(absl::StrCat(kName, " expects a step >= 0, got ", step));
    *communicates = binding->binding->communicates(which, step) ? 1 : 0;
    return absl::OkStatus();
  });
}

void bagua_pause_timeout(bagua_context *context, int pause) {
  (void)guarded([&]() -> Status {
    BAGUA_TRY(usable(context, "bagua_pause_timeout"));
    context->state->group->pauseTimeout(pause);
    return absl::OkStatus();
  });
}

bagua_code bagua_trace_write(bagua_context *context, const char *path) {
  return guarded([&]() -> Status {
    BAGUA_TRY(usable(context, "bagua_trace_write"));
    BAGUA_TRY(notNull(path, "bagua_trace_write", "a path"));
    ContextState &state = *context->state;
    return state.engine->exclusively([&] {
      return state.engine->trace().write(path, state.group->rank(),
                                         state.group->peer(state.group->rank()).host);
    });
  });
}

} // extern "C"
