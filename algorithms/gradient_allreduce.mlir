// Averages gradients exactly: what DistributedDataParallel does, as the paper's baseline.
// BAGUA: Scaling up Distributed Learning with System Relaxations, arXiv 2107.01499, section 3.

bagua.algorithm @gradient_allreduce {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %mean = bagua.all_reduce mean %g
    bagua.update gradient = %mean
  }
}
