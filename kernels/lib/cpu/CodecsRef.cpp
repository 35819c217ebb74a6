// Plain references of the codecs but minmax: the oracles of Half.cpp, Qsgd.cpp, Sign.cpp,
// Sparse.cpp and MinMaxReference.cpp.
#include "Runs.h"
#include "common/Codes.h"
#include "common/Half.h"
#include "common/MinMaxReference.h"
#include "common/Partials.h"
#include "common/Qsgd.h"
#include "common/Sign.h"
#include "common/Sparse.h"

#include <algorithm>
#include <cmath>

namespace bagua::kernels {
namespace {

/// One block of a launch.
struct Block {
  size_t first; ///< Its first element, counted from the launch's.
  size_t count;
};

float elementOf(const std::byte *x, size_t index) { return loadOne<float>(x, index); }

/// A codec has `encode`, which writes the bytes of a block, and `decode`, which yields `count`
/// elements of a block from `begin` on.
template <class Half> struct HalfCodec {
  HalfCodec(const Kernel &, const Args &) {}

  void encode(const Block &block, const std::byte *x, std::byte *packed) const {
    for (size_t i = 0; i < block.count; ++i)
      storeOne(packed, i, Half::encodeOne(elementOf(x, i)));
  }
  void decode(const Block &, const std::byte *packed, size_t begin, size_t count, float *y) const {
    for (size_t i = 0; i < count; ++i)
      y[i] = Half::decodeOne(loadOne<uint16_t>(packed, begin + i));
  }
};

struct QsgdCodec {
  const Kernel &kernel;
  const Args &args;
  QsgdCodec(const Kernel &usedKernel, const Args &usedArgs) : kernel(usedKernel), args(usedArgs) {}

  void encode(const Block &block, const std::byte *x, std::byte *packed) const {
    const RandomScalars scalars(args.scalars);
    const RandomStream stream(scalars);
    float greatest = 0.0f;
    bool finite = true;
    for (size_t i = 0; i < block.count; ++i) {
      finite = finite && std::isfinite(elementOf(x, i));
      greatest = std::max(greatest, std::fabs(elementOf(x, i)));
    }
    float norm = greatest;
    if (kernel.norm == 2)
      norm = qsgdEuclideanNorm(stridedSum(block.count, [&](size_t i) {
        const double value = elementOf(x, i);
        return value * value;
      }));
    storeOne(packed, 0, finite ? norm : kQsgdNonFinite);
    std::byte *codes = packed + sizeof(float);
    std::fill_n(codes, codeBytes(block.count, kernel.bits), std::byte{0});
    if (!finite)
      return;
    for (size_t i = 0; i < block.count; ++i) {
      unsigned code = static_cast<unsigned>(kernel.levels); // Zero.
      if (norm > 0.0f)
        code = QsgdEncoder(norm, kernel.levels)
                   .encodeOne(elementOf(x, i), stream.word(scalars.first + block.first + i));
      storeCode(codes, i, kernel.bits, code);
    }
  }
  void decode(const Block &, const std::byte *packed, size_t begin, size_t count, float *y) const {
    const QsgdDecoder decoder(loadOne<float>(packed, 0), kernel.levels);
    for (size_t i = 0; i < count; ++i)
      y[i] = decoder.decodeOne(loadCode(packed + sizeof(float), begin + i, kernel.bits));
  }
};

struct SignCodec {
  SignCodec(const Kernel &, const Args &) {}

  void encode(const Block &block, const std::byte *x, std::byte *packed) const {
    const float scale = signScale(
        stridedSum(block.count,
                   [&](size_t i) { return std::fabs(static_cast<double>(elementOf(x, i))); }),
        block.count);
    storeOne(packed, 0, scale);
    std::byte *signs = packed + sizeof(float);
    std::fill_n(signs, codeBytes(block.count, 1), std::byte{0});
    if (std::isfinite(scale))
      for (size_t i = 0; i < block.count; ++i)
        storeCode(signs, i, 1, elementOf(x, i) < 0.0f ? 1 : 0);
  }
  void decode(const Block &, const std::byte *packed, size_t begin, size_t count, float *y) const {
    const float scale = loadOne<float>(packed, 0);
    for (size_t i = 0; i < count; ++i)
      y[i] = signValue(scale, loadCode(packed + sizeof(float), begin + i, 1) != 0);
  }
};

struct MinMaxReferenceCodec {
  MinMaxReferenceCodec(const Kernel &, const Args &) {}

  void encode(const Block &block, const std::byte *x, std::byte *packed) const {
    float lo = std::numeric_limits<float>::infinity(), hi = -lo;
    for (size_t i = 0; i < block.count; ++i) {
      lo = elementOf(x, i) < lo ? elementOf(x, i) : lo;
      hi = elementOf(x, i) > hi ? elementOf(x, i) : hi;
    }
    const MinMaxReferenceBlock used = MinMaxReferenceBlock::of(lo, hi);
    storeOne(packed, 0, used.lo);
    storeOne(packed, 1, used.hi);
    for (size_t i = 0; i < block.count; ++i)
      storeOne(packed + 2 * sizeof(float), i, used.encodeOne(elementOf(x, i)));
  }
  void decode(const Block &, const std::byte *packed, size_t begin, size_t count, float *y) const {
    const MinMaxReferenceBlock used(loadOne<float>(packed, 0), loadOne<float>(packed, 1));
    for (size_t i = 0; i < count; ++i)
      y[i] = used.decodeOne(loadOne<uint8_t>(packed + 2 * sizeof(float), begin + i));
  }
};

bool allFinite(const Block &block, const std::byte *x) {
  for (size_t i = 0; i < block.count; ++i)
    if (!std::isfinite(elementOf(x, i)))
      return false;
  return true;
}

struct TopKCodec {
  const Kernel &kernel;
  TopKCodec(const Kernel &usedKernel, const Args &) : kernel(usedKernel) {}

  void encode(const Block &block, const std::byte *x, std::byte *packed) const {
    const size_t entries = sparseEntries(block.count, kernel.k, kernel.block);
    SparseIndex order[kSparseBlockMax];
    for (size_t i = 0; i < block.count; ++i)
      order[i] = static_cast<SparseIndex>(i);
    const bool finite = allFinite(block, x);
    if (finite) {
      std::sort(order, order + block.count, [&](SparseIndex a, SparseIndex b) {
        const float p = std::fabs(elementOf(x, a)), q = std::fabs(elementOf(x, b));
        return p != q ? p > q : a < b;
      });
      std::sort(order, order + entries);
    }
    for (size_t e = 0; e < entries; ++e) {
      storeOne(packed, e, order[e]);
      storeOne(packed + entries * sizeof(SparseIndex), e,
               finite ? elementOf(x, order[e]) : kNan<float>);
    }
  }
  void decode(const Block &block, const std::byte *packed, size_t begin, size_t count,
              float *y) const {
    const size_t entries = sparseEntries(block.count, kernel.k, kernel.block);
    float values[kSparseBlockMax];
    scatterEntries(
        packed + entries * sizeof(SparseIndex), entries, block.count,
        [&](size_t e) { return loadIndex(packed, e); }, values);
    std::copy_n(values + begin, count, y);
  }
};

struct RandKCodec {
  const Kernel &kernel;
  const Args &args;
  RandKCodec(const Kernel &usedKernel, const Args &usedArgs) : kernel(usedKernel), args(usedArgs) {}

  size_t draw(const Block &block, SparseIndex *indices) const {
    const RandomScalars scalars(args.scalars);
    const RandomStream stream(scalars);
    const size_t entries = sparseEntries(block.count, kernel.k, kernel.block);
    uint32_t words[kSparseBlockMax];
    for (size_t t = 0; t < entries; ++t)
      words[t] = stream.word(scalars.first + block.first + t);
    drawIndices(words, block.count, entries, indices);
    return entries;
  }
  void encode(const Block &block, const std::byte *x, std::byte *packed) const {
    SparseIndex indices[kSparseBlockMax];
    const size_t entries = draw(block, indices);
    const float factor = randKFactor(block.count, entries, kernel.scaled != 0);
    const bool finite = allFinite(block, x);
    for (size_t e = 0; e < entries; ++e)
      storeOne(packed, e, finite ? randKValue(elementOf(x, indices[e]), factor) : kNan<float>);
  }
  void decode(const Block &block, const std::byte *packed, size_t begin, size_t count,
              float *y) const {
    SparseIndex indices[kSparseBlockMax];
    const size_t entries = draw(block, indices);
    float values[kSparseBlockMax];
    scatterEntries(packed, entries, block.count, [&](size_t e) { return indices[e]; }, values);
    std::copy_n(values + begin, count, y);
  }
};

template <class Codec>
void encode(const Kernel &kernel, const Args &args, size_t begin, size_t end) {
  const Codec codec(kernel, args);
  const size_t block = kernel.packing.block;
  for (size_t first = begin; first < end; first += block)
    codec.encode({first, std::min(block, end - first)},
                 args.inputs[0].data() + first * sizeof(float),
                 args.outputs[0].data() + kernel.packing.bytes(first));
}

template <class Codec, bool kMean>
void decodeReduce(const Kernel &kernel, const Args &args, size_t begin, size_t end) {
  constexpr size_t kPart = kSparseBlockMax; // Sparse blocks decode whole.
  const Codec codec(kernel, args);
  const size_t block = kernel.packing.block;
  float sum[kPart], term[kPart];
  for (size_t first = begin; first < end; first += block) {
    const Block used{first, std::min(block, end - first)};
    const size_t offset = kernel.packing.bytes(first);
    for (size_t done = 0; done < used.count; done += kPart) {
      const size_t part = std::min(kPart, used.count - done);
      codec.decode(used, args.inputs[0].data() + offset, done, part, sum);
      for (size_t k = 1; k < args.inputs.size(); ++k) {
        codec.decode(used, args.inputs[k].data() + offset, done, part, term);
        for (size_t i = 0; i < part; ++i)
          sum[i] = sum[i] + term[i];
      }
      for (size_t i = 0; i < part; ++i) {
        if (kMean)
          sum[i] = sum[i] / static_cast<float>(args.inputs.size());
        storeOne(args.outputs[0].data(), first + done + i, finishOne(sum[i]));
      }
    }
  }
}

template <class Codec>
constexpr CodecRuns kRuns{encode<Codec>, decodeReduce<Codec, false>, decodeReduce<Codec, false>,
                          decodeReduce<Codec, true>};

} // namespace

const CodecRuns &f16Reference() { return kRuns<HalfCodec<F16>>; }
const CodecRuns &bf16Reference() { return kRuns<HalfCodec<BF16>>; }
const CodecRuns &qsgdReference() { return kRuns<QsgdCodec>; }
const CodecRuns &signReference() { return kRuns<SignCodec>; }
const CodecRuns &minMaxReferenceReference() { return kRuns<MinMaxReferenceCodec>; }
const CodecRuns &topKReference() { return kRuns<TopKCodec>; }
const CodecRuns &randKReference() { return kRuns<RandKCodec>; }

} // namespace bagua::kernels
