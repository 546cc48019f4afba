"""Reading rows that a model is judged on: with its columns as it knows them, and labels that are its classes."""

import io
import sys
from collections.abc import Collection
from typing import Any

import pyarrow as pa

from demur.columns.schema import Schema
from demur.columns.table_errors import TableError, listed, shown
from demur.tabular.labels import class_texts
from demur.tabular.reading import open_table, read_table

__all__ = ["read_labelled"]


def read_labelled(
    source: Any, schema: Schema, classes: Collection[str], *, delimiter: str | None = None, strict: bool = True
) -> Any:
    r"""Read a table with labels, each column as the type that the schema knows.

    What a file alone would suggest may differ: a text column with only numbers in it, or labels 01 and 02 beside which
    the training rows had others. Labels become text; one that is not a class as it is written is one as it is read.

    Parameters
    ----------
    source : path, "-" or seekable binary stream
    schema : Schema
        With its target.
    classes : names
        Of the model, as text.
    delimiter : str, optional
    strict : bool
        Whether extra and reordered columns are an error.

    Examples
    --------
    >>> from demur.tabular import Column
    >>> schema = Schema((Column("code", "category", ("A1", "7")),), target="y")
    >>> read_labelled(io.BytesIO(b"code,y\n7,01\n7,2.0\n"), schema, {"01", "2"}).to_pydict()
    {'code': ['7', '7'], 'y': ['01', '2']}
    """
    if isinstance(source, str) and source == "-":
        source = io.BytesIO(sys.stdin.buffer.read())  # it is read twice
        source.name = "standard input"
    target = str(schema.target)
    with open_table(source, delimiter=delimiter) as reader:
        schema.check(reader.columns, strict=strict, where=reader.name)
        if target not in reader.columns:
            problem = f"{reader.name} has no column {shown(target)} with the labels: it has {listed(reader.columns)}"
            raise TableError(f"{problem}; add it")
        types = {name: type_ or pa.string() for name, type_ in reader.columns.items()} | schema.arrow_types()
        typed = reader.columns[target] is not None
        table = pa.Table.from_batches(list(reader.chunks(types)))
    if typed:
        return table
    if hasattr(source, "seek"):
        source.seek(0)
    as_read = class_texts(read_table(source, delimiter=delimiter)[target]).tolist()
    as_written = table[target].to_pylist()
    known = set(classes)
    labels = [text if text in known else label for text, label in zip(as_written, as_read, strict=True)]
    position = table.schema.get_field_index(target)
    return table.set_column(position, target, pa.array(labels, pa.string()))
