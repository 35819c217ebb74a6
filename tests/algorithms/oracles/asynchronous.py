"""Algorithms with rounds beside the steps, on ranks that make their steps together."""

from dataclasses import replace

from .job import Job
from .topologies import Pairing


class Asynchronous(Job):
    """At a boundary, the end of a step, what a round that began `staleness` boundaries ago found is added to the
    weights, and then the next one begins if it is due, or was meanwhile: on the weights as they are."""

    staleness = 1

    def __init__(self, weights, staleness=None, **named):
        self.staleness = staleness or self.staleness
        self.rounds, self.waiting, self.added_at, self.deltas = 0, False, None, None
        super().__init__(weights, **named)

    # What an algorithm says.
    def due(self, boundary):
        """The first boundary, after the first step, is 1."""
        return boundary % self.interval == 0

    def round(self, number, w):
        """What is to be added to the weights `w`."""
        raise NotImplementedError

    def step(self, gradients):
        step = super().step(gradients)  # step_number is that of the boundary now
        if self.world == 1:
            return step
        if self.step_number == self.added_at:
            self.add()
        self.waiting = self.waiting or self.due(self.step_number)
        if self.waiting and self.deltas is None:
            self.deltas = self.round(self.rounds, [w.copy() for w in self.weights])
            self.rounds, self.waiting = self.rounds + 1, False
            self.added_at = self.step_number + self.staleness
        return replace(step, weights=[w.copy() for w in self.weights], wire=self.wire.sent)

    def add(self):
        self.weights = [w + d for w, d in zip(self.weights, self.deltas)]
        self.deltas = None

    def stop(self, step):
        if self.deltas is not None:
            self.add()
        return replace(step, weights=[w.copy() for w in self.weights])


class AsyncModelAverage(Asynchronous):
    """BAGUA 2107.01499, "Async": w ← w + (mean(snapshots) − snapshot), after a warm-up of averaged gradients. A
    round is due as soon as the last one has ended: the clock is taken to be faster than the steps."""

    staleness = 4
    defaults = dict(sync_interval_ms=500, warmup_steps=0)

    def gradient(self, g, w):
        return (self.all_reduce_mean(g) if self.step_number < self.warmup_steps else None), None

    def due(self, boundary):
        return boundary >= self.warmup_steps

    def round(self, number, w):
        average = self.all_reduce_mean(w)
        return [average[r] - w[r] for r in range(self.world)]


class AdPsgd(Asynchronous):
    """1710.06952, algorithm 1: x_i, x_j ← (x_i + x_j)/2 with a random partner, then x_i ← x_i − γ g(x̂_i), x̂_i
    being x_i of some steps ago."""

    staleness = 2
    topology = Pairing(1710)
    defaults = dict(interval=1)

    def round(self, number, w):
        self.exchange(self.topology, [4 * self.length] * self.world, number)
        halfway = self.mix_on(self.topology, w, [w] * self.world, number)
        return [halfway[r] - w[r] for r in range(self.world)]
