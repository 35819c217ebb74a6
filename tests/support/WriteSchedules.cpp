// sample-schedules FOLDER: writes the sample schedules there, for tests in other languages.
#include "SampleSchedules.h"

#include <cstdio>
#include <filesystem>
#include <fstream>

int main(int argc, char **argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: sample-schedules FOLDER\n");
    return 2;
  }
  std::filesystem::path folder = argv[1];
  std::filesystem::create_directories(folder);
  for (const auto &sample : bagua::rt::testing::allSampleSchedules()) {
    auto bytes = bagua::rt::serialize(sample.build());
    std::filesystem::path path = folder / (std::string(sample.name) + ".bsched");
    std::ofstream out(path, std::ios::binary);
    if (bytes.ok())
      out.write(reinterpret_cast<const char *>(bytes->data()),
                static_cast<std::streamsize>(bytes->size()));
    out.close();
    if (!bytes.ok() || !out) {
      std::fprintf(stderr, "sample-schedules: cannot write %s\n", path.c_str());
      return 1;
    }
  }
  return 0;
}
