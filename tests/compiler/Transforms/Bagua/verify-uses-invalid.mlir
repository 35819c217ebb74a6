// RUN: bagua-opt %s --bagua-verify-uses --split-input-file --verify-diagnostics
// A handler acts through its updates: what reaches none was forgotten, and training would go on without it.

bagua.algorithm @negative_all_reduce_unused {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{'bagua.all_reduce' op expects its result to reach a bagua.update, directly or through other ops, got one that nothing uses: write `bagua.update gradient = %result`}}
    %mean = bagua.all_reduce mean %g
  }
}

// -----

// The update is of another value.
bagua.algorithm @negative_one_of_two_unused {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{'bagua.all_reduce' op expects its result to reach a bagua.update}}
    %mean = bagua.all_reduce mean %g
    bagua.update gradient = %g
  }
}

// -----

// Told once per chain, at its end; each handler is told of. A weight is stored where the event allows it.
#ring = #bagua.topology<offsets = [-1, 1], weights = [1/3, 1/3]>
bagua.algorithm @negative_chain_unused {
  bagua.on before_forward(%w: tensor<?xf32, #bagua.bucket>) {
    %peers = bagua.neighbor_exchange %w on #ring
    // expected-error@+1 {{'bagua.mix' op expects its result to reach a bagua.update, directly or through other ops, got one that nothing uses: write `bagua.update weight = %result at before_update`}}
    %mixed = bagua.mix %w, %peers on #ring
  }
  bagua.on after_update(%w: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{nothing uses: write `bagua.update weight = %result`}}
    %mean = bagua.all_reduce mean %w
  }
}

// -----

// What is not over the bucket cannot be stored as it is: no such advice.
#ring = #bagua.topology<offsets = [-1, 1], weights = [1/3, 1/3]>
bagua.algorithm @negative_exchange_unused {
  bagua.on after_update(%w: tensor<?xf32, #bagua.bucket>) {
    // expected-error-re@+1 {{'bagua.neighbor_exchange' op expects its result to reach a bagua.update, directly or through other ops, got one that nothing uses{{$}}}}
    %peers = bagua.neighbor_exchange %w on #ring
    %mean = bagua.all_reduce mean %w
    bagua.update weight = %mean
  }
}

// -----

// Yields count as uses where the result is used: here the second is not.
bagua.algorithm @negative_if_result_unused {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %s = bagua.step
    %one = arith.constant 1 : index
    %later = arith.cmpi ugt, %s, %one : index
    // expected-error@+1 {{'scf.if' op expects its result #1 to reach a bagua.update}}
    %a, %b = scf.if %later -> (tensor<?xf32, #bagua.bucket>, tensor<?xf32, #bagua.bucket>) {
      %sum = bagua.all_reduce sum %g
      %mean = bagua.all_reduce mean %g
      scf.yield %sum, %mean : tensor<?xf32, #bagua.bucket>, tensor<?xf32, #bagua.bucket>
    } else {
      scf.yield %g, %g : tensor<?xf32, #bagua.bucket>, tensor<?xf32, #bagua.bucket>
    }
    bagua.update gradient = %a
  }
}

// -----

// In a branch, too.
bagua.algorithm @negative_unused_in_branch {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %s = bagua.step
    %one = arith.constant 1 : index
    %later = arith.cmpi ugt, %s, %one : index
    scf.if %later {
      // expected-error@+1 {{'bagua.all_reduce' op expects its result to reach a bagua.update}}
      %mean = bagua.all_reduce mean %g
    } else {
      %sum = bagua.all_reduce sum %g
      bagua.update gradient = %sum
    }
  }
}

// -----

bagua.algorithm @negative_no_update {
  // expected-error@+1 {{'bagua.on' op expects at least one bagua.update, got none: the handler has no effect}}
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %n = bagua.world
  }
}

// -----

// Used through other ops, through one branch of two, on one path only; scalars may be left over.
#mm = #bagua.minmax<bits = 8, block = 512>
bagua.algorithm @used {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %n = bagua.world
    %r = bagua.rank
    %one = arith.constant 1 : index
    %many = arith.cmpi ugt, %n, %one : index
    scf.if %many {
      %sum = bagua.all_reduce sum %g
      %out = scf.if %many -> (tensor<?xf32, #bagua.bucket>) {
        %q = bagua.encode %sum with #mm
        %d = bagua.decode %q : !bagua.packed<#mm, tensor<?xf32, #bagua.bucket>>
        scf.yield %d : tensor<?xf32, #bagua.bucket>
      } else {
        scf.yield %g : tensor<?xf32, #bagua.bucket>
      }
      bagua.update gradient = %out
    }
  }
}
