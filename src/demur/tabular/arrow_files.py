"""Parquet and Arrow: files that carry their types, one by one or as a folder."""

import io
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from demur.columns.column import as_type
from demur.columns.frames import TableError, check_names, listed, shown
from demur.tabular.table_sources import MOST_UNPACKED, TableFormat, TableReader, too_much

if TYPE_CHECKING:
    import pyarrow.dataset as ds

__all__ = ["ArrowReader", "FolderReader", "ParquetReader", "files_of_folder", "partition_columns"]


_Rows: TypeAlias = pa.Table | pa.RecordBatch


@contextmanager
def _explained(name: str, format_: str) -> Iterator[None]:
    try:
        yield
    except TableError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).rstrip(". ")
        problem = f"{name} is truncated or damaged, or not a {format_} that can be read here ({reason})"
        raise TableError(f"{problem}: write or copy it again") from error


def _types(schema: pa.Schema, name: str) -> dict[str, pa.DataType]:
    check_names(tuple(schema.names), name)
    return {field.name: field.type for field in schema}


def _conform(batch: pa.RecordBatch, columns: Mapping[str, pa.DataType] | None, name: str) -> pa.RecordBatch:
    if columns is None:
        return batch
    arrays = [as_type(batch.column(column), wanted, column, name) for column, wanted in columns.items()]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _validated(data: _Rows) -> _Rows:
    """Check what a file claims about its own layout: Arrow trusts it, and a damaged one would crash the process."""
    data.validate(full=True)
    return data


def _whole(table: pa.Table, name: str, packed: int) -> pa.Table:
    """Check a table that was read whole: also that its values, each written out, are not far more than the file."""
    unpacked = sum(_written_out(chunk) for column in _validated(table).columns for chunk in column.chunks)
    _refuse_too_much(name, packed, unpacked)
    return table


def _refuse_too_much(name: str, packed: int, unpacked: int) -> None:
    error = too_much(name, packed, unpacked)
    if error is not None:
        raise error


def _written_out(chunk: pa.Array) -> int:
    """Return how many bytes the values of a column have, each counted as often as it occurs."""
    if not pa.types.is_dictionary(chunk.type):
        return int(chunk.nbytes)
    lengths = _lengths(chunk.dictionary)
    if lengths is None:
        return len(chunk) * (int(chunk.dictionary.nbytes) // max(len(chunk.dictionary), 1) + 1)
    return int(pc.sum(lengths.take(chunk.indices)).as_py() or 0)


def _lengths(values: pa.Array) -> pa.Array | None:
    kind = values.type
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        values, kind = values.cast(pa.large_binary()), pa.large_binary()
    known = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return pc.binary_length(values).cast(pa.int64()) if any(is_(kind) for is_ in known) else None


def _longest(column: pa.Array) -> int:
    """Return the bytes of the longest value of a dictionary, and 1 for what is no dictionary of texts."""
    lengths = _lengths(column.dictionary) if pa.types.is_dictionary(column.type) else None
    return 1 if lengths is None else max(1, pc.max(lengths).as_py() or 0)


def _in_pieces(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    """Return at most so many rows at a time, and fewer where a dictionary makes each of them long."""
    longest = max(map(_longest, batch.columns), default=1)
    at_once = rows if rows * longest <= MOST_UNPACKED else max(1, _PIECE // longest)
    for start in range(0, batch.num_rows, at_once):
        yield batch.slice(start, at_once)


def _seekable(stream: BinaryIO) -> BinaryIO | pa.BufferReader:
    """Return something Arrow can seek in: a pipe or a compressed file is held in memory."""
    return stream if _can_seek(stream) else pa.BufferReader(stream.read())


def _can_seek(stream: BinaryIO) -> bool:
    try:
        return stream.seekable()
    except AttributeError:
        return False


_ROWS = 65_536
_PIECE = 1 << 26
"""Bytes that are unpacked at a time where a file may hold far more than its size says."""


_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "INT96": 8}
"""Bytes that a value has at the least once it is read; 4 for those of any length."""


class ParquetReader(TableReader):
    """One Parquet file, read row group by row group.

    Texts of which a few may stand for gigabytes are read as dictionaries, and written out when their size is known.
    """

    def __init__(self, stream: BinaryIO, name: str) -> None:
        import pyarrow.parquet as pq  # Parquet takes a while to import, and most tables are CSV

        with _explained(name, "Parquet file"):
            seekable = _seekable(stream)
            self._size = seekable.seek(0, io.SEEK_END)
            seekable.seek(0)
            self._file = pq.ParquetFile(seekable)
            columns = _types(self._file.schema_arrow, name)
            self._texts = self._long_texts()
            if self._texts:
                seekable.seek(0)
                self._file = pq.ParquetFile(seekable, read_dictionary=self._texts)
        super().__init__(name, columns)

    def _read(self) -> pa.Table:
        with _explained(self.name, "Parquet file"):
            self._check_claims(range(self._file.num_row_groups))
            table = _whole(self._file.read(), self.name, self._size)
            for position, name in enumerate(table.column_names):
                if name in self._texts and table.schema.types[position] != self.columns[name]:
                    table = table.set_column(position, name, self._as_written(table.column(position), name))
            return table

    def _as_written(self, column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
        pieces = [chunk.slice(start, _ROWS) for chunk in column.chunks for start in range(0, len(chunk), _ROWS)]
        return pa.chunked_array([piece.cast(self.columns[name]) for piece in pieces], self.columns[name])

    def _long_texts(self) -> list[str]:
        """Return the columns of texts that could hold far more than the file, if each value were the longest."""
        about, found = self._file.metadata, []
        if about.num_columns != len(self._file.schema_arrow.names):  # lists and structures, which no model reads
            return []
        for group in map(about.row_group, range(about.num_row_groups)):
            for column in map(group.column, range(group.num_columns)):
                most = group.num_rows * column.total_uncompressed_size
                if column.physical_type == "BYTE_ARRAY" and most > MOST_UNPACKED:
                    found.append(column.path_in_schema)
        return list(dict.fromkeys(found))

    def _check_claims(self, groups: Iterable[int]) -> None:
        """Refuse a file whose own description says that it unpacks to far more than its size."""
        unpacked = 0
        for group in map(self._file.metadata.row_group, groups):
            for column in map(group.column, range(group.num_columns)):
                least = group.num_rows * _WIDTHS.get(column.physical_type, 4)
                unpacked += max(column.total_uncompressed_size, least)
        _refuse_too_much(self.name, self._size, unpacked)

    def check_size(self) -> None:
        """Count what the file unpacks to, without unpacking it."""
        groups = range(self._file.num_row_groups)
        self._check_claims(groups)
        unpacked = 0
        for batch in self._file.iter_batches(_ROWS, columns=self._texts) if self._texts else ():
            unpacked += sum(map(_written_out, batch.columns))
            _refuse_too_much(self.name, self._size, unpacked)

    def _chunks(self, columns: Mapping[str, pa.DataType] | None, rows: int) -> Iterator[pa.RecordBatch]:
        names = None if columns is None else list(columns)
        wanted = {name: pa.null() if type_ is None else type_ for name, type_ in self.columns.items()}
        with _explained(self.name, "Parquet file"):
            # One row group at a time: over several, Arrow keeps what it has read until the last.
            for group in range(self._file.num_row_groups):
                self._check_claims([group])
                for batch in self._file.iter_batches(rows, [group], columns=names):
                    for piece in _in_pieces(_validated(batch), rows):
                        yield _conform(piece, columns or (wanted if self._texts else None), self.name)

    def rows_at_once(self, rows: int) -> int:
        """Return how many rows to write out at a time: fewer where a few values may stand for gigabytes."""
        longest = 1
        for batch in self._file.iter_batches(_ROWS, columns=self._texts) if self._texts else ():
            longest = max(longest, *map(_longest, batch.columns))
        return rows if rows * longest <= MOST_UNPACKED else max(1, _PIECE // longest)


class ArrowReader(TableReader):
    """An Arrow file (Feather) or an Arrow stream, read record batch by record batch."""

    def __init__(self, stream: BinaryIO, name: str, format_: TableFormat) -> None:
        self._format = format_
        with _explained(name, format_.value):
            is_file = format_ is TableFormat.ARROW_FILE
            source: Any = _seekable(stream) if is_file else stream
            self._source: _CheckedMessages | None = None
            self._size = 0
            if is_file or _can_seek(stream):
                self._size = _check_messages(source, name, is_file=is_file)
            else:
                source = self._source = _CheckedMessages(stream, name)
            opened = pa.ipc.open_file if is_file else pa.ipc.open_stream
            self._file: pa.RecordBatchFileReader | pa.RecordBatchStreamReader = opened(source)
            columns = _types(self._file.schema, name)
        super().__init__(name, columns)

    def _read(self) -> pa.Table:
        with _explained(self.name, self._format.value):
            table = self._file.read_all()
            return _whole(table, self.name, self._source.packed() if self._source is not None else self._size)

    def _chunks(self, columns: Mapping[str, pa.DataType] | None, rows: int) -> Iterator[pa.RecordBatch]:
        with _explained(self.name, self._format.value):
            for batch in self._batches():
                for piece in _in_pieces(_validated(batch), rows):
                    yield _conform(piece, columns, self.name)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        if self._format is TableFormat.ARROW_STREAM:
            yield from self._file
        else:
            for position in range(self._file.num_record_batches):
                yield self._file.get_batch(position)


_MAGIC = 8
"""What an Arrow file has in front of its first message."""


def _check_messages(stream: Any, name: str, *, is_file: bool) -> int:
    """Look what each record batch says that it unpacks to, before any of them is; return the size of all."""
    stream.seek(_MAGIC if is_file else 0)
    packed = unpacked = 0
    try:
        for message in pa.ipc.MessageReader.open_stream(stream):
            if message.type != "schema":
                packed += message.body.size if message.body is not None else 0
                unpacked += _unpacked_size(message.metadata.to_pybytes(), message.body)
                _refuse_too_much(name, packed, unpacked)
    except (pa.ArrowException, OSError, struct.error, StopIteration):
        pass  # what follows the last message of a file; whoever reads the table says what else is wrong
    finally:
        stream.seek(0)
    return packed


def _unpacked_size(metadata: bytes, body: Any) -> int:
    """Return how many bytes the buffers of a record batch, or of a dictionary, have once they are unpacked.

    The description of a message is a flatbuffer; each compressed buffer begins with its size, or with -1.
    """
    root = _table_at(metadata, 0)
    header = _field(metadata, root, 2)
    if header is None or body is None:
        return 0
    batch = header + struct.unpack_from("<I", metadata, header)[0]
    if metadata[_field(metadata, root, 1) or 0] == 2:  # a dictionary holds a record batch as its second field
        inner = _field(metadata, batch, 1)
        if inner is None:
            return 0
        batch = inner + struct.unpack_from("<I", metadata, inner)[0]
    length, nodes = _field(metadata, batch, 0), _field(metadata, batch, 1)
    n_rows = 0 if length is None else int(struct.unpack_from("<q", metadata, length)[0])
    n_columns = 0 if nodes is None else struct.unpack_from("<I", metadata, _table_at(metadata, nodes))[0]
    least = n_rows * max(int(n_columns), 1)  # a column of nothing takes no bytes, but whoever reads it does
    buffers, compressed = _field(metadata, batch, 2), _field(metadata, batch, 3) is not None
    if buffers is None:
        return least
    start = buffers + struct.unpack_from("<I", metadata, buffers)[0]
    (count,) = struct.unpack_from("<I", metadata, start)
    content, total = memoryview(body), 0
    for offset, length in struct.iter_unpack("<qq", metadata[start + 4 : start + 4 + 16 * count]):
        size = length
        if compressed and length >= 8:
            (size,) = struct.unpack_from("<q", content, offset)
            size = length - 8 if size < 0 else size
        total += size
    return max(total, least)


class _CheckedMessages(io.RawIOBase):
    """An Arrow stream that cannot be looked at in advance: each message is, on its way to Arrow.

    Parameters
    ----------
    stream : binary stream
    name : str
        What messages call it.
    """

    _GOES_ON = b"\xff\xff\xff\xff"

    def __init__(self, stream: BinaryIO, name: str) -> None:
        super().__init__()
        self._stream, self._name = stream, name
        self._parts: list[bytes] = []
        self._ended = False
        self._packed = self._unpacked = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        """Return so many bytes, fewer only at the end."""
        wanted = float("inf") if size is None or size < 0 else size
        found: list[bytes] = []
        while wanted and (self._parts or self._next_message()):
            part = self._parts.pop(0)
            if len(part) > wanted:
                self._parts.insert(0, part[int(wanted) :])
                part = part[: int(wanted)]
            found.append(part)
            wanted -= len(part)
        return found[0] if len(found) == 1 else b"".join(found)

    def _next_message(self) -> bool:
        """Read one message whole, look at it, and say whether there was one."""
        if self._ended:
            return False
        start = self._exactly(4)
        size = self._exactly(4) if start == self._GOES_ON else start  # streams of long ago begin with the size
        (n_bytes,) = struct.unpack("<i", size) if len(size) == 4 else (0,)
        metadata = self._exactly(max(n_bytes, 0))
        body = b""
        if metadata:
            try:
                length = _field(metadata, _table_at(metadata, 0), 3)
                body = self._exactly(0 if length is None else struct.unpack_from("<q", metadata, length)[0])
                self._look_at(metadata, body)
            except (struct.error, IndexError):
                raise ValueError("a message of it does not say what it holds") from None
        self._ended = not metadata
        self._parts = [one for one in (start, size if size is not start else b"", metadata, body) if one]
        return bool(self._parts)

    def _look_at(self, metadata: bytes, body: bytes) -> None:
        self._packed += len(body)
        if metadata[_field(metadata, _table_at(metadata, 0), 1) or 0] != 1:  # a schema holds no rows
            self._unpacked += _unpacked_size(metadata, body)
            _refuse_too_much(self._name, self._packed, self._unpacked)

    def packed(self) -> int:
        """Return the bytes of all messages so far."""
        return self._packed

    def _exactly(self, size: int) -> bytes:
        """Read so many bytes, fewer only at the end; what a message claims is not asked for before it is there."""
        parts = []
        while size > 0 and (part := self._stream.read(min(size, _PIECE))):
            parts.append(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


def _table_at(metadata: bytes, place: int) -> int:
    return place + int(struct.unpack_from("<I", metadata, place)[0])


def _field(metadata: bytes, table: int, number: int) -> int | None:
    """Return where a field of a flatbuffer's table lies; None where it is left out."""
    entries = table - int(struct.unpack_from("<i", metadata, table)[0])
    (size,) = struct.unpack_from("<H", metadata, entries)
    if 4 + 2 * number >= size:
        return None
    (offset,) = struct.unpack_from("<H", metadata, entries + 4 + 2 * number)
    return table + int(offset) if offset else None


def files_of_folder(folder: Path) -> list[Path]:
    """Return the Parquet files in a folder and below, in order of name; hidden ones, as of other programs, are not."""
    found = (path for path in folder.rglob("*.parquet") if path.is_file())
    return sorted(path for path in found if not _is_hidden(path.relative_to(folder)))


def _is_hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.parts)


def partition_columns(folder: Path, paths: list[Path]) -> pa.Schema:
    """Return the columns that the names of folders such as ``year=2024`` stand for, with types that fit all of them."""
    import pyarrow.parquet as pq

    with _explained(folder.name, "folder of Parquet files"):
        found = _dataset(folder, paths).schema
        own = set(pq.read_schema(paths[0]).names)
    return pa.schema([field for field in found if field.name not in own])


def _dataset(
    folder: Path, paths: list[Path], partitions: pa.Schema | None = None, schema: pa.Schema | None = None
) -> "ds.Dataset":
    import pyarrow.dataset as ds  # it loads pandas, where that is installed

    names, partitioning = [str(path) for path in paths], ds.partitioning(partitions, flavor="hive")
    return ds.dataset(names, schema, format="parquet", partitioning=partitioning, partition_base_dir=str(folder))


class FolderReader(TableReader):
    """A folder of Parquet files with the same columns, in order of name; folders named ``key=value`` are columns.

    Parameters
    ----------
    folder : Path
    paths : list of Path, optional
        Only these of its files.
    partitions : pyarrow.Schema, optional
        What :func:`partition_columns` found, where it is known already.
    """

    def __init__(self, folder: Path, paths: list[Path] | None = None, partitions: pa.Schema | None = None) -> None:
        name = folder.name or str(folder)
        paths = files_of_folder(folder) if paths is None else paths
        if not paths:
            raise TableError(
                f"{shown(folder)} is a folder without Parquet files: give a file, or a folder of *.parquet"
            )
        import pyarrow.parquet as pq

        schemas = []
        for path in paths:
            with _explained(path.name, "Parquet file"):
                schemas.append(pq.read_schema(path))
            if set(schemas[-1].names) != set(schemas[0].names):
                different = sorted(set(schemas[-1].names) ^ set(schemas[0].names))
                problem = f"{path.name} and {paths[0].name} in {name} have different columns ({listed(different)})"
                raise TableError(f"{problem}: give a folder whose files have the same")
        name = paths[0].name if len(paths) == 1 else name
        with _explained(name, "folder of Parquet files"):
            partitions = partition_columns(folder, paths) if partitions is None else partitions
            schema = pa.unify_schemas(schemas, promote_options="permissive")
            schema = pa.unify_schemas([schema, partitions])
            self._files, self._paths = _dataset(folder, paths, partitions, schema), paths
            columns = _types(schema, name)
        super().__init__(name, columns)

    def _read(self) -> pa.Table:
        with _explained(self.name, "folder of Parquet files"):
            for reader in self._one_by_one():
                reader.check_size()
            return _whole(self._files.to_table(), self.name, sum(path.stat().st_size for path in self._paths))

    def _one_by_one(self) -> Iterator[ParquetReader]:
        for path in self._paths:
            with path.open("rb") as file:
                yield ParquetReader(file, path.name)

    def _chunks(self, columns: Mapping[str, pa.DataType] | None, rows: int) -> Iterator[pa.RecordBatch]:
        names = None if columns is None else list(columns)
        with _explained(self.name, "folder of Parquet files"):
            at_once = min(one.rows_at_once(rows) for one in self._one_by_one())
            for batch in self._files.to_batches(
                columns=names, batch_size=at_once, batch_readahead=1, fragment_readahead=1
            ):
                yield _conform(_validated(batch), columns, self.name)
