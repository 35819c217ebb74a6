"""Algorithms by name, schedule or source, without a job: what is wrong is told, with its place."""

import os
import sys

import pytest

sys.path.insert(0, os.path.join(os.environ["BAGUA_BUILD"], "lib", "bagua", "python"))

from bagua import _capi  # noqa: E402
from bagua.schedule import find_schedule  # noqa: E402

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
