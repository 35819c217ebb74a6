// What loopback promises beyond the common contract: seeds repeat, released slots are poisoned.
#include "bagua/Loopback.h"

#include "gtest/gtest.h"

#include <string>
#include <vector>

namespace bagua::rt {
namespace {

/// All ranks on one thread: the order of events for a seed.
std::string eventsOf(uint64_t seed, LoopbackWorld::Mode mode) {
  constexpr int kWorld = 3;
  auto world = LoopbackWorld::create(kWorld, {.mode = mode, .seed = seed, .delayPollsMax = 6});
  struct Link {
    int source, target;
    Channel *out, *in;
    SendOp send;
    RecvOp recv;
    std::vector<std::byte> source_, landing;
    bool sentSeen = false, arrivedSeen = false;
  };
  std::vector<std::unique_ptr<Transport>> ranks;
  for (int r = 0; r < kWorld; ++r)
    ranks.push_back(world->transport(r));
  Channel *channels[kWorld][kWorld] = {};
  for (int a = 0; a < kWorld; ++a)
    for (int b = 0; b < kWorld; ++b)
      if (a != b)
        channels[a][b] = *ranks[a]->openChannel(1, 0, b, 64, 1, 1);
  std::vector<std::unique_ptr<Link>> links;
  for (int a = 0; a < kWorld; ++a)
    for (int b = 0; b < kWorld; ++b)
      if (a != b) {
        auto link = std::make_unique<Link>();
        link->source = a;
        link->target = b;
        link->source_.resize(64);
        link->landing.resize(64);
        link->send = {.data = link->source_.data(), .bytes = 64};
        link->recv = {.landing = link->landing.data(), .bytes = 64};
        EXPECT_TRUE(ranks[a]->send(*channels[a][b], link->send).ok());
        EXPECT_TRUE(ranks[b]->recv(*channels[b][a], link->recv).ok());
        links.push_back(std::move(link));
      }
  std::string events;
  for (int round = 0; round < 200; ++round)
    for (int r = 0; r < kWorld; ++r) {
      EXPECT_TRUE(ranks[r]->poll().ok());
      for (auto &link : links) {
        std::string name = std::to_string(link->source) + std::to_string(link->target);
        if (link->target == r && link->recv.arrived && !link->arrivedSeen) {
          link->arrivedSeen = true;
          events += "a" + name + "@" + std::to_string(round) + " ";
          EXPECT_TRUE(ranks[r]->release(*channels[r][link->source], link->recv).ok());
        }
        if (link->source == r && link->send.sent && !link->sentSeen) {
          link->sentSeen = true;
          events += "s" + name + "@" + std::to_string(round) + " ";
        }
      }
    }
  for (auto &link : links)
    EXPECT_TRUE(link->sentSeen && link->arrivedSeen) << events;
  return events;
}

TEST(LoopbackTest, EqualSeedsGiveEqualRunsAndOthersDiffer) {
  for (auto mode : {LoopbackWorld::Mode::View, LoopbackWorld::Mode::Copy}) {
    EXPECT_EQ(eventsOf(1, mode), eventsOf(1, mode));
    EXPECT_NE(eventsOf(1, mode), eventsOf(2, mode));
  }
}

class LoopbackPair : public ::testing::Test {
protected:
  void open(const LoopbackWorld::Options &options) {
    world_ = LoopbackWorld::create(2, options);
    for (int r = 0; r < 2; ++r) {
      ranks_[r] = world_->transport(r);
      channels_[r] = *ranks_[r]->openChannel(1, 0, 1 - r, 64, 2, 2);
    }
    send_ = {.data = source_, .bytes = sizeof source_};
    recv_ = {.landing = landing_, .bytes = sizeof landing_};
    ASSERT_TRUE(ranks_[0]->send(*channels_[0], send_).ok());
    ASSERT_TRUE(ranks_[1]->recv(*channels_[1], recv_).ok());
  }
  std::shared_ptr<LoopbackWorld> world_;
  std::unique_ptr<Transport> ranks_[2];
  Channel *channels_[2];
  std::byte source_[64] = {std::byte{7}}, landing_[64] = {};
  SendOp send_;
  RecvOp recv_;
};

TEST_F(LoopbackPair, ViewIsTheSendersMemory) {
  open({.mode = LoopbackWorld::Mode::View});
  EXPECT_FALSE(ranks_[1]->needsLanding(0));
  ASSERT_TRUE(ranks_[1]->poll().ok());
  ASSERT_TRUE(recv_.arrived);
  EXPECT_EQ(recv_.view, source_);
  ASSERT_TRUE(ranks_[0]->poll().ok());
  EXPECT_FALSE(send_.sent);
  ASSERT_TRUE(ranks_[1]->release(*channels_[1], recv_).ok());
  ASSERT_TRUE(*ranks_[0]->poll());
  EXPECT_TRUE(send_.sent);
}

TEST_F(LoopbackPair, CopyIsSentEarlyAndPoisonedOnRelease) {
  open({.mode = LoopbackWorld::Mode::Copy});
  EXPECT_TRUE(ranks_[1]->needsLanding(0));
  ASSERT_TRUE(ranks_[1]->poll().ok());
  ASSERT_TRUE(recv_.arrived);
  EXPECT_EQ(recv_.view, landing_);
  EXPECT_EQ(landing_[0], std::byte{7});
  ASSERT_TRUE(*ranks_[0]->poll());
  EXPECT_TRUE(send_.sent) << "before the release";
  ASSERT_TRUE(ranks_[1]->release(*channels_[1], recv_).ok());
  for (std::byte b : landing_)
    EXPECT_EQ(b, std::byte{0xfb});
}

TEST_F(LoopbackPair, AnAbortedSenderIsNotReadFrom) {
  open({.mode = LoopbackWorld::Mode::Copy});
  ranks_[0]->abort(absl::UnavailableError("gone"));
  source_[0] = std::byte{9};
  ASSERT_TRUE(ranks_[1]->poll().ok());
  EXPECT_FALSE(recv_.arrived);
}

} // namespace
} // namespace bagua::rt
