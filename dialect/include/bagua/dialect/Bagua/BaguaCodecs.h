// What the sizes of packed bytes are computed from.
#pragma once

#include "mlir/IR/Builders.h"

#include <cstdint>
#include <string>

namespace bagua::ir {

/// Each block has headerBytes; `count` elements have ceil(count * units / elements) units of
/// unitBytes besides. Blocks but the last have whole units.
struct CodecFormat {
  int64_t block = 1, headerBytes = 0, unitBytes = 1, units = 1, elements = 1;

  int64_t packedBytes(int64_t count) const;
  mlir::Value buildPackedBytes(mlir::OpBuilder &builder, mlir::Location loc,
                               mlir::Value count) const;
  std::string formula(llvm::StringRef count) const;
};

} // namespace bagua::ir
