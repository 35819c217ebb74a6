// The oracle of the `bagua` level: every op on every rank, one after the other, on plain values.
#include "bagua/compiler/Interpreter.h"
#include "bagua/compiler/ScalarEvaluator.h"
#include "bagua/dialect/Bagua/BaguaOps.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/TypeSwitch.h"

#include <algorithm>

using namespace mlir;

namespace bagua::compiler {
namespace {

/// `count` elements, plain or packed.
struct Item {
  int64_t count = 0;
  Bytes bytes;
};

/// What one rank holds: one item, or one per peer.
using Items = std::vector<Item>;
/// By rank.
using Everyone = std::vector<Items>;

class Interpreter {
public:
  Interpreter(const Inputs &inputs, const InterpreterOptions &options, Outputs &outputs)
      : inputs_(inputs), options_(options), outputs_(outputs), world_(inputs.world),
        step_(static_cast<int64_t>(outputs.gradients.size()) - 1),
        scalars_(static_cast<size_t>(world_)) {}

  LogicalResult run(ir::OnOp on) {
    grain_ = ir::grain(on->getParentOfType<ir::AlgorithmOp>());
    bool gradient = on.getEvent() == ir::Event::Gradient;
    Everyone buckets;
    for (const Bytes &bytes : gradient ? outputs_.gradients.back() : outputs_.weights.back())
      buckets.push_back({Item{inputs_.length, bytes}});
    values_[on.getBucket()] = buckets;
    return run(on.getBody().front());
  }

private:
  const Inputs &inputs_;
  const InterpreterOptions &options_;
  Outputs &outputs_;
  int64_t world_, step_;
  int64_t grain_ = 1;
  std::vector<ScalarEvaluator> scalars_; ///< By rank.
  DenseMap<Value, Everyone> values_;

  // ---- Control ----

  LogicalResult run(Block &block) {
    for (Operation &op : block) {
      if (isa<scf::YieldOp>(op))
        continue; // Read by the scf.if.
      if (failed(run(op)))
        return failure();
    }
    return success();
  }

  LogicalResult run(Operation &op) {
    if (options_.log)
      outputs_.log.push_back(op.getName().getStringRef().str());
    if (ScalarEvaluator::isArithmetic(&op)) {
      for (ScalarEvaluator &scalars : scalars_)
        if (failed(scalars.evaluate(&op)))
          return failure();
      return success();
    }
    return TypeSwitch<Operation *, LogicalResult>(&op)
        .Case([&](scf::IfOp branch) { return runIf(branch); })
        .Case([&](ir::WorldOp) { return bindScalar(op, [&](int64_t) { return world_; }); })
        .Case([&](ir::RankOp) { return bindScalar(op, [](int64_t rank) { return rank; }); })
        .Case([&](ir::StepOp) {
          return bindScalar(op, [&](int64_t) { return inputs_.firstStep + step_; });
        })
        .Case([&](ir::UpdateOp update) { return runUpdate(update); })
        .Default([&](Operation *) { return runValue(op); });
  }

  template <typename Function> LogicalResult bindScalar(Operation &op, Function function) {
    for (int64_t rank = 0; rank < world_; ++rank)
      scalars_[rank].bind(op.getResult(0), function(rank));
    return success();
  }

  LogicalResult runIf(scf::IfOp branch) {
    FailureOr<int64_t> first = scalars_[0].tryInteger(branch.getCondition());
    if (failed(first))
      return failure();
    bool taken = *first != 0;
    for (int64_t rank = 1; rank < world_; ++rank) {
      FailureOr<int64_t> other = scalars_[rank].tryInteger(branch.getCondition());
      if (failed(other))
        return failure();
      if ((*other != 0) != taken)
        return branch.emitOpError() << "expects a condition that is the same on all ranks, got "
                                    << (taken ? "true" : "false") << " on rank 0 and "
                                    << (taken ? "false" : "true") << " on rank " << rank;
    }
    Block *block = taken ? branch.thenBlock() : branch.elseBlock();
    if (!block)
      return success();
    if (failed(run(*block)))
      return failure();
    for (auto [result, yielded] :
         llvm::zip(branch.getResults(), block->getTerminator()->getOperands())) {
      if (values_.contains(yielded)) {
        Everyone copy = values_.at(yielded);
        values_[result] = std::move(copy);
        continue;
      }
      for (ScalarEvaluator &scalars : scalars_)
        scalars.bind(result, scalars.scalar(yielded));
    }
    return success();
  }

  LogicalResult runUpdate(ir::UpdateOp update) {
    std::vector<Bytes> &target = update.getRole() == ir::Role::Gradient ? outputs_.gradients.back()
                                                                        : outputs_.weights.back();
    const Everyone &value = values_.at(update.getValue());
    for (int64_t rank = 0; rank < world_; ++rank)
      target[rank] = value[rank][0].bytes;
    return success();
  }

  // ---- Values ----

  LogicalResult runValue(Operation &op) {
    auto in = [&](Value value) -> const Everyone & { return values_.at(value); };
    FailureOr<Everyone> result =
        TypeSwitch<Operation *, FailureOr<Everyone>>(&op)
            .Case([&](ir::AllReduceOp reduce) {
              return allReduce(op, in(reduce.getInput()), reduce.getKind(),
                               reduce.getCodec().value_or(nullptr));
            })
            .Case([&](ir::ReduceScatterOp reduce) {
              return fold(op, allToAll(split(in(reduce.getInput()))), reduce.getKind());
            })
            .Case([&](ir::SplitOp cut) { return FailureOr(split(in(cut.getInput()))); })
            .Case([&](ir::ConcatOp join) { return FailureOr(concat(in(join.getInput()))); })
            .Case([&](ir::AllToAllOp move) { return FailureOr(allToAll(in(move.getInput()))); })
            .Case([&](ir::AllGatherOp move) { return FailureOr(allGather(in(move.getInput()))); })
            .Case(
                [&](ir::EncodeOp code) { return encode(op, in(code.getInput()), code.getCodec()); })
            .Case([&](ir::DecodeOp code) {
              return decode(op, in(code.getInput()), codecOf(code.getInput().getType()));
            })
            .Case([&](ir::ReduceOp reduce) {
              return fold(op, in(reduce.getInput()), reduce.getKind());
            })
            .Case([&](ir::NeighborExchangeOp move) {
              return FailureOr(exchange(in(move.getInput()), move.getTopology()));
            })
            .Case([&](ir::MixOp mixing) {
              return mix(op, in(mixing.getValue()), in(mixing.getNeighbors()),
                         mixing.getTopology());
            })
            .Default([](Operation *unknown) {
              return unknown->emitOpError("is not known to the interpreter of the bagua level");
            });
    if (failed(result))
      return failure();
    values_[op.getResult(0)] = std::move(*result);
    return success();
  }

  static ir::CodecAttrInterface codecOf(Type type) {
    if (auto per = dyn_cast<ir::PerType>(type))
      type = per.getElement();
    return cast<ir::PackedType>(type).getCodec();
  }

  /// First element of shard `index`; shard `world_` begins at the end.
  int64_t shardBegin(int64_t index) const {
    int64_t grains = (inputs_.length + grain_ - 1) / grain_;
    return std::min(inputs_.length, index * grains / world_ * grain_);
  }

  FailureOr<Everyone> allReduce(Operation &op, const Everyone &buckets, ir::ReduceKind kind,
                                ir::CodecAttrInterface codec) {
    if (world_ == 1)
      return buckets;
    FailureOr<Everyone> value = split(buckets);
    if (codec && failed(value = encode(op, *value, codec)))
      return failure();
    value = allToAll(*value);
    if (codec && failed(value = decode(op, *value, codec)))
      return failure();
    if (failed(value = fold(op, *value, kind)))
      return failure();
    if (codec && failed(value = encode(op, *value, codec)))
      return failure();
    value = allGather(*value);
    if (codec && failed(value = decode(op, *value, codec)))
      return failure();
    return concat(*value);
  }

  Everyone split(const Everyone &buckets) const {
    Everyone result(buckets.size());
    for (int64_t rank = 0; rank < world_; ++rank)
      for (int64_t shard = 0; shard < world_; ++shard) {
        auto at = [&](int64_t index) {
          return buckets[rank][0].bytes.begin() + shardBegin(index) * inputs_.elementBytes();
        };
        result[rank].push_back(
            {shardBegin(shard + 1) - shardBegin(shard), Bytes(at(shard), at(shard + 1))});
      }
    return result;
  }

  static Everyone concat(const Everyone &shards) {
    Everyone result;
    for (const Items &items : shards) {
      Item bucket;
      for (const Item &item : items) {
        bucket.count += item.count;
        bucket.bytes.insert(bucket.bytes.end(), item.bytes.begin(), item.bytes.end());
      }
      result.push_back({std::move(bucket)});
    }
    return result;
  }

  /// Rank `target` gets a copy of `item` from rank `source`.
  Item transfer(int64_t source, int64_t target, const Item &item) {
    if (source != target)
      outputs_.wireBytes.back()[source] += static_cast<int64_t>(item.bytes.size());
    return item;
  }

  Everyone allToAll(const Everyone &values) {
    Everyone result(values.size());
    for (int64_t target = 0; target < world_; ++target)
      for (int64_t source = 0; source < world_; ++source)
        result[target].push_back(transfer(source, target, values[source][target]));
    return result;
  }

  Everyone allGather(const Everyone &values) {
    Everyone result(values.size());
    for (int64_t target = 0; target < world_; ++target)
      for (int64_t source = 0; source < world_; ++source)
        result[target].push_back(transfer(source, target, values[source][0]));
    return result;
  }

  int64_t peerAt(int64_t rank, int64_t offset) const {
    return ((rank + offset) % world_ + world_) % world_;
  }

  /// A peer that several offsets name sends once.
  Everyone exchange(const Everyone &values, ir::TopologyAttr topology) {
    Everyone result(values.size());
    for (int64_t target = 0; target < world_; ++target) {
      std::vector<bool> received(static_cast<size_t>(world_));
      for (int64_t offset : topology.getOffsets()) {
        int64_t source = peerAt(target, offset);
        result[target].push_back(received[source] ? values[source][0]
                                                  : transfer(source, target, values[source][0]));
        received[source] = true;
      }
    }
    return result;
  }

  // ---- Arithmetic: the reference kernels ----

  FailureOr<kernels::Kernel> kernel(Operation &op, StringRef name, DictionaryAttr attributes = {}) {
    SmallVector<kernels::Attribute> list;
    if (attributes)
      for (NamedAttribute attribute : attributes)
        list.push_back({std::string_view(attribute.getName().getValue()),
                        cast<IntegerAttr>(attribute.getValue()).getInt()});
    kernels::Kernel found;
    std::string error;
    if (kernels::find(std::string_view(name), inputs_.dtype, list, found, error,
                      /*reference=*/true) != kernels::FindError::None)
      return op.emitOpError() << "cannot run: " << error;
    return found;
  }

  static Item launch(const kernels::Kernel &kernel, const std::vector<const Item *> &inputs,
                     int64_t outputBytes, const std::vector<double> &scalars = {}) {
    Item result{inputs[0]->count, Bytes(static_cast<size_t>(outputBytes))};
    std::vector<std::span<const std::byte>> sources;
    for (const Item *input : inputs)
      sources.emplace_back(input->bytes);
    std::span<std::byte> target = result.bytes;
    size_t count = static_cast<size_t>(result.count);
    if (count > 0)
      kernel.run(kernel, {sources, {&target, 1}, scalars, count}, 0, count);
    return result;
  }

  FailureOr<Everyone> encode(Operation &op, const Everyone &values, ir::CodecAttrInterface codec) {
    FailureOr<kernels::Kernel> found =
        kernel(op, codec.getEncodeKernel(), codec.getKernelAttributes());
    if (failed(found))
      return failure();
    return map(values, [&](const Item &item) {
      return launch(*found, {&item}, codec.packedBytes(item.count));
    });
  }

  FailureOr<Everyone> decode(Operation &op, const Everyone &values, ir::CodecAttrInterface codec) {
    FailureOr<kernels::Kernel> found =
        kernel(op, codec.getDecodeKernel(), codec.getKernelAttributes());
    if (failed(found))
      return failure();
    return map(values, [&](const Item &item) {
      return launch(*found, {&item}, item.count * inputs_.elementBytes());
    });
  }

  template <typename Function> static Everyone map(const Everyone &values, Function function) {
    Everyone result;
    for (const Items &items : values) {
      Items &mapped = result.emplace_back();
      for (const Item &item : items)
        mapped.push_back(function(item));
    }
    return result;
  }

  FailureOr<Everyone> fold(Operation &op, const Everyone &values, ir::ReduceKind kind) {
    if (world_ == 1) // The identity, down to the payload of a NaN.
      return values;
    FailureOr<kernels::Kernel> found =
        kernel(op, kind == ir::ReduceKind::Mean ? "reduce_mean" : "reduce_sum");
    if (failed(found))
      return failure();
    Everyone result;
    for (const Items &items : values) {
      std::vector<const Item *> inputs;
      for (const Item &item : items)
        inputs.push_back(&item);
      result.push_back({launch(*found, inputs, items[0].count * inputs_.elementBytes())});
    }
    return result;
  }

  FailureOr<Everyone> mix(Operation &op, const Everyone &values, const Everyone &neighbors,
                          ir::TopologyAttr topology) {
    FailureOr<kernels::Kernel> found = kernel(op, "mix");
    if (failed(found))
      return failure();
    SmallVector<int64_t> weights = topology.getCommonNumerators();
    double denominator = static_cast<double>(topology.getCommonDenominator());
    Everyone result;
    for (int64_t rank = 0; rank < world_; ++rank) {
      std::vector<int64_t> peers, numerators; // Distinct, without oneself.
      std::vector<const Item *> inputs{&values[rank][0]};
      for (auto [j, offset] : llvm::enumerate(topology.getOffsets())) {
        int64_t peer = peerAt(rank, offset);
        if (peer == rank)
          continue;
        auto known = std::find(peers.begin(), peers.end(), peer);
        if (known != peers.end()) {
          numerators[known - peers.begin()] += weights[j];
          continue;
        }
        peers.push_back(peer);
        numerators.push_back(weights[j]);
        inputs.push_back(&neighbors[rank][j]);
      }
      if (peers.empty()) {
        result.push_back(values[rank]);
        continue;
      }
      std::vector<double> scalars;
      for (int64_t numerator : numerators)
        scalars.push_back(static_cast<double>(numerator) / denominator);
      result.push_back({launch(*found, inputs, inputs_.length * inputs_.elementBytes(), scalars)});
    }
    return result;
  }
};

} // namespace

FailureOr<Outputs> interpretBagua(ModuleOp module, const Inputs &inputs,
                                  const InterpreterOptions &options) {
  if (failed(checkInputs(module, inputs)))
    return failure();
  Outputs outputs;
  SmallVector<ir::OnOp> handlers;
  for (ir::Event event : {ir::Event::BeforeForward, ir::Event::Gradient, ir::Event::AfterUpdate})
    for (auto algorithm : module.getOps<ir::AlgorithmOp>())
      for (auto on : algorithm.getBody().getOps<ir::OnOp>())
        if (on.getEvent() == event)
          handlers.push_back(on);
  if (handlers.empty())
    return module.emitError("expects an algorithm (bagua.algorithm) to interpret");
  for (int64_t step = 0; step < inputs.steps; ++step) {
    beginStep(inputs, outputs);
    for (ir::OnOp on : handlers)
      if (failed(Interpreter(inputs, options, outputs).run(on)))
        return failure();
  }
  return outputs;
}

} // namespace bagua::compiler
