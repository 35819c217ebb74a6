// The example of SPEC.md, "User codecs": a block's largest magnitude, and codes in −7…7 of it.

bagua.codec @absmax4 block(512) header(f32) code(i4) {
  stats(%x) { max abs(%x) }
  encode(%x, %h) { %x / %h * 7.0 }
  decode(%q, %h) { %q / 7.0 * %h }
}

bagua.algorithm @absmax4_mean {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %mean = bagua.all_reduce mean %g via #bagua.codec<@absmax4>
    bagua.update gradient = %mean
  }
}
