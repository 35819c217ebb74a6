#include "Host.h"

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

namespace bagua::rt {
namespace {

TEST(HostTest, AProcessHasEndedBeforeItsParentKnows) {
  int64_t self = ::getpid();
  EXPECT_FALSE(processHasEnded(self, processStartTime(self)));
  EXPECT_TRUE(processHasEnded(self, processStartTime(self) + 1)); // Another one's id, used again.
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    char byte;
    ::close(pipe[1]);
    (void)!::read(pipe[0], &byte, 1);
    ::_exit(0);
  }
  uint64_t start = processStartTime(child);
  EXPECT_NE(start, 0u);
  EXPECT_FALSE(processHasEnded(child, start));
  ::close(pipe[0]);
  ::close(pipe[1]);
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(processHasEnded(child, start)); // Not waited for yet.
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(processHasEnded(child, start));
}

} // namespace
} // namespace bagua::rt
