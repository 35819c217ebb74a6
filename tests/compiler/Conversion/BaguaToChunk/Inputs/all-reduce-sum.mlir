bagua.algorithm @all_reduce_sum {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %sum = bagua.all_reduce sum %g
    bagua.update gradient = %sum
  }
}
