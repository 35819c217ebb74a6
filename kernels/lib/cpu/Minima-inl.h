// Minimum and maximum of IEEE 754-2019, compiled once per target inside its users.

// Per-target include guard.
#if defined(BAGUA_KERNELS_CPU_MINIMA_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef BAGUA_KERNELS_CPU_MINIMA_INL_H
#undef BAGUA_KERNELS_CPU_MINIMA_INL_H
#else
#define BAGUA_KERNELS_CPU_MINIMA_INL_H
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace bagua::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Whatever hardware does to NaN and to zeros of both signs: its minima of (a, b) and of (b, a) are
/// one number, or the two zeros, or, on x86, the NaN and the other operand. Joining the bits of two
/// equal numbers changes nothing, of zeros it keeps the sign, of a NaN it makes a NaN.
template <class D, class V> HWY_INLINE V minimum([[maybe_unused]] D d, V a, V b) {
#if HWY_ARCH_X86 && HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR
  return hn::Or(hn::Min(a, b), hn::Min(b, a));
#else
  const V least = hn::IfThenElse(hn::Lt(a, b), a, b); // b if it is NaN.
  const V zeros = hn::IfThenElse(hn::Eq(a, b), hn::Or(a, b), least);
  return hn::IfThenElse(hn::IsNaN(a), a, zeros);
#endif
}
template <class D, class V> HWY_INLINE V maximum(D d, V a, V b) {
  return hn::Neg(minimum(d, hn::Neg(a), hn::Neg(b)));
}

} // namespace HWY_NAMESPACE
} // namespace bagua::kernels
HWY_AFTER_NAMESPACE();

#endif // BAGUA_KERNELS_CPU_MINIMA_INL_H
