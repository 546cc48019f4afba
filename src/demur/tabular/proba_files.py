"""From a file of what another program says of each class to a model that knows when to decline.

Calibration and rule are all that is learnt; the probabilities, log-probabilities, logits or votes are the features.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from demur.array_types import AnyArray, ByName
from demur.columns.column import Column, kind_of_type
from demur.columns.frames import TableError, did_you_mean, listed, shown
from demur.columns.schema import Schema
from demur.errors import InputError
from demur.rules import Rule
from demur.tabular.class_labels import (
    as_column,
    check_classes,
    check_target,
    class_texts,
    label_type,
    labelled_rows,
)
from demur.tabular.fit_file import FittedFile, groups_of
from demur.tabular.table_files import open_table, read_labelled
from demur.tabular.table_sources import Source, source_name

if TYPE_CHECKING:
    from demur.estimators import RejectOption

__all__ = ["ClassColumns", "class_columns", "fit_proba"]

_FOLDS = 5
"""A rule that is fitted gets the share of rows that one of so many folds has."""


def fit_proba(
    path: Source,
    target: str,
    *,
    kind: str | None = None,
    calibration: str | None = "auto",
    cost: float = 0.2,
    rule: Rule | Callable[[list[str]], Rule | None] | None = None,
    test: Source | None = None,
    holdout: float = 0.2,
    group_split: str | None = None,
    keep: Collection[str] = (),
    drop: Collection[str] = (),
    delimiter: str | None = None,
    decimal: str | None = None,
) -> FittedFile:
    r"""Learn calibration and rule from a file that holds a number for each class, and the true label, of each row.

    The model that comes of it reads files of the same columns, and is one like any other: to predict, evaluate, serve,
    export and watch.

    Parameters
    ----------
    path : path, "-" or binary stream
        A table with a column for each class, named like the class, ``cat`` or with the same text before or after it
        in all of them, ``proba:cat``; and one with the labels. Other columns of text are set aside.
    target : str
        The column with the labels.
    kind : {"probabilities", "percentages", "log-probabilities", "logits", "votes"}, optional
        What the numbers are; found by looking at them by default. Rows of probabilities whose kind is given are divided
        by their sum, whatever it is.
    calibration : {"auto", "temperature", "isotonic", "sigmoid", None}
        As for :class:`~demur.RejectOption`.
    cost, rule, test, holdout, group_split
        As for :func:`fit_file`.
    keep, drop : names
        Columns of numbers that are classes although no row has that label, and columns that are not classes.
    delimiter, decimal : optional
        How a CSV file is written.

    Raises
    ------
    InputError, TableError
        If the columns cannot be told, a label has none, or a row is not what its kind says; in one sentence.

    Examples
    --------
    >>> import io
    >>> said = b"cat,dog,y\n" + b"-0.1,-2.5,cat\n-3.2,-0.05,dog\n-0.2,-1.9,dog\n" * 40
    >>> fitted = fit_proba(io.BytesIO(said), "y")
    >>> fitted.model.facts["proba_kind"], fitted.model.schema.names
    ('log-probabilities', ('cat', 'dog'))
    >>> fitted.model.predict_proba(pa.table({"cat": [-0.1], "dog": [-2.5]})).round(2)
    array([[0.77, 0.23]])
    """
    from demur.estimators.given_probabilities import PROBA_KINDS

    if kind is not None and kind not in PROBA_KINDS:
        raise InputError(f"there is no kind {kind!r} of numbers; choose one of {', '.join(PROBA_KINDS)}.")
    if not 0 <= holdout < 1:
        raise InputError(f"holdout must be a share from 0 to below 1, got {holdout:g}.")
    left_out = list(drop) if group_split is None else [*drop, group_split]
    with open_table(path, delimiter=delimiter, decimal=decimal) as reader:
        check_target(target, reader.columns, reader.name)
        for name in (*keep, *left_out):
            if name not in reader.columns:
                hint = did_you_mean(name, reader.columns)
                raise TableError(f"there is no column {shown(name)}{hint}: {reader.name} has {listed(reader.columns)}")
        table = reader.read()
        notation: ByName = {"decimal": reader.decimal or ".", "dayfirst": reader.dayfirst}
    rows, labels = labelled_rows(table, target)
    check_classes(labels, target)
    found = class_columns(table, target, sorted(set(labels.tolist())), keep=keep, drop=left_out)
    schema = Schema(tuple(Column(name, "number") for name in found.names), target, found.set_aside, **notation)
    given = _Given(found.classes, schema.encode(table), _labelled(table, target), source_name(path), kind)
    chosen = rule if rule is None or isinstance(rule, Rule) else rule(found.classes)
    groups = None if group_split is None else groups_of(rows[group_split], group_split, target)
    held_out, train = None, np.arange(len(labels))
    if test is not None:
        held_out = read_labelled(test, schema, found.classes, delimiter=delimiter, strict=False)
        labelled_rows(held_out, target, where=source_name(test))
    elif holdout:
        from demur.estimators.splitting import hold_out

        parts = hold_out(_numbered(len(labels)), labels, holdout, groups=groups)
        train, held_out = parts.train, rows.take(parts.aside) if len(parts.aside) else None
    started = time.perf_counter()
    option, n_aside = given.fitted(labels, train, groups, calibration, cost, chosen)
    seconds = time.perf_counter() - started
    facts = {
        "model": "given",
        "model_in_words": f"calibration of the {given.kind} that were given",
        "proba_kind": given.kind,
        "rows": len(train) - n_aside,
        "rows_for_the_rule": n_aside,
        "rows_without_label": table.num_rows - len(labels),
        "classes": {name: int((labels[train] == name).sum()) for name in found.classes},
        "temperature": getattr(option.calibrator_, "temperature_", None) or given.temperature,
    }
    from demur.tabular.table_model import TableModel

    written = _label_type(table, target, found.classes)
    model = TableModel(schema, option, label_type=written, facts=facts, reads="numbers")
    return FittedFile(model, held_out, source_name(path if test is None else test), seconds, given.notes)


def _numbered(n_rows: int) -> NDArray[np.float64]:
    """Return rows that differ: equal numbers of two rows, votes above all, do not make one a copy of the other."""
    return np.arange(float(n_rows)).reshape(-1, 1)


def _label_type(table: pa.Table, target: str, classes: Sequence[str]) -> str:
    """Return how predictions are written: as labels are, unless a class without rows cannot be."""
    kind = label_type(table[target], target)
    try:
        written = as_column(classes, kind)
    except pa.ArrowException:
        return "text"
    return kind if kind != "boolean" or len(written.unique()) == len(classes) == 2 else "text"


def _labelled(table: pa.Table, target: str) -> NDArray[np.bool_]:
    return np.array([label is not None for label in class_texts(table[target])])


@dataclass
class _Given:
    """The numbers of all rows, and what is learnt from those with a label."""

    classes: list[str]
    values: NDArray[np.float64]
    labelled: NDArray[np.bool_]
    where: str
    asked: str | None
    notes: tuple[str, ...] = field(default=(), init=False)
    temperature: float | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        from demur.estimators import GivenProbabilities
        from demur.estimators.given_probabilities import PROBA_KINDS, find_kind

        # rows without a label are not looked at, and keep their place, so that a message names the right row
        self.values[~self.labelled] = self.values[self.labelled.argmax()]
        gaps = np.isnan(self.values)
        try:
            _refuse_empty(gaps)
            if self.asked is None:
                found = find_kind(self.values)
                self.kind, tolerance = found.kind, found.tolerance
                self.notes += (f"the numbers are taken for {found.kind} ({found.words}): --proba-kind says otherwise.",)
            else:
                self.kind, tolerance = self.asked, None
                self.notes += self._rows_of_other_sums()
            self.estimator = GivenProbabilities(np.array(self.classes), self.kind, tolerance)
            self.estimator.predict_proba(self.values)
        except InputError as error:
            words, kinds = str(error).rstrip("."), ", ".join(PROBA_KINDS)
            raise TableError(f"{self.where}: {words}; correct it, or give --proba-kind, one of {kinds}") from None
        if gaps.any():
            means = "share what the others leave" if self.kind == "log-probabilities" else "count as 0"
            self.notes += (f"{int(gaps.sum()):,} gaps in {int(gaps.any(axis=1).sum()):,} rows {means}.",)

    def _rows_of_other_sums(self) -> tuple[str, ...]:
        whole = {"probabilities": 1.0, "percentages": 100.0}.get(self.kind)
        if whole is None:
            return ()
        from demur.estimators.given_probabilities import rounding_of

        sums = np.nansum(self.values, axis=1)
        wrong = np.abs(sums / whole - 1) > rounding_of(self.values)
        if not wrong.any():
            return ()
        row = int(wrong.argmax())
        return (
            f"{int(wrong.sum()):,} of {len(wrong):,} rows do not sum to {whole:g} (row {row + 1:,} to "
            f"{sums[row]:.6g}) and are divided by their sum.",
        )

    def fitted(
        self,
        labels: NDArray[np.str_],
        train: NDArray[np.int64],
        groups: AnyArray | None,
        calibration: str | None,
        cost: float,
        rule: Rule | None,
    ) -> "tuple[RejectOption, int]":
        """Calibrate on rows with a label, and fit the rule on rows of its own."""
        from sklearn.frozen import FrozenEstimator

        from demur.calibration import TemperatureScaling
        from demur.estimators import RejectOption
        from demur.estimators.given_probabilities import LOG_KINDS
        from demur.estimators.splitting import Partition, set_aside

        unseen = [name for name in self.classes if name not in set(labels.tolist())]
        if unseen:
            self.notes += (f"no row has the label {listed(unseen)}, which the model can answer nevertheless.",)
        values, labels = self.values[self.labelled][train], labels[train]
        if rule is not None and rule.needs_fit:
            own = None if groups is None else groups[train]
            parts = set_aside(_FOLDS, _numbered(len(train)), labels, groups=own)
        else:
            parts = Partition(np.arange(len(train)), np.array([], dtype=np.int64), 0)
        if self.kind in LOG_KINDS and calibration in ("auto", "temperature"):
            scaling = TemperatureScaling(from_logits=True)
            codes = np.searchsorted(self.classes, labels[parts.train])
            self.temperature = scaling.fit(self.estimator.logits(values[parts.train]), codes).temperature_
            self.estimator.temperature = self.temperature
            calibration = None
        option = RejectOption(
            FrozenEstimator(self.estimator),
            cost=cost,
            calibration=calibration,
            reject_label=_free_label(self.classes),
            novelty=None,  # it knows what was said of the rows, and not the rows
        )
        option.fit(values[parts.train], labels[parts.train]).set_params(rule=rule)
        if len(parts.aside):
            # Equal numbers, votes above all, do not make one row a copy of another.
            aside: ByName = {"copies": np.zeros(len(parts.aside), dtype=bool)}
            if groups is not None:
                aside["groups"] = groups[train][parts.aside]
            option.fit_rule(values[parts.aside], labels[parts.aside], **aside)
        return option, len(parts.aside)


def _refuse_empty(gaps: NDArray[np.bool_]) -> None:
    empty = gaps.all(axis=1)
    if empty.any():
        raise InputError(f"row {int(empty.argmax()) + 1:,} holds a label and no number")


def _free_label(classes: Sequence[str]) -> str:
    label = "reject"
    while label in classes:
        label += "!"
    return label


@dataclass(frozen=True)
class ClassColumns:
    """Which column is about which class.

    Parameters
    ----------
    classes : list of str
        Sorted.
    names : list of str
        The column of each.
    set_aside : dict of str to str
        The columns that are about none, each with the reason.
    """

    classes: list[str]
    names: list[str]
    set_aside: Mapping[str, str]


def class_columns(
    table: pa.Table, target: str, labels: Sequence[str], *, keep: Collection[str] = (), drop: Collection[str] = ()
) -> ClassColumns:
    """Find the column of each class, by its name.

    A column of numbers whose name is no label is a class that no row has if all columns have the same text before or
    after the label, or if ``keep`` names it; otherwise it is refused, for it may as well be an identifier.

    Parameters
    ----------
    table : pyarrow.Table
    target : str
    labels : sequence of str
        Those that occur.
    keep, drop : names

    Examples
    --------
    >>> table = pa.table({"id": [1], "p_cat": [0.2], "p_dog": [0.7], "p_newt": [0.1], "y": ["cat"]})
    >>> found = class_columns(table, "y", ["cat", "dog"])
    >>> found.classes, found.names, dict(found.set_aside)
    (['cat', 'dog', 'newt'], ['p_cat', 'p_dog', 'p_newt'], {'id': 'it is not about a class'})
    """
    aside = {name: "it was left out on request" for name in drop if name != target}
    names = [name for name in table.column_names if name != target and name not in aside]
    before, after = _affixes(names, labels, target)
    by_class: dict[str, str] = {}
    extra: list[str] = []
    for name in names:
        is_number = kind_of_type(table.schema.field(name).type) == "number"
        is_named = name.startswith(before) and name.endswith(after) and len(name) > len(before) + len(after)
        text = _canonical(name[len(before) : len(name) - len(after)], labels) if is_named else name
        if is_named and text in labels and not is_number:
            if table[name].null_count == len(table[name]):
                raise TableError(f"the column {shown(name)} of the class {shown(text)} is empty: give its numbers")
            raise TableError(f"the column {shown(name)} of the class {shown(text)} holds text: give numbers")
        if is_number and is_named and (text in labels or before or after or name in keep):
            if text in by_class:
                raise TableError(f"{shown(by_class[text])} and {shown(name)} are both about {shown(text)}: leave one")
            by_class[text] = name
        elif is_number and not (before or after):
            extra.append(name)
        else:
            aside[name] = "it is not about a class"
    if extra:
        by_class |= _summing(table, by_class, extra, aside)
    classes = sorted(by_class)
    return ClassColumns(classes, [by_class[one] for one in classes], aside)


def _affixes(names: Sequence[str], labels: Sequence[str], target: str) -> tuple[str, str]:
    """Return what stands before and after the label in the name of each class's column, as little as possible."""
    known = {_canonical(name, labels) for name in names}
    missing = [label for label in labels if label not in known]
    if not missing:
        return "", ""
    tried = max(labels, key=len)
    found = []
    for name in names:
        start = name.find(tried)
        while start >= 0:
            before, after = name[:start], name[start + len(tried) :]
            if all(f"{before}{label}{after}" in names for label in labels):
                found.append((before, after))
            start = name.find(tried, start + 1)
    if found:
        return min(found, key=lambda one: len(one[0]) + len(one[1]))
    if len(missing) == len(labels):  # all columns may have one prefix or suffix, and some labels no column
        missing = [label for label in labels if not any(label in name for name in names)]
    if 0 < len(missing) < len(labels):
        raise TableError(
            f"there is no column for {listed(missing)}, which {shown(target)} holds: add a column for each class, or "
            "leave these rows out"
        )
    raise TableError(
        f"no column is named like a label of {shown(target)}, such as {shown(labels[0])}: the columns are "
        f"{listed(names)}; name each like its class, with the same text before or after it if need be"
    )


def _canonical(name: str, labels: Sequence[str]) -> str:
    """Return the label that the name of a column stands for: pandas writes the classes 0.0 and True as such."""
    if name in labels:
        return name
    lower = name.lower()
    if lower in ("true", "false") and lower in labels:
        return lower
    try:
        number = float(name)
    except ValueError:
        return name
    return str(int(number)) if number.is_integer() and str(int(number)) in labels else name


def _summing(
    table: pa.Table, by_class: Mapping[str, str], extra: Sequence[str], aside: dict[str, str]
) -> dict[str, str]:
    """Say what columns of numbers are whose names are no labels, where the sums of the rows tell."""

    def share(names: Sequence[str]) -> float:
        numbers = np.column_stack([np.asarray(table[name].cast(pa.float64()).fill_null(0.0)) for name in names])
        sums = numbers.sum(axis=1)
        right = [np.abs(sums / whole - 1) < 0.01 for whole in (1.0, 100.0)]
        return float(max(one.mean() for one in right)) if (numbers >= 0).all() else 0.0

    own = list(by_class.values())
    if share(own) > 0.5:
        aside.update(dict.fromkeys(extra, "it is not about a class"))
        return {}
    if share([*own, *extra]) > 0.5:
        return {name: name for name in extra}
    raise TableError(
        f"the column {shown(extra[0])} holds numbers, and is not named like a label: --drop {shown(extra[0])} leaves "
        f"it out, --keep {shown(extra[0])} takes it for a class that no row has"
    )
