// Writes the golden files of the current format version, once; or their texts anew. See README.md.
#include "Golden.h"
#include "SampleSchedules.h"

#include <cstring>
#include <filesystem>
#include <fstream>

namespace {

using namespace bagua::rt;

bool write(const std::filesystem::path &path, const void *data, size_t bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(static_cast<const char *>(data), static_cast<std::streamsize>(bytes));
  out.close();
  if (!out)
    std::fprintf(stderr, "golden-writer: cannot write %s\n", path.c_str());
  return static_cast<bool>(out);
}

bool writeText(const std::filesystem::path &file) {
  auto schedule = Schedule::fromFile(file.string());
  auto text = schedule.ok() ? bagua::rt::testing::goldenText(**schedule) : schedule.status();
  if (!text.ok()) {
    std::fprintf(stderr, "golden-writer: %s\n", std::string(text.status().message()).c_str());
    return false;
  }
  std::filesystem::path path = file;
  return write(path.replace_extension(".txt"), text->data(), text->size());
}

} // namespace

int main(int argc, char **argv) {
  bool onlyText = argc == 3 && std::strcmp(argv[1], "--text") == 0;
  if (argc != 2 && !onlyText) {
    std::fprintf(stderr, "usage: golden-writer [--text] FOLDER\n");
    return 2;
  }
  std::filesystem::path folder = argv[argc - 1];
  std::filesystem::create_directories(folder);
  if (!onlyText) {
    if (!std::filesystem::is_empty(folder)) {
      std::fprintf(stderr, "golden-writer: %s has files; golden files are never replaced\n",
                   folder.c_str());
      return 1;
    }
    for (const auto &sample : bagua::rt::testing::allSampleSchedules()) {
      auto bytes = serialize(sample.build());
      if (!bytes.ok() ||
          !write(folder / (std::string(sample.name) + ".bsched"), bytes->data(), bytes->size()))
        return 1;
    }
  }
  for (const auto &entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".bsched" && !writeText(entry.path()))
      return 1;
  return 0;
}
