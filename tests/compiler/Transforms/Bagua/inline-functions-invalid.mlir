// RUN: bagua-opt %s --bagua-inline-functions --split-input-file --verify-diagnostics
// What cannot be inlined, labelled with its number in SPEC.md.

// F1
// expected-error@+1 {{'func.func' op expects to be private: only handlers of this file call it; write `func.func private`}}
func.func @negative_public(%x: f64) -> f64 {
  return %x : f64
}

// -----

// F1
// expected-error@+1 {{'func.func' op expects a body}}
func.func private @negative_external(f64) -> f64

// -----

// F2
bagua.algorithm @negative_unknown {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{'bagua.call' op calls @adagrad, which neither this file nor the prelude defines}}
    %x = bagua.call @adagrad(%g) : (tensor<?xf32, #bagua.bucket>) -> tensor<?xf32, #bagua.bucket>
    bagua.update gradient = %x
  }
}

// -----

// F3
func.func private @ping(%x: f64) -> f64 {
  %y = bagua.call @pong(%x) : (f64) -> f64
  return %y : f64
}
func.func private @pong(%x: f64) -> f64 {
  // expected-error@+1 {{'bagua.call' op expects functions that do not call themselves, got @ping called from @pong}}
  %y = bagua.call @ping(%x) : (f64) -> f64
  return %y : f64
}
bagua.algorithm @negative_recursion(%a: f64 = 1.0) {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %x = bagua.call @ping(%a) : (f64) -> f64
    %y = bagua.map %g * %x
    bagua.update gradient = %y
  }
}

// -----

// F4
bagua.algorithm @negative_type {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{'bagua.call' op expects the type of @momentum, }}
    %x = bagua.call @momentum(%g) : (tensor<?xf32, #bagua.bucket>) -> tensor<?xf32, #bagua.bucket>
    bagua.update gradient = %x
  }
}
