// Random k: an eighth of the elements travels, drawn anew at each step and alike by all ranks, so no index does;
// scaled up so that the mean is right; the variance grows eightfold, and wants a smaller learning rate.
// Wangni et al., Gradient Sparsification for Communication-Efficient Distributed Optimization, arXiv
// 1710.09854, with equal probabilities.
//
// Every rank sends its packed gradient to all others, and averages what it decodes.

#randk = #bagua.randk<k = 512, block = 4096>
!bucket = tensor<?xf32, #bagua.bucket>
!packed = !bagua.packed<#randk, !bucket>

bagua.algorithm @random_k(%seed: index = 0) {
  bagua.on gradient(%g: !bucket) {
    %world = bagua.world
    %one = arith.constant 1 : index
    %many = arith.cmpi ugt, %world, %one : index
    scf.if %many {
      %q = bagua.encode %g with #randk
      %all = bagua.all_gather %q : !packed over @world
      %values = bagua.decode %all : !bagua.per<@world, !packed>
      %mean = bagua.reduce mean %values : !bagua.per<@world, !bucket>
      bagua.update gradient = %mean
    }
  }
}
