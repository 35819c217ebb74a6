// bagua-run: exit codes, signals, output, and that nothing stays behind whoever is killed.
#include "RankGroup.h"
#include "bagua/Group.h"
#include "bagua/compiler/InputGenerator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <poll.h>
#include <span>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace bagua::rt {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Clock = std::chrono::steady_clock;

/// One run of bagua-run. Every process below it carries a mark in its environment, by which those
/// that stay behind are found.
class Job {
public:
  explicit Job(std::vector<std::string> arguments, const std::string &program = "",
               const std::string &tool = BAGUA_RUN_PATH) {
    static int runs = 0;
    mark_ = "BAGUA_TEST_MARK=" + std::to_string(::getpid()) + "." + std::to_string(++runs);
    log_ = ::memfd_create("log", MFD_CLOEXEC);
    arguments.insert(arguments.begin(), tool);
    std::vector<char *> words;
    for (std::string &argument : arguments)
      words.push_back(argument.data());
    words.push_back(nullptr);
    std::string programVariable = "BAGUA_TEST_RANK_PROGRAM=" + program;
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(log_, STDOUT_FILENO);
      ::fcntl(STDOUT_FILENO, F_SETFL, O_APPEND);
      ::dup2(STDOUT_FILENO, STDERR_FILENO);
      ::putenv(mark_.data());
      if (!program.empty())
        ::putenv(programVariable.data());
      ::execv(words[0], words.data());
      ::_exit(127);
    }
    started_ = Clock::now();
  }
  ~Job() {
    for (pid_t pid : left())
      ::kill(pid, SIGKILL);
    if (pid_ > 0)
      ::waitpid(pid_, nullptr, 0);
    ::close(log_);
  }
  Job(const Job &) = delete;

  pid_t pid() const { return pid_; }

  int wait(std::chrono::milliseconds timeout = 15s) {
    Clock::time_point deadline = Clock::now() + timeout;
    int status = 0;
    while (::waitpid(pid_, &status, WNOHANG) == 0) {
      if (Clock::now() > deadline) {
        ADD_FAILURE() << "bagua-run did not end\n" << log();
        return -1;
      }
      std::this_thread::sleep_for(2ms);
    }
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  std::string log() const {
    std::string text(1 << 22, '\0');
    ssize_t got = ::pread(log_, text.data(), text.size(), 0);
    text.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
    return text;
  }

  void waitFor(const std::string &text, int times = 1) {
    Clock::time_point deadline = Clock::now() + 15s;
    for (;;) {
      std::string now = log();
      int found = 0;
      for (size_t at = 0; (at = now.find(text, at)) != std::string::npos; at += text.size())
        ++found;
      if (found >= times)
        return;
      ASSERT_LT(Clock::now(), deadline) << "no '" << text << "' in\n" << now;
      std::this_thread::sleep_for(2ms);
    }
  }

  /// Processes of this run that still live, zombies not counted.
  std::vector<pid_t> left() const {
    std::vector<pid_t> found;
    std::error_code error;
    for (const auto &entry : std::filesystem::directory_iterator("/proc", error)) {
      std::ifstream file(entry.path() / "environ");
      std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
      if (text.find(mark_ + '\0') != std::string::npos)
        found.push_back(std::atoi(entry.path().filename().c_str()));
    }
    return found;
  }

  /// Within 5 s of `since` nothing may be left.
  void expectGone(Clock::time_point since) const {
    while (!left().empty() && Clock::now() < since + 5s)
      std::this_thread::sleep_for(10ms);
    EXPECT_THAT(left(), testing::IsEmpty());
  }

  pid_t childOf(pid_t parent) const {
    for (pid_t pid : left()) {
      std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
      std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
      size_t end = text.rfind(')');
      if (end != std::string::npos && std::atoi(text.c_str() + end + 4) == parent)
        return pid;
    }
    return -1;
  }

private:
  std::string mark_;
  pid_t pid_ = -1;
  int log_ = -1;
  Clock::time_point started_;
};

std::string self() { return std::filesystem::read_symlink("/proc/self/exe"); }

/// Waits for its peers without end; a third argument makes it fail.
BAGUA_RANK_PROGRAM(exchange_forever) {
  auto group = Group::create({});
  if (!group.ok())
    return test::exitCodeFor(group.status());
  std::cout << "joined " << (*group)->rank() << " of " << (*group)->world() << ", "
            << (*group)->source() << std::endl;
  Status status;
  for (int round = 0; status.ok(); ++round) {
    const char *failing = std::getenv("FAILING_RANK");
    if (round == 20 && failing && std::atoi(failing) == context.rank())
      ::_exit(5);
    status = (*group)->allGather("round " + std::to_string(round), "x").status();
  }
  std::cout << "verdict: " << status.message() << std::endl;
  return test::exitCodeFor(status);
}

BAGUA_RANK_PROGRAM(exchange_once) {
  auto group = Group::create({});
  if (!group.ok())
    return test::exitCodeFor(group.status());
  Status status = (*group)->allGather("once", "x").status();
  (*group)->leave();
  return test::exitCodeFor(status);
}

TEST(LauncherTest, RanksJoinAndEnd) {
  Job run({"-n", "3", "--", self()}, "exchange_once");
  EXPECT_EQ(run.wait(), 0) << run.log();
  EXPECT_EQ(run.log(), "");
  run.expectGone(Clock::now());
}

TEST(LauncherTest, TheOthersRaiseByThemselvesAndTheFirstCodeCounts) {
  ::setenv("FAILING_RANK", "2", 1);
  Job run({"-n", "4", "--prefix", "--grace-ms", "10000", "--", self()}, "exchange_forever");
  ::unsetenv("FAILING_RANK");
  EXPECT_EQ(run.wait(), 5) << run.log();
  for (const char *rank : {"[0] ", "[1] ", "[3] "})
    EXPECT_THAT(run.log(), HasSubstr(rank + std::string("verdict: rank 2 (host")));
  EXPECT_THAT(run.log(), AllOf(HasSubstr("bagua-run: rank 2 (pid "),
                               HasSubstr("exited with code 5"), Not(HasSubstr("terminating"))));
  run.expectGone(Clock::now());
}

TEST(LauncherTest, B64ARankThatEndsBeforeItJoinsIsNamedAtOnce) {
  Job run({"-n", "3", "--", "bash", "-c",
           "if [ $RANK = 1 ]; then unset BAGUA_TEST_RANK_PROGRAM; exit 9; else exec " + self() +
               "; fi"},
          "exchange_forever");
  EXPECT_EQ(run.wait(), 9) << run.log();
  EXPECT_THAT(run.log(), HasSubstr("rank 1 exited with code 9 before it joined the group"));
}

TEST(LauncherTest, RanksThatDoNotEndAreTerminatedThenKilled) {
  Clock::time_point start = Clock::now();
  Job run({"-n", "3", "--grace-ms", "200", "--termination-ms", "300", "--", "bash", "-c",
           "if [ $RANK = 0 ]; then sleep 0.3; exit 4; fi; trap '' TERM INT; sleep 1000 & setsid "
           "sleep 1000 & "
           "while :; do sleep 1000; done"});
  EXPECT_EQ(run.wait(), 4) << run.log();
  EXPECT_LT(Clock::now() - start, 5s);
  EXPECT_THAT(run.log(), HasSubstr("terminating ranks 1, 2"));
  run.expectGone(Clock::now());
}

class B61SignalTest : public testing::TestWithParam<int> {};

TEST_P(B61SignalTest, EndsTheJob) {
  int signal = GetParam();
  Job run({"-n", "2", "--", "bash", "-c",
           "trap 'echo caught; exit 0' INT TERM; sleep 1000 & (trap '' TERM INT HUP; setsid sleep "
           "1000) & echo "
           "up; wait"});
  run.waitFor("up", 2);
  Clock::time_point sent = Clock::now();
  ASSERT_EQ(::kill(run.pid(), signal), 0);
  EXPECT_EQ(run.wait(), 128 + signal) << run.log();
  run.expectGone(sent);
  if (signal != SIGHUP)
    EXPECT_THAT(run.log(), HasSubstr("caught\ncaught")); // Ranks saw it and could clean up.
}

INSTANTIATE_TEST_SUITE_P(Signals, B61SignalTest, testing::Values(SIGINT, SIGTERM, SIGHUP));

TEST(LauncherTest, B61StubbornRanksAreGoneWithinFiveSeconds) {
  Job run({"-n", "2", "--", "bash", "-c",
           "trap '' INT TERM HUP; echo up; while :; do setsid sleep 1000; done"});
  run.waitFor("up", 2);
  Clock::time_point sent = Clock::now();
  ASSERT_EQ(::kill(run.pid(), SIGINT), 0);
  EXPECT_EQ(run.wait(), 130);
  run.expectGone(sent);
}

TEST(LauncherTest, B61ASecondSignalIsAtOnce) {
  Job run({"-n", "2", "--grace-ms", "60000", "--", "bash", "-c",
           "trap '' INT TERM; echo up; while :; do sleep 1000; done"});
  run.waitFor("up", 2);
  ASSERT_EQ(::kill(run.pid(), SIGINT), 0);
  std::this_thread::sleep_for(100ms); // Two signals of one kind at once are one.
  Clock::time_point sent = Clock::now();
  ASSERT_EQ(::kill(run.pid(), SIGINT), 0);
  EXPECT_EQ(run.wait(5s), 130);
  run.expectGone(sent);
}

TEST(LauncherTest, B61TheFrontIsKilled) {
  Job run({"-n", "3", "--", self()}, "exchange_forever");
  run.waitFor("joined", 3);
  Clock::time_point sent = Clock::now();
  ASSERT_EQ(::kill(run.pid(), SIGKILL), 0);
  EXPECT_EQ(run.wait(), 128 + SIGKILL);
  run.expectGone(sent);
}

TEST(LauncherTest, B61TheSupervisorIsKilled) {
  Job run({"-n", "2", "--", "bash", "-c",
           "trap '' TERM INT; setsid sleep 1000 & echo up; while :; do sleep 1000; done"});
  run.waitFor("up", 2);
  Clock::time_point sent = Clock::now();
  pid_t supervisor = run.childOf(run.pid());
  ASSERT_GT(supervisor, 0);
  ASSERT_EQ(::kill(supervisor, SIGKILL), 0);
  EXPECT_EQ(run.wait(), 128 + SIGKILL);
  EXPECT_THAT(run.log(), HasSubstr("the supervisor was killed by signal 9"));
  run.expectGone(sent);
}

TEST(LauncherTest, B61OneRankIsTerminated) {
  Job run({"-n", "3", "--", self()}, "exchange_forever");
  run.waitFor("joined", 3);
  pid_t rank = -1;
  pid_t supervisor = run.childOf(run.pid());
  ASSERT_GT(rank = run.childOf(supervisor), 0);
  Clock::time_point sent = Clock::now();
  ASSERT_EQ(::kill(rank, SIGTERM), 0);
  EXPECT_EQ(run.wait(), 128 + SIGTERM) << run.log();
  run.expectGone(sent);
  EXPECT_THAT(run.log(), AllOf(HasSubstr("was killed by signal 15"), HasSubstr("verdict: rank ")));
}

TEST(LauncherTest, B52TwoJobsAtOnce) {
  Job first({"-n", "2", "--", self()}, "exchange_once");
  Job second({"-n", "3", "--", self()}, "exchange_once");
  EXPECT_EQ(first.wait(), 0) << first.log();
  EXPECT_EQ(second.wait(), 0) << second.log();
}

TEST(LauncherTest, RanksSeeTheirPlace) {
  Job run(
      {"-n", "2", "--prefix", "bash", "-c",
       "echo $BAGUA_RANK $BAGUA_WORLD $BAGUA_LOCAL_RANK $BAGUA_LOCAL_SIZE $BAGUA_STORE_HOST $RANK "
       "$WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR; printf 'no end' >&2"});
  EXPECT_EQ(run.wait(), 0);
  for (const char *rank : {"0", "1"}) {
    std::string text = "[R] R 2 R 2 launcher R 2 R 2 127.0.0.1\n";
    for (size_t at; (at = text.find('R')) != std::string::npos;)
      text.replace(at, 1, rank);
    EXPECT_THAT(run.log(), HasSubstr(text));
    EXPECT_THAT(run.log(), HasSubstr(std::string("[") + rank + "] no end\n"));
  }
}

TEST(LauncherTest, LargeOutputKeepsItsLines) {
  Job run(
      {"-n", "2", "--prefix", "--", "bash", "-c",
       "for i in $(seq 5000); do echo line-$RANK-$i; done; head -c 200000 /dev/zero | tr '\\0' x"});
  EXPECT_EQ(run.wait(), 0);
  std::istringstream lines(run.log());
  std::string line;
  int next[2] = {1, 1};
  size_t xs = 0;
  while (std::getline(lines, line)) {
    int rank = line[1] - '0';
    ASSERT_TRUE(rank == 0 || rank == 1) << line;
    if (next[rank] <= 5000)
      EXPECT_EQ(line, "[" + std::to_string(rank) + "] line-" + std::to_string(rank) + "-" +
                          std::to_string(next[rank]++));
    else
      xs += static_cast<size_t>(std::count(line.begin(), line.end(), 'x'));
  }
  EXPECT_EQ(xs, 400'000u);
}

TEST(LauncherTest, RunsAScheduleWithTheInterpretersInputs) {
  constexpr int kWorld = 4, kLength = 5003;
  Job run({"-n", std::to_string(kWorld), BAGUA_GOLDEN_PATH "/gradient_allreduce.bsched", "--length",
           std::to_string(kLength), "--fill", "exact"});
  ASSERT_EQ(run.wait(60s), 0) << run.log();
  std::vector<float> mean(kLength, 0.0f);
  for (uint64_t rank = 0; rank < kWorld; ++rank)
    for (uint64_t i = 0; i < kLength; ++i)
      mean[i] +=
          static_cast<float>(compiler::generatedElement(1, 2 * rank, i, compiler::Fill::Exact));
  for (float &value : mean)
    value /= kWorld; // Exact: a power of two.
  char hash[17];
  std::snprintf(hash, sizeof(hash), "%016llx",
                static_cast<unsigned long long>(compiler::fnv1a(std::as_bytes(std::span(mean)))));
  EXPECT_THAT(run.log(), HasSubstr("processes, world 4, length 5003, f32\nstep 0\n"));
  for (int rank = 0; rank < kWorld; ++rank)
    EXPECT_THAT(run.log(), HasSubstr("\n" + std::to_string(rank) + "     " + hash + "  "));
}

TEST(LauncherTest, negative_schedules) {
  Job missing({"-n", "2", "/no/such.bsched"});
  EXPECT_EQ(missing.wait(), 2);
  EXPECT_EQ(missing.log(), "bagua-run: no schedule file /no/such.bsched\n");
  Job length({"-n", "2", BAGUA_GOLDEN_PATH "/bytegrad.bsched", "--length", "-1"});
  EXPECT_EQ(length.wait(), 2);
  EXPECT_THAT(length.log(), HasSubstr("--length"));
  Job algorithm({"-n", "2", "/no/such.mlir"});
  EXPECT_EQ(algorithm.wait(), 2);
  EXPECT_EQ(algorithm.log(), "bagua-run: no algorithm file /no/such.mlir\n");
  Job interpreted({"--interpret=bagua", BAGUA_GOLDEN_PATH "/bytegrad.bsched", "--world", "2"});
  EXPECT_EQ(interpreted.wait(), 2);
  EXPECT_THAT(interpreted.log(),
              HasSubstr("--interpret expects an algorithm (.mlir), got the schedule file"));
}

TEST(InfoTest, ShowsEveryVariableWithItsValue) {
  ::setenv("BAGUA_STEP_TIMEOUT_MS", "4321", 1);
  Job info({}, "", BAGUA_INFO_PATH);
  Job environment({"--env"}, "", BAGUA_INFO_PATH);
  ::unsetenv("BAGUA_STEP_TIMEOUT_MS");
  EXPECT_EQ(info.wait(), 0);
  EXPECT_THAT(info.log(), AllOf(HasSubstr("bagua  "), HasSubstr("oneTBB"), HasSubstr("UCX"),
                                HasSubstr("cores"), HasSubstr("lo  ")));
  EXPECT_EQ(environment.wait(), 0);
  EXPECT_THAT(environment.log(),
              AllOf(testing::ContainsRegex("BAGUA_STEP_TIMEOUT_MS +300000 +4321 "),
                    HasSubstr("0 of 1, from no launcher")));
}

TEST(InfoTest, negative_SaysWhichValuesAreWrong) {
  ::setenv("BAGUA_LOG", "nonsense", 1);
  ::setenv("BAGUA_TRACE_FILE", "/no/such/t.json", 1);
  ::setenv("BAGUA_RANK", "0", 1);
  Job info({"--env"}, "", BAGUA_INFO_PATH);
  for (const char *name : {"BAGUA_LOG", "BAGUA_TRACE_FILE", "BAGUA_RANK"})
    ::unsetenv(name);
  EXPECT_EQ(info.wait(), 1);
  EXPECT_THAT(info.log(),
              AllOf(HasSubstr("\n  BAGUA_LOG expects a level (trace, debug, info, warn, "
                              "error, critical, off)"),
                    HasSubstr(", got 'nonsense'\n"),
                    HasSubstr("\n  BAGUA_TRACE_FILE expects a file that can be written, "
                              "got '/no/such/t.json': No such file or directory\n"),
                    HasSubstr("BAGUA_RANK is set, BAGUA_WORLD is not\n")));
  Job option({"--frobnicate"}, "", BAGUA_INFO_PATH);
  EXPECT_EQ(option.wait(), 2);
}

TEST(LauncherTest, negative_commands) {
  Job missing({"-n", "2", "--", "/no/such/program"});
  EXPECT_EQ(missing.wait(), 127);
  EXPECT_THAT(missing.log(), HasSubstr("cannot execute '/no/such/program': No such file"));
  Job directory({"-n", "2", "--", "/tmp"});
  EXPECT_EQ(directory.wait(), 126);
  Job option({"-n", "2", "--frobnicate", "true"});
  EXPECT_EQ(option.wait(), 2);
  EXPECT_THAT(option.log(), HasSubstr("bagua-run: unknown option --frobnicate: "));
  Job none({"-n", "2"});
  EXPECT_EQ(none.wait(), 2);
  Job zero({"-n", "0", "--", "true"});
  EXPECT_EQ(zero.wait(), 2);
  EXPECT_THAT(zero.log(), HasSubstr("--ranks"));
  Job level({"--interpret=nothing", "x.mlir"});
  EXPECT_EQ(level.wait(), 2);
  EXPECT_THAT(level.log(), HasSubstr("--interpret: nothing not in {bagua,chunk,sched}"));
}

} // namespace
} // namespace bagua::rt
