"""From a file to a fitted model and the rows to judge it on: the library function behind ``demur fit``.

What takes seconds to import is imported once the call and the header of the file have been found right.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from demur.array_types import ByName
from demur.columns.frames import TableError, did_you_mean, listed, shown
from demur.columns.schema import Schema
from demur.errors import InputError
from demur.rules import CostMatrix, Rule
from demur.tabular.class_labels import check_classes, check_target, class_texts, labelled_rows
from demur.tabular.table_files import open_table, read_labelled, read_table
from demur.tabular.table_sources import Source, source_name

if TYPE_CHECKING:
    from demur.tabular.evaluation import Evaluation
    from demur.tabular.table_model import TableModel

__all__ = ["FittedFile", "fit_file", "groups_of", "read_cost_matrix"]


@dataclass(frozen=True, eq=False)
class FittedFile:
    """What :func:`fit_file` made of a file.

    Parameters
    ----------
    model : TableModel
    held_out : pyarrow.Table or None
        Rows with labels that the model has not seen, to judge it on.
    where : str
        What messages call the file that these rows are from.
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
        """Judge the model on the rows that were held out; None if there are none."""
        if self.held_out is None:
            return None
        from demur.tabular import evaluate_table

        return evaluate_table(self.model, self.held_out, where=self.where)


def fit_file(
    path: Source,
    target: str,
    *,
    model: str = "auto",
    cost: float = 0.2,
    rule: Rule | Callable[[list[str]], Rule | None] | None = None,
    test: Source | None = None,
    holdout: float = 0.2,
    group_split: str | None = None,
    risk_group: str | None = None,
    novelty: float | str | None = "auto",
    experts: ByName | None = None,
    capacity: Mapping[str, float] | None = None,
    time_split: str | None = None,
    keep: Collection[str] = (),
    drop: Collection[str] = (),
    delimiter: str | None = None,
    decimal: str | None = None,
    dayfirst: bool | None = None,
    time_budget: float | None = 90.0,
    seed: int = 0,
    verbose: int = 0,
) -> FittedFile:
    r"""Fit a classifier with a reject option, or with experts to ask, on a file.

    The rows to judge the model on are held out first, so that nothing is learnt from them, the categories of a column
    included. Rows with equal features stay on one side of every split; otherwise a model is judged, and a promise
    made, on rows that it knows.

    Parameters
    ----------
    path : path, "-" or binary stream
        As :func:`open_table` takes it.
    target : str
        The column with the labels.
    model : str, default="auto"
        One of :func:`model_names`.
    cost : float, default=0.2
        The price of declining; a mistake costs 1. Rules other than Chow's do not look at it.
    rule : Rule, or function of the class names that returns one, optional
        As for :class:`~demur.RejectOption`; Chow's rule at ``cost`` by default.
    test : path, optional
        A table of other rows to judge the model on.
    holdout : float, default=0.2
        Without ``test``: the share of rows to hold out for it.
    group_split : str, optional
        A column that says which rows belong together, such as those of one patient: they stay on one side of every
        split. The column is not a feature.
    risk_group : str, optional
        A column such as the site: a :class:`~demur.RiskControl` then keeps its promise in each of its groups. It stays
        a feature unless it is dropped.
    novelty : "auto", float or None
        Which rows are declined because they are unlike those of training, as for :class:`~demur.RejectOption`.
    experts : mapping, optional
        Who can be asked instead of declining: from names to a column with the expert's answers, or several for several
        people behind one expert, and the price of a question: ``{"nurse": ("nurse_says", 0.05)}``. Empty cells are rows
        that the expert has not seen. Then there is neither a cost nor a rule.
    capacity : mapping, optional
        The most rows of one table that an expert gets: a number of rows, or a share below 1.
    time_split : str, optional
        A column of numbers, dates or times that says when each row was: the latest rows are held out, and the model is
        trained on earlier ones. The column is not a feature.
    keep, drop : names
        Columns to use although they look useless, and columns to leave out.
    delimiter, decimal, dayfirst : optional
        How a CSV file is written, as for :func:`open_table`. The last two are kept in the model.
    time_budget : float or None
        Seconds that "auto" may take.
    seed : int, default=0
        Of what is drawn at random: the rows to hold out, and what training draws.
    verbose : int
        1 shows a progress bar on a terminal.

    Raises
    ------
    InputError, TableError
        If the file or the call cannot be used; in one sentence.

    Examples
    --------
    >>> import io
    >>> rows = "".join(f"{k % 7},{k % 5},{'cat' if k % 7 < 3 else 'dog'}\n" for k in range(140))
    >>> fitted = fit_file(io.BytesIO(b"size,age,pet\n" + rows.encode()), "pet", model="lr")
    >>> fitted.model
    TableModel('lr' for 'pet': 2 classes, 2 columns)
    >>> fitted.notes[0]
    'nearly all of the 140 rows occur 4 times: they are taken for copies, stay on one side of every split, and count...
    """
    if not 0 <= holdout < 1:
        raise InputError(f"holdout must be a share from 0 to below 1, got {holdout:g}.")
    if experts is not None and rule is not None:
        raise InputError("a rule decides what to decline, and with experts their prices do: give one of the two.")
    if experts is None and capacity:
        raise InputError("capacity limits how many questions experts get: name the experts as well.")
    if not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise InputError(f"seed must be a whole number from 0 to {2**32 - 1}, got {seed!r}.")
    left_out = [*drop, *(name for name in (group_split, time_split) if name is not None)]
    named = (*keep, *left_out, *([] if risk_group is None else [risk_group]))
    table, notation = _read(path, target, named, model, (delimiter, decimal, dayfirst))
    asked = None
    if experts is not None:
        from demur.tabular.expert_columns import ExpertColumns

        roles = dict.fromkeys(keep, "a feature to keep") | dict.fromkeys(drop, "left out")
        if group_split is not None:
            roles[group_split] = "what says which rows belong together"
        if time_split is not None:
            roles[time_split] = "what says when a row was"
        asked = ExpertColumns.of(experts, capacity).found_in(table.column_names, source_name(path))
        asked.check_roles(target, roles)
        left_out += asked.names
    rows, labels = labelled_rows(table, target)
    check_classes(labels, target)
    classes = sorted(set(labels.tolist()))
    if asked is not None:
        asked.check_classes(classes)
        asked.answers(table, classes, where=source_name(path))  # to refuse one by its row in the file
    chosen = rule if rule is None or isinstance(rule, Rule) else rule(classes)
    # For reading other rows and for comparing these; what the model knows is learnt from the training rows alone.
    first_look = replace(Schema.learn(rows, target=target, keep=keep, drop=left_out), **notation)
    groups = None if group_split is None else groups_of(rows[group_split], group_split, target)
    held_out, train = None, np.arange(len(labels))
    if test is not None:
        held_out = read_labelled(test, first_look, classes, delimiter=delimiter, strict=False)
        labelled_rows(held_out, target, where=source_name(test))
    elif holdout:
        from demur.estimators.splitting import hold_out, hold_out_latest

        features = rows.select(first_look.names)
        if time_split is None:
            parts = hold_out(features, labels, holdout, groups=groups, seed=seed)
        else:
            times = _times(rows, time_split, target, notation)
            parts = hold_out_latest(times, features, labels, holdout, groups=groups)
        train, held_out = parts.train, rows.take(parts.aside) if len(parts.aside) else None
    from demur.tabular.table_fit import fit_table

    if risk_group is not None:
        chosen = _in_groups(chosen, rows[risk_group].take(pa.array(train)))
    started = time.perf_counter()
    fitted = fit_table(
        rows.take(train),
        target,
        model=model,
        cost=cost,
        rule=chosen,
        keep=keep,
        drop=[name for name in left_out if asked is None or name not in asked.names],
        groups=None if groups is None else groups[train],
        novelty=novelty,
        experts=asked,
        answer_classes=classes,
        time_budget=time_budget,
        seed=seed,
        verbose=verbose,
    )
    seconds = time.perf_counter() - started
    schema = replace(fitted.schema, **notation)
    for name, why in ((group_split, "it says which rows belong together"), (time_split, "it says when a row was")):
        if name is not None:
            schema = replace(schema, set_aside={**schema.set_aside, name: why})
    facts = {**fitted.facts, "rows_without_label": table.num_rows - len(labels)}
    fitted = replace(fitted, schema=schema, facts=facts)
    notes = _notes(fitted, rows.select(first_look.names), labels, groups, rows.take(train), labels[train])
    if time_split is not None and test is None and held_out is not None:
        n_neither = len(labels) - len(train) - held_out.num_rows
        if n_neither:
            of_group = f"of a group of {group_split}" if group_split is not None else "equal to a row"
            notes += (
                f"{n_neither:,} of the {len(labels):,} rows are left out of training and of judging: they are earlier "
                f"rows {of_group} that is held out.",
            )
        notes += (f"it was trained on earlier rows and judged on the latest {held_out.num_rows:,}, by {time_split}.",)
    if test is not None and held_out is not None:
        notes += _known_rows(first_look, rows, held_out, source_name(test))
    return FittedFile(fitted, held_out, source_name(path if test is None else test), seconds, notes)


def _read(
    path: Source,
    target: str,
    named: Sequence[str],
    model: str,
    written: tuple[str | None, str | None, bool | None],
) -> tuple[pa.Table, ByName]:
    """Read the table, once its header and the name of the model have been found right; and say how it is written."""
    delimiter, decimal, dayfirst = written
    with open_table(path, delimiter=delimiter, decimal=decimal, dayfirst=dayfirst) as reader:
        check_target(target, reader.columns, reader.name)
        for name in named:
            if name not in reader.columns:
                hint = did_you_mean(name, reader.columns)
                raise TableError(f"there is no column {shown(name)}{hint}: {reader.name} has {listed(reader.columns)}")
        from demur.tabular.table_fit import model_kind

        model_kind(model)
        table = reader.read()
        return table, {"decimal": reader.decimal or ".", "dayfirst": reader.dayfirst}


def groups_of(column: pa.ChunkedArray, name: str, target: str) -> NDArray[np.str_]:
    """Return which group each row is of; a row without one is a group of its own."""
    if name == target:
        raise TableError(f"the target {shown(target)} cannot also say which rows belong together: name another column")
    texts = class_texts(column)
    return np.array([f"row {row}" if text is None else f"group {text}" for row, text in enumerate(texts)])


def _in_groups(rule: Rule | None, column: pa.ChunkedArray) -> Rule:
    """Return a promise of risk that holds in each group; rows without one are a group as well."""
    from sklearn.base import clone

    from demur.guarantees import RiskControl

    if not isinstance(rule, RiskControl):
        raise InputError("risk_group is for a promise about the risk: give a RiskControl, or --max-risk.")
    texts = ["(none)" if text is None else text for text in class_texts(column)]
    grouped: Rule = clone(rule).set_params(groups=np.array(texts))
    return grouped


def _times(rows: pa.Table, name: str, target: str, notation: ByName) -> NDArray[np.float64]:
    """Return when each row was, as numbers."""
    if name == target:
        raise TableError(f"the target {shown(target)} cannot also say when a row was: name another column")
    schema = replace(Schema.learn(rows.select([name]), keep=[name]), **notation)
    if schema.columns[0].kind not in ("number", "date", "time"):
        kind = schema.columns[0].kind
        raise TableError(
            f"column {shown(name)} holds a {kind}, which has no order in time: name one of numbers or dates"
        )
    times: NDArray[np.float64] = schema.encode(rows.select([name]))[:, 0]
    n_unknown = int(np.isnan(times).sum())
    if n_unknown:
        raise TableError(
            f"column {shown(name)} is empty in {n_unknown:,} of the {len(times):,} rows with a label: fill it in, or "
            "leave such rows out"
        )
    return times


def _notes(
    model: "TableModel",
    compared: pa.Table,
    labels: NDArray[np.str_],
    groups: NDArray[np.str_] | None,
    train: pa.Table,
    train_labels: NDArray[np.str_],
) -> tuple[str, ...]:
    from demur.estimators.splitting import blocks_of
    from demur.tabular.table_fit import likely_leaks

    notes = []
    equal = None if groups is not None else blocks_of(compared, labels).explain()
    if equal is not None:
        notes.append(equal)
    if groups is not None:
        notes.append(f"the rows of each of the {len(np.unique(groups)):,} groups stay on one side of every split.")
    for name, found in model.facts.get("answers", {}).items():
        if found["right"] == found["answers"]:
            notes.append(
                f"the answers of {name} are the labels in all {found['rows']:,} rows that have one, which counts as "
                "always right. If the labels were made from these answers, no row can tell otherwise."
            )
    notes += [str(leak) for leak in likely_leaks(model.schema.encode(train), train_labels, model.schema)]
    return tuple(notes)


def _row_bytes(codes: NDArray[np.float64]) -> list[bytes]:
    """Return each row as bytes that are equal where the rows are: no code is infinite, which stands for missing."""
    plain = np.where(np.isnan(codes), np.inf, codes) + 0.0
    return [row.tobytes() for row in plain]


def _known_rows(schema: Schema, train: pa.Table, test: pa.Table, name: str) -> tuple[str, ...]:
    """Say how many rows of another file the model knows already."""
    seen = set(_row_bytes(schema.encode(train)))
    known = sum(row in seen for row in _row_bytes(schema.encode(test)))
    if not known:
        return ()
    has = "has" if known == 1 else "have"
    return (
        f"{known:,} of the {test.num_rows:,} rows of {name} {has} the same features as a row to train on: the figures "
        "may flatter.",
    )


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
    name = source_name(path)
    if "reject" in classes:
        raise TableError("a class is called reject, as is the column for declining in a cost matrix: rename the class")
    table = read_table(path)
    names = class_texts(table.column(0)).tolist()
    twice = [one for one in classes if names.count(one) > 1]
    if twice:
        raise TableError(f"{name} has more than one row for the class {shown(twice[0])}: leave one")
    wanted = [*classes, "reject"]
    missing_columns = [one for one in wanted if one not in table.column_names[1:]]
    missing_rows = [one for one in classes if one not in names]
    if missing_columns or missing_rows:
        what = f"column {shown(missing_columns[0])}" if missing_columns else f"row {shown(missing_rows[0])}"
        raise TableError(
            f"{name} has no {what}: the first column names the true class, and there is a column of costs for each "
            f"answer ({listed(classes)}) and one called reject"
        )
    columns = {one: dict(zip(names, table.column(one).to_pylist(), strict=True)) for one in wanted}
    return CostMatrix([[_cost(columns[answer][true], name) for answer in wanted] for true in classes])


def _cost(value: float | str | None, name: str) -> float:
    """Read one cell: a single word makes a whole column text."""
    try:
        return float(value)  # type: ignore[arg-type] # what it cannot take is refused here
    except (TypeError, ValueError):
        what = "an empty cell" if value is None else shown(value)
        raise TableError(f"{name} holds {what} where a cost should be: give a number in every cell") from None
