// RUN: bagua-opt %S/../../../dialect/Chunk/gradient-allreduce.mlir --chunk-to-sched | FileCheck %s --check-prefix=ALLREDUCE
// RUN: bagua-opt %S/../../../dialect/Chunk/decentralized.mlir --chunk-to-sched | FileCheck %s --check-prefix=DECENTRALIZED
// RUN: bagua-opt %s --chunk-to-sched | FileCheck %s
// RUN: bagua-opt %algorithms/hierarchical_allreduce.mlir --emit=sched | FileCheck %s --check-prefix=NODES

// Receives first: they never wait for a slot. The owner waits for each of the others' shards; a send of the mean
// for the reduction; the copy of shard p for the arrival of p, and for the one send whose bytes it overwrites:
// that to rank p, in iteration (p - r) mod n.
// ALLREDUCE-LABEL: sched.schedule @gradient_allreduce grain 1 accepts [f32, f64] {
// ALLREDUCE: %[[N:.*]] = sched.world
// ALLREDUCE: %[[R:.*]] = sched.rank
// ALLREDUCE: sched.recv %[[IN:.*]][%[[FROM:.*]]] bytes %{{.*}} from %[[FROM]] channel 0 signals %[[ARRIVED0:.*]][%{{.*}}]
// ALLREDUCE: sched.recv %[[IN2:.*]][%[[FROM2:.*]]] bytes %{{.*}} from %[[FROM2]] channel 1 signals %[[ARRIVED1:.*]][%{{.*}}]
// ALLREDUCE: sched.for %[[K:.*]] = %c1 to %[[N]] {
// ALLREDUCE:   sched.send %[[G:.*]][%{{.*}}] to %{{.*}} channel 0 signals %[[SENT:.*]][%[[K]]]
// ALLREDUCE: %[[ALL:.*]] = sched.gather %[[P:.*]] = %c0 to %[[N]] {
// ALLREDUCE:   %[[OTHER:.*]] = arith.cmpi ne, %[[P]], %[[R]] : index
// ALLREDUCE:   %[[E:.*]] = sched.event %[[ARRIVED0]][%{{.*}}] when %[[OTHER]]
// ALLREDUCE: sched.launch "reduce_mean" {{.*}} after(%[[ALL]] : !sched.event_list) signals %[[MEAN:.*]][%c0]
// ALLREDUCE: sched.release %[[IN]]
// ALLREDUCE: %[[REDUCED:.*]] = sched.event %[[MEAN]][%c0]
// ALLREDUCE: sched.send %[[G]][%{{.*}}] to %{{.*}} channel 1 after(%[[REDUCED]] : !sched.event){{$}}
// ALLREDUCE: sched.for %[[Q:.*]] = %c0 to %[[N]] {
// ALLREDUCE:   sched.event %[[ARRIVED1]]
// ALLREDUCE:   %[[Q_N:.*]] = arith.addi %[[Q]], %[[N]] : index
// ALLREDUCE:   %[[Q_N_R:.*]] = arith.subi %[[Q_N]], %[[R]] : index
// ALLREDUCE:   %[[TO_Q:.*]] = arith.remsi %[[Q_N_R]], %[[N]] : index
// ALLREDUCE:   sched.event %[[SENT]][%[[TO_Q]]]{{$}}
// ALLREDUCE:   sched.launch "copy" {{.*}} after(%{{.*}}, %{{.*}} : !sched.event, !sched.event){{$}}
// ALLREDUCE: sched.release %[[IN2]]

// The neighbours read this rank's weights in place: they are replaced once both sends have ended, of which the
// second happens with three ranks or more.
// DECENTRALIZED: sched.send %[[W:.*]][%c0, %{{.*}}] to %{{.*}} channel 0 signals %[[TO_RIGHT:.*]][%c0]
// DECENTRALIZED: sched.if %[[DISTINCT:.*]] {
// DECENTRALIZED:   sched.send %[[W]][%c0, %{{.*}}] to %{{.*}} channel 1 signals %[[TO_LEFT:.*]][%c0]
// DECENTRALIZED: sched.wait_gate before_update on cpu
// DECENTRALIZED: %[[A:.*]] = sched.event %[[TO_RIGHT]][%c0]
// DECENTRALIZED: %[[B:.*]] = sched.event %[[TO_LEFT]][%c0] when %[[DISTINCT]]
// DECENTRALIZED: sched.launch "copy" {{.*}} after(%[[A]], %[[B]] : !sched.event, !sched.event)

// In a node, places count modulo its size: the copy of a shard waits for its arrival, and for the one send of the
// first round whose bytes it overwrites. Peers are node · size + place.
// NODES: %[[S:.*]] = sched.local_size
// NODES: %[[L:.*]] = sched.local_rank
// NODES: %[[R:.*]] = sched.rank
// NODES: %[[D:.*]] = arith.floordivsi %[[R]], %[[S]] : index
// NODES: %[[L_S:.*]] = arith.addi %[[L]], %[[S]] : index
// NODES: %[[FROM:.*]] = arith.remsi %{{.*}}, %[[S]] : index
// NODES: %[[NODE:.*]] = arith.muli %[[D]], %[[S]] : index
// NODES: %[[PEER:.*]] = arith.addi %[[NODE]], %[[FROM]] : index
// NODES: sched.recv %{{.*}}[%[[FROM]]] bytes %{{.*}} from %[[PEER]] channel 0
// NODES: sched.send %[[G:.*]][%{{.*}}] to %{{.*}} channel 0 signals %[[SENT:.*]][%{{.*}}]
// NODES: sched.for %[[H:.*]] = %c1 to %[[S]] {
// NODES:   sched.event
// NODES:   %[[S_H:.*]] = arith.subi %[[S]], %[[H]] : index
// NODES:   %[[TO:.*]] = arith.remsi %[[S_H]], %[[S]] : index
// NODES:   sched.event %[[SENT]][%[[TO]]]{{$}}
// NODES:   sched.launch "copy" {{.*}} after(%{{.*}}, %{{.*}} : !sched.event, !sched.event){{$}}

// Parameters and attributes survive. A launch on some ranks only: the send waits for it there, and for no one
// else's. What follows the gate on the net queue waits for it.
// CHECK-LABEL: sched.schedule @guarded grain 8 accepts [f32] owns_update {
// CHECK: sched.declare_parameter @count = 3 : index
// CHECK: sched.program @forward on before_forward {
// CHECK: %[[COUNT:.*]] = sched.parameter @count : index
// CHECK: %[[FIRST:.*]] = arith.cmpi eq, %{{.*}}, %c0 : index
// CHECK: sched.if %[[FIRST]] {
// CHECK:   sched.launch "copy" {} count %[[COUNT]] {{.*}} signals %[[COPIED:.*]][%c0]
// CHECK: sched.wait_gate before_update on cpu signals %[[GATE:.*]][%c0]
// CHECK: %[[A:.*]] = sched.event %[[COPIED]][%c0] when %[[FIRST]]
// CHECK: %[[B:.*]] = sched.event %[[GATE]][%c0]
// CHECK: sched.send %{{.*}} after(%[[A]], %[[B]] : !sched.event, !sched.event)
chunk.schedule @guarded grain 8 accepts [f32] owns_update {
  chunk.declare_parameter @count = 3 : index
  chunk.program @forward on before_forward {
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %four = arith.constant 4 : index
    %count = chunk.parameter @count : index
    %bytes = arith.muli %count, %four : index
    %w = chunk.job weight
    %s = chunk.scratch %bytes
    %in = chunk.slots %one, %bytes
    chunk.forall %r {
      %x = chunk.range %w[%zero, %bytes]
      %y = chunk.range %s[%zero, %bytes]
      %first = arith.cmpi eq, %r, %zero : index
      chunk.if %first {
        chunk.launch "copy" count %count ins(%x : !chunk.range) outs(%y : !chunk.range)
      }
      chunk.wait before_update
      chunk.move %y to rotate(%one) into %in[%zero]
    }
    chunk.cost rounds %one wire_bytes %bytes
  }
}

// Parts of two groups say nothing of each other, whatever their numbers: the write waits for every send. Of one group
// it waits for none, as what travels is the others'.
// CHECK-LABEL: sched.schedule @parts_of_two_groups
//       CHECK:   sched.send %[[G:.*]][%{{.*}}] to %{{.*}} channel 0 signals %[[SENT:.*]][%{{.*}}]
//       CHECK:   %[[ALL:.*]] = sched.gather %[[P:.*]] = %c1 to %[[N:.*]] {
//       CHECK:     sched.event %[[SENT]][%[[P]]]{{$}}
//       CHECK:   sched.launch "copy" {{.*}} after(%[[ALL]] : !sched.event_list){{$}}
//       CHECK:   sched.launch "copy" {{.*}} outs(%{{.*}} : !sched.range){{$}}
chunk.schedule @parts_of_two_groups grain 1 accepts [f32] {
  chunk.program @p on gradient {
    %zero = arith.constant 0 : index
    %one = arith.constant 1 : index
    %n = chunk.world
    %s = chunk.local_size
    %l = chunk.local_rank
    %len = chunk.length
    %eb = chunk.element_bytes
    %part = arith.floordivsi %len, %n : index
    %size = arith.muli %part, %eb : index
    %of_node = arith.floordivsi %len, %s : index
    %node_size = arith.muli %of_node, %eb : index
    %total = arith.muli %n, %size : index
    %g = chunk.job gradient
    %x = chunk.scratch %node_size
    %in = chunk.slots %n, %size
    chunk.forall %r {
      chunk.for %k = %one to %n {
        %up = arith.addi %r, %k : index
        %p = arith.remsi %up, %n : index
        %offset = arith.muli %p, %size : index
        %from = chunk.range %g[%offset, %size] part(%p)
        chunk.move %from to rotate(%k) into %in[%r]
      }
      %mine = arith.muli %l, %node_size : index
      %y = chunk.range %x[%zero, %node_size]
      %node = chunk.range %g[%mine, %node_size] part(%l) of node
      chunk.launch "copy" count %of_node ins(%y : !chunk.range) outs(%node : !chunk.range)
      %own = arith.muli %r, %size : index
      %z = chunk.range %x[%zero, %size]
      %world = chunk.range %g[%own, %size] part(%r)
      chunk.launch "copy" count %part ins(%z : !chunk.range) outs(%world : !chunk.range)
    }
    chunk.cost rounds %one wire_bytes %total
  }
}
