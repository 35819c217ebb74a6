// bagua-info: what this machine and this installation are, and every environment variable.
#include "bagua/Bootstrap.h"
#include "bagua/Trace.h"
#include "bagua/bagua.h"
#include "bagua/kernels/Kernels.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <arpa/inet.h>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <fstream>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <string>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

void row(const std::string &name, const std::string &value) {
  fmt::print("  {:<22}{}\n", name, value);
}

/// A library's version, asked of the library that would be loaded. Stays loaded: this process is
/// short.
template <typename Ask> std::string libraryVersion(const char *file, Ask ask) {
  void *library = ::dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return "not found";
  return ask([&](const char *symbol) { return ::dlsym(library, symbol); });
}

std::string ucxVersion() {
  ::setenv("UCX_MEM_MMAP_HOOK_MODE", "none", 0); // As the transport: else it patches this process.
  return libraryVersion("libucp.so.0", [](auto find) -> std::string {
    auto version = reinterpret_cast<const char *(*)()>(find("ucp_get_version_string"));
    return version ? version() : "unknown";
  });
}

std::string tbbVersion() {
  return libraryVersion("libtbb.so.12", [](auto find) -> std::string {
    auto version = reinterpret_cast<const char *(*)()>(find("TBB_runtime_version"));
    return version ? version() : "unknown";
  });
}

std::string cudaVersion() {
  return libraryVersion("libcuda.so.1", [](auto find) -> std::string {
    auto version = reinterpret_cast<int (*)(int *)>(find("cuDriverGetVersion"));
    int number = 0;
    if (!version || version(&number) != 0)
      return "unknown";
    return fmt::format("{}.{}", number / 1000, number % 1000 / 10);
  });
}

std::string ncclVersion() {
  return libraryVersion("libnccl.so.2", [](auto find) -> std::string {
    auto version = reinterpret_cast<int (*)(int *)>(find("ncclGetVersion"));
    int number = 0;
    if (!version || version(&number) != 0)
      return "unknown";
    return fmt::format("{}.{}.{}", number / 10000, number % 10000 / 100, number % 100);
  });
}

void printVersions() {
  fmt::print("Versions\n");
  row("bagua", bagua_version());
  row("oneTBB", tbbVersion());
  row("UCX", ucxVersion());
  row("CUDA driver", cudaVersion());
  row("NCCL", ncclVersion());
  std::vector<std::string> targets;
  for (std::string_view target : bagua::kernels::supportedTargets())
    targets.emplace_back(target);
  row("kernel targets", fmt::format("{}", fmt::join(targets, " ")));
}

std::string limitText(int resource, double unit, const char *name) {
  rlimit limit{};
  ::getrlimit(static_cast<__rlimit_resource>(resource), &limit);
  return limit.rlim_cur == RLIM_INFINITY
             ? "unlimited"
             : fmt::format("{:.0f}{}", static_cast<double>(limit.rlim_cur) / unit, name);
}

void printMachine() {
  utsname system{};
  ::uname(&system);
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  ::sched_getaffinity(0, sizeof(allowed), &allowed);
  std::string memory = "unknown";
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("MemAvailable:"))
      memory =
          fmt::format("{:.1f} GiB", static_cast<double>(std::atoll(line.c_str() + 13)) / (1 << 20));
  fmt::print("\nMachine\n");
  row("host", system.nodename);
  row("kernel", fmt::format("{} {} {}", system.sysname, system.release, system.machine));
  row("cores",
      fmt::format("{} usable of {}", CPU_COUNT(&allowed), std::thread::hardware_concurrency()));
  row("memory available", memory);
  row("open files", limitText(RLIMIT_NOFILE, 1, ""));
  row("locked memory", limitText(RLIMIT_MEMLOCK, 1 << 20, " MiB"));
}

void printInterfaces() {
  fmt::print("\nNetwork interfaces\n");
  ifaddrs *list = nullptr;
  if (::getifaddrs(&list) != 0)
    return row("unknown", "");
  for (const ifaddrs *entry = list; entry; entry = entry->ifa_next) {
    if (!entry->ifa_addr || !(entry->ifa_flags & IFF_UP))
      continue;
    char text[INET6_ADDRSTRLEN] = {};
    if (entry->ifa_addr->sa_family == AF_INET)
      ::inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in *>(entry->ifa_addr)->sin_addr, text,
                  sizeof(text));
    else if (entry->ifa_addr->sa_family == AF_INET6)
      ::inet_ntop(AF_INET6, &reinterpret_cast<sockaddr_in6 *>(entry->ifa_addr)->sin6_addr, text,
                  sizeof(text));
    else
      continue;
    row(entry->ifa_name, text);
  }
  ::freeifaddrs(list);
}

/// Returns whether every value is right.
bool printEnvironment() {
  const bagua::rt::Environment environment = bagua::rt::processEnvironment();
  std::vector<std::string> wrong;
  auto keep = [&](const bagua::rt::Status &status) {
    if (!status.ok())
      wrong.emplace_back(status.message());
  };
  fmt::print("Environment variables\n  {:<28}{:<12}{:<20}{}\n", "name", "default", "value",
             "meaning");
  for (const auto &variable : bagua::rt::environmentVariables()) {
    auto found = environment.find(variable.name);
    std::string value = found == environment.end() ? "" : found->second;
    fmt::print("  {:<28}{:<12}{:<20}{}\n", variable.name, variable.otherwise,
               found == environment.end() ? "-" : value, variable.meaning);
    keep(bagua::rt::checkVariable(variable, value));
  }
  fmt::print("\nThis process's place\n");
  bagua::rt::StatusOr<bagua::rt::Launch> launch = bagua::rt::resolveLaunch({}, environment);
  if (!launch.ok()) {
    keep(launch.status());
    launch = bagua::rt::Launch();
  } else {
    row("rank", fmt::format("{} of {}, from {}", launch->rank, launch->world, launch->source));
    if (!launch->store.empty())
      row("store", fmt::format("{}, hosted by {}", launch->store,
                               launch->hostsStore ? "rank 0" : "the launcher"));
    for (const std::string &note : launch->notes)
      row("note", note);
  }
  if (auto trace = environment.find("BAGUA_TRACE_FILE");
      trace != environment.end() && !trace->second.empty())
    keep(bagua::rt::checkTraceFile(
        bagua::rt::tracePath(trace->second, launch->rank, launch->world)));
  if (!wrong.empty())
    fmt::print("\nWrong\n");
  for (const std::string &message : wrong)
    fmt::print("  {}\n", message);
  return wrong.empty();
}

} // namespace

int main(int argc, char **argv) {
  CLI::App app("Shows versions, the machine, and every environment variable of Bagua.",
               "bagua-info");
  bool environmentOnly = false;
  app.add_flag("--env", environmentOnly, "Only the environment variables");
  app.footer("Exit status: 0 all right, 1 a variable has a wrong value, 2 bad options.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError &error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (!environmentOnly) {
    printVersions();
    printMachine();
    printInterfaces();
    fmt::print("\n");
  }
  return printEnvironment() ? 0 : 1;
}
