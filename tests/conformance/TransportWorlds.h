// The transports under test, each as a world whose ranks are threads.
#pragma once

#include "bagua/Transport.h"

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

namespace bagua::rt::test {

/// Makes the transports of one world. create() runs on each rank's own thread, at the same time.
class TransportWorld {
public:
  virtual ~TransportWorld() = default;
  virtual StatusOr<std::unique_ptr<Transport>> create(int rank) = 0;
  virtual std::shared_ptr<Doorbell> doorbell(int rank) = 0;
};

struct TransportKind {
  std::string name;
  std::function<std::unique_ptr<TransportWorld>(int world)> make;
  bool sentMeansReleased = false; ///< `sent` shows only after the receiver's release.
};

inline void PrintTo(const TransportKind &kind, std::ostream *out) { *out << kind.name; }

const std::vector<TransportKind> &transportKinds();

} // namespace bagua::rt::test
