// The steps of a training job around the programs of one level: for the interpreters of chunk and
// sched.
#pragma once

#include "Rounds.h"
#include "States.h"

#include "bagua/compiler/Interpreter.h"
#include "bagua/dialect/Scalars.h"

#include "mlir/IR/BuiltinOps.h"

#include <utility>
#include <vector>

namespace bagua::compiler {

/// Emits an error unless `schedule` has the parameter, and it may have the value.
template <typename Level>
mlir::LogicalResult checkParameter(typename Level::ScheduleOp schedule, const std::string &name,
                                   double value) {
  auto declared = schedule.template lookupSymbol<typename Level::DeclareParameterOp>(name);
  if (!declared)
    return schedule.emitOpError("has no parameter '") << name << "'";
  if (llvm::isa<mlir::FloatAttr>(declared.getDefaultValue()))
    return checkParameter(schedule, name, std::nullopt, value);
  int64_t least = 0;
  for (auto program : schedule.getBody().template getOps<typename Level::ProgramOp>())
    if (auto every = llvm::dyn_cast_or_null<mlir::FlatSymbolRefAttr>(program.getEveryAttr()))
      least = std::max<int64_t>(least, every.getValue() == name);
  schedule.walk([&](typename Level::ParameterOp use) {
    if (use.getParameter() == name)
      least = std::max(least, ir::leastOfParameter(use.getResult()));
  });
  return checkParameter(schedule, name, least, value);
}

/// Emits an error unless the schedules of `module` accept the element type and know the parameters
/// of `inputs`.
template <typename Level>
mlir::LogicalResult checkSchedules(mlir::ModuleOp module, const Inputs &inputs) {
  unsigned bits = inputs.dtype == kernels::DType::F32 ? 32 : 64;
  for (auto schedule : module.getOps<typename Level::ScheduleOp>()) {
    if (llvm::none_of(schedule.getDtypes().template getAsValueRange<mlir::TypeAttr>(),
                      [&](mlir::Type type) { return type.getIntOrFloatBitWidth() == bits; }))
      return schedule.emitOpError("expects a bucket of an element type that it accepts, got f")
             << bits;
    for (const auto &[name, value] : inputs.parameters)
      if (failed(checkParameter<Level>(schedule, name, value)))
        return mlir::failure();
    for (const auto &step : inputs.stepParameters)
      for (const auto &[name, value] : step)
        if (failed(checkParameter<Level>(schedule, name, value)))
          return mlir::failure();
  }
  return mlir::success();
}

/// `Level` names the ops and events of a dialect. `run(programs, step, outputs, states)` executes
/// programs of one step side by side up to their gates, then one after the other; for async
/// programs `step` is the number of the round.
template <typename Level, typename Run>
mlir::FailureOr<Outputs> interpretSteps(mlir::ModuleOp module, const Inputs &inputs, Run run) {
  using ProgramOp = typename Level::ProgramOp;
  using Event = typename Level::Event;
  if (failed(checkInputs(module, inputs)) || failed(checkSchedules<Level>(module, inputs)))
    return mlir::failure();
  llvm::SmallVector<ProgramOp> early, late; // Up to the gates, and after the update.
  for (Event event : {Event::BeforeForward, Event::Gradient, Event::AfterUpdate})
    for (auto schedule : module.getOps<typename Level::ScheduleOp>())
      for (auto program : schedule.getBody().template getOps<ProgramOp>())
        if (Level::eventOf(program) == event)
          (event == Event::AfterUpdate ? late : early).push_back(program);
  Outputs outputs;
  States states(inputs);
  bool ownsUpdate = false;
  std::vector<std::pair<ProgramOp, Rounds>> asyncs;
  for (auto schedule : module.getOps<typename Level::ScheduleOp>()) {
    ownsUpdate |= schedule.getOwnsUpdate();
    for (auto declared : schedule.getBody().template getOps<typename Level::DeclareStateOp>())
      if (failed(states.declare(declared, static_cast<int64_t>(schedule.getGrain()))))
        return mlir::failure();
    for (auto program : schedule.getBody().template getOps<ProgramOp>())
      if (program.isAsync()) {
        mlir::FailureOr<Rounds> rounds = roundsOf(program, inputs);
        if (failed(rounds))
          return mlir::failure();
        asyncs.emplace_back(program, *rounds);
      }
  }
  for (int64_t step = 0; step < inputs.steps; ++step) {
    beginStep(inputs, outputs);
    outputs.formulaWireBytes.emplace_back(static_cast<size_t>(inputs.world), 0);
    auto runOne = [&](ProgramOp program, int64_t number) {
      return run(llvm::ArrayRef(program), number, outputs, states);
    };
    if (failed(run(llvm::ArrayRef(early), inputs.firstStep + step, outputs, states)))
      return mlir::failure();
    if (outputs.finite.back()) {
      if (!ownsUpdate)
        jobStep(inputs, outputs);
      for (ProgramOp program : late)
        if (failed(runOne(program, inputs.firstStep + step)))
          return mlir::failure();
    }
    for (auto &async : asyncs)
      if (failed(async.second.atBoundary(
              inputs, outputs, [&](int64_t round) { return runOne(async.first, round); })))
        return mlir::failure();
  }
  for (auto &async : asyncs)
    async.second.finish(inputs, outputs);
  outputs.states = states.take();
  return outputs;
}

} // namespace bagua::compiler
