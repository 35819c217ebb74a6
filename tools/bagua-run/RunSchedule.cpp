// One rank of a schedule run on real processes, with the interpreters' inputs.
#include "RunSchedule.h"

#include "bagua/bagua.hpp"
#include "bagua/compiler/InputGenerator.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <memory>

namespace bagua::run {
namespace {

struct Arguments {
  std::string file, dtype = "f32", fill = "normal";
  int64_t length = 1000, step = 0;
  uint64_t seed = 1;
};

/// What every rank tells the others: two hashes and the payload bytes it sent.
struct RankResult {
  uint64_t gradient = 0, weight = 0, wireBytes = 0;
};

std::unique_ptr<CLI::App> makeParser(Arguments &arguments) {
  auto app =
      std::make_unique<CLI::App>("Runs one step of a schedule on local processes and prints what "
                                 "bagua-interpret prints.",
                                 "bagua-run -n N");
  app->add_option("file", arguments.file, "The schedule (.bsched) or algorithm (.mlir)")
      ->required();
  app->add_option("--length", arguments.length, "Elements in the bucket")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 32))
      ->capture_default_str();
  app->add_option("--dtype", arguments.dtype, "Element type of the bucket")
      ->check(CLI::IsMember({"f32", "f64"}))
      ->capture_default_str();
  app->add_option("--step", arguments.step, "Number of the step")
      ->check(CLI::Range(int64_t{0}, INT64_MAX))
      ->capture_default_str();
  app->add_option("--seed", arguments.seed, "Of the generated inputs")->capture_default_str();
  app->add_option("--fill", arguments.fill, "Kind of generated inputs")
      ->check(CLI::IsMember({"exact", "normal", "edge"}))
      ->capture_default_str();
  return app;
}

/// CLI11 wants them in reverse.
std::vector<std::string> reversed(const std::vector<std::string> &arguments) {
  return {arguments.rbegin(), arguments.rend()};
}

compiler::Fill fillOf(const std::string &name) {
  return name == "exact"  ? compiler::Fill::Exact
         : name == "edge" ? compiler::Fill::Edge
                          : compiler::Fill::Normal;
}

template <typename Element> void fill(Memory &memory, const Arguments &arguments, uint64_t stream) {
  Element *elements = memory.as<Element>();
  for (int64_t i = 0; i < arguments.length; ++i)
    elements[i] = static_cast<Element>(compiler::generatedElement(
        arguments.seed, stream, static_cast<uint64_t>(i), fillOf(arguments.fill)));
}

uint64_t hashOf(const Memory &memory, size_t bytes) {
  return compiler::fnv1a({memory.as<const std::byte>(), bytes});
}

/// Whether no rank's gradient holds a NaN or an infinity.
bool everyGradientIsFinite(Context &context, const Memory &gradient, int64_t length,
                           bagua_dtype dtype) {
  int finite = 0;
  check(bagua_all_finite(gradient.data(), length, dtype, &finite));
  bool all = true;
  for (int rank = 0; rank < context.world(); ++rank) {
    int ofRank = finite;
    context.broadcast(&ofRank, sizeof(ofRank), rank);
    all = all && ofRank != 0;
  }
  return all;
}

int runRank(const Arguments &arguments) {
  Context context;
  Schedule schedule = Schedule::load(arguments.file);
  auto info = nlohmann::json::parse(schedule.info());
  bagua_dtype dtype = arguments.dtype == "f32" ? BAGUA_F32 : BAGUA_F64;
  size_t elementBytes = dtype == BAGUA_F32 ? sizeof(float) : sizeof(double);
  size_t bytes = static_cast<size_t>(arguments.length) * elementBytes;
  Memory gradient = context.allocate(std::max<size_t>(bytes, 1));
  Memory weight = context.allocate(std::max<size_t>(bytes, 1));
  auto stream = static_cast<uint64_t>(context.rank()) * 2;
  for (auto [memory, offset] : {std::pair{&gradient, 0u}, {&weight, 1u}}) {
    if (dtype == BAGUA_F32)
      fill<float>(*memory, arguments, stream + offset);
    else
      fill<double>(*memory, arguments, stream + offset);
  }
  bagua_bucket bucket = {};
  bucket.name = "bucket";
  bucket.length = arguments.length;
  bucket.dtype = dtype;
  bucket.gradient = gradient.data();
  bucket.weight = weight.data();
  Binding binding = context.bind(schedule, bucket);
  bool finite = everyGradientIsFinite(context, gradient, arguments.length, dtype);
  // The order of a step; gates are open when reached. After a step that is not finite comes no
  // update.
  for (auto [name, event] : {std::pair{"before_forward", BAGUA_BEFORE_FORWARD},
                             {"gradient", BAGUA_GRADIENT},
                             {"after_update", BAGUA_AFTER_UPDATE}})
    for (const auto &program : info["programs"])
      if (program["event"] == name && (finite || event != BAGUA_AFTER_UPDATE)) {
        binding.start(event, arguments.step);
        binding.openGate(BAGUA_BEFORE_UPDATE, finite);
        binding.wait();
      }
  std::vector<RankResult> results(static_cast<size_t>(context.world()));
  results[static_cast<size_t>(context.rank())] = {hashOf(gradient, bytes), hashOf(weight, bytes),
                                                  binding.statistics().bytes_wire};
  for (int rank = 0; rank < context.world(); ++rank)
    context.broadcast(&results[static_cast<size_t>(rank)], sizeof(RankResult), rank);
  if (context.rank() == 0) {
    std::printf("processes, world %d, length %" PRId64 ", %s, step %" PRId64 "%s\n",
                context.world(), arguments.length, arguments.dtype.c_str(), arguments.step,
                finite ? "" : ", not finite");
    std::printf("rank  gradient          weight            wire bytes\n");
    for (size_t rank = 0; rank < results.size(); ++rank)
      std::printf("%-4zu  %016" PRIx64 "  %016" PRIx64 "  %" PRIu64 "\n", rank,
                  results[rank].gradient, results[rank].weight, results[rank].wireBytes);
  }
  return 0;
}

} // namespace

bool checkScheduleArguments(const std::vector<std::string> &arguments, int &code) {
  Arguments parsed;
  auto parser = makeParser(parsed);
  try {
    parser->parse(reversed(arguments));
  } catch (const CLI::ParseError &error) {
    code = parser->exit(error);
    return true;
  }
  return false;
}

int runScheduleRank(const std::vector<std::string> &arguments) {
  Arguments parsed;
  auto parser = makeParser(parsed);
  try {
    parser->parse(reversed(arguments));
    return runRank(parsed);
  } catch (const CLI::ParseError &error) {
    return parser->exit(error);
  } catch (const std::exception &error) {
    std::fprintf(stderr, "bagua-run: %s\n", error.what());
    return 1;
  }
}

} // namespace bagua::run
