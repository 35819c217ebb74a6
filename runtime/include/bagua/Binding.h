// A schedule on one bucket of this rank.
#pragma once

#include "bagua/Engine.h"
#include "bagua/Schedule.h"

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace bagua::rt {

/// A flat piece of the model, in the job's memory.
struct Bucket {
  std::string name; ///< Same on all ranks.
  int64_t length = 0;
  fb::DType dtype = fb::DType::F32;
  std::byte *gradient = nullptr, *weight = nullptr; ///< May be null where no program uses it.
  int64_t index = 0; ///< Its number in the job, same on all ranks: ExprOp Bucket.
  /// The binding runs only the schedule's async program, and keeps only the states of that;
  /// `weight` holds the snapshot when a round starts and what to add to the weight when it has
  /// ended. Else it runs and keeps all the others. The same on all ranks.
  bool async = false;
  std::string description{}; ///< In messages instead of bucket, program and line; empty: these.
};

/// Programs of one binding run one after the other; different bindings run concurrently. Every call
/// may come from any thread, one at a time for each binding.
class Binding {
public:
  struct Parameter {
    std::string name;
    std::variant<int64_t, double> value;
  };
  struct Options {
    std::vector<Parameter> parameters; ///< The schedule's defaults for the others.
    bool referenceKernels = false;     ///< The plain scalar kernels, for tests.
    uint64_t memoryBytesMax = 0;       ///< Scratch and landing memory. 0: what the machine has.
  };
  struct Statistics {
    uint64_t runs = 0, bytesRaw = 0, bytesWire = 0, waitNs = 0, busyNs = 0;
  };
  /// What this rank keeps of a state: elements of the bucket's dtype.
  struct State {
    std::string name;
    fb::StateDomain domain = fb::StateDomain::Bucket;
    fb::OnResize onResize = fb::OnResize::Mean;
    int64_t elements = 0;
    int64_t offset = 0; ///< Shard: its first element in the bucket.
    uint64_t bytes = 0;
  };

  /// Collective, in one order on all ranks: compares schedule, bucket and parameters, then reserves
  /// all memory. An error on one rank is an error on all. `engine` must outlive the binding, the
  /// bucket's memory too.
  static StatusOr<std::unique_ptr<Binding>> create(Engine &engine,
                                                   std::shared_ptr<const Schedule> schedule,
                                                   const Bucket &bucket, const Options &options);
  /// Only when no program runs, or after an error.
  virtual ~Binding() = default;

  /// Starts the program of `event`; nothing happens if there is none. kFailedPrecondition while one
  /// runs.
  virtual Status start(fb::Event event, int64_t step) = 0;
  /// Compares `text` with that of the other ranks while the next program to start runs: that
  /// program ends when the neighbours in the ring of ranks have said the same, and fails the group
  /// with kAborted if not. At most kCompareBytesMax bytes; every rank compares in the same program,
  /// or none does. Kept apart from payload. The first call reserves what later ones need.
  static constexpr size_t kCompareBytesMax = 504;
  virtual Status compare(std::string_view text) = 0;
  /// Lets the running program pass `gate`; once per run. Nothing happens if it has no such gate.
  /// `finite`, the same on all ranks: else what the schedule does only in a finite step is left
  /// out.
  virtual Status openGate(fb::Gate gate, bool finite = true) = 0;
  /// True when no program runs any more; false when `slice` has passed.
  virtual StatusOr<bool> wait(std::chrono::nanoseconds slice) = 0;
  /// As wait(), but also true when the program can get no further before the job opens a gate: what
  /// stands before it on the queue is done, such as an update of the gradient.
  virtual StatusOr<bool> waitUntilGate(std::chrono::nanoseconds slice) = 0;
  /// Sets a parameter that is declared `per_step`, for programs that start from now on; the same on
  /// all ranks. kFailedPrecondition while one runs.
  virtual Status setParameter(const Parameter &parameter) = 0;

  /// Of async bindings: when rounds begin, with the binding's parameters.
  struct Interval {
    int64_t every = 0; ///< At least 1, in the program's unit.
    int64_t after = 0; ///< Steps before the first round.
  };
  virtual StatusOr<Interval> interval() const = 0;
  /// Whether, in step `step`, the program of `event` sends anything on any rank; the same answer on
  /// all ranks. Of a program whose costs do not depend on the step: true, if there are others.
  virtual bool communicates(fb::Event event, int64_t step) const = 0;

  /// The schedule's states that the binding keeps, in the schedule's order.
  virtual std::vector<State> states() const = 0;
  /// Copies a state's value out or in; `state` is an index of states(), `bytes` has State::bytes
  /// bytes. kFailedPrecondition while a program runs, but for reading from an async binding, which
  /// gives what the last round to end has left.
  virtual Status readState(size_t state, std::span<std::byte> bytes) const = 0;
  virtual Status writeState(size_t state, std::span<const std::byte> bytes) = 0;

  virtual Statistics statistics() const = 0;
  /// What program `event` sends in one run of step `step`, with the parameters of now; 0 if there
  /// is none, or if the formula has no value.
  virtual uint64_t wireBytes(fb::Event event, int64_t step = 0) const = 0;
};

} // namespace bagua::rt
