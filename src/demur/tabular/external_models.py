"""External models: fitted classifiers with scikit-learn's interface, and files with the outputs of models."""

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.frozen import FrozenEstimator

from demur.array_types import AnyArray, Estimator, Floats
from demur.columns.frames import TableError, as_table, check_columns, listed, shown
from demur.columns.schema import Column, Schema, kind_of_type, label_of
from demur.errors import InputError, InputTypeError, UserError
from demur.estimators import AutoClassifier, RejectOption
from demur.estimators.answer_classifier import AnswerClassifier
from demur.estimators.base import RejectingClassifier
from demur.estimators.precomputed_probabilities import (
    PROBA_KINDS,
    PrecomputedProbabilities,
    StoredOutputs,
    find_kind,
    rounding_of,
)
from demur.estimators.torch_classifier import TrainedNetwork
from demur.rules import Rule
from demur.tabular.array_files import StoredRows
from demur.tabular.fitting import FitOptions, FittedFile, TrainingFile
from demur.tabular.table_files import (
    LabelledTable,
    Source,
    check_classes,
    class_texts,
    label_type,
)
from demur.tabular.table_model import Reads, TableModel, free_label, model_input

_MOST_ANSWERS = 1000
"""Largest number of different answers that a model stores, to recognise new ones."""
_FLAT = 1e-3
"""Smallest rise of the log odds of being right, from the least to the largest confidence, that is used."""


def wrap_estimator(
    estimator: Estimator,
    schema: Any,
    *,
    target: str | None = None,
    cost: float | None = None,
    rule: Rule | None = None,
    calibrate: Any = None,
) -> TableModel:
    """Return a fitted classifier as a model of a table: :meth:`TableModel.wrap` has the parameters."""
    if not isinstance(schema, Schema):
        table = as_table(schema)
        schema = Schema.from_frame(table, target=target if target in table.column_names else None)
    name = target or schema.target or "class"
    features = tuple(column for column in schema.columns if column.name != name)
    used, reads = _columns_for(estimator, replace(schema, columns=features))
    used, data, rows, inner = replace(used, target=name), None, None, _inner(estimator)
    if isinstance(inner, TrainedNetwork):
        inner.predict_proba(np.empty((0, len(used.columns))))  # tells it how many columns there are
    where = "the table to calibrate on"
    if calibrate is not None:
        data = LabelledTable.of(calibrate, name, where)
        rows = model_input(used, data.rows, reads, where)
    try:
        classifier = _with_reject_option(estimator, cost, rule, rows, None if data is None else data.labels)
    except UserError:
        raise
    except Exception as error:  # estimators raise what they like about values that they cannot take
        raise refusal(error, estimator, where) from error
    steps = ", ".join(_name(step) for _, step in getattr(inner, "steps", ()))
    facts = {
        "model": _name(inner),
        "model_in_words": f"your own {_name(inner)}" + (f" ({steps})" if steps else ""),
        "calibrated_on": 0 if data is None else len(data.labels),
    }
    kind = label_type(pa.array(classifier.classes_.tolist()), "classes")
    return TableModel(used, classifier, label_type=kind, facts=facts, reads=reads)


def _columns_for(estimator: Estimator, schema: Schema) -> tuple[Schema, Reads]:
    """Return the columns that an estimator takes, in its order, and the form in which it takes them."""
    names, width = (getattr(estimator, name, None) for name in ("feature_names_in_", "n_features_in_"))
    if names is not None:
        by_name = {column.name: column for column in schema.columns}
        if missing := [name for name in names if name not in by_name]:
            raise TableError(
                f"the model was fitted on {listed(missing)}, and the table has the columns {listed(schema.names)}: "
                "give a table with the columns that the model was fitted on"
            )
        chosen = tuple(by_name.pop(name) for name in names)
        aside = {**schema.set_aside, **dict.fromkeys(by_name, "the model was not fitted on it")}
        remarks = {name: words for name, words in schema.remarks.items() if name not in by_name}
        return replace(schema, columns=chosen, set_aside=aside, remarks=remarks), "frame"
    first = _inner(estimator)
    while steps := getattr(first, "steps", None) or getattr(first, "transformer_list", None):
        first = steps[0][1]
    kinds = [column.kind for column in schema.columns]
    if hasattr(first, "build_analyzer") and kinds in (["category"], ["text"]):
        return schema, "texts"
    if hasattr(first, "build_analyzer") or width not in (None, len(kinds)):
        fitted_on = "one column of text" if width is None else f"a matrix of {width:,} columns"
        raise TableError(
            f"{_name(estimator)} was fitted on {fitted_on}, and the table has {listed(schema.names)}: give the columns "
            "that it was fitted on, in that order, and the target"
        )
    return schema, "numbers" if {*kinds} <= {"number", "boolean"} else "objects"


def schema_of_estimator(estimator: Estimator) -> Schema:
    """Return the columns that a fitted estimator knows: their names, and numbers as their type.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn.naive_bayes import GaussianNB
    >>> frame = pd.DataFrame({"size": [0.0, 1.0], "age": [3.0, 2.0]})
    >>> schema_of_estimator(GaussianNB().fit(frame, ["cat", "dog"])).names
    ('size', 'age')
    """
    inner = _inner(estimator)
    if isinstance(inner, AutoClassifier) and inner.encoding_.schema is not None:
        return inner.encoding_.schema
    names = getattr(estimator, "feature_names_in_", None)
    if names is None:
        raise InputError(
            f"this {_name(estimator)} was not fitted on named columns, so that a table's columns cannot be matched: "
            "wrap it with a table that has them, demur wrap MODEL TABLE or TableModel.wrap(model, table)."
        )
    return Schema(tuple(Column(str(name), "number") for name in names))


def _inner(estimator: Estimator) -> Estimator:
    """Return the classifier inside a reject option, a frozen one or a search."""
    if isinstance(estimator, RejectOption):
        return _inner(estimator.estimator_)
    if isinstance(estimator, FrozenEstimator):
        return _inner(estimator.estimator)
    return _inner(estimator.best_estimator_) if hasattr(estimator, "best_estimator_") else estimator


def _with_reject_option(
    estimator: Estimator, cost: float | None, rule: Rule | None, rows: Any, labels: NDArray[np.str_] | None
) -> Any:
    """Return a fitted classifier with a reject option; one that has it already is unchanged."""
    if isinstance(estimator, RejectingClassifier):
        if cost is not None or rule is not None or rows is not None:
            raise InputError(
                f"this {_name(estimator)} has a reject option already: leave out cost, rule and calibrate, or use "
                "set_params on it before."
            )
        return estimator
    has_scores = hasattr(estimator, "predict_proba") or hasattr(estimator, "decision_function")
    if not (has_scores and hasattr(estimator, "classes_") and hasattr(estimator, "__sklearn_tags__")):
        raise InputTypeError(
            f"this {_name(estimator)} is not a fitted classifier with predict_proba or decision_function: fit it "
            "first, or give another. A class of your own is derived from scikit-learn's BaseEstimator."
        )
    classes = np.unique(estimator.classes_)
    option = RejectOption(
        FrozenEstimator(estimator),
        cost=0.2 if cost is None else cost,
        rule=rule,
        calibration=None if rows is None else "auto",
        reject_label=free_label(classes),
    )
    if labels is not None:
        return option.fit(rows, _as_classes(labels, classes))
    if rule is not None and rule.needs_fit:
        raise InputError(f"{type(rule).__name__} is fitted on labelled rows: give some new ones (--calibrate).")
    # What fit does without any rows: only the classes are known.
    option._check_parameters()
    option._learn_classes(option.estimator, classes)
    option.estimator_ = option.estimator
    option.class_prior_, option.equal_rows_ = np.zeros(len(classes)), 0
    option.label_shift_ = option.calibrator_ = option.fitted_rule_ = option.scope_ = None
    return option


def _as_classes(labels: NDArray[np.str_], classes: AnyArray) -> AnyArray:
    """Return labels that were read as text with the type of the estimator's classes."""
    texts = class_texts(pa.array(classes.tolist()))
    position = {text: number for number, text in enumerate(texts)}
    unknown = sorted(set(labels.tolist()) - set(position))
    if unknown:
        raise TableError(f"the labels hold {listed(unknown)}, which the model does not know: it has {listed(texts)}")
    return np.asarray(classes[[position[label] for label in labels]])


def refusal(error: Exception, estimator: Estimator, where: str, first: int = 0) -> TableError:
    """Return an estimator's error about rows as one sentence; ``first`` rows come before them."""
    if isinstance(error, UserError):
        return TableError(renumbered(str(error), first))
    words = str(error).strip().split("\n")[0].rstrip(".: ")
    return TableError(f"{where}: the {_name(_inner(estimator))} refuses these rows: {words}")


def _name(estimator: Estimator) -> str:
    return type(estimator).__name__


def fit_proba(
    path: Source, target: str, *, kind: str | None = None, all_classes: bool = False, **options: Any
) -> FittedFile:
    r"""Fit a calibration and a rule on a file with one number per class, and the true label, for each row.

    The model reads files with the same columns; it can predict, be evaluated, served, exported and monitored.

    Parameters
    ----------
    path : path, "-" or binary stream
        A table with a column for each class, named like the class, ``cat`` or with the same text before or after it
        in all of them, ``proba:cat``; and one with the labels. Other columns are set aside. Or a NumPy file: the
        columns of its matrix are the classes. Labels are then column numbers, or the classes are sorted. A .npy file is
        not loaded into memory.
    target : str
        The column with the labels; of ``labels``, if they are in another file.
    kind : {"probabilities", "percentages", "log-probabilities", "logits", "votes"}, optional
        Kind of the numbers; detected by default. If the kind "probabilities" is given, rows are divided by their sum.
    all_classes : bool, default False
        Whether every other column of numbers of a table is a class, also without a labelled row. Those of a matrix
        always are.
    **options
        The fields of :class:`FitOptions` that are about data, decision and validation. ``keep`` names columns of
        classes that no row has as its label, ``drop`` columns that are not classes.

    Raises
    ------
    InputError, TableError
        If a label has no column, or a row does not hold numbers of its kind; in one sentence.

    Examples
    --------
    >>> import io
    >>> said = b"cat,dog,y\n" + b"-0.1,-2.5,cat\n-3.2,-0.05,dog\n-0.1,-2.5,cat\n-0.1,-2.5,dog\n" * 40
    >>> fitted = fit_proba(io.BytesIO(said), "y")
    >>> fitted.model.facts["proba_kind"], fitted.model.schema.names
    ('log-probabilities', ('cat', 'dog'))
    >>> fitted.model.predict_proba(pa.table({"cat": [-0.1], "dog": [-2.5]})).round(2)
    array([[0.68, 0.32]])
    """
    file = TrainingFile.read(path, target, FitOptions(**options), outputs=True)
    data, spec = file.data, file.spec
    if file.matrix is None:
        keep = data.rows.column_names if all_classes else spec.keep
        by_class, aside = class_columns(data.rows, target, data.classes, keep=keep, drop=spec.roles)
    else:
        by_class, aside = _places(data, file.matrix[:1].shape[1]), {}
    if len(by_class) < 2:
        check_classes(data.labels, target)
    classes = list(by_class)
    schema = Schema(tuple(Column(name, "number") for name in by_class.values()), target, aside)
    given, notes = _probabilities(file.stored(schema), classes, kind, data)
    fitted, _ = file.fit(schema, given)
    return replace(fitted, notes=tuple(notes))


def _places(data: LabelledTable, width: int) -> dict[str, str]:
    """Return the column of each class in a matrix: labels are column numbers, or as many classes as columns, sorted."""
    numbers, labels = [str(number) for number in range(width)], data.classes
    if set(labels) <= set(numbers):
        return {number: number for number in sorted(numbers)}
    if len(labels) != width:
        raise TableError(
            f"{data.name} has {width:,} columns, and {shown(data.target)} holds {len(labels):,} classes, "
            f"{listed(labels)}: give column numbers from 0 to {width - 1}, or labels of all classes, which are "
            "sorted to match the columns"
        )
    is_number = label_type(data.rows[data.target], data.target) in ("integer", "number")
    return dict(sorted(zip(sorted(labels, key=float) if is_number else labels, numbers, strict=True)))


def fit_answers(
    path: Source, target: str, *, answer: str | Sequence[str], confidence: str | None = None, **options: Any
) -> FittedFile:
    r"""Fit the probability that another model's answer is right, given its confidence, and a rule, on a file.

    The model reads files with the same columns; it can predict, be evaluated, served and monitored. Where the rows show
    that another class is likelier than the answer, it is the first choice: see :class:`~demur.AnswerClassifier`.

    Parameters
    ----------
    path : path, "-" or binary stream
        A table with the answer and the true label of each row. Columns that are not named here are set aside.
    target : str
        The column with the true labels, which rows to predict need not have.
    answer : str or list of str
        The column with the answers, or several with repeated samples: names, or patterns such as ``"sample_*"``. The
        most frequent sample is the answer.
    confidence : str, optional
        The column with the confidences, on any increasing scale; cells may be empty. By default the share of the
        samples that agree with the answer.
    **options
        The fields of :class:`FitOptions` that are about data, decision and validation.

    Raises
    ------
    InputError, TableError
        If a column does not exist, or no answer is a label; in one sentence.

    Examples
    --------
    >>> import io
    >>> said = b"says,sure,truth\n" + b"yes,0.9,yes\nno,0.9,no\nyes,0.8,yes\nno,0.4,yes\nyes,0.5,no\n" * 40
    >>> fitted = fit_answers(io.BytesIO(said), "truth", answer="says", confidence="sure")
    >>> new = pa.table({"says": ["yes", "no", "maybe"], "sure": [0.9, 0.4, 0.9]})
    >>> fitted.model.answers(new).select(["prediction", "reason"]).to_pydict()
    {'prediction': ['yes', 'yes', None], 'reason': [None, None, 'ambiguous; new category: says']}
    """
    named = [answer] if isinstance(answer, str) else [*answer]
    file = TrainingFile.read(path, target, FitOptions(**options), answers=named)
    data = file.data
    samples = _columns_named(named, data, {target, confidence, *file.spec.roles})
    columns = [*samples, *_columns_named([] if confidence is None else [confidence], data, {target, *samples})]
    texts = np.concatenate([class_texts(data.rows[name]) for name in samples])
    said = Counter(text for text in texts if text is not None)
    known = tuple(text for text, _ in said.most_common(_MOST_ANSWERS))
    kinds = [Column(name, "category", known, other=len(said) > _MOST_ANSWERS) for name in samples]
    if confidence is not None:
        kinds.append(Column(confidence, "number"))
    aside = dict.fromkeys(
        (name for name in data.rows.column_names if name not in {*columns, target}), "it holds no answer or confidence"
    )
    fitted, _ = file.fit(Schema(tuple(kinds), target, aside), AnswerClassifier(confidence is not None))
    curve = fitted.model.classifier.estimator_.curve_
    notes = _notes_on_answers(data, said, confidence, curve)
    return replace(fitted, notes=tuple(notes))


def _columns_named(patterns: Sequence[str], data: LabelledTable, taken: Collection[str | None]) -> list[str]:
    """Return the columns with these names, or whose names match a pattern, in the order of the table."""
    found: set[str] = set()
    for one in patterns:
        names = data.rows.column_names
        matching = [one] if one in names else [name for name in names if fnmatchcase(name, one) and name not in taken]
        check_columns([] if matching else [one], names, data.name)
        if one in taken:
            raise TableError(
                f"column {shown(one)} is used twice: the target, answers and confidence are different columns"
            )
        found.update(matching)
    return [name for name in data.rows.column_names if name in found]


def _notes_on_answers(data: LabelledTable, said: Counter[str], confidence: str | None, curve: Floats) -> list[str]:
    """Return notes for the user: answers and labels that do not match, empty cells, confidences that are not used."""
    notes, strange = [], [text for text in said if label_of(text, data.classes) is None]
    if strange:
        times = sum(said[text] for text in strange)
        notes.append(
            f"answers that are not one of the labels, such as {listed(strange[:5])}, are declined ({times:,} answers)."
        )
    if confidence is not None and (gaps := data.rows[confidence].null_count):
        notes.append(f"{gaps:,} rows have no confidence: one probability is estimated for all of them together.")
    if confidence is not None and np.ptp(curve) < _FLAT:
        notes.append(
            f"answers with a higher {shown(confidence)} are not right more often in these rows, so it is not used; "
            "if it is an uncertainty, such as an entropy, change its sign."
        )
    return notes


def _probabilities(
    stored: StoredRows, classes: list[str], kind: str | None, data: LabelledTable
) -> tuple[Any, list[str]]:
    """Return the classifier that reads the numbers, and a note about their kind."""
    notes, tolerance, kinds, first = [], None, ", ".join(PROBA_KINDS), 0
    try:
        if kind is None:
            values = next(stored.chunks())[1]
            known = values[~np.isnan(values).all(axis=1)]
            kind, tolerance = find_kind(known), rounding_of(known)
            notes.append(f"the numbers are read as {kind} ({PROBA_KINDS[kind]}): --proba-kind changes this.")
        estimator = PrecomputedProbabilities(np.array(classes), kind, tolerance)
        for first, values in stored.chunks():  # noqa: B007 # the message needs it
            estimator.predict_proba(values)
    except InputError as error:
        problem = renumbered(str(error).rstrip("."), first)
        advice = f"correct it, give --proba-kind, one of {kinds}, or --all-classes for classes without a labelled row"
        raise TableError(f"{data.where}: {problem}; {advice}") from None
    return StoredOutputs(estimator, stored), notes


def renumbered(problem: str, first: int) -> str:
    """Replace the row number at the start of a sentence about a chunk by the row number in the file.

    Examples
    --------
    >>> renumbered("row 2 sums to 0", 65_536)
    'row 65,538 sums to 0'
    """
    return re.sub(r"^row ([\d,]+)", lambda found: f"row {int(found[1].replace(',', '')) + first:,}", problem)


def class_columns(
    table: pa.Table, target: str, labels: Sequence[str], *, keep: Collection[str] = (), drop: Collection[str] = ()
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the column of each class, found by its name, and the reason for each other column to be set aside.

    A column of numbers whose name is not a label is a class without rows if all columns have the same text before or
    after the label, or if ``keep`` names it.

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
    >>> class_columns(table, "y", ["cat", "dog"])
    ({'cat': 'p_cat', 'dog': 'p_dog', 'newt': 'p_newt'}, {'id': 'it is not named like a class'})
    """
    names = [name for name in table.column_names if name != target and name not in drop]
    affixes = _affixes(names, labels, target)
    by_class: dict[str, str] = {}
    aside: dict[str, str] = {}
    for name in names:
        named = re.fullmatch("(.+)".join(map(re.escape, affixes)), name, re.DOTALL)
        text = "" if named is None else label_of(named[1], labels) or named[1]
        if named is None or not (text in labels or any(affixes) or name in keep):
            aside[name] = "it is not named like a class"
        elif kind_of_type(table.schema.field(name).type) != "number":
            raise TableError(f"the column {shown(name)} of the class {shown(text)} holds no numbers: give its numbers")
        elif text in by_class:
            raise TableError(
                f"{shown(by_class[text])} and {shown(name)} both belong to class {shown(text)}: leave one out"
            )
        else:
            by_class[text] = name
    return dict(sorted(by_class.items())), aside


def _affixes(names: Sequence[str], labels: Sequence[str], target: str) -> tuple[str, str]:
    """Return the text before and after the label in the names of the classes' columns, as short as possible."""
    missing = sorted(set(labels) - {label_of(name, labels) for name in names})
    if not missing:
        return "", ""
    longest = max(labels, key=len)
    parts = [name.partition(longest)[::2] for name in names if longest in name]
    found = [(before, after) for before, after in parts if {f"{before}{label}{after}" for label in labels} <= {*names}]
    if not found:
        absent = [label for label in missing if not any(label in name for name in names)] or missing
        raise TableError(
            f"there is no column for {listed(absent)}, which {shown(target)} holds: name the column of each class "
            f"like the class, or with the same text before or after it; the columns are {listed(names)}"
        )
    return min(found, key=lambda one: len(one[0]) + len(one[1]))
