"""B68: rounds of async handlers beside the steps: uneven ranks, faults, the stop, what training sees."""

import os
import subprocess

import pytest

from ranks import BUILD, pooled, run


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    """A folder with the sample schedules (tests/support/SampleSchedules.h)."""
    folder = tmp_path_factory.mktemp("samples")
    subprocess.run([os.path.join(BUILD, "bin", "sample-schedules"), str(folder)], check=True)
    return folder


@pytest.fixture(params=["steps", "ms"])
def any_unit(request, samples):
    return str(samples / {"steps": "async_average.bsched", "ms": "async_average_ms.bsched"}[request.param])


@pytest.fixture
def by_steps(samples):
    return str(samples / "async_average.bsched")


@pytest.fixture
def by_clock(samples):
    return str(samples / "async_average_ms.bsched")


@pytest.fixture(params=["sample", "source"])
def warm(request, samples, source):
    return str(samples / "async_average_warm.bsched") if request.param == "sample" else source("steps")


SOURCE = """
!bucket = tensor<?xf32, #bagua.bucket>

bagua.algorithm @average(%interval: index = 4, %warmup: index = 0) {
  bagua.on gradient(%g: !bucket) {
    %step = bagua.step
    %warm = arith.cmpi ult, %step, %warmup : index
    scf.if %warm {
      %mean = bagua.all_reduce mean %g
      bagua.update gradient = %mean
    }
  }
  bagua.on async every(%interval UNIT) after(%warmup) staleness(2) (%w: !bucket) {
    %mean = bagua.all_reduce mean %w
    %d = bagua.map %mean - %w
    bagua.update weight += %d
  }
}
"""


@pytest.fixture
def source(tmp_path):
    """Writes the algorithm above, with rounds that count steps or ms."""

    def write(unit):
        path = tmp_path / "average.mlir"
        path.write_text(SOURCE.replace("UNIT", unit))
        return str(path)

    return write


def assert_nothing_lost(reports, steps, tolerance):
    """A mean leaves the sum of all ranks' weights: it has changed by the steps alone."""
    starts = {tuple(report["start"]) for report in reports}
    assert len(starts) == 1
    trained = sum(count * (rank + 1) for rank, count in enumerate(steps))
    for first, *ends in zip(*starts, *(report["end"] for report in reports)):
        assert abs(sum(ends) - (len(reports) * first + trained)) <= tolerance
    for report, count in zip(reports, steps):
        assert report["step"] == count
        assert report["again"] == report["end"]
        assert report["rounds"] == reports[0]["rounds"]
        assert report["runs"] == [report["rounds"]] * len(report["runs"]) and len(report["runs"]) > 1
        assert report["wire"] == report["rounds"] * report["formula"] > 0


@pytest.mark.parametrize("steps", [[100, 120, 90, 110], [100, 120, 90, 0], [0, 0, 0, 0]])
def test_b68_uneven_ranks_stop_and_lose_nothing(by_steps, steps):
    reports = pooled("rounds_of_uneven_ranks", 4, schedule=by_steps, steps=steps, interval=10)
    assert_nothing_lost(reports, steps, 0)  # Quarters of whole numbers: exact in f64 for so many rounds.
    assert len({tuple(report["end"]) for report in reports}) == 1  # The last round was of final weights.
    assert max(steps) // 10 <= reports[0]["rounds"] + 1


@pytest.mark.parametrize("unit", ["steps", "ms"])
def test_b68_an_algorithm_from_its_source(source, unit):
    steps = [70, 90, 60, 80]
    reports = pooled("rounds_of_uneven_ranks", 4, schedule=source(unit), steps=steps, dtype="float32", interval=10)
    assert_nothing_lost(reports, steps, 0 if unit == "steps" else 1e-2)
    (report,) = pooled("plain_equals_wrapped", 1, algorithm=source(unit))
    assert report["actual"] == report["expected"]


@pytest.mark.parametrize(
    "algorithm, options", [("async_model_average", {"sync_interval_ms": 15}), ("ad_psgd", {"interval": 12})]
)
def test_b68_shipped_algorithms(algorithm, options):
    steps = [70, 90, 60, 80]
    reports = pooled("rounds_of_uneven_ranks", 4, schedule=algorithm, steps=steps, dtype="float32", **options)
    assert_nothing_lost(reports, steps, 1e-2)
    (report,) = pooled("plain_equals_wrapped", 1, algorithm=algorithm)
    assert report["actual"] == report["expected"]


PAIRS = """
#pairs = #bagua.pairing<seed = 71>

bagua.algorithm @pairs {
  bagua.on async every(1 steps) staleness(1) (%w: tensor<?xf32, #bagua.bucket>) {
    %n = bagua.neighbor_exchange %w on #pairs
    %x = bagua.mix %w, %n on #pairs
    %d = bagua.map %x - %w
    bagua.update weight += %d
  }
}
"""


def test_b68_a_round_of_pairs_waits_for_its_pair_alone(tmp_path):
    source = tmp_path / "pairs.mlir"
    source.write_text(PAIRS)
    # By this seed ranks 0 and 1 meet in rounds 0 to 3.
    arguments = {"schedule": str(source), "rounds": 4, "signal_path": str(tmp_path / "signal")}
    reports = run("rounds_of_pairs", 4, deadline=60, **arguments).check()
    assert all(report["rounds"] == reports[0]["rounds"] >= 4 for report in reports)
    trained = sum(report["steps"] * (rank + 1) for rank, report in enumerate(reports))
    for first, *ends in zip(reports[0]["start"], *(report["end"] for report in reports)):
        assert sum(ends) == pytest.approx(4 * first + trained, abs=1e-9)


@pytest.mark.parametrize("steps, pauses", [([100, 120, 90], [0]), ([100, 120, 90], [0.001, 0.004, 0.0])])
def test_b68_uneven_ranks_by_the_clock(by_clock, steps, pauses):
    reports = pooled("rounds_of_uneven_ranks", 3, schedule=by_clock, steps=steps, pauses=pauses, interval=20)
    assert_nothing_lost(reports, steps, 1e-9)
    for rank in (1, 2):
        assert reports[rank]["end"] == pytest.approx(reports[0]["end"], abs=1e-9)


def test_b68_uneven_ranks_in_f32(any_unit):
    steps = [60, 40, 50, 45]
    assert_nothing_lost(
        pooled("rounds_of_uneven_ranks", 4, schedule=any_unit, steps=steps, dtype="float32", interval=7), steps, 1e-2
    )


@pytest.mark.parametrize("interval, warmup", [(1, 0), (3, 0), (4, 9), (50, 0)])
def test_b68_rounds_by_steps_are_deterministic(by_steps, interval, warmup):
    for report in pooled("rounds_by_steps", 3, schedule=by_steps, interval=interval, warmup=warmup):
        assert all(report["equal"]), report
        assert report["begun"] == report["counted"]
        assert (report["begun"] > 0) == (interval < 50)
        assert not report["plain"]


@pytest.mark.parametrize("how", ["scope", "finally", "exit", "killed"])
def test_b68_a_rank_that_fails_stops_the_others(any_unit, how):
    outcome = run("rounds_end_with_a_fault", 3, schedule=any_unit, how=how, deadline=60)
    assert outcome.code != 0
    assert outcome.reports[1] is None
    for rank in (0, 2):
        report = outcome.reports[rank]
        assert report is not None and report.get("raised") == "PeerLostError", outcome.output
        assert "rank 1 (host " in report["message"], report
        if how != "killed":
            assert "with ZeroDivisionError: a fault" in report["message"].replace("because of", "with"), report
        seconds = [line for line in outcome.output.splitlines() if f"rank {rank} raised" in line]
        assert seconds and float(seconds[0].split(" raised ")[1].split()[0]) < 4, outcome.output


def test_b68_a_rank_that_dawdles_is_named(any_unit):
    outcome = run("rounds_stall", 3, env={"BAGUA_STEP_TIMEOUT_MS": 1500}, schedule=any_unit)
    assert outcome.code != 0
    for rank in (0, 2):
        assert outcome.reports[rank]["raised"] == "TimeoutError", outcome.output
        assert "rank 1" in outcome.reports[rank]["message"]
        assert "program async, round " in outcome.reports[rank]["message"]


def test_b68_evaluation_sees_one_model_and_buffers_stay(any_unit):
    reports = pooled("rounds_and_evaluation", 3, schedule=any_unit)
    for report in reports:
        assert report["changed"] == 30
        assert all(report["evaluated"])
        assert report["in_background"] is (True if any_unit.endswith("async_average.bsched") else None)
        assert report["rounds"] > 1
        assert report["stopped"] == report["trained"]
    assert reports[0]["trained"] != reports[1]["trained"]


def test_b68_stopped_rounds_rest_and_begin_again(any_unit):
    reports = pooled("rounds_again", 3, schedule=any_unit)
    for report in reports:
        assert report["rounds"] == reports[0]["rounds"]
        first, rested, again, empty = report["rounds"]
        assert 0 < first == rested < again < empty
        assert report["end"] == pytest.approx(reports[0]["end"], abs=1e-9)


@pytest.mark.parametrize("steps", [[40, 40, 40], [40, 55, 30]])
def test_b68_two_models_and_odd_uses_wait_for_nobody(any_unit, steps):
    reports = pooled("rounds_of_two_models", 3, schedule=any_unit, steps=steps)
    assert all(report["rounds"] == reports[0]["rounds"] for report in reports)
    assert min(reports[0]["rounds"]) > 2


@pytest.mark.parametrize("schedule", ["async_average", "async_average_ms", "async_average_warm"])
def test_b51_b68_alone_it_is_plain_training(samples, schedule):
    (report,) = pooled("plain_equals_wrapped", 1, algorithm=str(samples / f"{schedule}.bsched"))
    assert report["actual"] == report["expected"]
    (report,) = pooled("rounds_of_uneven_ranks", 1, schedule=str(samples / f"{schedule}.bsched"), steps=[9], interval=1)
    assert report["rounds"] == 0 and report["wire"] == 0
    assert report["end"] == [value + 9 for value in report["start"]]


def test_b68_checkpoints(any_unit, tmp_path):
    for report in pooled("rounds_and_checkpoints", 3, schedule=any_unit, path=str(tmp_path / "state")):
        assert len(report["warnings"]) == 1 and "bagua.stop(model)" in report["warnings"][0]
        assert "no trained update is missing" in report["warnings"][0]
        assert "load_state_dict while a round" in report["refused"] and report["unchanged"]
        assert report["loaded"] and report["step"]
        assert len(report["during"]) == 1 and report["during"][0] >= 2
        assert report["counted"][0] == report["counted"][1]


@pytest.mark.parametrize("call", ["barrier", "broadcast", "wrap", "train"])
def test_b68_waiting_for_each_other_beside_rounds_by_the_clock(by_clock, call):
    for report in pooled("rounds_refuse", 2, schedule=by_clock, call=call):
        assert "bagua.stop(model)" in report["message"]
        expected = "a step of algorithm 'gradient_allreduce'" if call == "train" else f"bagua.{call}()"
        assert report["message"].startswith(expected)


def test_b68_warm_up_keeps_ranks_in_step(warm):
    reports = pooled("rounds_after_warm_up", 4, schedule=warm, odd_step=8)
    assert len({report["rounds"] for report in reports}) == 1 and reports[0]["rounds"] >= 4
    # Five steps of the mean, 2.5 each; then seven of each rank's own, one more on rank 1. All end with the mean.
    trained = 5 * 2.5 + (7 * (1 + 2 + 3 + 4) + 2) / 4
    assert all(report["end"] == [value + trained for value in report["start"]] for report in reports)
    assert reports[0]["warm"] != reports[1]["warm"]


def test_b68_warm_up_names_a_rank_that_steps_twice(warm):
    outcome = run("rounds_after_warm_up", 3, schedule=warm, odd_step=2)
    assert outcome.code != 0
    for report in outcome.reports:
        assert report["raised"] == "MismatchError", outcome.output
        assert "rank 1: 3 backward passes and 4 calls of optimizer.step()" in report["message"]


@pytest.mark.parametrize("closure", [False, True])
@pytest.mark.parametrize("algorithm", ["ad_psgd", "async_model_average"])
def test_b16_b68_a_bad_gradient_costs_its_rank_a_step(algorithm, closure):
    reports = pooled("rounds_beside_a_bad_step", 2, schedule=algorithm, closure=closure)
    assert [report["non_finite"] for report in reports] == [0, 1]
    assert all(report["finite"] and report["rounds"] > 0 for report in reports)
