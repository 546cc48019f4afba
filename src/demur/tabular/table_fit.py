"""Fitting a TableModel: what the name of a model stands for; rows are set aside first, and leaks are looked for."""

import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import Pipeline, make_pipeline

from demur.array_types import AnyArray, ByName, Estimator
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
from demur.tabular.class_labels import check_classes, class_texts, label_type, labelled_rows
from demur.tabular.expert_columns import ExpertColumns, given_answers
from demur.tabular.table_model import LARGEST, TableModel

__all__ = ["Leak", "ModelKind", "fit_table", "likely_leaks", "model_kind", "model_names"]


@dataclass(frozen=True)
class ModelKind:
    """A model that was asked for by name.

    Parameters
    ----------
    name : str
    words : str
        What it is, for people.
    """

    name: str
    words: str

    def classifier(
        self,
        n_rows: int,
        categorical: NDArray[np.bool_],
        *,
        cost: float,
        rule: Rule | None = None,
        with_rule: bool = False,
        time_budget: float | None = 90.0,
        seed: int = 0,
        verbose: int = 0,
    ) -> Any:
        """Return the unfitted classifier for a table of this size, which takes what :meth:`dense` makes of codes.

        Parameters
        ----------
        n_rows : int
        categorical : array of bool
            Which columns hold codes of categories.
        cost : float
        rule : Rule, optional
        with_rule : bool
            Whether a rule will be there, now or later: it needs probabilities.
        time_budget, verbose
            For "auto".
        seed : int
            The same table and seed give the same model.
        """
        options: ByName = {"cost": cost, "rule": rule, "novelty": None}  # the table's own columns tell
        if not self.is_network:
            return RejectOption(self._blend(categorical, time_budget, seed, verbose), **options)
        networks = self._networks(cost, with_rule, seed, verbose)
        return RejectOption(make_pipeline(dense_view(categorical), networks), **options) if with_rule else networks

    def deferring(
        self,
        n_rows: int,
        categorical: NDArray[np.bool_],
        prices: Mapping[str, float],
        *,
        time_budget: float | None = 90.0,
        seed: int = 0,
        verbose: int = 0,
    ) -> tuple[Any, Any]:
        """Return the unfitted classifier with experts to ask, and what must turn codes into numbers for all its parts.

        Parameters
        ----------
        n_rows, categorical, time_budget, seed, verbose
            As for :meth:`classifier`.
        prices : mapping of names to float
            The experts.
        """
        estimator: Any
        if not self.is_network:
            budget = None if time_budget is None else time_budget / (1 + len(prices))
            estimator = self._blend(categorical, budget, seed, verbose)
        else:
            prepared = self.classifier(n_rows, categorical, cost=0.2, with_rule=True, seed=seed, verbose=verbose)
            estimator = prepared.estimator
        dense = None
        if isinstance(estimator, Pipeline):
            dense, estimator = estimator[0], estimator[-1]
        return DeferOption(estimator, dict(prices)), dense

    def dense(self, categorical: NDArray[np.bool_], with_rule: bool) -> ColumnTransformer | None:
        """Return what must turn codes into numbers on one scale beforehand; None where the classifier does it itself.

        Networks alone choose between themselves on rows of their own, and see the scale of those.
        """
        return dense_view(categorical) if self.is_network and not with_rule else None

    @property
    def is_network(self) -> bool:
        """Whether it is trained with one of the paper's losses."""
        return self.name != "auto" and candidate_named(self.name) is None

    def _blend(
        self, categorical: NDArray[np.bool_], time_budget: float | None, seed: int, verbose: int
    ) -> AutoClassifier:
        """Return the classifier of all candidates for "auto", else of the one that was named."""
        return AutoClassifier(
            None if self.name == "auto" else [self.name], time_budget=time_budget, categorical_features=categorical,
            random_state=seed, verbose=verbose,
        )  # fmt: skip

    def _networks(self, cost: float, with_rule: bool, seed: int, verbose: int) -> RejectClassifier:
        loss = resolve(self.name)
        if with_rule and not loss.has_link:
            raise InputError(
                f"{self.name} gives no probabilities, which a rule needs; use a cost, or another model such as ce."
            )
        return RejectClassifier(
            loss if ":" in self.name else self.name,
            cost=cost,
            calibration=None if with_rule else "auto",
            novelty=None,
            random_state=seed,
            verbose=verbose,
        )


_OWN_NAMES = {"auto": "a blend of several models (the default)"} | {
    candidate.key: candidate.name for candidate in CANDIDATES
}


def model_names() -> dict[str, str]:
    """Return each name that a model can be asked for by, with what it stands for.

    Examples
    --------
    >>> model_names()["hgb"]
    'gradient boosting'
    """
    return _OWN_NAMES | {name: f"networks trained with {name}" for name in available()}


def model_kind(name: str) -> ModelKind:
    """Return the model of that name; "file.py:Class" names a loss of one's own, whose file is run.

    Examples
    --------
    >>> model_kind("hbg")
    Traceback (most recent call last):
        ...
    demur.errors.InputError: there is no model 'hbg'; did you mean 'hgb'?
    """
    candidate = candidate_named(name)
    own = name if candidate is None else candidate.key
    if candidate is not None and not candidate.is_installed:
        raise MissingExtraError(f"the model {name!r} needs a package: pip install demur[boost]")
    if own in _OWN_NAMES:
        return ModelKind(own, _OWN_NAMES[own])
    if ":" in name:
        return ModelKind(name, f"networks trained with {resolve(name).name}")
    names = model_names()
    if name not in names:
        close = get_close_matches(name, names, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"choose one of {', '.join(names)}."
        raise InputError(f"there is no model {name!r}; {hint}")
    return ModelKind(name, names[name])


_FOLDS = 5
"""A rule that is fitted gets the share of rows that one of so many folds has."""


def fit_table(
    table: pa.Table,
    target: str,
    *,
    model: str = "auto",
    cost: float = 0.2,
    rule: Rule | None = None,
    schema: Schema | None = None,
    keep: Collection[str] = (),
    drop: Collection[str] = (),
    groups: ArrayLike | None = None,
    novelty: float | str | None = "auto",
    experts: Any = None,
    capacity: Mapping[str, float] | None = None,
    answer_classes: Collection[str] = (),
    time_budget: float | None = 90.0,
    seed: int = 0,
    verbose: int = 0,
) -> TableModel:
    """Fit a classifier with a reject option, or with experts to ask, on a table.

    A rule that is fitted, such as :class:`~demur.RiskControl`, gets a fifth of the rows, from which nothing else is
    learnt, the columns and their categories included. Rows with equal features stay on one side.

    Parameters
    ----------
    table : pyarrow.Table
        Features and labels; rows without a label are left out.
    target : str
        The column with the labels.
    model : str, default="auto"
        One of :func:`model_names`.
    cost : float, default=0.2
    rule : Rule, optional
        As for :class:`~demur.RejectOption`. The groups of a :class:`~demur.RiskControl` are one for each row of the
        table; the model does not keep them.
    schema : Schema, optional
        What is known about the columns; learnt from the rows to train on by default.
    keep, drop : names
        For :meth:`Schema.learn`.
    groups : array of shape (n_rows,), optional
        Rows of one group, a patient or a machine, stay on one side of every split.
    novelty : "auto", float or None
        Which rows are declined because they are unlike those of training, as for :class:`~demur.RejectOption`.
    experts : mapping, optional
        Who can be asked instead of declining: from names to the column with the expert's answers, or several for
        several people, and the price, as in ``{"nurse": ("nurse_says", 0.05)}``. These columns are not features.
    capacity : mapping, optional
        The most rows of a table that an expert gets: a number, or a share below 1.
    answer_classes : names
        Classes that experts may answer beside those of these rows.
    time_budget : float or None
        Seconds that "auto" may take.
    seed : int, default=0
        Of what is drawn at random in training.
    verbose : int
        1 shows a progress bar on a terminal.
    """
    kind = model_kind(model)
    rows, labels = labelled_rows(table, target)
    check_classes(labels, target)
    known = None if groups is None else _of_labelled(groups, table, target)
    _check_kept(rows, keep)
    if experts:
        asked = ExpertColumns.of(experts, capacity).found_in(table.column_names)
        return _with_experts(
            kind,
            table,
            target,
            asked,
            schema or Schema.learn(rows, target=target, keep=keep, drop=[*drop, *asked.names]),
            known,
            {*labels.tolist(), *answer_classes},
            time_budget=time_budget,
            seed=seed,
            verbose=verbose,
        )
    rule_groups = getattr(rule, "groups", None)
    first_look = schema or Schema.learn(rows, target=target, keep=keep, drop=drop)
    parts = _parts(rows.select(first_look.names), labels, known, rule)
    train = rows.take(parts.train)
    schema = schema or Schema.learn(train, target=target, keep=keep, drop=drop)
    codes = schema.encode(rows)
    _check_sizes(codes, schema)
    classes, counts = np.unique(labels[parts.train], return_counts=True)
    classifier = kind.classifier(
        len(train),
        schema.categorical,
        cost=cost,
        rule=None if len(parts.aside) else rule,
        with_rule=rule is not None,
        time_budget=time_budget,
        seed=seed,
        verbose=verbose,
    )
    classifier.set_params(reject_label=_free_label(classes))
    usual = _usual(codes, labels, known, parts, schema, novelty)
    if rule_groups is not None:
        rule = clone(rule).set_params(groups=_of_labelled(rule_groups, table, target)[parts.aside])
    fitted = _fitted(kind, classifier, codes, labels, known, parts, schema, rule, usual)
    facts = {
        "model": kind.name,
        "model_in_words": kind.words,
        "rows": len(parts.train),
        "rows_for_the_rule": len(parts.aside),
        "rows_without_label": table.num_rows - len(rows),
        "equal_rows": parts.equal_rows,
        "classes": {str(name): int(count) for name, count in zip(classes, counts, strict=True)},
    }
    return replace(fitted, label_type=label_type(table[target], target), facts=facts)


def _with_experts(
    kind: ModelKind,
    table: pa.Table,
    target: str,
    experts: ExpertColumns,
    schema: Schema,
    groups: AnyArray | None,
    known: Collection[str],
    *,
    time_budget: float | None,
    seed: int,
    verbose: int,
) -> TableModel:
    """Fit a classifier that asks experts; what they said is checked on all rows, by their numbers in the table."""
    experts.check_roles(target, dict.fromkeys(schema.names, "a feature"))
    experts.check_classes(known)
    said = experts.answers(table, known)
    labelled = np.array([label is not None for label in class_texts(table[target])])
    rows, labels = labelled_rows(table, target)
    codes = schema.encode(rows)
    _check_sizes(codes, schema)
    classes, counts = np.unique(labels, return_counts=True)
    classifier, dense = kind.deferring(
        len(rows), schema.categorical, experts.prices, time_budget=time_budget, seed=seed, verbose=verbose
    )
    classifier.set_params(reject_label=_free_label(classes))
    answers = {name: _among(people[labelled], labels, classes) for name, people in said.items()}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=ConvergenceWarning)
        features = codes
        if dense is not None:
            dense = dense.fit(codes)
            features = np.asarray(dense.transform(codes), dtype=np.float64)
        classifier.fit(features, labels, answers=answers, groups=groups)
    for part in (classifier.estimator_, *classifier.learners_.values()):
        if "n_jobs" in getattr(part, "get_params", dict)() and kind.name != "auto":
            part.set_params(n_jobs=None)  # as for models that decline
    aside = {name: f"it is what {shown(expert)} says" for expert, own in experts.columns.items() for name in own}
    facts = {
        "model": kind.name,
        "model_in_words": kind.words,
        "rows": len(rows),
        "rows_for_the_rule": 0,
        "rows_without_label": table.num_rows - len(rows),
        "equal_rows": blocks_of(rows.select(schema.names), labels, groups).equal_rows,
        "classes": {str(name): int(count) for name, count in zip(classes, counts, strict=True)},
        "answers": {name: _answers_counted(people, labels) for name, people in answers.items()},
    }
    return TableModel(
        replace(schema, set_aside={**schema.set_aside, **aside}),
        classifier,
        dense,
        label_type(table[target], target),
        facts,
        experts,
    )


def _among(people: NDArray[np.object_], labels: NDArray[np.str_], classes: NDArray[np.str_]) -> NDArray[np.object_]:
    """Put another wrong class where an answer is a class that no row here has: it is wrong in any case."""
    found = people.copy()
    strange = ~np.isin(people.astype(str), classes) & given_answers(people)
    for row, person in np.argwhere(strange):
        found[row, person] = str(classes[0] if labels[row] != classes[0] else classes[1])
    return found


def _answers_counted(people: NDArray[np.object_], labels: NDArray[np.str_]) -> dict[str, int]:
    given = given_answers(people)
    return {
        "rows": int(given.any(axis=1).sum()),
        "answers": int(given.sum()),
        "right": int((given & (people == labels[:, None])).sum()),
    }


def _of_labelled(groups: ArrayLike, table: pa.Table, target: str) -> AnyArray:
    """Return the groups of the rows that have a label."""
    given = np.asarray(groups)
    if len(given) != table.num_rows:
        raise TableError(f"there are {len(given):,} groups for {table.num_rows:,} rows: give one for each row")
    known: AnyArray = given[[label is not None for label in class_texts(table[target])]]
    return known


def _parts(features: pa.Table, labels: NDArray[np.str_], groups: AnyArray | None, rule: Rule | None) -> Partition:
    """Set rows aside for a rule that is fitted; no class is left to the rule alone."""
    blocks = blocks_of(features, labels, groups)
    if rule is None or not rule.needs_fit:
        return Partition(np.arange(len(labels)), np.array([], dtype=np.int64), blocks.equal_rows)
    parts = set_aside(_FOLDS, features, labels, groups=groups, blocks=blocks)
    lonely = parts.aside[~np.isin(labels[parts.aside], labels[parts.train])]
    if not len(lonely):
        return parts
    back = np.isin(blocks.of_row, blocks.of_row[lonely])
    train = np.union1d(parts.train, np.flatnonzero(back))
    aside = np.setdiff1d(parts.aside, train)
    return Partition(train, aside, parts.equal_rows, blocks.copies(aside, train))


def _fitted(
    kind: ModelKind,
    classifier: Estimator,
    codes: NDArray[np.float64],
    labels: NDArray[np.str_],
    groups: AnyArray | None,
    parts: Partition,
    schema: Schema,
    rule: Rule | None,
    usual: Novelty | None,
) -> TableModel:
    """Fit the classifier, then the rule; take what prepares the codes out of the classifier, for all to see."""
    dense: Any = kind.dense(schema.categorical, rule is not None)
    features = codes
    if dense is not None:
        dense = dense.fit(codes[parts.train])
        features = np.asarray(dense.transform(codes), dtype=np.float64)
    own = {} if groups is None else {"groups": groups[parts.train]}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=ConvergenceWarning)  # calibration judges what came of it
        classifier.fit(features[parts.train], labels[parts.train], **own)
        if len(parts.aside):
            aside: ByName = {"copies": np.zeros(len(parts.aside), dtype=bool) if parts.copies is None else parts.copies}
            if groups is not None:
                aside["groups"] = groups[parts.aside]
            if usual is not None:
                aside["novel"] = usual.novel(codes[parts.aside])
            classifier.set_params(rule=rule)
            classifier.fit_rule(features[parts.aside], labels[parts.aside], **aside)
            if getattr(rule, "groups", None) is not None:  # which row was of which group is nobody's business any more
                classifier.rule.groups = classifier.fitted_rule_.groups = None
    inner: Any = getattr(classifier, "estimator_", None)
    if isinstance(inner, Pipeline):
        dense, inner = inner[0], inner[-1]
        classifier.set_params(estimator=classifier.estimator[-1])
        classifier.estimator_ = inner
    if "n_jobs" in getattr(inner, "get_params", dict)() and kind.name != "auto":
        inner.set_params(n_jobs=None)  # threads add trees up in any order, and the last bit would differ each time
    return TableModel(schema, classifier, dense, novelty=usual)


def _usual(
    codes: NDArray[np.float64],
    labels: NDArray[np.str_],
    groups: AnyArray | None,
    parts: Partition,
    schema: Schema,
    rate: float | str | None,
) -> Novelty | None:
    """Learn from the rows to train on which others are unlike them; None where they are too few to say."""
    if rate is None or (rate == "auto" and len(parts.train) < FEWEST_ROWS):
        return None
    train = codes[parts.train]
    blocks = blocks_of(train, labels[parts.train], None if groups is None else groups[parts.train])
    return Novelty(rate).fit(train, schema.categorical, blocks.of_row)


def _free_label(classes: NDArray[np.str_]) -> str:
    """Return a reject label that is none of the classes, whatever they are called; tables never show it."""
    label = "reject"
    while label in classes:
        label += "!"
    return label


def _check_kept(rows: pa.Table, keep: Collection[str]) -> None:
    """Refuse to use a text column as categories where few values occur twice."""
    for name in keep:
        values = rows[name] if name in rows.column_names else None
        if values is None or kind_of_type(values.type) != "category":
            continue
        n_distinct, n_valid = pc.count_distinct(values).as_py(), len(values) - values.null_count
        if n_valid >= _FEW_VALUES and 2 * n_distinct > n_valid:
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
            f"column {shown(name)} holds {value:.3g}, which is beyond what models can compare: divide it by a power of "
            "ten, or leave it out with --drop"
        )


_MOST_ROWS = 20_000
_FEW_VALUES = 50
_TOLERATED = 0.02
"""Wrong rows, as a share of those that are not of the largest class, up to which a column still gives all away."""
_CHANCE = 1e-6


@dataclass(frozen=True)
class Leak:
    """A column that alone tells the classes apart, and the share of rows of which it does."""

    column: str
    share: float

    def __str__(self) -> str:
        return (
            f"column {shown(self.column)} alone tells the class of {self.share:.1%} of the rows, which looks like a "
            f"leak: if it is known only after the answer, leave it out with --drop {shown(self.column)}."
        )


def likely_leaks(codes: NDArray[np.float64], labels: NDArray[np.str_], schema: Schema) -> list[Leak]:
    """Return the columns that alone tell nearly all rows' classes, where chance cannot explain it.

    A value speaks for the class that most other rows with it have; a number with many values, for the classes between
    as many cuts as there are classes. How often this would happen by chance, given the columns, the cuts or the
    values and the rows that are wrong, is bounded by counting: it must be below one in a million. A table with one
    column only has nothing to compare it with.

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
    >>> [leak.column for leak in likely_leaks(schema.encode(table), np.array(y), schema)]
    ['code']
    """
    if len(schema.columns) < 2:
        return []
    if len(labels) > _MOST_ROWS:
        some = np.random.default_rng(0).choice(len(labels), _MOST_ROWS, replace=False)
        codes, labels = codes[some], labels[some]
    y = np.unique(labels, return_inverse=True)[1]
    counts = np.bincount(y)
    most_wrong = _TOLERATED * (len(y) - counts.max())
    surprise = gammaln(len(y) + 1) - gammaln(counts + 1).sum() - np.log(len(schema.columns))
    found = []
    for column, values in zip(schema.columns, codes.T, strict=True):
        n_wrong, choices = _told_by(values, y, len(counts))
        chance = choices + _log_choose(len(y), n_wrong) + n_wrong * np.log(len(counts)) - surprise
        if n_wrong <= most_wrong and chance < np.log(_CHANCE):
            found.append(Leak(column.name, 1 - n_wrong / len(y)))
    return found


def _told_by(values: NDArray[np.float64], y: NDArray[np.intp], n_classes: int) -> tuple[int, float]:
    """Return how many rows a column alone gets wrong, and the logarithm of the number of ways in which it could not."""
    distinct, position = np.unique(values, return_inverse=True)  # missing values are one value
    if len(distinct) <= _FEW_VALUES:
        table = np.zeros((len(distinct), n_classes), dtype=np.int64)
        np.add.at(table, (position, y), 1)
        # a row's own class counts without the row itself: else every identifier would tell all
        own = table[position, y] - 1
        table_without = table[position]
        table_without[np.arange(len(y)), y] = -1
        return int((own <= table_without.max(axis=1)).sum()), len(distinct) * float(np.log(n_classes))
    runs = 1 + int((np.diff(y[np.lexsort((y, position))]) != 0).sum())
    return max(0, (runs - n_classes + 1) // 2), float(gammaln(n_classes + 1))


def _log_choose(n: int, k: int) -> float:
    return float(gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1))
