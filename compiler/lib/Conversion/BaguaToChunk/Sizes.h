// Index arithmetic of shards and neighbours, as SSA values.
#pragma once

#include "bagua/dialect/Bagua/BaguaTypes.h"
#include "bagua/dialect/Chunk/ChunkOps.h"

#include <optional>

namespace bagua::compiler {

namespace chunk = ir::chunk;

/// Where ops go, and short names for index arithmetic there.
class Emitter {
public:
  Emitter(mlir::OpBuilder &builder, mlir::Location loc) : builder_(builder), loc_(loc) {}

  mlir::OpBuilder &builder() { return builder_; }
  mlir::Location loc() const { return loc_; }

  template <typename Op, typename... Args> Op create(Args &&...args) {
    return Op::create(builder_, loc_, std::forward<Args>(args)...);
  }
  template <typename Op> mlir::Value fold(mlir::Value a, mlir::Value b) {
    return builder_.createOrFold<Op>(loc_, a, b);
  }

  mlir::Value constant(int64_t value) { return create<mlir::arith::ConstantIndexOp>(value); }
  mlir::Value boolean(bool value) { return create<mlir::arith::ConstantIntOp>(value, 1); }
  mlir::Value real(double value) {
    return create<mlir::arith::ConstantOp>(builder_.getF64FloatAttr(value));
  }
  mlir::Value add(mlir::Value a, mlir::Value b) { return fold<mlir::arith::AddIOp>(a, b); }
  mlir::Value sub(mlir::Value a, mlir::Value b) { return fold<mlir::arith::SubIOp>(a, b); }
  mlir::Value mul(mlir::Value a, mlir::Value b) { return fold<mlir::arith::MulIOp>(a, b); }
  mlir::Value mod(mlir::Value a, mlir::Value b) { return fold<mlir::arith::RemSIOp>(a, b); }
  mlir::Value floorDiv(mlir::Value a, mlir::Value b) {
    return fold<mlir::arith::FloorDivSIOp>(a, b);
  }
  mlir::Value ceilDiv(mlir::Value a, mlir::Value b) { return fold<mlir::arith::CeilDivSIOp>(a, b); }
  mlir::Value min(mlir::Value a, mlir::Value b) { return fold<mlir::arith::MinSIOp>(a, b); }
  mlir::Value both(mlir::Value a, mlir::Value b) { return fold<mlir::arith::AndIOp>(a, b); }
  mlir::Value either(mlir::Value a, mlir::Value b) { return fold<mlir::arith::OrIOp>(a, b); }
  mlir::Value no(mlir::Value a) { return fold<mlir::arith::XOrIOp>(a, boolean(true)); }
  mlir::Value equal(mlir::Value a, mlir::Value b) {
    return compare(mlir::arith::CmpIPredicate::eq, a, b);
  }
  mlir::Value unequal(mlir::Value a, mlir::Value b) {
    return compare(mlir::arith::CmpIPredicate::ne, a, b);
  }
  mlir::Value greater(mlir::Value a, mlir::Value b) {
    return compare(mlir::arith::CmpIPredicate::sgt, a, b);
  }
  mlir::Value select(mlir::Value condition, mlir::Value a, mlir::Value b) {
    return builder_.createOrFold<mlir::arith::SelectOp>(loc_, condition, a, b);
  }
  /// Exact for what an f64 holds exactly.
  mlir::Value toReal(mlir::Value index) {
    mlir::Value integer = create<mlir::arith::IndexCastOp>(builder_.getI64Type(), index);
    return create<mlir::arith::SIToFPOp>(builder_.getF64Type(), integer);
  }

private:
  mlir::Value compare(mlir::arith::CmpIPredicate predicate, mlir::Value a, mlir::Value b) {
    return builder_.createOrFold<mlir::arith::CmpIOp>(loc_, predicate, a, b);
  }

  mlir::OpBuilder &builder_;
  mlir::Location loc_;
};

/// The numbers that sizes are made of.
struct Sizes {
  mlir::Value world, length, elementBytes; ///< chunk.world, chunk.length, chunk.element_bytes
  int64_t grain = 1;

  /// First element of shard `index` of `shards`; that of shard `shards` is `length`.
  mlir::Value shardBegin(Emitter &at, mlir::Value index, mlir::Value shards) const {
    if (grain == 1)
      return at.floorDiv(at.mul(index, length), shards);
    mlir::Value grains = at.ceilDiv(length, at.constant(grain));
    mlir::Value first = at.floorDiv(at.mul(index, grains), shards);
    return at.min(length, at.mul(first, at.constant(grain)));
  }

  mlir::Value shardCount(Emitter &at, mlir::Value index, mlir::Value shards) const {
    mlir::Value next = at.add(index, at.constant(1));
    return at.sub(shardBegin(at, next, shards), shardBegin(at, index, shards));
  }

  /// No shard has more elements.
  mlir::Value shardCountMax(Emitter &at, mlir::Value shards) const {
    if (grain == 1)
      return at.ceilDiv(length, shards);
    mlir::Value grains = at.ceilDiv(length, at.constant(grain));
    return at.min(length, at.mul(at.ceilDiv(grains, shards), at.constant(grain)));
  }

  /// Bytes of `count` elements, plain if `codec` is null.
  mlir::Value bytes(Emitter &at, ir::CodecAttrInterface codec, mlir::Value count) const {
    if (codec)
      return codec.buildPackedBytes(at.builder(), at.loc(), count);
    return at.mul(count, elementBytes);
  }
};

/// A topology once the world, the rank and the round are known: neighbours that coincide are one,
/// oneself is none.
struct Neighbors {
  chunk::PeerMap map = chunk::PeerMap::Rotate;
  llvm::SmallVector<mlir::Value> arguments; ///< Of a map that pairs ranks.
  llvm::SmallVector<mlir::Value> hops;      ///< Rotate: how far each entry sends, in [0, world).
  llvm::SmallVector<mlir::Value> active;    ///< i1: hears another rank, and is the first that does.
  llvm::SmallVector<mlir::Value> numerators; ///< Weight of it and its equals, over the denominator.
  mlir::Value denominator;
  /// Weights where all entries are active, if they are the same in every world.
  std::optional<llvm::SmallVector<double>> constantWeights;
  mlir::Value count; ///< How many are active.

  /// `world` and `rank` are the size of the topology's group and the executing rank's place in it;
  /// `round` is null where the topology has none.
  static Neighbors of(Emitter &at, ir::TopologyAttrInterface topology, mlir::Value world,
                      mlir::Value rank, mlir::Value round) {
    Neighbors result;
    mlir::OpBuilder &builder = at.builder();
    mlir::Value zero = at.constant(0);
    result.count = zero;
    result.denominator = topology.buildDenominator(builder, at.loc(), world);
    if (topology.getPeerMap() != ir::PeerMap::Rotate) {
      result.map = topology.getPeerMap() == ir::PeerMap::RoundRobin ? chunk::PeerMap::RoundRobin
                   : topology.getPeerMap() == ir::PeerMap::ShiftOne ? chunk::PeerMap::ShiftOne
                                                                    : chunk::PeerMap::Pairing;
      if (result.map == chunk::PeerMap::Pairing)
        result.arguments.push_back(at.constant(topology.pairingSeed()));
      result.arguments.push_back(round);
      mlir::Value peer = at.create<chunk::PeerOp>(result.map, result.arguments);
      result.active.push_back(at.unequal(peer, rank));
      result.numerators.push_back(topology.buildNumerator(builder, at.loc(), world, 0));
      result.count = at.select(result.active[0], at.constant(1), zero);
      return result;
    }
    result.map = chunk::rotationOf(static_cast<chunk::Group>(topology.getGroup()));
    int64_t most = topology.entriesMax();
    if (!round)
      round = zero;
    mlir::Value entries = topology.buildEntries(builder, at.loc(), world);
    llvm::SmallVector<mlir::Value> exists, weights;
    for (int64_t j = 0; j < most; ++j) {
      exists.push_back(at.greater(entries, at.constant(j)));
      result.hops.push_back(topology.buildDistance(builder, at.loc(), world, round, j));
      weights.push_back(topology.buildNumerator(builder, at.loc(), world, j));
    }
    for (size_t i = 0; i < static_cast<size_t>(most); ++i) {
      mlir::Value active = at.both(exists[i], at.unequal(result.hops[i], zero));
      mlir::Value numerator = weights[i];
      for (size_t j = 0; j < static_cast<size_t>(most); ++j) {
        if (i == j)
          continue;
        mlir::Value same = at.both(exists[j], at.equal(result.hops[i], result.hops[j]));
        if (j < i)
          active = at.both(active, at.no(same));
        else
          numerator = at.add(numerator, at.select(same, weights[j], zero));
      }
      result.active.push_back(active);
      result.numerators.push_back(numerator);
      result.count = at.add(result.count, at.select(active, at.constant(1), zero));
    }
    if (auto fixed = llvm::dyn_cast<ir::TopologyAttr>(topology.amongAll())) {
      result.constantWeights.emplace();
      for (int64_t numerator : fixed.getCommonNumerators())
        result.constantWeights->push_back(static_cast<double>(numerator) /
                                          static_cast<double>(fixed.getCommonDenominator()));
    }
    return result;
  }
};

} // namespace bagua::compiler
