// RUN: bagua-opt %s --split-input-file --verify-diagnostics
// Refusals of attributes and types; each says what it expects and what it got.

// bucket_C1
// expected-error@+1 {{expects one dynamic dimension: lengths bind with the bucket}}
!negative_bucket_static = tensor<4xf32, #bagua.bucket>

// -----

// bucket_C1
// expected-error@+1 {{expects one dynamic dimension}}
!negative_bucket_two_dimensions = tensor<?x?xf32, #bagua.bucket>

// -----

// bucket_C2
// expected-error@+1 {{expects element type f32, got 'f16': the storage type binds with the bucket}}
!negative_bucket_element = tensor<?xf16, #bagua.bucket>

// -----

// shard_C1
// expected-error@+1 {{unknown group: expects @world, @node or @cross, got @word}}
!negative_unknown_group = tensor<?xf32, #bagua.shard<@word>>

// -----

// minmax_C1
// expected-error@+1 {{expects bits in 2..8, got 9}}
#negative_bits_many = #bagua.minmax<bits = 9, block = 2048>

// -----

// minmax_C1
// expected-error@+1 {{expects bits in 2..8, got 1}}
#negative_bits_few = #bagua.minmax<bits = 1, block = 2048>

// -----

// minmax_C2
// expected-error@+1 {{expects block to be a multiple of 8 in 8..65536, got 100}}
#negative_block_odd = #bagua.minmax<bits = 8, block = 100>

// -----

// minmax_C2
// expected-error@+1 {{expects block to be a multiple of 8 in 8..65536, got 0}}
#negative_block_none = #bagua.minmax<bits = 8, block = 0>

// -----

// minmax_C2
// expected-error@+1 {{expects block to be a multiple of 8 in 8..65536, got 131072}}
#negative_block_huge = #bagua.minmax<bits = 8, block = 131072>

// -----

// topology_C1
// expected-error@+1 {{expects as many weights as offsets (2), got 1}}
#negative_weights_few = #bagua.topology<offsets = [-1, 1], weights = [1/3]>

// -----

// topology_C1
// expected-error@+1 {{expects 1..16 offsets, got 0}}
#negative_no_offsets = #bagua.topology<offsets = [], weights = []>

// -----

// topology_C2
// expected-error@+1 {{expects offsets other than 0: the self weight is 1 - sum of weights}}
#negative_self = #bagua.topology<offsets = [0], weights = [1/2]>

// -----

// topology_C2
// expected-error@+1 {{offset 1 occurs twice}}
#negative_offset_twice = #bagua.topology<offsets = [1, 1], weights = [1/3, 1/3]>

// -----

// topology_C2
// expected-error@+1 {{expects offsets in -65536..65536, got 65537}}
#negative_offset_far = #bagua.topology<offsets = [65537], weights = [1/3]>

// -----

// topology_C3
// expected-error@+1 {{expects weights in (0, 1], got -1/3}}
#negative_weight_negative = #bagua.topology<offsets = [1], weights = [-1/3]>

// -----

// topology_C3
// expected-error@+1 {{expects weights in (0, 1], got 0/1}}
#negative_weight_zero = #bagua.topology<offsets = [1], weights = [0]>

// -----

// topology_C3
// expected-error@+1 {{expects weights in (0, 1], got 4/3}}
#negative_weight_big = #bagua.topology<offsets = [1], weights = [4/3]>

// -----

// topology_C4
// expected-error@+1 {{expects weights that sum to at most 1, got 4/3}}
#negative_weights_sum = #bagua.topology<offsets = [-1, 1], weights = [2/3, 2/3]>

// -----

// topology_C5
// expected-error@+1 {{expects a denominator in 1..2147483648, got 0}}
#negative_denominator = #bagua.topology<offsets = [1], weights = [1/0]>

// -----

// topology_C5: denominators without a common factor.
// expected-error@+1 {{expects a common denominator of weights of at most 2147483648, got 4295032832}}
#negative_common_denominator = #bagua.topology<offsets = [-1, 1], weights = [1/65537, 1/65536]>

// -----

// packed_C1
// expected-error@+1 {{expects a tensor over a bucket or a shard inside packed, got 'tensor<?xf32>'}}
!negative_packed_foreign = !bagua.packed<#bagua.minmax<bits = 8, block = 8>, tensor<?xf32>>

// -----

// per_C1
// expected-error@+1 {{expects a plain or packed tensor inside per, got 'index'}}
!negative_per_scalar = !bagua.per<@world, index>

// -----

// per_C2
// expected-error@+1 {{unknown group: expects @world, @node or @cross, got @peers}}
!negative_per_group = !bagua.per<@peers, tensor<?xf32, #bagua.bucket>>

// -----

// per_C2
// expected-error@+1 {{expects a group or a topology, got 3 : i64}}
!negative_per_number = !bagua.per<3, tensor<?xf32, #bagua.bucket>>

// -----

// per_C3
#ring = #bagua.topology<offsets = [1], weights = [1/2]>
// expected-error@+1 {{expects elements over the bucket for each neighbour, got 'tensor<?xf32, #bagua.shard<@world>>'}}
!negative_per_neighbor_shard = !bagua.per<#ring, tensor<?xf32, #bagua.shard<@world>>>

// -----

// per_C3: over neighbours too.
#ring = #bagua.topology<offsets = [1], weights = [1/2]>
// expected-error@+1 {{expects own: ranks of @cross have one shard of @node, got 'tensor<?xf32, #bagua.shard<@node>>'}}
!negative_per_neighbor_shard_not_own = !bagua.per<#ring over @cross, tensor<?xf32, #bagua.shard<@node>>>

// -----

// over_C1
// expected-error@+1 {{unknown group: expects @world, @node or @cross, got @rack}}
!negative_over_unknown = !bagua.per<#bagua.exponential over @rack, tensor<?xf32, #bagua.bucket>>

// -----

// over_C1
// expected-error@+1 {{expects a topology over @node or @cross, once, got #bagua.exponential over @world}}
!negative_over_world = !bagua.per<#bagua.over<@world, #bagua.exponential>, tensor<?xf32, #bagua.bucket>>

// -----

// over_C1
// expected-error@+1 {{expects a topology over @node or @cross, once, got #bagua.over<@node, #bagua.exponential> over @cross}}
!negative_over_twice = !bagua.per<#bagua.over<@node, #bagua.exponential> over @cross, tensor<?xf32, #bagua.bucket>>

// -----

// over_C2
// expected-error@+1 {{expects a topology in which ranks hear those at a distance over @cross, got #bagua.shift_one, which pairs the ranks of @world}}
!negative_over_pairs = !bagua.per<#bagua.shift_one over @cross, tensor<?xf32, #bagua.bucket>>

// -----

// per_C3: ranks of the world have different shards of their nodes, in no order that the world's count would give.
// expected-error@+1 {{expects elements over a shard of @world, got 'tensor<?xf32, #bagua.shard<@node>>'}}
!negative_per_shard_of_a_part = !bagua.per<@world, tensor<?xf32, #bagua.shard<@node>>, own>

// -----

// per_C3
// expected-error@+1 {{expects elements over a shard of @node, got 'tensor<?xf32, #bagua.shard<@world>>'}}
!negative_per_shard_of_the_world = !bagua.per<@node, tensor<?xf32, #bagua.shard<@world>>>

// -----

// per_C3: one shard for all of them.
// expected-error@+1 {{expects own: ranks of @cross have one shard of @node, got 'tensor<?xf32, #bagua.shard<@node>>'}}
!negative_per_across_not_own = !bagua.per<@cross, tensor<?xf32, #bagua.shard<@node>>>

// -----

// per_C4
// expected-error@+1 {{own says whose shard each element is over: expects a shard, got 'tensor<?xf32, #bagua.bucket>'}}
!negative_per_own_bucket = !bagua.per<@world, tensor<?xf32, #bagua.bucket>, own>
