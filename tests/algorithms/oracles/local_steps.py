"""Algorithms that communicate every `interval` steps only."""

import numpy as np

from .arithmetic import F32
from .job import Job


class LocalSgd(Job):
    """1805.09767, algorithm 1: after each `interval`-th step the weights are averaged."""

    defaults = dict(interval=4)

    def due(self):
        return self.world > 1 and (self.step_number + 1) % self.interval == 0

    def after_update(self, w):
        return self.all_reduce_mean(w) if self.due() else None


class PostLocalSgd(LocalSgd):
    """1808.07217, section 3: mini-batch SGD for `warmup` steps, then local SGD."""

    defaults = dict(interval=4, warmup=100)

    def gradient(self, g, w):
        return (self.all_reduce_mean(g) if self.step_number < self.warmup else None), None

    def after_update(self, w):
        return super().after_update(w) if self.step_number >= self.warmup else None


class Anchored(LocalSgd):
    """Keeps the weights of the last synchronization."""

    def initial(self):
        return {"anchor": [w.copy() for w in self.weights], **self.more()}

    def after_update(self, w):
        if not self.due():
            return None
        w = self.synchronize(self.states["anchor"], w)
        self.stage("anchor", w)
        return w


class QsparseLocalSgd(Anchored):
    """1906.02367, algorithm 1: what moved since the last synchronization travels compressed, with memory."""

    def __init__(self, weights, codec, **named):
        self.codec, self.grain = codec, codec.block
        super().__init__(weights, **named)

    def more(self):
        return {"e": self.zeros()}

    def synchronize(self, x, w):
        ranks = range(self.world)
        c = [(x[r] - w[r]) + self.states["e"][r] for r in ranks]
        packed = self.encode(self.codec, c, 0)
        d = self.decode_all(self.codec, packed, 0)
        self.stage("e", [c[r] - d[r] for r in ranks])
        average = self.mean_of_all(self.codec, packed, 0)
        return [x[r] - average[r] for r in ranks]


class SlowMo(Anchored):
    """1910.00643, algorithm 1: u ← β u + (x₀ − x̄)/γ, x ← x₀ − α γ u. `u` here is γ u, the same at a
    constant learning rate γ."""

    defaults = dict(interval=4, beta=0.7, alpha=1.0)

    def more(self):
        return {"u": self.zeros()}

    def synchronize(self, x, w):
        ranks = range(self.world)
        average = self.all_reduce_mean(w)
        u = [F32(self.beta) * self.states["u"][r] + (x[r] - average[r]) for r in ranks]
        self.stage("u", u)
        return [x[r] - F32(self.alpha) * u[r] for r in ranks]


class DiLoCo(Anchored):
    """2311.08105, algorithm 1: the outer optimizer is SGD with Nesterov momentum, and the mean of
    x₀ − x_i its gradient."""

    defaults = dict(interval=4, outer_lr=0.7, momentum=0.9)

    def more(self):
        return {"b": self.zeros()}

    def synchronize(self, x, w):
        ranks = range(self.world)
        delta = self.all_reduce_mean([x[r] - w[r] for r in ranks])
        b = [F32(self.momentum) * self.states["b"][r] + delta[r] for r in ranks]
        self.stage("b", b)
        return [x[r] - F32(self.outer_lr) * (delta[r] + F32(self.momentum) * b[r]) for r in ranks]
