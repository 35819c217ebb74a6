// The file around a schedule: header, digest, sizes, what damaged bytes meet.
#include "SampleSchedules.h"

#include "bagua/Expand.h"

#include <gmock/gmock.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace bagua::rt::testing {
namespace {

using ::testing::HasSubstr;

std::vector<uint8_t> sampleBytes() { return *serialize(bytegradSchedule()); }

std::string messageOf(std::span<const uint8_t> bytes, bool verifyDigest = true) {
  auto schedule = Schedule::fromBytes(bytes, {.verifyDigest = verifyDigest});
  return schedule.ok() ? "" : std::string(schedule.status().message());
}

template <typename T> void poke(std::vector<uint8_t> &bytes, size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(value));
}

TEST(ScheduleFileTest, RoundTripGivesEqualBytes) {
  for (const SampleSchedule &sample : allSampleSchedules()) {
    auto bytes = serialize(sample.build());
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    EXPECT_EQ(*bytes, *serialize(sample.build())) << sample.name;
    auto schedule = Schedule::fromBytes(*bytes);
    ASSERT_TRUE(schedule.ok()) << schedule.status();
    EXPECT_EQ(*bytes, *serialize((*schedule)->ir())) << sample.name;
    EXPECT_EQ((*schedule)->ir().name, sample.name);
  }
}

TEST(ScheduleFileTest, DigestIsOverEveryOtherByte) {
  std::vector<uint8_t> bytes = sampleBytes();
  auto schedule = *Schedule::fromBytes(bytes);
  EXPECT_EQ(std::memcmp(schedule->digest().data(), bytes.data() + offsetof(FileHeader, digest), 16),
            0);
  EXPECT_EQ(schedule->digestHex().size(), 32u);
  for (size_t i = sizeof(FileHeader); i < bytes.size(); ++i) {
    bytes[i] ^= 0x10;
    ASSERT_THAT(messageOf(bytes), HasSubstr("damaged")) << "byte " << i;
    bytes[i] ^= 0x10;
  }
  for (size_t i = 0; i < sizeof(FileHeader); ++i) {
    bytes[i] ^= 0x10;
    ASSERT_FALSE(messageOf(bytes).empty()) << "header byte " << i;
    bytes[i] ^= 0x10;
  }
}

// A reader of before refuses by the bit; files that need nothing new have none and it reads them.
TEST(ScheduleFileTest, NewerFeaturesAreRequired) {
  auto features = [](const fb::ScheduleT &schedule) {
    FileHeader header;
    std::memcpy(&header, serialize(schedule)->data(), sizeof(header));
    return header.requiredFeatures;
  };
  for (const SampleSchedule &sample : sampleSchedules())
    EXPECT_EQ(features(sample.build()), 0u) << sample.name;
  EXPECT_EQ(features(gossipMomentumSchedule()), 1u);
  EXPECT_EQ(features(asyncAverageSchedule()), 3u); // Its state is the other one.
  auto with = [&](auto &&change) {
    fb::ScheduleT schedule = decentralizedSchedule();
    change(schedule);
    return features(schedule);
  };
  auto addExpr = [](fb::ScheduleT &s, fb::ExprOp op) {
    auto expr = std::make_unique<fb::ExprT>();
    expr->op = op;
    s.expressions.push_back(std::move(expr));
    return static_cast<uint32_t>(s.expressions.size() - 1);
  };
  EXPECT_EQ(with([&](auto &s) { addExpr(s, fb::ExprOp::Bucket); }), 1u);
  EXPECT_EQ(with([&](auto &s) { addExpr(s, fb::ExprOp::Pairing); }), 1u);
  EXPECT_EQ(with([&](auto &s) { s.programs[0]->rounds = addExpr(s, fb::ExprOp::Step); }), 1u);
  EXPECT_EQ(with([&](auto &s) { s.programs[0]->wire_bytes = addExpr(s, fb::ExprOp::Step); }), 1u);
  EXPECT_EQ(with([](auto &s) {
              auto &steps = s.programs[0]->body[0]->action.AsIf()->then;
              steps.back()->if_finite = true;
            }),
            1u);
  EXPECT_EQ(with([](auto &s) {
              s.states.push_back(std::make_unique<fb::StateT>());
              s.states[0]->name = "m";
            }),
            1u);
  EXPECT_EQ(with([](auto &s) {
              s.kernels.push_back(std::make_unique<fb::KernelT>());
              s.kernels.back()->name = "map";
              s.kernels.back()->map = std::make_unique<fb::MapCodeT>();
            }),
            1u);
}

TEST(ScheduleFileTest, NegativeHeader) {
  const std::vector<uint8_t> good = sampleBytes();
  auto with = [&](auto &&damage) {
    std::vector<uint8_t> bytes = good;
    damage(bytes);
    return messageOf(bytes, false);
  };
  EXPECT_THAT(messageOf({}), HasSubstr("has 0 bytes"));
  EXPECT_THAT(messageOf(std::span(good).first(63)), HasSubstr("has 63 bytes"));
  EXPECT_THAT(messageOf(std::span(good).first(64)), HasSubstr("cut short"));
  EXPECT_THAT(messageOf(std::span(good).first(good.size() - 1)), HasSubstr("cut short"));
  EXPECT_THAT(with([](auto &b) { b[0] = 'b'; }), HasSubstr("not a schedule file"));
  EXPECT_THAT(with([](auto &b) { poke<uint32_t>(b, offsetof(FileHeader, version), 2); }),
              HasSubstr("format version 2, this build reads 1 to 1"));
  EXPECT_THAT(with([](auto &b) { poke<uint32_t>(b, offsetof(FileHeader, version), 0); }),
              HasSubstr("format version 0"));
  EXPECT_THAT(with([](auto &b) { poke<uint32_t>(b, offsetof(FileHeader, headerBytes), 128); }),
              HasSubstr("header of 128 bytes"));
  EXPECT_THAT(with([](auto &b) { poke<uint64_t>(b, offsetof(FileHeader, requiredFeatures), 4); }),
              HasSubstr("needs features 0x4"));
  EXPECT_THAT(with([](auto &b) { poke<uint64_t>(b, offsetof(FileHeader, payloadBytes), ~0ull); }),
              HasSubstr("payload bytes"));
  EXPECT_THAT(with([](auto &b) { b[offsetof(FileHeader, reserved) + 15] = 1; }),
              HasSubstr("reserved"));
  EXPECT_THAT(with([](auto &b) { b.insert(b.end(), 4, 0); }), HasSubstr(": too long by 4 bytes"));
  EXPECT_THAT(with([](auto &b) { b[sizeof(FileHeader) + 4] = 'X'; }),
              HasSubstr("does not verify")); // the file identifier
  EXPECT_THAT(messageOf(std::vector<uint8_t>((16u << 20) + 1)), HasSubstr("at most 16777216"));
}

// FlatBuffers lets tables share a string: 30 000 locations with one name of 4096 bytes fit a small
// file and would unpack to 120 MB, a larger one to any size.
TEST(ScheduleFileTest, NegativeSharedStringsDoNotMultiply) {
  flatbuffers::FlatBufferBuilder builder;
  auto text = builder.CreateString(std::string(4096, 'x'));
  std::vector<flatbuffers::Offset<fb::Location>> locations;
  for (int i = 0; i < 30000; ++i)
    locations.push_back(fb::CreateLocation(builder, text, 1, 1));
  auto vector = builder.CreateVector(locations);
  auto name = builder.CreateString("bomb");
  fb::ScheduleBuilder schedule(builder);
  schedule.add_name(name);
  schedule.add_locations(vector);
  fb::FinishScheduleBuffer(builder, schedule.Finish());
  std::vector<uint8_t> bytes = sampleBytes();
  bytes.resize(sizeof(FileHeader));
  bytes.insert(bytes.end(), builder.GetBufferPointer(),
               builder.GetBufferPointer() + builder.GetSize());
  poke<uint64_t>(bytes, offsetof(FileHeader, payloadBytes), builder.GetSize());
  EXPECT_THAT(messageOf(bytes, false), HasSubstr("unpack to more than"));
}

// The same with one step used many times: 2^40 steps in a few hundred bytes.
TEST(ScheduleFileTest, NegativeSharedTablesDoNotMultiply) {
  flatbuffers::FlatBufferBuilder builder;
  auto name = builder.CreateString("bomb");
  auto wait = fb::CreateWait(builder, fb::Gate::BeforeUpdate);
  auto step = fb::CreateStep(builder, fb::Action::Wait, wait.Union());
  for (int i = 0; i < 14; ++i) {
    auto body = builder.CreateVector(std::vector<flatbuffers::Offset<fb::Step>>(8, step));
    auto branch = fb::CreateIf(builder, 0, body);
    step = fb::CreateStep(builder, fb::Action::If, branch.Union());
  }
  auto body = builder.CreateVector(std::vector<flatbuffers::Offset<fb::Step>>(8, step));
  fb::ProgramBuilder program(builder);
  program.add_name(name);
  program.add_body(body);
  auto programs =
      builder.CreateVector(std::vector<flatbuffers::Offset<fb::Program>>(1, program.Finish()));
  fb::ScheduleBuilder schedule(builder);
  schedule.add_name(name);
  schedule.add_programs(programs);
  fb::FinishScheduleBuffer(builder, schedule.Finish());
  std::vector<uint8_t> bytes = sampleBytes();
  bytes.resize(sizeof(FileHeader));
  bytes.insert(bytes.end(), builder.GetBufferPointer(),
               builder.GetBufferPointer() + builder.GetSize());
  poke<uint64_t>(bytes, offsetof(FileHeader, payloadBytes), builder.GetSize());
  EXPECT_THAT(messageOf(bytes, false), HasSubstr("does not verify"));
}

TEST(ScheduleFileTest, FileErrorsNameThePath) {
  std::string folder = ::testing::TempDir();
  std::string path = folder + "/schedule-file-test.bsched";
  auto message = [](const std::string &file) {
    auto schedule = Schedule::fromFile(file);
    return schedule.ok() ? "" : std::string(schedule.status().message());
  };
  EXPECT_EQ(message("/no/such.bsched"), "/no/such.bsched: cannot open: No such file or directory");
  EXPECT_THAT(message(folder), HasSubstr("cannot read"));
  EXPECT_THAT(message("/dev/zero"), HasSubstr("larger than"));
  std::vector<uint8_t> bytes = sampleBytes();
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char *>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  EXPECT_EQ(message(path), "");
  std::filesystem::resize_file(path, 100);
  EXPECT_THAT(message(path), HasSubstr(path + ": schedule file: has 36 payload bytes"));
  std::filesystem::remove(path);
}

TEST(ScheduleFileTest, FindsProgramsAndLocations) {
  auto schedule = loadOrDie(decentralizedSchedule());
  EXPECT_EQ(schedule->program(fb::Event::Gradient), nullptr);
  ASSERT_NE(schedule->program(fb::Event::BeforeForward), nullptr);
  EXPECT_EQ(schedule->location(0), "decentralized.mlir:5:5");
  EXPECT_EQ(schedule->location(kNone), "unknown location");
}

} // namespace
} // namespace bagua::rt::testing
