// One suite over every transport: the contract of bagua/Transport.h, clause by clause.
#include "TransportWorlds.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>

// Sanitizers bring their own operator new.
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define BAGUA_COUNTS_ALLOCATIONS 0
#else
#define BAGUA_COUNTS_ALLOCATIONS 1
#endif

#if BAGUA_COUNTS_ALLOCATIONS
namespace {
thread_local uint64_t allocationCount = 0;
} // namespace

// Counts this thread's allocations; see NoAllocationInSteadyState.
void *operator new(size_t bytes) {
  ++allocationCount;
  if (void *memory = std::malloc(bytes ? bytes : 1))
    return memory;
  throw std::bad_alloc();
}
void *operator new(size_t bytes, std::align_val_t alignment) {
  ++allocationCount;
  auto align = static_cast<size_t>(alignment);
  if (void *memory = std::aligned_alloc(align, (bytes + align - 1) / align * align))
    return memory;
  throw std::bad_alloc();
}
void operator delete(void *memory) noexcept { std::free(memory); }
void operator delete(void *memory, size_t) noexcept { std::free(memory); }
void operator delete(void *memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void *memory, size_t, std::align_val_t) noexcept { std::free(memory); }
#endif

// An allocation of absurd size is a case of this suite, not a bug.
extern "C" __attribute__((visibility("default"))) const char *__tsan_default_options() {
  return "allocator_may_return_null=1";
}
extern "C" __attribute__((visibility("default"))) const char *__asan_default_options() {
  return "allocator_may_return_null=1";
}

namespace bagua::rt::test {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr auto kDeadline = 60s;

/// Word `i` of a message; every message of a test has its own `seed`.
uint64_t patternWord(uint64_t seed, size_t i) {
  uint64_t z = (seed + 1) * 0x9e3779b97f4a7c15 + i * 0xbf58476d1ce4e5b9;
  return z ^ (z >> 29);
}
void fillPattern(std::byte *data, size_t bytes, uint64_t seed) {
  for (size_t i = 0; i < bytes; i += 8) {
    uint64_t word = patternWord(seed, i / 8);
    std::memcpy(data + i, &word, std::min<size_t>(8, bytes - i));
  }
}
::testing::AssertionResult hasPattern(const std::byte *data, size_t bytes, uint64_t seed) {
  for (size_t i = 0; i < bytes; i += 8) {
    uint64_t word = patternWord(seed, i / 8);
    if (std::memcmp(data + i, &word, std::min<size_t>(8, bytes - i)) != 0)
      return ::testing::AssertionFailure() << "message " << seed << " of " << bytes
                                           << " bytes differs within 8 bytes from byte " << i;
  }
  return ::testing::AssertionSuccess();
}

/// What one rank's thread works with.
struct Rank {
  int rank, world;
  std::unique_ptr<Transport> transport;
  std::shared_ptr<Doorbell> doorbell;
  std::barrier<> *barrier;

  /// Polls, asleep where nothing happens, until `done`; false after an error or the deadline.
  ::testing::AssertionResult drive(const std::function<bool()> &done) {
    auto deadline = std::chrono::steady_clock::now() + kDeadline;
    while (true) {
      uint32_t seen = doorbell->value();
      StatusOr<bool> changed = transport->poll();
      if (!changed.ok())
        return ::testing::AssertionFailure() << "rank " << rank << ": " << changed.status();
      if (done())
        return ::testing::AssertionSuccess();
      if (std::chrono::steady_clock::now() > deadline)
        return ::testing::AssertionFailure() << "rank " << rank << " waited too long";
      if (!*changed)
        doorbell->wait(seen, 1s);
    }
  }
  /// Polls until the transport has failed.
  Status driveToError() {
    auto deadline = std::chrono::steady_clock::now() + kDeadline;
    while (std::chrono::steady_clock::now() < deadline) {
      uint32_t seen = doorbell->value();
      StatusOr<bool> changed = transport->poll();
      if (!changed.ok())
        return changed.status();
      if (!*changed)
        doorbell->wait(seen, 1s);
    }
    return absl::OkStatus();
  }
  void meet() { barrier->arrive_and_wait(); }
  Channel *open(uint64_t binding, uint32_t channel, int peer, size_t bytesMax, uint32_t inFlight) {
    StatusOr<Channel *> opened =
        transport->openChannel(binding, channel, peer, bytesMax, inFlight, inFlight);
    EXPECT_TRUE(opened.ok()) << opened.status();
    return opened.ok() ? *opened : nullptr;
  }
  /// Bytes that are transport memory or not.
  std::span<std::byte> memory(size_t bytes, bool window) {
    if (window) {
      StatusOr<Memory> memory = transport->allocate(bytes);
      EXPECT_TRUE(memory.ok()) << memory.status();
      if (!memory.ok())
        std::abort();
      owners.push_back(memory->owner);
      return memory->bytes;
    }
    auto owner = std::make_shared<std::vector<std::byte>>(bytes);
    owners.push_back(owner);
    return *owner;
  }

  std::vector<std::shared_ptr<void>> owners{};
};

class TransportConformanceTest : public ::testing::TestWithParam<TransportKind> {
protected:
  /// Runs `body` on a thread per rank; transports are made before and destroyed after it, on that
  /// thread.
  void runRanks(int world, const std::function<void(Rank &)> &body) {
    std::unique_ptr<TransportWorld> made = GetParam().make(world);
    std::barrier<> barrier(world);
    std::vector<std::thread> threads;
    for (int r = 0; r < world; ++r)
      threads.emplace_back([&, r] {
        StatusOr<std::unique_ptr<Transport>> transport = made->create(r);
        if (!transport.ok()) {
          ADD_FAILURE() << "rank " << r << ": " << transport.status();
          std::_Exit(1); // The other ranks would wait for ever.
        }
        Rank rank{r, world, *std::move(transport), made->doorbell(r), &barrier};
        rank.meet();
        body(rank);
        rank.meet();
        rank.transport.reset();
      });
    for (std::thread &thread : threads)
      thread.join();
  }
};

/// One rank's end of an endless exchange with a fixed number of messages in flight each way.
class Exchange {
public:
  Exchange(Rank &rank, Channel *channel, size_t bytesMax, uint32_t depth, bool window)
      : rank_(rank), channel_(channel), sends_(depth), recvs_(depth), depth_(depth) {
    for (uint32_t i = 0; i < depth; ++i) {
      sources_.push_back(rank.memory(bytesMax, window));
      landings_.push_back(rank.memory(bytesMax, false));
    }
  }
  /// Sends and receives one message of each size; checks contents and order.
  void run(const std::vector<size_t> &sizes, uint64_t sendSeed, uint64_t recvSeed) {
    size_t sent = 0, done = 0, posted = 0, received = 0;
    auto step = [&] {
      for (; done < sent && sends_[done % depth_].sent; ++done) {
        // The source may be overwritten from here on.
        std::memset(sources_[done % depth_].data(), 0xee, sizes[done]);
      }
      for (; received < posted && recvs_[received % depth_].arrived; ++received) {
        RecvOp &op = recvs_[received % depth_];
        EXPECT_TRUE(hasPattern(op.view, sizes[received], recvSeed + received));
        Status released = rank_.transport->release(*channel_, op);
        EXPECT_TRUE(released.ok()) << released;
      }
      for (; sent < sizes.size() && sent - done < depth_; ++sent) {
        std::span<std::byte> source = sources_[sent % depth_];
        fillPattern(source.data(), sizes[sent], sendSeed + sent);
        sends_[sent % depth_] = SendOp{.data = source.data(), .bytes = sizes[sent]};
        Status status = rank_.transport->send(*channel_, sends_[sent % depth_]);
        EXPECT_TRUE(status.ok()) << status;
      }
      for (; posted < sizes.size() && posted - received < depth_; ++posted) {
        recvs_[posted % depth_] =
            RecvOp{.landing = landings_[posted % depth_].data(), .bytes = sizes[posted]};
        Status status = rank_.transport->recv(*channel_, recvs_[posted % depth_]);
        EXPECT_TRUE(status.ok()) << status;
      }
      return done == sizes.size() && received == sizes.size();
    };
    EXPECT_TRUE(rank_.drive(step));
  }

private:
  Rank &rank_;
  Channel *channel_;
  std::vector<SendOp> sends_;
  std::vector<RecvOp> recvs_;
  std::vector<std::span<std::byte>> sources_, landings_;
  uint32_t depth_;
};

uint64_t seedOf(int source, int target, uint32_t channel) {
  return (static_cast<uint64_t>(source) << 40) + (static_cast<uint64_t>(target) << 32) +
         (uint64_t{channel} << 24);
}

const std::vector<size_t> kSizes = {1,     2,     3,       7,       8,       63,   64,   65,
                                    1000,  4095,  4096,    4097,    8191,    8192, 8193, 65535,
                                    65536, 65537, 1000003, 1 << 20, 1,       5,    4096, 70000,
                                    12345, 99999, 262144,  1048577, 3000000, 2};

TEST_P(TransportConformanceTest, EverySizeInOrderFromTransportMemory) {
  runRanks(2, [](Rank &rank) {
    int peer = 1 - rank.rank;
    Channel *channel = rank.open(1, 0, peer, 3000000, 4);
    Exchange(rank, channel, 3000000, 4, true)
        .run(kSizes, seedOf(rank.rank, peer, 0), seedOf(peer, rank.rank, 0));
  });
}

TEST_P(TransportConformanceTest, EverySizeInOrderFromPrivateMemory) {
  runRanks(2, [](Rank &rank) {
    int peer = 1 - rank.rank;
    Channel *channel = rank.open(1, 0, peer, 3000000, 3);
    Exchange(rank, channel, 3000000, 3, false)
        .run(kSizes, seedOf(rank.rank, peer, 0), seedOf(peer, rank.rank, 0));
  });
}

TEST_P(TransportConformanceTest, OneLargeMessageEachWay) {
  runRanks(2, [](Rank &rank) {
    int peer = 1 - rank.rank;
    constexpr size_t kBytes = (size_t{20} << 20) + 13;
    Channel *channel = rank.open(1, 0, peer, kBytes, 1);
    Exchange(rank, channel, kBytes, 1, true)
        .run({kBytes, kBytes}, seedOf(rank.rank, peer, 0), seedOf(peer, rank.rank, 0));
  });
}

// All sends are posted before any receive, and every pair exchanges: a transport that needs one
// side to receive first would hang.
TEST_P(TransportConformanceTest, EveryPairExchangesSendsFirst) {
  for (int world : {2, 3, 5})
    runRanks(world, [](Rank &rank) {
      constexpr size_t kBytes = 300'000;
      struct Peer {
        Channel *channel;
        SendOp send;
        RecvOp recv;
        int rank;
      };
      std::vector<Peer> peers;
      for (int p = 0; p < rank.world; ++p)
        if (p != rank.rank)
          peers.push_back(
              {.channel = rank.open(3, 1, p, kBytes, 1), .send = {}, .recv = {}, .rank = p});
      std::vector<std::span<std::byte>> sources, landings;
      for (size_t i = 0; i < peers.size(); ++i) {
        sources.push_back(rank.memory(kBytes, i % 2 == 0));
        landings.push_back(rank.memory(kBytes, false));
      }
      for (uint32_t round = 0; round < 5; ++round) {
        for (size_t i = 0; i < peers.size(); ++i) {
          fillPattern(sources[i].data(), kBytes, seedOf(rank.rank, peers[i].rank, round));
          peers[i].send = {.data = sources[i].data(), .bytes = kBytes};
          ASSERT_TRUE(rank.transport->send(*peers[i].channel, peers[i].send).ok());
        }
        for (size_t i = 0; i < peers.size(); ++i) {
          peers[i].recv = {.landing = landings[i].data(), .bytes = kBytes};
          ASSERT_TRUE(rank.transport->recv(*peers[i].channel, peers[i].recv).ok());
        }
        size_t released = 0;
        ASSERT_TRUE(rank.drive([&] {
          bool allSent = true;
          for (Peer &peer : peers) {
            if (peer.recv.arrived) {
              EXPECT_TRUE(hasPattern(peer.recv.view, kBytes, seedOf(peer.rank, rank.rank, round)));
              EXPECT_TRUE(rank.transport->release(*peer.channel, peer.recv).ok());
              peer.recv.arrived = false;
              ++released;
            }
            allSent &= peer.send.sent;
          }
          return allSent && released == peers.size();
        }));
      }
    });
}

// Channels are independent: a message nobody receives yet does not hold up another channel.
TEST_P(TransportConformanceTest, ChannelsDoNotBlockEachOther) {
  runRanks(2, [](Rank &rank) {
    constexpr size_t kBytes = 50'000;
    constexpr uint32_t kChannels = 6;
    int peer = 1 - rank.rank;
    std::vector<Channel *> channels;
    for (uint32_t c = 0; c < kChannels; ++c)
      channels.push_back(rank.open(c % 2 ? 7 : 9, c / 2, peer, kBytes, 1));
    std::vector<SendOp> sends(kChannels);
    for (uint32_t c = 0; c < kChannels; ++c) {
      std::span<std::byte> source = rank.memory(kBytes, true);
      fillPattern(source.data(), kBytes, seedOf(rank.rank, peer, c));
      sends[c] = {.data = source.data(), .bytes = kBytes};
      ASSERT_TRUE(rank.transport->send(*channels[c], sends[c]).ok());
    }
    std::span<std::byte> landing = rank.memory(kBytes, false);
    for (uint32_t i = 0; i < kChannels; ++i) {
      uint32_t c =
          rank.rank == 0 ? kChannels - 1 - i : (i * 5 + 2) % kChannels; // Each in its own order.
      RecvOp recv{.landing = landing.data(), .bytes = kBytes};
      ASSERT_TRUE(rank.transport->recv(*channels[c], recv).ok());
      ASSERT_TRUE(rank.drive([&] { return recv.arrived; }));
      EXPECT_TRUE(hasPattern(recv.view, kBytes, seedOf(peer, rank.rank, c)));
      ASSERT_TRUE(rank.transport->release(*channels[c], recv).ok());
    }
    ASSERT_TRUE(rank.drive([&] {
      for (SendOp &send : sends)
        if (!send.sent)
          return false;
      return true;
    }));
  });
}

/// Transports whose messages are the sender's own memory. The others copy, and report that.
class ViewingTransportTest : public TransportConformanceTest {};

TEST_P(ViewingTransportTest, SentFollowsTheRelease) {
  for (bool window : {true, false})
    runRanks(2, [window](Rank &rank) {
      constexpr size_t kBytes = 10'000;
      Channel *channel = rank.open(1, 0, 1 - rank.rank, kBytes, 2);
      std::span<std::byte> memory = rank.memory(kBytes, window);
      if (rank.rank == 0) {
        fillPattern(memory.data(), kBytes, 1);
        SendOp send{.data = memory.data(), .bytes = kBytes};
        ASSERT_TRUE(rank.transport->send(*channel, send).ok());
        rank.meet(); // Posted.
        rank.meet(); // The receiver holds the view.
        for (int i = 0; i < 100; ++i)
          ASSERT_TRUE(rank.transport->poll().ok());
        EXPECT_FALSE(send.sent);
        rank.meet();
        ASSERT_TRUE(rank.drive([&] { return send.sent; }));
      } else {
        rank.meet();
        RecvOp recv{.landing = memory.data(), .bytes = kBytes};
        ASSERT_TRUE(rank.transport->recv(*channel, recv).ok());
        ASSERT_TRUE(rank.drive([&] { return recv.arrived; }));
        rank.meet();
        rank.meet(); // The sender has looked.
        EXPECT_TRUE(hasPattern(recv.view, kBytes, 1));
        ASSERT_TRUE(rank.transport->release(*channel, recv).ok());
      }
    });
}

// Views live until their own release, in whatever order that comes; a released message lets its
// sender go on although an older one is still held.
TEST_P(TransportConformanceTest, ViewsAreReleasedOutOfOrder) {
  runRanks(2, [](Rank &rank) {
    constexpr size_t kBytes = 9'000;
    constexpr uint32_t kDepth = 4;
    Channel *channel = rank.open(1, 0, 1 - rank.rank, kBytes, kDepth);
    if (rank.rank == 0) {
      std::vector<SendOp> sends(kDepth + 3);
      std::vector<std::span<std::byte>> sources;
      for (uint32_t i = 0; i < sends.size(); ++i) {
        sources.push_back(rank.memory(kBytes, true));
        fillPattern(sources[i].data(), kBytes, i);
        sends[i] = {.data = sources[i].data(), .bytes = kBytes};
      }
      for (uint32_t i = 0; i < kDepth; ++i)
        ASSERT_TRUE(rank.transport->send(*channel, sends[i]).ok());
      for (uint32_t i = 0; i < 3; ++i) { // Messages 1 to 3 are released while 0 is held.
        ASSERT_TRUE(rank.drive([&] { return sends[1 + i].sent; }));
        ASSERT_TRUE(rank.transport->send(*channel, sends[kDepth + i]).ok());
      }
      ASSERT_TRUE(rank.drive([&] {
        for (SendOp &send : sends)
          if (!send.sent)
            return false;
        return true;
      }));
    } else {
      std::vector<RecvOp> recvs(kDepth + 3);
      for (RecvOp &recv : recvs)
        recv = {.landing = rank.memory(kBytes, false).data(), .bytes = kBytes};
      for (uint32_t i = 0; i < kDepth; ++i)
        ASSERT_TRUE(rank.transport->recv(*channel, recvs[i]).ok());
      ASSERT_TRUE(rank.drive([&] { return recvs[3].arrived; }));
      for (uint32_t i = 0; i < 3; ++i) {
        EXPECT_TRUE(recvs[3 - i].arrived);
        EXPECT_TRUE(hasPattern(recvs[3 - i].view, kBytes, 3 - i));
        ASSERT_TRUE(rank.transport->release(*channel, recvs[3 - i]).ok());
        ASSERT_TRUE(rank.transport->recv(*channel, recvs[kDepth + i]).ok());
      }
      ASSERT_TRUE(rank.drive([&] { return recvs[kDepth + 2].arrived; }));
      for (uint32_t i : {0u, kDepth, kDepth + 2, kDepth + 1}) {
        EXPECT_TRUE(hasPattern(recvs[i].view, kBytes, i));
        ASSERT_TRUE(rank.transport->release(*channel, recvs[i]).ok());
      }
    }
  });
}

TEST_P(TransportConformanceTest, SendBeforeThePeerHasOpened) {
  runRanks(2, [](Rank &rank) {
    constexpr size_t kBytes = 20'000;
    std::span<std::byte> memory = rank.memory(kBytes, rank.rank == 0);
    if (rank.rank == 0) {
      Channel *channel = rank.open(5, 2, 1, kBytes, 1);
      fillPattern(memory.data(), kBytes, 1);
      SendOp send{.data = memory.data(), .bytes = kBytes};
      ASSERT_TRUE(rank.transport->send(*channel, send).ok());
      ASSERT_TRUE(rank.transport->poll().ok());
      rank.meet();
      ASSERT_TRUE(rank.drive([&] { return send.sent; }));
    } else {
      rank.meet();
      Channel *channel = rank.open(5, 2, 0, kBytes, 1);
      RecvOp recv{.landing = memory.data(), .bytes = kBytes};
      ASSERT_TRUE(rank.transport->recv(*channel, recv).ok());
      ASSERT_TRUE(rank.drive([&] { return recv.arrived; }));
      EXPECT_TRUE(hasPattern(recv.view, kBytes, 1));
      ASSERT_TRUE(rank.transport->release(*channel, recv).ok());
    }
  });
}

TEST_P(TransportConformanceTest, ReceiveBeforeThePeerHasOpened) {
  runRanks(2, [](Rank &rank) {
    constexpr size_t kBytes = 20'000;
    std::span<std::byte> memory = rank.memory(kBytes, rank.rank == 0);
    if (rank.rank == 0) {
      rank.meet();
      Channel *channel = rank.open(5, 2, 1, kBytes, 1);
      fillPattern(memory.data(), kBytes, 1);
      SendOp send{.data = memory.data(), .bytes = kBytes};
      ASSERT_TRUE(rank.transport->send(*channel, send).ok());
      ASSERT_TRUE(rank.drive([&] { return send.sent; }));
    } else {
      Channel *channel = rank.open(5, 2, 0, kBytes, 1);
      RecvOp recv{.landing = memory.data(), .bytes = kBytes};
      ASSERT_TRUE(rank.transport->recv(*channel, recv).ok());
      ASSERT_TRUE(rank.transport->poll().ok());
      rank.meet();
      ASSERT_TRUE(rank.drive([&] { return recv.arrived; }));
      EXPECT_TRUE(hasPattern(recv.view, kBytes, 1));
      ASSERT_TRUE(rank.transport->release(*channel, recv).ok());
    }
  });
}

TEST_P(TransportConformanceTest, SizeMismatchNamesBothSizes) {
  std::atomic<bool> seen = false;
  runRanks(2, [&](Rank &rank) {
    Channel *channel = rank.open(7, 3, 1 - rank.rank, 5000, 1);
    std::span<std::byte> memory = rank.memory(5000, rank.rank == 0);
    SendOp send{.data = memory.data(), .bytes = 1234};
    RecvOp recv{.landing = memory.data(), .bytes = 4321};
    if (rank.rank == 0) {
      ASSERT_TRUE(rank.transport->send(*channel, send).ok());
      while (!seen.load()) { // A sender that learns of it too is welcome to fail.
        (void)rank.transport->poll();
        std::this_thread::yield();
      }
      rank.meet();
      return;
    }
    ASSERT_TRUE(rank.transport->recv(*channel, recv).ok());
    Status error = rank.driveToError();
    seen = true;
    EXPECT_EQ(error.code(), absl::StatusCode::kAborted) << error;
    EXPECT_THAT(std::string(error.message()),
                AllOf(HasSubstr("1234 bytes"), HasSubstr("4321"), HasSubstr("channel 3"),
                      HasSubstr("binding 7"), HasSubstr("rank 0")));
    EXPECT_FALSE(recv.arrived);
    EXPECT_EQ(rank.transport->poll().status(), error) << "the first error stays";
    EXPECT_EQ(rank.transport->recv(*channel, recv), error);
    rank.meet();
  });
}

TEST_P(TransportConformanceTest, AbortFailsEverythingPendingAtOnce) {
  runRanks(3, [](Rank &rank) {
    constexpr size_t kBytes = 200'000;
    std::vector<Channel *> channels;
    for (int p = 0; p < 3; ++p)
      if (p != rank.rank)
        channels.push_back(rank.open(1, 0, p, kBytes, 2));
    std::vector<SendOp> sends(2);
    std::vector<RecvOp> recvs(2);
    std::span<std::byte> source = rank.memory(kBytes, true),
                         landing = rank.memory(2 * kBytes, false);
    if (rank.rank == 0) { // The others never answer.
      for (size_t i = 0; i < 2; ++i) {
        sends[i] = {.data = source.data(), .bytes = kBytes};
        recvs[i] = {.landing = landing.data() + i * kBytes, .bytes = kBytes};
        ASSERT_TRUE(rank.transport->send(*channels[i], sends[i]).ok());
        ASSERT_TRUE(rank.transport->recv(*channels[i], recvs[i]).ok());
      }
      ASSERT_TRUE(rank.transport->poll().ok());
      Status reason = absl::UnavailableError("rank 2 is lost");
      rank.transport->abort(reason);
      std::memset(landing.data(), 0x11, landing.size()); // Ours again.
      EXPECT_EQ(rank.transport->poll().status(), reason);
      EXPECT_EQ(rank.transport->send(*channels[0], sends[0]), reason);
      EXPECT_EQ(rank.transport->recv(*channels[0], recvs[0]), reason);
      EXPECT_EQ(rank.transport->openChannel(2, 0, 1, 1, 1, 1).status(), reason);
      rank.transport->abort(absl::InternalError("later"));
      EXPECT_EQ(rank.transport->poll().status(), reason) << "the first error stays";
      for (size_t i = 0; i < 2; ++i) {
        EXPECT_FALSE(sends[i].sent);
        EXPECT_FALSE(recvs[i].arrived);
      }
      rank.meet();
      for (std::byte b : landing)
        ASSERT_EQ(b, std::byte{0x11});
    } else {
      rank.meet();
    }
  });
}

TEST_P(TransportConformanceTest, MisuseIsAnErrorAndHarmsNothing) {
  runRanks(2, [](Rank &rank) {
    int peer = 1 - rank.rank;
    EXPECT_EQ(rank.transport->openChannel(1, 0, rank.rank, 8, 1, 1).status().code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(rank.transport->openChannel(1, 0, 2, 8, 1, 1).status().code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(rank.transport->openChannel(1, 0, -1, 8, 1, 1).status().code(),
              absl::StatusCode::kInvalidArgument);
    Channel *channel = rank.open(1, 0, peer, 100, 2);
    std::span<std::byte> source = rank.memory(200, true), landing = rank.memory(200, false);
    SendOp empty{.data = source.data(), .bytes = 0}, large{.data = source.data(), .bytes = 101};
    EXPECT_EQ(rank.transport->send(*channel, empty).code(), absl::StatusCode::kInvalidArgument);
    Status tooLarge = rank.transport->send(*channel, large);
    EXPECT_EQ(tooLarge.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(tooLarge.message()), AllOf(HasSubstr("101"), HasSubstr("100")));
    RecvOp emptyRecv{.landing = landing.data(), .bytes = 0},
        idle{.landing = landing.data(), .bytes = 8};
    EXPECT_EQ(rank.transport->recv(*channel, emptyRecv).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(rank.transport->release(*channel, idle).code(),
              absl::StatusCode::kFailedPrecondition);
    if (rank.transport->needsLanding(peer)) {
      RecvOp nowhere{.landing = nullptr, .bytes = 8};
      EXPECT_EQ(rank.transport->recv(*channel, nowhere).code(), absl::StatusCode::kInvalidArgument);
    }
    rank.meet();
    std::vector<SendOp> sends(3, SendOp{.data = source.data(), .bytes = 10});
    ASSERT_TRUE(rank.transport->send(*channel, sends[0]).ok());
    ASSERT_TRUE(rank.transport->send(*channel, sends[1]).ok());
    EXPECT_EQ(rank.transport->send(*channel, sends[2]).code(),
              absl::StatusCode::kResourceExhausted);
    rank.meet();
    std::vector<RecvOp> recvs(3, RecvOp{.landing = landing.data(), .bytes = 10});
    recvs[1].landing += 64;
    ASSERT_TRUE(rank.transport->recv(*channel, recvs[0]).ok());
    ASSERT_TRUE(rank.transport->recv(*channel, recvs[1]).ok());
    EXPECT_EQ(rank.transport->recv(*channel, recvs[2]).code(),
              absl::StatusCode::kResourceExhausted);
    ASSERT_TRUE(rank.drive([&] { return recvs[0].arrived && recvs[1].arrived; })) << "still usable";
    ASSERT_TRUE(rank.transport->release(*channel, recvs[0]).ok());
    ASSERT_TRUE(rank.transport->release(*channel, recvs[1]).ok());
    ASSERT_TRUE(rank.drive([&] { return sends[0].sent && sends[1].sent; }));
  });
}

TEST_P(TransportConformanceTest, KeysAreUsedAgainAfterClose) {
  runRanks(2, [](Rank &rank) {
    int peer = 1 - rank.rank;
    for (uint32_t round = 0; round < 40; ++round) {
      Channel *first = rank.open(11, 0, peer, 4096, 2),
              *second = rank.open(11, 1, peer, 100'000, 1);
      Channel *other = rank.open(12, 0, peer, 512, 1);
      Exchange(rank, first, 4096, 2, true)
          .run({4096, 1, 77}, seedOf(rank.rank, peer, round), seedOf(peer, rank.rank, round));
      Exchange(rank, other, 512, 1, true)
          .run({512}, seedOf(rank.rank, peer, round + 50), seedOf(peer, rank.rank, round + 50));
      // Ranks run ahead of each other: no barrier between close and the next open.
      rank.transport->closeBinding(11);
      Exchange(rank, other, 512, 1, true)
          .run({3}, seedOf(rank.rank, peer, round + 99), seedOf(peer, rank.rank, round + 99));
      rank.transport->closeBinding(12);
      (void)second;
    }
    rank.transport->closeBinding(999); // Nothing of that name: nothing happens.
  });
}

TEST_P(TransportConformanceTest, MemoryIsZeroedAlignedAndOutlivesTheTransport) {
  runRanks(2, [](Rank &rank) {
    std::vector<Memory> kept;
    for (size_t bytes : {size_t{1}, size_t{64}, size_t{4097}, size_t{5} << 20}) {
      StatusOr<Memory> memory = rank.transport->allocate(bytes);
      ASSERT_TRUE(memory.ok()) << memory.status();
      ASSERT_EQ(memory->bytes.size(), bytes);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->bytes.data()) % 64, 0u);
      for (std::byte b : memory->bytes)
        ASSERT_EQ(b, std::byte{0});
      std::memset(memory->bytes.data(), 0x5a, bytes);
      kept.push_back(*std::move(memory));
    }
    kept.erase(kept.begin() + 2); // Freed before and after the transport's end.
    StatusOr<Memory> again = rank.transport->allocate(4097);
    ASSERT_TRUE(again.ok());
    for (std::byte b : again->bytes)
      ASSERT_EQ(b, std::byte{0});
    rank.meet();
    rank.transport.reset();
    rank.meet();
    for (Memory &memory : kept)
      for (std::byte &b : memory.bytes) {
        ASSERT_EQ(b, std::byte{0x5a});
        b = std::byte{1};
      }
  });
}

TEST_P(TransportConformanceTest, MemoryOfAbsurdSizeIsAClearError) {
  runRanks(1, [](Rank &rank) {
    for (size_t bytes : {size_t{1} << 62, SIZE_MAX}) {
      StatusOr<Memory> memory = rank.transport->allocate(bytes);
      ASSERT_FALSE(memory.ok());
      EXPECT_EQ(memory.status().code(), absl::StatusCode::kResourceExhausted);
      EXPECT_THAT(std::string(memory.status().message()), HasSubstr(absl::StrCat(bytes)));
    }
  });
}

TEST_P(TransportConformanceTest, MemoryAllocatedAfterChannelsAreOpenIsSentFrom) {
  runRanks(3, [](Rank &rank) {
    std::vector<Channel *> channels;
    for (int p = 0; p < 3; ++p)
      channels.push_back(p == rank.rank ? nullptr : rank.open(1, 0, p, 1 << 20, 1));
    for (uint32_t round = 0; round < 8; ++round)
      for (int p = 0; p < 3; ++p)
        if (p != rank.rank)
          Exchange(rank, channels[static_cast<size_t>(p)], size_t{1000} << round, 1, true)
              .run({size_t{1000} << round}, seedOf(rank.rank, p, round),
                   seedOf(p, rank.rank, round));
  });
}

#if BAGUA_COUNTS_ALLOCATIONS
TEST_P(TransportConformanceTest, NoAllocationInSteadyState) {
  runRanks(2, [](Rank &rank) {
    constexpr size_t kBytes = 10'000;
    int peer = 1 - rank.rank;
    Channel *channel = rank.open(1, 0, peer, kBytes, 2);
    std::span<std::byte> source = rank.memory(kBytes, true),
                         privateSource = rank.memory(kBytes, false);
    std::span<std::byte> landing = rank.memory(2 * kBytes, false);
    uint64_t before = 0;
    bool ok = true;
    for (int round = 0; round < 300 && ok; ++round) {
      if (round == 100)
        before = allocationCount;
      SendOp sends[2] = {{.data = source.data(), .bytes = kBytes},
                         {.data = privateSource.data(), .bytes = 100}};
      RecvOp recvs[2] = {{.landing = landing.data(), .bytes = kBytes},
                         {.landing = landing.data() + kBytes, .bytes = 100}};
      for (int i = 0; i < 2; ++i)
        ok = ok && rank.transport->send(*channel, sends[i]).ok() &&
             rank.transport->recv(*channel, recvs[i]).ok();
      int released = 0;
      while (ok && !(sends[0].sent && sends[1].sent && released == 2)) {
        uint32_t seen = rank.doorbell->value();
        StatusOr<bool> changed = rank.transport->poll();
        ok = changed.ok();
        for (RecvOp &recv : recvs)
          if (ok && recv.arrived) {
            ok = rank.transport->release(*channel, recv).ok();
            recv.arrived = false;
            ++released;
          }
        if (ok && !*changed)
          rank.doorbell->wait(seen, 1s);
      }
    }
    EXPECT_TRUE(ok);
    EXPECT_EQ(allocationCount - before, 0u);
  });
}
#endif

TEST_P(TransportConformanceTest, ManyChannelsOpenTogether) {
  runRanks(3, [](Rank &rank) {
    constexpr uint32_t kChannels = 120;
    std::vector<std::unique_ptr<Exchange>> exchanges;
    std::vector<std::pair<int, uint32_t>> keys;
    for (uint32_t c = 0; c < kChannels; ++c)
      for (int p = 0; p < 3; ++p)
        if (p != rank.rank) {
          // Each rank opens in its own order.
          uint32_t channel = rank.rank == 1 ? kChannels - 1 - c : c;
          exchanges.push_back(std::make_unique<Exchange>(
              rank, rank.open(channel / 4, channel, p, 64, 2), 64, 2, c % 2 == 0));
          keys.emplace_back(p, channel);
        }
    // Pairs work through their channels in one order.
    for (int a = 0; a < 3; ++a)
      for (int b = a + 1; b < 3; ++b)
        for (uint32_t c = 0; c < kChannels; ++c)
          for (size_t i = 0; i < keys.size(); ++i)
            if ((rank.rank == a || rank.rank == b) &&
                keys[i] == std::pair(rank.rank == a ? b : a, c))
              exchanges[i]->run({64, 1, 17}, seedOf(rank.rank, keys[i].first, c),
                                seedOf(keys[i].first, rank.rank, c));
  });
}

// A rank that has done its part leaves while others go on.
TEST_P(TransportConformanceTest, PeerLeavesInOrder) {
  std::atomic<bool> left = false;
  runRanks(3, [&](Rank &rank) {
    std::vector<Channel *> channels;
    for (int p = 0; p < 3; ++p)
      channels.push_back(p == rank.rank ? nullptr : rank.open(1, 0, p, 100'000, 1));
    for (int p = 0; p < 3; ++p)
      if (p != rank.rank)
        Exchange(rank, channels[static_cast<size_t>(p)], 100'000, 1, true)
            .run({100'000}, seedOf(rank.rank, p, 0), seedOf(p, rank.rank, 0));
    if (rank.rank == 2) {
      rank.transport.reset();
      left = true;
    }
    while (!left) { // As a progress thread does.
      ASSERT_TRUE(rank.transport->poll().ok());
      std::this_thread::yield();
    }
    rank.meet();
    if (rank.rank != 2)
      Exchange(rank, channels[static_cast<size_t>(1 - rank.rank)], 100'000, 1, true)
          .run({100'000, 5}, seedOf(rank.rank, 1 - rank.rank, 1),
               seedOf(1 - rank.rank, rank.rank, 1));
  });
}

TEST_P(TransportConformanceTest, ArrivalAndReleaseWakeASleeper) {
  runRanks(2, [](Rank &rank) {
    Channel *channel = rank.open(1, 0, 1 - rank.rank, 64, 1);
    std::span<std::byte> memory = rank.memory(64, true);
    // Long sleeps only: without rings this test runs into its deadline.
    auto sleepUntil = [&](const bool &flag) {
      auto deadline = std::chrono::steady_clock::now() + kDeadline;
      while (!flag && std::chrono::steady_clock::now() < deadline) {
        uint32_t seen = rank.doorbell->value();
        StatusOr<bool> changed = rank.transport->poll();
        ASSERT_TRUE(changed.ok()) << changed.status();
        if (!*changed && !flag)
          rank.doorbell->wait(seen, kDeadline * 2);
      }
      ASSERT_TRUE(flag);
    };
    for (int round = 0; round < 50; ++round) {
      SendOp send{.data = memory.data(), .bytes = 64};
      RecvOp recv{.landing = memory.data(), .bytes = 64};
      if (rank.rank == round % 2) {
        ASSERT_TRUE(rank.transport->send(*channel, send).ok());
        sleepUntil(send.sent);
      } else {
        ASSERT_TRUE(rank.transport->recv(*channel, recv).ok());
        sleepUntil(recv.arrived);
        ASSERT_TRUE(rank.transport->release(*channel, recv).ok());
      }
    }
  });
}

std::string nameOf(const ::testing::TestParamInfo<TransportKind> &info) { return info.param.name; }

std::vector<TransportKind> viewingKinds() {
  std::vector<TransportKind> kinds = transportKinds();
  std::erase_if(kinds, [](const TransportKind &kind) { return !kind.sentMeansReleased; });
  return kinds;
}

INSTANTIATE_TEST_SUITE_P(All, TransportConformanceTest, ::testing::ValuesIn(transportKinds()),
                         nameOf);
INSTANTIATE_TEST_SUITE_P(All, ViewingTransportTest, ::testing::ValuesIn(viewingKinds()), nameOf);

} // namespace
} // namespace bagua::rt::test
