// What part and slot numbers ("keys") say of two steps: whether they can touch the same bytes, and
// in which iterations.
#pragma once

#include "bagua/compiler/ChunkMessages.h"

#include <optional>

namespace bagua::compiler {

/// What the event of a step says. A move has two: of its send and of its receive.
enum class Happening : uint8_t { Done, Sent, Arrived };
using EventKey = std::pair<mlir::Operation *, Happening>;

using ir::chunk::Group;

/// sum(coefficient * term) + constant + unknownCoefficient * unknown; with a `modulus`, equal to
/// the value it was read from only modulo the number of ranks of that group.
struct Linear {
  /// A null value is the consumer's place in `group`. `ofProducer`: to be evaluated where the
  /// producer is.
  struct Term {
    mlir::Value value;
    bool ofProducer = false;
    Group group = Group::World;
    bool operator==(const Term &other) const = default;
    /// True if 0 <= it < ranks of `of`.
    bool isPlaceNumber(Group of) const;
  };
  llvm::SmallVector<std::pair<Term, int64_t>> terms;
  int64_t constant = 0, unknownCoefficient = 0;
  std::optional<Group> modulus;
  bool known = true;

  /// From here on, only modulo the ranks of `group`.
  void reduce(Group group) {
    known &= !modulus || modulus == group;
    modulus = group;
  }

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
  /// If it is one term and nothing else.
  std::optional<Term> asTerm() const {
    if (terms.size() == 1 && terms[0].second == 1 && constant == 0)
      return terms[0].first;
    return std::nullopt;
  }
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
  const ChunkAccess *access;          ///< What the consumer touches; null: everything.
  Group producerGroup = Group::World; ///< Whose shards a part number of the producer counts.

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
/// modulo the ranks of a group if it has a modulus.
struct Solution {
  ir::chunk::ForOp loop;
  Linear value;
};

/// Whether a producer's key and the consumer's are equal, as far as can be said at compile time.
enum class Relation : uint8_t { Never, Always, Unknown };

std::optional<int64_t> constantOf(mlir::Value value);
/// The group whose number of ranks `value` is.
std::optional<Group> groupOfSize(mlir::Value value);
/// The group in which `value` is the executing rank's place: of the world, its rank.
std::optional<Group> groupOfPlace(mlir::Value value);
bool isNonNegative(mlir::Value value);
/// True if 0 <= `value` < ranks of `group` follows from its shape.
bool isPlaceNumber(mlir::Value value, Group group);
/// True if 0 <= `value` <= ranks of `group` follows from its shape.
bool isAtMostSize(mlir::Value value, Group group);
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
  /// True if a difference of keys is not 0 (with a modulus: not a multiple of it) wherever the
  /// consumer is executed.
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
