#include "KernelCode.h"

#include "bagua/kernels/Map.h"

#include <memory>
#include <vector>

namespace bagua::rt {
namespace {

kernels::MapProgram programOf(const fb::MapCodeT &code) {
  kernels::MapProgram program;
  for (const fb::MapInstruction &instruction : code.code)
    program.code.push_back({static_cast<kernels::MapOp>(instruction.op()), instruction.a(),
                            instruction.b(), instruction.c()});
  program.constants = code.constants;
  program.outputs = code.outputs;
  program.inputs = code.inputs;
  program.scalars = code.scalars;
  program.broadcast = code.broadcast;
  return program;
}

} // namespace

kernels::FindError findKernel(const fb::KernelT &kernel, kernels::DType dtype,
                              kernels::Kernel &found, std::string &error, bool reference) {
  if (kernel.map)
    return kernels::findMap(std::make_shared<const kernels::MapProgram>(programOf(*kernel.map)),
                            dtype, found, error, reference);
  std::vector<kernels::Attribute> attributes;
  for (const auto &attribute : kernel.attributes)
    attributes.push_back({attribute->name, attribute->value});
  return kernels::find(kernel.name, dtype, attributes, found, error, reference);
}

} // namespace bagua::rt
