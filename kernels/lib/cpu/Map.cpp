// The steps of the map interpreter for every instruction-set target: one sweep over a tile each.
#include "Runs.h"
#include "common/Elementwise.h"
#include "common/MapPlan.h"
#include "common/Sweep.h"

#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/Map.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "cpu/Minima-inl.h"

HWY_BEFORE_NAMESPACE();
namespace bagua::kernels {
namespace HWY_NAMESPACE {
namespace map { // Other sources have operations of the same names.
namespace hn = hwy::HWY_NAMESPACE;

template <typename T> using Tag = hn::CappedTag<T, kMapVectorBytesMax / sizeof(T)>;

// Operations on vectors. A boolean is a vector of all ones or all zeros per lane.
#define BAGUA_MAP_OP(name, arity, expression)                                                      \
  struct name {                                                                                    \
    static constexpr int kArity = arity;                                                           \
    template <class D, class V>                                                                    \
    HWY_INLINE V operator()([[maybe_unused]] D d, [[maybe_unused]] V a, [[maybe_unused]] V b,      \
                            [[maybe_unused]] V c, [[maybe_unused]] V e) const {                    \
      return expression;                                                                           \
    }                                                                                              \
  }

template <class D, class V> HWY_INLINE V fused(D d, V a, V b, V c) {
#if HWY_NATIVE_FMA
  (void)d;
  return hn::MulAdd(a, b, c);
#else
  using T = hn::TFromD<D>;
  alignas(kMapVectorBytesMax) T x[hn::MaxLanes(D())], y[hn::MaxLanes(D())], z[hn::MaxLanes(D())];
  hn::Store(a, d, x);
  hn::Store(b, d, y);
  hn::Store(c, d, z);
  for (size_t i = 0; i < hn::Lanes(d); ++i)
    x[i] = std::fma(x[i], y[i], z[i]);
  return hn::Load(d, x);
#endif
}

template <class D, class V> HWY_INLINE V signOf(D d, V a) {
  const V one = hn::Set(d, hn::TFromD<D>{1});
  return hn::IfThenElse(hn::Lt(hn::Zero(d), hn::Abs(a)), hn::CopySign(one, a), a);
}

/// Where rounding is emulated, it loses the sign of a zero.
template <class V> HWY_INLINE V keepSign(V rounded, V a) {
#if HWY_TARGET == HWY_SSE2 || HWY_TARGET == HWY_SSSE3 || HWY_TARGET == HWY_EMU128 ||               \
    HWY_TARGET == HWY_SCALAR
  return hn::CopySign(rounded, a);
#else
  (void)a;
  return rounded;
#endif
}

BAGUA_MAP_OP(Copy, 1, a);
BAGUA_MAP_OP(Add, 2, hn::Add(a, b));
BAGUA_MAP_OP(Sub, 2, hn::Sub(a, b));
BAGUA_MAP_OP(Mul, 2, hn::Mul(a, b));
BAGUA_MAP_OP(Div, 2, hn::Div(a, b));
BAGUA_MAP_OP(Fma, 3, fused(d, a, b, c));
BAGUA_MAP_OP(Sqrt, 1, hn::Sqrt(a));
BAGUA_MAP_OP(Neg, 1, hn::Neg(a));
BAGUA_MAP_OP(Abs, 1, hn::Abs(a));
BAGUA_MAP_OP(Sign, 1, signOf(d, a));
BAGUA_MAP_OP(Min, 2, minimum(d, a, b));
BAGUA_MAP_OP(Max, 2, maximum(d, a, b));
BAGUA_MAP_OP(Rint, 1, keepSign(hn::Round(a), a));
BAGUA_MAP_OP(Floor, 1, keepSign(hn::Floor(a), a));
BAGUA_MAP_OP(Lt, 2, hn::VecFromMask(d, hn::Lt(a, b)));
BAGUA_MAP_OP(Le, 2, hn::VecFromMask(d, hn::Le(a, b)));
BAGUA_MAP_OP(Eq, 2, hn::VecFromMask(d, hn::Eq(a, b)));
// Some targets have no unordered "not equal".
BAGUA_MAP_OP(Ne, 2, hn::Not(hn::VecFromMask(d, hn::Eq(a, b))));
BAGUA_MAP_OP(And, 2, hn::And(a, b));
BAGUA_MAP_OP(Or, 2, hn::Or(a, b));
BAGUA_MAP_OP(Not, 1, hn::Not(a));
BAGUA_MAP_OP(Select, 3, hn::IfThenElse(hn::MaskFromVec(a), b, c));
BAGUA_MAP_OP(MulAdd, 3, hn::Add(hn::Mul(a, b), c));
BAGUA_MAP_OP(MulSub, 3, hn::Sub(hn::Mul(a, b), c));
BAGUA_MAP_OP(SubOfMul, 3, hn::Sub(c, hn::Mul(a, b)));
BAGUA_MAP_OP(MulAddMul, 4, hn::Add(hn::Mul(a, b), hn::Mul(c, e)));
BAGUA_MAP_OP(MulOfSub, 3, hn::Mul(hn::Sub(a, b), c));
BAGUA_MAP_OP(AddMulOfSub, 4, hn::Add(hn::Mul(hn::Sub(a, b), c), e));
#undef BAGUA_MAP_OP

/// Walks along an operand; `kUsed` is false for those that the operation lacks.
template <class D, bool kUsed> class Reader {
public:
  HWY_INLINE Reader(D, const MapOperand &operand)
      : at_(kUsed ? operand.at : nullptr), step_(operand.step) {}
  HWY_INLINE hn::Vec<D> vector(D d, size_t k) const {
    if constexpr (kUsed)
      return hn::LoadU(d, reinterpret_cast<const hn::TFromD<D> *>(at_ + k * step_));
    else
      return hn::Zero(d);
  }
  HWY_INLINE void advance(size_t vectors) {
    if constexpr (kUsed)
      at_ += vectors * step_;
  }

private:
  const std::byte *at_;
  size_t step_;
};

// Compilers would unroll further, for 56 operations and every target.
#if defined(__clang__)
#define BAGUA_LOOP_AS_WRITTEN _Pragma("clang loop unroll(disable) vectorize(disable)")
#else
#define BAGUA_LOOP_AS_WRITTEN _Pragma("GCC unroll 1")
#endif

/// In integers: by LLVM's rules one NaN is as good as another, and it drops the choice between NaN
/// and a floating-point result.
template <class D, class V> HWY_INLINE V canonical(D d, V v) {
  using T = hn::TFromD<D>;
  const hn::RebindToSigned<D> di;
  const auto infinity = hn::BitCast(di, hn::Set(d, std::numeric_limits<T>::infinity()));
  const auto magnitude = hn::BitCast(di, hn::Abs(v));
  const auto nan = hn::BitCast(di, hn::Set(d, kNan<T>));
  const auto bits = hn::BitCast(di, v);
  return hn::BitCast(d, hn::IfThenElse(hn::Gt(magnitude, infinity), nan, bits));
}

template <bool kOutput, class D, class V> HWY_INLINE void store(D d, V v, hn::TFromD<D> *y) {
  if constexpr (kOutput)
    hn::StoreU(canonical(d, v), d, y);
  else
    hn::Store(v, d, y);
}

template <typename T, class Op, bool kOutput>
HWY_INLINE void sweep(const MapOperand *operands, const MapStep &step, size_t count, T *y) {
  const Tag<T> d;
  using D = Tag<T>;
  const Op op;
  const size_t lanes = hn::Lanes(d);
  Reader<D, true> a(d, operands[step.a]);
  Reader<D, (Op::kArity > 1)> b(d, operands[step.b]);
  Reader<D, (Op::kArity > 2)> c(d, operands[step.c]);
  Reader<D, (Op::kArity > 3)> e(d, operands[step.d]);
  size_t i = 0;
  BAGUA_LOOP_AS_WRITTEN
  for (; count - i >= 4 * lanes; i += 4 * lanes) { // Reads before it writes: y may be an operand.
    const auto v0 = op(d, a.vector(d, 0), b.vector(d, 0), c.vector(d, 0), e.vector(d, 0));
    const auto v1 = op(d, a.vector(d, 1), b.vector(d, 1), c.vector(d, 1), e.vector(d, 1));
    const auto v2 = op(d, a.vector(d, 2), b.vector(d, 2), c.vector(d, 2), e.vector(d, 2));
    const auto v3 = op(d, a.vector(d, 3), b.vector(d, 3), c.vector(d, 3), e.vector(d, 3));
    a.advance(4), b.advance(4), c.advance(4), e.advance(4);
    store<kOutput>(d, v0, y + i), store<kOutput>(d, v1, y + i + lanes);
    store<kOutput>(d, v2, y + i + 2 * lanes), store<kOutput>(d, v3, y + i + 3 * lanes);
  }
  BAGUA_LOOP_AS_WRITTEN
  for (; i < count; i += lanes) {
    const auto v = op(d, a.vector(d, 0), b.vector(d, 0), c.vector(d, 0), e.vector(d, 0));
    store<kOutput>(d, v, y + i);
    a.advance(1), b.advance(1), c.advance(1), e.advance(1);
  }
}

template <typename T, class Op>
HWY_NOINLINE HWY_ATTR void toTile(const MapOperand *operands, const MapStep &step, size_t count,
                                  T *y) {
  sweep<T, Op, false>(operands, step, count, y);
}

template <typename T> HWY_NOINLINE HWY_ATTR void streamOut(const T *x, size_t count, T *y) {
  const Tag<T> d;
  for (size_t i = 0; i < count; i += hn::Lanes(d))
    hn::Stream(canonical(d, hn::Load(d, x + i)), d, y + i);
}

template <typename T, class Op>
HWY_ATTR void toSlot(const MapOperand *operands, const MapStep &step, size_t count) {
  toTile<T, Op>(operands, step, count, reinterpret_cast<T *>(operands[step.y].at));
}

template <typename T, class Op>
HWY_ATTR void toOutput(const MapOperand *operands, const MapStep &step, size_t count) {
  T *y = reinterpret_cast<T *>(operands[step.y].at);
  if (!operands[step.y].stream) {
    sweep<T, Op, true>(operands, step, count, y);
    return;
  }
  alignas(kMapVectorBytesMax) T tile[kMapTileMax * sizeof(float) / sizeof(T)];
  toTile<T, Op>(operands, step, count, tile);
  streamOut(tile, count, y);
}

template <typename T, class... Ops> MapTileRuns table() {
  static_assert(sizeof...(Ops) == kMapTileOpCount);
  return {hn::Lanes(Tag<T>()), {toSlot<T, Ops>...}, {toOutput<T, Ops>...}};
}

template <typename T> const MapTileRuns *mapTable() {
  // In the order of MapTileOp.
  static const MapTileRuns kRuns =
      table<T, Copy, Add, Sub, Mul, Div, Fma, Sqrt, Neg, Abs, Sign, Min, Max, Rint, Floor, Lt, Le,
            Eq, Ne, And, Or, Not, Select, MulAdd, MulSub, SubOfMul, MulAddMul, MulOfSub,
            AddMulOfSub>();
  return &kRuns;
}

} // namespace map

const MapTileRuns *mapTableF32() { return map::mapTable<float>(); }
const MapTileRuns *mapTableF64() { return map::mapTable<double>(); }

} // namespace HWY_NAMESPACE
} // namespace bagua::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bagua::kernels {
HWY_EXPORT(mapTableF32);
HWY_EXPORT(mapTableF64);

const MapTileRuns &mapTileRuns(int64_t target, DType dtype) {
  hwy::ChosenTarget chosen; // Ours: Highway's own choice is global to the process.
  chosen.Update(target);
  return dtype == DType::F32 ? *HWY_DISPATCH_TABLE(mapTableF32)[chosen.GetIndex()]()
                             : *HWY_DISPATCH_TABLE(mapTableF64)[chosen.GetIndex()]();
}

} // namespace bagua::kernels
#endif
