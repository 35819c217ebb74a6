// DoubleSqueeze: gradients are compressed on the way to the shard's owner and on the way back, with a
// memory of what was lost at both ends.
// Tang et al., DoubleSqueeze: Parallel Stochastic Gradient Descent with Double-Pass Error-Compensated
// Compression, arXiv 1905.05957, algorithm 1.

#sign = #bagua.sign<block = 256>

bagua.algorithm @doublesqueeze {
  bagua.state @ew : bucket = 0.0 on_resize mean
  bagua.state @es : shard<@world> = 0.0 on_resize repartition
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %mean = bagua.all_reduce mean %g via #sign remember @ew, @es
    bagua.update gradient = %mean
  }
}
