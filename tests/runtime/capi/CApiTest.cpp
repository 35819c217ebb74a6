// The C interface: arguments, lifetimes, errors, and whole runs with ranks as threads or processes.
#include "Oracle.h"
#include "RankThreads.h"
#include "SampleSchedules.h"
#include "bagua/Expand.h"
#include "bagua/bagua.hpp"
#include "capi/Context.h"

#include "nlohmann/json.hpp"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace bagua::rt::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

/// Of f32.
bagua_bucket bucketOf(const char *name, int64_t length, void *gradient, void *weight) {
  bagua_bucket bucket = {};
  bucket.struct_size = sizeof bucket;
  bucket.name = name;
  bucket.length = length;
  bucket.gradient = gradient;
  bucket.weight = weight;
  return bucket;
}

bagua::Schedule parse(const fb::ScheduleT &schedule) {
  StatusOr<std::vector<uint8_t>> bytes = serialize(schedule);
  BAGUA_CHECK(bytes.ok());
  return bagua::Schedule::parse(bytes->data(), bytes->size());
}

bagua_init_options aloneOptions() {
  bagua_init_options options = bagua::Context::environment();
  options.rank = 0;
  options.world = 1;
  return options;
}

/// Runs `body(context)` on one thread per rank.
void runContexts(const Connection &connection, int world,
                 const std::function<void(bagua_context *)> &body) {
  std::shared_ptr<Store> store = makeLocalStore();
  Connection::MakePart makePart = connection.make(world);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank)
    threads.emplace_back([&, rank] {
      Group::Options options;
      options.rank = rank;
      options.world = world;
      options.localStore = store;
      options.stepTimeout = options.bootstrapTimeout = std::chrono::seconds(20);
      auto group = Group::create(options);
      ASSERT_TRUE(group.ok()) << group.status();
      auto part = makePart(**group);
      ASSERT_TRUE(part.ok()) << part.status();
      Engine::Options engineOptions;
      engineOptions.threads = 1;
      auto context = capi::makeContext(*std::move(group), part->doorbell,
                                       std::move(part->transport), engineOptions);
      ASSERT_TRUE(context.ok()) << context.status();
      body(*context);
      bagua_shutdown(*context);
    });
  for (std::thread &thread : threads)
    thread.join();
}

class CApiRunTest : public ::testing::TestWithParam<Connection> {};

TEST_P(CApiRunTest, AWholeJob) {
  constexpr int kWorld = 4, kSteps = 3;
  constexpr int64_t kLength = 10'007;
  auto schedule = parse(bytegradSchedule());
  runContexts(GetParam(), kWorld, [&](bagua_context *context) {
    int rank = bagua_rank(context);
    EXPECT_EQ(bagua_world(context), kWorld);
    EXPECT_EQ(bagua_local_rank(context), rank);
    EXPECT_EQ(bagua_local_size(context), kWorld);
    EXPECT_STREQ(bagua_source(context), "threads of one process");

    int64_t announced = rank == 2 ? 77 : 0;
    ASSERT_EQ(bagua_broadcast(context, &announced, sizeof announced, 2), BAGUA_OK)
        << bagua_last_error();
    EXPECT_EQ(announced, 77);
    ASSERT_EQ(bagua_agree(context, "plan", R"({"buckets": [1, 2]})"), BAGUA_OK)
        << bagua_last_error();
    ASSERT_EQ(bagua_barrier(context, "ready"), BAGUA_OK) << bagua_last_error();

    void *memory = nullptr;
    ASSERT_EQ(bagua_alloc(context, kLength * sizeof(float), &memory), BAGUA_OK)
        << bagua_last_error();
    auto *gradient = static_cast<float *>(memory);
    EXPECT_EQ(std::count(gradient, gradient + kLength, 0.0f), kLength);
    bagua_bucket bucket = bucketOf("b", kLength, gradient, nullptr);
    bagua_binding *binding = nullptr;
    ASSERT_EQ(bagua_bind(context, schedule.get(), &bucket, &binding), BAGUA_OK)
        << bagua_last_error();
    Inputs<float> inputs;
    for (int other = 0; other < kWorld; ++other)
      inputs.push_back(numbers<float>(static_cast<uint64_t>(other), kLength));
    std::vector<float> expected = bytegradOf(inputs, 8, 2048);
    for (int step = 0; step < kSteps; ++step) {
      std::copy_n(inputs[static_cast<size_t>(rank)].data(), kLength, gradient);
      ASSERT_EQ(bagua_start(binding, BAGUA_GRADIENT, step), BAGUA_OK) << bagua_last_error();
      bagua_code code;
      while ((code = bagua_wait(binding, 100)) == BAGUA_PENDING) {
      }
      ASSERT_EQ(code, BAGUA_OK) << bagua_last_error();
      ASSERT_TRUE(std::equal(expected.begin(), expected.end(), gradient));
    }
    bagua_statistics statistics = {};
    statistics.struct_size = sizeof statistics;
    ASSERT_EQ(bagua_binding_statistics(binding, &statistics), BAGUA_OK);
    int64_t formula = schedule.wireBytes(BAGUA_GRADIENT, kWorld, rank, kLength, BAGUA_F32);
    EXPECT_EQ(statistics.runs, 3u);
    EXPECT_EQ(statistics.bytes_raw, 3u * kLength * 4);
    EXPECT_EQ(statistics.bytes_wire, 3u * static_cast<uint64_t>(formula));
    EXPECT_LE(statistics.bytes_wire * 100, statistics.bytes_raw * 2 * 27);
    EXPECT_GT(statistics.busy_ns, 0u);
    bagua_unbind(binding);
    bagua_free(memory);
  });
}

INSTANTIATE_TEST_SUITE_P(Connections, CApiRunTest,
                         ::testing::Values(connection("View"), connection("Copy"),
                                           connection("WindowShared"), connection("WindowMapped")),
                         [](const auto &info) { return info.param.name; });

TEST(CApiTest, HandlesOutliveTheirContext) {
  auto schedule = parse(gradientAllReduceSchedule());
  bagua_init_options options = aloneOptions();
  bagua_context *context = nullptr;
  ASSERT_EQ(bagua_init(&options, &context), BAGUA_OK) << bagua_last_error();
  void *memory = nullptr;
  ASSERT_EQ(bagua_alloc(context, 400, &memory), BAGUA_OK);
  bagua_bucket bucket = bucketOf("b", 100, memory, nullptr);
  bagua_binding *binding = nullptr;
  ASSERT_EQ(bagua_bind(context, schedule.get(), &bucket, &binding), BAGUA_OK) << bagua_last_error();
  bagua_shutdown(context);
  static_cast<float *>(memory)[99] = 1.0f;
  EXPECT_EQ(bagua_start(binding, BAGUA_GRADIENT, 0), BAGUA_FAILED_PRECONDITION);
  EXPECT_THAT(bagua_last_error(), HasSubstr("shut down"));
  EXPECT_EQ(bagua_wait(binding, 0), BAGUA_FAILED_PRECONDITION);
  bagua_unbind(binding);
  bagua_free(memory);
}

TEST(CApiTest, B51_WorldOfOneIsTheIdentity) {
  for (const SampleSchedule &sample : sampleSchedules()) {
    bagua::Context context(aloneOptions());
    EXPECT_EQ(context.world(), 1);
    auto schedule = parse(sample.build());
    std::vector<float> gradient = numbers<float>(1, 5000), weight = numbers<float>(2, 5000);
    auto gradientBefore = gradient, weightBefore = weight;
    bagua_bucket bucket = {};
    bucket.name = "b";
    bucket.length = 5000;
    bucket.gradient = gradient.data();
    bucket.weight = weight.data();
    bagua::Binding binding = context.bind(schedule, bucket);
    for (bagua_event event : {BAGUA_BEFORE_FORWARD, BAGUA_GRADIENT, BAGUA_AFTER_UPDATE}) {
      binding.start(event, 0);
      binding.openGate(BAGUA_BEFORE_UPDATE);
      binding.wait();
    }
    EXPECT_EQ(gradient, gradientBefore) << sample.name;
    EXPECT_EQ(weight, weightBefore) << sample.name;
    EXPECT_EQ(binding.statistics().bytes_wire, 0u);
    context.agree("x", "{}");
    context.barrier("y");
    context.broadcast(gradient.data(), 100, 0);
  }
}

TEST(CApiTest, ScheduleInfoSaysWhatAnApplicationNeeds) {
  auto info = nlohmann::json::parse(parse(decentralizedSchedule()).info());
  EXPECT_EQ(info["name"], "decentralized");
  EXPECT_EQ(info["digest"].get<std::string>().size(), 32u);
  EXPECT_EQ(info["dtypes"], (nlohmann::json{"f32", "f64"}));
  EXPECT_EQ(info["owns_update"], false);
  ASSERT_EQ(info["programs"].size(), 1u);
  EXPECT_EQ(info["programs"][0]["event"], "before_forward");
  EXPECT_EQ(info["programs"][0]["roles"], (nlohmann::json{"weight"}));
  EXPECT_EQ(info["programs"][0]["gates"], (nlohmann::json{"before_update"}));
  info = nlohmann::json::parse(parse(bytegradSchedule()).info());
  EXPECT_EQ(info["grain"], 2048);
  EXPECT_EQ(info["programs"][0]["roles"], (nlohmann::json{"gradient"}));
  EXPECT_EQ(info["programs"][0]["gates"], nlohmann::json::array());
  EXPECT_EQ(info["states"], nlohmann::json::array());
  EXPECT_EQ(info["needs_finite"], false);
  info = nlohmann::json::parse(parse(gossipMomentumSchedule()).info());
  EXPECT_EQ(info["owns_update"], true);
  EXPECT_EQ(info["needs_finite"], true);
  EXPECT_EQ(info["programs"][0]["gates"], (nlohmann::json{"before_update"}));
  EXPECT_EQ(info["programs"][0]["roles"], (nlohmann::json{"gradient", "weight"}));
  EXPECT_EQ(
      info["parameters"][1],
      (nlohmann::json{{"name", "lr"}, {"type", "f64"}, {"default", 0.125}, {"per_step", true}}));
  EXPECT_EQ(info["states"][0], (nlohmann::json{{"name", "m"},
                                               {"domain", "bucket"},
                                               {"copies", 1},
                                               {"initial", 0.0},
                                               {"on_resize", "mean"}}));
  EXPECT_EQ(info["programs"][0]["writes"], (nlohmann::json{"weight"}));
  info = nlohmann::json::parse(parse(keeperSchedule()).info());
  EXPECT_EQ(info["states"][3]["initial"], "weight");
  EXPECT_EQ(info["programs"][0]["roles"], (nlohmann::json{"gradient"}));
  EXPECT_EQ(info["programs"][0]["writes"], nlohmann::json::array());
}

// A program after the update runs in finite steps only, whatever it does.
TEST(CApiTest, ProgramsAfterTheUpdateNeedToKnowWhetherTheStepIsFinite) {
  fb::ScheduleT schedule = gradientAllReduceSchedule();
  schedule.programs[0]->event = fb::Event::AfterUpdate;
  EXPECT_EQ(nlohmann::json::parse(parse(schedule).info())["needs_finite"], true);
}

TEST(CApiTest, ParametersGatesAndStates) {
  auto schedule = parse(gossipMomentumSchedule());
  bagua::Context context(aloneOptions());
  std::vector<float> gradient(10), weight(10, 1.0f), state(10);
  bagua_bucket bucket = bucketOf("b", 10, gradient.data(), weight.data());
  bagua_parameter beta = {"beta", 1, 0, 0.5};
  bucket.parameters = &beta;
  bucket.parameter_count = 1;
  bagua::Binding binding = context.bind(schedule, bucket);
  ASSERT_EQ(binding.states().size(), 1u);
  EXPECT_STREQ(binding.states()[0].name, "m");
  EXPECT_EQ(binding.states()[0].domain, BAGUA_STATE_BUCKET);
  EXPECT_EQ(binding.states()[0].on_resize, BAGUA_RESIZE_MEAN);
  EXPECT_EQ(binding.states()[0].elements, 10);
  std::fill(state.begin(), state.end(), 8.0f);
  binding.writeState(0, state.data(), 40);
  auto step = [&](int64_t number, double lr, bool finite) {
    gradient.assign(10, 2.0f);
    binding.setParameter("lr", lr);
    binding.start(BAGUA_GRADIENT, number);
    binding.waitGate();
    std::vector<float> before = weight;
    EXPECT_EQ(weight, before);
    binding.openGate(BAGUA_BEFORE_UPDATE, finite);
    binding.wait();
    binding.readState(0, state.data(), 40);
  };
  step(0, 0.25, true);
  EXPECT_EQ(state, std::vector<float>(10, 6.0f)); // 0.5 * 8 + 2
  EXPECT_EQ(weight, std::vector<float>(10, -0.5f));
  step(1, 1.0, false);
  EXPECT_EQ(state, std::vector<float>(10, 6.0f));
  EXPECT_EQ(weight, std::vector<float>(10, -0.5f));
  binding.setParameter("lr", int64_t{1});
  step(2, 1.0, true);
  EXPECT_EQ(state, std::vector<float>(10, 5.0f));
  EXPECT_EQ(weight, std::vector<float>(10, -5.5f));
  EXPECT_THROW(binding.setParameter("beta", 0.1), bagua::Error);
}

TEST(CApiTest, WireBytesOfAStep) {
  auto schedule = parse(gossipMomentumSchedule());
  runContexts(connection("View"), 3, [&](bagua_context *context) {
    std::vector<float> gradient(10), weight(10);
    bagua_bucket bucket = bucketOf("b", 10, gradient.data(), weight.data());
    bagua_binding *raw = nullptr;
    ASSERT_EQ(bagua_bind(context, schedule.get(), &bucket, &raw), BAGUA_OK) << bagua_last_error();
    bagua::Binding binding(raw);
    int64_t rank = bagua_rank(context), sum = 0;
    for (int64_t step = 0; step < 9; ++step) {
      bool paired = pairingPartner(7, step, 3, rank) != rank;
      EXPECT_EQ(binding.wireBytes(BAGUA_GRADIENT, step), paired ? 40 : 0);
      EXPECT_EQ(binding.wireBytes(BAGUA_AFTER_UPDATE, step), 0);
      sum += paired ? 40 : 0;
      binding.start(BAGUA_GRADIENT, step);
      binding.openGate(BAGUA_BEFORE_UPDATE);
      binding.wait();
    }
    EXPECT_EQ(binding.statistics().bytes_wire, static_cast<uint64_t>(sum));
    EXPECT_GT(sum, 0);
  });
}

TEST(CApiTest, AsyncProgramsTakeABindingOfTheirOwn) {
  fb::ScheduleT warm = asyncAverageSchedule(fb::IntervalUnit::Milliseconds, 7, true);
  auto info = nlohmann::json::parse(parse(warm).info());
  EXPECT_EQ(info["programs"][0].count("staleness"), 0u);
  EXPECT_EQ(info["programs"][1], (nlohmann::json{{"name", "async"},
                                                 {"event", "async"},
                                                 {"roles", {"weight"}},
                                                 {"writes", {"weight"}},
                                                 {"gates", nlohmann::json::array()},
                                                 {"every_unit", "ms"},
                                                 {"staleness", 7}}));
  EXPECT_EQ(info["needs_finite"], false);
  auto schedule = parse(asyncAverageSchedule(fb::IntervalUnit::Steps, 2, true));
  info = nlohmann::json::parse(schedule.info());
  EXPECT_EQ(info["programs"][1]["every_unit"], "steps");
  EXPECT_EQ(schedule.wireBytes(BAGUA_ASYNC, 3, 0, 10, BAGUA_F32), 80);
  runContexts(connection("View"), 2, [&](bagua_context *context) {
    std::vector<float> gradient(10, 1.0f), snapshot(10, static_cast<float>(bagua_rank(context)));
    bagua_parameter parameters[] = {{"interval", 0, 8, 0}, {"warmup", 0, 1, 0}};
    auto bind = [&](int async) {
      bagua_bucket bucket =
          bucketOf("b", 10, async ? nullptr : gradient.data(), async ? snapshot.data() : nullptr);
      bucket.async = async;
      bucket.parameters = parameters;
      bucket.parameter_count = 2;
      bagua_binding *raw = nullptr;
      EXPECT_EQ(bagua_bind(context, schedule.get(), &bucket, &raw), BAGUA_OK) << bagua_last_error();
      return bagua::Binding(raw);
    };
    bagua::Binding steps = bind(0), rounds = bind(1);
    EXPECT_EQ(steps.states().size(), 0u);
    EXPECT_EQ(rounds.states().size(), 1u);
    EXPECT_EQ(rounds.every(), 8);
    EXPECT_EQ(rounds.after(), 1);
    EXPECT_THROW(steps.every(), bagua::Error);
    EXPECT_TRUE(steps.communicates(BAGUA_GRADIENT, 0));
    EXPECT_FALSE(steps.communicates(BAGUA_GRADIENT, 1));
    EXPECT_FALSE(steps.communicates(BAGUA_ASYNC, 0));
    EXPECT_TRUE(rounds.communicates(BAGUA_ASYNC, 0));
    rounds.start(BAGUA_ASYNC, 0);
    rounds.wait();
    EXPECT_EQ(snapshot, std::vector<float>(10, bagua_rank(context) == 0 ? 0.5f : -0.5f));
    bagua_bucket bucket = bucketOf("b", 10, nullptr, snapshot.data());
    bucket.async = 2;
    bagua_binding *raw = nullptr;
    EXPECT_EQ(bagua_bind(context, schedule.get(), &bucket, &raw), BAGUA_INVALID_ARGUMENT);
    EXPECT_THAT(bagua_last_error(), HasSubstr("bucket->async to be 0 or 1, got 2"));
  });
}

TEST(CApiTest, AllFiniteSeesEveryElement) {
  auto of = [](const auto &values, bagua_dtype dtype) {
    int finite = -1;
    EXPECT_EQ(bagua_all_finite(values.data(), static_cast<int64_t>(values.size()), dtype, &finite),
              BAGUA_OK)
        << bagua_last_error();
    return finite;
  };
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (size_t length : {size_t{0}, size_t{1}, size_t{4096}, size_t{4097}, size_t{9001}}) {
    std::vector<float> floats(length, std::numeric_limits<float>::max());
    std::vector<double> doubles(length, -std::numeric_limits<double>::denorm_min());
    EXPECT_EQ(of(floats, BAGUA_F32), 1);
    EXPECT_EQ(of(doubles, BAGUA_F64), 1);
    for (size_t i : {size_t{0}, length / 2, length - 1})
      for (double bad : {kInfinity, -kInfinity, std::nan("")}) {
        if (i >= length)
          continue;
        floats[i] = static_cast<float>(bad);
        doubles[i] = bad;
        EXPECT_EQ(of(floats, BAGUA_F32), 0) << i << " of " << length;
        EXPECT_EQ(of(doubles, BAGUA_F64), 0) << i << " of " << length;
        floats[i] = 1;
        doubles[i] = 1;
      }
  }
}

TEST(CApiTest, NegativeArguments) {
  bagua_context *context = nullptr;
  bagua_schedule *schedule = nullptr;
  bagua_binding *binding = nullptr;
  bagua_init_options options = aloneOptions();
  auto refused = [](bagua_code code, const char *part) {
    EXPECT_EQ(code, BAGUA_INVALID_ARGUMENT) << bagua_last_error();
    EXPECT_THAT(bagua_last_error(), HasSubstr(part));
  };
  refused(bagua_init(nullptr, &context), "options");
  refused(bagua_init(&options, nullptr), "context");
  options.struct_size = 8;
  refused(bagua_init(&options, &context), "struct_size");
  options = aloneOptions();
  options.step_timeout_ms = -5;
  refused(bagua_init(&options, &context), "-5");
  options = aloneOptions();
  options.transport = "pigeon";
  EXPECT_EQ(bagua_init(&options, &context), BAGUA_INVALID_ARGUMENT);
  EXPECT_THAT(bagua_last_error(), HasSubstr("pigeon"));
  ASSERT_EQ(::setenv("BAGUA_TRACE_FILE", "/nonexistent/t.json", 1), 0);
  options = aloneOptions();
  EXPECT_EQ(bagua_init(&options, &context), BAGUA_INVALID_ARGUMENT);
  ::unsetenv("BAGUA_TRACE_FILE");
  EXPECT_THAT(bagua_last_error(), HasSubstr("BAGUA_TRACE_FILE expects a file that can be written, "
                                            "got '/nonexistent/t.json': No such file"));
  options = aloneOptions();
  options.rank = 3;
  EXPECT_EQ(bagua_init(&options, &context), BAGUA_INVALID_ARGUMENT) << bagua_last_error();
  EXPECT_EQ(context, nullptr);

  refused(bagua_schedule_load(nullptr, &schedule), "path");
  refused(bagua_schedule_load("/nonexistent.bsched", nullptr), "schedule");
  EXPECT_NE(bagua_schedule_load("/nonexistent.bsched", &schedule), BAGUA_OK);
  EXPECT_THAT(bagua_last_error(), HasSubstr("/nonexistent.bsched"));
  refused(bagua_schedule_parse("junk", 4, &schedule), "");
  EXPECT_EQ(schedule, nullptr);

  bagua::Schedule good = parse(gradientAllReduceSchedule());
  int64_t bytes = -1;
  refused(bagua_schedule_wire_bytes(nullptr, BAGUA_GRADIENT, 2, 0, 5, BAGUA_F32, &bytes),
          "schedule");
  refused(bagua_schedule_wire_bytes(good.get(), static_cast<bagua_event>(9), 2, 0, 5, BAGUA_F32,
                                    &bytes),
          "9");
  refused(bagua_schedule_wire_bytes(good.get(), BAGUA_GRADIENT, 2, 2, 5, BAGUA_F32, &bytes),
          "rank 2");
  refused(bagua_schedule_wire_bytes(good.get(), BAGUA_GRADIENT, 2, 0, -5, BAGUA_F32, &bytes), "-5");
  refused(bagua_schedule_wire_bytes(good.get(), BAGUA_GRADIENT, 2, 0, 5,
                                    static_cast<bagua_dtype>(7), &bytes),
          "7");
  EXPECT_EQ(bytes, -1);

  options = aloneOptions();
  ASSERT_EQ(bagua_init(&options, &context), BAGUA_OK) << bagua_last_error();
  void *memory = nullptr;
  refused(bagua_alloc(nullptr, 10, &memory), "context");
  refused(bagua_alloc(context, 0, &memory), "bytes");
  refused(bagua_alloc(context, 10, nullptr), "address");
  EXPECT_NE(bagua_alloc(context, SIZE_MAX / 2, &memory), BAGUA_OK);
  refused(bagua_agree(context, nullptr, "{}"), "what");
  refused(bagua_agree(context, "x", "{"), "JSON");
  int64_t counter = 0;
  refused(bagua_count(context, nullptr, 1, &counter), "a name");
  refused(bagua_count(context, "x", 1, nullptr), "a place for the value");
  refused(bagua_barrier(context, nullptr), "what");
  refused(bagua_broadcast(context, nullptr, 5, 0), "data");
  refused(bagua_broadcast(context, &bytes, 8, 1), "root");
  refused(bagua_broadcast(context, &bytes, 8, -1), "root");
  bagua_bucket bucket = bucketOf("b", 10, nullptr, nullptr);
  bagua_binding *other = nullptr;
  refused(bagua_bind(context, good.get(), &bucket, &binding), "gradient");
  bucket.length = -1;
  refused(bagua_bind(context, good.get(), &bucket, &binding), "-1");
  bucket.length = 0;
  bucket.dtype = static_cast<bagua_dtype>(5);
  refused(bagua_bind(context, good.get(), &bucket, &binding), "dtype");
  bucket.dtype = BAGUA_F32;
  bucket.name = nullptr;
  refused(bagua_bind(context, good.get(), &bucket, &binding), "name");
  bucket.name = "b";
  bucket.struct_size = 3;
  refused(bagua_bind(context, good.get(), &bucket, &binding), "struct_size");
  bucket.struct_size = sizeof bucket;
  refused(bagua_bind(context, nullptr, &bucket, &binding), "schedule");
  EXPECT_EQ(binding, nullptr);
  ASSERT_EQ(bagua_bind(context, good.get(), &bucket, &binding), BAGUA_OK) << bagua_last_error();
  refused(bagua_start(nullptr, BAGUA_GRADIENT, 0), "binding");
  refused(bagua_start(binding, static_cast<bagua_event>(-1), 0), "event");
  refused(bagua_start(binding, BAGUA_GRADIENT, -1), "step");
  refused(bagua_open_gate(binding, static_cast<bagua_gate>(4), 1), "gate");
  bagua_parameter parameter = {"lr", 1, 0, 0.5};
  refused(bagua_set_parameter(nullptr, &parameter), "binding");
  refused(bagua_set_parameter(binding, nullptr), "parameter");
  refused(bagua_set_parameter(binding, &parameter), "has no parameter 'lr'; it has none");
  parameter.name = nullptr;
  refused(bagua_set_parameter(binding, &parameter), "name");
  bucket.parameters = &parameter;
  bucket.parameter_count = 1;
  refused(bagua_bind(context, good.get(), &bucket, &other), "name");
  bucket.parameters = nullptr;
  refused(bagua_bind(context, good.get(), &bucket, &other), "parameters");
  EXPECT_EQ(other, nullptr);
  size_t count = 7;
  refused(bagua_state_count(binding, nullptr), "count");
  EXPECT_EQ(bagua_state_count(binding, &count), BAGUA_OK);
  EXPECT_EQ(count, 0u);
  bagua_state state = {};
  refused(bagua_state_info(binding, 0, &state), "struct_size");
  state.struct_size = sizeof state;
  refused(bagua_state_info(binding, 0, &state), "index below 0");
  refused(bagua_state_read(binding, 0, &state, 4), "state 0");
  refused(bagua_state_read(binding, 0, nullptr, 4), "data");
  refused(bagua_state_write(binding, 0, &state, 4), "state 0");
  refused(bagua_state_write(binding, 0, nullptr, 4), "data");
  int finite = 0;
  refused(bagua_all_finite(&finite, -1, BAGUA_F32, &finite), "-1");
  refused(bagua_all_finite(nullptr, 1, BAGUA_F32, &finite), "data");
  refused(bagua_all_finite(&finite, 1, static_cast<bagua_dtype>(9), &finite), "dtype");
  refused(bagua_all_finite(&finite, 1, BAGUA_F32, nullptr), "answer");
  refused(bagua_wait_gate(binding, -1), "slice_ms");
  int64_t wireBytes = 0;
  refused(bagua_binding_wire_bytes(nullptr, BAGUA_GRADIENT, 0, &wireBytes), "binding");
  refused(bagua_binding_wire_bytes(binding, static_cast<bagua_event>(7), 0, &wireBytes), "event");
  refused(bagua_binding_wire_bytes(binding, BAGUA_GRADIENT, -1, &wireBytes), "step");
  refused(bagua_binding_wire_bytes(binding, BAGUA_GRADIENT, 0, nullptr), "bytes");
  refused(bagua_wait(binding, -1), "slice_ms");
  refused(bagua_binding_every(nullptr, nullptr, nullptr), "binding");
  int communicates = 0;
  refused(bagua_binding_communicates(nullptr, BAGUA_GRADIENT, 0, &communicates), "binding");
  refused(bagua_binding_communicates(binding, static_cast<bagua_event>(7), 0, &communicates),
          "event in [0, 3]");
  refused(bagua_binding_communicates(binding, BAGUA_GRADIENT, -1, &communicates), "step");
  refused(bagua_binding_communicates(binding, BAGUA_GRADIENT, 0, nullptr), "answer");
  refused(bagua_binding_statistics(binding, nullptr), "statistics");
  refused(bagua_trace_write(context, nullptr), "path");
  EXPECT_EQ(bagua_wait(binding, 0), BAGUA_OK);
  bagua_unbind(binding);
  bagua_unbind(nullptr);
  bagua_shutdown(context);
  bagua_shutdown(nullptr);
  bagua_schedule_free(nullptr);
  bagua_free(nullptr);
  EXPECT_EQ(bagua_rank(nullptr), -1);
  EXPECT_STREQ(bagua_source(nullptr), "");
  EXPECT_STREQ(bagua_schedule_info(nullptr), "");
}

TEST(CApiTest, TheLastErrorIsOfTheCallingThread) {
  EXPECT_EQ(bagua_schedule_load(nullptr, nullptr), BAGUA_INVALID_ARGUMENT);
  std::string mine = bagua_last_error();
  std::thread([] {
    EXPECT_STREQ(bagua_last_error(), "");
    EXPECT_EQ(bagua_barrier(nullptr, nullptr), BAGUA_INVALID_ARGUMENT);
  }).join();
  EXPECT_EQ(bagua_last_error(), mine);
}

TEST(CApiTest, MismatchHasItsCode) {
  runContexts(connection("View"), 2, [](bagua_context *context) {
    std::string text =
        R"({"buckets": [{"name": "a", "length": )" + std::to_string(bagua_rank(context)) + "}]}";
    EXPECT_EQ(bagua_agree(context, "bucket plan", text.c_str()), BAGUA_MISMATCH);
    EXPECT_THAT(bagua_last_error(),
                AllOf(HasSubstr("bucket plan.buckets[0]"), HasSubstr("length")));
  });
}

TEST(CApiTest, CountersAreOfTheGroup) {
  runContexts(connection("View"), 3, [&](bagua_context *context) {
    int64_t value = -1;
    ASSERT_EQ(bagua_count(context, "here", 0, &value), BAGUA_OK) << bagua_last_error();
    EXPECT_LE(value, 20);
    ASSERT_EQ(bagua_count(context, "here", 10, &value), BAGUA_OK) << bagua_last_error();
    EXPECT_GE(value, 10);
    ASSERT_EQ(bagua_barrier(context, "all have counted"), BAGUA_OK) << bagua_last_error();
    ASSERT_EQ(bagua_count(context, "here", 0, &value), BAGUA_OK) << bagua_last_error();
    EXPECT_EQ(value, 30);
    ASSERT_EQ(bagua_count(context, "elsewhere", 0, &value), BAGUA_OK) << bagua_last_error();
    EXPECT_EQ(value, 0);
  });
}

TEST(CApiTest, TheTraceShowsProgramsKernelsAndMessages) {
  std::string pattern =
      ::testing::TempDir() + "bagua-capi-" + std::to_string(::getpid()) + "-%r.json";
  ASSERT_EQ(::setenv("BAGUA_TRACE_FILE", pattern.c_str(), 1), 0);
  auto schedule = parse(bytegradSchedule());
  std::array<bagua_binding *, 2> bindings{};
  runContexts(connection("View"), 2, [&](bagua_context *context) {
    std::vector<float> gradient(5000, 1.0f);
    bagua_bucket bucket = bucketOf("layer1", 5000, gradient.data(), nullptr);
    bagua_binding *&binding = bindings[static_cast<size_t>(bagua_rank(context))];
    ASSERT_EQ(bagua_bind(context, schedule.get(), &bucket, &binding), BAGUA_OK)
        << bagua_last_error();
    ASSERT_EQ(bagua_start(binding, BAGUA_GRADIENT, 5), BAGUA_OK);
    while (bagua_wait(binding, 100) == BAGUA_PENDING) {
    }
  });
  for (bagua_binding *binding : bindings)
    bagua_unbind(binding); // After the shutdown.
  ::unsetenv("BAGUA_TRACE_FILE");
  for (int rank = 0; rank < 2; ++rank) {
    std::string path = tracePath(pattern, rank, 2);
    std::ifstream file(path);
    ASSERT_TRUE(file) << path;
    auto trace = nlohmann::json::parse(file);
    std::map<std::string, int> count;
    uint64_t sent = 0;
    for (const auto &event : trace["traceEvents"]) {
      if (event["ph"] != "X")
        continue;
      if (event["name"] == "wait")
        continue; // As many as the caller came back for, or none if it found all done.
      ++count[event["name"]];
      EXPECT_EQ(event["pid"], rank);
      EXPECT_EQ(event["args"]["bucket"], "layer1");
      EXPECT_EQ(event["args"]["step"], 5);
      if (event["name"] == "send") {
        sent += event["args"]["bytes"].get<uint64_t>();
        EXPECT_EQ(event["args"]["peer"], 1 - rank);
        EXPECT_THAT(event["args"]["source"].get<std::string>(), StartsWith("bytegrad.mlir:"));
      }
    }
    EXPECT_EQ(count, (std::map<std::string, int>{{"gradient", 1},
                                                 {"minmax_encode", 2},
                                                 {"minmax_decode_reduce_mean", 1},
                                                 {"minmax_decode", 2},
                                                 {"send", 2},
                                                 {"recv", 2}}));
    EXPECT_EQ(static_cast<int64_t>(sent),
              schedule.wireBytes(BAGUA_GRADIENT, 2, rank, 5000, BAGUA_F32));
    std::remove(path.c_str());
  }
}

TEST(CApiTest, B60_AForkedChildCannotUseTheContextAndFreesNothing) {
  bagua_init_options options = aloneOptions();
  bagua_context *context = nullptr;
  ASSERT_EQ(bagua_init(&options, &context), BAGUA_OK) << bagua_last_error();
  void *memory = nullptr;
  ASSERT_EQ(bagua_alloc(context, 1 << 20, &memory), BAGUA_OK);
  std::fill_n(static_cast<char *>(memory), 1 << 20, 'x');
  bagua::Schedule schedule = parse(gradientAllReduceSchedule());
  bagua_bucket bucket = bucketOf("b", 1 << 18, memory, nullptr);
  bagua_binding *binding = nullptr;
  ASSERT_EQ(bagua_bind(context, schedule.get(), &bucket, &binding), BAGUA_OK);
  pid_t child = ::fork();
  if (child == 0) {
    bool right = bagua_start(binding, BAGUA_GRADIENT, 0) == BAGUA_FAILED_PRECONDITION &&
                 std::string(bagua_last_error()).find("forked child") != std::string::npos;
    bagua_unbind(binding);
    bagua_free(memory);
    bagua_shutdown(context);
    std::exit(right ? 0 : 1); // With its exit handlers, as a data loader's worker ends.
  }
  int result = -1;
  ASSERT_EQ(::waitpid(child, &result, 0), child);
  EXPECT_TRUE(WIFEXITED(result) && WEXITSTATUS(result) == 0) << result;
  EXPECT_EQ(std::count(static_cast<char *>(memory), static_cast<char *>(memory) + (1 << 20), 'x'),
            1 << 20);
  EXPECT_EQ(bagua_start(binding, BAGUA_GRADIENT, 0), BAGUA_OK) << bagua_last_error();
  while (bagua_wait(binding, 100) == BAGUA_PENDING) {
  }
  bagua_unbind(binding);
  bagua_shutdown(context);
  bagua_free(memory);
}

TEST(CApiTest, ShutdownWhileAProgramRunsEndsItAndTellsThePeer) {
  auto schedule = parse(gradientAllReduceSchedule());
  std::vector<std::vector<float>> gradients(2, std::vector<float>(1000));
  std::barrier<> ended(2);
  runContexts(connection("View"), 2, [&](bagua_context *context) {
    int rank = bagua_rank(context);
    bagua_bucket bucket = bucketOf("b", 1000, gradients[static_cast<size_t>(rank)].data(), nullptr);
    bagua_binding *binding = nullptr;
    ASSERT_EQ(bagua_bind(context, schedule.get(), &bucket, &binding), BAGUA_OK)
        << bagua_last_error();
    if (rank == 0) {
      ASSERT_EQ(bagua_start(binding, BAGUA_GRADIENT, 0), BAGUA_OK);
      context->state->shutdown();
      EXPECT_EQ(bagua_wait(binding, 0), BAGUA_FAILED_PRECONDITION);
    } else {
      bagua_code code = bagua_start(binding, BAGUA_GRADIENT, 0); // Rank 0 may have ended already.
      if (code == BAGUA_OK)
        while ((code = bagua_wait(binding, 100)) == BAGUA_PENDING) {
        }
      EXPECT_EQ(code, BAGUA_PEER_LOST) << bagua_last_error();
      EXPECT_THAT(bagua_last_error(), HasSubstr("rank 0"));
    }
    bagua_unbind(binding);
    ended.arrive_and_wait();
  });
}

TEST(CApiTest, AStepThatTheJobLeftOpenDisturbsNoPeer) {
  auto schedule = parse(decentralizedSchedule());
  std::vector<std::vector<float>> weights(2, std::vector<float>(1000, 1.0f));
  std::barrier<> left(2);
  runContexts(connection("View"), 2, [&](bagua_context *context) {
    int rank = bagua_rank(context);
    bagua_bucket bucket = bucketOf("b", 1000, nullptr, weights[static_cast<size_t>(rank)].data());
    bagua_binding *binding = nullptr;
    ASSERT_EQ(bagua_bind(context, schedule.get(), &bucket, &binding), BAGUA_OK)
        << bagua_last_error();
    ASSERT_EQ(bagua_barrier(context, "bound"), BAGUA_OK) << bagua_last_error();
    if (rank == 0) {
      ASSERT_EQ(bagua_start(binding, BAGUA_BEFORE_FORWARD, 0), BAGUA_OK) << bagua_last_error();
      context->state->shutdown(); // Its gate is shut.
    }
    left.arrive_and_wait();
    if (rank == 1)
      EXPECT_EQ(bagua_wait(binding, 0), BAGUA_OK) << bagua_last_error();
    bagua_unbind(binding);
  });
}

TEST(CApiTest, APeerThatHasLeftIsNamedAtOnce) {
  struct Case {
    const char *name;
    fb::ScheduleT schedule;
    bagua_event event;
    bool untilGate;
    const char *description, *place;
  };
  Case cases[] = {{"gradient", gradientAllReduceSchedule(), BAGUA_GRADIENT, false, nullptr,
                   "bucket 'b', program gradient, step 0, gradient_allreduce.mlir:"},
                  {"described", gradientAllReduceSchedule(), BAGUA_GRADIENT, false,
                   "the check of x", "the check of x, step 0"},
                  {"gate", decentralizedSchedule(), BAGUA_BEFORE_FORWARD, true, nullptr,
                   "bucket 'b', program before_forward"}};
  for (const char *transport : {"View", "WindowMapped"})
    for (Case &one : cases) {
      SCOPED_TRACE(std::string(one.name) + " over " + transport);
      auto schedule = parse(one.schedule);
      std::vector<std::vector<float>> buckets(2, std::vector<float>(1000, 1.0f));
      std::barrier<> done(2);
      runContexts(connection(transport), 2, [&](bagua_context *context) {
        int rank = bagua_rank(context);
        float *data = buckets[static_cast<size_t>(rank)].data();
        bagua_bucket bucket = bucketOf("b", 1000, data, data);
        bucket.description = one.description;
        bagua_binding *binding = nullptr;
        ASSERT_EQ(bagua_bind(context, schedule.get(), &bucket, &binding), BAGUA_OK)
            << bagua_last_error();
        ASSERT_EQ(bagua_barrier(context, "bound"), BAGUA_OK) << bagua_last_error();
        if (rank == 0) {
          bagua_unbind(binding);
          context->state->shutdown();
          return done.arrive_and_wait();
        }
        auto begin = std::chrono::steady_clock::now();
        bagua_code code = bagua_start(binding, one.event, 0);
        ASSERT_EQ(code, BAGUA_OK) << bagua_last_error();
        while ((code = one.untilGate ? bagua_wait_gate(binding, 100) : bagua_wait(binding, 100)) ==
               BAGUA_PENDING) {
        }
        EXPECT_EQ(code, BAGUA_PEER_LOST) << bagua_last_error();
        EXPECT_THAT(bagua_last_error(),
                    AllOf(HasSubstr("rank 0 (host "), HasSubstr(", pid "),
                          HasSubstr(std::string(") has left (said goodbye) while rank 1 waited "
                                                "for it in ") +
                                    one.place)));
        if (one.description != nullptr)
          EXPECT_THAT(bagua_last_error(), Not(HasSubstr(".mlir")));
        EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
        bagua_unbind(binding);
        done.arrive_and_wait();
      });
    }
}

TEST_P(CApiRunTest, TextsAreComparedWhileAProgramRuns) {
  constexpr int kWorld = 3, kSteps = 4;
  auto schedule = parse(gradientAllReduceSchedule());
  std::vector<std::vector<float>> gradients(kWorld, std::vector<float>(1000));
  std::barrier<> failed(kWorld);
  runContexts(GetParam(), kWorld, [&](bagua_context *context) {
    auto rank = static_cast<size_t>(bagua_rank(context));
    bagua_bucket bucket = bucketOf("b", 1000, gradients[rank].data(), nullptr);
    bagua_binding *binding = nullptr;
    ASSERT_EQ(bagua_bind(context, schedule.get(), &bucket, &binding), BAGUA_OK)
        << bagua_last_error();
    auto run = [&](int step, const std::string &text) {
      bagua_code code = bagua_compare(binding, text.c_str());
      if (code == BAGUA_OK)
        code = bagua_start(binding, BAGUA_GRADIENT, step);
      while (code == BAGUA_OK && (code = bagua_wait(binding, 100)) == BAGUA_PENDING)
        code = BAGUA_OK;
      return code;
    };
    std::string longest(504, 'x');
    EXPECT_EQ(bagua_compare(binding, (longest + "x").c_str()), BAGUA_INVALID_ARGUMENT);
    EXPECT_THAT(bagua_last_error(), AllOf(HasSubstr("at most 504"), HasSubstr("got 505")));
    for (int step = 0; step < kSteps; ++step) {
      bagua_code code = bagua_compare(binding, (longest.substr(1) + std::to_string(step)).c_str());
      ASSERT_EQ(code, BAGUA_OK) << bagua_last_error();
      ASSERT_EQ(bagua_start(binding, BAGUA_GRADIENT, step), BAGUA_OK) << bagua_last_error();
      EXPECT_EQ(bagua_compare(binding, "x"), BAGUA_FAILED_PRECONDITION) << "while a program runs";
      while ((code = bagua_wait(binding, 100)) == BAGUA_PENDING) {
      }
      ASSERT_EQ(code, BAGUA_OK) << bagua_last_error();
    }
    ASSERT_EQ(bagua_barrier(context, "equal so far"), BAGUA_OK) << bagua_last_error();
    // A rank between two that agree may end its program before the verdict; the next one fails
    // then.
    std::string odd = rank == 1 ? "17 steps" : "16 steps";
    bagua_code code = BAGUA_OK;
    for (int step = kSteps; step < kSteps + 2 && code == BAGUA_OK; ++step)
      code = run(step, odd);
    EXPECT_EQ(code, BAGUA_MISMATCH) << bagua_last_error();
    EXPECT_THAT(bagua_last_error(), AllOf(HasSubstr("rank 1: 17 steps"), HasSubstr(": 16 steps"),
                                          HasSubstr("bucket 'b', step 4")));
    failed.arrive_and_wait();
    bagua_unbind(binding);
  });
}

TEST(CApiTest, AbortEndsWhatThePeersWaitIn) {
  auto schedule = parse(gradientAllReduceSchedule());
  for (const char *place : {"barrier", "broadcast", "program"}) {
    SCOPED_TRACE(place);
    std::vector<std::vector<float>> gradients(2, std::vector<float>(1000));
    std::barrier<> failed(2);
    runContexts(connection("WindowMapped"), 2, [&](bagua_context *context) {
      auto rank = static_cast<size_t>(bagua_rank(context));
      bagua_bucket bucket = bucketOf("b", 1000, gradients[rank].data(), nullptr);
      bagua_binding *binding = nullptr;
      ASSERT_EQ(bagua_bind(context, schedule.get(), &bucket, &binding), BAGUA_OK)
          << bagua_last_error();
      bagua_code code = BAGUA_OK;
      if (rank == 0) {
        ASSERT_EQ(bagua_abort(context, "ended by a test"), BAGUA_OK) << bagua_last_error();
        code = bagua_barrier(context, "late");
      } else if (place == std::string("barrier")) {
        code = bagua_barrier(context, "here");
      } else if (place == std::string("broadcast")) {
        code = bagua_broadcast(context, gradients[1].data(), 4000, 1);
      } else if ((code = bagua_start(binding, BAGUA_GRADIENT, 0)) == BAGUA_OK) {
        while ((code = bagua_wait(binding, 100)) == BAGUA_PENDING) {
        }
      }
      EXPECT_EQ(code, BAGUA_PEER_LOST) << bagua_last_error();
      EXPECT_THAT(bagua_last_error(), AllOf(HasSubstr("rank 0 (host "), HasSubstr(", pid "),
                                            HasSubstr("ended by a test")));
      failed.arrive_and_wait();
      bagua_unbind(binding);
    });
  }
}

TEST(CApiTest, ErrorsOfTheWrapperAreExceptions) {
  try {
    bagua::Schedule::load("/nonexistent.bsched");
    ADD_FAILURE() << "no exception";
  } catch (const bagua::Error &error) {
    EXPECT_NE(error.code(), BAGUA_OK);
    EXPECT_THAT(error.what(), HasSubstr("/nonexistent.bsched"));
  }
}

} // namespace
} // namespace bagua::rt::testing
