// Everything that is done with a schedule file from outside.
#include "ExerciseSchedule.h"

#include "Diff.h"
#include "Dump.h"

#include "bagua/Expand.h"
#include "bagua/compiler/Checker.h"

#include <cstring>

namespace bagua::rt::testing {

std::vector<uint8_t> fileAround(std::span<const uint8_t> payload) {
  FileHeader header{};
  std::memcpy(header.magic, "BAGUASCH", 8);
  header.version = kFormatVersion;
  header.headerBytes = sizeof(header);
  header.payloadBytes = payload.size();
  std::vector<uint8_t> file(sizeof(header) + payload.size());
  std::memcpy(file.data(), &header, sizeof(header));
  if (!payload.empty())
    std::memcpy(file.data() + sizeof(header), payload.data(), payload.size());
  return file;
}

Reached exerciseSchedule(std::span<const uint8_t> file) {
  Reached reached;
  Schedule::Options options;
  options.verifyDigest = false;
  auto loaded = Schedule::fromBytes(file, options);
  if (!loaded.ok()) {
    BAGUA_CHECK(!loaded.status().message().empty());
    return reached;
  }
  reached.loaded = true;
  const Schedule &schedule = **loaded;

  bool isSmall = true;
  for (const auto &program : schedule.ir().programs)
    for (auto [world, rank, length] : {std::tuple{1, 0, 33}, {2, 1, 1}, {3, 0, 5000}, {8, 5, 0}}) {
      BindValues values;
      values.world = values.localSize = world;
      values.rank = values.localRank = rank;
      values.length = length;
      values.dtype = schedule.ir().dtypes.front();
      auto flat = expand(schedule, *program, values);
      if (!flat.ok()) {
        BAGUA_CHECK(!flat.status().message().empty());
        ++reached.refusals;
        continue;
      }
      ++reached.expansions;
      isSmall = isSmall && flat->steps.size() < 2000;
      for (const StepExpr *expr : {&flat->wireBytes, &flat->rounds})
        (void)evaluateInt(schedule, *expr, values, StepValues()).ok();
      // What bind and exec rely on.
      for (const FlatStep &step : flat->steps) {
        for (uint32_t event : step.waits)
          BAGUA_CHECK(event < flat->eventCount);
        BAGUA_CHECK(step.signal == kNone || step.signal < flat->eventCount);
        auto check = [&](const ByteRange &range) {
          if (range.space == fb::Space::Slot) {
            BAGUA_CHECK(range.index < flat->slots[range.id].count);
            BAGUA_CHECK(range.offset + range.bytes <= flat->slots[range.id].bytes);
          } else {
            BAGUA_CHECK(range.offset + range.bytes <= flat->bufferBytes[range.id]);
          }
        };
        for (const ByteRange &range : step.inputs)
          check(range);
        for (const ByteRange &range : step.outputs) {
          BAGUA_CHECK(range.space == fb::Space::Buffer);
          check(range);
        }
        if (step.kind == FlatStep::Kind::Send || step.kind == FlatStep::Kind::Recv) {
          BAGUA_CHECK(step.range.bytes > 0 && step.channel < program->channels);
          check(step.range);
        }
        BAGUA_CHECK((step.kind == FlatStep::Kind::Publish) ==
                    (step.state < schedule.ir().states.size()));
        for (const StepExpr *expr : {&step.guard, &step.peer})
          (void)evaluateInt(schedule, *expr, values, StepValues()).ok();
        for (const StepExpr &scalar : step.scalars)
          (void)evaluateFloat(schedule, scalar, values, StepValues()).ok();
      }
    }

  auto bytes = serialize(schedule.ir());
  BAGUA_CHECK(bytes.ok());
  auto again = Schedule::fromBytes(*bytes);
  BAGUA_CHECK(again.ok());
  BAGUA_CHECK(*serialize((*again)->ir()) == *bytes);
  tools::DiffOptions diffOptions;
  BAGUA_CHECK(tools::diff(schedule.ir(), (*again)->ir(), diffOptions).empty());
  BAGUA_CHECK(!tools::dump(schedule).empty());
  if (isSmall) {
    compiler::CheckOptions checkOptions;
    checkOptions.worldMax = 2;
    checkOptions.lengths = {33};
    checkOptions.steps = {0, 1};
    BAGUA_CHECK(compiler::check(schedule, checkOptions).ok());
  }
  return reached;
}

} // namespace bagua::rt::testing
