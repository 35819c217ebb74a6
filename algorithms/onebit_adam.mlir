// 1-bit Adam: Adam until its variance has settled; then the variance stays as it is, and momentum
// travels as signs, with a memory of what was lost at each rank and at each shard's owner.
// Tang et al., 1-bit Adam: Communication Efficient Large-Scale Training with Adam's Convergence Speed,
// arXiv 2102.02888, algorithm 1. Without bias correction, as there; weight decay is added to the gradient.

#sign = #bagua.sign<block = 4096>
!bucket = tensor<?xf32, #bagua.bucket>

bagua.algorithm @onebit_adam(%warmup: index = 100, %lr: f64 = 1.0e-3 per_step, %beta1: f64 = 0.9, %beta2: f64 = 0.999,
                             %eps: f64 = 1.0e-8, %weight_decay: f64 = 0.0 per_step) attributes {owns_update} {
  bagua.state @m : bucket = 0.0
  bagua.state @v : bucket = 0.0
  bagua.state @ew : bucket = 0.0
  bagua.state @es : shard<@world> = 0.0
  bagua.on gradient(%g: !bucket, %w: !bucket) {
    %unit = arith.constant 1.0 : f64
    %d1 = arith.subf %unit, %beta1 : f64
    %d2 = arith.subf %unit, %beta2 : f64
    %m = bagua.read @m
    %v = bagua.read @v
    %step = bagua.step
    %warm = arith.cmpi ult, %step, %warmup : index
    %m1, %v1 = scf.if %warm -> (!bucket, !bucket) {
      %mean = bagua.all_reduce mean %g
      %a = bagua.map %mean + %weight_decay * %w
      %mw = bagua.map %beta1 * %m + %d1 * %a
      %vw = bagua.map %beta2 * %v + %d2 * %a * %a
      scf.yield %mw, %vw : !bucket, !bucket
    } else {
      %local = bagua.map %beta1 * %m + %d1 * (%g + %weight_decay * %w)
      %ms = bagua.all_reduce mean %local via #sign remember @ew, @es
      scf.yield %ms, %v : !bucket, !bucket
    }
    bagua.update @m = %m1
    bagua.update @v = %v1
    %w1 = bagua.map %w - %lr * %m1 / (sqrt(%v1) + %eps)
    bagua.update weight = %w1 at before_update
  }
}
