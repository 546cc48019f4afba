"""Fitting a TableModel on a table in memory: the models by name, rows set aside for a rule, experts."""

import warnings
from collections.abc import Collection
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from demur.array_types import AnyArray, ByName
from demur.columns.column import kind_of_type
from demur.columns.frames import TableError, shown
from demur.columns.schema import Schema
from demur.deferral import DeferOption
from demur.errors import InputError, MissingExtraError
from demur.estimators import AutoClassifier, RejectClassifier, RejectOption
from demur.estimators.candidates import CANDIDATES, candidate_named, dense_view
from demur.estimators.splitting import Partition, blocks_of, set_aside
from demur.losses import available, resolve
from demur.novelty import FEWEST_ROWS, Novelty
from demur.rules import Rule
from demur.tabular.class_labels import LabelledTable, check_classes, class_texts, label_type
from demur.tabular.expert_columns import ExpertColumns, given_answers
from demur.tabular.fit_file import FitOptions
from demur.tabular.table_model import LARGEST, TableModel, free_label

__all__ = ["check_model", "fit_rows", "fit_table", "likely_leaks", "model_names"]

_FOLDS = 5
"""A rule that is fitted gets the share of rows that one of so many folds has."""

_MANY_ROWS = 50
"""Rows from which a text column can be told from a category."""


def model_names() -> dict[str, str]:
    """Return the names of the models that can be fitted, each with a description.

    Examples
    --------
    >>> model_names()["hgb"]
    'gradient boosting'
    """
    names = {"auto": "a blend of several models (the default)"}
    names |= {candidate.key: candidate.name for candidate in CANDIDATES}
    return names | {name: f"networks trained with {name}" for name in available()}


def check_model(name: str) -> str:
    """Return the description of a model; an unknown name is an error. ``file.py:Class`` is a user-defined loss.

    Examples
    --------
    >>> check_model("hbg")
    Traceback (most recent call last):
        ...
    demur.errors.InputError: there is no model 'hbg'; did you mean 'hgb'?
    """
    candidate = candidate_named(name)
    if candidate is not None and not candidate.is_installed:
        raise MissingExtraError(f"the model {name!r} needs a package: pip install demur[boost]")
    if candidate is not None:
        return candidate.name
    if ":" in name:
        return f"networks trained with {resolve(name).name}"
    names = model_names()
    if name not in names:
        close = get_close_matches(name, names, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"choose one of {', '.join(names)}."
        raise InputError(f"there is no model {name!r}; {hint}")
    return names[name]


def fit_table(
    table: pa.Table, target: str, *, schema: Schema | None = None, groups: ArrayLike | None = None, **options: Any
) -> TableModel:
    """Fit a classifier with a reject option, or with experts to ask, on a table.

    A rule that is fitted, such as :class:`~demur.RiskControl`, gets a fifth of the rows, which nothing else is learned
    from, the columns and their categories included.

    Parameters
    ----------
    table : pyarrow.Table
        Features and labels. Rows without a label are left out.
    target : str
        The column with the labels.
    schema : Schema, optional
        The types of the columns; learned from the training rows by default.
    groups : array of shape (n_rows,), optional
        The group of each row, such as a patient or a machine; the rows of a group stay on one side of every split.
    **options
        The fields of :class:`FitOptions` that are about training: ``model``, ``cost``, ``rule``, ``novelty``,
        ``experts``, ``capacity``, ``keep``, ``drop``, ``time_budget``, ``seed``, ``verbose``. The ``groups`` of a
        :class:`~demur.RiskControl` are one for each row of the table; the model does not keep them.

    Examples
    --------
    >>> table = pa.table({"size": [1.0, 1.2, 5.0, 5.2] * 30, "pet": ["cat", "cat", "dog", "dog"] * 30})
    >>> fit_table(table, "pet", model="lr", cost=0.1)
    TableModel('lr' for 'pet': 2 classes, 1 columns)
    """
    spec = FitOptions(**options)
    data = LabelledTable.of(table, target)
    known = np.array([label is not None for label in class_texts(table[target])])

    def of_labelled(given: ArrayLike) -> AnyArray:
        values: AnyArray = np.asarray(given)
        if len(values) != table.num_rows:
            raise TableError(f"there are {len(values):,} groups for {table.num_rows:,} rows: give one for each row")
        chosen: AnyArray = values[known]
        return chosen

    rule_groups = getattr(spec.rule, "groups", None)
    if rule_groups is not None:
        spec = replace(spec, rule=clone(spec.rule).set_params(groups=of_labelled(rule_groups)))
    if spec.experts:
        spec = replace(spec, experts=ExpertColumns.of(spec.experts, spec.capacity).found_in(table.column_names))
    return fit_rows(data, spec, schema=schema, groups=None if groups is None else of_labelled(groups))


def fit_rows(
    data: LabelledTable,
    spec: FitOptions,
    *,
    schema: Schema | None = None,
    groups: AnyArray | None = None,
    classes: Collection[str] = (),
) -> TableModel:
    """Fit a model on labelled rows.

    Parameters
    ----------
    data : LabelledTable
    spec : FitOptions
        With the rule itself, and with :class:`ExpertColumns` where there are experts.
    schema, groups
        As for :func:`fit_table`, for the labelled rows.
    classes : names
        Classes that experts may answer beside those of these rows.
    """
    words, candidate = check_model(spec.model), candidate_named(spec.model)
    check_classes(data.labels, data.target)
    _check_kept(data.rows, spec.keep)
    drop = [*spec.drop, *(spec.experts.names if spec.experts else ())]
    assert spec.rule is None or isinstance(spec.rule, Rule)
    first_look = schema or Schema.learn(data.rows, target=data.target, keep=spec.keep, drop=drop)
    parts = _parts(data.rows.select(first_look.names), data.labels, groups, spec.rule)
    train = data.take(parts.train)
    schema = schema or Schema.learn(train.rows, target=data.target, keep=spec.keep, drop=drop)
    codes = schema.encode(data.rows)
    _check_sizes(codes, schema)
    facts = {
        "model": spec.model if candidate is None else candidate.key,
        "model_in_words": words,
        "rows": len(parts.train),
        "rows_for_the_rule": len(parts.aside),
        "rows_without_label": data.n_unlabelled,
        "equal_rows": parts.equal_rows,
        "classes": {name: int((train.labels == name).sum()) for name in train.classes},
    }
    if spec.experts:
        fitted = _fit_with_experts(data, spec, schema, codes, groups, {*data.classes, *classes})
    else:
        fitted = _fit_with_rule(data, spec, schema, codes, groups, parts)
    kind = label_type(data.rows[data.target], data.target)
    return replace(fitted, label_type=kind, facts={**facts, **fitted.facts})


def _fit_with_rule(
    data: LabelledTable,
    spec: FitOptions,
    schema: Schema,
    codes: NDArray[np.float64],
    groups: AnyArray | None,
    parts: Partition,
) -> TableModel:
    """Fit a classifier that declines, then its rule on the rows that were set aside."""
    labels, rule = data.labels, spec.rule
    assert rule is None or isinstance(rule, Rule)
    dense, estimator = _estimator(spec, schema.categorical, needs_proba=rule is not None)
    dense, features = _dense(dense, codes, parts.train)
    classifier: Any = estimator
    if rule is not None or not isinstance(estimator, RejectClassifier):
        own = None if len(parts.aside) else rule
        classifier = RejectOption(estimator, cost=spec.cost, rule=own, novelty=None)
    classifier.set_params(reject_label=free_label(labels))
    of_train: ByName = {} if groups is None else {"groups": groups[parts.train]}
    blocks = blocks_of(codes[parts.train], labels[parts.train], **of_train)
    novelty = _novelty(codes[parts.train], schema.categorical, blocks.of_row, spec.novelty)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=ConvergenceWarning)  # calibration shows what came of it
        classifier.fit(features[parts.train], labels[parts.train], **of_train)
        if len(parts.aside):
            rule_groups = getattr(rule, "groups", None)
            if rule_groups is not None:
                rule = clone(rule).set_params(groups=np.asarray(rule_groups)[parts.aside])
            aside: ByName = {"copies": np.zeros(len(parts.aside), dtype=bool) if parts.copies is None else parts.copies}
            if groups is not None:
                aside["groups"] = groups[parts.aside]
            if novelty is not None:
                aside["novel"] = novelty.novel(codes[parts.aside])
            classifier.set_params(rule=rule)
            classifier.fit_rule(features[parts.aside], labels[parts.aside], **aside)
            if rule_groups is not None:  # a saved model does not tell which row was in which group
                classifier.rule.groups = classifier.fitted_rule_.groups = None
    return TableModel(schema, classifier, dense, novelty=novelty)


def _fit_with_experts(
    data: LabelledTable,
    spec: FitOptions,
    schema: Schema,
    codes: NDArray[np.float64],
    groups: AnyArray | None,
    known: Collection[str],
) -> TableModel:
    """Fit a classifier that asks experts."""
    experts: ExpertColumns = spec.experts
    experts.check(data.target, dict.fromkeys(schema.names, "it is a feature"), known)
    said = experts.answers(data.rows, known, where=data.name)
    classes = np.unique(data.labels)
    answers = {name: _among(people, data.labels, classes) for name, people in said.items()}
    if spec.time_budget is not None:
        spec = replace(spec, time_budget=spec.time_budget / (1 + len(experts.prices)))
    dense, estimator = _estimator(spec, schema.categorical, needs_proba=True)
    dense, features = _dense(dense, codes, np.arange(len(codes)))
    classifier = DeferOption(estimator, dict(experts.prices)).set_params(reject_label=free_label(classes))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=ConvergenceWarning)
        classifier.fit(features, data.labels, answers=answers, groups=groups)
    aside = {name: f"it is what {shown(expert)} says" for expert, own in experts.columns.items() for name in own}
    counted = {name: _answers_counted(people, data.labels) for name, people in answers.items()}
    schema = replace(schema, set_aside={**schema.set_aside, **aside})
    return TableModel(schema, classifier, dense, facts={"answers": counted}, experts=experts)


def _estimator(spec: FitOptions, categorical: NDArray[np.bool_], needs_proba: bool) -> tuple[Any, Any]:
    """Return what turns codes into numbers, if anything does, and the unfitted classifier."""
    candidate = candidate_named(spec.model)
    if candidate is not None or spec.model == "auto":
        names = None if candidate is None else [candidate.key]
        budget: ByName = {"time_budget": spec.time_budget, "random_state": spec.seed, "verbose": spec.verbose}
        return None, AutoClassifier(names, categorical_features=categorical, **budget)
    loss = resolve(spec.model)
    if needs_proba and not loss.has_link:
        raise InputError(
            f"{spec.model} gives no probabilities, which a rule needs: use a cost, or another model such as ce."
        )
    networks = RejectClassifier(
        loss if ":" in spec.model else spec.model,
        cost=spec.cost,
        calibration=None if needs_proba else "auto",
        novelty=None,
        random_state=spec.seed,
        verbose=spec.verbose,
    )
    return dense_view(categorical), networks


def _dense(view: Any, codes: NDArray[np.float64], train: NDArray[np.int64]) -> tuple[Any, NDArray[np.float64]]:
    """Fit the view on the training rows, and return it with all rows as the classifier takes them."""
    if view is None:
        return None, codes
    fitted = view.fit(codes[train])
    return fitted, np.asarray(fitted.transform(codes), dtype=np.float64)


def _among(people: NDArray[np.object_], labels: NDArray[np.str_], classes: NDArray[np.str_]) -> NDArray[np.object_]:
    """Replace answers that are not among the classes of these rows by a wrong class: they are wrong in any case."""
    found = people.copy()
    other = np.where(labels == classes[0], classes[1], classes[0])
    unknown = ~np.isin(people.astype(str), classes) & given_answers(people)
    found[unknown] = np.broadcast_to(other[:, None], people.shape)[unknown]
    return found


def _answers_counted(people: NDArray[np.object_], labels: NDArray[np.str_]) -> dict[str, int]:
    given = given_answers(people)
    right = given & (people == labels[:, None])
    return {"rows": int(given.any(axis=1).sum()), "answers": int(given.sum()), "right": int(right.sum())}


def _parts(features: pa.Table, labels: NDArray[np.str_], groups: AnyArray | None, rule: Rule | None) -> Partition:
    """Set rows aside for a rule that is fitted; no class is left to the rule alone."""
    blocks = blocks_of(features, labels, groups)
    if rule is None or not rule.needs_fit:
        return Partition(np.arange(len(labels)), np.array([], dtype=np.int64), blocks.equal_rows)
    parts = set_aside(_FOLDS, labels, blocks)
    lonely = parts.aside[~np.isin(labels[parts.aside], labels[parts.train])]
    if not len(lonely):
        return parts
    train = np.union1d(parts.train, np.flatnonzero(np.isin(blocks.of_row, blocks.of_row[lonely])))
    aside = np.setdiff1d(parts.aside, train)
    return Partition(train, aside, parts.equal_rows, blocks.copies(aside, train))


def _novelty(
    codes: NDArray[np.float64], categorical: NDArray[np.bool_], blocks: NDArray[np.int64], rate: float | str | None
) -> Novelty | None:
    """Learn which rows are unlike those of training; None where these are too few."""
    if rate is None or (rate == "auto" and len(codes) < FEWEST_ROWS):
        return None
    return Novelty(rate).fit(codes, categorical, blocks)


def _check_kept(rows: pa.Table, keep: Collection[str]) -> None:
    """Refuse to use a text column as categories where few values occur twice."""
    for name in keep:
        values = rows[name] if name in rows.column_names else None
        if values is None or kind_of_type(values.type) != "category":
            continue
        n_distinct, n_valid = pc.count_distinct(values).as_py(), len(values) - values.null_count
        if n_valid >= _MANY_ROWS and 2 * n_distinct > n_valid:
            raise TableError(
                f"column {shown(name)} holds {n_distinct:,} different texts in {n_valid:,} rows, so that it cannot be "
                f"used as a category: leave out --keep {shown(name)}, and turn the text into columns of numbers or "
                "categories first"
            )


def _check_sizes(codes: NDArray[np.float64], schema: Schema) -> None:
    rows, columns = np.nonzero(np.abs(codes) > LARGEST)
    if len(rows):
        name, value = schema.names[columns[0]], codes[rows[0], columns[0]]
        raise TableError(
            f"column {shown(name)} holds {value:.3g}, too large for the models: divide it by a power of ten, or leave "
            "it out with --drop"
        )


_MOST_ROWS = 20_000
_FEW_VALUES = 50
_FEWEST_OTHERS = 30
"""Rows outside of the largest class from which a column that tells all of them cannot be chance."""
_TOLERATED = 0.02
"""Wrong rows, as a share of those outside of the largest class, up to which a column counts as a leak."""


def likely_leaks(codes: NDArray[np.float64], labels: NDArray[np.str_], schema: Schema) -> list[str]:
    """Return a sentence for each column that alone tells the class of nearly every row.

    A value stands for the class that most other rows with it have; a number with many values, for the classes between
    as many cuts as there are classes. A table with one column only has nothing to compare it with.

    Parameters
    ----------
    codes : array of shape (n_rows, n_columns)
        As :meth:`Schema.encode` returns them.
    labels : array of str, shape (n_rows,)
    schema : Schema

    Examples
    --------
    >>> import pyarrow as pa
    >>> y = ["cat", "dog"] * 50
    >>> table = pa.table({"code": [1, 2] * 50, "size": np.random.default_rng(0).normal(size=100), "y": y})
    >>> schema = Schema.learn(table, target="y")
    >>> likely_leaks(schema.encode(table), np.array(y), schema)
    ["column 'code' alone tells the class of 100.0% of the rows, which looks like a leak: ...
    """
    if len(labels) > _MOST_ROWS:
        some = np.random.default_rng(0).choice(len(labels), _MOST_ROWS, replace=False)
        codes, labels = codes[some], labels[some]
    y = np.unique(labels, return_inverse=True)[1]
    n_others = len(y) - np.bincount(y).max()
    if len(schema.columns) < 2 or n_others < _FEWEST_OTHERS:
        return []
    wrong = {column.name: _n_wrong(values, y) for column, values in zip(schema.columns, codes.T, strict=True)}
    return [
        f"column {shown(name)} alone tells the class of {1 - n_wrong / len(y):.1%} of the rows, which looks like a "
        f"leak: if it is known only after the answer, leave it out with --drop {shown(name)}."
        for name, n_wrong in wrong.items()
        if n_wrong <= _TOLERATED * n_others
    ]


def _n_wrong(values: NDArray[np.float64], y: NDArray[np.intp]) -> int:
    """Return how many rows a column alone gets wrong."""
    n_classes = int(y.max()) + 1
    distinct, position = np.unique(values, return_inverse=True)  # missing values are one value
    if len(distinct) > _FEW_VALUES:
        runs = 1 + int((np.diff(y[np.lexsort((y, position))]) != 0).sum())
        return max(0, (runs - n_classes + 1) // 2)
    counts = np.zeros((len(distinct), n_classes), dtype=np.int64)
    np.add.at(counts, (position, y), 1)
    # A row's own class counts without the row itself; otherwise every identifier would tell all.
    others = counts[position]
    others[np.arange(len(y)), y] = -1
    return int((counts[position, y] - 1 <= others.max(axis=1)).sum())
