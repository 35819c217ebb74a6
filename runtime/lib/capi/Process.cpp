// Forks, exit, and the table of memory handed out.
#include "Process.h"

#include "Context.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <pthread.h>
#include <vector>

namespace bagua::rt::capi {
namespace {

struct Kept {
  Memory memory;
  uint64_t generation = 0;
};

/// Never destroyed: memory and contexts may be given back while the process exits.
struct Process {
  std::atomic<uint64_t> generation{0};
  std::mutex mutex;
  std::map<void *, Kept> memory; ///< Guarded by mutex, as is contexts.
  std::vector<std::weak_ptr<ContextState>> contexts;

  Process() {
    // The lock is held across a fork, so that the child finds it free.
    ::pthread_atfork([] { process().mutex.lock(); }, [] { process().mutex.unlock(); },
                     [] {
                       process().generation.fetch_add(1);
                       process().mutex.unlock();
                     });
    std::atexit([] {
      std::vector<std::weak_ptr<ContextState>> contexts;
      uint64_t generation = process().generation.load();
      {
        std::lock_guard lock(process().mutex);
        contexts = process().contexts;
      }
      for (auto &weak : contexts)
        if (auto context = weak.lock();
            context && context->engine && context->forkGeneration == generation)
          context->engine->stop();
    });
  }
  static Process &process() {
    static Process *instance = new Process;
    return *instance;
  }
};

} // namespace

uint64_t forkGeneration() { return Process::process().generation.load(std::memory_order_acquire); }

void stopAtExit(const std::shared_ptr<ContextState> &context) {
  Process &process = Process::process();
  std::lock_guard lock(process.mutex);
  std::erase_if(process.contexts, [](const auto &weak) { return weak.expired(); });
  process.contexts.push_back(context);
}

void keepMemory(const Memory &memory) {
  Process &process = Process::process();
  uint64_t generation = forkGeneration();
  std::lock_guard lock(process.mutex);
  process.memory[memory.bytes.data()] = {memory, generation};
}

bool freeMemory(void *address) {
  Process &process = Process::process();
  Memory memory; // Its last reference goes outside the lock.
  std::lock_guard lock(process.mutex);
  auto found = process.memory.find(address);
  if (found == process.memory.end())
    return false;
  if (found->second.generation == process.generation.load()) {
    memory = std::move(found->second.memory);
    process.memory.erase(found);
  }
  return true;
}

} // namespace bagua::rt::capi
