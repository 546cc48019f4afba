"""Fitting calibration and a rule on a file that holds another model's numbers for each class."""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from demur.columns.column import Column, kind_of_type
from demur.columns.frames import TableError, listed, shown
from demur.columns.schema import Schema
from demur.errors import InputError
from demur.rules import Rule
from demur.tabular.class_labels import LabelledTable, as_column, label_type
from demur.tabular.fit_file import FitOptions, FittedFile, OpenedFile
from demur.tabular.table_files import Source

__all__ = ["ClassColumns", "class_columns", "fit_proba"]

_FOLDS = 5
"""A rule that is fitted gets the share of rows that one of so many folds has."""

_NO_CLASS = "it is not about a class"


def fit_proba(path: Source, target: str, *, kind: str | None = None, **options: Any) -> FittedFile:
    r"""Fit calibration and a rule on a file with a number for each class, and the true label, of each row.

    The model reads files with the same columns; it can predict, be evaluated, served, exported and monitored.

    Parameters
    ----------
    path : path, "-" or binary stream
        A table with a column for each class, named like the class, ``cat`` or with the same text before or after it
        in all of them, ``proba:cat``; and one with the labels. Other columns of text are set aside.
    target : str
        The column with the labels.
    kind : {"probabilities", "percentages", "log-probabilities", "logits", "votes"}, optional
        What the numbers are; detected by default. Probabilities whose kind is given are divided by their sum.
    **options
        The fields of :class:`FitOptions` that are about data, decision and validation. ``keep`` names columns of
        numbers that are classes although no row has that label, ``drop`` columns that are not classes.

    Raises
    ------
    InputError, TableError
        If a label has no column, or a row does not hold numbers of its kind; in one sentence.

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
    from demur.estimators.precomputed_probabilities import PROBA_KINDS

    if kind is not None and kind not in PROBA_KINDS:
        raise InputError(f"there is no kind {kind!r} of numbers; choose one of {', '.join(PROBA_KINDS)}.")
    spec = FitOptions(**options)
    file = OpenedFile.read(path, target, spec)
    data = file.data
    found = class_columns(data.rows, target, data.classes, keep=spec.keep, drop=[*spec.roles])
    schema = Schema(tuple(Column(name, "number") for name in found.names), target, found.set_aside, **file.notation)
    values = schema.encode(data.rows)
    where = f"{data.name}, counting rows with a label" if data.n_unlabelled else data.name
    estimator, notes = _estimator(values, found.classes, kind, where)
    unseen = sorted(set(found.classes) - set(data.classes))
    if unseen:
        notes.append(f"no row has the label {listed(unseen)}, which the model can answer nevertheless.")
    rule = file.rule(found.classes)
    # Equal numbers, votes above all, do not make one row a copy of another: rows are told apart by their number.
    numbered = np.arange(float(len(values))).reshape(-1, 1)
    train, held_out = file.split(schema, numbered, found.classes)
    groups = file.groups
    started = time.perf_counter()
    of_train = data.take(train)
    own = None if groups is None else groups[train]
    option, n_aside = _calibrated(estimator, values[train], of_train.labels, own, replace(spec, rule=rule))
    facts = {
        "model": "given",
        "model_in_words": f"calibration of given {estimator.kind}",
        "proba_kind": estimator.kind,
        "temperature": getattr(option.calibrator_, "temperature_", estimator.temperature),
        "rows": len(train) - n_aside,
        "rows_for_the_rule": n_aside,
        "classes": {name: int((of_train.labels == name).sum()) for name in found.classes},
    }
    from demur.tabular.table_model import TableModel

    kind_of_label = _label_type(data, found.classes)
    model = TableModel(schema, option, label_type=kind_of_label, facts=facts, reads="numbers")
    return file.fitted(model, held_out, started, notes)


def _label_type(data: LabelledTable, classes: Sequence[str]) -> str:
    """Return how predictions are written: as labels are, unless a class without rows cannot be."""
    kind = label_type(data.rows[data.target], data.target)
    try:
        written = as_column(classes, kind)
    except pa.ArrowException:
        return "text"
    return kind if kind != "boolean" or len(written.unique()) == len(classes) == 2 else "text"


def _estimator(values: NDArray[np.float64], classes: list[str], kind: str | None, where: str) -> tuple[Any, list[str]]:
    """Return the classifier that reads the numbers, and what there is to say about them."""
    from demur.estimators import PrecomputedProbabilities
    from demur.estimators.precomputed_probabilities import PROBA_KINDS, find_kind, rounding_of

    gaps, notes, tolerance = np.isnan(values), [], None
    try:
        if gaps.all(axis=1).any():
            raise InputError(f"row {int(gaps.all(axis=1).argmax()) + 1:,} holds a label and no number")
        if kind is None:
            found = find_kind(values)
            kind, tolerance = found.kind, found.tolerance
            notes.append(f"the numbers are taken for {kind} ({found.words}): --proba-kind says otherwise.")
        elif kind in ("probabilities", "percentages"):
            whole = 1.0 if kind == "probabilities" else 100.0
            sums = np.nansum(values, axis=1)
            wrong = np.abs(sums / whole - 1) > rounding_of(values)
            if wrong.any():
                row = int(wrong.argmax())
                notes.append(
                    f"{int(wrong.sum()):,} of {len(wrong):,} rows do not sum to {whole:g} (row {row + 1:,} sums to "
                    f"{sums[row]:.6g}) and are divided by their sum."
                )
        estimator = PrecomputedProbabilities(np.array(classes), kind, tolerance)
        estimator.predict_proba(values)
    except InputError as error:
        problem, kinds = str(error).rstrip("."), ", ".join(PROBA_KINDS)
        raise TableError(f"{where}: {problem}; correct it, or give --proba-kind, one of {kinds}") from None
    if gaps.any():
        means = "share what the others leave" if kind == "log-probabilities" else "count as 0"
        notes.append(f"{int(gaps.sum()):,} gaps in {int(gaps.any(axis=1).sum()):,} rows {means}.")
    return estimator, notes


def _calibrated(
    estimator: Any,
    values: NDArray[np.float64],
    labels: NDArray[np.str_],
    groups: NDArray[np.str_] | None,
    spec: FitOptions,
) -> tuple[Any, int]:
    """Calibrate on rows with a label, and fit the rule on rows of its own; return how many those are."""
    from sklearn.frozen import FrozenEstimator

    from demur.calibration import TemperatureScaling
    from demur.estimators import RejectOption
    from demur.estimators.precomputed_probabilities import LOG_KINDS
    from demur.estimators.splitting import blocks_of, set_aside
    from demur.tabular.table_model import free_label

    rule, calibration = spec.rule, spec.calibration
    train, aside = np.arange(len(labels)), np.array([], dtype=np.int64)
    if isinstance(rule, Rule) and rule.needs_fit:
        train, aside, *_ = set_aside(_FOLDS, labels, blocks_of(train.reshape(-1, 1), labels, groups))
    if estimator.kind in LOG_KINDS and calibration in ("auto", "temperature"):
        scaling, codes = TemperatureScaling(from_logits=True), np.searchsorted(estimator.classes_, labels[train])
        estimator.temperature = scaling.fit(estimator.logits(values[train]), codes).temperature_
        calibration = None
    option = RejectOption(
        FrozenEstimator(estimator),
        cost=spec.cost,
        calibration=calibration,
        reject_label=free_label(estimator.classes_),
        novelty=None,  # the features themselves are not known
    )
    option.fit(values[train], labels[train]).set_params(rule=rule)
    if len(aside):
        of_aside = {} if groups is None else {"groups": groups[aside]}
        copies = np.zeros(len(aside), dtype=bool)
        option.fit_rule(values[aside], labels[aside], copies=copies, **of_aside)
    return option, len(aside)


@dataclass(frozen=True)
class ClassColumns:
    """The column of each class.

    Parameters
    ----------
    classes : list of str
        Sorted.
    names : list of str
        The column of each class.
    set_aside : dict of str to str
        The columns that are about no class, each with the reason.
    """

    classes: list[str]
    names: list[str]
    set_aside: Mapping[str, str]


def class_columns(
    table: pa.Table, target: str, labels: Sequence[str], *, keep: Collection[str] = (), drop: Collection[str] = ()
) -> ClassColumns:
    """Find the column of each class by its name.

    A column of numbers whose name is no label is a class without rows if all columns have the same text before or
    after the label, if the numbers of a row then sum to 1 or 100, or if ``keep`` names it. It is set aside where the
    others sum to 1 or 100; otherwise it is refused, since it may be an identifier.

    Parameters
    ----------
    table : pyarrow.Table
    target : str
    labels : sequence of str
        The labels that occur.
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
            raise TableError(f"the column {shown(name)} of the class {shown(text)} holds no numbers: give its numbers")
        if is_number and is_named and (text in labels or before or after or name in keep):
            if text in by_class:
                raise TableError(f"{shown(by_class[text])} and {shown(name)} are both about {shown(text)}: leave one")
            by_class[text] = name
        elif is_number and not (before or after):
            extra.append(name)
        else:
            aside[name] = _NO_CLASS
    if extra and _sum_to_one(table, list(by_class.values())):
        aside |= dict.fromkeys(extra, _NO_CLASS)
    elif extra and _sum_to_one(table, [*by_class.values(), *extra]):
        by_class |= {name: name for name in extra}
    elif extra:
        raise TableError(
            f"the column {shown(extra[0])} holds numbers, and is not named like a label: --drop {shown(extra[0])} "
            f"leaves it out, --keep {shown(extra[0])} takes it for a class that no row has"
        )
    classes = sorted(by_class)
    return ClassColumns(classes, [by_class[one] for one in classes], aside)


def _affixes(names: Sequence[str], labels: Sequence[str], target: str) -> tuple[str, str]:
    """Return the text before and after the label in the names of the classes' columns, as short as possible."""
    missing = set(labels) - {_canonical(name, labels) for name in names}
    if not missing:
        return "", ""
    longest = max(labels, key=len)
    parts = [name.split(longest, 1) for name in names if longest in name]
    found = [(one[0], one[1]) for one in parts if all(f"{one[0]}{label}{one[1]}" in names for label in labels)]
    if found:
        return min(found, key=lambda one: len(one[0]) + len(one[1]))
    if len(missing) == len(labels):  # all columns may have one prefix or suffix, and some labels no column
        missing = {label for label in labels if not any(label in name for name in names)}
    if 0 < len(missing) < len(labels):
        raise TableError(
            f"there is no column for {listed(sorted(missing))}, which {shown(target)} holds: add a column for each "
            "class, or leave these rows out"
        )
    raise TableError(
        f"no column is named like a label of {shown(target)}, such as {shown(labels[0])}: the columns are "
        f"{listed(names)}; name each like its class, or with the same text before or after it"
    )


def _canonical(name: str, labels: Sequence[str]) -> str:
    """Return the label that a column's name stands for: pandas writes the classes 0 and true as 0.0 and True."""
    for text in (name, name.lower(), name.removesuffix(".0")):
        if text in labels:
            return text
    return name


def _sum_to_one(table: pa.Table, names: Sequence[str]) -> bool:
    """Return whether most rows of these columns sum to 1, or to 100."""
    numbers = np.column_stack([np.asarray(table[name].cast(pa.float64()).fill_null(0.0)) for name in names])
    sums = numbers.sum(axis=1)
    right = max((np.abs(sums / whole - 1) < 0.01).mean() for whole in (1.0, 100.0))
    return bool((numbers >= 0).all() and right > 0.5)
