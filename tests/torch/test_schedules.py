"""Algorithms by name, schedule or source, without a job: what is wrong is told, with its place."""

import os
import sys
import types

import numpy
import pytest

sys.path.insert(0, os.path.join(os.environ["BAGUA_BUILD"], "lib", "bagua", "python"))

from bagua import _capi  # noqa: E402
from bagua.context import Context  # noqa: E402
from bagua.schedule import find_schedule  # noqa: E402
from bagua.torch.wrap import _options_of  # noqa: E402

SOURCE = """
bagua.algorithm @mine {
  bagua.on gradient(%g: tensor<?xf32, #bagua.bucket>) {
    %mean = bagua.all_reduce mean %g
    bagua.update gradient = %mean
  }
}
"""


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "mine.mlir"
    path.write_text(SOURCE)
    return path


def test_compiles_into_a_new_cache(source, tmp_path, monkeypatch):
    monkeypatch.setenv("BAGUA_CACHE", str(tmp_path / "not" / "there"))
    assert find_schedule(source).name == "mine"
    assert len(os.listdir(tmp_path / "not" / "there")) == 1


def test_negative_cache_below_a_file(source, tmp_path, monkeypatch):
    bad = str(tmp_path / "mine.mlir" / "cache")
    monkeypatch.setenv("BAGUA_CACHE", bad)
    with pytest.raises(_capi.InvalidArgumentError) as raised:
        find_schedule(source)
    assert str(raised.value) == (
        f"BAGUA_CACHE expects a folder that can be written or made, got {bad!r}: Not a directory"
    )


def test_negative_home_that_cannot_hold_a_cache(source, tmp_path, monkeypatch):
    monkeypatch.delenv("BAGUA_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "mine.mlir"))
    with pytest.raises(_capi.InvalidArgumentError) as raised:
        find_schedule(source)
    assert "set BAGUA_CACHE to another folder" in str(raised.value)


def test_negative_update_forgotten(tmp_path, monkeypatch):
    monkeypatch.setenv("BAGUA_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "mine.mlir"
    path.write_text(SOURCE.replace("    bagua.update gradient = %mean\n", ""))
    with pytest.raises(_capi.InvalidArgumentError) as raised:
        find_schedule(path)
    assert "mine.mlir:4:13: error: 'bagua.all_reduce' op expects its result to reach a bagua.update" in str(raised.value)
    assert os.listdir(tmp_path / "cache") == []


def test_damaged_cache_is_compiled_again(source, tmp_path, monkeypatch):
    monkeypatch.setenv("BAGUA_CACHE", str(tmp_path / "cache"))
    path = find_schedule(source).path
    whole = open(path, "rb").read()
    with open(path, "wb") as file:
        file.write(whole[:500])
    assert find_schedule(source).name == "mine"
    assert open(path, "rb").read() == whole


def test_negative_compiler_that_writes_nothing(source, tmp_path, monkeypatch):
    monkeypatch.setenv("BAGUA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("BAGUA_OPT", "/bin/true")
    with pytest.raises(_capi.InvalidArgumentError) as raised:
        find_schedule(source)
    assert f"{source}: the compiler /bin/true wrote no schedule: " in str(raised.value)
    assert os.listdir(tmp_path / "cache") == []


def test_negative_compiler_that_dies(source, tmp_path, monkeypatch):
    monkeypatch.setenv("BAGUA_CACHE", str(tmp_path / "cache"))
    compiler = tmp_path / "compiler"
    compiler.write_text("#!/bin/sh\nkill -SEGV $$\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("BAGUA_OPT", str(compiler))
    with pytest.raises(_capi.InternalError) as raised:
        find_schedule(source)
    assert f"the compiler {compiler} was ended by SIGSEGV on {source}: a fault of Bagua's" in str(raised.value)
    assert os.listdir(tmp_path / "cache") == []


PARAMETERS = [{"name": "count", "type": "index"}, {"name": "rate", "type": "f64"}]


@pytest.mark.parametrize(
    "given, taken",
    [
        ({"count": 2**53, "rate": 1}, {"count": 2**53, "rate": 1.0}),
        ({"count": numpy.int32(7), "rate": numpy.float32(0.5)}, {"count": 7, "rate": 0.5}),
    ],
)
def test_options(given, taken):
    options = _options_of(types.SimpleNamespace(name="mine", info={"parameters": PARAMETERS}), given)
    assert options == taken
    assert all(type(value) is type(taken[name]) for name, value in options.items())


@pytest.mark.parametrize("value", [2**53 + 1, 2**64, -(2**70), 2**1024, 1.0, True, "7", None])
def test_negative_options(value):
    schedule = types.SimpleNamespace(name="mine", info={"parameters": PARAMETERS})
    with pytest.raises(_capi.InvalidArgumentError) as raised:
        _options_of(schedule, {"count": value})
    expected = "option 'count' of algorithm 'mine' expects a whole number of at most 2^53, got "
    assert str(raised.value) == f"{expected}{value!r}"
    if value is True or not isinstance(value, (int, float)) or value > sys.float_info.max:
        with pytest.raises(_capi.InvalidArgumentError, match="option 'rate' of algorithm 'mine' expects a number, got"):
            _options_of(schedule, {"rate": value})


def test_negative_source_that_is_no_text(tmp_path, monkeypatch):
    monkeypatch.setenv("BAGUA_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "b.mlir"
    path.write_bytes(bytes(range(128, 256)))
    with pytest.raises(_capi.InvalidArgumentError) as raised:
        find_schedule(path)
    assert f"{path} does not compile:\nb.mlir:1:1: error: unexpected character" in str(raised.value)


@pytest.mark.parametrize("name", ["there.mlir", "there.bsched"])
def test_negative_folders_and_nothing(tmp_path, name):
    path = tmp_path / name
    with pytest.raises(_capi.InvalidArgumentError, match="there is no file of that name"):
        find_schedule(path)
    path.mkdir()
    with pytest.raises(_capi.InvalidArgumentError, match="there is a folder of that name"):
        find_schedule(path)


@pytest.mark.parametrize("algorithm", [None, 3, b"bytegrad"])
def test_negative_no_name(algorithm):
    with pytest.raises(_capi.InvalidArgumentError, match="algorithm expects a name or the path of a file, got"):
        find_schedule(algorithm)


@pytest.mark.parametrize("name", ["step_timeout", "bootstrap_timeout"])
@pytest.mark.parametrize("seconds", [-1, 0, 1e300, float("nan"), float("inf"), "x", True])
def test_negative_timeouts(name, seconds):
    with pytest.raises(_capi.InvalidArgumentError, match=f"{name} expects seconds between 0.001 and 1e9, got"):
        Context(rank=0, world=1, **{name: seconds})
