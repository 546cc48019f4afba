"""``demur export``: a file, once."""

import re

import pytest

pytest.importorskip("onnx")


def test_a_model_is_written_once(demur, pets, tmp_path):
    call = ("export", pets / "model", "--out", tmp_path / "model.onnx")
    result = demur(*call)
    assert result.code == 0, result
    assert re.search(r"model\.onnx \([1-9][0-9.]+ kB\)", result.text)
    written = (tmp_path / "model.onnx").read_bytes()
    assert demur(*call).complaint
    assert (tmp_path / "model.onnx").read_bytes() == written
    assert demur(*call, "--force").code == 0


def test_what_is_no_model_is_refused(demur, pets, tmp_path):
    assert "there is no model" in demur("export", tmp_path / "none", "--out", tmp_path / "model.onnx").complaint
    assert "which is a folder" in demur("export", pets / "train.csv", "--out", tmp_path / "model.onnx").complaint
    assert list(tmp_path.iterdir()) == []
