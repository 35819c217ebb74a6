// Windows: memory comes and goes, strangers are refused, damaged control memory is an error.
#include "bagua/Window.h"

#include "Exchange.h"
#include "HostsGroup.h"
#include "Layout.h"
#include "Window.h"

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <atomic>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>

namespace bagua::rt::test {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

size_t committedBytes(const Window &window) {
  struct stat status{};
  EXPECT_EQ(fstat(window.descriptor(), &status), 0);
  return static_cast<size_t>(status.st_blocks) * 512;
}

TEST(WindowTest, PagesComeWithAllocateAndGoWithTheLastReference) {
  StatusOr<std::shared_ptr<Window>> window = Window::create("bagua-test", size_t{64} << 20);
  ASSERT_TRUE(window.ok()) << window.status();
  EXPECT_EQ(committedBytes(**window), 0u);
  for (int round = 0; round < 3; ++round) {
    StatusOr<Memory> large = (*window)->allocate(size_t{40} << 20);
    ASSERT_TRUE(large.ok()) << large.status();
    EXPECT_GE(committedBytes(**window), size_t{40} << 20);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(large->bytes.data()) % kHugePageBytes, 0u);
    EXPECT_EQ(large->bytes[12345], std::byte{0});
    std::memset(large->bytes.data(), 1, large->bytes.size());
    std::shared_ptr<void> second = large->owner;
    large->owner.reset();
    EXPECT_GE(committedBytes(**window), size_t{40} << 20);
    second.reset();
    EXPECT_EQ(committedBytes(**window), 0u);
  }
}

TEST(WindowTest, FullWindowNamesTheBytesNeeded) {
  StatusOr<std::shared_ptr<Window>> window = Window::create("bagua-test", size_t{4} << 20);
  ASSERT_TRUE(window.ok()) << window.status();
  StatusOr<Memory> first = (*window)->allocate(size_t{3} << 20),
                   second = (*window)->allocate(size_t{3} << 20);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(second.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("3145728 bytes"));
}

// Address space is plentiful, memory is not: the error comes before the kernel kills somebody.
TEST(WindowTest, MoreThanTheMachineHasIsAnError) {
  constexpr size_t kWhole = size_t{4} << 20; // Half of it is a huge page: nothing is rounded up.
  size_t bytes = 8 * static_cast<size_t>(::sysconf(_SC_PHYS_PAGES)) * kPageBytes / kWhole * kWhole;
  StatusOr<std::shared_ptr<Window>> window = Window::create("bagua-test", bytes);
  ASSERT_TRUE(window.ok()) << window.status();
  StatusOr<Memory> memory = (*window)->allocate(bytes / 2);
  EXPECT_EQ(memory.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(memory.status().message()),
              AllOf(HasSubstr(std::to_string(bytes / 2)), HasSubstr("available")));
  EXPECT_EQ(committedBytes(**window), 0u);
}

TEST(WindowTest, FileIsSealedCloseOnExecAndNameless) {
  StatusOr<std::shared_ptr<Window>> window = Window::create("bagua-test", kPageBytes);
  ASSERT_TRUE(window.ok()) << window.status();
  int file = (*window)->descriptor();
  EXPECT_EQ(ftruncate(file, 0), -1);
  EXPECT_EQ(fcntl(file, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  struct stat status{};
  ASSERT_EQ(fstat(file, &status), 0);
  EXPECT_EQ(status.st_nlink, 0u);
}

TEST(TokenTest, RoundTripsAndRefusesAnythingElse) {
  StatusOr<Token> token = Token::random();
  ASSERT_TRUE(token.ok());
  StatusOr<Token> read = Token::fromHex(token->hex());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->bytes, token->bytes);
  for (const char *text :
       {"", "0", "zz112233445566778899aabbccddeeff", "00112233445566778899aabbccddeeff00"})
    EXPECT_EQ(Token::fromHex(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
}

/// Two ranks on threads with their own transports; `before` runs on rank 0 while rank 1 has not
/// come yet.
class WindowPair {
public:
  using Intrude = std::function<void(const std::string &address, const Token &token)>;
  void run(const Intrude &intrude,
           const std::function<void(int rank, Transport &, Doorbell &)> &body,
           bool shareMappings = false) {
    std::shared_ptr<Store> store = makeLocalStore();
    std::vector<std::thread> threads;
    for (int r = 0; r < 2; ++r)
      threads.emplace_back([&, r] {
        Group::Options options;
        options.rank = r;
        options.world = 2;
        options.localStore = store;
        options.bootstrapTimeout = 20s;
        StatusOr<std::unique_ptr<Group>> group = Group::create(options);
        ASSERT_TRUE(group.ok()) << group.status();
        HostsGroup placed(*std::move(group), {0, 0});
        if (r == 0 && intrude)
          placed.observe = [&](const std::string &what, const std::string &value) {
            std::vector<std::string> words = absl::StrSplit(value, ' ');
            if (what.find("/address") != std::string::npos && words.size() == 3)
              intrude(words[1], *Token::fromHex(words[2])); // Before rank 1 can know the address.
          };
        std::shared_ptr<Doorbell> doorbell = *makeSharedDoorbell();
        StatusOr<std::unique_ptr<Transport>> transport =
            makeWindowTransport(placed, doorbell,
                                {.windowBytes = size_t{64} << 20,
                                 .controlBytes = size_t{4} << 20,
                                 .shareMappingsInProcess = shareMappings});
        ASSERT_TRUE(transport.ok()) << transport.status();
        body(r, **transport, *doorbell);
        placed.leave();
      });
    for (std::thread &thread : threads)
      thread.join();
  }
};

void exchangeOnce(int rank, Transport &transport, Doorbell &doorbell) {
  Channel *channel = *transport.openChannel(1, 0, 1 - rank, 100, 1, 1);
  Memory memory = *transport.allocate(100);
  memory.bytes[99] = static_cast<std::byte>(40 + rank);
  SendOp send{.data = memory.bytes.data(), .bytes = 100};
  RecvOp recv{.landing = nullptr, .bytes = 100};
  ASSERT_TRUE(transport.send(*channel, send).ok());
  ASSERT_TRUE(transport.recv(*channel, recv).ok());
  bool released = false;
  while (!send.sent || !released) {
    uint32_t seen = doorbell.value();
    StatusOr<bool> changed = transport.poll();
    ASSERT_TRUE(changed.ok()) << changed.status();
    if (recv.arrived) {
      EXPECT_EQ(recv.view[99], static_cast<std::byte>(41 - rank));
      ASSERT_TRUE(transport.release(*channel, recv).ok());
      released = true;
    } else if (!*changed) {
      doorbell.wait(seen, 1s);
    }
  }
}

int connectTo(const std::string &address) {
  int connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path + 1, address.data(), address.size());
  EXPECT_EQ(connect(connection, reinterpret_cast<sockaddr *>(&name),
                    static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + address.size())),
            0);
  return connection;
}

// Somebody who finds the socket, but not the group's store, gets nowhere and hinders nobody.
TEST(WindowExchangeTest, StrangersAreRefused) {
  std::vector<int> strangers;
  ::testing::internal::CaptureStderr();
  WindowPair().run(
      [&](const std::string &address, const Token &token) {
        struct Hello {
          uint64_t magic = 0x3157414755474142;
          int32_t rank = 1;
          uint32_t reserved = 0;
          uint8_t token[16] = {};
        } hello;
        strangers.push_back(connectTo(address)); // Says nothing at all.
        strangers.push_back(connectTo(address));
        EXPECT_EQ(send(strangers.back(), "?", 1, 0), 1);
        strangers.push_back(connectTo(address)); // Knows the format, not the token.
        EXPECT_EQ(send(strangers.back(), &hello, sizeof hello, 0),
                  static_cast<ssize_t>(sizeof hello));
        std::memcpy(hello.token, token.bytes.data(), sizeof hello.token);
        strangers.push_back(connectTo(address)); // Knows the token, brings no windows.
        EXPECT_EQ(send(strangers.back(), &hello, sizeof hello, 0),
                  static_cast<ssize_t>(sizeof hello));
      },
      exchangeOnce);
  for (int stranger : strangers)
    close(stranger);
  std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, AllOf(HasSubstr("does not show this rank's token"),
                         HasSubstr("does not bring all windows")));
}

size_t openDescriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto &entry : std::filesystem::directory_iterator("/proc/self/fd"))
    ++count;
  return count;
}

TEST(WindowTransportTest, LeavesNoDescriptorNoMappingAndNoName) {
  WindowPair().run(nullptr, exchangeOnce); // Whatever is made once is made now.
  size_t before = openDescriptors();
  for (bool share : {true, false})
    WindowPair().run(
        nullptr,
        [](int rank, Transport &transport, Doorbell &doorbell) {
          exchangeOnce(rank, transport, doorbell);
          for (const auto &entry : std::filesystem::directory_iterator("/proc/self/fd")) {
            std::error_code error;
            std::string target = std::filesystem::read_symlink(entry.path(), error).string();
            if (target.find("bagua-") != std::string::npos)
              EXPECT_EQ(fcntl(std::stoi(entry.path().filename()), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC)
                  << target;
          }
        },
        share);
  EXPECT_EQ(openDescriptors(), before);
  std::ifstream maps("/proc/self/maps"), sockets("/proc/net/unix");
  for (std::string line; std::getline(maps, line);)
    EXPECT_EQ(line.find("memfd:bagua"), std::string::npos) << line;
  for (std::string line; std::getline(sockets, line);)
    EXPECT_EQ(line.find("@bagua-" + std::to_string(getpid()) + "-"), std::string::npos) << line;
}

TEST(WindowTransportTest, MemoryOutlivesTransportAndGroup) {
  Memory kept[2];
  WindowPair().run(nullptr, [&](int rank, Transport &transport, Doorbell &) {
    kept[rank] = *transport.allocate(1 << 20);
    std::memset(kept[rank].bytes.data(), rank + 1, 1 << 20);
  });
  for (int r = 0; r < 2; ++r)
    for (std::byte &b : kept[r].bytes) {
      ASSERT_EQ(b, static_cast<std::byte>(r + 1));
      b = std::byte{0};
    }
}

/// Every directory of a control window in this process.
std::vector<std::byte *> controlWindows() {
  std::vector<std::byte *> found;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find("memfd:bagua-control") != std::string::npos)
      found.push_back(
          reinterpret_cast<std::byte *>(std::stoull(line.substr(0, line.find('-')), nullptr, 16)));
  return found;
}

// The peer's process may have lost its mind: whatever stands in its control memory, we do not read
// outside its windows.
TEST(WindowTransportTest, DamagedDescriptorsAreErrors) {
  struct Damage {
    const char *what;
    std::function<void(Descriptor &)> apply;
  };
  const Damage damages[] = {
      {"offset", [](Descriptor &d) { d.offset = (size_t{64} << 20) - 50; }},
      {"huge offset", [](Descriptor &d) { d.offset = UINT64_MAX - 8; }},
      {"ticket", [](Descriptor &d) { d.ticket = 7; }},
  };
  for (const Damage &damage : damages) {
    std::atomic<int> phase = 0;
    WindowPair().run(
        nullptr,
        [&](int rank, Transport &transport, Doorbell &) {
          Channel *channel = *transport.openChannel(77, 3, 1 - rank, 100, 2, 2);
          Memory memory = *transport.allocate(100);
          SendOp send{.data = memory.bytes.data(), .bytes = 100};
          if (rank == 0) {
            ASSERT_TRUE(transport.send(*channel, send).ok());
            int damaged = 0;
            for (std::byte *control : controlWindows()) {
              auto *slot = reinterpret_cast<DirectorySlot *>(control + kDirectoryOffset);
              if ((slot->state & DirectorySlot::kOpenBit) == 0 ||
                  slot->targetAndCapacity >> 32 != 1)
                continue;
              damage.apply(Ring(control + slot->ringOffset, 2).descriptors[0]);
              ++damaged;
            }
            EXPECT_GE(damaged, 1);
            phase = 1;
            while (phase != 2)
              std::this_thread::yield();
            return;
          }
          while (phase != 1)
            std::this_thread::yield();
          RecvOp recv{.landing = nullptr, .bytes = 100};
          ASSERT_TRUE(transport.recv(*channel, recv).ok());
          Status error = transport.poll().status();
          EXPECT_EQ(error.code(), absl::StatusCode::kInternal) << damage.what;
          EXPECT_THAT(std::string(error.message()),
                      AllOf(HasSubstr("rank 0"), HasSubstr("binding 77"), HasSubstr("damaged")));
          EXPECT_FALSE(recv.arrived);
          phase = 2;
        },
        true);
  }
}

} // namespace
} // namespace bagua::rt::test
