"""Philox4x32-10 (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, SC'11)."""

import functools

import numpy as np

_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_LOW = np.uint64(0xFFFFFFFF)


def philox4x32(counter, key):
    """Four arrays of uint32 for four counter words (scalars or arrays) and two key words (ints)."""
    c0, c1, c2, c3 = (word.astype(np.uint64) for word in np.broadcast_arrays(*map(np.asarray, counter)))
    k0, k1 = int(key[0]), int(key[1])
    for _ in range(10):
        p0, p1 = _M0 * c0, _M1 * c2
        c0, c1, c2, c3 = (
            (p1 >> np.uint64(32)) ^ c1 ^ np.uint64(k0),
            p1 & _LOW,
            (p0 >> np.uint64(32)) ^ c3 ^ np.uint64(k1),
            p0 & _LOW,
        )
        k0, k1 = (k0 + _W0) & 0xFFFFFFFF, (k1 + _W1) & 0xFFFFFFFF
    return tuple(word.astype(np.uint32) for word in (c0, c1, c2, c3))

SHARED = 2**64 - 1  # in place of the rank, where all ranks draw the same numbers


@functools.lru_cache(256)
def stream(draws):
    """Key and upper counter words (SPEC.md, "Random numbers")."""

    def halves(x):
        return int(x) & 0xFFFFFFFF, int(x) >> 32 & 0xFFFFFFFF

    outer = philox4x32((*halves(draws.seed), *halves(draws.step)), halves(draws.op))
    rank = [half ^ int(word) for half, word in zip(halves(draws.rank), outer[2:])]
    inner = philox4x32((*rank, *halves(draws.bucket)), outer[:2])
    return inner[:2], inner[2:]


def words(draws, first, count):
    """The 32 random bits of elements first … first + count − 1 of a bucket."""
    key, upper = stream(draws)
    group = np.arange(first // 4, (first + count + 3) // 4, dtype=np.uint64)
    counter = (group & _LOW, group >> np.uint64(32), *map(np.uint64, upper))
    return np.stack(philox4x32(counter, key), axis=1).ravel()[first % 4 :][:count]


def uniform(word):
    """In [0, 1), 24 bits."""
    return (word >> np.uint32(8)).astype(np.float32) * np.float32(2.0**-24)
