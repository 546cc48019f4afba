"""How a CSV file is written: its delimiter and its header, found in its first lines."""

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass

from demur.columns.frames import check_names
from demur.columns.table_errors import TableError

__all__ = ["Dialect", "sniff"]

_DELIMITERS = ",;\t|"
_ROWS = 200
_SPACE_AGREEMENT = 0.9
_EXCEL_HINT = re.compile(r'"?sep=(.)"?\s*\Z')


@dataclass(frozen=True)
class Dialect:
    """A delimiter, the names in the header, and how many bytes the header takes.

    Parameters
    ----------
    delimiter : str
    names : tuple of str
        Without the white space around them.
    header_bytes : int
        Where the first row begins, in UTF-8.
    """

    delimiter: str
    names: tuple[str, ...]
    header_bytes: int


def sniff(head: str, name: str, delimiter: str | None = None) -> Dialect:
    r"""Find the delimiter that splits the first lines into the most regular table, and read the header with it.

    Parameters
    ----------
    head : str
        The first lines, whole.
    name : str
        What messages call the file.
    delimiter : str, optional
        To be used instead of looking for one.

    Examples
    --------
    >>> sniff("a;b\n1,5;2,5\n", "data.csv")
    Dialect(delimiter=';', names=('a', 'b'), header_bytes=4)
    >>> sniff("a,a\n1,2\n", "data.csv")
    Traceback (most recent call last):
    demur.columns.table_errors.TableError: data.csv has more than one column named 'a': give each column its own name
    """
    first = head.splitlines()[0] if head else ""
    hint = _EXCEL_HINT.fullmatch(first)
    if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n'):
        raise TableError(f"the delimiter {delimiter!r} cannot split rows: give one character, such as ';'")
    delimiter = delimiter or (hint.group(1) if hint else _regular(head))
    lines = _Lines(head)
    records = csv.reader(lines, delimiter=delimiter)
    if hint:
        next(records)
    try:
        header = next(record for record in records if record)
    except (StopIteration, csv.Error) as error:
        problem = f"{name} has no header: its first line must name the columns"
        raise TableError(problem) from error
    names = tuple(column.strip() for column in header)
    check_names(names, name)
    return Dialect(delimiter, names, lines.n_bytes)


class _Lines:
    """Lines for a CSV reader, counting the bytes of those that it has taken."""

    def __init__(self, text: str) -> None:
        self._text = io.StringIO(text, newline="")
        self.n_bytes = 0

    def __iter__(self) -> Iterator[str]:
        for line in self._text:
            self.n_bytes += len(line.encode())
            yield line


def _regular(head: str) -> str:
    scores = {delimiter: _agreement(head, delimiter) for delimiter in _DELIMITERS}
    best = max(scores, key=lambda delimiter: scores[delimiter])  # the first of equals: comma before semicolon
    # Spaces stand inside names and texts, so that they split rows only where nothing else can.
    if scores[best] == (0.0, 0) and _agreement(head, " ")[0] >= _SPACE_AGREEMENT:
        return " "
    return best


def _agreement(head: str, delimiter: str) -> tuple[float, int]:
    """Return how many of the rows have as many fields as the header, and that number; nothing if it is one."""
    sizes: list[int] = []
    try:
        for record in csv.reader(io.StringIO(head, newline=""), delimiter=delimiter):
            if record:
                sizes.append(len(record))
            if len(sizes) > _ROWS:
                break
    except csv.Error:
        pass  # a field beyond the module's limit: the rows before it are enough
    if not sizes or sizes[0] < 2:
        return 0.0, 0
    rows = sizes[1:]
    return (sum(size == sizes[0] for size in rows) / len(rows) if rows else 1.0), sizes[0]
