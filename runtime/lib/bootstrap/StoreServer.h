// The group's store over TCP: lives in rank 0 or in the launcher.
#pragma once

#include "bagua/Group.h"

#include <memory>
#include <string>

namespace bagua::rt {

/// One thread serves all ranks: keys and values, exchanges, liveness, the verdict. A stranger's
/// bytes are refused. Sessions follow one another: when everyone has left, ranks may join again.
class StoreServer {
public:
  struct Options {
    uint16_t port = 0; ///< 0: any free one.
    bool loopbackOnly = true;
    int world = 0;        ///< 0: unknown until configure().
    std::string job = {}; ///< Ranks of another job are refused.
    int hostRank = -1;    ///< The rank that this process is; -1: a launcher.
    std::chrono::milliseconds tick{100};
  };
  static StatusOr<std::unique_ptr<StoreServer>> start(const Options &options);
  /// Ends the service: connections are closed, clients that have not left see their store's host
  /// gone.
  ~StoreServer();

  uint16_t port() const;
  /// Clients that came before are let in now.
  void configure(int world, const std::string &job, int hostRank);
  /// The launcher saw the process of `rank` end ("exited with code 1"). Thread-safe.
  void rankEnded(int rank, const std::string &how);
  /// The rank whose death came first, or -1. Thread-safe.
  int culprit() const;
  /// The group's verdict is `reason`, unless there is one already. Thread-safe.
  void condemn(const Status &reason);

  /// Lets a server go on in the background until its last client is gone or the process exits.
  static void retire(std::unique_ptr<StoreServer> server);
  /// Keeps a server until its group adopts it.
  static void park(const std::string &address, std::unique_ptr<StoreServer> server);
  /// A parked server of `address` or a retired one that still holds `port`; or nullptr.
  static std::unique_ptr<StoreServer> adopt(const std::string &address, uint16_t port);

private:
  struct Impl;
  struct Registry;
  static Registry &registry();
  explicit StoreServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

} // namespace bagua::rt
