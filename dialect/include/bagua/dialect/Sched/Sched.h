// The sched dialect in C++: types, attributes, ops.
#pragma once

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "bagua/dialect/Sched/SchedDialect.h.inc"
#include "bagua/dialect/Sched/SchedEnums.h.inc"
#define GET_TYPEDEF_CLASSES
#include "bagua/dialect/Sched/SchedTypes.h.inc"
#define GET_ATTRDEF_CLASSES
#include "bagua/dialect/Sched/SchedAttrs.h.inc"
#include "bagua/dialect/Sched/SchedInterfaces.h.inc"
#define GET_OP_CLASSES
#include "bagua/dialect/Sched/SchedOps.h.inc"

namespace bagua::ir::sched {

/// True if `op` is arithmetic that a schedule file can say (spec, "Expressions").
bool isExpression(mlir::Operation *op);

} // namespace bagua::ir::sched
