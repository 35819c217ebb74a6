// Whole buckets across the nodes and within one, under conditions that both groups' sizes decide.
#minmax = #bagua.minmax<bits = 4, block = 8>
!bucket = tensor<?xf32, #bagua.bucket>
!packed = !bagua.packed<#minmax, !bucket>
bagua.algorithm @groups_buckets {
  bagua.on gradient(%g: !bucket) {
    %nodes = bagua.nodes
    %local = bagua.local_size
    %one = arith.constant 1 : index
    %several = arith.cmpi ugt, %nodes, %one : index
    %mean = scf.if %several -> !bucket {
      %q = bagua.encode %g with #minmax
      %all = bagua.all_gather %q : !packed over @cross
      %values = bagua.decode %all : !bagua.per<@cross, !packed>
      %m = bagua.reduce mean %values : !bagua.per<@cross, !bucket>
      scf.yield %m : !bucket
    } else {
      scf.yield %g : !bucket
    }
    %shared = arith.cmpi ugt, %local, %nodes : index
    scf.if %shared {
      %of_node = bagua.all_gather %mean over @node
      %sum = bagua.reduce sum %of_node : !bagua.per<@node, !bucket>
      bagua.update gradient = %sum
    } else {
      bagua.update gradient = %mean
    }
  }
}
