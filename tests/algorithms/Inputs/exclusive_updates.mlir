// A state that exclusive branches update, at different depths, and on one path none; read after.
bagua.algorithm @exclusive_updates(%first: index = 1, %second: index = 3) {
  bagua.state @e : bucket = 0.0
  bagua.state @f : bucket = 1.0
  bagua.state @seen : bucket = 0.0
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %step = bagua.step
    %early = arith.cmpi ult, %step, %first : index
    %soon = arith.cmpi ult, %step, %second : index
    %e = bagua.read @e
    %f = bagua.read @f
    %sum = bagua.map %g + %e
    scf.if %early {
      bagua.update @e = %g
      scf.if %soon {
        bagua.update @f = %g
      }
    } else {
      scf.if %soon {
        %mean = bagua.all_reduce mean %sum
        bagua.update @e = %mean
        bagua.update @f = %e
      } else {
        %half = bagua.map 0.5 * (%e + %f)
        scf.if %early {
          bagua.update @f = %half
        } else {
          bagua.update @f = %sum
        }
      }
    }
    %now = bagua.read @e
    %seen = bagua.read @seen
    %sees = bagua.map 0.5 * %seen + %now
    bagua.update @seen = %sees
    %out = bagua.all_reduce mean %g
    bagua.update gradient = %out
  }
}
