// What part and slot numbers ("keys") say of two steps: whether they can touch the same bytes, and
// in which iterations.
#pragma once

#include "bagua/compiler/ChunkMessages.h"

#include <optional>

namespace bagua::compiler {

/// What the event of a step says. A move has two: of its send and of its receive.
enum class Happening : uint8_t { Done, Sent, Arrived };
using EventKey = std::pair<mlir::Operation *, Happening>;

/// sum(coefficient * term) + constant + unknownCoefficient * unknown; if `modular`, equal to the
/// value it was read from only modulo the number of ranks.
struct Linear {
  /// A null value is the rank of the consumer. `ofProducer`: to be evaluated where the producer is.
  struct Term {
    mlir::Value value;
    bool ofProducer;
    bool operator==(const Term &other) const = default;
  };
  llvm::SmallVector<std::pair<Term, int64_t>> terms;
  int64_t constant = 0, unknownCoefficient = 0;
  bool modular = false, known = true;

  void add(Term term, int64_t coefficient) {
    for (auto &[present, sum] : terms)
      if (present == term) {
        sum += coefficient;
        return;
      }
    terms.push_back({term, coefficient});
  }
  void dropZeroTerms() {
    llvm::erase_if(terms, [](auto &entry) { return entry.second == 0; });
  }
  /// True if it is one term and nothing else.
  bool isTerm() const { return terms.size() == 1 && terms[0].second == 1 && constant == 0; }
  /// (a, b) if it is a - b, both evaluated where the consumer is.
  std::optional<std::pair<Term, Term>> asDifference() const {
    if (terms.size() != 2 || constant != 0 || terms[0].first.ofProducer ||
        terms[1].first.ofProducer)
      return std::nullopt;
    if (terms[0].second == 1 && terms[1].second == -1)
      return std::pair{terms[0].first, terms[1].first};
    if (terms[0].second == -1 && terms[1].second == 1)
      return std::pair{terms[1].first, terms[0].first};
    return std::nullopt;
  }
};

/// A step that must have happened before another one, where both touch the same bytes.
struct Conflict {
  EventKey producer;
  mlir::Value producerKey; ///< Part or slot that the producer touches; null: any.
  mlir::Operation *consumer;
  const ChunkAccess *access; ///< What the consumer touches; null: everything.

  /// Ranks in `producerKey` are those of the sender of this move; null: this rank.
  ir::chunk::MoveOp receivedBy() const {
    return producer.second == Happening::Arrived ? llvm::cast<ir::chunk::MoveOp>(producer.first)
                                                 : ir::chunk::MoveOp();
  }
};

/// The producer's iterations that come before the consumer.
struct IterationSet {
  llvm::SmallVector<ir::chunk::ForOp> free; ///< Every iteration of these, outermost first; but of …
  ir::chunk::ForOp carried; ///< … this one, the first, only those before the consumer's own.
  mlir::Operation *stop;    ///< Conditions outside of this op hold for both.
};

/// The iteration of `loop` in which the producer has the consumer's key: `value`, which is meant
/// modulo the number of ranks if modular.
struct Solution {
  ir::chunk::ForOp loop;
  Linear value;
};

/// Whether a producer's key and the consumer's are equal, as far as can be said at compile time.
enum class Relation : uint8_t { Never, Always, Unknown };

std::optional<int64_t> constantOf(mlir::Value value);
bool isWorld(mlir::Value value);
bool isRank(mlir::Value value);
bool isNonNegative(mlir::Value value);
/// True if 0 <= `value` < world follows from its shape.
bool isRankNumber(mlir::Value value);
/// True if 0 <= `value` <= world follows from its shape.
bool isAtMostWorld(mlir::Value value);
/// True if the conditions under which `access` is used say that `a` and `b` differ.
bool differUnderConditions(Linear::Term a, Linear::Term b, mlir::Operation *op,
                           const ChunkAccess &access);

class Keys {
public:
  explicit Keys(ChunkMessages &messages) : messages_(messages) {}

  /// The iteration of one loop in which the keys are equal, if there is such a loop.
  std::optional<Solution> solve(const Conflict &conflict, const IterationSet &iterations);
  /// Of an iteration to the loop's bounds.
  Relation relate(const Solution &solution) const;
  /// True if a difference of keys is not 0 (if modular: not a multiple of the number of ranks)
  /// wherever the consumer is executed.
  bool isNeverZero(const Linear &difference, const Conflict &conflict) const;
  /// Of keys that have no solution.
  Relation relate(const Conflict &conflict, const IterationSet &iterations);

private:
  Linear linearize(mlir::Value value, ir::chunk::MoveOp receivedBy,
                   llvm::ArrayRef<ir::chunk::ForOp> free, mlir::Value unknown, bool ofProducer,
                   bool modularAllowed);
  void linearizeInto(Linear &sum, int64_t scale, mlir::Value value, ir::chunk::MoveOp receivedBy,
                     llvm::ArrayRef<ir::chunk::ForOp> free, mlir::Value unknown, bool ofProducer,
                     bool modularAllowed);
  bool dependsOn(mlir::Value value, llvm::ArrayRef<mlir::Value> variables);

  ChunkMessages &messages_;
};

} // namespace bagua::compiler
