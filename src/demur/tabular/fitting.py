"""Fit a model on a file or a table: the specification of a fit, rows held out, training, and the rule.

Modules that take seconds to import are imported after the options and the header of the file have been checked.
"""

import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fnmatch import filter as filter_names
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from demur.array_types import AnyArray, ByName, Features, Floats, Ints, Mask, Names, Objects, Prices, Texts
from demur.columns.frames import TableError, as_table, check_columns, did_you_mean, listed, shown
from demur.columns.schema import DROPPED, LARGEST, Schema, label_of
from demur.errors import InputError, MissingExtraError
from demur.guarantees import RiskControl
from demur.rules import CostMatrix, Rule
from demur.tabular.array_files import StoredRows
from demur.tabular.table_files import (
    LabelledTable,
    Source,
    check_classes,
    class_texts,
    label_text,
    label_type,
    open_table,
    read_labelled,
    read_labels,
    read_table,
    source_name,
    writable_type,
)

if TYPE_CHECKING:
    from demur.estimators.splitting import Partition
    from demur.tabular.calls import CallsEvaluation
    from demur.tabular.evaluation import Evaluation
    from demur.tabular.table_model import TableModel

_MOST_OUTPUTS = 1 << 24
"""Numbers that given outputs are calibrated on: 16,777 rows of 1,000 classes. They determine a temperature to about
1 %, and the memory stays small."""


_MOST_TO_REFIT, _FIRST = 50_000, 0.6
"""A larger table is not fitted again on all rows, since a fifth more rows would improve the model little. The first fit
gets this share of the time budget, because it tries more candidates than the second."""


@dataclass(frozen=True)
class FitOptions:
    """The specification of a fit, which all fitting functions use.

    Parameters
    ----------
    model : str, default="auto"
        Name of a model, one of :func:`model_names`.
    cost : float, default=0.2
        Cost of declining a row; a mistake costs 1. Only Chow's rule uses it.
    rule : Rule, or function of the class names that returns one, optional
        Decision rule, as for :class:`~demur.RejectOption`; by default Chow's rule at ``cost``.
    guarantee_share : "auto" or float
        Share of the rows that is set aside for a fitted rule, as for :class:`~demur.RejectOption`.
    novelty : "auto", float or None
        Out-of-distribution rows to decline, as for :class:`~demur.RejectOption`.
    experts : mapping, optional
        Experts to ask instead of declining: for each name the column with the expert's answers (or several columns, one
        per person) and the price of a question, as in ``{"nurse": ("nurse_says", 0.05)}``. Empty cells are rows that
        the expert has not seen. These columns are not features, and ``cost`` and ``rule`` are not used.
    capacity : mapping, optional
        Maximum number of rows of one table for each expert, or a share below 1.
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
    keep, drop, text : names
        Columns to use even if they are constant or look like identifiers, columns to leave out, and columns of text
        beside those that are recognised.
    out_of_scope : str, optional
        Label in the target of rows that belong to no class, as for :class:`~demur.RejectOption`.
    out_of_scope_share : float, optional
        Expected share of such rows.
    delimiter, decimal, dayfirst : optional
        Notation of a CSV file, as for :func:`open_table`. The last two are kept in the model.
    units : bool, default=True
        Whether text such as 1.234,50, 20 % and 169.5 cm is read as numbers, and words such as "unknown" among numbers
        as missing values. The notation is kept in the model.
    calibration : {"auto", "temperature", "isotonic", "sigmoid", None}
        Calibration of :func:`fit_proba`, as for :class:`~demur.RejectOption`.
    labels : path, optional
        File with the labels of the rows, and possibly groups and times, if the data have none.
    preset : {"default", "fast", "best"}
        The candidates of "auto", as for :class:`~demur.AutoClassifier`.
    time_budget : float or None
        Seconds for the training; None for no limit.
    refit : bool, default=True
        Whether :func:`fit_file` fits the model again on all rows after the evaluation on held-out rows. It does not if
        a rule such as a guarantee is fitted, because this rule belongs to the evaluated classifier, or if there are
        many rows.
    seed : int, default=0
        Random seed of the hold-out and of the training.
    verbose : int
        1 shows a progress bar on a terminal.
    """

    model: str = "auto"
    cost: float = 0.2
    rule: Rule | Callable[[list[str]], Rule | None] | None = None
    guarantee_share: float | str = "auto"
    novelty: float | str | None = "auto"
    experts: Any = None
    capacity: Prices | None = None
    test: Source | None = None
    holdout: float = 0.2
    group_split: str | None = None
    time_split: str | None = None
    risk_group: str | None = None
    keep: Names = ()
    drop: Names = ()
    text: Names = ()
    out_of_scope: str | None = None
    out_of_scope_share: float | None = None
    delimiter: str | None = None
    decimal: str | None = None
    dayfirst: bool | None = None
    units: bool = True
    calibration: str | None = "auto"
    labels: Source | None = None
    preset: str = "default"
    time_budget: float | None = 90.0
    refit: bool = True
    seed: int = 0
    verbose: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.holdout < 1:
            raise InputError(f"holdout must be a share from 0 to below 1, got {self.holdout:g}.")
        if self.experts is not None and self.rule is not None:
            raise InputError("a model with experts decides by their prices: leave out the rule, or the experts.")
        if self.experts is not None and (self.out_of_scope is not None or self.out_of_scope_share):
            raise InputError("a model with experts has no out-of-scope rows: leave out the experts, or out_of_scope.")
        if not isinstance(self.seed, int) or not 0 <= self.seed < 2**32:
            raise InputError(f"seed must be a whole number from 0 to {2**32 - 1}, got {self.seed!r}.")

    @property
    def roles(self) -> dict[str, str]:
        """The columns that are not features, each with the reason."""
        roles = dict.fromkeys(self.drop, DROPPED)
        if self.group_split is not None:
            roles[self.group_split] = "its groups of rows stay together"
        if self.time_split is not None:
            roles[self.time_split] = "it is the time of a row"
        if self.experts:
            roles |= {column: f"it holds answers of {shown(name)}" for column, name in self.experts.owners.items()}
        return roles

    def schema_of(self, data: LabelledTable) -> Schema:
        """Return the features of rows."""
        return Schema.learn(data.rows, target=data.target, keep=self.keep, drop=[*self.roles], text=self.text)

    def rule_for(self, rows: LabelledTable, classes: list[str]) -> Rule | None:
        """Return the rule for these classes, with the groups of these rows that a guarantee holds in."""
        rule = self.rule if self.rule is None or isinstance(self.rule, Rule) else self.rule(classes)
        if self.risk_group is None:
            return rule
        if not isinstance(rule, RiskControl):
            raise InputError("risk_group is for a guarantee about the risk: give a RiskControl, or --max-risk.")
        texts = ["(none)" if text is None else text for text in class_texts(rows.rows[self.risk_group])]
        return RiskControl(rule.target_risk, rule.delta, texts, rule.unit)


@dataclass(frozen=True, eq=False)
class FittedFile:
    """The result of :func:`fit_file`.

    Parameters
    ----------
    model : TableModel
    held_out : pyarrow.Table or None
        Labelled rows that the model has not seen, to evaluate it on.
    where : str
        The name of the file that these rows are from.
    seconds : float
        Duration of the training.
    notes : tuple of str
        Notes for the user: assumptions in reading the file, equal rows, columns that may be leaks.
    judged : TableModel or None
        The model that is evaluated, if ``model`` was fitted again on all rows afterwards.
    """

    model: "TableModel"
    held_out: pa.Table | None
    where: str
    seconds: float
    notes: tuple[str, ...] = ()
    judged: "TableModel | None" = None

    def evaluate(self, **options: Any) -> "Evaluation | CallsEvaluation | None":
        """Evaluate the model on the rows held out, as :func:`evaluate_table` does; None if there are none."""
        if self.held_out is None:
            return None
        from demur.tabular import CallsModel, evaluate_calls, evaluate_table

        if isinstance(self.model, CallsModel):
            return evaluate_calls(self.model, self.held_out, where=self.where)
        return evaluate_table(self.judged or self.model, self.held_out, where=self.where, **options)


@dataclass(frozen=True, eq=False)
class TrainingFile:
    """The labelled rows of a file, read once for a fit.

    Parameters
    ----------
    data : LabelledTable
    spec : FitOptions
    notation : dict
        Notation of decimals and dates in the file, for the schema.
    matrix : StoredRows, optional
        Features that are not in ``data``: the columns 0, 1, 2, ... of the same rows of a NumPy file.
    """

    data: LabelledTable
    spec: FitOptions
    notation: ByName
    matrix: StoredRows | None = None

    @classmethod
    def read(
        cls, path: Source, target: str, spec: FitOptions, *, outputs: bool = False, answers: Names = ()
    ) -> "TrainingFile":
        """Read a file, after its header was checked against the options.

        With ``outputs``, the features stay in the NumPy file; ``answers`` are names and patterns of columns with
        classes.
        """
        notation: ByName = {"decimal": spec.decimal, "dayfirst": spec.dayfirst}
        notation |= {} if spec.units else {"numbers": {}, "missing": ()}
        with open_table(path, delimiter=spec.delimiter, **notation) as reader:
            uses = {target: "it is the target"} | dict.fromkeys(spec.keep, "it is kept as a feature")
            uses |= replace(spec, experts=None).roles
            if spec.labels is None:
                check_columns([target], reader.columns, reader.name, " to predict")
                check_columns([*uses, *spec.text, *filter(None, [spec.risk_group])], reader.columns, reader.name)
            if spec.experts is not None:
                from demur.tabular.expert_columns import ExpertColumns

                experts = ExpertColumns.of(spec.experts, spec.capacity, reader.columns, reader.name, uses)
                spec = replace(spec, experts=experts)
            if target in spec.roles:
                raise TableError(f"column {shown(target)} cannot be the target: {spec.roles[target]}")
            check_model(spec.model)
            matrix = reader.matrix if outputs else None
            labels = {target, *spec.roles, *spec.text}.union(*(filter_names(reader.columns, one) for one in answers))
            table = reader.read(labels) if matrix is None else reader.read_others()
            notation = reader.notation
        if spec.labels is not None:
            given = read_labels(spec.labels, target, table.num_rows if matrix is None else len(matrix))
            table = pa.table({name: one[name] for one in (table, given) for name in one.column_names})
        data = LabelledTable.of(table, target, source_name(path))
        return cls(data, spec, notation, None if matrix is None else replace(matrix, rows=data.numbers))

    def fit(self, schema: Schema, given: Any = None, compared: Features = None) -> tuple[FittedFile, Ints]:
        """Hold rows out and fit a model on the others; return both, and which rows these are.

        Parameters
        ----------
        schema : Schema
            To read the test table with; a model that is trained learns its own from the training rows.
        given : StoredOutputs or AnswerClassifier, optional
            Reader of another model's outputs in the columns of this schema, used instead of training a model.
        compared : table, optional
            Table in which equal rows are looked for; rows that may be copies stay on one side.
        """
        data, spec, known = self.data, self.spec, None if given is None else schema
        classes = list(getattr(given, "classes_", data.classes))
        train, held_out = self.split(replace(schema, notation=self.notation), classes, compared)
        groups = self.groups
        started, of_train = time.perf_counter(), _taken(groups, train)
        numbers = train if hasattr(given, "outputs") else None
        model = _fit_rows(
            data.take(train), spec, schema=known, groups=of_train, classes=classes, given=given, numbers=numbers
        )
        return FittedFile(self._of_file(model), held_out, self.where, time.perf_counter() - started), train

    def _of_file(self, model: "TableModel") -> "TableModel":
        """Return a model with the notation of the file, and its columns that are not features."""
        model.facts["rows_without_label"] = self.data.n_unlabelled
        aside = {**model.schema.set_aside, **self.spec.roles}
        return replace(model, schema=replace(model.schema, set_aside=aside, notation=self.notation))

    @property
    def refits(self) -> bool:
        """Whether the model is fitted again on all rows."""
        spec, n_rows = self.spec, len(self.data.labels)
        own = spec.test is None and spec.holdout > 0 and n_rows <= _MOST_TO_REFIT
        return spec.refit and own and not getattr(spec.rule, "needs_fit", False)

    def fit_again(self, fitted: FittedFile) -> FittedFile:
        """Fit on all rows, in the time that is left: of "auto", the candidates that were in the blend."""
        judged, started, left = fitted.model, time.perf_counter(), self.spec.time_budget
        tried = getattr(getattr(judged.classifier, "estimator_", None), "tried_", ())
        spec = self.spec if left is None else replace(self.spec, time_budget=max(left - fitted.seconds, 0.1 * left))
        among = [one.name for one in tried if one.weight]
        classes = self.data.classes
        model = self._of_file(_fit_rows(self.data, spec, groups=self.groups, classes=classes, among=among))
        model.facts["evaluated_before_refit"] = {"rows": judged.facts["rows"]}
        seconds = fitted.seconds + time.perf_counter() - started
        return replace(fitted, model=model, judged=judged, seconds=seconds)

    @property
    def where(self) -> str:
        """The name of the file with the rows to evaluate a model on."""
        return self.data.name if self.spec.test is None else source_name(self.spec.test)

    @property
    def groups(self) -> AnyArray | None:
        """The groups of rows that stay together; a row without a group is a separate group."""
        if self.spec.group_split is None:
            return None
        texts = class_texts(self.data.rows[self.spec.group_split])
        return np.array([f"row {row}" if text is None else f"group {text}" for row, text in enumerate(texts)])

    def split(self, schema: Schema, classes: list[str], compared: Features = None) -> tuple[Ints, pa.Table | None]:
        """Return the rows to train on, and the table to evaluate on."""
        spec, data, groups = self.spec, self.data, self.groups
        if compared is None:  # equal outputs of another model do not make rows copies
            compared = np.arange(float(len(data.labels))).reshape(-1, 1)
        if spec.test is not None:
            table = read_labelled(spec.test, schema, classes, delimiter=spec.delimiter, strict=False)
            LabelledTable.of(table, data.target, source_name(spec.test))  # refuses a table without labels
            return np.arange(len(data.labels)), table
        if not spec.holdout:
            return np.arange(len(data.labels)), None
        from demur.estimators.splitting import hold_out, hold_out_latest

        if spec.time_split is None:
            parts = hold_out(compared, data.labels, spec.holdout, groups=groups, seed=spec.seed)
        else:
            times = self._times(spec.time_split)
            parts = hold_out_latest(times, compared, data.labels, spec.holdout, groups=groups)
        return parts.train, self._rows(parts.aside, schema) if len(parts.aside) else None

    def stored(self, schema: Schema) -> StoredRows:
        """Return the features of all rows, which are read when they are asked for if they are in a matrix."""
        if self.matrix is None:
            return StoredRows(schema.encode(self.data.rows))
        return replace(self.matrix, columns=np.array([int(name) for name in schema.names]))

    def _rows(self, chosen: Ints, schema: Schema) -> pa.Table:
        """Return some of the rows, with the features of a matrix as columns."""
        table = self.data.rows.take(chosen)
        if self.matrix is None:
            return table
        values = np.empty((len(chosen), len(schema.names)), dtype=np.float32, order="F")
        for start, part in self.stored(schema).chunks(of=chosen):
            values[start : start + len(part)] = part
        columns = dict(zip(schema.names, map(pa.array, values.T), strict=True))
        return pa.table({name: table[name] for name in table.column_names} | columns)

    def _times(self, name: str) -> Floats:
        """Return the time of each row, as a number."""
        column = Schema.learn(self.data.rows.select([name]), keep=[name]).columns[0]
        times = column.encode(self.data.rows[name], self.data.name)
        if column.kind not in ("number", "date", "time") or np.isnan(times).any():
            raise TableError(
                f"rows cannot be ordered by the column {shown(name)}, which holds a {column.kind} or gaps: name a "
                "column of numbers or dates without gaps"
            )
        return times


def fit_file(path: Source, target: str, **options: Any) -> FittedFile:
    r"""Fit a classifier with a reject option, or with experts to ask, on a file.

    The rows for evaluation are held out first: the evaluated model learns nothing from them, not even the categories of
    a column. The model that is returned is then fitted on all rows, unless ``refit`` is False.

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
    file = TrainingFile.read(path, target, FitOptions(**options))
    data, spec = file.data, file.spec
    if spec.experts:
        spec.experts.answers(data.rows, data.classes, where=data.where)  # refuses an answer by its row in the file
    # For reading and comparing rows; the model's own schema is learned from the training rows alone.
    first_look = spec.schema_of(data)
    compared = data.rows.select(first_look.names)
    first = file
    if file.refits and spec.time_budget is not None:
        first = replace(file, spec=replace(spec, time_budget=_FIRST * spec.time_budget))
    fitted, train = first.fit(first_look, compared=compared)
    fitted = replace(fitted, notes=tuple(_notes(file, fitted, compared, train)))
    return file.fit_again(fitted) if file.refits and fitted.held_out is not None else fitted


def fit_table(table: pa.Table, target: str, *, groups: ArrayLike | None = None, **options: Any) -> "TableModel":
    """Fit a classifier with a reject option, or with experts to ask, on a table.

    Separate rows are set aside for a rule that is fitted, such as :class:`~demur.RiskControl`; nothing else is learned
    from them, not even the categories of a column.

    Parameters
    ----------
    table : pyarrow.Table
        Features and labels. Rows without a label are left out.
    target : str
        The column with the labels.
    groups : array of shape (n_rows,), optional
        The group of each row, such as a patient or a machine; the rows of a group stay on one side of every split.
    **options
        The fields of :class:`FitOptions` that are about training: ``model``, ``cost``, ``rule``, ``novelty``,
        ``experts``, ``capacity``, ``risk_group``, ``keep``, ``drop``, ``time_budget``, ``seed``, ``verbose``. The
        ``groups`` of a :class:`~demur.RiskControl` are one for each row of the table; the model does not keep them.

    Examples
    --------
    >>> import pyarrow as pa
    >>> table = pa.table({"size": [1.0, 1.2, 5.0, 5.2] * 30, "pet": ["cat", "cat", "dog", "dog"] * 30})
    >>> fit_table(table, "pet", model="lr", cost=0.1)
    TableModel('lr' for 'pet': 2 classes, 1 columns)
    """
    table = as_table(table)
    spec, data = FitOptions(**options), LabelledTable.of(table, target)
    if spec.experts:
        from demur.tabular.expert_columns import ExpertColumns

        spec = replace(spec, experts=ExpertColumns.of(spec.experts, spec.capacity, table.column_names))
    _check_groups(groups, table.num_rows)
    if isinstance(spec.rule, RiskControl):
        _check_groups(spec.rule.groups, table.num_rows)
        spec = replace(spec, rule=spec.rule.of_rows(data.numbers))
    return _fit_rows(data, spec, groups=_taken(groups, data.numbers))


def _check_groups(groups: ArrayLike | None, n_rows: int) -> None:
    if groups is not None and len(np.asarray(groups)) != n_rows:
        raise TableError(f"there are {len(np.asarray(groups)):,} groups for {n_rows:,} rows: give one for each row")


def _taken(values: ArrayLike | None, rows: Ints) -> AnyArray | None:
    return None if values is None else np.asarray(values)[rows]


def _fit_rows(
    data: LabelledTable,
    spec: FitOptions,
    *,
    schema: Schema | None = None,
    groups: AnyArray | None = None,
    classes: Names = (),
    given: Any = None,
    numbers: Ints | None = None,
    among: Sequence[str] = (),
) -> "TableModel":
    """Fit a model on labelled rows, or calibrate given outputs of rows that have these numbers.

    ``classes`` are those of the whole file: an expert may answer a class that these rows do not have. ``among`` names
    the candidates that "auto" tries; if it is empty, "auto" chooses them.
    """
    from sklearn.exceptions import ConvergenceWarning

    from demur.tabular.table_model import model_input, typical_rows

    known = {*data.classes, *classes}
    if (label := label_text(spec.out_of_scope)) is not None:
        spec = replace(spec, out_of_scope=label_of(label, known) or label)
    if numbers is None:
        check_classes(data.labels[data.labels != spec.out_of_scope], data.target)
    words = check_model(spec.model) if given is None else f"calibration of given {given.kind}"
    rule = spec.rule_for(data, sorted(known - {spec.out_of_scope}))
    _check_groups(getattr(rule, "groups", None), len(data.labels))

    # Equal probabilities, votes above all, do not make one row a copy of another.
    order = np.arange(len(data.labels)) if numbers is None else numbers
    compared = data.rows.select(spec.schema_of(data).names) if given is None else order.reshape(-1, 1)
    curves = numbers is None or spec.calibration in ("isotonic", "sigmoid")
    parts = _rows_for_rule(rule, compared, data.labels, groups, spec.guarantee_share, frozen=not curves)
    own = schema or spec.schema_of(data.take(parts.train))
    if numbers is not None:
        codes = order.reshape(-1, 1).astype(np.float64)
    else:
        codes = model_input(own, data.rows, "numbers" if given is None else given.reads, data.name)
    values = own.with_texts(codes, data.rows) if given is None else codes
    training = _Training(spec, own, codes, values, data.labels, groups, parts, rule, among)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=ConvergenceWarning)  # calibration corrects for it
        if spec.experts:
            fitted = training.fit_with_experts(spec.experts.answers(data.rows, sorted(known), where=data.name))
        else:
            fitted = training.fit_with_rule(given)
    counts = Counter(data.labels[parts.train].tolist())
    facts: ByName = {
        "model": spec.model if given is None else "given",
        "model_in_words": words,
        "rows": len(parts.train),
        "rows_for_the_rule": len(parts.aside),
        "classes": {name: counts[name] for name in fitted.classes.tolist()},
        "starved": getattr(getattr(fitted.classifier, "estimator_", None), "starved", None),
    }
    if (outside := spec.out_of_scope) is not None:
        facts["out_of_scope"] = {"label": outside, "rows": counts[outside]}
    kind, typical = writable_type(fitted.classes, label_type(data.rows[data.target], data.target)), None
    if given is None:
        typical = typical_rows(
            codes[parts.train], own.categorical, data.labels[parts.train], fitted.classifier.classes_
        )
    return replace(fitted, label_type=kind, facts={**facts, **fitted.facts}, typical=typical)


def _rows_for_rule(
    rule: Rule | None,
    compared: Features,
    labels: Texts,
    groups: AnyArray | None,
    share: float | str,
    *,
    frozen: bool,
) -> "Partition":
    """Set rows aside for a rule that is fitted."""
    from demur.estimators.splitting import Partition, blocks_of, set_aside, share_for_rule

    if rule is None or not rule.needs_fit:
        return Partition(np.arange(len(labels)), np.array([], dtype=np.int64))
    blocks = blocks_of(compared, labels, groups)
    if isinstance(share, str):
        share = share_for_rule(rule, len(labels) // blocks.times, frozen=frozen)
    return set_aside(share, labels, blocks)


@dataclass(frozen=True, eq=False)
class _Training:
    """Encoded rows (with texts in ``values``), split into rows to train on and rows for the rule."""

    spec: FitOptions
    schema: Schema
    codes: Floats
    values: AnyArray
    labels: Texts
    groups: AnyArray | None
    parts: "Partition"
    rule: Rule | None
    among: Sequence[str] = ()

    def fit_with_rule(self, given: Any) -> "TableModel":
        """Fit a classifier that declines, or calibrate ``given`` probabilities, and fit the rule."""
        from sklearn.frozen import FrozenEstimator

        from demur.estimators import RejectClassifier, RejectOption
        from demur.tabular.table_model import TableModel, free_label

        rule, aside, spec = self.rule, self.parts.aside, self.spec
        calibration: str | None = "auto"
        scope: ByName = {"out_of_scope": spec.out_of_scope, "out_of_scope_share": spec.out_of_scope_share}
        wraps = rule is not None or any(scope.values())
        features, novelty = self.codes, None  # given answers have no features that are known
        if given is None:
            classifier, features = self._estimator(needs_proba=wraps)
            novelty = self._novelty()
        else:
            classifier, calibration = self._frozen(given)
        if wraps or not isinstance(classifier, RejectClassifier):
            own = None if len(aside) else rule
            classifier = RejectOption(
                classifier, cost=spec.cost, rule=own, calibration=calibration, novelty=None, **scope
            )
        train = self._calibration_rows(given)
        numbered = hasattr(given, "outputs")
        classifier.set_params(reject_label=free_label(given.classes_ if numbered else self.labels))
        classifier.fit(features[train], self.labels[train], groups=_taken(self.groups, train))
        if len(aside):
            self._fit_rule(classifier, features, None if novelty is None else novelty.novel(self.codes))
        if given is None:
            return TableModel(self.schema, classifier, novelty=novelty)
        facts: ByName = {"proba_kind": given.kind}
        if numbered:
            outputs = given.outputs
            classifier.estimator = classifier.estimator_ = FrozenEstimator(outputs)  # which new rows are given to
            facts["temperature"] = outputs.temperature * getattr(classifier.calibrator_, "temperature_", 1.0)
            facts["calibrated_on"] = len(train)
        return TableModel(self.schema, classifier, facts=facts, reads=given.reads)

    def _novelty(self) -> Any:
        from demur.estimators.splitting import blocks_of
        from demur.novelty import FEWEST_ROWS, Novelty

        rate, train = self.spec.novelty, self.parts.train
        if rate is None or (rate == "auto" and len(train) < FEWEST_ROWS):
            return None
        blocks = blocks_of(self.codes[train], self.labels[train], _taken(self.groups, train))
        return Novelty(rate).fit(self.codes[train], self.schema.categorical, blocks.of_row)

    def _fit_rule(self, classifier: Any, features: Floats, novel: Mask | None) -> None:
        """Fit the rule on the rows set aside; ``novel`` rows are declined regardless of the rule."""
        rule: Any = self.rule
        aside, copies, by_group = self.parts.aside, self.parts.copies, getattr(rule, "groups", None) is not None
        classifier.set_params(rule=rule.of_rows(aside) if by_group else rule).fit_rule(
            features[aside],
            self.labels[aside],
            _taken(self.groups, aside),
            _taken(novel, aside),
            np.zeros(len(aside), dtype=bool) if copies is None else copies,
        )
        if by_group:  # a saved model does not store the group of each row
            classifier.rule.groups = classifier.fitted_rule_.groups = None

    def _frozen(self, given: Any) -> tuple[Any, str | None]:
        """Return given outputs as a classifier that is not fitted again, and the remaining calibration.

        Answers are calibrated by their fit. The temperature of logits is fitted here, because large logits would become
        probabilities of 0 and 1; biases and curves are applied after it.
        """
        from sklearn.frozen import FrozenEstimator

        from demur.calibration import TemperatureScaling
        from demur.estimators.precomputed_probabilities import LOG_KINDS

        if given.kind == "answers":
            return given, None
        calibration, train, outputs = self.spec.calibration, self._calibration_rows(given), given.outputs
        if outputs.kind in LOG_KINDS and calibration is not None:
            y = np.searchsorted(given.classes_, self.labels[train])
            logits = outputs.logits(given.numbers(self.codes[train]))
            outputs.temperature = TemperatureScaling(from_logits=True).fit(logits, y).temperature_
            calibration = None if calibration == "temperature" else calibration
        return FrozenEstimator(given), calibration

    def _calibration_rows(self, given: Any) -> Ints:
        """Return the rows to train on; given outputs are calibrated on some of them if there are many."""
        train = self.parts.train
        most = max(1, _MOST_OUTPUTS // len(given.classes_)) if hasattr(given, "outputs") else len(train)
        if len(train) <= most:
            return train
        return np.sort(np.random.default_rng(self.spec.seed).choice(train, most, replace=False))

    def fit_with_experts(self, answers: dict[str, Objects]) -> "TableModel":
        """Fit a classifier that asks experts, given their answers of shape (n_rows, n_people)."""
        from demur.deferral import DeferOption
        from demur.tabular.expert_columns import ExpertColumns, given_answers
        from demur.tabular.table_model import TableModel, free_label

        experts: ExpertColumns = self.spec.experts
        labels, classes, counted = self.labels, np.unique(self.labels), {}
        wrong = np.where(labels == classes[0], classes[1], classes[0])
        for name, people in answers.items():
            given = given_answers(people)
            # A class that these rows do not have is wrong in any case, as any other class than the label is.
            unknown = np.nonzero(given & ~np.isin(people.astype(str), classes))
            people[unknown] = wrong[unknown[0]]
            right, rows = given & (people == labels[:, None]), int(given.any(axis=1).sum())
            counted[name] = {"rows": rows, "answers": int(given.sum()), "right": int(right.sum())}
        estimator, features = self._estimator(needs_proba=True, share=1 / (1 + len(experts.prices)))
        classifier = DeferOption(estimator, dict(experts.prices)).set_params(reject_label=free_label(classes))
        classifier.fit(features, labels, answers=answers, groups=self.groups)
        return TableModel(self.schema, classifier, facts={"answers": counted}, experts=experts)

    def _estimator(self, needs_proba: bool, share: float = 1.0) -> tuple[Any, AnyArray]:
        """Return the unfitted classifier and its features; ``share`` is that of the time budget."""
        from demur.estimators import AutoClassifier, RejectClassifier
        from demur.estimators.candidates import candidate_named
        from demur.losses import resolve

        spec = self.spec
        settings: ByName = {"random_state": spec.seed, "verbose": spec.verbose}
        settings["categorical_features"] = self.schema.categorical
        if spec.model == "auto" or candidate_named(spec.model) is not None:
            names = (self.among or None) if spec.model == "auto" else [spec.model]
            budget = None if spec.time_budget is None else spec.time_budget * share
            text = self.schema.text if self.schema.text.any() else None
            settings |= {"text_features": text, "time_budget": budget}
            return AutoClassifier(names, preset=spec.preset, **settings), self.values
        if self.schema.text.any():
            name = self.schema.names[self.schema.text.argmax()]
            raise InputError(
                f"{spec.model} does not read text, which column {shown(name)} holds: use auto, text, lr or nn, or "
                f"leave the column out with --drop {shown(name)}."
            )
        loss = resolve(spec.model)
        if needs_proba and not loss.has_link:
            raise InputError(
                f"{spec.model} gives no probabilities, which a rule needs: use a cost, or another model such as ce."
            )
        settings |= {"cost": spec.cost, "calibration": None if needs_proba else "auto", "novelty": None}
        return RejectClassifier(loss if ":" in spec.model else spec.model, **settings), self.codes


def model_names() -> dict[str, str]:
    """Return the names of the models that can be fitted, each with a description.

    Examples
    --------
    >>> model_names()["hgb"]
    'gradient boosting'
    """
    from demur.estimators.candidates import CANDIDATES
    from demur.losses import available

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
    demur.errors.InputError: there is no model 'hbg', did you mean 'hgb'?: choose one of 'auto', ...
    """
    from demur.estimators.candidates import candidate_named
    from demur.losses import resolve

    candidate = candidate_named(name)
    if candidate is not None:
        if not candidate.is_installed:
            raise MissingExtraError(f"the model {name!r} needs a package: pip install demur[boost]")
        return candidate.name
    if ":" in name:
        return f"networks trained with {resolve(name).name}"
    names = model_names()
    if name not in names:
        raise InputError(f"there is no model {name!r}{did_you_mean(name, names)}: choose one of {listed(names)}.")
    return names[name]


def _notes(file: TrainingFile, fitted: FittedFile, compared: pa.Table, train: Ints) -> list[str]:
    """Return notes about the rows, the experts and the columns for the user."""
    from demur.estimators.splitting import blocks_of, equal_rows

    data, spec, held_out, notes = file.data, file.spec, fitted.held_out, []
    if spec.group_split is None:
        equal = blocks_of(compared, data.labels).explain()
        notes += [] if equal is None else [equal]
    label = getattr(fitted.model.classifier, "out_of_scope", None)
    if label is not None and label not in data.classes:
        notes.append(f"no row has the out-of-scope label {shown(label)}{did_you_mean(label, data.classes) or '.'}")
    for name, found in fitted.model.facts.get("answers", {}).items():
        if found["right"] == found["answers"]:
            notes.append(
                f"the answers of {name} equal the labels in all {found['rows']:,} rows that have one, so that {name} "
                "counts as always right. Make sure that the labels were not made from these answers."
            )
    schema, of_train = fitted.model.schema, data.take(train)
    codes = schema.encode(of_train.rows)
    notes += likely_leaks(codes, of_train.labels, schema)
    if spec.test is not None and held_out is not None:
        values = [schema.with_texts(codes, of_train.rows), schema.with_texts(schema.encode(held_out), held_out)]
        numbers = equal_rows(np.concatenate(values))
        n_known = int(np.isin(numbers[len(codes) :], numbers[: len(codes)]).sum())
        if n_known:
            notes.append(
                f"{n_known:,} of the {held_out.num_rows:,} rows of {fitted.where} equal a training row in all "
                "features: the figures may be too good."
            )
    return notes


_MOST_ROWS = 5_000
_FEWEST_OTHERS = 30
"""Number of rows outside the largest class from which a column that predicts all of them is a likely leak."""
_LEAVES = 50
_TOLERATED = 0.02
"""Wrong rows, as a share of those outside of the largest class, up to which a column counts as a leak."""


def likely_leaks(codes: Floats, labels: Texts, schema: Schema) -> list[str]:
    """Return a sentence for each column that alone predicts the class of nearly every row.

    A small tree is fitted on each column separately, and tested on other rows. Tables with only one column are not
    checked.

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
    ["column 'code' alone predicts the class of 100.0% of the rows, which looks like a leak: ...
    """
    from sklearn.tree import DecisionTreeClassifier

    some = np.random.default_rng(0).permutation(len(labels))[:_MOST_ROWS]
    y = np.unique(labels[some], return_inverse=True)[1]
    n_others = len(y) - np.bincount(y).max()
    if len(schema.columns) < 2 or n_others < _FEWEST_OTHERS:
        return []
    tree, found, half = DecisionTreeClassifier(max_leaf_nodes=_LEAVES, random_state=0), [], len(y) // 2
    known = np.clip(codes[some], -LARGEST, LARGEST)
    for name, values in zip(schema.names, known.T, strict=True):
        predicted = tree.fit(values[:half, None], y[:half]).predict(values[half:, None])
        share = np.mean(predicted != y[half:])
        if share * len(y) <= _TOLERATED * n_others:
            found.append(
                f"column {shown(name)} alone predicts the class of {1 - share:.1%} of the rows, which looks "
                f"like a leak: if it is known only after the answer, leave it out with --drop {shown(name)}."
            )
    return found


def read_cost_matrix(path: Source, classes: Sequence[str]) -> CostMatrix:
    r"""Read a cost matrix from a table: a row for each true class, a column for each answer, and a column ``reject``.

    Parameters
    ----------
    path : path
        The first column names the true class.
    classes : sequence of str
        The classes, in the order of the model.

    Examples
    --------
    >>> import io
    >>> costs = io.BytesIO(b"true,reject,dog,cat\ndog,0.5,0,4\ncat,0.5,1,0\n")
    >>> read_cost_matrix(costs, ["cat", "dog"])
    CostMatrix(costs=[[0.0, 1.0, 0.5], [4.0, 0.0, 0.5]])
    """
    name, answers, table = source_name(path), [*classes, "reject"], read_table(path)
    names = class_texts(table.column(0)).tolist()
    if (
        len(set(answers)) < len(answers)
        or sorted(names, key=str) != sorted(classes)
        or not {*answers} <= {*table.column_names[1:]}
    ):
        raise TableError(
            f"{name} is not a cost matrix of the classes {listed(classes)}: give one row for each class, which the "
            "first column names, and a column of costs for each class and one called reject"
        )
    try:
        costs = [[float(table[one][names.index(true)].as_py()) for one in answers] for true in classes]
    except (TypeError, ValueError):
        raise TableError(f"{name} holds a cell that is not a number: give a number in every cell") from None
    return CostMatrix(costs)
