// RUN: bagua-opt %s --bagua-inline-functions | FileCheck %s
// Functions of the file and of the prelude, one within another, and in a branch; none is left.
// CHECK-NOT: func.func
!bucket = tensor<?xf32, #bagua.bucket>
func.func private @twice(%x: !bucket) -> !bucket {
  %y = bagua.map %x + %x
  return %y : !bucket
}
func.func private @four_times(%x: !bucket) -> !bucket {
  %y = bagua.call @twice(%x) : (!bucket) -> !bucket
  %z = bagua.call @twice(%y) : (!bucket) -> !bucket
  return %z : !bucket
}
// CHECK-LABEL: bagua.algorithm @calls
bagua.algorithm @calls(%beta: f64 = 0.9) {
  bagua.state @m : bucket = 0.0
  // CHECK: bagua.on gradient(%[[G:.*]]: tensor
  bagua.on gradient(%g: !bucket) {
    // CHECK: %[[M:.*]] = bagua.read @m
    %m = bagua.read @m
    // CHECK: %[[REST:.*]] = arith.subf %{{.*}}, %beta
    // CHECK-NEXT: %[[M1:.*]] = bagua.map %beta * %[[M]] + %[[REST]] * %[[G]]
    %m1 = bagua.call @momentum(%m, %g, %beta) : (!bucket, !bucket, f64) -> !bucket
    // CHECK-NEXT: bagua.update @m = %[[M1]]
    bagua.update @m = %m1
    %n = bagua.world
    %one = arith.constant 1 : index
    %many = arith.cmpi ugt, %n, %one : index
    // CHECK: scf.if
    scf.if %many {
      // CHECK-NEXT: %[[X:.*]] = bagua.map %[[M1]] + %[[M1]]
      // CHECK-NEXT: %[[Y:.*]] = bagua.map %[[X]] + %[[X]]
      %x = bagua.call @four_times(%m1) : (!bucket) -> !bucket
      // CHECK-NEXT: bagua.update gradient = %[[Y]]
      bagua.update gradient = %x
    }
  }
}
// CHECK-NOT: func.func
