// The mean is computed on every step and kept on some: it must not be computed in the gradient's place.
bagua.algorithm @update_in_branch {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %n = bagua.world
    %three = arith.constant 3 : index
    %mean = bagua.all_reduce mean %g
    %some = arith.cmpi uge, %n, %three : index
    scf.if %some {
      bagua.update gradient = %mean
    }
  }
}
