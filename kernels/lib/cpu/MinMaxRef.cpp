// Plain reference of the min-max codec: the oracle for MinMax.cpp.
#include "Runs.h"
#include "common/MinMax.h"

#include <algorithm>
#include <cmath>

namespace bagua::kernels {
namespace {

void encode(const Kernel &kernel, const Args &args, size_t begin, size_t end) {
  const size_t block = static_cast<size_t>(kernel.block);
  const std::byte *x = args.inputs[0].data();
  std::byte *packed = args.outputs[0].data() + kernel.packing.bytes(begin);
  for (size_t first = begin; first < end; first += block) {
    const size_t last = std::min(first + block, end);
    bool finite = true;
    float lo = loadOne<float>(x, first), hi = lo;
    for (size_t i = first; i < last; ++i) {
      float value = loadOne<float>(x, i);
      finite = finite && std::isfinite(value);
      lo = value < lo ? value : lo;
      hi = value > hi ? value : hi;
    }
    MinMaxHeader header = finite ? minMaxHeader(lo, hi, kernel.bits) : kMinMaxNonFinite;
    storeHeader(packed, header);
    std::byte *codes = packed + sizeof(header);
    std::fill_n(codes, codeBytes(last - first, kernel.bits), std::byte{0});
    if (finite) {
      MinMaxEncoder encoder(header, kernel.bits);
      for (size_t i = first; i < last; ++i)
        storeCode(codes, i - first, kernel.bits, encoder.encodeOne(loadOne<float>(x, i)));
    }
    packed += minMaxBlockBytes(last - first, kernel.bits);
  }
}

float decodeAt(const Kernel &kernel, const std::byte *packed, size_t index) {
  const size_t block = static_cast<size_t>(kernel.block);
  packed += index / block * minMaxBlockBytes(block, kernel.bits);
  return MinMaxDecoder(loadHeader(packed))
      .decodeOne(loadCode(packed + sizeof(MinMaxHeader), index % block, kernel.bits));
}

template <bool kMean>
void decodeReduce(const Kernel &kernel, const Args &args, size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) {
    float sum = decodeAt(kernel, args.inputs[0].data(), i);
    for (size_t k = 1; k < args.inputs.size(); ++k)
      sum = sum + decodeAt(kernel, args.inputs[k].data(), i);
    if (kMean)
      sum = sum / static_cast<float>(args.inputs.size());
    storeOne<float>(args.outputs[0].data(), i, finishOne(sum));
  }
}

} // namespace

const CodecRuns &minMaxReference() {
  // One input and no division: decoding is the sum of one.
  static constexpr CodecRuns kRuns{encode, decodeReduce<false>, decodeReduce<false>,
                                   decodeReduce<true>};
  return kRuns;
}

} // namespace bagua::kernels
