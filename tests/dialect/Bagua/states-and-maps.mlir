// RUN: bagua-opt %s | bagua-opt | FileCheck %s
// RUN: bagua-opt %s --mlir-print-op-generic | bagua-opt | FileCheck %s
// Parameters, states, maps, scalars and topologies, in the shortest form that they print.

!scalar = tensor<?xf32, #bagua.scalar>
!shard = tensor<?xf32, #bagua.shard<@world>>
#ring = #bagua.topology<offsets = [-1, 1], weights = [1/3, 1/3]>
!near = !bagua.per<#ring, tensor<?xf32, #bagua.bucket>>

// CHECK-LABEL: bagua.algorithm @optimizer
// CHECK-SAME: (%warmup: index = 100, %beta: f64 = 0.9, %eps: f64 = 1.0e-08, %lr: f64 = -2.0 per_step)
// CHECK-SAME: attributes {owns_update}
bagua.algorithm @optimizer(%warmup: index = 100, %beta: f64 = 0.9, %eps: f64 = 1.0e-8,
                           %lr: f64 = -2 per_step) attributes {owns_update} {
  // CHECK: bagua.state @m : bucket = 0.0{{$}}
  bagua.state @m : bucket = 0.0 on_resize mean
  // CHECK: bagua.state @v : bucket = 1.5 on_resize zero{{$}}
  bagua.state @v : bucket = 1.5 on_resize zero
  // CHECK: bagua.state @e : shard<@world> = 0.0{{$}}
  bagua.state @e : shard<@world> = 0
  // CHECK: bagua.state @s : scalar = -1.0{{$}}
  bagua.state @s : scalar = -1.0
  // CHECK: bagua.state @near : per<#[[$RING:.*]]> = weight{{$}}
  bagua.state @near : per<#ring> = weight
  // CHECK: bagua.state @across : per<#[[$RING]] over @cross> = weight{{$}}
  bagua.state @across : per<#ring over @cross> = weight
  // CHECK: bagua.on gradient(%[[G:.*]]: tensor<?xf32, #bagua.bucket>, %[[W:.*]]: tensor<?xf32, #bagua.bucket>) {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>, %w: tensor<?xf32, #bagua.bucket>) {
    // CHECK: %[[M:.*]] = bagua.read @m{{$}}
    %m = bagua.read @m
    %v = bagua.read @v
    // CHECK: %[[E:.*]] = bagua.read @e : tensor<?xf32, #bagua.shard<@world>>{{$}}
    %e = bagua.read @e : !shard
    // CHECK: %[[S:.*]] = bagua.read @s : tensor<?xf32, #bagua.scalar>{{$}}
    %s = bagua.read @s : !scalar
    // CHECK: %[[NEAR:.*]] = bagua.read @near : !bagua.per<#[[$RING]], tensor<?xf32, #bagua.bucket>>{{$}}
    %near = bagua.read @near : !near
    // CHECK: bagua.read @across : !bagua.per<#[[$RING]] over @cross, tensor<?xf32, #bagua.bucket>>{{$}}
    %across = bagua.read @across : !bagua.per<#ring over @cross, tensor<?xf32, #bagua.bucket>>
    // CHECK: %[[T:.*]] = bagua.step
    %t = bagua.step
    // CHECK: %[[F:.*]] = bagua.to_f64 %[[T]]{{$}}
    %f = bagua.to_f64 %t
    // CHECK: %[[P:.*]] = bagua.power %beta, %[[T]]{{$}}
    %p = bagua.power %beta, %t
    // CHECK: bagua.map %beta * %[[M]] + (1.0 - %beta) * %[[G]]{{$}}
    %c = bagua.map %beta * %m + (1.0 - %beta) * %g
    // Parentheses are printed where they matter, and kept apart where the sum would round otherwise.
    // CHECK: bagua.map %[[G]] - (%[[M]] - %[[V:.*]]) - %[[W]] / (%[[M]] * %[[V]]){{$}}
    %o = bagua.map ((%g) - (%m - %v)) - %w / (%m * %v)
    // CHECK: bagua.map -%[[G]] * -2.5 + -(%[[M]] + %[[T]]){{$}}
    %n = bagua.map (-%g) * -2.5 + -(%m + %t)
    // `a > b` is `b < a`.
    // CHECK: bagua.map select(%[[M]] < %[[G]] and not %[[G]] == 0.0 or %[[G]] <= 2.0 * %[[P]], sqrt(%[[G]]), max(min(%[[G]], %[[M]]), %[[S]])){{$}}
    %q = bagua.map select(%g > %m and not %g == 0 or 2 * %p >= %g, sqrt(%g), max(min(%g, %m), %s))
    // CHECK: bagua.map fma(%[[E]], %[[F]], abs(sign(rint(floor(%[[E]]))))) : tensor<?xf32, #bagua.shard<@world>>{{$}}
    %r = bagua.map fma(%e, %f, abs(sign(rint(floor(%e))))) : !shard
    // CHECK: bagua.map %[[NEAR]] - %[[W]] : !bagua.per<#[[$RING]], tensor<?xf32, #bagua.bucket>>{{$}}
    %u = bagua.map %near - %w : !near
    // CHECK: %[[DOT:.*]] = bagua.dot %[[G]], %[[M]]{{$}}
    %dot = bagua.dot %g, %m
    // CHECK: bagua.dot %[[E]], %[[E]] : tensor<?xf32, #bagua.shard<@world>>{{$}}
    %dots = bagua.dot %e, %e : !shard
    // CHECK: %[[NORM:.*]] = bagua.norm %[[G]]{{$}}
    %norm = bagua.norm %g
    // CHECK: bagua.map %[[DOT]] / %[[NORM]] : tensor<?xf32, #bagua.scalar>{{$}}
    %x = bagua.map %dot / %norm : !scalar
    // CHECK: bagua.all_reduce mean %{{.*}} : tensor<?xf32, #bagua.scalar>{{$}}
    %y = bagua.all_reduce mean %x : !scalar
    // CHECK: bagua.all_gather %{{.*}} : tensor<?xf32, #bagua.scalar> over @world{{$}}
    %all = bagua.all_gather %y : !scalar over @world
    // CHECK: bagua.random uniform seed %[[T]] per_rank{{$}}
    %z = bagua.random uniform seed %t per_rank
    // CHECK: bagua.random uniform seed %warmup shared{{$}}
    %z2 = bagua.random uniform seed %warmup shared
    // CHECK: bagua.update @m = %{{.*}}{{$}}
    bagua.update @m = %c
    bagua.update @v = %o
    // CHECK: bagua.update @e = %{{.*}} : tensor<?xf32, #bagua.shard<@world>>{{$}}
    bagua.update @e = %r : !shard
    bagua.update @s = %y : !scalar
    bagua.update @near = %u : !near
    // CHECK: bagua.update weight = %{{.*}} at before_update{{$}}
    bagua.update weight = %n at before_update
  }
}

// CHECK-LABEL: bagua.algorithm @topologies(%period: index = 4)
bagua.algorithm @topologies(%period: index = 4) {
  bagua.on after_update(%w: tensor<?xf32, #bagua.bucket>) {
    %t = bagua.step
    // CHECK: %[[ROUND:.*]] = arith.floordivsi
    %round = arith.floordivsi %t, %period : index
    // CHECK: bagua.neighbor_exchange %{{.*}} on #{{.*}}{{$}}
    %a = bagua.neighbor_exchange %w on #bagua.exponential
    %am = bagua.mix %w, %a on #bagua.exponential
    // CHECK: bagua.neighbor_exchange %{{.*}} on #{{.*}} at %[[ROUND]]{{$}}
    %b = bagua.neighbor_exchange %am on #bagua.one_peer_exponential at %round
    // CHECK: bagua.mix %{{.*}}, %{{.*}} on #{{.*}} at %[[ROUND]]{{$}}
    %bm = bagua.mix %am, %b on #bagua.one_peer_exponential at %round
    %c = bagua.neighbor_exchange %bm on #bagua.torus<columns = 4>
    %cm = bagua.mix %bm, %c on #bagua.torus<columns = 4>
    %d = bagua.neighbor_exchange %cm on #bagua.round_robin
    %dm = bagua.mix %cm, %d on #bagua.round_robin
    %e = bagua.neighbor_exchange %dm on #bagua.shift_one
    %em = bagua.mix %dm, %e on #bagua.shift_one
    %f = bagua.neighbor_exchange %em on #bagua.pairing<seed = 7>
    %fm = bagua.mix %em, %f on #bagua.pairing<seed = 7>
    bagua.update weight = %fm
  }
}

// A function takes and returns values; handlers call it.
// CHECK-LABEL: func.func private @halve
func.func private @halve(%x: tensor<?xf32, #bagua.bucket>, %by: f64) -> tensor<?xf32, #bagua.bucket> {
  %y = bagua.map %x / %by
  return %y : tensor<?xf32, #bagua.bucket>
}
// CHECK-LABEL: bagua.algorithm @calls
bagua.algorithm @calls {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %two = arith.constant 2.0 : f64
    // CHECK: bagua.call @halve
    %h = bagua.call @halve(%g, %two) : (tensor<?xf32, #bagua.bucket>, f64) -> tensor<?xf32, #bagua.bucket>
    bagua.update gradient = %h
  }
}
