// RUN: bagua-opt %s --bagua-verify-staleness --split-input-file --verify-diagnostics
// A rank that waits for a timed round must not be waited for by one that has not begun it.

!bucket = tensor<?xf32, #bagua.bucket>

bagua.algorithm @negative_gradients_beside_timed_rounds {
  bagua.on gradient(%g: !bucket) {
    // expected-error@+1 {{'bagua.all_reduce' op B160: waits for peers in a step, in which a rank that has not begun a timed round would wait for one that waits for that round: do it in the first steps only, under `step < %n` with `after(%n)`; or count steps: `every(%n steps)`}}
    %mean = bagua.all_reduce mean %g
    bagua.update gradient = %mean
  }
  // expected-note@+1 {{the timed rounds}}
  bagua.on async every(100 ms) staleness(4) (%w: !bucket) {
    bagua.update weight += %w
  }
}

// -----

!bucket = tensor<?xf32, #bagua.bucket>

// Steps before another number than that after which rounds begin.
bagua.algorithm @negative_other_warmup(%warmup: index = 10, %after: index = 5) {
  bagua.on gradient(%g: !bucket) {
    %step = bagua.step
    %warm = arith.cmpi ult, %step, %warmup : index
    scf.if %warm {
      // expected-error@+1 {{'bagua.all_reduce' op B160: waits for peers in a step}}
      %mean = bagua.all_reduce mean %g
      bagua.update gradient = %mean
    }
  }
  // expected-note@+1 {{the timed rounds}}
  bagua.on async every(100 ms) after(%after) staleness(4) (%w: !bucket) {
    bagua.update weight += %w
  }
}

// -----

!bucket = tensor<?xf32, #bagua.bucket>

// The branch that is taken later.
bagua.algorithm @negative_wrong_branch(%warmup: index = 10) {
  bagua.on gradient(%g: !bucket) {
    %step = bagua.step
    %warm = arith.cmpi ult, %step, %warmup : index
    scf.if %warm {
    } else {
      // expected-error@+1 {{'bagua.all_reduce' op B160: waits for peers in a step}}
      %mean = bagua.all_reduce mean %g
      bagua.update gradient = %mean
    }
  }
  // expected-note@+1 {{the timed rounds}}
  bagua.on async every(100 ms) after(%warmup) staleness(4) (%w: !bucket) {
    bagua.update weight += %w
  }
}

// -----

!bucket = tensor<?xf32, #bagua.bucket>

bagua.algorithm @negative_state_beside_timed_rounds {
  bagua.state @m : bucket = 0.0
  bagua.on gradient(%g: !bucket) {
    %m = bagua.read @m
    // expected-error@+1 {{'bagua.update' op B160: is stored only once all ranks agree that the step is finite, in which}}
    bagua.update @m = %g
    bagua.update gradient = %m
  }
  // expected-note@+1 {{the timed rounds}}
  bagua.on async every(100 ms) staleness(4) (%w: !bucket) {
    bagua.update weight += %w
  }
}

// -----

!bucket = tensor<?xf32, #bagua.bucket>

bagua.algorithm @negative_after_update_beside_timed_rounds {
  // expected-error@+1 {{'bagua.on' op B160: of after_update runs only once all ranks agree that the step is finite, in which}}
  bagua.on after_update(%w: !bucket) {
    bagua.update weight = %w
  }
  // expected-note@+1 {{the timed rounds}}
  bagua.on async every(100 ms) staleness(4) (%w: !bucket) {
    bagua.update weight += %w
  }
}

// -----

!bucket = tensor<?xf32, #bagua.bucket>

// Before the first round all may be done together, however it is said.
bagua.algorithm @warmup_in_all_spellings(%warmup: index = 10) {
  bagua.on gradient(%g: !bucket) {
    %step = bagua.step
    %world = bagua.world
    %one = arith.constant 1 : index
    %many = arith.cmpi ugt, %world, %one : index
    %a = arith.cmpi ult, %step, %warmup : index
    %b = arith.cmpi sgt, %warmup, %step : index
    %c = arith.cmpi sge, %step, %warmup : index
    %d = arith.cmpi ule, %warmup, %step : index
    %e = arith.andi %many, %a : i1
    %0 = scf.if %e -> !bucket {
      %mean = bagua.all_reduce mean %g
      scf.yield %mean : !bucket
    } else {
      scf.yield %g : !bucket
    }
    %1 = scf.if %b -> !bucket {
      %mean = bagua.all_reduce mean %0
      scf.yield %mean : !bucket
    } else {
      scf.yield %0 : !bucket
    }
    %2 = scf.if %c -> !bucket {
      scf.yield %1 : !bucket
    } else {
      %mean = bagua.all_reduce mean %1
      scf.yield %mean : !bucket
    }
    %3 = scf.if %d -> !bucket {
      scf.yield %2 : !bucket
    } else {
      %mean = bagua.all_reduce mean %2
      scf.yield %mean : !bucket
    }
    bagua.update gradient = %3
  }
  bagua.on async every(100 ms) after(%warmup) staleness(4) (%w: !bucket) {
    bagua.update weight += %w
  }
}

// -----

!bucket = tensor<?xf32, #bagua.bucket>

// Rounds that count steps begin at the same boundaries on all ranks: anything may stand beside them.
bagua.algorithm @gradients_beside_counted_rounds {
  bagua.on gradient(%g: !bucket) {
    %mean = bagua.all_reduce mean %g
    bagua.update gradient = %mean
  }
  bagua.on async every(4 steps) staleness(2) (%w: !bucket) {
    bagua.update weight += %w
  }
}

// -----

!bucket = tensor<?xf32, #bagua.bucket>

// What all_reduce remembers is a state's next value, before the first round, too.
bagua.algorithm @negative_remembers(%warmup: index = 5) {
  bagua.state @e : bucket = 0.0
  bagua.on gradient(%g: !bucket) {
    %step = bagua.step
    %warm = arith.cmpi ult, %step, %warmup : index
    %m = scf.if %warm -> !bucket {
      // expected-error@+1 {{B160: is stored only once all ranks agree that the step is finite}}
      %mean = bagua.all_reduce mean %g via #bagua.f16 remember @e
      scf.yield %mean : !bucket
    } else {
      scf.yield %g : !bucket
    }
    bagua.update gradient = %m
  }
  // expected-note@+1 {{the timed rounds}}
  bagua.on async every(100 ms) after(%warmup) staleness(4) (%w: !bucket) {
    bagua.update weight += %w
  }
}
