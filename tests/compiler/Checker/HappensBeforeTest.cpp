// The graph under the checker: cycles and reachability.
#include "HappensBefore.h"

#include <gtest/gtest.h>

namespace bagua::compiler {
namespace {

TEST(HappensBeforeTest, ReachesAlongPathsOnly) {
  HappensBefore order(70); // More than one word.
  for (uint32_t i = 0; i + 1 < 69; ++i)
    order.add(i, i + 1, Order::Queue);
  EXPECT_TRUE(order.findCycle().empty());
  order.computeReach();
  EXPECT_TRUE(order.before(0, 68));
  EXPECT_TRUE(order.before(64, 65));
  EXPECT_FALSE(order.before(68, 0));
  EXPECT_FALSE(order.before(0, 69));
  EXPECT_FALSE(order.before(5, 5));
}

TEST(HappensBeforeTest, NamesTheCycleAndNothingElse) {
  HappensBefore order(6);
  order.add(0, 1, Order::Queue); // Leads into the cycle.
  order.add(1, 2, Order::Queue);
  order.add(2, 3, Order::Event);
  order.add(3, 1, Order::Release);
  order.add(3, 4, Order::Queue); // Leads out of it.
  order.add(4, 5, Order::Queue);
  auto cycle = order.findCycle();
  ASSERT_EQ(cycle.size(), 3u);
  for (size_t i = 0; i < 3; ++i)
    EXPECT_EQ(cycle[i].after, cycle[(i + 1) % 3].before);
}

TEST(HappensBeforeTest, AStepThatWaitsForItselfIsACycle) {
  HappensBefore order(2);
  order.add(1, 1, Order::Event);
  ASSERT_EQ(order.findCycle().size(), 1u);
}

} // namespace
} // namespace bagua::compiler
