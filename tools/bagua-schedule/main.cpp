// bagua-schedule: dump, diff, check schedule files.
#include "Diff.h"
#include "Dump.h"

#include "bagua/compiler/Checker.h"

#include <CLI/CLI.hpp>

#include <cstdio>
#include <optional>

namespace {

using bagua::rt::Schedule;

constexpr int kBad =
    2; ///< A file or an option that cannot be used; 1 is "differs" or "has findings".

std::shared_ptr<const Schedule> load(const std::string &path) {
  auto schedule = Schedule::fromFile(path);
  if (schedule.ok())
    return *std::move(schedule);
  std::fprintf(stderr, "bagua-schedule: %s\n", std::string(schedule.status().message()).c_str());
  return nullptr;
}

struct DumpArguments {
  std::vector<std::string> files;
  std::optional<int64_t> world;
  int64_t rank = 0, length = 1000;
  bool isF64 = false;
};

int dump(const DumpArguments &arguments) {
  int result = 0;
  for (const std::string &file : arguments.files) {
    auto schedule = load(file);
    if (!schedule) {
      result = kBad;
      continue;
    }
    if (!arguments.world) {
      std::fputs(bagua::tools::dump(*schedule).c_str(), stdout);
      continue;
    }
    bagua::rt::BindValues values;
    values.world = values.localSize = *arguments.world;
    values.rank = values.localRank = arguments.rank;
    values.length = arguments.length;
    values.dtype = arguments.isF64 ? bagua::fb::DType::F64 : bagua::fb::DType::F32;
    auto text = bagua::tools::dumpExpanded(*schedule, values);
    if (text.ok()) {
      std::fputs(text->c_str(), stdout);
    } else {
      std::fprintf(stderr, "bagua-schedule: %s: %s\n", file.c_str(),
                   std::string(text.status().message()).c_str());
      result = kBad;
    }
  }
  return result;
}

int diff(const std::string &first, const std::string &second,
         const bagua::tools::DiffOptions &options) {
  auto a = load(first), b = load(second);
  if (!a || !b)
    return kBad;
  std::vector<std::string> lines = bagua::tools::diff(a->ir(), b->ir(), options);
  for (const std::string &line : lines)
    std::printf("%s\n", line.c_str());
  return lines.empty() ? 0 : 1;
}

int check(const std::vector<std::string> &files, const bagua::compiler::CheckOptions &options) {
  int result = 0;
  for (const std::string &file : files) {
    auto schedule = load(file);
    if (!schedule) {
      result = kBad;
      continue;
    }
    auto report = bagua::compiler::check(*schedule, options);
    if (!report.ok()) {
      std::fprintf(stderr, "bagua-schedule: %s\n", std::string(report.status().message()).c_str());
      return kBad;
    }
    for (const bagua::compiler::Finding &finding : report->findings)
      std::printf("%s: %s\n", file.c_str(), finding.text().c_str());
    if (!report->findings.empty())
      result = std::max(result, 1);
    else
      std::printf("%s: no findings in %zu cases\n", file.c_str(), report->cases);
    if (report->casesWithoutRaces != 0)
      std::printf("%s: %zu cases were too large to look for races (B120)\n", file.c_str(),
                  report->casesWithoutRaces);
  }
  return result;
}

int run(int argc, char **argv) {
  CLI::App app(
      "Reads schedule files (.bsched).\nExit status: 0 all right, 1 differences or findings, "
      "2 a file or an option that cannot be used.");
  app.require_subcommand(1);

  DumpArguments dumpArguments;
  CLI::App *dumpCommand = app.add_subcommand("dump", "Writes schedules as text");
  dumpCommand->add_option("FILE", dumpArguments.files, "Schedule files")->required();
  dumpCommand->add_option("--world", dumpArguments.world,
                          "Write the unrolled steps of one rank of a world of this size");
  dumpCommand->add_option("--rank", dumpArguments.rank, "With --world: the rank")
      ->capture_default_str();
  dumpCommand->add_option("--length", dumpArguments.length, "With --world: elements in the bucket")
      ->capture_default_str();
  dumpCommand->add_flag("--f64", dumpArguments.isF64, "With --world: a bucket of f64, not f32");

  std::string first, second;
  bagua::tools::DiffOptions diffOptions;
  CLI::App *diffCommand = app.add_subcommand("diff", "Says by name where two schedules differ");
  diffCommand->add_option("A", first, "A schedule file")->required();
  diffCommand->add_option("B", second, "Another one")->required();
  diffCommand->add_flag("--ignore-locations", diffOptions.ignoreLocations,
                        "Do not compare source lines and producers");
  diffCommand->add_option("--max", diffOptions.differencesMax, "Differences to tell")
      ->capture_default_str();

  std::vector<std::string> checkFiles;
  bagua::compiler::CheckOptions checkOptions;
  CLI::App *checkCommand = app.add_subcommand(
      "check", "Proves pairing (B101, B102), bytes (B103), waits (B110), races (B120)");
  checkCommand->add_option("FILE", checkFiles, "Schedule files")->required();
  checkCommand
      ->add_option("--world-max", checkOptions.worldMax, "Look at all worlds up to this size")
      ->capture_default_str();
  checkCommand->add_option("--world", checkOptions.worlds, "Look at this world too (up to 256)")
      ->allow_extra_args(false);
  checkCommand
      ->add_option("--length", checkOptions.lengths,
                   "A bucket length, instead of the ones around the grain and a prime")
      ->allow_extra_args(false);
  checkCommand
      ->add_option("--step", checkOptions.steps, "A training step, where programs depend on it")
      ->allow_extra_args(false);
  checkCommand->add_option("--max", checkOptions.findingsMax, "Findings to tell")
      ->capture_default_str();

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError &error) {
    return app.exit(error) == 0 ? 0 : kBad;
  }
  if (*dumpCommand)
    return dump(dumpArguments);
  if (*diffCommand)
    return diff(first, second, diffOptions);
  return check(checkFiles, checkOptions);
}

} // namespace

int main(int argc, char **argv) {
  int result = run(argc, argv);
  // A full disk or a closed pipe must not look like success.
  if (std::fflush(stdout) != 0 && result == 0)
    return kBad;
  return result;
}
