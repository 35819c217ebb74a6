// Asynchronous model averaging: every rank trains alone, and beside that the ranks average their weights, a
// round every `sync_interval_ms` milliseconds. The trainer goes on; what a round says of a rank's weights is
// added to them between two later steps. Before the first round gradients are averaged, for `warmup_steps`.
// BAGUA, arXiv 2107.01499, section 4 ("Async"); parameters and their defaults are the reference system's.

!bucket = tensor<?xf32, #bagua.bucket>

bagua.algorithm @async_model_average(%sync_interval_ms: index = 500, %warmup_steps: index = 0) {
  bagua.on gradient(%g: !bucket) {
    %step = bagua.step
    %warm = arith.cmpi ult, %step, %warmup_steps : index
    scf.if %warm {
      %mean = bagua.all_reduce mean %g
      bagua.update gradient = %mean
    }
  }
  bagua.on async every(%sync_interval_ms ms) after(%warmup_steps) staleness(4) (%w: !bucket) {
    %mean = bagua.all_reduce mean %w
    %d = bagua.map %mean - %w
    bagua.update weight += %d
  }
}
