"""Training jobs over real local ranks: values, layouts, autograd, bytes. Case ids are those of the field's faults."""

import os

import pytest

from ranks import ALGORITHMS, pooled, run

SYNCHRONOUS = ["gradient_allreduce", "bytegrad"]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_b51_world_1_equals_plain_training_bit_for_bit(algorithm):
    (report,) = pooled("plain_equals_wrapped", 1, algorithm=algorithm)
    assert report["actual"] == report["expected"]
    assert report["last_loss"] < report["first_loss"]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("world", [2, 3, 4])
def test_replicas_and_bytes(algorithm, world):
    reports = pooled("replicas", world, algorithm=algorithm)
    assert len({r["start"] for r in reports}) == 1, "the initial broadcast makes replicas equal"
    assert all(r["world"] == world for r in reports)
    if algorithm in SYNCHRONOUS:
        assert all(r["digests"] == reports[0]["digests"] for r in reports)
    assert len(set(reports[0]["digests"])) == len(reports[0]["digests"]), "weights move"
    assert all(r["wire"] == r["formula"] > 0 for r in reports)


def test_b13_bytegrad_sends_fewer_bytes():
    plain, packed = (
        sum(r["wire"] for r in pooled("replicas", 4, algorithm=a)) for a in ("gradient_allreduce", "bytegrad")
    )
    assert packed <= 0.30 * plain, "tiny buckets: headers weigh more than the 27 % of real models"


@pytest.mark.parametrize("launcher, world", [("torchrun", 2), ("bagua-run", 2), ("alone", 1)])
def test_same_script_under_each_launcher(launcher, world):
    reports = run("replicas", world, launcher=launcher, algorithm="bytegrad").check()
    assert all(r["digests"] == reports[0]["digests"] for r in reports)
    assert launcher in reports[0]["source"]


@pytest.mark.parametrize("world", [1, 2, 3, 5])
def test_gradient_is_the_left_fold_mean(world):
    assert all(r["wrong"] == 0 for r in pooled("mean_gradient", world))


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_decentralized_mixes_with_its_neighbours(world):
    assert all(r["worst"] < 2e-6 for r in pooled("mixing", world))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_b01_b05_empty_unused_and_frozen_parameters(algorithm):
    reports = pooled("odd_parameters", 2, algorithm=algorithm)
    assert all(r["finite"] for r in reports)
    assert {"empty.weight", "empty.bias"} <= set(reports[0]["keys"])
    if algorithm in SYNCHRONOUS:
        assert reports[0]["digests"] == reports[1]["digests"]


def test_b05_parameter_that_odd_ranks_alone_use():
    for report in pooled("used_by_odd_ranks", 2):
        assert report["means"] == [[step, step / 2] for step in (1, 2, 3, 4)]


@pytest.mark.parametrize("kind", ["frozen", "empty", "zero_numel"])
def test_b08_nothing_to_train(kind):
    outcome = run("nothing_to_train", 2, kind=kind)
    assert all(r["bytes"] == 0 for r in outcome.check())
    assert "no trainable parameters" in outcome.output


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_b07_layouts(algorithm):
    for report in pooled("layouts", 2, algorithm=algorithm):
        assert report["warnings"] == []
        assert report["strides_kept"]
        if algorithm == "bytegrad":
            assert report["worst"] < 0.02
        else:
            assert report["actual"] == report["expected"]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_b11_ways_to_clear_gradients(algorithm):
    digests = {
        how: [r["digest"] for r in pooled("gradient_replacement", 2, algorithm=algorithm, how=how)]
        for how in ("zero", "set_to_none", "none", "clone", "data", "there and back")
    }
    assert len({tuple(d) for d in digests.values()}) == 1, digests


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_b32_autograd_grad_is_no_backward(algorithm):
    digests = {
        how: [r["digest"] for r in pooled("gradient_replacement", 2, algorithm=algorithm, how=how)]
        for how in ("zero", *(f"autograd.grad of {what}" for what in ("input", "parameters", "another loss")))
    }
    assert len({tuple(d) for d in digests.values()}) == 1, digests


@pytest.mark.parametrize(
    "how, expected",
    [
        ("dtype", "the dtype of parameter '4.bias' changed since wrap: expected float32, got float64"),
        ("share", "was moved since wrap (share_memory()?): move it before"),
        ("shape", "the shape of parameter '0.weight' changed since wrap: expected [33, 12], got [3, 3]"),
    ],
)
def test_negative_moved_after_wrap(how, expected):
    for report in pooled("moved_after_wrap", 2, how=how):
        assert expected in report["message"]


@pytest.mark.parametrize(
    "kind, error, expected",
    [
        ("step", "MismatchError", ["step", "rank 0", "rank 1", "2", "3"]),
        ("other", "InvalidArgumentError", ["the checkpoint expects what state_dict() gave under 'bagua'"]),
    ],
)
def test_negative_checkpoints(kind, error, expected):
    for report in run("loads_other_checkpoint", 2, kind=kind).check():
        assert report["error"] == error
        for text in expected:
            assert text in report["message"]


@pytest.mark.parametrize("algorithm", SYNCHRONOUS)
def test_b15_zero_gradient_stays_zero(algorithm):
    assert all(r["zeros"] == 5000 for r in pooled("special_gradient", 3, algorithm=algorithm, kind="zero"))


@pytest.mark.parametrize("algorithm", SYNCHRONOUS)
@pytest.mark.parametrize("kind", ["nan", "inf"])
def test_b16_non_finite_reaches_every_rank(algorithm, kind):
    for report in pooled("special_gradient", 3, algorithm=algorithm, kind=kind):
        assert not report["at"]
        assert report["first"], "another block is not poisoned"
        assert report["finite"] >= 5000 - 2048


@pytest.mark.parametrize("algorithm", ["gradient_allreduce", "decentralized"])
@pytest.mark.parametrize("kind", ["tied", "checkpoint", "checkpoint_reentrant", "two_backwards"])
def test_b31_shared_use_of_parameters(algorithm, kind):
    for report in pooled("shared_use", 2, algorithm=algorithm, kind=kind):
        assert report["actual"] == report["expected"]


@pytest.mark.parametrize("algorithm", SYNCHRONOUS)
def test_no_sync_accumulates(algorithm):
    reports = pooled("accumulation", 2, algorithm=algorithm)
    assert reports[0]["digest"] == reports[1]["digest"]
    assert all(r["worst"] < (1e-5 if algorithm == "gradient_allreduce" else 0.05) for r in reports)
    assert all(r["step"] == 3 for r in reports)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_resume(algorithm, tmp_path):
    for report in pooled("resume", 2, algorithm=algorithm, path=str(tmp_path / "state")):
        assert report["step"] == 3
        assert report["actual"] == report["expected"]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_skipped_steps_and_evaluation(algorithm):
    for report in pooled("skipped_and_evaluated", 2, algorithm=algorithm):
        # The last step is a full one; each of the six backward passes ends a step.
        assert report["step"] == 6
        assert set(report["runs"]) == {6}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_backward_that_raises_midway(algorithm):
    reports = pooled("failed_backward", 2, algorithm=algorithm)
    assert all(r["raised"] for r in reports)
    if algorithm in SYNCHRONOUS:
        assert reports[0]["digests"] == reports[1]["digests"]


@pytest.mark.parametrize("algorithm", ["gradient_allreduce"])
def test_learning_rate_schedulers(algorithm):
    (report,) = pooled("schedulers", 1, algorithm=algorithm)
    assert report["lr"] == pytest.approx(1e-4)
    assert report["warnings"] == []


def test_b60_data_loader_workers():
    reports = run("data_loader", 2, algorithm="gradient_allreduce").check()
    assert reports[0] == reports[1]
    assert reports[0]["count"] == 12


@pytest.mark.parametrize(
    "kind, expected",
    [
        ("sparse", ["weight", "sparse"]),
        ("name", ["no_such_algorithm", "gradient_allreduce", "bytegrad", "decentralized"]),
        ("outside", ["4.bias", "parameter group"]),
        ("source", ["bad.mlir", "2:"]),
    ],
)
def test_refusals_name_the_cause(kind, expected):
    (report,) = pooled("refused", 1, kind=kind)
    assert report["error"] is not None
    for text in expected:
        assert text in report["message"]


@pytest.mark.parametrize("bad_step", [0, 2])
@pytest.mark.parametrize("algorithm", ["gradient_allreduce", "bytegrad"])
def test_an_error_in_the_middle_of_a_backward_is_raised_by_it(algorithm, bad_step):
    for report in run("sparse_gradient", 2, algorithm=algorithm, bad_step=bad_step, deadline=60).check():
        assert report["step"] == bad_step
        assert report["raised"] == "UnimplementedError"
        assert "parameter 'table' has a sparse gradient" in report["message"]


def test_a_counter_is_one_of_all_processes():
    reports = pooled("counter", 3, name="test_a_counter")
    assert max(report["own"] for report in reports) == 33
    assert all(report["all"] == 33 and report["other"] == 0 for report in reports)
    assert all(10 + rank <= report["own"] <= 33 for rank, report in enumerate(reports))


def test_b34_copies_are_plain_models_and_late_groups_are_refused():
    for report in pooled("copies", 2):
        assert report["equal"]
        assert report["runs"] == 0
        assert "after wrap" in report["refused"]


@pytest.mark.parametrize("launcher", ["torchrun", "bagua-run"])
def test_init_again_after_shutdown(launcher):
    reports = run("again", 2, launcher=launcher).check()
    assert reports[0] == reports[1]


def test_refreezing_is_noticed():
    (report,) = pooled("refreeze", 1)
    assert "'0.weight'" in report["message"]


def test_buckets_start_during_backward():
    (report,) = pooled("overlap", 1)
    events = report["events"]
    first_start = events.index(next(e for e in events if e[0] == "start"))
    last_gradient = max(i for i, e in enumerate(events) if e[0] == "gradient")
    assert first_start < last_gradient
    assert sum(e[0] == "start" for e in events) == 6


def test_custom_algorithm_source(tmp_path):
    """A researcher's own .mlir file, compiled on the way and cached by content."""
    source = tmp_path / "mine.mlir"
    source.write_text(
        "bagua.algorithm @mine {\n"
        "  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {\n"
        "    %mean = bagua.all_reduce mean %g via #bagua.minmax<bits = 4, block = 512>\n"
        "    bagua.update gradient = %mean\n"
        "  }\n"
        "}\n"
    )
    env = {"BAGUA_CACHE": tmp_path / "cache"}
    for _ in range(2):
        reports = run("replicas", 2, env=env, algorithm=str(source)).check()
        assert reports[0]["digests"] == reports[1]["digests"]
    assert len(os.listdir(tmp_path / "cache")) == 1


@pytest.mark.parametrize("algorithm, broadcast, equal", [
    ("gradient_allreduce", True, True),
    ("gradient_allreduce", False, False),
    ("decentralized", True, False),
])
def test_buffers_follow_rank_0(algorithm, broadcast, equal):
    reports = pooled("buffers", 2, algorithm=algorithm, broadcast_buffers=broadcast)
    assert reports[0]["trained"] != reports[1]["trained"], "each rank's last batch"
    assert (reports[0]["seen"] == reports[1]["seen"]) == equal
    assert reports[1]["seen"] == (reports[0] if equal else reports[1])["trained"]
    assert all(r["count"] == 4 for r in reports)
