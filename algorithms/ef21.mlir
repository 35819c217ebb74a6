// EF21: what travels is the compressed difference between the gradient and what was sent of it so far,
// so nothing has to be remembered as an error.
// Richtárik, Sokolov, Fatkhullin, EF21: A New, Simpler, Theoretically Better, and Practically Faster Error
// Feedback, arXiv 2106.05203, algorithm 2.
//
// @local is this rank's estimate of its gradient, @shared the mean of all estimates: the step's direction.

#topk = #bagua.topk<k = 256, block = 4096>
!bucket = tensor<?xf32, #bagua.bucket>
!packed = !bagua.packed<#topk, !bucket>

bagua.algorithm @ef21 {
  bagua.state @local : bucket = 0.0 on_resize zero
  bagua.state @shared : bucket = 0.0 on_resize zero
  bagua.on gradient(%g: !bucket) {
    %world = bagua.world
    %one = arith.constant 1 : index
    %many = arith.cmpi ugt, %world, %one : index
    scf.if %many {
      %local = bagua.read @local
      %c = bagua.map %g - %local
      %q = bagua.encode %c with #topk
      %d = bagua.decode %q : !packed
      %moved = bagua.map %local + %d
      bagua.update @local = %moved
      %all = bagua.all_gather %q : !packed over @world
      %values = bagua.decode %all : !bagua.per<@world, !packed>
      %mean = bagua.reduce mean %values : !bagua.per<@world, !bucket>
      %shared = bagua.read @shared
      %next = bagua.map %shared + %mean
      bagua.update @shared = %next
      bagua.update gradient = %next
    }
  }
}
