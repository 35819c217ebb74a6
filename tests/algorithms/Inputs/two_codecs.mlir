// Two codecs whose blocks do not divide each other; the first has no header but a count, all
// functions and a comparison; neighbours and shards. Codes of 1 and of 11 bits end within a byte.

#ring = #bagua.topology<offsets = [1, -1], weights = [1/4, 1/3]>
#spread = #bagua.codec<@spread>
!bucket = tensor<?xf32, #bagua.bucket>
!sent = !bagua.packed<#spread, !bucket>

bagua.codec @mean_sign block(24) header(f32) code(u1) {
  stats(%x) { sum abs(%x), sum 1.0 }
  headers(%sum, %count) { %sum / %count }
  encode(%x, %h) { select(%x < 0.0, 1.0, 0.0) }
  decode(%q, %h) { select(%q == 1.0 and not %h < 0.0, -%h, %h) }
}

bagua.codec @spread block(40) header(f32, f32, f32) code(i11) {
  stats(%x) { sum %x, sum 1.0, max abs(%x), min sign(%x) }
  headers(%sum, %count, %most, %sign) { %sum / %count, max(%most, min(%sign, 0.0)), fma(%most, 2.0, %count) }
  encode(%x, %mean, %most, %w) { rint((%x - %mean) * (511.0 / (%most + %most))) + floor(0.5 + 0.0 * %w) }
  decode(%q, %mean, %most, %w) { fma(%q, sqrt(%most * %most) / 255.5, %mean) }
}

bagua.algorithm @two_codecs {
  bagua.on before_forward(%w: !bucket) {
    %q = bagua.encode %w with #spread
    %near = bagua.neighbor_exchange %q : !sent on #ring
    %values = bagua.decode %near : !bagua.per<#ring, !sent>
    %x = bagua.mix %w, %values on #ring
    bagua.update weight = %x at before_update
  }
  bagua.on gradient(%g: !bucket) {
    %sum = bagua.all_reduce sum %g via #bagua.codec<@mean_sign>
    bagua.update gradient = %sum
  }
}
