"""Which kind of file a table is, told by its first bytes and never by its name."""

import re
from enum import Enum

from demur.columns.table_errors import TableError

__all__ = ["Format", "recognise"]


class Format(Enum):
    """The formats that tables are read from."""

    CSV = "CSV"
    PARQUET = "Parquet"
    ARROW_FILE = "Arrow file"
    ARROW_STREAM = "Arrow stream"


_TABLES = {b"PAR1": Format.PARQUET, b"ARROW1": Format.ARROW_FILE, b"\xff\xff\xff\xff": Format.ARROW_STREAM}
_OTHERS = {
    b"PK\x03\x04": "a zip archive or an Excel workbook",
    b"PK\x05\x06": "an empty zip archive",
    b"\xd0\xcf\x11\xe0": "an Excel workbook",
    b"\x89PNG": "a PNG picture",
    b"\xff\xd8\xff": "a JPEG picture",
    b"GIF8": "a GIF picture",
    b"%PDF": "a PDF document",
    b"\x89HDF": "an HDF5 file",
    b"SQLite format 3": "an SQLite database",
    b"\x93NUMPY": "a NumPy array",
    b"FEA1": "a Feather file of version 1",
    b"PARE": "an encrypted Parquet file",
    b"ORC": "an ORC file",
    b"Obj\x01": "an Avro file",
    b"7z\xbc\xaf": "a 7z archive",
    b"Rar!": "a RAR archive",
    b"\x1f\x9d": "a file made by compress",
    b"\x80\x04\x95": "a Python pickle",
    b"\x80\x05\x95": "a Python pickle",
    b"\x7fELF": "a program",
}
_MARKUP = {
    re.compile(rb"\{\s*(\"|\}|$)|\[\s*[\[{\"\]]"): "JSON",
    re.compile(rb"<(!doctype|html|head|body)\b", re.IGNORECASE): "a web page",
    re.compile(rb"<\?xml"): "XML",
}
_ARCHIVE_MARK = slice(257, 262)  # where a tar archive says that it is one
# Control characters that no text file holds: all but tab, line feed, vertical tab, form feed and carriage return.
_CONTROLS = bytes(c for c in range(1, 32) if c not in b"\t\n\v\f\r")
_TOO_MANY_CONTROLS = 0.01


def recognise(head: bytes, name: str) -> Format:
    r"""Return the format of a table that begins with ``head``, or say what it is instead.

    Examples
    --------
    >>> recognise(b"a,b\n1,2\n", "data.csv"), recognise(b"PAR1\x15\x04", "data.csv")
    (<Format.CSV: 'CSV'>, <Format.PARQUET: 'Parquet'>)
    >>> recognise(b'[{"a": 1}]', "data.csv")
    Traceback (most recent call last):
    demur.columns.table_errors.TableError: data.csv looks like JSON: save it as CSV, Parquet or Arrow
    """
    for magic, table in _TABLES.items():
        if head.startswith(magic):
            return table
    found = next((what for magic, what in _OTHERS.items() if head.startswith(magic)), None)
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    found = found or next((what for pattern, what in _MARKUP.items() if pattern.match(text)), None)
    if head[_ARCHIVE_MARK] == b"ustar":
        found = "a tar archive"
    if found is None and not head.startswith((b"\xff\xfe", b"\xfe\xff")):
        controls = len(head) - len(head.translate(None, _CONTROLS))
        if controls > _TOO_MANY_CONTROLS * len(head):
            found = "binary data"
    if found:
        raise TableError(f"{name} looks like {found}: save it as CSV, Parquet or Arrow")
    return Format.CSV
