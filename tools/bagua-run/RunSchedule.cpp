// One rank of a schedule run on real processes, with the interpreters' inputs.
#include "RunSchedule.h"

#include "bagua/bagua.hpp"
#include "bagua/compiler/InputGenerator.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <charconv>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>

namespace bagua::run {
namespace {

struct Arguments {
  std::string file, dtype = "f32", fill = "normal";
  int64_t length = 1000, step = 0, steps = 1;
  double stepSize = 0;
  uint64_t seed = 1;
  std::vector<std::string> parameters;
};

/// What every rank tells the others: two hashes and the payload bytes it sent.
struct RankResult {
  uint64_t gradient = 0, weight = 0, wireBytes = 0;
};

std::unique_ptr<CLI::App> makeParser(Arguments &arguments) {
  auto app =
      std::make_unique<CLI::App>("Runs steps of a schedule on local processes and prints what "
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
  app->add_option("--step", arguments.step, "Number of the first step")
      ->check(CLI::Range(int64_t{0}, INT64_MAX - 1000))
      ->capture_default_str();
  app->add_option("--steps", arguments.steps, "Training steps")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app->add_option("--sgd", arguments.stepSize,
                  "The job's optimizer: weight -= this * gradient; 0: weights stay")
      ->check(CLI::Number)
      ->capture_default_str();
  app->add_option("--parameter", arguments.parameters, "NAME=NUMBER; may be repeated");
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

/// Values of `texts`, "name=number" each, by the type that the schedule gives the parameter; their
/// names point into `info`.
std::vector<bagua_parameter> parametersOf(const std::vector<std::string> &texts,
                                          const nlohmann::json &info) {
  std::vector<bagua_parameter> values;
  for (const std::string &text : texts) {
    const size_t equals = text.find('=');
    const std::string name = text.substr(0, equals);
    bagua_parameter value = {};
    for (const auto &declared : info["parameters"])
      if (declared["name"] == name) {
        value.name = declared["name"].get_ref<const std::string &>().c_str();
        value.is_float = declared["type"] == "f64";
      }
    if (value.name == nullptr)
      throw std::invalid_argument("--parameter " + text + ": schedule '" +
                                  info["name"].get<std::string>() +
                                  "' has no parameter of that name");
    const char *begin = equals == std::string::npos ? text.data() : text.data() + equals + 1;
    const char *end = text.data() + text.size();
    const auto [rest, error] = value.is_float ? std::from_chars(begin, end, value.real)
                                              : std::from_chars(begin, end, value.integer);
    if (equals == std::string::npos || error != std::errc() || rest != end)
      throw std::invalid_argument("expects --parameter " + name +
                                  (value.is_float ? "=NUMBER" : "=INTEGER") + ", got " + text);
    values.push_back(value);
  }
  return values;
}

template <typename Element>
void descend(const Memory &gradient, const Arguments &arguments, Memory &weight) {
  const Element *g = gradient.as<Element>();
  Element *w = weight.as<Element>();
  for (int64_t i = 0; i < arguments.length; ++i)
    w[i] -= static_cast<Element>(arguments.stepSize) * g[i];
}

/// One rank's bucket and what runs on it.
class Runner {
public:
  explicit Runner(const Arguments &arguments)
      : arguments_(arguments), isFloat_(arguments.dtype == "f32"),
        bytes_(static_cast<size_t>(arguments.length) * (isFloat_ ? sizeof(float) : sizeof(double))),
        schedule_(Schedule::load(arguments.file)), info_(nlohmann::json::parse(schedule_.info())),
        gradient_(context_.allocate(std::max<size_t>(bytes_, 1))),
        weight_(context_.allocate(std::max<size_t>(bytes_, 1))), binding_(bind()) {}

  /// The step with this number, the `index`-th of the run; rank 0 prints it.
  void step(int64_t index);

private:
  Binding bind() {
    // States may begin as the weight.
    generate(weight_, static_cast<uint64_t>(context_.rank()) * 2 + 1);
    std::vector<bagua_parameter> parameters = parametersOf(arguments_.parameters, info_);
    bagua_bucket bucket = {};
    bucket.name = "bucket";
    bucket.length = arguments_.length;
    bucket.dtype = dtype();
    bucket.gradient = gradient_.data();
    bucket.weight = weight_.data();
    bucket.parameters = parameters.data();
    bucket.parameter_count = parameters.size();
    return context_.bind(schedule_, bucket);
  }
  bagua_dtype dtype() const { return isFloat_ ? BAGUA_F32 : BAGUA_F64; }
  void generate(Memory &memory, uint64_t stream) {
    if (isFloat_)
      fill<float>(memory, arguments_, stream);
    else
      fill<double>(memory, arguments_, stream);
  }
  void run(const char *name, bagua_event event, int64_t number, bool finite) {
    for (const auto &program : info_["programs"])
      if (program["event"] == name) {
        binding_.start(event, number);
        binding_.openGate(BAGUA_BEFORE_UPDATE, finite);
        binding_.wait();
      }
  }
  void print(int64_t number, bool finite);

  const Arguments &arguments_;
  const bool isFloat_;
  const size_t bytes_;
  Context context_;
  Schedule schedule_;
  const nlohmann::json info_;
  Memory gradient_, weight_;
  Binding binding_;
  uint64_t wireBytes_ = 0; ///< Before this step.
};

void Runner::step(int64_t index) {
  const int64_t number = arguments_.step + index;
  generate(gradient_, static_cast<uint64_t>(index) * compiler::kStepStreams +
                          static_cast<uint64_t>(context_.rank()) * 2);
  const bool finite = everyGradientIsFinite(context_, gradient_, arguments_.length, dtype());
  // Gates are open when reached. After a step that is not finite comes no update.
  run("before_forward", BAGUA_BEFORE_FORWARD, number, finite);
  run("gradient", BAGUA_GRADIENT, number, finite);
  if (finite) {
    if (arguments_.stepSize != 0 && !info_["owns_update"])
      isFloat_ ? descend<float>(gradient_, arguments_, weight_)
               : descend<double>(gradient_, arguments_, weight_);
    run("after_update", BAGUA_AFTER_UPDATE, number, finite);
  }
  print(number, finite);
}

void Runner::print(int64_t number, bool finite) {
  std::vector<RankResult> results(static_cast<size_t>(context_.world()));
  const uint64_t sent = binding_.statistics().bytes_wire;
  results[static_cast<size_t>(context_.rank())] = {hashOf(gradient_, bytes_),
                                                   hashOf(weight_, bytes_), sent - wireBytes_};
  wireBytes_ = sent;
  for (int rank = 0; rank < context_.world(); ++rank)
    context_.broadcast(&results[static_cast<size_t>(rank)], sizeof(RankResult), rank);
  if (context_.rank() != 0)
    return;
  if (number == arguments_.step)
    std::printf("processes, world %d, length %" PRId64 ", %s\n", context_.world(),
                arguments_.length, arguments_.dtype.c_str());
  std::printf("step %" PRId64 "%s\nrank  gradient          weight            wire bytes\n", number,
              finite ? "" : ", not finite");
  for (size_t rank = 0; rank < results.size(); ++rank)
    std::printf("%-4zu  %016" PRIx64 "  %016" PRIx64 "  %" PRIu64 "\n", rank,
                results[rank].gradient, results[rank].weight, results[rank].wireBytes);
}

int runRank(const Arguments &arguments) {
  Runner runner(arguments);
  for (int64_t index = 0; index < arguments.steps; ++index)
    runner.step(index);
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
