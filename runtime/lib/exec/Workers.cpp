// The TBB arena behind large launches.
#include "Workers.h"

#include "bagua/Status.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/task_arena.h>
#include <optional>
#include <sched.h>
#include <vector>

namespace bagua::rt {

uint32_t Workers::offer(Job &job, const kernels::Kernel &kernel, const kernels::Args &args,
                        size_t pieceElements) {
  uint64_t pieces = args.count == 0 ? 0 : (args.count + pieceElements - 1) / pieceElements;
  BAGUA_CHECK(pieces <= Job::kCountMask);
  job.kernel_ = &kernel;
  job.args_ = args;
  job.pieceElements_ = pieceElements;
  job.pieces_ = static_cast<uint32_t>(pieces);
  job.done_.store(0, std::memory_order_relaxed);
  uint64_t generation = (job.ticket_.load(std::memory_order_relaxed) >> 2 * Job::kCountBits) + 1;
  job.ticket_.store(generation << 2 * Job::kCountBits | pieces << Job::kCountBits,
                    std::memory_order_release);
  return job.pieces_;
}

bool Workers::runPiece(Job &job, bool &last) {
  uint64_t ticket = job.ticket_.load(std::memory_order_acquire);
  uint64_t piece, pieces;
  do {
    piece = ticket & Job::kCountMask;
    pieces = ticket >> Job::kCountBits & Job::kCountMask;
    if (piece >= pieces)
      return false;
  } while (!job.ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel,
                                              std::memory_order_acquire));
  size_t begin = piece * job.pieceElements_;
  size_t end = std::min(begin + job.pieceElements_, job.args_.count);
  job.kernel_->run(*job.kernel_, job.args_, begin, end);
  // After this the driver may reuse the job.
  last = job.done_.fetch_add(1, std::memory_order_acq_rel) + 1 == pieces;
  return true;
}

bool Workers::help(Job &job) {
  bool last = false;
  return runPiece(job, last);
}

void Workers::cancel(Job &job) {
  uint64_t ticket = job.ticket_.load(std::memory_order_acquire);
  uint64_t pieces = ticket >> Job::kCountBits & Job::kCountMask;
  uint64_t started;
  // Claims all that is left, without running it.
  do {
    started = std::min(ticket & Job::kCountMask, pieces);
  } while (!job.ticket_.compare_exchange_weak(ticket, (ticket & ~Job::kCountMask) | pieces,
                                              std::memory_order_acq_rel,
                                              std::memory_order_acquire));
  while (job.done_.load(std::memory_order_acquire) < started)
    sched_yield();
  job.done_.store(static_cast<uint32_t>(pieces), std::memory_order_release);
}

namespace {

class ArenaWorkers final : public Workers {
public:
  ArenaWorkers(int threads, std::shared_ptr<Doorbell> doorbell)
      : threads_(threads), doorbell_(std::move(doorbell)) {
    // No slot is kept for the driver: it helps from outside, so that it can look at the transport
    // between pieces.
    if (threads > 1) {
      // Else TBB makes no more workers than there are cores, and says so on stderr.
      size_t allowed =
          tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism);
      limit_.emplace(tbb::global_control::max_allowed_parallelism,
                     std::max(allowed, static_cast<size_t>(threads)));
      arena_.initialize(threads - 1, 0);
    }
  }
  ~ArenaWorkers() override {
    while (tasks_.load(std::memory_order_acquire) != 0)
      sched_yield();
  }

  int threads() const override { return threads_; }

  Job *makeJob() override {
    std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      Job *job = free_.back();
      free_.pop_back();
      return job;
    }
    free_.reserve(jobs_.size() + 1);
    return &jobs_.emplace_back();
  }
  void freeJob(Job *job) override {
    std::lock_guard lock(mutex_);
    free_.push_back(job); // Room was reserved by makeJob().
  }

  void submit(Job &job, const kernels::Kernel &kernel, const kernels::Args &args,
              size_t pieceElements) override {
    uint32_t pieces = offer(job, kernel, args, pieceElements);
    for (int helper = 1; helper < threads_ && static_cast<uint32_t>(helper) < pieces; ++helper) {
      tasks_.fetch_add(1, std::memory_order_relaxed);
      try {
        arena_.enqueue([this, &job] {
          bool last = false;
          while (runPiece(job, last))
            if (last)
              doorbell_->ring();
          tasks_.fetch_sub(1, std::memory_order_release);
        });
      } catch (...) { // Out of memory: the driver runs all pieces itself.
        tasks_.fetch_sub(1, std::memory_order_relaxed);
        return;
      }
    }
  }

private:
  const int threads_;
  std::shared_ptr<Doorbell> doorbell_;
  std::optional<tbb::global_control> limit_;
  tbb::task_arena arena_{tbb::task_arena::automatic};
  std::atomic<int> tasks_{0};
  std::mutex mutex_;
  std::deque<Job> jobs_; ///< Guarded by mutex_, as is free_.
  std::vector<Job *> free_;
};

} // namespace

std::unique_ptr<Workers> Workers::create(int threads, std::shared_ptr<Doorbell> doorbell) {
  return std::make_unique<ArenaWorkers>(threads, std::move(doorbell));
}

} // namespace bagua::rt
