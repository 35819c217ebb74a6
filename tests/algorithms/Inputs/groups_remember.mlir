// What a codec loses over a group is remembered; beside the steps go rounds over the node and across the nodes.
#minmax = #bagua.minmax<bits = 4, block = 8>
!bucket = tensor<?xf32, #bagua.bucket>
bagua.algorithm @groups_remember(%interval_steps: index = 3) {
  bagua.state @across : bucket = 0.0
  bagua.state @within : bucket = 0.0
  bagua.on gradient(%g: !bucket) {
    %a = bagua.all_reduce mean %g over @cross via #minmax remember @across
    %b = bagua.all_reduce mean %a over @node via #minmax remember @within
    bagua.update gradient = %b
  }
  bagua.on async every(%interval_steps steps) staleness(2) (%w: !bucket) {
    %a = bagua.all_reduce mean %w over @node
    %b = bagua.all_reduce mean %a over @cross via #minmax
    %d = bagua.map %b - %w
    bagua.update weight += %d
  }
}
