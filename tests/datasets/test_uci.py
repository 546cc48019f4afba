"""The five data sets: what is in them, how they are split, and what happens when they cannot be had."""

import gzip
import hashlib
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from demur.datasets import DatasetError, available_datasets, load, uci
from demur.datasets.uci import SOURCES, fingerprint, is_local
from demur.errors import MissingExtraError

SMALL = [name for name in SOURCES if name != "covtype"]


@pytest.fixture(autouse=True)
def no_folder_from_outside(monkeypatch, tmp_path):
    monkeypatch.delenv("DEMUR_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize("name", SMALL)
def test_sizes_are_those_of_the_papers_table(name, data_folder):
    source, data = SOURCES[name], load(name, data_folder)
    assert data.X_train.shape == (source.n_train, source.n_features)
    assert data.X_test.shape == (source.n_test, source.n_features)
    assert set(data.y_train) | set(data.y_test) == set(range(source.n_classes))
    assert len(data.classes) == source.n_classes
    assert len(data.feature_names) == source.n_features
    assert data.note == ""


@pytest.mark.slow
def test_covtype_says_that_its_test_part_is_incomplete(data_folder):
    data = load("covtype", data_folder)
    assert np.bincount(data.y_train).tolist() == [2160] * 7
    assert np.bincount(data.y_test).tolist() == [153_978, 206_333, 24_577, 431, 5_406, 11_188, 13_550]
    assert data.note == "measured on 415,463 of 565,892 test rows"


@pytest.mark.parametrize("name", SMALL)
def test_rows_and_labels_equal_those_that_pandas_reads(name, data_folder):
    frames = [pd.read_csv(data_folder / file) for file in SOURCES[name].files]
    frame = pd.concat(frames, ignore_index=True)
    if name in ("vehicle", "yeast"):
        frame = frame.sample(frac=1, random_state=0)
    data = load(name, data_folder)
    X, y = np.concatenate([data.X_train, data.X_test]), np.concatenate([data.y_train, data.y_test])
    np.testing.assert_array_equal(X, frame.drop(columns="class").to_numpy(float))
    assert [data.classes[number] for number in y] == frame["class"].astype(str).tolist()
    assert list(data.feature_names) == [column for column in frame if column != "class"]


def test_another_split_seed_gives_another_split_of_the_same_rows(data_folder):
    first, second = load("vehicle", data_folder), load("vehicle", data_folder, split_seed=1)
    assert first.X_train.shape == second.X_train.shape
    assert not np.array_equal(first.X_train, second.X_train)
    everything = [np.sort(np.concatenate([d.X_train, d.X_test]).sum(axis=1)) for d in (first, second)]
    np.testing.assert_allclose(*everything)


def test_the_rows_hash_is_that_of_the_files_rows(data_folder):
    for name in SMALL:
        lines = b"".join(
            gzip.decompress((data_folder / file).read_bytes()).split(b"\n", 1)[1] for file in SOURCES[name].files
        )
        assert hashlib.sha256(lines).hexdigest() == SOURCES[name].sha256 == fingerprint(name, data_folder)[0]


def test_the_folder_may_be_named_by_the_environment(monkeypatch, data_folder):
    assert not is_local("yeast")
    monkeypatch.setenv("DEMUR_DATA", str(data_folder))
    assert is_local("yeast")
    assert load("yeast").source == str(data_folder)


def test_a_changed_file_is_refused(tmp_path, data_folder):
    content = gzip.decompress((data_folder / "yeast.csv.gz").read_bytes()).replace(b"0.58", b"0.59", 1)
    (tmp_path / "yeast.csv.gz").write_bytes(gzip.compress(content))
    with pytest.raises(DatasetError, match=r"yeast\.csv\.gz in .* is not the known file"):
        load("yeast", tmp_path)


@pytest.mark.parametrize("name", SMALL)
def test_a_downloaded_archive_gives_the_same_data_as_the_local_files(name, tmp_path, monkeypatch, data_folder):
    """The archive is made here in the source's own format, and served from a file."""
    source = SOURCES[name]
    frame = pd.concat([pd.read_csv(data_folder / file, dtype=str) for file in source.files], ignore_index=True)
    archive = write_archive(source, frame, tmp_path / f"{name}.zip")
    monkeypatch.setitem(SOURCES, name, replace(source, url=str(archive)))
    monkeypatch.setattr("pooch.core.choose_downloader", lambda *_, **__: copy_file)
    far, near = load(name, tmp_path), load(name, data_folder)
    np.testing.assert_array_equal(far.X_train, near.X_train)
    np.testing.assert_array_equal(far.y_test, near.y_test)
    assert far.sha256 == near.sha256
    monkeypatch.setattr("pooch.core.choose_downloader", lambda *_, **__: refuse)
    np.testing.assert_array_equal(load(name, tmp_path).X_train, near.X_train)  # from the cache


def write_archive(source, frame, path):
    """Write the rows as UCI does: blanks or commas, the class last or first, yeast with a name in front."""
    lines = []
    for *values, label in frame.itertuples(index=False):
        if source.name == "letter":
            lines.append(",".join([label, *values]))
        else:
            lines.append("  ".join([*(["SOME_NAME"] if source.name == "yeast" else []), *values, label]) + " ")
    with zipfile.ZipFile(path, "w") as archive:
        if source.name == "satimage":
            parts = [lines[: source.n_train], lines[source.n_train :]]
        else:
            parts = [part.tolist() for part in np.array_split(np.array(lines), len(source.members))]
        for member, part in zip(source.members, parts, strict=True):
            archive.writestr(member, "\n".join(part) + "\n")
    return path


def copy_file(url, output_file, pooch):
    Path(output_file).write_bytes(Path(url).read_bytes())


def refuse(url, output_file, pooch):
    raise ConnectionError("no network")


@pytest.fixture
def offline(monkeypatch):
    monkeypatch.setattr("pooch.core.choose_downloader", lambda *_, **__: refuse)


def test_without_a_network_the_error_says_what_to_do(offline, tmp_path):
    with pytest.raises(DatasetError, match=r"letter is not in .*put letter\.csv\.gz into a folder") as caught:
        load("letter", tmp_path)
    assert "archive.ics.uci.edu" in str(caught.value)
    with pytest.raises(DatasetError, match="DEMUR_DATA is not set"):
        load("satimage")


def test_without_pooch_the_error_names_the_extra_that_brings_it(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(MissingExtraError, match=r"letter is not in .*pip install \"demur\[paper\]\".*letter\.csv\.gz"):
        load("letter", tmp_path)


def test_other_rows_at_the_source_are_refused(tmp_path, monkeypatch):
    archive = tmp_path / "yeast.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("yeast.data", "NAME 0.1 0.2 0.3 0.4 0.5 0.6 0.7 0.8 CYT\n")
    monkeypatch.setitem(SOURCES, "yeast", replace(SOURCES["yeast"], url=str(archive)))
    monkeypatch.setattr("pooch.core.choose_downloader", lambda *_, **__: copy_file)
    with pytest.raises(DatasetError, match="no longer holds the known rows of yeast"):
        load("yeast")


def test_names():
    assert available_datasets() == list(SOURCES)
    with pytest.raises(ValueError, match="Did you mean 'letter'"):
        uci.load("leter")
