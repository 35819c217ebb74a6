#mm = #bagua.minmax<bits = 5, block = 64>
!bucket = tensor<?xf32, #bagua.bucket>
bagua.algorithm @whole_buckets_packed {
  bagua.on gradient(%g: !bucket) {
    %n = bagua.world
    %two = arith.constant 2 : index
    %many = arith.cmpi uge, %n, %two : index
    scf.if %many {
      %q = bagua.encode %g with #mm
      %all = bagua.all_gather %q : !bagua.packed<#mm, !bucket> over @world
      %values = bagua.decode %all : !bagua.per<@world, !bagua.packed<#mm, !bucket>>
      %sum = bagua.reduce sum %values : !bagua.per<@world, !bucket>
      bagua.update gradient = %sum
    }
  }
}
