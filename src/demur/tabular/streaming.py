"""Deciding for a whole file, a piece at a time."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from demur.columns.table_errors import TableError
from demur.tabular.reader import TableReader
from demur.tabular.reading import open_table
from demur.tabular.table_model import ANSWER_COLUMNS, TableModel
from demur.tabular.writing import TableWriter

__all__ = ["Decided", "decide_file"]

_IN_FLIGHT = 3
"""Pieces that are in memory at once: one being read, one being decided, one being written."""


@dataclass(frozen=True)
class Decided:
    """How many rows were read, and how many of them were declined."""

    rows: int = 0
    rejected: int = 0

    def __add__(self, other: "Decided") -> "Decided":
        return Decided(self.rows + other.rows, self.rejected + other.rejected)


def decide_file(
    model: TableModel,
    source: Any,
    target: Any,
    *,
    cost: float | None = None,
    keep: Sequence[str] | None = (),
    strict: bool = True,
    overwrite: bool = False,
    delimiter: str | None = None,
    chunk_rows: int = 65_536,
    progress: Callable[[int], Any] = lambda rows: None,
) -> Decided:
    r"""Read rows, decide for each, and write the answers in the same order, in bounded memory.

    Nothing is written unless the columns are those that the model was fitted on; and the file appears under its name
    only when it is complete.

    Parameters
    ----------
    model : TableModel
    source : path, "-" or binary stream
        As :func:`~demur.tabular.open_table` takes it.
    target : path or "-"
        As :class:`~demur.tabular.TableWriter` takes it.
    cost : float, optional
        Another than the model's, where it may move.
    keep : sequence of str, or None
        Columns of the source to copy in front of the answers; None copies all.
    strict : bool
        Whether extra and reordered columns are an error.
    overwrite : bool
    delimiter : str, optional
    chunk_rows : int
        Rows in memory at a time.
    progress : callable
        Called with the number of rows just written.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from demur.tabular import fit_table
    >>> table = pa.table({"size": [1.0, 1.2, 5.0, 5.2] * 30, "pet": ["cat", "cat", "dog", "dog"] * 30})
    >>> model = fit_table(table, "pet", model="lr")
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "new.csv").write_text("name,size\nTom,1.1\nRex,5.1\n")
    >>> decide_file(model, folder / "new.csv", folder / "out.csv", keep=["name"], strict=False)
    Decided(rows=2, rejected=0)
    >>> (folder / "out.csv").read_text().splitlines()[0]
    'name,prediction,rejected,confidence,first_choice,second_choice'
    """
    with open_table(source, delimiter=delimiter) as reader:
        model.schema.check(reader.columns, strict=strict, where=reader.name)
        kept = _kept(reader, keep)
        kept_types = {name: reader.columns[name] or pa.string() for name in kept}
        types = {**kept_types, **model.schema.arrow_types()}
        if cost is not None:
            model.check_cost(cost)
        inputs = [] if str(source) == "-" or hasattr(source, "read") else [source]
        total = Decided()

        def answer(chunk: Any) -> tuple[Any, Decided]:
            answers = model.answers(chunk, cost, where=reader.name)
            columns = [chunk.column(name) for name in kept] + [column.combine_chunks() for column in answers.columns]
            rejected = int(answers.column("rejected").to_numpy().sum())
            return pa.record_batch(columns, names=[*kept, *ANSWER_COLUMNS]), Decided(chunk.num_rows, rejected)

        with TableWriter(target, overwrite=overwrite, inputs=inputs) as writer:
            for batch, count in _in_order(answer, reader.chunks(types, chunk_rows)):
                writer.write(batch)
                total += count
                progress(count.rows)
        return total


def _kept(reader: TableReader, keep: Sequence[str] | None) -> list[str]:
    names = list(reader.columns) if keep is None else list(dict.fromkeys(keep))
    missing = [name for name in names if name not in reader.columns]
    if missing:
        raise TableError(f"{reader.name} has no column {missing[0]!r} to keep: it has {', '.join(reader.columns)}")
    clashes = [name for name in names if name in ANSWER_COLUMNS]
    if clashes:
        raise TableError(
            f"{reader.name} has a column {clashes[0]!r} to keep, which is also the name of an answer: rename it, or "
            "keep other columns"
        )
    return names


def _in_order(function: Callable[[Any], Any], chunks: Iterable[Any]) -> Iterator[Any]:
    """Apply a function to chunks on a second thread while others are read and written, keeping their order."""
    waiting: deque[Future[Any]] = deque()
    with ThreadPoolExecutor(max_workers=_IN_FLIGHT - 1) as pool:
        try:
            for chunk in chunks:
                waiting.append(pool.submit(function, chunk))
                if len(waiting) >= _IN_FLIGHT:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
