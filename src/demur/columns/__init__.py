"""Columns of a table in memory: their types, and their encoding as numbers."""

from demur.columns.frames import TableError, TableWarning, as_table
from demur.columns.schema import Column, Schema

__all__ = ["Column", "Schema", "TableError", "TableWarning", "as_table"]
