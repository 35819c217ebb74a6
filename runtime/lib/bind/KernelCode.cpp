#include "KernelCode.h"

#include "bagua/kernels/CodecProgram.h"

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
  if (kernel.codec) {
    const fb::CodecCodeT &code = *kernel.codec;
    auto program = std::make_shared<kernels::CodecProgram>();
    program->block = code.block;
    program->headerCount = code.header_count;
    program->codeBits = code.code_bits;
    program->signedCodes = code.signed_codes;
    program->stats = programOf(*code.stats);
    for (uint8_t reduction : code.reductions)
      program->reductions.push_back(static_cast<kernels::BlockReduction>(reduction));
    program->headers = programOf(*code.headers);
    program->encode = programOf(*code.encode);
    program->decode = programOf(*code.decode);
    return kernels::findCodec(kernel.name, std::move(program), dtype, found, error, reference);
  }
  std::vector<kernels::Attribute> attributes;
  for (const auto &attribute : kernel.attributes)
    attributes.push_back({attribute->name, attribute->value});
  return kernels::find(kernel.name, dtype, attributes, found, error, reference);
}

} // namespace bagua::rt
