"""Parquet and Arrow: files that carry their types, one by one or as a folder."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TypeAlias

import pyarrow as pa

from demur.columns.column import as_type
from demur.columns.frames import check_names
from demur.columns.table_errors import TableError, listed, shown
from demur.tabular.table_sources import TableFormat, TableReader

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


def _seekable(stream: BinaryIO) -> BinaryIO | pa.BufferReader:
    """Return something Arrow can seek in: a pipe or a compressed file is held in memory."""
    try:
        seekable = stream.seekable()
    except AttributeError:
        seekable = False
    return stream if seekable else pa.BufferReader(stream.read())


class ParquetReader(TableReader):
    """One Parquet file, read row group by row group."""

    def __init__(self, stream: BinaryIO, name: str) -> None:
        import pyarrow.parquet as pq  # Parquet takes a while to import, and most tables are CSV

        with _explained(name, "Parquet file"):
            self._file = pq.ParquetFile(_seekable(stream))
            columns = _types(self._file.schema_arrow, name)
        super().__init__(name, columns)

    def _read(self) -> pa.Table:
        with _explained(self.name, "Parquet file"):
            return _validated(self._file.read())

    def _chunks(self, columns: Mapping[str, pa.DataType] | None, rows: int) -> Iterator[pa.RecordBatch]:
        with _explained(self.name, "Parquet file"):
            # One row group at a time: over several, Arrow keeps what it has read until the last.
            for group in range(self._file.num_row_groups):
                for batch in self._file.iter_batches(rows, [group], columns=None if columns is None else list(columns)):
                    yield _conform(_validated(batch), columns, self.name)


class ArrowReader(TableReader):
    """An Arrow file (Feather) or an Arrow stream, read record batch by record batch."""

    def __init__(self, stream: BinaryIO, name: str, format_: TableFormat) -> None:
        self._format = format_
        with _explained(name, format_.value):
            if format_ is TableFormat.ARROW_FILE:
                self._file: pa.RecordBatchFileReader | pa.RecordBatchStreamReader = pa.ipc.open_file(_seekable(stream))
            else:
                self._file = pa.ipc.open_stream(stream)
            columns = _types(self._file.schema, name)
        super().__init__(name, columns)

    def _read(self) -> pa.Table:
        with _explained(self.name, self._format.value):
            return _validated(self._file.read_all())

    def _chunks(self, columns: Mapping[str, pa.DataType] | None, rows: int) -> Iterator[pa.RecordBatch]:
        with _explained(self.name, self._format.value):
            for batch in self._batches():
                yield _conform(_validated(batch), columns, self.name)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        if self._format is TableFormat.ARROW_STREAM:
            yield from self._file
        else:
            for position in range(self._file.num_record_batches):
                yield self._file.get_batch(position)


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
            self._files = _dataset(folder, paths, partitions, schema)
            columns = _types(schema, name)
        super().__init__(name, columns)

    def _read(self) -> pa.Table:
        with _explained(self.name, "folder of Parquet files"):
            return _validated(self._files.to_table())

    def _chunks(self, columns: Mapping[str, pa.DataType] | None, rows: int) -> Iterator[pa.RecordBatch]:
        names = None if columns is None else list(columns)
        with _explained(self.name, "folder of Parquet files"):
            for batch in self._files.to_batches(
                columns=names, batch_size=rows, batch_readahead=1, fragment_readahead=1
            ):
                yield _conform(_validated(batch), columns, self.name)
