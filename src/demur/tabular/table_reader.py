"""What every format offers: the columns that a file has, the whole table, and the table in chunks."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Self

import pyarrow as pa

from demur.columns.column import plain_table
from demur.columns.table_errors import TableError, listed

__all__ = ["TableReader"]


class TableFormat(Enum):
    """The formats that tables are read from."""

    CSV = "CSV"
    PARQUET = "Parquet"
    ARROW_FILE = "Arrow file"
    ARROW_STREAM = "Arrow stream"


class TableReader(ABC):
    """An open table, which is read once: whole, or in chunks. It is its own context manager.

    Parameters
    ----------
    name : str
        What messages call the file.
    columns : dict of str to pyarrow.DataType or None
        Its columns in order, with their types; None in a CSV file, whose fields are text until they are read.

    Attributes
    ----------
    decimal : {".", ","} or None
        The decimal sign of a text file; None while nothing says so, and for files that carry their types.
    dayfirst : bool or None
        Whether dates such as 1.2.2024 begin with the day, likewise.
    """

    def __init__(self, name: str, columns: dict[str, pa.DataType | None]) -> None:
        self.name = name
        self.columns = columns
        self.closer: Callable[[], None] | None = None
        self.decimal: str | None = None
        self.dayfirst: bool | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        if self.closer is not None:
            self.closer()

    def read(self) -> pa.Table:
        """Return the whole table, its types decided over all rows."""
        table = plain_table(self._read())
        if not table.num_rows:
            raise self._no_rows()
        return table

    def chunks(self, columns: Mapping[str, pa.DataType] | None = None, rows: int = 65_536) -> Iterator[pa.RecordBatch]:
        """Return the table piece by piece, in bounded memory.

        Parameters
        ----------
        columns : dict of str to pyarrow.DataType, optional
            The columns to read, and the type of each. Without it all are read, those of a CSV file as text.
        rows : int, default 65536
            The most rows of a chunk.

        Yields
        ------
        pyarrow.RecordBatch
            With the columns in the order of ``columns``.
        """
        if columns is not None:
            missing = [name for name in columns if name not in self.columns]
            if missing:
                raise TableError(f"{self.name} has no column {listed(missing)}: it has {listed(self.columns)}")
        if rows < 1:
            raise TableError(f"a chunk of {rows} rows cannot be read: ask for at least one")
        empty = True
        for batch in self._chunks(columns, rows):
            plain = plain_table(batch)
            for start in range(0, plain.num_rows, rows):
                empty = False
                yield plain.slice(start, rows)
        if empty:
            raise self._no_rows()

    def _no_rows(self) -> TableError:
        return TableError(f"{self.name} has columns but no rows: give at least one row")

    @abstractmethod
    def _read(self) -> pa.Table: ...

    @abstractmethod
    def _chunks(self, columns: Mapping[str, pa.DataType] | None, rows: int) -> Iterator[pa.RecordBatch]: ...
