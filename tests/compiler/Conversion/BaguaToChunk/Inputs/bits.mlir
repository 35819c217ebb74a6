// Codes that share bytes, blocks that are no power of two.
bagua.algorithm @bits {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %x = bagua.all_reduce sum %g via #bagua.minmax<bits = 3, block = 24>
    bagua.update gradient = %x
  }
}
