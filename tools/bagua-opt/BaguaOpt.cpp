// bagua-opt: checks, transforms, lowers and explains algorithms.
#include "bagua/compiler/Pipelines.h"

#include "mlir/IR/DialectRegistry.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"

using namespace mlir;

int main(int argc, char **argv) {
  DialectRegistry registry;
  bagua::compiler::registerDialects(registry);
  bagua::compiler::registerPasses();
  auto [input, output] = registerAndParseCLIOptions(argc, argv, "Bagua compiler\n", registry);
  return asMainReturnCode(MlirOptMain(argc, argv, input, output, registry));
}
