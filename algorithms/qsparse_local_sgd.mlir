// Qsparse-local-SGD: after each `interval`-th step, what the weights moved by travels sparsified, with a
// memory of what was left out.
// Basu et al., Qsparse-local-SGD: Distributed SGD with Quantization, Sparsification, and Local
// Computations, arXiv 1906.02367, algorithm 1, with top k.

#topk = #bagua.topk<k = 64, block = 4096>
!bucket = tensor<?xf32, #bagua.bucket>
!packed = !bagua.packed<#topk, !bucket>

bagua.algorithm @qsparse_local_sgd(%interval: index = 8) {
  bagua.state @anchor : bucket = weight
  bagua.state @e : bucket = 0.0
  bagua.on after_update(%w: !bucket) {
    %world = bagua.world
    %step = bagua.step
    %one = arith.constant 1 : index
    %zero = arith.constant 0 : index
    %done = arith.addi %step, %one : index
    %rest = arith.remsi %done, %interval : index
    %last = arith.cmpi eq, %rest, %zero : index
    %many = arith.cmpi ugt, %world, %one : index
    %due = arith.andi %last, %many : i1
    scf.if %due {
      %x = bagua.read @anchor
      %e = bagua.read @e
      %c = bagua.map (%x - %w) + %e
      %q = bagua.encode %c with #topk
      %d = bagua.decode %q : !packed
      %lost = bagua.map %c - %d
      bagua.update @e = %lost
      %all = bagua.all_gather %q : !packed over @world
      %values = bagua.decode %all : !bagua.per<@world, !packed>
      %mean = bagua.reduce mean %values : !bagua.per<@world, !bucket>
      %x1 = bagua.map %x - %mean
      bagua.update @anchor = %x1
      bagua.update weight = %x1
    }
  }
}
