// copy, reduce and mix for every instruction-set target. Reads each input once, writes the output
// once.
#include "common/Elementwise.h"
#include "Runs.h"
#include "common/Sweep.h"

#include <bit>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/Elementwise.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bagua::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <typename T> HWY_INLINE const T *at(std::span<const std::byte> bytes, size_t index) {
  return reinterpret_cast<const T *>(bytes.data()) + index; // Only for LoadU: may be unaligned.
}

/// Bytes ahead that are prefetched where many inputs are read in one place each.
constexpr size_t kPrefetchBytes = 2048;
template <typename T> HWY_INLINE void prefetchAhead(const T *x, size_t count) {
  const uintptr_t first = reinterpret_cast<uintptr_t>(x) + kPrefetchBytes;
  for (size_t byte = 0; byte < count * sizeof(T); byte += kLineBytes)
    hwy::Prefetch(reinterpret_cast<const std::byte *>(first + byte));
}

template <class D, class V> HWY_INLINE V canonical(D d, V v) {
  return hn::IfThenElse(hn::IsNaN(v), hn::Set(d, kNan<hn::TFromD<D>>), v);
}

template <bool kStream, class D, class V> HWY_INLINE void store(D d, V v, hn::TFromD<D> *target) {
  if (kStream)
    hn::Stream(v, d, target);
  else
    hn::StoreU(v, d, target);
}

/// An operation is given in two forms: `one` element, for heads and tails, and `four` vectors that
/// lie `stride` elements apart. Both read all inputs before they write the output: it may be any of
/// them.
struct Copy {
  using Element = uint32_t;
  using D = hn::ScalableTag<uint32_t>;

  HWY_INLINE void one(const Args &args, size_t i) const {
    storeOne(args.outputs[0].data(), i, loadOne<uint32_t>(args.inputs[0].data(), i));
  }
  template <bool kStream, bool kPrefetch>
  HWY_INLINE void four(const Args &args, uint32_t *y, size_t i, size_t stride) const {
    const D d;
    const uint32_t *x = at<uint32_t>(args.inputs[0], i);
    const auto v0 = hn::LoadU(d, x), v1 = hn::LoadU(d, x + stride);
    const auto v2 = hn::LoadU(d, x + 2 * stride), v3 = hn::LoadU(d, x + 3 * stride);
    store<kStream>(d, v0, y + i);
    store<kStream>(d, v1, y + i + stride);
    store<kStream>(d, v2, y + i + 2 * stride);
    store<kStream>(d, v3, y + i + 3 * stride);
  }
};

enum class Finish : uint8_t { Nothing, Multiply, Divide };

template <typename T, Finish kFinish> struct Reduce {
  using Element = T;
  using D = hn::ScalableTag<T>;
  T operand; ///< What the sum is multiplied with or divided by.

  HWY_INLINE void one(const Args &args, size_t i) const {
    T sum = loadOne<T>(args.inputs[0].data(), i);
    for (size_t k = 1; k < args.inputs.size(); ++k)
      sum = sum + loadOne<T>(args.inputs[k].data(), i);
    if (kFinish == Finish::Multiply)
      sum = sum * operand;
    if (kFinish == Finish::Divide)
      sum = sum / operand;
    storeOne<T>(args.outputs[0].data(), i, finishOne(sum));
  }
  template <class V> HWY_INLINE V finish(V v) const {
    const D d;
    if (kFinish == Finish::Multiply)
      v = hn::Mul(v, hn::Set(d, operand));
    if (kFinish == Finish::Divide)
      v = hn::Div(v, hn::Set(d, operand));
    return canonical(d, v);
  }
  template <bool kStream, bool kPrefetch>
  HWY_INLINE void four(const Args &args, T *y, size_t i, size_t stride) const {
    const D d;
    const T *x = at<T>(args.inputs[0], i);
    if (kPrefetch)
      prefetchAhead(x, 4 * hn::Lanes(d));
    auto s0 = hn::LoadU(d, x), s1 = hn::LoadU(d, x + stride);
    auto s2 = hn::LoadU(d, x + 2 * stride), s3 = hn::LoadU(d, x + 3 * stride);
    for (size_t k = 1; k < args.inputs.size(); ++k) {
      x = at<T>(args.inputs[k], i);
      if (kPrefetch)
        prefetchAhead(x, 4 * hn::Lanes(d));
      s0 = hn::Add(s0, hn::LoadU(d, x));
      s1 = hn::Add(s1, hn::LoadU(d, x + stride));
      s2 = hn::Add(s2, hn::LoadU(d, x + 2 * stride));
      s3 = hn::Add(s3, hn::LoadU(d, x + 3 * stride));
    }
    store<kStream>(d, finish(s0), y + i);
    store<kStream>(d, finish(s1), y + i + stride);
    store<kStream>(d, finish(s2), y + i + 2 * stride);
    store<kStream>(d, finish(s3), y + i + 3 * stride);
  }
};

template <typename T> struct Mix {
  using Element = T;
  using D = hn::ScalableTag<T>;

  HWY_INLINE void one(const Args &args, size_t i) const {
    const T w = loadOne<T>(args.inputs[0].data(), i);
    T sum = mixTerm(static_cast<T>(args.scalars[0]), loadOne<T>(args.inputs[1].data(), i), w);
    for (size_t k = 2; k < args.inputs.size(); ++k)
      sum = sum +
            mixTerm(static_cast<T>(args.scalars[k - 1]), loadOne<T>(args.inputs[k].data(), i), w);
    storeOne<T>(args.outputs[0].data(), i, finishOne(w + sum));
  }
  template <class V> HWY_INLINE V term(V weight, const T *x, V w) const {
    return hn::Mul(weight, hn::Sub(hn::LoadU(D(), x), w));
  }
  template <bool kStream, bool kPrefetch>
  HWY_INLINE void four(const Args &args, T *y, size_t i, size_t stride) const {
    const D d;
    if (kPrefetch)
      for (auto input : args.inputs)
        prefetchAhead(at<T>(input, i), 4 * hn::Lanes(d));
    const T *x = at<T>(args.inputs[0], i);
    const auto w0 = hn::LoadU(d, x), w1 = hn::LoadU(d, x + stride);
    const auto w2 = hn::LoadU(d, x + 2 * stride), w3 = hn::LoadU(d, x + 3 * stride);
    x = at<T>(args.inputs[1], i);
    auto weight = hn::Set(d, static_cast<T>(args.scalars[0]));
    auto s0 = term(weight, x, w0), s1 = term(weight, x + stride, w1);
    auto s2 = term(weight, x + 2 * stride, w2), s3 = term(weight, x + 3 * stride, w3);
    for (size_t k = 2; k < args.inputs.size(); ++k) {
      x = at<T>(args.inputs[k], i);
      weight = hn::Set(d, static_cast<T>(args.scalars[k - 1]));
      s0 = hn::Add(s0, term(weight, x, w0));
      s1 = hn::Add(s1, term(weight, x + stride, w1));
      s2 = hn::Add(s2, term(weight, x + 2 * stride, w2));
      s3 = hn::Add(s3, term(weight, x + 3 * stride, w3));
    }
    store<kStream>(d, canonical(d, hn::Add(w0, s0)), y + i);
    store<kStream>(d, canonical(d, hn::Add(w1, s1)), y + i + stride);
    store<kStream>(d, canonical(d, hn::Add(w2, s2)), y + i + 2 * stride);
    store<kStream>(d, canonical(d, hn::Add(w3, s3)), y + i + 3 * stride);
  }
};

template <bool kStream, class Op>
HWY_INLINE void sweepAs(const Op &op, const Args &args, size_t begin, size_t end) {
  using T = typename Op::Element;
  const size_t lanes = hn::Lanes(typename Op::D());
  T *y = reinterpret_cast<T *>(args.outputs[0].data());
  size_t i = begin;
  if (kStream) // Streaming stores are aligned.
    for (; i < end && reinterpret_cast<uintptr_t>(y + i) % kLineBytes != 0; ++i)
      op.one(args, i);
  if (args.inputs.size() <= 3) { // With more inputs there are enough places already.
    constexpr size_t kPlace = kPlaceBytes / sizeof(T);
    for (; end - i >= 4 * kPlace; i += 4 * kPlace)
      for (size_t j = i; j < i + kPlace; j += lanes)
        op.template four<kStream, false>(args, y, j, kPlace);
    for (; end - i >= 4 * lanes; i += 4 * lanes)
      op.template four<kStream, false>(args, y, i, lanes);
  } else {
    for (; end - i >= 4 * lanes; i += 4 * lanes)
      op.template four<kStream, true>(args, y, i, lanes);
  }
  for (; i < end; ++i)
    op.one(args, i);
  if (kStream)
    hwy::FlushStream();
}

template <class Op>
HWY_INLINE void sweep(const Op &op, const Args &args, size_t begin, size_t end) {
  using T = typename Op::Element;
  bool stream = args.count * sizeof(T) >= kStreamBytesMin &&
                reinterpret_cast<uintptr_t>(args.outputs[0].data()) % sizeof(T) == 0;
  for (auto input : args.inputs) // In place, the lines are in the cache already.
    stream = stream && input.data() != args.outputs[0].data();
  if (stream)
    sweepAs<true>(op, args, begin, end);
  else
    sweepAs<false>(op, args, begin, end);
}

HWY_ATTR void copy(const Kernel &kernel, const Args &args, size_t begin, size_t end) {
  const size_t bytes = elementBytes(kernel.dtype), words = bytes / sizeof(uint32_t);
  if (args.count * bytes >= kStreamBytesMin) {
    Args wordArgs = args;
    wordArgs.count *= words;
    sweep(Copy{}, wordArgs, begin * words, end * words);
  } else if (begin < end) {
    std::memcpy(args.outputs[0].data() + begin * bytes, args.inputs[0].data() + begin * bytes,
                (end - begin) * bytes);
  }
}

template <typename T>
HWY_ATTR void reduceSum(const Kernel &, const Args &args, size_t begin, size_t end) {
  sweep(Reduce<T, Finish::Nothing>{T{1}}, args, begin, end);
}

template <typename T>
HWY_ATTR void reduceMean(const Kernel &, const Args &args, size_t begin, size_t end) {
  const T divisor = static_cast<T>(args.inputs.size());
  // By a power of two, multiplication and division round alike, and multiplication is much faster.
  if (std::has_single_bit(args.inputs.size()))
    sweep(Reduce<T, Finish::Multiply>{T{1} / divisor}, args, begin, end);
  else
    sweep(Reduce<T, Finish::Divide>{divisor}, args, begin, end);
}

template <typename T>
HWY_ATTR void mix(const Kernel &kernel, const Args &args, size_t begin, size_t end) {
  if (args.inputs.size() == 1) // Nobody to mix with.
    reduceSum<T>(kernel, args, begin, end);
  else
    sweep(Mix<T>{}, args, begin, end);
}

const ElementwiseRuns *elementwiseTable() {
  static constexpr ElementwiseRuns kRuns{
      copy,       reduceSum<float>, reduceSum<double>, reduceMean<float>, reduceMean<double>,
      mix<float>, mix<double>};
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
