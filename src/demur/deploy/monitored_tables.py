"""Feed tables to a monitor: every row is counted once, even if files grow, are replaced or are given again."""

import hashlib
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from demur.array_types import ByName, FilePath, Mask
from demur.columns.frames import TableWarning
from demur.deploy.monitoring import Monitor
from demur.tabular.review_queue import AUDIT, DECLINED, WHY
from demur.tabular.table_files import class_texts, open_table, read_labelled
from demur.tabular.table_model import TableModel
from demur.whole_file import locked

_BLOCK = 1 << 20


class MonitoredTables:
    r"""A monitor whose state is a file that several processes may update.

    Tables are recognised by their content, not by their name. A table that was counted before is not counted again. If
    a file has grown, its new rows are counted; a file that was replaced is a new one. The rows of standard input are
    always new. For each table the monitor stores its kind ("file", "stream" or "reviewed"), the size and a digest of
    each version, the number of counted rows, and the numbers of the rows whose labels were counted.

    Parameters
    ----------
    state : path
        The state file; written by the first update.
    model : TableModel
    begin : callable
        Returns the monitor to begin with where there is no state yet.

    Examples
    --------
    >>> import tempfile
    >>> from demur.tabular import evaluate_table, fit_table
    >>> from demur.deploy import Reference
    >>> pets = pa.table({"size": [1.0, 1.2, 5.0, 5.2] * 30, "pet": ["cat", "cat", "dog", "dog"] * 30})
    >>> model = fit_table(pets, "pet", model="lr")
    >>> known = Reference.of_evaluation(evaluate_table(model, pets), is_probability=True)
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "today.csv").write_text("size\n1.1\n5.1\n")
    >>> tables = MonitoredTables(folder / "state.json", model, lambda: Monitor(known, max_risk=0.1))
    >>> tables.watch(str(folder / "today.csv"))
    >>> tables.monitor().n_rows
    2
    """

    def __init__(self, state: FilePath, model: TableModel, begin: Callable[[], Monitor]) -> None:
        self.state, self.model, self._begin = Path(state), model, begin

    def monitor(self) -> Monitor:
        """Return the monitor in the state file, or a new one."""
        found = Monitor.load(self.state) if self.state.exists() else self._begin()
        found.check_model(self.model)
        return found

    @contextmanager
    def update(self) -> Iterator[Monitor]:
        """Lock the state, yield the monitor, and save it; other processes wait."""
        with locked(self.state):
            monitor = self.monitor()
            yield monitor
            monitor.save(self.state)

    def watch(
        self,
        data: str,
        *,
        chunk_rows: int = 4096,
        delimiter: str | None = None,
        strict: bool = True,
        to_review: Callable[[pa.Table], None] | None = None,
    ) -> None:
        """Process the rows of a table that were not counted before.

        Parameters
        ----------
        data : path, or "-" for standard input
        chunk_rows : int
            Rows between two updates of the state.
        delimiter : str, optional
        strict : bool
            Whether extra columns are an error.
        to_review : callable, optional
            Called with the rows to review of each chunk, counted before or not: the declined rows and the audit.
        """
        schema, path = self.model.schema, Path(data)
        is_stream = data == "-" or not (path.is_file() or path.is_dir())
        digests = {0: ""} if is_stream else _file_digests(path, self.monitor().sources)
        first = n_known = 0
        with open_table(data, delimiter=delimiter, **schema.notation_with({})) as reader:
            schema.check(reader.columns, strict=strict, where=reader.name)
            types = {name: kind or pa.string() for name, kind in reader.columns.items()} | schema.arrow_types()
            copied = [] if to_review is None else [name for name in reader.columns if name != self.model.target]
            with self.update() as monitor:
                position = _position(monitor.sources, "stream" if is_stream else "file", digests)
            for chunk, copies in reader.chunks_and_copies(types, copied, chunk_rows):
                with self.update() as monitor:
                    source = monitor.sources[position]
                    if is_stream:
                        first = source["n_rows"]
                    known = min(max(source["n_rows"] - first, 0), chunk.num_rows)
                    if known < chunk.num_rows:
                        monitor.watch_table(self.model, chunk.slice(known), where=reader.name)
                        source["n_rows"] = first + chunk.num_rows
                n_known += known
                if to_review is not None:
                    drawn = monitor.draw(str(position), first, chunk.num_rows)
                    to_review(self._to_review(chunk, copies, drawn, reader.name))
                first += chunk.num_rows
        _note_known(n_known, "rows", data)

    def review(self, data: str, *, delimiter: str | None = None) -> None:
        """Process the labels of a reviewed table that were not counted before.

        Parameters
        ----------
        data : path, or "-" for standard input
        delimiter : str, optional
        """
        model = self.model
        table = read_labelled(data, model.schema, model.classes.tolist(), delimiter=delimiter, strict=False)
        labelled = np.array([label is not None for label in class_texts(table[model.target])], dtype=bool)
        with self.update() as monitor:
            digests = _row_digests(table.select(list(model.schema.names)), monitor.sources)
            source = monitor.sources[_position(monitor.sources, "reviewed", digests)]
            counted = np.isin(np.arange(table.num_rows), source["labelled"])
            new = labelled & ~counted
            if new.any() or not labelled.any():  # the monitor refuses a table without labels
                monitor.review_table(model, table.filter(new) if labelled.any() else table, where=data)
            source["labelled"] += np.flatnonzero(new).tolist()
            _note_known(int((labelled & counted).sum()), "labelled rows", data)

    def _to_review(self, chunk: pa.RecordBatch, copies: pa.RecordBatch, drawn: Mask, where: str) -> pa.Table:
        """Return the rows to review as they are in the file, the reason, and an empty column for the label."""
        answers = self.model.answers(chunk, where=where)
        rejected = answers.column("rejected").to_numpy()
        columns = {name: copies.column(name) for name in copies.schema.names}
        added = {
            WHY: pa.array(np.where(rejected, DECLINED, AUDIT)),
            "first_choice": answers.column("first_choice").combine_chunks(),
            self.model.target: pa.nulls(chunk.num_rows, pa.string()),
        }
        columns |= {name: values for name, values in added.items() if name not in self.model.schema.names}
        return pa.table(columns).filter(pa.array(rejected | drawn))


def _note_known(n_rows: int, rows: str, data: str) -> None:
    if n_rows:
        message = f"{n_rows:,} {rows} of {data} were counted before and are not counted again"
        warnings.warn(message, TableWarning, stacklevel=3)


def _position(sources: list[ByName], kind: str, digests: dict[int, str]) -> int:
    """Return the position of the source that a table belongs to: one that it extends or repeats, or a new one.

    A source keeps the digests of all its versions, so that an earlier version of a table is not counted again.
    """
    whole = [max(digests), digests[max(digests)]]
    found = []
    for position, source in enumerate(sources):
        length, digest = source["versions"][-1]
        if source["kind"] == kind and (whole in source["versions"] or digests.get(length) == digest):
            found.append((whole in source["versions"], length, position))
    position = max(found)[2] if found else len(sources)
    if not found:
        sources.append({"kind": kind, "versions": [], "n_rows": 0, "labelled": []})
    if whole not in sources[position]["versions"]:
        sources[position]["versions"].append(whole)
    return position


def _lengths(sources: list[ByName], kind: str) -> set[int]:
    return {source["versions"][-1][0] for source in sources if source["kind"] == kind}


def _file_digests(path: Path, sources: list[ByName]) -> dict[int, str]:
    """Return digests of a file's content, of all of it and of the first bytes that each source covers."""
    files = sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]
    sizes = sorted(_lengths(sources, "file"))
    running, size, digests = hashlib.sha256(), 0, dict[int, str]()
    for one in files:
        with one.open("rb") as file:
            while block := file.read(min(_BLOCK, next((end for end in sizes if end > size), size + _BLOCK) - size)):
                running.update(block)
                size += len(block)
                if size in sizes:
                    digests[size] = running.hexdigest()
    return digests | {size: running.hexdigest()}


def _row_digests(table: pa.Table, sources: list[ByName]) -> dict[int, str]:
    """Return digests of a table's rows, of all of them and of the first rows that each source covers."""
    lengths = _lengths(sources, "reviewed") | {table.num_rows}
    running, digests = hashlib.sha256(), {0: ""}
    for n_rows, row in enumerate(table.to_pylist(), 1):
        running.update(repr(row).encode())
        if n_rows in lengths:
            digests[n_rows] = running.hexdigest()
    return digests
