"""Ranks that die, freeze, dawdle or differ: everyone learns it, with a name, in time."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
import torch.distributed

from ranks import BUILD, HERE, environment, run

sys.path.insert(0, os.path.join(BUILD, "lib", "bagua", "python"))

from bagua.context import interruptible  # noqa: E402


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


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


@pytest.mark.parametrize("algorithm", ["gradient_allreduce", "bytegrad"])
@pytest.mark.parametrize("how, count", [("skip", 2), ("twice", 4)])
def test_update_skipped_or_repeated_by_one_rank(algorithm, how, count):
    outcome = run("uneven_updates", 3, algorithm=algorithm, how=how)
    assert outcome.code != 0
    for report in outcome.reports:
        assert report.get("raised") == "MismatchError", outcome.output
        assert f"rank 1: 3 backward passes and {count} calls of optimizer.step()" in report["message"]
        assert ": 3 backward passes and 3 calls of optimizer.step()" in report["message"]


def test_update_skipped_where_replicas_differ():
    assert len(run("uneven_updates", 3, algorithm="decentralized", how="skip").check()) == 3


def test_update_repeated_where_replicas_differ():
    """Ranks agree in each update whether the step is finite: one update more finds the others gone."""
    outcome = run("uneven_updates", 3, algorithm="decentralized", how="twice")
    assert outcome.code != 0
    assert "has left (" in outcome.output
    assert "while rank 1 waited for it in the check that gradients are finite, step " in outcome.output


@pytest.mark.parametrize("algorithm", ["gradient_allreduce", "decentralized"])
@pytest.mark.parametrize("where", ["after_forward", "after_backward"])
def test_error_of_the_job_comes_out_and_is_told(algorithm, where):
    outcome = run("user_error", 3, algorithm=algorithm, where=where)
    assert outcome.code != 0
    assert outcome.reports[1] is None
    assert "ZeroDivisionError: a fault of the job's own" in outcome.output
    for rank in (0, 2):
        report = outcome.reports[rank]
        assert report["raised"] == "PeerLostError", outcome.output
        assert "rank 1 (host " in report["message"], report
        assert "ended with ZeroDivisionError: a fault of the job's own" in report["message"], report
        # In the algorithm, in the agreement on a finite step, which comes before it, or between the two.
        places = [f"{algorithm}.mlir:", "in the check that gradients are finite", "' cannot "]
        assert any(place in report["message"] for place in places), report
    assert "unbound" not in outcome.output


@pytest.mark.parametrize("algorithm", ["gradient_allreduce", "decentralized"])
@pytest.mark.parametrize("ranks", [[0, 1, 2], [0]])
def test_extra_training_forwards(algorithm, ranks):
    plain = run("extra_forwards", 3, algorithm=algorithm, ranks=[]).check()
    more = run("extra_forwards", 3, algorithm=algorithm, ranks=ranks).check()
    assert [r["digests"] for r in more] == [r["digests"] for r in plain]
    assert [r["step"] for r in more] == [5, 5, 5]


SMALL_SHM = """
mount -t tmpfs -o size=1m tmpfs /dev/shm || exit 97
"$@"
code=$?
echo "left in /dev/shm: [$(ls -A /dev/shm)]"
exit $code
"""


def run_with_small_shm(scenario, world, **arguments):
    """In a mount namespace whose /dev/shm holds 1 MB, over shared memory."""
    prefix = ["unshare", "--mount", "--propagation", "private", "sh", "-c", SMALL_SHM, "sh"]
    outcome = run(scenario, world, env={"BAGUA_TRANSPORT": "window"}, prefix=prefix, **arguments)
    assert "left in /dev/shm: [" in outcome.output, f"no mount namespace with a small /dev/shm:\n{outcome.output}"
    return outcome


@pytest.mark.skipif(os.geteuid() != 0, reason="mount namespaces need root")
@pytest.mark.parametrize("algorithm", ["gradient_allreduce", "decentralized"])
def test_b58_buckets_larger_than_dev_shm(algorithm):
    outcome = run_with_small_shm("large_buckets", 4, algorithm=algorithm)
    for report in outcome.check():
        assert report["shm"] == 1 << 20
        assert report["largest"] > 4 * report["shm"]
        assert len(set(report["digests"])) == 3
        if algorithm == "gradient_allreduce":
            assert report["digests"] == outcome.reports[0]["digests"]
    assert "left in /dev/shm: []" in outcome.output


@pytest.mark.skipif(os.geteuid() != 0, reason="mount namespaces need root")
def test_b58_killed_rank_leaves_nothing_in_dev_shm():
    outcome = run_with_small_shm("victim", 4, algorithm="gradient_allreduce", when="bucket")
    assert [r["raised"] for r in outcome.reports if r is not None] == ["PeerLostError"] * 3, outcome.output
    assert "left in /dev/shm: []" in outcome.output
    assert_nothing_left(outcome)


@pytest.mark.parametrize(
    "how, expected", [("KILL", "PeerLostError"), ("STOP", "TimeoutError"), ("uneven", "MismatchError")]
)
def test_b47_python_goes_on_after_an_error(how, expected, tmp_path):
    world = 3
    port = str(free_port())
    ranks = []  # Without a launcher, which would end the survivors.
    for rank in range(world):
        variables = environment(
            BAGUA_RANK=rank,
            BAGUA_WORLD=world,
            BAGUA_LOCAL_RANK=rank,
            BAGUA_LOCAL_SIZE=world,
            BAGUA_STORE=f"127.0.0.1:{port}",
            BAGUA_STEP_TIMEOUT_MS=4000 if how == "STOP" else 60000,
        )
        command = [sys.executable, os.path.join(HERE, "scenarios.py"), "goes_on", json.dumps({"how": how}), tmp_path]
        ranks.append(
            subprocess.Popen(
                command, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
        )
    survivors = ranks if how == "uneven" else ranks[:-1]
    try:
        outputs = [process.communicate(timeout=200)[0] for process in survivors]
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    for rank, (process, output) in enumerate(zip(survivors, outputs)):
        assert process.returncode == 0, output
        report = json.loads((tmp_path / f"rank{rank}.json").read_text(encoding="utf-8"))
        assert [name for name, _ in report["errors"]] == [expected, expected], output
        assert f"rank {world - 1}" in report["errors"][0][1]
        assert report["errors"][1] == report["errors"][0]
        assert report["saved"] and report["moved"] and report["finite"]
        # Two ranks find the difference; its verdict may reach the third in the step before.
        assert report["step"] in ({2} if how != "uneven" else {4} if rank == world - 1 else {2, 3})
        assert report["shutdown_s"] < 5


def test_calls_after_shutdown():
    for messages in run("after_shutdown", 2).check():
        for call, message in messages.items():
            assert "bagua has been shut down" in message and "again" in message, (call, message)
            assert call.strip() in message, (call, message)


@pytest.mark.parametrize("call", ["agree", "barrier", "bind", "broadcast", "wait"])
def test_ctrl_c_while_a_rank_never_arrives(call, tmp_path):
    world = 3
    ranks = []
    port = str(free_port())
    for rank in range(world):
        variables = environment(RANK=rank, WORLD_SIZE=world, LOCAL_RANK=rank, LOCAL_WORLD_SIZE=world)
        variables.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
        ranks.append(
            subprocess.Popen(
                [sys.executable, os.path.join(HERE, "scenarios.py"), "waits_alone", json.dumps({"call": call}), tmp_path],
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    try:
        deadline = time.monotonic() + 200
        while len(list(tmp_path.glob("waits?.json"))) < world:
            ended = [process.communicate()[0] for process in ranks if process.poll() is not None]
            assert not ended, "\n".join(ended)
            assert time.monotonic() < deadline, "the ranks did not come as far as the call"
            time.sleep(0.05)
        time.sleep(0.5)  # From the report into the call.
        begin = time.time()
        for process in ranks[:-1]:
            process.send_signal(signal.SIGINT)
        outputs = [process.communicate(timeout=200)[0] for process in ranks[:-1]]
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    for rank, (process, output) in enumerate(zip(ranks, outputs)):
        if rank > 0 and "rank 0" in output and f"was interrupted in {call}" in output:
            assert process.returncode != 0  # It heard of rank 0's signal before it got its own.
            continue
        assert process.returncode == -signal.SIGINT, output  # A shell shows 130.
        assert "KeyboardInterrupt" in output
        seconds = json.loads((tmp_path / f"interrupted{rank}.json").read_text(encoding="utf-8")) - begin
        assert seconds < 20, output  # At once; without signals it waits for 300 s.


@pytest.mark.parametrize("absent", [0, 2])
def test_ctrl_c_in_init_while_a_rank_never_arrives(absent):
    """Rank 0 has the store: without it the others wait for an address."""
    code = "import bagua.torch as bagua; print('imported', flush=True); bagua.init()"
    ranks = []
    port = str(free_port())
    try:
        for rank in {0, 1, 2} - {absent}:
            variables = environment(RANK=rank, WORLD_SIZE=3, LOCAL_RANK=rank, LOCAL_WORLD_SIZE=3)
            variables.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
            ranks.append(
                subprocess.Popen(
                    [sys.executable, "-c", code],
                    env=variables,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )
        for process in ranks:
            assert process.stdout.readline() == "imported\n"
        time.sleep(0.5)
        begin = time.monotonic()
        for process in ranks:
            process.send_signal(signal.SIGINT)
        outputs = [process.communicate(timeout=200)[0] for process in ranks]
    finally:
        for process in ranks:
            process.kill()
            process.wait()
    assert time.monotonic() - begin < 20, outputs  # Without signals they wait for 300 s.
    for process, output in zip(ranks, outputs):
        assert process.returncode == -signal.SIGINT, output
        assert "KeyboardInterrupt" in output


def test_interrupted_call_has_returned_before_the_error():
    """What it uses may be freed then."""
    aborted, events = threading.Event(), []

    def call():
        aborted.wait()
        time.sleep(0.3)
        events.append("returned")

    timer = threading.Timer(0.15, signal.raise_signal, [signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        interruptible(call, aborted.set)
    events.append("raised")
    timer.join()
    assert events == ["returned", "raised"]


@pytest.mark.parametrize("absent", [0, 1])
@pytest.mark.parametrize("agent", [False, True])
def test_b64_absent_rank_is_named_under_torchs_variables(absent, agent):
    """With torch's store in rank 0, or where torchrun's agent has it."""
    code = "import bagua.torch as bagua; bagua.init()"
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) if agent else None
    variables = environment(RANK=1 - absent, WORLD_SIZE=2, LOCAL_RANK=1 - absent, LOCAL_WORLD_SIZE=2)
    variables.update(
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(store.port if store else free_port()),
        TORCHELASTIC_USE_AGENT_STORE=str(agent),
        BAGUA_BOOTSTRAP_TIMEOUT_MS="3000",
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=variables,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    expected = {
        (0, False): ["rank 1 did not reach torch's store at ", ", which rank 0 opens, within 3 s"],
        (0, True): ["rank 0 did not arrive in bagua.init(), where rank 1 waits for it, within 3 s"],
        (1, False): ["rank 1 of 2 did not join within 3.0 s"],
        (1, True): ["rank 1 of 2 did not join within 3.0 s"],
    }[absent, agent]
    for text in ["TimeoutError: ", "BAGUA_BOOTSTRAP_TIMEOUT_MS", *expected]:
        assert text in last, done.stderr
