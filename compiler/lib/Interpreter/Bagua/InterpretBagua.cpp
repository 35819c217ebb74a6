// The oracle of the `bagua` level: every op on every rank, one after the other, on plain values.
#include "bagua/compiler/Interpreter.h"
#include "bagua/compiler/KernelCode.h"
#include "bagua/compiler/Passes.h"
#include "bagua/compiler/ScalarEvaluator.h"
#include "bagua/compiler/Topologies.h"
#include "bagua/dialect/Bagua/BaguaMap.h"
#include "bagua/dialect/Bagua/BaguaOps.h"
#include "bagua/kernels/Map.h"

#include "../Rounds.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/TypeSwitch.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <optional>

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

static_assert(ir::kMapCodeCount == kernels::kMapOpCount &&
                  static_cast<int>(ir::MapCode::Fma) == static_cast<int>(kernels::MapOp::Fma) &&
                  static_cast<int>(ir::MapCode::Floor) == static_cast<int>(kernels::MapOp::Floor) &&
                  static_cast<int>(ir::MapCode::Select) == static_cast<int>(kernels::MapOp::Select),
              "the dialect's bytecode is the kernels'");

/// A state of an algorithm: what the last step left, and what this step makes of it.
struct State {
  Everyone committed;
  std::optional<Everyone> updated;
};
using States = std::map<std::string, State>; ///< By name.

/// Runs handlers, for one step; what an update puts off is left in it.
class Interpreter {
public:
  Interpreter(const Inputs &inputs, const InterpreterOptions &options, States &states,
              Outputs &outputs)
      : inputs_(inputs), options_(options), states_(states), outputs_(outputs),
        world_(inputs.world), step_(static_cast<int64_t>(outputs.gradients.size()) - 1) {}

  /// Round number `round` of an async handler: leaves in the weights what is to be added to them.
  LogicalResult run(ir::OnOp on, int64_t round) {
    round_ = round;
    added_ = false;
    if (failed(run(on)))
      return failure();
    commit();
    if (added_)
      return success();
    for (Bytes &bytes : outputs_.weights.back()) // Nothing: -0, which no sum sees.
      inputs_.dtype == kernels::DType::F32 ? fill(bytes, -0.0f) : fill(bytes, -0.0);
    return success();
  }

  LogicalResult run(ir::OnOp on) {
    auto algorithm = on->getParentOfType<ir::AlgorithmOp>();
    grain_ = ir::grain(algorithm);
    seed_ = 0;
    values_.clear();
    readable_.clear();
    scalars_.assign(static_cast<size_t>(world_), {});
    for (const ir::AlgorithmOp::Parameter &parameter : algorithm.getParameters()) {
      Scalar value = valueOf(parameter);
      if (parameter.name == "seed" && !value.isFloat)
        seed_ = value.integer;
      for (ScalarEvaluator &scalars : scalars_)
        scalars.bind(parameter.value, value);
    }
    bool gradient = on.getEvent() == ir::Event::Gradient;
    values_[on.getBucket()] = bucketsOf(gradient ? outputs_.gradients : outputs_.weights);
    if (on.getWeight())
      values_[on.getWeight()] = bucketsOf(outputs_.weights);
    return run(on.getBody().front());
  }

  /// The job has reached the optimizer step, which counts.
  void openGates() {
    if (gatedWeights_)
      outputs_.weights.back() = std::move(*gatedWeights_);
    gatedWeights_.reset();
    commit();
  }

  /// States take the values that they were updated to.
  void commit() {
    for (auto &[name, state] : states_)
      if (state.updated) {
        state.committed = std::move(*state.updated);
        state.updated.reset();
      }
  }

  /// First element of shard `index` of `shards`.
  static int64_t sizeOf(const Inputs &inputs, ir::Group group) {
    int64_t local = inputs.ranksPerNode();
    return group == ir::Group::World  ? inputs.world
           : group == ir::Group::Node ? local
                                      : inputs.world / local;
  }

  static int64_t shardBegin(const Inputs &inputs, int64_t grain, int64_t index, int64_t shards) {
    int64_t grains = (inputs.length + grain - 1) / grain;
    return std::min(inputs.length, index * grains / shards * grain);
  }

private:
  const Inputs &inputs_;
  const InterpreterOptions &options_;
  States &states_;
  Outputs &outputs_;
  int64_t world_, step_;         ///< The step as an index of the outputs.
  std::optional<int64_t> round_; ///< Of an async handler.
  bool added_ = false;           ///< It has updated the weight.
  int64_t grain_ = 1, seed_ = 0;
  std::optional<std::vector<Bytes>> gatedWeights_; ///< Stored when the gates open.
  std::map<std::string, Everyone> readable_;       ///< States that this handler has updated.
  bool allReduceIsOwn_ = false; ///< Items are over this rank's shard, not over those of all.
  std::vector<ScalarEvaluator> scalars_; ///< By rank.
  DenseMap<Value, Everyone> values_;

  template <typename T> static void fill(Bytes &bytes, T value) {
    for (size_t at = 0; at < bytes.size(); at += sizeof(T))
      std::memcpy(bytes.data() + at, &value, sizeof(T));
  }

  /// What `bagua.step` says.
  int64_t stepNumber() const { return round_ ? *round_ : inputs_.firstStep + step_; }

  Scalar valueOf(const ir::AlgorithmOp::Parameter &parameter) const {
    auto integer = dyn_cast<IntegerAttr>(parameter.initial);
    double initial = integer ? static_cast<double>(integer.getInt())
                             : cast<FloatAttr>(parameter.initial).getValueAsDouble();
    double value = parameterValue(inputs_, step_, parameter.name.str(), initial);
    return integer ? Scalar::of(static_cast<int64_t>(value)) : Scalar::ofReal(value);
  }

  Everyone bucketsOf(const std::vector<std::vector<Bytes>> &steps) const {
    Everyone buckets;
    for (const Bytes &bytes : steps.back())
      buckets.push_back({Item{inputs_.length, bytes}});
    return buckets;
  }

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
        .Case([&](ir::LocalSizeOp) {
          return bindScalar(op, [&](int64_t) { return sizeOf(ir::Group::Node); });
        })
        .Case([&](ir::NodesOp) {
          return bindScalar(op, [&](int64_t) { return sizeOf(ir::Group::Cross); });
        })
        .Case([&](ir::RankOp) { return bindScalar(op, [](int64_t rank) { return rank; }); })
        .Case([&](ir::StepOp) { return bindScalar(op, [&](int64_t) { return stepNumber(); }); })
        .Case([&](ir::ToF64Op convert) {
          return bindScalars(op, [&](ScalarEvaluator &at) -> FailureOr<double> {
            return at.tryReal(convert.getInput());
          });
        })
        .Case([&](ir::PowerOp power) {
          return bindScalars(op, [&](ScalarEvaluator &at) -> FailureOr<double> {
            FailureOr<double> base = at.tryReal(power.getBase());
            FailureOr<int64_t> exponent = at.tryInteger(power.getExponent());
            if (failed(base) || failed(exponent))
              return failure();
            return powInt(*base, *exponent);
          });
        })
        .Case([&](ir::UpdateOp update) { return runUpdate(update); })
        .Default([&](Operation *) { return runValue(op); });
  }

  template <typename Function> LogicalResult bindScalar(Operation &op, Function function) {
    for (int64_t rank = 0; rank < world_; ++rank)
      scalars_[rank].bind(op.getResult(0), function(rank));
    return success();
  }

  template <typename Function> LogicalResult bindScalars(Operation &op, Function function) {
    for (ScalarEvaluator &scalars : scalars_) {
      FailureOr<double> value = function(scalars);
      if (failed(value))
        return failure();
      scalars.bind(op.getResult(0), Scalar::ofReal(*value));
    }
    return success();
  }

  /// A scalar that all ranks must agree on.
  FailureOr<int64_t> shared(Operation &op, Value value, StringRef what) {
    FailureOr<int64_t> first = scalars_[0].tryInteger(value);
    if (failed(first))
      return failure();
    for (int64_t rank = 1; rank < world_; ++rank) {
      FailureOr<int64_t> other = scalars_[rank].tryInteger(value);
      if (failed(other))
        return failure();
      if (*other != *first)
        return op.emitOpError() << "expects " << what << " that is the same on all ranks, got "
                                << *first << " on rank 0 and " << *other << " on rank " << rank;
    }
    return *first;
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

  const Everyone &readState(const std::string &name) const {
    auto updated = readable_.find(name);
    return updated == readable_.end() ? states_.at(name).committed : updated->second;
  }

  void updateState(const std::string &name, const Everyone &value) {
    states_.at(name).updated = value;
    readable_[name] = value;
  }

  LogicalResult runUpdate(ir::UpdateOp update) {
    Everyone value = values_.at(update.getValue());
    if (update.getState()) {
      std::string name = update.getState()->str();
      keepEmptyPlaces(update.getValue().getType(), states_.at(name).committed, value);
      updateState(name, value);
      return success();
    }
    std::vector<Bytes> bytes;
    for (const Items &items : value)
      bytes.push_back(items[0].bytes);
    if (update.getRole() == ir::Role::Gradient)
      outputs_.gradients.back() = std::move(bytes);
    else if (update.getGate())
      gatedWeights_ = std::move(bytes);
    else
      outputs_.weights.back() = std::move(bytes);
    added_ = true;
    return success();
  }

  /// Places of a topology that hold no neighbour keep what the state has there.
  void keepEmptyPlaces(Type type, const Everyone &committed, Everyone &value) {
    auto per = dyn_cast<ir::PerType>(type);
    auto topology =
        per ? dyn_cast<ir::TopologyAttrInterface>(per.getOver()) : ir::TopologyAttrInterface();
    if (!topology)
      return;
    for (int64_t rank = 0; rank < world_; ++rank) {
      std::vector<bool> taken(static_cast<size_t>(world_));
      taken[rank] = true;
      for (int64_t entry = 0; entry < topology.entries(sizeOf(topology.getGroup())); ++entry) {
        int64_t source = heard(topology, rank, /*round=*/0, entry);
        if (taken[source])
          value[rank][entry] = committed[rank][entry];
        taken[source] = true;
      }
    }
  }

  // ---- Values ----

  LogicalResult runValue(Operation &op) {
    auto in = [&](Value value) -> const Everyone & { return values_.at(value); };
    FailureOr<Everyone> result =
        TypeSwitch<Operation *, FailureOr<Everyone>>(&op)
            .Case([&](ir::AllReduceOp reduce) { return allReduce(reduce, in(reduce.getInput())); })
            .Case([&](ir::ReduceScatterOp reduce) {
              ir::Group group = groupOf(reduce);
              return fold(op, allToAll(split(in(reduce.getInput()), group), group),
                          reduce.getKind());
            })
            .Case(
                [&](ir::SplitOp cut) { return FailureOr(split(in(cut.getInput()), groupOf(cut))); })
            .Case([&](ir::ConcatOp join) { return FailureOr(concat(in(join.getInput()))); })
            .Case([&](ir::AllToAllOp move) {
              return FailureOr(allToAll(in(move.getInput()), groupOf(move)));
            })
            .Case([&](ir::AllGatherOp move) {
              return FailureOr(allGather(in(move.getInput()), groupOf(move)));
            })
            .Case([&](ir::EncodeOp code) -> FailureOr<Everyone> {
              if (world_ == 1) // W1: alone, codecs are the identity.
                return in(code.getInput());
              return encode(op, in(code.getInput()), code.getCodec(), ir::drawNumber(code));
            })
            .Case([&](ir::DecodeOp code) -> FailureOr<Everyone> {
              if (world_ == 1)
                return in(code.getInput());
              ir::CodecAttrInterface codec = codecOf(code.getInput().getType());
              ir::EncodeOp encode = ir::encodeOf(code.getInput());
              if (codec.decodeIsRandom() && !encode)
                return op.emitOpError() << "expects packed values of one bagua.encode: the numbers "
                                           "that it drew are drawn again";
              return decode(op, in(code.getInput()), codec, encode ? ir::drawNumber(encode) : 0);
            })
            .Case([&](ir::ReduceOp reduce) {
              return fold(op, in(reduce.getInput()), reduce.getKind());
            })
            .Case([&](ir::NeighborExchangeOp move) -> FailureOr<Everyone> {
              FailureOr<int64_t> round = roundOf(op, move.getRound());
              if (failed(round))
                return failure();
              return exchange(in(move.getInput()), move.getTopology(), *round);
            })
            .Case([&](ir::MixOp mixing) -> FailureOr<Everyone> {
              FailureOr<int64_t> round = roundOf(op, mixing.getRound());
              if (failed(round))
                return failure();
              return mix(op, in(mixing.getValue()), in(mixing.getNeighbors()), mixing.getTopology(),
                         *round);
            })
            .Case([&](ir::ReadOp read) { return FailureOr(readState(read.getState().str())); })
            .Case([&](ir::MapOp map) { return runMap(map); })
            .Case([&](ir::DotOp dot) {
              return reduced(op, "dot", {&in(dot.getLhs()), &in(dot.getRhs())});
            })
            .Case([&](ir::NormOp norm) { return reduced(op, "norm", {&in(norm.getInput())}); })
            .Case([&](ir::RandomOp random) { return draw(random); })
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

  // ---- Groups: ranks of a node follow each other ----

  template <typename Op> static ir::Group groupOf(Op op) { return ir::groupOf(op.getGroupAttr()); }

  int64_t sizeOf(ir::Group group) const { return sizeOf(inputs_, group); }

  /// The place of `rank` in its group.
  int64_t placeOf(ir::Group group, int64_t rank) const {
    int64_t local = inputs_.ranksPerNode();
    return group == ir::Group::World  ? rank
           : group == ir::Group::Node ? rank % local
                                      : rank / local;
  }

  /// The rank at `place` in the group of `rank`.
  int64_t member(ir::Group group, int64_t rank, int64_t place) const {
    int64_t local = inputs_.ranksPerNode();
    return group == ir::Group::World  ? place
           : group == ir::Group::Node ? rank / local * local + place
                                      : place * local + rank % local;
  }

  /// First element of shard `index` in a group; one shard more begins at the end.
  int64_t shardBegin(ir::Group group, int64_t index) const {
    return shardBegin(inputs_, grain_, index, sizeOf(group));
  }

  FailureOr<Everyone> allReduce(ir::AllReduceOp reduce, const Everyone &input) {
    Operation &op = *reduce.getOperation();
    ir::Group group = reduce.getReductionGroup();
    ir::CodecAttrInterface codec = reduce.getCodec().value_or(nullptr);
    if (sizeOf(group) == 1)
      return input;
    int64_t number = codec ? ir::drawNumber(&op) : 0;
    FailureOr<Everyone> value = input;
    if (!ir::isBucket(reduce.getInput().getType())) {
      if (codec && failed(value = encode(op, *value, codec, number)))
        return failure();
      value = allGather(*value, group);
      if (codec && failed(value = decode(op, *value, codec, number)))
        return failure();
      return fold(op, *value, reduce.getKind());
    }
    Everyone sent = withMemory(input, reduce.getWorker());
    value = split(sent, group);
    if (codec && failed(value = encode(op, *value, codec, number)))
      return failure();
    if (reduce.getWorker()) {
      FailureOr<Everyone> seen = decode(op, *value, codec, number);
      if (failed(seen))
        return failure();
      remember(*reduce.getWorker(), sent, concat(*seen));
    }
    value = allToAll(*value, group);
    allReduceIsOwn_ = true; // Everyone's version of one's own shard.
    if (codec && failed(value = decode(op, *value, codec, number)))
      return failure();
    if (failed(value = fold(op, *value, reduce.getKind())))
      return failure();
    sent = withMemory(*value, reduce.getServer());
    value = sent;
    if (codec && failed(value = encode(op, *value, codec, number + 1)))
      return failure();
    if (reduce.getServer()) {
      FailureOr<Everyone> seen = decode(op, *value, codec, number + 1);
      if (failed(seen))
        return failure();
      remember(*reduce.getServer(), sent, *seen);
    }
    value = allGather(*value, group);
    allReduceIsOwn_ = false;
    if (codec && failed(value = decode(op, *value, codec, number + 1)))
      return failure();
    return concat(*value);
  }

  Everyone withMemory(const Everyone &values, std::optional<StringRef> state) const {
    return state ? combined(values, readState(state->str()), ir::MapCode::Add) : values;
  }

  void remember(StringRef state, const Everyone &sent, const Everyone &seen) {
    updateState(state.str(), combined(sent, seen, ir::MapCode::Sub));
  }

  /// a + b or a - b, element by element.
  Everyone combined(const Everyone &a, const Everyone &b, ir::MapCode op) const {
    Everyone result = a;
    for (auto [items, others] : llvm::zip(result, b))
      for (auto [item, other] : llvm::zip(items, others))
        if (inputs_.dtype == kernels::DType::F32)
          combine<float>(item.bytes, other.bytes, op);
        else
          combine<double>(item.bytes, other.bytes, op);
    return result;
  }

  template <typename T> static void combine(Bytes &into, const Bytes &other, ir::MapCode op) {
    for (size_t at = 0; at < into.size(); at += sizeof(T)) {
      T a, b;
      std::memcpy(&a, into.data() + at, sizeof(T));
      std::memcpy(&b, other.data() + at, sizeof(T));
      T value = op == ir::MapCode::Add ? a + b : a - b;
      if (std::isnan(value)) // K5: one NaN for all.
        value = std::numeric_limits<T>::quiet_NaN();
      std::memcpy(into.data() + at, &value, sizeof(T));
    }
  }

  Everyone split(const Everyone &buckets, ir::Group group) const {
    Everyone result(buckets.size());
    for (int64_t rank = 0; rank < world_; ++rank)
      for (int64_t shard = 0; shard < sizeOf(group); ++shard) {
        int64_t begin = shardBegin(group, shard), end = shardBegin(group, shard + 1);
        auto at = [&](int64_t element) {
          return buckets[rank][0].bytes.begin() + element * inputs_.elementBytes();
        };
        result[rank].push_back({end - begin, Bytes(at(begin), at(end))});
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

  Everyone allToAll(const Everyone &values, ir::Group group) {
    Everyone result(values.size());
    for (int64_t target = 0; target < world_; ++target)
      for (int64_t place = 0; place < sizeOf(group); ++place) {
        int64_t source = member(group, target, place);
        result[target].push_back(transfer(source, target, values[source][placeOf(group, target)]));
      }
    return result;
  }

  Everyone allGather(const Everyone &values, ir::Group group) {
    Everyone result(values.size());
    for (int64_t target = 0; target < world_; ++target)
      for (int64_t place = 0; place < sizeOf(group); ++place) {
        int64_t source = member(group, target, place);
        result[target].push_back(transfer(source, target, values[source][0]));
      }
    return result;
  }

  // ---- Topologies ----

  FailureOr<int64_t> roundOf(Operation &op, Value round) {
    return round ? shared(op, round, "a round") : stepNumber();
  }

  /// Whom rank `rank` hears with an entry of `topology`.
  int64_t heard(ir::TopologyAttrInterface topology, int64_t rank, int64_t round,
                int64_t entry) const {
    ir::Group group = topology.getGroup();
    int64_t place = heardRank(topology, sizeOf(group), placeOf(group, rank), round, entry);
    return member(group, rank, place);
  }

  /// A peer that several entries name sends once.
  Everyone exchange(const Everyone &values, ir::TopologyAttrInterface topology, int64_t round) {
    Everyone result(values.size());
    for (int64_t target = 0; target < world_; ++target) {
      std::vector<bool> received(static_cast<size_t>(world_));
      for (int64_t entry = 0; entry < topology.entries(sizeOf(topology.getGroup())); ++entry) {
        int64_t source = heard(topology, target, round, entry);
        result[target].push_back(received[source] ? values[source][0]
                                                  : transfer(source, target, values[source][0]));
        received[source] = true;
      }
    }
    return result;
  }

  // ---- Arithmetic: the reference kernels ----

  FailureOr<kernels::Kernel> kernel(Operation &op, StringRef name, DictionaryAttr attributes = {}) {
    if (!attributes)
      attributes = DictionaryAttr::get(op.getContext());
    return findKernel(&op, name, attributes, inputs_.dtype);
  }

  static Item launch(const kernels::Kernel &kernel, const std::vector<const Item *> &inputs,
                     int64_t outputBytes, const std::vector<double> &scalars = {}) {
    return launch(kernel, inputs, inputs[0]->count, outputBytes, scalars);
  }

  static Item launch(const kernels::Kernel &kernel, const std::vector<const Item *> &inputs,
                     int64_t elements, int64_t outputBytes,
                     const std::vector<double> &scalars = {}) {
    Item result{elements, Bytes(static_cast<size_t>(outputBytes))};
    std::vector<std::span<const std::byte>> sources;
    for (const Item *input : inputs)
      sources.emplace_back(input->bytes);
    std::span<std::byte> target = result.bytes;
    auto count = static_cast<size_t>(elements);
    if (count > 0)
      kernel.run(kernel, {sources, {&target, 1}, scalars, count}, 0, count);
    return result;
  }

  // ---- Random numbers ----

  /// What a kernel draws from: seed, step, rank (-1: all alike), bucket, op, first element.
  std::vector<double> drawScalars(int64_t seed, int64_t rank, int64_t number, int64_t first) const {
    std::vector<double> scalars;
    for (int64_t value : {seed, stepNumber(), rank, inputs_.bucket, number, first})
      scalars.push_back(static_cast<double>(value));
    return scalars;
  }

  FailureOr<Everyone> draw(ir::RandomOp random) {
    FailureOr<kernels::Kernel> found = kernel(*random.getOperation(), "random_uniform");
    if (failed(found))
      return failure();
    Everyone result;
    bool isShared = random.getDraw() == ir::Draw::Shared;
    for (int64_t rank = 0; rank < world_; ++rank) {
      FailureOr<int64_t> seed = scalars_[rank].tryInteger(random.getSeed());
      if (failed(seed))
        return failure();
      result.push_back(
          {launch(*found, {}, inputs_.length, inputs_.length * inputs_.elementBytes(),
                  drawScalars(*seed, isShared ? -1 : rank, ir::drawNumber(random), 0))});
    }
    return result;
  }

  /// First element, in the bucket, of item `index` of rank `rank`, which is of type `type`.
  int64_t firstElement(Type type, int64_t rank, int64_t index) const {
    auto per = dyn_cast<ir::PerType>(type);
    FlatSymbolRefAttr shard = ir::shardGroup(ir::unpacked(per ? per.getElement() : type));
    if (!shard)
      return 0;
    ir::Group group = ir::groupOf(shard);
    return shardBegin(group, per && !per.getOwn() ? index : placeOf(group, rank));
  }

  /// `type`: of the values, packed or not; all_reduce has the shards of everyone or its own.
  FailureOr<Everyone> recode(Operation &op, const Everyone &values, StringRef kernelName,
                             ir::CodecAttrInterface codec, bool isEncode, int64_t number) {
    FailureOr<kernels::Kernel> found = kernel(op, kernelName, codec.getKernelAttributes());
    if (failed(found))
      return failure();
    bool draws = isEncode ? codec.isRandom() : codec.decodeIsRandom();
    Everyone result;
    for (int64_t rank = 0; rank < world_; ++rank) {
      Items &items = result.emplace_back();
      for (auto [index, item] : llvm::enumerate(values[rank])) {
        std::vector<double> scalars;
        if (draws) // Who decodes draws what the sender drew, so that must not depend on the sender.
          scalars = drawScalars(seed_, codec.decodeIsRandom() ? -1 : rank, number,
                                firstOf(op, rank, static_cast<int64_t>(index)));
        int64_t bytes =
            isEncode ? codec.packedBytes(item.count) : item.count * inputs_.elementBytes();
        items.push_back(launch(*found, {&item}, bytes, scalars));
      }
    }
    return result;
  }

  int64_t firstOf(Operation &op, int64_t rank, int64_t index) const {
    auto reduce = dyn_cast<ir::AllReduceOp>(op);
    if (!reduce || !ir::isBucket(reduce.getInput().getType()))
      return firstElement(op.getOperand(0).getType(), rank, index);
    ir::Group group = reduce.getReductionGroup(); // The shards of all, or one's own.
    return shardBegin(group, allReduceIsOwn_ ? placeOf(group, rank) : index);
  }

  FailureOr<Everyone> encode(Operation &op, const Everyone &values, ir::CodecAttrInterface codec,
                             int64_t number) {
    return recode(op, values, codec.getEncodeKernel(), codec, /*isEncode=*/true, number);
  }

  FailureOr<Everyone> decode(Operation &op, const Everyone &values, ir::CodecAttrInterface codec,
                             int64_t number) {
    return recode(op, values, codec.getDecodeKernel(), codec, /*isEncode=*/false, number);
  }

  FailureOr<Everyone> fold(Operation &op, const Everyone &values, ir::ReduceKind kind) {
    if (values[0].size() == 1) // A group of one: the identity, down to the payload of a NaN.
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
                          ir::TopologyAttrInterface topology, int64_t round) {
    FailureOr<kernels::Kernel> found = kernel(op, "mix");
    if (failed(found))
      return failure();
    Everyone result;
    int64_t size = sizeOf(topology.getGroup());
    for (int64_t rank = 0; rank < world_; ++rank) {
      std::vector<int64_t> peers; // Distinct, without oneself.
      std::vector<ir::Rational> weights;
      std::vector<const Item *> inputs{&values[rank][0]};
      for (int64_t entry = 0; entry < topology.entries(size); ++entry) {
        int64_t peer = heard(topology, rank, round, entry);
        if (peer == rank)
          continue;
        ir::Rational weight = topology.weight(size, entry); // Of one denominator.
        auto known = std::find(peers.begin(), peers.end(), peer);
        if (known != peers.end()) {
          weights[known - peers.begin()].numerator += weight.numerator;
          continue;
        }
        peers.push_back(peer);
        weights.push_back(weight);
        inputs.push_back(&neighbors[rank][entry]);
      }
      if (peers.empty()) {
        result.push_back(values[rank]);
        continue;
      }
      std::vector<double> scalars;
      for (ir::Rational weight : weights)
        scalars.push_back(static_cast<double>(weight.numerator) /
                          static_cast<double>(weight.denominator));
      result.push_back(
          {launch(*found, inputs, inputs[0]->count * inputs_.elementBytes(), scalars)});
    }
    return result;
  }

  /// `dot` or `norm`: one element of each rank's items.
  FailureOr<Everyone> reduced(Operation &op, StringRef name,
                              const std::vector<const Everyone *> &operands) {
    FailureOr<kernels::Kernel> found = kernel(op, name);
    if (failed(found))
      return failure();
    Everyone result;
    for (int64_t rank = 0; rank < world_; ++rank) {
      std::vector<const Item *> inputs;
      for (const Everyone *operand : operands)
        inputs.push_back(&(*operand)[rank][0]);
      Item item{1, Bytes(static_cast<size_t>(inputs_.elementBytes()))}; // Of nothing: 0.
      if (inputs[0]->count > 0)
        item.bytes = launch(*found, inputs, inputs_.elementBytes()).bytes;
      result.push_back({std::move(item)});
    }
    return result;
  }

  // ---- Maps: the expression at each element, by the rules of IEEE 754 ----

  FailureOr<Everyone> runMap(ir::MapOp map) {
    Everyone result;
    for (int64_t rank = 0; rank < world_; ++rank) {
      std::vector<double> scalars;
      for (Value scalar : map.getScalars()) {
        FailureOr<double> value = scalars_[rank].tryReal(scalar);
        if (failed(value))
          return failure();
        scalars.push_back(*value);
      }
      result.push_back(inputs_.dtype == kernels::DType::F32 ? mapped<float>(map, rank, scalars)
                                                            : mapped<double>(map, rank, scalars));
    }
    return result;
  }

  template <typename T> Items mapped(ir::MapOp map, int64_t rank, ArrayRef<double> scalars) {
    std::vector<const Items *> operands;
    const Items *model = nullptr; // Of the result's domain.
    for (Value value : map.getValues()) {
      operands.push_back(&values_.at(value)[rank]);
      if (value.getType() == map.getResult().getType())
        model = operands.back();
    }
    Items result;
    for (size_t j = 0; j < model->size(); ++j) {
      Item item{(*model)[j].count, Bytes((*model)[j].bytes.size())};
      for (int64_t i = 0; i < item.count; ++i) {
        auto element = [&](int64_t operand) {
          const Items &items = *operands[static_cast<size_t>(operand)];
          bool isOne = ir::isScalar(map.getValues()[operand].getType());
          const Item &of = items.size() == 1 ? items[0] : items[j];
          T value;
          std::memcpy(&value, of.bytes.data() + (isOne ? 0 : i) * sizeof(T), sizeof(T));
          return value;
        };
        T value = evaluate<T>(map, element, scalars);
        if (std::isnan(value)) // K5: one NaN for all.
          value = std::numeric_limits<T>::quiet_NaN();
        std::memcpy(item.bytes.data() + i * sizeof(T), &value, sizeof(T));
      }
      result.push_back(std::move(item));
    }
    return result;
  }

  /// The smaller; NaN if one is, and -0 is smaller than +0.
  template <typename T> static T minimum(T a, T b) {
    if (std::isnan(a) || std::isnan(b))
      return std::numeric_limits<T>::quiet_NaN();
    return a < b || (a == b && std::signbit(a)) ? a : b;
  }

  template <typename T, typename Element>
  static T evaluate(ir::MapOp map, Element element, ArrayRef<double> scalars) {
    std::vector<T> results; // Conditions are 0 or 1.
    ArrayRef<int64_t> code = map.getCode();
    for (size_t at = 0; at < code.size(); at += ir::kMapStride) {
      auto what = static_cast<ir::MapCode>(code[at]);
      unsigned arity = ir::mapArity(what);
      auto operand = [&](size_t i) {
        return arity > i ? results[static_cast<size_t>(code[at + 1 + i])] : T(0);
      };
      T a = operand(0), b = operand(1), c = operand(2);
      auto value = [&]() -> T {
        switch (what) {
        case ir::MapCode::Input:
          return element(code[at + 1]);
        case ir::MapCode::Scalar:
          return static_cast<T>(scalars[static_cast<size_t>(code[at + 1])]);
        case ir::MapCode::Constant:
          return static_cast<T>(map.getConstants()[static_cast<size_t>(code[at + 1])]);
        case ir::MapCode::Add:
          return a + b;
        case ir::MapCode::Sub:
          return a - b;
        case ir::MapCode::Mul:
          return a * b;
        case ir::MapCode::Div:
          return a / b;
        case ir::MapCode::Fma:
          return std::fma(a, b, c);
        case ir::MapCode::Sqrt:
          return std::sqrt(a);
        case ir::MapCode::Neg:
          return -a;
        case ir::MapCode::Abs:
          return std::fabs(a);
        case ir::MapCode::Sign:
          return a == 0 || std::isnan(a) ? a : std::copysign(T(1), a);
        case ir::MapCode::Min:
          return minimum(a, b);
        case ir::MapCode::Max:
          return -minimum(-a, -b);
        case ir::MapCode::Rint:
          return std::nearbyint(a);
        case ir::MapCode::Floor:
          return std::floor(a);
        case ir::MapCode::Lt:
          return a < b;
        case ir::MapCode::Le:
          return a <= b;
        case ir::MapCode::Eq:
          return a == b;
        case ir::MapCode::Ne:
          return a != b;
        case ir::MapCode::And:
          return a != 0 && b != 0;
        case ir::MapCode::Or:
          return a != 0 || b != 0;
        case ir::MapCode::Not:
          return a == 0;
        case ir::MapCode::Select:
          return a != 0 ? b : c;
        }
        llvm_unreachable("verified");
      };
      results.push_back(value());
    }
    return results.back();
  }
};

/// The initial value of a state, on every rank.
Everyone initialValue(ir::StateOp state, const Inputs &inputs) {
  auto per = dyn_cast<ir::PerType>(state.getType());
  int64_t grain = ir::grain(state->getParentOfType<ir::AlgorithmOp>());
  int64_t copies = 1;
  if (auto topology =
          per ? cast<ir::TopologyAttrInterface>(per.getOver()) : ir::TopologyAttrInterface())
    copies = topology.entries(Interpreter::sizeOf(inputs, topology.getGroup()));
  double initial = state.getInitial().convertToDouble();
  Everyone everyone;
  for (int64_t rank = 0; rank < inputs.world; ++rank) {
    Item item{inputs.length, inputs.weights[static_cast<size_t>(rank)]};
    if (!state.getInitialWeight()) {
      if (ir::isScalar(state.getType()))
        item.count = 1;
      else if (ir::shardGroup(state.getType()))
        item.count = Interpreter::shardBegin(inputs, grain, rank + 1, inputs.world) -
                     Interpreter::shardBegin(inputs, grain, rank, inputs.world);
      item.bytes.resize(static_cast<size_t>(item.count * inputs.elementBytes()));
      auto narrow = static_cast<float>(initial);
      for (int64_t i = 0; i < item.count; ++i) {
        std::byte *at = item.bytes.data() + i * inputs.elementBytes();
        if (inputs.dtype == kernels::DType::F32)
          std::memcpy(at, &narrow, sizeof(narrow));
        else
          std::memcpy(at, &initial, sizeof(initial));
      }
    }
    everyone.push_back(Items(static_cast<size_t>(copies), item));
  }
  return everyone;
}

/// The module with the bodies of called functions in their callers' place, and codecs linked.
FailureOr<OwningOpRef<ModuleOp>> linked(ModuleOp module) {
  OwningOpRef<ModuleOp> copy = module.clone();
  PassManager passes(module.getContext());
  passes.addPass(createInlineFunctions());
  if (failed(passes.run(*copy)) || failed(ir::linkCodecs(*copy)))
    return failure();
  return copy;
}

/// Codecs that take f32 only make an algorithm one of f32 buckets, in a world of one too.
LogicalResult checkElementType(ArrayRef<ir::AlgorithmOp> algorithms, const Inputs &inputs) {
  if (inputs.dtype == kernels::DType::F32)
    return success();
  for (ir::AlgorithmOp algorithm : algorithms) {
    WalkResult result = algorithm.walk([](Operation *op) {
      for (NamedAttribute attribute : op->getAttrs())
        if (auto codec = dyn_cast<ir::CodecAttrInterface>(attribute.getValue());
            codec && !codec.acceptsF64()) {
          op->emitOpError() << "expects a bucket of f32, got f64: " << codec << " takes f32 only";
          return WalkResult::interrupt();
        }
      return WalkResult::advance();
    });
    if (result.wasInterrupted())
      return failure();
  }
  return success();
}

LogicalResult checkParameters(ArrayRef<ir::AlgorithmOp> algorithms, const Inputs &inputs) {
  for (ir::AlgorithmOp algorithm : algorithms) {
    auto check = [&](const std::map<std::string, double> &given, bool eachStep) -> LogicalResult {
      for (const auto &[name, value] : given) {
        SmallVector<ir::AlgorithmOp::Parameter> parameters = algorithm.getParameters();
        auto *found = llvm::find_if(parameters, [&](const auto &p) { return p.name == name; });
        if (found == parameters.end())
          return algorithm.emitOpError("has no parameter '") << name << "'";
        if (eachStep && !found->perStep)
          return algorithm.emitOpError("expects parameter '")
                 << name << "' to have one value for all steps: it is not per_step";
        std::optional<int64_t> least;
        if (isa<IndexType>(found->value.getType()))
          least = ir::leastOf(*found);
        if (failed(checkParameter(algorithm, name, least, value)))
          return failure();
      }
      return success();
    };
    if (failed(check(inputs.parameters, false)))
      return failure();
    for (const auto &given : inputs.stepParameters)
      if (failed(check(given, true)))
        return failure();
  }
  return success();
}

FailureOr<Rounds> roundsOf(ir::OnOp on, const Inputs &inputs) {
  auto count = [&](Value value, std::optional<int64_t> number) {
    if (!value)
      return number.value_or(0);
    auto parameter = on->getParentOfType<ir::AlgorithmOp>().getParameter(value);
    auto initial = static_cast<double>(cast<IntegerAttr>(parameter->initial).getInt());
    return static_cast<int64_t>(parameterValue(inputs, 0, parameter->name.str(), initial));
  };
  return Rounds::create(on, count(on.getEvery(), on.getEveryNumber()),
                        count(on.getAfter(), on.getAfterNumber()), *on.getStaleness(),
                        on.getEveryUnit() == ir::IntervalUnit::Milliseconds);
}

} // namespace

FailureOr<Outputs> interpretBagua(ModuleOp module, const Inputs &inputs,
                                  const InterpreterOptions &options) {
  if (failed(checkInputs(module, inputs)))
    return failure();
  OwningOpRef<ModuleOp> copy;
  if (!module.getOps<func::FuncOp>().empty() || !module.getOps<ir::CodecOp>().empty() ||
      module.walk([](ir::CallOp) { return WalkResult::interrupt(); }).wasInterrupted()) {
    FailureOr<OwningOpRef<ModuleOp>> done = linked(module);
    if (failed(done))
      return failure();
    copy = std::move(*done);
    module = *copy;
  }
  auto algorithms = llvm::to_vector(module.getOps<ir::AlgorithmOp>());
  if (algorithms.empty())
    return module.emitError("expects an algorithm (bagua.algorithm) to interpret");
  if (failed(checkParameters(algorithms, inputs)) || failed(checkElementType(algorithms, inputs)))
    return failure();
  Outputs outputs;
  bool ownsUpdate = llvm::any_of(algorithms, [](ir::AlgorithmOp a) { return a.getOwnsUpdate(); });
  std::vector<States> states(algorithms.size()); // Two algorithms may use one name.
  for (auto [algorithm, own] : llvm::zip(algorithms, states))
    for (auto state : algorithm.getBody().getOps<ir::StateOp>())
      own[state.getSymName().str()].committed = initialValue(state, inputs);
  std::vector<std::pair<ir::OnOp, Rounds>> rounds;
  for (ir::AlgorithmOp algorithm : algorithms)
    for (auto on : algorithm.getBody().getOps<ir::OnOp>())
      if (on.isAsync()) {
        FailureOr<Rounds> those = roundsOf(on, inputs);
        if (failed(those))
          return failure();
        rounds.emplace_back(on, *those);
      }
  auto atBoundary = [&]() -> LogicalResult {
    for (auto &[on, those] : rounds) {
      auto index = llvm::find(algorithms, on->getParentOfType<ir::AlgorithmOp>());
      Interpreter interpreter(inputs, options,
                              states[static_cast<size_t>(index - algorithms.begin())], outputs);
      if (failed(those.atBoundary(inputs, outputs,
                                  [&](int64_t round) { return interpreter.run(on, round); })))
        return failure();
    }
    return success();
  };
  for (int64_t step = 0; step < inputs.steps; ++step) {
    beginStep(inputs, outputs);
    std::vector<Interpreter> interpreters;
    for (States &own : states)
      interpreters.emplace_back(inputs, options, own, outputs);
    auto run = [&](ir::Event event) -> LogicalResult {
      for (auto [algorithm, interpreter] : llvm::zip(algorithms, interpreters))
        for (auto on : algorithm.getBody().getOps<ir::OnOp>())
          if (on.getEvent() == event && failed(interpreter.run(on)))
            return failure();
      return success();
    };
    if (failed(run(ir::Event::BeforeForward)) || failed(run(ir::Event::Gradient)))
      return failure();
    if (!outputs.finite.back()) {
      for (States &own : states)
        for (auto &[name, state] : own)
          state.updated.reset();
      if (failed(atBoundary()))
        return failure();
      continue;
    }
    for (Interpreter &interpreter : interpreters)
      interpreter.openGates();
    if (!ownsUpdate)
      jobStep(inputs, outputs);
    if (failed(run(ir::Event::AfterUpdate)))
      return failure();
    for (Interpreter &interpreter : interpreters)
      interpreter.commit();
    if (failed(atBoundary()))
      return failure();
  }
  for (auto &[on, those] : rounds)
    those.finish(inputs, outputs);
  for (States &own : states)
    for (auto &[name, state] : own) {
      std::vector<Bytes> &ranks = outputs.states[name];
      for (const Items &items : state.committed) {
        Bytes &bytes = ranks.emplace_back();
        for (const Item &item : items)
          bytes.insert(bytes.end(), item.bytes.begin(), item.bytes.end());
      }
    }
  return outputs;
}

} // namespace bagua::compiler
