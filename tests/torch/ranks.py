"""Starts local ranks of a scenario (see scenarios.py) and collects what each reports."""

import dataclasses
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ["BAGUA_BUILD"]
ALGORITHMS = ["gradient_allreduce", "bytegrad", "decentralized"]
DEADLINE_S = 120


@dataclasses.dataclass
class Outcome:
    code: int
    output: str
    reports: list  # By rank; None where the rank wrote none.

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


def run(scenario, world, launcher="bagua-run", env=None, deadline=DEADLINE_S, **arguments):
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
            command,
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
        return Outcome(done.returncode, done.stdout, reports)
