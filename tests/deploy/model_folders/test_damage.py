"""Truncated, altered, missing, foreign and newer files are one clear error; a failed save leaves nothing behind."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from sklearn.datasets import load_iris
from sklearn.naive_bayes import GaussianNB

from demur import Chow, RejectClassifier, RejectOption, Threshold, whole_file
from demur.deploy import ModelFileError, load, save
from demur.deploy.model_folder import _VERSION as VERSION
from demur.tabular import evaluate_table, fit_table, write_report

from .forging import forge_manifest

X, Y = load_iris(return_X_y=True)
FILES = ("model.json", "model.skops")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with both files, each with something in it."""
    network = RejectClassifier(epochs=1, hidden_units=3, random_state=0).fit(X, Y)
    save([network, GaussianNB().fit(X, Y)], path := tmp_path_factory.mktemp("models") / "model")
    assert sorted(os.listdir(path)) == sorted(FILES)
    return path


@pytest.fixture
def model(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "model")


def assert_changes_are_noticed(model, name, positions, changes=(0x01, 0x20, 0xFF)):
    content = (model / name).read_bytes()
    for position in positions:
        for change in changes:  # 0x20 turns 1e-07 into 1E-07, which is the same number
            altered = bytearray(content)
            altered[position] ^= change
            (model / name).write_bytes(altered)
            with pytest.raises(ModelFileError):
                load(model)
    (model / name).write_bytes(content)
    load(model)


def test_a_changed_byte_is_noticed_wherever_it_is(model):
    size = (model / "model.skops").stat().st_size
    positions = {*range(0, 96, 9), *np.linspace(0, size - 1, 30).astype(int).tolist()}
    assert_changes_are_noticed(model, "model.skops", positions, changes=(0x01,))


@pytest.mark.parametrize("name", FILES)
def test_a_truncated_file_is_noticed(model, name):
    content = (model / name).read_bytes()
    for length in {0, 1, 13, 80, len(content) // 2, len(content) - 2}:
        (model / name).write_bytes(content[:length])
        with pytest.raises(ModelFileError):
            load(model)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(model, name):
    (model / name).unlink()
    with pytest.raises(ModelFileError, match=name):
        load(model)


def test_the_error_names_the_file_that_was_altered(model):
    content = bytearray((model / "model.skops").read_bytes())
    content[-1] ^= 1
    (model / "model.skops").write_bytes(content)
    with pytest.raises(ModelFileError, match=r"model\.skops of .* its checksum does not match"):
        load(model)


def test_a_file_more_is_ignored(model):
    (model / "notes.txt").write_text("mine")
    load(model)


def test_links_are_followed_since_what_they_lead_to_is_checked(model, tmp_path):
    (tmp_path / "link").symlink_to(model)
    (model / "model.skops").rename(tmp_path / "elsewhere")
    (model / "model.skops").symlink_to(tmp_path / "elsewhere")
    load(tmp_path / "link")
    (model / "model.skops").unlink()
    (model / "model.skops").symlink_to("/dev/zero")
    with pytest.raises(ModelFileError, match="missing"):
        load(model)


def test_paths_without_a_model_are_refused(tmp_path):
    with pytest.raises(ModelFileError, match="there is no model"):
        load(tmp_path / "nothing")
    (tmp_path / "file").write_text("x")
    with pytest.raises(ModelFileError, match="is not a demur model, which is a folder"):
        load(tmp_path / "file")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ModelFileError, match=r"a folder that holds model\.json"):
        load(tmp_path / "folder")
    for text in ("{}", "[1]", '{"format": "keras"}', "null"):
        (tmp_path / "folder" / "model.json").write_text(text)
        with pytest.raises(ModelFileError, match="is not a demur model"):
            load(tmp_path / "folder")
    for text in ("", "{", "\x80\x04K\x01.", "[" * 100_000):
        (tmp_path / "folder" / "model.json").write_text(text)
        with pytest.raises(ModelFileError, match=r"its model\.json is damaged"):
            load(tmp_path / "folder")


def test_a_newer_format_names_its_writer(model):
    def change(document):
        document.update(format_version=VERSION + 1, model={"shape": "unknown"})
        document["written_with"]["demur"] = "9.8"

    forge_manifest(model, change)
    with pytest.raises(ModelFileError, match=rf"format version {VERSION + 1}, written by demur 9\.8, .* upgrade demur"):
        load(model)


def test_an_existing_path_is_refused(model):
    before = (model / "model.json").read_bytes()
    with pytest.raises(ModelFileError, match="exists already"):
        save(Chow(0.2), model)
    assert (model / "model.json").read_bytes() == before


def test_a_model_is_replaced_if_asked_for(model):
    save(Chow(0.2), model, overwrite=True)
    assert load(model) == Chow(0.2)
    assert sorted(os.listdir(model)) == ["model.json", "model.skops"]
    assert os.listdir(model.parent) == ["model"]


def test_nothing_but_a_model_is_replaced(model, tmp_path):
    (model / "notes.txt").write_text("mine")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "model.json").write_text('{"format": "other"}')
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "thesis")
    for name, reason in {
        "model": "notes.txt", "thesis": "not a demur model", "file": "is a file", "link": "symbolic link",
    }.items():  # fmt: skip
        with pytest.raises(ModelFileError, match=reason):
            save(Chow(0.2), tmp_path / name, overwrite=True)
    assert (model / "notes.txt").read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == ["file", "link", "model", "thesis"]


@pytest.mark.parametrize("name", ["arrays.safetensors", "report.html", "model.json.sig"])
def test_a_folder_named_like_a_file_of_a_model_is_not_replaced(model, name):
    (model / name).mkdir()
    (model / name / "thesis.tex").write_text("mine")
    with pytest.raises(ModelFileError, match=f"it holds '{name}', which is not part of a model"):
        save(Chow(0.2), model, overwrite=True)
    assert (model / name / "thesis.tex").read_text() == "mine"


def test_an_empty_folder_may_be_filled(tmp_path):
    (tmp_path / "empty").mkdir()
    save(Chow(0.2), tmp_path / "empty", overwrite=True)
    assert load(tmp_path / "empty") == Chow(0.2)


def test_a_parent_folder_that_does_not_exist_is_created(tmp_path):
    save(Chow(0.2), tmp_path / "a" / "b")
    assert load(tmp_path / "a" / "b") == Chow(0.2)


def test_a_model_of_an_older_format_says_what_to_do(model):
    forge_manifest(model, lambda document: document.update(format_version=1))
    with pytest.raises(ModelFileError, match=r"format version 1, written by demur .*; load it with demur"):
        load(model)


def test_a_served_folder_with_its_report_can_be_saved_over(model):
    rows = pa.table({"size": [1.0, 1.1, 1.2, 5.0, 5.1, 5.2] * 9, "y": list("aaabbb") * 9})
    write_report(evaluate_table(fit_table(rows, "y", model="lr"), rows), model / "report.html", title="iris")
    save(Chow(0.2), model, overwrite=True)
    assert load(model) == Chow(0.2)
    assert not (model / "report.html").exists()  # it was about the model before


def test_a_report_that_demur_did_not_write_is_kept(model):
    (model / "report.html").write_text("my thesis")
    with pytest.raises(ModelFileError, match=r"'report\.html', which demur has not written; remove it yourself"):
        save(Chow(0.2), model, overwrite=True)
    assert (model / "report.html").read_text() == "my thesis"


def fail_at(monkeypatch, where, failure):
    """Let a step of saving fail: writing, or one of the two renames."""

    def fail(*_):
        raise failure

    if where == "fsync":
        return monkeypatch.setattr(os, "fsync", fail)
    rename, calls = whole_file.Path.rename, []

    def fail_at_the_second(source, target):
        calls.append(target)
        return fail() if len(calls) == 2 else rename(source, target)

    return monkeypatch.setattr(whole_file.Path, "rename", fail_at_the_second)


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("where", ["fsync", "rename"])
def test_a_save_that_fails_leaves_the_old_model_and_nothing_else(tmp_path, monkeypatch, failure, where):
    save(Chow(0.2), tmp_path / "model")
    fail_at(monkeypatch, where, failure)
    with pytest.raises(ModelFileError if isinstance(failure, OSError) else KeyboardInterrupt):
        save(Threshold(0.5), tmp_path / "model", overwrite=True)
    monkeypatch.undo()
    assert load(tmp_path / "model") == Chow(0.2)
    assert os.listdir(tmp_path) == ["model"]


def test_a_save_that_is_killed_between_two_renames_is_recovered(tmp_path, monkeypatch):
    save(Chow(0.2), tmp_path / "model")

    class Killed(BaseException):
        pass

    rename = whole_file.Path.rename
    calls = []

    def die(source, target):
        calls.append(target)
        if len(calls) > 1:  # a process that is gone renames nothing back either
            raise Killed
        return rename(source, target)

    monkeypatch.setattr(whole_file.Path, "rename", die)
    with pytest.raises(Killed):
        save(Threshold(0.5), tmp_path / "model", overwrite=True)
    monkeypatch.undo()
    assert not (tmp_path / "model").exists()
    assert load(tmp_path / "model") == Chow(0.2)
    assert os.listdir(tmp_path) == ["model"]


def test_a_model_that_cannot_be_saved_leaves_nothing(tmp_path):
    with pytest.raises(ModelFileError):
        save(RejectOption(GaussianNB(), cv=iter([])), tmp_path / "model")
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="needs ssh-keygen")
def test_a_model_is_signed_and_verified_as_security_md_shows(tmp_path):
    text = Path(__file__).parents[3].joinpath("SECURITY.md").read_text()
    blocks = re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL)
    sign, verify = blocks
    save(Chow(0.2), tmp_path / "model")

    def run(commands):
        return subprocess.run(["bash", "-ec", commands], cwd=tmp_path, capture_output=True, text=True, check=False)

    signed = run(sign.replace("-t ed25519", '-t ed25519 -N "" -q'))
    assert signed.returncode == 0, signed.stderr
    verified = run(verify)
    assert verified.returncode == 0, verified.stderr
    assert 'Good "demur-model" signature for models@example.org' in verified.stdout
    assert load(tmp_path / "model") == Chow(0.2)
    signature = (tmp_path / "model" / "model.json.sig").read_text()
    save(Chow(0.3), tmp_path / "model", overwrite=True)
    assert sorted(os.listdir(tmp_path / "model")) == sorted(FILES)  # the signature was of the model before
    (tmp_path / "model" / "model.json.sig").write_text(signature)
    assert run(verify).returncode != 0
