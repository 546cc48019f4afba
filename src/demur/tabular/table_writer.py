"""Write a table batch by batch, as CSV, Parquet or Arrow; the file appears under its name once it is whole."""

import csv
import io
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Literal, Self, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from demur.columns.frames import TableError, listed, shown
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

    Until then they are in a file that ends in ``.part``, in the same folder; an exception removes it.

    Parameters
    ----------
    target : path or "-"
        ``"-"`` is standard output, which only CSV and TSV are written to.
    format : {"csv", "tsv", "parquet", "arrow"}, optional
        Without it, the suffix of the name tells; CSV for standard output. ``.gz``, ``.bz2`` and ``.zst`` after the
        suffix of a text format compress it.
    overwrite : bool, default False
        Whether a file that is already there is replaced.
    inputs : paths
        Files and folders that are being read, which are never written to.
    spreadsheet_safe : bool, default False
        Whether text in a CSV file that a spreadsheet would compute, since it begins with = + - or @, gets an
        apostrophe in front. Numbers stay as they are.

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
        self._guards = spreadsheet_safe
        self._path = None if str(target) == "-" else Path(target)
        self._codec = None if self._path is None else _CODECS.get(self._path.suffix.lower())
        self.format: WriteFormat = _format_of(self._path) if format is None else format
        self._check_format()
        self._overwrite = overwrite
        self._inputs = list(inputs)
        self._destination: _Destination | None = None
        self._sink: Any = None
        self._columnar: Any = None
        self._schema: pa.Schema | None = None

    @property
    def carries_types(self) -> bool:
        """Whether the format tells a reader the types of the columns."""
        return self.format not in _DELIMITERS

    def __enter__(self) -> Self:
        if self._path is None:
            self._sink = sys.stdout.buffer
            return self
        self._destination = _Destination(self._path, overwrite=self._overwrite, inputs=self._inputs)
        file = self._destination.file
        self._sink = pa.CompressedOutputStream(pa.PythonFile(file, "w"), self._codec) if self._codec else file
        return self

    def write(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Append rows; all batches have the columns of the first."""
        if self._sink is None:
            raise TableError("the writer is not open: use it as in 'with TableWriter(path) as writer'")
        if self._schema is None:
            self._begin(batch.schema)
        elif not batch.schema.equals(self._schema):
            problem = (
                f"rows with the columns {listed(batch.schema.names)} follow rows with {listed(self._schema.names)}"
            )
            raise TableError(f"{problem}, or of another type: write batches with the same columns")
        with self._explained():
            if self._columnar is None:
                self._sink.write(_csv_rows(_guarded(batch) if self._guards else batch, _DELIMITERS[self.format]))
            else:
                self._columnar.write(batch)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._discard()
            return
        try:
            if self._schema is None:
                raise TableError("no rows were written: there is nothing to save")
            with self._explained():
                self._finish()
        except BaseException:
            self._discard()
            raise

    def _begin(self, schema: pa.Schema) -> None:
        self._schema = schema
        if self.format == "parquet":
            import pyarrow.parquet as pq  # it takes a while to import

            self._columnar = pq.ParquetWriter(self._sink, schema)
        elif self.format == "arrow":
            self._columnar = pa.ipc.new_file(self._sink, schema)
        else:
            line = io.StringIO()
            csv.writer(line, delimiter=_DELIMITERS[self.format], lineterminator="\n").writerow(
                [_guarded_text(name) for name in schema.names] if self._guards else schema.names
            )
            self._sink.write(line.getvalue().encode())

    def _finish(self) -> None:
        if self._columnar is not None:
            self._columnar.close()
        elif self._codec:
            self._sink.close()
        else:
            self._sink.flush()
        if self._destination is not None:
            self._destination.commit()

    def _discard(self) -> None:
        if self._columnar is not None:
            with suppress(Exception):  # it would try again when Python forgets it, on a file that is gone
                self._columnar.close()
        if self._destination is not None:
            self._destination.discard()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Say which file could not be written; a reader of standard output that went away is the caller's matter."""
        try:
            yield
        except OSError as error:
            if self._path is None:
                raise
            reason = error.strerror or error
            raise TableError(f"{shown(self._path)} cannot be written ({reason}): check the disk") from error

    def _check_format(self) -> None:
        if self.format not in _SUFFIXES.values():
            raise TableError(f"tables are not written as {shown(self.format)}: choose csv, tsv, parquet or arrow")
        if self.format not in _DELIMITERS and (self._path is None or self._codec):
            where = "standard output" if self._path is None else f"a compressed file such as {self._path.name}"
            raise TableError(f"{self.format} is not written to {where}: choose csv, or the name of a plain file")


def _format_of(path: Path | None) -> WriteFormat:
    if path is None:
        return "csv"
    plain = path.with_suffix("") if path.suffix.lower() in _CODECS else path
    if path.exists() and not path.is_file():
        return "csv"  # /dev/stdout and pipes
    try:
        return _SUFFIXES[plain.suffix.lower()]
    except KeyError:
        endings = ", ".join(_SUFFIXES)
        raise TableError(f"{shown(path.name)} does not tell its format: end it in one of {endings}") from None


_FORMULA = r"^[ \t\r\n]*[=+\-@\t\r]"
_NUMBER = r"^[-+]?([0-9]+[.,]?[0-9]*|[.,][0-9]+)([eE][-+]?[0-9]+)?$"


def _guarded(batch: pa.RecordBatch | pa.Table) -> pa.RecordBatch | pa.Table:
    """Put an apostrophe in front of text that a spreadsheet would take for a formula."""
    for position, field in enumerate(batch.schema):
        type_ = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if not (pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_)):
            continue
        text = pc.cast(batch.column(position), pa.string())
        risky = pc.and_not(pc.match_substring_regex(text, _FORMULA), pc.match_substring_regex(text, _NUMBER))
        guarded = pc.if_else(risky, pc.binary_join_element_wise("'", text, ""), text)
        batch = batch.set_column(position, field.name, guarded)
    return batch


def _guarded_text(text: str) -> str:
    return f"'{text}" if re.match(_FORMULA, text) and not re.match(_NUMBER, text) else text


def _csv_rows(batch: pa.RecordBatch | pa.Table, delimiter: str) -> bytes:
    """Return rows as CSV, quoted only if some text in them needs it."""
    for position, field in enumerate(batch.schema):
        if pa.types.is_dictionary(field.type):
            plain = pc.cast(batch.column(position), field.type.value_type)
            batch = batch.set_column(position, field.name, plain)
    for style in ("none", "needed"):
        rows = io.BytesIO()
        options = pacsv.WriteOptions(include_header=False, delimiter=delimiter, quoting_style=style)
        try:
            pacsv.write_csv(batch, rows, options)
            return rows.getvalue()
        except pa.ArrowInvalid as error:
            refusal = error
        except pa.ArrowNotImplementedError as error:
            raise TableError(f"these columns cannot be written as CSV ({error}): write Parquet") from error
    raise TableError(f"these rows cannot be written as CSV ({refusal}): write Parquet") from refusal


class _Destination:
    r"""A file to be written: under a name that ends in ``.part`` at first, renamed when it is complete.

    Parameters
    ----------
    path : Path
    overwrite : bool
        Whether a file that is already there is replaced.
    inputs : paths
        Files and folders that are being read, which are never written to.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "notes.txt"
    >>> destination = _Destination(path)
    >>> written = destination.file.write(b"done\n")
    >>> path.exists()
    False
    >>> destination.commit()
    >>> path.read_text()
    'done\n'
    """

    def __init__(self, path: Path, *, overwrite: bool = False, inputs: Iterable[str | os.PathLike[str]] = ()) -> None:
        self.path = path
        self._overwrite = overwrite
        self._check_inputs([Path(one) for one in inputs if str(one) != "-"])
        self._check_free()
        # A device or a pipe is written to directly: renaming a file onto /dev/null would replace it.
        self._in_place = path.exists() and not path.is_file()
        self._part = path if self._in_place else part_of(path)
        self.file: BinaryIO = self._open()

    def commit(self) -> None:
        """Put the file in its place."""
        try:
            self.file.close()
            if not self._in_place:
                with open(self._part, "rb+") as part:
                    os.fsync(part.fileno())  # so that a crash of the machine leaves no short file under the name
                self._check_free()  # another run may have written it meanwhile
                os.replace(self._part, self.path)
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Remove what has been written."""
        with suppress(OSError):  # what cannot be flushed to a full disk is not wanted any more
            self.file.close()
        if not self._in_place:
            self._part.unlink(missing_ok=True)

    def _open(self) -> BinaryIO:
        try:
            self._part.parent.mkdir(parents=True, exist_ok=True)
            return open(self._part, "wb" if self._in_place else "xb")
        except OSError as error:
            raise TableError(f"{shown(self.path)} cannot be written ({error.strerror}): choose another name") from error

    def _check_free(self) -> None:
        if self.path.is_dir():
            raise TableError(f"{shown(self.path)} is a folder: give the name of a file")
        if self.path.is_file() and not self._overwrite:
            raise TableError(f"{shown(self.path)} is already there: choose another name, or pass --force to replace it")

    def _check_inputs(self, inputs: list[Path]) -> None:
        for one in inputs:
            if one.is_dir():
                onto = one.resolve() in self.path.resolve().parents
            else:
                onto = one.exists() and self.path.exists() and one.samefile(self.path)
            if onto:
                raise TableError(f"{shown(self.path)} is what is being read: write to another name or folder")
