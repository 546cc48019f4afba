"""Small files that unfold to far more than a table: refused in one sentence, wherever they come from."""

import contextlib
import io
import struct

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from demur.columns import TableError
from demur.tabular import arrow_files, read_table, table_sources
from demur.tabular.table_files import open_chunks, open_table

CAP = 100_000


@pytest.fixture(autouse=True)
def small_cap(monkeypatch):
    monkeypatch.setattr(table_sources, "MOST_UNPACKED", CAP)
    monkeypatch.setattr(arrow_files, "MOST_UNPACKED", CAP)
    monkeypatch.setattr(arrow_files, "_PIECE", CAP // 4)


class Pipe(io.RawIOBase):
    """A stream that cannot be sought in, and gives only a few bytes at a time if so told."""

    def __init__(self, content, at_most=1 << 30):
        super().__init__()
        self._content, self._at_most = io.BytesIO(content), at_most
        self.taken = 0

    def readable(self):
        return True

    def read(self, size=-1):
        part = self._content.read(self._at_most if size is None or size < 0 else min(size, self._at_most))
        self.taken += len(part)
        return part


def stream_of(table, compression=None, rows=None, file=False):
    written, make = io.BytesIO(), pa.ipc.new_file if file else pa.ipc.new_stream
    with make(written, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table, max_chunksize=rows)
    return written.getvalue()


def repeated(value, n_rows):
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(n_rows, np.int8)), pa.array([value]))


ZEROS = pa.table({"x": np.zeros(2 * CAP)})
BOMBS = {
    "zeros, zstd": stream_of(ZEROS, "zstd"),
    "zeros, lz4, some batches": stream_of(ZEROS, "lz4", rows=CAP // 2),
    "nothing but rows": stream_of(pa.table({"x": pa.nulls(2 * CAP), "y": pa.nulls(2 * CAP)})),
    "a long dictionary": stream_of(pa.table({"x": repeated("", 9), "y": repeated("a" * 2 * CAP, 9)}), "zstd"),
}


@pytest.mark.parametrize("name", BOMBS)
@pytest.mark.parametrize("as_pipe", [True, False])
def test_a_stream_that_unfolds_is_refused_from_a_pipe_as_from_a_file(name, as_pipe):
    assert len(BOMBS[name]) < CAP / 10
    source = Pipe(BOMBS[name]) if as_pipe else io.BytesIO(BOMBS[name])
    with pytest.raises(TableError, match=r"^the stream has [\d,]+ bytes so far and unpacks to more than [\d,]+, which"):
        read_table(source)


def test_it_is_refused_before_the_rest_is_read():
    bomb = stream_of(pa.table({"x": np.zeros(200 * CAP)}), "zstd", rows=2 * CAP)
    pipe = Pipe(bomb, at_most=2000)
    with pytest.raises(TableError, match="unpacks to more than"):
        list(open_chunks(pipe, columns={"x": pa.float64()}))
    assert pipe.taken < max(len(bomb) / 2, (1 << 16) + 2000)


@pytest.mark.parametrize("from_", [Pipe, io.BytesIO])
def test_values_that_are_kept_once_count_as_often_as_they_occur(from_):
    table = pa.table({"x": repeated("a" * 1000, 5000)})
    for content in (stream_of(table), stream_of(table, file=True)):
        with pytest.raises(TableError, match="unpacks to more than 5,000,000"):
            read_table(from_(content))
    written = io.BytesIO()
    pq.write_table(table, written)
    with pytest.raises(TableError, match="unpacks to more than"):
        read_table(from_(written.getvalue()))


def test_in_pieces_they_may_be_of_any_length():
    content = stream_of(pa.table({"x": repeated("a" * 1000, 5000)}))
    sizes = [len(one) for one in open_chunks(Pipe(content), columns={"x": pa.string()})]
    assert sum(sizes) == 5000
    assert max(sizes) <= CAP // 4 // 1000


def parquet_of(table, **options):
    written = io.BytesIO()
    pq.write_table(table, written, compression="zstd", **options)
    return written.getvalue()


PARQUETS = {
    "one value, many rows": parquet_of(pa.table({"x": repeated("a" * 1000, 5000)}), store_schema=False),
    "a long value, few rows": parquet_of(pa.table({"x": repeated("a" * (CAP // 2), 50)}), store_schema=False),
    "read as a dictionary": parquet_of(pa.table({"x": repeated("a" * 1000, 5000)})),
    "zeros": parquet_of(ZEROS, use_dictionary=False),
    "zeros in a dictionary": parquet_of(ZEROS),
}


@pytest.mark.parametrize("name", PARQUETS)
def test_so_is_parquet_alone_and_in_a_folder(tmp_path, name):
    (tmp_path / "a.parquet").write_bytes(PARQUETS[name])
    for source in (tmp_path / "a.parquet", tmp_path, Pipe(PARQUETS[name])):
        with pytest.raises(TableError, match=r"unpacks to more than"):
            read_table(source)


@pytest.mark.parametrize("name", [name for name in PARQUETS if "value" in name])
def test_in_pieces_its_rows_are_all_there(tmp_path, name):
    (tmp_path / "a.parquet").write_bytes(PARQUETS[name])
    for source in (tmp_path / "a.parquet", tmp_path):
        for columns in (None, {"x": pa.string()}):
            pieces = list(open_chunks(source, columns=columns))
            assert {piece.schema.field("x").type for piece in pieces} == {pa.string()}
            assert sum(len(piece) for piece in pieces) in (50, 5000)
            assert max(piece.nbytes for piece in pieces) < 2 * CAP


def test_texts_that_are_looked_at_stay_texts():
    table = pa.table({"x": [f"row {k}" for k in range(4000)], "y": [None, "b"] * 2000, "z": np.arange(4000)})
    content = parquet_of(table, row_group_size=1500)
    with open_table(io.BytesIO(content)) as reader:
        assert reader._texts == ["x", "y"]
        assert reader.columns == {"x": pa.string(), "y": pa.string(), "z": pa.int64()}
        assert reader.read().equals(table)
    assert pa.Table.from_batches(open_chunks(io.BytesIO(content))).equals(table)


COLUMNS = {"x": np.arange(3000.0), "y": [None, *"abc"] * 750, "z": pa.array(list("de") * 1500).dictionary_encode()}
TABLE = pa.table(COLUMNS)


@pytest.mark.parametrize("at_most", [7, 1000, 1 << 30])
@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_a_stream_from_a_pipe_is_the_table(at_most, compression):
    content = stream_of(TABLE, compression, rows=1000)
    assert read_table(Pipe(content, at_most)).equals(read_table(io.BytesIO(content)))


@pytest.mark.parametrize("n_bytes", [6, 30, 200, 900, -40])
def test_a_stream_that_ends_early_or_is_damaged_is_said(n_bytes):
    content = stream_of(TABLE)
    with pytest.raises(TableError, match=r"damaged|has columns but no rows"):
        read_table(Pipe(content[:n_bytes]))
    wrong = bytearray(content)
    wrong[abs(n_bytes) + 8 : abs(n_bytes) + 16] = b"\xff" * 8
    with contextlib.suppress(TableError):  # it may have hit a value, which then is another
        read_table(Pipe(bytes(wrong)))


def test_a_size_that_is_claimed_is_not_asked_for():
    claims = b"\xff\xff\xff\xff" + struct.pack("<i", (1 << 31) - 1) + b"\0" * 100
    with pytest.raises(TableError, match="damaged"):
        read_table(Pipe(claims))
