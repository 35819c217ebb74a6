"""Starts local ranks of a scenario (see scenarios.py) and collects what each reports."""

import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ["BAGUA_BUILD"]
ALGORITHMS = ["gradient_allreduce", "bytegrad", "decentralized"]
DEADLINE_S = 300


@dataclasses.dataclass
class Outcome:
    code: int
    output: str
    reports: list  # By rank; None where the rank wrote none.
    folder: str = ""  # Gone by now; stands in the command lines of the job's processes.

    def check(self):
        """The reports, after asserting that every rank succeeded."""
        assert self.code == 0, f"exit code {self.code}\n{self.output}"
        assert all(report is not None for report in self.reports), self.output
        return self.reports


def environment(**extra):
    result = dict(os.environ)
    for name in list(result):
        if name.startswith("BAGUA_") or name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
            del result[name]
    result["PYTHONPATH"] = os.path.join(BUILD, "lib", "bagua", "python")
    result["OMP_NUM_THREADS"] = "1"
    result.update({name: str(value) for name, value in extra.items()})
    return result


def run(scenario, world, launcher="bagua-run", env=None, deadline=DEADLINE_S, prefix=(), **arguments):
    """Its outcome; `prefix` is a command that runs the launcher."""
    with tempfile.TemporaryDirectory(prefix="bagua-test-") as folder:
        command = [sys.executable, os.path.join(HERE, "scenarios.py"), scenario, json.dumps(arguments), folder]
        if launcher == "bagua-run":
            command = [os.path.join(BUILD, "bin", "bagua-run"), "-n", str(world), "--", *command]
        elif launcher == "torchrun":
            # Redirections to files, because Debian's torchrun fails without them on Python 3.11.
            logs = os.path.join(folder, "logs")
            options = ["--standalone", "--nproc_per_node", str(world), "-r", "1", "-t", "1", "--log_dir", logs]
            command = [sys.executable, "-m", "torch.distributed.run", *options, *command[1:]]
        else:
            assert launcher == "alone" and world == 1
        done = subprocess.run(
            [*prefix, *command],
            env=environment(**(env or {})),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=deadline,
            check=False,
        )
        reports = []
        for rank in range(world):
            path = os.path.join(folder, f"rank{rank}.json")
            if os.path.exists(path):
                with open(path, encoding="utf-8") as file:
                    reports.append(json.load(file))
            else:
                reports.append(None)
        return Outcome(done.returncode, done.stdout, reports, folder)


class Pool:
    """Ranks that stay alive and run one scenario after another: starting them is what takes long."""

    def __init__(self, world):
        self.world = world
        self.folder = tempfile.TemporaryDirectory(prefix="bagua-test-")
        self.log = open(os.path.join(self.folder.name, "log"), "w+", encoding="utf-8")
        self.number = 0
        command = [os.path.join(BUILD, "bin", "bagua-run"), "-n", str(world), "--", sys.executable]
        command += [os.path.join(HERE, "scenarios.py"), "serve", "null", self.folder.name]
        self.process = subprocess.Popen(
            command, env=environment(), stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT
        )

    def _request(self, value):
        path = os.path.join(self.folder.name, f"request{self.number}.json")
        with open(path + ".partial", "w", encoding="utf-8") as file:
            json.dump(value, file)
        os.replace(path + ".partial", path)

    def run(self, scenario, **arguments):
        """The ranks' reports; fails with the log if a rank does."""
        self._request({"scenario": scenario, "arguments": arguments})
        paths = [os.path.join(self.folder.name, f"result{self.number}.rank{rank}.json") for rank in range(self.world)]
        self.number += 1
        deadline = time.monotonic() + DEADLINE_S
        while not all(os.path.exists(path) for path in paths):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.close(kill=True)
                self.log.seek(0)
                raise AssertionError(f"{scenario} {arguments} failed\n{self.log.read()}")
            time.sleep(0.01)
        reports = []
        for path in paths:
            with open(path, encoding="utf-8") as file:
                reports.append(json.load(file))
        return reports

    def close(self, kill=False):
        _pools.pop(self.world, None)
        if not kill and self.process.poll() is None:
            self._request({})
            try:
                self.process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                kill = True
        if kill and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(timeout=30)
        assert kill or self.process.returncode == 0, f"a pool of {self.world} ranks ended with {self.process.returncode}"


_pools = {}


def pooled(scenario, world, **arguments):
    """The reports of `scenario` from ranks under bagua-run that other tests use, too."""
    if world not in _pools:
        _pools[world] = Pool(world)
    return _pools[world].run(scenario, **arguments)


def close_pools():
    for pool in list(_pools.values()):
        pool.close()
