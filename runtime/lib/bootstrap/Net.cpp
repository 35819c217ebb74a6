// TCP addresses and sockets: every descriptor is close-on-exec and closed in forked children.
#include "Net.h"
#include "Fork.h"
#include "Host.h"
#include "Text.h"

#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

namespace bagua::rt::net {
namespace {

constexpr int kBacklog = 512;

Status systemError(std::string_view what) {
  int error = errno;
  std::string text = cat(what, ": ", std::strerror(error));
  if (error == EMFILE || error == ENFILE)
    return absl::ResourceExhaustedError(cat(text, " (`ulimit -n` is ", descriptorUse().limit, ")"));
  if (error == ENOMEM || error == ENOBUFS)
    return absl::ResourceExhaustedError(text);
  return absl::UnavailableError(text);
}

Descriptor makeSocket(int family, int type) {
  return Descriptor(::socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

const sockaddr *generic(const Endpoint &endpoint) {
  return reinterpret_cast<const sockaddr *>(&endpoint.address);
}

Endpoint anyAddress(int family, bool loopback, uint16_t port) {
  Endpoint endpoint;
  if (family == AF_INET) {
    auto *v4 = reinterpret_cast<sockaddr_in *>(&endpoint.address);
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    v4->sin_addr.s_addr = htonl(loopback ? INADDR_LOOPBACK : INADDR_ANY);
    endpoint.bytes = sizeof(sockaddr_in);
  } else {
    auto *v6 = reinterpret_cast<sockaddr_in6 *>(&endpoint.address);
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    v6->sin6_addr = loopback ? in6addr_loopback : in6addr_any;
    endpoint.bytes = sizeof(sockaddr_in6);
  }
  return endpoint;
}

} // namespace

std::string HostPort::text() const {
  return host.find(':') == std::string::npos ? cat(host, ":", port) : cat("[", host, "]:", port);
}

StatusOr<HostPort> parseHostPort(std::string_view text, std::string_view what) {
  auto refuse = [&] {
    return absl::InvalidArgumentError(
        cat(what, " expects host:port or [v6]:port, got '", text, "'"));
  };
  size_t colon = text.rfind(':');
  if (colon == std::string_view::npos)
    return refuse();
  std::string_view host = text.substr(0, colon);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  else if (host.find(':') != std::string_view::npos)
    return refuse();
  std::optional<int64_t> port = parseInteger(text.substr(colon + 1));
  if (host.empty() || !port || *port < 0 || *port > 65535)
    return refuse();
  return HostPort{std::string(host), static_cast<uint16_t>(*port)};
}

std::string Endpoint::ip() const {
  char text[INET6_ADDRSTRLEN] = {};
  if (family() == AF_INET) {
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in *>(&address)->sin_addr, text,
                sizeof(text));
  } else if (family() == AF_INET6) {
    const auto *v6 = reinterpret_cast<const sockaddr_in6 *>(&address);
    if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr))
      ::inet_ntop(AF_INET, v6->sin6_addr.s6_addr + 12, text, sizeof(text));
    else
      ::inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof(text));
  }
  return text;
}

uint16_t Endpoint::port() const {
  // The port lies at the same place in both.
  return ntohs(reinterpret_cast<const sockaddr_in *>(&address)->sin_port);
}

bool Endpoint::loopback() const {
  std::string text = ip();
  return text.starts_with("127.") || text == "::1";
}

StatusOr<std::vector<Endpoint>> resolve(const HostPort &address) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo *list = nullptr;
  int error =
      ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &list);
  if (error != 0)
    return absl::UnavailableError(
        cat("cannot resolve host '", address.host,
            "': ", error == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(error)));
  std::vector<Endpoint> endpoints;
  for (const addrinfo *entry = list; entry; entry = entry->ai_next) {
    Endpoint endpoint;
    std::memcpy(&endpoint.address, entry->ai_addr, entry->ai_addrlen);
    endpoint.bytes = entry->ai_addrlen;
    endpoints.push_back(endpoint);
  }
  ::freeaddrinfo(list);
  return endpoints;
}

Descriptor::Descriptor(int value) : value_(value) { closeInChildren(value_); }

Descriptor &Descriptor::operator=(Descriptor &&other) noexcept {
  if (this != &other) {
    reset();
    value_ = other.value_;
    other.value_ = -1;
  }
  return *this;
}

void Descriptor::reset() {
  if (value_ < 0)
    return;
  forgetInChildren(value_);
  ::close(value_);
  value_ = -1;
}

int Descriptor::release() {
  int value = value_;
  value_ = -1;
  return value;
}

StatusOr<Descriptor> listenOn(uint16_t port, bool loopbackOnly) {
  // One IPv6 socket takes IPv4 too; without IPv6, plain IPv4. The loopback interface only by IPv4.
  for (int family : {AF_INET6, AF_INET}) {
    if (family == AF_INET6 && loopbackOnly)
      continue;
    Descriptor socket = makeSocket(family, SOCK_STREAM);
    if (!socket) {
      if (family == AF_INET6)
        continue;
      return systemError("cannot make the store's socket");
    }
    int on = 1, off = 0;
    // A port in TIME_WAIT may be taken; one with a listener may not.
    ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (family == AF_INET6)
      ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    Endpoint endpoint = anyAddress(family, loopbackOnly, port);
    if (::bind(socket.get(), generic(endpoint), endpoint.bytes) == 0 &&
        ::listen(socket.get(), kBacklog) == 0)
      return socket;
    if (errno == EADDRINUSE) {
      std::string holder = portHolder(port);
      return absl::ResourceExhaustedError(
          cat("port ", port, " for the store is in use by ",
              holder.empty() ? "a process that cannot be seen from here" : holder,
              "; choose another with BAGUA_STORE=host:port"));
    }
    if (family == AF_INET || errno == EACCES)
      return systemError(cat("cannot listen on port ", port, " for the store"));
  }
  return absl::InternalError("no address family to listen on");
}

StatusOr<Descriptor> connectTo(const Endpoint &endpoint, std::chrono::milliseconds timeout) {
  Descriptor socket = makeSocket(endpoint.family(), SOCK_STREAM);
  if (!socket)
    return systemError("cannot make a socket");
  int on = 1;
  ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  std::string where = cat(endpoint.ip(), ":", endpoint.port());
  if (::connect(socket.get(), generic(endpoint), endpoint.bytes) != 0) {
    if (errno != EINPROGRESS)
      return systemError(cat("cannot connect to ", where));
    pollfd descriptor{socket.get(), POLLOUT, 0};
    int got = 0;
    while ((got = ::poll(&descriptor, 1, static_cast<int>(timeout.count()))) < 0 &&
           errno == EINTR) {
    }
    if (got == 0)
      return absl::DeadlineExceededError(
          cat("cannot connect to ", where, ": no answer in ", timeout.count(), " ms"));
    socklen_t bytes = sizeof(errno);
    int error = 0;
    ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
    if (error != 0) {
      errno = error;
      return systemError(cat("cannot connect to ", where));
    }
  }
  // A connection to oneself: the kernel picked the very port that nobody listens on yet.
  Endpoint local = localEndpoint(socket.get());
  if (local.port() == endpoint.port() && local.ip() == endpoint.ip()) {
    errno = ECONNREFUSED;
    return systemError(cat("cannot connect to ", where));
  }
  return socket;
}

Endpoint localEndpoint(int socket) {
  Endpoint endpoint;
  endpoint.bytes = sizeof(endpoint.address);
  if (::getsockname(socket, reinterpret_cast<sockaddr *>(&endpoint.address), &endpoint.bytes) != 0)
    endpoint = Endpoint{};
  return endpoint;
}

Endpoint peerEndpoint(int socket) {
  Endpoint endpoint;
  endpoint.bytes = sizeof(endpoint.address);
  if (::getpeername(socket, reinterpret_cast<sockaddr *>(&endpoint.address), &endpoint.bytes) != 0)
    endpoint = Endpoint{};
  return endpoint;
}

bool isLocalAddress(const Endpoint &endpoint) {
  Descriptor socket = makeSocket(endpoint.family(), SOCK_DGRAM);
  Endpoint any = endpoint;
  reinterpret_cast<sockaddr_in *>(&any.address)->sin_port = 0;
  return socket && ::bind(socket.get(), generic(any), any.bytes) == 0;
}

StatusOr<std::string> sourceAddressTowards(const Endpoint &endpoint) {
  Descriptor socket = makeSocket(endpoint.family(), SOCK_DGRAM);
  Endpoint target = endpoint;
  reinterpret_cast<sockaddr_in *>(&target.address)->sin_port = htons(9); // Nothing is sent.
  if (!socket || ::connect(socket.get(), generic(target), target.bytes) != 0)
    return systemError(cat("no route to ", endpoint.ip()));
  return localEndpoint(socket.get()).ip();
}

} // namespace bagua::rt::net
