// copy, reduce and mix for every instruction-set target. Reads each input once, writes the output
// once.
#include "common/Elementwise.h"
#include "Runs.h"

#include <bit>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/Elementwise.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bagua::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <typename T> const T *at(std::span<const std::byte> bytes, size_t index) {
  return reinterpret_cast<const T *>(bytes.data()) + index; // Only for LoadU: may be unaligned.
}

template <class D, class V> HWY_INLINE V finish(D d, V v) {
  return hn::IfThenElse(hn::IsNaN(v), hn::Set(d, kNan<hn::TFromD<D>>), v);
}

HWY_ATTR void copy(const Kernel &kernel, const Args &args, size_t begin, size_t end) {
  const size_t bytes = elementBytes(kernel.dtype);
  if (begin < end)
    std::memcpy(args.outputs[0].data() + begin * bytes, args.inputs[0].data() + begin * bytes,
                (end - begin) * bytes);
}

/// Sum of inputs at `index`, one element; for tails.
template <typename T> HWY_INLINE T sumOne(const Args &args, size_t index) {
  T sum = loadOne<T>(args.inputs[0].data(), index);
  for (size_t k = 1; k < args.inputs.size(); ++k)
    sum = sum + loadOne<T>(args.inputs[k].data(), index);
  return sum;
}

template <typename T, bool kMean>
HWY_ATTR void reduce(const Kernel &, const Args &args, size_t begin, size_t end) {
  const hn::ScalableTag<T> d;
  const size_t lanes = hn::Lanes(d);
  const size_t inputs = args.inputs.size();
  const T divisor = static_cast<T>(inputs);
  // By a power of two, multiplication and division round alike, and multiplication is much faster.
  const bool multiply = std::has_single_bit(inputs);
  const auto vDivisor = hn::Set(d, divisor);
  const auto vFactor = hn::Set(d, T{1} / divisor);
  T *y = reinterpret_cast<T *>(args.outputs[0].data());

  size_t i = begin;
  // All inputs are read before the output is written: it may be any of them.
  for (; end - i >= 4 * lanes; i += 4 * lanes) {
    const T *x = at<T>(args.inputs[0], i);
    auto s0 = hn::LoadU(d, x), s1 = hn::LoadU(d, x + lanes);
    auto s2 = hn::LoadU(d, x + 2 * lanes), s3 = hn::LoadU(d, x + 3 * lanes);
    for (size_t k = 1; k < inputs; ++k) {
      x = at<T>(args.inputs[k], i);
      s0 = hn::Add(s0, hn::LoadU(d, x));
      s1 = hn::Add(s1, hn::LoadU(d, x + lanes));
      s2 = hn::Add(s2, hn::LoadU(d, x + 2 * lanes));
      s3 = hn::Add(s3, hn::LoadU(d, x + 3 * lanes));
    }
    if (kMean && multiply) {
      s0 = hn::Mul(s0, vFactor), s1 = hn::Mul(s1, vFactor);
      s2 = hn::Mul(s2, vFactor), s3 = hn::Mul(s3, vFactor);
    } else if (kMean) {
      s0 = hn::Div(s0, vDivisor), s1 = hn::Div(s1, vDivisor);
      s2 = hn::Div(s2, vDivisor), s3 = hn::Div(s3, vDivisor);
    }
    hn::StoreU(finish(d, s0), d, y + i);
    hn::StoreU(finish(d, s1), d, y + i + lanes);
    hn::StoreU(finish(d, s2), d, y + i + 2 * lanes);
    hn::StoreU(finish(d, s3), d, y + i + 3 * lanes);
  }
  for (; i < end; ++i) {
    T sum = sumOne<T>(args, i);
    storeOne<T>(args.outputs[0].data(), i, finishOne(kMean ? sum / divisor : sum));
  }
}

template <typename T>
HWY_ATTR void mix(const Kernel &kernel, const Args &args, size_t begin, size_t end) {
  const hn::ScalableTag<T> d;
  const size_t lanes = hn::Lanes(d);
  const size_t inputs = args.inputs.size();
  if (inputs == 1) // Nobody to mix with.
    return reduce<T, false>(kernel, args, begin, end);
  T *y = reinterpret_cast<T *>(args.outputs[0].data());

  size_t i = begin;
  for (; end - i >= 2 * lanes; i += 2 * lanes) {
    const T *x = at<T>(args.inputs[0], i);
    const auto w0 = hn::LoadU(d, x), w1 = hn::LoadU(d, x + lanes);
    x = at<T>(args.inputs[1], i);
    auto weight = hn::Set(d, static_cast<T>(args.scalars[0]));
    auto s0 = hn::Mul(weight, hn::Sub(hn::LoadU(d, x), w0));
    auto s1 = hn::Mul(weight, hn::Sub(hn::LoadU(d, x + lanes), w1));
    for (size_t k = 2; k < inputs; ++k) {
      x = at<T>(args.inputs[k], i);
      weight = hn::Set(d, static_cast<T>(args.scalars[k - 1]));
      s0 = hn::Add(s0, hn::Mul(weight, hn::Sub(hn::LoadU(d, x), w0)));
      s1 = hn::Add(s1, hn::Mul(weight, hn::Sub(hn::LoadU(d, x + lanes), w1)));
    }
    hn::StoreU(finish(d, hn::Add(w0, s0)), d, y + i);
    hn::StoreU(finish(d, hn::Add(w1, s1)), d, y + i + lanes);
  }
  for (; i < end; ++i) {
    const T w = loadOne<T>(args.inputs[0].data(), i);
    T sum = mixTerm(static_cast<T>(args.scalars[0]), loadOne<T>(args.inputs[1].data(), i), w);
    for (size_t k = 2; k < inputs; ++k)
      sum = sum +
            mixTerm(static_cast<T>(args.scalars[k - 1]), loadOne<T>(args.inputs[k].data(), i), w);
    storeOne<T>(args.outputs[0].data(), i, finishOne(w + sum));
  }
}

const ElementwiseRuns *elementwiseTable() {
  static constexpr ElementwiseRuns kRuns{copy,
                                         reduce<float, false>,
                                         reduce<double, false>,
                                         reduce<float, true>,
                                         reduce<double, true>,
                                         mix<float>,
                                         mix<double>};
  return &kRuns;
}

} // namespace HWY_NAMESPACE
} // namespace bagua::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bagua::kernels {
HWY_EXPORT(elementwiseTable);

int64_t compiledTargets() { return HWY_TARGETS; }

const ElementwiseRuns &elementwiseRuns(int64_t target) {
  hwy::ChosenTarget chosen; // Ours: Highway's own choice is global to the process.
  chosen.Update(target);
  return *HWY_DISPATCH_TABLE(elementwiseTable)[chosen.GetIndex()]();
}

} // namespace bagua::kernels
#endif
