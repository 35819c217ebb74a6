#!/usr/bin/env python3
"""Trains every algorithm on real data and compares it with gradient_allreduce: a table and a plot.

Four local ranks, several seeds, two tasks: a CNN on Fashion-MNIST (SGD with momentum) and a byte-level language
model on the texts of the Debian package `fortunes` (Adam). `--update` writes the table into algorithms/README.md.
Reports that lie in the output folder already, of the same schedule, script and arguments, are used again.
"""

import argparse
import glob
import hashlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..", "..")
ALGORITHMS = os.path.join(ROOT, "algorithms")
BASELINE = "gradient_allreduce"
# Metric, and which sign is better. `plain` is `fashion` without momentum.
TASKS = {"fashion": ("accuracy, %", +1), "text": ("bits per byte", -1), "plain": ("accuracy, %", +1)}
BEGIN, END = "<!-- convergence: begin -->", "<!-- convergence: end -->"


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--algorithms", nargs="+", help="names (default: all that the build has)")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=["fashion", "text"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--output", help="folder for reports and the plot (default: a new one); see above")
    parser.add_argument("--update", action="store_true", help="write the table into algorithms/README.md")
    return parser.parse_args()


def identity(arguments, task, algorithm):
    """What a report depends on beside its seed."""
    digest = hashlib.sha256()
    schedule = os.path.join(arguments.build, "share", "bagua", "algorithms", algorithm + ".bsched")
    for path in (schedule, os.path.join(HERE, "train.py")):
        with open(path, "rb") as file:
            digest.update(file.read())
    return f"{task} {algorithm}, {arguments.steps} steps, {arguments.ranks} ranks, {digest.hexdigest()}"


def read_reports(name, ranks, expected):
    """Reports of all ranks, or None if one is missing or of something else."""
    reports = []
    for rank in range(ranks):
        try:
            with open(f"{name}-{rank}.json", encoding="utf-8") as file:
                reports.append(json.load(file))
        except (OSError, ValueError):
            return None
    return reports if all(report.get("identity") == expected for report in reports) else None


def train(arguments, task, algorithm, folder):
    """By seed, the reports of all ranks; fewer where a run failed."""
    name = os.path.join(folder, f"{task}-{algorithm}")
    expected = identity(arguments, task, algorithm)
    seeds = range(1, arguments.seeds + 1)
    missing = [str(s) for s in seeds if read_reports(f"{name}-{s}", arguments.ranks, expected) is None]
    if missing:
        environment = dict(os.environ)
        package = os.path.join(arguments.build, "lib", "bagua", "python")
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [package, environment.get("PYTHONPATH")]))
        command = [os.path.join(arguments.build, "bin", "bagua-run"), "-n", str(arguments.ranks), "--", sys.executable]
        command += [os.path.join(HERE, "train.py"), "--task", task, "--algorithm", algorithm]
        command += ["--steps", str(arguments.steps), "--seeds", *missing]
        command += ["--report", name + "-%s-%r.json", "--identity", expected]
        with open(name + ".log", "w", encoding="utf-8") as log:
            subprocess.run(command, env=environment, stdout=log, stderr=log, check=False)
    runs = {s: read_reports(f"{name}-{s}", arguments.ranks, expected) for s in seeds}
    return {s: reports for s, reports in runs.items() if reports is not None}


def rounds_per_step(arguments, algorithm, runs):
    """Rounds that a step's messages need, by the compiler (mean of 1000 steps); those beside the steps as counted."""
    with open(os.path.join(ALGORITHMS, algorithm + ".mlir"), encoding="utf-8") as file:
        source = file.read()
    for name, value in runs[0][0]["options"].items():
        source, count = re.subn(rf"(%{name}: index = )[0-9]+", rf"\g<1>{value}", source)
        assert count == 1, f"{algorithm} declares {name}"
    command = [os.path.join(arguments.build, "bin", "bagua-opt"), "-", "--explain"]
    command += ["--world", str(arguments.ranks), "--length", "100000"]
    text = subprocess.run(command, input=source, stdout=subprocess.PIPE, check=True, text=True).stdout
    rounds, counted = 0.0, mean_of(runs, "async_rounds") / arguments.steps
    for handler in text.split("\n  on ")[1:]:
        (number,) = re.findall(r"^ +rounds ([0-9.]+), wire bytes", handler, re.MULTILINE)
        rounds += float(number) * (counted if handler.startswith("async") else 1)
    return rounds


def mean_and_spread(values):
    return f"{statistics.mean(values):.2f} ± {statistics.stdev(values) if len(values) > 1 else 0:.2f}"


def plot(results, path):
    """The first seed's losses."""
    import matplotlib  # pylint: disable=import-outside-toplevel

    matplotlib.use("Agg")
    from matplotlib import pyplot  # pylint: disable=import-outside-toplevel

    figure, axes = pyplot.subplots(1, len(results), figsize=(8 * len(results), 6), squeeze=False)
    for axis, (task, of_task) in zip(axes[0], results.items()):
        for algorithm, runs in of_task.items():
            losses = [statistics.mean(values) for values in zip(*(report["losses"] for report in runs[0]))]
            width = max(1, len(losses) // 20)
            smooth = [statistics.mean(losses[max(0, i - width) : i + 1]) for i in range(len(losses))]
            axis.plot(smooth, label=algorithm, linewidth=2 if algorithm == BASELINE else 0.8)
        axis.set(title=task, xlabel="step", ylabel="training loss, mean of ranks")
        axis.legend(fontsize="x-small", ncol=2)
    figure.tight_layout()
    figure.savefig(path)


def write_table(lines):
    path = os.path.join(ALGORITHMS, "README.md")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if BEGIN not in text or END not in text:
        sys.exit(f"{path} expects the lines {BEGIN} and {END}")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    with open(path, "w", encoding="utf-8") as file:
        file.write(before + BEGIN + "\n" + "\n".join(lines) + "\n" + END + after)


def run_task(arguments, task, algorithms, output):
    """By algorithm, the reports of all ranks for each seed; names of logs of those that failed."""
    results, failed = {}, []
    for algorithm in algorithms:
        runs = train(arguments, task, algorithm, output)
        for seed, reports in runs.items():
            print(f"{task:8} {algorithm:28} seed {seed}: {mean_of([reports], 'metric'):.3f}", flush=True)
        if len(runs) < arguments.seeds:
            failed.append(os.path.join(output, f"{task}-{algorithm}.log"))
        else:
            results[algorithm] = list(runs.values())
    return results, failed


def mean_of(runs, key):
    return statistics.mean(report[key] for run in runs for report in run)


def lost(results, task, algorithm):
    """By how much worse than all-reduce the metric is, on the mean over seeds."""
    better = TASKS[task][1]
    return better * (mean_of(results[BASELINE], "metric") - mean_of(results[algorithm], "metric"))


def table(arguments, results, algorithms):
    """Lines of a table, for several tasks."""
    header = ["algorithm"]
    for task in results:
        header += [f"{task}: {TASKS[task][0]}", "better than all-reduce by"]
    header += ["bytes per parameter and step", "rounds per step", "consensus distance"]
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    for algorithm in algorithms:
        cells, totals, options = [], ["–"] * 3, ""
        for task, of_task in results.items():
            if algorithm not in of_task:
                cells += ["failed", "–"]
                continue
            runs = of_task[algorithm]
            cells.append(mean_and_spread([mean_of([run], "metric") for run in runs]))
            has_base = algorithm != BASELINE and BASELINE in of_task
            cells.append(f"{-lost(of_task, task, algorithm):+.2f}" if has_base else "–")
            options = "".join(f", {name} = {value}" for name, value in runs[0][0]["options"].items())
            totals = [
                f"{mean_of(runs, 'bytes_per_parameter'):.3f}",
                f"{rounds_per_step(arguments, algorithm, runs):.3g}",
                f"{max(report['consensus_distance'] for run in runs for report in run):.0e}",
            ]
        lines.append("| " + " | ".join([f"`{algorithm}`{options}", *cells, *totals]) + " |")
    return lines


def main():
    arguments = parse_arguments()
    output = arguments.output or tempfile.mkdtemp(prefix="bagua-convergence-")
    os.makedirs(output, exist_ok=True)
    shipped = sorted(
        os.path.splitext(os.path.basename(file))[0]
        for file in glob.glob(os.path.join(arguments.build, "share", "bagua", "algorithms", "*.bsched"))
    )
    algorithms = arguments.algorithms or shipped
    algorithms = [BASELINE] + [name for name in algorithms if name != BASELINE]

    results, failed = {}, []
    for task in arguments.tasks:
        results[task], those = run_task(arguments, task, algorithms, output)
        failed += those
    lines = table(arguments, results, algorithms)
    lines += [
        "",
        f"{arguments.ranks} ranks, {arguments.steps} steps, {arguments.seeds} seeds: mean ± standard deviation over seeds "
        "of the mean over ranks. Bytes: payload that a rank sends; the last three columns are of the last task.",
    ]
    of_fashion = results.get("fashion", {})
    losers = [a for a in of_fashion if BASELINE in of_fashion and lost(of_fashion, "fashion", a) > 1]
    if losers:
        plain = [BASELINE, *losers]
        results["plain"], those = run_task(arguments, "plain", plain, output)
        failed += those
        lines += ["", "The same for those that lose more than a point, without momentum, at ten times the rate:", ""]
        lines += table(arguments, {"plain": results["plain"]}, plain)
    print("\n" + "\n".join(lines))
    plot({task: of_task for task, of_task in results.items() if of_task}, os.path.join(output, "convergence.svg"))
    print(f"\nplot and logs: {output}")
    if failed:
        sys.exit("failed runs, see " + ", ".join(failed))
    if arguments.update:
        write_table(lines)


if __name__ == "__main__":
    main()
