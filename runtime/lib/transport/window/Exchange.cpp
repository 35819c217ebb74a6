// Descriptors between processes: an abstract socket, SCM_RIGHTS, credentials and a token.
#include "Exchange.h"

#include "bagua/Log.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace bagua::rt {
namespace {

constexpr uint64_t kMagic = 0x3157414755474142; // "BAGUAGW1"
constexpr int kBacklog = 128;

struct Hello {
  uint64_t magic;
  int32_t rank; ///< The sender's.
  uint32_t reserved;
  uint8_t token[16]; ///< The receiver's: only a member of the group can know it.
};
static_assert(sizeof(Hello) == 32, "goes over a socket: no padding");

Status systemError(const std::string &what) {
  if (errno == EMFILE || errno == ENFILE)
    return absl::ResourceExhaustedError(
        absl::StrCat(what, ": ", strerror(errno), " (see `ulimit -n`)"));
  return absl::InternalError(absl::StrCat(what, ": ", strerror(errno)));
}

socklen_t fillAddress(const std::string &name, sockaddr_un &address) {
  std::memset(&address, 0, sizeof address);
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(),
              std::min(name.size(), sizeof address.sun_path - 1));
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

bool sameUser(int connection) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0 &&
         credentials.uid == geteuid();
}

} // namespace

std::string Token::hex() const {
  return absl::BytesToHexString(
      std::string(reinterpret_cast<const char *>(bytes.data()), bytes.size()));
}

StatusOr<Token> Token::random() {
  Token token;
  if (getrandom(token.bytes.data(), token.bytes.size(), 0) !=
      static_cast<ssize_t>(token.bytes.size()))
    return systemError("no random bytes");
  return token;
}

StatusOr<Token> Token::fromHex(const std::string &text) {
  Token token;
  bool digits =
      std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isxdigit(c); });
  if (text.size() != 2 * token.bytes.size() || !digits)
    return absl::InvalidArgumentError(
        absl::StrCat("not a window token: \"", absl::CEscape(text), "\""));
  std::string raw = absl::HexStringToBytes(text);
  std::memcpy(token.bytes.data(), raw.data(), raw.size());
  return token;
}

StatusOr<std::unique_ptr<WindowExchange>> WindowExchange::create(int rank, const Token &token) {
  std::unique_ptr<WindowExchange> exchange(new WindowExchange(rank, token));
  BAGUA_ASSIGN(Token name, Token::random());
  exchange->address_ = absl::StrCat("bagua-", getpid(), "-", name.hex());
  exchange->listener_ =
      FileDescriptor(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!exchange->listener_)
    return systemError("cannot make a local socket");
  sockaddr_un address;
  socklen_t size = fillAddress(exchange->address_, address);
  if (bind(exchange->listener_.get(), reinterpret_cast<sockaddr *>(&address), size) != 0 ||
      listen(exchange->listener_.get(), kBacklog) != 0)
    return systemError("cannot listen on a local socket");
  return exchange;
}

/// False if the peer's queue of connections is full: try again later.
StatusOr<bool> WindowExchange::give(const Peer &peer, const std::array<int, kFileCount> &files) {
  FileDescriptor connection(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!connection)
    return systemError("cannot make a local socket");
  sockaddr_un address;
  socklen_t size = fillAddress(peer.address, address);
  if (connect(connection.get(), reinterpret_cast<sockaddr *>(&address), size) != 0) {
    if (errno == EAGAIN || errno == EINTR)
      return false;
    return systemError(absl::StrCat("cannot connect to rank ", peer.rank, " on this host"));
  }
  if (!sameUser(connection.get()))
    return absl::InternalError(
        absl::StrCat("the local socket of rank ", peer.rank, " belongs to another user"));
  Hello hello{.magic = kMagic, .rank = rank_, .reserved = 0, .token = {}};
  std::memcpy(hello.token, peer.token.bytes.data(), sizeof hello.token);
  iovec payload{&hello, sizeof hello};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof files)] = {};
  msghdr message{};
  message.msg_iov = &payload;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr *header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof files);
  std::memcpy(CMSG_DATA(header), files.data(), sizeof files);
  if (sendmsg(connection.get(), &message, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof hello)) {
    if (errno == EAGAIN || errno == EINTR)
      return false;
    return systemError(absl::StrCat("cannot pass windows to rank ", peer.rank));
  }
  return true; // What is queued stays readable after the close.
}

/// Reads one connection; true if it brought the windows of a peer that was awaited.
StatusOr<bool> WindowExchange::take(int connection, std::vector<Peer> &peers) {
  Hello hello{};
  iovec payload{&hello, sizeof hello};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kFileCount)] = {};
  msghdr message{};
  message.msg_iov = &payload;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t size = recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
  std::vector<FileDescriptor> received;
  for (cmsghdr *header = CMSG_FIRSTHDR(&message); size >= 0 && header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
      continue;
    size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int descriptor;
      std::memcpy(&descriptor, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      received.emplace_back(descriptor);
    }
  }
  if (size >= 0 && (message.msg_flags & MSG_CTRUNC) != 0 && received.size() < kFileCount) {
    errno = EMFILE; // The kernel has dropped what found no place.
    return systemError(absl::StrCat("rank ", rank_, " cannot take the windows of its peers"));
  }
  auto refuse = [&](const char *why) {
    logger("transport")
        ->warn("rank {}: refused a connection to the window exchange: {}", rank_, why);
    return false;
  };
  if (!sameUser(connection))
    return refuse("it comes from another user");
  if (size != static_cast<ssize_t>(sizeof hello) || hello.magic != kMagic ||
      std::memcmp(hello.token, token_.bytes.data(), sizeof hello.token) != 0)
    return refuse("it does not show this rank's token");
  if (received.size() != kFileCount)
    return refuse("it does not bring all windows");
  for (Peer &peer : peers) {
    if (peer.rank != hello.rank || peer.files[0])
      continue;
    for (size_t i = 0; i < kFileCount; ++i)
      peer.files[i] = std::move(received[i]);
    return true;
  }
  return refuse("no such peer is awaited");
}

Status WindowExchange::run(Group &group, const std::array<int, kFileCount> &files,
                           std::vector<Peer> &peers) {
  auto deadline = std::chrono::steady_clock::now() + group.bootstrapTimeout();
  std::vector<const Peer *> toGive;
  for (const Peer &peer : peers)
    toGive.push_back(&peer);
  size_t toTake = peers.size();
  std::vector<FileDescriptor> connections; // Accepted, not read yet.
  while (!toGive.empty() || toTake > 0) {
    Status failed;
    std::erase_if(toGive, [&](const Peer *peer) {
      StatusOr<bool> given = failed.ok() ? give(*peer, files) : StatusOr<bool>(false);
      if (!given.ok())
        failed = given.status();
      return given.ok() && *given;
    });
    BAGUA_TRY(failed);
    std::vector<pollfd> ready;
    ready.push_back({listener_.get(), POLLIN, 0});
    for (const FileDescriptor &connection : connections)
      ready.push_back({connection.get(), POLLIN, 0});
    if (toTake > 0 || !toGive.empty())
      (void)poll(ready.data(), ready.size(), toGive.empty() ? 50 : 1);
    for (size_t i = ready.size(); i-- > 1;)
      if (ready[i].revents != 0) {
        BAGUA_ASSIGN(bool taken, take(connections[i - 1].get(), peers));
        toTake -= taken ? 1 : 0;
        connections.erase(connections.begin() + static_cast<std::ptrdiff_t>(i - 1));
      }
    while (true) {
      FileDescriptor connection(
          accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!connection && (errno == EMFILE || errno == ENFILE))
        return systemError(absl::StrCat("rank ", rank_, " cannot take the windows of its peers"));
      if (!connection)
        break;
      connections.push_back(std::move(connection));
    }
    if (group.hasVerdict())
      return group.verdict();
    if ((toTake > 0 || !toGive.empty()) && std::chrono::steady_clock::now() > deadline) {
      std::vector<std::string> missing;
      for (const Peer &peer : peers)
        if (!peer.files[0])
          missing.push_back(group.describePeer(peer.rank));
      return absl::DeadlineExceededError(absl::StrCat("no windows within ",
                                                      group.bootstrapTimeout().count(), " ms from ",
                                                      absl::StrJoin(missing, ", ")));
    }
  }
  return absl::OkStatus();
}

} // namespace bagua::rt
