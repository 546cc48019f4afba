"""The columns of a table in memory: what they hold, and how they become numbers."""

from demur.columns.column import Column
from demur.columns.frames import TableError, TableWarning, as_table
from demur.columns.schema import Schema

__all__ = ["Column", "Schema", "TableError", "TableWarning", "as_table"]
