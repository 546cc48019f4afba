"""Fitting a model on a file, and holding rows out to judge it on: the library function behind ``demur fit``.

What takes seconds to import is imported once the options and the header of the file have been checked.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from demur.array_types import ByName
from demur.columns.frames import TableError, did_you_mean, listed, shown
from demur.columns.schema import Schema
from demur.errors import InputError
from demur.rules import CostMatrix, Rule
from demur.tabular.class_labels import LabelledTable, check_classes, check_target, class_texts
from demur.tabular.table_files import Source, open_table, read_labelled, read_table, source_name

if TYPE_CHECKING:
    from demur.tabular.evaluation import Evaluation
    from demur.tabular.table_model import TableModel

__all__ = ["FitOptions", "FittedFile", "OpenedFile", "fit_file", "read_cost_matrix"]


@dataclass(frozen=True)
class FitOptions:
    """How to fit a model: the one specification that all fitting functions read.

    Parameters
    ----------
    model : str, default="auto"
        One of :func:`model_names`.
    cost : float, default=0.2
        The cost of declining a row; a mistake costs 1. Rules other than Chow's do not use it.
    rule : Rule, or function of the class names that returns one, optional
        As for :class:`~demur.RejectOption`; Chow's rule at ``cost`` by default.
    novelty : "auto", float or None
        Which rows are declined because they are unlike those of training, as for :class:`~demur.RejectOption`.
    experts : mapping, optional
        Experts to ask instead of declining: from names to the column with the expert's answers, or several for several
        people behind one expert, and the price of a question, as in ``{"nurse": ("nurse_says", 0.05)}``. Empty cells
        are rows that the expert has not seen. These columns are not features, and ``cost`` and ``rule`` are not used.
    capacity : mapping, optional
        The most rows of one table that an expert gets: a number of rows, or a share below 1.
    test : path, optional
        Table to evaluate the model on, instead of held-out rows.
    holdout : float, default=0.2
        Share of rows held out for evaluation if there is no ``test``.
    group_split : str, optional
        Column with the group of each row, such as a patient: the rows of a group stay on one side of every split. It is
        not a feature.
    time_split : str, optional
        Column of numbers, dates or times: the latest rows are held out. It is not a feature.
    risk_group : str, optional
        Column such as a site: the guarantee of a :class:`~demur.RiskControl` holds in each of its groups. It stays a
        feature unless it is dropped.
    keep, drop : names
        Columns to use even if they are constant or look like identifiers, and columns to leave out.
    delimiter, decimal, dayfirst : optional
        How a CSV file is written, as for :func:`open_table`. The last two are kept in the model.
    calibration : {"auto", "temperature", "isotonic", "sigmoid", None}
        For :func:`fit_proba`: as for :class:`~demur.RejectOption`.
    time_budget : float or None
        Seconds for the training; None for no limit.
    seed : int, default=0
        Random seed of the hold-out and of the training.
    verbose : int
        1 shows a progress bar on a terminal.
    """

    model: str = "auto"
    cost: float = 0.2
    rule: Rule | Callable[[list[str]], Rule | None] | None = None
    novelty: float | str | None = "auto"
    experts: Any = None
    capacity: Mapping[str, float] | None = None
    test: Source | None = None
    holdout: float = 0.2
    group_split: str | None = None
    time_split: str | None = None
    risk_group: str | None = None
    keep: Collection[str] = ()
    drop: Collection[str] = ()
    delimiter: str | None = None
    decimal: str | None = None
    dayfirst: bool | None = None
    calibration: str | None = "auto"
    time_budget: float | None = 90.0
    seed: int = 0
    verbose: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.holdout < 1:
            raise InputError(f"holdout must be a share from 0 to below 1, got {self.holdout:g}.")
        if self.experts is not None and self.rule is not None:
            raise InputError("with experts their prices decide what to ask: leave out the rule, or the experts.")
        if self.experts is None and self.capacity:
            raise InputError("capacity limits how many questions experts get: name the experts as well.")
        if not isinstance(self.seed, int) or not 0 <= self.seed < 2**32:
            raise InputError(f"seed must be a whole number from 0 to {2**32 - 1}, got {self.seed!r}.")

    @property
    def roles(self) -> dict[str, str]:
        """The columns that are not features, each with the reason."""
        roles = dict.fromkeys(self.drop, "it was left out on request")
        if self.group_split is not None:
            roles[self.group_split] = "it says which rows belong together"
        if self.time_split is not None:
            roles[self.time_split] = "it says when a row was"
        return roles


@dataclass(frozen=True, eq=False)
class FittedFile:
    """The result of :func:`fit_file`.

    Parameters
    ----------
    model : TableModel
    held_out : pyarrow.Table or None
        Labelled rows that the model has not seen, to judge it on.
    where : str
        The name of the file that these rows are from.
    seconds : float
        How long the training took.
    notes : tuple of str
        What a user should know about the file: how it was read, equal rows, columns that may be leaks.
    """

    model: "TableModel"
    held_out: pa.Table | None
    where: str
    seconds: float
    notes: tuple[str, ...] = ()

    def evaluate(self) -> "Evaluation | None":
        """Evaluate the model on the rows held out; None if there are none."""
        if self.held_out is None:
            return None
        from demur.tabular import evaluate_table

        return evaluate_table(self.model, self.held_out, where=self.where)


@dataclass(frozen=True, eq=False)
class OpenedFile:
    """A file that was read once for a fit.

    Parameters
    ----------
    data : LabelledTable
    spec : FitOptions
    notation : dict
        How the file writes decimals and dates, for the schema.
    """

    data: LabelledTable
    spec: FitOptions
    notation: ByName

    @classmethod
    def read(cls, path: Source, target: str, spec: FitOptions) -> "OpenedFile":
        """Read a file, after its header was checked against the options."""
        with open_table(path, delimiter=spec.delimiter, decimal=spec.decimal, dayfirst=spec.dayfirst) as reader:
            check_target(target, reader.columns, reader.name)
            for name in (*spec.keep, *spec.roles, *([] if spec.risk_group is None else [spec.risk_group])):
                if name not in reader.columns:
                    hint = did_you_mean(name, reader.columns)
                    has = f"{reader.name} has {listed(reader.columns)}"
                    raise TableError(f"there is no column {shown(name)}{hint}: {has}")
            if target in (spec.group_split, spec.time_split):
                raise TableError(
                    f"the target {shown(target)} cannot also be the column of groups or times: name another column"
                )
            if spec.model != "auto":
                from demur.tabular.model_training import check_model

                check_model(spec.model)
            table = reader.read()
            notation = {"decimal": reader.decimal or ".", "dayfirst": reader.dayfirst}
        data = LabelledTable.of(table, target, source_name(path))
        check_classes(data.labels, target)
        return cls(data, spec, notation)

    @property
    def groups(self) -> NDArray[np.str_] | None:
        """The group of each row; a row without one is a group of its own."""
        if self.spec.group_split is None:
            return None
        texts = class_texts(self.data.rows[self.spec.group_split])
        return np.array([f"row {row}" if text is None else f"group {text}" for row, text in enumerate(texts)])

    def rule(self, classes: list[str]) -> Rule | None:
        """Return the rule for these classes."""
        return self.spec.rule if self.spec.rule is None or isinstance(self.spec.rule, Rule) else self.spec.rule(classes)

    def split(self, schema: Schema, features: Any, classes: list[str]) -> tuple[NDArray[np.int64], pa.Table | None]:
        """Return the rows to train on, and the table to judge on."""
        spec, data = self.spec, self.data
        if spec.test is not None:
            table = read_labelled(spec.test, schema, classes, delimiter=spec.delimiter, strict=False)
            LabelledTable.of(table, data.target, source_name(spec.test))  # refuses a table without labels
            return np.arange(len(data.labels)), table
        if not spec.holdout:
            return np.arange(len(data.labels)), None
        from demur.estimators.splitting import hold_out, hold_out_latest

        if spec.time_split is None:
            parts = hold_out(features, data.labels, spec.holdout, groups=self.groups, seed=spec.seed)
        else:
            parts = hold_out_latest(self._times(), features, data.labels, spec.holdout, groups=self.groups)
        return parts.train, data.rows.take(parts.aside) if len(parts.aside) else None

    def _times(self) -> NDArray[np.float64]:
        """Return when each row was, as numbers."""
        name = str(self.spec.time_split)
        column = self.data.rows.select([name])
        schema = replace(Schema.learn(column, keep=[name]), **self.notation)
        kind = schema.columns[0].kind
        if kind not in ("number", "date", "time"):
            problem = f"column {shown(name)} holds a {kind}, which has no order in time"
            raise TableError(f"{problem}: name one of numbers or dates")
        times: NDArray[np.float64] = schema.encode(column)[:, 0]
        n_unknown = int(np.isnan(times).sum())
        if n_unknown:
            raise TableError(
                f"column {shown(name)} is empty in {n_unknown:,} of the {len(times):,} rows with a label: fill it in, "
                "or leave such rows out"
            )
        return times

    def fitted(self, model: "TableModel", held_out: pa.Table | None, started: float, notes: list[str]) -> FittedFile:
        """Return the result of the fit."""
        where = self.data.name if self.spec.test is None else source_name(self.spec.test)
        seconds = time.perf_counter() - started
        facts = {**model.facts, "rows_without_label": self.data.n_unlabelled}
        aside = {**model.schema.set_aside, **self.spec.roles}
        schema = replace(model.schema, set_aside=aside, **self.notation)
        return FittedFile(replace(model, schema=schema, facts=facts), held_out, where, seconds, tuple(notes))


def fit_file(path: Source, target: str, **options: Any) -> FittedFile:
    r"""Fit a classifier with a reject option, or with experts to ask, on a file.

    The rows for evaluation are held out first: nothing is learned from them, not even the categories of a column.

    Parameters
    ----------
    path : path, "-" or binary stream
        As for :func:`open_table`.
    target : str
        The column with the labels.
    **options
        The fields of :class:`FitOptions`.

    Raises
    ------
    InputError, TableError
        If the file or the options cannot be used; in one sentence.

    Examples
    --------
    >>> import io
    >>> rows = "".join(f"{k % 7},{k / 5},{'cat' if k % 7 < 3 else 'dog'}\n" for k in range(140))
    >>> fitted = fit_file(io.BytesIO(b"size,age,pet\n" + rows.encode()), "pet", model="lr")
    >>> fitted.model
    TableModel('lr' for 'pet': 2 classes, 2 columns)
    >>> fitted.held_out.num_rows
    28
    """
    spec = FitOptions(**options)
    file = OpenedFile.read(path, target, spec)
    data, classes = file.data, file.data.classes
    if spec.experts is not None:
        from demur.tabular.expert_columns import ExpertColumns

        experts = ExpertColumns.of(spec.experts, spec.capacity).found_in(data.rows.column_names, data.name)
        experts.check(target, dict.fromkeys(spec.keep, "it is kept as a feature") | spec.roles, classes)
        experts.answers(data.rows, classes, where=data.name)  # refuses an answer by its row in the file
        spec = replace(spec, experts=experts, drop=[*spec.drop, *experts.names])
    rule = file.rule(classes)
    # For reading and comparing rows; what the model knows is learned from the training rows alone.
    first_look = Schema.learn(data.rows, target=target, keep=spec.keep, drop=[*spec.drop, *spec.roles])
    first_look = replace(first_look, **file.notation)
    compared = data.rows.select(first_look.names)
    train, held_out = file.split(first_look, compared, classes)
    from demur.tabular.model_training import fit_rows

    if spec.risk_group is not None:
        rule = _in_groups(rule, data.rows[spec.risk_group].take(pa.array(train)))
    groups = file.groups
    started = time.perf_counter()
    training = replace(spec, rule=rule, drop=[*spec.drop, *spec.roles])
    model = fit_rows(data.take(train), training, groups=None if groups is None else groups[train], classes=classes)
    fitted = file.fitted(model, held_out, started, [])
    return replace(fitted, notes=tuple(_notes(file, fitted, first_look, train)))


def _in_groups(rule: Rule | None, column: pa.ChunkedArray) -> Rule:
    """Return a guarantee that holds in each group; rows without one are a group as well."""
    from sklearn.base import clone

    from demur.guarantees import RiskControl

    if not isinstance(rule, RiskControl):
        raise InputError("risk_group is for a guarantee about the risk: give a RiskControl, or --max-risk.")
    texts = ["(none)" if text is None else text for text in class_texts(column)]
    grouped: Rule = clone(rule).set_params(groups=np.array(texts))
    return grouped


def _notes(file: OpenedFile, fitted: FittedFile, first_look: Schema, train: NDArray[np.int64]) -> list[str]:
    """Return what a user should know about the rows, the experts and the columns."""
    from demur.estimators.splitting import blocks_of, equal_rows
    from demur.tabular.model_training import likely_leaks

    data, spec, held_out, notes = file.data, file.spec, fitted.held_out, []
    if spec.group_split is None:
        equal = blocks_of(data.rows.select(first_look.names), data.labels).explain()
        notes += [] if equal is None else [equal]
    else:
        notes.append(f"the rows of each group of {spec.group_split} stay on one side of every split.")
    if spec.time_split is not None and spec.test is None and held_out is not None:
        n_neither = len(data.labels) - len(train) - held_out.num_rows
        if n_neither:
            notes.append(
                f"{n_neither:,} of the {len(data.labels):,} rows are left out of training and of judging: they are "
                f"earlier rows of a group of {spec.group_split} that is held out."
            )
        latest = f"the latest {held_out.num_rows:,} by {spec.time_split}"
        notes.append(f"the model was trained on earlier rows and judged on {latest}.")
    if spec.test is not None and held_out is not None:
        codes = [first_look.encode(table) for table in (data.rows, held_out)]
        numbers = equal_rows(np.concatenate(codes))
        n_known = int(np.isin(numbers[len(codes[0]) :], numbers[: len(codes[0])]).sum())
        if n_known:
            notes.append(
                f"{n_known:,} of the {held_out.num_rows:,} rows of {fitted.where} equal a training row in all "
                "features: the figures may be too good."
            )
    for name, found in fitted.model.facts.get("answers", {}).items():
        if found["right"] == found["answers"]:
            notes.append(
                f"the answers of {name} equal the labels in all {found['rows']:,} rows that have one, so that {name} "
                "counts as always right. Make sure that the labels were not made from these answers."
            )
    of_train, schema = data.take(train), fitted.model.schema
    return notes + likely_leaks(schema.encode(of_train.rows), of_train.labels, schema)


def read_cost_matrix(path: Source, classes: Sequence[str]) -> CostMatrix:
    r"""Read costs from a table: a row for each true class, a column for each answer and one called ``reject``.

    Parameters
    ----------
    path : path
        The first column names the true class.
    classes : sequence of str
        In the order of the model.

    Examples
    --------
    >>> import io
    >>> costs = io.BytesIO(b"true,reject,dog,cat\ndog,0.5,0,4\ncat,0.5,1,0\n")
    >>> read_cost_matrix(costs, ["cat", "dog"])
    CostMatrix(costs=[[0.0, 1.0, 0.5], [4.0, 0.0, 0.5]])
    """
    name, wanted = source_name(path), [*classes, "reject"]
    if "reject" in classes:
        raise TableError("a class is called reject, as is the column for declining in a cost matrix: rename the class")
    table = read_table(path)
    names = class_texts(table.column(0)).tolist()
    missing = [f"column {shown(one)}" for one in wanted if one not in table.column_names[1:]]
    missing += [f"row {shown(one)}" for one in classes if one not in names]
    if missing:
        raise TableError(
            f"{name} has no {missing[0]}: the first column names the true class, and there is a column of costs for "
            f"each answer ({listed(classes)}) and one called reject"
        )
    twice = [one for one in classes if names.count(one) > 1]
    if twice:
        raise TableError(f"{name} has more than one row for the class {shown(twice[0])}: leave one")
    cells = [[table.column(answer)[names.index(true)].as_py() for answer in wanted] for true in classes]
    return CostMatrix([[_cost(cell, name) for cell in row] for row in cells])


def _cost(value: float | str | None, name: str) -> float:
    """Read one cell: a single word makes a whole column text."""
    try:
        return float(value)  # type: ignore[arg-type] # what it cannot take is refused here
    except (TypeError, ValueError):
        what = "an empty cell" if value is None else shown(value)
        raise TableError(f"{name} holds {what} where a cost should be: give a number in every cell") from None
