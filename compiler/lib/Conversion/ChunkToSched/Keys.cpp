// Reads keys as linear expressions, modulo the number of ranks of a group where they say so.
#include "Keys.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
namespace chunk = bagua::ir::chunk;

namespace bagua::compiler {

std::optional<int64_t> constantOf(Value value) {
  IntegerAttr attribute;
  if (matchPattern(value, m_Constant(&attribute)))
    return attribute.getInt();
  return std::nullopt;
}

constexpr Group kGroups[] = {Group::World, Group::Node, Group::Cross};

std::optional<Group> groupOfSize(Value value) {
  Operation *op = value.getDefiningOp();
  if (isa_and_nonnull<chunk::WorldOp>(op))
    return Group::World;
  if (isa_and_nonnull<chunk::LocalSizeOp>(op))
    return Group::Node;
  if (isa_and_nonnull<chunk::NodesOp>(op))
    return Group::Cross;
  return std::nullopt;
}

std::optional<Group> groupOfPlace(Value value) {
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    if (isa<chunk::ForallOp>(argument.getOwner()->getParentOp()))
      return Group::World;
    return std::nullopt;
  }
  Operation *op = value.getDefiningOp();
  if (isa<chunk::RankOp>(op))
    return Group::World;
  if (isa<chunk::LocalRankOp>(op))
    return Group::Node;
  if (isa<chunk::NodeOp>(op))
    return Group::Cross;
  return std::nullopt;
}

bool Linear::Term::isPlaceNumber(Group of) const {
  return value ? compiler::isPlaceNumber(value, of) : group == of;
}

bool differUnderConditions(Linear::Term a, Linear::Term b, Operation *op,
                           const ChunkAccess &access) {
  auto says = [&](Value condition, arith::CmpIPredicate predicate) {
    auto compare = condition ? condition.getDefiningOp<arith::CmpIOp>() : arith::CmpIOp();
    if (!compare || compare.getPredicate() != predicate)
      return false;
    auto is = [](Linear::Term term, Value value) {
      return term.value ? term.value == value : groupOfPlace(value) == term.group;
    };
    return (is(a, compare.getLhs()) && is(b, compare.getRhs())) ||
           (is(a, compare.getRhs()) && is(b, compare.getLhs()));
  };
  if (a.ofProducer || b.ofProducer)
    return false;
  if (access.gather && says(access.condition, arith::CmpIPredicate::ne))
    return true;
  for (; op->getParentOp(); op = op->getParentOp())
    if (auto branch = dyn_cast<chunk::IfOp>(op->getParentOp())) {
      bool taken = op->getParentRegion() == &branch.getThen();
      if (says(branch.getCondition(), taken ? arith::CmpIPredicate::ne : arith::CmpIPredicate::eq))
        return true;
    }
  return false;
}

/// Bounds of the chunk.for or chunk.gather whose variable `value` is.
static std::optional<std::pair<Value, Value>> boundsOf(Value value) {
  auto argument = dyn_cast<BlockArgument>(value);
  Operation *owner = argument ? argument.getOwner()->getParentOp() : nullptr;
  if (!owner || !isa<chunk::ForOp, chunk::GatherOp>(owner))
    return std::nullopt;
  return std::pair{owner->getOperand(0), owner->getOperand(1)};
}

bool isNonNegative(Value value) {
  if (auto constant = constantOf(value))
    return *constant >= 0;
  if (auto bounds = boundsOf(value))
    return isNonNegative(bounds->first);
  if (groupOfPlace(value) || groupOfSize(value))
    return true;
  if (value.getDefiningOp<chunk::StepOp>())
    return true;
  Operation *op = value.getDefiningOp();
  if (!op)
    return false;
  if (isa<arith::AddIOp, arith::MulIOp>(op))
    return isNonNegative(op->getOperand(0)) && isNonNegative(op->getOperand(1));
  if (auto difference = dyn_cast<arith::SubIOp>(op)) // (… + size) - what is at most size.
    return llvm::any_of(kGroups, [&](Group group) {
      if (!isAtMostSize(difference.getRhs(), group))
        return false;
      auto sum = difference.getLhs().getDefiningOp<arith::AddIOp>();
      return groupOfSize(difference.getLhs()) == group ||
             (sum && ((groupOfSize(sum.getLhs()) == group && isNonNegative(sum.getRhs())) ||
                      (groupOfSize(sum.getRhs()) == group && isNonNegative(sum.getLhs()))));
    });
  return llvm::any_of(kGroups, [&](Group group) { return isPlaceNumber(value, group); });
}

bool isPlaceNumber(Value value, Group group) {
  if (groupOfPlace(value) == group || constantOf(value) == 0)
    return true;
  if (auto bounds = boundsOf(value))
    return isNonNegative(bounds->first) && isAtMostSize(bounds->second, group);
  auto remainder = value.getDefiningOp<arith::RemSIOp>();
  return remainder && groupOfSize(remainder.getRhs()) == group && isNonNegative(remainder.getLhs());
}

bool isAtMostSize(Value value, Group group) {
  if (isPlaceNumber(value, group) || groupOfSize(value) == group || constantOf(value) == 1)
    return true;
  auto difference = value.getDefiningOp<arith::SubIOp>();
  return difference && groupOfSize(difference.getLhs()) == group &&
         constantOf(difference.getRhs()) == 1;
}

/// Modulo the ranks of a group, their number is nothing.
static void dropMultiples(Linear &sum) {
  if (sum.modulus)
    llvm::erase_if(sum.terms, [&](auto &entry) {
      return entry.first.value && groupOfSize(entry.first.value) == sum.modulus;
    });
}

bool Keys::dependsOn(Value value, ArrayRef<Value> variables) {
  if (!messages_.dependsOnVariable(value))
    return false;
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    if (llvm::is_contained(variables, value))
      return true;
    return llvm::any_of(argument.getOwner()->getParentOp()->getOperands(),
                        [&](Value bound) { return dependsOn(bound, variables); });
  }
  return llvm::any_of(value.getDefiningOp()->getOperands(),
                      [&](Value operand) { return dependsOn(operand, variables); });
}

Linear Keys::linearize(Value value, chunk::MoveOp receivedBy, ArrayRef<chunk::ForOp> free,
                       Value unknown, bool ofProducer, bool modularAllowed) {
  Linear sum;
  linearizeInto(sum, 1, value, receivedBy, free, unknown, ofProducer, modularAllowed);
  dropMultiples(sum);
  return sum;
}

/// `receivedBy`: ranks in `value` are those of the sender of this move. `free`: loops whose
/// variable means the producer's iteration, not the consumer's.
void Keys::linearizeInto(Linear &sum, int64_t scale, Value value, chunk::MoveOp receivedBy,
                         ArrayRef<chunk::ForOp> free, Value unknown, bool ofProducer,
                         bool modularAllowed) {
  auto recurse = [&](Value operand, int64_t factor) {
    linearizeInto(sum, factor, operand, receivedBy, free, unknown, ofProducer, modularAllowed);
  };
  if (unknown && value == unknown) {
    sum.unknownCoefficient += scale;
    return;
  }
  if (std::optional<Group> group = groupOfPlace(value)) {
    sum.add({Value(), false, *group}, scale);
    if (!receivedBy)
      return;
    std::optional<Group> rotated = receivedBy.getRotated();
    if (rotated == group) { // (place - argument) mod size.
      sum.reduce(*group);
      sum.known &= modularAllowed;
      linearizeInto(sum, -scale, receivedBy.getArgument(), nullptr, free, unknown, ofProducer,
                    modularAllowed);
    } else if (!rotated || rotated == Group::World || group == Group::World) {
      sum.known = false; // The partner, or of another rank: no sum.
    } // Else the sender's place is this rank's.
    return;
  }
  if (auto number = constantOf(value)) {
    sum.constant += scale * *number;
    return;
  }
  Operation *op = value.getDefiningOp();
  if (op && isa<arith::AddIOp>(op)) {
    recurse(op->getOperand(0), scale);
    recurse(op->getOperand(1), scale);
    return;
  }
  if (op && isa<arith::SubIOp>(op)) {
    recurse(op->getOperand(0), scale);
    recurse(op->getOperand(1), -scale);
    return;
  }
  if (auto remainder = dyn_cast_or_null<arith::RemSIOp>(op);
      remainder && modularAllowed && groupOfSize(remainder.getRhs())) {
    sum.reduce(*groupOfSize(remainder.getRhs()));
    recurse(remainder.getLhs(), scale);
    return;
  }
  if (unknown && (dependsOn(value, unknown) || (receivedBy && messages_.dependsOnRank(value) &&
                                                dependsOn(receivedBy.getArgument(), unknown))))
    sum.known = false;
  SmallVector<Value> variables;
  for (chunk::ForOp loop : free)
    variables.push_back(loop.getVariable());
  bool differs =
      ofProducer && (dependsOn(value, variables) || (receivedBy && messages_.dependsOnRank(value)));
  sum.add({value, differs}, scale);
}

std::optional<Solution> Keys::solve(const Conflict &conflict, const IterationSet &iterations) {
  for (chunk::ForOp loop : llvm::reverse(iterations.free)) {
    Linear producer =
        linearize(conflict.producerKey, conflict.receivedBy(), iterations.free, loop.getVariable(),
                  /*ofProducer=*/true, /*modularAllowed=*/true);
    if (!producer.known || std::abs(producer.unknownCoefficient) != 1)
      continue;
    auto lower = constantOf(loop.getLower());
    if (producer.modulus && !(lower && (*lower == 0 || *lower == 1) &&
                              isAtMostSize(loop.getUpper(), *producer.modulus)))
      continue; // Several iterations might have one remainder.
    Linear value = linearize(conflict.access->key, nullptr, {}, nullptr, /*ofProducer=*/false,
                             producer.modulus.has_value());
    if (!value.known || (value.modulus && value.modulus != producer.modulus))
      continue; // A remainder of another group's ranks.
    for (auto &[term, coefficient] : producer.terms)
      value.add(term, -coefficient);
    value.constant -= producer.constant;
    value.modulus = producer.modulus;
    dropMultiples(value);
    for (auto &entry : value.terms)
      entry.second *= producer.unknownCoefficient;
    value.constant *= producer.unknownCoefficient;
    value.dropZeroTerms();
    return Solution{loop, value};
  }
  return std::nullopt;
}

bool Keys::isNeverZero(const Linear &difference, const Conflict &conflict) const {
  std::optional<Group> modulus = difference.modulus;
  if (auto pair = difference.asDifference()) // Unequal places are unequal modulo the group's size.
    if ((!modulus ||
         (pair->first.isPlaceNumber(*modulus) && pair->second.isPlaceNumber(*modulus))) &&
        differUnderConditions(pair->first, pair->second, conflict.consumer, *conflict.access))
      return true;
  if (!modulus || difference.terms.size() != 1 || difference.constant != 0)
    return false;
  auto [term, coefficient] = difference.terms.front();
  if (std::abs(coefficient) != 1 || !term.value || term.ofProducer)
    return false;
  auto bounds = boundsOf(term.value); // A variable in [1, size).
  auto lower = bounds ? constantOf(bounds->first) : std::nullopt;
  return lower && *lower >= 1 && isAtMostSize(bounds->second, *modulus);
}

Relation Keys::relate(const Solution &solution) const {
  const Linear &value = solution.value;
  bool isZero = value.modulus && value.terms.empty() && value.constant == 0;
  return isZero && constantOf(chunk::ForOp(solution.loop).getLower()) == 1 ? Relation::Never
                                                                           : Relation::Unknown;
}

Relation Keys::relate(const Conflict &conflict, const IterationSet &iterations) {
  for (bool modular : {false, true}) { // Equal keys are equal modulo any number, too.
    Linear producer = linearize(conflict.producerKey, conflict.receivedBy(), iterations.free,
                                nullptr, /*ofProducer=*/true, modular);
    Linear difference =
        linearize(conflict.access->key, nullptr, {}, nullptr, /*ofProducer=*/false, modular);
    if (producer.modulus)
      difference.reduce(*producer.modulus);
    if (!producer.known || !difference.known)
      continue;
    for (auto &[term, coefficient] : producer.terms)
      difference.add(term, -coefficient);
    difference.constant -= producer.constant;
    dropMultiples(difference);
    difference.dropZeroTerms();
    if (!difference.modulus && difference.terms.empty())
      return difference.constant == 0 ? Relation::Always : Relation::Never;
    if (isNeverZero(difference, conflict))
      return Relation::Never;
  }
  return Relation::Unknown;
}

} // namespace bagua::compiler
