"""B33 for every shipped algorithm that keeps state: resumed bit for bit, and in another world as on_resize says."""

import glob
import json
import os
import re

import pytest

from ranks import BUILD, run

SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "algorithms")


def with_states():
    names = []
    for path in sorted(glob.glob(os.path.join(SOURCES, "*.mlir"))):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if "bagua.state" in text and not re.search(r"bagua\.on async", text):
            names.append(os.path.basename(path).removesuffix(".mlir"))
    return names


ALGORITHMS = with_states()
REPLICAS_EQUAL = ["doublesqueeze", "ef21", "ef_signsgd", "one_step_late", "onebit_adam", "qadam", "topk_memory"]


def by_algorithm(reports):
    return {name: [report[name] for report in reports] for name in ALGORITHMS}


@pytest.fixture(scope="module", params=[2, 4])
def resumed(request, tmp_path_factory):
    """Of each algorithm, what each rank did after it had saved, and what a new process made of the file."""
    folder = str(tmp_path_factory.mktemp("resume"))
    arguments = {"algorithms": ALGORITHMS, "folder": folder}
    saved = run("save_each", request.param, **arguments).check()
    return by_algorithm(saved), by_algorithm(run("resume_each", request.param, **arguments).check())


@pytest.fixture(scope="module")
def resized(tmp_path_factory):
    """Of each algorithm, the reports of two ranks after four, and of three after those two."""
    folders = [str(tmp_path_factory.mktemp(f"world{world}")) for world in (4, 2, 3)]
    run("save_each", 4, algorithms=ALGORITHMS, folder=folders[0], more=0).check()
    hops = []
    for index, (old_world, world) in enumerate([(4, 2), (2, 3)]):
        arguments = {"folder": folders[index], "target": folders[index + 1], "old_world": old_world}
        hops.append(by_algorithm(run("resize_each", world, algorithms=ALGORITHMS, **arguments).check()))
    return hops


def test_all_algorithms_with_states_are_here():
    assert len(ALGORITHMS) >= 16
    assert all(os.path.exists(os.path.join(BUILD, "share", "bagua", "algorithms", f"{n}.bsched")) for n in ALGORITHMS)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_b33_each_algorithm_resumes_bit_for_bit(resumed, algorithm):
    for saved, loaded in zip(*(reports[algorithm] for reports in resumed)):
        assert loaded["digests"] == saved["digests"]
        assert loaded["states"] == saved["states"]
        assert loaded["lost"] != [saved["digests"], saved["states"]], "else this could not fail"
        assert len(set(loaded["digests"])) == len(loaded["digests"])


@pytest.mark.parametrize("hop", [0, 1])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_b33_each_algorithm_goes_on_in_another_world(resized, algorithm, hop):
    reports = resized[hop][algorithm]
    for report in reports:
        assert report["wrong"] == []
        assert report["apart"] == [[], []], "a neighbour's estimate is what the neighbour has"
        assert report["first"] == 3 + 4 * hop
        assert report["finite"]
        assert len(set(report["digests"])) == len(report["digests"])
        if algorithm in REPLICAS_EQUAL:
            assert report["digests"] == reports[0]["digests"], json.dumps(reports)
