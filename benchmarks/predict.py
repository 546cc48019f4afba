"""``demur predict`` on a table that is larger than it may take memory: rows a second, and the peak memory.

A million rows of twenty numbers, as CSV and as Parquet, through networks trained with cross-entropy on the first
20,000 of them. Each prediction is a process of its own. Starting it and loading the model are measured on a table of
one row, and taken off; what is left is compared with the time that pyarrow needs, in the same run, to read the same
table and to write the answers. What the classifier alone takes for the same
rows in memory is shown beside it:
no way of reading and writing files can take less than that.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

N_COLUMNS, N_CLASSES, N_TRAINING = 20, 5, 20_000
CHUNK = 250_000


def chunks(n_rows, seed=0):
    """Yield pieces of a table: numbers around one point per class, written with four decimals."""
    centres = np.random.default_rng(seed).normal(size=(N_CLASSES, N_COLUMNS))
    for start in range(0, n_rows, CHUNK):
        rng = np.random.default_rng([seed, start])
        y = rng.integers(N_CLASSES, size=min(CHUNK, n_rows - start))
        X = (centres[y] + 2 * rng.normal(size=(len(y), N_COLUMNS))).round(4)
        columns = {f"x{k}": X[:, k] for k in range(N_COLUMNS)}
        yield pa.table({**columns, "y": pa.array([f"class {label}" for label in y])})


def write_tables(folder, n_rows):
    """Write the same rows as CSV and as Parquet without their labels, and the first of them with labels."""
    csv_writer = parquet_writer = None
    for position, piece in enumerate(chunks(n_rows)):
        if position == 0:
            pacsv.write_csv(piece.slice(0, N_TRAINING), folder / "train.csv")
        piece = piece.drop_columns("y")
        csv_writer = csv_writer or pacsv.CSVWriter(folder / "new.csv", piece.schema)
        parquet_writer = parquet_writer or pq.ParquetWriter(folder / "new.parquet", piece.schema)
        csv_writer.write(piece)
        parquet_writer.write(piece)
    csv_writer.close()
    parquet_writer.close()


def timed(command):
    """Run a command to its end; return its wall-clock seconds, its processor seconds, and its peak memory in MB."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    spent = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with exit code {process.returncode}.")
    return spent, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e3


def with_pyarrow(source, answers, again):
    """Return the seconds that pyarrow needs to read a table, to write the answers, and to write the table itself."""
    read, write = {
        ".csv": (pacsv.read_csv, pacsv.write_csv),
        ".parquet": (pq.read_table, pq.write_table),
    }[source.suffix]
    seconds = []
    table, decided = read(source), read(answers)
    for work in (lambda: read(source), lambda: write(decided, again), lambda: write(table, again)):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return seconds


def classifier_alone(model, n_rows):
    """Return the seconds of the model's own decisions about so many rows, from those of one chunk in memory."""
    from demur import load

    rows = next(chunks(CHUNK)).drop_columns("y")
    estimator = load(model).classifier
    X = np.column_stack([rows[name].to_numpy() for name in rows.column_names])
    estimator.decide_and_score(X[:1000])
    start = time.perf_counter()
    estimator.decide_and_score(X)
    return (time.perf_counter() - start) * n_rows / len(X)


def main(arguments=None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--model", default="ce")
    options, _ = parser.parse_known_args(arguments)
    demur = [sys.executable, "-m", "demur"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_tables(folder, options.rows)
        model = [str(folder / "train.csv"), "--target", "y", "--model", options.model, "--out", str(folder / "model")]
        timed([*demur, "fit", *model])
        table = Table(title=f"demur predict, {options.rows:,} x {N_COLUMNS}, {options.model}", title_justify="left")
        alone = classifier_alone(folder / "model", options.rows)
        headings = ("file", "size", "seconds", "processor s", "start-up s", "pyarrow s", "ratio", "peak memory")
        for heading in headings:
            table.add_column(heading, justify="left" if heading == "file" else "right")
        for kind in ("csv", "parquet"):
            source, target, one = (folder / f"{name}.{kind}" for name in ("new", "decisions", "one"))
            read, write = (pacsv.read_csv, pacsv.write_csv) if kind == "csv" else (pq.read_table, pq.write_table)
            write(read(source).slice(0, 1), one)
            call = [*demur, "predict", str(folder / "model")]
            starting = min(timed([*call, str(one), "--out", str(target), "--force"])[0] for _ in range(3))
            spent, busy, peak = timed([*call, str(source), "--out", str(target), "--force"])
            reading, writing, copying = with_pyarrow(source, target, folder / f"again.{kind}")
            ratios = f"{(spent - starting) / (reading + writing):.1f} ({(spent - starting) / (reading + copying):.1f})"
            seconds = f"{reading:.1f} + {writing:.1f} ({copying:.1f})"
            megabytes = source.stat().st_size / 1e6
            figures = (f"{megabytes:,.0f} MB", f"{spent:.1f}", f"{busy:.1f}", f"{starting:.1f}", seconds, ratios)
            table.add_row(kind, *figures, f"{peak:,.0f} MB")
        Console(width=110).print("pyarrow reads the table and writes the answers (in brackets: the table itself).")
        Console(width=110).print(table)
        Console(width=110).print(f"The classifier alone, on rows in memory: {alone:.1f} s.")


if __name__ == "__main__":
    main()
