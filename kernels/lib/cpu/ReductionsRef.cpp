// Plain reference of dot, norm, all_finite and random_uniform: the oracle of Reductions.cpp.
#include "Runs.h"
#include "common/Elementwise.h"
#include "common/Partials.h"
#include "common/Philox.h"

#include <cmath>

namespace bagua::kernels {
namespace {

template <typename T> double dotOf(const Args &args, size_t other) {
  return stridedSum(args.count, [&](size_t i) {
    return static_cast<double>(loadOne<T>(args.inputs[0].data(), i)) *
           static_cast<double>(loadOne<T>(args.inputs[other].data(), i));
  });
}

template <typename T> void dot(const Kernel &, const Args &args, size_t, size_t) {
  storeOne(args.outputs[0].data(), 0, finishOne(static_cast<T>(dotOf<T>(args, 1))));
}

template <typename T> void norm(const Kernel &, const Args &args, size_t, size_t) {
  storeOne(args.outputs[0].data(), 0, finishOne(static_cast<T>(std::sqrt(dotOf<T>(args, 0)))));
}

template <typename T> void allFinite(const Kernel &, const Args &args, size_t, size_t) {
  bool finite = true;
  for (size_t i = 0; i < args.count; ++i)
    finite = finite && std::isfinite(loadOne<T>(args.inputs[0].data(), i));
  storeOne(args.outputs[0].data(), 0, finite ? T{1} : T{0});
}

template <typename T>
void randomUniform(const Kernel &, const Args &args, size_t begin, size_t end) {
  const RandomScalars scalars(args.scalars);
  const RandomStream stream(scalars);
  for (size_t i = begin; i < end; ++i)
    storeOne(args.outputs[0].data(), i, static_cast<T>(uniformOf(stream.word(scalars.first + i))));
}

template <typename T>
constexpr ReductionRuns kRuns{dot<T>, norm<T>, allFinite<T>, randomUniform<T>};

} // namespace

const ReductionRuns &reductionReference(DType dtype) {
  return dtype == DType::F32 ? kRuns<float> : kRuns<double>;
}

} // namespace bagua::kernels
