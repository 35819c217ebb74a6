"""Codecs as SPEC.md defines them: to the bytes that travel, and back."""

from dataclasses import dataclass

import numpy as np

from .arithmetic import F32, NAN


@dataclass(frozen=True)
class Draws:
    """Where random numbers of one encode come from."""

    seed: int = 0
    step: int = 0
    rank: int = 0
    bucket: int = 0
    op: int = 0


class Codec:
    """Blocks are counted from the first element of what is encoded, itself at element `first` of
    its bucket: a multiple of the block."""

    block = 1

    def encode(self, x, first=0, draws=Draws()):
        """Bytes."""
        return b"".join(
            self.encode_block(x[at : at + self.block], first + at, draws)
            for at in range(0, len(x), self.block)
        )

    def decode(self, data, count):
        """`count` floats; uses all of `data`."""
        parts, at = [np.zeros(0, np.float32)], 0
        for begin in range(0, count, self.block):
            size = min(self.block, count - begin)
            width = self.block_bytes(size)
            parts.append(self.decode_block(data[at : at + width], size))
            at += width
        assert at == len(data)
        return np.concatenate(parts)

    def packed_bytes(self, count):
        whole, rest = divmod(count, self.block)
        return whole * self.block_bytes(self.block) + (self.block_bytes(rest) if rest else 0)


class Identity(Codec):
    """Sends floats as they are."""

    def encode(self, x, first=0, draws=Draws()):
        return np.asarray(x, np.float32).tobytes()

    def decode(self, data, count):
        return np.frombuffer(data, "<f4", count).copy()

    def packed_bytes(self, count):
        return 4 * count


def pack_codes(codes, width):
    """Code i is bits i·width … of the string, low bits first; unused high bits are zero."""
    bits = (codes.astype(np.uint32)[:, None] >> np.arange(width, dtype=np.uint32)) & 1
    return np.packbits(bits.astype(np.uint8).ravel(), bitorder="little").tobytes()


def unpack_codes(data, count, width):
    bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")[: count * width]
    return bits.reshape(count, width).astype(np.uint32) @ (1 << np.arange(width, dtype=np.uint32))


class MinMax(Codec):
    """SPEC.md "minmax"."""

    def __init__(self, bits=8, block=2048):
        self.bits, self.block = bits, block
        self.levels = 2**bits - 1

    def block_bytes(self, size):
        return 8 + -(-size * self.bits // 8)

    def encode_block(self, x, first, draws):
        if not np.isfinite(x).all():
            return np.array([NAN, 0], "<f4").tobytes() + bytes(self.block_bytes(len(x)) - 8)
        x = x + F32(0)  # −0 becomes +0
        lo, hi = x.min(), x.max()
        span = float(hi) - float(lo)
        step = F32(span / self.levels)
        if float(step) * self.levels < span:
            step = np.nextafter(step, F32(np.inf))
        scale = F32(1)
        if step > F32(2.0**110):
            scale = F32(2.0**-2)
        elif 0 < step < F32(2.0**-100):
            scale = F32(2.0**64)
        inverse = F32(1) / (step * scale) if step else F32(0)
        codes = np.rint(np.minimum((x * scale - lo * scale) * inverse, F32(self.levels)))
        return np.array([lo, step], "<f4").tobytes() + pack_codes(codes, self.bits)

    def decode_block(self, data, size):
        lo, step = np.frombuffer(data[:8], "<f4")
        if not (np.isfinite(lo) and np.isfinite(step) and step >= 0):
            return np.full(size, NAN, np.float32)
        codes = unpack_codes(data[8:], size, self.bits).astype(np.float32)
        if step <= F32(2.0**110):
            return lo + codes * step
        most = np.finfo(np.float32).max / F32(4)
        return F32(4) * np.clip(lo / F32(4) + codes * (step / F32(4)), -most, most)
