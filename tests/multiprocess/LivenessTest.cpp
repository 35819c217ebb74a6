// Ranks die, freeze or never come: every survivor says which, soon, with one text.
#include "Host.h"
#include "RankGroup.h"
#include "bagua/Group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <iostream>
#include <set>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>

namespace bagua::rt {
namespace {

using namespace std::chrono_literals;
using test::exitCodeFor;
using test::RankContext;
using test::RankGroup;
using test::spawn;
using testing::AllOf;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

std::chrono::milliseconds duration(const RankContext &context, const std::string &name,
                                   const std::string &otherwise) {
  return std::chrono::milliseconds(std::stoll(context.argument(name, otherwise)));
}

StatusOr<std::unique_ptr<Group>> join(const RankContext &context) {
  Group::Options options;
  options.rank = context.rank();
  options.world = context.world();
  options.store = context.store();
  options.bootstrapTimeout = duration(context, "bootstrap", "15000");
  options.stepTimeout = duration(context, "step", "15000");
  options.liveness.heartbeat = duration(context, "heartbeat", "250");
  options.liveness.warnFrozen = duration(context, "warn_frozen", "2000");
  options.liveness.warnWaiting = duration(context, "warn_waiting", "10000");
  return Group::create(options);
}

int socketCount() {
  int count = 0;
  for (const auto &entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    std::string target = std::filesystem::read_symlink(entry.path(), error);
    // The harness's own input is a socket too.
    count += target.starts_with("socket:") && entry.path().filename() != "0";
  }
  return count;
}

/// A data-loader worker: forked, idle, and of no interest to the group. Returns once it has
/// reported.
void forkWorker() {
  int done[2];
  if (::pipe(done) != 0)
    return;
  if (::fork() == 0) {
    std::cout << "worker has " << socketCount() << " sockets" << std::endl;
    ::close(done[0]);
    ::close(done[1]);
    for (;;)
      ::pause();
  }
  ::close(done[1]);
  char byte;
  (void)!::read(done[0], &byte, 1);
  ::close(done[0]);
}

/// Does what "phase" says until there is a verdict; then says when, and ends with its code.
BAGUA_RANK_PROGRAM(until_verdict) {
  auto group = join(context);
  if (!group.ok())
    return exitCodeFor(group.status());
  if (context.argument("worker") == "yes")
    forkWorker();
  std::string phase = context.argument("phase");
  Status status;
  if (phase == "exchange") {
    context.ready();
    for (int round = 0; status.ok(); ++round)
      status = (*group)->allGather("round " + std::to_string(round), "x").status();
  } else {
    (*group)->setPhase("program gradient, bucket " + std::to_string(context.rank()),
                       phase == "program");
    std::this_thread::sleep_for(duration(context, "heartbeat", "250") * 2); // So that it is known.
    context.ready();
    while ((*group)->verdict().ok())
      std::this_thread::sleep_for(1ms);
    status = (*group)->verdict();
  }
  context.ready("verdict");
  std::cout << "verdict: " << status.message() << std::endl;
  (*group)->leave();
  return exitCodeFor(status);
}

std::string verdictOf(const RankGroup &ranks, int rank) {
  std::string log = ranks.log(rank), key = "verdict: ";
  size_t begin = log.find(key);
  return begin == std::string::npos
             ? "none in: " + log
             : log.substr(begin + key.size(), log.find('\n', begin) - begin - key.size());
}

/// Who dies in which phase.
class B40DeathTest : public testing::TestWithParam<std::tuple<int, std::string>> {};

TEST_P(B40DeathTest, EverySurvivorKnowsWithinTwoSeconds) {
  auto [dying, phase] = GetParam();
  RankGroup ranks =
      spawn("until_verdict", {.worldSize = 4, .arguments = {{"phase", phase}, {"worker", "yes"}}});
  ranks.waitReady();
  Clock::time_point killed = Clock::now();
  ranks.kill(dying, SIGKILL);
  std::set<std::string> texts;
  for (int rank = 0; rank < 4; ++rank)
    if (rank != dying)
      ranks.waitReady(rank, "verdict");
  EXPECT_LT(Clock::now() - killed, 2s);
  for (int rank = 0; rank < 4; ++rank) {
    if (rank == dying)
      continue;
    EXPECT_EQ(ranks.exitCode(rank), exitCodeFor(absl::StatusCode::kUnavailable)) << ranks.log(rank);
    texts.insert(verdictOf(ranks, rank));
    EXPECT_THAT(ranks.log(rank), HasSubstr("worker has 0 sockets")); // B60
  }
  EXPECT_EQ(ranks.exitCode(dying), 128 + SIGKILL);
  EXPECT_THAT(texts, testing::SizeIs(1));
  EXPECT_THAT(*texts.begin(),
              AllOf(HasSubstr("rank " + std::to_string(dying) + " (host " + hostName()),
                    HasSubstr("pid " + std::to_string(ranks.pid(dying))), HasSubstr("died")));
  if (phase != "exchange")
    EXPECT_THAT(*texts.begin(), HasSubstr("program gradient, bucket " + std::to_string(dying)));
}

INSTANTIATE_TEST_SUITE_P(Ranks, B40DeathTest,
                         testing::Combine(testing::Values(0, 2),
                                          testing::Values("exchange", "program", "user")),
                         [](const auto &info) {
                           return "rank" + std::to_string(std::get<0>(info.param)) + "_" +
                                  std::get<1>(info.param);
                         });

TEST(DeathTest, BeforeTheGroupIsComplete) {
  for (int dying : {0, 1}) {
    RankGroup ranks =
        spawn("until_verdict",
              {.worldSize = 3, .environment = {{"BAGUA_LOG", "bootstrap:debug"}}, .absent = {2}});
    Clock::time_point deadline = Clock::now() + 10s;
    for (const char *sign : {"store: rank 0 has joined", "store: rank 1 has joined"})
      while (ranks.log(0).find(sign) == std::string::npos) {
        ASSERT_LT(Clock::now(), deadline) << ranks.log(0);
        std::this_thread::sleep_for(5ms);
      }
    ranks.kill(dying, SIGKILL);
    int other = 1 - dying;
    EXPECT_EQ(ranks.exitCode(other), exitCodeFor(absl::StatusCode::kUnavailable))
        << ranks.log(other);
    EXPECT_THAT(ranks.log(other), HasSubstr("rank " + std::to_string(dying)));
  }
}

/// Leaves when it is told; rank 1 then says how rank 2 went.
BAGUA_RANK_PROGRAM(leave_when_told) {
  auto group = join(context);
  if (!group.ok())
    return exitCodeFor(group.status());
  context.ready();
  if (context.rank() == 1)
    while ((*group)->departure(2).empty() && (*group)->verdict().ok())
      std::this_thread::sleep_for(1ms);
  else
    (void)context.hear();
  if (context.rank() == 1)
    std::cout << (*group)->departures() << " left: " << (*group)->departure(2) << std::endl;
  Status status = (*group)->verdict();
  (*group)->leave();
  return exitCodeFor(status);
}

// Nobody hears the goodbye of a rank that leaves after the store's host; yet it is no death.
TEST(GoodbyeTest, AfterTheStoresHostHasLeftIsNoDeath) {
  RankGroup ranks = spawn("leave_when_told", {.worldSize = 3});
  ranks.waitReady();
  for (int rank : {0, 2}) {
    ranks.tell(rank, "leave");
    EXPECT_EQ(ranks.exitCode(rank), 0) << ranks.log(rank);
  }
  EXPECT_EQ(ranks.exitCode(1), 0) << ranks.log(1);
  EXPECT_THAT(ranks.log(1), AllOf(HasSubstr("2 left: rank 2 (host "), HasSubstr(") has left (")));
}

/// Joins with few file descriptors to spare, if it is told so.
BAGUA_RANK_PROGRAM(join_with_few_descriptors) {
  if (std::string spare = context.argument("spare");
      context.rank() == std::stoi(context.argument("poor"))) {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = static_cast<rlim_t>(descriptorUse().open + std::stoi(spare));
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
  auto group = join(context);
  if (!group.ok()) {
    int code = exitCodeFor(group.status());
    (void)context.hear(); // Rank 0 hosts the store: others may only be on their way.
    return code;
  }
  while ((*group)->verdict().ok())
    std::this_thread::sleep_for(1ms);
  return exitCodeFor((*group)->verdict());
}

// Spare descriptors: not enough to know where the peers are, and not enough for so many of them.
TEST(DescriptorsTest, negative_too_few_on_one_rank_are_an_error_on_all_at_once) {
  for (int poor : {0, 1})
    for (const char *spare : {"11", "18"}) {
      Clock::time_point begin = Clock::now();
      RankGroup ranks =
          spawn("join_with_few_descriptors",
                {.worldSize = 3, .arguments = {{"poor", std::to_string(poor)}, {"spare", spare}}});
      for (int rank : {1, 2, 0}) {
        ranks.tell(rank, "end");
        EXPECT_EQ(ranks.exitCode(rank), exitCodeFor(absl::StatusCode::kResourceExhausted))
            << ranks.log(rank);
        EXPECT_THAT(ranks.log(rank), AllOf(HasSubstr("rank " + std::to_string(poor) + " (host "),
                                           HasSubstr("too few file descriptors: it needs "),
                                           HasSubstr("are open and `ulimit -n` is ")));
      }
      EXPECT_LT(Clock::now() - begin, 5s) << "rank " << poor << ", " << spare << " to spare";
    }
}

class B42FrozenTest : public testing::TestWithParam<int> {};

TEST_P(B42FrozenTest, IsWarnedOfThenFatal) {
  int frozen = GetParam();
  RankGroup ranks = spawn(
      "until_verdict",
      {.worldSize = 3,
       .arguments = {
           {"phase", "program"}, {"heartbeat", "50"}, {"warn_frozen", "500"}, {"step", "2000"}}});
  ranks.waitReady();
  Clock::time_point stopped = Clock::now();
  ranks.kill(frozen, SIGSTOP);
  std::string logs;
  std::set<std::string> texts;
  for (int rank = 0; rank < 3; ++rank) {
    if (rank == frozen)
      continue;
    EXPECT_EQ(ranks.exitCode(rank), exitCodeFor(absl::StatusCode::kDeadlineExceeded))
        << ranks.log(rank);
    texts.insert(verdictOf(ranks, rank));
    logs += ranks.log(rank);
  }
  EXPECT_GT(Clock::now() - stopped, 1500ms);
  EXPECT_LT(Clock::now() - stopped, 6s);
  EXPECT_THAT(logs, HasSubstr("warning"));
  EXPECT_THAT(logs, HasSubstr("looks frozen"));
  EXPECT_THAT(texts, testing::SizeIs(1));
  EXPECT_THAT(*texts.begin(),
              AllOf(HasSubstr("rank " + std::to_string(frozen) + " (host "), HasSubstr("frozen"),
                    HasSubstr("program gradient, bucket " + std::to_string(frozen))));
  // When it wakes up it learns what the others decided.
  ranks.kill(frozen, SIGCONT);
  EXPECT_EQ(ranks.exitCode(frozen), exitCodeFor(absl::StatusCode::kDeadlineExceeded))
      << ranks.log(frozen);
  EXPECT_EQ(verdictOf(ranks, frozen), *texts.begin());
}

INSTANTIATE_TEST_SUITE_P(Ranks, B42FrozenTest, testing::Values(0, 1));

TEST(FrozenTest, AShortStopIsForgiven) {
  RankGroup ranks = spawn(
      "until_verdict",
      {.worldSize = 3,
       .arguments = {
           {"phase", "user"}, {"heartbeat", "50"}, {"warn_frozen", "500"}, {"step", "4000"}}});
  ranks.waitReady();
  for (int rank : {0, 1, 2}) // The whole job, as a batch system suspends it.
    ranks.kill(rank, SIGSTOP);
  std::this_thread::sleep_for(5s);
  for (int rank : {2, 1, 0})
    ranks.kill(rank, SIGCONT);
  std::this_thread::sleep_for(1s);
  for (int rank : {0, 1, 2})
    EXPECT_TRUE(ranks.running(rank)) << ranks.log(rank);
}

TEST(B64AbsentTest, IsNamedByEveryoneElse) {
  RankGroup ranks = spawn("until_verdict",
                          {.worldSize = 4, .arguments = {{"bootstrap", "1500"}}, .absent = {1, 3}});
  for (int rank : {0, 2}) {
    EXPECT_EQ(ranks.exitCode(rank), exitCodeFor(absl::StatusCode::kDeadlineExceeded));
    EXPECT_THAT(ranks.log(rank), HasSubstr("ranks 1, 3 of 4 did not join within 1.5 s"));
  }
}

BAGUA_RANK_PROGRAM(by_torchrun) {
  Group::Options options;
  options.bootstrapTimeout = 10s;
  auto group = Group::create(options);
  if (!group.ok())
    return exitCodeFor(group.status());
  auto values = (*group)->allGather("jobs", std::getenv("MASTER_PORT"));
  if (!values.ok())
    return exitCodeFor(values.status());
  for (const std::string &value : *values)
    if (value != std::getenv("MASTER_PORT"))
      return 1;
  std::cout << (*group)->source() << ", rank " << (*group)->rank() << " of " << (*group)->world()
            << std::endl;
  context.ready();
  context.hear();
  (*group)->leave();
  return 0;
}

/// Ranks of torchrun: one RankGroup of one process each, since each has an environment of its own.
std::vector<RankGroup> torchrun(int world, const std::string &masterPort) {
  std::vector<RankGroup> ranks;
  for (int rank = 0; rank < world; ++rank)
    ranks.push_back(
        spawn("by_torchrun", {.worldSize = 1,
                              .environment = {{"RANK", std::to_string(rank)},
                                              {"WORLD_SIZE", std::to_string(world)},
                                              {"LOCAL_RANK", std::to_string(rank)},
                                              {"LOCAL_WORLD_SIZE", std::to_string(world)},
                                              {"MASTER_ADDR", "127.0.0.1"},
                                              {"MASTER_PORT", masterPort}}}));
  return ranks;
}

TEST(B52JobsTest, TwoOnOneHost) {
  std::vector<RankGroup> first = torchrun(2, "29500"), second = torchrun(3, "29501");
  for (std::vector<RankGroup> *job : {&first, &second})
    for (RankGroup &rank : *job)
      rank.waitReady();
  for (std::vector<RankGroup> *job : {&first, &second})
    for (RankGroup &rank : *job) {
      rank.tellAll("go");
      EXPECT_EQ(rank.exitCode(0), 0) << rank.log(0);
      EXPECT_THAT(rank.log(0), HasSubstr("torchrun's environment"));
    }
}

/// Joins and leaves often, and counts what stays behind.
BAGUA_RANK_PROGRAM(join_and_leave) {
  auto count = [](const char *what) {
    std::error_code error;
    std::filesystem::directory_iterator entries(std::string("/proc/self/") + what, error);
    return std::distance(begin(entries), end(entries));
  };
  long descriptors = 0, threads = 0;
  for (int round = 0; round < 5; ++round) {
    auto group = join(context);
    if (!group.ok())
      return exitCodeFor(group.status());
    if (Status status = (*group)->allGather("x", "").status(); !status.ok())
      return exitCodeFor(status);
    (*group)->leave();
    group->reset();
    if (round == 0) {
      descriptors = count("fd");
      threads = count("task");
    }
  }
  // Rank 0's store goes on until the others are gone: its thread, listener and their connections.
  Clock::time_point deadline = Clock::now() + 5s;
  while (Clock::now() < deadline && (count("fd") > descriptors || count("task") > threads))
    std::this_thread::sleep_for(10ms);
  if (count("fd") > descriptors || count("task") > threads) {
    std::cerr << "left behind: " << count("fd") - descriptors << " descriptors, "
              << count("task") - threads << " threads" << std::endl;
    return 1;
  }
  return 0;
}

TEST(LeakTest, NothingStaysAfterLeaving) {
  RankGroup ranks = spawn("join_and_leave", {.worldSize = 3});
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_EQ(ranks.exitCode(rank), 0) << ranks.log(rank);
}

} // namespace
} // namespace bagua::rt
