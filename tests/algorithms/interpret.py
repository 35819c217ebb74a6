"""Runs bagua-interpret on raw inputs and reads what it wrote."""

import os
import re
import subprocess
import tempfile
from dataclasses import dataclass

import numpy as np

BUILD = os.environ.get("BAGUA_BUILD", "build/dev")
SOURCES = os.environ.get(
    "BAGUA_ALGORITHMS", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "algorithms")
)


@dataclass
class Result:
    gradients: list  # [step][rank]
    weights: list
    states: np.ndarray  # after the last step: by name, by rank, end to end
    names: list  # of the states, in that order
    wire: list  # [step][rank]
    finite: list


def interpret(path, level, gradients, weights, sgd=0.0, parameters=(), nodes=1):
    steps, world, length = len(gradients), len(weights), len(weights[0])
    with tempfile.TemporaryDirectory() as folder:
        paths = {kind: os.path.join(folder, kind) for kind in ("input", "output", "states")}
        with open(paths["input"], "wb") as file:
            for values in [*gradients, weights]:
                file.write(b"".join(np.asarray(v, "<f4").tobytes() for v in values))
        command = [os.path.join(BUILD, "bin", "bagua-interpret"), path]
        command += [f"--level={level}", f"--world={world}", f"--nodes={nodes}", f"--length={length}"]
        command += [f"--steps={steps}", f"--sgd={sgd!r}"] + [f"--parameter={k}={v!r}" for k, v in dict(parameters).items()]
        command += ["--input", paths["input"], "--output", paths["output"], "--output-states", paths["states"]]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
        assert not done.stderr, done.stderr
        output = np.fromfile(paths["output"], "<f4").reshape(steps, 2, world, length)
        states = np.fromfile(paths["states"], "<f4") if os.path.exists(paths["states"]) else np.zeros(0)
    wire = re.findall(r"^\d+ +[0-9a-f]+ +[0-9a-f]+ +(\d+)$", done.stdout, re.M)
    finite = ["not finite" not in line for line in re.findall(r"^step \d+.*$", done.stdout, re.M)]
    names = re.findall(r"^state (\S+)$", done.stdout, re.M)
    return Result(
        output[:, 0],
        output[:, 1],
        states,
        names,
        np.array(wire, int).reshape(steps, world).tolist(),
        finite,
    )
