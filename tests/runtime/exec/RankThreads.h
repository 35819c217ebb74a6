// Ranks as threads of this process, each with its group, transport and engine.
#pragma once

#include "bagua/Binding.h"
#include "bagua/Engine.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace bagua::rt::testing {

/// How the ranks of a world are connected.
struct Connection {
  std::string name;
  /// Makes what the ranks of one world share, and returns what makes one rank's part of it.
  struct Part {
    std::shared_ptr<Doorbell> doorbell;
    std::unique_ptr<Transport> transport;
  };
  using MakePart = std::function<StatusOr<Part>(Group &group)>;
  std::function<MakePart(int world)> make;
};
inline void PrintTo(const Connection &connection, std::ostream *out) { *out << connection.name; }

/// Loopback in both modes, with and without delays, and windows.
const std::vector<Connection> &connections();
const Connection &connection(const std::string &name);

struct Rank {
  int rank, world;
  Group &group;
  Transport &transport;
  Engine &engine;
};

struct RankOptions {
  RankOptions() { engine.threads = 1; }
  Engine::Options engine;
  std::vector<int> hosts; ///< By rank; empty: all on one. Transports do not know.
  std::chrono::milliseconds stepTimeout{20'000}, bootstrapTimeout{20'000};
};

/// Runs `body` on one thread per rank and joins them. Ranks leave in order unless body says
/// otherwise.
void runRanks(const Connection &connection, int world, const RankOptions &options,
              const std::function<void(Rank &)> &body);

/// Waits until the binding's program has finished.
Status waitFor(Binding &binding);

} // namespace bagua::rt::testing
