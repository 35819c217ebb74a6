// Buckets through every group, plain and packed: their shards, counted by other groups, overlap in the job's buffer.
#minmax = #bagua.minmax<bits = 8, block = 16>
bagua.algorithm @groups_all_reduce {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %a = bagua.all_reduce mean %g over @node
    %b = bagua.all_reduce sum %a
    %c = bagua.all_reduce mean %b over @cross
    bagua.update gradient = %c
  }
  bagua.on before_forward(%w: tensor<?xf32, #bagua.bucket>) {
    %a = bagua.all_reduce mean %w over @cross via #minmax
    %b = bagua.all_reduce mean %a over @node via #minmax
    bagua.update weight = %b at before_update
  }
}
