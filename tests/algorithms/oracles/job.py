"""One job: some ranks, one bucket, several steps. An algorithm derives from `Job`."""

from dataclasses import dataclass, field

import numpy as np

from .arithmetic import F32, finite, mean, mix, quiet, shards
from .codecs import Draws
from .philox import SHARED


@dataclass
class Step:
    """What a step did, by rank."""

    gradients: list  # as the optimizer finds them
    weights: list  # after the step
    states: dict  # name → value by rank, after the step
    wire: list  # payload bytes sent to other ranks
    finite: bool


@dataclass
class Wire:
    """Counts payload. Transfers go from each rank to other ranks only."""

    world: int
    sent: list = field(default_factory=list)

    def __post_init__(self):
        self.sent = [0] * self.world

    def send(self, source, target, size):
        assert source != target
        self.sent[source] += size


class Job:
    """Ranks run handlers in the order before_forward, gradient, [update of the job], after_update.

    A handler gets lists by rank and may return a list by rank. States are staged by `stage` and
    become `self.states` before the update of the job, or after after_update, if no rank's gradient
    holds a non-finite element; otherwise neither states nor weights change, and after_update does
    not run.
    """

    grain = 1
    seed = 0
    defaults = {}

    def __init__(self, weights, sgd=0.0, **parameters):
        unknown = set(parameters) - set(self.defaults) - {"seed"}
        assert not unknown, f"unknown parameters {unknown}"
        self.world, self.length = len(weights), len(weights[0])
        self.weights = [np.array(w, dtype=np.float32) for w in weights]
        self.sgd = sgd
        for name, value in {**self.defaults, **parameters}.items():
            setattr(self, name, value)
        self.step_number = 0
        self.states = self.initial()
        self.staged = {}
        self.wire = Wire(self.world)

    # What an algorithm says.
    def initial(self):
        return {}

    def before_forward(self, w):
        return None

    def gradient(self, g, w):
        """Returns the gradients delivered and the new weights; None: as they are."""
        return None, None

    def after_update(self, w):
        return None

    # What it says it with.
    def zeros(self, length=None):
        return [np.zeros(self.length if length is None else length, np.float32) for _ in range(self.world)]

    def ranks(self, function):
        return [function(rank) for rank in range(self.world)]

    def stage(self, name, values):
        self.staged[name] = values

    def shard_ranges(self):
        return shards(self.length, self.grain, self.world)

    def all_reduce_mean(self, x):
        """Shards go to their owners, who fold and divide; results go to all."""
        if self.world == 1:
            return x
        for rank in range(self.world):
            for other, (begin, end) in enumerate(self.shard_ranges()):
                if other != rank:
                    self.wire.send(rank, other, 4 * (end - begin))
            begin, end = self.shard_ranges()[rank]
            self.send_others(rank, 4 * (end - begin))
        return [mean(x)] * self.world

    def send_others(self, rank, size):
        for other in range(self.world):
            if other != rank:
                self.wire.send(rank, other, size)

    def encode(self, codec, values, op, first=None):
        """Encode number `op` of the algorithm: bytes by rank."""
        return [
            codec.encode(values[rank], first[rank] if first else 0, self.draws(codec, rank, op))
            for rank in range(self.world)
        ]

    def draws(self, codec, rank, op):
        rank = SHARED if codec.shared else rank
        return Draws(seed=self.seed, step=self.step_number, rank=rank, op=op)

    def decode_all(self, codec, packed, op):
        """Of whole buckets."""
        return [
            codec.decode(data, self.length, 0, self.draws(codec, rank, op))
            for rank, data in enumerate(packed)
        ]

    def scatter(self, codec, packed, op, reduce=mean):
        """Each rank's shard of the mean, or the sum, of what all ranks packed."""
        values = self.decode_all(codec, packed, op)
        ranges = self.shard_ranges()
        for rank in range(self.world):
            for other, (begin, end) in enumerate(ranges):
                if other != rank:
                    self.wire.send(rank, other, codec.packed_bytes(end - begin))
        return [reduce([value[begin:end] for value in values]) for begin, end in ranges]

    def gather(self, codec, packed, op):
        """The shards that their owners packed, on every rank."""
        for rank in range(self.world):
            self.send_others(rank, len(packed[rank]))
        values = [
            codec.decode(packed[rank], end - begin, begin, self.draws(codec, rank, op))
            for rank, (begin, end) in enumerate(self.shard_ranges())
        ]
        return [np.concatenate(values)] * self.world

    def all_reduce_mean_via(self, codec, x, op=0):
        """Encodes 0 and 1 from `op` on: to the owner, and from it."""
        if self.world == 1:
            return x
        owned = self.scatter(codec, self.encode(codec, x, op), op)
        first = [begin for begin, _ in self.shard_ranges()]
        return self.gather(codec, self.encode(codec, owned, op + 1, first), op + 1)

    def mean_of_all(self, codec, packed, op):
        """Each rank sends all of its packed bucket to every other, and averages what it has."""
        for rank in range(self.world):
            self.send_others(rank, len(packed[rank]))
        return [mean(self.decode_all(codec, packed, op))] * self.world

    def exchange(self, topology, sizes, round=0):
        """Each rank sends so many bytes to all who hear it."""
        for rank in range(self.world):
            for other in topology.listeners(self.world, rank, round):
                self.wire.send(rank, other, sizes[rank])

    def mix_on(self, topology, own, values, round=0):
        """`values[rank][peer]`: what `rank` holds of `peer`."""
        return [
            mix(
                own[rank],
                [(values[rank][p], a) for p, a in topology.neighbors(self.world, rank, round)],
            )
            for rank in range(self.world)
        ]

    # A step.
    def commit(self):
        self.states, self.staged = {**self.states, **self.staged}, {}

    @quiet
    def step(self, gradients):
        self.wire, self.staged = Wire(self.world), {}
        gradients = [np.array(g, dtype=np.float32) for g in gradients]
        good = finite(gradients)
        early = self.before_forward([w.copy() for w in self.weights])
        delivered, late = self.gradient(gradients, [w.copy() for w in self.weights])
        delivered = gradients if delivered is None else delivered
        if good:
            weights = early if early is not None else self.weights
            if late is not None:
                weights = late
            elif self.sgd:
                weights = [w - F32(self.sgd) * g for w, g in zip(weights, delivered)]
            self.weights = [np.array(w, dtype=np.float32) for w in weights]
            self.commit()
            after = self.after_update([w.copy() for w in self.weights])
            if after is not None:
                self.weights = [np.array(w, dtype=np.float32) for w in after]
            self.commit()
        self.step_number += 1
        return Step(
            [g.copy() for g in delivered],
            [w.copy() for w in self.weights],
            {name: [v.copy() for v in values] for name, values in self.states.items()},
            self.wire.sent,
            good,
        )


    def stop(self, step):
        """After the last step, of which `step` says what it did: what it says then."""
        return step


def run(job, gradients):
    """All steps; gradients[step][rank]."""
    steps = [job.step(step) for step in gradients]
    return [*steps[:-1], job.stop(steps[-1])]
