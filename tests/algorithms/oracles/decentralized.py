"""Algorithms in which ranks hear only their neighbours, and weights differ between ranks."""

from fractions import Fraction

import numpy as np

from .arithmetic import F32
from .codecs import MinMax
from .job import Job
from .topologies import OnePeerExponential, ShiftOne, ring


class DecentralizedAll(Job):
    """BAGUA 2107.01499, D_FP_S among all: each step starts from the mean of the weights."""

    defaults = dict(interval=1)

    def before_forward(self, w):
        return self.all_reduce_mean(w) if self.step_number % self.interval == 0 else None


class Mixing(Job):
    """D-PSGD, 1705.09056, algorithm 1: x ← Σ_j W_ij x_j − γ g(x_i)."""

    topology = ring()
    defaults = dict(interval=1)

    def before_forward(self, w):
        if self.step_number % self.interval:
            return None
        round = self.step_number // self.interval
        self.exchange(self.topology, [4 * self.length] * self.world, round)
        return self.mix_on(self.topology, w, [w] * self.world, round)


class DecentralizedShiftOne(Mixing):
    """BAGUA 2107.01499, D_FP_S with one partner each round."""

    topology = ShiftOne()


class OnePeer(Mixing):
    """2110.13363, equation 7: one-peer exponential graph."""

    topology = OnePeerExponential()


class Replicas(Job):
    """Keeps x̂ of the neighbours: `n`[rank][entry of the topology]."""

    topology = ring()

    def __init__(self, weights, codec=None, topology=None, **named):
        self.codec = codec or MinMax(8, 2048)
        self.topology = topology or self.topology
        self.grain = self.codec.block
        super().__init__(weights, **named)

    def entries(self, rank):
        return [peer for peer, _ in self.topology.entries(self.world, rank, 0)]

    def initial(self):
        copies = [np.stack([w] * len(self.entries(r))) for r, w in enumerate(self.weights)]
        return {"x": [w.copy() for w in self.weights], "n": copies}

    def by_peer(self, n):
        """Of entries with one peer, the first counts."""
        return [dict(reversed(list(zip(self.entries(rank), n[rank])))) for rank in range(self.world)]

    def swap(self, values):
        """Encodes, sends to the neighbours; what each rank's neighbours and itself decode."""
        packed = self.encode(self.codec, values, 0)
        self.exchange(self.topology, [len(data) for data in packed])
        return self.decode_all(self.codec, packed, 0)

    def heard(self, n, d):
        """n + what each neighbour sent; a further entry with the same peer is empty and keeps its value."""
        return [
            np.stack(
                [
                    n[r][j] if peer in self.entries(r)[:j] else n[r][j] + d[peer]
                    for j, peer in enumerate(self.entries(r))
                ]
            )
            for r in range(self.world)
        ]


class DcdPsgd(Replicas):
    """1803.06443, algorithm 1 (DCD-PSGD), and BAGUA's low_precision_decentralized on a ring:
    z = Σ_j W_ij x̂_j − γ g − x, C(z) travels, x and all replicas of it move by C(z)."""

    def after_update(self, u):
        if self.world == 1:
            return None
        x, n = self.states["x"], self.states["n"]
        y = self.mix_on(self.topology, x, self.by_peer(n))
        d = self.swap([(u[r] - x[r]) + (y[r] - x[r]) for r in range(self.world)])
        x = [x[r] + d[r] for r in range(self.world)]
        self.stage("x", x)
        self.stage("n", self.heard(n, d))
        return x


class ChocoSgd(Replicas):
    """1902.00340, algorithm 2: q = Q(x − x̂) travels; x ← x + γ Σ_j w_ij (x̂_j − x̂_i)."""

    defaults = dict(gamma=0.5)

    def after_update(self, u):
        if self.world == 1:
            return None
        ranks = range(self.world)
        d = self.swap([u[r] - self.states["x"][r] for r in ranks])
        x = [self.states["x"][r] + d[r] for r in ranks]
        n = self.heard(self.states["n"], d)
        self.stage("x", x)
        self.stage("n", n)
        y = self.mix_on(self.topology, x, self.by_peer(n))
        return [u[r] + F32(self.gamma) * (y[r] - x[r]) for r in ranks]


class DeepSqueeze(Replicas):
    """1907.07346, algorithm 1: v = x − γ g + δ, C(v) travels, δ = v − C(v),
    x ← x − γ g + η Σ_j (W_ij − I_ij) C(v_j)."""

    defaults = dict(eta=0.5)

    def initial(self):
        return {"e": self.zeros()}

    def after_update(self, u):
        if self.world == 1:
            return None
        ranks = range(self.world)
        v = [u[r] + self.states["e"][r] for r in ranks]
        d = self.swap(v)
        self.stage("e", [v[r] - d[r] for r in ranks])
        y = self.mix_on(self.topology, d, [d] * self.world)
        return [u[r] + F32(self.eta) * (y[r] - d[r]) for r in ranks]


class D2(Job):
    """1803.07068, algorithm 1: x ← W (2 x_t − x_{t−1} − γ g_t + γ g_{t−1}). With u_t = x_t − γ g_t, which
    the optimizer made, the bracket is u_t + (x_t − u_{t−1}); `d` is the second term, 0 at first.
    The ring's own weight is 1/2: W's least eigenvalue has to be above −1/3."""

    topology = ring(Fraction(1, 4))

    def initial(self):
        return {"d": self.zeros()}

    def after_update(self, u):
        if self.world == 1:
            return None
        ranks = range(self.world)
        z = [u[r] + self.states["d"][r] for r in ranks]
        self.exchange(self.topology, [4 * self.length] * self.world)
        x = self.mix_on(self.topology, z, [z] * self.world)
        self.stage("d", [x[r] - u[r] for r in ranks])
        return x


class Sgp(Job):
    """1811.10792, algorithm 1 (stochastic gradient push) on the one-peer exponential graph: x and the
    push-sum weight y travel, the model is z = x / y."""

    topology = OnePeerExponential()

    def initial(self):
        return {"x": [w.copy() for w in self.weights], "y": [np.ones(1, np.float32)] * self.world}

    def after_update(self, u):
        if self.world == 1:
            return None
        x, y = self.states["x"], self.states["y"]
        half = [x[r] + (u[r] - x[r] / y[r]) for r in range(self.world)]
        self.exchange(self.topology, [4 * self.length + 4] * self.world, self.step_number)
        x = self.mix_on(self.topology, half, [half] * self.world, self.step_number)
        y = self.mix_on(self.topology, y, [y] * self.world, self.step_number)
        self.stage("x", x)
        self.stage("y", y)
        return [x[r] / y[r] for r in range(self.world)]
