// 1-bit Adam: Adam until its variance has settled; then the variance stays as it is, and momentum
// travels as signs, with a memory of what was lost at each rank and at each shard's owner.
// Tang et al., 1-bit Adam: Communication Efficient Large-Scale Training with Adam's Convergence Speed,
// arXiv 2102.02888, algorithm 1. Weight decay is added to the gradient.
//
// Two things are not as there. The variance is corrected for its start, by a factor that stays with it: else
// what a short warm-up leaves of it makes every later step too long. And what travels is momentum in units of the
// root of the variance, at most 1 as in Adam: a sign has the scale of its block, so an element whose variance is
// small beside its neighbours', or had not begun, would be thrown far by it.

!bucket = tensor<?xf32, #bagua.bucket>
!scalar = tensor<?xf32, #bagua.scalar>

bagua.algorithm @onebit_adam(%warmup: index = 100, %lr: f64 = 1.0e-3 per_step, %beta1: f64 = 0.9, %beta2: f64 = 0.999,
                             %eps: f64 = 1.0e-8, %weight_decay: f64 = 0.0 per_step) attributes {owns_update} {
  bagua.state @m : bucket = 0.0
  bagua.state @v : bucket = 0.0
  bagua.state @c2 : scalar = 0.0
  bagua.state @ew : bucket = 0.0
  bagua.state @es : shard<@world> = 0.0
  bagua.on gradient(%g: !bucket, %w: !bucket) {
    %one = arith.constant 1.0 : f64
    %d1 = arith.subf %one, %beta1 : f64
    %d2 = arith.subf %one, %beta2 : f64
    %m = bagua.read @m
    %v = bagua.read @v
    %c2 = bagua.read @c2 : !scalar
    %step = bagua.step
    %warm = arith.cmpi ult, %step, %warmup : index
    scf.if %warm {
      %mean = bagua.all_reduce mean %g
      %a = bagua.map %mean + %weight_decay * %w
      %m1 = bagua.map %beta1 * %m + %d1 * %a
      %v1 = bagua.map %beta2 * %v + %d2 * %a * %a
      %c1 = bagua.map %beta2 * %c2 + %d2 : !scalar
      bagua.update @m = %m1
      bagua.update @v = %v1
      bagua.update @c2 = %c1 : !scalar
      %w1 = bagua.map %w - %lr * %m1 / (sqrt(%v1 / %c1) + %eps)
      bagua.update weight = %w1 at before_update
    } else {
      %unit = bagua.map sqrt(%v / max(%c2, 1.0e-30)) + %eps
      %u = bagua.map max(-1.0, min(1.0, (%beta1 * %m + %d1 * (%g + %weight_decay * %w)) / %unit))
      %mean = bagua.all_reduce mean %u via #bagua.sign<block = 256> remember @ew, @es
      %m1 = bagua.map %mean * %unit
      bagua.update @m = %m1
      %w1 = bagua.map %w - %lr * %mean
      bagua.update weight = %w1 at before_update
    }
  }
}
