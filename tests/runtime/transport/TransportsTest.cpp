// Transports by name, and what they refuse.
#include "bagua/Transports.h"

#include "HostsGroup.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <thread>

namespace bagua::rt::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// The status of makeTransport(name) on each rank, ranks placed on `hosts`.
std::vector<std::string> resultsOf(const std::string &name, const std::vector<int> &hosts,
                                   bool shared = true) {
  std::shared_ptr<Store> store = makeLocalStore();
  std::vector<std::string> results(hosts.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < hosts.size(); ++r)
    threads.emplace_back([&, r] {
      Group::Options options;
      options.rank = static_cast<int>(r);
      options.world = static_cast<int>(hosts.size());
      options.localStore = store;
      StatusOr<std::unique_ptr<Group>> group = Group::create(options);
      ASSERT_TRUE(group.ok()) << group.status();
      HostsGroup placed(*std::move(group), hosts);
      std::shared_ptr<Doorbell> doorbell = makeDoorbell();
      if (shared)
        doorbell = *makeSharedDoorbell();
      StatusOr<std::unique_ptr<Transport>> transport = makeTransport(name, placed, doorbell);
      results[r] = transport.ok() ? (*transport)->name() : transport.status().ToString();
      placed.leave();
    });
  for (std::thread &thread : threads)
    thread.join();
  return results;
}

TEST(TransportsTest, AutoIsWindowOnOneHost) {
  for (const std::string &result : resultsOf("auto", {0, 0, 0}))
    EXPECT_EQ(result, "window");
  for (const std::string &result : resultsOf("", {0}))
    EXPECT_EQ(result, "window");
}

TEST(TransportsTest, WindowAcrossHostsIsRefusedByName) {
  for (const std::string &result : resultsOf("window", {0, 0, 1}))
    EXPECT_THAT(result, AllOf(HasSubstr("one host"), HasSubstr("rank 2"), HasSubstr("host1")));
}

TEST(TransportsTest, WindowNeedsASharedDoorbell) {
  for (const std::string &result : resultsOf("window", {0}, false))
    EXPECT_THAT(result, HasSubstr("makeSharedDoorbell"));
}

TEST(TransportsTest, UnknownNamesAreRefusedWithTheKnownOnes) {
  for (const std::string &result : resultsOf("gloo", {0}))
    EXPECT_THAT(result,
                AllOf(HasSubstr("gloo"), HasSubstr("auto"), HasSubstr("window"), HasSubstr("ucx")));
}

} // namespace
} // namespace bagua::rt::test
