// RUN: bagua-opt %s --bagua-verify-world-one --split-input-file --verify-diagnostics
// Alone, an algorithm equals plain training: a codec must not touch anything then.

#mm = #bagua.minmax<bits = 8, block = 512>
bagua.algorithm @negative_encode_unguarded {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{'bagua.encode' op expects to stand under a condition that implies `world > 1`: alone, an algorithm equals plain training}}
    %q = bagua.encode %g with #mm
  }
}

// -----

// A condition on something else, the wrong branch, a bound that one rank satisfies.
#mm = #bagua.minmax<bits = 8, block = 512>
bagua.algorithm @negative_encode_under_step {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %s = bagua.step
    %one = arith.constant 1 : index
    %later = arith.cmpi ugt, %s, %one : index
    scf.if %later {
      // expected-error@+1 {{expects to stand under a condition that implies `world > 1`}}
      %q = bagua.encode %g with #mm
    }
  }
}

// -----

#mm = #bagua.minmax<bits = 8, block = 512>
bagua.algorithm @negative_encode_in_else {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %n = bagua.world
    %one = arith.constant 1 : index
    %many = arith.cmpi ugt, %n, %one : index
    scf.if %many {
    } else {
      // expected-error@+1 {{expects to stand under a condition that implies `world > 1`}}
      %q = bagua.encode %g with #mm
    }
  }
}

// -----

#mm = #bagua.minmax<bits = 8, block = 512>
bagua.algorithm @negative_encode_at_least_one {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %n = bagua.world
    %one = arith.constant 1 : index
    %some = arith.cmpi uge, %n, %one : index
    scf.if %some {
      // expected-error@+1 {{expects to stand under a condition that implies `world > 1`}}
      %q = bagua.encode %g with #mm
    }
  }
}

// -----

// Ways to say it.
#mm = #bagua.minmax<bits = 8, block = 512>
bagua.algorithm @guarded {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %n = bagua.world
    %s = bagua.step
    %one = arith.constant 1 : index
    %two = arith.constant 2 : index
    %more = arith.cmpi ult, %one, %n : index
    %alone = arith.cmpi eq, %n, %one : index
    %two_or_more = arith.cmpi sge, %n, %two : index
    %late = arith.cmpi ugt, %s, %two : index
    %both = arith.andi %late, %two_or_more : i1
    %either = arith.ori %late, %alone : i1
    scf.if %more {
      %q = bagua.encode %g with #mm
    }
    scf.if %alone {
    } else {
      %q = bagua.encode %g with #mm
    }
    scf.if %both {
      scf.if %late {
        %q = bagua.encode %g with #mm
      }
    }
    scf.if %either {
    } else {
      %q = bagua.encode %g with #mm
    }
    %mean = bagua.all_reduce mean %g via #mm
    bagua.update gradient = %mean
  }
}
