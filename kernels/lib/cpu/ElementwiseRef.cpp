// Plain reference of copy, reduce and mix: the oracle for Elementwise.cpp.
#include "Runs.h"
#include "common/Elementwise.h"

#include <cstring>

namespace bagua::kernels {
namespace {

void copy(const Kernel &kernel, const Args &args, size_t begin, size_t end) {
  size_t bytes = elementBytes(kernel.dtype);
  for (size_t i = begin * bytes; i < end * bytes; ++i)
    args.outputs[0][i] = args.inputs[0][i];
}

template <typename T, bool kMean>
void reduce(const Kernel &, const Args &args, size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) {
    T sum = loadOne<T>(args.inputs[0].data(), i);
    for (size_t k = 1; k < args.inputs.size(); ++k)
      sum = sum + loadOne<T>(args.inputs[k].data(), i);
    if (kMean)
      sum = sum / static_cast<T>(args.inputs.size());
    storeOne<T>(args.outputs[0].data(), i, finishOne(sum));
  }
}

template <typename T> void mix(const Kernel &, const Args &args, size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) {
    T w = loadOne<T>(args.inputs[0].data(), i);
    T y = w;
    if (args.inputs.size() > 1) {
      T sum = mixTerm(static_cast<T>(args.scalars[0]), loadOne<T>(args.inputs[1].data(), i), w);
      for (size_t k = 2; k < args.inputs.size(); ++k)
        sum = sum +
              mixTerm(static_cast<T>(args.scalars[k - 1]), loadOne<T>(args.inputs[k].data(), i), w);
      y = w + sum;
    }
    storeOne<T>(args.outputs[0].data(), i, finishOne(y));
  }
}

} // namespace

const ElementwiseRuns &elementwiseReference() {
  static constexpr ElementwiseRuns kRuns{copy,
                                         reduce<float, false>,
                                         reduce<double, false>,
                                         reduce<float, true>,
                                         reduce<double, true>,
                                         mix<float>,
                                         mix<double>};
  return kRuns;
}

} // namespace bagua::kernels
