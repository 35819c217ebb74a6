#include "ucx/UcxLibrary.h"

#include "absl/strings/str_cat.h"

#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <vector>

namespace bagua::rt {
namespace {

/// UCX reads these while it is being loaded. What the user has set stays.
class LoadEnvironment {
public:
  LoadEnvironment() {
    set("UCX_HANDLE_ERRORS", "none"); // The job's own signal handlers are none of its business.
    set("UCX_LOG_LEVEL", "fatal");    // We name errors ourselves, with ranks.
    // It patches the code of mmap and its kin in the whole process, for a cache that only RDMA
    // uses.
    std::error_code error;
    if (std::filesystem::is_empty("/sys/class/infiniband", error) || error)
      set("UCX_MEM_MMAP_HOOK_MODE", "none");
  }
  ~LoadEnvironment() {
    for (const char *name : set_)
      unsetenv(name);
  }

private:
  void set(const char *name, const char *value) {
    if (std::getenv(name) == nullptr && setenv(name, value, 0) == 0)
      set_.push_back(name);
  }
  std::vector<const char *> set_;
};

Status loadOnce() {
  LoadEnvironment environment;
  // Kept for the life of the process: UCX has threads and does not support being unloaded.
  void *handle = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    return absl::UnimplementedError(
        absl::StrCat("ranks on several hosts need UCX (Debian: libucx0): ", dlerror()));
  auto *library = new UcxLibrary;
  const char *missing = nullptr;
  // dlsym on the handle searches libucs too, which libucp depends on.
#define BAGUA_UCX_LOAD(name)                                                                       \
  library->name = reinterpret_cast<decltype(library->name)>(dlsym(handle, #name));                 \
  if (library->name == nullptr)                                                                    \
    missing = #name;
  BAGUA_UCX_FUNCTIONS(BAGUA_UCX_LOAD)
#undef BAGUA_UCX_LOAD
  if (missing != nullptr) {
    delete library;
    return absl::UnimplementedError(
        absl::StrCat("this UCX is too old (1.13 is needed): it has no ", missing));
  }
  UcxLibrary::loaded = library;
  return absl::OkStatus();
}

} // namespace

const UcxLibrary *UcxLibrary::loaded = nullptr;

Status UcxLibrary::load() {
  static const Status result =
      loadOnce(); // Orders the write of `loaded` before every caller's reads.
  return result;
}

} // namespace bagua::rt
