"""Two hosts: network namespaces joined by a veth pair, so that ranks of different hosts talk over UCX and TCP."""

import contextlib
import itertools
import json
import os
import subprocess
import sys
import time

import pytest

from ranks import ALGORITHMS, DEADLINE_S, HERE, environment, pooled

_names = itertools.count()
BY_NODE = ["hierarchical_allreduce", "hierarchical_bytegrad", "hierarchical_decentralized"]


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@contextlib.contextmanager
def two_hosts():
    """Names and addresses of two namespaces; each also has a bridge that must not be chosen (B56)."""
    stem = f"bg{os.getpid()}x{next(_names)}"
    spaces = [f"{stem}a", f"{stem}b"]
    addresses = ["10.77.0.1", "10.77.0.2"]
    try:
        for space in spaces:
            ip("netns", "add", space)
        ip("link", "add", f"{stem}0", "netns", spaces[0], "type", "veth", "peer", "name", f"{stem}1", "netns", spaces[1])
        for index, (space, address) in enumerate(zip(spaces, addresses)):
            ip("-n", space, "link", "set", "lo", "up")
            ip("-n", space, "link", "add", "docker0", "type", "bridge")
            ip("-n", space, "addr", "add", "172.17.0.1/16", "dev", "docker0")
            ip("-n", space, "link", "set", "docker0", "up")
            ip("-n", space, "addr", "add", f"{address}/24", "dev", f"{stem}{index}")
            ip("-n", space, "link", "set", f"{stem}{index}", "up")
        for index, space in enumerate(spaces):  # The kernel finds the carrier a little later.
            deadline = time.monotonic() + DEADLINE_S
            command = ["ip", "-n", space, "-o", "link", "show", f"{stem}{index}"]
            while "state UP" not in subprocess.run(command, check=True, capture_output=True, text=True).stdout:
                assert time.monotonic() < deadline, "the cable between the hosts has no carrier"
                time.sleep(0.02)
        yield list(zip(spaces, addresses))
    finally:
        for space in spaces:
            subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)


def run_on_hosts(hosts, ranks_per_host, scenario, folder, interleaved=False, **arguments):
    """Consecutive ranks are on one host, or on one host after the other."""
    world = len(hosts) * ranks_per_host
    processes = []
    for rank in range(world):
        host, local = (rank % len(hosts), rank // len(hosts)) if interleaved else divmod(rank, ranks_per_host)
        space, _ = hosts[host]
        variables = environment(
            BAGUA_RANK=rank,
            BAGUA_WORLD=world,
            BAGUA_LOCAL_RANK=local,
            BAGUA_LOCAL_SIZE=ranks_per_host,
            BAGUA_STORE=f"{hosts[0][1]}:29871",
        )
        command = ["ip", "netns", "exec", space, sys.executable, os.path.join(HERE, "scenarios.py")]
        command += [scenario, json.dumps(arguments), str(folder)]
        processes.append(
            subprocess.Popen(
                command, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
        )
    try:
        outputs = [process.communicate(timeout=DEADLINE_S)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert all(process.returncode == 0 for process in processes), "\n".join(outputs)
    reports = []
    for rank in range(world):
        with open(os.path.join(folder, f"rank{rank}.json"), encoding="utf-8") as file:
            reports.append(json.load(file))
    return reports


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
@pytest.mark.parametrize("algorithm", [*ALGORITHMS, *BY_NODE])
@pytest.mark.parametrize("ranks_per_host", [1, 2])
def test_b55_b56_training_across_hosts(algorithm, ranks_per_host, tmp_path):
    with two_hosts() as hosts:
        reports = run_on_hosts(hosts, ranks_per_host, "replicas", tmp_path, algorithm=algorithm)
    assert all(r["wire"] == r["formula"] > 0 for r in reports)
    if "decentralized" not in algorithm:
        assert all(r["digests"] == reports[0]["digests"] for r in reports)


def digests(reports):
    return [report["digests"] for report in reports]


@pytest.mark.parametrize("algorithm", ["gradient_allreduce", "decentralized"])
def test_b20_same_bits_in_any_buckets(algorithm):
    """Elements are reduced by rank, wherever they lie. (A codec's blocks begin with the bucket.)"""
    expected = pooled("with_buckets_of", 4, algorithm=algorithm, bucket_bytes=1 << 20)
    assert {report["buckets"] for report in expected} == {1}
    for bucket_bytes, buckets in ((1, 6), (300, 5), (2048, 3)):
        reports = pooled("with_buckets_of", 4, algorithm=algorithm, bucket_bytes=bucket_bytes)
        assert {report["buckets"] for report in reports} == {buckets}
        assert digests(reports) == digests(expected)


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_b20_same_bits_on_any_hosts(algorithm, tmp_path):
    arguments = {"algorithm": algorithm, "bucket_bytes": 2048}
    expected = digests(pooled("with_buckets_of", 4, **arguments))
    for interleaved in (False, True):
        with two_hosts() as hosts:
            reports = run_on_hosts(hosts, 2, "with_buckets_of", tmp_path, interleaved, **arguments)
        assert digests(reports) == expected
