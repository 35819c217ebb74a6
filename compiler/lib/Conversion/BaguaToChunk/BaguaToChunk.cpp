// From values to bytes: gives every value of a handler a place in a buffer or in landing slots, and
// turns ops into moves and kernel launches. Collectives are direct: every rank sends each peer its
// part.
#include "Sizes.h"

#include "bagua/compiler/Conditions.h"
#include "bagua/compiler/ExpandCollectives.h"
#include "bagua/compiler/Passes.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Remarks.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
namespace chunk = bagua::ir::chunk;

namespace bagua::compiler {

#define GEN_PASS_DEF_BAGUATOCHUNK
#include "bagua/compiler/Passes.h.inc"

namespace {

// ---- Shapes of values ---------------------------------------------------------------------------

/// What a type says about the elements of a value, whatever their bytes.
struct Shape {
  bool per = false;   ///< One element per peer, else one.
  bool own = false;   ///< Each element is over this rank's shard, else element p over shard p.
  bool shard = false; ///< Elements are over shards, else over the bucket.
  ir::TopologyAttr topology; ///< Peers are its neighbours; null: the ranks of the world.

  static Shape of(Type type) {
    Shape shape;
    if (auto per = dyn_cast<ir::PerType>(type)) {
      shape.per = true;
      shape.own = per.getOwn();
      shape.topology = dyn_cast<ir::TopologyAttr>(per.getOver());
      type = per.getElement();
    }
    shape.shard = static_cast<bool>(ir::shardGroup(ir::unpacked(type)));
    return shape;
  }
};

ir::CodecAttrInterface codecOf(Type type) {
  if (auto per = dyn_cast<ir::PerType>(type))
    type = per.getElement();
  auto packed = dyn_cast<ir::PackedType>(type);
  return packed ? packed.getCodec() : ir::CodecAttrInterface();
}

/// How a value lies in its buffer.
enum class Layout : uint8_t {
  Whole,   ///< As in the bucket: a shard at its offset.
  Single,  ///< At the buffer's start.
  Strided, ///< Element p at p times the largest element's bytes.
};

/// Where a value is. Elements that came from peers lie in `slots`, by peer; all others in `buffer`.
struct Placed {
  Shape shape;
  ir::CodecAttrInterface
      codec; ///< Of the bytes as they lie; null: plain. Decoding waits for a use.
  Value buffer;
  Layout layout = Layout::Whole;
  Value slots;           ///< Null: every element is in `buffer`.
  bool original = false; ///< In the job's buffer, as the handler found it.
  Value unchangedUnless; ///< i1; where it is false, the value is the job's own and was not written
                         ///< here.
};

/// True if `user` may run after `op` on one path. Equal ops and ops in other branches do not.
bool runsAfter(Operation *user, Operation *op) {
  for (Operation *at = op; at; at = at->getParentOp())
    if (Operation *there = at->getBlock()->findAncestorOpInBlock(*user))
      return there != at && at->isBeforeInBlock(there);
  return false;
}

chunk::Event eventOf(ir::Event event) {
  switch (event) {
  case ir::Event::Gradient:
    return chunk::Event::Gradient;
  case ir::Event::BeforeForward:
    return chunk::Event::BeforeForward;
  case ir::Event::AfterUpdate:
    return chunk::Event::AfterUpdate;
  }
  llvm_unreachable("a handler of an unknown event");
}

// ---- One handler --------------------------------------------------------------------------------

/// Lowers one handler to one program. Sizes and declarations go before the program's one forall,
/// costs behind it.
class HandlerLowering {
public:
  HandlerLowering(ir::OnOp on, int64_t grain, OpBuilder &builder)
      : on_(on), top_(builder), body_(builder), tail_(builder) {
    Location loc = on.getLoc();
    auto program = chunk::ProgramOp::create(builder, loc, ir::stringifyEvent(on.getEvent()),
                                            eventOf(on.getEvent()));
    top_.setInsertionPointToStart(&program.getBody().front());
    Emitter at(top_, loc);
    sizes_ = {at.create<chunk::WorldOp>(), at.create<chunk::LengthOp>(),
              at.create<chunk::ElementBytesOp>(), grain};
    job_ = at.create<chunk::JobOp>(on.getEvent() == ir::Event::Gradient ? chunk::Role::Gradient
                                                                        : chunk::Role::Weight);
    auto forall = at.create<chunk::ForallOp>();
    rank_ = forall.getRank();
    top_.setInsertionPoint(forall);
    body_.setInsertionPointToStart(&forall.getBody().front());
    tail_.setInsertionPointToEnd(&program.getBody().front());
  }

  LogicalResult run() {
    Placed bucket;
    bucket.shape = Shape::of(on_.getBucket().getType());
    bucket.buffer = job_;
    bucket.original = true;
    placed_[on_.getBucket()] = bucket;
    if (failed(lower(on_.getBody().front())))
      return failure();
    Emitter at(tail_, on_.getLoc());
    Value zero = at.constant(0);
    at.create<chunk::CostOp>(rounds_ ? rounds_ : zero, wireBytes_ ? wireBytes_ : zero);
    return success();
  }

private:
  ir::OnOp on_;
  OpBuilder top_, body_, tail_;
  Sizes sizes_;
  Value job_, rank_;
  llvm::MapVector<Value, Placed> placed_;
  IRMapping scalars_;
  SmallVector<Value> conditions_; ///< Of the branches around the op at hand, at the top.
  Value rounds_, wireBytes_;

  LogicalResult lower(Block &block) {
    for (Operation &op : block)
      if (!isa<scf::YieldOp>(op) && failed(lower(op)))
        return failure();
    return success();
  }

  /// Scalars in tensors, topologies of several rounds, states.
  static bool isBeyond(Operation &op) {
    auto topology = op.getAttrOfType<ir::TopologyAttrInterface>("topology");
    auto update = dyn_cast<ir::UpdateOp>(op);
    auto beyond = [](Type type) {
      auto per = dyn_cast<ir::PerType>(type);
      return ir::isScalar(per ? per.getElement() : type);
    };
    return (topology && !isa<ir::TopologyAttr>(topology)) || (update && update.getState()) ||
           llvm::any_of(op.getOperandTypes(), beyond) || llvm::any_of(op.getResultTypes(), beyond);
  }

  LogicalResult lower(Operation &op) {
    if (isBeyond(op))
      return op.emitOpError("has no lowering to the chunk level");
    if (isa<ir::WorldOp, ir::RankOp, ir::StepOp>(op) ||
        isa_and_nonnull<arith::ArithDialect>(op.getDialect()))
      return lowerScalar(op);
    return TypeSwitch<Operation *, LogicalResult>(&op)
        .Case([&](scf::IfOp branch) { return lowerIf(branch); })
        .Case([&](ir::SplitOp split) { return lowerSplit(split); })
        .Case([&](ir::ConcatOp concat) { return lowerConcat(concat); })
        .Case([&](ir::EncodeOp encode) { return lowerEncode(encode); })
        .Case([&](ir::DecodeOp decode) { return lowerDecode(decode); })
        .Case([&](ir::AllToAllOp move) { return lowerAllToAll(move); })
        .Case([&](ir::AllGatherOp move) { return lowerAllGather(move); })
        .Case([&](ir::NeighborExchangeOp move) { return lowerExchange(move); })
        .Case([&](ir::ReduceOp reduce) { return lowerReduce(reduce); })
        .Case([&](ir::MixOp mix) { return lowerMix(mix); })
        .Case([&](ir::UpdateOp update) { return lowerUpdate(update); })
        .Default([](Operation *unknown) {
          return unknown->emitOpError("has no lowering to the chunk level");
        });
  }

  // ---- Scalars: all at the top, where costs and conditions can use them ----

  LogicalResult lowerScalar(Operation &op) {
    Emitter at(top_, op.getLoc());
    if (isa<ir::WorldOp>(op))
      scalars_.map(op.getResult(0), sizes_.world);
    else if (isa<ir::RankOp>(op))
      scalars_.map(op.getResult(0), at.create<chunk::RankOp>());
    else if (isa<ir::StepOp>(op))
      scalars_.map(op.getResult(0), at.create<chunk::StepOp>());
    else // Of a branch not taken too: what fails there is not used (SPEC.md, "Expressions").
      top_.clone(op, scalars_);
    return success();
  }

  // ---- Ranges ----

  Value shardOf(const Placed &value, Value peer) { return value.shape.own ? rank_ : peer; }

  /// Elements of element `peer` of `value` (of the value itself if it is one; then `peer` is the
  /// rank).
  Value count(Emitter &at, const Placed &value, Value peer) {
    return value.shape.shard ? sizes_.shardCount(at, shardOf(value, peer)) : sizes_.length;
  }

  Value bytesMax(Emitter &at, const Placed &value) {
    Value most = value.shape.shard ? sizes_.shardCountMax(at) : sizes_.length;
    return sizes_.bytes(at, value.codec, most);
  }

  /// Element `peer` as it lies in the buffer.
  Value local(Emitter &at, const Placed &value, Value peer) {
    Value shard = shardOf(value, peer), offset, part;
    Value bytes = sizes_.bytes(at, value.codec, count(at, value, peer));
    if (value.layout == Layout::Strided) {
      offset = at.mul(peer, bytesMax(at, value));
      part = peer;
    } else if (value.layout == Layout::Whole && value.shape.shard) {
      offset = sizes_.bytes(at, value.codec, sizes_.shardBegin(at, shard));
      part = shard;
    } else {
      offset = at.constant(0);
    }
    return at.create<chunk::RangeOp>(value.buffer, offset, bytes, part);
  }

  /// Element `peer` as it landed.
  Value landed(Emitter &at, const Placed &value, Value peer) {
    Value bytes = sizes_.bytes(at, value.codec, count(at, value, peer));
    return at.create<chunk::ViewOp>(value.slots, peer, at.constant(0), bytes);
  }

  Value all(Emitter &at, const Placed &value) {
    auto gather = at.create<chunk::GatherOp>(at.constant(0), sizes_.world);
    Block &block = gather.getBody().front();
    OpBuilder inner = block.mightHaveTerminator() ? OpBuilder(block.getTerminator())
                                                  : OpBuilder::atBlockEnd(&block);
    Emitter in(inner, at.loc());
    Value peer = gather.getVariable();
    SmallVector<Value> ranges{local(in, value, peer)}, conditions;
    if (value.slots) {
      ranges.push_back(landed(in, value, peer));
      conditions = {in.equal(peer, rank_), in.unequal(peer, rank_)};
    }
    if (block.mightHaveTerminator())
      block.getTerminator()->erase();
    OpBuilder end = OpBuilder::atBlockEnd(&block);
    chunk::YieldOp::create(end, at.loc(), ranges, conditions);
    return gather;
  }

  // ---- Buffers ----

  /// Room for a value of this shape.
  Placed scratch(Location loc, Shape shape, ir::CodecAttrInterface codec) {
    Placed value;
    value.shape = shape;
    value.codec = codec;
    if (shape.per && (shape.own || !shape.shard))
      value.layout = Layout::Strided;
    else if (!shape.per && shape.shard)
      value.layout = Layout::Single;
    Emitter at(top_, loc);
    Value bytes = bytesMax(at, value);
    if (value.layout == Layout::Strided)
      bytes =
          at.mul(bytes, shape.topology
                            ? at.constant(static_cast<int64_t>(shape.topology.getOffsets().size()))
                            : sizes_.world);
    else if (value.layout == Layout::Whole)
      bytes = sizes_.bytes(at, codec, sizes_.length);
    value.buffer = at.create<chunk::ScratchOp>(bytes);
    return value;
  }

  Value slots(Location loc, const Placed &value, Value count) {
    Emitter at(top_, loc);
    return at.create<chunk::SlotsOp>(count, bytesMax(at, value));
  }

  // ---- Where a value may be written early ----

  /// The job's buffer, if `value` ends there whenever it is computed, and the original is not
  /// needed after `op`; else null. Then `reader` is who needs it, if that is why.
  Value destination(Value value, Operation *op, Operation **reader = nullptr) {
    if (!endsInJob(value))
      return {};
    for (auto &[other, place] : placed_)
      if (place.original)
        for (Operation *user : other.getUsers())
          if (runsAfter(user, op)) {
            if (reader)
              *reader = user;
            return {};
          }
    return job_;
  }

  /// A place for a result of `op`, noting why it is not the job's buffer if it is not.
  Placed place(OpResult result, Shape shape) {
    Operation *op = result.getOwner();
    Placed target;
    target.shape = shape;
    Operation *reader = nullptr;
    target.buffer = destination(result, op, &reader);
    if (target.buffer)
      return target;
    if (reader) {
      std::string text = "the job's buffer is read later";
      if (auto file = dyn_cast<FileLineColLoc>(reader->getLoc()))
        text += ", at " + std::to_string(file.getLine()) + ":" + std::to_string(file.getColumn());
      missed(op->getLoc(), "ComputeInPlace", text);
    }
    return scratch(op->getLoc(), shape, {});
  }

  bool endsInJob(Value value) {
    Block *block = value.getParentBlock();
    for (OpOperand &use : value.getUses()) {
      Operation *user = use.getOwner();
      if (user->getBlock() != block)
        continue; // Perhaps not on every path.
      if (auto update = dyn_cast<ir::UpdateOp>(user); update && !update.getGate())
        return true;
      if (isa<scf::YieldOp>(user)) {
        auto result = placed_.find(user->getParentOp()->getResult(use.getOperandNumber()));
        if (result != placed_.end() && result->second.buffer == job_)
          return true;
      }
      if (auto gather = dyn_cast<ir::AllGatherOp>(user))
        for (Operation *reader : gather.getResult().getUsers())
          if (isa<ir::ConcatOp>(reader) && reader->getBlock() == block &&
              destination(reader->getResult(0), reader))
            return true;
    }
    return false;
  }

  static void note(Location loc, StringRef name, StringRef text) {
    remark::passed(loc, remark::RemarkOpts::name(name).category("BaguaToChunk")) << text;
  }
  static void missed(Location loc, StringRef name, StringRef text) {
    remark::missed(loc, remark::RemarkOpts::name(name).category("BaguaToChunk")) << text;
  }

  // ---- Launches ----

  void launch(Emitter &at, StringRef kernel, DictionaryAttr constants, Value count,
              ValueRange inputs, Value output, ValueRange scalars = {}) {
    at.create<chunk::LaunchOp>(kernel, constants, count, inputs, ValueRange{output}, scalars);
  }

  /// Stores one element, plain. `from` and `to` may be the same place.
  void store(Emitter &at, ir::CodecAttrInterface codec, Value count, Value from, Value to) {
    if (codec)
      launch(at, codec.getDecodeKernel(), codec.getKernelAttributes(), count, from, to);
    else
      launch(at, "copy", {}, count, from, to);
  }

  template <typename Function>
  void loop(Emitter &at, int64_t lower, Value upper, Function function) {
    auto loop = at.create<chunk::ForOp>(at.constant(lower), upper);
    OpBuilder::InsertionGuard guard(at.builder());
    at.builder().setInsertionPointToStart(&loop.getBody().front());
    function(loop.getVariable());
  }

  template <typename Function> void when(Emitter &at, Value condition, Function function) {
    auto branch = at.create<chunk::IfOp>(condition);
    OpBuilder::InsertionGuard guard(at.builder());
    at.builder().setInsertionPointToStart(&branch.getThen().front());
    function();
  }

  /// Peer at distance `hops` below this rank: from whom a message of rotate(hops) comes.
  Value peerBelow(Emitter &at, Value hops) {
    return at.mod(at.sub(at.add(rank_, sizes_.world), hops), sizes_.world);
  }
  Value peerAbove(Emitter &at, Value hops) { return at.mod(at.add(rank_, hops), sizes_.world); }

  /// Calls function(peer, element) for every element, in the order in which they arrive.
  template <typename Function> void forEach(Emitter &at, const Placed &value, Function function) {
    if (!value.shape.per)
      return function(rank_, local(at, value, rank_));
    if (ir::TopologyAttr topology = value.shape.topology) {
      Emitter top(top_, at.loc());
      Neighbors neighbors = Neighbors::of(top, topology, sizes_.world);
      for (auto [j, active] : llvm::enumerate(neighbors.active)) {
        Value index = top.constant(static_cast<int64_t>(j));
        when(at, active, [&] {
          function(index, value.slots ? landed(at, value, index) : local(at, value, index));
        });
      }
      return;
    }
    if (!value.slots)
      return loop(at, 0, sizes_.world, [&](Value peer) { function(peer, local(at, value, peer)); });
    function(rank_, local(at, value, rank_));
    loop(at, 1, sizes_.world, [&](Value hops) {
      Value peer = peerBelow(at, hops);
      function(peer, landed(at, value, peer));
    });
  }

  /// `value` decoded and in a buffer of ours, if it is not plain already.
  Placed plain(Location loc, const Placed &value) {
    if (!value.codec)
      return value;
    Placed target = scratch(loc, value.shape, {});
    Emitter at(body_, loc);
    forEach(at, value, [&](Value peer, Value element) {
      store(at, value.codec, count(at, value, peer), element, local(at, target, peer));
    });
    return target;
  }

  // ---- Data ----

  LogicalResult lowerSplit(ir::SplitOp op) {
    Placed value = placed_[op.getInput()]; // In its place: a shard is a range of it.
    value.shape = Shape::of(op.getResult().getType());
    placed_[op.getResult()] = value;
    return success();
  }

  LogicalResult lowerDecode(ir::DecodeOp op) {
    Placed value = placed_[op.getInput()]; // Decoded where it is used.
    placed_[op.getResult()] = value;
    return success();
  }

  LogicalResult lowerConcat(ir::ConcatOp op) {
    Location loc = op.getLoc();
    Placed value = placed_[op.getInput()];
    Shape bucket = Shape::of(op.getResult().getType());
    if (!value.slots && value.layout == Layout::Whole) { // Never apart.
      value.shape = bucket;
      placed_[op.getResult()] = value;
      return success();
    }
    Placed target = place(cast<OpResult>(op.getResult()), value.shape);
    if (target.buffer == job_ && value.codec)
      note(loc, "DecodeIntoBucket", "decodes every shard straight into the job's bucket");
    Emitter at(body_, loc);
    forEach(at, value, [&](Value peer, Value element) {
      bool inPlace = peer == rank_ && !value.codec && value.buffer == target.buffer &&
                     value.layout == Layout::Whole;
      if (!inPlace)
        store(at, value.codec, count(at, value, peer), element, local(at, target, peer));
    });
    target.shape = bucket;
    placed_[op.getResult()] = target;
    return success();
  }

  LogicalResult lowerEncode(ir::EncodeOp op) {
    Location loc = op.getLoc();
    ir::CodecAttrInterface codec = op.getCodec();
    Placed value = plain(loc, placed_[op.getInput()]);
    Placed target = scratch(loc, value.shape, codec);
    if (auto reduce = op.getInput().getDefiningOp<ir::ReduceOp>();
        reduce && reduce.getInput().getDefiningOp<ir::DecodeOp>())
      missed(loc, "DecodeReduceEncode",
             "writes the fold to memory and reads it again: no kernel does all three");
    Emitter at(body_, loc);
    auto encode = [&](Value elements, Value from, Value to) {
      launch(at, codec.getEncodeKernel(), codec.getKernelAttributes(), elements, from, to);
    };
    if (value.shape.per && !value.slots && value.layout == Layout::Whole &&
        target.layout == Layout::Whole) {
      // Shards end at block borders: the packed bucket is the packed shards, end to end.
      note(loc, "EncodeAllShards", "encodes every shard in one pass over the bucket");
      Placed from = value, to = target;
      from.shape = to.shape = Shape();
      encode(sizes_.length, local(at, from, rank_), local(at, to, rank_));
    } else {
      forEach(at, value, [&](Value peer, Value element) {
        encode(count(at, value, peer), element, local(at, target, peer));
      });
    }
    placed_[op.getResult()] = target;
    return success();
  }

  LogicalResult lowerReduce(ir::ReduceOp op) {
    Location loc = op.getLoc();
    Placed value = placed_[op.getInput()];
    Shape shape = Shape::of(op.getResult().getType());
    // A fold of whole buckets reads peers' buckets where they lie: it must not write its own yet.
    Placed target =
        shape.shard ? place(cast<OpResult>(op.getResult()), shape) : scratch(loc, shape, {});
    if (target.buffer == job_)
      note(loc, "ReduceInPlace", "folds in the job's own buffer");
    Emitter at(body_, loc);
    auto fold = [&] {
      Value elements = count(at, value, rank_);
      Value inputs = all(at, value), output = local(at, target, rank_);
      if (value.codec) {
        note(loc, "DecodeReduce", "decodes and folds in one pass over the received bytes");
        launch(at, value.codec.getDecodeReduceKernel(op.getKind()),
               value.codec.getKernelAttributes(), elements, inputs, output);
      } else {
        launch(at, op.getKind() == ir::ReduceKind::Mean ? "reduce_mean" : "reduce_sum", {},
               elements, inputs, output);
      }
    };
    if (hasPeers(op)) {
      fold();
    } else { // Alone it is the identity, down to the payload of a NaN.
      Emitter top(top_, loc);
      Value many = top.greater(sizes_.world, top.constant(1));
      when(at, many, fold);
      bool inPlace = !value.codec && value.buffer == target.buffer && value.layout == target.layout;
      if (!inPlace)
        when(at, top.no(many), [&] {
          store(at, value.codec, count(at, value, rank_), local(at, value, rank_),
                local(at, target, rank_));
        });
    }
    placed_[op.getResult()] = target;
    return success();
  }

  LogicalResult lowerMix(ir::MixOp op) {
    Location loc = op.getLoc();
    Placed value = plain(loc, placed_[op.getValue()]);
    Placed neighbors = plain(loc, placed_[op.getNeighbors()]);
    // Not in place: neighbours read our value while we compute.
    Placed target = scratch(loc, value.shape, {});
    Emitter top(top_, loc), at(body_, loc);
    auto topology = cast<ir::TopologyAttr>(op.getTopology());
    Neighbors known = Neighbors::of(top, topology, sizes_.world);
    Value denominator = top.toReal(top.constant(topology.getCommonDenominator()));
    Value own = local(at, value, rank_), output = local(at, target, rank_);
    size_t most = known.active.size();
    for (size_t active = most; active > 0; --active) {
      when(at, top.equal(known.count, top.constant(static_cast<int64_t>(active))), [&] {
        SmallVector<Value> scalars;
        for (size_t i = 0; i < active; ++i)
          scalars.push_back(active == most ? weight(top, topology, i)
                                           : weight(top, known, i, denominator));
        launch(at, "mix", {}, sizes_.length, {own, some(at, neighbors, known.active)}, output,
               scalars);
      });
    }
    Value any = top.greater(known.count, top.constant(0));
    bool onlyUpdates = value.original && llvm::all_of(op->getUsers(), [](Operation *user) {
                         return isa<ir::UpdateOp>(user);
                       });
    if (onlyUpdates)
      target.unchangedUnless = any;
    else
      when(at, top.no(any), [&] { store(at, {}, sizes_.length, own, output); });
    placed_[op.getResult()] = target;
    return success();
  }

  /// Elements of neighbours that are active, in the topology's order.
  Value some(Emitter &at, const Placed &value, ArrayRef<Value> active) {
    auto gather = at.create<chunk::GatherOp>(at.constant(0), at.constant(1));
    Block &block = gather.getBody().front();
    if (block.mightHaveTerminator())
      block.getTerminator()->erase();
    OpBuilder inner = OpBuilder::atBlockEnd(&block);
    Emitter in(inner, at.loc());
    SmallVector<Value> ranges;
    for (size_t j = 0; j < active.size(); ++j) {
      Value index = in.constant(static_cast<int64_t>(j));
      ranges.push_back(value.slots ? landed(in, value, index) : local(in, value, index));
    }
    in.create<chunk::YieldOp>(ranges, active);
    return gather;
  }

  /// Weight of neighbour `i` where no two coincide.
  static Value weight(Emitter &top, ir::TopologyAttr topology, size_t i) {
    return top.real(static_cast<double>(topology.getCommonNumerators()[i]) /
                    static_cast<double>(topology.getCommonDenominator()));
  }

  /// Weight of the `i`-th active neighbour.
  static Value weight(Emitter &top, const Neighbors &known, size_t i, Value denominator) {
    Value before = top.constant(0), numerator = top.constant(0);
    for (auto [active, merged] : llvm::zip(known.active, known.numerators)) {
      Value isIt = top.both(active, top.equal(before, top.constant(static_cast<int64_t>(i))));
      numerator = top.select(isIt, merged, numerator);
      before = top.add(before, top.select(active, top.constant(1), top.constant(0)));
    }
    return top.fold<arith::DivFOp>(top.toReal(numerator), denominator);
  }

  // ---- Communication ----

  /// Adds to the program's cost what the op sends where all branches around it are taken.
  template <typename Function> void charge(Location loc, Function cost) {
    Emitter at(tail_, loc);
    auto [rounds, bytes] = cost(at);
    Value zero = at.constant(0);
    for (Value condition : conditions_) {
      rounds = at.select(condition, rounds, zero);
      bytes = at.select(condition, bytes, zero);
    }
    rounds_ = rounds_ ? at.add(rounds_, rounds) : rounds;
    wireBytes_ = wireBytes_ ? at.add(wireBytes_, bytes) : bytes;
  }

  Value roundOfMany(Emitter &at) {
    return at.select(at.greater(sizes_.world, at.constant(1)), at.constant(1), at.constant(0));
  }

  /// Bytes to move as the type says: what was decoded travels decoded.
  Placed asTyped(Location loc, Value value) {
    Placed place = placed_[value];
    return codecOf(value.getType()) ? place : plain(loc, place);
  }

  LogicalResult lowerAllToAll(ir::AllToAllOp op) {
    Location loc = op.getLoc();
    Placed value = asTyped(loc, op.getInput());
    if (value.slots)
      return op.emitOpError(
          "of elements that were received is not supported: expects a split value, or one "
          "encoded or decoded here");
    Placed result = value;
    result.shape = Shape::of(op.getResult().getType());
    result.slots = slots(loc, value, sizes_.world);
    Emitter at(body_, loc);
    loop(at, 1, sizes_.world, [&](Value hops) {
      Value peer = peerAbove(at, hops);
      at.create<chunk::MoveOp>(local(at, value, peer), chunk::PeerMap::Rotate, hops, result.slots,
                               rank_);
    });
    charge(loc, [&](Emitter &tail) {
      Value rank = tail.create<chunk::RankOp>();
      Value shard = sizes_.bytes(tail, value.codec, sizes_.shardCount(tail, rank));
      Value bytes = value.shape.own
                        ? tail.mul(tail.sub(sizes_.world, tail.constant(1)), shard)
                        : tail.sub(sizes_.bytes(tail, value.codec, sizes_.length), shard);
      return std::pair(roundOfMany(tail), bytes);
    });
    placed_[op.getResult()] = result;
    return success();
  }

  LogicalResult lowerAllGather(ir::AllGatherOp op) {
    Location loc = op.getLoc();
    Placed value = asTyped(loc, op.getInput());
    Placed result = value;
    result.shape = Shape::of(op.getResult().getType());
    result.slots = slots(loc, value, sizes_.world);
    Emitter at(body_, loc);
    loop(at, 1, sizes_.world, [&](Value hops) {
      at.create<chunk::MoveOp>(local(at, value, rank_), chunk::PeerMap::Rotate, hops, result.slots,
                               rank_);
    });
    charge(loc, [&](Emitter &tail) {
      Value count =
          value.shape.shard ? sizes_.shardCount(tail, tail.create<chunk::RankOp>()) : sizes_.length;
      Value peers = tail.sub(sizes_.world, tail.constant(1));
      return std::pair(roundOfMany(tail), tail.mul(peers, sizes_.bytes(tail, value.codec, count)));
    });
    placed_[op.getResult()] = result;
    return success();
  }

  LogicalResult lowerExchange(ir::NeighborExchangeOp op) {
    Location loc = op.getLoc();
    Placed value = asTyped(loc, op.getInput());
    Placed result = value;
    result.shape = Shape::of(op.getResult().getType());
    Emitter top(top_, loc), at(body_, loc);
    Neighbors neighbors =
        Neighbors::of(top, cast<ir::TopologyAttr>(op.getTopology()), sizes_.world);
    result.slots = slots(loc, value, top.constant(static_cast<int64_t>(neighbors.active.size())));
    for (auto [j, active] : llvm::enumerate(neighbors.active))
      when(at, active,
           [&] { // Whoever is `offset` above us is heard by us: we are heard by those below.
             Value hops = at.sub(sizes_.world, neighbors.residues[j]);
             at.create<chunk::MoveOp>(local(at, value, rank_), chunk::PeerMap::Rotate, hops,
                                      result.slots, at.constant(static_cast<int64_t>(j)));
           });
    charge(loc, [&](Emitter &tail) {
      Value any = tail.greater(neighbors.count, tail.constant(0));
      Value bytes = sizes_.bytes(tail, value.codec, sizes_.length);
      return std::pair(tail.select(any, tail.constant(1), tail.constant(0)),
                       tail.mul(neighbors.count, bytes));
    });
    placed_[op.getResult()] = result;
    return success();
  }

  // ---- Results ----

  /// Makes `target` hold `value`, both one value. Nothing if it does already.
  void assign(Location loc, const Placed &value, const Placed &target) {
    if (value.buffer == target.buffer && value.layout == target.layout && !value.codec)
      return;
    Emitter at(body_, loc);
    store(at, value.codec, count(at, value, rank_), local(at, value, rank_),
          local(at, target, rank_));
  }

  LogicalResult lowerUpdate(ir::UpdateOp op) {
    Location loc = op.getLoc();
    Placed value = placed_[op.getValue()];
    Placed target;
    target.shape = value.shape;
    target.buffer = job_;
    if (value.original)
      return success();
    auto write = [&] {
      if (op.getGate())
        chunk::WaitOp::create(body_, loc, chunk::Gate::BeforeUpdate);
      assign(loc, value, target);
    };
    if (!value.unchangedUnless) {
      write();
      return success();
    }
    Emitter at(body_, loc);
    when(at, value.unchangedUnless, write);
    return success();
  }

  LogicalResult lowerIf(scf::IfOp op) {
    Location loc = op.getLoc();
    for (OpResult result : op.getResults()) {
      Type type = result.getType();
      if (type.isIntOrIndexOrFloat())
        continue;
      if (!ir::isPlain(type))
        return op.emitOpError() << "yields " << type << ": expects scalars, buckets and shards";
      Shape shape = Shape::of(type);
      placed_[result] = shape.shard ? scratch(loc, shape, {}) : place(result, shape);
    }
    Value condition = scalars_.lookup(op.getCondition());
    auto branch = chunk::IfOp::create(body_, loc, condition, /*withElse=*/true);
    SmallVector<Value> scalarResults[2];
    for (bool taken : {true, false}) {
      Block *source = taken ? op.thenBlock() : op.elseBlock();
      if (!source)
        continue;
      OpBuilder::InsertionGuard guard(body_);
      Region &region = taken ? branch.getThen() : branch.getOtherwise();
      body_.setInsertionPointToStart(&region.front());
      Emitter top(top_, loc);
      conditions_.push_back(taken ? condition : top.no(condition));
      if (failed(lower(*source)))
        return failure();
      conditions_.pop_back();
      for (auto [result, yielded] :
           llvm::zip(op.getResults(), source->getTerminator()->getOperands()))
        if (result.getType().isIntOrIndexOrFloat())
          scalarResults[taken ? 0 : 1].push_back(scalars_.lookup(yielded));
        else
          assign(source->getTerminator()->getLoc(), placed_[yielded], placed_[result]);
    }
    if (branch.getOtherwise().front().empty())
      branch.getOtherwise().front().erase();
    size_t next = 0;
    Emitter top(top_, loc);
    for (Value result : op.getResults())
      if (result.getType().isIntOrIndexOrFloat()) {
        scalars_.map(result, top.select(condition, scalarResults[0][next], scalarResults[1][next]));
        ++next;
      }
    return success();
  }
};

// ---- The pass -----------------------------------------------------------------------------------

struct BaguaToChunk final : impl::BaguaToChunkBase<BaguaToChunk> {
  using BaguaToChunkBase::BaguaToChunkBase;

  void runOnOperation() override {
    for (auto algorithm : llvm::make_early_inc_range(getOperation().getOps<ir::AlgorithmOp>()))
      if (failed(lower(algorithm)))
        return signalPassFailure();
  }

private:
  LogicalResult lower(ir::AlgorithmOp algorithm) {
    if (algorithm.getOwnsUpdate() || !algorithm.getParameters().empty())
      return algorithm.emitOpError("has no lowering to the chunk level: it has parameters or owns "
                                   "the update");
    for (Operation &op : algorithm.getBody().front())
      if (auto on = dyn_cast<ir::OnOp>(op); !on || on.getWeight())
        return op.emitOpError("has no lowering to the chunk level");
    int64_t grain = ir::grain(algorithm);
    bool acceptsF64 = true;
    SmallVector<Operation *> collectives;
    algorithm.walk([&](Operation *op) {
      if (isa<ir::AllReduceOp, ir::ReduceScatterOp>(op))
        collectives.push_back(op);
      for (NamedAttribute attribute : op->getAttrs())
        if (auto codec = dyn_cast<ir::CodecAttrInterface>(attribute.getValue()))
          acceptsF64 &= codec.acceptsF64();
    });
    for (Operation *op : collectives) {
      if (auto reduce = dyn_cast<ir::AllReduceOp>(op))
        expandAllReduce(reduce);
      else
        expandReduceScatter(cast<ir::ReduceScatterOp>(op));
    }
    OpBuilder builder(algorithm);
    SmallVector<Type> accepts{builder.getF32Type()};
    if (acceptsF64)
      accepts.push_back(builder.getF64Type());
    auto schedule = chunk::ScheduleOp::create(builder, algorithm.getLoc(), algorithm.getSymName(),
                                              grain, accepts);
    for (auto on : algorithm.getBody().getOps<ir::OnOp>()) {
      builder.setInsertionPointToEnd(&schedule.getBody().front());
      if (failed(HandlerLowering(on, grain, builder).run()))
        return failure();
    }
    algorithm.erase();
    return success();
  }
};

} // namespace
} // namespace bagua::compiler
