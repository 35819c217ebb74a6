// Error feedback must keep what the codec lost of the value that travelled, or it feeds back noise.
#include "Polynomials.h"

#include "bagua/compiler/Passes.h"
#include "bagua/dialect/Bagua/BaguaMap.h"
#include "bagua/dialect/Bagua/BaguaOps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

#include <vector>

using namespace mlir;

namespace bagua::compiler {

#define GEN_PASS_DEF_VERIFYRESIDUALS
#include "bagua/compiler/Passes.h.inc"

namespace {

constexpr size_t kConditionsMax = 8; ///< Of branches that one residual depends on.

struct OwnEncoding {
  ir::EncodeOp op; ///< Null if there is none.
  Value encoded;
};

/// Which way branches go, by their condition.
using Taken = llvm::SmallDenseMap<Value, bool>;

/// Values of one handler as polynomials, on a path through its branches.
class Path {
public:
  Path(const Taken &taken, ir::UpdateOp update) : taken_(taken), update_(update) {}

  /// A condition that the path says nothing of, though what was asked depends on it.
  Value undecided() const { return undecided_; }

  /// What `value` is on this path.
  Value resolve(Value value) {
    while (auto branch = value.getDefiningOp<scf::IfOp>()) {
      auto way = taken_.find(branch.getCondition());
      if (way == taken_.end()) {
        undecided_ = branch.getCondition();
        return value;
      }
      Block *block = way->second ? branch.thenBlock() : branch.elseBlock();
      value = block->getTerminator()->getOperand(cast<OpResult>(value).getResultNumber());
    }
    return value;
  }

  const Polynomial &of(Value value) {
    value = resolve(value);
    if (auto known = known_.find(value); known != known_.end())
      return *known->second;
    auto polynomial = std::make_unique<Polynomial>(compute(value));
    return *known_.try_emplace(value, std::move(polynomial)).first->second;
  }

  /// By atom: what it decodes, if that is this rank's own encoding and nothing else.
  const std::map<int, OwnEncoding> &decoded() const { return decoded_; }

  /// The atom of the state as the handler found it.
  int stateAtom() { return atom({update_.getStateAttr().getAsOpaquePointer(), 0, {}}); }

  /// If `sum` is a choice between values (min, max, select) and a factor: these, times the factor.
  std::vector<Polynomial> choicesOf(const Polynomial &sum) const {
    std::vector<Polynomial> choices;
    if (sum.size() != 1)
      return choices;
    const auto &[product, factor] = *sum.begin();
    for (auto [atom, power] : product) {
      auto found = choices_.find(atom);
      if (found == choices_.end() || power != 1)
        continue;
      Product rest = product;
      rest.erase(atom);
      for (const Polynomial &choice : found->second)
        if (auto scaled = times(choice, {{rest, factor}}))
          choices.push_back(*scaled);
    }
    return choices;
  }

  /// Positive or negative, 0 if that cannot be told: a number times scalars, which are taken to be
  /// positive, as step sizes and decays are.
  int signOf(const Polynomial &factor) const {
    if (factor.size() != 1)
      return 0;
    for (auto [atom, power] : factor.begin()->first)
      if (!scalars_.contains(atom))
        return 0;
    return factor.begin()->second > 0 ? 1 : -1;
  }

private:
  /// What makes two atoms one: an op or a value, or what is done to which operands.
  struct Key {
    const void *what;
    int64_t code;
    std::vector<Polynomial> operands;
    auto operator<=>(const Key &) const = default;
  };

  const Taken &taken_;
  ir::UpdateOp update_;
  Value undecided_;
  std::map<Key, int> atoms_;
  std::map<int, OwnEncoding> decoded_;
  std::map<int, std::vector<Polynomial>> choices_;
  llvm::SmallDenseSet<int> scalars_;
  DenseMap<Value, std::unique_ptr<Polynomial>> known_;

  int atom(Key key) {
    return atoms_.try_emplace(std::move(key), static_cast<int>(atoms_.size())).first->second;
  }

  static Polynomial once(int atom) { return {{Product{{atom, 1}}, 1.0}}; }

  Polynomial compute(Value value) {
    Operation *op = value.getDefiningOp();
    if (auto map = dyn_cast_or_null<ir::MapOp>(op))
      return compute(map);
    if (OwnEncoding own = ownEncodingOf(value); own.op) {
      int number = atom({own.op.getAsOpaquePointer(), 0, {}});
      decoded_[number] = own;
      return once(number);
    }
    if (auto read = dyn_cast_or_null<ir::ReadOp>(op); read && readsCommitted(read))
      return once(atom({read.getStateAttr().getAsOpaquePointer(), 0, {}}));
    bool isScalar = value.getType().isIntOrIndexOrFloat();
    if (isScalar && op)
      if (std::optional<Polynomial> known = computeScalar(op))
        return *known;
    int number = atom({value.getAsOpaquePointer(), 0, {}});
    if (isScalar)
      scalars_.insert(number);
    return once(number);
  }

  /// What `value` was decoded from, whole or shard by shard.
  OwnEncoding ownEncodingOf(Value value) {
    auto concat = value.getDefiningOp<ir::ConcatOp>();
    auto decode = resolve(concat ? concat.getInput() : value).getDefiningOp<ir::DecodeOp>();
    auto encode =
        decode ? resolve(decode.getInput()).getDefiningOp<ir::EncodeOp>() : ir::EncodeOp();
    if (!encode)
      return {};
    auto cut = encode.getInput().getDefiningOp<ir::SplitOp>();
    if (concat && !cut)
      return {};
    return {encode, concat ? cut.getInput() : encode.getInput()};
  }

  /// No update of the state comes before `read` in the text.
  static bool readsCommitted(ir::ReadOp read) {
    bool updated = false;
    read->getParentOfType<ir::OnOp>().walk<WalkOrder::PreOrder>([&](Operation *op) {
      auto update = dyn_cast<ir::UpdateOp>(op);
      updated |= update && update.getStateAttr() == read.getStateAttr();
      return op == read ? WalkResult::interrupt() : WalkResult::advance();
    });
    return !updated;
  }

  std::optional<Polynomial> computeScalar(Operation *op) {
    auto operand = [&](unsigned i) -> const Polynomial & { return of(op->getOperand(i)); };
    if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
      if (auto real = dyn_cast<FloatAttr>(constant.getValue()))
        return number(real.getValueAsDouble());
      if (auto integer = dyn_cast<IntegerAttr>(constant.getValue()))
        return number(static_cast<double>(integer.getInt()));
    }
    if (isa<ir::ToF64Op>(op))
      return operand(0);
    if (isa<arith::AddFOp>(op))
      return plus(operand(0), operand(1));
    if (isa<arith::SubFOp>(op))
      return plus(operand(0), operand(1), -1.0);
    if (isa<arith::NegFOp>(op))
      return plus({}, operand(0), -1.0);
    if (isa<arith::MulFOp>(op))
      return times(operand(0), operand(1));
    if (isa<arith::DivFOp>(op))
      if (auto inverse = reciprocal(operand(1)))
        return times(operand(0), *inverse);
    return std::nullopt;
  }

  Polynomial compute(ir::MapOp map) {
    std::vector<Polynomial> values;
    ArrayRef<int64_t> code = map.getCode();
    for (size_t at = 0; at < code.size(); at += ir::kMapStride)
      values.push_back(compute(map, code.slice(at, ir::kMapStride), values));
    return values.back();
  }

  Polynomial compute(ir::MapOp map, ArrayRef<int64_t> at, const std::vector<Polynomial> &values) {
    auto what = static_cast<ir::MapCode>(at[0]);
    auto operand = [&](size_t i) -> const Polynomial & {
      return values[static_cast<size_t>(at[i])];
    };
    std::optional<Polynomial> result;
    switch (what) {
    case ir::MapCode::Input:
      return of(map.getValues()[static_cast<size_t>(at[1])]);
    case ir::MapCode::Scalar:
      return of(map.getScalars()[static_cast<size_t>(at[1])]);
    case ir::MapCode::Constant:
      return number(map.getConstants()[static_cast<size_t>(at[1])]);
    case ir::MapCode::Add:
      return plus(operand(1), operand(2));
    case ir::MapCode::Sub:
      return plus(operand(1), operand(2), -1.0);
    case ir::MapCode::Neg:
      return plus({}, operand(1), -1.0);
    case ir::MapCode::Mul:
      result = times(operand(1), operand(2));
      break;
    case ir::MapCode::Div:
      if (auto inverse = reciprocal(operand(2)))
        result = times(operand(1), *inverse);
      break;
    case ir::MapCode::Fma:
      if (auto product = times(operand(1), operand(2)))
        result = plus(*product, operand(3));
      break;
    default:
      break;
    }
    if (result)
      return *result;
    Key key{nullptr, at[0], {}};
    for (unsigned i = 1; i <= ir::mapArity(what); ++i)
      key.operands.push_back(operand(i));
    std::vector<Polynomial> choices;
    if (what == ir::MapCode::Min || what == ir::MapCode::Max)
      choices = key.operands;
    else if (what == ir::MapCode::Select)
      choices = {operand(2), operand(3)};
    int number = atom(std::move(key));
    if (!choices.empty())
      choices_[number] = std::move(choices);
    return once(number);
  }
};

struct VerifyResiduals final : impl::VerifyResidualsBase<VerifyResiduals> {
  using VerifyResidualsBase::VerifyResidualsBase;

  void runOnOperation() override {
    markAllAnalysesPreserved();
    WalkResult result = getOperation().walk([](ir::UpdateOp update) {
      if (!update.getState())
        return WalkResult::advance();
      Taken taken; // The update itself stands on a path.
      for (Operation *op = update; auto branch = op->getParentOfType<scf::IfOp>(); op = branch)
        taken[branch.getCondition()] = branch.getThenRegion().isAncestor(update->getParentRegion());
      return failed(verify(update, taken, 0)) ? WalkResult::interrupt() : WalkResult::advance();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }

private:
  /// Both ways of each branch that it depends on, `depth` of which `taken` has decided.
  static LogicalResult verify(ir::UpdateOp update, Taken &taken, size_t depth) {
    Path path(taken, update);
    Polynomial value = path.of(update.getValue());
    for (const auto &[atom, own] : std::map(path.decoded()))
      path.of(own.encoded);
    if (Value condition = path.undecided()) {
      if (depth == kConditionsMax)
        return success();
      for (bool way : {true, false}) {
        taken[condition] = way;
        if (failed(verify(update, taken, depth + 1)))
          return failure();
      }
      taken.erase(condition);
      return success();
    }
    return verify(update, path, value);
  }

  static LogicalResult verify(ir::UpdateOp update, Path &path, const Polynomial &value) {
    for (const Polynomial &choice : path.choicesOf(value))
      if (failed(verify(update, path, choice)))
        return failure();
    for (auto [atom, own] : std::map(path.decoded())) {
      Problem problem = problemOf(update, path, value, atom, own);
      if (problem.expected.empty())
        continue;
      Operation *op = path.resolve(update.getValue()).getDefiningOp();
      InFlightDiagnostic diagnostic = op->emitOpError() << "expects " << problem.expected;
      diagnostic.attachNote(own.op.getLoc()) << problem.note;
      return diagnostic;
    }
    return success();
  }

  struct Problem {
    StringRef expected, note; ///< Empty: none.
  };

  /// With d = x - lost, the state becomes rest - factor * lost: of an error feedback, `rest` is
  /// nothing, or what the state keeps of itself.
  static Problem problemOf(ir::UpdateOp update, Path &path, const Polynomial &value, int atom,
                           const OwnEncoding &own) {
    auto parts = split(value, atom);
    if (!parts || parts->first.empty() || parts->second.empty() || !isFedBack(update, own.encoded))
      return {};
    const auto &[factor, kept] = *parts;
    const Polynomial &encoded = path.of(own.encoded);
    auto whole = times(factor, encoded);
    int sign = path.signOf(factor);
    if (sign == 0 || !whole)
      return {};
    Polynomial rest = plus(kept, *whole);
    auto fed = split(encoded, path.stateAtom()), stays = split(rest, path.stateAtom());
    if (stays && stays->second.empty() && path.signOf(stays->first) >= 0) {
      if (fed && path.signOf(fed->first) * sign > 0)
        return {"a residual of the sign with which it is fed back, c - decode(encode(c)) where c "
                "adds the state, got the opposite: swap what is subtracted from what",
                "fed back into what is encoded here"};
      return {};
    }
    if (kept == *whole)
      return {"a residual, c - decode(encode(c)), got a sum: subtract what was decoded",
              "encoded here"};
    if (sign > 0)
      return {};
    return {"a residual of the value that was encoded: c - decode(encode(c)); subtract from that "
            "value",
            "encodes another value than the one subtracted from"};
  }

  /// The state feeds what is encoded, so the difference is meant as error feedback.
  static bool isFedBack(ir::UpdateOp update, Value encoded) {
    SmallVector<Value> open{encoded};
    llvm::SmallDenseSet<Value> seen;
    while (!open.empty()) {
      Value value = open.pop_back_val();
      Operation *op = value.getDefiningOp();
      if (!op || !seen.insert(value).second)
        continue;
      if (auto read = dyn_cast<ir::ReadOp>(op)) {
        if (read.getStateAttr() == update.getStateAttr())
          return true;
      } else if (auto branch = dyn_cast<scf::IfOp>(op)) {
        unsigned index = cast<OpResult>(value).getResultNumber();
        for (Block *block : {branch.thenBlock(), branch.elseBlock()})
          open.push_back(block->getTerminator()->getOperand(index));
      } else if (isa<ir::MapOp>(op)) {
        llvm::append_range(open, op->getOperands());
      }
    }
    return false;
  }
};

} // namespace
} // namespace bagua::compiler
