// The gradient is read again after its mean is known: the mean must not be computed in its place.
bagua.algorithm @original_needed {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %mean = bagua.all_reduce mean %g
    %sum = bagua.all_reduce sum %g
    %both = bagua.all_reduce sum %mean
    bagua.update gradient = %mean
  }
}
