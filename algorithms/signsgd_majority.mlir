// signSGD with majority vote: one bit per element goes to the shard's owner, one comes back. The
// gradient that the optimizer sees is +1 or -1.
// Bernstein et al., signSGD with Majority Vote is Communication Efficient and Fault Tolerant, arXiv
// 1810.05291, algorithm 1 with beta = 0: momentum is the optimizer's, after the vote.
//
// A vote has one bit: a gradient of zero and a tie count as +1 in even steps and as -1 in odd ones, so that
// weights nobody votes on stay where they are. x - x is 0, or NaN where x is not finite, so that every rank sees
// it. Votes are +-1, whose scale is 1: the codec loses nothing.

#sign = #bagua.sign<block = 256>
!bucket = tensor<?xf32, #bagua.bucket>
!shard = tensor<?xf32, #bagua.shard<@world>>
!parts = !bagua.per<@world, !bagua.packed<#sign, !shard>>
!mine = !bagua.per<@world, !bagua.packed<#sign, !shard>, own>

bagua.algorithm @signsgd_majority {
  bagua.on gradient(%g: !bucket) {
    %world = bagua.world
    %one = arith.constant 1 : index
    %many = arith.cmpi ugt, %world, %one : index
    %step = bagua.step
    %two = arith.constant 2 : index
    %odd = arith.remsi %step, %two : index
    scf.if %many {
      %vote = bagua.map select(%g == 0.0, 1.0 - 2.0 * %odd, select(%g < 0.0, -1.0, 1.0)) + (%g - %g)
      %split = bagua.split %vote over @world
      %q = bagua.encode %split : !bagua.per<@world, !shard> with #sign
      %got = bagua.all_to_all %q : !parts over @world
      %votes = bagua.decode %got : !mine
      %sum = bagua.reduce sum %votes : !bagua.per<@world, !shard, own>
      %winner = bagua.map select(%sum == 0.0, 1.0 - 2.0 * %odd, select(%sum < 0.0, -1.0, 1.0)) + (%sum - %sum) : !shard
      %p = bagua.encode %winner : !shard with #sign
      %all = bagua.all_gather %p : !bagua.packed<#sign, !shard> over @world
      %winners = bagua.decode %all : !parts
      %sign = bagua.concat %winners : !bagua.per<@world, !shard>
      bagua.update gradient = %sign
    }
  }
}
