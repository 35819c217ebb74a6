// When the rounds of an async program begin and end: syntax and constraints that chunk and sched
// have in common. SPEC.md, "Async handlers", has the meaning.
#pragma once

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/DenseMap.h"

#include <cstdint>
#include <limits>

namespace bagua::ir {

/// `@parameter`, or a number.
inline mlir::ParseResult parseRoundCount(mlir::OpAsmParser &parser, mlir::Attribute &count) {
  mlir::StringAttr name;
  if (mlir::succeeded(parser.parseOptionalSymbolName(name))) {
    count = mlir::FlatSymbolRefAttr::get(name);
    return mlir::success();
  }
  int64_t number = 0;
  if (parser.parseInteger(number))
    return mlir::failure();
  count = parser.getBuilder().getI64IntegerAttr(number);
  return mlir::success();
}

inline void printRoundCount(mlir::OpAsmPrinter &printer, mlir::Attribute count) {
  if (auto number = llvm::dyn_cast<mlir::IntegerAttr>(count))
    printer << number.getInt();
  else
    printer << count;
}

/// `every(count unit) (after(count))? staleness(number)`, or nothing.
template <typename UnitAttr>
mlir::ParseResult parseRounds(mlir::OpAsmParser &parser, mlir::Attribute &every, UnitAttr &unit,
                              mlir::Attribute &after, mlir::IntegerAttr &staleness) {
  if (mlir::failed(parser.parseOptionalKeyword("every")))
    return mlir::success();
  if (parser.parseLParen() || parseRoundCount(parser, every))
    return mlir::failure();
  unit = llvm::dyn_cast_or_null<UnitAttr>(UnitAttr::parse(parser, mlir::Type()));
  if (!unit || parser.parseRParen())
    return mlir::failure();
  if (mlir::succeeded(parser.parseOptionalKeyword("after")) &&
      (parser.parseLParen() || parseRoundCount(parser, after) || parser.parseRParen()))
    return mlir::failure();
  int64_t number = 0;
  if (parser.parseKeyword("staleness") || parser.parseLParen() || parser.parseInteger(number) ||
      parser.parseRParen())
    return mlir::failure();
  staleness = parser.getBuilder().getI64IntegerAttr(number);
  return mlir::success();
}

template <typename UnitAttr>
void printRounds(mlir::OpAsmPrinter &printer, mlir::Operation *, mlir::Attribute every,
                 UnitAttr unit, mlir::Attribute after, mlir::IntegerAttr staleness) {
  if (!every || !unit || !staleness)
    return;
  printer << "every(";
  printRoundCount(printer, every);
  unit.print(printer); // Begins with a space.
  printer << ")";
  if (after) {
    printer << " after(";
    printRoundCount(printer, after);
    printer << ")";
  }
  printer << " staleness(" << staleness.getInt() << ")";
}

/// That a program has rounds if and only if it is async, and numbers that make sense.
template <typename ProgramOp> mlir::LogicalResult verifyRounds(ProgramOp program, bool isAsync) {
  bool every = program.getEvery().has_value();
  if (every != isAsync || every != program.getEveryUnit().has_value() ||
      every != program.getStaleness().has_value() || (program.getAfter() && !isAsync))
    return program.emitOpError("expects ")
           << (isAsync ? "every, its unit and staleness of an async program"
                       : "no every, after or staleness: they belong to async programs");
  if (!isAsync)
    return mlir::success();
  auto check = [&](mlir::Attribute count, llvm::StringRef what,
                   int64_t least) -> mlir::LogicalResult {
    auto number = llvm::dyn_cast<mlir::IntegerAttr>(count);
    if (!number && !llvm::isa<mlir::FlatSymbolRefAttr>(count))
      return program.emitOpError("expects ")
             << what << " to be a parameter or a number, got " << count;
    if (number && number.getValue().getSExtValue() < least)
      return program.emitOpError("expects ")
             << what << " of at least " << least << ", got " << number.getInt();
    return mlir::success();
  };
  if (mlir::failed(check(*program.getEvery(), "every", 1)) ||
      (program.getAfter() && mlir::failed(check(*program.getAfter(), "after", 0))))
    return mlir::failure();
  auto staleness = static_cast<int64_t>(*program.getStaleness());
  if (staleness < 1 || staleness > std::numeric_limits<int32_t>::max())
    return program.emitOpError("B160: expects a staleness in 1 … 2^31 - 1, got ") << staleness;
  return mlir::success();
}

/// That the parameters of an async program are declared and may not change from step to step.
template <typename ParameterOp, typename DeclareOp, typename ScheduleOp, typename ProgramOp>
mlir::LogicalResult verifyRoundParameters(ScheduleOp schedule, ProgramOp program) {
  auto check = [&](mlir::Attribute count, llvm::StringRef what,
                   int64_t least) -> mlir::LogicalResult {
    auto name = llvm::dyn_cast<mlir::FlatSymbolRefAttr>(count);
    if (!name)
      return mlir::success();
    auto declared = schedule.template lookupSymbol<DeclareOp>(name);
    auto initial =
        declared ? llvm::dyn_cast<mlir::IntegerAttr>(declared.getDefaultValue()) : nullptr;
    if (!initial || declared.getPerStep())
      return program.emitOpError("expects ")
             << what << " to be an index parameter that is not per_step, got " << name;
    if (initial.getInt() < least)
      return program.emitOpError("expects ")
             << what << " of at least " << least << ", got " << initial.getInt() << " by default";
    return mlir::success();
  };
  if (mlir::failed(check(*program.getEvery(), "every", 1)) ||
      (program.getAfter() && mlir::failed(check(*program.getAfter(), "after", 0))))
    return mlir::failure();
  mlir::WalkResult walked = program.walk([&](ParameterOp parameter) {
    auto declared = schedule.template lookupSymbol<DeclareOp>(parameter.getParameterAttr());
    if (!declared || !declared.getPerStep())
      return mlir::WalkResult::advance();
    parameter.emitOpError("expects a parameter that is not per_step in an async program, got ")
        << parameter.getParameterAttr() << ": in one round, ranks may be at different steps";
    return mlir::WalkResult::interrupt();
  });
  return mlir::failure(walked.wasInterrupted());
}

/// That no state is used by an async program and by another, which run side by side.
template <typename StateOp, typename ProgramOp, typename ScheduleOp, typename IsAsync>
mlir::LogicalResult verifyAsyncStates(ScheduleOp schedule, IsAsync isAsync) {
  llvm::DenseMap<mlir::StringAttr, StateOp> first;
  for (auto program : schedule.getBody().template getOps<ProgramOp>()) {
    mlir::WalkResult walked = program.walk([&](StateOp state) -> mlir::WalkResult {
      StateOp &known = first[state.getStateAttr().getAttr()];
      if (!known) {
        known = state;
        return mlir::success();
      }
      if (isAsync(program) == isAsync(known->template getParentOfType<ProgramOp>()))
        return mlir::success();
      mlir::InFlightDiagnostic error =
          state.emitOpError("expects a state that an async program shares with no other, got ")
          << state.getStateAttr();
      error.attachNote(known.getLoc()) << "used here as well";
      return error;
    });
    if (walked.wasInterrupted())
      return mlir::failure();
  }
  return mlir::success();
}

} // namespace bagua::ir
