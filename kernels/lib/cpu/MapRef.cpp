// Plain reference of map bytecode, element by element: the oracle for Map.cpp.
#include "Prepared.h"
#include "Runs.h"
#include "common/Map.h"

#include <array>

namespace bagua::kernels {
namespace {

template <typename T>
void runMap(const Kernel &kernel, const Args &args, size_t begin, size_t end) {
  const MapProgram &program = *kernel.prepared->map;
  std::array<MapValue<T>, kMapInstructionsMax> values;
  for (size_t i = begin; i < end; ++i) {
    auto input = [&](size_t k) {
      return loadOne<T>(args.inputs[k].data(), program.broadcast[k] != 0 ? 0 : i);
    };
    mapElement<T>(program, args.scalars, input, [](size_t) { return false; }, values.data());
    for (size_t k = 0; k < program.outputs.size(); ++k)
      storeOne<T>(args.outputs[k].data(), i, finishOne(values[program.outputs[k]].number));
  }
}

} // namespace

Kernel::Run mapReference(DType dtype) {
  return dtype == DType::F32 ? runMap<float> : runMap<double>;
}

} // namespace bagua::kernels
