"""Cascades in tables: the answers, confidences and prices of services in the columns of a calls file."""

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from demur.array_types import ByName, Floats, Mask, Objects
from demur.columns.frames import TableError, as_table, check_columns, listed, shown
from demur.columns.schema import Column, Schema
from demur.deferral.cascade import HUMAN, Cascade, CascadeRun
from demur.errors import InputError
from demur.metrics import Interval, proportion_interval
from demur.tabular.evaluation_figures import counted, four_digits, json_ready, mean_of, percent
from demur.tabular.expert_columns import given_answers, read_answers
from demur.tabular.fitting import FitOptions, FittedFile, TrainingFile
from demur.tabular.table_files import (
    LabelledTable,
    Source,
    as_column,
    check_classes,
    label_type,
    writable_type,
)
from demur.tabular.table_model import CALL_COLUMNS, TableModel

_ALL, _CASCADE = "all services", "cascade"


@dataclass(frozen=True)
class ServiceColumns:
    """The columns of one service.

    Parameters
    ----------
    answer : str
    confidence : str or None
        None for a service that reports no confidence.
    price : str or float
        The price of a call, or the column with it. The cascade decides by the mean of the column.
    """

    answer: str
    confidence: str | None
    price: float | str

    @property
    def numbers(self) -> list[str]:
        """The columns of numbers."""
        return [name for name in (self.confidence, self.price) if isinstance(name, str)]


@dataclass(frozen=True, eq=False, repr=False)
class CallsModel(TableModel):
    """A cascade of services whose answers, confidences and prices are columns of a table. Made by :func:`fit_calls`.

    Its :meth:`answers` have for each row the service to ask next, or the answer; the cells of calls that were not made
    are empty.
    """

    services: Mapping[str, ServiceColumns] = field(default_factory=dict)

    cost = None
    cost_adjustable = has_proba = False
    why_cost_fixed = "a cascade decides by the prices of its services"

    def explain(self) -> str:
        """Return how the cascade decides."""
        cascade: Cascade = self.classifier
        goal = (
            f"at a cost of {cascade.mistake:g} for a mistake"
            if cascade.budget is None
            else f"for at most {cascade.budget:g} per row"
        )
        return f"Asks {listed([*cascade.services, *([] if cascade.human is None else [HUMAN])])} one by one, {goal}."

    def _decide(self, *_: Any) -> NoReturn:
        raise InputError("a cascade says whom to ask or what to answer: use answers().")

    def answer_columns(self, columns: Collection[str] = ()) -> tuple[str, ...]:
        """Return the names of the columns of :meth:`answers`."""
        return CALL_COLUMNS

    def answers(
        self,
        table: Any,
        cost: Any = None,
        *,
        proba: bool = False,
        prices: Any = None,
        where: str = "the table",
        first: int = 0,
        **_: Any,
    ) -> pa.Table:
        """Return for each row the service to ask next, or the answer.

        ``decision`` is "ask" or "answer", ``service`` the service to ask, ``answer`` the class, ``confidence`` the
        probability of the likeliest class, ``spent`` the price of the calls that were used, and ``reason`` names
        answers that are not classes. The parameters are those of :meth:`TableModel.answers`; a cascade has no other
        cost or prices.
        """
        if cost is not None:
            self.check_cost(cost)
        self.check_prices(prices)
        if proba:
            self.check_proba()
        said, sure, paid = self.calls(as_table(table), where, first)
        run: CascadeRun = self.classifier.run(said, sure)
        asks, names = run.ask != np.array(None), as_column(self.classes, self.label_type)
        codes = np.searchsorted(self.classes, run.label)
        unknown = run.asked & ~np.isin(said.astype(str), self.classes)
        reasons: list[str | None] = [None] * len(said)
        for row in np.flatnonzero(unknown.any(axis=1)).tolist():
            texts = [f"{name} says {shown(said[row, s])}" for s, name in enumerate(self.services) if unknown[row, s]]
            reasons[row] = f"not one of the classes: {', '.join(texts)}"
        found = (
            pa.array(np.where(asks, "ask", "answer")),
            pa.array(run.ask.tolist(), pa.string()),
            names.take(pa.array(codes, mask=asks)),
            run.confidence,
            (run.asked * paid).sum(axis=1),
            pa.array(reasons, pa.string()),
        )
        return pa.table(dict(zip(CALL_COLUMNS, found, strict=True)))

    def calls(self, table: pa.Table | pa.RecordBatch, where: str, first: int = 0) -> tuple[Objects, Floats, Floats]:
        """Return answers, confidences and prices, each of shape (n_rows, n_services); answers are None if not made.

        Raises
        ------
        TableError
            If an answer has no confidence.
        """
        known = set(self.classes.tolist())
        codes = dict(zip(self.schema.names, self.schema.encode(table, where=where).T, strict=True))
        said = np.full((table.num_rows, len(self.services)), None, dtype=object)
        sure, paid = np.ones(said.shape), np.zeros(said.shape)
        for s, (name, service) in enumerate(self.services.items()):
            said[:, s] = read_answers(table[service.answer], known)
            price = self.classifier.services[name]
            own = codes[service.price] if isinstance(service.price, str) else np.nan
            paid[:, s] = np.where(np.isnan(own), price, own)
            if service.confidence is not None:
                sure[:, s] = codes[service.confidence]
                for row in np.flatnonzero(given_answers(said[:, s]) & np.isnan(sure[:, s]))[:1].tolist():
                    raise TableError(
                        f"{where}: row {first + row + 1:,} has the answer {shown(said[row, s])} of {shown(name)} but "
                        f"no confidence: fill in column {shown(service.confidence)}, or clear {shown(service.answer)} "
                        "where the call was not made"
                    )
        return said, sure, paid


def fit_calls(
    path: Source,
    target: str,
    services: Mapping[str, tuple[str, str | None, float | str]],
    *,
    human: float | None = None,
    mistake: float | None = None,
    budget: float | None = None,
    **options: Any,
) -> FittedFile:
    r"""Fit a cascade on a file with the answers, confidences and prices of several services.

    Rows that not every service has answered are left out.

    Parameters
    ----------
    path : path, "-" or binary stream
    target : str
        The column with the labels.
    services : mapping
        Three entries for each service by its name: the column with the answers, the column with the confidences or
        None, and the price of a call or the column with it.
    human, mistake, budget : float, optional
        As for :class:`~demur.Cascade`.
    **options
        The fields of :class:`FitOptions` about files and rows held out: ``test``, ``holdout``, ``group_split``,
        ``time_split``, ``delimiter``, ``decimal``, ``seed``.

    Examples
    --------
    >>> import io
    >>> rows = "".join(f"{k % 2},{(k % 2) ^ (k % 5 == 0)},{0.5 + 0.4 * (k % 5 > 0)},{k % 2}\n" for k in range(300))
    >>> services = {"small": ("small", "sure", 0.01), "large": ("large", None, 0.1)}
    >>> fitted = fit_calls(io.BytesIO(b"y,small,sure,large\n" + rows.encode()), "y", services, mistake=1.0)
    >>> calls = pa.table({"small": ["1", "1"], "sure": [0.9, 0.5], "large": pa.nulls(2, pa.string())})
    >>> fitted.model.answers(calls).select(["decision", "service", "answer"]).to_pylist()[1]
    {'decision': 'ask', 'service': 'large', 'answer': None}
    """
    started = time.perf_counter()
    if (mistake is None) == (budget is None):
        raise InputError(
            "give either mistake (--mistake), the cost of a mistake, or budget, the mean amount to spend per row."
        )
    columns = {name: ServiceColumns(*one) for name, one in services.items()}
    answers = [one.answer for one in columns.values()]
    file = TrainingFile.read(path, target, FitOptions(**options), answers=answers)
    data = file.data
    schema = _schema(file, columns)
    train, held_out = file.split(schema, data.classes)
    own = data.take(train)
    prices = {name: _mean_price(name, one, own) for name, one in columns.items()}
    cascade = Cascade(prices, mistake=mistake, budget=budget, human=human, random_state=file.spec.seed)
    cascade.classes_ = np.array(data.classes)
    kind = writable_type(data.classes, label_type(data.rows[target], target))
    model = CallsModel(schema, cascade, label_type=kind, services=columns)
    said, sure, _ = model.calls(data.rows, data.where)  # of all rows, so that an error names the row of the file
    said, sure = said[train], sure[train]
    whole = _answered_by_all(said, data.name)
    check_classes(own.labels[whole], target)
    cascade.fit(said[whole], sure[whole], own.labels[whole])
    cascade.run(said[whole][:1], sure[whole][:1])  # refuses a budget that buys nothing
    model.facts.update(
        {
            "model": _CASCADE,
            "model_in_words": f"a cascade (a{model.explain()[1:-1]})",
            "rows": int(whole.sum()),
            "classes": {name: int((own.labels[whole] == name).sum()) for name in cascade.classes_.tolist()},
            "rows_without_label": data.n_unlabelled,
            "prices": prices,
        }
    )
    notes = tuple(_notes(said, whole, cascade))
    return FittedFile(model, held_out, file.where, time.perf_counter() - started, notes)


def _answered_by_all(said: Objects, where: str) -> Mask:
    """Return which rows have an answer from every service."""
    whole = np.asarray(given_answers(said).all(axis=1))
    if not whole.any():
        raise TableError(f"no row of {where} has an answer of every service: ask all services about some rows")
    return whole


def _schema(file: TrainingFile, services: Mapping[str, ServiceColumns]) -> Schema:
    """Return the columns of the services, after a check that they exist and are used once."""
    header, target, columns = file.data.rows.column_names, file.data.target, []
    taken = {target: "it is the target"}
    for name, one in services.items():
        for column in (one.answer, *one.numbers):
            check_columns([column], header, file.data.name, f" for the service {shown(name)}")
            if column in taken:
                raise TableError(f"column {shown(column)} cannot be used for {shown(name)}: {taken[column]}")
            taken[column] = f"it is a column of {shown(name)}"
        columns.append(Column(one.answer, "category", tuple(file.data.classes), other=True))
        columns += [Column(column, "number") for column in one.numbers]
    aside = {name: "it is not part of a call" for name in header if name not in taken}
    return Schema(tuple(columns), target, set_aside=aside, notation=file.notation)


def _mean_price(name: str, service: ServiceColumns, data: LabelledTable) -> float:
    if not isinstance(service.price, str):
        return service.price
    prices = Column(service.price, "number").encode(data.rows[service.price], data.name)
    if np.isnan(prices).all() or np.nanmin(prices) < 0:
        raise TableError(f"column {shown(service.price)} must hold prices of {shown(name)} of at least 0")
    return float(np.nanmean(prices))


def _notes(said: Objects, whole: Mask, cascade: Cascade) -> list[str]:
    """Return notes about the calls for the user."""
    notes = []
    if not whole.all():
        rows = counted(int((~whole).sum()), "row is", "rows are")
        notes.append(f"{rows} left out: not every service has answered.")
    for s, name in enumerate(cascade.services):
        strange = [text for text in said[whole, s].tolist() if text not in set(cascade.classes_.tolist())]
        if strange:
            answers = counted(len(strange), "answer", "answers")
            notes.append(f"{name} gives {answers} that are not among the classes, such as {shown(strange[0])}.")
    return notes


# Evaluation -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Payment:
    """Mean costs per row of one way to ask services, with 95 % intervals.

    Parameters
    ----------
    name : str
        "cascade", a service, "all services" or "human".
    error : Interval
        The share of wrong answers.
    spent : float
        The mean price.
    cost : Interval or None
        The mean price plus the cost of mistakes; None where a mistake has no cost.
    asked : float
        The share of rows for which the cascade asks this service or the human.
    """

    name: str
    error: Interval
    spent: float
    cost: Interval | None
    asked: float


@dataclass(frozen=True)
class CallsEvaluation:
    """Evaluation of a cascade on rows that every service has answered, beside each service and all of them.

    Parameters
    ----------
    n_rows, n_left_out : int
        Rows that were evaluated, and rows that not every service has answered.
    payments : tuple of Payment
        Costs of the cascade, then of the alternatives.
    """

    n_rows: int
    n_left_out: int
    payments: tuple[Payment, ...]

    def sentences(self) -> list[str]:
        """Return the results in sentences."""
        first, *others = self.payments
        left = counted(self.n_left_out, "row is", "rows are")
        more = [f"{left} left out: not every service has answered."] if self.n_left_out else []
        services = [one for one in others if one.name != _ALL and (first.cost or one.name != HUMAN)]
        best = min(services, key=lambda one: (one.cost or one.error).estimate)
        words = []
        for name, one in (("The cascade", first), (f"{best.name} alone", best)):
            error, spent = f"{percent(one.error.estimate)} errors", four_digits(one.spent)
            if one.cost is None:
                words.append(f"{name} spends {spent} per row ({error})")
            else:
                words.append(f"{name} costs {four_digits(one.cost.estimate)} per row ({spent} for calls, {error})")
        return [f"{'; '.join(words)}.", *more]

    def to_json(self) -> ByName:
        """Return every figure as plain numbers, strings, lists and dicts."""
        found: ByName = json_ready({**vars(self), "sentences": self.sentences()})
        return found


def evaluate_calls(model: CallsModel, table: Any, *, where: str = "the table") -> CallsEvaluation:
    """Run a cascade on labelled rows that every service has answered.

    The answer of the human counts as right, and "all services" is the likeliest class given all answers.

    Parameters
    ----------
    model : CallsModel
    table : pyarrow.Table
        With the columns of the services and the target.
    where : str
        The name of the table in messages.
    """
    data, cascade = LabelledTable.of(table, model.target, where), model.classifier
    said, sure, paid = model.calls(data.rows, data.where)
    whole = _answered_by_all(said, where)
    said, sure, paid, labels = said[whole], sure[whole], paid[whole], data.labels[whole].astype(object)
    run: CascadeRun = cascade.run(said, sure)
    person, price = run.ask == HUMAN, cascade.human or 0.0
    asked = dict(zip(cascade.services, run.asked.mean(axis=0).tolist(), strict=True)) | {HUMAN: float(person.mean())}
    nobody, most = np.zeros(len(labels), dtype=bool), float(paid.max(axis=0).sum() + price)
    ways = {_CASCADE: ((run.label != labels) & ~person, (run.asked * paid).sum(axis=1) + price * person)}
    ways |= {name: (said[:, s] != labels, paid[:, s]) for s, name in enumerate(cascade.services)}
    ways[_ALL] = cascade.combine(said, sure) != labels, paid.sum(axis=1)
    if cascade.human is not None:
        ways[HUMAN] = nobody, nobody + price
    payments = []
    for name, (wrong, spent) in ways.items():
        dearest, cost = most if name == _CASCADE else float(spent.max()), None
        if cascade.mistake is not None:
            cost = mean_of(spent + cascade.mistake * wrong, [dearest + cascade.mistake * (name != HUMAN)])
        error = proportion_interval(int(wrong.sum()), len(wrong))
        payments.append(Payment(name, error, float(spent.mean()), cost, asked.get(name, 1.0)))
    return CallsEvaluation(len(labels), int((~whole).sum()), tuple(payments))
