// Topologies: who hears whom, as numbers for the interpreter and as index arithmetic for the
// lowering.
#include "bagua/dialect/Bagua/BaguaAttrs.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/OpImplementation.h"

#include <numeric>

using namespace mlir;
using namespace bagua::ir;

namespace {

using EmitError = function_ref<InFlightDiagnostic()>;

constexpr int64_t kExponentsMax = 16; // As many neighbours as a lowering unrolls.
constexpr int64_t kColumnsMax = 65536;

int64_t modulo(int64_t a, int64_t n) { return (a % n + n) % n; }

/// Index arithmetic at one place.
struct Arithmetic {
  OpBuilder &builder;
  Location loc;

  Value constant(int64_t value) { return arith::ConstantIndexOp::create(builder, loc, value); }
  Value sub(Value a, Value b) { return builder.createOrFold<arith::SubIOp>(loc, a, b); }
  Value add(Value a, Value b) { return builder.createOrFold<arith::AddIOp>(loc, a, b); }
  Value min(Value a, Value b) { return builder.createOrFold<arith::MinSIOp>(loc, a, b); }
  Value max(Value a, Value b) { return builder.createOrFold<arith::MaxSIOp>(loc, a, b); }
  /// Of numbers that are not negative.
  Value mod(Value a, Value b) { return builder.createOrFold<arith::RemSIOp>(loc, a, b); }
  Value select(arith::CmpIPredicate predicate, Value a, Value b, Value yes, Value no) {
    Value condition = builder.createOrFold<arith::CmpIOp>(loc, predicate, a, b);
    return builder.createOrFold<arith::SelectOp>(loc, condition, yes, no);
  }
  /// (-offset) mod world: where one sends who is heard at `offset`.
  Value distance(int64_t offset, Value world) {
    Value residue = mod(constant(std::abs(offset)), world);
    return offset < 0 ? residue : mod(sub(world, residue), world);
  }
};

/// Number of k in [0, kExponentsMax) with 2^k < world: ceil(log2(world)), limited.
int64_t exponents(int64_t world) {
  int64_t count = 0;
  while (count < kExponentsMax && int64_t{1} << count < world)
    ++count;
  return count;
}

Value buildExponents(Arithmetic at, Value world) {
  Value count = at.constant(0);
  for (int64_t k = 0; k < kExponentsMax; ++k)
    count = at.select(arith::CmpIPredicate::sgt, world, at.constant(int64_t{1} << k),
                      at.constant(k + 1), count);
  return count;
}

constexpr int64_t kTorusNeighbors = 4;

int64_t torusOffset(int64_t columns, int64_t entry) {
  const int64_t offsets[] = {-1, 1, -columns, columns};
  return offsets[entry];
}

} // namespace

// ---- Fixed offsets ------------------------------------------------------------------------------

int64_t TopologyAttr::entriesMax() const { return static_cast<int64_t>(getOffsets().size()); }
int64_t TopologyAttr::entries(int64_t) const { return entriesMax(); }
Value TopologyAttr::buildEntries(OpBuilder &builder, Location loc, Value) const {
  return Arithmetic{builder, loc}.constant(entriesMax());
}
bool TopologyAttr::isStatic() const { return true; }
PeerMap TopologyAttr::getPeerMap() const { return PeerMap::Rotate; }
int64_t TopologyAttr::distance(int64_t world, int64_t, int64_t entry) const {
  return modulo(-getOffsets()[static_cast<size_t>(entry)], world);
}
Value TopologyAttr::buildDistance(OpBuilder &builder, Location loc, Value world, Value,
                                  int64_t entry) const {
  return Arithmetic{builder, loc}.distance(getOffsets()[static_cast<size_t>(entry)], world);
}
Rational TopologyAttr::weight(int64_t, int64_t entry) const {
  return {getCommonNumerators()[static_cast<size_t>(entry)], getCommonDenominator()};
}
Value TopologyAttr::buildNumerator(OpBuilder &builder, Location loc, Value, int64_t entry) const {
  return Arithmetic{builder, loc}.constant(getCommonNumerators()[static_cast<size_t>(entry)]);
}
Value TopologyAttr::buildDenominator(OpBuilder &builder, Location loc, Value) const {
  return Arithmetic{builder, loc}.constant(getCommonDenominator());
}

LogicalResult TorusAttr::verify(EmitError emitError, int64_t columns) {
  if (columns < 2 || columns > kColumnsMax)
    return emitError() << "expects columns in 2.." << kColumnsMax << ", got " << columns;
  return success();
}
int64_t TorusAttr::entriesMax() const { return kTorusNeighbors; }
int64_t TorusAttr::entries(int64_t) const { return kTorusNeighbors; }
Value TorusAttr::buildEntries(OpBuilder &builder, Location loc, Value) const {
  return Arithmetic{builder, loc}.constant(kTorusNeighbors);
}
bool TorusAttr::isStatic() const { return true; }
PeerMap TorusAttr::getPeerMap() const { return PeerMap::Rotate; }
int64_t TorusAttr::distance(int64_t world, int64_t, int64_t entry) const {
  return modulo(-torusOffset(getColumns(), entry), world);
}
Value TorusAttr::buildDistance(OpBuilder &builder, Location loc, Value world, Value,
                               int64_t entry) const {
  return Arithmetic{builder, loc}.distance(torusOffset(getColumns(), entry), world);
}
Rational TorusAttr::weight(int64_t, int64_t) const { return {1, kTorusNeighbors + 1}; }
Value TorusAttr::buildNumerator(OpBuilder &builder, Location loc, Value, int64_t) const {
  return Arithmetic{builder, loc}.constant(1);
}
Value TorusAttr::buildDenominator(OpBuilder &builder, Location loc, Value) const {
  return Arithmetic{builder, loc}.constant(kTorusNeighbors + 1);
}

// ---- Powers of two ------------------------------------------------------------------------------

int64_t ExponentialAttr::entriesMax() const { return kExponentsMax; }
int64_t ExponentialAttr::entries(int64_t world) const { return exponents(world); }
Value ExponentialAttr::buildEntries(OpBuilder &builder, Location loc, Value world) const {
  return buildExponents({builder, loc}, world);
}
bool ExponentialAttr::isStatic() const { return true; }
PeerMap ExponentialAttr::getPeerMap() const { return PeerMap::Rotate; }
int64_t ExponentialAttr::distance(int64_t world, int64_t, int64_t entry) const {
  return modulo(-(int64_t{1} << entry), world);
}
Value ExponentialAttr::buildDistance(OpBuilder &builder, Location loc, Value world, Value,
                                     int64_t entry) const {
  return Arithmetic{builder, loc}.distance(int64_t{1} << entry, world);
}
Rational ExponentialAttr::weight(int64_t world, int64_t) const { return {1, exponents(world) + 1}; }
Value ExponentialAttr::buildNumerator(OpBuilder &builder, Location loc, Value, int64_t) const {
  return Arithmetic{builder, loc}.constant(1);
}
Value ExponentialAttr::buildDenominator(OpBuilder &builder, Location loc, Value world) const {
  Arithmetic at{builder, loc};
  return at.add(buildExponents(at, world), at.constant(1));
}

int64_t OnePeerExponentialAttr::entriesMax() const { return 1; }
int64_t OnePeerExponentialAttr::entries(int64_t) const { return 1; }
Value OnePeerExponentialAttr::buildEntries(OpBuilder &builder, Location loc, Value) const {
  return Arithmetic{builder, loc}.constant(1);
}
bool OnePeerExponentialAttr::isStatic() const { return false; }
PeerMap OnePeerExponentialAttr::getPeerMap() const { return PeerMap::Rotate; }
int64_t OnePeerExponentialAttr::distance(int64_t world, int64_t round, int64_t) const {
  return world == 1 ? 0 : int64_t{1} << round % exponents(world);
}
Value OnePeerExponentialAttr::buildDistance(OpBuilder &builder, Location loc, Value world,
                                            Value round, int64_t) const {
  Arithmetic at{builder, loc};
  Value cycle = at.max(buildExponents(at, world), at.constant(1));
  Value exponent = at.mod(round, cycle);
  Value distance = at.constant(1);
  for (int64_t k = 1; k < kExponentsMax; ++k)
    distance = at.select(arith::CmpIPredicate::sge, exponent, at.constant(k),
                         at.constant(int64_t{1} << k), distance);
  return at.mod(distance, world); // Alone: oneself.
}
Rational OnePeerExponentialAttr::weight(int64_t, int64_t) const { return {1, 2}; }
Value OnePeerExponentialAttr::buildNumerator(OpBuilder &builder, Location loc, Value,
                                             int64_t) const {
  return Arithmetic{builder, loc}.constant(1);
}
Value OnePeerExponentialAttr::buildDenominator(OpBuilder &builder, Location loc, Value) const {
  return Arithmetic{builder, loc}.constant(2);
}
int64_t OnePeerExponentialAttr::period(int64_t world) const {
  return std::max<int64_t>(1, exponents(world));
}

// ---- Pairs --------------------------------------------------------------------------------------
// One entry; its peer is that of the map, its weight one half.

#define BAGUA_PAIR_TOPOLOGY(Attr, Map)                                                             \
  int64_t Attr::entriesMax() const { return 1; }                                                   \
  int64_t Attr::entries(int64_t) const { return 1; }                                               \
  Value Attr::buildEntries(OpBuilder &builder, Location loc, Value) const {                        \
    return Arithmetic{builder, loc}.constant(1);                                                   \
  }                                                                                                \
  bool Attr::isStatic() const { return false; }                                                    \
  PeerMap Attr::getPeerMap() const { return Map; }                                                 \
  int64_t Attr::distance(int64_t, int64_t, int64_t) const {                                        \
    llvm_unreachable("pairs have no distance");                                                    \
  }                                                                                                \
  Value Attr::buildDistance(OpBuilder &, Location, Value, Value, int64_t) const {                  \
    llvm_unreachable("pairs have no distance");                                                    \
  }                                                                                                \
  Rational Attr::weight(int64_t, int64_t) const { return {1, 2}; }                                 \
  Value Attr::buildNumerator(OpBuilder &builder, Location loc, Value, int64_t) const {             \
    return Arithmetic{builder, loc}.constant(1);                                                   \
  }                                                                                                \
  Value Attr::buildDenominator(OpBuilder &builder, Location loc, Value) const {                    \
    return Arithmetic{builder, loc}.constant(2);                                                   \
  }

BAGUA_PAIR_TOPOLOGY(RoundRobinAttr, PeerMap::RoundRobin)
BAGUA_PAIR_TOPOLOGY(ShiftOneAttr, PeerMap::ShiftOne)
BAGUA_PAIR_TOPOLOGY(PairingAttr, PeerMap::Pairing)
#undef BAGUA_PAIR_TOPOLOGY

int64_t RoundRobinAttr::period(int64_t world) const { return world; }
int64_t ShiftOneAttr::period(int64_t world) const { return std::max<int64_t>(1, (world + 1) / 2); }
int64_t PairingAttr::period(int64_t) const { return 0; }
int64_t PairingAttr::pairingSeed() const { return getSeed(); }

LogicalResult PairingAttr::verify(EmitError emitError, int64_t seed) {
  if (seed < 0)
    return emitError() << "expects a seed of at least 0, got " << seed;
  return success();
}

// ---- Groups -------------------------------------------------------------------------------------

LogicalResult OverAttr::verify(EmitError emitError, FlatSymbolRefAttr over,
                               TopologyAttrInterface topology) {
  if (failed(verifyGroup(emitError, over)))
    return failure();
  if (groupOf(over) == Group::World || isa<OverAttr>(topology))
    return emitError() << "expects a topology over @node or @cross, once, got " << topology
                       << " over " << over;
  if (topology.getPeerMap() != PeerMap::Rotate)
    return emitError() << "expects a topology in which ranks hear those at a distance over " << over
                       << ", got " << topology << ", which pairs the ranks of @world";
  return success();
}

ParseResult bagua::ir::parsePeers(AsmParser &parser, Attribute &peers) {
  if (parser.parseAttribute(peers))
    return failure();
  auto topology = dyn_cast<TopologyAttrInterface>(peers);
  if (!topology || failed(parser.parseOptionalKeyword("over")))
    return success();
  SMLoc loc = parser.getCurrentLocation();
  StringAttr name;
  if (parser.parseSymbolName(name))
    return failure();
  if (groupNamed(name) == Group::World)
    return success();
  peers =
      parser.getChecked<OverAttr>(loc, parser.getContext(), FlatSymbolRefAttr::get(name), topology);
  return success(static_cast<bool>(peers));
}

void bagua::ir::printPeers(AsmPrinter &printer, Attribute peers) {
  auto over = dyn_cast<OverAttr>(peers);
  if (over)
    printer << over.getTopology() << " over " << over.getOver();
  else
    printer << peers;
}

Group OverAttr::getGroup() const { return groupOf(getOver()); }
TopologyAttrInterface OverAttr::amongAll() const { return getTopology(); }
int64_t OverAttr::entriesMax() const { return getTopology().entriesMax(); }
int64_t OverAttr::entries(int64_t world) const { return getTopology().entries(world); }
Value OverAttr::buildEntries(OpBuilder &builder, Location loc, Value world) const {
  return getTopology().buildEntries(builder, loc, world);
}
bool OverAttr::isStatic() const { return getTopology().isStatic(); }
PeerMap OverAttr::getPeerMap() const { return getTopology().getPeerMap(); }
int64_t OverAttr::distance(int64_t world, int64_t round, int64_t entry) const {
  return getTopology().distance(world, round, entry);
}
Value OverAttr::buildDistance(OpBuilder &builder, Location loc, Value world, Value round,
                              int64_t entry) const {
  return getTopology().buildDistance(builder, loc, world, round, entry);
}
Rational OverAttr::weight(int64_t world, int64_t entry) const {
  return getTopology().weight(world, entry);
}
Value OverAttr::buildNumerator(OpBuilder &builder, Location loc, Value world, int64_t entry) const {
  return getTopology().buildNumerator(builder, loc, world, entry);
}
Value OverAttr::buildDenominator(OpBuilder &builder, Location loc, Value world) const {
  return getTopology().buildDenominator(builder, loc, world);
}
int64_t OverAttr::period(int64_t world) const { return getTopology().period(world); }
