// The table of transports that the conformance suite runs over.
#include "TransportWorlds.h"

#include "bagua/Loopback.h"

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

} // namespace

const std::vector<TransportKind> &transportKinds() {
  static const std::vector<TransportKind> kinds = {
      loopback("LoopbackView", LoopbackWorld::Mode::View, 0),
      loopback("LoopbackCopy", LoopbackWorld::Mode::Copy, 0),
      loopback("LoopbackViewDelayed", LoopbackWorld::Mode::View, 7),
      loopback("LoopbackCopyDelayed", LoopbackWorld::Mode::Copy, 7),
  };
  return kinds;
}

} // namespace bagua::rt::test
