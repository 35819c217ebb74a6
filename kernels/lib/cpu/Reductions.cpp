// dot, norm, all_finite and random_uniform for every instruction-set target.
#include "Runs.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/Reductions.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "cpu/Codec-inl.h"

HWY_BEFORE_NAMESPACE();
namespace bagua::kernels {
namespace HWY_NAMESPACE {
namespace {

HWY_INLINE hn::Vec<F64> load64(const std::byte *x, size_t index, float) {
  const hn::Rebind<float, F64> d32;
  return hn::PromoteTo(F64(), hn::LoadU(d32, floats(x) + index));
}
HWY_INLINE hn::Vec<F64> load64(const std::byte *x, size_t index, double) {
  return hn::LoadU(F64(), reinterpret_cast<const double *>(x) + index); // May be unaligned.
}

template <typename T>
HWY_INLINE double dotOf(const std::byte *x, const std::byte *y, size_t count) {
  const F64 d;
  constexpr size_t kVectors = kPartials / hn::MaxLanes(F64());
  const size_t lanes = hn::Lanes(d);
  hn::Vec<F64> sums[kVectors];
  for (size_t a = 0; a < kVectors; ++a)
    sums[a] = hn::Zero(d);
  PrefetchCursor xCursor(x), yCursor(y);
  size_t i = 0;
  for (; count - i >= kPartials; i += kPartials) {
    prefetchBytes(&xCursor, kPartials * sizeof(T));
    if (x != y)
      prefetchBytes(&yCursor, kPartials * sizeof(T));
    for (size_t a = 0; a < kVectors; ++a)
      sums[a] =
          hn::Add(sums[a], hn::Mul(load64(x, i + a * lanes, T()), load64(y, i + a * lanes, T())));
  }
  HWY_ALIGN double partials[kPartials];
  for (size_t a = 0; a < kVectors; ++a)
    hn::Store(sums[a], d, partials + a * lanes);
  for (size_t j = 0; i < count; ++i, ++j)
    partials[j] =
        partials[j] + static_cast<double>(loadOne<T>(x, i)) * static_cast<double>(loadOne<T>(y, i));
  return foldPartials(partials);
}

template <typename T> HWY_ATTR void dot(const Kernel &, const Args &args, size_t, size_t) {
  const double sum = dotOf<T>(args.inputs[0].data(), args.inputs[1].data(), args.count);
  storeOne(args.outputs[0].data(), 0, finishOne(static_cast<T>(sum)));
}

template <typename T> HWY_ATTR void norm(const Kernel &, const Args &args, size_t, size_t) {
  const double sum = dotOf<T>(args.inputs[0].data(), args.inputs[0].data(), args.count);
  storeOne(args.outputs[0].data(), 0, finishOne(static_cast<T>(std::sqrt(sum))));
}

template <typename T> HWY_ATTR void allFinite(const Kernel &, const Args &args, size_t, size_t) {
  const hn::ScalableTag<T> d;
  const size_t lanes = hn::Lanes(d);
  const std::byte *x = args.inputs[0].data();
  const T *p = reinterpret_cast<const T *>(x); // Only for LoadU.
  PrefetchCursor cursor(x);
  auto bad0 = hn::Zero(d), bad1 = bad0; // x - x is +0 for a finite x, else NaN.
  size_t i = 0;
  for (; args.count - i >= kStep; i += kStep) {
    prefetchBytes(&cursor, kStep * sizeof(T));
    for (size_t j = i; j < i + kStep; j += 2 * lanes) {
      const auto v0 = hn::LoadU(d, p + j), v1 = hn::LoadU(d, p + j + lanes);
      bad0 = hn::Or(bad0, hn::Sub(v0, v0));
      bad1 = hn::Or(bad1, hn::Sub(v1, v1));
    }
  }
  bool finite = hn::AllTrue(d, hn::Eq(hn::Or(bad0, bad1), hn::Zero(d)));
  for (; i < args.count; ++i) {
    const T v = loadOne<T>(x, i);
    finite = finite && v - v == T{0};
  }
  storeOne(args.outputs[0].data(), 0, finite ? T{1} : T{0});
}

template <typename T>
HWY_ATTR void randomUniform(const Kernel &, const Args &args, size_t begin, size_t end) {
  HWY_ALIGN uint32_t words[kTile + kWordsSlack];
  const RandomScalars scalars(args.scalars);
  const RandomStream stream(scalars);
  for (size_t first = begin; first < end; first += kTile) {
    const size_t count = std::min(kTile, end - first);
    const uint32_t *used = fillWords(stream, scalars.first + first, count, words);
    std::byte *y = args.outputs[0].data() + first * sizeof(T);
    size_t i = 0;
    if (sizeof(T) == sizeof(float))
      for (; count - i >= hn::Lanes(F32()); i += hn::Lanes(F32())) {
        const auto bits = hn::BitCast(I32(), hn::ShiftRight<8>(hn::LoadU(U32(), used + i)));
        hn::StoreU(hn::Mul(hn::ConvertTo(F32(), bits), hn::Set(F32(), 0x1p-24f)), F32(),
                   floats(y) + i);
      }
    for (; i < count; ++i)
      storeOne(y, i, static_cast<T>(uniformOf(used[i])));
  }
}

template <typename T> const ReductionRuns *reductionTable() {
  static constexpr ReductionRuns kRuns{dot<T>, norm<T>, allFinite<T>, randomUniform<T>};
  return &kRuns;
}
const ReductionRuns *reductionTableF32() { return reductionTable<float>(); }
const ReductionRuns *reductionTableF64() { return reductionTable<double>(); }

} // namespace
} // namespace HWY_NAMESPACE
} // namespace bagua::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bagua::kernels {
HWY_EXPORT(reductionTableF32);
HWY_EXPORT(reductionTableF64);

const ReductionRuns &reductionRuns(int64_t target, DType dtype) {
  hwy::ChosenTarget chosen; // Ours: Highway's own choice is global to the process.
  chosen.Update(target);
  return dtype == DType::F32 ? *HWY_DISPATCH_TABLE(reductionTableF32)[chosen.GetIndex()]()
                             : *HWY_DISPATCH_TABLE(reductionTableF64)[chosen.GetIndex()]();
}

} // namespace bagua::kernels
#endif
