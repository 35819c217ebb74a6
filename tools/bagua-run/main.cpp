// bagua-run: launches ranks on this host, runs a schedule, or interprets one.
#include "Launcher.h"
#include "RunSchedule.h"

#include <CLI/CLI.hpp>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <unistd.h>

namespace {

/// Replaces this process by the interpreter, which is a binary of its own because it needs MLIR.
int interpret(const std::string &level, std::vector<std::string> arguments) {
  std::error_code error;
  std::string path =
      std::filesystem::read_symlink("/proc/self/exe", error).parent_path() / "bagua-interpret";
  arguments.insert(arguments.begin(), {path, "--level=" + level});
  std::vector<char *> words;
  for (std::string &argument : arguments)
    words.push_back(argument.data());
  words.push_back(nullptr);
  ::execv(path.c_str(), words.data());
  std::fprintf(stderr, "bagua-run: cannot execute %s: %s%s\n", path.c_str(), std::strerror(errno),
               errno == ENOENT ? " (this installation was built without the compiler)" : "");
  return 127;
}

} // namespace

int main(int argc, char **argv) {
  if (argc > 1 && std::strcmp(argv[1], bagua::run::kScheduleRankFlag) == 0)
    return bagua::run::runScheduleRank({argv + 2, argv + argc});
  CLI::App app(
      "Launches ranks on this host (bagua-run -n 4 -- python3 train.py), runs a schedule on "
      "local processes (bagua-run -n 4 my.bsched --length 1000), or interprets an algorithm "
      "with virtual ranks (bagua-run --interpret=bagua my.mlir ...).",
      "bagua-run");
  bagua::run::LaunchOptions options;
  std::string level;
  int64_t graceMs = options.grace.count(), terminationMs = options.termination.count();
  app.add_option("-n,--ranks", options.ranks, "Number of ranks")->check(CLI::Range(1, 1024));
  app.add_flag("--prefix", options.prefix,
               "Begin each output line with its rank (sets PYTHONUNBUFFERED=1)");
  app.add_option("--grace-ms", graceMs,
                 "When a rank fails or a signal comes, the ranks have so long to end by themselves")
      ->check(CLI::Range(0, 3'600'000))
      ->capture_default_str();
  app.add_option("--termination-ms", terminationMs, "Then so long after SIGTERM, before SIGKILL")
      ->check(CLI::Range(0, 3'600'000))
      ->capture_default_str();
  CLI::Option *interpreting =
      app.add_option(
             "--interpret", level,
             "Interpret at this level, in one process: bagua, chunk or sched; further arguments "
             "go to bagua-interpret")
          ->check(CLI::IsMember({"bagua", "chunk", "sched"}));
  app.footer(
      "Ranks find BAGUA_RANK, BAGUA_WORLD, BAGUA_LOCAL_RANK, BAGUA_LOCAL_SIZE, BAGUA_STORE, "
      "RANK, WORLD_SIZE,\nLOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, and "
      "OMP_NUM_THREADS (cores / ranks unless set).\nThe exit code is that of the first rank that "
      "fails, or 128 + the signal.");
  app.prefix_command(); // Everything from the first word that is no option of ours.
  CLI11_PARSE(app, argc, argv);
  options.grace = std::chrono::milliseconds(graceMs);
  options.termination = std::chrono::milliseconds(terminationMs);
  std::vector<std::string> rest = app.remaining();
  if (!rest.empty() && rest.front() == "--")
    rest.erase(rest.begin());
  if (interpreting->count() > 0)
    return interpret(level, std::move(rest));
  if (rest.empty()) {
    std::fprintf(stderr, "bagua-run: expects a command: bagua-run -n 4 -- python3 train.py\n");
    return 2;
  }
  if (rest.front().ends_with(".bsched")) {
    int code = 0;
    if (bagua::run::checkScheduleArguments(rest, code))
      return code;
    std::error_code error;
    std::string self = std::filesystem::read_symlink("/proc/self/exe", error);
    rest.insert(rest.begin(), {self, bagua::run::kScheduleRankFlag});
  }
  options.command = std::move(rest);
  return bagua::run::launch(options);
}
