"""``demur predict``: the same decisions whatever the way in and out, and never half a file that looks whole."""

import csv
import io
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import QuantileTransformer

from demur.deploy import load, save
from demur.tabular import TableModel, TableWriter, read_table


@pytest.fixture(scope="module")
def answers(pets):
    return load(pets / "model").answers(read_table(pets / "new.csv"))


def read_decisions(path):
    columns = {"prediction": pa.string(), "confidence": pa.float64()}
    return pacsv.read_csv(path, convert_options=pacsv.ConvertOptions(column_types=columns, strings_can_be_null=True))


def same(found, wanted):
    """Equal, the confidence to 1e-6: batches of other sizes may be summed in another order."""
    close = np.allclose(found["confidence"], wanted["confidence"], rtol=0, atol=1e-6)
    others = [name for name in wanted.column_names if name != "confidence"]
    return close and found.select(others).combine_chunks().equals(wanted.select(others).combine_chunks())


@pytest.mark.parametrize("chunk_rows", [17, 499, 65_536])
@pytest.mark.parametrize("source", ["new.csv", "new.parquet"])
def test_decisions_are_those_of_the_model(demur, pets, answers, source, chunk_rows, tmp_path):
    options = ("--out", tmp_path / "out.parquet", "--chunk-rows", chunk_rows)
    result = demur("predict", pets / "model", pets / source, *options)
    assert result.code == 0, result
    assert same(pq.read_table(tmp_path / "out.parquet"), answers)
    n_declined = sum(answers["rejected"].to_pylist())
    assert f"Wrote 500 decisions to {tmp_path / 'out.parquet'}: {n_declined} declined" in result.text


def test_one_row_at_a_time_is_decided_the_same(demur, pets, answers, tmp_path):
    pq.write_table(read_table(pets / "new.csv").slice(0, 30), tmp_path / "few.parquet")
    call = ("predict", pets / "model", tmp_path / "few.parquet", "--chunk-rows", "1", "--out", tmp_path / "out.parquet")
    assert demur(*call).code == 0
    assert same(pq.read_table(tmp_path / "out.parquet"), answers.slice(0, 30))


@pytest.mark.slow
def test_deciding_loads_no_more_than_it_needs(demur, pets, tmp_path):
    """The program decides without torch, pandas and scipy.stats, and with them where the model needs them."""
    first, second = tmp_path / "lr.csv", tmp_path / "normal.csv"
    quantiles = QuantileTransformer(n_quantiles=9, output_distribution="normal").set_output(transform="pandas")
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 2)), columns=["a", "b"])
    save(make_pipeline(quantiles, LogisticRegression()).fit(frame, frame["a"] > 0), tmp_path / "normal")
    frame.to_csv(tmp_path / "rows.csv", index=False)
    calls = [("predict", pets / "model", pets / "new.csv", "--out", first)]
    calls.append(("predict", tmp_path / "normal", tmp_path / "rows.csv", "--out", second))
    code = "import sys, demur.cli as c\n" + "".join(
        f"sys.argv = {['demur', *map(str, call)]!r}\n"
        "try: c.run()\n"
        "except SystemExit as end: print('rc', end.code, *({'torch', 'pandas', 'scipy.stats'} & {*sys.modules}))\n"
        for call in calls
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    ends = [set(line.split()) for line in done.stdout.splitlines() if line.startswith("rc")]
    assert ends == [{"rc", "0"}, {"rc", "0", "pandas", "scipy.stats"}], done
    for call, found in zip(calls, (first, second), strict=True):
        assert demur(*call[:-1], tmp_path / "here.csv", "--force").code == 0
        assert found.read_text() == (tmp_path / "here.csv").read_text()


def test_declined_rows_have_no_prediction(answers):
    rows = answers.to_pylist()
    assert any(row["rejected"] for row in rows)
    assert all(row["prediction"] == (None if row["rejected"] else row["first_choice"]) for row in rows)
    assert all(row["rejected"] == (row["confidence"] <= 0.8) for row in rows)
    assert all(row["first_choice"] != row["second_choice"] for row in rows)


@pytest.mark.parametrize("name", ["out.csv", "out.csv.gz", "out.tsv", "out.arrow"])
def test_every_format_holds_the_same(demur, pets, answers, name, tmp_path):
    assert demur("predict", pets / "model", pets / "new.csv", "--out", tmp_path / name).code == 0
    if name == "out.csv":
        assert same(read_decisions(tmp_path / name), answers)
    found = read_table(tmp_path / name)
    assert found["rejected"].to_pylist() == answers["rejected"].to_pylist()
    assert found["prediction"].to_pylist() == answers["prediction"].to_pylist()


def test_standard_input_and_output_are_the_files(demur, pets, tmp_path):
    demur("predict", pets / "model", pets / "new.csv", "--out", tmp_path / "out.csv")
    for name in ("new.csv", "new.parquet"):
        piped = demur("predict", pets / "model", stdin=(pets / name).read_bytes())
        assert piped.code == 0
        assert piped.output == (tmp_path / "out.csv").read_bytes()
        assert "Wrote 500 decisions: " in piped.errors


def test_reloading_gives_the_same_bits(pets):
    table = read_table(pets / "new.csv")
    assert load(pets / "model").answers(table).equals(load(pets / "model").answers(table))


@pytest.mark.parametrize("model", ["lr", pytest.param("hgb", marks=pytest.mark.slow)])
def test_another_cost_is_as_if_fitted_with_it(demur, pets, model, tmp_path):
    for cost in ("0.2", "0.004"):
        options = ("--target", "y", "--model", model, "--cost", cost, "--holdout", "0", "--out", tmp_path / cost)
        assert demur("fit", pets / "train.csv", *options).code == 0
    moved = demur("predict", tmp_path / "0.2", pets / "new.csv", "--cost", "0.004")
    assert moved.output == demur("predict", tmp_path / "0.004", pets / "new.csv").output
    assert moved.output != demur("predict", tmp_path / "0.2", pets / "new.csv").output


def test_a_loss_trained_for_its_cost_refuses_another(demur, pets, tmp_path):
    options = ("--target", "y", "--model", "ova+hin", "--holdout", "0", "--out", tmp_path / "model")
    assert demur("fit", pets / "train.csv", *options).code == 0
    assert demur("predict", tmp_path / "model", pets / "new.csv").code == 0
    complaint = demur("predict", tmp_path / "model", pets / "new.csv", "--cost", "0.004").complaint
    assert "ova+hin was trained for the cost 0.2; fit again for another" in complaint


def test_chosen_columns_are_kept_in_order(demur, pets):
    rows = (pets / "new.csv").read_text().splitlines()
    kept = demur("predict", pets / "model", pets / "new.csv", "--keep", "kind", "--keep", "a").text.splitlines()
    assert kept[0] == "kind,a,prediction,rejected,confidence,first_choice,second_choice,reason"
    for line, row in zip(kept[1:], rows[1:], strict=True):
        a, _, kind, _ = row.split(",")
        assert line.startswith(f"{kind},{a},")
    every = demur("predict", pets / "model", pets / "new.csv", "--keep-all").text
    assert every.startswith("a,b,kind,y,prediction,")
    assert "no column 'id' to keep" in demur("predict", pets / "model", pets / "new.csv", "--keep", "id").complaint


@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("a,b", ["missing 'kind'"]),
        ("a,b,kind,weight", ["extra 'weight'", "--allow-extra"]),
        ("b,colour", ["missing 'a', 'kind'", "extra 'colour'"]),
    ],
)
def test_other_columns_are_one_error_that_names_them(demur, pets, header, words, tmp_path):
    (tmp_path / "new.csv").write_text(f"{header}\n" + ",".join("1" * len(header.split(","))) + "\n")
    complaint = demur("predict", pets / "model", tmp_path / "new.csv", "--out", tmp_path / "out.csv").complaint
    assert all(word in complaint for word in words)
    assert not (tmp_path / "out.csv").exists()


def test_columns_of_another_type_are_named_before_anything_is_read(demur, pets, tmp_path):
    pq.write_table(pa.table({"a": ["x"], "b": [True], "kind": ["red"]}), tmp_path / "new.parquet")
    result = demur("predict", pets / "model", tmp_path / "new.parquet")
    assert "'a' is text and not a number; 'b' is a boolean such as true or false and not a number" in result.complaint
    assert result.output == b""


def test_a_bad_value_late_in_the_file_leaves_nothing(demur, pets, tmp_path):
    (tmp_path / "new.csv").write_text((pets / "new.csv").read_text() + "1.0,many,red,cat\n")
    before = sorted(tmp_path.iterdir())
    options = ("--out", tmp_path / "out.csv", "--chunk-rows", "10")
    complaint = demur("predict", pets / "model", tmp_path / "new.csv", *options).complaint
    assert "column 'b'" in complaint
    assert "holds 'many', which is not a number" in complaint
    assert sorted(tmp_path.iterdir()) == before


def test_a_file_is_never_replaced_by_accident(demur, pets, tmp_path):
    (tmp_path / "out.csv").write_text("mine")
    call = ("predict", pets / "model", pets / "new.csv", "--out", tmp_path / "out.csv")
    assert "already exists" in demur(*call).complaint
    assert (tmp_path / "out.csv").read_text() == "mine"
    assert demur(*call, "--force").code == 0
    onto = demur("predict", pets / "model", pets / "new.csv", "--out", pets / "new.csv", "--force")
    assert "is the file that is being read" in onto.complaint


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device")
def test_a_full_disk_is_said_without_a_number(demur, pets):
    call = ("predict", pets / "model", pets / "new.csv", "--out", "/dev/full")
    assert demur(*call).complaint.endswith("No space left on device.")


@pytest.mark.parametrize(
    ("name", "words"),
    [("nothing", "there is no model"), ("train.csv", "which is a folder"), (".", "holds model.json")],
)
def test_what_is_no_model_is_refused(demur, pets, name, words):
    assert words in demur("predict", pets / name, pets / "new.csv").complaint


def test_an_interrupt_leaves_nothing_behind(demur, pets, tmp_path, monkeypatch):
    calls = iter(range(3))
    decide = TableModel.answers

    def interrupted(*arguments, **options):
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return decide(*arguments, **options)

    monkeypatch.setattr(TableModel, "answers", interrupted)
    options = ("--out", tmp_path / "out.csv", "--chunk-rows", "10")
    result = demur("predict", pets / "model", pets / "new.csv", *options)
    assert result.code not in (0, 2)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_stopped_in_the_middle_there_is_no_output_that_looks_whole(pets, end, tmp_path):
    command = [sys.executable, "-m", "demur", "predict", str(pets / "model"), "-", "--chunk-rows", "100"]
    command += ["--out", str(tmp_path / "out.csv")]
    header, rows = (pets / "new.csv").read_bytes().split(b"\n", 1)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdin.write(header + b"\n" + rows * 1_000)
        process.stdin.flush()
        while not any(path.stat().st_size for path in tmp_path.iterdir()):  # until decisions are being written
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(end)
        process.stdin.close()  # Ctrl-C ends whatever writes to the pipe, too
        errors = process.stderr.read()
    assert process.returncode != 0
    left = [path.name for path in tmp_path.iterdir()]
    if end == signal.SIGINT:
        assert left == []
        assert b"Traceback" not in errors
    assert all(name.endswith(".part") for name in left)


MEASURED = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
"""A small process between this one and the command: the peak memory of a child begins with that of its parent."""


@pytest.mark.slow
def test_a_table_four_times_as_long_takes_hardly_more_memory(pets, tmp_path):
    header, rows = (pets / "new.csv").read_bytes().split(b"\n", 1)
    peaks = []
    for n in (2_000, 8_000):  # 1 and 4 million rows: 23 and 92 MB of text, and several times that in memory
        (tmp_path / "new.csv").write_bytes(header + b"\n" + rows * n)
        command = ["demur", "predict", pets / "model", tmp_path / "new.csv", "--out", tmp_path / "out.csv", "--force"]
        call = [sys.executable, "-c", MEASURED, sys.executable, "-m", *map(str, command)]
        peaks.append(int(subprocess.run(call, capture_output=True, check=True).stdout))
    assert peaks[1] < 1.25 * peaks[0]


@pytest.mark.slow
def test_a_closed_pipe_is_not_an_error(pets):
    command = (
        f"{sys.executable} -m demur predict {pets / 'model'} {pets / 'new.csv'} --keep-all --chunk-rows 5 | head -1"
    )
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert result.stdout == "a,b,kind,y,prediction,rejected,confidence,first_choice,second_choice,reason\n"
    assert result.stderr == ""


def test_a_review_budget(demur, pets):
    result = demur("predict", pets / "model", pets / "new.csv", "--allow-extra", "--review-budget", "20")
    assert result.code == 0, result
    header, *lines = result.text.splitlines()
    assert header.split(",")[-1] == "saves"
    cells = [line.split(",") for line in lines]
    chosen = [float(cell[-1]) for cell in cells if cell[1] == "true"]
    assert len(chosen) == 20
    assert min(chosen) >= max(float(cell[-1]) for cell in cells if cell[1] == "false")
    assert "20 declined" in result.errors
    refused = demur("predict", pets / "model", pets / "new.csv", "--allow-extra", "--review-budget", "2.5")
    assert "whole number of rows" in refused.complaint


CELLS = ["007", " padded", "9007199254740997", "1.50", "2024-01-05T10:30+01:00", "NA", "", '"quoted, text"', "1e3"]


def test_kept_cells_of_a_csv_file_are_copied_unchanged(demur, pets, tmp_path):
    """Also those of features: the model reads the number, the output gets the text."""
    lines = [f"{1.5 + k:.3f},+{k}.50, red ,{cell}" for k, cell in enumerate(CELLS)]
    (tmp_path / "new.csv").write_text("a,b,kind,note\n" + "".join(f"{line}\n" for line in lines))
    call = ("predict", pets / "model", tmp_path / "new.csv", "--allow-extra", "--keep-all")
    for name in ("out.csv", "out.parquet"):
        result = demur(*call, "--out", tmp_path / "made" / name)
        assert result.code == 0, result
    written = list(csv.reader(io.StringIO((tmp_path / "made" / "out.csv").read_text())))
    wanted = list(csv.reader(lines))
    assert [row[:4] for row in written[1:]] == wanted
    kept = pq.read_table(tmp_path / "made" / "out.parquet").select(["a", "b", "kind", "note"])
    assert [[cell or "" for cell in row.values()] for row in kept.to_pylist()] == wanted
    plain = demur("predict", pets / "model", tmp_path / "new.csv", "--allow-extra").text.splitlines()
    assert [row[4:] for row in written[1:]] == [line.split(",") for line in plain[1:]]


def test_kept_cells_of_a_parquet_file_keep_their_types(demur, pets, tmp_path):
    table = pa.table(
        {
            "a": pa.array(["76.71", "0.30"]).cast(pa.decimal128(22, 2)),
            "b": pa.array([9_007_199_254_740_997, None]),
            "kind": pa.array(["red", "blue"]).dictionary_encode(),
            "when": pa.array([0, 1], pa.timestamp("ms", tz="Europe/Paris")),
            "took": pa.array([1500, None], pa.duration("ms")),
            "points": pa.array([[1, 2], []]),
        }
    )
    pq.write_table(table, tmp_path / "new.parquet")
    call = ("predict", pets / "model", tmp_path / "new.parquet", "--allow-extra")
    assert demur(*call, "--keep-all", "--out", tmp_path / "out.parquet").code == 0
    assert pq.read_table(tmp_path / "out.parquet").select(table.column_names).equals(table)
    keep = [word for name in ("a", "b", "kind", "when") for word in ("--keep", name)]
    written = [row[:4] for row in csv.reader(demur(*call, *keep).text.splitlines())]
    assert written == [
        ["a", "b", "kind", "when"],
        ["76.71", "9007199254740997", "red", "1970-01-01 01:00:00.000+0100"],
        ["0.30", "", "blue", "1970-01-01 01:00:00.001+0100"],
    ]


KINDS = {
    "duration": pa.array([k * 1000 for k in range(60)], pa.duration("ms")),
    "time of day": pa.array([k * 60 for k in range(60)], pa.time32("s")),
    "fine time of day": pa.array([k * 60_000_000_000 for k in range(60)], pa.time64("ns")),
    "decimal": pa.array(range(60)).cast(pa.decimal128(22, 2)),
    "moment": pa.array(range(0, 60_000, 1000), pa.timestamp("ns", tz="Asia/Tokyo")),
    "list": pa.array([[k] for k in range(60)]),
    "vector": pa.array([[k, 1] for k in range(60)], pa.list_(pa.float32(), 2)),
    "struct": pa.array([{"x": k} for k in range(60)]),
    "map": pa.array([[("x", k)] for k in range(60)], pa.map_(pa.string(), pa.int8())),
    "bytes": pa.array([b"%d" % k for k in range(60)]),
}


TRIED_QUICKLY = ("duration", "decimal", "moment", "list", "vector")


@pytest.mark.parametrize(
    ("kind", "suffix"),
    [
        *(pytest.param(kind, "parquet", marks=() if kind in TRIED_QUICKLY else pytest.mark.slow) for kind in KINDS),
        pytest.param("list", "arrow", marks=pytest.mark.slow),
        ("vector", "arrow"),
    ],
)
def test_a_column_of_any_type_works_or_is_set_aside(demur, kind, suffix, tmp_path):
    """What a model was fitted on, it can predict for, with the column as a feature or without it."""
    order = np.random.default_rng(0).permutation(60)
    table = pa.table({"x": KINDS[kind], "size": np.arange(60) % 7.0, "y": ["a"] * 30 + ["b"] * 30}).take(order)
    with TableWriter(tmp_path / f"data.{suffix}") as writer:
        writer.write(table)
    fitted = demur("fit", tmp_path / f"data.{suffix}", "--target", "y", "--model", "lr", "--out", tmp_path / "m" / "x")
    assert fitted.code == 0, fitted
    used = kind not in ("list", "struct", "map", "bytes")
    assert used or "'x' is not used: its values are neither numbers" in fitted.text + fitted.errors
    result = demur("predict", tmp_path / "m" / "x", tmp_path / f"data.{suffix}")
    assert result.code == 0, result
    choices = [line.split(",")[3] for line in result.text.splitlines()[1:]]
    n_right = sum(choice == y for choice, y in zip(choices, table["y"].to_pylist(), strict=True))
    assert used == (n_right > 50)


def test_codes_with_leading_zeros_are_categories_from_fit_to_predict(demur, tmp_path):
    codes = ["007", "0070", "70", "7"] * 30  # as numbers, two of them would be 7 and two 70
    size = np.random.default_rng(0).normal(size=120).round(3)
    rows = [f"{code},{x},{'01' if code.startswith('0') else '2'}" for code, x in zip(codes, size, strict=True)]
    (tmp_path / "data.csv").write_text("code,size,y\n" + "\n".join(rows) + "\n")
    call = ("fit", tmp_path / "data.csv", "--target", "y", "--model", "lr", "--holdout", "0", "--out", tmp_path / "m")
    fitted = demur(*call)
    assert fitted.code == 0, fitted
    assert "column 'code' holds codes such as '007', so it is read as text" in fitted.errors
    assert "1 category ('code')" in fitted.text
    written = csv.DictReader(demur("predict", tmp_path / "m", tmp_path / "data.csv", "--keep-all").text.splitlines())
    for code, row in zip(codes, written, strict=True):
        assert (row["code"], row["first_choice"]) == (code, row["y"])


def test_why_names_the_columns_of_declined_rows(demur, pets, tmp_path):
    result = demur(
        "predict", pets / "model", pets / "new.csv", "--why", "--cost", "0.01", "--out", tmp_path / "out.csv"
    )
    assert result.code == 0, result
    found = pacsv.read_csv(tmp_path / "out.csv").to_pylist()
    names = load(pets / "model").schema.names
    for one in found:
        assert bool(one["because"]) == one["rejected"]
        if one["rejected"] and one["because"] != "no single column":
            assert one["because"].split(": ")[0] in names
