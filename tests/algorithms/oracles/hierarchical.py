"""Algorithms that work node by node: BAGUA 2107.01499, "hierarchical communications" (H)."""

import numpy as np

from .arithmetic import F32, fold, shards
from .job import Job


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
