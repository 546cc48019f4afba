"""Writing: what is written is read back, and a file under its own name is whole."""

import csv
import io
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from demur.columns import TableError
from demur.tabular import TableWriter, read_table

BATCH = pa.record_batch({"label": ["cat", "a, b", None], "rejected": [False, True, False], "p": [0.5, 0.25, None]})


def write(path, *batches, then=lambda: None, **options):
    with TableWriter(path, **options) as writer:
        for batch in batches:
            writer.write(batch)
        then()


@pytest.mark.parametrize("name", ["out.csv", "out.tsv", "out.parquet", "out.arrow", "out.csv.gz", "out.csv.zst"])
def test_what_is_written_is_read_back(tmp_path, name):
    path = tmp_path / name
    write(path, BATCH, BATCH)
    assert read_table(path).to_pylist() == BATCH.to_pylist() * 2
    assert os.listdir(tmp_path) == [name]


@settings(max_examples=60)
@given(st.lists(st.text('a,"\n;é ', min_size=1, max_size=5), min_size=1, max_size=5), st.text('b,"\né', min_size=1))
def test_any_text_and_any_name_survive_csv(tmp_path_factory, values, name):
    path = tmp_path_factory.mktemp("csv") / "out.csv"
    write(path, pa.record_batch({name: values, "n": list(range(len(values)))}))
    rows = list(csv.reader(io.StringIO(path.read_bytes().decode(), newline="")))
    assert rows == [[name, "n"], *([value, str(i)] for i, value in enumerate(values))]


def test_text_is_quoted_only_where_it_must_be(tmp_path):
    path = tmp_path / "out.csv"
    write(path, pa.record_batch({"x": pa.array(["a", "b"]).dictionary_encode(), "n": [1, None]}))
    assert path.read_text() == "x,n\na,1\nb,\n"


@pytest.mark.parametrize("stop", [ValueError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("name", ["out.csv", "out.parquet", "out.csv.gz"])
def test_nothing_is_left_of_a_run_that_failed(tmp_path, stop, name):
    def fail():
        assert [path.suffix for path in tmp_path.iterdir()] == [".part"]
        raise stop

    with pytest.raises(stop):
        write(tmp_path / name, BATCH, then=fail)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_killed_run_leaves_no_file_under_the_name(tmp_path):
    program = (
        "import os, sys, pyarrow as pa; from demur.tabular import TableWriter\n"
        "with TableWriter(sys.argv[1]) as writer:\n"
        "    writer.write(pa.record_batch({'a': [1]})); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", program, tmp_path / "out.csv"], check=False)
    assert done.returncode != 0
    assert [path.suffix for path in tmp_path.iterdir()] == [".part"]


def test_files_are_replaced_only_on_request(tmp_path):
    path = tmp_path / "out.csv"
    path.write_text("precious")
    with pytest.raises(TableError, match="--force"):
        write(path, BATCH)
    assert path.read_text() == "precious"
    with pytest.raises(ZeroDivisionError):
        write(path, BATCH, then=lambda: 1 / 0, overwrite=True)
    assert path.read_text() == "precious"
    write(path, BATCH, overwrite=True)
    assert read_table(path).num_rows == 3


def test_a_file_that_appeared_meanwhile_is_kept(tmp_path):
    path = tmp_path / "out.csv"
    with pytest.raises(TableError, match="already exists"):
        write(path, BATCH, then=lambda: path.write_text("precious"))
    assert path.read_text() == "precious"
    assert os.listdir(tmp_path) == ["out.csv"]


def test_the_input_is_never_written_to(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text("a\n1\n")
    (tmp_path / "link.csv").symlink_to(path)
    for target, source in ((path, path), (tmp_path / "link.csv", path), (tmp_path / "new.parquet", tmp_path)):
        with pytest.raises(TableError, match="being read"):
            write(target, BATCH, overwrite=True, inputs=["-", source])
    assert path.read_text() == "a\n1\n"


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("out", "has an unknown format"),
        ("out.xlsx", "has an unknown format"),
        ("out.parquet.gz", "only text can be compressed"),
        (".", "is a folder"),
    ],
)
def test_bad_targets_are_refused(tmp_path, name, part):
    with pytest.raises(TableError, match=part):
        write(tmp_path / name, BATCH)
    assert list(tmp_path.iterdir()) == []


def test_folders_are_made(tmp_path):
    write(tmp_path / "new" / "folder" / "out.csv", BATCH)
    assert read_table(tmp_path / "new" / "folder" / "out.csv").num_rows == 3
    (tmp_path / "file").touch()
    with pytest.raises(TableError, match="cannot be written"):
        write(tmp_path / "file" / "out.csv", BATCH)


def test_local_times_and_decimals_keep_their_notation(tmp_path):
    when = pa.array([0], pa.timestamp("s", tz="Europe/Paris"))
    write(tmp_path / "out.csv", pa.record_batch({"t": when, "d": pa.array(["76.71"]).cast(pa.decimal128(9, 2))}))
    assert (tmp_path / "out.csv").read_text() == "t,d\n1970-01-01 01:00:00+0100,76.71\n"


def test_there_must_be_a_batch_that_the_format_can_hold(tmp_path):
    with pytest.raises(TableError, match="no rows were written"):
        write(tmp_path / "out.csv")
    with pytest.raises(TableError, match="write Parquet"):
        write(tmp_path / "out.csv", pa.record_batch({"x": [[1]]}))
    assert list(tmp_path.iterdir()) == []


def test_standard_output_is_csv(capfdbinary):
    write("-", BATCH)
    assert capfdbinary.readouterr().out.startswith(b"label,rejected,p\n")


@pytest.mark.skipif(not Path("/dev/null").exists(), reason="there are no devices")
def test_devices_are_written_to_and_stay_devices():
    write("/dev/null", BATCH)
    assert not Path("/dev/null").is_file()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device")
def test_a_full_disk_is_named():
    with pytest.raises(TableError, match=r"cannot be written .*space"):
        write("/dev/full", BATCH)


def test_cells_that_a_spreadsheet_would_compute_are_guarded(tmp_path):
    rows = pa.record_batch(
        {
            "=name": ["=1+1", "+SUM(A1)", "-cmd", "@x", " =2", "-5", "+1.5e3", "plain", None],
            "number": [-1.0, 2.0, -3.5, 0.0, 1.0, 1.0, 1.0, 1.0, 1.0],
        }
    )
    for safe in (True, False):
        with TableWriter(tmp_path / "out.csv", overwrite=True, spreadsheet_safe=safe) as writer:
            writer.write(rows)
        with open(tmp_path / "out.csv", newline="") as file:
            head, *written = csv.reader(file)
        guarded = ["'=1+1", "'+SUM(A1)", "'-cmd", "'@x", "' =2", "-5", "+1.5e3", "plain", ""]
        assert head == (["'=name", "number"] if safe else ["=name", "number"])
        assert [one[0] for one in written] == (guarded if safe else [text or "" for text in rows["=name"].to_pylist()])
        assert [float(one[1]) for one in written] == rows["number"].to_pylist()
