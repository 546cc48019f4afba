"""Deciding for a file a piece at a time, and for a folder of files on many machines or processes through Dask."""

import os
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from demur.array_types import ByName
from demur.columns.frames import TableError, Values, listed, shown
from demur.deferral import Capacity
from demur.errors import MissingExtraError
from demur.rules import Decision
from demur.tabular.arrow_files import FolderReader, files_of_folder, partition_columns
from demur.tabular.class_labels import as_column, class_texts
from demur.tabular.csv_files import types_of_text
from demur.tabular.review_queue import check_budget, rows_to_review, savings
from demur.tabular.table_files import open_table
from demur.tabular.table_model import TableModel
from demur.tabular.table_sources import Source, TableReader, open_raw, source_name
from demur.tabular.table_writer import TableWriter
from demur.whole_file import move_into_place, part_of

__all__ = ["Decided", "decide_file", "decide_folder"]

_Chunk = TypeVar("_Chunk")
_Answer = TypeVar("_Answer")

SAVES = "saves"
"""The column of what a review saves."""

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
    source: Source,
    target: str | os.PathLike[str],
    *,
    cost: float | None = None,
    keep: Sequence[str] | None = (),
    strict: bool = True,
    overwrite: bool = False,
    proba: bool = False,
    review_budget: float | None = None,
    prices: Mapping[str, float] | None = None,
    capacity: Mapping[str, float | None] | None = None,
    delimiter: str | None = None,
    decimal: str | None = None,
    dayfirst: bool | None = None,
    chunk_rows: int = 65_536,
    spreadsheet_safe: bool = False,
    progress: Callable[[int], object] = lambda rows: None,
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
        Columns of the source to copy in front of the answers; None copies all. A file that carries types gets the
        types that a whole read would find, which takes a second look at a CSV file; the labels, where they are kept,
        get the type of the predictions.
    strict : bool
        Whether extra columns are an error.
    overwrite : bool
    proba : bool, default False
        Whether to write the calibrated probability of each class, in a column ``proba:<class>``.
    review_budget : int or float, optional
        So many rows, or this share of them, are declined: those whose review saves most, as
        :func:`~demur.tabular.rows_to_review` chooses them. All others are answered, and a last column ``saves`` says
        what a review of each row saves. The rows are read twice.
    prices : mapping of names to float, optional
        Of asking experts, other than the model's.
    capacity : mapping of names to int or float, optional
        The most rows that an expert gets, instead of the model's own limits; None for no limit. The rows are then
        assigned together, at the least expected cost within the limits, and read twice.
    delimiter : str, optional
    decimal, dayfirst : optional
        How a CSV file writes numbers and dates; by default as the one that the model was fitted on.
    chunk_rows : int
        Rows in memory at a time.
    spreadsheet_safe : bool
        Whether text in a CSV file that a spreadsheet would compute is guarded, as :class:`TableWriter` says.
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
    'name,prediction,rejected,confidence,first_choice,second_choice,reason'
    """
    inputs = [] if str(source) == "-" or hasattr(source, "read") else [str(source)]
    writer = TableWriter(target, overwrite=overwrite, inputs=inputs, spreadsheet_safe=spreadsheet_safe)
    decimal = model.schema.decimal if decimal is None else decimal
    dayfirst = model.schema.dayfirst if dayfirst is None else dayfirst

    with ExitStack() as stack:

        def opened(source: Source) -> TableReader:
            return stack.enter_context(open_table(source, delimiter=delimiter, decimal=decimal, dayfirst=dayfirst))

        if review_budget is not None:
            check_budget(review_budget)
            if model.asks_experts:
                raise TableError("a review budget is for models that decline, and this one asks experts: limit those")
        limits = _limits(model, capacity)
        if (keep != () and writer.carries_types) or review_budget is not None or limits:
            source = _to_be_read_twice(source, stack)
        reader = opened(source)
        model.check_prices(prices)
        kept = _checked(model, reader, keep, strict=strict, cost=cost, proba=proba)
        copies = _Copies(kept)
        if kept and writer.carries_types:
            copies = _settled(model, reader, kept)
            if not isinstance(source, str | os.PathLike):
                source.seek(0)
            reader = opened(source)
        desk = None
        if review_budget is not None:
            desk = _desk(model, reader, review_budget, kept, cost, chunk_rows)
            if not isinstance(source, str | os.PathLike):
                source.seek(0)
            reader = opened(source)
        ask = None
        if limits:
            ask = _assigned(model, reader, limits, prices, chunk_rows)
            if not isinstance(source, str | os.PathLike):
                source.seek(0)
            reader = opened(source)
        options: ByName = {"cost": cost, "proba": proba, "chunk_rows": chunk_rows, "progress": progress, "desk": desk}
        return _decide(model, reader, writer, copies, asking=_Asking(prices, ask), **options)


@dataclass(frozen=True)
class _Asking:
    """Prices of asking, and who is asked on which row where the rows were assigned together."""

    prices: Mapping[str, float] | None = None
    ask: NDArray[np.int64] | None = None

    def part(self, first: int, n_rows: int) -> ByName:
        """Return what :meth:`TableModel.answers` takes for some of the rows."""
        ask = None if self.ask is None else self.ask[first : first + n_rows]
        return {"prices": self.prices, "ask": ask, "first": first}


def _limits(model: TableModel, capacity: Mapping[str, float | None] | None) -> dict[str, float]:
    """Return the limits that hold: the model's own, but for those that are given."""
    if capacity and not model.asks_experts:
        raise TableError("this model asks nobody, so that there is nothing to limit: fit it with experts")
    both: dict[str, float | None] = {**model.experts.limits, **(capacity or {})}
    Capacity({name: limit or 0 for name, limit in both.items()}).check_names(list(model.experts.columns))
    return {name: limit for name, limit in both.items() if limit is not None}


def _assigned(
    model: TableModel,
    reader: TableReader,
    limits: Mapping[str, float],
    prices: Mapping[str, float] | None,
    chunk_rows: int,
) -> NDArray[np.int64]:
    """Look at all rows, and assign them within the limits at the least expected cost."""
    n_experts, parts = len(model.experts.columns), []
    for chunk in reader.chunks(model.schema.arrow_types(), chunk_rows):
        costs = model.decide_and_score(chunk, prices=prices, where=reader.name)[0].costs
        assert costs is not None
        answering = costs[:, :-n_experts].min(axis=1)
        parts.append(np.column_stack([answering, answering, costs[:, -n_experts:]]))
    costs = np.concatenate(parts)
    nothing = np.zeros(len(costs))
    decision = Decision(nothing, nothing, nothing, nothing, costs=costs)
    ask = Capacity(limits).assign(decision, model.experts.columns).ask
    return np.asarray(ask, dtype=np.int64)


@dataclass(frozen=True)
class _Desk:
    """What a review of each row saves, and which rows get one."""

    saves: NDArray[np.float64]
    chosen: NDArray[np.bool_]

    def answers(self, answers: pa.Table, first: int) -> pa.Table:
        """Decline the rows for the desk, and answer all others; ``first`` is the number of the first row, from 0."""
        part = slice(first, first + answers.num_rows)
        chosen = pa.array(self.chosen[part])
        choice = answers.column("first_choice")
        prediction = pc.if_else(chosen, pa.scalar(None, choice.type), choice)
        answers = answers.set_column(0, "prediction", prediction).set_column(1, "rejected", chosen)
        why = pc.if_else(chosen, pc.fill_null(answers.column("reason"), "ambiguous"), pa.scalar(None, pa.string()))
        answers = answers.set_column(answers.column_names.index("reason"), "reason", why)
        return answers.append_column(SAVES, pa.array(self.saves[part]))


def _desk(
    model: TableModel, reader: TableReader, budget: float, kept: list[str], cost: float | None, chunk_rows: int
) -> _Desk:
    """Look at all rows, and choose those for the desk."""
    if SAVES in kept:
        raise TableError(f"{reader.name} has a column {SAVES!r} to keep, which is also what a review saves: rename it")
    parts = [
        savings(model, chunk, cost, where=reader.name)
        for chunk in reader.chunks(model.schema.arrow_types(), chunk_rows)
    ]
    saves = np.concatenate([np.empty(0), *parts])
    return _Desk(saves, rows_to_review(saves, budget))


@dataclass(frozen=True)
class _Copies:
    """Columns to copy: their names, the types to read them with where these were found, and the labels' own."""

    names: list[str]
    types: Mapping[str, pa.DataType] = field(default_factory=dict)
    label_type: str | None = None


def _checked(
    model: TableModel,
    reader: TableReader,
    keep: Sequence[str] | None,
    *,
    strict: bool,
    cost: float | None,
    proba: bool = False,
) -> list[str]:
    """Refuse a table or a cost that is not for this model; return the names of the columns to keep."""
    model.schema.check(reader.columns, strict=strict, where=reader.name)
    if cost is not None:
        model.check_cost(cost)
    if proba:
        model.check_proba()
    return _kept(reader, keep, (*model.answer_columns(reader.columns), *(model.proba_columns if proba else ())))


def _decide(
    model: TableModel,
    reader: TableReader,
    writer: TableWriter,
    copies: _Copies,
    *,
    cost: float | None,
    chunk_rows: int,
    proba: bool = False,
    progress: Callable[[int], object] = lambda rows: None,
    desk: _Desk | None = None,
    asking: _Asking | None = None,
) -> Decided:
    kept = copies.names
    said = [name for name in model.experts.names if name in reader.columns]
    types = {name: copies.types.get(name) or reader.columns[name] or pa.string() for name in (*kept, *said)}
    total = Decided()

    def answer(numbered: tuple[int, pa.RecordBatch]) -> tuple[pa.RecordBatch, Decided]:
        first, chunk = numbered
        own = asking.part(first, chunk.num_rows) if asking is not None and model.asks_experts else {}
        answers = model.answers(chunk, cost, proba=proba, where=reader.name, **own)
        if desk is not None:
            answers = desk.answers(answers, first)
        columns = {name: chunk.column(name) for name in kept}
        if copies.label_type is not None:
            columns[model.target] = as_column(class_texts(columns[model.target]), copies.label_type)
        columns |= {name: answers.column(name).combine_chunks() for name in answers.column_names}
        rejected = int(answers.column("rejected").to_numpy().sum())
        return pa.record_batch(columns), Decided(chunk.num_rows, rejected)

    with writer:
        chunks = reader.chunks(types | model.schema.arrow_types(), chunk_rows)
        for batch, count in _in_order(answer, _numbered(chunks)):
            writer.write(batch)
            total += count
            progress(count.rows)
    return total


def _numbered(chunks: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Say for each piece how many rows came before it."""
    first = 0
    for chunk in chunks:
        yield first, chunk
        first += chunk.num_rows


def _settled(model: TableModel, reader: TableReader, kept: list[str]) -> _Copies:
    """Find the type of each column to copy by looking at all rows, and whether labels can be written as predictions."""
    unsettled = [name for name in kept if reader.columns[name] is None and name not in model.schema.names]
    wanted = dict.fromkeys(unsettled, pa.string())
    has_labels = model.target in kept
    if has_labels:
        wanted[model.target] = reader.columns[model.target] or pa.string()
    if not wanted:
        return _Copies(kept)
    alike = has_labels

    def chunks() -> Iterator[pa.RecordBatch]:
        nonlocal alike
        for chunk in reader.chunks(wanted):
            alike = alike and _can_be(chunk.column(model.target), model.label_type)
            yield chunk.select(unsettled)

    types = types_of_text(chunks(), reader.decimal)
    if not alike:
        return _Copies(kept, types)
    return _Copies(kept, types | {model.target: wanted[model.target]}, model.label_type)


def _can_be(column: Values, label_type: str) -> bool:
    texts = class_texts(column)
    if label_type == "boolean":
        return set(texts.tolist()) <= {"true", "false", None}
    try:
        as_column(texts, label_type)
    except pa.ArrowException:
        return False
    return True


def _to_be_read_twice(source: Source, stack: ExitStack) -> Source:
    """Return a source that can be read from its beginning again: what comes from a pipe is put aside."""
    if isinstance(source, str | os.PathLike) and source != "-":
        return source
    stream = open_raw(source)
    if source != "-" and stream.seekable():
        return stream
    aside = Path(stack.enter_context(tempfile.TemporaryDirectory()), source_name(source))
    with aside.open("wb") as file:
        shutil.copyfileobj(stream, file)
    return aside


def _kept(reader: TableReader, keep: Sequence[str] | None, taken: Sequence[str]) -> list[str]:
    names = list(reader.columns) if keep is None else list(dict.fromkeys(keep))
    missing = [name for name in names if name not in reader.columns]
    if missing:
        raise TableError(f"{reader.name} has no column {shown(missing[0])} to keep: it has {listed(reader.columns)}")
    clashes = [name for name in names if name in taken]
    if clashes:
        raise TableError(
            f"{reader.name} has a column {clashes[0]!r} to keep, which is also the name of an answer: rename it, or "
            "keep other columns"
        )
    return names


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
    *,
    scheduler: str,
    cost: float | None = None,
    prices: Mapping[str, float] | None = None,
    keep: Sequence[str] | None = (),
    strict: bool = True,
    overwrite: bool = False,
    proba: bool = False,
    chunk_rows: int = 65_536,
    progress: Callable[[int], object] = lambda files: None,
) -> Decided:
    """Decide for each Parquet file of a folder on Dask workers, into a file of the same name in another folder.

    Folders named ``key=value`` are columns, as where the folder is read as one table; hidden files are left out. The
    folder appears under its name only when all files are complete. Workers must see both folders.

    Parameters
    ----------
    load_model : callable
        Returns the model; called on each worker, and must be picklable.
    source, target : path
    scheduler : str
        The address of a Dask scheduler, or "local" for processes on this machine.
    cost, prices, keep, strict, overwrite, proba, chunk_rows
        As for :func:`decide_file`. Limits on what experts get are not looked at: they compare all rows.
    progress : callable
        Called with the number of files just written.
    """
    try:
        from dask.distributed import Client, LocalCluster, as_completed
    except ImportError as error:
        raise MissingExtraError("a scheduler needs Dask: pip install demur[dask]") from error
    read, final = Path(source), Path(target)
    files = files_of_folder(read)
    if not files:
        raise TableError(f"there is no .parquet file in {str(read)!r}: give a folder that holds some")
    _check_target(read, final, overwrite)
    partitions = partition_columns(read, files)
    options = {"cost": cost, "keep": keep, "strict": strict, "proba": proba, "prices": prices, "chunk_rows": chunk_rows}
    part = part_of(final)
    part.mkdir()
    total = Decided()
    try:
        with ExitStack() as stack:
            address: Any = scheduler
            if scheduler == "local":
                address = stack.enter_context(LocalCluster(dashboard_address=None))  # type: ignore[no-untyped-call] # Dask is untyped
            client = stack.enter_context(Client(address))  # type: ignore[no-untyped-call] # Dask is untyped
            jobs = []
            for path in files:
                out = part / path.relative_to(read)
                out.parent.mkdir(parents=True, exist_ok=True)
                places = (str(read), str(path), str(out))
                jobs.append(client.submit(_decide_one, load_model, places, partitions, options, pure=False))
            for job in as_completed(jobs):  # type: ignore[no-untyped-call] # Dask is untyped
                total += job.result()
                progress(1)
        move_into_place(part, final)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return total


def _check_target(read: Path, final: Path, overwrite: bool) -> None:
    if final.resolve() == read.resolve() or read.resolve() in final.resolve().parents:
        raise TableError(f"{str(final)!r} lies in the folder that is read: choose another place")
    if not final.exists():
        return
    if not (overwrite and final.is_dir()):
        raise TableError(f"{str(final)!r} exists already: choose another name, or pass --force to replace it")
    foreign = [path for path in final.rglob("*") if path.is_file() and path.suffix != ".parquet"]
    if foreign:
        raise TableError(f"{str(final)!r} holds {foreign[0].name!r}, which demur did not write: choose another name")


def _decide_one(
    load_model: Callable[[], TableModel],
    places: tuple[str, str, str],
    partitions: pa.Schema,
    options: ByName,
) -> Decided:
    """Decide for one file on a worker: the folder is named because the file's place in it holds columns."""
    folder, source, out = map(Path, places)
    model, cost, keep = load_model(), options["cost"], options["keep"]

    def reader() -> FolderReader:
        return FolderReader(folder, [source], partitions)

    with reader() as rows:
        kept = _checked(model, rows, keep, strict=options["strict"], cost=cost, proba=options["proba"])
        copies = _settled(model, rows, kept)
    with reader() as rows:
        writer = TableWriter(out, overwrite=True)
        numbers = {"proba": options["proba"], "chunk_rows": options["chunk_rows"], "asking": _Asking(options["prices"])}
        return _decide(model, rows, writer, copies, cost=cost, **numbers)
