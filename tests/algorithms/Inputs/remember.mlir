// Memory beside codecs that draw on both ends, on one, and a user's; at both ends, and at the worker alone.

#absmax8 = #bagua.codec<@absmax8>
!bucket = tensor<?xf32, #bagua.bucket>

bagua.codec @absmax8 block(16) header(f32) code(i8) {
  stats(%x) { max abs(%x) }
  encode(%x, %h) { %x / %h * 127.0 }
  decode(%q, %h) { %q / 127.0 * %h }
}

bagua.algorithm @remember(%seed: index = 3) {
  bagua.state @e : bucket = 0.0
  bagua.state @s : shard<@world> = 0.0
  bagua.state @f : bucket = 0.0
  bagua.state @h : bucket = 0.0
  bagua.state @i : shard<@world> = 0.0
  bagua.on gradient(%g: !bucket) {
    %a = bagua.all_reduce mean %g via #bagua.randk<k = 8, block = 24, scaled = false> remember @e, @s
    %b = bagua.all_reduce sum %a via #bagua.qsgd<levels = 7, block = 32> remember @f
    %c = bagua.all_reduce mean %b over @world via #absmax8 remember @h, @i
    bagua.update gradient = %c
  }
}
