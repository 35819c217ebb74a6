// QAdam: Adam until its variance has settled; then the variance and its bias correction stay as they
// are, and momentum travels in 8 bits per element.
// BAGUA, arXiv 2107.01499, section 4; the structure is that of 1-bit Adam, arXiv 2102.02888, algorithm 1.
//
// @c1 and @c2 are moving averages of ones: 1 - beta^t over the steps that counted. Weight decay is added
// to the gradient, as torch.optim.Adam does. Momentum travels in units of the root of the variance, at most 1:
// codes of the same step for all would throw elements of little variance far.

!bucket = tensor<?xf32, #bagua.bucket>

bagua.algorithm @qadam(%warmup: index = 100, %lr: f64 = 1.0e-3 per_step, %beta1: f64 = 0.9, %beta2: f64 = 0.999, %eps: f64 = 1.0e-8, %weight_decay: f64 = 0.0 per_step) attributes {owns_update} {
  bagua.state @m : bucket = 0.0
  bagua.state @v : bucket = 0.0
  bagua.state @c1 : scalar = 0.0
  bagua.state @c2 : scalar = 0.0
  bagua.on gradient(%g: !bucket, %w: !bucket) {
    %one = arith.constant 1.0 : f64
    %d1 = arith.subf %one, %beta1 : f64
    %m = bagua.read @m
    %v = bagua.read @v
    %c1 = bagua.read @c1 : tensor<?xf32, #bagua.scalar>
    %c2 = bagua.read @c2 : tensor<?xf32, #bagua.scalar>
    %c1n = bagua.map %beta1 * %c1 + %d1 : tensor<?xf32, #bagua.scalar>
    bagua.update @c1 = %c1n : tensor<?xf32, #bagua.scalar>
    %step = bagua.step
    %warm = arith.cmpi ult, %step, %warmup : index
    scf.if %warm {
      %d2 = arith.subf %one, %beta2 : f64
      %mean = bagua.all_reduce mean %g
      %a = bagua.map %mean + %weight_decay * %w
      %m1 = bagua.map %beta1 * %m + %d1 * %a
      %v1 = bagua.map %beta2 * %v + %d2 * %a * %a
      %c2n = bagua.map %beta2 * %c2 + %d2 : tensor<?xf32, #bagua.scalar>
      bagua.update @m = %m1
      bagua.update @v = %v1
      bagua.update @c2 = %c2n : tensor<?xf32, #bagua.scalar>
      %w1 = bagua.map %w - %lr / %c1n * %m1 / (sqrt(%v1 / %c2n) + %eps)
      bagua.update weight = %w1 at before_update
    } else {
      %unit = bagua.map sqrt(%v / max(%c2, 1.0e-30)) + %eps
      %u = bagua.map max(-1.0, min(1.0, (%beta1 * %m + %d1 * (%g + %weight_decay * %w)) / %unit))
      %mean = bagua.all_reduce mean %u via #bagua.minmax<bits = 8, block = 2048>
      %m1 = bagua.map %mean * %unit
      bagua.update @m = %m1
      %w1 = bagua.map %w - %lr / %c1n * %mean
      bagua.update weight = %w1 at before_update
    }
  }
}
