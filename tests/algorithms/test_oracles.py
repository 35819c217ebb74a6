"""Each shipped algorithm, and codecs that users may write, as the interpreters of bagua, chunk and sched
run them, against their oracles in NumPy: gradients, weights and states to the bit, bytes on the wire exactly."""

import glob
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from interpret import SOURCES, interpret
from oracles.arithmetic import bits
from oracles.catalog import ALGORITHMS, USER_CODECS
from oracles.job import run

STEPS, SGD = 20, 0.0625
SHIPPED = sorted(os.path.splitext(os.path.basename(path))[0] for path in glob.glob(f"{SOURCES}/*.mlir"))
CODECS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs")
CASES = {name: (os.path.join(SOURCES, f"{name}.mlir"), ALGORITHMS.get(name)) for name in SHIPPED}
CASES |= {name: (os.path.join(CODECS, f"{name}.mlir"), case) for name, case in USER_CODECS.items()}
LEVELS = ["bagua", "chunk", "sched"]


def inputs(world, length):
    """Gradients of all steps, one of them with a NaN and one with an infinity on one rank, and weights, the same
    on all ranks."""
    source = np.random.default_rng([world, length])
    gradients = [
        [source.standard_normal(length, np.float32) for _ in range(world)] for _ in range(STEPS)
    ]
    if length:
        gradients[4][world - 1][length // 2] = np.nan
        gradients[11][0][length - 1] = -np.inf
    return gradients, [source.standard_normal(length, np.float32)] * world


def combinations(block):
    """Every world, and every length; not each with each."""
    lengths = sorted({0, 1, block - 1, block, block + 1, 2 * block + 3, 331, 5000})
    few = sorted({1, block + 1, 331, 5000})
    return [(w, n) for w in (1, 2, 3, 4, 5, 8) for n in (lengths if w in (1, 3, 4) else few)]


LAYOUTS = [(1, 1), (1, 3), (2, 1), (2, 2), (3, 1), (2, 4), (3, 2), (4, 1), (4, 2)]  # nodes, ranks of each


def on_nodes(block):
    """Every layout, at every level."""
    lengths = sorted({0, 1, block - 1, block, block + 1, 2 * block + 3, 331, 5000})
    few = sorted({0, block + 1, 5000})
    return [
        (level, nodes * local, length, nodes)
        for level in LEVELS
        for nodes, local in LAYOUTS
        for length in (lengths if level == "bagua" else few)
    ]


def differences(name, level, world, length, nodes=1):
    """What differs, in words; empty if nothing does."""
    path, algorithm = CASES[name]
    gradients, weights = inputs(world, length)
    sgd = 0.0 if algorithm.owns_update else SGD
    got = interpret(path, level, gradients, weights, sgd, algorithm.parameters, nodes)
    named = dict(algorithm.parameters) | ({} if algorithm.owns_update else dict(sgd=sgd))
    named |= dict(nodes=nodes) if algorithm.counts_nodes else {}
    steps = run(algorithm.make(weights, **named), gradients)
    where = f"{level}, world {world} on {nodes} nodes, length {length}"
    found = []

    def compare(what, actual, expected):
        for rank in range(world):
            a, b = bits(actual[rank]), bits(expected[rank])
            if a.shape != b.shape:
                found.append(f"{where}: {what}, rank {rank}: {a.size} elements, not {b.size}")
            elif (a != b).any():
                at = int(np.flatnonzero(a != b)[0])
                x, y = (np.ravel(values[rank])[at] for values in (actual, expected))
                found.append(f"{where}: {what}, rank {rank}, element {at}: {x!r}, not {y!r}")

    for i, step in enumerate(steps):
        if got.finite[i] != step.finite:
            found.append(f"{where}: step {i}: finite is {got.finite[i]}, not {step.finite}")
        compare(f"step {i}, gradient", got.gradients[i], step.gradients)
        compare(f"step {i}, weight", got.weights[i], step.weights)
        if got.wire[i] != step.wire:
            found.append(f"{where}: step {i}: wire bytes {got.wire[i]}, not {step.wire}")
    states = {state: [np.ravel(v) for v in values] for state, values in steps[-1].states.items()}
    if sorted(states) != sorted(got.names):
        return [*found, f"{where}: states {got.names}, not {sorted(states)}"]
    at = 0
    for state in got.names:
        parts = []
        for value in states[state]:
            parts.append(got.states[at : at + value.size])
            at += value.size
        compare(f"state {state}", parts, states[state])
    if at != got.states.size:
        found.append(f"{where}: {got.states.size} elements of states, not {at}")
    return found


def test_every_algorithm_has_an_oracle():
    assert SHIPPED and not set(SHIPPED) - set(ALGORITHMS)


@pytest.mark.parametrize("name", CASES)
def test_it_computes_what_its_paper_says(name):
    algorithm = CASES[name][1]
    block = algorithm.block
    cases = [("bagua", w, n) for w, n in combinations(block)]
    cases += [(level, w, n) for level in LEVELS[1:] for w in (1, 2, 3, 5) for n in {1, block + 1, 5000}]
    cases += on_nodes(block) if algorithm.counts_nodes else []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = [line for lines in pool.map(lambda case: differences(name, *case), cases) for line in lines]
    assert not found, "\n".join(found[:12] + [f"{len(found)} differences"])


@pytest.mark.parametrize("name", CASES)
def test_properties(name):
    """What is promised, seen in what the interpreter computed, whatever the oracle says."""
    path, algorithm = CASES[name]
    for world in (1, 2, 3, 5, 8):
        gradients, weights = inputs(world, 700)
        sgd = 0.0 if algorithm.owns_update else SGD
        got = interpret(path, "bagua", gradients, weights, sgd, algorithm.parameters)
        plain = np.array(weights)
        average = np.mean(plain, 0, dtype=float)
        for i in range(STEPS):
            before = weights if i == 0 else got.weights[i - 1]
            where = f"world {world}, step {i}"
            assert np.isfinite(got.weights[i]).all(), where
            moved = i not in (4, 11)
            if not moved and not (algorithm.asynchronous and world > 1):
                np.testing.assert_array_equal(bits(got.weights[i]), bits(before), where)
            if moved:
                plain = plain - np.float32(sgd) * np.array(gradients[i])
                average = average - sgd * np.mean(got.gradients[i], 0, dtype=float)
            if algorithm.replicas_equal:
                np.testing.assert_array_equal(bits(got.weights[i]), bits(got.weights[i][:1].repeat(world, 0)))
            if algorithm.keeps_average:
                # Some roundings of numbers below 8 in each of 20 steps: each is at most 2^-22.
                np.testing.assert_allclose(np.mean(got.weights[i], 0, dtype=float), average, atol=1e-5)
            if world == 1 and not algorithm.owns_update:
                np.testing.assert_array_equal(bits(got.weights[i]), bits(plain), where)
                assert got.wire[i] == [0]


@pytest.mark.parametrize("name", ["hierarchical_allreduce", "hierarchical_bytegrad"])
def test_on_one_node_nothing_is_lost(name):
    """No codec is on the way, and the sum is the one of gradient_allreduce, in its order."""
    for world in (1, 3, 4):
        gradients, weights = inputs(world, 5000)
        got = interpret(CASES[name][0], "bagua", gradients, weights, SGD)
        exact = interpret(CASES["gradient_allreduce"][0], "bagua", gradients, weights, SGD)
        for step in range(STEPS):
            np.testing.assert_array_equal(bits(got.gradients[step]), bits(exact.gradients[step]))
            assert sum(got.wire[step]) == sum(exact.wire[step]) == 2 * (world - 1) * 5000 * 4


def test_a_ring_of_nodes_of_one_rank_is_a_ring_of_ranks():
    for world in (1, 2, 3, 5):
        gradients, weights = inputs(world, 700)
        by_node, ring = (
            interpret(CASES[name][0], "bagua", gradients, weights, SGD, nodes=world)
            for name in ("hierarchical_decentralized", "decentralized")
        )
        for step in range(STEPS):
            np.testing.assert_array_equal(bits(by_node.weights[step]), bits(ring.weights[step]))
            assert by_node.wire[step] == ring.wire[step]


def test_a_ring_of_one_node_is_its_mean():
    for world in (1, 2, 3, 5):
        gradients, weights = inputs(world, 700)
        by_node, everyone = (
            interpret(CASES[name][0], "bagua", gradients, weights, SGD)
            for name in ("hierarchical_decentralized", "decentralized_all")
        )
        for step in range(STEPS):
            np.testing.assert_array_equal(bits(by_node.weights[step]), bits(everyone.weights[step]))
            assert by_node.wire[step] == everyone.wire[step]


def test_between_nodes_less_travels():
    """On 2 nodes of 4: two rounds of the world, or two of each node and a bucket of sums from each node to the other."""
    gradients, weights = inputs(8, 5000)
    plain = interpret(CASES["gradient_allreduce"][0], "bagua", gradients, weights, SGD, nodes=2)
    by_node = interpret(CASES["hierarchical_allreduce"][0], "bagua", gradients, weights, SGD, nodes=2)
    coded = interpret(CASES["hierarchical_bytegrad"][0], "bagua", gradients, weights, SGD, nodes=2)
    bucket, packed = 5000 * 4, 3 * 8 + 5000
    assert sum(plain.wire[0]) == 14 * bucket
    assert sum(by_node.wire[0]) == 12 * bucket + 2 * bucket
    assert sum(coded.wire[0]) == 12 * bucket + 2 * packed
