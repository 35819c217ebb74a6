// The states of one bucket on every rank, and parameters, for the interpreters of chunk and sched.
#pragma once

#include "Rounds.h"

#include "bagua/Expand.h"
#include "bagua/compiler/Interpreter.h"
#include "bagua/compiler/ScalarEvaluator.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/DenseMap.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <type_traits>
#include <utility>

namespace bagua::compiler {

/// By rank: the value that programs find, and the one that the next publish makes it.
struct State {
  std::vector<Bytes> committed, next;
};

class States {
public:
  explicit States(const Inputs &inputs) : inputs_(inputs) {}

  /// `op` is a declare_state of either level, in a schedule of this grain.
  template <typename DeclareStateOp> mlir::LogicalResult declare(DeclareStateOp op, int64_t grain) {
    using Domain = std::remove_cvref_t<decltype(op.getDomain())>;
    auto [entry, isNew] = states_.try_emplace(op.getSymNameAttr());
    if (!isNew)
      return op.emitOpError("expects a name that no state of another schedule has");
    for (int64_t rank = 0; rank < inputs_.world; ++rank) {
      int64_t elements = 1;
      if (op.getDomain() == Domain::Bucket || op.getDomain() == Domain::Neighbors)
        elements = inputs_.length * op.copies();
      if (op.getDomain() == Domain::Shard) {
        rt::Shard shard = rt::shardOf(inputs_.length, grain, inputs_.world, rank);
        elements = shard.end - shard.begin;
      }
      const Bytes &weight = inputs_.weights[static_cast<size_t>(rank)];
      Bytes bytes;
      if (op.getInitial())
        bytes = filled(elements, op.getInitial()->convertToDouble());
      else
        for (int64_t copy = 0; copy < op.copies(); ++copy)
          bytes.insert(bytes.end(), weight.begin(), weight.end());
      entry->second.next.emplace_back(bytes.size());
      entry->second.committed.push_back(std::move(bytes));
    }
    return mlir::success();
  }

  /// The state must have been declared.
  State &get(mlir::StringAttr name) { return states_.find(name)->second; }

  /// What the program writes is undefined: NaN as f32 and f64, so unwritten bytes show.
  template <typename ProgramOp> void startProgram(ProgramOp program) {
    program.getBody().walk([&](mlir::Operation *op) {
      auto name = op->getAttrOfType<mlir::FlatSymbolRefAttr>("state");
      if (!name || !op->hasAttr("next"))
        return;
      for (Bytes &bytes : get(name.getAttr()).next)
        std::fill(bytes.begin(), bytes.end(), std::byte{0xff});
    });
  }

  void publish(mlir::StringAttr name, int64_t rank) {
    State &state = get(name);
    std::swap(state.committed[static_cast<size_t>(rank)], state.next[static_cast<size_t>(rank)]);
  }

  /// The committed values, by name and rank.
  std::map<std::string, std::vector<Bytes>> take() {
    std::map<std::string, std::vector<Bytes>> result;
    for (auto &[name, state] : states_)
      result[name.str()] = std::move(state.committed);
    return result;
  }

private:
  Bytes filled(int64_t elements, double value) const {
    Bytes bytes(static_cast<size_t>(elements * inputs_.elementBytes()));
    float narrow = static_cast<float>(value);
    bool f32 = inputs_.dtype == kernels::DType::F32;
    auto size = static_cast<size_t>(inputs_.elementBytes());
    for (size_t at = 0; at < bytes.size(); at += size)
      std::memcpy(bytes.data() + at, f32 ? static_cast<const void *>(&narrow) : &value, size);
    return bytes;
  }

  const Inputs &inputs_;
  llvm::DenseMap<mlir::StringAttr, State> states_;
};

/// Of a declared parameter, in step number `step` of `inputs`.
inline Scalar valueOf(const Inputs &inputs, int64_t step, llvm::StringRef name,
                      mlir::Attribute initial) {
  if (auto real = llvm::dyn_cast<mlir::FloatAttr>(initial))
    return Scalar::ofReal(parameterValue(inputs, step, name.str(), real.getValueAsDouble()));
  auto byDefault = static_cast<double>(llvm::cast<mlir::IntegerAttr>(initial).getInt());
  double value = parameterValue(inputs, step, name.str(), byDefault);
  return Scalar::of(value == byDefault ? llvm::cast<mlir::IntegerAttr>(initial).getInt()
                                       : static_cast<int64_t>(value));
}

/// Of an async program.
template <typename ProgramOp>
mlir::FailureOr<Rounds> roundsOf(ProgramOp program, const Inputs &inputs) {
  auto count = [&](std::optional<mlir::Attribute> value) -> int64_t {
    auto name = value ? llvm::dyn_cast<mlir::FlatSymbolRefAttr>(*value) : nullptr;
    if (!name)
      return value ? llvm::cast<mlir::IntegerAttr>(*value).getInt() : 0;
    mlir::Operation *declared =
        mlir::SymbolTable::lookupSymbolIn(program->getParentOp(), name.getAttr());
    return valueOf(inputs, 0, name.getValue(), declared->getAttr("default_value")).integer;
  };
  using Unit = std::remove_cvref_t<decltype(*program.getEveryUnit())>;
  return Rounds::create(program, count(program.getEvery()), count(program.getAfter()),
                        static_cast<int64_t>(*program.getStaleness()),
                        *program.getEveryUnit() == Unit::Milliseconds);
}

} // namespace bagua::compiler
