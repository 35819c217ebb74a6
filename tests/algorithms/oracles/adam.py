"""Algorithms that own the update: Adam whose momentum travels compressed once its variance is frozen."""

import numpy as np

from .arithmetic import F32
from .codecs import MinMax
from .gradients import DoubleSqueeze


class OneBitAdam(DoubleSqueeze):
    """2102.02888, algorithm 1. Adam without bias correction for `warmup` steps; then v stays, and
    momentum travels with error feedback on both sides. Weight decay is added to the gradient."""

    owns_update = True
    defaults = dict(lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0, warmup=100)

    def initial(self):
        return {"m": self.zeros(), "v": self.zeros(), **super().initial()}

    def decayed(self, g, w):
        return [x + F32(self.weight_decay) * y for x, y in zip(g, w)]

    def momentum(self, g):
        b, c = F32(self.beta1), F32(1 - self.beta1)
        return [b * m + c * x for m, x in zip(self.states["m"], g)]

    def gradient(self, g, w):
        ranks = range(self.world)
        if self.step_number < self.warmup:
            a = self.decayed(self.all_reduce_mean(g), w)
            m = self.momentum(a)
            b, c = F32(self.beta2), F32(1 - self.beta2)
            v = [b * self.states["v"][r] + c * a[r] * a[r] for r in ranks]
            self.stage("v", v)
        else:
            m = self.momentum(self.decayed(g, w))
            m = m if self.world == 1 else self.squeeze(m)
            v = self.states["v"]
        self.stage("m", m)
        lr, eps = F32(self.lr), F32(self.eps)
        return None, [w[r] - lr * m[r] / (np.sqrt(v[r]) + eps) for r in ranks]


class QAdam(OneBitAdam):
    """BAGUA's QAdam (2107.01499, section 4.2; structure of 2102.02888) with 8 bits and bias correction,
    no error feedback. c1, c2: moving averages of ones, so 1 − βᵗ over the steps that counted; c2 is frozen with v."""

    def __init__(self, weights, codec=None, **named):
        super().__init__(weights, codec or MinMax(8, 2048), **named)

    def initial(self):
        one = [np.zeros(1, np.float32)] * self.world
        return {"m": self.zeros(), "v": self.zeros(), "c1": one, "c2": list(one)}

    def gradient(self, g, w):
        ranks = range(self.world)
        b1, d1 = F32(self.beta1), F32(1 - self.beta1)
        b2, d2 = F32(self.beta2), F32(1 - self.beta2)
        if self.step_number < self.warmup:
            a = self.decayed(self.all_reduce_mean(g), w)
            m = self.momentum(a)
            v = [b2 * self.states["v"][r] + d2 * a[r] * a[r] for r in ranks]
            c2 = [b2 * c + d2 for c in self.states["c2"]]
            self.stage("v", v)
            self.stage("c2", c2)
        else:
            m = self.all_reduce_mean_via(self.codec, self.momentum(self.decayed(g, w)))
            v, c2 = self.states["v"], self.states["c2"]
        c1 = [b1 * c + d1 for c in self.states["c1"]]
        self.stage("m", m)
        self.stage("c1", c1)
        lr, eps = F32(self.lr), F32(self.eps)
        return None, [
            w[r] - lr / c1[r] * m[r] / (np.sqrt(v[r] / c2[r]) + eps) for r in ranks
        ]
