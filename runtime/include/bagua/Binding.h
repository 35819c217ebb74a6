// A schedule on one bucket of this rank.
#pragma once

#include "bagua/Engine.h"
#include "bagua/Schedule.h"

#include <cstddef>
#include <memory>
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
  static constexpr size_t kCompareBytesMax = 120;
  virtual Status compare(std::string_view text) = 0;
  /// Lets the running program pass `gate`; once per run. Nothing happens if it has no such gate.
  virtual Status openGate(fb::Gate gate) = 0;
  /// True when no program runs any more; false when `slice` has passed.
  virtual StatusOr<bool> wait(std::chrono::nanoseconds slice) = 0;
  virtual Statistics statistics() const = 0;
  /// What program `event` sends in one run; 0 if there is none.
  virtual uint64_t wireBytes(fb::Event event) const = 0;
};

} // namespace bagua::rt
