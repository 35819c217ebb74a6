// bagua-run: launches ranks on this host, runs a schedule, or interprets one.
#include "Launcher.h"
#include "RunSchedule.h"

#include <CLI/CLI.hpp>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

constexpr int kUsage = 2; ///< Exit code where the command line is wrong.

int refuse(const std::string &message) {
  std::fprintf(stderr, "bagua-run: %s\n", message.c_str());
  return kUsage;
}

/// The folder of this program, where the other tools lie as well.
std::filesystem::path toolsFolder() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
}

/// Becomes the tool. Returns the exit code if that fails.
int execute(std::vector<std::string> words) {
  std::vector<char *> pointers;
  for (std::string &word : words)
    pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::execv(pointers[0], pointers.data());
  std::fprintf(stderr, "bagua-run: cannot execute %s: %s%s\n", pointers[0], std::strerror(errno),
               errno == ENOENT ? " (this installation was built without the compiler)" : "");
  return 127;
}

/// Replaces this process by the interpreter, which is a binary of its own because it needs MLIR.
int interpret(const std::string &level, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {toolsFolder() / "bagua-interpret", "--level=" + level});
  return execute(std::move(arguments));
}

/// Compiles `source` into memory. `schedule` becomes a path that lives as long as this process.
/// Returns the compiler's exit code; it has said why.
int compile(const std::string &source, std::string &schedule) {
  int memory = ::memfd_create("bagua-schedule", MFD_CLOEXEC);
  pid_t pid = memory < 0 ? -1 : ::fork();
  if (pid < 0) {
    std::fprintf(stderr, "bagua-run: cannot compile %s: %s\n", source.c_str(),
                 std::strerror(errno));
    return 1;
  }
  if (pid == 0) {
    ::dup2(memory, STDOUT_FILENO);
    ::_exit(execute({toolsFolder() / "bagua-opt", "--emit=schedule", source}));
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  schedule = "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(memory);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

} // namespace

int main(int argc, char **argv) {
  if (argc > 1 && std::strcmp(argv[1], bagua::run::kScheduleRankFlag) == 0)
    return bagua::run::runScheduleRank({argv + 2, argv + argc});
  CLI::App app(
      "Launches ranks on this host (bagua-run -n 4 -- python3 train.py), runs a schedule on "
      "local processes (bagua-run -n 4 my.bsched --length 1000, or my.mlir), or interprets an "
      "algorithm "
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
      "fails, or 128 + the signal; 2 if the command line is wrong.");
  app.prefix_command(); // Everything from the first word that is no option of ours.
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError &error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  options.grace = std::chrono::milliseconds(graceMs);
  options.termination = std::chrono::milliseconds(terminationMs);
  std::vector<std::string> rest = app.remaining();
  if (!rest.empty() && rest.front() == "--")
    rest.erase(rest.begin());
  else if (!rest.empty() && rest.front().starts_with("-") && interpreting->count() == 0)
    return refuse("unknown option " + rest.front() +
                  ": bagua-run --help lists those there are; a command follows --");
  if (interpreting->count() > 0) {
    for (const std::string &word : rest)
      if (word.ends_with(".bsched"))
        return refuse("--interpret expects an algorithm (.mlir), got the schedule file " + word +
                      ": `bagua-run -n N " + word + "` runs it");
    return interpret(level, std::move(rest));
  }
  if (rest.empty())
    return refuse("expects a command: bagua-run -n 4 -- python3 train.py");
  const std::string file = rest.front();
  if (file.ends_with(".bsched") || file.ends_with(".mlir")) {
    if (!std::filesystem::is_regular_file(file))
      return refuse(std::string("no ") + (file.ends_with(".mlir") ? "algorithm" : "schedule") +
                    " file " + file);
    int code = 0;
    if (bagua::run::checkScheduleArguments(rest, code))
      return code == 0 ? 0 : kUsage;
    if (file.ends_with(".mlir"))
      if (int failed = compile(file, rest.front()))
        return failed;
    rest.insert(rest.begin(), {toolsFolder() / "bagua-run", bagua::run::kScheduleRankFlag});
  }
  options.command = std::move(rest);
  return bagua::run::launch(options);
}
