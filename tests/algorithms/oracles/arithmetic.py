"""Arithmetic that the design fixes: float32, left folds by rank, one division for a mean."""

import math

import numpy as np

F32 = np.float32
NAN = np.uint32(0x7FC00000).view(np.float32)


def quiet(function):
    """Runs without NumPy's warnings: infinities and NaNs are values like others here."""

    def inner(*arguments, **named):
        with np.errstate(all="ignore"):
            return function(*arguments, **named)

    return inner


def bits(x):
    """The bits of `x`, every NaN being the quiet one: what 'equal' means for results."""
    x = np.ascontiguousarray(x, dtype=np.float32)
    return np.where(np.isnan(x), NAN, x).view(np.uint32)


def fold(values):
    """Left fold of a sum, in the order given."""
    total = np.array(values[0], dtype=np.float32)
    for value in values[1:]:
        total = total + value
    return total


def mean(values):
    return fold(values) / F32(len(values))


def mix(own, neighbors):
    """w + Σ aⱼ(xⱼ − w), the sum a left fold; `neighbors` are (value, weight), weights exact fractions."""
    if not neighbors:
        return own.copy()
    # A fraction becomes a double first, then a float: each once.
    return own + fold([F32(float(weight)) * (value - own) for value, weight in neighbors])


def shards(length, grain, world):
    """[begin, end) of each rank's shard (SPEC.md, D1)."""
    grains = -(-length // grain)
    cuts = [min(length, grain * (rank * grains // world)) for rank in range(world + 1)]
    return list(zip(cuts[:-1], cuts[1:]))


def grain_of(*codecs):
    return math.lcm(1, *(codec.block for codec in codecs))


def finite(arrays):
    return all(np.isfinite(array).all() for array in arrays)


def strided_sum(terms):
    """Sum of doubles: 64 strided partials, then a tree (SPEC.md, "Sums of many")."""
    rows = -(-len(terms) // 64)
    table = np.zeros(rows * 64)
    table[: len(terms)] = terms
    partials = np.zeros(64)
    for row in table.reshape(rows, 64):
        partials = partials + row
    width = 32
    while width:
        partials[:width] = partials[:width] + partials[width : 2 * width]
        width //= 2
    return partials[0]
