"""Small files that unpack to gigabytes end in one sentence, exit code 2, and at most one gigabyte."""

import gzip
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from demur.deploy import save
from demur.tabular import fit_table

GIGABYTE = 1 << 30
N_ROWS = 2_000_000


def repeated(value, n_rows=N_ROWS):
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(n_rows, np.int32)), pa.array([value]))


def dictionary_parquet(path):
    table = pa.table({"size": repeated(1.0), "note": repeated("a" * 1300), "y": repeated("b")})
    pq.write_table(table, path, compression="zstd", row_group_size=N_ROWS, store_schema=False)


def long_values_parquet(path):
    table = pa.table({"size": repeated(1.0, 60), "note": repeated("a" * 40_000_000, 60), "y": repeated("b", 60)})
    pq.write_table(table, path, compression="zstd", store_schema=False)


def zeros_arrow(path):
    table = pa.table({"size": np.zeros(150_000_000), "y": repeated("b", 150_000_000)})
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema, options=options) as writer:
        writer.write_table(table)


def gzip_of(line, n_times, head=b""):
    def write(path):
        with gzip.open(path, "wb", 6) as file:
            file.write(head)
            for _ in range(n_times):
                file.write(line * (1_000_000 // len(line)))

    return write


BOMBS = {
    "few values.parquet": dictionary_parquet,
    "long values.parquet": long_values_parquet,
    "zeros.arrow": zeros_arrow,
    "lines.csv.gz": gzip_of(b"\n", 2000),
    "letters.csv.gz": gzip_of(b"a", 2000),
    "rows.csv.gz": gzip_of(b"1,b\n", 2000, b"size,y\n"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("bombs")
    rows = pa.table({"size": [1.0, 1.1, 5.0, 5.1] * 9, "note": list("abca") * 9, "y": list("aabb") * 9})
    save(fit_table(rows, "y", model="lr"), made / "model")
    for name, write in BOMBS.items():
        write(made / name)
        assert (made / name).stat().st_size < 5_000_000
    return made


MEASURED = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
print(code, 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
"""A small process between this one and the command: a child's peak of memory begins with that of its parent."""


def run(*arguments):
    """Return the exit code, standard error and the most memory that a command took, in bytes."""
    call = [sys.executable, "-c", MEASURED, sys.executable, "-m", "demur", *map(str, arguments)]
    ended = subprocess.run(call, capture_output=True, text=True, check=True)
    code, memory = map(int, ended.stdout.split())
    return code, ended.stderr, memory


@pytest.mark.slow
@pytest.mark.parametrize("name", BOMBS)
@pytest.mark.parametrize("command", ["fit", "predict"])
def test_issue_17_a_bomb_ends_in_one_sentence(folder, tmp_path, name, command):
    if command == "fit":
        call = ("fit", folder / name, "--target", "y", "--model", "lr", "--out", tmp_path / "new")
    else:
        call = ("predict", folder / "model", folder / name, "--allow-extra", "--out", tmp_path / "out.csv")
    code, errors, memory = run(*call)
    assert memory < GIGABYTE
    assert "Traceback" not in errors
    assert code in ((2,) if command == "fit" else (0, 2))  # in pieces, a table of any length can be decided for
    assert code == 0 or errors.startswith("demur: ")


@pytest.mark.slow
def test_what_the_memory_does_not_hold_is_said(folder, tmp_path):
    limit = "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (3 << 29, 3 << 29)); "
    call = "sys.argv = ['demur', *sys.argv[1:]]; from demur.cli import main; main()"
    table = tmp_path / "large.parquet"
    numbers = np.random.default_rng(0).normal(size=30_000_000)
    pq.write_table(pa.table({"size": numbers, "y": repeated("b", len(numbers))}), table)
    arguments = ["fit", str(table), "--target", "y", "--model", "lr", "--out", str(tmp_path / "new")]
    ended = subprocess.run([sys.executable, "-c", limit + call, *arguments], capture_output=True, text=True)
    assert ended.returncode == 2
    assert ended.stderr.startswith("demur: ")
    assert "Traceback" not in ended.stderr
