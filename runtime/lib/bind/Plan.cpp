// Resolving a program: expressions to numbers, ranges to pointers, names to kernels.
#include "Plan.h"

#include "KernelCode.h"
#include "Memory.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include <algorithm>
#include <map>
#include <optional>

namespace bagua::rt {
namespace {

kernels::DType kernelDType(fb::DType dtype) {
  return dtype == fb::DType::F64 ? kernels::DType::F64 : kernels::DType::F32;
}

} // namespace

std::string Plan::subject() const {
  return description.empty() ? absl::StrCat("bucket '", bucketName, "', program ", program->name)
                             : description;
}

std::string Plan::place(uint32_t location) const {
  return description.empty() ? absl::StrCat(subject(), ", ", schedule->location(location))
                             : description;
}

std::string Plan::stepText(int64_t step) const {
  return absl::StrCat(program->event == fb::Event::Async ? "round " : "step ", step);
}

/// Builds a Plan from the flat program; one call per step.
class Plan::Resolver {
public:
  Resolver(Plan &plan, const Bucket &bucket, Trace &trace, const Options &options)
      : plan_(plan), bucket_(bucket), trace_(trace), options_(options) {}

  Status run() {
    BAGUA_ASSIGN(flat_, expand(*plan_.schedule, *plan_.program, plan_.bindValues));
    plan_.eventCount = flat_.eventCount;
    plan_.wireBytes = flat_.wireBytes;
    plan_.every = flat_.every;
    plan_.after = flat_.after;
    plan_.stateUses.assign(plan_.schedule->ir().states.size(), {});
    kernels_.resize(plan_.schedule->ir().kernels.size());
    plan_.spanName = trace_.name({plan_.program->name, bucket_.name, "", ""});
    plan_.channels.assign(plan_.program->channels, {});
    BAGUA_TRY(declareBuffers());
    BAGUA_TRY(declarePools());
    for (const FlatStep &step : flat_.steps)
      BAGUA_TRY(addStep(step));
    // Guards first: whether the other values are computed depends on them.
    plan_.stepValues = std::move(guardValues_);
    plan_.stepValues.insert(plan_.stepValues.end(), otherValues_.begin(), otherValues_.end());
    return layOut();
  }

private:
  Status invalid(const FlatStep &step, absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat(plan_.place(step.location), ": ", what));
  }

  Status declareBuffers() {
    const fb::ProgramT &program = *plan_.program;
    uint64_t bucketBytes =
        static_cast<uint64_t>(bucket_.length) * static_cast<uint64_t>(elementBytes(bucket_.dtype));
    for (size_t i = 0; i < program.buffers.size(); ++i) {
      const fb::BufferT &buffer = *program.buffers[i];
      BufferUse use;
      use.bytes = flat_.bufferBytes[i];
      use.kind = buffer.kind;
      if (buffer.kind == fb::BufferKind::State) {
        use.next = buffer.next;
        use.state = buffer.state;
        plan_.stateUses[use.state].hasNext |= use.next;
      } else if (buffer.kind == fb::BufferKind::Job) {
        bool isGradient = buffer.role == fb::Role::Gradient;
        use.job = isGradient ? bucket_.gradient : bucket_.weight;
        if (use.bytes != bucketBytes)
          return absl::InvalidArgumentError(absl::StrCat(
              "bucket '", bucket_.name, "', program ", program.name, ": job buffer '", buffer.name,
              "' expects ", use.bytes, " bytes, the bucket has ", bucketBytes));
        if (use.job == nullptr && bucketBytes > 0)
          return absl::InvalidArgumentError(
              absl::StrCat("bucket '", bucket_.name, "': program ", program.name, " of schedule '",
                           plan_.schedule->ir().name, "' needs the bucket's ",
                           isGradient ? "gradient" : "weight", ", got a null pointer"));
        if (reinterpret_cast<uintptr_t>(use.job) %
                static_cast<uint64_t>(elementBytes(bucket_.dtype)) !=
            0)
          return absl::InvalidArgumentError(absl::StrCat(
              "bucket '", bucket_.name, "': the ", isGradient ? "gradient" : "weight",
              " expects an address that is a multiple of ", elementBytes(bucket_.dtype)));
      }
      plan_.buffers_.push_back(use);
    }
    return absl::OkStatus();
  }

  Status declarePools() {
    uint64_t slots = 0;
    for (const FlatProgram::Pool &pool : flat_.slots) {
      PoolUse use;
      use.count = pool.count;
      use.bytes = pool.bytes;
      use.firstSlot = static_cast<uint32_t>(slots);
      slots += pool.count;
      if (slots >= kNone)
        return absl::ResourceExhaustedError(absl::StrCat(
            "bucket '", bucket_.name, "', program ", plan_.program->name, ": ", slots, " slots"));
      plan_.pools_.push_back(std::move(use));
    }
    plan_.slotCount = static_cast<uint32_t>(slots);
    return absl::OkStatus();
  }

  uint32_t slotOf(const ByteRange &range) const {
    return plan_.pools_[range.id].firstSlot + range.index;
  }

  void fix(Target target, size_t index, const ByteRange &range) {
    const BufferUse &buffer = plan_.buffers_[range.id];
    if (buffer.kind == fb::BufferKind::State)
      plan_.statePatches.push_back({target, buffer.next, static_cast<uint32_t>(index), buffer.state,
                                    range.offset, range.bytes});
    else
      plan_.fixes_.push_back(
          {target, static_cast<uint32_t>(index), range.id, range.offset, range.bytes});
  }

  Status addStep(const FlatStep &flat) {
    Step step;
    step.signal = flat.signal;
    step.location = flat.location;
    step.ifFinite = flat.ifFinite;
    step.waitsBegin = static_cast<uint32_t>(plan_.waits.size());
    plan_.waits.insert(plan_.waits.end(), flat.waits.begin(), flat.waits.end());
    step.waitsEnd = static_cast<uint32_t>(plan_.waits.size());
    bool skipped = false;
    if (flat.guarded && flat.guard.isConstant) {
      skipped = flat.guard.intValue == 0;
    } else if (flat.guarded) {
      step.guard = static_cast<uint32_t>(plan_.guards.size());
      plan_.guards.push_back(0);
      guardValues_.push_back({StepValue::Use::Guard, step.guard, kNone, flat.guard, flat.location});
    }
    if (!skipped) {
      switch (flat.kind) {
      case FlatStep::Kind::Send:
      case FlatStep::Kind::Recv:
        BAGUA_TRY(addTransfer(flat, step));
        break;
      case FlatStep::Kind::Release:
        step.kind = Kind::Release;
        step.item = slotOf(flat.range);
        break;
      case FlatStep::Kind::Launch:
        BAGUA_TRY(addLaunch(flat, step));
        break;
      case FlatStep::Kind::Wait:
        step.kind = Kind::Gate;
        step.item = static_cast<uint32_t>(flat.gate);
        plan_.gatesUsed |= uint32_t{1} << step.item;
        break;
      case FlatStep::Kind::Publish:
        step.kind = Kind::Publish;
        step.item = flat.state;
        break;
      }
      if (step.ifFinite)
        plan_.gatesUsed |= uint32_t{1} << static_cast<uint32_t>(fb::Gate::BeforeUpdate);
    }
    plan_.queues[static_cast<size_t>(flat.queue)].push_back(step);
    return absl::OkStatus();
  }

  /// Loops repeat a few names many times.
  uint32_t spanName(const std::string &name, uint32_t location) {
    auto [known, isNew] = spanNames_.try_emplace({name, location});
    if (isNew)
      known->second = trace_.name(
          {name, bucket_.name, plan_.program->name, plan_.schedule->location(location)});
    return known->second;
  }

  Status addTransfer(const FlatStep &flat, Step &step) {
    bool isSend = flat.kind == FlatStep::Kind::Send;
    step.kind = isSend ? Kind::Send : Kind::Recv;
    step.item = static_cast<uint32_t>(plan_.transfers.size());
    if (flat.queue != fb::Queue::Net)
      return invalid(flat, "sends and receives belong to the net queue");
    Transfer transfer;
    transfer.isSend = isSend;
    transfer.channel = flat.channel;
    transfer.bytes = flat.range.bytes;
    transfer.signal = flat.signal;
    transfer.location = flat.location;
    transfer.spanName = spanName(isSend ? "send" : "recv", flat.location);
    if (flat.peer.isConstant) {
      transfer.peer = static_cast<int32_t>(flat.peer.intValue);
    } else {
      otherValues_.push_back(
          {StepValue::Use::Peer, step.item, step.guard, flat.peer, flat.location});
    }
    if (!isSend || flat.range.space == fb::Space::Slot) {
      transfer.slot = slotOf(flat.range);
      transfer.slotOffset = flat.range.offset;
    }
    if (isSend && flat.range.space == fb::Space::Buffer) {
      BufferUse &buffer = plan_.buffers_[flat.range.id];
      buffer.isSent = true;
      if (buffer.kind == fb::BufferKind::State)
        plan_.stateUses[buffer.state].isSent = true;
      fix(Target::TransferData, step.item, flat.range);
    }
    if (!isSend) {
      PoolUse &pool = plan_.pools_[flat.range.id];
      if (transfer.peer < 0)
        pool.fromAnyPeer = true;
      else if (std::find(pool.sources.begin(), pool.sources.end(), transfer.peer) ==
               pool.sources.end())
        pool.sources.push_back(transfer.peer);
    }
    plan_.transfers.push_back(transfer);
    return absl::OkStatus();
  }

  /// An output may be exactly an input of as many bytes, where neither is packed; else nothing may
  /// overlap.
  Status checkOverlap(const FlatStep &flat, const kernels::Kernel &kernel) const {
    bool packed = kernel.packedInput || kernel.packedOutput;
    auto overlap = [](const ByteRange &a, const ByteRange &b) {
      return a.space == fb::Space::Buffer && b.space == fb::Space::Buffer && a.id == b.id &&
             a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
    };
    auto refuse = [&](absl::string_view what, const ByteRange &range, const ByteRange &output) {
      return invalid(flat, absl::StrCat("kernel '", plan_.schedule->ir().kernels[flat.kernel]->name,
                                        "' cannot work in place: ", what, " at byte ", range.offset,
                                        " overlaps output at byte ", output.offset));
    };
    for (size_t i = 0; i < flat.outputs.size(); ++i) {
      const ByteRange &output = flat.outputs[i];
      for (const ByteRange &input : flat.inputs)
        if (overlap(input, output) &&
            (packed || input.offset != output.offset || input.bytes != output.bytes))
          return refuse("input", input, output);
      for (size_t k = 0; k < i; ++k)
        if (overlap(flat.outputs[k], output))
          return refuse("another output", flat.outputs[k], output);
    }
    return absl::OkStatus();
  }

  /// Finds each kernel once.
  StatusOr<kernels::Kernel> kernelOf(const FlatStep &flat) {
    std::optional<kernels::Kernel> &known = kernels_[flat.kernel];
    if (known)
      return *known;
    const fb::KernelT &named = *plan_.schedule->ir().kernels[flat.kernel];
    kernels::Kernel kernel;
    std::string error;
    kernels::FindError found =
        findKernel(named, kernelDType(bucket_.dtype), kernel, error, options_.referenceKernels);
    if (found != kernels::FindError::None) {
      std::string text = absl::StrCat(plan_.place(flat.location), ": kernel '", named.name,
                                      "' for ", fb::EnumNameDType(bucket_.dtype), ": ", error);
      return found == kernels::FindError::UnknownName ||
                     found == kernels::FindError::UnsupportedDType
                 ? absl::UnimplementedError(text)
                 : absl::InvalidArgumentError(text);
    }
    known = kernel;
    return kernel;
  }

  Status addLaunch(const FlatStep &flat, Step &step) {
    step.kind = Kind::Launch;
    step.item = static_cast<uint32_t>(plan_.launches.size());
    const fb::KernelT &named = *plan_.schedule->ir().kernels[flat.kernel];
    if (flat.queue != fb::Queue::Cpu)
      return invalid(flat, absl::StrCat("kernel '", named.name, "' belongs to the cpu queue"));
    Launch launch;
    BAGUA_ASSIGN(launch.kernel, kernelOf(flat));
    const kernels::Kernel &kernel = launch.kernel;
    auto where = [&](absl::string_view what, size_t i) {
      return absl::StrCat("kernel '", named.name, "': ", what, " ", i);
    };
    if (flat.inputs.size() < kernel.inputsMin || flat.inputs.size() > kernel.inputsMax)
      return invalid(flat, absl::StrCat("kernel '", named.name, "' expects ", kernel.inputsMin,
                                        kernel.inputsMax == SIZE_MAX ? " or more" : "",
                                        " inputs, got ", flat.inputs.size()));
    if (flat.outputs.size() != kernel.outputs)
      return invalid(flat, absl::StrCat("kernel '", named.name, "' expects ", kernel.outputs,
                                        kernel.outputs == 1 ? " output, got " : " outputs, got ",
                                        flat.outputs.size()));
    size_t scalarsExpected = kernel.scalarsFor(flat.inputs.size());
    if (flat.scalars.size() != scalarsExpected)
      return invalid(flat, absl::StrCat("kernel '", named.name, "' expects ", scalarsExpected,
                                        " scalars, got ", flat.scalars.size()));
    BAGUA_TRY(checkOverlap(flat, kernel));

    launch.count = flat.count;
    launch.inputsBegin = static_cast<uint32_t>(plan_.inputs.size());
    launch.inputsCount = static_cast<uint32_t>(flat.inputs.size());
    launch.patchesBegin = static_cast<uint32_t>(plan_.patches.size());
    for (size_t i = 0; i < flat.inputs.size(); ++i) {
      const ByteRange &range = flat.inputs[i];
      uint64_t inputBytes = kernel.inputBytes(flat.count, i);
      if (range.bytes != inputBytes)
        return invalid(flat, absl::StrCat(where("input", i), " expects ", inputBytes, " bytes for ",
                                          flat.count, " elements, got ", range.bytes));
      auto index = static_cast<uint32_t>(plan_.inputs.size());
      plan_.inputs.emplace_back();
      if (range.space == fb::Space::Slot)
        plan_.patches.push_back({index, slotOf(range), range.offset, range.bytes});
      else
        fix(Target::Input, index, range);
      launch.bytes += range.bytes;
    }
    launch.patchesEnd = static_cast<uint32_t>(plan_.patches.size());
    launch.outputsBegin = static_cast<uint32_t>(plan_.outputs.size());
    launch.outputsCount = static_cast<uint32_t>(flat.outputs.size());
    uint64_t outputBytes = kernel.outputBytes(flat.count);
    for (size_t i = 0; i < flat.outputs.size(); ++i) {
      const ByteRange &range = flat.outputs[i];
      if (range.space == fb::Space::Slot)
        return invalid(
            flat, absl::StrCat(where("output", i), " is a received message, which is read-only"));
      if (range.bytes != outputBytes)
        return invalid(flat,
                       absl::StrCat(where("output", i), " expects ", outputBytes, " bytes for ",
                                    flat.count, " elements, got ", range.bytes));
      fix(Target::Output, plan_.outputs.size(), range);
      plan_.outputs.emplace_back();
      launch.bytes += range.bytes;
    }
    launch.scalarsBegin = static_cast<uint32_t>(plan_.scalars.size());
    launch.scalarsCount = static_cast<uint32_t>(flat.scalars.size());
    for (const StepExpr &scalar : flat.scalars) {
      if (!scalar.isConstant)
        otherValues_.push_back({StepValue::Use::Scalar, static_cast<uint32_t>(plan_.scalars.size()),
                                step.guard, scalar, flat.location});
      plan_.scalars.push_back(scalar.isConstant ? scalar.floatValue : 0.0);
    }
    launch.pieceElements = pieceElements(launch);
    launch.spanName = spanName(named.name, flat.location);
    plan_.launches.push_back(launch);
    return absl::OkStatus();
  }

  static uint64_t pieceElements(const Launch &launch) {
    if (launch.bytes <= kPieceBytes || launch.count == 0)
      return launch.count;
    uint64_t bytesPerElement = std::max<uint64_t>(launch.bytes / launch.count, 1);
    uint64_t grain = std::max<uint64_t>(launch.kernel.grain, 1);
    uint64_t grains = std::max<uint64_t>(kPieceBytes / bytesPerElement / grain, 1);
    // The pieces' number fits the workers' ticket (Workers.h).
    uint64_t grainsTotal = (launch.count + grain - 1) / grain;
    grains = std::max(grains, grainsTotal / (uint64_t{1} << 19));
    return grains * grain;
  }

  /// Scratch that is ever sent goes to an arena that peers can read, the rest to a private one.
  Status layOut() {
    uint64_t total = 0;
    uint64_t limit = options_.memoryBytesMax != 0 ? options_.memoryBytesMax : machineMemoryBytes();
    auto add = [&](uint64_t bytes) {
      total = bytes > kBytesMax ? kBytesMax : std::min(total + aligned(bytes), kBytesMax);
      return total <= limit;
    };
    bool fits = true;
    for (BufferUse &buffer : plan_.buffers_) {
      if (buffer.kind != fb::BufferKind::Scratch || !fits)
        continue;
      fits = add(buffer.bytes);
      uint64_t &arena = buffer.isSent ? plan_.sentBytes_ : plan_.privateBytes_;
      buffer.offset = arena;
      arena += fits ? aligned(buffer.bytes) : 0;
    }
    for (const PoolUse &pool : plan_.pools_)
      fits = fits && (pool.count == 0 || pool.bytes <= kBytesMax / pool.count) &&
             add(aligned(pool.bytes) * pool.count);
    if (!fits)
      return absl::ResourceExhaustedError(absl::StrCat(
          "bucket '", bucket_.name, "', program ", plan_.program->name, " needs more than the ",
          limit, " bytes of memory allowed for scratch and slots"));
    return absl::OkStatus();
  }

  Plan &plan_;
  const Bucket &bucket_;
  Trace &trace_;
  const Options &options_;
  FlatProgram flat_;
  std::vector<StepValue> guardValues_, otherValues_;
  std::map<std::pair<std::string, uint32_t>, uint32_t> spanNames_;
  std::vector<std::optional<kernels::Kernel>> kernels_; ///< By kernel of the schedule.
};

StatusOr<Plan> Plan::resolve(const Schedule &schedule, const fb::ProgramT &program,
                             const BindValues &values, const Bucket &bucket, Trace &trace,
                             const Options &options) {
  Plan plan;
  plan.schedule = &schedule;
  plan.program = &program;
  plan.bucketName = bucket.name;
  plan.description = bucket.description;
  plan.bindValues = values;
  BAGUA_TRY(Resolver(plan, bucket, trace, options).run());
  return plan;
}

Status Plan::reserve(Transport &transport, uint64_t binding, uint32_t channelBase) {
  auto context = [&](const Status &status) {
    return Status(status.code(), absl::StrCat("bucket '", bucketName, "', program ", program->name,
                                              ": ", status.message()));
  };

  // Scratch.
  if (sentBytes_ > 0) {
    StatusOr<Memory> memory = transport.allocate(sentBytes_);
    if (!memory.ok())
      return context(memory.status());
    sent_ = *std::move(memory);
  }
  private_ = allocateAligned(privateBytes_);
  if (privateBytes_ > 0 && private_ == nullptr)
    return context(absl::ResourceExhaustedError(
        absl::StrCat("cannot reserve ", privateBytes_, " bytes of scratch memory")));
  for (const Fix &fix : fixes_) {
    const BufferUse &buffer = buffers_[fix.buffer];
    std::byte *base = buffer.kind == fb::BufferKind::Job ? buffer.job
                      : buffer.isSent                    ? sent_.bytes.data() + buffer.offset
                                                         : private_.get() + buffer.offset;
    std::span<std::byte> range{base + fix.offset, fix.bytes};
    switch (fix.target) {
    case Target::TransferData:
      transfers[fix.index].data = range.data();
      break;
    case Target::Input:
      inputs[fix.index] = range;
      break;
    case Target::Output:
      outputs[fix.index] = range;
      break;
    }
  }

  // Landing memory, where some source of a pool does not lend views of its own.
  int world = static_cast<int>(bindValues.world), self = static_cast<int>(bindValues.rank);
  uint64_t landingBytes = 0;
  std::vector<uint64_t> poolOffsets(pools_.size(), UINT64_MAX);
  for (size_t i = 0; i < pools_.size(); ++i) {
    const PoolUse &pool = pools_[i];
    bool needed = std::any_of(pool.sources.begin(), pool.sources.end(),
                              [&](int peer) { return transport.needsLanding(peer); });
    for (int peer = 0; pool.fromAnyPeer && peer < world; ++peer)
      needed = needed || (peer != self && transport.needsLanding(peer));
    if (!needed)
      continue;
    poolOffsets[i] = landingBytes;
    landingBytes += pool.count * aligned(pool.bytes);
  }
  landing_ = allocateAligned(landingBytes);
  if (landingBytes > 0 && landing_ == nullptr)
    return context(absl::ResourceExhaustedError(
        absl::StrCat("cannot reserve ", landingBytes, " bytes of landing memory")));
  for (Transfer &transfer : transfers) {
    if (transfer.isSend)
      continue;
    size_t pool = pools_.size() - 1;
    while (pools_[pool].firstSlot > transfer.slot || pools_[pool].count == 0)
      --pool;
    if (poolOffsets[pool] != UINT64_MAX)
      transfer.landing = landing_.get() + poolOffsets[pool] +
                         (transfer.slot - pools_[pool].firstSlot) * aligned(pools_[pool].bytes);
  }

  // Channels: how much each may carry at once follows from the steps that use it.
  struct Load {
    uint64_t bytesMax = 0;
    uint32_t sends = 0, recvs = 0;
  };
  std::vector<std::vector<Load>> loads(channels.size());
  for (const Transfer &transfer : transfers) {
    auto &byPeer = loads[transfer.channel];
    byPeer.resize(static_cast<size_t>(world));
    for (int peer = 0; peer < world; ++peer) {
      if (transfer.peer >= 0 ? peer != transfer.peer : peer == self)
        continue;
      Load &load = byPeer[static_cast<size_t>(peer)];
      load.bytesMax = std::max(load.bytesMax, transfer.bytes);
      ++(transfer.isSend ? load.sends : load.recvs);
    }
  }
  for (uint32_t channel = 0; channel < loads.size(); ++channel) {
    channels[channel].assign(loads[channel].size(), nullptr);
    for (size_t peer = 0; peer < loads[channel].size(); ++peer) {
      const Load &load = loads[channel][peer];
      if (load.sends == 0 && load.recvs == 0)
        continue;
      StatusOr<Channel *> ends =
          transport.openChannel(binding, channelBase + channel, static_cast<int>(peer),
                                load.bytesMax, load.sends, load.recvs);
      if (!ends.ok())
        return context(ends.status());
      channels[channel][peer] = *ends;
    }
  }
  for (Transfer &transfer : transfers)
    if (transfer.peer >= 0)
      transfer.ends = channels[transfer.channel][static_cast<size_t>(transfer.peer)];
  return absl::OkStatus();
}

void Plan::patchStates(const States &states) {
  for (const StatePatch &patch : statePatches) {
    std::span<std::byte> range =
        (patch.next ? states.next(patch.state) : states.committed(patch.state))
            .subspan(patch.offset, patch.bytes);
    switch (patch.target) {
    case Target::TransferData:
      transfers[patch.index].data = range.data();
      break;
    case Target::Input:
      inputs[patch.index] = range;
      break;
    case Target::Output:
      outputs[patch.index] = range;
      break;
    }
  }
}

} // namespace bagua::rt
