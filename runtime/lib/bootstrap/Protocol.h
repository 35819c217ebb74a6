// The store's wire format: length-prefixed frames, little-endian, nothing trusted.
#pragma once

#include "bagua/Status.h"

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace bagua::rt::wire {

static_assert(std::endian::native == std::endian::little,
              "frames are written as they lie in memory");

/// The server sends it first, so that a client knows at once whom it reached.
inline constexpr std::string_view kBanner = "BAGUAST1";
inline constexpr uint32_t kMagic = 0x31545342; // "BST1"
inline constexpr uint32_t kVersion = 2;

struct FrameHeader {
  uint32_t magic = kMagic;
  uint32_t bytes = 0;   ///< Of the body.
  uint64_t request = 0; ///< Chosen by the client, returned by the reply; 0: no reply.
  uint32_t type = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(FrameHeader) == 24, "goes on the wire: no padding");

inline constexpr size_t kHelloBytesMax = size_t{16} << 10; ///< Before a client has joined.
inline constexpr size_t kFrameBytesMax = (size_t{16} << 20) + (size_t{64} << 10);
inline constexpr size_t kReplyBytesMax = size_t{1}
                                         << 30; ///< Of a gather; the client trusts its store.

enum class Type : uint32_t {
  // Client to server.
  kHello = 1,
  kSet,
  kGet,
  kCancel,
  kAdd,
  kErase,
  kGather,
  kHeartbeat,
  kPause,
  kPropose,
  kReportDead,
  kDescribe,
  kGoodbye,
  // Server to client.
  kReply = 100,
  kRefused,
  kWelcome,
  kVerdict,
  kPong,
  kHostPhase,
  kPauses,
  kLeft,
  kJoined, ///< Let in by the store of this group: if it goes away now, its host has died.
};

/// Appends to a body.
class Writer {
public:
  template <typename Number> Writer &number(Number value) {
    static_assert(std::is_arithmetic_v<Number>);
    body_.append(reinterpret_cast<const char *>(&value), sizeof(value));
    return *this;
  }
  Writer &text(std::string_view value) {
    number(static_cast<uint32_t>(value.size()));
    body_.append(value);
    return *this;
  }
  Writer &status(const Status &value) {
    number(static_cast<int32_t>(value.code()));
    return text({value.message().data(), value.message().size()});
  }
  /// Header and body.
  std::string frame(Type type, uint64_t request = 0) const {
    FrameHeader header;
    header.bytes = static_cast<uint32_t>(body_.size());
    header.request = request;
    header.type = static_cast<uint32_t>(type);
    std::string frame(reinterpret_cast<const char *>(&header), sizeof(header));
    return frame += body_;
  }

private:
  std::string body_;
};

/// Reads a body from outside. After the first failure everything reads as zero and ok() is false.
class Reader {
public:
  explicit Reader(std::string_view body) : rest_(body) {}
  template <typename Number> Number number() {
    static_assert(std::is_arithmetic_v<Number>);
    Number value{};
    if (rest_.size() < sizeof(value)) {
      fail();
      return Number{};
    }
    std::memcpy(&value, rest_.data(), sizeof(value));
    rest_.remove_prefix(sizeof(value));
    return value;
  }
  std::string_view text() {
    uint32_t bytes = number<uint32_t>();
    if (bytes > rest_.size()) {
      fail();
      return {};
    }
    std::string_view value = rest_.substr(0, bytes);
    rest_.remove_prefix(bytes);
    return value;
  }
  Status status() {
    auto code = static_cast<absl::StatusCode>(number<int32_t>());
    std::string message(text());
    if (code == absl::StatusCode::kOk)
      return absl::OkStatus();
    if (code < absl::StatusCode::kOk || code > absl::StatusCode::kUnauthenticated)
      code = absl::StatusCode::kInternal;
    return Status(code, message);
  }
  bool ok() const { return ok_; }
  /// Read without failure to the last byte.
  bool done() const { return ok_ && rest_.empty(); }

private:
  void fail() {
    ok_ = false;
    rest_ = {};
  }
  std::string_view rest_;
  bool ok_ = true;
};

} // namespace bagua::rt::wire
