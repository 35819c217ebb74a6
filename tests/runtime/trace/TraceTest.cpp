// The timeline as a viewer reads it.
#include "bagua/Trace.h"

#include "nlohmann/json.hpp"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <unistd.h>

namespace bagua::rt {
namespace {

using nlohmann::json;

std::vector<json> spansOf(const json &trace) {
  std::vector<json> spans;
  for (const json &event : trace["traceEvents"])
    if (event["ph"] == "X")
      spans.push_back(event);
  return spans;
}

TEST(TraceTest, SpansCarryTimesNamesAndArguments) {
  Trace trace(8);
  uint32_t send = trace.name({"send", "layer \"1\"", "gradient", "a.mlir:3:5"});
  trace.record({1'234'567, 2'000'000, 7, 4096, send, 2, Trace::Track::Net});
  json parsed = json::parse(trace.json(3, "host-a"));
  std::vector<json> spans = spansOf(parsed);
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_EQ(spans[0]["pid"], 3);
  EXPECT_EQ(spans[0]["name"], "send");
  EXPECT_EQ(spans[0]["cat"], "net");
  EXPECT_DOUBLE_EQ(spans[0]["ts"].get<double>(), 1234.567);
  EXPECT_DOUBLE_EQ(spans[0]["dur"].get<double>(), 765.433);
  EXPECT_EQ(spans[0]["args"], (json{{"bucket", "layer \"1\""},
                                    {"program", "gradient"},
                                    {"source", "a.mlir:3:5"},
                                    {"step", 7},
                                    {"peer", 2},
                                    {"bytes", 4096}}));
  EXPECT_EQ(parsed["otherData"]["rank"], 3);
  EXPECT_EQ(parsed["otherData"]["host"], "host-a");
}

TEST(TraceTest, TheNewestSpansAreKeptInOrderOfTime) {
  Trace trace(4);
  uint32_t name = trace.name({"x", "", "", ""});
  for (int64_t i = 0; i < 10; ++i)
    trace.record({(i ^ 1) * 1000, (i ^ 1) * 1000 + 500, i, 0, name, -1, Trace::Track::Cpu});
  json parsed = json::parse(trace.json(0, "h"));
  std::vector<double> starts;
  for (const json &span : spansOf(parsed))
    starts.push_back(span["ts"].get<double>());
  EXPECT_EQ(starts, (std::vector<double>{6, 7, 8, 9}));
  EXPECT_EQ(parsed["otherData"]["spans_recorded"], 10);
  EXPECT_EQ(parsed["otherData"]["spans_kept"], 4);
}

TEST(TraceTest, SpansThatOverlapLieOnLanesOfTheirOwn) {
  Trace trace(16);
  uint32_t name = trace.name({"x", "", "", ""});
  int64_t spans[][2] = {{0, 100}, {10, 20}, {15, 30}, {20, 40}, {100, 110}};
  for (auto [start, end] : spans)
    trace.record({start, end, -1, 0, name, -1, Trace::Track::Net});
  std::map<int, double> laneEnd;
  for (const json &span : spansOf(json::parse(trace.json(0, "h")))) {
    int lane = span["tid"].get<int>();
    if (laneEnd.count(lane))
      EXPECT_GE(span["ts"].get<double>(), laneEnd[lane]);
    laneEnd[lane] = span["ts"].get<double>() + span["dur"].get<double>();
  }
  EXPECT_EQ(laneEnd.size(), 3u);
}

TEST(TraceTest, AnEmptyTraceIsValid) {
  Trace trace(0);
  trace.record({1, 2, 3, 4, 0, 5, Trace::Track::Cpu});
  EXPECT_FALSE(trace.enabled());
  EXPECT_TRUE(spansOf(json::parse(trace.json(0, "h"))).empty());
}

TEST(TraceTest, WritesAFileOrSaysWhyNot) {
  Trace trace(4);
  std::string path = ::testing::TempDir() + "bagua-trace-" + std::to_string(::getpid()) + ".json";
  ASSERT_EQ(trace.write(path, 1, "h"), absl::OkStatus());
  std::ifstream file(path);
  EXPECT_TRUE(json::accept(file));
  std::remove(path.c_str());
  Status status = trace.write("/nonexistent/folder/t.json", 1, "h");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("/nonexistent/folder/t.json"));
}

TEST(TraceTest, ThePathNamesTheRank) {
  EXPECT_EQ(tracePath("t-%r.json", 12, 16), "t-12.json");
  EXPECT_EQ(tracePath("%r/%r", 0, 2), "0/0");
  EXPECT_EQ(tracePath("t%.json%", 3, 4), "t%.3.json%");
  // Nobody overwrites another's file; alone, the name is as it was given.
  EXPECT_EQ(tracePath("trace.json", 3, 4), "trace.3.json");
  EXPECT_EQ(tracePath("a.b/trace", 3, 4), "a.b/trace.3");
  EXPECT_EQ(tracePath("a.b/.json", 3, 4), "a.b/.json.3");
  EXPECT_EQ(tracePath("a.b/trace.json", 0, 1), "a.b/trace.json");
}

TEST(TraceTest, negative_AFileThatCannotBeWrittenIsToldAtOnce) {
  std::string folder = ::testing::TempDir() + "bagua-trace-" + std::to_string(::getpid());
  EXPECT_TRUE(checkTraceFile(folder + ".json").ok());
  EXPECT_FALSE(std::filesystem::exists(folder + ".json"));
  EXPECT_TRUE(checkTraceFile("trace.json").ok());
  EXPECT_TRUE(checkTraceFile("/dev/null").ok());
  auto message = [](const std::string &path) {
    Status status = checkTraceFile(path);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_EQ(message(folder + "/t.json"),
            "BAGUA_TRACE_FILE expects a file that can be written, got '" + folder +
                "/t.json': No such file or directory");
  ASSERT_TRUE(std::filesystem::create_directory(folder));
  EXPECT_THAT(message(folder), ::testing::HasSubstr("Is a directory"));
  std::filesystem::remove(folder);
  if (::geteuid() != 0) // Root may write anywhere.
    EXPECT_THAT(message("/proc/version"), ::testing::HasSubstr("Permission denied"));
}

} // namespace
} // namespace bagua::rt
