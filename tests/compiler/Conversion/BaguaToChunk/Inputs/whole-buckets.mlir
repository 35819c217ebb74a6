// Everyone's whole bucket on every rank: the fold must not overwrite what peers still read.
!bucket = tensor<?xf32, #bagua.bucket>
bagua.algorithm @whole_buckets {
  bagua.on gradient(%g: !bucket) {
    %all = bagua.all_gather %g over @world
    %mean = bagua.reduce mean %all : !bagua.per<@world, !bucket>
    bagua.update gradient = %mean
  }
}
