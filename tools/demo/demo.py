#!/usr/bin/env python3
"""Trains the shipped algorithms one after another on local ranks and prints a table."""

import argparse
import json
import os
import subprocess
import sys
import tempfile

ALGORITHMS = ["gradient_allreduce", "bytegrad", "decentralized"]
SYNCHRONOUS = {"gradient_allreduce", "bytegrad"}  # Replicas stay equal.
HERE = os.path.dirname(os.path.abspath(__file__))


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True, help="build or install tree: bin/bagua-run, lib/bagua/python")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--limit", type=int, default=None, help="train on the first LIMIT samples only")
    parser.add_argument("--algorithms", nargs="+", default=ALGORITHMS)
    parser.add_argument("--output", help="folder for reports and the timeline (default: a new one)")
    return parser.parse_args()


def train(arguments, algorithm, folder):
    os.makedirs(folder, exist_ok=True)
    environment = dict(os.environ)
    package = os.path.join(arguments.build, "lib", "bagua", "python")
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [package, environment.get("PYTHONPATH")]))
    command = [os.path.join(arguments.build, "bin", "bagua-run"), "-n", str(arguments.ranks), "--"]
    command += [sys.executable, os.path.join(HERE, "train.py"), "--algorithm", algorithm, "--report", folder]
    command += ["--epochs", str(arguments.epochs), "--trace", os.path.join(folder, "trace.%r.json"), "--progress"]
    if arguments.limit:
        command += ["--limit", str(arguments.limit)]
    code = subprocess.run(command, env=environment, check=False).returncode
    if code != 0:
        sys.exit(f"training with {algorithm} failed (exit code {code})")
    reports = []
    for rank in range(arguments.ranks):
        with open(os.path.join(folder, f"rank{rank}.json"), encoding="utf-8") as file:
            reports.append(json.load(file))
    return reports


def merge_traces(folder, ranks, target):
    """One timeline of all ranks."""
    events = []
    for rank in range(ranks):
        with open(os.path.join(folder, f"trace.{rank}.json"), encoding="utf-8") as file:
            trace = json.load(file)
        events += trace["traceEvents"] if isinstance(trace, dict) else trace
    with open(target, "w", encoding="utf-8") as file:
        json.dump({"traceEvents": events}, file)


def row(algorithm, reports):
    first = reports[0]
    wire, formula = (sum(r[key] for r in reports) for key in ("bytes_wire", "bytes_wire_formula"))
    if wire != formula:
        sys.exit(f"{algorithm}: the transport counted {wire} bytes, the compiler's formula says {formula}")
    equal = all(r["hashes"] == first["hashes"] for r in reports)
    if algorithm in SYNCHRONOUS and not equal:
        sys.exit(f"{algorithm}: replicas differ")
    replicas = "equal" if equal else f"distance {first['consensus_distance']:.1e}"
    return [
        algorithm,
        f"{100 * sum(r['accuracy'] for r in reports) / len(reports):.2f} %",
        f"{sum(r['loss'] for r in reports) / len(reports):.4f}",
        f"{sum(r['bytes_raw'] for r in reports) / 1e6:.0f}",
        f"{wire / 1e6:.0f}",
        f"{first['seconds']:.1f}",
        replicas,
    ]


def main():
    arguments = parse_arguments()
    output = arguments.output or tempfile.mkdtemp(prefix="bagua-demo-")
    rows = [["algorithm", "test accuracy", "final loss", "MB raw", "MB on the wire", "seconds", "replicas"]]
    for algorithm in arguments.algorithms:
        rows.append(row(algorithm, train(arguments, algorithm, os.path.join(output, algorithm))))
    last = arguments.algorithms[-1]
    timeline = os.path.join(output, "timeline.json")
    merge_traces(os.path.join(output, last), arguments.ranks, timeline)
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    print(f"\nFashion-MNIST, {arguments.ranks} local ranks, {arguments.epochs} epochs; bytes are sums over ranks, and equal "
          "the compiler's formula")
    for index, cells in enumerate(rows):
        print("  ".join(c.ljust(w) if i in (0, 6) else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths))))
        if index == 0:
            print("  ".join("-" * w for w in widths))
    print(f"\nTimeline of {last}: {timeline} (open it at ui.perfetto.dev); reports: {output}")


if __name__ == "__main__":
    main()
