"""Write a table batch by batch as CSV, Parquet or Arrow; the file appears under its name when it is complete."""

import csv
import io
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from demur.columns.frames import TableError, listed, plain_table, shown
from demur.whole_file import part_of

__all__ = ["TableWriter", "WriteFormat"]

WriteFormat: TypeAlias = Literal["csv", "tsv", "parquet", "arrow"]

_SUFFIXES: dict[str, WriteFormat] = {
    ".csv": "csv",
    ".txt": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
}
_CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
_DELIMITERS = {"csv": ",", "tsv": "\t"}


class TableWriter:
    """Write record batches to a file, which appears under its name once all are written.

    Until then they are in a hidden file beside it that ends in ``.part``; an exception removes that file. The folder of
    the file is created if it does not exist.

    Parameters
    ----------
    target : path or "-"
        ``"-"`` is standard output, for CSV and TSV only.
    format : {"csv", "tsv", "parquet", "arrow"}, optional
        By default the suffix of the name tells it, and standard output is CSV. ``.gz``, ``.bz2`` and ``.zst`` after the
        suffix of a text format compress it.
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
        target: str | os.PathLike[str],
        format: WriteFormat | None = None,
        *,
        overwrite: bool = False,
        inputs: Iterable[str | os.PathLike[str]] = (),
        spreadsheet_safe: bool = False,
    ) -> None:
        self._guards, self._overwrite = spreadsheet_safe, overwrite
        self._path = None if str(target) == "-" else Path(target)
        self._codec = None if self._path is None else _CODECS.get(self._path.suffix.lower())
        self.format: WriteFormat = _format_of(self._path) if format is None else format
        if self.format not in _SUFFIXES.values():
            raise TableError(f"tables are not written as {shown(self.format)}: choose csv, tsv, parquet or arrow")
        if self.format not in _DELIMITERS and (self._path is None or self._codec):
            where = "standard output" if self._path is None else f"a compressed file such as {self._path.name}"
            raise TableError(f"{self.format} is not written to {where}: choose csv, or the name of a plain file")
        self._inputs = [Path(one) for one in inputs if str(one) != "-"]
        self._part: Path | None = None
        self._file: Any = None
        self._sink: Any = None
        self._columnar: Any = None
        self._schema: pa.Schema | None = None

    def __enter__(self) -> Self:
        if self._path is None:
            self._sink = sys.stdout.buffer
            return self
        self._check_free()
        for one in self._inputs:
            same = one.exists() and self._path.exists() and one.samefile(self._path)
            if same or (one.is_dir() and one.resolve() in self._path.resolve().parents):
                raise TableError(f"{shown(self._path)} is what is being read: write to another name or folder")
        with self._explained():
            # A device or a pipe is written to directly: renaming a file onto /dev/null would replace it.
            if not self._path.exists() or self._path.is_file():
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._part = part_of(self._path)
            self._file = open(self._path if self._part is None else self._part, "wb")
        self._sink = pa.CompressedOutputStream(self._file, self._codec) if self._codec else self._file
        return self

    def write(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Append rows; all batches have the columns of the first."""
        if self._sink is None:
            raise TableError("the writer is not open: use it as in 'with TableWriter(path) as writer'")
        with self._explained():
            if self._schema is None:
                self._begin(batch.schema)
            elif not batch.schema.equals(self._schema):
                names, first = listed(batch.schema.names), listed(self._schema.names)
                problem = f"rows with the columns {names} follow rows with {first}, or of another type"
                raise TableError(f"{problem}: write batches with the same columns")
            if self._columnar is None:
                self._sink.write(_csv_rows(_guarded(batch) if self._guards else batch, _DELIMITERS[self.format]))
            else:
                self._columnar.write(batch)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                if self._schema is None:
                    raise TableError("no rows were written: there is nothing to save")
                with self._explained():
                    self._finish()
        finally:
            for one in (self._columnar, self._sink if self._codec else None, self._file):
                if one is not None:
                    with suppress(Exception):  # a full disk; and Arrow closes again what it has closed
                        one.close()
            if self._part is not None:
                self._part.unlink(missing_ok=True)

    def _begin(self, schema: pa.Schema) -> None:
        self._schema = schema
        if self.format == "parquet":
            import pyarrow.parquet as pq  # it takes a while to import

            self._columnar = pq.ParquetWriter(self._sink, schema)
        elif self.format == "arrow":
            self._columnar = pa.ipc.new_file(self._sink, schema)
        else:
            line = io.StringIO()
            names = _guarded(pa.table({"name": schema.names}))["name"].to_pylist() if self._guards else schema.names
            csv.writer(line, delimiter=_DELIMITERS[self.format], lineterminator="\n").writerow(names)
            self._sink.write(line.getvalue().encode())

    def _finish(self) -> None:
        if self._columnar is not None:
            self._columnar.close()
        if self._codec:
            self._sink.close()
        else:
            self._sink.flush()
        if self._part is not None and self._path is not None:
            self._file.close()
            with open(self._part, "rb+") as part:
                os.fsync(part.fileno())  # so that a crash of the machine leaves no short file under the name
            self._check_free()  # another run may have written it meanwhile
            os.replace(self._part, self._path)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Name the file that could not be written; a closed standard output is the caller's concern."""
        try:
            yield
        except OSError as error:
            if self._path is None:
                raise
            reason = error.strerror or error
            raise TableError(f"{shown(self._path)} cannot be written ({reason}): choose another place") from error

    def _check_free(self) -> None:
        if self._path is not None and self._path.is_dir():
            raise TableError(f"{shown(self._path)} is a folder: give the name of a file")
        if self._path is not None and self._path.is_file() and not self._overwrite:
            problem = f"{shown(self._path)} already exists"
            raise TableError(f"{problem}: choose another name, or pass --force to replace it")


def _format_of(path: Path | None) -> WriteFormat:
    if path is None or (path.exists() and not path.is_file()):  # standard output, devices and pipes
        return "csv"
    plain = path.with_suffix("") if path.suffix.lower() in _CODECS else path
    if plain.suffix.lower() not in _SUFFIXES:
        endings = ", ".join(_SUFFIXES)
        raise TableError(f"{shown(path.name)} does not tell its format: end it in one of {endings}")
    return _SUFFIXES[plain.suffix.lower()]


_FORMULA = r"^[ \t\r\n]*[=+\-@\t\r]."  # a single sign is no formula
_NUMBER = r"^[-+]?([0-9]+[.,]?[0-9]*|[.,][0-9]+)([eE][-+]?[0-9]+)?$"


def _guarded(batch: pa.RecordBatch | pa.Table) -> pa.RecordBatch | pa.Table:
    """Put an apostrophe in front of text that a spreadsheet would take for a formula."""
    batch = _written_out(batch)
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
    for position, field in enumerate(batch.schema):
        if pa.types.is_dictionary(field.type):
            batch = batch.set_column(position, field.name, pc.cast(batch.column(position), field.type.value_type))
    return batch


def _csv_rows(batch: pa.RecordBatch | pa.Table, delimiter: str) -> bytes:
    """Return rows as CSV, quoted only if some text in them needs it."""
    batch = _written_out(batch)
    for style in ("none", "needed"):
        rows = io.BytesIO()
        options = pacsv.WriteOptions(include_header=False, delimiter=delimiter, quoting_style=style)
        try:
            pacsv.write_csv(batch, rows, options)
            return rows.getvalue()
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            refusal = error
    raise TableError(f"these columns cannot be written as CSV ({refusal}): write Parquet") from refusal
