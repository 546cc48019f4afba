"""Write a table batch by batch as CSV, Parquet or Arrow; the file appears under its name when it is complete."""

import csv
import io
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from demur.array_types import FilePath
from demur.columns.frames import TableError, decoded, plain_table, shown
from demur.whole_file import open_whole

_SUFFIXES = {
    ".csv": "csv",
    ".txt": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
}
_CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}


class TableWriter:
    """Write record batches to a file, which appears under its name once all are written.

    Until then they are in a hidden file beside it that ends in ``.part``; an exception removes that file. The folder of
    the file is created if it does not exist.

    Parameters
    ----------
    target : path or "-"
        File to write. The suffix sets the format: ``.csv``, ``.tsv``, ``.parquet`` or ``.arrow``; a text format is
        compressed by ``.gz``, ``.bz2`` or ``.zst`` after it. ``"-"`` is standard output, as CSV.
    overwrite : bool, default False
        Whether to replace an existing file.
    inputs : paths
        Files and folders that are being read, which are never written to.
    spreadsheet_safe : bool, default False
        Whether text in a CSV file that a spreadsheet would run as a formula, because it begins with = + - or @, gets an
        apostrophe in front. Numbers are not changed. Tables that people open in a spreadsheet should set it;
        :func:`open_table` removes the apostrophe again.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "decisions.csv"
    >>> with TableWriter(path) as writer:
    ...     writer.write(pa.record_batch({"label": ["cat", "dog"], "rejected": [False, True]}))
    >>> print(path.read_text(), end="")
    label,rejected
    cat,false
    dog,true
    """

    def __init__(
        self,
        target: FilePath,
        *,
        overwrite: bool = False,
        inputs: Iterable[FilePath] = (),
        spreadsheet_safe: bool = False,
    ) -> None:
        self._guards, self._overwrite = spreadsheet_safe, overwrite
        self._path = None if str(target) == "-" else Path(target)
        self._inputs = [Path(one) for one in inputs if str(one) != "-"]
        self._format, self._codec = _format_of(self._path)
        self._stack = ExitStack()
        self._sink: Any = None
        self._columnar: Any = None
        self._schema: pa.Schema | None = None
        self.delimiter: str | None = None
        """The delimiter of a .csv file; a comma by default."""

    def __enter__(self) -> Self:
        with self._explained():
            self._sink = self._stack.enter_context(self._opened())
            if self._codec:
                self._sink = self._stack.enter_context(pa.CompressedOutputStream(self._sink, self._codec))
        return self

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        """Open the file, or standard output; a file gets its name after the last byte is on the disk."""
        if self._path is None:
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
            return
        if self._path.exists() and not (self._path.is_file() or self._path.is_dir()):
            with open(self._path, "wb") as device:  # renaming a file onto /dev/null would replace it
                yield device
            return
        self._check_free()
        for one in self._inputs:
            same = one.exists() and self._path.exists() and one.samefile(self._path)
            if same or (one.is_dir() and one.resolve() in self._path.resolve().parents):
                raise TableError(f"{shown(self._path)} is the file that is being read: write to another name or folder")
        with open_whole(self._path) as file:
            yield file
            self._check_free()  # another run may have written it meanwhile

    def write(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Append rows; all batches have the columns of the first."""
        with self._explained():
            if self._schema is None:
                self._begin(batch.schema)
            if self._columnar is None:
                batch = _written_out(batch)
                self._sink.write(_csv_rows(_guarded(batch) if self._guards else batch, self._between))
            else:
                self._columnar.write(batch)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._stack.__exit__(kind, error, trace)
            return
        with self._explained(), self._stack:
            if self._schema is None:
                raise TableError("no rows were written: there is nothing to save")

    def _begin(self, schema: pa.Schema) -> None:
        self._schema, self._between = schema, "\t" if self._format == "tsv" else self.delimiter or ","
        if self._format == "parquet":
            import pyarrow.parquet as pq  # it takes a while to import

            self._columnar = self._stack.enter_context(pq.ParquetWriter(self._sink, schema))
        elif self._format == "arrow":
            self._columnar = self._stack.enter_context(pa.ipc.new_file(self._sink, schema))
        else:
            line = io.StringIO()
            names = _guarded(pa.table({"name": schema.names}))["name"].to_pylist() if self._guards else schema.names
            csv.writer(line, delimiter=self._between, lineterminator="\n").writerow(names)
            self._sink.write(line.getvalue().encode())

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Convert a write error to one that names the file; errors of a closed standard output pass through."""
        try:
            yield
        except OSError as error:
            if self._path is None:
                raise
            reason = error.strerror or error
            raise TableError(f"{shown(self._path)} cannot be written ({reason}): choose another place") from error

    def _check_free(self) -> None:
        assert self._path is not None
        if self._path.is_dir():
            raise TableError(f"{shown(self._path)} is a folder: give the name of a file")
        if self._path.is_file() and not self._overwrite:
            raise TableError(f"{shown(self._path)} already exists: choose another name, or pass --force to replace it")


def _format_of(path: Path | None) -> tuple[str, str | None]:
    """Return the format and the compression of a file name."""
    if path is None or (path.exists() and not path.is_file()):  # standard output, devices and pipes
        return "csv", None
    codec = _CODECS.get(path.suffix.lower())
    found = _SUFFIXES.get((path.with_suffix("") if codec else path).suffix.lower())
    if found is None or (codec and found not in ("csv", "tsv")):
        raise TableError(
            f"{shown(path.name)} has an unknown format: use one of {', '.join(_SUFFIXES)}; only text can be compressed"
        )
    return found, codec


_FORMULA = r"^[ \t\r\n]*[=+\-@\t\r]."  # a single sign is no formula
_NUMBER = r"^[-+]?([0-9]+[.,]?[0-9]*|[.,][0-9]+)([eE][-+]?[0-9]+)?$"


def _guarded(batch: pa.RecordBatch | pa.Table) -> pa.RecordBatch | pa.Table:
    """Put an apostrophe in front of text that a spreadsheet would take for a formula."""
    for position, field in enumerate(batch.schema):
        if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
            text = batch.column(position)
            risky = pc.and_not(pc.match_substring_regex(text, _FORMULA), pc.match_substring_regex(text, _NUMBER))
            guarded = pc.if_else(risky, pc.binary_join_element_wise("'", text, ""), text)
            batch = batch.set_column(position, field.name, guarded)
    return batch


def _written_out(batch: pa.RecordBatch | pa.Table) -> pa.RecordBatch | pa.Table:
    """Return columns that CSV can hold: dictionaries are replaced by their values."""
    batch = plain_table(batch)
    return type(batch).from_arrays([decoded(column) for column in batch.columns], names=batch.schema.names)


def _csv_rows(batch: pa.RecordBatch | pa.Table, delimiter: str) -> bytes:
    """Return rows as CSV, quoted only if some text in them needs it."""
    for style in ("none", "needed"):
        rows = io.BytesIO()
        options = pacsv.WriteOptions(include_header=False, delimiter=delimiter, quoting_style=style)
        try:
            pacsv.write_csv(batch, rows, options)
            return rows.getvalue()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            refusal = error
    raise TableError(f"these columns cannot be written as CSV ({refusal}): write Parquet") from refusal
