// TernGrad: gradients travel as -1, 0 or 1 times the largest magnitude of a block, chosen at random so that the
// mean is right.
// Wen et al., TernGrad: Ternary Gradients to Reduce Communication in Distributed Deep Learning, arXiv
// 1705.07878, algorithm 1.
//
// Every rank sends its packed gradient to all others, and averages what it decodes: the server's answer.

#ternary = #bagua.ternary<block = 512>
!bucket = tensor<?xf32, #bagua.bucket>
!packed = !bagua.packed<#ternary, !bucket>

bagua.algorithm @terngrad(%seed: index = 0) {
  bagua.on gradient(%g: !bucket) {
    %world = bagua.world
    %one = arith.constant 1 : index
    %many = arith.cmpi ugt, %world, %one : index
    scf.if %many {
      %q = bagua.encode %g with #ternary
      %all = bagua.all_gather %q : !packed over @world
      %values = bagua.decode %all : !bagua.per<@world, !packed>
      %mean = bagua.reduce mean %values : !bagua.per<@world, !bucket>
      bagua.update gradient = %mean
    }
  }
}
