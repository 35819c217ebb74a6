// One rank from bagua_init to bagua_shutdown.
#include "Context.h"

#include "Process.h"
#include "bagua/Log.h"

#include <cstdlib>
#include <unistd.h>

namespace bagua::rt::capi {

bagua_code codeOf(const Status &status) {
  switch (status.code()) {
  case absl::StatusCode::kOk:
    return BAGUA_OK;
  case absl::StatusCode::kInvalidArgument:
    return BAGUA_INVALID_ARGUMENT;
  case absl::StatusCode::kFailedPrecondition:
    return BAGUA_FAILED_PRECONDITION;
  case absl::StatusCode::kAborted:
    return BAGUA_MISMATCH;
  case absl::StatusCode::kUnavailable:
    return BAGUA_PEER_LOST;
  case absl::StatusCode::kDeadlineExceeded:
    return BAGUA_TIMEOUT;
  case absl::StatusCode::kUnimplemented:
    return BAGUA_UNIMPLEMENTED;
  case absl::StatusCode::kResourceExhausted:
    return BAGUA_RESOURCE_EXHAUSTED;
  default:
    return BAGUA_INTERNAL;
  }
}

StatusOr<bagua_context *> makeContext(std::unique_ptr<Group> group,
                                      std::shared_ptr<Doorbell> doorbell,
                                      std::unique_ptr<Transport> transport,
                                      const Engine::Options &options) {
  auto state = std::make_shared<ContextState>();
  state->group = std::move(group);
  state->doorbell = std::move(doorbell);
  state->transport = std::move(transport);
  if (const char *pattern = std::getenv("BAGUA_TRACE_FILE"); pattern && *pattern) {
    state->traceFile = tracePath(pattern, state->group->rank(), state->group->world());
    if (Status writable = checkTraceFile(state->traceFile); !writable.ok())
      return state->group->condemn(writable);
  }
  StatusOr<std::unique_ptr<Engine>> engine =
      Engine::create(*state->group, *state->transport, state->doorbell, options);
  if (!engine.ok())
    return state->group->condemn(engine.status()); // The others know of us: tell them why.
  state->engine = *std::move(engine);
  state->forkGeneration = forkGeneration();
  state->pid = ::getpid();
  stopAtExit(state);
  return new bagua_context{std::move(state)};
}

ContextState::~ContextState() { shutdown(); }

void ContextState::shutdown() {
  if (!engine)
    return;
  engine->stop();
  {
    std::lock_guard lock(mutex);
    for (bagua_binding *binding : bindings)
      binding->binding.reset();
    bindings.clear();
  }
  if (!traceFile.empty()) {
    Status written =
        engine->trace().write(traceFile, group->rank(), group->peer(group->rank()).host);
    if (!written.ok())
      logger("trace")->warn("{}", std::string(written.message()));
  }
  engine.reset();
  group->leave();
  transport.reset();
}

} // namespace bagua::rt::capi
