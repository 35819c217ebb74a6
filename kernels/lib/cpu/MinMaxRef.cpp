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
  std::byte *packed = args.outputs[0].data() + minmaxPackedBytes(begin, kernel.bits, kernel.block);
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
    std::fill_n(codes, minMaxCodeBytes(last - first, kernel.bits), std::byte{0});
    if (finite) {
      MinMaxEncoder encoder(header, kernel.bits);
      for (size_t i = first; i < last; ++i) {
        unsigned code = encoder.encodeOne(loadOne<float>(x, i));
        size_t bit = (i - first) * static_cast<size_t>(kernel.bits);
        codes[bit / 8] |= static_cast<std::byte>(code << (bit % 8));
        if (bit % 8 + static_cast<size_t>(kernel.bits) > 8)
          codes[bit / 8 + 1] |= static_cast<std::byte>(code >> (8 - bit % 8));
      }
    }
    packed += minMaxBlockBytes(last - first, kernel.bits);
  }
}

float decodeAt(const Kernel &kernel, const std::byte *packed, size_t index) {
  const size_t block = static_cast<size_t>(kernel.block);
  const size_t bits = static_cast<size_t>(kernel.bits);
  packed += index / block * minMaxBlockBytes(block, kernel.bits);
  const std::byte *codes = packed + sizeof(MinMaxHeader);
  size_t bit = index % block * bits;
  unsigned code = std::to_integer<unsigned>(codes[bit / 8]) >> (bit % 8);
  if (bit % 8 + bits > 8)
    code |= std::to_integer<unsigned>(codes[bit / 8 + 1]) << (8 - bit % 8);
  return MinMaxDecoder(loadHeader(packed))
      .decodeOne(static_cast<uint8_t>(code & static_cast<unsigned>(minMaxLevels(kernel.bits))));
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

const MinMaxRuns &minMaxReference() {
  // One input and no division: decoding is the sum of one.
  static constexpr MinMaxRuns kRuns{encode, decodeReduce<false>, decodeReduce<false>,
                                    decodeReduce<true>};
  return kRuns;
}

} // namespace bagua::kernels
