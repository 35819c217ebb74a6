// Ranks as threads, over every transport that threads can use.
#include "RankThreads.h"

#include "../transport/HostsGroup.h"

#include "bagua/Loopback.h"
#include "bagua/Window.h"

#include <gtest/gtest.h>

#include <thread>

#if defined(__clang__) && __has_feature(thread_sanitizer)
/// TBB's library is not instrumented, so that the sanitizer does not see how a task's object gets
/// from one thread to the other. Only what makes and frees the object is left out, not what the
/// task does.
extern "C" const char *__tsan_default_suppressions() { // NOLINT: the sanitizer's name.
  return "race:new_object<tbb::detail::d1::enqueue_task\n"
         "race:delete_object<tbb::detail::d1::enqueue_task\n";
}
#endif

namespace bagua::rt::testing {
namespace {

Connection loopback(const char *name, LoopbackWorld::Mode mode, uint32_t delayPollsMax) {
  return {
      name, [=](int world) -> Connection::MakePart {
        auto shared = LoopbackWorld::create(
            world, LoopbackWorld::Options{.mode = mode, .seed = 7, .delayPollsMax = delayPollsMax});
        return [shared](Group &group) -> StatusOr<Connection::Part> {
          return Connection::Part{shared->doorbell(group.rank()), shared->transport(group.rank())};
        };
      }};
}

Connection window(const char *name, bool shareMappings) {
  return {name, [=](int) -> Connection::MakePart {
            return [=](Group &group) -> StatusOr<Connection::Part> {
              BAGUA_ASSIGN(std::shared_ptr<Doorbell> doorbell, makeSharedDoorbell());
              WindowOptions options;
              options.windowBytes = size_t{1} << 30;
              options.controlBytes = size_t{16} << 20;
              options.shareMappingsInProcess = shareMappings;
              BAGUA_ASSIGN(std::unique_ptr<Transport> transport,
                           makeWindowTransport(group, doorbell, options));
              return Connection::Part{std::move(doorbell), std::move(transport)};
            };
          }};
}

} // namespace

const std::vector<Connection> &connections() {
  static const std::vector<Connection> all = {
      loopback("View", LoopbackWorld::Mode::View, 0),
      loopback("Copy", LoopbackWorld::Mode::Copy, 0),
      loopback("ViewDelayed", LoopbackWorld::Mode::View, 5),
      loopback("CopyDelayed", LoopbackWorld::Mode::Copy, 5),
      window("WindowShared", true),
      window("WindowMapped", false),
  };
  return all;
}

const Connection &connection(const std::string &name) {
  for (const Connection &candidate : connections())
    if (candidate.name == name)
      return candidate;
  BAGUA_CHECK(false);
  return connections().front();
}

void runRanks(const Connection &connection, int world, const RankOptions &options,
              const std::function<void(Rank &)> &body) {
  std::shared_ptr<Store> store = makeLocalStore();
  Connection::MakePart makePart = connection.make(world);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank)
    threads.emplace_back([&, rank] {
      Group::Options groupOptions;
      groupOptions.rank = rank;
      groupOptions.world = world;
      groupOptions.localStore = store;
      groupOptions.stepTimeout = options.stepTimeout;
      groupOptions.bootstrapTimeout = options.bootstrapTimeout;
      StatusOr<std::unique_ptr<Group>> group = Group::create(groupOptions);
      ASSERT_TRUE(group.ok()) << group.status();
      StatusOr<Connection::Part> part = makePart(**group);
      ASSERT_TRUE(part.ok()) << part.status();
      std::unique_ptr<Group> placed = *std::move(group);
      if (!options.hosts.empty())
        placed = std::make_unique<test::HostsGroup>(std::move(placed), options.hosts);
      StatusOr<std::unique_ptr<Engine>> engine =
          Engine::create(*placed, *part->transport, part->doorbell, options.engine);
      ASSERT_TRUE(engine.ok()) << engine.status();
      Rank self{rank, world, *placed, *part->transport, **engine};
      body(self);
      engine->reset();
      placed->leave();
      part->transport.reset();
    });
  for (std::thread &thread : threads)
    thread.join();
}

Status waitFor(Binding &binding) {
  for (;;) {
    BAGUA_ASSIGN(bool done, binding.wait(std::chrono::milliseconds(100)));
    if (done)
      return absl::OkStatus();
  }
}

} // namespace bagua::rt::testing
