// Registers the sched dialect's types, attributes and ops; holds their generated code.
#include "bagua/dialect/Sched/Sched.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace bagua::ir::sched;

#include "bagua/dialect/Sched/SchedDialect.cpp.inc"
#include "bagua/dialect/Sched/SchedEnums.cpp.inc"
#define GET_TYPEDEF_CLASSES
#include "bagua/dialect/Sched/SchedTypes.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "bagua/dialect/Sched/SchedAttrs.cpp.inc"
#include "bagua/dialect/Sched/SchedInterfaces.cpp.inc"

void SchedDialect::initialize() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "bagua/dialect/Sched/SchedTypes.cpp.inc"
      >();
  addAttributes<
#define GET_ATTRDEF_LIST
#include "bagua/dialect/Sched/SchedAttrs.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "bagua/dialect/Sched/SchedOps.cpp.inc"
      >();
}
