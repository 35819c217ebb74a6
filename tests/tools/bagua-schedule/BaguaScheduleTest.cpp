// bagua-schedule as its users meet it: texts, differences, exit codes.
#include "Diff.h"
#include "Dump.h"
#include "SampleSchedules.h"
#include "ScheduleBuilder.h"

#include <gmock/gmock.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sys/wait.h>
#include <unistd.h>

namespace bagua::tools {
namespace {

using namespace rt::testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(DumpTest, SaysWhatAScheduleDoes) {
  std::string text = dump(*loadOrDie(decentralizedSchedule()));
  for (const char *line : {
           "buckets of f32 or f64, grain 1, not proven",
           "  kernel mix\n",
           "program before_forward on before_forward  2 channels",
           "  rounds 1 < world ? 1 : 0\n",
           "  buffer weight : job weight, length * element_bytes bytes\n",
           "  %15 = 2 < world ? 2 : 1 < world ? 1 : 0\n",
           "  slots neighbours : %15 of length * element_bytes bytes\n",
           "  0: if 1 < world {\n",
           "    0.then.0: net send weight[0, +length * element_bytes] to (rank + 1) mod world "
           "channel 0 "
           "signal sent[0]  // decentralized.mlir:5:5\n",
           "    0.then.2: if 2 < world {  // decentralized.mlir:5:5\n",
           "scalars(float(1) / 3, float(1) / 3) after(arrived[0], arrived[1])",
           "    } else {\n",
           "    0.then.4: cpu wait before_update  // decentralized.mlir:7:5\n",
           "after(sent[i1] for i1 = 0 to %15)",
       })
    EXPECT_THAT(text, HasSubstr(line));
}

TEST(DumpTest, ParenthesesFollowMeaning) {
  ScheduleBuilder s("made");
  E a = s.world(), b = s.rank(), c = s.length(), zero = s.constant(0);
  s.program("gradient", fb::Event::Gradient, 0, (a + b) * c - (a - (b - c)), zero);
  s.scratch("x", select(a < b && b == c, select(a < b, a, b), c % (a * b)));
  std::string text = dump(*loadOrDie(s.take()));
  EXPECT_THAT(text, HasSubstr("rounds (world + rank) * length - (world - (rank - length))\n"));
  EXPECT_THAT(text, HasSubstr("world < rank and rank == length ? (world < rank ? world : rank) : "
                              "length mod (world * rank) bytes"));
}

// A pool of n nodes can spell 2^n of them.
TEST(DumpTest, HostileExpressionsStayShort) {
  ScheduleBuilder s("made");
  E deep = s.world();
  for (int i = 0; i < 300; ++i)
    deep = deep + deep;
  s.program("gradient", fb::Event::Gradient, 0, deep, s.constant(0));
  auto schedule = loadOrDie(s.take());
  EXPECT_LT(dump(*schedule).size(), 30000u);
  fb::ScheduleT other = schedule->ir();
  other.programs[0]->rounds = 0;
  EXPECT_LT(diff(schedule->ir(), other)[0].size(), 2000u);
}

TEST(DumpTest, ExpandsOneRank) {
  rt::BindValues values;
  values.world = values.localSize = 2;
  values.rank = values.localRank = 1;
  values.length = 5;
  auto text = dumpExpanded(*loadOrDie(gradientAllReduceSchedule()), values);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text, HasSubstr("  rank 1 of 2, length 5, f32\n"));
  EXPECT_THAT(*text, HasSubstr("program gradient  rounds 2, wire bytes 20\n"));
  EXPECT_THAT(*text, HasSubstr("  0: net send gradient[0, +8] to 0 channel 0 signal sent[0]  // "
                               "gradient_allreduce.mlir:3:5\n"));
  EXPECT_THAT(*text,
              HasSubstr("cpu launch reduce_mean count 3 in(parts[0][0, +12], gradient[8, +12]) "
                        "out(gradient[8, +12]) after(arrived[0]) signal reduced[0]"));
}

TEST(DiffTest, EqualSchedulesDoNotDiffer) {
  for (const SampleSchedule &sample : allSampleSchedules())
    EXPECT_THAT(diff(sample.build(), sample.build()), IsEmpty());
}

TEST(DiffTest, IntervalsOfAsyncProgramsDiffer) {
  // Besides names and locations: the samples lie in files of their own.
  EXPECT_THAT(diff(asyncAverageSchedule(), asyncAverageSchedule(fb::IntervalUnit::Milliseconds, 5)),
              testing::IsSupersetOf({"program 'async': every_unit: Steps -> Milliseconds",
                                     "program 'async': staleness: 2 -> 5"}));
}

TEST(DumpTest, SaysWhenAsyncProgramsRun) {
  EXPECT_THAT(dump(*loadOrDie(asyncAverageSchedule(fb::IntervalUnit::Milliseconds, 5))),
              HasSubstr("\n  every @interval ms, after @warmup steps, staleness 5\n"));
}

// The same expressions in another order of the pool.
TEST(DiffTest, ComparesWhatExpressionsSay) {
  auto made = [](bool swapped) {
    ScheduleBuilder s("made");
    E first = swapped ? s.length() : s.world(), second = swapped ? s.world() : s.length();
    E world = swapped ? second : first, length = swapped ? first : second;
    s.program("gradient", fb::Event::Gradient, 0, world + 1, length * 2);
    return s.take();
  };
  ASSERT_NE(made(false).programs[0]->rounds, made(true).programs[0]->wire_bytes);
  EXPECT_THAT(diff(made(false), made(true)), IsEmpty());
}

TEST(DiffTest, NamesTheFirstDifferences) {
  fb::ScheduleT a = gradientAllReduceSchedule(), b = gradientAllReduceSchedule();
  b.grain = 32;
  auto &steps = b.programs[0]->body[0]->action.AsIf()->then;
  steps[0]->action.AsFor()->body[0]->action.AsSend()->channel = 1;
  steps.erase(steps.begin() + 2);
  EXPECT_THAT(
      diff(a, b),
      ElementsAre(
          "grain: 1 -> 32",
          "program 'gradient': step 0.then.0.0 (Send (gradient_allreduce.mlir:3:5)): channel: 0 "
          "-> 1",
          "program 'gradient': step 0.then.2 (For (gradient_allreduce.mlir:3:5)): location: "
          "gradient_allreduce.mlir:3:5 -> gradient_allreduce.mlir:4:5",
          "program 'gradient': step 0.then.2.0: Release (gradient_allreduce.mlir:3:5) -> Send "
          "(gradient_allreduce.mlir:4:5)",
          "program 'gradient': step 0.then.3.0: Send (gradient_allreduce.mlir:4:5) -> Launch copy "
          "(gradient_allreduce.mlir:4:5)",
          "program 'gradient': step 0.then.4: For (gradient_allreduce.mlir:4:5) -> none"));
}

TEST(DiffTest, OtherBlockOtherCodec) {
  std::vector<std::string> lines = diff(bytegradSchedule(8, 2048), bytegradSchedule(4, 2048));
  std::string text;
  for (const std::string &line : lines)
    text += line + "\n";
  EXPECT_THAT(
      text,
      HasSubstr("kernel: minmax_encode bits=8 block=2048 -> minmax_encode bits=4 block=2048"));
  EXPECT_THAT(text, HasSubstr("more"));
  EXPECT_EQ(lines.size(), 21u);
}

TEST(DiffTest, LocationsMayBeIgnored) {
  fb::ScheduleT other = gradientAllReduceSchedule();
  other.locations[0]->line = 77;
  other.producer = "someone else";
  EXPECT_FALSE(diff(gradientAllReduceSchedule(), other).empty());
  DiffOptions options;
  options.ignoreLocations = true;
  EXPECT_THAT(diff(gradientAllReduceSchedule(), other, options), IsEmpty());
}

class ToolTest : public ::testing::Test {
protected:
  std::filesystem::path folder_ = std::filesystem::path(::testing::TempDir()) /
                                  ("bagua-schedule-test." + std::to_string(getpid()));

  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string file(const std::string &name, const fb::ScheduleT &schedule) {
    auto bytes = rt::serialize(schedule);
    EXPECT_TRUE(bytes.ok()) << bytes.status();
    std::string path = (folder_ / name).string();
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char *>(bytes->data()),
               static_cast<std::streamsize>(bytes->size()));
    return path;
  }

  struct Result {
    int exitCode;
    std::string output; ///< Both streams.
  };
  Result run(const std::string &arguments) {
    std::FILE *pipe =
        popen((std::string(BAGUA_SCHEDULE_TOOL) + " " + arguments + " 2>&1").c_str(), "r");
    Result result{-1, {}};
    char chunk[4096];
    while (size_t got = std::fread(chunk, 1, sizeof(chunk), pipe))
      result.output.append(chunk, got);
    int status = pclose(pipe);
    if (WIFEXITED(status))
      result.exitCode = WEXITSTATUS(status);
    return result;
  }
};

TEST_F(ToolTest, DumpsAndUnrolls) {
  std::string path = file("b.bsched", bytegradSchedule());
  Result result = run("dump " + path);
  EXPECT_EQ(result.exitCode, 0);
  EXPECT_THAT(result.output, HasSubstr("kernel minmax_encode {bits = 8, block = 2048}"));
  result = run("dump " + path + " --world 3 --rank 2 --length 4097");
  EXPECT_EQ(result.exitCode, 0);
  EXPECT_THAT(result.output, HasSubstr("rank 2 of 3, length 4097"));
  result = run("dump " + path + " --world 3 --rank 3");
  EXPECT_EQ(result.exitCode, 2);
  EXPECT_THAT(result.output, HasSubstr("rank inside it"));
}

TEST_F(ToolTest, DiffExitsWithOneWhenFilesDiffer) {
  std::string a = file("a.bsched", bytegradSchedule()), b = file("b.bsched", bytegradSchedule(4));
  EXPECT_EQ(run("diff " + a + " " + a).exitCode, 0);
  Result result = run("diff --max 2 " + a + " " + b);
  EXPECT_EQ(result.exitCode, 1);
  EXPECT_THAT(result.output, HasSubstr("more\n"));
}

TEST_F(ToolTest, CheckExitsWithOneOnFindings) {
  fb::ScheduleT damaged = gradientAllReduceSchedule();
  auto &steps = damaged.programs[0]->body[0]->action.AsIf()->then;
  steps[1]->waits.clear();
  std::string good = file("good.bsched", gradientAllReduceSchedule()),
              bad = file("bad.bsched", damaged);
  Result result = run("check --world 12 --world 9 " + good);
  EXPECT_EQ(result.exitCode, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("no findings in "));
  result = run("check --world-max 3 --length 17 " + bad + " " + good);
  EXPECT_EQ(result.exitCode, 1) << result.output;
  EXPECT_THAT(result.output, HasSubstr("bad.bsched: B120 program 'gradient', world 2, length 17"));
  EXPECT_THAT(result.output, HasSubstr("good.bsched: no findings"));
}

TEST_F(ToolTest, NegativeFilesAndOptionsExitWithTwo) {
  std::string good = file("good.bsched", gradientAllReduceSchedule());
  std::string cut = (folder_ / "cut.bsched").string();
  std::filesystem::copy_file(good, cut);
  std::filesystem::resize_file(cut, 200);
  for (const std::string &command :
       {"dump " + cut, "diff " + good + " " + cut, "check " + cut, "check " + good + " " + cut}) {
    Result result = run(command);
    EXPECT_EQ(result.exitCode, 2) << command;
    EXPECT_THAT(result.output,
                HasSubstr("bagua-schedule: " + cut + ": schedule file: has 136 payload"));
  }
  EXPECT_EQ(run("dump /no/such.bsched").exitCode, 2);
  EXPECT_EQ(run("check --world 1000 " + good).exitCode, 2);
  EXPECT_EQ(run("check").exitCode, 2);
  EXPECT_EQ(run("").exitCode, 2);
  EXPECT_EQ(run("frobnicate " + good).exitCode, 2);
  EXPECT_EQ(run("--help").exitCode, 0);
}

} // namespace
} // namespace bagua::tools
