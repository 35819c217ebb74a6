"""What is known of the algorithms without running Bagua: their own special cases, PyTorch's Adam,
published vectors. The oracles have to agree before anything is compared with them."""

from fractions import Fraction

import numpy as np
import pytest
import torch

from oracles import adam, asynchronous, decentralized, gradients, local_steps
from oracles.arithmetic import bits, finite, grain_of, mean, shards
from oracles.codecs import (
    BF16,
    F16,
    Draws,
    Identity,
    MinMax,
    MinMaxReference,
    Qsgd,
    RandK,
    Sign,
    Ternary,
    TopK,
    pack_codes,
    unpack_codes,
)
from oracles.job import run
from oracles.philox import philox4x32
from oracles.topologies import (
    Exponential,
    OnePeerExponential,
    Pairing,
    RoundRobin,
    ShiftOne,
    Torus,
    log2_ceil,
    ring,
)

WORLDS = [1, 2, 3, 4, 5, 8]
LENGTH, STEPS, LR = 300, 12, 0.125


def normal(world, seed, length=LENGTH, steps=STEPS):
    source = np.random.default_rng(seed)
    return [[source.standard_normal(length, np.float32) for _ in range(world)] for _ in range(steps)]


def exact(world, seed, steps=STEPS):
    """Gradients whose sums are exact in float32."""
    source = np.random.default_rng(seed)
    return [[source.integers(-64, 64, LENGTH).astype(np.float32) for _ in range(world)] for _ in range(steps)]


def same_start(world, length=LENGTH):
    return [np.random.default_rng(7).standard_normal(length, np.float32)] * world


def own_start(world, length=LENGTH):
    return [np.random.default_rng(7 + r).standard_normal(length, np.float32) for r in range(world)]


def assert_same(a, b):
    for x, y in zip(a, b, strict=True):
        np.testing.assert_array_equal(bits(x), bits(y))


def assert_close(a, b, tolerance=2e-5):
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


SMALL = MinMax(4, 64)
JOBS = {
    "gradient_allreduce": gradients.GradientAllReduce,
    "via": lambda w, **k: gradients.CompressedAllReduce(w, SMALL, **k),
    "gathered": lambda w, **k: gradients.GatheredMean(w, SMALL, **k),
    "sign_majority": lambda w, **k: gradients.SignMajority(w, SMALL, **k),
    "memory": lambda w, **k: gradients.Memory(w, SMALL, **k),
    "doublesqueeze": lambda w, **k: gradients.DoubleSqueeze(w, SMALL, **k),
    "ef21": lambda w, **k: gradients.Ef21(w, SMALL, **k),
    "one_step_late": gradients.OneStepLate,
    "all": decentralized.DecentralizedAll,
    "ring": decentralized.Mixing,
    "shift_one": decentralized.DecentralizedShiftOne,
    "one_peer": decentralized.OnePeer,
    "dcd": lambda w, **k: decentralized.DcdPsgd(w, SMALL, **k),
    "choco": lambda w, **k: decentralized.ChocoSgd(w, SMALL, **k),
    "deepsqueeze": lambda w, **k: decentralized.DeepSqueeze(w, SMALL, **k),
    "d2": decentralized.D2,
    "sgp": decentralized.Sgp,
    "local_sgd": local_steps.LocalSgd,
    "post_local_sgd": lambda w, **k: local_steps.PostLocalSgd(w, warmup=5, **k),
    "qsparse": lambda w, **k: local_steps.QsparseLocalSgd(w, SMALL, **k),
    "slowmo": local_steps.SlowMo,
    "diloco": local_steps.DiLoCo,
    "async_average": lambda w, **k: asynchronous.AsyncModelAverage(w, warmup_steps=3, **k),
    "ad_psgd": asynchronous.AdPsgd,
}
ROUNDS = {"async_average", "ad_psgd"}  # Beside the steps: weights move between them, too.
OWNERS = {
    "onebit_adam": lambda w, **k: adam.OneBitAdam(w, SMALL, warmup=5, **k),
    "qadam": lambda w, **k: adam.QAdam(w, SMALL, warmup=5, **k),
}


# Arithmetic and codecs.


@pytest.mark.parametrize(
    "counter, key, expected",
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_published_vectors(counter, key, expected):
    assert tuple(int(word) for word in philox4x32(counter, key)) == expected


def test_shards_are_those_of_the_specification():
    assert shards(10, 4, 4) == [(0, 0), (0, 4), (4, 8), (8, 10)]
    assert shards(7, 1, 3) == [(0, 2), (2, 4), (4, 7)]
    assert shards(0, 4, 2) == [(0, 0), (0, 0)]
    assert grain_of(MinMax(8, 48), MinMax(8, 64)) == 192


@pytest.mark.parametrize("width", range(1, 9))
def test_codes_survive_packing(width):
    codes = np.random.default_rng(width).integers(0, 2**width, 37)
    data = pack_codes(codes, width)
    assert len(data) == -(-37 * width // 8)
    np.testing.assert_array_equal(unpack_codes(data, 37, width), codes)


def test_minmax_gives_the_bytes_of_the_worked_example():
    x = np.array([1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 8.5], np.float32)
    data = MinMax(4, 8).encode(x)
    assert data == bytes.fromhex("0000803f 0000003f 103254f6")
    np.testing.assert_array_equal(MinMax(4, 8).decode(data, 8)[:7], x[:7])


@pytest.mark.parametrize("width", range(2, 9))
def test_minmax_keeps_its_bound_on_edge_blocks(width):
    codec, source = MinMax(width, 64), np.random.default_rng(width)
    normals = source.standard_normal(64, np.float32)
    huge = np.where(normals > 0, 3e38, -3e38).astype(np.float32)
    blocks = [normals, normals * np.float32(1e-9), 100 + normals * np.float32(1e-5), huge]
    blocks += [np.full(64, c, np.float32) for c in (0, 0.1, 1, 1e30, -0.0)]
    blocks += [normals * np.float32(1e-42), np.concatenate([normals[:63], [np.float32(1e4)]])]
    x = np.concatenate(blocks)
    with np.errstate(over="ignore"):
        y = codec.decode(codec.encode(x), len(x))
    for a, b in zip(x.reshape(-1, 64).astype(float), y.reshape(-1, 64).astype(float)):
        bound = (a.max() - a.min()) / (2 * codec.levels) * (1 + 2**-12)
        bound += 2**-23 * np.abs(a).max() + 2**-149
        assert np.isfinite(b).all() and (np.abs(a - b) <= bound).all()
        assert a.max() != a.min() or (a == b).all()
    assert len(codec.encode(x)) == codec.packed_bytes(len(x))


def test_minmax_marks_the_block_that_is_not_finite_and_no_other():
    x = np.ones(200, np.float32)
    x[70] = np.inf
    y = MinMax(8, 64).decode(MinMax(8, 64).encode(x), 200)
    assert np.isnan(y[64:128]).all() and (y[:64] == 1).all() and (y[128:] == 1).all()


CODECS = {
    "identity": Identity(),
    "f16": F16(),
    "bf16": BF16(),
    "minmax": MinMax(5, 64),
    "minmax_reference": MinMaxReference(64),
    "qsgd, l2": Qsgd(7, 64),
    "qsgd, max": Qsgd(127, 64, "max"),
    "ternary": Ternary(64),
    "sign": Sign(64),
    "topk": TopK(3, 64),
    "randk": RandK(5, 64, True),
}


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("count", [0, 1, 7, 63, 64, 65, 200])
def test_packed_bytes_are_exact_and_parts_lie_end_to_end(name, count):
    codec, x = CODECS[name], np.random.default_rng(count).standard_normal(count, np.float32)
    draws = Draws(3, 1, 4, 1, 5)
    data = codec.encode(x, 0, draws)
    assert len(data) == codec.packed_bytes(count)
    assert data == codec.encode(x[:64], 0, draws) + codec.encode(x[64:], 64, draws)
    assert codec.decode(data, count, 0, draws).shape == (count,)
    whole = codec.decode(data, count, 0, draws)[64:]
    assert_same([whole], [codec.decode(data[codec.packed_bytes(min(64, count)) :], len(whole), 64, draws)])


def test_packed_bytes_are_the_closed_formulas():
    for length in (1, 64, 65, 1000):
        blocks = -(-length // 64)
        assert Qsgd(7, 64).packed_bytes(length) == 4 * blocks + -(-length * 4 // 8)
        assert Qsgd(127, 64).packed_bytes(length) == 4 * blocks + length
        assert Ternary(64).packed_bytes(length) == 4 * blocks + -(-length // 4)
        assert Sign(64).packed_bytes(length) == 4 * blocks + -(-length // 8)
        assert TopK(3, 64).packed_bytes(length) == 6 * -(-length * 3 // 64)
        assert RandK(3, 64, False).packed_bytes(length) == 4 * -(-length * 3 // 64)


@pytest.mark.parametrize("name", CODECS)
def test_zeros_stay_zeros_and_what_is_not_finite_stays_so(name):
    codec, x = CODECS[name], np.zeros(200, np.float32)
    assert not codec.decode(codec.encode(x), 200).any()
    x = np.random.default_rng(1).standard_normal(200, np.float32)
    clean = codec.decode(codec.encode(x), 200)
    for bad in (np.nan, np.inf):
        x[70] = bad
        with np.errstate(invalid="ignore"):
            y = codec.decode(codec.encode(x), 200)
        assert not np.isfinite(y[70]) or (name, bad) == ("minmax_reference", bad)
        outside = np.r_[0:64, 128:200]
        np.testing.assert_array_equal(y[outside], clean[outside])


@pytest.mark.parametrize("name", ["qsgd, l2", "qsgd, max", "ternary", "randk"])
def test_random_codecs_are_right_on_average(name):
    codec, x = CODECS[name], np.random.default_rng(2).standard_normal(128, np.float32)
    draws = [Draws(seed=9, step=step) for step in range(1000)]
    y = np.array([codec.decode(codec.encode(x, 0, d), 128, 0, d) for d in draws], float)
    spread = y.std(0) / np.sqrt(len(draws)) + 1e-6
    assert (np.abs(y.mean(0) - x) < 5 * spread).all()
    assert name != "randk" or ((y == 0).sum(0) > 750).all()


def test_qsgd_and_ternary_are_worked_by_hand():
    x = np.array([3, -4, 0, 0, 0, 0, 0, 0], np.float32)
    y = Qsgd(5, 8).decode(Qsgd(5, 8).encode(x), 8)  # the norm is 5, a level is 1: nothing to round
    np.testing.assert_array_equal(y, x)
    assert Qsgd(5, 8).encode(x) == np.float32(5).tobytes() + pack_codes(np.array([8, 1] + [5] * 6), 4)
    y = Ternary(8).decode(Ternary(8).encode(x), 8)
    assert y[1] == -4 and y[0] in (0, 4) and not y[2:].any()


def test_sign_topk_and_halves_are_worked_by_hand():
    x = np.array([1, -2, 3, -0.0, 0, -6, 3, 1], np.float32)
    assert Sign(8).encode(x) == np.float32(2).tobytes() + bytes([0b00100010])
    np.testing.assert_array_equal(TopK(3, 8).decode(TopK(3, 8).encode(x), 8), [0, 0, 3, 0, 0, -6, 3, 0])
    np.testing.assert_array_equal(TopK(2, 8).decode(TopK(2, 8).encode(x), 8), [0, 0, 3, 0, 0, -6, 0, 0])
    x = np.array([1e30, -1e30, 1 + 2**-12, 3.4e38, np.inf, np.nan], np.float32)
    assert_same([F16().decode(F16().encode(x), 6)], [np.array([65504, -65504, 1, 65504, np.inf, np.nan])])
    most = np.float32((2 - 2**-7) * 2.0**127)
    y = BF16().decode(BF16().encode(x), 6)
    assert y[2] == 1 and y[3] == most and np.isinf(y[4]) and np.isnan(y[5])
    assert abs(y[0] - 1e30) <= 1e30 * 2**-8 and y[1] == -y[0]


def test_randk_draws_the_same_everywhere_and_sums():
    codec = RandK(5, 64, False)
    a, b = (np.random.default_rng(s).integers(-8, 8, 150).astype(np.float32) for s in (1, 2))
    draws = Draws(seed=1, step=2)
    packed = [np.frombuffer(codec.encode(x, 0, draws), "<f4") for x in (a, b)]
    together = codec.decode((packed[0] + packed[1]).tobytes(), 150, 0, draws)
    np.testing.assert_array_equal(together, codec.decode(codec.encode(a + b, 0, draws), 150, 0, draws))


def test_minmax_reference_has_the_faults_that_were_measured():
    x = np.random.default_rng(3).standard_normal(4096, np.float32)
    codec = MinMaxReference(4096)

    def error(x):
        return np.linalg.norm(codec.decode(codec.encode(x), 4096) - x) / np.linalg.norm(x)

    assert error(x) < 0.01
    assert 0.08 < error(x * np.float32(1e-9)) < 0.2
    assert error(x * np.float32(1e-10)) > 0.8


# Topologies.

TOPOLOGIES = {
    "ring": ring(),
    "heavy ring": ring(Fraction(1, 4)),
    "exponential": Exponential(),
    "one peer": OnePeerExponential(),
    "torus": Torus(3),
    "round robin": RoundRobin(),
    "shift one": ShiftOne(),
    "pairing": Pairing(5),
}


@pytest.mark.parametrize("name", TOPOLOGIES)
@pytest.mark.parametrize("world", range(1, 18))
def test_mixing_matrices_are_doubly_stochastic(name, world):
    for round in range(2 * world):
        columns = [Fraction(0)] * world
        for rank in range(world):
            neighbors = TOPOLOGIES[name].neighbors(world, rank, round)
            assert all(0 <= peer < world and peer != rank and weight > 0 for peer, weight in neighbors)
            own = 1 - sum(weight for _, weight in neighbors)
            assert own >= 0
            columns[rank] += own
            for peer, weight in neighbors:
                columns[peer] += weight
        assert columns == [1] * world


def test_pairing_is_the_specifications():
    assert Pairing(42).partners(7, 9) == [4, 2, 1, 6, 0, 5, 3]


@pytest.mark.parametrize("topology", [RoundRobin(), ShiftOne(), Pairing(5)])
@pytest.mark.parametrize("world", range(1, 12))
def test_pairings_pair(topology, world):
    met = set()
    for round in range(world):
        idle = 0
        for rank in range(world):
            peers = [peer for peer, _ in topology.neighbors(world, rank, round)]
            assert len(peers) <= 1
            assert all(topology.neighbors(world, peer, round)[0][0] == rank for peer in peers)
            idle += not peers
            met |= {(rank, peer) for peer in peers}
        if not isinstance(topology, RoundRobin):
            assert idle == world % 2
    if isinstance(topology, RoundRobin):
        assert len(met) == world * (world - 1)


@pytest.mark.parametrize("world", [2, 4, 6, 8])
def test_shift_one_is_the_reference_systems(world):
    for step in range(2 * world):
        for rank in range(world):
            if rank < world // 2:
                peer = (step + rank) % ((world + 1) // 2) + world // 2
            else:
                peer = (rank - world // 2 - step) % (world // 2)
            assert ShiftOne().neighbors(world, rank, step) == [(peer, Fraction(1, 2))]


@pytest.mark.parametrize("world", [2, 4, 8])
def test_one_peer_exponential_averages_exactly_in_log2_rounds(world):
    matrix = np.eye(world)
    for round in range(log2_ceil(world)):
        step = np.zeros((world, world))
        for rank in range(world):
            ((peer, weight),) = OnePeerExponential().neighbors(world, rank, round)
            step[rank, rank], step[rank, peer] = 1 - weight, weight
        matrix = step @ matrix
    np.testing.assert_array_equal(matrix, np.full((world, world), 1 / world))


# Every algorithm.


@pytest.mark.parametrize("name", JOBS)
def test_world_one_is_plain_sgd_bit_for_bit(name):
    weights, expected = same_start(1), same_start(1)[0]
    weights[0][:2] = expected[:2] = [-0.0, 1e-40]
    steps = normal(1, 3)
    for (g,), step in zip(steps, run(JOBS[name](weights, sgd=LR), steps)):
        expected = expected - np.float32(LR) * g
        assert_same(step.gradients, [g])
        assert_same(step.weights, [expected])
        assert step.wire == [0]


@pytest.mark.parametrize("name", {**JOBS, **OWNERS})
@pytest.mark.parametrize("world", [1, 3])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_step_that_is_not_finite_changes_nothing(name, world, bad):
    steps = normal(world, 4)
    steps[6][world - 1][5] = bad
    own = {} if name in OWNERS else dict(sgd=LR)
    done = run({**JOBS, **OWNERS}[name](same_start(world), **own), steps)
    assert [step.finite for step in done] == [i != 6 for i in range(STEPS)]
    if world == 1 or name not in ROUNDS:
        assert_same(done[6].weights, done[5].weights)
    for state, values in done[6].states.items():
        assert_same(values, done[5].states[state])
    assert all(finite(step.weights) for step in done)


@pytest.mark.parametrize("name", ["gradient_allreduce", "via", "gathered", "memory", "doublesqueeze", "ef21"])
def test_what_is_not_finite_reaches_every_rank(name):
    steps = normal(3, 4, steps=1)
    steps[0][1][70] = np.nan
    (step,) = run(JOBS[name](same_start(3)), steps)
    assert all(np.isnan(g[70]) and np.isfinite(g[:64]).all() for g in step.gradients)


@pytest.mark.parametrize(
    "name",
    [
        "gradient_allreduce via gathered sign_majority memory doublesqueeze ef21 one_step_late".split(),
        ["onebit_adam", "qadam"],
    ],
    ids=["gradients", "adam"],
)
@pytest.mark.parametrize("world", WORLDS)
def test_replicas_stay_equal(name, world):
    for one in name:
        own = {} if one in OWNERS else dict(sgd=LR)
        for step in run({**JOBS, **OWNERS}[one](same_start(world), **own), normal(world, 5)):
            assert_same(step.weights, [step.weights[0]] * world)


# Bytes.


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("length", [0, 1, 63, 64, 65, 300])
def test_bytes_are_the_formulas(world, length):
    w, g = same_start(world, length), normal(world, 6, length, 1)
    plain = [4 * length + (world - 2) * 4 * (e - b) for b, e in shards(length, 1, world)]
    packed = [
        SMALL.packed_bytes(length) + (world - 2) * SMALL.packed_bytes(e - b)
        for b, e in shards(length, 64, world)
    ]
    alone = [0] * world
    assert run(gradients.GradientAllReduce(w), g)[0].wire == (plain if world > 1 else alone)
    assert run(JOBS["via"](w), g)[0].wire == (packed if world > 1 else alone)
    assert run(JOBS["doublesqueeze"](w), g)[0].wire == (packed if world > 1 else alone)
    assert run(JOBS["memory"](w), g)[0].wire == [(world - 1) * SMALL.packed_bytes(length)] * world
    assert run(JOBS["ring"](w), g)[0].wire == [min(2, world - 1) * 4 * length] * world
    assert run(JOBS["dcd"](w), g)[0].wire == [min(2, world - 1) * SMALL.packed_bytes(length)] * world


# A codec that loses nothing.


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize(
    "job", [gradients.CompressedAllReduce, gradients.GatheredMean, gradients.Memory, gradients.DoubleSqueeze]
)
def test_with_the_identity_codec_it_is_the_exact_mean(world, job):
    steps = normal(world, 8)
    done = run(job(same_start(world), codec=Identity(), sgd=LR), steps)
    for step, expected in zip(done, run(gradients.GradientAllReduce(same_start(world), sgd=LR), steps)):
        assert_same(step.gradients, expected.gradients)
        assert_same(step.weights, expected.weights)
        for values in step.states.values():
            assert not any(value.any() for value in values)


def test_ef21_with_the_identity_codec_is_the_mean():
    steps = normal(4, 8)
    for step, g in zip(run(gradients.Ef21(same_start(4), codec=Identity()), steps), steps):
        assert_close(step.gradients, [mean(g)] * 4)
        assert_close(step.states["local"], g)


@pytest.mark.parametrize("job", [gradients.Memory, gradients.DoubleSqueeze])
def test_error_feedback_loses_nothing_over_time(job):
    world, steps = 4, normal(4, 9, steps=30)
    done = run(job(same_start(world), codec=MinMax(2, 64)), steps)
    delivered = sum(step.gradients[0].astype(float) for step in done)
    wanted = sum(np.mean(np.array(g, float), 0) for g in steps)
    last = done[-1].states
    kept = np.mean(np.array(last.get("e", last.get("ew")), float), 0)
    kept = kept + (np.concatenate(last["es"]) if "es" in last else 0)
    np.testing.assert_allclose(delivered + kept, wanted, atol=1e-4)
    assert np.abs(kept).max() > 1e-2, "the codec lost nothing: this proves nothing"


def test_majority_is_the_majority():
    g = [np.array([1, -1, 1, 0, -3], np.float32), np.array([2, -2, -1, 0, -1], np.float32)]
    g.append(np.array([-1, -3, -1, 0, 5], np.float32))
    even, odd = run(gradients.SignMajority(same_start(3, 5), MinMax(2, 8)), [g, g])
    assert_same(even.gradients, [np.array([1, -1, -1, 1, -1], np.float32)] * 3)
    assert_same(odd.gradients, [np.array([1, -1, -1, -1, -1], np.float32)] * 3)


def test_ties_move_nothing_on_the_whole():
    g = [np.array([3, -1, 0], np.float32), np.array([-2, 4, 0], np.float32)]
    even, odd = run(gradients.SignMajority(same_start(2, 3), MinMax(2, 8)), [g, g])
    assert_same(even.gradients, [np.ones(3, np.float32)] * 2)
    assert_same(odd.gradients, [-np.ones(3, np.float32)] * 2)


@pytest.mark.parametrize("world", [2, 5])
def test_one_step_late_is_one_step_late(world):
    steps = normal(world, 10)
    late = run(gradients.OneStepLate(same_start(world)), steps)
    now = run(gradients.GradientAllReduce(same_start(world)), steps)
    assert not late[0].gradients[0].any()
    for step, expected in zip(late[1:], now[:-1]):
        assert_same(step.gradients, expected.gradients)


# Decentralized, against float64 matrices.


def matrix(topology, world, round=0):
    result = np.zeros((world, world))
    for rank in range(world):
        result[rank, rank] = 1
        for peer, weight in topology.neighbors(world, rank, round):
            result[rank, peer] += float(weight)
            result[rank, rank] -= float(weight)
    return result


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("name", ["ring", "shift_one", "one_peer"])
def test_mixing_is_the_matrix_before_the_gradient(world, name):
    steps, x = normal(world, 11), np.array(own_start(world), float)
    job = JOBS[name](own_start(world), sgd=LR)
    for i, step in enumerate(run(job, steps)):
        x = matrix(job.topology, world, i) @ x - LR * np.array(steps[i], float)
        assert_close(step.weights, x)


@pytest.mark.parametrize("world", WORLDS)
def test_dcd_with_the_identity_codec_is_the_ring(world):
    steps = normal(world, 12)
    done = run(decentralized.DcdPsgd(same_start(world), codec=Identity(), sgd=LR), steps)
    for step, expected in zip(done, run(decentralized.Mixing(same_start(world), sgd=LR), steps)):
        assert_close(step.weights, expected.weights)


@pytest.mark.parametrize("world", WORLDS)
def test_without_loss_choco_deepsqueeze_and_sgp_mix_after_the_gradient(world):
    steps, start = normal(world, 13), same_start(world)
    one = decentralized.OnePeer.topology
    jobs = [
        (decentralized.ChocoSgd(start, codec=Identity(), gamma=1.0, sgd=LR), ring()),
        (decentralized.DeepSqueeze(start, codec=Identity(), eta=1.0, sgd=LR), ring()),
        (decentralized.Sgp(start, sgd=LR), one),
    ]
    for job, topology in jobs:
        x = np.array(start, float)
        for i, step in enumerate(run(job, steps)):
            x = matrix(topology, world, i) @ (x - LR * np.array(steps[i], float))
            assert_close(step.weights, x)
            assert "y" not in step.states or all(y == 1 for y in step.states["y"])


@pytest.mark.parametrize("world", WORLDS)
def test_d2_is_the_papers_recursion(world):
    steps, job = normal(world, 14), decentralized.D2(own_start(world), sgd=LR)
    w, x, before = matrix(job.topology, world), np.array(own_start(world), float), None
    for i, step in enumerate(run(job, steps)):
        g = np.array(steps[i], float)
        half = x - LR * g
        if before is not None:
            half = 2 * x - before - LR * g + LR * np.array(steps[i - 1], float)
        before, x = x, w @ half
        assert_close(step.weights, x, 1e-4)


@pytest.mark.parametrize("name", ["dcd", "choco"])
@pytest.mark.parametrize("world", WORLDS[1:])
def test_replicas_are_what_the_neighbors_keep(name, world):
    job = JOBS[name](same_start(world), sgd=LR)
    for step in run(job, normal(world, 15)):
        for rank in range(world):
            for peer, entry in job.by_peer(step.states["n"])[rank].items():
                assert_same([entry], [step.states["x"][peer]])
        if name == "dcd":
            assert_same(step.weights, step.states["x"])


@pytest.mark.parametrize("name", ["ring", "shift_one", "one_peer", "d2", "choco", "deepsqueeze", "sgp", "ad_psgd"])
@pytest.mark.parametrize("world", WORLDS)
def test_mixing_keeps_the_average(name, world):
    """The average moves as that of the gradients does: what is mixed adds up to nothing."""
    steps, x = normal(world, 16), np.mean(np.array(same_start(world), float), 0)
    for g, step in zip(steps, run(JOBS[name](same_start(world), sgd=LR), steps)):
        x = x - LR * np.mean(np.array(g, float), 0)
        np.testing.assert_allclose(np.mean(np.array(step.weights, float), 0), x, atol=1e-5)


@pytest.mark.parametrize("name", ["ring", "shift_one", "one_peer", "ad_psgd"])
@pytest.mark.parametrize("world", WORLDS)
def test_mixing_keeps_equal_weights_equal(name, world):
    steps = [[np.zeros(LENGTH, np.float32)] * world] * STEPS
    for step in run(JOBS[name](same_start(world)), steps):
        assert_same(step.weights, same_start(world))


# Local steps.


@pytest.mark.parametrize("world", [2, 4, 8])
def test_one_local_step_is_all_reduce(world):
    steps, start = exact(world, 17), [np.zeros(LENGTH, np.float32)] * world
    local = run(local_steps.LocalSgd(start, interval=1, sgd=LR), steps)
    for step, expected in zip(local, run(gradients.GradientAllReduce(start, sgd=LR), steps)):
        assert_same(step.weights, expected.weights)


@pytest.mark.parametrize("world", WORLDS)
def test_local_sgd_averages_every_fourth_step_only(world):
    for i, step in enumerate(run(local_steps.LocalSgd(same_start(world), sgd=LR), normal(world, 18))):
        equal = all((w == step.weights[0]).all() for w in step.weights)
        assert equal == (i % 4 == 3 or world == 1)
        assert bool(sum(step.wire)) == (i % 4 == 3 and world > 1)


@pytest.mark.parametrize("world", WORLDS)
def test_special_cases_of_local_algorithms(world):
    steps, start = normal(world, 19), same_start(world)
    local = run(local_steps.LocalSgd(start, sgd=LR), steps)
    reduced = run(gradients.GradientAllReduce(start, sgd=LR), steps)
    exactly = {
        "post, late": (local_steps.PostLocalSgd(start, warmup=99, sgd=LR), reduced),
        "post, at once": (local_steps.PostLocalSgd(start, warmup=0, sgd=LR), local),
    }
    nearly = {
        "slowmo": (local_steps.SlowMo(start, beta=0.0, sgd=LR), local),
        "diloco": (local_steps.DiLoCo(start, outer_lr=1.0, momentum=0.0, sgd=LR), local),
        "qsparse": (local_steps.QsparseLocalSgd(start, Identity(), sgd=LR), local),
    }
    for table, check in ((exactly, assert_same), (nearly, assert_close)):
        for job, expected in table.values():
            for step, other in zip(run(job, steps), expected):
                check(step.weights, other.weights)


def test_diloco_is_torchs_nesterov_outside():
    world, steps = 3, normal(3, 20)
    outer = torch.nn.Parameter(torch.tensor(same_start(1)[0], dtype=torch.float64))
    optimizer = torch.optim.SGD([outer], lr=0.7, momentum=0.9, nesterov=True)
    local = np.array(same_start(world), float)
    for i, step in enumerate(run(local_steps.DiLoCo(same_start(world), sgd=LR), steps)):
        local -= LR * np.array(steps[i], float)
        if i % 4 == 3:
            outer.grad = outer.detach() - torch.tensor(local.mean(0))
            optimizer.step()
            local[:] = outer.detach().numpy()
        assert_close(step.weights, local)


# Rounds beside the steps.


class Counting(asynchronous.Asynchronous):
    """Round k adds 2^k."""

    defaults = dict(interval=2)

    def round(self, number, w):
        return [np.full(self.length, 2.0**number, np.float32)] * self.world


@pytest.mark.parametrize(
    "interval, staleness, begun, added",
    [
        (1, 1, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 12]),
        (2, 1, [2, 4, 6, 8, 10, 12], [3, 5, 7, 9, 11, 12]),
        (2, 2, [2, 4, 6, 8, 10, 12], [4, 6, 8, 10, 12, 12]),
        (2, 3, [2, 5, 8, 11], [5, 8, 11, 12]),  # SPEC.md, "Async handlers"
        (5, 100, [5], [12]),
    ],
)
def test_rounds_begin_and_are_added_at_the_boundaries_of_the_specification(interval, staleness, begun, added):
    job = Counting([np.zeros(1, np.float32)] * 2, interval=interval, staleness=staleness)
    steps = run(job, [[np.zeros(1, np.float32)] * 2] * STEPS)
    assert STEPS == 12 and job.rounds == len(begun)
    for boundary, step in enumerate(steps, 1):
        assert step.weights[0][0] == sum(2.0**k for k, at in enumerate(added) if at <= boundary)


@pytest.mark.parametrize("world", WORLDS)
def test_ad_psgd_with_one_step_of_staleness_is_synchronous_with_random_pairs(world):
    """What a round finds at a step's end is there when the next has ended, as if mixed at its begin."""

    class RandomPairs(decentralized.Mixing):
        topology = asynchronous.AdPsgd.topology

        def before_forward(self, w):  # The first round begins after the first step.
            self.step_number -= 1
            mixed = super().before_forward(w) if self.step_number >= 0 else None
            self.step_number += 1
            return mixed

    start = [np.arange(LENGTH).astype(np.float32) * (r + 1) for r in range(world)]
    steps = [[4096 * g for g in one] for one in exact(world, 25)]  # Halving never rounds.
    synchronous = run(RandomPairs(start, sgd=LR), steps)
    done = run(asynchronous.AdPsgd(start, sgd=LR, staleness=1), steps)
    for step, expected in zip(done[:-1], synchronous[:-1]):
        assert_same(step.weights, expected.weights)
    assert world == 1 or any((a != b).any() for a, b in zip(done[0].weights, done[1].weights))


@pytest.mark.parametrize("world", WORLDS)
def test_async_averaging_is_that_of_four_steps_ago(world):
    """After the warm-up: w + (mean of snapshots − snapshot), and what is not moved averages to nothing."""
    w, steps = same_start(world), normal(world, 26)
    done = run(asynchronous.AsyncModelAverage(w, sgd=LR, warmup_steps=3), steps)
    exactly = run(gradients.GradientAllReduce(w, sgd=LR), steps[:3])
    for step, expected in zip(done, exactly):
        assert_same(step.weights, expected.weights)
    x = np.array(exactly[-1].weights, float)
    snapshot = None
    for boundary in range(4, STEPS + 1):
        x = x - LR * np.array(steps[boundary - 1], float)
        if boundary == 7:  # Round 0 began at 3, where all were equal.
            snapshot = x.copy()
        if boundary == 11:
            x = x + (np.mean(snapshot, 0) - snapshot)
        if boundary < STEPS:  # Then the round that began at 11 is added.
            assert_close(done[boundary - 1].weights, x)


# Adam.


@pytest.mark.parametrize("world", [1, 2, 5])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_qadam_warms_up_as_torchs_adam(world, decay):
    steps = normal(world, 21, steps=30)
    w = torch.nn.Parameter(torch.tensor(same_start(1)[0], dtype=torch.float64))
    optimizer = torch.optim.Adam([w], lr=1e-2, weight_decay=decay)
    for g, step in zip(steps, run(adam.QAdam(same_start(world), lr=1e-2, weight_decay=decay), steps)):
        w.grad = torch.tensor(np.mean(np.array(g, float), 0))
        optimizer.step()
        assert_close(step.weights, [w.detach().numpy()] * world)


@pytest.mark.parametrize("job, corrects_momentum", [(adam.QAdam, True), (adam.OneBitAdam, False)])
@pytest.mark.parametrize("world", WORLDS)
def test_frozen_adam_without_loss(job, corrects_momentum, world):
    """No gradient is lost at the switch; v and its correction stay as they are then; momentum is at most 1 of their units."""
    steps, warmup = normal(world, 22, steps=25), 8
    done = run(job(same_start(world), Identity(), warmup=warmup, lr=1e-2, weight_decay=0.1), steps)
    w, m, v = np.array(same_start(1)[0], float), np.zeros(LENGTH), np.zeros(LENGTH)
    for t, (g, step) in enumerate(zip(steps, done), 1):
        a = np.array(g, float) + 0.1 * w  # A row for each rank.
        if t <= warmup:
            v = 0.999 * v + 0.001 * np.mean(a, 0) ** 2
        unit = np.sqrt(v / (1 - 0.999 ** min(t, warmup))) + 1e-8
        u = (0.9 * m + 0.1 * a) / unit
        u = np.mean(u if t <= warmup else np.clip(u, -1, 1), 0)
        m = u * unit
        w = w - 1e-2 * u / (1 - 0.9**t if corrects_momentum else 1)
        assert_close(step.weights, [w] * world, 1e-4)


def test_a_skipped_step_does_not_count_for_the_bias():
    steps = normal(2, 23)
    bad = [[np.full(LENGTH, np.nan, np.float32)] * 2]
    skipped = run(adam.QAdam(same_start(2)), steps[:3] + bad + steps[3:])
    for step, expected in zip(skipped[:3] + skipped[4:], run(adam.QAdam(same_start(2)), steps)):
        assert_same(step.weights, expected.weights)


def test_onebit_adam_keeps_the_law_of_its_residuals():
    """ew is bitwise what decoding lost of the momentum in units of the variance's root."""
    world = 3
    job = adam.OneBitAdam(same_start(world), SMALL, warmup=2)
    done = run(job, normal(world, 24))
    m, g = done[4].states["m"], normal(world, 24)[5]
    v, c2 = done[4].states["v"], done[4].states["c2"]
    local = [np.float32(0.9) * m[r] + np.float32(1 - 0.9) * (g[r] + np.float32(0) * done[4].weights[r]) for r in range(world)]
    units = [np.sqrt(v[r] / c2[r]) + np.float32(1e-8) for r in range(world)]
    c = [np.clip(x / s, np.float32(-1), np.float32(1)) + e for x, s, e in zip(local, units, done[4].states["ew"])]
    lost = [x - SMALL.decode(SMALL.encode(x), LENGTH) for x in c]
    assert_same(done[5].states["ew"], lost)
    assert any(x.any() for x in lost)
