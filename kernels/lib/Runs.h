// The run functions of one target. Each kernel family has a plain reference and one Highway source
// that is compiled for every target; Kernels.cpp picks among them.
#pragma once

#include "bagua/kernels/Kernels.h"
#include "common/MapPlan.h"

#include <cstddef>
#include <cstdint>

namespace bagua::kernels {

struct ElementwiseRuns {
  Kernel::Run copy;
  Kernel::Run reduceSumF32, reduceSumF64;
  Kernel::Run reduceMeanF32, reduceMeanF64;
  Kernel::Run mixF32, mixF64;
};

struct CodecRuns {
  Kernel::Run encode, decode, decodeReduceSum, decodeReduceMean;
};

/// Of one dtype.
struct ReductionRuns {
  Kernel::Run dot, norm, allFinite, randomUniform;
};

/// Of codec programs, on f32 that may be unaligned. Folds and trees are by BlockReduction.
struct BlockRuns {
  /// False if one of `count` >= 1 elements is not finite. Else the least and the greatest; of a
  /// zero any sign.
  bool (*extremes)(const std::byte *x, size_t count, float *least, float *greatest);
  /// Partial i % 64 takes element i, in order.
  void (*fold[3])(const std::byte *x, size_t count, float *partials);
  /// The tree of the 64 partials, which it destroys.
  float (*tree[3])(float *partials);
  /// Words (common/CodecWords.h) of numbers, saturated and rounded; of NaN, that of 0.
  void (*toWords)(const float *q, size_t count, float lowest, float highest, uint32_t *words);
  /// The low bytes of these words.
  void (*toBytes)(const float *q, size_t count, float lowest, float highest, uint8_t *bytes);
  /// words[i] = base + (bytes[i] ^ flip), flip being below 256.
  void (*fromBytes)(const uint8_t *bytes, size_t count, uint32_t base, uint32_t flip,
                    uint32_t *words);
};

/// Bits of the Highway targets that the sources below were compiled for.
int64_t compiledTargets();

/// The target that find() would take now; `error` as there.
FindError chooseTarget(int64_t &target, std::string &error);

/// `target` is one bit of compiledTargets() that this CPU supports.
const ElementwiseRuns &elementwiseRuns(int64_t target);
const ReductionRuns &reductionRuns(int64_t target, DType dtype);
const CodecRuns &f16Runs(int64_t target);
const CodecRuns &bf16Runs(int64_t target);
const CodecRuns &minMaxRuns(int64_t target);
const CodecRuns &minMaxReferenceRuns(int64_t target);
const CodecRuns &qsgdRuns(int64_t target);
const CodecRuns &signRuns(int64_t target);
const CodecRuns &topKRuns(int64_t target);
const CodecRuns &randKRuns(int64_t target);
const MapTileRuns &mapTileRuns(int64_t target, DType dtype);
const BlockRuns &blockRuns(int64_t target);

const ElementwiseRuns &elementwiseReference();
const ReductionRuns &reductionReference(DType dtype);
const CodecRuns &f16Reference();
const CodecRuns &bf16Reference();
const CodecRuns &minMaxReference();
const CodecRuns &minMaxReferenceReference(); ///< Of the codec minmax_reference.
const CodecRuns &qsgdReference();
const CodecRuns &signReference();
const CodecRuns &topKReference();
const CodecRuns &randKReference();
Kernel::Run mapReference(DType dtype);

} // namespace bagua::kernels
