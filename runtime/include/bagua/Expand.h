// Turns one program of a schedule into the flat list of steps of one rank: loops unrolled,
// bind-time expressions evaluated, ranges checked against their buffers. Used by bind and by the
// checker.
#pragma once

#include "bagua/Schedule.h"

namespace bagua::rt {

struct BindValues {
  int64_t world = 1, rank = 0, localRank = 0, localSize = 1, nodes = 1;
  int64_t length = 0; ///< Elements in the bucket.
  int64_t bucket = 0; ///< Its number in the job.
  fb::DType dtype = fb::DType::F32;
  std::vector<int64_t> intParameters;  ///< By parameter index; per-step ones hold their default.
  std::vector<double> floatParameters; ///< By parameter index.
};
int64_t elementBytes(fb::DType dtype);

/// Elements [begin, end) of a bucket.
struct Shard {
  int64_t begin = 0, end = 0;
};
/// Shard `rank` of `world`: with B = ceil(length / grain), elements from min(length, grain *
/// floor(rank * B / world)) to where the next begins.
Shard shardOf(int64_t length, int64_t grain, int64_t world, int64_t rank);

/// Elements that this rank keeps of a state.
int64_t stateElements(const fb::ScheduleT &schedule, const fb::StateT &state,
                      const BindValues &values);

/// The partner of `rank` in round `round` of the random matching `seed`; `rank` itself where it has
/// none (one rank of an odd world). A Fisher-Yates shuffle of the ranks, for i = world - 1 … 1
/// swapping place i with place floor(h(i) * (i + 1) / 2^64), h(i) = mix(mix(mix(seed) ^ round) ^
/// i), mix the output function of SplitMix64; then places 2k and 2k + 1 are partners. Takes time
/// O(world).
int64_t pairingPartner(int64_t seed, int64_t round, int64_t world, int64_t rank);

/// Values that may change from step to step.
struct StepValues {
  int64_t step = 0;
  std::vector<int64_t> intParameters;
  std::vector<double> floatParameters;
};

/// A step-time expression frozen at bind: constant, or a pool node with its loop variables bound.
struct StepExpr {
  bool isConstant = true;
  int64_t intValue = 0;
  double floatValue = 0;
  uint32_t node = kNone;
  std::vector<std::pair<uint32_t, int64_t>> loops; ///< Loop id -> value.
};

struct ByteRange {
  fb::Space space = fb::Space::Buffer;
  uint32_t id = 0;    ///< Buffer index, or slots index.
  uint32_t index = 0; ///< Slot within the pool.
  uint64_t offset = 0, bytes = 0;
};

struct FlatStep {
  enum class Kind : uint8_t { Send, Recv, Release, Launch, Wait, Publish };
  Kind kind;
  fb::Queue queue;
  std::vector<uint32_t> waits; ///< Flat event numbers, sorted, unique.
  uint32_t signal = kNone;     ///< Flat event number.
  bool guarded = false;
  StepExpr guard; ///< Meaningful if guarded.
  StepExpr peer;  ///< Send, Recv.
  uint32_t channel = 0;
  ByteRange range;         ///< Send: source. Recv, Release: slot (offset 0, the message's bytes).
  uint32_t kernel = kNone; ///< Launch.
  std::vector<ByteRange> inputs, outputs;
  std::vector<StepExpr> scalars;
  uint64_t count = 0;     ///< Launch: elements.
  fb::Gate gate{};        ///< Wait.
  uint32_t state = kNone; ///< Publish.
  bool ifFinite = false;  ///< Launch, Publish: see Step.if_finite.
  uint32_t location = 0;
};

struct FlatProgram {
  const fb::ProgramT *source = nullptr;
  std::vector<uint64_t> bufferBytes; ///< By buffer index.
  struct Pool {
    uint64_t count, bytes;
  };
  std::vector<Pool> slots; ///< By slots index.
  uint32_t eventCount = 0;
  std::vector<uint32_t> firstEvent; ///< Flat number of each event array's element 0.
  std::vector<FlatStep> steps;      ///< Program order; queues interleave.
  StepExpr wireBytes, rounds;       ///< Constants are not negative.
  int64_t every = 0, after = 0;     ///< Async programs: at least 1, at least 0.
};

/// Errors: overflow, division by zero, a range outside its buffer or its message, a slot or event
/// index outside its pool, a bind-time peer outside [0, world) or, unless a guard leaves it out,
/// equal to rank, an event signalled twice, a slot used against program order (received into while
/// it holds a message, read or released while it holds none, or under another guard), a Job or
/// State buffer of another size than the bucket's or the state's, an interval between rounds below
/// 1, more than kMaxSteps steps or as much other work; each names program, location and value.
/// Values missing in `values`' parameters are the defaults.
///
/// Zero-byte sends, receives (with their releases) and launches of zero elements become steps that
/// are left out; events they would signal count as set (removed from `waits`).
///
/// Not checked here, but by the checker: that waits order the accesses, that every event awaited is
/// signalled, that peers pair up.
StatusOr<FlatProgram> expand(const Schedule &schedule, const fb::ProgramT &program,
                             const BindValues &values);
inline constexpr size_t kMaxSteps = size_t{1} << 18;

/// P1: what an index parameter is at least: 1 if something is divided by it, or it is the interval
/// between rounds, else 0; 0 too if it is compared with a number, which may guard the division.
int64_t leastOfParameter(const fb::ScheduleT &schedule, size_t parameter);

/// Evaluates a step-time expression.
StatusOr<int64_t> evaluateInt(const Schedule &schedule, const StepExpr &expr,
                              const BindValues &bind, const StepValues &step);
StatusOr<double> evaluateFloat(const Schedule &schedule, const StepExpr &expr,
                               const BindValues &bind, const StepValues &step);

} // namespace bagua::rt
