"""Decide for the rows of a file in chunks."""

import os
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from demur.array_types import AnyArray, ByName, FilePath, Prices
from demur.columns.frames import Batches, TableError, check_columns
from demur.deferral import Capacity
from demur.rules import Decision
from demur.tabular.review_queue import rows_to_review, savings
from demur.tabular.table_files import Source, TableReader, open_raw, open_table, source_name
from demur.tabular.table_model import TableModel, is_rejected
from demur.tabular.table_writer import TableWriter

_Chunk = TypeVar("_Chunk")
_Answer = TypeVar("_Answer")

SAVES = "saves"
"""The column with the expected saving of a review."""

BECAUSE = "because"
"""The column with the columns that explain a declined row."""

_IN_FLIGHT = 3
"""Chunks in memory at once: one being read, one being decided, one being written."""


@dataclass(frozen=True)
class Decided:
    """The number of rows that were read, and how many of them were declined."""

    rows: int
    rejected: int


@dataclass(frozen=True)
class DecideOptions:
    """Options of the decisions, and the columns to write.

    Parameters
    ----------
    cost : float, optional
        Cost of declining, if it differs from the model's.
    prices : mapping of names to float, optional
        Prices of asking experts, if they differ from the model's.
    capacity : mapping of names to int or float, optional
        Largest number of rows for an expert, or None for no limit, instead of the model's own limits. The rows are then
        assigned together at the least expected cost, and read twice.
    review_budget : int or float, optional
        Number or share of rows to decline: those whose review saves most, as :func:`~demur.tabular.rows_to_review`
        chooses them. All others are answered, and a last column ``saves`` has the expected saving of each review. The
        rows are read twice.
    proba : bool, default False
        Whether to write the calibrated probability of each class, in columns ``proba:<class>``.
    why : bool, default False
        Whether to write the columns that explain a declined row, in a column ``because``.
    keep : sequence of str, or None
        Columns to copy unchanged in front of the answers; None copies all. Cells of a CSV file are copied as text.
    strict : bool, default True
        Whether extra columns are an error.
    chunk_rows : int
        Rows in memory at a time.
    delimiter : str, optional
        Delimiter of a CSV file. By default it is detected.
    decimal, dayfirst : optional
        Notation of a CSV file; by default that of the file that the model was fitted on.

    Examples
    --------
    >>> DecideOptions(cost=0.1, keep=["id"]).proba
    False
    """

    cost: float | None = None
    prices: Prices | None = None
    capacity: Mapping[str, float | None] | None = None
    review_budget: float | None = None
    proba: bool = False
    why: bool = False
    keep: Sequence[str] | None = ()
    strict: bool = True
    chunk_rows: int = 65_536
    delimiter: str | None = None
    decimal: str | None = None
    dayfirst: bool | None = None


def decide_file(
    model: TableModel,
    source: Source,
    target: FilePath,
    options: DecideOptions | None = None,
    *,
    overwrite: bool = False,
    spreadsheet_safe: bool = False,
    progress: Callable[[int], object] = lambda rows: None,
) -> Decided:
    r"""Read rows, decide for each, and write the answers in the same order, in bounded memory.

    A CSV file is written with the delimiter of the one that is read.

    Nothing is written unless the columns are those that the model was fitted on, and the file appears under its name
    only when it is complete.

    Parameters
    ----------
    model : TableModel
    source : path, "-" or binary stream
        As for :func:`~demur.tabular.open_table`.
    target : path or "-"
        As for :class:`~demur.tabular.TableWriter`.
    options : DecideOptions, optional
    overwrite, spreadsheet_safe : bool
        As for :class:`~demur.tabular.TableWriter`.
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
    >>> decide_file(model, folder / "new.csv", folder / "out.csv", DecideOptions(keep=["name"], strict=False))
    Decided(rows=2, rejected=0)
    >>> (folder / "out.csv").read_text().splitlines()[0]
    'name,prediction,rejected,confidence,first_choice,second_choice,reason'
    """
    options = options or DecideOptions()
    inputs = [] if hasattr(source, "read") else [str(source)]
    writer = TableWriter(target, overwrite=overwrite, inputs=inputs, spreadsheet_safe=spreadsheet_safe)
    limits = _limits(model, options)
    notation = model.schema.notation_with({"decimal": options.decimal, "dayfirst": options.dayfirst})
    with ExitStack() as stack:
        if options.review_budget is not None or limits:
            source = _to_be_read_twice(source, stack)

        def opened() -> TableReader:
            return stack.enter_context(open_table(source, delimiter=options.delimiter, **notation))

        reader = opened()
        plan: dict[str, AnyArray] = {}
        kept, rows, rejected = _checked(model, reader, options), 0, 0
        if options.review_budget is not None or limits:
            plan, reader = _plan(model, reader, options, limits), opened()
        writer.delimiter = reader.delimiter
        stack.enter_context(writer)
        for batch in _decided(model, reader, kept, options, plan):
            writer.write(batch)
            rows += batch.num_rows
            rejected += pc.sum(is_rejected(batch)).as_py()
            progress(batch.num_rows)
    return Decided(rows, rejected)


def _limits(model: TableModel, options: DecideOptions) -> dict[str, float]:
    """Return the limits that apply: the model's own, replaced by those that are given."""
    if options.capacity and not model.asks_experts:
        raise TableError("this model has no experts to limit: fit it with experts")
    if options.review_budget is not None and model.asks_experts:
        raise TableError("a review budget is for models that decline, and this one asks experts: limit the experts")
    both: dict[str, float | None] = {**model.experts.limits, **(options.capacity or {})}
    Capacity({name: limit or 0 for name, limit in both.items()}).check_names(list(model.experts.columns))
    return {name: limit for name, limit in both.items() if limit is not None}


def _plan(model: TableModel, reader: TableReader, options: DecideOptions, limits: Prices) -> dict[str, AnyArray]:
    """Read all rows, and choose those to review, or assign them to experts at the least expected cost.

    The result has ``review`` and ``saves``, what each review saves, or ``ask``, the expert to ask.
    """
    chunks = reader.chunks(model.schema.arrow_types(), options.chunk_rows)
    if options.review_budget is not None:
        saves = np.concatenate([savings(model, chunk, options.cost, where=reader.name) for chunk in chunks])
        return {SAVES: saves, "review": rows_to_review(saves, options.review_budget)}
    decided = (model.decide_and_score(chunk, prices=options.prices, where=reader.name)[0] for chunk in chunks)
    costs = np.concatenate([one.costs for one in decided if one.costs is not None])
    nothing = np.zeros(len(costs))
    decision = Decision(nothing, nothing, nothing, nothing, costs=costs)
    return {"ask": np.asarray(Capacity(limits).assign(decision, model.experts.columns).ask)}


def _checked(model: TableModel, reader: TableReader, options: DecideOptions) -> list[str]:
    """Refuse a table or options that are not for this model; return the names of the columns to keep."""
    model.schema.check(reader.columns, strict=options.strict, where=reader.name)
    names = list(reader.columns) if options.keep is None else list(dict.fromkeys(options.keep))
    check_columns(names, reader.columns, reader.name, " to keep")
    written = {*model.answer_columns(reader.columns), *(model.proba_columns if options.proba else ())}
    more = {SAVES: options.review_budget is not None, BECAUSE: options.why}
    clashes = [name for name in names if name in written or more.get(name)]
    if clashes:
        problem = f"{reader.name} has a column {clashes[0]!r} to keep, which is also the name of an answer"
        raise TableError(f"{problem}: rename it, or keep other columns")
    return names


def _decided(
    model: TableModel, reader: TableReader, kept: list[str], options: DecideOptions, plan: Mapping[str, AnyArray]
) -> Batches:
    """Return the columns to write, chunk by chunk."""
    said = {name: reader.columns[name] or pa.string() for name in model.experts.owners if name in reader.columns}

    def numbered() -> Iterator[tuple[int, pa.RecordBatch, pa.RecordBatch]]:
        first = 0
        for chunk, copies in reader.chunks_and_copies(said | model.schema.arrow_types(), kept, options.chunk_rows):
            yield first, chunk, copies
            first += chunk.num_rows

    def answer(part: tuple[int, pa.RecordBatch, pa.RecordBatch]) -> pa.RecordBatch:
        first, chunk, copies = part
        rows = slice(first, first + chunk.num_rows)
        chosen = {name: values[rows] for name, values in plan.items()}
        saves = {SAVES: pa.array(chosen.pop(SAVES))} if SAVES in chosen else {}
        place: ByName = {"where": reader.name, "first": first, **chosen}
        answers = model.answers(chunk, options.cost, proba=options.proba, prices=options.prices, **place)
        columns = {name: copies.column(name) for name in kept}
        columns |= {name: answers.column(name).combine_chunks() for name in answers.column_names}
        if options.why:
            found = model.because(chunk, is_rejected(answers), options.cost)
            columns[BECAUSE] = pa.array(map(_because_words, found), pa.string())
        return pa.record_batch(columns | saves)

    return _in_order(answer, numbered())


def _because_words(notes: list[dict[str, str]] | None) -> str | None:
    """Write the columns that explain a row.

    Examples
    --------
    >>> _because_words([{"column": "size", "note": "cat 98% with 1.2"}]), _because_words([])
    ('size: cat 98% with 1.2', 'no single column')
    """
    if notes is None:
        return None
    return "; ".join(f"{one['column']}: {one['note']}" for one in notes) or "no single column"


def _to_be_read_twice(source: Source, stack: ExitStack) -> Source:
    """Return a source that can be opened again: a stream is copied to a temporary file."""
    if isinstance(source, str | os.PathLike) and source != "-":
        return source
    copy = Path(stack.enter_context(tempfile.TemporaryDirectory()), source_name(source))
    with copy.open("wb") as file:
        shutil.copyfileobj(open_raw(source), file)
    return copy


def _in_order(function: Callable[[_Chunk], _Answer], chunks: Iterable[_Chunk]) -> Iterator[_Answer]:
    """Apply a function to chunks on a second thread while other chunks are read and written, in order."""
    waiting: deque[Future[_Answer]] = deque()
    with ThreadPoolExecutor(max_workers=_IN_FLIGHT - 1) as pool:
        for chunk in chunks:
            waiting.append(pool.submit(function, chunk))
            if len(waiting) >= _IN_FLIGHT:
                yield waiting.popleft().result()
        for future in waiting:
            yield future.result()
