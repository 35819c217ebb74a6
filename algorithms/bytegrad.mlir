// ByteGrad: averages gradients that travel in 8 bits per element.
// BAGUA, arXiv 2107.01499, section 4 ("C_LP_S", centralized, low precision, synchronous); the codec scales
// blocks of 2048 elements between their minimum and maximum, where the paper's scales a whole chunk.
//
// Each rank encodes its gradient and sends shard j to rank j; rank j decodes and averages the n
// contributions, encodes the mean and sends it to everyone. One's own shard passes through the codec
// too, so replicas stay equal bit for bit. Alone (n = 1) nothing is encoded.

#minmax8 = #bagua.minmax<bits = 8, block = 2048>

bagua.algorithm @bytegrad {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %mean = bagua.all_reduce mean %g via #minmax8
    bagua.update gradient = %mean
  }
}
