"""``demur export``: a file, once."""

import re

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from demur import RejectOption, save

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


def test_nothing_is_written_where_the_table_to_check_is_missing(demur, pets, tmp_path):
    call = ("export", pets / "model", "--out", tmp_path / "model.onnx", "--check", tmp_path / "none.csv")
    assert "there is no file" in demur(*call).complaint
    assert list(tmp_path.iterdir()) == []


def test_a_table_that_does_not_fit_a_model_of_arrays_is_one_sentence(demur, tmp_path):
    save(RejectOption(GaussianNB(), cv=2).fit(np.eye(12, 3), np.arange(12) % 2), tmp_path / "model")
    (tmp_path / "words.csv").write_text("a,b,c\n1,2,three\n")
    call = ("export", tmp_path / "model", "--out", tmp_path / "model.onnx", "--check", tmp_path / "words.csv")
    assert "words.csv does not fit the model" in demur(*call).complaint


def test_what_is_no_model_is_refused(demur, pets, tmp_path):
    assert "there is no model" in demur("export", tmp_path / "none", "--out", tmp_path / "model.onnx").complaint
    assert "which is a folder" in demur("export", pets / "train.csv", "--out", tmp_path / "model.onnx").complaint
    assert list(tmp_path.iterdir()) == []
