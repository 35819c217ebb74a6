// Functions that handlers may call without defining them. Arithmetic is of one element; nothing
// here communicates. Differences from 1 are taken in f64: in f32, 1 - 0.999 is off by 1e-5 of itself.

!bucket = tensor<?xf32, #bagua.bucket>

/// Exponential moving average: beta * m + (1 - beta) * g.
func.func private @momentum(%m: !bucket, %g: !bucket, %beta: f64) -> !bucket {
  %one = arith.constant 1.0 : f64
  %rest = arith.subf %one, %beta : f64
  %new = bagua.map %beta * %m + %rest * %g
  return %new : !bucket
}

/// The same of squares: beta * v + (1 - beta) * g * g.
func.func private @second_moment(%v: !bucket, %g: !bucket, %beta: f64) -> !bucket {
  %one = arith.constant 1.0 : f64
  %rest = arith.subf %one, %beta : f64
  %new = bagua.map %beta * %v + %rest * (%g * %g)
  return %new : !bucket
}

/// Adam with bias correction; %t counts updates from 1. Yields the new weight, m and v.
func.func private @adam(%w: !bucket, %m: !bucket, %v: !bucket, %g: !bucket, %t: index, %lr: f64,
                        %beta1: f64, %beta2: f64, %eps: f64) -> (!bucket, !bucket, !bucket) {
  %m1 = bagua.call @momentum(%m, %g, %beta1) : (!bucket, !bucket, f64) -> !bucket
  %v1 = bagua.call @second_moment(%v, %g, %beta2) : (!bucket, !bucket, f64) -> !bucket
  %one = arith.constant 1.0 : f64
  %p1 = bagua.power %beta1, %t
  %p2 = bagua.power %beta2, %t
  %c1 = arith.subf %one, %p1 : f64
  %c2 = arith.subf %one, %p2 : f64
  %w1 = bagua.map %w - %lr * (%m1 / %c1) / (sqrt(%v1 / %c2) + %eps)
  return %w1, %m1, %v1 : !bucket, !bucket, !bucket
}

/// Gradient descent with momentum as PyTorch's SGD has it: buf = momentum * buf + g + decay * w;
/// w - lr * buf. Yields the new weight and buffer.
func.func private @sgd(%w: !bucket, %buffer: !bucket, %g: !bucket, %lr: f64, %momentum: f64,
                       %decay: f64) -> (!bucket, !bucket) {
  %b1 = bagua.map %momentum * %buffer + (%g + %decay * %w)
  %w1 = bagua.map %w - %lr * %b1
  return %w1, %b1 : !bucket, !bucket
}
