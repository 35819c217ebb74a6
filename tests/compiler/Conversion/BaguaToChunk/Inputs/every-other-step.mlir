// Communication on even steps only.
bagua.algorithm @every_other_step {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %s = bagua.step
    %two = arith.constant 2 : index
    %zero = arith.constant 0 : index
    %phase = arith.remui %s, %two : index
    %even = arith.cmpi eq, %phase, %zero : index
    scf.if %even {
      %mean = bagua.all_reduce mean %g
      bagua.update gradient = %mean
    }
  }
}
