"""Decide for the rows of a file in chunks, or for a folder of files on a Dask cluster."""

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
from numpy.typing import NDArray

from demur.array_types import ByName
from demur.columns.frames import TableError, listed, shown
from demur.deferral import Capacity
from demur.rules import Decision
from demur.tabular.review_queue import check_budget, rows_to_review, savings
from demur.tabular.table_files import ParquetFolder, Source, TableReader, open_raw, open_table, source_name
from demur.tabular.table_model import TableModel
from demur.tabular.table_writer import TableWriter
from demur.whole_file import move_into_place, part_of
from demur.workers import connect_dask, optional_dask

__all__ = ["DecideOptions", "Decided", "decide_file", "decide_folder"]

_Chunk = TypeVar("_Chunk")
_Answer = TypeVar("_Answer")

SAVES = "saves"
"""The column with the expected saving of a review."""

_IN_FLIGHT = 3
"""Chunks in memory at once: one being read, one being decided, one being written."""


@dataclass(frozen=True)
class Decided:
    """The number of rows that were read, and how many of them were declined."""

    rows: int = 0
    rejected: int = 0

    def __add__(self, other: "Decided") -> "Decided":
        return Decided(self.rows + other.rows, self.rejected + other.rejected)


@dataclass(frozen=True)
class DecideOptions:
    """What to decide and which columns to write.

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
    prices: Mapping[str, float] | None = None
    capacity: Mapping[str, float | None] | None = None
    review_budget: float | None = None
    proba: bool = False
    keep: Sequence[str] | None = ()
    strict: bool = True
    chunk_rows: int = 65_536
    delimiter: str | None = None
    decimal: str | None = None
    dayfirst: bool | None = None


def decide_file(
    model: TableModel,
    source: Source,
    target: str | os.PathLike[str],
    options: DecideOptions | None = None,
    *,
    overwrite: bool = False,
    spreadsheet_safe: bool = False,
    progress: Callable[[int], object] = lambda rows: None,
) -> Decided:
    r"""Read rows, decide for each, and write the answers in the same order, in bounded memory.

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
    inputs = [] if str(source) == "-" or hasattr(source, "read") else [str(source)]
    writer = TableWriter(target, overwrite=overwrite, inputs=inputs, spreadsheet_safe=spreadsheet_safe)
    limits = _limits(model, options.capacity)
    if options.review_budget is not None:
        check_budget(options.review_budget)
        if model.asks_experts:
            raise TableError("a review budget is for models that decline, and this one asks experts: limit those")
    decimal = model.schema.decimal if options.decimal is None else options.decimal
    dayfirst = model.schema.dayfirst if options.dayfirst is None else options.dayfirst
    with ExitStack() as stack:
        if options.review_budget is not None or limits:
            source = _to_be_read_twice(source, stack)

        def opened() -> TableReader:
            reader = open_table(source, delimiter=options.delimiter, decimal=decimal, dayfirst=dayfirst)
            return stack.enter_context(reader)

        reader = opened()
        kept = _checked(model, reader, options)
        ask = review = None
        if options.review_budget is not None:
            review, reader = _review(model, reader, kept, options), opened()
        elif limits:
            ask, reader = _assigned(model, reader, limits, options), opened()
        return _decide(model, reader, writer, kept, options, ask=ask, review=review, progress=progress)


def _limits(model: TableModel, capacity: Mapping[str, float | None] | None) -> dict[str, float]:
    """Return the limits that apply: the model's own, replaced by those that are given."""
    if capacity and not model.asks_experts:
        raise TableError("this model has no experts, so there is nothing to limit: fit it with experts")
    both: dict[str, float | None] = {**model.experts.limits, **(capacity or {})}
    Capacity({name: limit or 0 for name, limit in both.items()}).check_names(list(model.experts.columns))
    return {name: limit for name, limit in both.items() if limit is not None}


def _assigned(
    model: TableModel, reader: TableReader, limits: Mapping[str, float], options: DecideOptions
) -> NDArray[np.int64]:
    """Read all rows, and assign them to experts within the limits at the least expected cost."""
    n_experts, parts = len(model.experts.columns), []
    for chunk in reader.chunks(model.schema.arrow_types(), options.chunk_rows):
        costs = model.decide_and_score(chunk, prices=options.prices, where=reader.name)[0].costs
        assert costs is not None
        answering = costs[:, :-n_experts].min(axis=1)
        parts.append(np.column_stack([answering, answering, costs[:, -n_experts:]]))
    costs = np.concatenate(parts)
    nothing = np.zeros(len(costs))
    decision = Decision(nothing, nothing, nothing, nothing, costs=costs)
    ask = Capacity(limits).assign(decision, model.experts.columns).ask
    return np.asarray(ask, dtype=np.int64)


@dataclass(frozen=True)
class _Review:
    """The expected saving of a review of each row, and which rows are reviewed."""

    saves: NDArray[np.float64]
    chosen: NDArray[np.bool_]

    def apply(self, answers: pa.Table, first: int) -> pa.Table:
        """Decline the rows to review, and answer all others; ``first`` is the number of the first row, from 0."""
        part = slice(first, first + answers.num_rows)
        chosen = pa.array(self.chosen[part])
        choice = answers.column("first_choice")
        prediction = pc.if_else(chosen, pa.scalar(None, choice.type), choice)
        answers = answers.set_column(0, "prediction", prediction).set_column(1, "rejected", chosen)
        why = pc.if_else(chosen, pc.fill_null(answers.column("reason"), "ambiguous"), pa.scalar(None, pa.string()))
        answers = answers.set_column(answers.column_names.index("reason"), "reason", why)
        return answers.append_column(SAVES, pa.array(self.saves[part]))


def _review(model: TableModel, reader: TableReader, kept: list[str], options: DecideOptions) -> _Review:
    """Read all rows, and choose those to review."""
    if SAVES in kept:
        raise TableError(f"{reader.name} has a column {SAVES!r} to keep, the name of a column to write: rename it")
    parts = [
        savings(model, chunk, options.cost, where=reader.name)
        for chunk in reader.chunks(model.schema.arrow_types(), options.chunk_rows)
    ]
    saves = np.concatenate(parts)
    assert options.review_budget is not None
    return _Review(saves, rows_to_review(saves, options.review_budget))


def _checked(model: TableModel, reader: TableReader, options: DecideOptions) -> list[str]:
    """Refuse a table or options that are not for this model; return the names of the columns to keep."""
    model.schema.check(reader.columns, strict=options.strict, where=reader.name)
    model.check_prices(options.prices)
    if options.cost is not None:
        model.check_cost(options.cost)
    if options.proba:
        model.check_proba()
    names = list(reader.columns) if options.keep is None else list(dict.fromkeys(options.keep))
    missing = [name for name in names if name not in reader.columns]
    if missing:
        raise TableError(f"{reader.name} has no column {shown(missing[0])} to keep: it has {listed(reader.columns)}")
    written = (*model.answer_columns(reader.columns), *(model.proba_columns if options.proba else ()))
    clashes = [name for name in names if name in written]
    if clashes:
        problem = f"{reader.name} has a column {clashes[0]!r} to keep, which is also the name of an answer"
        raise TableError(f"{problem}: rename it, or keep other columns")
    return names


def _decide(
    model: TableModel,
    reader: TableReader,
    writer: TableWriter,
    kept: list[str],
    options: DecideOptions,
    *,
    ask: NDArray[np.int64] | None = None,
    review: _Review | None = None,
    progress: Callable[[int], object] = lambda rows: None,
) -> Decided:
    said = {name: reader.columns[name] or pa.string() for name in model.experts.names if name in reader.columns}

    def answer(numbered: tuple[int, pa.RecordBatch, pa.RecordBatch]) -> tuple[pa.RecordBatch, Decided]:
        first, chunk, copies = numbered
        own: ByName = {}
        if model.asks_experts:
            asked = None if ask is None else ask[first : first + chunk.num_rows]
            own = {"prices": options.prices, "ask": asked, "first": first}
        answers = model.answers(chunk, options.cost, proba=options.proba, where=reader.name, **own)
        if review is not None:
            answers = review.apply(answers, first)
        columns = {name: copies.column(name) for name in kept}
        columns |= {name: answers.column(name).combine_chunks() for name in answers.column_names}
        rejected = int(answers.column("rejected").to_numpy().sum())
        return pa.record_batch(columns), Decided(chunk.num_rows, rejected)

    total = Decided()
    with writer:
        chunks = reader.chunks_and_copies(said | model.schema.arrow_types(), kept, options.chunk_rows)
        for batch, count in _in_order(answer, _numbered(chunks)):
            writer.write(batch)
            total += count
            progress(count.rows)
    return total


def _numbered(
    chunks: Iterable[tuple[pa.RecordBatch, pa.RecordBatch]],
) -> Iterator[tuple[int, pa.RecordBatch, pa.RecordBatch]]:
    """Add to each chunk the number of rows before it."""
    first = 0
    for chunk, copies in chunks:
        yield first, chunk, copies
        first += chunk.num_rows


def _to_be_read_twice(source: Source, stack: ExitStack) -> Source:
    """Return a source that can be opened again: a stream is copied to a temporary file."""
    if isinstance(source, str | os.PathLike) and source != "-":
        return source
    copy = Path(stack.enter_context(tempfile.TemporaryDirectory()), source_name(source))
    with copy.open("wb") as file:
        shutil.copyfileobj(open_raw(source), file)
    return copy


def _in_order(function: Callable[[_Chunk], _Answer], chunks: Iterable[_Chunk]) -> Iterator[_Answer]:
    """Apply a function to chunks on a second thread while others are read and written, keeping their order."""
    waiting: deque[Future[_Answer]] = deque()
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


def decide_folder(
    load_model: Callable[[], TableModel],
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    options: DecideOptions | None = None,
    *,
    scheduler: str,
    overwrite: bool = False,
    progress: Callable[[int], object] = lambda files: None,
) -> Decided:
    """Decide for each Parquet file of a folder on Dask workers, into a file of the same name in another folder.

    Folders named ``key=value`` are columns; hidden files are ignored. The new folder appears under its name only when
    all files are complete. Workers must see both folders.

    Parameters
    ----------
    load_model : callable
        Returns the model; called on each worker, and must be picklable.
    source, target : path
    options : DecideOptions, optional
        Without ``capacity`` and ``review_budget``, which compare all rows with each other.
    scheduler : str
        The address of a Dask scheduler, "local:N" for N processes on this machine, or "local" for one per core.
    overwrite : bool
        Whether to replace an existing folder.
    progress : callable
        Called with the number of files just written.
    """
    read, final = Path(source), Path(target)
    dask = optional_dask()
    _check_target(read, final, overwrite)
    folder, chosen = ParquetFolder(read), options or DecideOptions()
    part, total = part_of(final), Decided()
    part.mkdir(parents=True)
    try:
        with connect_dask(scheduler) as client:
            jobs = []
            for path in folder.paths:
                out = part / path.relative_to(read)
                out.parent.mkdir(parents=True, exist_ok=True)
                jobs.append(client.submit(_decide_one, load_model, folder, path, out, chosen, pure=False))
            for job in dask.as_completed(jobs):
                total += job.result()
                progress(1)
        move_into_place(part, final)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return total


def _check_target(read: Path, final: Path, overwrite: bool) -> None:
    if final.resolve() == read.resolve() or read.resolve() in final.resolve().parents:
        raise TableError(f"{shown(final)} lies in the folder that is read: choose another place")
    if not final.exists():
        return
    if not (overwrite and final.is_dir()):
        raise TableError(f"{shown(final)} already exists: choose another name, or pass --force to replace it")
    foreign = [path for path in final.rglob("*") if path.is_file() and path.suffix != ".parquet"]
    if foreign:
        raise TableError(f"{shown(final)} contains {foreign[0].name!r}, which is no Parquet file: choose another name")


def _decide_one(
    load_model: Callable[[], TableModel], folder: ParquetFolder, path: Path, out: Path, options: DecideOptions
) -> Decided:
    """Decide for one file on a worker."""
    model = load_model()
    with folder.reader(path) as reader:
        kept = _checked(model, reader, options)
        return _decide(model, reader, TableWriter(out, overwrite=True), kept, options)
