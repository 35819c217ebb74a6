// Old schedule files load and mean what they meant.
#include "Golden.h"

#include "bagua/compiler/Checker.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace bagua::rt::testing {
namespace {

namespace fs = std::filesystem;

std::string contentOf(const fs::path &path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(GoldenTest, EveryVersionLoadsAndMeansTheSame) {
  for (uint32_t version = 1; version <= kFormatVersion; ++version) {
    fs::path folder = fs::path(BAGUA_GOLDEN_DIR) / ("v" + std::to_string(version));
    size_t files = 0;
    for (const auto &entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() != ".bsched")
        continue;
      SCOPED_TRACE(entry.path().string());
      ++files;
      std::string bytes = contentOf(entry.path());
      FileHeader header;
      ASSERT_GE(bytes.size(), sizeof(header));
      std::memcpy(&header, bytes.data(), sizeof(header));
      EXPECT_EQ(header.version, version);
      auto schedule = Schedule::fromFile(entry.path().string());
      ASSERT_TRUE(schedule.ok()) << schedule.status();
      auto text = goldenText(**schedule);
      ASSERT_TRUE(text.ok()) << text.status();
      fs::path expected = entry.path();
      EXPECT_EQ(*text, contentOf(expected.replace_extension(".txt")));
      compiler::CheckOptions options;
      options.worldMax = 4;
      auto report = compiler::check(**schedule, options);
      ASSERT_TRUE(report.ok()) << report.status();
      EXPECT_TRUE(report->findings.empty()) << report->findings.front().text();
    }
    EXPECT_GE(files, 1u) << folder << ": see README.md beside it";
  }
}

} // namespace
} // namespace bagua::rt::testing
