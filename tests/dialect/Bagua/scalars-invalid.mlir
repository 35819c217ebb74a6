// RUN: bagua-opt %s --split-input-file --verify-diagnostics

// on_C2: what SPEC.md, "Scalars", does not list, and what to take instead.

bagua.algorithm @negative_cmpf(%tau: f64 = 0.5) {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %half = arith.constant 0.5 : f64
    // expected-error@+1 {{'arith.cmpf' op is not allowed in a handler: expects ops of bagua, scf.if and those of arith that SPEC.md lists under "Scalars"; a condition is of indices; what depends on an f64 or on the data is a select in a bagua.map}}
    %c = arith.cmpf ogt, %tau, %half : f64
    bagua.update gradient = %g
  }
}

// -----

bagua.algorithm @negative_divsi(%k: index = 3) {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %s = bagua.step
    // expected-error@+1 {{lists under "Scalars"; take arith.floordivsi}}
    %c = arith.divsi %s, %k : index
    bagua.update gradient = %g
  }
}

// -----

bagua.algorithm @negative_shift(%k: index = 3) {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{lists under "Scalars"; take arith.muli or arith.floordivsi}}
    %c = arith.shli %k, %k : index
    bagua.update gradient = %g
  }
}

// -----

bagua.algorithm @negative_maximumf(%a: f64 = 3.0) {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{lists under "Scalars"; bagua.map has sqrt, abs, sign, min, max, fma, rint, floor and select}}
    %c = arith.maximumf %a, %a : f64
    bagua.update gradient = %g
  }
}

// -----

// Bits are no conditions.
bagua.algorithm @negative_bits(%k: index = 3) {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{'arith.andi' op is not allowed in a handler}}
    %c = arith.andi %k, %k : index
    bagua.update gradient = %g
  }
}

// -----

bagua.algorithm @negative_uitofp(%k: index = 3) {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %l = arith.index_cast %k : index to i64
    // expected-error@+1 {{lists under "Scalars"; take bagua.to_f64}}
    %c = arith.uitofp %l : i64 to f64
    bagua.update gradient = %g
  }
}

// -----

bagua.algorithm @negative_f32 {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{'arith.constant' op expects scalars in a handler, index, i1, i64 or f64, got 'f32'}}
    %c = arith.constant 0.5 : f32
    bagua.update gradient = %g
  }
}

// -----

bagua.algorithm @negative_powf(%a: f64 = 3.0) {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{lists under "Scalars"; take bagua.power}}
    %c = math.powf %a, %a : f64
    bagua.update gradient = %g
  }
}

// -----

bagua.algorithm @negative_sqrt(%a: f64 = 3.0) {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{lists under "Scalars"; bagua.map has sqrt}}
    %c = math.sqrt %a : f64
    bagua.update gradient = %g
  }
}

// -----

// A norm is data.
bagua.algorithm @negative_norm_decides(%tau: f64 = 0.5) {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-note@+1 {{prior use here}}
    %n = bagua.norm %g
    // expected-error@+2 {{expects different type than prior uses}}
    // expected-note@+1 {{a scalar of dot, norm or a state is data, which arith and conditions do not see: use it in a bagua.map, with select(condition, a, b) where something depends on it}}
    %c = arith.cmpf ogt, %n, %tau : f64
    bagua.update gradient = %g
  }
}

// -----

// algorithm_C8, P1
// expected-error@+1 {{expects a default of parameter %warmup of at least 0, got -1: an index is never negative; of signed numbers, take f64}}
bagua.algorithm @negative_negative(%warmup: index = -1) {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %step = bagua.step
    %warm = arith.cmpi ult, %step, %warmup : index
    scf.if %warm {
      %mean = bagua.all_reduce mean %g
      bagua.update gradient = %mean
    }
  }
}

// -----

// algorithm_C8, P1
// expected-error@+1 {{expects a default of parameter %interval of at least 1, got 0}}
bagua.algorithm @negative_interval(%interval: index = 0) {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %step = bagua.step
    %zero = arith.constant 0 : index
    // expected-note@+1 {{divided by it}}
    %rest = arith.remsi %step, %interval : index
    %due = arith.cmpi eq, %rest, %zero : index
    scf.if %due {
      %mean = bagua.all_reduce mean %g
      bagua.update gradient = %mean
    }
  }
}

// -----

// Fine: 0 is asked for.
bagua.algorithm @guarded(%interval: index = 0) {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %step = bagua.step
    %zero = arith.constant 0 : index
    %some = arith.cmpi ugt, %interval, %zero : index
    %rest = arith.remsi %step, %interval : index
    %first = arith.cmpi eq, %rest, %zero : index
    %due = arith.andi %some, %first : i1
    scf.if %due {
      %mean = bagua.all_reduce mean %g
      bagua.update gradient = %mean
    }
  }
}

// -----

// algorithm_C8, P1
// expected-error@+1 {{expects a default of parameter %interval of at most 2^53, got 9007199254740993: for what never happens, take 9007199254740992}}
bagua.algorithm @negative_inexact(%interval: index = 9007199254740993) {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    bagua.update gradient = %g
  }
}

// -----

// Fine: 2^53, which an f64 holds.
bagua.algorithm @largest(%interval: index = 9007199254740992) {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    bagua.update gradient = %g
  }
}

// -----

// on_C2
bagua.algorithm @negative_by_zero {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %step = bagua.step
    %zero = arith.constant 0 : index
    // expected-error@+1 {{'arith.remsi' op divides by the constant 0: expects a divisor of at least 1, as an interval of 1 for every step}}
    %rest = arith.remsi %step, %zero : index
    bagua.update gradient = %g
  }
}

// -----

// on_C2
bagua.algorithm @negative_by_zero_unsigned {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %step = bagua.step
    %zero = arith.constant 0 : index
    // expected-error@+1 {{'arith.divui' op divides by the constant 0}}
    %rest = arith.divui %step, %zero : index
    bagua.update gradient = %g
  }
}
