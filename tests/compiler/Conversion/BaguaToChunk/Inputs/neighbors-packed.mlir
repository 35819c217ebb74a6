// Neighbours hear a coarse copy; one's own value stays exact. Mixed twice: the first result is no update.
#ring = #bagua.topology<offsets = [1, -1], weights = [1/4, 1/3]>
#mm = #bagua.minmax<bits = 6, block = 40>
!bucket = tensor<?xf32, #bagua.bucket>
bagua.algorithm @neighbors_packed {
  bagua.on before_forward(%w: !bucket) {
    %n = bagua.world
    %one = arith.constant 1 : index
    %many = arith.cmpi ne, %n, %one : index
    scf.if %many {
      %q = bagua.encode %w with #mm
      %near = bagua.neighbor_exchange %q : !bagua.packed<#mm, !bucket> on #ring
      %values = bagua.decode %near : !bagua.per<#ring, !bagua.packed<#mm, !bucket>>
      %x = bagua.mix %w, %values on #ring
      %again = bagua.neighbor_exchange %x on #ring
      %y = bagua.mix %x, %again on #ring
      bagua.update weight = %y at before_update
    }
  }
}
