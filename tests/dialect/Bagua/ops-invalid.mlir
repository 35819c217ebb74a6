// RUN: bagua-opt %s --split-input-file --verify-diagnostics
// A refusal for every constraint of an op, labelled with its number in SPEC.md.

// algorithm_C1
// expected-error@+1 {{'bagua.algorithm' op expects at least one handler}}
bagua.algorithm @negative_algorithm_empty {
}

// -----

// algorithm_C1
bagua.algorithm @negative_algorithm_foreign_op {
  // expected-error@+1 {{'arith.constant' op is not allowed in an algorithm: expects bagua.state or bagua.on}}
  %c = arith.constant 1 : index
}

// -----

// algorithm_C2
bagua.algorithm @negative_algorithm_event_twice {
  // expected-note@+1 {{first here}}
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
  }
  // expected-error@+1 {{'bagua.on' op handles gradient again}}
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
  }
}

// -----

// algorithm_C3: 65528, 65536 and 65512 are 8 times numbers without common factors.
// expected-error@+1 {{'bagua.algorithm' op expects codec blocks whose least common multiple is at most 16777216}}
bagua.algorithm @negative_algorithm_grain {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %a = bagua.encode %g with #bagua.minmax<bits = 8, block = 65528>
    %b = bagua.encode %g with #bagua.minmax<bits = 8, block = 65536>
    %c = bagua.encode %g with #bagua.minmax<bits = 8, block = 65512>
  }
}

// -----

// algorithm_C4
// expected-error@+1 {{'bagua.algorithm' op reassoc is not supported yet}}
bagua.algorithm @negative_algorithm_reassoc attributes {reassoc} {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
  }
}

// -----

bagua.algorithm @negative_on_unknown_event {
  // expected-error@+1 {{expects gradient, before_forward, after_update or async, got 'sometimes'}}
  bagua.on sometimes(%g: tensor<?xf32, #bagua.bucket>) {
  }
}

// -----

// expected-error@+1 {{'bagua.on' op expects parent op 'bagua.algorithm'}}
bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
}

// -----

// on_C1
bagua.algorithm @negative_on_shard {
  // expected-error@+1 {{'bagua.on' op expects one argument over the bucket, or two: gradient and weight, got 'tensor<?xf32, #bagua.shard<@world>>'}}
  bagua.on gradient(%g: tensor<?xf32, #bagua.shard<@world>>) {
  }
}

// -----

// on_C1
bagua.algorithm @negative_on_no_argument {
  // expected-error@+1 {{'bagua.on' op expects one argument over the bucket, or two: gradient and weight, got }}
  "bagua.on"() <{event = #bagua<event gradient>}> ({
    %n = bagua.world
  }) : () -> ()
}

// -----

// on_C2
bagua.algorithm @negative_on_loop {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %zero = arith.constant 0 : index
    %n = bagua.world
    // expected-error@+1 {{'scf.for' op is not allowed in a handler: expects ops of bagua, scf.if and those of arith that SPEC.md lists under "Scalars"; write iterations one after the other, or as calls of a private function}}
    scf.for %i = %zero to %n step %n {
    }
  }
}

// -----

// on_C2: domains cannot be mixed by arithmetic either, there is none on tensors.
bagua.algorithm @negative_on_tensor_arithmetic {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{'arith.addf' op expects scalars in a handler, index, i1, i64 or f64, got 'tensor<?xf32, #bagua.bucket>': compute with it in a bagua.map}}
    %twice = arith.addf %g, %g : tensor<?xf32, #bagua.bucket>
  }
}

// -----

// Different domains are different types: MLIR itself refuses to add them.
bagua.algorithm @negative_domains_mixed {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-note@+1 {{prior use here}}
    %s = bagua.reduce_scatter mean %g over @world
    // expected-error@+2 {{use of value '%s' expects different type than prior uses: 'tensor<?xf32, #bagua.bucket>' vs 'tensor<?xf32, #bagua.shard<@world>>'}}
    // expected-note@+1 {{an op takes values over the bucket unless it says `: T`, T being the operand's type}}
    %sum = arith.addf %g, %s : tensor<?xf32, #bagua.bucket>
  }
}

// -----

// on_C3
bagua.algorithm @negative_on_update_twice {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-note@+1 {{first here}}
    bagua.update gradient = %g
    // expected-error@+1 {{'bagua.update' op replaces the gradient twice on one path}}
    bagua.update gradient = %g
  }
}

// -----

// on_C3: one branch suffices.
bagua.algorithm @negative_on_update_after_branch {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %n = bagua.world
    %one = arith.constant 1 : index
    %many = arith.cmpi ugt, %n, %one : index
    scf.if %many {
      // expected-note@+1 {{first here}}
      bagua.update gradient = %g
    }
    // expected-error@+1 {{'bagua.update' op replaces the gradient twice on one path}}
    bagua.update gradient = %g
  }
}

// -----

// on_C3: once in each branch is once on each path.
bagua.algorithm @update_in_both_branches {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %n = bagua.world
    %one = arith.constant 1 : index
    %many = arith.cmpi ugt, %n, %one : index
    scf.if %many {
      bagua.update gradient = %g
    } else {
      bagua.update gradient = %g
    }
  }
}

// -----

// on_C4
bagua.algorithm @negative_on_update_role {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{'bagua.update' op of the weight is not allowed in a handler of gradient: expects gradient}}
    bagua.update weight = %g
  }
}

// -----

// on_C4
bagua.algorithm @negative_on_update_now {
  bagua.on before_forward(%w: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{'bagua.update' op in a handler of before_forward expects `at before_update`}}
    bagua.update weight = %w
  }
}

// -----

// on_C4
bagua.algorithm @negative_on_update_later {
  bagua.on after_update(%w: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{'bagua.update' op in a handler of after_update expects no `at`}}
    bagua.update weight = %w at before_update
  }
}

// -----

// expected-error@+1 {{'bagua.world' op expects to stand inside a handler (bagua.on) or a function}}
%n = bagua.world

// -----

// all_reduce_C1
bagua.algorithm @negative_all_reduce_shard {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %s = bagua.reduce_scatter sum %g over @world
    // expected-error@+1 {{'bagua.all_reduce' op expects the input over the bucket, got 'tensor<?xf32, #bagua.shard<@world>>'}}
    %x = bagua.all_reduce sum %s : tensor<?xf32, #bagua.shard<@world>>
  }
}

// -----

// all_reduce_C2
bagua.algorithm @negative_all_reduce_group {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{'bagua.all_reduce' op unknown group: expects @world, @node or @cross, got @everyone}}
    %x = bagua.all_reduce sum %g over @everyone
  }
}

// -----

// all_reduce: the kind is a word.
bagua.algorithm @negative_all_reduce_kind {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{expects sum or mean, got 'max'}}
    %x = bagua.all_reduce max %g
  }
}

// -----

// all_reduce: a topology is no codec.
bagua.algorithm @negative_all_reduce_via {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{invalid kind of attribute specified}}
    %x = bagua.all_reduce mean %g via #bagua.topology<offsets = [1], weights = [1/2]>
  }
}

// -----

// reduce_scatter_C1
bagua.algorithm @negative_reduce_scatter_shard {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %s = bagua.reduce_scatter sum %g over @world
    // expected-error@+1 {{'bagua.reduce_scatter' op expects the input over the bucket, got 'tensor<?xf32, #bagua.shard<@world>>'}}
    %x = bagua.reduce_scatter sum %s : tensor<?xf32, #bagua.shard<@world>> over @world
  }
}

// -----

// reduce_scatter_C2
bagua.algorithm @negative_reduce_scatter_group {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{unknown group: expects @world, @node or @cross, got @rack}}
    %s = bagua.reduce_scatter sum %g over @rack
  }
}

// -----

// all_to_all_C1
bagua.algorithm @negative_all_to_all_bucket {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %all = bagua.all_gather %g over @world
    // expected-error@+1 {{'bagua.all_to_all' op expects one value over a shard for each rank of @world, got '!bagua.per<@world, tensor<?xf32, #bagua.bucket>>'}}
    %x = bagua.all_to_all %all : !bagua.per<@world, tensor<?xf32, #bagua.bucket>> over @world
  }
}

// -----

// all_to_all_C2
bagua.algorithm @negative_all_to_all_group {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %parts = bagua.split %g over @world
    // expected-error@+1 {{unknown group: expects @world, @node or @cross, got @rack}}
    %x = bagua.all_to_all %parts : !bagua.per<@world, tensor<?xf32, #bagua.shard<@world>>> over @rack
  }
}

// -----

// all_to_all_C1
bagua.algorithm @negative_all_to_all_of_another_group {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %parts = bagua.split %g over @world
    // expected-error@+1 {{'bagua.all_to_all' op expects one value over a shard for each rank of @node, got '!bagua.per<@world, tensor<?xf32, #bagua.shard<@world>>>'}}
    %x = bagua.all_to_all %parts : !bagua.per<@world, tensor<?xf32, #bagua.shard<@world>>> over @node
  }
}

// -----

// all_to_all_C1: these came from the other nodes.
bagua.algorithm @negative_all_to_all_across {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %s = bagua.reduce_scatter sum %g over @node
    %all = bagua.all_gather %s : tensor<?xf32, #bagua.shard<@node>> over @cross
    // expected-error@+1 {{'bagua.all_to_all' op expects one value over a shard for each rank of @node, got '!bagua.per<@cross, tensor<?xf32, #bagua.shard<@node>>, own>'}}
    %x = bagua.all_to_all %all : !bagua.per<@cross, tensor<?xf32, #bagua.shard<@node>>, own> over @node
  }
}

// -----

// all_gather_C1
bagua.algorithm @negative_all_gather_shard_of_a_node {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %s = bagua.reduce_scatter sum %g over @node
    // expected-error@+1 {{'bagua.all_gather' op expects a shard of @world, or of a group in which its ranks have one shard, got 'tensor<?xf32, #bagua.shard<@node>>'}}
    %x = bagua.all_gather %s : tensor<?xf32, #bagua.shard<@node>> over @world
  }
}

// -----

// all_reduce_C1
bagua.algorithm @negative_all_reduce_shard_of_its_own_group {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %s = bagua.reduce_scatter sum %g over @node
    // expected-error@+1 {{'bagua.all_reduce' op expects the input over the bucket, or over a shard of @cross, got 'tensor<?xf32, #bagua.shard<@node>>'}}
    %x = bagua.all_reduce sum %s : tensor<?xf32, #bagua.shard<@node>> over @node
  }
}

// -----

// all_reduce_C1
bagua.algorithm @negative_all_reduce_shard_of_the_world {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %s = bagua.reduce_scatter sum %g over @world
    // expected-error@+1 {{'bagua.all_reduce' op expects the input over the bucket, or over a shard of @node, got 'tensor<?xf32, #bagua.shard<@world>>'}}
    %x = bagua.all_reduce sum %s : tensor<?xf32, #bagua.shard<@world>> over @cross
  }
}

// -----

// concat_C1: not a bucket in pieces.
bagua.algorithm @negative_concat_across {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %s = bagua.reduce_scatter sum %g over @node
    %all = bagua.all_gather %s : tensor<?xf32, #bagua.shard<@node>> over @cross
    // expected-error@+1 {{'bagua.concat' op expects one plain value over each rank's shard, got '!bagua.per<@cross, tensor<?xf32, #bagua.shard<@node>>, own>'}}
    %x = bagua.concat %all : !bagua.per<@cross, tensor<?xf32, #bagua.shard<@node>>, own>
  }
}

// -----

// all_gather_C1
bagua.algorithm @negative_all_gather_per {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %parts = bagua.split %g over @world
    // expected-error@+1 {{'bagua.all_gather' op expects one value, plain or packed, got '!bagua.per<@world, tensor<?xf32, #bagua.shard<@world>>>'}}
    %x = bagua.all_gather %parts : !bagua.per<@world, tensor<?xf32, #bagua.shard<@world>>> over @world
  }
}

// -----

// all_gather_C2
bagua.algorithm @negative_all_gather_group {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{unknown group: expects @world, @node or @cross, got @earth}}
    %x = bagua.all_gather %g over @earth
  }
}

// -----

// neighbor_exchange_C1
bagua.algorithm @negative_neighbor_exchange_shard {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %s = bagua.reduce_scatter sum %g over @world
    // expected-error@+1 {{'bagua.neighbor_exchange' op expects the input over the bucket, got 'tensor<?xf32, #bagua.shard<@world>>'}}
    %x = bagua.neighbor_exchange %s : tensor<?xf32, #bagua.shard<@world>> on #bagua.topology<offsets = [1], weights = [1/2]>
  }
}

// -----

// neighbor_exchange, mix: a codec is no topology.
bagua.algorithm @negative_neighbor_exchange_on {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{expects a topology, got #bagua.minmax<bits = 8, block = 8>}}
    %x = bagua.neighbor_exchange %g on #bagua.minmax<bits = 8, block = 8>
  }
}

// -----

// split_C1
bagua.algorithm @negative_split_shard {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %s = bagua.reduce_scatter sum %g over @world
    // expected-error@+1 {{'bagua.split' op expects the input over the bucket, got 'tensor<?xf32, #bagua.shard<@world>>'}}
    %x = bagua.split %s : tensor<?xf32, #bagua.shard<@world>> over @world
  }
}

// -----

// split_C2
bagua.algorithm @negative_split_group {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{unknown group: expects @world, @node or @cross, got @w}}
    %x = bagua.split %g over @w
  }
}

// -----

// concat_C1
bagua.algorithm @negative_concat_own {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %parts = bagua.split %g over @world
    %got = bagua.all_to_all %parts : !bagua.per<@world, tensor<?xf32, #bagua.shard<@world>>> over @world
    // expected-error@+1 {{'bagua.concat' op expects one plain value over each rank's shard, got '!bagua.per<@world, tensor<?xf32, #bagua.shard<@world>>, own>'}}
    %x = bagua.concat %got : !bagua.per<@world, tensor<?xf32, #bagua.shard<@world>>, own>
  }
}

// -----

// encode_C1
#mm = #bagua.minmax<bits = 8, block = 512>
bagua.algorithm @negative_encode_twice {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %q = bagua.encode %g with #mm
    // expected-error@+1 {{'bagua.encode' op expects plain input, got '!bagua.packed<}}
    %x = bagua.encode %q : !bagua.packed<#mm, tensor<?xf32, #bagua.bucket>> with #mm
  }
}

// -----

// decode_C1
bagua.algorithm @negative_decode_plain {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+1 {{'bagua.decode' op expects packed input, got 'tensor<?xf32, #bagua.bucket>'}}
    %x = bagua.decode %g : tensor<?xf32, #bagua.bucket>
  }
}

// -----

// reduce_C1
#ring = #bagua.topology<offsets = [-1, 1], weights = [1/3, 1/3]>
bagua.algorithm @negative_reduce_neighbors {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %n = bagua.neighbor_exchange %g on #ring
    // expected-error@+1 {{'bagua.reduce' op expects one plain value for each rank of a group, got '!bagua.per<#bagua.topology<}}
    %x = bagua.reduce mean %n : !bagua.per<#ring, tensor<?xf32, #bagua.bucket>>
  }
}

// -----

// reduce_C1
#mm = #bagua.minmax<bits = 8, block = 512>
bagua.algorithm @negative_reduce_packed {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %q = bagua.encode %g with #mm
    %all = bagua.all_gather %q : !bagua.packed<#mm, tensor<?xf32, #bagua.bucket>> over @world
    // expected-error@+1 {{'bagua.reduce' op expects one plain value for each rank of a group, got '!bagua.per<@world, !bagua.packed<}}
    %x = bagua.reduce mean %all : !bagua.per<@world, !bagua.packed<#mm, tensor<?xf32, #bagua.bucket>>>
  }
}

// -----

// reduce_C2
bagua.algorithm @negative_reduce_ragged {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %parts = bagua.split %g over @world
    // expected-error@+1 {{'bagua.reduce' op expects elements of one length (own), got '!bagua.per<@world, tensor<?xf32, #bagua.shard<@world>>>', whose element i is over the shard of rank i}}
    %x = bagua.reduce mean %parts : !bagua.per<@world, tensor<?xf32, #bagua.shard<@world>>>
  }
}

// -----

// mix_C2
#ring = #bagua.topology<offsets = [-1, 1], weights = [1/3, 1/3]>
bagua.algorithm @negative_mix_shard {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %n = bagua.neighbor_exchange %g on #ring
    %s = bagua.reduce_scatter sum %g over @world
    // expected-error@+1 {{'bagua.mix' op expects neighbours of the value's type 'tensor<?xf32, #bagua.shard<@world>>', got 'tensor<?xf32, #bagua.bucket>'}}
    %x = bagua.mix %s, %n : tensor<?xf32, #bagua.shard<@world>>, !bagua.per<#ring, tensor<?xf32, #bagua.bucket>> on #ring
  }
}

// -----

// mix_C2: the ring of the world is not that of the nodes.
#ring = #bagua.topology<offsets = [-1, 1], weights = [1/3, 1/3]>
bagua.algorithm @negative_mix_over {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %n = bagua.neighbor_exchange %g on #ring over @cross
    // expected-error@+1 {{'bagua.mix' op expects the neighbours of its own topology}}
    %x = bagua.mix %g, %n : tensor<?xf32, #bagua.bucket>, !bagua.per<#ring over @cross, tensor<?xf32, #bagua.bucket>> on #ring
  }
}

// -----

// neighbor_exchange_C1: ranks of a node have different shards of it.
#ring = #bagua.topology<offsets = [-1, 1], weights = [1/3, 1/3]>
bagua.algorithm @negative_neighbor_exchange_shards_differ {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %s = bagua.reduce_scatter sum %g over @node
    // expected-error@+1 {{'bagua.neighbor_exchange' op expects the input over the bucket, got 'tensor<?xf32, #bagua.shard<@node>>'}}
    %x = bagua.neighbor_exchange %s : tensor<?xf32, #bagua.shard<@node>> on #ring over @node
  }
}

// -----

// mix_C2
#ring = #bagua.topology<offsets = [-1, 1], weights = [1/3, 1/3]>
#other = #bagua.topology<offsets = [-1, 1], weights = [1/4, 1/4]>
bagua.algorithm @negative_mix_topology {
  bagua.on before_forward(%w: tensor<?xf32, #bagua.bucket>) {
    %n = bagua.neighbor_exchange %w on #ring
    // expected-error@+1 {{'bagua.mix' op expects the neighbours of its own topology #bagua.topology<offsets = [-1, 1], weights = [1/4, 1/4]>, got those of #bagua.topology<offsets = [-1, 1], weights = [1/3, 1/3]>}}
    %x = bagua.mix %w, %n : tensor<?xf32, #bagua.bucket>, !bagua.per<#ring, tensor<?xf32, #bagua.bucket>> on #other
  }
}

// -----

// mix_C2: with the types left out, the operand's type is what the op's own topology says.
#ring = #bagua.topology<offsets = [-1, 1], weights = [1/3, 1/3]>
#other = #bagua.topology<offsets = [-1, 1], weights = [1/4, 1/4]>
bagua.algorithm @negative_mix_topology_short {
  bagua.on before_forward(%w: tensor<?xf32, #bagua.bucket>) {
    // expected-note@+1 {{prior use here}}
    %n = bagua.neighbor_exchange %w on #ring
    // expected-error@+2 {{use of value '%n' expects different type than prior uses}}
    // expected-note@+1 {{an op takes values over the bucket unless it says `: T`, T being the operand's type}}
    %x = bagua.mix %w, %n on #other
  }
}

// -----

// mix_C2
#ring = #bagua.topology<offsets = [-1, 1], weights = [1/3, 1/3]>
#mm = #bagua.minmax<bits = 8, block = 512>
bagua.algorithm @negative_mix_packed {
  bagua.on before_forward(%w: tensor<?xf32, #bagua.bucket>) {
    %q = bagua.encode %w with #mm
    %n = bagua.neighbor_exchange %q : !bagua.packed<#mm, tensor<?xf32, #bagua.bucket>> on #ring
    // expected-error@+1 {{'bagua.mix' op expects neighbours of the value's type 'tensor<?xf32, #bagua.bucket>', got '!bagua.packed<}}
    %x = bagua.mix %w, %n : tensor<?xf32, #bagua.bucket>, !bagua.per<#ring, !bagua.packed<#mm, tensor<?xf32, #bagua.bucket>>> on #ring
  }
}

// -----

// update_C1
bagua.algorithm @negative_update_domain {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %s = bagua.reduce_scatter mean %g over @world
    // expected-error@+1 {{'bagua.update' op expects the value over the bucket, got 'tensor<?xf32, #bagua.shard<@world>>'}}
    bagua.update gradient = %s : tensor<?xf32, #bagua.shard<@world>>
  }
}

// -----

// update: the type that is left out is the bucket's.
bagua.algorithm @negative_update_domain_short {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-note@+1 {{prior use here}}
    %s = bagua.reduce_scatter mean %g over @world
    // expected-error@+2 {{use of value '%s' expects different type than prior uses: 'tensor<?xf32, #bagua.bucket>' vs 'tensor<?xf32, #bagua.shard<@world>>'}}
    // expected-note@+1 {{an op takes values over the bucket unless it says `: T`, T being the operand's type}}
    bagua.update gradient = %s
  }
}

// -----

// A type that inference contradicts, in the generic form.
bagua.algorithm @negative_generic_result {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // expected-error@+2 {{'bagua.split' op inferred type(s)}}
    // expected-error@+1 {{'bagua.split' op failed to infer returned types}}
    %x = "bagua.split"(%g) <{group = @world}> : (tensor<?xf32, #bagua.bucket>) -> !bagua.per<@world, tensor<?xf32, #bagua.bucket>>
  }
}
