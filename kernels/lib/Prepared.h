// What a launch of bytecode needs: made by findMap() and findCodec(), read by the run functions.
#pragma once

#include "Runs.h"
#include "bagua/kernels/CodecProgram.h"
#include "common/MapPlan.h"

#include <memory>

namespace bagua::kernels {

struct PreparedProgram {
  std::shared_ptr<const MapProgram> map; ///< Null for codecs.
  MapPlan plan;                          ///< Of `map`; the reference needs none.

  std::shared_ptr<const CodecProgram> codec; ///< Null for maps.
  /// The codec's program from code words (common/CodecWords.h), and all plans; the reference needs
  /// none.
  MapProgram decode;
  MapPlan statsPlan, encodePlan, decodePlan;
  const MapTileRuns *runs = nullptr;
  const BlockRuns *blocks = nullptr;
};

struct CodecProgramRuns {
  Kernel::Run encode, decode, decodeReduceSum, decodeReduceMean;
};
const CodecProgramRuns &codecProgramRuns();
const CodecProgramRuns &codecProgramReference();

} // namespace bagua::kernels
