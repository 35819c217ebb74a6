// RUN: bagua-opt %s --bagua-inline-functions --bagua-verify-uniformity --bagua-verify-uses --bagua-verify-mixing --bagua-verify-residuals --split-input-file --verify-diagnostics

// The ten mistakes of dialect/README.md, "Ten mistakes", in its order.

bagua.algorithm @result_without_update {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{'bagua.all_reduce' op expects its result to reach a bagua.update, directly or through other ops, got one that nothing uses: write `bagua.update gradient = %result`}}
    %mean = bagua.all_reduce mean %g
  }
}

// -----

bagua.algorithm @rank_decides {
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

bagua.algorithm @weight_of_another(%lr: f64 = 0.1 per_step) {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>, %w: tensor<?xf32, #bagua.bucket>) {
    %mean = bagua.all_reduce mean %g
    %x = bagua.map %w - %lr * %mean
    // expected-error@+1 {{'bagua.update' op of the weight is not allowed in a handler of gradient: expects gradient; or let the algorithm own the update: `attributes {owns_update}`}}
    bagua.update weight = %x at before_update
  }
}

// -----

bagua.algorithm @weight_too_early {
  bagua.on before_forward(%w: tensor<?xf32, #bagua.bucket>) {
    %mean = bagua.all_reduce mean %w
    // expected-error@+1 {{'bagua.update' op in a handler of before_forward expects `at before_update`}}
    bagua.update weight = %mean
  }
}

// -----

bagua.algorithm @bucket_with_shard {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %s = bagua.reduce_scatter mean %g over @world
    // expected-error@+1 {{'bagua.map' op expects values of one domain, that of the result}}
    %x = bagua.map %g - %s
    bagua.update gradient = %x
  }
}

// -----

bagua.algorithm @state_of_no_name {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{'bagua.read' op expects a state of the algorithm, got @momentum: declare `bagua.state @momentum : bucket = 0.0`}}
    %m = bagua.read @momentum
    %x = bagua.map 0.9 * %m + %g
    bagua.update gradient = %x
  }
}

// -----

bagua.algorithm @updated_twice {
  bagua.state @m : bucket = 0.0
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %m = bagua.read @m
    %x = bagua.map 0.9 * %m + %g
    // expected-note@+1 {{first here}}
    bagua.update @m = %x
    %mean = bagua.all_reduce mean %x
    // expected-error@+1 {{'bagua.update' op replaces state @m twice on one path}}
    bagua.update @m = %mean
    bagua.update gradient = %mean
  }
}

// -----

#sign = #bagua.sign<block = 4096>
bagua.algorithm @residual_of_another_value {
  bagua.state @e : bucket = 0.0
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %e = bagua.read @e
    %c = bagua.map %g + %e
    // expected-note@+1 {{encodes another value than the one subtracted from}}
    %q = bagua.encode %c with #sign
    %d = bagua.decode %q : !bagua.packed<#sign, tensor<?xf32, #bagua.bucket>>
    // expected-error@+1 {{'bagua.map' op expects a residual of the value that was encoded: c - decode(encode(c)); subtract from that value}}
    %r = bagua.map %g - %d
    bagua.update @e = %r
    %all = bagua.all_gather %q : !bagua.packed<#sign, tensor<?xf32, #bagua.bucket>> over @world
    %v = bagua.decode %all : !bagua.per<@world, !bagua.packed<#sign, tensor<?xf32, #bagua.bucket>>>
    %mean = bagua.reduce mean %v : !bagua.per<@world, tensor<?xf32, #bagua.bucket>>
    bagua.update gradient = %mean
  }
}

// -----

#pairs = #bagua.topology<offsets = [2], weights = [1/2]>
bagua.algorithm @never_meets_everyone {
  bagua.on before_forward(%w: tensor<?xf32, #bagua.bucket>) {
    %n = bagua.neighbor_exchange %w on #pairs
    // expected-error@+1 {{'bagua.mix' op expects a topology that connects all ranks: with 2 ranks, rank 0 never hears of rank 1}}
    %x = bagua.mix %w, %n on #pairs
    bagua.update weight = %x at before_update
  }
}

// -----

// expected-error@+1 {{expects a parameter of type index or f64, got 'f32'}}
bagua.algorithm @parameter_in_f32(%beta: f32 = 0.9) {
  bagua.state @m : bucket = 0.0
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %m = bagua.read @m
    %x = bagua.map %beta * %m + %g
    bagua.update @m = %x
    bagua.update gradient = %x
  }
}
