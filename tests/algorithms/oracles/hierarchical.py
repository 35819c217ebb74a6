"""Algorithms that work node by node: BAGUA 2107.01499, "hierarchical communications" (H)."""

import numpy as np

from .arithmetic import F32, fold, mean, mix, shards
from .job import Job
from .topologies import ring


class Hierarchical(Job):
    """Sums within a node, then over the nodes, of which each rank moves its part of the bucket; at the end one division.
    With a codec, what goes between nodes passes through it, one's own part too."""

    defaults = dict(nodes=1)

    def __init__(self, weights, codec=None, **named):
        self.codec = codec
        self.grain = codec.block if codec else 1
        super().__init__(weights, **named)
        assert self.world % self.nodes == 0
        self.local = self.world // self.nodes

    def across(self, part, begin):
        """What the nodes get of one node's part, and the bytes that it has on the way."""
        if self.codec is None or self.nodes == 1:
            return part, 4 * len(part)
        packed = self.codec.encode(part, begin, self.draws(self.codec, 0, 0))
        return self.codec.decode(packed, len(part), begin, self.draws(self.codec, 0, 0)), len(packed)

    def gradient(self, g, w):
        if self.world == 1:
            return g, None
        result = []
        for local, (begin, end) in enumerate(shards(self.length, self.grain, self.local)):
            sent = []
            for node in range(self.nodes):
                first = node * self.local
                owner = first + local
                members = range(first, first + self.local)
                part = fold([g[rank][begin:end] for rank in members])
                value, size = self.across(part, begin)
                sent.append(value)
                for rank in members:
                    if rank != owner:
                        self.wire.send(rank, owner, 4 * (end - begin))
                        self.wire.send(owner, rank, 4 * (end - begin))
                for other in range(self.nodes):
                    if other != node:
                        self.wire.send(owner, other * self.local + local, size)
            result.append(fold(sent) / F32(self.world))
        return [np.concatenate(result)] * self.world, None


class Decentralized(Job):
    """D_FP_S of the nodes: each starts from the mean of its ranks' weights, mixed with those of its neighbours."""

    defaults = dict(nodes=1)
    topology = ring()

    def __init__(self, weights, **named):
        super().__init__(weights, **named)
        self.local = self.world // self.nodes

    def before_forward(self, w):
        local = self.local
        means = [mean(w[first : first + local]) for first in range(0, self.world, local)]
        for place, (begin, end) in enumerate(shards(self.length, 1, local)):
            size = 4 * (end - begin)
            for node in range(self.nodes):
                owner = node * local + place
                for rank in range(node * local, (node + 1) * local):
                    if rank != owner:
                        self.wire.send(rank, owner, size)
                        self.wire.send(owner, rank, size)
                for other in self.topology.listeners(self.nodes, node):
                    self.wire.send(owner, other * local + place, size)
        mixed = [
            mix(means[node], [(means[peer], a) for peer, a in self.topology.neighbors(self.nodes, node)])
            for node in range(self.nodes)
        ]
        return [mixed[rank // local] for rank in range(self.world)]
