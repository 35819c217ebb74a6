// Finds this rank's place in the group: a pure function of the environment and the caller's wishes.
#include "Net.h"
#include "Text.h"
#include "bagua/Bootstrap.h"
#include "bagua/Log.h"
#include "bagua/kernels/Kernels.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <unistd.h>
#include <xxhash.h>

extern char **environ;

namespace bagua::rt {
namespace {

/// Below Linux's ephemeral ports, so that no outgoing connection sits on it.
constexpr uint16_t kDerivedPortMin = 10240, kDerivedPortEnd = 32768;

const std::string *find(const Environment &environment, const char *name) {
  auto found = environment.find(name);
  return found == environment.end() || found->second.empty() ? nullptr : &found->second;
}

std::string valueOr(const Environment &environment, const char *name, const char *otherwise = "") {
  const std::string *value = find(environment, name);
  return value ? *value : otherwise;
}

/// A launcher and its variables. The rows stand in order of precedence.
struct Source {
  const char *name;
  const char *rank, *world, *localRank, *localSize; ///< nullptr: it has no such variable.
  /// Beside rank and world: whether this really is a launched rank.
  bool (*applies)(const Environment &environment);
  std::string (*job)(const Environment &environment);
  /// Host of rank 0, or empty.
  std::string (*host)(const Environment &environment);
};

bool always(const Environment &) { return true; }
std::string masterHost(const Environment &environment) {
  return valueOr(environment, "MASTER_ADDR");
}

std::string baguaJob(const Environment &environment) { return valueOr(environment, "BAGUA_JOB"); }

std::string torchrunJob(const Environment &environment) {
  return cat("torchrun ", valueOr(environment, "TORCHELASTIC_RUN_ID", "none"), " restart ",
             valueOr(environment, "TORCHELASTIC_RESTART_COUNT", "0"), " ",
             valueOr(environment, "MASTER_ADDR"), ":", valueOr(environment, "MASTER_PORT"));
}

std::string openMpiJob(const Environment &environment) {
  const std::string *space = find(environment, "PMIX_NAMESPACE");
  return cat("mpirun ", space ? *space : valueOr(environment, "OMPI_MCA_ess_base_jobid"));
}

std::string pmiJob(const Environment &environment) {
  return cat("mpiexec ", valueOr(environment, "PMI_JOBID"), valueOr(environment, "PMI_ID"), " ",
             valueOr(environment, "HYDI_CONTROL_FD"));
}

std::string slurmJob(const Environment &environment) {
  return cat("slurm ", valueOr(environment, "SLURM_JOB_ID"), ".",
             valueOr(environment, "SLURM_STEP_ID"), " restart ",
             valueOr(environment, "SLURM_RESTART_COUNT", "0"));
}

/// A batch script or an salloc shell has most of Slurm's variables without being a rank.
bool inSlurmStep(const Environment &environment) {
  const std::string *step = find(environment, "SLURM_STEP_ID");
  if (!step || !parseInteger(*step))
    return false;
  std::optional<int64_t> tasks = parseInteger(
      valueOr(environment, "SLURM_STEP_NUM_TASKS", valueOr(environment, "SLURM_NTASKS").c_str()));
  return tasks && *tasks > 1;
}

/// "gpu[003-010,12],login1" begins with gpu003.
std::string firstHost(const std::string &list) {
  size_t end = list.find_first_of("[,");
  if (end == std::string::npos || list[end] == ',')
    return list.substr(0, end);
  size_t numberEnd = list.find_first_of("-,]", end + 1);
  size_t close = list.find(']', end + 1);
  if (numberEnd == std::string::npos || close == std::string::npos)
    return "";
  size_t suffixEnd = list.find_first_of("[,", close + 1);
  return list.substr(0, end) + list.substr(end + 1, numberEnd - end - 1) +
         list.substr(close + 1, suffixEnd == std::string::npos ? suffixEnd : suffixEnd - close - 1);
}

std::string slurmHost(const Environment &environment) {
  if (const std::string *master = find(environment, "MASTER_ADDR"))
    return *master;
  const std::string *list = find(environment, "SLURM_STEP_NODELIST");
  return firstHost(list ? *list : valueOr(environment, "SLURM_JOB_NODELIST"));
}

constexpr Source kSources[] = {
    {"bagua-run's environment", "BAGUA_RANK", "BAGUA_WORLD", "BAGUA_LOCAL_RANK", "BAGUA_LOCAL_SIZE",
     always, baguaJob, [](const Environment &) { return std::string(); }},
    {"torchrun's environment", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", always,
     torchrunJob, masterHost},
    {"Open MPI's environment", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", always, openMpiJob, masterHost},
    {"MVAPICH's environment", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE",
     "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE", always, pmiJob, masterHost},
    {"PMI's environment", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", always,
     pmiJob, masterHost},
    {"Slurm's environment", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr,
     inSlurmStep, slurmJob, slurmHost},
};

constexpr std::string_view kExplicit = "explicit arguments";

struct Place {
  int rank = -1, world = -1, localRank = -1, localSize = -1;
};

Status checkPlace(const Place &place, const std::string &source) {
  auto refuse = [&](const std::string &what) {
    const char *verb = source == kExplicit ? " contradict themselves: " : " contradicts itself: ";
    return absl::InvalidArgumentError(cat(source, verb, what));
  };
  if (place.world < 1)
    return refuse(cat("a world of ", place.world));
  if (place.rank < 0 || place.rank >= place.world)
    return refuse(cat("rank ", place.rank, " in a world of ", place.world));
  if (place.localSize == 0 || place.localSize > place.world)
    return refuse(cat("local size ", place.localSize, " in a world of ", place.world));
  if (place.localRank >= (place.localSize > 0 ? place.localSize : place.world))
    return refuse(cat("local rank ", place.localRank, " with local size ",
                      place.localSize > 0 ? place.localSize : place.world));
  return absl::OkStatus();
}

/// Nothing if the source is absent.
StatusOr<std::optional<Place>> readPlace(const Source &source, const Environment &environment) {
  if (!source.applies(environment))
    return std::optional<Place>();
  bool slurm = std::strcmp(source.rank, "SLURM_PROCID") == 0;
  const char *worldName = slurm && !find(environment, source.world) ? "SLURM_NTASKS" : source.world;
  const std::string *rank = find(environment, source.rank), *world = find(environment, worldName);
  if (!rank && !world) {
    // Variables that only Bagua knows can mean nothing else.
    for (const char *name : {source.localRank, source.localSize})
      if (source.job == baguaJob && find(environment, name))
        return absl::InvalidArgumentError(cat(source.name, " contradicts itself: ", name, " is '",
                                              *find(environment, name), "', but ", source.rank,
                                              " and ", source.world, " are not set"));
    return std::optional<Place>();
  }
  if (!rank || !world)
    return absl::InvalidArgumentError(cat(source.name,
                                          " contradicts itself: ", rank ? source.rank : worldName,
                                          " is set, ", rank ? worldName : source.rank, " is not"));
  Place place;
  auto read = [&](const char *name, int &target) -> Status {
    const std::string *text = name ? find(environment, name) : nullptr;
    if (!text)
      return absl::OkStatus();
    std::optional<int64_t> value = parseInteger(*text);
    if (!value || *value < 0 || *value > (1 << 20))
      return absl::InvalidArgumentError(
          cat(source.name, ": ", name, " expects a small number, got '", *text, "'"));
    target = static_cast<int>(*value);
    return absl::OkStatus();
  };
  BAGUA_TRY(read(source.rank, place.rank));
  BAGUA_TRY(read(worldName, place.world));
  BAGUA_TRY(read(source.localRank, place.localRank));
  BAGUA_TRY(read(source.localSize, place.localSize));
  BAGUA_TRY(checkPlace(place, source.name));
  return std::optional<Place>(place);
}

uint16_t derivedPort(const std::string &job, const Environment &environment) {
  uint16_t port = static_cast<uint16_t>(kDerivedPortMin + XXH3_64bits(job.data(), job.size()) %
                                                              (kDerivedPortEnd - kDerivedPortMin));
  // Never the launcher's own.
  if (valueOr(environment, "MASTER_PORT") == std::to_string(port))
    port = port + 1 < kDerivedPortEnd ? port + 1 : kDerivedPortMin;
  return port;
}

/// Where the store is, once rank and world are known.
Status findStore(Launch &launch, const LaunchRequest &request, const Environment &environment,
                 const Source *source) {
  std::string variable = valueOr(environment, "BAGUA_STORE");
  std::string host = valueOr(environment, "BAGUA_STORE_HOST", "rank0");
  if (host != "rank0" && host != "launcher")
    return absl::InvalidArgumentError(
        cat("BAGUA_STORE_HOST expects 'rank0' or 'launcher', got '", host, "'"));
  if (!source && launch.source != kExplicit && !(request.store + variable).empty())
    return absl::InvalidArgumentError(
        request.store.empty()
            ? cat("BAGUA_STORE is '", variable,
                  "', but nothing tells this process's rank: set BAGUA_RANK and BAGUA_WORLD")
            : cat("option store is '", request.store,
                  "', but nothing tells this process's rank: pass rank and world"));
  if (!request.store.empty() || !variable.empty()) {
    launch.store = request.store.empty() ? variable : request.store;
    // Another address than the launcher's is the caller's own business.
    launch.hostsStore = host == "rank0" || launch.store != variable;
    return net::parseHostPort(launch.store, request.store.empty() ? "BAGUA_STORE" : "option store")
        .status();
  }
  if (source && source->job != baguaJob)
    if (const std::string *port = find(environment, "MASTER_PORT")) {
      std::optional<int64_t> value = parseInteger(*port);
      if (!value || *value < 1 || *value > 65535)
        return absl::InvalidArgumentError(
            cat(source->name, ": MASTER_PORT expects a port in [1, 65535], got '", *port, "'"));
    }
  if (launch.world == 1)
    return absl::OkStatus();
  if (!source || source->job == baguaJob)
    return absl::InvalidArgumentError(
        cat(launch.source, ": a world of ", launch.world,
            " needs the store's address: pass store or set BAGUA_STORE=host:port of rank 0"));
  std::string address = source->host(environment);
  if (address.empty() && launch.localSize == launch.world)
    address = "127.0.0.1";
  if (address.empty())
    return absl::InvalidArgumentError(
        cat(launch.source, " does not tell where rank 0 runs: set BAGUA_STORE=host:port "
                           "(or MASTER_ADDR) on every rank"));
  launch.store = net::HostPort{address, derivedPort(launch.job, environment)}.text();
  return absl::OkStatus();
}

} // namespace

Environment processEnvironment() {
  Environment environment;
  for (char **entry = environ; entry && *entry; ++entry)
    if (const char *equals = std::strchr(*entry, '='))
      environment.emplace(std::string(*entry, static_cast<size_t>(equals - *entry)), equals + 1);
  return environment;
}

StatusOr<Launch> resolveLaunch(const LaunchRequest &request, const Environment &environment) {
  Launch launch;
  Place place;
  const Source *chosen = nullptr;
  if (request.rank >= 0 || request.world >= 0) {
    if (request.rank < 0 || request.world < 0)
      return absl::InvalidArgumentError(
          cat("explicit arguments give ",
              request.rank >= 0 ? "a rank but no world" : "a world but no rank"));
    place = {request.rank, request.world, request.localRank, request.localSize};
    launch.source = kExplicit;
    BAGUA_TRY(checkPlace(place, launch.source));
    launch.job = baguaJob(environment);
  } else {
    for (const Source &source : kSources) {
      BAGUA_ASSIGN(std::optional<Place> found, readPlace(source, environment));
      if (!found)
        continue;
      chosen = &source;
      place = *found;
      launch.source = source.name;
      launch.job = source.job(environment);
      break;
    }
    if (!chosen) {
      place.rank = 0;
      place.world = 1;
      launch.source = "no launcher: alone";
    }
    if (request.localRank >= 0)
      place.localRank = request.localRank;
    if (request.localSize >= 0)
      place.localSize = request.localSize;
    BAGUA_TRY(checkPlace(place, launch.source));
  }
  launch.rank = place.rank;
  launch.world = place.world;
  launch.localRank = place.localRank;
  launch.localSize = place.localSize;
  // Sources further out, and for explicit arguments every source. Silent where they say the same.
  for (const Source &source : kSources) {
    if (chosen && &source <= chosen)
      continue;
    StatusOr<std::optional<Place>> other = readPlace(source, environment);
    if (!other.ok() || !*other || (*other)->world == 1)
      continue;
    if ((*other)->rank != place.rank || (*other)->world != place.world)
      launch.notes.push_back(cat(source.name, " (rank ", (*other)->rank, " of ", (*other)->world,
                                 ") is ignored: rank ", place.rank, " of ", place.world,
                                 " comes from ", launch.source));
  }
  BAGUA_TRY(findStore(launch, request, environment, chosen));
  return launch;
}

namespace {

constexpr int64_t kRanksMax = 1 << 20;
constexpr int64_t kTimeoutMsMax = 1'000'000'000'000; ///< Still fits when counted in nanoseconds.

std::string anything(const std::string &) { return ""; }

template <int64_t min, int64_t max> std::string number(const std::string &value) {
  std::optional<int64_t> got = parseInteger(value);
  return got && *got >= min && *got <= max ? "" : cat("a number in [", min, ", ", max, "]");
}

std::string oneOf(const std::vector<std::string> &names, const std::string &value) {
  return std::find(names.begin(), names.end(), value) != names.end()
             ? ""
             : cat("one of ", joinWith(names, ", "));
}

std::string hostPort(const std::string &value) {
  return net::parseHostPort(value, "BAGUA_STORE").ok() ? "" : "host:port";
}

std::string storeHost(const std::string &value) { return oneOf({"rank0", "launcher"}, value); }

std::string transport(const std::string &value) { return oneOf({"auto", "window", "ucx"}, value); }

std::string kernelsTarget(const std::string &value) {
  auto targets = kernels::supportedTargets();
  return oneOf({targets.begin(), targets.end()}, value);
}

std::string file(const std::string &value) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(value, ignored) ? "" : "an existing file";
}

std::string program(const std::string &value) {
  return file(value).empty() && ::access(value.c_str(), X_OK) == 0 ? "" : "an executable file";
}

std::string folder(const std::string &value) {
  std::error_code ignored;
  return std::filesystem::is_directory(value, ignored) ? "" : "an existing folder";
}

/// What is missing of it is made at first use.
std::string writableFolder(const std::string &value) {
  std::error_code error;
  std::filesystem::path path = std::filesystem::absolute(value, error).lexically_normal();
  while (!std::filesystem::exists(path, error) && path.has_relative_path())
    path = path.parent_path();
  return std::filesystem::is_directory(path, error) && ::access(path.c_str(), W_OK | X_OK) == 0
             ? ""
             : "a folder that can be written or made";
}

constexpr EnvironmentVariable kVariables[] = {
    {"BAGUA_RANK", "unset", "this process's rank; set by bagua-run", number<0, kRanksMax>},
    {"BAGUA_WORLD", "unset", "number of ranks; set by bagua-run", number<1, kRanksMax>},
    {"BAGUA_LOCAL_RANK", "unset", "rank among the ranks of this host; set by bagua-run",
     number<0, kRanksMax>},
    {"BAGUA_LOCAL_SIZE", "unset", "number of ranks on this host; set by bagua-run",
     number<1, kRanksMax>},
    {"BAGUA_STORE", "unset", "host:port of the group's store; else derived from the launcher",
     hostPort},
    {"BAGUA_STORE_HOST", "rank0", "who listens at BAGUA_STORE: rank0 or launcher", storeHost},
    {"BAGUA_JOB", "unset", "name that keeps jobs apart which meet at one address; set by bagua-run",
     anything},
    {"BAGUA_BOOTSTRAP_TIMEOUT_MS", "300000", "longest wait for all ranks to join, in milliseconds",
     number<1, kTimeoutMsMax>},
    {"BAGUA_STEP_TIMEOUT_MS", "300000", "longest wait for one peer, in milliseconds",
     number<1, kTimeoutMsMax>},
    {"BAGUA_LOG", "warn", "log level, or levels by part: transport:debug,bootstrap:info",
     logLevelsExpected},
    {"BAGUA_TRANSPORT", "auto", "transport between ranks: auto, window, ucx", transport},
    {"BAGUA_THREADS", "cores/ranks", "threads that run kernels, per rank", number<1, 1024>},
    // Checked at init, when the rank in its name is known: see checkTraceFile.
    {"BAGUA_TRACE_FILE", "unset",
     "where each rank writes its Chrome trace at shutdown; %r is the rank, put before the "
     "extension if it is missing and there are several",
     anything},
    {"BAGUA_TRACE_EVENTS", "65536", "events of the trace that each rank keeps",
     number<0, int64_t{1} << 26>},
    {"BAGUA_KERNELS_TARGET", "best", "instruction-set target of the kernels, for tests",
     kernelsTarget},
    {"BAGUA_LIBRARY", "installed", "Python: the runtime library to load", file},
    {"BAGUA_ALGORITHMS", "installed", "Python: folder of compiled algorithms that names stand for",
     folder},
    {"BAGUA_OPT", "installed", "Python: the compiler that .mlir algorithms are given to", program},
    {"BAGUA_CACHE", "~/.cache", "Python: folder of schedules that were compiled from .mlir",
     writableFolder},
    {"BAGUA_BUCKET_BYTES", "10485760", "Python: size of a bucket", number<1, int64_t{1} << 40>},
};

} // namespace

std::span<const EnvironmentVariable> environmentVariables() { return kVariables; }

Status checkVariable(const EnvironmentVariable &variable, const std::string &value) {
  std::string expected = value.empty() ? "" : variable.expected(value);
  if (expected.empty())
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      cat(variable.name, " expects ", expected, ", got '", value, "'"));
}

Status checkEnvironment(const Environment &environment) {
  for (const EnvironmentVariable &variable : kVariables)
    if (const std::string *value = find(environment, variable.name))
      BAGUA_TRY(checkVariable(variable, *value));
  return absl::OkStatus();
}

StatusOr<int64_t> environmentNumber(const char *name, int64_t otherwise) {
  const char *text = std::getenv(name);
  if (!text || !*text)
    return otherwise;
  for (const EnvironmentVariable &variable : kVariables)
    if (std::strcmp(variable.name, name) == 0)
      BAGUA_TRY(checkVariable(variable, text));
  return *parseInteger(text);
}

} // namespace bagua::rt
