// QSGD: gradients travel as a norm per block and, per element, one of 15 levels, chosen at random so that the
// mean is right.
// Alistarh et al., QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding, arXiv
// 1610.02132, algorithm 1; both ways, as BAGUA, arXiv 2107.01499, sends it ("C_LP_S").

#qsgd = #bagua.qsgd<levels = 7, block = 512, norm = l2>

bagua.algorithm @qsgd(%seed: index = 0) {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %mean = bagua.all_reduce mean %g via #qsgd
    bagua.update gradient = %mean
  }
}
