"""Parameters and buffers of every dtype (B19, B14): trained as in plain torch, or refused by name."""

import pytest

from ranks import pooled
from test_states import samples  # pylint: disable=unused-import

SIXTEEN = ["float16", "bfloat16"]

# Momentum of the mean gradient, kept by the algorithm.
OWNER = """
bagua.algorithm @owner(%lr: f64 = 0.1 per_step, %beta: f64 = 0.5) attributes {owns_update} {
  bagua.state @m : bucket = 0.0
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>, %w: tensor<?xf32, #bagua.bucket>) {
    %m = bagua.read @m
    %mean = bagua.all_reduce mean %g
    %m1 = bagua.map %beta * %m + %mean
    bagua.update @m = %m1
    %w1 = bagua.map %w - %lr * %m1
    bagua.update weight = %w1 at before_update
  }
}
"""


@pytest.fixture(scope="module")
def owner(tmp_path_factory):
    path = tmp_path_factory.mktemp("dtypes") / "owner.mlir"
    path.write_text(OWNER, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("kind", ["gradient_allreduce", "decentralized", "local_sgd", "owner"])
@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_b19_every_dtype_in_one_module(kind, world, owner):
    algorithm = owner if kind == "owner" else kind
    options = {"interval": 3} if kind == "local_sgd" else {}
    reports = pooled("mixed_dtypes", world, algorithm=algorithm, kind=kind, doubles=True, options=options)
    for report in reports:
        assert report["wrong"] == []
        assert report["kept"], "dtypes and strides"
        assert report["moved"] == 6
        assert report["dtypes"] == ["bf16", "c128", "c64", "f16", "f32", "f64"]
        assert report["raw"] == report["raw_expected"]
        if kind in ("gradient_allreduce", "owner"):
            assert report["hashes"] == reports[0]["hashes"]
            assert report["seen"] == reports[0]["trained"], "buffers follow rank 0"
        else:
            assert report["seen"] == report["trained"]
        if kind == "local_sgd":
            assert [report["hashes"][step] for step in (2, 5)] == [reports[0]["hashes"][step] for step in (2, 5)]
    if world > 1:
        assert len({r["trained"] for r in reports}) == world, "each rank's own data"
        if kind in ("decentralized", "local_sgd"):
            assert reports[0]["hashes"][0] != reports[1]["hashes"][0]


@pytest.mark.parametrize("world", [2, 4])
def test_b19_every_dtype_through_a_codec(world):
    reports = pooled("mixed_dtypes_lossy", world, algorithm="bytegrad")
    for report in reports:
        assert report["beyond"] == []
        assert report["moved"] == 5
        assert report["hashes"] == reports[0]["hashes"]


ASYNC = """
bagua.algorithm @average {
  bagua.on async every(2 steps) staleness(1) (%w: tensor<?xf32, #bagua.bucket>) {
    %mean = bagua.all_reduce mean %w
    %d = bagua.map %mean - %w
    bagua.update weight += %d
  }
}
"""


def test_b19_every_dtype_beside_the_steps(tmp_path):
    path = tmp_path / "average.mlir"
    path.write_text(ASYNC, encoding="utf-8")
    reports = pooled("mixed_dtypes_async", 3, algorithm=str(path))
    assert len({report["before"] for report in reports}) == 3
    for report in reports:
        assert report["apart"] == []
        assert report["moved"] and report["rounds"] >= 4
        assert report["raw"] == report["raw_expected"]
        assert report["dtypes"] == 6


@pytest.mark.parametrize("algorithm", ["bytegrad", "one_step_late", "choco_sgd", "slowmo", "diloco", "d2", "ef21"])
def test_b51_world_1_equals_plain_training_in_every_dtype(algorithm):
    (report,) = pooled("mixed_dtypes_alone", 1, algorithm=algorithm)
    assert report["wrong"] == []


@pytest.mark.parametrize("algorithm", ["gradient_allreduce", "bytegrad"])
@pytest.mark.parametrize("dtype", SIXTEEN)
@pytest.mark.parametrize("value", [4e4, -6e4, 6e-8])
def test_b14_mean_neither_overflows_nor_underflows(algorithm, dtype, value):
    for report in pooled("large_half_gradients", 4, algorithm=algorithm, dtype=dtype, value=value):
        assert report["wrong"] == 0, report
        assert report["dtype"] == f"torch.{dtype}"
        if value == 4e4:
            assert report["got"] == (4e4 if dtype == "float16" else 39936)


@pytest.mark.parametrize("algorithm", ["gradient_allreduce", "bytegrad", "owner"])
@pytest.mark.parametrize("dtype", SIXTEEN)
@pytest.mark.parametrize("kind", ["nan", "inf", "-inf"])
def test_b16_non_finite_in_16_bits(algorithm, dtype, kind, owner):
    world = 3
    reports = pooled(
        "non_finite_half_gradients", world, algorithm=owner if algorithm == "owner" else algorithm, dtype=dtype, kind=kind
    )
    for rank, report in enumerate(reports):
        assert report["changed"] == [False, True]
        if algorithm == "owner":  # Gradients stay each rank's own.
            assert report["non_finite"] == 1
            assert report["at"] == (rank != world - 1)
            continue
        assert not report["at"]
        assert report["first"], "another block is not poisoned"
        assert report["finite"] == 4999 if algorithm == "gradient_allreduce" else report["finite"] >= 5000 - 2048


def test_conjugated_gradient_is_sent_as_its_value():
    assert all(r["right"] for r in pooled("conjugated_gradient", 2))


@pytest.mark.parametrize(
    "algorithm, buckets",
    [("owner", 200), ("owner", 1 << 20), ("qadam", 1 << 20), ("keeper", 200), ("keeper", 1 << 20)]
    + [("low_precision_decentralized", 200)],  # Blocks of a codec begin with the bucket: in others, others travel.
)
def test_b33_states_of_every_dtype_resume(algorithm, buckets, owner, samples, tmp_path):
    schedule = {"owner": owner, "keeper": str(samples / "keeper.bsched")}.get(algorithm, algorithm)
    doubles = algorithm == "owner"
    reports = pooled(
        "mixed_states", 3, schedule=schedule, path=str(tmp_path / "state"), bucket_bytes=buckets, doubles=doubles
    )
    for report in reports:
        assert report["tensors"] > 0 and report["like"]
        assert report["actual"][0] == report["expected"][0]
        if algorithm != "keeper" or buckets == 200:  # Shards of other buckets are other elements.
            assert report["actual"][1] == report["expected"][1]
        assert report["lost"] != report["expected"]  # Else the test could not fail.


@pytest.mark.parametrize(
    "kind, expected",
    [
        ("complex32", ["parameter 'odd' is complex32", "expects float32 or float64 or float16 or bfloat16 or complex64"]),
        ("double", ["parameter 'odd' is float64", "'bytegrad' expects float32 or float16 or bfloat16 or complex64"]),
        ("complex_double", ["parameter 'odd' is complex128", "'bytegrad' expects float32"]),
        ("quantized", ["buffer 'odd' is quantized", "expects a dense tensor"]),
        ("sparse", ["parameter 'odd' is sparse_coo", "expects a dense tensor"]),
        ("sparse_buffer", ["buffer 'odd' is sparse_csr", "expects a dense tensor"]),
        ("lazy", ["parameter 'odd.weight' is not initialized yet", "run the model once before wrap"]),
    ],
)
def test_b19_refusals_name_the_parameter(kind, expected):
    (report,) = pooled("refused_dtype", 1, kind=kind)
    for text in expected:
        assert text in report["message"]
