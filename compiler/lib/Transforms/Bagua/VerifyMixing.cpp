// Proves that mixing with neighbours leads every rank to the average: rows and columns of each
// round's matrix sum to 1, and the rounds together connect all ranks.
#include "bagua/compiler/Passes.h"
#include "bagua/compiler/Topologies.h"
#include "bagua/dialect/Bagua/BaguaOps.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/ADT/SmallVector.h"

using namespace mlir;

namespace bagua::compiler {

#define GEN_PASS_DEF_VERIFYMIXING
#include "bagua/compiler/Passes.h.inc"

namespace {

constexpr int64_t kWorldMin = 2, kWorldMax = 8;

/// In units of one denominator: [to][from], rank `to` takes so much of rank `from`.
using Matrix = SmallVector<SmallVector<int64_t>>;

struct VerifyMixing final : impl::VerifyMixingBase<VerifyMixing> {
  using VerifyMixingBase::VerifyMixingBase;

  void runOnOperation() override {
    markAllAnalysesPreserved();
    llvm::SmallPtrSet<Attribute, 4> known;
    WalkResult result = getOperation().walk([&](ir::MixOp mix) {
      if (failed(verifyRound(mix)))
        return WalkResult::interrupt();
      if (!known.insert(mix.getTopology()).second)
        return WalkResult::advance();
      for (int64_t world = kWorldMin; world <= kWorldMax; ++world)
        if (failed(verify(mix, world)))
          return WalkResult::interrupt();
      return WalkResult::advance();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }

private:
  static LogicalResult verify(ir::MixOp mix, int64_t n) {
    ir::TopologyAttrInterface topology = mix.getTopology();
    if (topology.getPeerMap() == ir::PeerMap::Pairing)
      return success();
    SmallVector<uint64_t> reach(static_cast<size_t>(n)); // Bit r: has heard of rank r.
    for (int64_t rank = 0; rank < n; ++rank)
      reach[rank] = uint64_t{1} << rank;
    // News travels one edge a round: n periods suffice if the rounds connect all.
    for (int64_t round = 0; round < topology.period(n) * n; ++round) {
      if (round < topology.period(n) && failed(verifySums(mix, n, round)))
        return failure();
      SmallVector<uint64_t> before = reach;
      for (int64_t rank = 0; rank < n; ++rank)
        for (int64_t entry = 0; entry < topology.entries(n); ++entry)
          reach[rank] |= before[heardRank(topology, n, rank, round, entry)];
    }
    for (int64_t rank = 0; rank < n; ++rank)
      for (int64_t other = 0; other < n; ++other)
        if ((reach[rank] >> other & 1) == 0)
          return mix.emitOpError()
                 << "expects a topology that connects all ranks: with " << n << " ranks, rank "
                 << rank << " never hears of rank " << other
                 << "; use offsets without a common divisor with the number of ranks, such as 1";
    return success();
  }

  static LogicalResult verifySums(ir::MixOp mix, int64_t n, int64_t round) {
    ir::TopologyAttrInterface topology = mix.getTopology();
    Matrix matrix(static_cast<size_t>(n), SmallVector<int64_t>(static_cast<size_t>(n)));
    int64_t denominator = 1;
    for (int64_t rank = 0; rank < n; ++rank) {
      int64_t others = 0;
      for (int64_t entry = 0; entry < topology.entries(n); ++entry) {
        int64_t from = heardRank(topology, n, rank, round, entry);
        ir::Rational weight = topology.weight(n, entry);
        denominator = weight.denominator;
        if (from == rank)
          continue;
        matrix[rank][from] += weight.numerator;
        others += weight.numerator;
      }
      matrix[rank][rank] = denominator - others; // Rows sum to 1: what is left is one's own.
      if (matrix[rank][rank] < 0)
        return mix.emitOpError() << "expects weights of neighbours that sum to at most 1: with "
                                 << n << " ranks, rank " << rank << " takes " << others << "/"
                                 << denominator << " of others";
    }
    for (int64_t from = 0; from < n; ++from) {
      int64_t sum = 0;
      for (int64_t to = 0; to < n; ++to)
        sum += matrix[to][from];
      if (sum != denominator)
        return mix.emitOpError()
               << "expects that what is taken of each rank sums to 1, or the average moves: with "
               << n << " ranks, of rank " << from << " it is " << sum << "/" << denominator;
    }
    return success();
  }

  /// The exchanges whose elements `value` holds.
  static void exchangesOf(Value value, llvm::SmallPtrSetImpl<Operation *> &exchanges,
                          llvm::SmallPtrSetImpl<Operation *> &seen) {
    Operation *op = value.getDefiningOp();
    if (!op || !isa<ir::PerType>(value.getType()))
      return;
    if (isa<ir::NeighborExchangeOp>(op)) {
      exchanges.insert(op);
      return;
    }
    if (auto branch = dyn_cast<scf::IfOp>(op)) {
      unsigned index = cast<OpResult>(value).getResultNumber();
      for (Block *block : {branch.thenBlock(), branch.elseBlock()})
        exchangesOf(block->getTerminator()->getOperand(index), exchanges, seen);
      return;
    }
    if (!seen.insert(op).second)
      return;
    for (Value operand : op->getOperands())
      exchangesOf(operand, exchanges, seen);
  }

  static LogicalResult verifyRound(ir::MixOp mix) {
    llvm::SmallPtrSet<Operation *, 4> exchanges, seen;
    exchangesOf(mix.getNeighbors(), exchanges, seen);
    for (Operation *op : exchanges)
      if (cast<ir::NeighborExchangeOp>(op).getRound() != mix.getRound()) {
        InFlightDiagnostic diagnostic =
            mix.emitOpError("expects the round of the exchange that it mixes: the same `at`");
        diagnostic.attachNote(op->getLoc()) << "exchanged here";
        return diagnostic;
      }
    return success();
  }
};

} // namespace
} // namespace bagua::compiler
