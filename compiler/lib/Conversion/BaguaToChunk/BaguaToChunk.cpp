// From values to bytes: gives every value of a handler a place in a buffer or in landing slots, and
// turns ops into moves and kernel launches. Collectives are direct: every rank sends each peer its
// part.
#include "Sizes.h"

#include "bagua/compiler/Conditions.h"
#include "bagua/compiler/ExpandCollectives.h"
#include "bagua/compiler/Passes.h"
#include "bagua/dialect/Bagua/BaguaMap.h"

#include "mlir/Dialect/Math/IR/Math.h"
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
  bool per = false;    ///< One element per peer, else one.
  bool own = false;    ///< Each element is over this rank's shard, else element p over shard p.
  bool shard = false;  ///< Elements are over shards, …
  bool scalar = false; ///< … or are one number each, else over the bucket.
  ir::TopologyAttrInterface topology;   ///< Peers are its neighbours; null: ranks of a group, …
  ir::Group group = ir::Group::World;   ///< … of this one.
  ir::Group shardOf = ir::Group::World; ///< Whose shards.

  static Shape of(Type type) {
    Shape shape;
    if (auto per = dyn_cast<ir::PerType>(type)) {
      shape.per = true;
      shape.own = per.getOwn();
      shape.topology = dyn_cast<ir::TopologyAttrInterface>(per.getOver());
      if (auto group = dyn_cast<FlatSymbolRefAttr>(per.getOver()))
        shape.group = ir::groupOf(group);
      type = per.getElement();
    }
    if (FlatSymbolRefAttr group = ir::shardGroup(ir::unpacked(type))) {
      shape.shard = true;
      shape.shardOf = ir::groupOf(group);
    }
    shape.scalar = ir::isScalar(ir::unpacked(type));
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

/// How a value of this shape lies in a buffer of its own.
Layout layoutOf(const Shape &shape) {
  if (shape.per)
    return shape.own || !shape.shard ? Layout::Strided : Layout::Whole;
  return shape.shard || shape.scalar ? Layout::Single : Layout::Whole;
}

/// Where a value is. Elements that came from peers lie in `slots`, by peer; all others in `buffer`.
struct Placed {
  Shape shape;
  ir::CodecAttrInterface
      codec; ///< Of the bytes as they lie; null: plain. Decoding waits for a use.
  Value buffer;
  Layout layout = Layout::Whole;
  Value slots;                      ///< Null: every element is in `buffer`.
  std::optional<ir::Role> original; ///< In the job's buffer of that role, as the handler found it.
  int64_t number = 0; ///< With a codec: of the encode op, a part of the key of its random numbers.
  Value round;        ///< Of the exchange, where the topology has rounds.
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
  case ir::Event::Async:
    return chunk::Event::Async;
  }
  llvm_unreachable("a handler of an unknown event");
}

ir::Role bucketRole(ir::Event event) {
  return event == ir::Event::Gradient ? ir::Role::Gradient : ir::Role::Weight;
}

/// When the rounds of an async handler begin, as its program says it.
void setRounds(ir::OnOp on, chunk::ProgramOp program) {
  Builder builder(on.getContext());
  auto count = [&](Value parameter, IntegerAttr number) -> Attribute {
    if (!parameter)
      return number;
    auto found = on->getParentOfType<ir::AlgorithmOp>().getParameter(parameter);
    return FlatSymbolRefAttr::get(on.getContext(), found->name);
  };
  program.setEveryAttr(count(on.getEvery(), on.getEveryNumberAttr()));
  program.setEveryUnit(static_cast<chunk::IntervalUnit>(*on.getEveryUnit()));
  if (Attribute after = count(on.getAfter(), on.getAfterNumberAttr()))
    program.setAfterAttr(after);
  program.setStalenessAttr(on.getStalenessAttr());
}

/// Whether some path through `block` updates the weight.
bool updatesWeight(Block &block) {
  return block
      .walk([](ir::UpdateOp update) {
        return update.getRole() == ir::Role::Weight ? WalkResult::interrupt()
                                                    : WalkResult::advance();
      })
      .wasInterrupted();
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
    if (on.isAsync())
      setRounds(on, program);
    top_.setInsertionPointToStart(&program.getBody().front());
    Emitter at(top_, loc);
    sizes_ = {at.create<chunk::WorldOp>(), at.create<chunk::LengthOp>(),
              at.create<chunk::ElementBytesOp>(), grain};
    job(bucketRole(on.getEvent()), loc);
    for (const auto &parameter : on->getParentOfType<ir::AlgorithmOp>().getParameters())
      scalars_.map(parameter.value,
                   at.create<chunk::ParameterOp>(parameter.value.getType(), parameter.name));
    auto forall = at.create<chunk::ForallOp>();
    rank_ = forall.getRank();
    top_.setInsertionPoint(forall);
    body_.setInsertionPointToStart(&forall.getBody().front());
    tail_.setInsertionPointToEnd(&program.getBody().front());
  }

  LogicalResult run() {
    for (BlockArgument argument : on_.getBody().getArguments()) {
      Placed bucket;
      bucket.shape = Shape::of(argument.getType());
      bucket.original = argument == on_.getBucket() ? bucketRole(on_.getEvent()) : ir::Role::Weight;
      bucket.buffer = job(*bucket.original, argument.getLoc());
      placed_[argument] = bucket;
    }
    if (failed(lower(on_.getBody().front())))
      return failure();
    if (on_.isAsync() && !updatesWeight(on_.getBody().front()))
      addNothing(on_.getLoc());
    finishStep();
    Emitter at(tail_, on_.getLoc());
    Value zero = at.constant(0);
    at.create<chunk::CostOp>(rounds_ ? rounds_ : zero, wireBytes_ ? wireBytes_ : zero);
    return success();
  }

private:
  ir::OnOp on_;
  OpBuilder top_, body_, tail_;
  Sizes sizes_;
  Value rank_;
  Value jobs_[2];                    ///< By role.
  llvm::StringMap<Value> committed_; ///< By state.
  llvm::StringMap<Value> next_;
  llvm::StringMap<Placed> updated_; ///< States that were updated on the path so far.
  llvm::MapVector<Value, Placed> placed_;
  IRMapping scalars_;
  SmallVector<Value> conditions_; ///< Of the branches around the op at hand, at the top.
  Value rounds_, wireBytes_;
  Value step_, bucketNumber_;
  Value localSize_, nodes_, rankAtTop_, localRank_, node_;

  // ---- Groups ----

  template <typename Op> Value atTop(Value &known) {
    if (!known)
      known = Emitter(top_, on_.getLoc()).create<Op>();
    return known;
  }
  Value sizeOf(ir::Group group) {
    return group == ir::Group::World  ? sizes_.world
           : group == ir::Group::Node ? atTop<chunk::LocalSizeOp>(localSize_)
                                      : atTop<chunk::NodesOp>(nodes_);
  }
  /// This rank's place in its group, in the program's body.
  Value placeIn(ir::Group group) { return group == ir::Group::World ? rank_ : placeAtTop(group); }
  Value placeAtTop(ir::Group group) {
    return group == ir::Group::World  ? atTop<chunk::RankOp>(rankAtTop_)
           : group == ir::Group::Node ? atTop<chunk::LocalRankOp>(localRank_)
                                      : atTop<chunk::NodeOp>(node_);
  }
  /// How chunk names a group: numbered alike.
  static chunk::Group chunkGroup(ir::Group group) { return static_cast<chunk::Group>(group); }
  static chunk::PeerMap rotation(ir::Group group) { return chunk::rotationOf(chunkGroup(group)); }

  LogicalResult lower(Block &block) {
    for (Operation &op : block)
      if (!isa<scf::YieldOp>(op) && failed(lower(op)))
        return failure();
    return success();
  }

  LogicalResult lower(Operation &op) {
    if (isa<ir::WorldOp, ir::LocalSizeOp, ir::NodesOp, ir::RankOp, ir::StepOp, ir::ToF64Op,
            ir::PowerOp>(op) ||
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
        .Case([&](ir::MapOp map) { return lowerMap(map); })
        .Case([&](ir::DotOp dot) { return lowerFold(dot, "dot", {dot.getLhs(), dot.getRhs()}); })
        .Case([&](ir::NormOp norm) { return lowerFold(norm, "norm", {norm.getInput()}); })
        .Case([&](ir::RandomOp random) { return lowerRandom(random); })
        .Case([&](ir::ReadOp read) { return lowerRead(read); })
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
    else if (isa<ir::LocalSizeOp>(op))
      scalars_.map(op.getResult(0), sizeOf(ir::Group::Node));
    else if (isa<ir::NodesOp>(op))
      scalars_.map(op.getResult(0), sizeOf(ir::Group::Cross));
    else if (isa<ir::RankOp>(op))
      scalars_.map(op.getResult(0), at.create<chunk::RankOp>());
    else if (isa<ir::StepOp>(op))
      scalars_.map(op.getResult(0), step(at));
    else if (auto real = dyn_cast<ir::ToF64Op>(op))
      scalars_.map(op.getResult(0), at.toReal(scalars_.lookup(real.getInput())));
    else if (auto power = dyn_cast<ir::PowerOp>(op))
      scalars_.map(op.getResult(0), this->power(at, power));
    else // Of a branch not taken too: what fails there is not used (SPEC.md, "Expressions").
      top_.clone(op, scalars_);
    return success();
  }

  Value power(Emitter &at, ir::PowerOp op) {
    Value exponent =
        at.create<arith::IndexCastOp>(at.builder().getI64Type(), scalars_.lookup(op.getExponent()));
    return at.create<math::FPowIOp>(scalars_.lookup(op.getBase()), exponent);
  }

  // ---- Ranges ----

  /// Peers are places in the value's group, or entries of its topology; of one value `peer` does
  /// not matter.
  Value shardOf(const Placed &value, Value peer) {
    return value.shape.per && !value.shape.own ? peer : placeIn(value.shape.shardOf);
  }
  Value shards(const Placed &value) { return sizeOf(value.shape.shardOf); }

  /// Elements of element `peer` of `value`.
  Value count(Emitter &at, const Placed &value, Value peer) {
    if (value.shape.scalar)
      return at.constant(1);
    if (!value.shape.shard)
      return sizes_.length;
    return sizes_.shardCount(at, shardOf(value, peer), shards(value));
  }

  /// Number in the bucket of the first element of element `peer`.
  Value first(Emitter &at, const Placed &value, Value peer) {
    if (!value.shape.shard)
      return at.constant(0);
    return sizes_.shardBegin(at, shardOf(value, peer), shards(value));
  }

  Value bytesMax(Emitter &at, const Placed &value) {
    Value most = value.shape.scalar  ? at.constant(1)
                 : value.shape.shard ? sizes_.shardCountMax(at, shards(value))
                                     : sizes_.length;
    return sizes_.bytes(at, value.codec, most);
  }

  /// Element `peer` as it lies in the buffer.
  Value local(Emitter &at, const Placed &value, Value peer) {
    Value shard = shardOf(value, peer), offset, part;
    ir::Group group = value.shape.shardOf;
    Value bytes = sizes_.bytes(at, value.codec, count(at, value, peer));
    if (value.layout == Layout::Strided) {
      offset = at.mul(peer, bytesMax(at, value));
      part = peer;
      group = value.shape.group;
    } else if (value.layout == Layout::Whole && value.shape.shard) {
      offset = sizes_.bytes(at, value.codec, sizes_.shardBegin(at, shard, shards(value)));
      part = shard;
    } else {
      offset = at.constant(0);
      group = ir::Group::World;
    }
    return at.create<chunk::RangeOp>(value.buffer, offset, bytes, part, chunkGroup(group));
  }

  /// Element `peer` as it landed.
  Value landed(Emitter &at, const Placed &value, Value peer) {
    Value bytes = sizes_.bytes(at, value.codec, count(at, value, peer));
    return at.create<chunk::ViewOp>(value.slots, peer, at.constant(0), bytes);
  }

  Value all(Emitter &at, const Placed &value) {
    auto gather = at.create<chunk::GatherOp>(at.constant(0), sizeOf(value.shape.group));
    Block &block = gather.getBody().front();
    OpBuilder inner = block.mightHaveTerminator() ? OpBuilder(block.getTerminator())
                                                  : OpBuilder::atBlockEnd(&block);
    Emitter in(inner, at.loc());
    Value peer = gather.getVariable();
    SmallVector<Value> ranges{local(in, value, peer)}, conditions;
    if (value.slots) {
      ranges.push_back(landed(in, value, peer));
      Value own = placeIn(value.shape.group);
      conditions = {in.equal(peer, own), in.unequal(peer, own)};
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
    value.layout = layoutOf(shape);
    Emitter at(top_, loc);
    Value bytes = bytesMax(at, value);
    if (value.layout == Layout::Strided)
      bytes = at.mul(bytes, shape.topology ? at.constant(shape.topology.entriesMax())
                                           : sizeOf(shape.group));
    else if (value.layout == Layout::Whole)
      bytes = sizes_.bytes(at, codec, sizes_.length);
    value.buffer = at.create<chunk::ScratchOp>(bytes);
    return value;
  }

  Value slots(Location loc, const Placed &value, Value count) {
    Emitter at(top_, loc);
    return at.create<chunk::SlotsOp>(count, bytesMax(at, value));
  }

  // ---- The job's buffers and the states ----

  Value job(ir::Role role, Location loc) {
    Value &buffer = jobs_[static_cast<size_t>(role)];
    if (!buffer)
      buffer = Emitter(top_, loc).create<chunk::JobOp>(
          role == ir::Role::Gradient ? chunk::Role::Gradient : chunk::Role::Weight);
    return buffer;
  }
  bool isJob(Value buffer) const { return buffer && llvm::is_contained(jobs_, buffer); }

  /// Where state `name` lies: its committed value, or the next one.
  Placed state(Location loc, FlatSymbolRefAttr name, Type type, bool next) {
    Value &buffer = (next ? next_ : committed_)[name.getValue()];
    if (!buffer)
      buffer = Emitter(top_, loc).create<chunk::StateOp>(name.getValue(), next);
    Placed place;
    place.shape = Shape::of(type);
    place.buffer = buffer;
    place.layout = layoutOf(place.shape);
    return place;
  }

  // ---- Where a value may be computed ----

  /// Who needs the job's buffer of `role` as the handler found it after `op`; null: nobody.
  Operation *laterReader(ir::Role role, Operation *op) {
    for (auto &[other, place] : placed_)
      if (place.original == role)
        for (Operation *user : other.getUsers())
          if (runsAfter(user, op))
            return user;
    return nullptr;
  }

  /// A place where `value` is to be in the end, and which nobody else uses until then. With
  /// `inPlace`, also the job's buffer; `reader` is who prevents that.
  std::optional<Placed> destination(Value value, Operation *op, bool inPlace,
                                    Operation **reader = nullptr) {
    Block *block = value.getParentBlock();
    Shape shape = Shape::of(value.getType());
    for (OpOperand &use : value.getUses()) {
      Operation *user = use.getOwner();
      if (user->getBlock() != block)
        continue; // Perhaps not on every path.
      Placed place;
      if (auto update = dyn_cast<ir::UpdateOp>(user)) {
        if (FlatSymbolRefAttr name = update.getStateAttr()) {
          place = state(user->getLoc(), name, value.getType(), /*next=*/true);
        } else if (update.getGate()) {
          continue;
        } else {
          place.shape = shape;
          place.buffer = job(update.getRole(), user->getLoc());
        }
      } else if (isa<scf::YieldOp>(user)) {
        auto result = placed_.find(user->getParentOp()->getResult(use.getOperandNumber()));
        if (result == placed_.end())
          continue;
        place = result->second;
      } else if (auto gather = dyn_cast<ir::AllGatherOp>(user)) {
        for (Operation *concat : gather.getResult().getUsers())
          if (isa<ir::ConcatOp>(concat) && concat->getBlock() == block)
            if (auto whole = destination(concat->getResult(0), concat, inPlace)) {
              place = *whole;
              place.shape = shape;
            }
        if (!place.buffer)
          continue;
      } else {
        continue;
      }
      if (isJob(place.buffer)) {
        if (!inPlace)
          continue;
        auto role = static_cast<ir::Role>(llvm::find(jobs_, place.buffer) - jobs_);
        if (Operation *later = laterReader(role, op)) {
          if (reader)
            *reader = later;
          continue;
        }
      }
      return place;
    }
    return std::nullopt;
  }

  /// A place for a result of `op`, noting why it is not the job's buffer if it is not.
  Placed place(OpResult result, bool inPlace = true) {
    Operation *op = result.getOwner();
    Operation *reader = nullptr;
    if (std::optional<Placed> target = destination(result, op, inPlace, &reader))
      return *target;
    if (reader) {
      std::string text = "the job's buffer is read later";
      if (auto file = dyn_cast<FileLineColLoc>(reader->getLoc()))
        text += ", at " + std::to_string(file.getLine()) + ":" + std::to_string(file.getColumn());
      missed(op->getLoc(), "ComputeInPlace", text);
    }
    return scratch(op->getLoc(), Shape::of(result.getType()), {});
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

  /// Makes each of `count` elements `value`.
  void fill(Emitter &at, double value, Value count, Value output) {
    Builder &b = top_;
    auto code = static_cast<int64_t>(ir::MapCode::Constant);
    DictionaryAttr constants = b.getDictionaryAttr({
        b.getNamedAttr("broadcast", b.getDenseI64ArrayAttr({})),
        b.getNamedAttr("code", b.getDenseI64ArrayAttr({code, 0, 0, 0})),
        b.getNamedAttr("constants", b.getDenseF64ArrayAttr({value})),
        b.getNamedAttr("inputs", b.getI64IntegerAttr(0)),
        b.getNamedAttr("outputs", b.getDenseI64ArrayAttr({0})),
        b.getNamedAttr("scalars", b.getI64IntegerAttr(0)),
    });
    launch(at, "map", constants, count, {}, output);
  }

  /// Stores element `peer` of `value`, which lies at `from`, plain. `to` may be the same place.
  void store(Emitter &at, const Placed &value, Value peer, Value from, Value to) {
    Value elements = count(at, value, peer);
    if (value.codec)
      launch(at, value.codec.getDecodeKernel(), value.codec.getKernelAttributes(), elements, from,
             to, decodeScalars(at, value, peer));
    else
      launch(at, "copy", {}, elements, from, to);
  }

  // ---- Random numbers ----

  /// The key of the random numbers of operation `number`, and where in the bucket they start.
  SmallVector<Value> key(Emitter &at, int64_t number, bool shared, Value first) {
    Emitter top(top_, at.loc());
    Value rank = shared ? top.constant(-1) : rank_;
    return {seed(top), step(top), rank, bucketNumber(top), top.constant(number), first};
  }

  SmallVector<Value> encodeScalars(Emitter &at, const Placed &value, Value peer) {
    if (!value.codec.isRandom())
      return {};
    return key(at, value.number, value.codec.decodeIsRandom(), first(at, value, peer));
  }

  /// What decodes draws the numbers of whoever encoded: they are the same on all ranks.
  SmallVector<Value> decodeScalars(Emitter &at, const Placed &value, Value peer) {
    if (!value.codec.decodeIsRandom())
      return {};
    return key(at, value.number, /*shared=*/true, first(at, value, peer));
  }

  Value seed(Emitter &top) {
    for (const auto &parameter : on_->getParentOfType<ir::AlgorithmOp>().getParameters())
      if (parameter.name == "seed" && parameter.value.getType().isIndex())
        return scalars_.lookup(parameter.value);
    return top.constant(0);
  }
  Value step(Emitter &top) {
    if (!step_)
      step_ = top.create<chunk::StepOp>();
    return step_;
  }
  Value bucketNumber(Emitter &top) {
    if (!bucketNumber_)
      bucketNumber_ = top.create<chunk::BucketOp>();
    return bucketNumber_;
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

  /// Place in the group at distance `hops` below this rank's: from where a message of a rotation
  /// by `hops` comes.
  Value peerBelow(Emitter &at, Value hops, ir::Group group) {
    Value size = sizeOf(group);
    return at.mod(at.sub(at.add(placeIn(group), size), hops), size);
  }
  Value peerAbove(Emitter &at, Value hops, ir::Group group) {
    return at.mod(at.add(placeIn(group), hops), sizeOf(group));
  }

  /// Calls function(peer, element) for every element, in the order in which they arrive.
  template <typename Function> void forEach(Emitter &at, const Placed &value, Function function) {
    forEach(at, value.shape, value,
            [&](Value peer, ArrayRef<Value> elements) { function(peer, elements.front()); });
  }

  /// `value` decoded and in a buffer of ours, if it is not plain already.
  Placed plain(Location loc, const Placed &value) {
    if (!value.codec)
      return value;
    Placed target = scratch(loc, value.shape, {});
    target.round = value.round;
    Emitter at(body_, loc);
    forEach(at, value, [&](Value peer, Value element) {
      store(at, value, peer, element, local(at, target, peer));
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
    Placed target = place(cast<OpResult>(op.getResult()));
    target.shape = value.shape;
    if (isJob(target.buffer) && value.codec)
      note(loc, "DecodeIntoBucket", "decodes every shard straight into the job's bucket");
    Emitter at(body_, loc);
    Value own = placeIn(value.shape.group);
    forEach(at, value, [&](Value peer, Value element) {
      bool inPlace = peer == own && !value.codec && value.buffer == target.buffer &&
                     value.layout == Layout::Whole;
      if (!inPlace)
        store(at, value, peer, element, local(at, target, peer));
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
    target.number = ir::drawNumber(op);
    if (auto reduce = op.getInput().getDefiningOp<ir::ReduceOp>();
        reduce && reduce.getInput().getDefiningOp<ir::DecodeOp>())
      missed(loc, "DecodeReduceEncode",
             "writes the fold to memory and reads it again: no kernel does all three");
    Emitter at(body_, loc);
    auto encode = [&](const Placed &result, Value peer, Value elements, Value from) {
      launch(at, codec.getEncodeKernel(), codec.getKernelAttributes(), elements, from,
             local(at, result, peer), encodeScalars(at, result, peer));
    };
    if (value.shape.per && !value.slots && value.layout == Layout::Whole &&
        target.layout == Layout::Whole) {
      // Shards end at block borders: the packed bucket is the packed shards, end to end.
      note(loc, "EncodeAllShards", "encodes every shard in one pass over the bucket");
      Placed from = value, to = target;
      from.shape = to.shape = Shape();
      encode(to, rank_, sizes_.length, local(at, from, rank_));
    } else {
      forEach(at, value, [&](Value peer, Value element) {
        encode(target, peer, count(at, value, peer), element);
      });
    }
    placed_[op.getResult()] = target;
    return success();
  }

  LogicalResult lowerReduce(ir::ReduceOp op) {
    Location loc = op.getLoc();
    Placed value = placed_[op.getInput()];
    Shape shape = Shape::of(op.getResult().getType());
    // A fold of what was gathered reads it where it lies at the peers: it must not write its own
    // yet. Of what was scattered, one's own part has not travelled.
    bool scattered = shape.shard && value.shape.group == value.shape.shardOf;
    Placed target = place(cast<OpResult>(op.getResult()), /*inPlace=*/scattered);
    if (isJob(target.buffer))
      note(loc, "ReduceInPlace", "folds in the job's own buffer");
    Emitter at(body_, loc);
    auto fold = [&] {
      Value elements = count(at, value, rank_);
      Value inputs = all(at, value), output = local(at, target, rank_);
      if (value.codec) {
        note(loc, "DecodeReduce", "decodes and folds in one pass over the received bytes");
        launch(at, value.codec.getDecodeReduceKernel(op.getKind()),
               value.codec.getKernelAttributes(), elements, inputs, output,
               decodeScalars(at, value, rank_));
      } else {
        launch(at, op.getKind() == ir::ReduceKind::Mean ? "reduce_mean" : "reduce_sum", {},
               elements, inputs, output);
      }
    };
    ir::Group group = value.shape.group;
    if (hasPeers(op, group)) {
      fold();
    } else { // Alone it is the identity, down to the payload of a NaN.
      Emitter top(top_, loc);
      Value many = top.greater(sizeOf(group), top.constant(1)), own = placeIn(group);
      when(at, many, fold);
      bool inPlace = !value.codec && value.buffer == target.buffer && value.layout == target.layout;
      if (!inPlace)
        when(at, top.no(many),
             [&] { store(at, value, own, local(at, value, own), local(at, target, own)); });
    }
    placed_[op.getResult()] = target;
    return success();
  }

  LogicalResult lowerMix(ir::MixOp op) {
    Location loc = op.getLoc();
    Placed value = plain(loc, placed_[op.getValue()]);
    Placed neighbors = plain(loc, placed_[op.getNeighbors()]);
    // Not in place: neighbours read our value while we compute.
    Placed target = place(cast<OpResult>(op.getResult()), /*inPlace=*/false);
    Emitter top(top_, loc), at(body_, loc);
    const Neighbors &known = this->neighbors(top, op.getTopology(), neighbors.round);
    Value own = local(at, value, rank_), output = local(at, target, rank_);
    size_t most = known.active.size();
    for (size_t active = most; active > 0; --active) {
      Value isIt = most == 1 ? known.active[0]
                             : top.equal(known.count, top.constant(static_cast<int64_t>(active)));
      when(at, isIt, [&] {
        SmallVector<Value> scalars;
        for (size_t i = 0; i < active; ++i)
          scalars.push_back(weight(top, known, i, active == most));
        launch(at, "mix", {}, count(at, value, rank_), {own, some(at, neighbors, known)}, output,
               scalars);
      });
    }
    Value any = most == 1 ? known.active[0] : top.greater(known.count, top.constant(0));
    bool onlyUpdates = value.original && llvm::all_of(op->getUsers(), [&](Operation *user) {
                         auto update = dyn_cast<ir::UpdateOp>(user);
                         return update && update.getRole() == value.original;
                       });
    if (onlyUpdates)
      target.unchangedUnless = any;
    else
      when(at, top.no(any), [&] { store(at, value, rank_, own, output); });
    placed_[op.getResult()] = target;
    return success();
  }

  /// Elements of neighbours that are active, in the topology's order.
  Value some(Emitter &at, const Placed &value, const Neighbors &known) {
    auto element = [&](Emitter &in, int64_t j) {
      Value index = in.constant(j);
      return value.slots ? landed(in, value, index) : local(in, value, index);
    };
    if (known.active.size() == 1) // Who launches knows that it is active.
      return element(at, 0);
    auto gather = at.create<chunk::GatherOp>(at.constant(0), at.constant(1));
    Block &block = gather.getBody().front();
    if (block.mightHaveTerminator())
      block.getTerminator()->erase();
    OpBuilder inner = OpBuilder::atBlockEnd(&block);
    Emitter in(inner, at.loc());
    SmallVector<Value> ranges;
    for (size_t j = 0; j < known.active.size(); ++j)
      ranges.push_back(element(in, static_cast<int64_t>(j)));
    in.create<chunk::YieldOp>(ranges, known.active);
    return gather;
  }

  /// Weight of the `i`-th active neighbour; with `all`, every place holds one.
  static Value weight(Emitter &top, const Neighbors &known, size_t i, bool all) {
    if (all && known.constantWeights)
      return top.real((*known.constantWeights)[i]);
    Value before = top.constant(0), numerator = top.constant(0);
    for (auto [active, merged] : llvm::zip(known.active, known.numerators)) {
      Value isIt = top.both(active, top.equal(before, top.constant(static_cast<int64_t>(i))));
      numerator = top.select(isIt, merged, numerator);
      before = top.add(before, top.select(active, top.constant(1), top.constant(0)));
    }
    return top.fold<arith::DivFOp>(top.toReal(numerator), top.toReal(known.denominator));
  }

  /// The round that an exchange on `topology` sees: null where all are equal.
  static Value roundOf(ArrayRef<Placed> values) {
    for (const Placed &value : values)
      if (value.round)
        return value.round;
    return {};
  }

  const Neighbors &neighbors(Emitter &top, ir::TopologyAttrInterface topology, Value round) {
    auto [known, isNew] = neighbors_.insert({{topology, round}, {}});
    ir::Group group = topology.getGroup();
    if (isNew)
      known->second = Neighbors::of(top, topology, sizeOf(group), placeAtTop(group), round);
    return known->second;
  }
  llvm::MapVector<std::pair<Attribute, Value>, Neighbors> neighbors_;

  /// The number of a place, and each of `values` there: one, one per neighbour or one per rank.
  /// Values that are one count for all.
  template <typename Function>
  void forEach(Emitter &at, const Shape &shape, ArrayRef<Placed> values, Function function) {
    auto elements = [&](Emitter &in, Value peer, bool arrived) {
      SmallVector<Value> result;
      for (const Placed &value : values)
        result.push_back(!value.shape.per         ? local(in, value, rank_)
                         : value.slots && arrived ? landed(in, value, peer)
                                                  : local(in, value, peer));
      return result;
    };
    if (!shape.per)
      return function(rank_, elements(at, rank_, false));
    if (shape.topology) {
      Emitter top(top_, at.loc());
      const Neighbors &known = neighbors(top, shape.topology, roundOf(values));
      for (auto [j, active] : llvm::enumerate(known.active)) {
        Value index = top.constant(static_cast<int64_t>(j));
        when(at, active, [&] { function(index, elements(at, index, true)); });
      }
      return;
    }
    bool landedSome = llvm::any_of(values, [](const Placed &value) { return value.slots; });
    Value size = sizeOf(shape.group), own = placeIn(shape.group);
    if (!landedSome)
      return loop(at, 0, size, [&](Value peer) { function(peer, elements(at, peer, false)); });
    function(own, elements(at, own, false));
    loop(at, 1, size, [&](Value hops) {
      Value peer = peerBelow(at, hops, shape.group);
      function(peer, elements(at, peer, true));
    });
  }

  LogicalResult lowerMap(ir::MapOp op) {
    Location loc = op.getLoc();
    Type type = op.getResult().getType();
    SmallVector<Placed> values;
    SmallVector<int64_t> broadcast;
    for (Value input : op.getValues()) {
      values.push_back(plain(loc, placed_[input]));
      broadcast.push_back(ir::isScalar(input.getType()) && !ir::isScalar(type));
    }
    Placed target = place(cast<OpResult>(op.getResult()));
    target.round = roundOf(values);
    if (isJob(target.buffer))
      note(loc, "MapInPlace", "computes in the job's own buffer");
    Emitter top(top_, loc), at(body_, loc);
    SmallVector<Value> scalars;
    for (Value scalar : op.getScalars()) {
      Value value = scalars_.lookup(scalar);
      scalars.push_back(value.getType().isIndex() ? top.toReal(value) : value);
    }
    Builder &b = top_;
    int64_t result = static_cast<int64_t>(op.getCode().size() / ir::kMapStride) - 1;
    DictionaryAttr constants = b.getDictionaryAttr({
        b.getNamedAttr("broadcast", b.getDenseI64ArrayAttr(broadcast)),
        b.getNamedAttr("code", op.getCodeAttr()),
        b.getNamedAttr("constants", op.getConstantsAttr()),
        b.getNamedAttr("inputs", b.getI64IntegerAttr(static_cast<int64_t>(values.size()))),
        b.getNamedAttr("outputs", b.getDenseI64ArrayAttr({result})),
        b.getNamedAttr("scalars", b.getI64IntegerAttr(static_cast<int64_t>(scalars.size()))),
    });
    forEach(at, Shape::of(type), values, [&](Value peer, ArrayRef<Value> elements) {
      launch(at, "map", constants, count(at, target, peer), elements, local(at, target, peer),
             scalars);
    });
    placed_[op.getResult()] = target;
    return success();
  }

  /// One number of each of `operands`, all over one domain.
  LogicalResult lowerFold(Operation *op, StringRef kernel, ValueRange operands) {
    Location loc = op->getLoc();
    SmallVector<Placed> values;
    for (Value operand : operands)
      values.push_back(plain(loc, placed_[operand]));
    Placed target = place(op->getResult(0), /*inPlace=*/false);
    Emitter at(body_, loc);
    SmallVector<Value> inputs;
    for (const Placed &value : values)
      inputs.push_back(local(at, value, rank_));
    Value elements = count(at, values.front(), rank_), output = local(at, target, rank_);
    launch(at, kernel, {}, elements, inputs, output);
    // Of no elements there is no launch, but a result (K10).
    when(at, at.equal(elements, at.constant(0)), [&] { fill(at, 0.0, at.constant(1), output); });
    placed_[op->getResult(0)] = target;
    return success();
  }

  LogicalResult lowerRandom(ir::RandomOp op) {
    Location loc = op.getLoc();
    Placed target = place(cast<OpResult>(op.getResult()));
    Emitter top(top_, loc), at(body_, loc);
    SmallVector<Value> scalars =
        key(at, ir::drawNumber(op), op.getDraw() == ir::Draw::Shared, top.constant(0));
    scalars[0] = scalars_.lookup(op.getSeed());
    launch(at, "random_uniform", {}, sizes_.length, {}, local(at, target, rank_), scalars);
    placed_[op.getResult()] = target;
    return success();
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

  Value roundOfMany(Emitter &at, ir::Group group) {
    return at.select(at.greater(sizeOf(group), at.constant(1)), at.constant(1), at.constant(0));
  }

  /// This rank's place in its group, behind the program's body.
  Value placeAtTail(Emitter &tail, ir::Group group) {
    return group == ir::Group::World ? tail.create<chunk::RankOp>() : placeAtTop(group);
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
    ir::Group group = result.shape.group;
    Value size = sizeOf(group);
    result.slots = slots(loc, value, size);
    Emitter at(body_, loc);
    loop(at, 1, size, [&](Value hops) {
      Value peer = peerAbove(at, hops, group);
      at.create<chunk::MoveOp>(local(at, value, peer), rotation(group), hops, result.slots,
                               placeIn(group));
    });
    charge(loc, [&](Emitter &tail) {
      Value shard =
          sizes_.bytes(tail, value.codec, sizes_.shardCount(tail, placeAtTail(tail, group), size));
      Value bytes = value.shape.own
                        ? tail.mul(tail.sub(size, tail.constant(1)), shard)
                        : tail.sub(sizes_.bytes(tail, value.codec, sizes_.length), shard);
      return std::pair(roundOfMany(tail, group), bytes);
    });
    placed_[op.getResult()] = result;
    return success();
  }

  LogicalResult lowerAllGather(ir::AllGatherOp op) {
    Location loc = op.getLoc();
    Placed value = asTyped(loc, op.getInput());
    Placed result = value;
    result.shape = Shape::of(op.getResult().getType());
    ir::Group group = result.shape.group;
    Value size = sizeOf(group);
    result.slots = slots(loc, value, size);
    Emitter at(body_, loc);
    loop(at, 1, size, [&](Value hops) {
      at.create<chunk::MoveOp>(local(at, value, rank_), rotation(group), hops, result.slots,
                               placeIn(group));
    });
    charge(loc, [&](Emitter &tail) {
      Value elements = value.shape.scalar ? tail.constant(1) : sizes_.length;
      if (value.shape.shard)
        elements = sizes_.shardCount(tail, placeAtTail(tail, value.shape.shardOf), shards(value));
      Value peers = tail.sub(size, tail.constant(1));
      return std::pair(roundOfMany(tail, group),
                       tail.mul(peers, sizes_.bytes(tail, value.codec, elements)));
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
    ir::TopologyAttrInterface topology = op.getTopology();
    if (!topology.isStatic())
      result.round = op.getRound() ? scalars_.lookup(op.getRound()) : step(top);
    const Neighbors &known = neighbors(top, topology, result.round);
    result.slots = slots(loc, value, top.constant(static_cast<int64_t>(known.active.size())));
    if (topology.getPeerMap() == ir::PeerMap::Rotate) {
      for (auto [j, active] : llvm::enumerate(known.active))
        when(at, active, [&] {
          at.create<chunk::MoveOp>(local(at, value, rank_), known.map, ValueRange{known.hops[j]},
                                   result.slots, at.constant(static_cast<int64_t>(j)));
        });
    } else { // Whoever has no partner sends nothing.
      at.create<chunk::MoveOp>(local(at, value, rank_), known.map, known.arguments, result.slots,
                               at.constant(0));
    }
    charge(loc, [&](Emitter &tail) {
      Value any = tail.greater(known.count, tail.constant(0));
      Value bytes =
          sizes_.bytes(tail, value.codec, count(tail, value, placeAtTop(ir::Group::World)));
      return std::pair(tail.select(any, tail.constant(1), tail.constant(0)),
                       tail.mul(known.count, bytes));
    });
    placed_[op.getResult()] = result;
    return success();
  }

  // ---- Results ----

  /// Makes `target` hold `value`. Nothing if it does already.
  void assign(Location loc, const Placed &value, const Placed &target) {
    if (value.buffer == target.buffer && value.layout == target.layout && !value.codec &&
        !value.slots)
      return;
    Emitter at(body_, loc);
    forEach(at, value, [&](Value peer, Value element) {
      store(at, value, peer, element, local(at, target, peer));
    });
  }

  /// What waits for the step's end: only there it is known whether the step is finite.
  struct Deferred {
    Location loc;
    SmallVector<Value> conditions; ///< Of the branches around it.
    std::function<void(Emitter &)> emit;
    StringRef published = {}; ///< The state that it publishes.
  };
  SmallVector<Deferred> deferred_;
  /// Updates of a bucket that is still read as it was: they happen when all else has.
  SmallVector<Deferred> late_;

  void finishStep() {
    for (Deferred &item : late_)
      emit(item, /*gated=*/false);
    if (deferred_.empty())
      return;
    bool gated = on_.getEvent() != ir::Event::AfterUpdate && !on_.isAsync();
    if (gated)
      chunk::WaitOp::create(body_, deferred_.front().loc, chunk::Gate::BeforeUpdate);
    // The job does not start `after_update` in a step that is not finite; rounds are of no step.
    for (Deferred &item : deferred_)
      emit(item, gated);
  }

  /// On a path on which an async handler adds nothing to the weight, it adds -0: the weight stays
  /// as it is, zeros of either sign too.
  void addNothing(Location loc) {
    Placed target;
    target.buffer = job(ir::Role::Weight, loc);
    late_.push_back({loc, conditions_, [this, target](Emitter &at) {
                       fill(at, -0.0, sizes_.length, local(at, target, rank_));
                     }});
  }

  void emit(Deferred &item, bool gated) {
    OpBuilder::InsertionGuard guard(body_);
    Emitter at(body_, item.loc);
    for (Value condition : item.conditions) {
      auto branch = at.create<chunk::IfOp>(condition);
      body_.setInsertionPointToStart(&branch.getThen().front());
    }
    if (gated) {
      auto finite = at.create<chunk::IfFiniteOp>();
      body_.setInsertionPointToStart(&finite.getBody().front());
    }
    item.emit(at);
  }

  /// Places of a topology that hold no neighbour keep what the state has there.
  void keepEmptyPlaces(Location loc, FlatSymbolRefAttr name, Type type, const Placed &target) {
    if (!target.shape.topology)
      return;
    Placed committed = state(loc, name, type, /*next=*/false);
    Emitter top(top_, loc), at(body_, loc);
    const Neighbors &known = neighbors(top, target.shape.topology, {});
    for (auto [j, active] : llvm::enumerate(known.active)) {
      Value index = top.constant(static_cast<int64_t>(j));
      when(at, top.no(active), [&] {
        store(at, committed, index, local(at, committed, index), local(at, target, index));
      });
    }
  }

  LogicalResult lowerUpdate(ir::UpdateOp op) {
    Location loc = op.getLoc();
    Placed value = placed_[op.getValue()];
    if (FlatSymbolRefAttr name = op.getStateAttr()) {
      Placed target = state(loc, name, op.getValue().getType(), /*next=*/true);
      if (value.unchangedUnless) // Where nothing was mixed, it is the job's own.
        return op.emitOpError("of a state with a mixed value that is also stored is not supported");
      assign(loc, value, target);
      keepEmptyPlaces(loc, name, op.getValue().getType(), target);
      updated_[name.getValue()] = target;
      deferred_.push_back({loc, conditions_,
                           [name](Emitter &at) { at.create<chunk::PublishOp>(name); },
                           name.getValue()});
      return success();
    }
    ir::Role role = op.getRole();
    Placed target;
    target.shape = value.shape;
    target.buffer = job(role, loc);
    if (value.original == role)
      return success();
    Deferred item{loc, conditions_,
                  [this, loc, value, target](Emitter &) { assign(loc, value, target); }};
    if (value.unchangedUnless)
      item.conditions.push_back(value.unchangedUnless);
    if (!op.getGate()) {
      if (laterReader(role, op)) {
        late_.push_back(std::move(item));
      } else {
        Emitter at(body_, loc);
        if (value.unchangedUnless)
          when(at, value.unchangedUnless, [&] { assign(loc, value, target); });
        else
          assign(loc, value, target);
      }
      return success();
    }
    if (value.original || (isJob(value.buffer) && !value.unchangedUnless)) {
      // The other bucket may have changed by then.
      Placed kept = scratch(loc, value.shape, {});
      assign(loc, value, kept);
      item.emit = [this, loc, kept, target](Emitter &) { assign(loc, kept, target); };
    }
    deferred_.push_back(std::move(item));
    return success();
  }

  LogicalResult lowerRead(ir::ReadOp op) {
    auto updated = updated_.find(op.getState());
    placed_[op.getResult()] =
        updated != updated_.end()
            ? updated->second
            : state(op.getLoc(), op.getStateAttr(), op.getResult().getType(), /*next=*/false);
    return success();
  }

  /// All conditions of `item` but the first `outer`, as one.
  static Value condition(Emitter &top, const Deferred &item, size_t outer) {
    Value all = item.conditions[outer];
    for (Value next : ArrayRef(item.conditions).drop_front(outer + 1))
      all = top.both(all, next);
    return all;
  }

  /// A program commits a state in one place: where both paths of a branch publish it, it is
  /// published if either does. `begin`: where the branch's items begin, at most one for each path.
  void mergePublished(Location loc, size_t begin) {
    size_t outer = conditions_.size();
    for (size_t i = begin; i < deferred_.size(); ++i) {
      Deferred &item = deferred_[i];
      auto *other = std::find_if(&item + 1, deferred_.end(), [&](const Deferred &later) {
        return !item.published.empty() && later.published == item.published;
      });
      if (other == deferred_.end())
        continue;
      Value either; // Null: always.
      if (item.conditions.size() > outer + 1 || other->conditions.size() > outer + 1) {
        Emitter top(top_, loc);
        either = top.either(condition(top, item, outer), condition(top, *other, outer));
      }
      item.conditions.truncate(outer);
      if (either)
        item.conditions.push_back(either);
      deferred_.erase(other);
    }
  }

  /// After a branch, a state that one path updated lies where that path put it: if it is read
  /// later, the other path copies it there.
  void mergeStates(scf::IfOp op, chunk::IfOp branch, llvm::StringMap<Placed> (&after)[2]) {
    updated_ = after[0];
    for (auto &entry : after[1])
      updated_[entry.getKey()] = entry.getValue();
    for (StringRef name : sortedKeys(updated_)) {
      ir::ReadOp later;
      on_.walk([&](ir::ReadOp read) {
        if (!later && read.getState() == name && runsAfter(read, op))
          later = read;
      });
      if (!later)
        continue;
      for (size_t i : {0, 1}) {
        if (after[i].contains(name))
          continue;
        OpBuilder::InsertionGuard guard(body_);
        Region &region = i == 0 ? branch.getThen() : branch.getOtherwise();
        body_.setInsertionPointToEnd(&region.front());
        assign(op.getLoc(),
               state(op.getLoc(), later.getStateAttr(), later.getResult().getType(), false),
               updated_[name]);
      }
    }
  }

  static SmallVector<StringRef> sortedKeys(const llvm::StringMap<Placed> &map) {
    SmallVector<StringRef> keys(map.keys());
    llvm::sort(keys);
    return keys;
  }

  LogicalResult lowerIf(scf::IfOp op) {
    Location loc = op.getLoc();
    for (OpResult result : op.getResults()) {
      Type type = result.getType();
      if (type.isIntOrIndexOrFloat())
        continue;
      if (!ir::isPlain(type))
        return op.emitOpError() << "yields " << type << ": expects scalars, buckets and shards";
      placed_[result] = place(result);
    }
    Value condition = scalars_.lookup(op.getCondition());
    auto branch = chunk::IfOp::create(body_, loc, condition, /*withElse=*/true);
    SmallVector<Value> scalarResults[2];
    size_t deferredBefore = deferred_.size();
    llvm::StringMap<Placed> before = updated_, after[2];
    after[0] = after[1] = before;
    for (bool taken : {true, false}) {
      Block *source = taken ? op.thenBlock() : op.elseBlock();
      Block *other = taken ? op.elseBlock() : op.thenBlock();
      if (on_.isAsync() && other && updatesWeight(*other) && !(source && updatesWeight(*source))) {
        Emitter top(top_, loc);
        conditions_.push_back(taken ? condition : top.no(condition));
        addNothing(loc);
        conditions_.pop_back();
      }
      if (!source)
        continue;
      OpBuilder::InsertionGuard guard(body_);
      Region &region = taken ? branch.getThen() : branch.getOtherwise();
      body_.setInsertionPointToStart(&region.front());
      Emitter top(top_, loc);
      conditions_.push_back(taken ? condition : top.no(condition));
      updated_ = before;
      if (failed(lower(*source)))
        return failure();
      conditions_.pop_back();
      after[taken ? 0 : 1] = updated_;
      for (auto [result, yielded] :
           llvm::zip(op.getResults(), source->getTerminator()->getOperands()))
        if (result.getType().isIntOrIndexOrFloat())
          scalarResults[taken ? 0 : 1].push_back(scalars_.lookup(yielded));
        else
          assign(source->getTerminator()->getLoc(), placed_[yielded], placed_[result]);
    }
    mergePublished(loc, deferredBefore);
    mergeStates(op, branch, after);
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
    if (failed(ir::linkCodecs(getOperation())))
      return signalPassFailure();
    for (auto algorithm : llvm::make_early_inc_range(getOperation().getOps<ir::AlgorithmOp>()))
      if (failed(lower(algorithm)))
        return signalPassFailure();
  }

private:
  static void declare(ir::StateOp state, OpBuilder &builder) {
    Type type = state.getType();
    IntegerAttr buckets;
    chunk::StateDomain domain = chunk::StateDomain::Bucket;
    if (auto per = dyn_cast<ir::PerType>(type)) {
      domain = chunk::StateDomain::Neighbors;
      buckets =
          builder.getI64IntegerAttr(cast<ir::TopologyAttrInterface>(per.getOver()).entriesMax());
    } else if (ir::isScalar(type)) {
      domain = chunk::StateDomain::Scalar;
    } else if (ir::shardGroup(type)) {
      domain = chunk::StateDomain::Shard;
    }
    FloatAttr initial = state.getInitialWeight() ? FloatAttr() : state.getInitialAttr();
    auto onResize = static_cast<chunk::OnResize>(state.getOnResize());
    chunk::DeclareStateOp::create(builder, state.getLoc(), state.getSymName(), domain, buckets,
                                  initial, onResize);
  }

  LogicalResult lower(ir::AlgorithmOp algorithm) {
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
                                              grain, accepts, algorithm.getOwnsUpdate());
    builder.setInsertionPointToEnd(&schedule.getBody().front());
    for (const auto &parameter : algorithm.getParameters())
      chunk::DeclareParameterOp::create(builder, algorithm.getLoc(), parameter.name,
                                        parameter.initial, parameter.perStep);
    for (auto state : algorithm.getBody().getOps<ir::StateOp>())
      declare(state, builder);
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
