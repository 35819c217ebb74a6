// The `bagua` dialect class.
#pragma once

#include "mlir/IR/Dialect.h"

#include "bagua/dialect/Bagua/BaguaDialect.h.inc"
