// How ranks of one host hand each other the descriptors of their windows.
#pragma once

#include "SharedMemory.h"

#include "bagua/Group.h"

#include <array>
#include <vector>

namespace bagua::rt {

/// What a rank gives to a peer, in this order.
enum : size_t { kDoorbellFile, kControlFile, kDataFile, kFileCount };
using WindowFiles = std::array<FileDescriptor, kFileCount>;

/// 128 random bits: names of sockets, and proof that a peer has read the group's store.
struct Token {
  std::array<uint8_t, 16> bytes{};
  auto operator<=>(const Token &) const = default;
  std::string hex() const;
  static StatusOr<Token> random();
  static StatusOr<Token> fromHex(const std::string &text);
};

/// Sends and receives descriptors over an abstract socket, which exists only while this object
/// does. Connections of other users, and ones that do not show the right token, are refused.
class WindowExchange {
public:
  /// Opens the socket. `token` is this rank's.
  static StatusOr<std::unique_ptr<WindowExchange>> create(int rank, const Token &token);

  const std::string &address() const { return address_; }

  struct Peer {
    int rank;
    Token token;         ///< The peer's own.
    std::string address; ///< The peer's.
    WindowFiles files;   ///< Filled by run().
  };
  /// Gives `files` to every peer and takes theirs. Blocks until done, a verdict, or the bootstrap
  /// timeout.
  Status run(Group &group, const std::array<int, kFileCount> &files, std::vector<Peer> &peers);

private:
  WindowExchange(int rank, const Token &token) : rank_(rank), token_(token) {}
  StatusOr<bool> give(const Peer &peer, const std::array<int, kFileCount> &files);
  StatusOr<bool> take(int connection, std::vector<Peer> &peers);

  const int rank_;
  const Token token_;
  std::string address_; ///< Without the leading zero byte.
  FileDescriptor listener_;
};

} // namespace bagua::rt
