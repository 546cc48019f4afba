"""Tables: read from files, understood as features, encoded as numbers, and written."""

from demur.tables.column import Column
from demur.tables.errors import TableError, TableWarning
from demur.tables.frames import as_table
from demur.tables.reader import TableReader
from demur.tables.reading import open_chunks, open_table, read_table
from demur.tables.schema import Schema
from demur.tables.writing import TableWriter

__all__ = [
    "Column",
    "Schema",
    "TableError",
    "TableReader",
    "TableWarning",
    "TableWriter",
    "as_table",
    "open_chunks",
    "open_table",
    "read_table",
]
