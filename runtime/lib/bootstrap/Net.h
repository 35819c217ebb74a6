// TCP addresses and sockets: every descriptor is close-on-exec and closed in forked children.
#pragma once

#include "bagua/Status.h"

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <netinet/in.h>
#include <sys/socket.h>

namespace bagua::rt::net {

struct HostPort {
  std::string host;
  uint16_t port = 0;
  std::string text() const; ///< "host:port", "[v6]:port"
};

/// "host:port" or "[v6]:port". `what` names the source in the error.
StatusOr<HostPort> parseHostPort(std::string_view text, std::string_view what);

struct Endpoint {
  sockaddr_storage address{};
  socklen_t bytes = 0;
  int family() const { return address.ss_family; }
  std::string ip() const; ///< Without port; IPv4 behind an IPv6 socket reads as IPv4.
  uint16_t port() const;
  bool loopback() const;
};

StatusOr<std::vector<Endpoint>> resolve(const HostPort &address);

/// A socket that a forked child must not keep open. Owned until release().
class Descriptor {
public:
  Descriptor() = default;
  explicit Descriptor(int value);
  Descriptor(Descriptor &&other) noexcept : value_(other.value_) { other.value_ = -1; }
  Descriptor &operator=(Descriptor &&other) noexcept;
  ~Descriptor() { reset(); }
  int get() const { return value_; }
  explicit operator bool() const { return value_ >= 0; }
  void reset();
  /// Gives it up; it stays in the fork registry until forgetInChildren().
  int release();

private:
  int value_ = -1;
};

/// Listens on `port` (0: any free one) of the loopback interface or of all. An address in use is
/// kResourceExhausted, with the holder's name if it can be found.
StatusOr<Descriptor> listenOn(uint16_t port, bool loopbackOnly);
/// One attempt. kDeadlineExceeded after `timeout`, kUnavailable if refused.
StatusOr<Descriptor> connectTo(const Endpoint &endpoint, std::chrono::milliseconds timeout);

Endpoint localEndpoint(int socket);
Endpoint peerEndpoint(int socket);

/// True if a socket of this host can be bound to it.
bool isLocalAddress(const Endpoint &endpoint);
/// The address that this host would use towards `endpoint`, or nothing without a route.
StatusOr<std::string> sourceAddressTowards(const Endpoint &endpoint);

} // namespace bagua::rt::net
