// libFuzzer target: any bytes as a schedule file, or as the FlatBuffer inside one.
#include "ExerciseSchedule.h"

#include <cstddef>
#include <cstring>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::span<const uint8_t> input(data, size);
  // A header of the input's own is kept, but for the size: a mutation must not end at it.
  if (size >= sizeof(bagua::rt::FileHeader) && std::memcmp(data, "BAGUASCH", 8) == 0)
    input = input.subspan(sizeof(bagua::rt::FileHeader));
  bagua::rt::testing::exerciseSchedule(bagua::rt::testing::fileAround(input));
  bagua::rt::testing::exerciseSchedule({data, size});
  return 0;
}
