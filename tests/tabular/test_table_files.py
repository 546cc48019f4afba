"""Reading: what is in the file arrives, whatever it is wrapped in; what is wrong is named with its place."""

import csv
import gzip
import io
import itertools
import os
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hostile import open_chunks
from hypothesis import given, settings
from hypothesis import strategies as st

from demur.columns import TableError, TableWarning
from demur.tabular import TableWriter, open_table, read_table
from demur.tabular.csv_files import _utf8


def table_of(text, **options):
    return read_table(io.BytesIO(text if isinstance(text, bytes) else text.encode()), **options)


def message_of(action):
    with pytest.raises(TableError) as caught:
        action()
    return str(caught.value)


fields = st.text(st.sampled_from('ab1.,;|\t" \nµ'), min_size=1, max_size=6).map(lambda text: f"x{text}x")
tables = st.integers(2, 4).flatmap(lambda n: st.lists(st.lists(fields, min_size=n, max_size=n), min_size=1, max_size=8))


@settings(max_examples=60)
@given(rows=tables, delimiter=st.sampled_from(",;\t|"), end=st.sampled_from(["\n", "\r\n"]), quote_all=st.booleans())
def test_what_the_csv_module_writes_is_read_back(rows, delimiter, end, quote_all):
    file = io.StringIO()
    quoting = csv.QUOTE_ALL if quote_all else csv.QUOTE_MINIMAL
    writer = csv.writer(file, delimiter=delimiter, lineterminator=end, quoting=quoting)
    writer.writerows([[f"c{i}" for i in range(len(rows[0]))], *rows])
    table = table_of(file.getvalue())
    assert [list(row.values()) for row in table.to_pylist()] == rows


@given(
    text=st.text("aé€\n😀", max_size=30),
    sizes=st.lists(st.integers(1, 7), min_size=1),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
)
def test_any_way_of_cutting_the_bytes_gives_the_same_text(text, sizes, encoding):
    data, cuts = text.encode(encoding), itertools.accumulate([4, *sizes, *[5] * 40])
    blocks = [data[start:end] for start, end in itertools.pairwise([0, *cuts])]
    assert b"".join(_utf8(iter(blocks), "text")).decode() == text


def test_types_are_decided_over_all_rows():
    rows = "".join(f"{i},{i}\n" for i in range(300_000))  # several blocks of the parser
    table = table_of(f"late,n\n{rows}7a,3\n")
    assert table.schema.types == [pa.string(), pa.int64()]
    assert table["late"][7].as_py() == "7"


@pytest.mark.parametrize(
    ("values", "type_", "expected"),
    [
        ("1 2 3", pa.int64(), [1, 2, 3]),
        ("1 NA ?", pa.int64(), [1, None, None]),
        ("1.5 - null", pa.float64(), [1.5, None, None]),
        ("99999999999999999999 1", pa.float64(), [1e20, 1.0]),
        ("1 x NA", pa.string(), ["1", "x", "NA"]),
        ("true FALSE", pa.bool_(), [True, False]),
        ("NA ?", pa.null(), [None, None]),
    ],
)
def test_the_type_of_a_column(values, type_, expected):
    table = table_of("x;one\n" + "".join(f"{value};1\n" for value in values.split()))
    assert table["x"].type == type_
    assert table["x"].to_pylist() == expected


@pytest.mark.parametrize("codes", [["007", "42"], ["00501", "10001"], ["0x1F", "0xFF"], ["-01", "1"]])
def test_codes_are_text_and_said(codes):
    with pytest.warns(TableWarning, match=f"column 'x' holds codes such as '{codes[0]}', so it is read as text"):
        table = table_of("x,n\n" + "".join(f"{code},{i}\n" for i, code in enumerate(codes)))
    assert table.to_pydict() == {"x": codes, "n": [0, 1]}


@pytest.mark.parametrize("numbers", ["0 10", "0.5 00.5", "-0 0", "2024-01-05 2024-12-01", "05:30 10:00"])
def test_zeros_elsewhere_are_no_codes(numbers):
    assert table_of("x,n\n" + "".join(f"{one},1\n" for one in numbers.split()))["x"].type != pa.string()


def test_the_guard_of_formulas_is_removed(tmp_path):
    values = ["=1+1", "+SUM(A1)", "-cmd", "@x", "+", "-", "plain", "it's"]
    with TableWriter(tmp_path / "out.csv", spreadsheet_safe=True) as writer:
        writer.write(pa.record_batch({"x": values, "n": range(8)}))
    assert read_table(tmp_path / "out.csv")["x"].to_pylist() == values


def test_text_loses_the_space_around_it_and_empty_text_is_missing():
    assert table_of('x, y\n a , b\n"",c\n').to_pydict() == {"x": ["a", None], "y": ["b", "c"]}


def test_a_delimiter_can_be_insisted_on():
    assert table_of("a:b\n1:2\n", delimiter=":").to_pydict() == {"a": [1], "b": [2]}
    for odd in ("::", "§", '"'):
        assert "one ASCII character" in message_of(lambda odd=odd: table_of("a\n1\n", delimiter=odd))


def test_spaces_inside_names_and_texts_split_nothing():
    assert table_of("full name,y\nAda Lovelace,1\n").column_names == ["full name", "y"]
    assert table_of("house size\n3\n4\n").column_names == ["house size"]


def test_latin_letters_are_read_with_a_warning():
    with pytest.warns(TableWarning, match="not UTF-8: read as Windows-1252"):
        table = table_of("x,y\ncafé,1\n".encode("latin-1"))
    assert table["x"].to_pylist() == ["café"]
    with pytest.warns(TableWarning, match="not UTF-8"):
        mixed = table_of("x,y\ncafé,1\n".encode() + "café,2\n".encode("cp1252"))
    assert mixed["x"].to_pylist() == ["café", "café"]


ROWS = b"".join(b"%d,some words to fill the blocks with\n" % i for i in range(200_000))


@pytest.mark.parametrize(
    ("text", "columns", "parts"),
    [
        (b"a,b\n" + ROWS + b"oops,x\n", {"a": pa.float64()}, ["column 'a'", "row 200,001", "'oops'", "not a number"]),
        (b"a,b\n" + ROWS + b"7\n", {"a": pa.float64()}, ["row 200,001", "1 field ", "header 2"]),
        (b"a,b\n1,2\n3,4,5\n", None, ["row 2", "3 fields", "header 2"]),
        (b'a,b\n1,"x\n' + ROWS, {"a": pa.float64()}, ["quotation mark", "2 MB"]),
        (b'a,b\n1,"x\n2,3\n', {"a": pa.float64()}, ["quotation mark"]),
        (b"a,b\n1,2\n3,\0\n", None, ["NUL"]),
        (
            b"a\n2024-01-01\n1/2/2024\n",
            {"a": pa.timestamp("us")},
            ["column 'a'", "row 2", "'1/2/2024'", "not a date", "--dayfirst"],
        ),
        (b"a\ntrue\nmaybe\n", {"a": pa.bool_()}, ["row 2", "'maybe'", "boolean"]),
        (b"a,b,c\n1,2,3\n1,2,x\n", {"c": pa.float64()}, ["column 'c'", "row 2", "'x'"]),
        (b'a,b\n1,x\n0,"y\n', {"a": pa.float64()}, ["quotation mark"]),
        (b'a,b,c\n1,x,2\n,y,"z\n', {"a": pa.float64()}, ["quotation mark"]),
        (b"a,b\n1,2\n", {"c": pa.float64()}, ["no column 'c'", "'a', 'b'"]),
    ],
)
def test_errors_name_the_place(text, columns, parts):
    message = message_of(lambda: list(open_chunks(io.BytesIO(text), columns=columns)))
    assert all(part in message for part in parts), message


def test_chunks_are_of_the_size_asked_for_and_join_to_the_whole():
    text = b"n,t\n" + ROWS
    chunks = list(open_chunks(io.BytesIO(text), columns={"t": pa.string(), "n": pa.int64()}, chunk_rows=30_000))
    assert max(len(chunk) for chunk in chunks) == 30_000
    joined = pa.Table.from_batches(chunks)
    assert joined.column_names == ["t", "n"]
    assert joined.select(["n", "t"]).equals(table_of(text))


def test_columns_are_known_before_reading_and_streams_stay_open(tmp_path):
    file = io.BytesIO(b"a,b\n1,2\n")
    with open_table(file) as reader:
        assert reader.columns == {"a": None, "b": None}
    assert not file.closed
    pq.write_table(pa.table({"a": [1], "b": ["x"]}), tmp_path / "t.parquet")
    with open_table(tmp_path / "t.parquet") as reader:
        assert reader.columns == {"a": pa.int64(), "b": pa.string()}


def test_typed_files_are_cast_to_what_is_insisted_on(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"n": [1, 2], "t": pa.array(["1.5", "x"]).dictionary_encode()}), path)
    assert next(open_chunks(path, columns={"n": pa.float64()})).to_pydict() == {"n": [1.0, 2.0]}
    message = message_of(lambda: list(open_chunks(path, columns={"t": pa.float64()})))
    assert "column 't' holds 'x'" in message


def test_a_folder_of_parquet_files_is_one_table(tmp_path):
    for key, values in {"first": [1, 2], "second": [2.5]}.items():
        (tmp_path / f"part={key}").mkdir()
        pq.write_table(pa.table({"x": values}), tmp_path / f"part={key}" / "rows.parquet")
    (tmp_path / "_SUCCESS").touch()
    assert read_table(tmp_path).to_pydict() == {"x": [1.0, 2.0, 2.5], "part": ["first", "first", "second"]}
    chunks = list(open_chunks(tmp_path, columns={"x": pa.float64()}, chunk_rows=1))
    assert [chunk["x"].to_pylist() for chunk in chunks] == [[1.0], [2.0], [2.5]]
    pq.write_table(pa.table({"z": [1]}), tmp_path / "odd.parquet")
    assert "different columns" in message_of(lambda: read_table(tmp_path))


@pytest.mark.parametrize("kind", ["csv", "gzip", "parquet", "arrow"])
def test_standard_input_is_known_by_its_content(kind, monkeypatch):
    table, sink = pa.table({"x": [1, 2], "y": ["a", "b"]}), io.BytesIO()
    if kind == "parquet":
        pq.write_table(table, sink)
    elif kind == "arrow":
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    data = sink.getvalue() or b"x,y\n1,a\n2,b\n"
    data = gzip.compress(data) if kind == "gzip" else data
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(Pipe(data)))
    assert read_table("-").to_pydict() == table.to_pydict()


class Pipe(io.BytesIO):
    """Bytes that come once."""

    def seekable(self):
        return False

    def seek(self, *_):
        raise io.UnsupportedOperation("seek")


def test_what_is_no_file_is_named(tmp_path):
    assert "there is no file" in message_of(lambda: read_table(tmp_path / "absent.csv"))
    assert "has no .parquet files" in message_of(lambda: read_table(tmp_path))
    assert "mode 'rb'" in message_of(lambda: read_table(io.StringIO("a\n1\n")))
    assert "mode 'rb'" in message_of(lambda: read_table(7))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may read everything")
def test_a_file_that_may_not_be_read_is_named(tmp_path):
    path = tmp_path / "secret.csv"
    path.write_text("a\n1\n")
    path.chmod(0)
    assert "permissions" in message_of(lambda: read_table(path))


@pytest.mark.slow
def test_streaming_needs_little_memory(tmp_path):
    """A file of twice the size takes no more of Arrow's memory."""
    peaks = []
    for n in (1, 2):
        path = tmp_path / f"{n}.csv"
        path.write_bytes(b"a,b\n" + ROWS * n * 2)
        program = (
            "import sys, pyarrow as pa; from demur.tabular import open_table\n"
            "for _ in open_table(sys.argv[1]).chunks({'b': pa.string()}): pass\n"
            "print(pa.default_memory_pool().max_memory())"
        )
        done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, check=True)
        peaks.append(int(done.stdout))
    assert peaks[1] < 1.3 * peaks[0]


def test_dates_of_json_lines_are_dates_and_keep_their_text():
    lines = b'{"day": "2024-01-02", "at": "2024-01-02T03:04:05", "y": "2024-01-02"}\n' * 2
    with open_table(io.BytesIO(lines)) as reader:
        table = reader.read(["y"])
    assert [str(kind) for kind in table.schema.types] == ["date32[day]", "timestamp[s]", "string"]
    with open_table(io.BytesIO(lines)) as reader:
        wanted = {"day": pa.timestamp("us"), "at": pa.string()}
        chunk, copies = next(reader.chunks_and_copies(wanted, ["day", "at"]))
    assert str(chunk["day"][0].as_py()) == "2024-01-02 00:00:00"
    assert chunk["at"][0].as_py() == copies["at"][0].as_py() == "2024-01-02T03:04:05"
    assert copies["day"][0].as_py() == "2024-01-02"
