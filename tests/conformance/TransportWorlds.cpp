// The table of transports that the conformance suite runs over.
#include "TransportWorlds.h"

#include "HostsGroup.h"
#include "bagua/Loopback.h"
#include "bagua/Transports.h"
#include "bagua/Ucx.h"
#include "bagua/Window.h"

namespace bagua::rt::test {
namespace {

class LoopbackTestWorld final : public TransportWorld {
public:
  LoopbackTestWorld(int world, const LoopbackWorld::Options &options)
      : world_(LoopbackWorld::create(world, options)) {}
  StatusOr<std::unique_ptr<Transport>> create(int rank) override { return world_->transport(rank); }
  std::shared_ptr<Doorbell> doorbell(int rank) override { return world_->doorbell(rank); }

private:
  std::shared_ptr<LoopbackWorld> world_;
};

TransportKind loopback(const char *name, LoopbackWorld::Mode mode, uint32_t delayPollsMax) {
  return {name,
          [=](int world) -> std::unique_ptr<TransportWorld> {
            return std::make_unique<LoopbackTestWorld>(
                world,
                LoopbackWorld::Options{.mode = mode, .seed = 1, .delayPollsMax = delayPollsMax});
          },
          mode == LoopbackWorld::Mode::View};
}

/// Ranks joined by a group of this process.
class GroupWorld : public TransportWorld {
public:
  /// `hosts`: rank r pretends to be on host r % hosts.
  explicit GroupWorld(int world, int hosts = 1)
      : world_(world), hosts_(hosts), groups_(static_cast<size_t>(world)) {
    for (int r = 0; r < world; ++r) {
      StatusOr<std::shared_ptr<Doorbell>> doorbell = makeSharedDoorbell();
      BAGUA_CHECK(doorbell.ok());
      doorbells_.push_back(*std::move(doorbell));
    }
  }
  StatusOr<std::unique_ptr<Transport>> create(int rank) final {
    Group::Options options;
    options.rank = rank;
    options.world = world_;
    options.localStore = store_;
    BAGUA_ASSIGN(std::unique_ptr<Group> group, Group::create(options));
    std::vector<int> hosts;
    for (int r = 0; r < world_; ++r)
      hosts.push_back(r % hosts_);
    groups_[static_cast<size_t>(rank)] = std::make_unique<HostsGroup>(std::move(group), hosts);
    return createOn(*groups_[static_cast<size_t>(rank)], doorbell(rank));
  }
  std::shared_ptr<Doorbell> doorbell(int rank) final {
    return doorbells_[static_cast<size_t>(rank)];
  }

protected:
  virtual StatusOr<std::unique_ptr<Transport>> createOn(Group &group,
                                                        std::shared_ptr<Doorbell> doorbell) = 0;

private:
  const int world_, hosts_;
  std::shared_ptr<Store> store_ = makeLocalStore();
  std::vector<std::unique_ptr<Group>> groups_; ///< By rank, each touched by its own thread.
  std::vector<std::shared_ptr<Doorbell>> doorbells_;
};

class WindowTestWorld final : public GroupWorld {
public:
  WindowTestWorld(int world, bool shareMappings)
      : GroupWorld(world), shareMappings_(shareMappings) {}

private:
  StatusOr<std::unique_ptr<Transport>> createOn(Group &group,
                                                std::shared_ptr<Doorbell> doorbell) override {
    return makeWindowTransport(group, std::move(doorbell),
                               {.windowBytes = size_t{1} << 30,
                                .controlBytes = size_t{16} << 20,
                                .shareMappingsInProcess = shareMappings_});
  }
  const bool shareMappings_;
};

class UcxTestWorld final : public GroupWorld {
public:
  using GroupWorld::GroupWorld;

private:
  StatusOr<std::unique_ptr<Transport>> createOn(Group &group,
                                                std::shared_ptr<Doorbell> doorbell) override {
    return makeUcxTransport(group, std::move(doorbell));
  }
};

class AutoTestWorld final : public GroupWorld {
public:
  explicit AutoTestWorld(int world) : GroupWorld(world, 2) {}

private:
  StatusOr<std::unique_ptr<Transport>> createOn(Group &group,
                                                std::shared_ptr<Doorbell> doorbell) override {
    return makeTransport("auto", group, std::move(doorbell));
  }
};

TransportKind window(const char *name, bool shareMappings) {
  return {name,
          [=](int world) -> std::unique_ptr<TransportWorld> {
            return std::make_unique<WindowTestWorld>(world, shareMappings);
          },
          true};
}

} // namespace

const std::vector<TransportKind> &transportKinds() {
  static const std::vector<TransportKind> kinds = {
      loopback("LoopbackView", LoopbackWorld::Mode::View, 0),
      loopback("LoopbackCopy", LoopbackWorld::Mode::Copy, 0),
      loopback("LoopbackViewDelayed", LoopbackWorld::Mode::View, 7),
      loopback("LoopbackCopyDelayed", LoopbackWorld::Mode::Copy, 7),
      window("WindowShared", true),
      window("WindowMapped", false),
#if defined(BAGUA_HAS_UCX)
      {"Ucx",
       [](int world) -> std::unique_ptr<TransportWorld> {
         return std::make_unique<UcxTestWorld>(world);
       },
       false},
      {"AutoTwoHosts",
       [](int world) -> std::unique_ptr<TransportWorld> {
         return std::make_unique<AutoTestWorld>(world);
       },
       false},
#endif
  };
  return kinds;
}

} // namespace bagua::rt::test
