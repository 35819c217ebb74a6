"""Who hears whom, with which weight, at which round. Weights are exact fractions."""

from fractions import Fraction


def merged(entries, rank):
    """Peers that occur twice are one, at the first place, with the sum of the weights; oneself is left out."""
    result = {}
    for peer, weight in entries:
        if peer != rank:
            result[peer] = result.get(peer, Fraction(0)) + weight
    return list(result.items())


class Topology:
    """`entries` are what a rank hears, one for each neighbour, duplicates and itself included."""

    def entries(self, world, rank, round):
        raise NotImplementedError

    def neighbors(self, world, rank, round=0):
        return merged(self.entries(world, rank, round), rank)

    def listeners(self, world, rank, round=0):
        """Who hears `rank`, each once."""
        return [
            other
            for other in range(world)
            if any(peer == rank for peer, _ in self.neighbors(world, other, round))
        ]


class Circulant(Topology):
    """Rank r hears (r + offset) mod n."""

    def __init__(self, offsets, weights):
        self.offsets, self.weights = offsets, [Fraction(weight) for weight in weights]

    def entries(self, world, rank, round):
        return [((rank + o) % world, weight) for o, weight in zip(self.offsets, self.weights)]


def ring(weight=Fraction(1, 3)):
    return Circulant([-1, 1], [weight, weight])


def log2_ceil(world):
    return (world - 1).bit_length()


class Exponential(Topology):
    """Static exponential graph: offsets 2^k, all weights equal, the own one too (2110.13363, section 3)."""

    def entries(self, world, rank, round):
        count = log2_ceil(world)
        return [((rank + 2**k) % world, Fraction(1, count + 1)) for k in range(count)]


class OnePeerExponential(Topology):
    """Round t: send to r + 2^(t mod ⌈log2 n⌉), keep one half (2110.13363, equation 7)."""

    def entries(self, world, rank, round):
        count = log2_ceil(world)
        return [((rank - 2 ** (round % count)) % world, Fraction(1, 2))] if count else []


class Torus(Topology):
    """Neighbours to the left, right, above and below on a torus that is wound up like a screw."""

    def __init__(self, columns):
        self.columns = columns

    def entries(self, world, rank, round):
        offsets = [-1, 1, -self.columns, self.columns]
        return [((rank + offset) % world, Fraction(1, 5)) for offset in offsets]


class RoundRobin(Topology):
    """Round t: partner (t − r) mod n, idle where that is oneself."""

    def entries(self, world, rank, round):
        return [((round - rank) % world, Fraction(1, 2))]


class ShiftOne(Topology):
    """The pairing of BAGUA's `shift_one`, with an idle rank in odd worlds: the lower half faces the
    upper one, which moves on by one at each round."""

    def entries(self, world, rank, round):
        low, high = world // 2, (world + 1) // 2
        if rank < low:
            return [((round + rank) % high + low, Fraction(1, 2))]
        partner = (rank - low - round) % high if high else 0
        return [(partner, Fraction(1, 2))] if partner < low else [(rank, Fraction(1, 2))]


class Pairing(Topology):
    """A random matching of all ranks, drawn anew each round (SPEC.md, E6); one rank rests in odd worlds."""

    def __init__(self, seed):
        self.seed = seed

    def partners(self, world, round):
        stream = mix64(mix64(self.seed) ^ round)
        places = list(range(world))
        for i in range(world - 1, 0, -1):
            j = (mix64(stream ^ i) * (i + 1)) >> 64
            places[i], places[j] = places[j], places[i]
        result = list(range(world))
        for a, b in zip(places[0::2], places[1::2]):
            result[a], result[b] = b, a
        return result

    def entries(self, world, rank, round):
        return [(self.partners(world, round)[rank], Fraction(1, 2))]


def mix64(x):
    """SplitMix64's number after state `x` (Steele, Lea, Flood, OOPSLA 2014)."""
    x = (x + 0x9E3779B97F4A7C15) % 2**64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) % 2**64
    return x ^ (x >> 31)
