"""What every format offers: the columns that a file has, the whole table, and the table in chunks."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from demur.tables.errors import TableError, listed, shown
from demur.tables.plain_types import plain_array, plain_table

__all__ = ["TableReader", "as_type"]


class TableReader(ABC):
    """An open table, which is read once: whole, or in chunks. It is its own context manager.

    Parameters
    ----------
    name : str
        What messages call the file.
    columns : dict of str to pyarrow.DataType or None
        Its columns in order, with their types; None in a CSV file, whose fields are text until they are read.
    """

    def __init__(self, name: str, columns: dict[str, Any]) -> None:
        self.name = name
        self.columns = columns
        self.closer: Callable[[], None] | None = None

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

    def chunks(self, columns: Mapping[str, Any] | None = None, rows: int = 65_536) -> Iterator[pa.RecordBatch]:
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
    def _chunks(self, columns: Mapping[str, Any] | None, rows: int) -> Iterator[pa.RecordBatch]: ...


def as_type(values: Any, wanted: Any, column: str, where: str) -> Any:
    """Return an Arrow array as another type, or say which of its values is none of that type.

    Examples
    --------
    >>> as_type(pa.array(["1.5", None]), pa.float64(), "x", "data.parquet").to_pylist()
    [1.5, None]
    >>> as_type(pa.array(["1.5", "big"]), pa.float64(), "x", "data.parquet")
    Traceback (most recent call last):
    demur.tables.errors.TableError: data.parquet: column 'x' holds 'big', which is no number: correct it or ...
    """
    values = plain_array(values)
    if values.type == wanted:
        return values
    if pa.types.is_dictionary(values.type):
        return as_type(pc.cast(values, values.type.value_type), wanted, column, where)
    try:
        return pc.cast(values, wanted, safe=False)
    except pa.ArrowException as error:
        message = str(error)
        if "Failed to parse string: '" in message:
            value = message.split("'", 1)[1].rsplit("' as a scalar", 1)[0]
            raise no_such_value(where, column, value, wanted) from error
        problem = f"{where}: column {shown(column)} is {values.type}, which cannot be read as {type_in_words(wanted)}"
        raise TableError(f"{problem}: convert it, or fit again") from error


def no_such_value(where: str, column: str, value: str, wanted: Any, row: int | None = None) -> TableError:
    """Return the error for one value that is not of the type its column must have."""
    place = f"column {shown(column)}" + ("" if row is None else f", row {row:,},")
    return TableError(
        f"{where}: {place} holds {shown(value)}, which is no {type_in_words(wanted)}: correct it or leave it empty"
    )


def type_in_words(kind: Any) -> str:
    """Return the word for a type.

    Examples
    --------
    >>> type_in_words(pa.float64()), type_in_words(pa.string())
    ('number', 'text')
    """
    tests = {
        "number": lambda t: pa.types.is_integer(t) or pa.types.is_floating(t) or pa.types.is_decimal(t),
        "text": lambda t: pa.types.is_string(t) or pa.types.is_large_string(t) or pa.types.is_string_view(t),
        "date with a time zone, such as 2024-12-31T23:59Z": lambda t: pa.types.is_timestamp(t) and t.tz is not None,
        "date such as 2024-12-31 or 2024-12-31 23:59": lambda t: pa.types.is_date(t) or pa.types.is_timestamp(t),
        "time of day such as 23:59": lambda t: pa.types.is_time(t),
        "truth value such as true or false": pa.types.is_boolean,
    }
    return next((word for word, test in tests.items() if test(kind)), str(kind))
