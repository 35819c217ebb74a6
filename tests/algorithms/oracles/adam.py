"""Algorithms that own the update: Adam whose momentum travels compressed once its variance is frozen."""

import numpy as np

from .arithmetic import F32
from .codecs import MinMax
from .gradients import DoubleSqueeze


class OneBitAdam(DoubleSqueeze):
    """2102.02888, algorithm 1: Adam for `warmup` steps; then v stays, and momentum travels with error feedback on both
    sides. Unlike there, v is corrected for its start by c2, a moving average of ones that is frozen with it, and momentum is
    squeezed in units of the root of v, at most 1. Weight decay is added to the gradient."""

    owns_update = True
    defaults = dict(lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0, warmup=100)

    def initial(self):
        one = [np.zeros(1, np.float32)] * self.world
        return {"m": self.zeros(), "v": self.zeros(), "c2": one, **super().initial()}

    def decayed(self, g, w):
        return [x + F32(self.weight_decay) * y for x, y in zip(g, w)]

    def momentum(self, g):
        b, c = F32(self.beta1), F32(1 - self.beta1)
        return [b * m + c * x for m, x in zip(self.states["m"], g)]

    @staticmethod
    def in_units(m, unit):
        return [np.clip(x / s, F32(-1), F32(1)) for x, s in zip(m, unit)]

    def gradient(self, g, w):
        ranks = range(self.world)
        v, c2 = self.states["v"], self.states["c2"]
        lr, eps = F32(self.lr), F32(self.eps)
        if self.step_number < self.warmup:
            a = self.decayed(self.all_reduce_mean(g), w)
            m = self.momentum(a)
            b, d = F32(self.beta2), F32(1 - self.beta2)
            v = [b * v[r] + d * a[r] * a[r] for r in ranks]
            c2 = [b * c + d for c in c2]
            self.stage("v", v)
            self.stage("c2", c2)
            updates = [lr * m[r] / (np.sqrt(v[r] / c2[r]) + eps) for r in ranks]
        else:
            unit = [np.sqrt(v[r] / np.maximum(c2[r], F32(1e-30))) + eps for r in ranks]
            u = self.in_units(self.momentum(self.decayed(g, w)), unit)
            u = u if self.world == 1 else self.squeeze(u)
            m = [x * s for x, s in zip(u, unit)]
            updates = [lr * x for x in u]
        self.stage("m", m)
        return None, [x - y for x, y in zip(w, updates)]


class QAdam(OneBitAdam):
    """BAGUA's QAdam (2107.01499, section 4.2; structure of 2102.02888) with 8 bits and bias correction,
    no error feedback. c1, c2: moving averages of ones, so 1 − βᵗ over the steps that counted; c2 is frozen with v. Momentum
    travels in units of the root of v, at most 1."""

    def __init__(self, weights, codec=None, **named):
        super().__init__(weights, codec or MinMax(8, 2048), **named)

    def initial(self):
        one = [np.zeros(1, np.float32)] * self.world
        return {"m": self.zeros(), "v": self.zeros(), "c1": one, "c2": list(one)}

    def gradient(self, g, w):
        ranks = range(self.world)
        b1, d1 = F32(self.beta1), F32(1 - self.beta1)
        b2, d2 = F32(self.beta2), F32(1 - self.beta2)
        lr, eps = F32(self.lr), F32(self.eps)
        c1 = [b1 * c + d1 for c in self.states["c1"]]
        if self.step_number < self.warmup:
            a = self.decayed(self.all_reduce_mean(g), w)
            m = self.momentum(a)
            v = [b2 * self.states["v"][r] + d2 * a[r] * a[r] for r in ranks]
            c2 = [b2 * c + d2 for c in self.states["c2"]]
            self.stage("v", v)
            self.stage("c2", c2)
            updates = [lr / c1[r] * m[r] / (np.sqrt(v[r] / c2[r]) + eps) for r in ranks]
        else:
            c2 = [np.maximum(c, F32(1e-30)) for c in self.states["c2"]]
            unit = [np.sqrt(v / c) + eps for v, c in zip(self.states["v"], c2)]
            u = self.all_reduce_mean_via(self.codec, self.in_units(self.momentum(self.decayed(g, w)), unit))
            m = [x * s for x, s in zip(u, unit)]
            updates = [lr / c1[r] * u[r] for r in ranks]
        self.stage("m", m)
        self.stage("c1", c1)
        return None, [x - y for x, y in zip(w, updates)]
