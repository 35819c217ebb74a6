"""Algorithms that replace the gradient: the job's optimizer moves the weights."""

import numpy as np

from .arithmetic import F32, fold
from .codecs import MinMax
from .job import Job


class GradientAllReduce(Job):
    """The baseline, BAGUA 2107.01499, section 3: every rank gets the mean."""

    def gradient(self, g, w):
        return self.all_reduce_mean(g), None


class CompressedAllReduce(Job):
    """C_LP_S of BAGUA 2107.01499, section 3.2, without error compensation: with min-max ByteGrad,
    with a stochastic codec QSGD (1610.02132, algorithm 1)."""

    def __init__(self, weights, codec=None, **named):
        self.codec = codec or MinMax(8, 2048)
        self.grain = self.codec.block
        super().__init__(weights, **named)

    def gradient(self, g, w):
        return self.all_reduce_mean_via(self.codec, g), None


class GatheredMean(Job):
    """Every rank sends its encoded gradient to all; all average what they decode. TernGrad
    (1705.07878, algorithm 1, where the server's answer is this mean) and random k (1710.09854)."""

    def __init__(self, weights, codec, **named):
        self.codec, self.grain = codec, codec.block
        super().__init__(weights, **named)

    def gradient(self, g, w):
        if self.world == 1:
            return g, None
        return self.mean_of_all(self.codec, self.encode(self.codec, g, 0), 0), None


class SignMajority(Job):
    """signSGD with majority vote, 1810.05291, algorithm 1: the sign of the sum of signs. A vote has
    one bit: zeros and ties count as +1 in even steps, as -1 in odd ones."""

    def __init__(self, weights, codec, **named):
        self.codec, self.grain = codec, codec.block
        super().__init__(weights, **named)

    def vote(self, x):
        undecided = F32(-1 if self.step_number % 2 else 1)
        votes = np.where(x < 0, F32(-1), np.where(x > 0, F32(1), undecided))
        return votes + (x - x)  # x − x: 0, or NaN where x is not finite

    def gradient(self, g, w):
        if self.world == 1:
            return g, None
        packed = self.encode(self.codec, [self.vote(x) for x in g], 0)
        owned = [self.vote(x) for x in self.scatter(self.codec, packed, 0, fold)]
        first = [begin for begin, _ in self.shard_ranges()]
        return self.gather(self.codec, self.encode(self.codec, owned, 1, first), 1), None


class Memory(Job):
    """Error feedback at the workers: Mem-SGD 1809.07599, algorithm 1, with top k; EF-signSGD
    1901.09847, algorithm 1, with scaled signs. c = g + e travels, e' = c − decode(c)."""

    def __init__(self, weights, codec, **named):
        self.codec, self.grain = codec, codec.block
        super().__init__(weights, **named)

    def initial(self):
        return {"e": self.zeros()}

    def gradient(self, g, w):
        if self.world == 1:
            return g, None
        c = [g[r] + self.states["e"][r] for r in range(self.world)]
        packed = self.encode(self.codec, c, 0)
        d = self.decode_all(self.codec, packed, 0)
        self.stage("e", [c[r] - d[r] for r in range(self.world)])
        return self.mean_of_all(self.codec, packed, 0), None


class DoubleSqueeze(Job):
    """1905.05957, algorithm 1: error feedback at the workers and at each shard's owner."""

    def __init__(self, weights, codec, **named):
        self.codec, self.grain = codec, codec.block
        super().__init__(weights, **named)

    def initial(self):
        return {"ew": self.zeros(), "es": [np.zeros(e - b, np.float32) for b, e in self.shard_ranges()]}

    def gradient(self, g, w):
        if self.world == 1:
            return g, None
        return self.squeeze(g), None

    def squeeze(self, x, op=0):
        ranks = range(self.world)
        c = [x[r] + self.states["ew"][r] for r in ranks]
        packed = self.encode(self.codec, c, op)
        d = self.decode_all(self.codec, packed, op)
        self.stage("ew", [c[r] - d[r] for r in ranks])
        owned = self.scatter(self.codec, packed, op)
        s = [owned[r] + self.states["es"][r] for r in ranks]
        first = [begin for begin, _ in self.shard_ranges()]
        packed = self.encode(self.codec, s, op + 1, first)
        draws = [self.draws(self.codec, r, op + 1) for r in ranks]
        kept = [self.codec.decode(packed[r], len(s[r]), first[r], draws[r]) for r in ranks]
        self.stage("es", [s[r] - kept[r] for r in ranks])
        return self.gather(self.codec, packed, op + 1)


class Ef21(Job):
    """2106.05203, algorithm 2: c_i = C(∇f_i − g_i) travels, g_i += c_i, g += mean of c_i; the step is along g.
    Starts at g_i = 0."""

    def __init__(self, weights, codec, **named):
        self.codec, self.grain = codec, codec.block
        super().__init__(weights, **named)

    def initial(self):
        return {"local": self.zeros(), "shared": self.zeros()}

    def gradient(self, g, w):
        if self.world == 1:
            return g, None
        ranks = range(self.world)
        packed = self.encode(self.codec, [g[r] - self.states["local"][r] for r in ranks], 0)
        d = self.decode_all(self.codec, packed, 0)
        self.stage("local", [self.states["local"][r] + d[r] for r in ranks])
        average = self.mean_of_all(self.codec, packed, 0)
        shared = [self.states["shared"][r] + average[r] for r in ranks]
        self.stage("shared", shared)
        return shared, None


class OneStepLate(Job):
    """Pipe-SGD 1811.03619, algorithm 1 with K = 2: step t uses the mean gradient of step t − 1, which
    travelled meanwhile."""

    def initial(self):
        return {"late": self.zeros()}

    def gradient(self, g, w):
        if self.world == 1:
            return g, None
        self.stage("late", self.all_reduce_mean(g))
        return self.states["late"], None
