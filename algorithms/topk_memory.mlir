// Mem-SGD: of each block only the largest elements travel, with their indices; the others stay in a
// memory and are added to the next gradient.
// Stich, Cordonnier, Jaggi, Sparsified SGD with Memory, arXiv 1809.07599, algorithm 1.
//
// Every rank sends its packed gradient to all others, and averages what it decodes. The memory is of gradients, there
// of steps: the same while the learning rate is.

#topk = #bagua.topk<k = 64, block = 4096>
!bucket = tensor<?xf32, #bagua.bucket>
!packed = !bagua.packed<#topk, !bucket>

bagua.algorithm @topk_memory {
  bagua.state @e : bucket = 0.0 on_resize mean
  bagua.on gradient(%g: !bucket) {
    %world = bagua.world
    %one = arith.constant 1 : index
    %many = arith.cmpi ugt, %world, %one : index
    scf.if %many {
      %e = bagua.read @e
      %c = bagua.map %g + %e
      %q = bagua.encode %c with #topk
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
