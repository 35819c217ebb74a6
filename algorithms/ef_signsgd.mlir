// EF-signSGD: gradients travel as one bit per element and a scale per block; what the signs lose stays
// in a memory and is added to the next gradient.
// Karimireddy et al., Error Feedback Fixes SignSGD, arXiv 1901.09847, algorithm 1.
//
// Every rank sends its packed gradient to all others, and averages what it decodes. The memory is of gradients, there
// of steps: the same while the learning rate is.

#sign = #bagua.sign<block = 256>
!bucket = tensor<?xf32, #bagua.bucket>
!packed = !bagua.packed<#sign, !bucket>

bagua.algorithm @ef_signsgd {
  bagua.state @e : bucket = 0.0 on_resize mean
  bagua.on gradient(%g: !bucket) {
    %world = bagua.world
    %one = arith.constant 1 : index
    %many = arith.cmpi ugt, %world, %one : index
    scf.if %many {
      %e = bagua.read @e
      %c = bagua.map %g + %e
      %q = bagua.encode %c with #sign
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
