// What a partner of the round sent is decoded before it is mixed: it is still of that round.
#mm = #bagua.minmax<bits = 8, block = 32>
#pairs = #bagua.round_robin

!packed = !bagua.packed<#mm, tensor<?xf32, #bagua.bucket>>

bagua.algorithm @coded_pairs {
  bagua.on before_forward(%w: tensor<?xf32, #bagua.bucket>) {
    %q = bagua.encode %w with #mm
    %own = bagua.decode %q : !packed
    %heard = bagua.neighbor_exchange %q : !packed on #pairs
    %values = bagua.decode %heard : !bagua.per<#pairs, !packed>
    %x = bagua.mix %own, %values on #pairs
    bagua.update weight = %x at before_update
  }
}
