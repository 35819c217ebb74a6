// One program of a schedule on one bucket of one rank, with every expression, buffer, peer and
// kernel resolved: what exec runs without looking anything up.
#pragma once

#include "States.h"

#include "bagua/Binding.h"
#include "bagua/Expand.h"
#include "bagua/Trace.h"
#include "bagua/Transport.h"
#include "bagua/kernels/Kernels.h"

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace bagua::rt {

class Plan {
public:
  enum class Kind : uint8_t { Nothing, Send, Recv, Release, Launch, Gate, Publish };

  struct Step {
    Kind kind = Kind::Nothing;
    uint32_t waitsBegin = 0, waitsEnd = 0; ///< Into waits.
    uint32_t signal = kNone;               ///< Event.
    uint32_t guard = kNone;                ///< Into guards.
    uint32_t item =
        0; ///< Into transfers or launches; Release: slot; Gate: fb::Gate; Publish: state.
    bool ifFinite = false; ///< Waits for gate BeforeUpdate; skipped if the step is not finite.
    uint32_t location = 0;
  };

  /// A send or a receive.
  struct Transfer {
    int32_t peer = -1; ///< -1: known at each step only.
    uint32_t channel = 0;
    Channel *ends = nullptr; ///< Where the peer is fixed.
    uint64_t bytes = 0;
    const std::byte *data = nullptr; ///< Send from a buffer.
    uint32_t slot = kNone;           ///< Recv: target. Send: source, if it is a message in a slot.
    uint64_t slotOffset = 0;
    std::byte *landing = nullptr; ///< Recv.
    uint32_t signal = kNone;
    uint32_t location = 0;
    uint32_t spanName = 0;
    bool isSend = false;
  };

  struct Launch {
    kernels::Kernel kernel;
    uint32_t inputsBegin = 0, inputsCount = 0;
    uint32_t outputsBegin = 0, outputsCount = 0;
    uint32_t scalarsBegin = 0, scalarsCount = 0;
    uint32_t patchesBegin = 0, patchesEnd = 0; ///< Inputs that lie in slots.
    uint64_t count = 0;
    uint64_t bytes = 0;         ///< Read and written.
    uint64_t pieceElements = 0; ///< A multiple of the kernel's grain, about kPieceBytes of work.
    uint32_t spanName = 0;
  };
  struct Patch {
    uint32_t input = 0; ///< Into inputs.
    uint32_t slot = 0;
    uint64_t offset = 0, bytes = 0;
  };

  enum class Target : uint8_t { TransferData, Input, Output };
  /// A pointer into a state, whose place changes when the state is published.
  struct StatePatch {
    Target target = Target::Input;
    bool next = false;
    uint32_t index = 0; ///< Into transfers, inputs or outputs.
    uint32_t state = 0;
    uint64_t offset = 0, bytes = 0;
  };

  /// A value computed when a run starts.
  struct StepValue {
    enum class Use : uint8_t { Guard, Peer, Scalar };
    Use use = Use::Guard;
    uint32_t target = 0;    ///< Into guards, transfers or scalars.
    uint32_t guard = kNone; ///< Computed only where this guard holds.
    StepExpr expr;
    uint32_t location = 0;
  };

  struct Options {
    bool referenceKernels = false; ///< The plain scalar kernels, for tests.
    uint64_t memoryBytesMax = 0;   ///< Scratch and landing memory. 0: what the machine has.
  };

  /// Work that a driver does between two looks at the transport.
  static constexpr uint64_t kPieceBytes = uint64_t{256} << 10;

  /// Everything that needs no transport. `schedule` must outlive the plan.
  static StatusOr<Plan> resolve(const Schedule &schedule, const fb::ProgramT &program,
                                const BindValues &values, const Bucket &bucket, Trace &trace,
                                const Options &options);

  /// Reserves memory and opens channels; `channelBase` is added to the program's channel numbers.
  Status reserve(Transport &transport, uint64_t binding, uint32_t channelBase);
  /// Lets statePatches point to where `states` are now.
  void patchStates(const States &states);

  /// "bucket 'b0', program gradient", or the bucket's description.
  std::string subject() const;
  /// "bucket 'b0', program gradient, bytegrad.mlir:12:5", or the bucket's description.
  std::string place(uint32_t location) const;
  /// "step 7"; of an async program "round 7".
  std::string stepText(int64_t step) const;

  // ---- What exec reads; fixed after reserve() but for inputs, scalars, guards and states. ----
  const Schedule *schedule = nullptr;
  const fb::ProgramT *program = nullptr;
  std::string bucketName, description;
  BindValues bindValues;
  std::vector<Step> queues[2]; ///< By fb::Queue, in program order.
  std::vector<uint32_t> waits;
  uint32_t eventCount = 0, slotCount = 0;
  std::vector<uint8_t> guards;
  std::vector<Transfer> transfers;
  std::vector<Launch> launches;
  std::vector<std::span<const std::byte>> inputs;
  std::vector<std::span<std::byte>> outputs;
  std::vector<double> scalars;
  std::vector<Patch> patches;
  std::vector<StatePatch> statePatches;
  std::vector<StateUse> stateUses;   ///< By state.
  std::vector<StepValue> stepValues; ///< Guards first.
  /// By channel, then by peer (null: unused).
  std::vector<std::vector<Channel *>> channels;
  uint32_t gatesUsed = 0; ///< Bit per fb::Gate.
  uint32_t spanName = 0;
  StepExpr wireBytes;           ///< Of one run.
  int64_t every = 0, after = 0; ///< Of an async program.

private:
  class Resolver;
  struct BufferUse {
    uint64_t bytes = 0, offset = 0; ///< Scratch: within its arena.
    fb::BufferKind kind = fb::BufferKind::Scratch;
    bool isSent = false;
    bool next = false;  ///< State.
    uint32_t state = 0; ///< State.
    std::byte *job = nullptr;
  };
  struct PoolUse {
    uint64_t count = 0, bytes = 0;
    uint32_t firstSlot = 0;
    std::vector<int> sources; ///< Peers that send into it.
    bool fromAnyPeer = false;
  };
  /// A pointer that reserve() fills in once the scratch memory is known.
  struct Fix {
    Target target;
    uint32_t index = 0, buffer = 0;
    uint64_t offset = 0, bytes = 0;
  };
  std::vector<BufferUse> buffers_;
  std::vector<PoolUse> pools_;
  std::vector<Fix> fixes_;
  uint64_t sentBytes_ = 0, privateBytes_ = 0; ///< Sizes of the two scratch arenas.
  Memory sent_;                               ///< Scratch that peers read.
  std::unique_ptr<std::byte, void (*)(void *)> private_{nullptr, nullptr};
  std::unique_ptr<std::byte, void (*)(void *)> landing_{nullptr, nullptr};
};

} // namespace bagua::rt
