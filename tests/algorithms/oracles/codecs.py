"""Codecs as SPEC.md defines them: to the bytes that travel, and back."""

from dataclasses import dataclass

import numpy as np

from .arithmetic import F32, NAN, strided_sum
from .philox import uniform, words


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
    shared = False  # draws the same random numbers on all ranks

    def encode(self, x, first=0, draws=Draws()):
        """Bytes."""
        return b"".join(
            self.encode_block(x[at : at + self.block], first + at, draws)
            for at in range(0, len(x), self.block)
        )

    def decode(self, data, count, first=0, draws=Draws()):
        """`count` floats; uses all of `data`."""
        parts, at = [np.zeros(0, np.float32)], 0
        for begin in range(0, count, self.block):
            size = min(self.block, count - begin)
            width = self.block_bytes(size)
            parts.append(self.decode_block(data[at : at + width], size, first + begin, draws))
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

    def decode(self, data, count, first=0, draws=Draws()):
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

    def decode_block(self, data, size, first, draws):
        lo, step = np.frombuffer(data[:8], "<f4")
        if not (np.isfinite(lo) and np.isfinite(step) and step >= 0):
            return np.full(size, NAN, np.float32)
        codes = unpack_codes(data[8:], size, self.bits).astype(np.float32)
        if step <= F32(2.0**110):
            return lo + codes * step
        most = np.finfo(np.float32).max / F32(4)
        return F32(4) * np.clip(lo / F32(4) + codes * (step / F32(4)), -most, most)


class Sign(Codec):
    """SPEC.md "sign": the mean magnitude of a block, and a bit per element."""

    def __init__(self, block):
        self.block = block

    def block_bytes(self, size):
        return 4 + -(-size // 8)

    def encode_block(self, x, first, draws):
        if not np.isfinite(x).all():
            return np.array([NAN], "<f4").tobytes() + bytes(self.block_bytes(len(x)) - 4)
        scale = F32(strided_sum(np.abs(x).astype(float)) / len(x))
        return np.array([scale], "<f4").tobytes() + pack_codes(x < 0, 1)

    def decode_block(self, data, size, first, draws):
        (scale,) = np.frombuffer(data[:4], "<f4")
        if not np.isfinite(scale):
            return np.full(size, NAN, np.float32)
        return np.where(unpack_codes(data[4:], size, 1) == 1, -scale, scale)


class Qsgd(Codec):
    """SPEC.md "qsgd": a block's norm and, per element, a level that is right on average."""

    def __init__(self, levels, block, norm="l2"):
        self.levels, self.block, self.norm = levels, block, norm
        self.bits = (2 * levels).bit_length()

    def block_bytes(self, size):
        return 4 + -(-size * self.bits // 8)

    def step(self, norm):
        step = F32(float(norm) / self.levels)
        return np.nextafter(step, F32(np.inf)) if float(step) * self.levels < float(norm) else step

    def encode_block(self, x, first, draws):
        if not np.isfinite(x).all():
            return np.array([NAN], "<f4").tobytes() + bytes(self.block_bytes(len(x)) - 4)
        if self.norm == "max":
            norm = np.abs(x).max()
        else:
            root = np.sqrt(strided_sum(x.astype(float) ** 2))
            norm = F32(min(root, float(np.finfo(np.float32).max)))
        q = np.zeros(len(x), int)
        if norm > 0:
            step = self.step(norm)
            scale = F32(2.0**-64 if step > 2.0**100 else 2.0**64 if step < 2.0**-100 else 1)
            ratio = np.minimum((np.abs(x) * scale) * (F32(1) / (step * scale)), F32(self.levels))
            ratio = np.where(np.abs(x) < norm, ratio, F32(self.levels))
            whole = np.floor(ratio)
            up = uniform(words(draws, first, len(x))) < ratio - whole
            q = np.where(x < 0, -1, 1) * (whole.astype(int) + up)
        return np.array([norm], "<f4").tobytes() + pack_codes(self.levels + q, self.bits)

    def decode_block(self, data, size, first, draws):
        (norm,) = np.frombuffer(data[:4], "<f4")
        if not (np.isfinite(norm) and norm >= 0):
            return np.full(size, NAN, np.float32)
        codes = unpack_codes(data[4:], size, self.bits).astype(np.float32)
        return np.clip((codes - F32(self.levels)) * self.step(norm), -norm, norm)


class Ternary(Qsgd):
    """SPEC.md "ternary": qsgd of one level, and the largest magnitude for norm."""

    def __init__(self, block):
        super().__init__(1, block, "max")


class TopK(Codec):
    """SPEC.md "topk": indices (u16) and values of the largest of a block."""

    def __init__(self, k, block):
        self.k, self.block = k, block

    def entries(self, size):
        return -(-size * self.k // self.block)

    def block_bytes(self, size):
        return 6 * self.entries(size)

    def encode_block(self, x, first, draws):
        count = self.entries(len(x))
        if not np.isfinite(x).all():
            return np.arange(count).astype("<u2").tobytes() + np.full(count, NAN, "<f4").tobytes()
        indices = np.sort(np.argsort(-np.abs(x), kind="stable")[:count])
        return indices.astype("<u2").tobytes() + x[indices].astype("<f4").tobytes()

    def decode_block(self, data, size, first, draws):
        count = self.entries(size)
        indices = np.frombuffer(data[: 2 * count], "<u2")
        return scatter(indices, np.frombuffer(data[2 * count :], "<f4"), size)


class RandK(Codec):
    """SPEC.md "randk": values of a block at indices that all ranks draw alike."""

    shared = True

    def __init__(self, k, block, scaled):
        self.k, self.block, self.scaled = k, block, scaled

    entries = TopK.entries

    def block_bytes(self, size):
        return 4 * self.entries(size)

    def indices(self, size, first, draws):
        count, taken = self.entries(size), set()
        for t, word in enumerate(words(draws, first, count)):
            last = size - count + t
            index = int(word) * (last + 1) >> 32
            taken.add(last if index in taken else index)
        return sorted(taken)

    def encode_block(self, x, first, draws):
        indices = self.indices(len(x), first, draws)
        if not np.isfinite(x).all():
            return np.full(len(indices), NAN, "<f4").tobytes()
        most = np.finfo(np.float32).max
        factor = F32(len(x)) / F32(len(indices)) if self.scaled else F32(1)
        return np.clip(x[indices] * factor, -most, most).astype("<f4").tobytes()

    def decode_block(self, data, size, first, draws):
        return scatter(self.indices(size, first, draws), np.frombuffer(data, "<f4"), size)


def scatter(indices, values, size):
    y = np.zeros(size, np.float32)
    y[indices] = values
    return np.full(size, NAN, np.float32) if np.isnan(values).any() else y


class F16(Codec):
    """SPEC.md "identity, f16, bf16"."""

    def encode(self, x, first=0, draws=Draws()):
        most = F32(np.finfo(np.float16).max)
        return np.where(np.isfinite(x), np.clip(x, -most, most), x).astype("<f2").tobytes()

    def decode(self, data, count, first=0, draws=Draws()):
        return np.frombuffer(data, "<f2", count).astype(np.float32)

    def packed_bytes(self, count):
        return 2 * count


class BF16(Codec):
    """SPEC.md "identity, f16, bf16"."""

    def encode(self, x, first=0, draws=Draws()):
        most = 0x7F7F0000
        raw = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
        sign, size = raw & 0x80000000, raw & 0x7FFFFFFF
        rounded = np.minimum((size + 0x7FFF + (size >> 16 & 1)) & 0xFFFF0000, most)
        rounded = np.where(size >= 0x7F800000, size, rounded)
        result = np.where(np.isnan(x), 0x7FC00000, rounded | sign)
        return (result >> np.uint64(16)).astype("<u2").tobytes()

    def decode(self, data, count, first=0, draws=Draws()):
        return (np.frombuffer(data, "<u2", count).astype(np.uint32) << np.uint32(16)).view(np.float32)

    def packed_bytes(self, count):
        return 2 * count


class AbsMax(Codec):
    """SPEC.md "User codecs", the example: the largest magnitude h, and signed codes in −levels…levels of it."""

    def __init__(self, bits, block):
        self.bits, self.block, self.levels = bits, block, F32(2 ** (bits - 1) - 1)

    def block_bytes(self, size):
        return 4 + -(-size * self.bits // 8)

    def encode_block(self, x, first, draws):
        if not np.isfinite(x).all():
            return np.array([NAN], "<f4").tobytes() + bytes(self.block_bytes(len(x)) - 4)
        h = np.abs(x).max()
        codes = np.clip(np.nan_to_num(np.rint(x / h * self.levels)), -self.levels - 1, self.levels)
        codes = codes.astype(np.int64) % 2**self.bits
        return np.array([h], "<f4").tobytes() + pack_codes(codes, self.bits)

    def decode_block(self, data, size, first, draws):
        (h,) = np.frombuffer(data[:4], "<f4")
        if not np.isfinite(h):
            return np.full(size, NAN, np.float32)
        codes = unpack_codes(data[4:], size, self.bits).astype(np.int64)
        codes -= 2**self.bits * (codes > self.levels)
        return codes.astype(np.float32) / self.levels * h


class Range(Codec):
    """The least element and a step: codes are steps above it. A range that overflows loses its block."""

    def __init__(self, bits, block):
        self.bits, self.block, self.levels = bits, block, F32(2**bits - 1)

    def block_bytes(self, size):
        return 8 + -(-size * self.bits // 8)

    def encode_block(self, x, first, draws):
        lo, step = x.min(), (x.max() - x.min()) / self.levels
        if not (np.isfinite(x).all() and np.isfinite(step)):
            return np.array([NAN, 0], "<f4").tobytes() + bytes(self.block_bytes(len(x)) - 8)
        codes = np.clip(np.nan_to_num(np.rint((x - lo) / step), posinf=self.levels), 0, self.levels)
        return np.array([lo, step], "<f4").tobytes() + pack_codes(codes, self.bits)

    def decode_block(self, data, size, first, draws):
        lo, step = np.frombuffer(data[:8], "<f4")
        if not (np.isfinite(lo) and np.isfinite(step)):
            return np.full(size, NAN, np.float32)
        y = lo + unpack_codes(data[8:], size, self.bits).astype(np.float32) * step
        return np.minimum(y, np.finfo(np.float32).max)


class MinMaxReference(Codec):
    """reference.md "MinMaxUInt8": the reference system's formula, faults included."""

    def __init__(self, block):
        self.block = block

    def block_bytes(self, size):
        return 8 + size

    def levels(self, lo, hi):
        scale = F32(255) / ((hi - lo) + F32(1e-7))
        upper = np.rint(hi * scale)
        return scale, upper, upper - F32(255)

    def encode_block(self, x, first, draws):
        seen = x[~np.isnan(x)] + F32(0)
        lo, hi = (seen.min(), seen.max()) if len(seen) else (NAN, NAN)
        scale, upper, lower = self.levels(lo, hi)
        level = np.rint(x * scale)
        level = np.where(level < upper, level, upper) - lower
        codes = np.where(np.isfinite(level), level, 0).astype(np.int64) % 256
        return np.array([lo, hi], "<f4").tobytes() + codes.astype(np.uint8).tobytes()

    def decode_block(self, data, size, first, draws):
        scale, _, lower = self.levels(*np.frombuffer(data[:8], "<f4"))
        return (np.frombuffer(data[8:], np.uint8).astype(np.float32) + lower) / scale
