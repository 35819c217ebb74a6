// What stands behind the handles of bagua.h; also the entry for tests whose ranks are threads.
#pragma once

#include "bagua/Binding.h"
#include "bagua/Engine.h"
#include "bagua/Group.h"
#include "bagua/Schedule.h"
#include "bagua/Transport.h"
#include "bagua/bagua.h"

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace bagua::rt::capi {

/// Everything of one rank; handles of bindings keep it alive.
struct ContextState {
  std::unique_ptr<Group> group;
  std::shared_ptr<Doorbell> doorbell;
  std::unique_ptr<Transport> transport;
  std::unique_ptr<Engine> engine; ///< Null after shutdown.
  std::string traceFile;          ///< BAGUA_TRACE_FILE of this rank; empty: none.
  uint64_t forkGeneration = 0;
  long pid = 0;
  std::mutex mutex;
  std::set<bagua_binding *> bindings; ///< Guarded by mutex.

  ~ContextState();
  void shutdown();
};

/// A context over a group and a transport of the caller's.
StatusOr<bagua_context *> makeContext(std::unique_ptr<Group> group,
                                      std::shared_ptr<Doorbell> doorbell,
                                      std::unique_ptr<Transport> transport,
                                      const Engine::Options &options);

bagua_code codeOf(const Status &status);

} // namespace bagua::rt::capi

struct bagua_context {
  std::shared_ptr<bagua::rt::capi::ContextState> state;
};

struct bagua_schedule {
  std::shared_ptr<const bagua::rt::Schedule> schedule;
  std::string info;
};

struct bagua_binding {
  std::shared_ptr<bagua::rt::capi::ContextState> context;
  std::unique_ptr<bagua::rt::Binding> binding; ///< Null after the context's shutdown.
  std::vector<bagua::rt::Binding::State> states;
};
