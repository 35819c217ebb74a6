// Which environment gives which place (case B62).
#include "bagua/Bootstrap.h"
#include "bagua/Group.h"
#include "bagua/kernels/Kernels.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

namespace bagua::rt {
namespace {

using testing::HasSubstr;

struct Case {
  const char *name;
  LaunchRequest request;
  Environment environment;
  // Expected:
  int rank, world, localRank, localSize;
  const char *source;
  const char *store; ///< A prefix.
  bool hostsStore = true;
  const char *note = ""; ///< Part of the only note; empty: none.
};
void PrintTo(const Case &tested, std::ostream *out) { *out << tested.name; }

Environment operator+(Environment a, const Environment &b) {
  for (const auto &[name, value] : b)
    a[name] = value;
  return a;
}

const Environment kTorchrun = {{"RANK", "1"},
                               {"WORLD_SIZE", "4"},
                               {"LOCAL_RANK", "1"},
                               {"LOCAL_WORLD_SIZE", "2"},
                               {"MASTER_ADDR", "10.0.0.1"},
                               {"MASTER_PORT", "29500"},
                               {"TORCHELASTIC_RUN_ID", "none"},
                               {"TORCHELASTIC_RESTART_COUNT", "0"}};
const Environment kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "2"},
                              {"OMPI_COMM_WORLD_SIZE", "3"},
                              {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
                              {"PMIX_NAMESPACE", "1234.1"}};
const Environment kSlurmStep = {{"SLURM_JOB_ID", "7"},
                                {"SLURM_STEP_ID", "0"},
                                {"SLURM_PROCID", "5"},
                                {"SLURM_STEP_NUM_TASKS", "8"},
                                {"SLURM_NTASKS", "8"},
                                {"SLURM_LOCALID", "1"},
                                {"SLURM_STEP_NODELIST", "gpu[003-004,7]"}};
const Environment kSlurmBatch = {{"SLURM_JOB_ID", "7"},
                                 {"SLURM_PROCID", "0"},
                                 {"SLURM_NTASKS", "8"},
                                 {"SLURM_LOCALID", "0"},
                                 {"SLURM_JOB_NODELIST", "gpu003"}};
const Environment kBaguaRun = {{"BAGUA_RANK", "3"},
                               {"BAGUA_WORLD", "4"},
                               {"BAGUA_LOCAL_RANK", "3"},
                               {"BAGUA_LOCAL_SIZE", "4"},
                               {"BAGUA_STORE", "127.0.0.1:4000"},
                               {"BAGUA_STORE_HOST", "launcher"},
                               {"RANK", "3"},
                               {"WORLD_SIZE", "4"}};

class B62EnvironmentTest : public testing::TestWithParam<Case> {};

TEST_P(B62EnvironmentTest, GivesOnePlace) {
  const Case &expected = GetParam();
  StatusOr<Launch> launch = resolveLaunch(expected.request, expected.environment);
  ASSERT_TRUE(launch.ok()) << launch.status();
  EXPECT_EQ(launch->rank, expected.rank);
  EXPECT_EQ(launch->world, expected.world);
  EXPECT_EQ(launch->localRank, expected.localRank);
  EXPECT_EQ(launch->localSize, expected.localSize);
  EXPECT_THAT(launch->source, HasSubstr(expected.source));
  EXPECT_THAT(launch->store, testing::StartsWith(expected.store));
  EXPECT_EQ(launch->store.empty(), *expected.store == '\0');
  EXPECT_EQ(launch->hostsStore, expected.hostsStore);
  if (*expected.note)
    EXPECT_THAT(launch->notes, testing::ElementsAre(HasSubstr(expected.note)));
  else
    EXPECT_THAT(launch->notes, testing::IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(
    Table, B62EnvironmentTest,
    testing::Values(
        Case{"nothing", {}, {}, 0, 1, -1, -1, "alone", ""},
        Case{"explicit", {1, 2, 1, 2, "h:1"}, {}, 1, 2, 1, 2, "explicit", "h:1"},
        Case{"explicit_over_torchrun",
             {0, 2, -1, -1, "h:1"},
             kTorchrun,
             0,
             2,
             -1,
             -1,
             "explicit",
             "h:1",
             true,
             "torchrun's environment (rank 1 of 4) is ignored"},
        Case{"torchrun", {}, kTorchrun, 1, 4, 1, 2, "torchrun", "10.0.0.1:"},
        Case{"torchrun_store_by_argument",
             {-1, -1, -1, -1, "10.0.0.1:99"},
             kTorchrun,
             1,
             4,
             1,
             2,
             "torchrun",
             "10.0.0.1:99"},
        Case{"torchrun_store_by_variable",
             {},
             kTorchrun + Environment{{"BAGUA_STORE", "h:9"}},
             1,
             4,
             1,
             2,
             "torchrun",
             "h:9"},
        Case{"torchrun_v6",
             {},
             kTorchrun + Environment{{"MASTER_ADDR", "fd00::1"}},
             1,
             4,
             1,
             2,
             "torchrun",
             "[fd00::1]:"},
        Case{"torchrun_in_mpirun",
             {},
             kTorchrun + kOpenMpi,
             1,
             4,
             1,
             2,
             "torchrun",
             "10.0.0.1:",
             true,
             "Open MPI's environment (rank 2 of 3) is ignored"},
        Case{"torchrun_in_mpirun_of_one",
             {},
             kTorchrun + kOpenMpi +
                 Environment{{"OMPI_COMM_WORLD_RANK", "0"},
                             {"OMPI_COMM_WORLD_SIZE", "1"},
                             {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                             {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}},
             1,
             4,
             1,
             2,
             "torchrun",
             "10.0.0.1:"},
        Case{"mpirun", {}, kOpenMpi, 2, 3, 2, 3, "Open MPI", "127.0.0.1:"},
        Case{"mpirun_in_slurm_batch",
             {},
             kOpenMpi + kSlurmBatch,
             2,
             3,
             2,
             3,
             "Open MPI",
             "127.0.0.1:"},
        // mpirun started through srun: every rank of a host sees its daemon's Slurm variables.
        Case{"mpirun_in_slurm_step",
             {},
             kOpenMpi + kSlurmStep,
             2,
             3,
             2,
             3,
             "Open MPI",
             "127.0.0.1:",
             true,
             "Slurm's environment (rank 5 of 8) is ignored"},
        Case{"mvapich",
             {},
             {{"MV2_COMM_WORLD_RANK", "0"},
              {"MV2_COMM_WORLD_SIZE", "2"},
              {"MV2_COMM_WORLD_LOCAL_RANK", "0"},
              {"MV2_COMM_WORLD_LOCAL_SIZE", "2"}},
             0,
             2,
             0,
             2,
             "MVAPICH",
             "127.0.0.1:"},
        Case{"hydra",
             {},
             {{"PMI_RANK", "1"},
              {"PMI_SIZE", "2"},
              {"MPI_LOCALRANKID", "0"},
              {"MPI_LOCALNRANKS", "1"},
              {"MASTER_ADDR", "a"}},
             1,
             2,
             0,
             1,
             "PMI",
             "a:"},
        Case{"slurm_step", {}, kSlurmStep, 5, 8, 1, -1, "Slurm", "gpu003:"},
        Case{"slurm_batch_script", {}, kSlurmBatch, 0, 1, -1, -1, "alone", ""},
        Case{"slurm_step_of_one",
             {},
             kSlurmStep + Environment{{"SLURM_STEP_NUM_TASKS", "1"}},
             0,
             1,
             -1,
             -1,
             "alone",
             ""},
        Case{"slurm_plain_list",
             {},
             kSlurmStep + Environment{{"SLURM_STEP_NODELIST", "a1,b2"}},
             5,
             8,
             1,
             -1,
             "Slurm",
             "a1:"},
        Case{"slurm_suffix",
             {},
             kSlurmStep + Environment{{"SLURM_STEP_NODELIST", "n[1,3]-ib,b"}},
             5,
             8,
             1,
             -1,
             "Slurm",
             "n1-ib:"},
        Case{"bagua_run", {}, kBaguaRun, 3, 4, 3, 4, "bagua-run", "127.0.0.1:4000", false},
        Case{"bagua_run_in_slurm",
             {},
             kBaguaRun + kSlurmStep,
             3,
             4,
             3,
             4,
             "bagua-run",
             "127.0.0.1:4000",
             false,
             "Slurm's environment (rank 5 of 8) is ignored"},
        Case{"bagua_run_same_store_by_argument",
             {-1, -1, -1, -1, "127.0.0.1:4000"},
             kBaguaRun,
             3,
             4,
             3,
             4,
             "bagua-run",
             "127.0.0.1:4000",
             false},
        Case{"bagua_run_other_store_by_argument",
             {-1, -1, -1, -1, "127.0.0.1:5"},
             kBaguaRun,
             3,
             4,
             3,
             4,
             "bagua-run",
             "127.0.0.1:5",
             true}),
    [](const auto &info) { return info.param.name; });

struct Refusal {
  const char *name;
  LaunchRequest request;
  Environment environment;
  const char *message;
};
void PrintTo(const Refusal &refusal, std::ostream *out) { *out << refusal.name; }

class B62NegativeEnvironmentTest : public testing::TestWithParam<Refusal> {};

TEST_P(B62NegativeEnvironmentTest, IsRefused) {
  StatusOr<Launch> launch = resolveLaunch(GetParam().request, GetParam().environment);
  ASSERT_FALSE(launch.ok());
  EXPECT_EQ(launch.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(launch.status().message()), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Table, B62NegativeEnvironmentTest,
    testing::Values(
        Refusal{"rank_without_world", {1, -1, -1, -1, ""}, kTorchrun, "a rank but no world"},
        Refusal{"world_without_rank", {-1, 2, -1, -1, ""}, {}, "a world but no rank"},
        Refusal{"explicit_outside", {2, 2, -1, -1, "h:1"}, {}, "rank 2 in a world of 2"},
        Refusal{"explicit_grammar",
                {5, 2, -1, -1, "h:1"},
                {},
                "explicit arguments contradict themselves: rank 5 in a world of 2"},
        Refusal{"local_rank_alone",
                {},
                {{"BAGUA_LOCAL_RANK", "1"}},
                "BAGUA_LOCAL_RANK is '1', but BAGUA_RANK and BAGUA_WORLD are not set"},
        Refusal{"local_size_beside_torchrun",
                {},
                kTorchrun + Environment{{"BAGUA_LOCAL_SIZE", "2"}},
                "BAGUA_LOCAL_SIZE is '2', but BAGUA_RANK and BAGUA_WORLD are not set"},
        Refusal{"store_alone", {}, {{"BAGUA_STORE", "h:5"}}, "BAGUA_STORE is 'h:5', but nothing"},
        Refusal{"store_argument_alone", {-1, -1, -1, -1, "h:5"}, {}, "option store is 'h:5'"},
        Refusal{"master_port_of_one",
                {},
                {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_PORT", "x"}},
                "MASTER_PORT expects a port in [1, 65535], got 'x'"},
        Refusal{"master_port_negative",
                {},
                {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_PORT", "-1"}},
                "MASTER_PORT expects a port in [1, 65535], got '-1'"},
        Refusal{"master_port_zero",
                {},
                kTorchrun + Environment{{"MASTER_PORT", "0"}},
                "MASTER_PORT expects a port in [1, 65535], got '0'"},
        Refusal{"explicit_without_store", {0, 2, -1, -1, ""}, {}, "needs the store's address"},
        Refusal{"torchrun_without_world", {}, {{"RANK", "0"}}, "RANK is set, WORLD_SIZE is not"},
        Refusal{
            "torchrun_without_rank", {}, {{"WORLD_SIZE", "2"}}, "WORLD_SIZE is set, RANK is not"},
        Refusal{"torchrun_outside",
                {},
                kTorchrun + Environment{{"RANK", "4"}},
                "rank 4 in a world of 4"},
        Refusal{"torchrun_no_number",
                {},
                kTorchrun + Environment{{"RANK", "1x"}},
                "RANK expects a small number, got '1x'"},
        Refusal{"torchrun_negative",
                {},
                kTorchrun + Environment{{"RANK", "-1"}},
                "RANK expects a small number, got '-1'"},
        Refusal{"torchrun_local_rank",
                {},
                kTorchrun + Environment{{"LOCAL_RANK", "2"}},
                "local rank 2 with local size 2"},
        Refusal{"torchrun_local_size",
                {},
                kTorchrun + Environment{{"LOCAL_WORLD_SIZE", "5"}},
                "local size 5 in a world of 4"},
        Refusal{"torchrun_without_master",
                {},
                kTorchrun + Environment{{"MASTER_ADDR", ""}},
                "does not tell where rank 0 runs"},
        Refusal{"mpirun_across_hosts",
                {},
                kOpenMpi + Environment{{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                       {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}},
                "set BAGUA_STORE=host:port"},
        Refusal{"bagua_run_without_store",
                {},
                {{"BAGUA_RANK", "0"}, {"BAGUA_WORLD", "2"}},
                "needs the store's address"},
        Refusal{"bagua_store_host",
                {},
                kBaguaRun + Environment{{"BAGUA_STORE_HOST", "me"}},
                "BAGUA_STORE_HOST expects"},
        Refusal{"store_without_port",
                {},
                kTorchrun + Environment{{"BAGUA_STORE", "h"}},
                "BAGUA_STORE expects host:port"},
        Refusal{"store_v6_without_brackets",
                {},
                kTorchrun + Environment{{"BAGUA_STORE", "::1:5"}},
                "BAGUA_STORE expects host:port"}),
    [](const auto &info) { return info.param.name; });

TEST(EnvironmentTest, DerivedPortsAreEqualWithinAJobAndDifferBetweenJobs) {
  auto storeOf = [](const Environment &environment) {
    return resolveLaunch({}, environment).value().store;
  };
  std::string first = storeOf(kTorchrun);
  EXPECT_EQ(first, storeOf(kTorchrun + Environment{{"RANK", "2"}, {"LOCAL_RANK", "0"}}));
  EXPECT_NE(first, storeOf(kTorchrun + Environment{{"MASTER_PORT", "29501"}}));
  EXPECT_NE(first, storeOf(kTorchrun + Environment{{"TORCHELASTIC_RESTART_COUNT", "1"}}));
}

TEST(EnvironmentTest, EveryVariableIsDocumented) {
  for (const EnvironmentVariable &variable : environmentVariables()) {
    EXPECT_THAT(variable.name, testing::StartsWith("BAGUA_"));
    EXPECT_GT(std::string(variable.meaning).size(), 10u);
  }
}

struct WrongValue {
  const char *name, *value, *expected;
};
constexpr const char *kRanks = "a number in [0, 1048576]";
constexpr const char *kCounts = "a number in [1, 1048576]";
constexpr const char *kMilliseconds = "a number in [1, 1000000000000]";
constexpr const char *kLevels =
    "a level (trace, debug, info, warn, error, critical, off), or levels by part (bootstrap, "
    "engine, trace, transport) as in transport:debug,engine:info";
constexpr WrongValue kWrongValues[] = {
    {"BAGUA_RANK", "-1", kRanks},
    {"BAGUA_WORLD", "0", kCounts},
    {"BAGUA_LOCAL_RANK", "1x", kRanks},
    {"BAGUA_LOCAL_SIZE", "many", kCounts},
    {"BAGUA_STORE", "somewhere", "host:port"},
    {"BAGUA_STORE_HOST", "rank1", "one of rank0, launcher"},
    {"BAGUA_BOOTSTRAP_TIMEOUT_MS", "0", kMilliseconds},
    {"BAGUA_STEP_TIMEOUT_MS", "5s", kMilliseconds},
    {"BAGUA_LOG", "nonsense", kLevels},
    {"BAGUA_LOG", "transport:loud", kLevels},
    {"BAGUA_LOG", "transprot:debug", kLevels},
    {"BAGUA_LOG", "warn,:debug", kLevels},
    {"BAGUA_TRANSPORT", "tcp", "one of auto, window, ucx"},
    {"BAGUA_THREADS", "0", "a number in [1, 1024]"},
    {"BAGUA_TRACE_EVENTS", "-5", "a number in [0, 67108864]"},
    {"BAGUA_KERNELS_TARGET", "Z80", "one of "},
    {"BAGUA_LIBRARY", "/no/such.so", "an existing file"},
    {"BAGUA_ALGORITHMS", "/no/such", "an existing folder"},
    {"BAGUA_OPT", "/proc/version", "an executable file"},
    {"BAGUA_CACHE", "/dev/null/cache", "a folder that can be written or made"},
    {"BAGUA_BUCKET_BYTES", "10MB", "a number in [1, 1099511627776]"},
};

TEST(EnvironmentTableTest, negative_WrongValuesAreNamed) {
  for (const WrongValue &wrong : kWrongValues) {
    Status status = checkEnvironment({{wrong.name, wrong.value}});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << wrong.name;
    EXPECT_THAT(
        std::string(status.message()),
        testing::AllOf(testing::StartsWith(std::string(wrong.name) + " expects " + wrong.expected),
                       testing::EndsWith(std::string(", got '") + wrong.value + "'")));
  }
}

TEST(EnvironmentTableTest, EveryVariableHasAWrongValue) {
  // Any text names a job; the trace's file is checked where the rank is known.
  for (const EnvironmentVariable &variable : environmentVariables()) {
    std::string name = variable.name;
    if (name != "BAGUA_JOB" && name != "BAGUA_TRACE_FILE")
      EXPECT_TRUE(std::any_of(std::begin(kWrongValues), std::end(kWrongValues),
                              [&](const WrongValue &wrong) { return wrong.name == name; }))
          << name;
  }
}

TEST(EnvironmentTableTest, RightValuesAreTaken) {
  for (const auto &[name, value] : std::vector<std::pair<std::string, std::string>>{
           {"BAGUA_LOG", "debug"},
           {"BAGUA_LOG", ""},
           {"BAGUA_TRANSPORT", "window"},
           {"BAGUA_TRACE_EVENTS", "0"},
           {"BAGUA_OPT", "/bin/sh"},
           {"BAGUA_CACHE", "/tmp/not/there/yet"},
           {"BAGUA_ALGORITHMS", "/tmp"},
           {"BAGUA_KERNELS_TARGET", std::string(kernels::supportedTargets()[0])},
           {"BAGUA_STORE", "[::1]:80"},
           {"BAGUA_OTHER", "nonsense"},
       })
    EXPECT_TRUE(checkEnvironment({{name, value}}).ok()) << checkEnvironment({{name, value}});
  EXPECT_TRUE(checkEnvironment({{"BAGUA_LOG", "info,transport:debug,engine:off"}}).ok());
}

TEST(EnvironmentTableTest, negative_InitRefusesWrongValues) {
  ::setenv("BAGUA_LOG", "nonsense", 1);
  Group::Options alone;
  alone.rank = 0;
  alone.world = 1;
  StatusOr<std::unique_ptr<Group>> group = Group::create(alone);
  ::unsetenv("BAGUA_LOG");
  ASSERT_FALSE(group.ok());
  EXPECT_THAT(std::string(group.status().message()),
              testing::StartsWith("BAGUA_LOG expects a level"));
}

} // namespace
} // namespace bagua::rt
