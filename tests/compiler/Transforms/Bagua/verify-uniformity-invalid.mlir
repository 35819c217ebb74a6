// RUN: bagua-opt %s --bagua-verify-uniformity --split-input-file --verify-diagnostics
// Every rank must take the same branch, or sends miss their receives.

bagua.algorithm @negative_rank_in_condition {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-note@+1 {{got one that depends on bagua.rank}}
    %r = bagua.rank
    %zero = arith.constant 0 : index
    %first = arith.cmpi eq, %r, %zero : index
    // expected-error@+1 {{'scf.if' op expects a condition that is the same on all ranks, from bagua.world, bagua.local_size, bagua.nodes, bagua.step, parameters and constants}}
    scf.if %first {
      %mean = bagua.all_reduce mean %g
      bagua.update gradient = %mean
    }
  }
}

// -----

// Through arithmetic, and from inside another branch.
bagua.algorithm @negative_rank_through_arithmetic {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %n = bagua.world
    %one = arith.constant 1 : index
    %many = arith.cmpi ugt, %n, %one : index
    scf.if %many {
      // expected-note@+1 {{got one that depends on bagua.rank}}
      %r = bagua.rank
      %sum = arith.addi %r, %n : index
      %mod = arith.remui %sum, %n : index
      %odd = arith.cmpi ne, %mod, %one : index
      // expected-error@+1 {{'scf.if' op expects a condition that is the same on all ranks}}
      scf.if %odd {
        bagua.update gradient = %g
      }
    }
  }
}

// -----

// Through the result of a uniform branch.
bagua.algorithm @negative_rank_through_yield {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %n = bagua.world
    // expected-note@+1 {{got one that depends on bagua.rank}}
    %r = bagua.rank
    %one = arith.constant 1 : index
    %many = arith.cmpi ugt, %n, %one : index
    %some = scf.if %many -> (index) {
      scf.yield %r : index
    } else {
      scf.yield %one : index
    }
    %condition = arith.cmpi eq, %some, %one : index
    // expected-error@+1 {{'scf.if' op expects a condition that is the same on all ranks}}
    scf.if %condition {
      bagua.update gradient = %g
    }
  }
}

// -----

// World, step and constants are the same everywhere; the rank may be used where nothing branches on it.
bagua.algorithm @uniform {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %n = bagua.world
    %s = bagua.step
    %r = bagua.rank
    %two = arith.constant 2 : index
    %unused = arith.addi %r, %two : index
    %phase = arith.remui %s, %two : index
    %even = arith.cmpi ne, %phase, %two : index
    %some = scf.if %even -> (index) {
      scf.yield %n : index
    } else {
      scf.yield %phase : index
    }
    %condition = arith.cmpi eq, %some, %two : index
    scf.if %condition {
      %mean = bagua.all_reduce mean %g
      bagua.update gradient = %mean
    }
  }
}
