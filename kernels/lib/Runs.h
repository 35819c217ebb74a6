// The run functions of one target. Each kernel family has a plain reference and one Highway source
// that is compiled for every target; Kernels.cpp picks among them.
#pragma once

#include "bagua/kernels/Kernels.h"
#include "common/MapPlan.h"

#include <cstdint>

namespace bagua::kernels {

struct ElementwiseRuns {
  Kernel::Run copy;
  Kernel::Run reduceSumF32, reduceSumF64;
  Kernel::Run reduceMeanF32, reduceMeanF64;
  Kernel::Run mixF32, mixF64;
};

struct MinMaxRuns {
  Kernel::Run encode, decode, decodeReduceSum, decodeReduceMean;
};

/// Bits of the Highway targets that the sources below were compiled for.
int64_t compiledTargets();

/// The target that find() would take now; `error` as there.
FindError chooseTarget(int64_t &target, std::string &error);

/// `target` is one bit of compiledTargets() that this CPU supports.
const ElementwiseRuns &elementwiseRuns(int64_t target);
const MinMaxRuns &minMaxRuns(int64_t target);
const MapTileRuns &mapTileRuns(int64_t target, DType dtype);

const ElementwiseRuns &elementwiseReference();
const MinMaxRuns &minMaxReference();
Kernel::Run mapReference(DType dtype);

} // namespace bagua::kernels
