"""Algorithms that keep state or own the update: parameters, finite steps, checkpoints."""

import os
import re
import subprocess

import pytest

from ranks import BUILD, pooled, run


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    """A folder with the sample schedules (tests/support/SampleSchedules.h)."""
    folder = tmp_path_factory.mktemp("samples")
    subprocess.run([os.path.join(BUILD, "bin", "sample-schedules"), str(folder)], check=True)
    return folder


@pytest.fixture
def gossip(samples):
    return str(samples / "gossip_momentum.bsched")


@pytest.fixture
def keeper(samples):
    return str(samples / "keeper.bsched")


def test_b36_owned_update_counts_once_and_follows_each_groups_rate(gossip):
    (report,) = pooled("owned_update", 1, schedule=gossip)
    assert report["equal"] and report["changed"]
    assert report["step"] == 6
    assert report["runs"] == [6]
    assert report["optimizer_state"] == 0
    assert report["warnings"] == []


@pytest.mark.parametrize("buckets", [1024, 1 << 20])
@pytest.mark.parametrize("world", [1, 3])
def test_b33_resume_is_bit_for_bit_in_any_buckets(gossip, world, buckets, tmp_path):
    for report in pooled("resume_states", world, schedule=gossip, path=str(tmp_path / "state"), buckets=buckets):
        assert report["step"] == 3
        assert report["actual"] == report["expected"]
        assert report["equal_states"]
        assert report["lost"] != report["expected"]  # Else the test could not fail.


@pytest.mark.parametrize("buckets", [1024, 1 << 20])
def test_b33_every_domain_resumes(keeper, buckets, tmp_path):
    for report in pooled("resume_states", 3, schedule=keeper, path=str(tmp_path / "state"), buckets=buckets):
        assert report["actual"] == report["expected"]
        assert buckets != 1024 or report["equal_states"]  # Shards of other buckets are other elements.


@pytest.mark.parametrize("world", [1, 2, 3])
def test_b33_another_world_follows_on_resize(keeper, world, tmp_path):
    pooled("save_states", 3 if world != 3 else 2, schedule=keeper, path=str(tmp_path / "state"))
    if world == 3:  # The third rank has no file of its own: it loads another's.
        (tmp_path / "state.2").write_bytes((tmp_path / "state.1").read_bytes())
    reports = pooled("load_states", world, schedule=keeper, path=str(tmp_path / "state"))
    for report in reports:
        assert report["mean"] and report["shards"] and report["zero"]
        assert report["counts"] == [3.0]
        assert any("'total' was saved by" in line and "on_resize mean" in line for line in report["log"])
        assert any("begin at zero" in line for line in report["log"]) == (report["known"] < report["elements"])


def test_b38_a_state_of_another_rank_is_refused(keeper, tmp_path):
    pooled("save_states", 2, schedule=keeper, path=str(tmp_path / "state"))
    reports = pooled("load_states", 2, schedule=keeper, path=str(tmp_path / "state"), rank=1)
    for report in reports:
        assert "checkpoint of the algorithm's state" in report["error"]
        assert "that of rank 1" in report["error"]


@pytest.mark.parametrize("skip", [False, True])
def test_b16_a_step_that_is_not_finite_changes_nothing_anywhere(gossip, skip):
    for report in pooled("non_finite_step", 2, schedule=gossip, skip=skip):
        assert report["changed"] == [True, True, False, True, True]
        assert report["states"] == [True, True, False, True, True]
        assert report["non_finite"] == 1


@pytest.mark.parametrize("world", [1, 2])
def test_b16_gradient_algorithms_with_states_skip_steps_that_are_not_finite(keeper, world):
    for report in pooled("non_finite_step", world, schedule=keeper, bad_rank=world - 1):
        assert report["changed"] == [True, True, False, True, True]
        assert report["states"] == [True, True, False, True, True]
        assert report["non_finite"] == 1


def test_b34_state_can_be_pickled_and_copied(gossip):
    for report in pooled("copied_state", 2, schedule=gossip):
        assert report["moved"]
        assert report["equal"] == [True, True]
        assert report["step"] == 2
        assert report["types"] == ["SGD", "SGD"]
        assert report["plain"]


@pytest.mark.parametrize(
    "kind, expected",
    [
        ("option", ["has no option 'gamma'", "beta, lr"]),
        ("type", ["option 'beta'", "expects a number, got 'much'"]),
        ("clipped", ["was changed between backward and optimizer.step()", "owns the update"]),
        ("replaced", ["was changed between backward and optimizer.step()"]),
        ("twice", ["a second backward before optimizer.step()", "no_sync()"]),
    ],
)
def test_refusals_name_the_cause(gossip, kind, expected):
    (report,) = run("refused_owner", 1, launcher="alone", schedule=gossip, kind=kind).check()
    assert report["error"] is not None
    for text in expected:
        assert text in report["message"]


@pytest.mark.parametrize("algorithm", ["qadam", "onebit_adam"])
@pytest.mark.parametrize("warmup, bad_steps", [(0, []), (2, [0, 1])])
def test_adam_whose_variance_has_seen_no_gradient_stays_finite(algorithm, warmup, bad_steps):
    reports = pooled("first_steps", 2, schedule=algorithm, steps=6, bad_steps=bad_steps, warmup=warmup)
    for report in reports:
        assert report["finite"] and report["non_finite"] == len(bad_steps)
        assert report["changed"] == [step not in bad_steps for step in range(6)]
    assert reports[0]["digest"] == reports[1]["digest"]


def test_parameters_that_differ_between_ranks_are_named():
    outcome = run("parameters_of_this_step", 3, schedule="qadam", name="lr", value=0.5, rank=1, deadline=60)
    raised = [report for report in outcome.reports if report is not None]
    assert raised and all(report["raised"] in ("MismatchError", "PeerLostError") for report in raised), outcome.output
    mismatches = [report["message"] for report in raised if report["raised"] == "MismatchError"]
    assert mismatches and all("lr = 0.5 in param_groups[0]" in message for message in mismatches), outcome.output


def test_of_many_parameters_that_differ_a_digest_tells():
    """More text than is compared: the first of it is equal."""
    outcome = run("parameters_of_this_step", 2, schedule="qadam", name="weight_decay", value=0.5, rank=1, each=True, deadline=60)
    mismatches = [r["message"] for r in outcome.reports if r is not None and r["raised"] == "MismatchError"]
    assert mismatches, outcome.output
    for message in mismatches:
        assert "weight_decay = 0.5" not in message and len(set(re.findall("… ([0-9a-f]{8})", message))) == 2, message


POISONED = """
bagua.algorithm @poisoned {
  bagua.state @m : bucket = 0.0
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %mean = bagua.all_reduce mean %g
    %m = bagua.read @m
    %root = bagua.map sqrt(%m - 1.0)
    bagua.update @m = %root
    %sum = bagua.map %mean + %m
    bagua.update gradient = %sum
  }
}
"""


def test_steps_without_end_tell_which_state_and_parameter_are_not_finite(tmp_path):
    """The state after the first step, the weights after the second: from the third on no step is finite."""
    path = tmp_path / "poisoned.mlir"
    path.write_text(POISONED)
    for rank, report in enumerate(pooled("steps_without_end", 2, schedule=str(path))):
        assert report["non_finite"] == 8
        (line,) = [line for line in report["log"] if "later steps do not remove it" in line]
        assert "step 4: the last 3 steps" in line
        assert f"state 'm' of bucket0 and parameter '4.bias' of rank {rank} have a NaN" in line
        assert "algorithm 'poisoned'" in line


def test_steps_without_end_of_weights_alone(tmp_path):
    path = tmp_path / "poisoned.mlir"
    path.write_text("""
bagua.algorithm @roots {
  bagua.on before_forward(%w: tensor<?xf32, #bagua.bucket>) {
    %mean = bagua.all_reduce mean %w
    %root = bagua.map sqrt(%mean)
    bagua.update weight = %root at before_update
  }
}
""")
    for rank, report in enumerate(pooled("steps_without_end", 2, schedule=str(path))):
        (line,) = [line for line in report["log"] if "later steps do not remove it" in line]
        assert f"steps were not finite: parameter '4.bias' of rank {rank} has a NaN" in line


@pytest.mark.parametrize("value, expected", [("0.1", "a number, got '0.1'"), (True, "a number, got True")])
def test_parameters_of_a_wrong_type_are_refused(value, expected):
    (report,) = run(
        "parameters_of_this_step", 1, launcher="alone", schedule="qadam", name="weight_decay", value=value, rank=0
    ).check()
    assert report["raised"] == "InvalidArgumentError"
    assert "'weight_decay'" in report["message"] and expected in report["message"]
