"""Ranks that die, freeze, dawdle or differ: everyone learns it, with a name, in time."""

import os
import subprocess
import time

import pytest

from ranks import run


def processes(outcome):
    """The job's processes that are alive now."""
    listing = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in listing.splitlines() if outcome.folder in line]


def assert_nothing_left(outcome):
    deadline = time.monotonic() + 5
    while processes(outcome) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert processes(outcome) == []


@pytest.mark.parametrize("algorithm", ["gradient_allreduce", "bytegrad", "decentralized"])
@pytest.mark.parametrize("when", ["bind", "bucket", "between"])
def test_b40_b60_killed_rank(algorithm, when):
    if algorithm == "decentralized" and when == "bucket":
        when = "between"  # Its program spans forward and backward: this is in the middle of a bucket.
    outcome = run("victim", 4, algorithm=algorithm, when=when)
    assert outcome.code != 0
    for rank in (0, 1, 3):
        report = outcome.reports[rank]
        assert report is not None and "raised" in report, f"rank {rank}\n{outcome.output}"
        assert report["raised"] == "PeerLostError", report
        assert "rank 2" in report["message"], report
        seconds = [line for line in outcome.output.splitlines() if f"rank {rank} raised" in line]
        assert seconds and float(seconds[0].split(" raised ")[1].split()[0]) < 2, outcome.output
    assert_nothing_left(outcome)


def test_b42_frozen_rank():
    outcome = run(
        "victim",
        4,
        env={"BAGUA_STEP_TIMEOUT_MS": 5000},
        algorithm="gradient_allreduce",
        when="between",
        how="STOP",
        workers=False,
    )
    assert outcome.code != 0
    for rank in (0, 1, 3):
        assert outcome.reports[rank]["raised"] == "TimeoutError", outcome.output
        assert "rank 2" in outcome.reports[rank]["message"]
    assert_nothing_left(outcome)


def test_b46_user_code_past_the_timeout():
    outcome = run("slow_rank", 2, env={"BAGUA_STEP_TIMEOUT_MS": 1500}, seconds=4, pause=False)
    assert outcome.code != 0
    assert outcome.reports[1]["raised"] == "TimeoutError", outcome.output
    assert "rank 0" in outcome.reports[1]["message"]


def test_b46_paused_timeout():
    reports = run("slow_rank", 2, env={"BAGUA_STEP_TIMEOUT_MS": 1500}, seconds=4, pause=True).check()
    assert reports[0] == reports[1]


@pytest.mark.parametrize(
    "what, expected",
    [
        ("shape", ["parameters", "shape"]),
        ("extra", ["parameters"]),
        ("dtype", ["f32", "f64"]),
        ("order", ["name"]),
        ("algorithm", ["bytegrad", "gradient_allreduce"]),
    ],
)
def test_b43_b44_ranks_that_differ(what, expected):
    reports = run("different", 3, what=what).check()
    for report in reports:
        assert report["error"] == "MismatchError", report
        assert "rank 1" in report["message"]
        for text in expected:
            assert text in report["message"]


def test_b64_rank_that_raises_before_wrap():
    outcome = run("raises_before_wrap", 3, env={"BAGUA_BOOTSTRAP_TIMEOUT_MS": 20000})
    assert outcome.code != 0
    for rank in (0, 2):
        assert outcome.reports[rank]["error"] == "PeerLostError", outcome.output
        assert "rank 1" in outcome.reports[rank]["message"]
