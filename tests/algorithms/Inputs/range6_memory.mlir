// Two headers, a block's least element and a step, and 6-bit codes; what they lose is remembered. The step may be
// rounded up: near the largest float the sum would overflow.

#range6 = #bagua.codec<@range6>
!bucket = tensor<?xf32, #bagua.bucket>
!packed = !bagua.packed<#range6, !bucket>

bagua.codec @range6 block(64) header(f32, f32) code(u6) {
  stats(%x) { min %x, max %x }
  headers(%lo, %hi) { %lo, (%hi - %lo) / 63.0 }
  encode(%x, %lo, %step) { (%x - %lo) / %step }
  decode(%q, %lo, %step) { min(%lo + %q * %step, 3.4028234663852886e38) }
}

bagua.algorithm @range6_memory {
  bagua.state @e : bucket = 0.0
  bagua.on gradient(%g: !bucket) {
    %world = bagua.world
    %one = arith.constant 1 : index
    %many = arith.cmpi ugt, %world, %one : index
    scf.if %many {
      %e = bagua.read @e
      %c = bagua.map %g + %e
      %q = bagua.encode %c with #range6
      %d = bagua.decode %q : !packed
      %lost = bagua.map %c - %d
      bagua.update @e = %lost
      %all = bagua.all_gather %q : !packed over @world
      %values = bagua.decode %all : !bagua.per<@world, !packed>
      %mean = bagua.reduce mean %values : !bagua.per<@world, !bucket>
      bagua.update gradient = %mean
    }
  }
}
