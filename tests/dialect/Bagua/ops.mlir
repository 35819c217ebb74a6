// RUN: bagua-opt %s | bagua-opt | FileCheck %s
// Every op, in the shortest form that it prints.

// CHECK-DAG: #[[$MM:.*]] = #bagua.minmax<bits = 4, block = 512>
// CHECK-DAG: #[[$RING:.*]] = #bagua.topology<offsets = [-1, 1], weights = [1/3, 1/3]>
// CHECK-DAG: #[[$ONE:.*]] = #bagua.topology<offsets = [3], weights = [1]>
#ring = #bagua.topology<offsets = [-1, 1], weights = [2/6, 1/3]>
#mm = #bagua.minmax<bits = 4, block = 512>

!bucket = tensor<?xf32, #bagua.bucket>
!shard = tensor<?xf32, #bagua.shard<@world>>

// CHECK-LABEL: bagua.algorithm @all_ops
bagua.algorithm @all_ops {
  // CHECK: bagua.on gradient(%[[G:.*]]: tensor<?xf32, #bagua.bucket>) {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    // CHECK: bagua.world{{$}}
    %n = bagua.world
    // CHECK: bagua.rank{{$}}
    %r = bagua.rank
    // CHECK: bagua.step{{$}}
    %s = bagua.step
    // CHECK: bagua.all_reduce sum %[[G]]{{$}}
    %a = bagua.all_reduce sum %g
    // CHECK: bagua.all_reduce mean %[[G]] over @world via #[[$MM]]{{$}}
    %b = bagua.all_reduce mean %g : !bucket over @world via #mm
    // CHECK: bagua.reduce_scatter mean %[[G]] over @world{{$}}
    %c = bagua.reduce_scatter mean %g over @world
    // CHECK: %[[PARTS:.*]] = bagua.split %[[G]] over @world{{$}}
    %parts = bagua.split %g over @world
    // CHECK: %[[CODED:.*]] = bagua.encode %[[PARTS]] : !bagua.per<@world, tensor<?xf32, #bagua.shard<@world>>> with #[[$MM]]
    %coded = bagua.encode %parts : !bagua.per<@world, !shard> with #mm
    // CHECK: %[[GOT:.*]] = bagua.all_to_all %[[CODED]] : !bagua.per<@world, !bagua.packed<#[[$MM]], tensor<?xf32, #bagua.shard<@world>>>> over @world
    %got = bagua.all_to_all %coded : !bagua.per<@world, !bagua.packed<#mm, !shard>> over @world
    // CHECK: %[[VALUES:.*]] = bagua.decode %[[GOT]] : !bagua.per<@world, !bagua.packed<#[[$MM]], tensor<?xf32, #bagua.shard<@world>>>, own>
    %values = bagua.decode %got : !bagua.per<@world, !bagua.packed<#mm, !shard>, own>
    // CHECK: %[[MINE:.*]] = bagua.reduce sum %[[VALUES]] : !bagua.per<@world, tensor<?xf32, #bagua.shard<@world>>, own>
    %mine = bagua.reduce sum %values : !bagua.per<@world, !shard, own>
    // CHECK: %[[ALL:.*]] = bagua.all_gather %[[MINE]] : tensor<?xf32, #bagua.shard<@world>> over @world
    %all = bagua.all_gather %mine : !shard over @world
    // CHECK: %[[OUT:.*]] = bagua.concat %[[ALL]] : !bagua.per<@world, tensor<?xf32, #bagua.shard<@world>>>
    %out = bagua.concat %all : !bagua.per<@world, !shard>
    // CHECK: bagua.all_gather %[[G]] over @world{{$}}
    %whole = bagua.all_gather %g over @world
    // CHECK: bagua.update gradient = %[[OUT]]{{$}}
    bagua.update gradient = %out
  }
  // CHECK: bagua.on before_forward(%[[W:.*]]: tensor<?xf32, #bagua.bucket>) {
  bagua.on before_forward(%w: !bucket) {
    // CHECK: %[[X:.*]] = bagua.neighbor_exchange %[[W]] on #[[$RING]]{{$}}
    %x = bagua.neighbor_exchange %w on #ring
    // CHECK: %[[Y:.*]] = bagua.mix %[[W]], %[[X]] on #[[$RING]]{{$}}
    %y = bagua.mix %w, %x on #ring
    // CHECK: bagua.encode %[[W]] with #[[$MM]]{{$}}
    %q = bagua.encode %w : !bucket with #bagua.minmax<bits = 4, block = 512>
    // CHECK: bagua.update weight = %[[Y]] at before_update{{$}}
    bagua.update weight = %y at before_update
  }
  // CHECK: bagua.on after_update(
  bagua.on after_update(%w: !bucket) {
    bagua.update weight = %w
  }
}

// CHECK-LABEL: bagua.algorithm @groups
bagua.algorithm @groups {
  bagua.on gradient(%g: !bucket) {
    // CHECK: bagua.nodes{{$}}
    %k = bagua.nodes
    // CHECK: bagua.local_size{{$}}
    %s = bagua.local_size
    // CHECK: %[[MINE:.*]] = bagua.reduce_scatter sum %{{.*}} over @node{{$}}
    %mine = bagua.reduce_scatter sum %g over @node
    // CHECK: bagua.all_reduce mean %[[MINE]] : tensor<?xf32, #bagua.shard<@node>> over @cross via #[[$MM]]{{$}}
    %a = bagua.all_reduce mean %mine : tensor<?xf32, #bagua.shard<@node>> over @cross via #mm
    // CHECK: %[[OF_ALL:.*]] = bagua.all_gather %[[MINE]] : tensor<?xf32, #bagua.shard<@node>> over @cross{{$}}
    %of_all = bagua.all_gather %mine : tensor<?xf32, #bagua.shard<@node>> over @cross
    // CHECK: bagua.reduce sum %[[OF_ALL]] : !bagua.per<@cross, tensor<?xf32, #bagua.shard<@node>>, own>{{$}}
    %sum = bagua.reduce sum %of_all : !bagua.per<@cross, tensor<?xf32, #bagua.shard<@node>>, own>
    // CHECK: bagua.map %{{.*}} + %{{.*}} : tensor<?xf32, #bagua.shard<@node>>
    %both = bagua.map %a + %sum : tensor<?xf32, #bagua.shard<@node>>
    // CHECK: bagua.split %{{.*}} over @cross{{$}}
    %parts = bagua.split %g over @cross
    // CHECK: bagua.all_to_all %{{.*}} : !bagua.per<@cross, tensor<?xf32, #bagua.shard<@cross>>> over @cross{{$}}
    %got = bagua.all_to_all %parts : !bagua.per<@cross, tensor<?xf32, #bagua.shard<@cross>>> over @cross
    // CHECK: %[[NEAR:.*]] = bagua.neighbor_exchange %[[MINE]] : tensor<?xf32, #bagua.shard<@node>> on #[[$RING]] over @cross{{$}}
    %near = bagua.neighbor_exchange %mine : tensor<?xf32, #bagua.shard<@node>> on #bagua.over<@cross, #ring>
    // CHECK: bagua.mix %[[MINE]], %[[NEAR]] : tensor<?xf32, #bagua.shard<@node>>, !bagua.per<#[[$RING]] over @cross, tensor<?xf32, #bagua.shard<@node>>, own> on #[[$RING]] over @cross{{$}}
    %m = bagua.mix %mine, %near : tensor<?xf32, #bagua.shard<@node>>, !bagua.per<#ring over @cross, tensor<?xf32, #bagua.shard<@node>>, own> on #ring over @cross
    // CHECK: bagua.neighbor_exchange %{{.*}} on #[[$RING]] over @node{{$}}
    %n = bagua.neighbor_exchange %g on #ring over @node
    // CHECK: bagua.neighbor_exchange %{{.*}} on #[[$RING]]{{$}}
    %w = bagua.neighbor_exchange %g on #ring over @world
  }
}

// Weights that sum to one leave no self weight: still a topology.
// CHECK-LABEL: bagua.algorithm @weight_one
// CHECK: bagua.neighbor_exchange %{{.*}} on #[[$ONE]]{{$}}
bagua.algorithm @weight_one {
  bagua.on gradient(%g: !bucket) {
    %x = bagua.neighbor_exchange %g on #bagua.topology<offsets = [3], weights = [1]>
  }
}
